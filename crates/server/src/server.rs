//! A server from its start to its end.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use loxley_api::{
    Access, ApiError, ClusterInfo, ErrorCode, Health, InstanceInfo, InstanceState, Role,
    ServerInfo, Severity, ShardInfo,
};
use loxley_config::{JobAccess, ServerSettings};
use loxley_engine::RecoverError;
use loxley_journal::{AppendError, Journal, Notice, OpenError, Pruned, Retention, SqliteJournal};
use loxley_policy::Config;
use tokio::sync::watch;

use crate::auth::{Caller, Gate, GateError};
use crate::cluster_health;
use crate::decider::{
    self, EngineOptions, Handle, HistorySource, Instances, Observer, Question, Running,
};
use crate::large_results::LargeResults;
use crate::listen::{self, ConnectionLimits};
use crate::marks::RecentMarks;
use crate::samples::FigureSamples;
use crate::session::AgentService;
use crate::settings::Settings;
use crate::trace_export::TraceExport;

/// How what a server logs is changed while it runs, by whoever set the log up.
#[derive(Clone)]
pub struct LogSwitch(Arc<SetLog>);

type SetLog = dyn Fn(&str) -> Result<(), String> + Send + Sync;

impl LogSwitch {
    /// `set` takes what `--log` takes, and says what is wrong with it.
    pub fn new(set: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(set))
    }
}

impl fmt::Debug for LogSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogSwitch")
    }
}

/// How a server is started.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where it keeps its journal, its certificate and its tokens.
    pub directory: PathBuf,
    /// Where it listens. Port 0 takes any free one.
    pub listen: SocketAddr,
    /// What clients are told to call, when that is not where it listens.
    pub url: Option<String>,
    /// The configuration of the scheduler.
    pub config: Config,
    /// What else it keeps to; as it was last told, when nothing is said here.
    pub settings: Option<ServerSettings>,
    /// What a connection may take.
    pub limits: ConnectionLimits,
    /// Begin with a new journal where one was before and is gone.
    pub new_journal: bool,
    /// How its log is changed while it runs; not at all when absent.
    pub log: Option<LogSwitch>,
    /// Who sends traces to a collector; nobody, when absent.
    pub traces: Option<Arc<dyn TraceExport>>,
}

impl ServerOptions {
    /// A server in this directory, on any free port of this machine, with nothing special.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            listen: SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0)),
            url: None,
            config: Config::served(),
            settings: None,
            limits: ConnectionLimits::default(),
            new_journal: false,
            log: None,
            traces: None,
        }
    }
}

impl ServerOptions {
    /// What clients may call the server by, for its certificate.
    pub(crate) fn names(&self) -> Vec<String> {
        let url: Option<axum::http::Uri> = self.url.as_ref().and_then(|url| url.parse().ok());
        let host = url.as_ref().and_then(|url| url.host());
        let host = host.map(|host| host.trim_matches(['[', ']']).to_owned());
        let address = self.listen.ip();
        let address = (!address.is_unspecified()).then(|| address.to_string());
        host.into_iter().chain(address).collect()
    }
}

/// Why a server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The journal could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There are tokens, so a server was here before, but nothing of what it wrote down.
    #[error(
        "the journal in {directory} is gone: tokens of a server are there, and none of its journal files. Put them \
         back, or begin with nothing: `loxley server start --new`",
        directory = .0.display()
    )]
    JournalGone(PathBuf),
    /// The journal does not lead to a state.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// The certificate or the tokens.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The history.
    #[error("cannot read the history: {0}")]
    History(ApiError),
    /// The port.
    #[error("cannot listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The database of several instances.
    #[error("the database failed: {0}")]
    Database(String),
    /// The name of this instance.
    #[error(
        "an instance called `{name}` is there already, at {url}: give each a name of its own with --instance"
    )]
    NameTaken {
        /// What both are called.
        name: String,
        /// Where the other one listens.
        url: String,
    },
    /// A write failed: nobody knows what would be lost, so nobody goes on.
    #[error("a write to the journal failed")]
    Write(#[from] AppendError),
}

/// What request handlers need.
#[derive(Clone, Debug)]
pub struct Context {
    /// The way to the engine.
    pub handle: Handle,
    /// Tokens.
    pub gate: Arc<Gate>,
    facts: Arc<Facts>,
    large_results: LargeResults,
    marks: RecentMarks,
    samples: FigureSamples,
    log: Option<LogSwitch>,
    traces: Option<Arc<dyn TraceExport>>,
    settings: Arc<Settings>,
    instances: Arc<Instances>,
    #[cfg(feature = "postgres")]
    shared: Option<crate::cluster::SharedTokens>,
    stop: watch::Sender<bool>,
}

#[derive(Debug)]
struct Facts {
    url: String,
    directory: PathBuf,
    started_unix_ms: u64,
}

impl Context {
    /// What the server says of itself.
    ///
    /// # Errors
    /// When it is stopping.
    pub async fn info(&self) -> Result<ServerInfo, ApiError> {
        Ok(ServerInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            url: self.facts.url.clone(),
            directory: self.facts.directory.display().to_string(),
            started_unix_ms: self.facts.started_unix_ms,
            draining: self.handle.is_draining(),
            jobs_open: self.handle.open_jobs().await?,
            journal_position: self.handle.journal_position(),
            journal_bytes: self.handle.room().bytes,
            journal_unused_bytes: self.handle.room().unused,
            disk_full: self.handle.is_disk_full(),
            fleet: self.handle.fleet().await?,
        })
    }

    /// The instances of this server, and who of them holds what.
    ///
    /// # Errors
    /// When it is stopping.
    pub async fn cluster(&self) -> Result<ClusterInfo, ApiError> {
        let fleet = self.handle.fleet().await?;
        let seen = self.instances.seen.read();
        let seen = seen.unwrap_or_else(PoisonError::into_inner).clone();
        let mut cluster = seen.unwrap_or_else(|| self.alone());
        // What the database said is some seconds old; who asks is answered by the one that serves.
        let mut name = None;
        for instance in &mut cluster.instances {
            if instance.url == self.facts.url {
                instance.state = InstanceState::Serving;
                name = Some(instance.name.clone());
            } else if instance.state == InstanceState::Serving && self.instances.is_only_shard {
                instance.state = InstanceState::Standby;
            }
        }
        let serves = |instance: &InstanceInfo| instance.state != InstanceState::Serving;
        cluster.instances.sort_by_key(serves);
        let own = self.instances.shard;
        for shard in cluster.shards.iter_mut().filter(|one| one.shard == own) {
            shard.epoch = self.instances.epoch.load(Ordering::Relaxed);
            shard.holder.clone_from(&name);
            shard.journal_position = self.handle.journal_position();
            shard.commit_sec = Some(self.handle.commit_ns() as f64 / 1e9);
            shard.agents = Some(fleet.agent_count);
        }
        Ok(cluster)
    }

    /// A server that is the only one.
    fn alone(&self) -> ClusterInfo {
        ClusterInfo {
            instances: vec![InstanceInfo {
                name: "server".to_owned(),
                url: self.facts.url.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                state: InstanceState::Serving,
                started_unix_ms: self.facts.started_unix_ms,
                silent_sec: 0.0,
                clock_ahead_sec: 0.0,
            }],
            shards: vec![ShardInfo {
                shard: 0,
                epoch: 0,
                holder: None,
                lease_left_sec: None,
                journal_position: 0,
                lag_groups: None,
                commit_sec: None,
                agents: None,
                away: None,
                guests: None,
                lost: None,
            }],
            replication: None,
            replicas: Vec::new(),
        }
    }

    /// Gives away what this instance holds, so that another one serves; this one stands by from then on.
    ///
    /// # Errors
    /// When there is nobody to take it.
    pub async fn hand_over(&self) -> Result<ClusterInfo, ApiError> {
        let conflict = |message: &str, help: &str| {
            Err(ApiError::new(ErrorCode::Conflict, message).with_help(help))
        };
        if !self.is_clustered() {
            let help =
                "several servers share a journal in PostgreSQL: `loxley server start --journal`";
            return conflict("this server is the only one", help);
        }
        let cluster = self.cluster().await?;
        let stands_by = |one: &InstanceInfo| one.state == InstanceState::Standby;
        if !cluster.instances.iter().any(stands_by) {
            let help = "start another one first; `loxley server stop` ends this one all the same";
            return conflict("no other instance stands by", help);
        }
        tracing::info!("told to hand over");
        self.instances.hand_over.notify_one();
        Ok(cluster)
    }

    /// What is wrong with the fleet, and with the instances of this server.
    ///
    /// # Errors
    /// When it is stopping.
    pub async fn health(&self) -> Result<Health, ApiError> {
        let mut health = self.handle.health().await?;
        // Of several shards each has its own health; that of the cluster is told once.
        if self.instances.is_only_shard {
            let cluster = self.cluster().await?;
            health.problems.extend(cluster_health::problems(&cluster));
        }
        let is_critical = |severity| severity == Severity::Critical;
        health
            .problems
            .sort_by_key(|problem| !is_critical(problem.severity));
        Ok(health)
    }

    /// What the server keeps to.
    #[must_use]
    pub fn settings(&self) -> ServerSettings {
        self.settings.get()
    }

    /// Keeps to something else from now on, also after the next start.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn set_settings(&self, settings: ServerSettings) -> Result<(), ApiError> {
        let set = self.settings.set(settings);
        set.map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))
    }

    /// Whether this caller may look at its own jobs and no others.
    #[must_use]
    pub fn sees_only_own(&self, caller: &Caller) -> bool {
        caller.role == Role::Submit && self.settings().jobs == JobAccess::Own
    }

    /// Where the other instances of this server listen.
    #[must_use]
    pub fn other_urls(&self) -> Vec<String> {
        let urls = self.instances.urls.read();
        let urls = urls.unwrap_or_else(PoisonError::into_inner);
        let others = urls.iter().filter(|url| **url != self.facts.url);
        others.cloned().collect()
    }

    /// Whether other instances may take over from this one: then nothing may be kept on this machine alone.
    #[must_use]
    pub fn is_clustered(&self) -> bool {
        self.instances.epoch.load(Ordering::Relaxed) > 0
    }

    /// Changes who may come in, for all instances. `change` is done again when another one was quicker.
    ///
    /// # Errors
    /// When it makes no sense, or cannot be written down.
    pub async fn change_tokens<T>(
        &self,
        change: impl Fn(&Gate) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        #[cfg(feature = "postgres")]
        if let Some(shared) = &self.shared {
            return shared.change(&self.gate, change).await;
        }
        change(&self.gate)
    }

    /// The results that have files of their own.
    pub(crate) fn large_results(&self) -> &LargeResults {
        &self.large_results
    }

    /// Logs as much as `log` says from now on.
    ///
    /// # Errors
    /// When it makes no sense, or nobody can change the log of this server.
    pub fn set_log(&self, log: &str) -> Result<(), ApiError> {
        let Some(LogSwitch(set)) = &self.log else {
            let message = "the log of this server cannot be changed while it runs";
            return Err(ApiError::new(ErrorCode::Conflict, message));
        };
        set(log).map_err(|wrong| ApiError::invalid(format!("log: {wrong}")))?;
        tracing::info!(log, "the log was changed");
        Ok(())
    }

    /// Sends traces there from now on; nowhere, when nothing is said.
    ///
    /// # Errors
    /// When it makes no sense, or nobody is there who sends traces.
    pub fn set_collector(&self, collector: Option<&str>) -> Result<(), ApiError> {
        let Some(traces) = &self.traces else {
            let message = "this server was started by a program that cannot send traces";
            return Err(ApiError::new(ErrorCode::Conflict, message));
        };
        let sent = traces.send_to(&self.handle, collector);
        sent.map_err(|wrong| ApiError::invalid(format!("collector: {wrong}")))?;
        tracing::info!(collector, "traces were switched");
        Ok(())
    }

    /// Where traces go.
    #[must_use]
    pub fn collector(&self) -> Option<String> {
        self.traces.as_ref().and_then(|traces| traces.collector())
    }

    /// What happened lately.
    pub(crate) fn marks(&self) -> &RecentMarks {
        &self.marks
    }

    /// How the figures went.
    pub(crate) fn samples(&self) -> &FigureSamples {
        &self.samples
    }

    /// What the settings do not keep.
    #[must_use]
    pub fn retention(&self) -> Retention {
        /// So much unused room stays for what comes.
        const SPARE: u64 = 4 << 20;
        let limit = |number: u64| (number > 0).then_some(number);
        let kept = self.settings().retention;
        let days = |days: u64| Duration::from_secs(days.saturating_mul(24 * 60 * 60));
        Retention {
            older_than: limit(kept.days).map(|number| self.handle.moment(days(number))),
            jobs_max: limit(kept.jobs),
            bytes_max: limit(kept.size_mb).map(|megabytes| megabytes << 20),
            both: false,
            spare_bytes: if self.handle.is_disk_full() { 0 } else { SPARE },
        }
    }

    /// Forgets what the settings do not keep: now and then, when they change, and when the disk is full.
    async fn forget_now_and_then(self) {
        const EVERY: Duration = Duration::from_secs(60);
        const RESULTS_EVERY: u32 = 60;
        for round in 0_u32.. {
            let pruned = self.handle.prune(self.retention()).await;
            match &pruned {
                Ok(Pruned { jobs: 0, .. }) => {}
                Ok(Pruned { jobs, tasks, .. }) => tracing::info!(jobs, tasks, "forgot the past"),
                Err(error) if error.code == ErrorCode::Unavailable => return,
                // Said where it happened, and tried again.
                Err(_) => {}
            }
            let forgot = pruned.as_ref().is_ok_and(|pruned| pruned.jobs > 0);
            if forgot || round % RESULTS_EVERY == 0 {
                self.tidy_large_results().await;
            }
            if pruned.is_ok_and(|pruned| pruned.more) {
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                () = self.handle.wants_room() => {}
                () = self.settings.changed() => {}
            }
        }
    }

    /// Removes large results of tasks that nobody knows any more.
    pub(crate) async fn tidy_large_results(&self) {
        for (task, path) in self.large_results.tasks() {
            let known = self.handle.task(task).await;
            if known.is_err_and(|error| error.code == ErrorCode::NotFound) {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// What the journal takes on disk: its file, and what of it is not in there yet.
    pub(crate) async fn journal_bytes(&self) -> u64 {
        let directory = self.facts.directory.clone();
        let counted =
            tokio::task::spawn_blocking(move || loxley_journal::bytes_on_disk(&directory));
        counted.await.unwrap_or(0)
    }

    /// What clients are told to call.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.facts.url
    }

    /// Ends the server. Agents go on with what they have, and look for it.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Accepts no more jobs, and ends the server when those that it has are over.
    pub fn drain(&self) {
        /// Nobody waits for the last moment of a drain.
        const LOOK: Duration = Duration::from_millis(200);
        self.handle.drain();
        let this = self.clone();
        tokio::spawn(async move {
            while this.handle.open_jobs().await.is_ok_and(|open| open > 0) {
                tokio::time::sleep(LOOK).await;
            }
            this.stop();
        });
    }
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    context: Context,
    address: SocketAddr,
    access: Access,
    notices: Vec<Notice>,
    /// None where somebody else drives the engine.
    running: Option<Running>,
    /// None where somebody else listens.
    serving: Option<tokio::task::JoinHandle<()>>,
}

/// The pages for people and programs that are no agents.
pub(crate) type Routes = Arc<dyn Fn(Context) -> Router + Send + Sync>;

/// The body of an `async fn` is compiled by every crate that awaits it; in a box, the whole server is compiled here.
pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Server {
    /// Opens the journal, brings back its state, and listens. `routes` are the pages for people and
    /// programs that are no agents; every request that reaches them holds a [`Caller`](crate::Caller).
    ///
    /// # Errors
    /// When something cannot be opened, read or bound.
    pub fn start(
        options: ServerOptions,
        routes: impl Fn(Context) -> Router + Send + Sync + 'static,
    ) -> Boxed<Result<Self, ServerError>> {
        Self::start_boxed(options, Arc::new(routes))
    }

    fn start_boxed(options: ServerOptions, routes: Routes) -> Boxed<Result<Self, ServerError>> {
        Box::pin(Self::open(options, routes))
    }

    async fn open(options: ServerOptions, routes: Routes) -> Result<Self, ServerError> {
        let was_here = Gate::exists(&options.directory);
        if was_here && !loxley_journal::exists(&options.directory) && !options.new_journal {
            return Err(ServerError::JournalGone(options.directory));
        }
        // First: it makes the directory, for its owner alone.
        let gate = Gate::open(&options.directory, &options.names())?;
        let settings = Settings::read(&options.directory, options.settings)?;
        let (journal, notices) = open_journal(&options.directory, settings.disk_reserve_mb << 20)?;
        let history = HistorySource::open(options.directory.clone());
        let history = history.map_err(ServerError::History)?;
        let parts = Parts::alone(gate, Box::new(journal), history, &options)?;
        Self::start_with(parts, notices, options, routes).await
    }

    /// As [`start`](Self::start), but nothing is written down and nothing can be asked of what is over:
    /// to measure what durability costs.
    ///
    /// # Errors
    /// When something cannot be read or bound.
    pub async fn start_in_memory(
        options: ServerOptions,
        routes: impl Fn(Context) -> Router + Send + Sync + 'static,
    ) -> Result<Self, ServerError> {
        let gate = Gate::open(&options.directory, &options.names())?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let history = HistorySource::none(now.map_or(0, |since| since.as_nanos() as u64));
        let journal = Box::new(loxley_journal::MemoryJournal::new());
        let parts = Parts::alone(gate, journal, history, &options)?;
        Self::start_with(parts, Vec::new(), options, Arc::new(routes)).await
    }

    pub(crate) async fn start_with(
        parts: Parts,
        notices: Vec<Notice>,
        options: ServerOptions,
        routes: Routes,
    ) -> Result<Self, ServerError> {
        let Parts {
            journal,
            history,
            front,
        } = parts;
        let engine = EngineOptions {
            config: options.config.clone(),
            instances: Arc::clone(&front.instances),
            numbers_from: front.numbers_from,
        };
        // A journal is read here, which may take its time, and may not be done by whoever waits for sockets.
        let started =
            tokio::task::spawn_blocking(move || decider::start(journal, history, &engine));
        let (handle, running) = started.await.expect("it does not panic")?;
        let this = Self::serve(handle, Some(running), front, notices, options, routes)?;
        tokio::spawn(this.context.clone().forget_now_and_then());
        Ok(this)
    }

    /// Serves an engine that somebody else drives, until they stop it. `deliver` brings what it is asked to them, and
    /// says whether they are still there; they have the observer answer.
    ///
    /// # Errors
    /// When something cannot be opened, read or bound.
    pub async fn observe(
        options: ServerOptions,
        history: HistorySource,
        deliver: impl FnMut(Question) -> bool + Send + 'static,
        routes: impl Fn(Context) -> Router + Send + Sync + 'static,
    ) -> Result<(Self, Observer), ServerError> {
        let gate = Gate::open(&options.directory, &options.names())?;
        let front = Front::alone(gate, &options)?;
        let (handle, observer) = decider::observe(history, deliver);
        let this = Self::serve(handle, None, front, Vec::new(), options, Arc::new(routes))?;
        Ok((this, observer))
    }

    /// Begins to answer.
    fn serve(
        handle: Handle,
        running: Option<Running>,
        front: Front,
        notices: Vec<Notice>,
        options: ServerOptions,
        routes: Routes,
    ) -> Result<Self, ServerError> {
        let Front {
            gate,
            listener,
            url,
            access,
            instances,
            numbers_from: _,
            #[cfg(feature = "postgres")]
            shared,
        } = front;
        let bound = listener.as_ref().map(tokio::net::TcpListener::local_addr);
        let refused = |source| ServerError::Listen {
            address: options.listen,
            source,
        };
        let address = bound.transpose().map_err(refused)?;
        let address = address.unwrap_or(options.listen);
        let settings = Settings::open(&options.directory, options.settings)?;
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        let (stop, stopped) = watch::channel(false);
        let context = Context {
            handle: handle.clone(),
            gate: Arc::clone(&gate),
            large_results: LargeResults::new(&options.directory),
            marks: RecentMarks::follow(handle.subscribe()),
            samples: FigureSamples::follow(handle.clone()),
            log: options.log,
            traces: options.traces,
            settings: Arc::new(settings),
            instances,
            #[cfg(feature = "postgres")]
            shared,
            facts: Arc::new(Facts {
                url,
                directory: options.directory,
                started_unix_ms: started.map_or(0, |since| since.as_millis() as u64),
            }),
            stop,
        };
        if notices
            .iter()
            .any(|notice| matches!(notice, Notice::ReserveGivenUp { .. }))
        {
            context.handle.note_disk_full();
        }
        if let Some(traces) = &context.traces {
            traces.serve(&context.handle);
        }
        let serving = listener.map(|listener| {
            let router = Router::new()
                .route_service(AgentService::PATH, AgentService::server(handle))
                .merge(routes(context.clone()));
            tokio::spawn(listen::serve(
                listener,
                gate,
                router,
                options.limits,
                stopped,
            ))
        });
        Ok(Self {
            context,
            address,
            access,
            notices,
            running,
            serving,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How its owner gets in.
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// What was found when the journal was opened. Show it.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// What request handlers get.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Runs until somebody stops the server ([`Context::stop`]), or a write fails.
    ///
    /// # Errors
    /// When a write failed.
    pub fn run(self) -> Boxed<Result<(), ServerError>> {
        Box::pin(self.until_stopped())
    }

    async fn until_stopped(self) -> Result<(), ServerError> {
        /// How often the engine is looked after.
        const LOOK: Duration = Duration::from_millis(100);
        let mut stopped = self.context.stop.subscribe();
        let is_over = |running: &Option<Running>| running.as_ref().is_some_and(Running::is_over);
        while !*stopped.borrow_and_update() && !is_over(&self.running) {
            let _ = tokio::time::timeout(LOOK, stopped.changed()).await;
        }
        self.context.stop();
        let ended = match self.running {
            Some(running) => running.stop().await,
            None => Ok(()),
        };
        if let Some(serving) = self.serving {
            let _ = serving.await;
        }
        Ok(ended?)
    }
}

/// What a server is put together from.
pub(crate) struct Parts {
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) history: HistorySource,
    pub(crate) front: Front,
}

/// What a server is to the world, whoever drives its engine.
pub(crate) struct Front {
    pub(crate) gate: Arc<Gate>,
    /// None where somebody else listens, and passes requests on.
    pub(crate) listener: Option<tokio::net::TcpListener>,
    pub(crate) url: String,
    pub(crate) access: Access,
    pub(crate) instances: Arc<Instances>,
    /// The number before that of the first job.
    pub(crate) numbers_from: u64,
    #[cfg(feature = "postgres")]
    pub(crate) shared: Option<crate::cluster::SharedTokens>,
}

impl Front {
    /// That of a server that is the only one.
    fn alone(gate: Gate, options: &ServerOptions) -> Result<Self, ServerError> {
        let (listener, url) = listen_at(options)?;
        Ok(Self {
            access: gate.write_access(&url, &[])?,
            gate: Arc::new(gate),
            listener: Some(listener),
            url,
            instances: Arc::default(),
            numbers_from: 0,
            #[cfg(feature = "postgres")]
            shared: None,
        })
    }
}

impl Parts {
    /// Those of a server that is the only one.
    fn alone(
        gate: Gate,
        journal: Box<dyn Journal>,
        history: HistorySource,
        options: &ServerOptions,
    ) -> Result<Self, ServerError> {
        let front = Front::alone(gate, options)?;
        front.gate.write_agent_access(&front.url, &[])?;
        Ok(Self {
            journal,
            history,
            front,
        })
    }
}

/// Takes the port, and says what clients are to call.
pub(crate) fn listen_at(
    options: &ServerOptions,
) -> Result<(tokio::net::TcpListener, String), ServerError> {
    let refused = |source| ServerError::Listen {
        address: options.listen,
        source,
    };
    let listener = listen::bind(options.listen, &options.limits).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let url = options.url.clone();
    Ok((
        listener,
        url.unwrap_or_else(|| format!("https://{address}")),
    ))
}

fn open_journal(
    directory: &Path,
    reserve_bytes: u64,
) -> Result<(SqliteJournal, Vec<Notice>), OpenError> {
    let opened = SqliteJournal::open(
        directory,
        &loxley_journal::Options {
            holder: "loxley server".to_owned(),
            reserve_bytes: Some(reserve_bytes),
            ..loxley_journal::Options::default()
        },
    )?;
    Ok((opened.journal, opened.notices))
}

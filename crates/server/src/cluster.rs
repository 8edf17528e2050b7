//! One of several instances on one database.
//!
//! ```text
//!   keeper (a task)                          Cluster::run
//!   Member ── Look, Take, Renew ─▶ database  stands by: says to everybody who the holder is
//!     │  ▲                                      │
//!     │  └── Ended, HandOver ───────────────────┤
//!     └── Serve, Stop ────────────────────────▶ serves: journal, decider, sessions, as the only server would
//! ```
//!
//! Who serves is decided by [`Member`], which knows no database and no clock; the keeper carries out what it says. An
//! instance that lost its shard drops everything that it knows and stands by again, in the same process.
//!
//! What must stay true: the [`Lease`] that journal and answers go by is set before anybody serves and only by what `Member`
//! says; no state survives from one time of serving to the next.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use loxley_api::{
    Access, ApiError, ClusterInfo, ErrorBody, ErrorCode, HOLDER_HEADER, InstanceInfo,
    InstanceState, ReplicaInfo, ShardInfo,
};
use loxley_cluster::{Action, Input, Member, Pace, Reason};
use loxley_journal::postgres::{
    Address, Announcement, Claim, Lease, Link, PostgresJournal, Replication, SHARD, Unanswered,
};
use loxley_journal::{DatabaseError, OpenError};
use loxley_model::{Span, Time};
use tokio::sync::{mpsc, watch};

use crate::auth::{Gate, Identity};
use crate::decider::{Handle, HistorySource, Instances};
use crate::listen;
use crate::server::{Context, Front, Parts, Server, ServerError, ServerOptions, listen_at};

/// How long the database may take to answer a question of the keeper.
const ANSWER_TIME: Duration = Duration::from_secs(4);
/// How often an instance says that it is there, and hears of others and of tokens.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(2);
/// An instance that was silent for so long is not named to anybody.
const SILENT: Duration = Duration::from_secs(30);
/// An instance that was silent for so long does not stand by, and its name is free again: three announcements.
const GONE: Duration = Duration::from_secs(6);
/// How many times tokens are written again when another instance was quicker.
const TRIES: u32 = 20;
/// The file that says which cluster a directory belongs to.
const CLUSTER_FILE: &str = "cluster";

/// Where the database is, and what this instance is called.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The database.
    pub address: Address,
    /// What it is called; the name of the machine and the port, when nobody says.
    pub name: Option<String>,
}

/// An instance that listens, and stands by.
#[derive(Debug)]
pub struct Cluster {
    options: ServerOptions,
    address: Address,
    listener: std::net::TcpListener,
    url: String,
    access: Access,
    gate: Arc<Gate>,
    instance: Arc<Instance>,
    stop: watch::Sender<bool>,
}

/// What the keeper and the one that serves both know.
#[derive(Debug)]
struct Instance {
    id: u64,
    name: String,
    url: String,
    lease: Lease,
    instances: Arc<Instances>,
    /// Who serves, as far as we know; empty: nobody.
    holder: Mutex<String>,
}

impl Instance {
    fn name_holder(&self, url: String) {
        let holder = self.holder.lock();
        *holder.unwrap_or_else(PoisonError::into_inner) = url;
    }
}

/// What the keeper has the instance do.
enum Order {
    Serve(Claim),
    Stop(Reason),
}

/// What the keeper is told.
enum Event {
    Serves(Handle),
    Ended,
    HandOver,
    /// The instance ends.
    Leave,
}

impl Cluster {
    /// Makes sure of the database, takes the port, and gets certificate and tokens from the others.
    ///
    /// # Errors
    /// When something cannot be used.
    pub async fn start(
        mut options: ServerOptions,
        cluster: ClusterOptions,
    ) -> Result<Self, ServerError> {
        let ClusterOptions { address, name } = cluster;
        let link = Link::open(&address).await.map_err(OpenError::from)?;
        say_replication(&link).await?;
        let names = options.names();
        // First: a directory of another cluster must not give its key away to this one.
        let cluster = check_cluster(&link, &address, &options.directory).await?;
        share_identity(&link, &options.directory, &names).await?;
        let path = options.directory.join(CLUSTER_FILE);
        crate::auth::write_secret(&path, cluster.as_bytes())?;
        let (listener, url) = listen_at(&options)?;
        // When it is bound anew, it is to the same port.
        let refused = |source| ServerError::Listen {
            address: options.listen,
            source,
        };
        let bound = listener.local_addr().map_err(refused)?;
        let listener = listener.into_std().map_err(refused)?;
        options.listen = bound;
        let name = name.unwrap_or_else(|| default_name(bound.port()));
        let id = random_number();
        // Before its tokens are made, which go by its name.
        claim_name(&link, id, &name, &url).await?;
        if loxley_journal::exists(&options.directory) {
            tracing::warn!(
                directory = %options.directory.display(),
                "the journal in this directory is not used: `loxley journal copy` copies one into a database"
            );
        }
        let gate = Gate::open(&options.directory, &names)?.of_instance(&name);
        let gate = Arc::new(gate);
        let others: Vec<String> = other_urls(&link, &url).await?;
        let tokens = SharedTokens {
            address: address.clone(),
        };
        let write = |gate: &Gate| {
            let access = gate.write_access(&url, &others);
            let access = access.and_then(|access| {
                gate.write_agent_access(&url, &others)?;
                Ok(access)
            });
            access.map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))
        };
        let access = tokens.change_over(&link, &gate, write).await;
        let access = access.map_err(|error| ServerError::Database(error.message))?;
        let instances = Instances {
            seen: RwLock::new(Some(seen(&link).await.map_err(|error| failed(&error))?)),
            ..Instances::default()
        };
        let instance = Instance {
            id,
            name,
            url: url.clone(),
            lease: Lease::over(),
            instances: Arc::new(instances),
            holder: Mutex::default(),
        };
        Ok(Self {
            options,
            address,
            listener,
            url,
            access,
            gate,
            instance: Arc::new(instance),
            stop: watch::channel(false).0,
        })
    }

    /// How its owner gets in.
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Ends the instance when true is sent.
    #[must_use]
    pub fn stopper(&self) -> watch::Sender<bool> {
        self.stop.clone()
    }

    /// Stands by and serves, in turns, until it is told to end.
    ///
    /// # Errors
    /// When the port is lost. What the database does is waited for.
    pub async fn run(self, routes: impl Fn(Context) -> Router) -> Result<(), ServerError> {
        let (events, told) = mpsc::channel(16);
        let (order, mut orders) = mpsc::channel(16);
        let keeper = Keeper {
            address: self.address.clone(),
            instance: Arc::clone(&self.instance),
            gate: Arc::clone(&self.gate),
            directory: self.options.directory.clone(),
            link: None,
            member: Member::new(now(), Pace::default()),
            claim: None,
            serves: None,
            order,
        };
        let keeper = tokio::spawn(keeper.run(told));
        let mut stopped = self.stop.subscribe();
        loop {
            let Some(claim) = self.stand_by(&mut orders, &mut stopped).await? else {
                break;
            };
            let goes_on = self
                .serve(claim, &routes, &events, &mut orders, &mut stopped)
                .await?;
            if !goes_on {
                let _ = events.send(Event::HandOver).await;
            }
            let _ = events.send(Event::Ended).await;
            if !goes_on {
                break;
            }
        }
        let _ = events.send(Event::Leave).await;
        let _ = keeper.await;
        Ok(())
    }

    fn listener(&self) -> Result<tokio::net::TcpListener, ServerError> {
        let listener = self.listener.try_clone();
        let listener = listener.and_then(tokio::net::TcpListener::from_std);
        listener.map_err(|source| ServerError::Listen {
            address: self.options.listen,
            source,
        })
    }

    /// Says to everybody who serves, until it is this instance. None: it is to end.
    async fn stand_by(
        &self,
        orders: &mut mpsc::Receiver<Order>,
        stopped: &mut watch::Receiver<bool>,
    ) -> Result<Option<Claim>, ServerError> {
        let (end, ended) = watch::channel(false);
        let router = Router::new()
            .fallback(standing_by)
            .with_state(Arc::clone(&self.instance));
        let serving = tokio::spawn(listen::serve_anybody(
            self.listener()?,
            Arc::clone(&self.gate),
            router,
            self.options.limits,
            ended,
        ));
        let claim = loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Serve(claim)) => break Some(claim),
                    Some(Order::Stop(_)) => {}
                    None => break None,
                },
                _ = stopped.wait_for(|stop| *stop) => break None,
            }
        };
        // It takes no more connections from here on; those that are open have a moment, and nobody waits for it.
        end.send_replace(true);
        drop(serving);
        Ok(claim)
    }

    /// Serves until the keeper says otherwise, or a write fails. False: the instance is to end.
    async fn serve(
        &self,
        claim: Claim,
        routes: &impl Fn(Context) -> Router,
        events: &mpsc::Sender<Event>,
        orders: &mut mpsc::Receiver<Order>,
        stopped: &mut watch::Receiver<bool>,
    ) -> Result<bool, ServerError> {
        let epoch = claim.epoch;
        tracing::info!(epoch, "takes over");
        let server = match self.take_over(claim, routes).await {
            Ok(server) => server,
            // Whoever is cut off while it reads the journal stands by again. What cannot be read will not be read by
            // the next one, either.
            Err(error @ (ServerError::Open(_) | ServerError::History(_))) => {
                tracing::error!(%error, "cannot take over");
                return Ok(true);
            }
            Err(error) if !self.instance.lease.holds() => {
                tracing::warn!(%error, "could not take over within the lease");
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
        for notice in server.notices() {
            tracing::warn!("{notice}");
        }
        tracing::info!(epoch, url = self.url, "serves");
        let context = server.context().clone();
        let _ = events.send(Event::Serves(context.handle.clone())).await;
        let running = server.run();
        tokio::pin!(running);
        let (mut lost, mut leaves) = (false, false);
        loop {
            tokio::select! {
                ended = running.as_mut() => {
                    return match ended {
                        // Somebody told it to end, by the API or a signal.
                        Ok(()) => Ok(lost && !leaves),
                        Err(error) => {
                            let error = &error as &dyn std::error::Error;
                            tracing::warn!(error, "serves no more; what it knew is dropped");
                            Ok(!leaves)
                        }
                    };
                }
                order = orders.recv() => if let Some(Order::Stop(reason)) = order {
                    tracing::warn!(?reason, epoch, "stops serving");
                    lost = true;
                    if reason != Reason::HandOver {
                        self.instance.lease.end();
                    }
                    context.stop();
                },
                _ = stopped.wait_for(|stop| *stop), if !leaves => {
                    leaves = true;
                    context.stop();
                }
            }
        }
    }

    async fn take_over(
        &self,
        claim: Claim,
        routes: &impl Fn(Context) -> Router,
    ) -> Result<Server, ServerError> {
        let (address, lease) = (self.address.clone(), self.instance.lease.clone());
        let opened = tokio::task::spawn_blocking(move || {
            let journal = PostgresJournal::open(&address, claim, lease)?;
            let history = HistorySource::postgres(address).map_err(ServerError::History)?;
            Ok::<_, ServerError>((journal, history))
        });
        let (journal, history) = opened.await.expect("it does not panic")?;
        let instances = Arc::clone(&self.instance.instances);
        instances.epoch.store(claim.epoch, Ordering::Relaxed);
        let front = Front {
            gate: Arc::clone(&self.gate),
            listener: self.listener()?,
            url: self.url.clone(),
            access: self.access.clone(),
            instances,
            shared: Some(SharedTokens {
                address: self.address.clone(),
            }),
        };
        let parts = Parts {
            journal: Box::new(journal),
            history,
            front,
        };
        Server::start_with(parts, Vec::new(), self.options.clone(), routes).await
    }
}

/// What an instance that stands by says to everybody.
async fn standing_by(State(instance): State<Arc<Instance>>, request: Request) -> Response {
    let holder = instance
        .holder
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let message = match holder.is_empty() {
        true => "this instance stands by, and none has taken over yet".to_owned(),
        false => format!("this instance stands by; {holder} serves"),
    };
    let header = HeaderValue::from_str(&holder).unwrap_or(HeaderValue::from_static(""));
    let mut response = if listen::is_grpc(&request) {
        tonic::Status::unavailable(message).into_http()
    } else if request.uri().path() == "/healthz" {
        (StatusCode::SERVICE_UNAVAILABLE, "standby\n").into_response()
    } else {
        let error = ApiError::new(ErrorCode::Unavailable, message);
        let body = axum::Json(ErrorBody::from(error));
        (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
    };
    response.headers_mut().insert(HOLDER_HEADER, header);
    response
}

/// The task that keeps a lease.
struct Keeper {
    address: Address,
    instance: Arc<Instance>,
    gate: Arc<Gate>,
    directory: std::path::PathBuf,
    link: Option<Link>,
    member: Member,
    claim: Option<Claim>,
    serves: Option<Handle>,
    order: mpsc::Sender<Order>,
}

impl Keeper {
    async fn run(mut self, mut events: mpsc::Receiver<Event>) {
        let mut announce = tokio::time::interval(ANNOUNCE_EVERY);
        announce.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let wake = self.member.next_wake();
            let input = tokio::select! {
                event = events.recv() => match event {
                    Some(Event::Serves(handle)) => {
                        self.serves = Some(handle);
                        self.announce().await;
                        Input::Tick
                    }
                    Some(Event::Ended) => {
                        self.serves = None;
                        self.instance.lease.end();
                        self.instance.name_holder(String::new());
                        Input::Ended
                    }
                    Some(Event::HandOver) => Input::HandOver,
                    Some(Event::Leave) | None => break,
                },
                () = self.instance.instances.hand_over.notified() => Input::HandOver,
                () = sleep_until(wake) => Input::Tick,
                _ = announce.tick() => {
                    self.announce().await;
                    Input::Tick
                }
            };
            if let Some(handle) = &self.serves {
                let took = Input::Committed(Span(handle.commit_ns()));
                self.act(took).await;
            }
            self.act(input).await;
        }
        let id = self.instance.id;
        if let Ok(link) = self.link().await {
            let _ = tokio::time::timeout(ANSWER_TIME, link.leave(id)).await;
        }
    }

    /// Hands something to the member, and does what it says until it says nothing more.
    async fn act(&mut self, input: Input) {
        let mut next = Some(input);
        while let Some(input) = next.take() {
            let mut actions = Vec::new();
            self.member.handle(now(), input, &mut actions);
            for action in actions {
                if let Some(answer) = self.carry_out(action).await {
                    next = Some(answer);
                }
            }
        }
    }

    /// Carries an action out; the answer, where it is a question.
    async fn carry_out(&mut self, action: Action) -> Option<Input> {
        let (id, url) = (self.instance.id, self.instance.url.clone());
        match action {
            Action::Look(question) => {
                let looked = self.ask(async |link| link.shard(SHARD).await).await;
                let Some(state) = looked else {
                    return Some(Input::Unanswered(question));
                };
                let holder = match state.left.is_zero() {
                    true => String::new(),
                    false => state.url,
                };
                self.instance.name_holder(holder);
                Some(Input::Looked {
                    question,
                    epoch: state.epoch,
                    left: span(state.left),
                })
            }
            Action::Take {
                question,
                seen,
                lease,
            } => {
                let lease = Duration::from(lease);
                let taken = self
                    .ask(async |link| link.take(SHARD, seen, id, &url, lease).await)
                    .await;
                Some(match taken {
                    None => Input::Unanswered(question),
                    Some(None) => Input::NotTaken(question),
                    Some(Some(claim)) => {
                        self.claim = Some(claim);
                        // Tokens that others have made since we last looked.
                        self.refresh_tokens().await;
                        let epoch = claim.epoch;
                        Input::Taken { question, epoch }
                    }
                })
            }
            Action::Renew {
                question, lease, ..
            } => {
                let claim = self.claim?;
                let lease = Duration::from(lease);
                let renewed = self.ask(async |link| link.renew(claim, lease).await).await;
                Some(match renewed {
                    None => Input::Unanswered(question),
                    Some(true) => Input::Renewed(question),
                    Some(false) => Input::Fenced(question),
                })
            }
            Action::Serve { until, .. } => {
                self.instance.lease.set(Duration::from_nanos(until.0));
                let _ = self.order.send(Order::Serve(self.claim?)).await;
                None
            }
            Action::Extend { until } => {
                self.instance.lease.set(Duration::from_nanos(until.0));
                None
            }
            Action::Stop(reason) => {
                let _ = self.order.send(Order::Stop(reason)).await;
                None
            }
            Action::Release { .. } => {
                let claim = self.claim?;
                self.ask(async |link| link.release(claim).await).await;
                None
            }
        }
    }

    async fn link(&mut self) -> Result<&Link, DatabaseError> {
        if self.link.is_none() {
            self.link = Some(Link::connect(&self.address).await?);
        }
        Ok(self.link.as_ref().expect("it was just made"))
    }

    /// Asks the database; none when it does not answer in time. Then the next question goes over a new connection.
    async fn ask<T>(
        &mut self,
        question: impl AsyncFnOnce(&Link) -> Result<T, Unanswered>,
    ) -> Option<T> {
        let asked = tokio::time::timeout(ANSWER_TIME, async {
            let link = self.link().await.map_err(|error| error.to_string())?;
            question(link).await.map_err(|error| error.to_string())
        });
        let why = match asked.await {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(why)) => why,
            Err(_) => "no answer in time".to_owned(),
        };
        tracing::warn!(why, "the database does not answer");
        self.link = None;
        None
    }

    /// Says that this instance is there, and hears of others.
    async fn announce(&mut self) {
        let instance = Arc::clone(&self.instance);
        let heard = self
            .ask(async |link| {
                let announcement = announcement(instance.id, &instance.name, &instance.url);
                let is_known = link.announce(&announcement).await?;
                Ok((is_known, seen(link).await?))
            })
            .await;
        let Some((is_known, seen)) = heard else {
            return;
        };
        if !is_known {
            tracing::error!(
                name = instance.name,
                "another instance has this name: give each a name of its own with --instance"
            );
        }
        let silent = SILENT.as_secs_f64();
        let alive = seen
            .instances
            .iter()
            .filter(|other| other.silent_sec < silent);
        let mut urls: Vec<String> = alive.map(|other| other.url.clone()).collect();
        urls.sort_unstable();
        urls.dedup();
        {
            let known = self.instance.instances.seen.write();
            *known.unwrap_or_else(PoisonError::into_inner) = Some(seen);
        }
        let before = {
            let known = self.instance.instances.urls.write();
            let mut known = known.unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *known, urls.clone())
        };
        if before != urls {
            let version = &self.instance.instances.version;
            version.fetch_add(1, Ordering::Release);
            self.write_access_files(&urls);
        }
        self.refresh_tokens().await;
    }

    /// Access files in our directory name all instances.
    fn write_access_files(&self, urls: &[String]) {
        for file in [Access::FILE, Access::AGENT_FILE] {
            let path = self.directory.join(file);
            let Ok(mut access) = Access::read(&path) else {
                continue;
            };
            let others = urls.iter().filter(|url| **url != access.url);
            access.others = others.cloned().collect();
            if let Err(error) = access.write(&path) {
                tracing::warn!(%error, "cannot write an access file");
            }
        }
    }

    async fn refresh_tokens(&mut self) {
        let shared = self.ask(async |link| link.shared(TOKENS).await).await;
        let Some(Some(shared)) = shared else { return };
        if shared != self.gate.tokens_json()
            && let Err(error) = self.gate.load_tokens(&shared)
        {
            tracing::error!(%error, "cannot use the tokens of the other instances");
        }
    }
}

/// Under which name tokens are shared.
const TOKENS: &str = "tokens";
/// Under which name certificate and key are shared.
const IDENTITY: &str = "identity";

/// The tokens that all instances know.
#[derive(Clone, Debug)]
pub(crate) struct SharedTokens {
    address: Address,
}

impl SharedTokens {
    /// Changes them for all instances; `change` is done again when another one was quicker.
    pub(crate) async fn change<T>(
        &self,
        gate: &Gate,
        change: impl Fn(&Gate) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let link = Link::connect(&self.address).await;
        let link = link.map_err(|error| unavailable(&error))?;
        self.change_over(&link, gate, change).await
    }

    async fn change_over<T>(
        &self,
        link: &Link,
        gate: &Gate,
        change: impl Fn(&Gate) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        for _ in 0..TRIES {
            let before = link.shared(TOKENS).await;
            let before = before.map_err(|error| unavailable(&error))?;
            if let Some(before) = &before {
                gate.load_tokens(before)
                    .map_err(|error| unavailable(&error))?;
            }
            let value = change(gate)?;
            let after = gate.tokens_json();
            if before.as_ref() == Some(&after) {
                return Ok(value);
            }
            let shared = link.share(TOKENS, before.as_deref(), &after).await;
            if shared.map_err(|error| unavailable(&error))? {
                return Ok(value);
            }
        }
        let message = "other instances change the tokens at the same time";
        Err(ApiError::new(ErrorCode::Busy, message))
    }
}

fn unavailable(error: &dyn std::error::Error) -> ApiError {
    ApiError::new(ErrorCode::Unavailable, error.to_string())
}

fn failed(error: &dyn std::error::Error) -> ServerError {
    ServerError::Database(error.to_string())
}

/// All instances have one certificate, so that clients know them by its fingerprint: the first one makes it.
async fn share_identity(
    link: &Link,
    directory: &Path,
    names: &[String],
) -> Result<(), ServerError> {
    let shared = |error: Unanswered| failed(&error);
    let known = match link.shared(IDENTITY).await.map_err(shared)? {
        Some(known) => known,
        None => {
            Gate::open(directory, names)?;
            let own = serde_json::to_vec(&Gate::identity(directory)?);
            let own = own.expect("it is JSON");
            if link.share(IDENTITY, None, &own).await.map_err(shared)? {
                return Ok(());
            }
            let known = link.shared(IDENTITY).await.map_err(shared)?;
            known.ok_or_else(|| ServerError::Database("the certificate is gone".to_owned()))?
        }
    };
    let identity: Identity = serde_json::from_slice(&known).map_err(|error| failed(&error))?;
    Ok(Gate::adopt(directory, &identity)?)
}

/// A directory belongs to one cluster: this one.
async fn check_cluster(
    link: &Link,
    address: &Address,
    directory: &Path,
) -> Result<String, ServerError> {
    let found = link.cluster().await.map_err(|error| failed(&error))?;
    let found = format!("{found:016x}");
    let path = directory.join(CLUSTER_FILE);
    match std::fs::read_to_string(&path) {
        Ok(known) if known.trim() == found => Ok(found),
        Ok(known) => Err(OpenError::from(DatabaseError::OtherCluster {
            schema: address.schema().to_owned(),
            found,
            known: known.trim().to_owned(),
        })
        .into()),
        Err(_) => Ok(found),
    }
}

async fn say_replication(link: &Link) -> Result<(), ServerError> {
    match link.replication().await.map_err(|error| failed(&error))? {
        Replication::Synchronous => {}
        Replication::Asynchronous => tracing::warn!(
            "the standbys of the database are asynchronous: when it fails over, what was acknowledged last may be lost; \
             set synchronous_standby_names there"
        ),
        Replication::None => {
            tracing::warn!("the database has no standby: everything depends on its one machine");
        }
    }
    Ok(())
}

fn announcement<'a>(id: u64, name: &'a str, url: &'a str) -> Announcement<'a> {
    let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH);
    Announcement {
        id,
        name,
        url,
        version: env!("CARGO_PKG_VERSION"),
        unix_ms: unix_ms.map_or(0, |since| since.as_millis() as u64),
        silent: GONE,
    }
}

/// Makes a name ours. One that was killed a moment ago and is started again has to wait until its former self is known to
/// be gone; while another one of this name is heard of, it is refused.
async fn claim_name(link: &Link, id: u64, name: &str, url: &str) -> Result<(), ServerError> {
    let mut first_heard: Option<loxley_journal::postgres::Instance> = None;
    loop {
        let announced = link.announce(&announcement(id, name, url)).await;
        if announced.map_err(|error| failed(&error))? {
            return Ok(());
        }
        let instances = link.instances().await.map_err(|error| failed(&error))?;
        let other = instances.into_iter().find(|other| other.name == name);
        match (other, &first_heard) {
            (None, _) => {}
            (Some(other), None) => {
                tracing::warn!(
                    name,
                    url = other.url,
                    "an instance of this name was heard of a moment ago: waiting whether it is still there"
                );
                first_heard = Some(other);
            }
            (Some(other), Some(first)) => {
                if other.id != first.id || other.silent < first.silent {
                    return Err(ServerError::NameTaken {
                        name: name.to_owned(),
                        url: other.url,
                    });
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Asks a database who shares it, without any server.
///
/// # Errors
/// When it cannot be used, or does not answer.
pub async fn look(address: &Address) -> Result<ClusterInfo, ServerError> {
    let link = Link::connect(address).await.map_err(OpenError::from)?;
    seen(&link).await.map_err(|error| failed(&error))
}

/// What the database says of the instances and of what they share.
async fn seen(link: &Link) -> Result<ClusterInfo, Unanswered> {
    let shard = link.shard(SHARD).await?;
    let instances = link.instances().await?;
    let replication = match link.replication().await? {
        Replication::None => loxley_api::Replication::None,
        Replication::Asynchronous => loxley_api::Replication::Asynchronous,
        Replication::Synchronous => loxley_api::Replication::Synchronous,
    };
    // Not every database that speaks the protocol knows, or tells everybody.
    let replicas = link.replicas().await.unwrap_or_default();
    let is_held = !shard.left.is_zero();
    let holds = |id: u64| is_held && shard.holder == Some(id);
    let holder = instances.iter().find(|one| holds(one.id));
    let holder = holder.map(|one| one.name.clone());
    let mut instances: Vec<InstanceInfo> = instances
        .into_iter()
        .map(|one| InstanceInfo {
            state: match one.silent {
                _ if holds(one.id) => InstanceState::Serving,
                silent if silent < GONE => InstanceState::Standby,
                _ => InstanceState::Silent,
            },
            name: one.name,
            url: one.url,
            version: one.version,
            started_unix_ms: one.started_unix_ms,
            silent_sec: one.silent.as_secs_f64(),
            clock_ahead_sec: one.clock_ahead_ms as f64 / 1e3,
        })
        .collect();
    instances.sort_by(|a, b| {
        let key = |one: &InstanceInfo| one.state != InstanceState::Serving;
        (key(a), &a.name).cmp(&(key(b), &b.name))
    });
    Ok(ClusterInfo {
        instances,
        shards: vec![ShardInfo {
            shard: SHARD as u32,
            epoch: shard.epoch,
            holder,
            lease_left_sec: is_held.then_some(shard.left.as_secs_f64()),
            journal_position: shard.next,
            lag_groups: Some(shard.next.saturating_sub(shard.snapshot.unwrap_or(0))),
            commit_sec: None,
            agents: None,
        }],
        replication: Some(replication),
        replicas: replicas
            .into_iter()
            .map(|one| ReplicaInfo {
                name: one.name,
                sync_state: one.sync_state,
                lag_bytes: one.lag_bytes,
            })
            .collect(),
    })
}

async fn other_urls(link: &Link, url: &str) -> Result<Vec<String>, ServerError> {
    let instances = link.instances().await.map_err(|error| failed(&error))?;
    let others = instances.into_iter().filter(|other| other.silent < SILENT);
    let others = others.map(|other| other.url).filter(|other| other != url);
    Ok(others.collect())
}

fn default_name(port: u16) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}-{port}", host.trim())
}

/// Tells this process from every other that was or will be the holder. Numbers have a sign in the database.
fn random_number() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one((std::process::id(), SystemTime::now())) >> 1
}

fn now() -> Time {
    Time(u64::try_from(Lease::now().as_nanos()).unwrap_or(u64::MAX))
}

fn span(duration: Duration) -> Span {
    Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

async fn sleep_until(at: Option<Time>) {
    match at {
        Some(at) => tokio::time::sleep(Duration::from_nanos(at.0.saturating_sub(now().0))).await,
        None => std::future::pending().await,
    }
}

//! One of several instances on one database.
//!
//! ```text
//!   keeper (a task for each shard)          Cluster::hold, for each shard
//!   Member ── Look, Take, Renew ─▶ database  stands by
//!     │  ▲                                      │
//!     │  └── Ended, HandOver ───────────────────┤
//!     └── Serve, Stop ────────────────────────▶ serves: journal, decider, sessions, as the only server would
//!
//!   herald (one task): says that this instance is there, hears of others, shares agents and shards out
//!   router (one port): finds the shard that a request is about, here or at another instance
//! ```
//!
//! Who serves a shard is decided by [`Member`], which knows no database and no clock; the keeper carries out what it says.
//! An instance that lost a shard drops everything that it knows of it and stands by again, in the same process.
//!
//! What must stay true: the [`Lease`] that journal and answers of a shard go by is set before anybody serves it and only by
//! what its `Member` says; no state survives from one time of serving to the next.

mod loss;
mod merge;
mod peers;
mod router;
mod sharing;

pub use loss::accept as accept_loss;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use loxley_api::{
    Access, ApiError, ClusterInfo, ErrorCode, InstanceInfo, InstanceState, ReplicaInfo, ShardInfo,
};
use loxley_cluster::moves::Letter;
use loxley_cluster::shard::ShardId;
use loxley_cluster::{Action, Input, Member, Pace, Reason};
use loxley_journal::postgres::{
    Address, Announcement, Claim, Lease, Link, PostgresJournal, Replication, ShardState,
    StoredLetter, Unanswered,
};
use loxley_journal::{DatabaseError, OpenError};
use loxley_model::{Span, Time};
use tokio::sync::{mpsc, watch};

use crate::auth::{Gate, Identity};
use crate::decider::{Handle, HistorySource, Instances, Loss, News};
use crate::server::{
    Boxed, Context, Front, Parts, Routes, Server, ServerError, ServerOptions, listen_at,
};
use crate::{cluster_health, listen};

/// How long the database may take to answer a question of the keeper.
const ANSWER_TIME: Duration = Duration::from_secs(4);
/// How often an instance says that it is there, and hears of others and of tokens.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(2);
/// An instance that was silent for so long is not named to anybody.
const SILENT: Duration = Duration::from_secs(30);
/// An instance that was silent for so long does not stand by, and its name is free again: three announcements.
const GONE: Duration = Duration::from_secs(6);
/// How often shards say what they have to do, and agents are shared out.
const SHARE_EVERY: Duration = Duration::from_secs(1);
/// How often letters of other shards are looked for.
const LETTERS_EVERY: Duration = Duration::from_millis(250);
/// So long an instance that holds its share leaves a shard that is free to others.
const LEAVE_TO_OTHERS: Duration = Duration::from_secs(3);
/// A shard that was taken less long ago stays where it is.
const SETTLED: Duration = Duration::from_secs(10);
/// How many connections read the history, for all shards together; of which a database has some hundreds for everybody.
const READERS: usize = 8;
/// So many each shard has at least.
const READERS_MIN: usize = 2;
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
    /// Into how many shards the work is divided: said by the first instance, 1 when it does not, and the same ever after.
    pub shards: Option<u16>,
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

/// What everybody in this instance knows.
#[derive(Debug)]
struct Instance {
    id: u64,
    name: String,
    url: String,
    /// All shards, by number, whoever holds them.
    shards: Vec<Shard>,
    /// What the database says of the instances, some seconds old.
    seen: RwLock<ClusterInfo>,
    /// What each shard has to do, as far as it was told lately.
    loads: RwLock<Vec<sharing::ShardLoad>>,
}

/// What is known of a shard.
#[derive(Debug)]
struct Shard {
    number: u16,
    lease: Lease,
    instances: Arc<Instances>,
    /// Where its holder listens, as far as we know; empty: nobody is.
    holder: Mutex<String>,
    /// While this instance serves it.
    served: RwLock<Option<Served>>,
}

/// A shard that this instance serves.
#[derive(Clone, Debug)]
struct Served {
    context: Context,
    router: Router,
    claim: Claim,
    since: Instant,
}

impl Instance {
    /// Those that this instance serves.
    fn served(&self) -> impl Iterator<Item = (&Shard, Served)> {
        let shards = self.shards.iter();
        shards.filter_map(|shard| Some((shard, shard.served()?)))
    }

    fn seen(&self) -> ClusterInfo {
        let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }

    /// Why nobody serves this shard: its journal has lost something.
    fn lost(&self, shard: u16) -> Option<ApiError> {
        let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
        let shard = seen.shards.iter().find(|one| one.shard == u32::from(shard));
        let lost = shard.and_then(|shard| shard.lost.clone())?;
        let message =
            format!("nobody serves: the database has lost what it had acknowledged ({lost})");
        let error = ApiError::new(ErrorCode::Conflict, message);
        Some(error.with_help(cluster_health::AFTER_A_LOSS))
    }

    fn loads(&self) -> Vec<sharing::ShardLoad> {
        let loads = self.loads.read().unwrap_or_else(PoisonError::into_inner);
        loads.clone()
    }

    /// How many shards each instance would hold, this one among them, if all that are there held equally many: as many
    /// as the one with the most.
    fn fair_share(&self) -> usize {
        let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
        let alive = seen.instances.iter();
        let alive = alive.filter(|one| one.state != InstanceState::Silent && one.url != self.url);
        self.shards.len().div_ceil(alive.count() + 1)
    }
}

impl Shard {
    fn new(number: u16, count: u16) -> Self {
        Self {
            number,
            lease: Lease::over(),
            instances: Arc::new(Instances::of_shard(number.into(), count == 1)),
            holder: Mutex::default(),
            served: RwLock::default(),
        }
    }

    /// What somebody saw of its journal that is not there.
    fn take_loss(&self) -> Option<Loss> {
        let loss = self.instances.loss.lock();
        loss.unwrap_or_else(PoisonError::into_inner).take()
    }

    fn name_holder(&self, url: String) {
        let holder = self.holder.lock();
        *holder.unwrap_or_else(PoisonError::into_inner) = url;
    }

    fn holder(&self) -> String {
        let holder = self.holder.lock();
        holder.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn served(&self) -> Option<Served> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        served.clone()
    }

    fn serve(&self, served: Option<Served>) {
        let place = self.served.write();
        *place.unwrap_or_else(PoisonError::into_inner) = served;
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
    pub fn start(
        options: ServerOptions,
        cluster: ClusterOptions,
    ) -> Boxed<Result<Self, ServerError>> {
        Box::pin(Self::join(options, cluster))
    }

    async fn join(
        mut options: ServerOptions,
        cluster: ClusterOptions,
    ) -> Result<Self, ServerError> {
        let ClusterOptions {
            address,
            name,
            shards,
        } = cluster;
        let link = Link::open(&address).await.map_err(OpenError::from)?;
        let shards = link.settle_shards(&address, shards).await;
        let shards = shards.map_err(OpenError::from)?;
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
        let gate = Gate::open(&options.directory, &names)?.of_instance(&name)?;
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
        let instance = Instance {
            id,
            name,
            url: url.clone(),
            shards: (0..shards)
                .map(|number| Shard::new(number, shards))
                .collect(),
            seen: RwLock::new(seen(&link).await.map_err(|error| failed(&error))?),
            loads: RwLock::default(),
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
    pub fn run(
        self,
        routes: impl Fn(Context) -> Router + Send + Sync + 'static,
    ) -> Boxed<Result<(), ServerError>> {
        self.run_boxed(Arc::new(routes))
    }

    fn run_boxed(self, routes: Routes) -> Boxed<Result<(), ServerError>> {
        Box::pin(self.take_turns(routes))
    }

    async fn take_turns(self, routes: Routes) -> Result<(), ServerError> {
        let (end, ended) = watch::channel(false);
        let tokens = SharedTokens {
            address: self.address.clone(),
        };
        let router = router::router(Arc::clone(&self.instance), Arc::clone(&self.gate), tokens);
        let listening = tokio::spawn(listen::serve_anybody(
            self.listener()?,
            Arc::clone(&self.gate),
            router,
            self.options.limits,
            ended.clone(),
        ));
        let herald = Herald {
            asker: Asker::new(&self.address),
            instance: Arc::clone(&self.instance),
            gate: Arc::clone(&self.gate),
            directory: self.options.directory.clone(),
            sharing: sharing::Sharing::default(),
        };
        let herald = tokio::spawn(herald.run(ended));
        let this = Arc::new(self);
        let mut holding = tokio::task::JoinSet::new();
        for shard in 0..this.instance.shards.len() {
            let (this, routes) = (Arc::clone(&this), Arc::clone(&routes));
            holding.spawn(async move { this.hold(shard, &routes).await });
        }
        let mut failed = Ok(());
        while let Some(held) = holding.join_next().await {
            // One that ends by itself ends all: somebody told the instance to, or the port is gone.
            this.stop.send_replace(true);
            failed = failed.and(held.expect("it does not panic"));
        }
        end.send_replace(true);
        let _ = listening.await;
        let _ = herald.await;
        failed
    }

    /// Stands by for a shard and serves it, in turns, until the instance is to end.
    async fn hold(&self, at: usize, routes: &Routes) -> Result<(), ServerError> {
        let (events, told) = mpsc::channel(16);
        let (order, mut orders) = mpsc::channel(16);
        let keeper = Keeper {
            asker: Asker::new(&self.address),
            instance: Arc::clone(&self.instance),
            gate: Arc::clone(&self.gate),
            at,
            member: Member::new(now(), Pace::default()),
            claim: None,
            serves: None,
            free_since: None,
            order,
        };
        let keeper = tokio::spawn(keeper.run(told));
        let mut stopped = self.stop.subscribe();
        loop {
            let Some(claim) = stand_by(&mut orders, &mut stopped).await else {
                break;
            };
            let goes_on = self
                .serve(at, claim, routes, &events, &mut orders, &mut stopped)
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

    /// Serves until the keeper says otherwise, or a write fails. False: the instance is to end.
    async fn serve(
        &self,
        at: usize,
        claim: Claim,
        routes: &Routes,
        events: &mpsc::Sender<Event>,
        orders: &mut mpsc::Receiver<Order>,
        stopped: &mut watch::Receiver<bool>,
    ) -> Result<bool, ServerError> {
        let (epoch, shard) = (claim.epoch, &self.instance.shards[at]);
        let number = shard.number;
        tracing::info!(epoch, shard = number, "takes over");
        let server = match self.take_over(at, claim, routes).await {
            Ok(server) => server,
            // Whoever is cut off while it reads the journal stands by again. What cannot be read will not be read by
            // the next one, either.
            Err(error @ (ServerError::Open(_) | ServerError::History(_))) => {
                tracing::error!(%error, "cannot take over");
                return Ok(true);
            }
            Err(error) if !shard.lease.holds() => {
                tracing::warn!(%error, "could not take over within the lease");
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
        for notice in server.notices() {
            tracing::warn!("{notice}");
        }
        tracing::info!(epoch, shard = number, url = self.url, "serves");
        let context = server.context().clone();
        shard.serve(Some(Served {
            router: routes(context.clone()),
            context: context.clone(),
            claim,
            since: Instant::now(),
        }));
        let _ = events.send(Event::Serves(context.handle.clone())).await;
        let running = server.run();
        tokio::pin!(running);
        let (mut lost, mut leaves) = (false, false);
        let ended = loop {
            tokio::select! {
                ended = running.as_mut() => break ended,
                order = orders.recv() => if let Some(Order::Stop(reason)) = order {
                    tracing::warn!(?reason, epoch, shard = number, "stops serving");
                    lost = true;
                    if reason != Reason::HandOver {
                        shard.lease.end();
                    }
                    shard.serve(None);
                    context.stop();
                },
                _ = stopped.wait_for(|stop| *stop), if !leaves => {
                    leaves = true;
                    shard.serve(None);
                    context.stop();
                }
            }
        };
        shard.serve(None);
        if let Some(loss) = shard.take_loss() {
            self.tell_loss(number, loss).await;
            return Ok(!leaves);
        }
        match ended {
            // Somebody told it to end, by the API or a signal.
            Ok(()) => Ok(lost && !leaves),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "serves no more; what it knew is dropped");
                Ok(!leaves)
            }
        }
    }

    /// Has nobody serve this shard until its owners say that they go on without what is lost. Whoever takes it all the same,
    /// because this could not be written, finds out as we did.
    async fn tell_loss(&self, shard: u16, loss: Loss) {
        let told = async {
            let link = Link::connect(&self.address).await;
            let link = link.map_err(|error| error.to_string())?;
            let noted = loss::note(&link, shard, loss).await;
            noted.map_err(|error| error.to_string())
        };
        if let Err(why) = told.await {
            tracing::warn!(why, shard, "cannot tell the other servers what was lost");
        }
    }

    async fn take_over(
        &self,
        at: usize,
        claim: Claim,
        routes: &Routes,
    ) -> Result<Server, ServerError> {
        let shard = &self.instance.shards[at];
        let (address, lease) = (self.address.clone(), shard.lease.clone());
        let readers = (READERS / self.instance.shards.len()).max(READERS_MIN);
        let opened = tokio::task::spawn_blocking(move || {
            let journal = PostgresJournal::open(&address, claim, lease)?;
            let history = HistorySource::postgres(address, claim.shard, readers);
            let history = history.map_err(ServerError::History)?;
            Ok::<_, ServerError>((journal, history))
        });
        let (journal, history) = opened.await.expect("it does not panic")?;
        let instances = Arc::clone(&shard.instances);
        instances.epoch.store(claim.epoch, Ordering::Relaxed);
        instances.holder.store(claim.holder, Ordering::Relaxed);
        let front = Front {
            gate: Arc::clone(&self.gate),
            listener: None,
            url: self.url.clone(),
            access: self.access.clone(),
            instances,
            numbers_from: ShardId(shard.number).number(0),
            shared: Some(SharedTokens {
                address: self.address.clone(),
            }),
        };
        let parts = Parts {
            journal: Box::new(journal),
            history,
            front,
        };
        Server::start_with(parts, Vec::new(), self.options.clone(), Arc::clone(routes)).await
    }
}

/// Waits for the end. What it looked at is let go before anything else is waited for.
async fn told(end: &mut watch::Receiver<bool>) {
    let _ = end.wait_for(|end| *end).await;
}

/// Waits until a shard is ours. None: the instance is to end.
async fn stand_by(
    orders: &mut mpsc::Receiver<Order>,
    stopped: &mut watch::Receiver<bool>,
) -> Option<Claim> {
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Serve(claim)) => return Some(claim),
                Some(Order::Stop(_)) => {}
                None => return None,
            },
            _ = stopped.wait_for(|stop| *stop) => return None,
        }
    }
}

/// Asks the database, over a connection that is made anew when it did not answer.
struct Asker {
    address: Address,
    link: Option<Link>,
}

impl Asker {
    fn new(address: &Address) -> Self {
        Self {
            address: address.clone(),
            link: None,
        }
    }

    async fn link(&mut self) -> Result<&Link, DatabaseError> {
        if self.link.is_none() {
            self.link = Some(Link::connect(&self.address).await?);
        }
        Ok(self.link.as_ref().expect("it was just made"))
    }

    /// Asks; none when there is no answer in time. Then the next question goes over a new connection.
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

    async fn refresh_tokens(&mut self, gate: &Gate) {
        let shared = self.ask(async |link| link.shared(TOKENS).await).await;
        let Some(Some(shared)) = shared else { return };
        if shared != gate.tokens_json()
            && let Err(error) = gate.load_tokens(&shared)
        {
            tracing::error!(%error, "cannot use the tokens of the other instances");
        }
    }
}

/// The task that keeps the lease of a shard.
struct Keeper {
    asker: Asker,
    instance: Arc<Instance>,
    gate: Arc<Gate>,
    /// Which shard.
    at: usize,
    member: Member,
    claim: Option<Claim>,
    serves: Option<Handle>,
    /// Since when we have seen that nobody holds it.
    free_since: Option<Instant>,
    order: mpsc::Sender<Order>,
}

impl Keeper {
    async fn run(mut self, mut events: mpsc::Receiver<Event>) {
        let instance = Arc::clone(&self.instance);
        let shard = &instance.shards[self.at];
        loop {
            let wake = self.member.next_wake();
            let input = tokio::select! {
                event = events.recv() => match event {
                    Some(Event::Serves(handle)) => {
                        self.serves = Some(handle);
                        Input::Tick
                    }
                    Some(Event::Ended) => {
                        self.serves = None;
                        shard.lease.end();
                        shard.name_holder(String::new());
                        Input::Ended
                    }
                    Some(Event::HandOver) => Input::HandOver,
                    Some(Event::Leave) | None => break,
                },
                () = shard.instances.hand_over.notified() => Input::HandOver,
                () = sleep_until(wake) => Input::Tick,
            };
            if let Some(handle) = &self.serves {
                let took = Input::Committed(Span(handle.commit_ns()));
                self.act(took).await;
            }
            self.act(input).await;
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

    /// Whether this instance holds its share already, and others have yet to see that the shard is free.
    fn leaves_it_to_others(&mut self) -> bool {
        let free_since = *self.free_since.get_or_insert_with(Instant::now);
        let has_enough = self.instance.served().count() >= self.instance.fair_share();
        has_enough && free_since.elapsed() < LEAVE_TO_OTHERS
    }

    /// Carries an action out; the answer, where it is a question.
    async fn carry_out(&mut self, action: Action) -> Option<Input> {
        let instance = Arc::clone(&self.instance);
        let (id, url, shard) = (instance.id, &instance.url, &instance.shards[self.at]);
        let number = i32::from(shard.number);
        match action {
            Action::Look(question) => {
                let looked = self.asker.ask(async |link| link.shard(number).await);
                let Some(state) = looked.await else {
                    return Some(Input::Unanswered(question));
                };
                let holder = match state.left.is_zero() {
                    true => String::new(),
                    false => {
                        self.free_since = None;
                        state.url
                    }
                };
                shard.name_holder(holder);
                Some(Input::Looked {
                    question,
                    epoch: state.epoch,
                    left: span(state.left),
                })
            }
            Action::Take { question, .. } if self.leaves_it_to_others() => {
                Some(Input::NotTaken(question))
            }
            Action::Take {
                question,
                seen,
                lease,
            } => {
                let number_of = shard.number;
                let known = self
                    .asker
                    .ask(async |link| loss::of(link, number_of).await)
                    .await;
                match known {
                    None => return Some(Input::Unanswered(question)),
                    Some(Some(mark)) if !mark.accepted => {
                        return Some(Input::NotTaken(question));
                    }
                    Some(mark) => {
                        let epoch = mark.map_or(0, |mark| mark.loss.epoch);
                        shard.instances.lost_until.store(epoch, Ordering::Relaxed);
                    }
                }
                let lease = Duration::from(lease);
                let taken = self
                    .asker
                    .ask(async |link| link.take(number, seen, id, url, lease).await)
                    .await;
                Some(match taken {
                    None => Input::Unanswered(question),
                    Some(None) => Input::NotTaken(question),
                    Some(Some(claim)) => {
                        self.claim = Some(claim);
                        self.free_since = None;
                        // Tokens that others have made since we last looked.
                        self.asker.refresh_tokens(&self.gate).await;
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
                let renewed = self.asker.ask(async |link| link.renew(claim, lease).await);
                Some(match renewed.await {
                    None => Input::Unanswered(question),
                    Some(true) => Input::Renewed(question),
                    Some(false) => Input::Fenced(question),
                })
            }
            Action::Serve { until, .. } => {
                shard.lease.set(Duration::from_nanos(until.0));
                let _ = self.order.send(Order::Serve(self.claim?)).await;
                None
            }
            Action::Extend { until } => {
                shard.lease.set(Duration::from_nanos(until.0));
                None
            }
            Action::Stop(reason) => {
                let _ = self.order.send(Order::Stop(reason)).await;
                None
            }
            Action::Release { .. } => {
                let claim = self.claim?;
                self.asker.ask(async |link| link.release(claim).await).await;
                None
            }
        }
    }
}

/// The task that says that this instance is there, hears of others, and shares out.
struct Herald {
    asker: Asker,
    instance: Arc<Instance>,
    gate: Arc<Gate>,
    directory: std::path::PathBuf,
    sharing: sharing::Sharing,
}

impl Herald {
    async fn run(mut self, mut ended: watch::Receiver<bool>) {
        let mut announce = tokio::time::interval(ANNOUNCE_EVERY);
        announce.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut share = tokio::time::interval(SHARE_EVERY);
        share.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut letters = tokio::time::interval(LETTERS_EVERY);
        letters.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let has_several = self.instance.shards.len() > 1;
        loop {
            tokio::select! {
                _ = announce.tick() => {
                    self.announce().await;
                    self.spread_shards();
                }
                _ = share.tick(), if has_several => {
                    let instance = Arc::clone(&self.instance);
                    self.sharing.round(&instance, &mut self.asker).await;
                }
                _ = letters.tick(), if has_several => self.bring_letters().await,
                () = told(&mut ended) => break,
            }
        }
        let id = self.instance.id;
        self.asker.ask(async |link| link.leave(id).await).await;
    }

    /// Brings the shards that this instance serves what others wrote to them, and how far their own letters were read.
    async fn bring_letters(&mut self) {
        let served: Vec<(i32, Handle)> = self
            .instance
            .served()
            .map(|(shard, served)| (shard.number.into(), served.context.handle))
            .collect();
        if served.is_empty() {
            return;
        }
        let shards: Vec<i32> = served.iter().map(|(shard, _)| *shard).collect();
        let asked = self.asker.ask(async |link| {
            let letters = link.letters_to(&shards).await?;
            Ok((letters, link.letters_read(&shards).await?))
        });
        let Some((letters, read)) = asked.await else {
            return;
        };
        let mut news: HashMap<i32, News> = HashMap::new();
        for letter in letters {
            let to = i32::from(letter.to);
            match letter_of(letter) {
                Ok(letter) => news.entry(to).or_default().letters.push(letter),
                Err(error) => {
                    tracing::error!(%error, shard = to, "a letter of another shard cannot be read");
                }
            }
        }
        for (by, whose, number) in read {
            let news = news.entry(whose.into()).or_default();
            news.read.push((ShardId(by), number));
        }
        for (shard, handle) in served {
            if let Some(news) = news.remove(&shard) {
                handle.tell_neighbours(news).await;
            }
        }
    }

    /// Gives one shard away when this instance holds more than its share and another one less than that. One at a time,
    /// and none that was taken a moment ago: whoever holds few takes what is free.
    fn spread_shards(&self) {
        let seen = self.instance.seen();
        let shards = self.instance.shards.len();
        let alive: Vec<&InstanceInfo> = seen
            .instances
            .iter()
            .filter(|one| one.state != InstanceState::Silent)
            .collect();
        let held = |name: &str| {
            let of = |shard: &&ShardInfo| shard.holder.as_deref() == Some(name);
            seen.shards.iter().filter(of).count()
        };
        let has_few = alive
            .iter()
            .any(|one| one.name != self.instance.name && held(&one.name) < shards / alive.len());
        let settled = |(_, served): &(&Shard, Served)| served.since.elapsed() > SETTLED;
        let own = held(&self.instance.name);
        let served = self.instance.served();
        if !has_few || own < 2 || own <= self.instance.fair_share() {
            return;
        }
        if let Some((shard, _)) = served.filter(settled).last() {
            tracing::info!(
                shard = shard.number,
                "gives a shard to an instance with fewer"
            );
            shard.instances.hand_over.notify_one();
        }
    }

    /// Says that this instance is there, and hears of others.
    async fn announce(&mut self) {
        let instance = Arc::clone(&self.instance);
        let heard = self
            .asker
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
        let mut is_new = false;
        for shard in &instance.shards {
            let instances = &shard.instances;
            {
                let known = instances.seen.write();
                *known.unwrap_or_else(PoisonError::into_inner) = Some(seen.clone());
            }
            let before = {
                let known = instances.urls.write();
                let mut known = known.unwrap_or_else(PoisonError::into_inner);
                std::mem::replace(&mut *known, urls.clone())
            };
            if before != urls {
                instances.version.fetch_add(1, Ordering::Release);
                is_new = true;
            }
        }
        *instance
            .seen
            .write()
            .unwrap_or_else(PoisonError::into_inner) = seen;
        if is_new {
            self.write_access_files(&urls);
        }
        self.asker.refresh_tokens(&self.gate).await;
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
}

/// A letter as it stands in the database.
fn letter_of(stored: StoredLetter) -> Result<Letter, loxley_engine::LetterError> {
    let items = loxley_engine::read_letter(&stored.body)?;
    Ok(Letter {
        from: ShardId(stored.from),
        to: ShardId(stored.to),
        number: stored.number,
        items,
    })
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
    let mut shards = Vec::new();
    for number in 0..link.shard_count().await? {
        let state = link.shard(number.into()).await?;
        let lost = match state.left.is_zero() {
            true => loss::of(link, number).await?,
            false => None,
        };
        let lost = lost.filter(|mark| !mark.accepted);
        shards.push((number, state, lost.map(|mark| mark.loss.message)));
    }
    let instances = link.instances().await?;
    let replication = match link.replication().await? {
        Replication::None => loxley_api::Replication::None,
        Replication::Asynchronous => loxley_api::Replication::Asynchronous,
        Replication::Synchronous => loxley_api::Replication::Synchronous,
    };
    // Not every database that speaks the protocol knows, or tells everybody.
    let replicas = link.replicas().await.unwrap_or_default();
    let holds = |id: u64, shard: &ShardState| !shard.left.is_zero() && shard.holder == Some(id);
    let shards: Vec<ShardInfo> = shards
        .iter()
        .map(|(number, shard, lost)| {
            let holder = instances.iter().find(|one| holds(one.id, shard));
            let left = shard.left.as_secs_f64();
            ShardInfo {
                shard: u32::from(*number),
                epoch: shard.epoch,
                holder: holder.map(|one| one.name.clone()),
                lease_left_sec: (left > 0.0).then_some(left),
                journal_position: shard.next,
                lag_groups: Some(shard.next.saturating_sub(shard.snapshot.unwrap_or(0))),
                commit_sec: None,
                agents: None,
                away: None,
                guests: None,
                lost: lost.clone(),
            }
        })
        .collect();
    let serves = |name: &str| {
        let mut holders = shards.iter().map(|shard| shard.holder.as_deref());
        holders.any(|holder| holder == Some(name))
    };
    let mut instances: Vec<InstanceInfo> = instances
        .into_iter()
        .map(|one| InstanceInfo {
            state: match one.silent {
                _ if serves(&one.name) => InstanceState::Serving,
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
        shards,
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

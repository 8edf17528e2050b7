//! One thread decides: it owns the engine, and everybody else asks and tells it through a [`Handle`].
//!
//! ```text
//!  sessions, HTTP ──requests──▶ deciding thread ──packets──▶ commit thread ──▶ frames, answers, events
//!                   (bounded)   record_and_apply  (bounded)   Journal::append
//! ```
//!
//! The thread takes what is waiting, turns each request into facts, and has the engine write each fact into the
//! open group and apply it. Then group and effects go to the commit thread, which writes the group and only
//! then releases the effects; meanwhile the engine works on the next batch. So groups grow by themselves
//! when the disk is slow, and a lone request waits for nothing but its own write.
//!
//! What must stay true: nothing leaves before the facts it follows from are on disk; the engine never
//! blocks on a peer; a write that failed ends the server.

mod commit;
mod frames;
mod handle;
#[cfg(feature = "postgres")]
mod neighbours;
mod observed;
mod sessions;
mod witnesses;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use loxley_api::{ApiError, ClusterInfo, Event, EventKind, JobInfo};
use loxley_driver::IdMap;
use loxley_engine::{Applied, Clock, Engine, Fact, Flushed, RecoverError, TaskStep};
use loxley_journal::Journal;
use loxley_model::{AgentId, JobId, Span, TaskId, Time};
use loxley_policy::Config;
use loxley_protocol as wire;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, broadcast, mpsc, oneshot};

#[cfg(feature = "postgres")]
pub(crate) use handle::Load;
pub use handle::{Handle, HistorySource};
#[cfg(feature = "postgres")]
pub(crate) use neighbours::{News, Told as ShardTold};
pub(crate) use observed::observe;
pub use observed::{Observer, Question, Wish};

use commit::{Committer, Outbox, Packet};
use sessions::Session;

/// How many requests may wait for the engine.
const REQUESTS_MAX: usize = 1024;
/// How many requests become one group.
const BATCH_MAX: usize = 256;
/// A group is closed when it has grown to this.
const GROUP_BYTES_MAX: usize = 4 << 20;
/// How long a group that nobody has to hear of waits for company.
const LAZY_GROUP: Duration = Duration::from_millis(50);
/// How often the engine looks at the clock while agents are connected.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// An engine that is so late to its work has stood still: its process was stopped, the machine slept, or a write
/// took that long.
const STOOD_STILL: Duration = Duration::from_secs(2);
/// How many events a slow reader may be behind.
const EVENTS_MAX: usize = 8192;
/// How many groups of steps whoever traces may be behind.
const STEP_GROUPS_MAX: usize = 1024;

/// A release of something that waited for a write.
pub(crate) type Release = Box<dyn FnOnce() + Send>;

/// What others want of the engine.
pub(crate) enum Request {
    /// Something happened; the teller wants to know what came of it.
    Tell {
        fact: Fact,
        answer: oneshot::Sender<Result<Told, ApiError>>,
    },
    /// A question. It sees the state, and its answer waits until what it saw is on disk.
    Ask(Ask),
    /// Tell me when this job is over; at once, and nothing, if it is not under way.
    Wait {
        job: JobId,
        answer: oneshot::Sender<Option<JobInfo>>,
    },
    /// An agent introduces itself.
    Connect {
        hello: Box<wire::Hello>,
        link: Link,
        answer: oneshot::Sender<Result<AgentId, ApiError>>,
    },
    /// An agent says something.
    Frame {
        agent: AgentId,
        session: u64,
        frame: Box<wire::AgentFrame>,
    },
    /// The connection of an agent ended.
    Disconnect { agent: AgentId, session: u64 },
    /// An agent is to end.
    Dismiss {
        agent: AgentId,
        farewell: wire::Farewell,
        answer: oneshot::Sender<Result<(), ApiError>>,
    },
    /// An agent is to go to another shard.
    #[cfg(feature = "postgres")]
    SendAway { agent: AgentId, shard: u32 },
    /// Something was heard of other shards.
    #[cfg(feature = "postgres")]
    Neighbours(Box<News>),
    /// Take a snapshot of the state now.
    Snapshot(commit::Kept),
    /// Forget some of the past.
    Prune(commit::Forgetting),
    /// End, after everything that was told before is on disk.
    Stop,
}

type Ask = Box<dyn FnOnce(&View<'_>) -> Release + Send>;

/// What a question sees.
pub(crate) struct View<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) now: Time,
    /// The connections of agents; none where the agents are threads of the same process.
    sessions: Option<&'a IdMap<AgentId, Session>>,
}

/// What came of a fact.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Done,
    Job(Box<JobInfo>),
    /// A job that is over: the history knows it.
    Ended(JobId),
}

/// The way to an agent.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) session: u64,
    /// What the token is called with which it came.
    pub(crate) token: Arc<str>,
    pub(crate) frames: mpsc::Sender<wire::ServerFrame>,
    /// Rung when the agent does not take its frames.
    pub(crate) cut: Arc<Notify>,
}

/// Settings of an engine.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// The configuration of the policy. When it differs from the one in the journal, it replaces it.
    pub config: Config,
    /// What agents are told of other instances of this server.
    pub instances: Arc<Instances>,
    /// Jobs, tasks and agents of a new journal are numbered from the number after this.
    pub numbers_from: u64,
}

/// The instances of a server, of which this one has taken over a shard.
#[derive(Debug)]
pub struct Instances {
    /// Which one.
    pub shard: u32,
    /// Whether it is all there is.
    pub is_only_shard: bool,
    /// Grows with every instance that takes over; 0 where there is only one.
    pub epoch: AtomicU64,
    /// The number of this process; 0 where there is only one.
    pub holder: AtomicU64,
    /// What holders up to this epoch told agents may be lost, and its owners go on without.
    pub lost_until: AtomicU64,
    /// Why this one must not serve any more: somebody saw what the journal does not have.
    pub loss: Mutex<Option<Loss>>,
    /// Where they listen.
    pub urls: RwLock<Vec<String>>,
    /// Grows when that changes.
    pub version: AtomicU64,
    /// What the database says of them, some seconds old; none where there is only one.
    pub seen: RwLock<Option<ClusterInfo>>,
    /// Rings when this one is to give the shard away.
    pub hand_over: Notify,
}

impl Default for Instances {
    fn default() -> Self {
        Self::of_shard(0, true)
    }
}

impl Instances {
    /// For one shard, of which nobody has taken over yet.
    #[must_use]
    pub fn of_shard(shard: u32, is_only_shard: bool) -> Self {
        Self {
            shard,
            is_only_shard,
            epoch: AtomicU64::new(0),
            holder: AtomicU64::new(0),
            lost_until: AtomicU64::new(0),
            loss: Mutex::default(),
            urls: RwLock::default(),
            version: AtomicU64::new(0),
            seen: RwLock::default(),
            hand_over: Notify::new(),
        }
    }
}

/// That a journal does not have what somebody saw of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Who saw what, in words.
    pub message: String,
    /// Holders up to this epoch told of what is gone.
    pub epoch: u64,
}

/// The ways to those who want to hear what happens.
#[derive(Clone, Debug)]
pub(crate) struct Listeners {
    pub(crate) events: broadcast::Sender<Arc<Event>>,
    /// A group at a time, after it was written.
    pub(crate) steps: broadcast::Sender<Arc<[TaskStep]>>,
}

impl Listeners {
    fn new() -> Self {
        let (events, _) = broadcast::channel(EVENTS_MAX);
        let (steps, _) = broadcast::channel(STEP_GROUPS_MAX);
        Self { events, steps }
    }
}

/// The deciding thread's own things.
pub(crate) struct Decider {
    pub(crate) engine: Engine,
    clock: Clock,
    requests: mpsc::Receiver<Request>,
    outbox: Outbox,
    listeners: Listeners,
    event_sequence: u64,
    sessions: IdMap<AgentId, Session>,
    /// What agents are told beside their orders.
    frames: IdMap<AgentId, wire::ServerFrame>,
    waiters: IdMap<JobId, Vec<oneshot::Sender<Option<JobInfo>>>>,
    releases: Vec<Release>,
    /// When the open group was begun, while nobody has to hear of it.
    lazy_since: Option<Instant>,
    progress: Arc<Progress>,
    instances: Arc<Instances>,
    /// The version of them that connected agents know.
    told_instances: u64,
    witnesses: witnesses::Witnesses,
    #[cfg(feature = "postgres")]
    neighbours: neighbours::Neighbours,
}

/// What the commit thread tells everybody.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The place after the last group that is on disk.
    pub(crate) position: AtomicU64,
    /// How long a write takes, in nanoseconds, recent ones counting more.
    pub(crate) commit_ns: AtomicU64,
    /// How long writes took, by bucket, and all together.
    commit_buckets: [AtomicU64; CommitTimes::BOUNDS_SEC.len() + 1],
    commit_sum_ns: AtomicU64,
    /// Whether no more jobs are accepted.
    pub(crate) draining: AtomicBool,
    /// Whether the disk is full, and the room that was kept for that is in use.
    pub(crate) disk_full: AtomicBool,
    /// Rung when it has become full.
    pub(crate) wants_room: Notify,
    /// How large the journal is.
    pub(crate) bytes: AtomicU64,
    /// How much of that is not in use.
    pub(crate) unused: AtomicU64,
}

impl Progress {
    fn note_commit(&self, took_ns: u64) {
        let bounds = CommitTimes::BOUNDS_SEC.iter();
        let place = bounds
            .take_while(|bound| took_ns as f64 > **bound * 1e9)
            .count();
        self.commit_buckets[place].fetch_add(1, Ordering::Relaxed);
        self.commit_sum_ns.fetch_add(took_ns, Ordering::Relaxed);
    }

    fn commit_times(&self) -> CommitTimes {
        let counts = self.commit_buckets.each_ref();
        CommitTimes {
            counts: counts.map(|count| count.load(Ordering::Relaxed)),
            sum_ns: self.commit_sum_ns.load(Ordering::Relaxed),
        }
    }
}

/// How long writes to the journal took since the server started.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitTimes {
    /// How many took at most as long as each bound and longer than the one before; at the end, longer than all.
    pub counts: [u64; Self::BOUNDS_SEC.len() + 1],
    /// All together.
    pub sum_ns: u64,
}

impl CommitTimes {
    /// From a disk in memory to one that is about to fail.
    pub const BOUNDS_SEC: [f64; 10] = [
        0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0,
    ];
}

/// An engine at work. Dropping it does not end the engine: [`Running::stop`] does.
#[derive(Debug)]
pub struct Running {
    requests: mpsc::Sender<Request>,
    engine: std::thread::JoinHandle<()>,
    committer: std::thread::JoinHandle<Result<(), loxley_journal::AppendError>>,
}

impl Running {
    /// Ends the engine after everything it was told is on disk.
    ///
    /// # Errors
    /// When a write failed.
    pub async fn stop(self) -> Result<(), loxley_journal::AppendError> {
        // Fails when the engine has ended already.
        let _ = self.requests.send(Request::Stop).await;
        self.ended().await
    }

    /// Waits until the engine has ended by itself: a write failed.
    ///
    /// # Errors
    /// Which one.
    pub async fn ended(self) -> Result<(), loxley_journal::AppendError> {
        let Self {
            requests,
            engine,
            committer,
        } = self;
        let joined = tokio::task::spawn_blocking(move || {
            engine.join().expect("the engine does not panic");
            committer.join().expect("the committer does not panic")
        });
        let result = joined.await.expect("it is not cancelled");
        drop(requests);
        result
    }

    /// Whether a write failed, or the engine was stopped.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.engine.is_finished()
    }
}

/// Brings back the state that a journal tells of, and starts to decide.
///
/// # Errors
/// When the journal cannot be read, or its decisions cannot be reproduced.
pub fn start(
    mut journal: Box<dyn Journal>,
    history: HistorySource,
    options: &EngineOptions,
) -> Result<(Handle, Running), RecoverError> {
    let engine = Engine::open(&mut *journal, history.epoch_unix_ns())?;
    let position = journal.next_position();
    let (requests, inbox) = mpsc::channel(REQUESTS_MAX);
    let listeners = Listeners::new();
    let progress = Arc::new(Progress::default());
    progress.position.store(position.0, Ordering::Relaxed);
    let mut committer = Committer {
        journal,
        position,
        progress: Arc::clone(&progress),
        listeners: listeners.clone(),
        failed: None,
    };
    committer.look_at_room();
    let (outbox, committer) = commit::outbox(committer);
    let mut decider = Decider {
        #[cfg(feature = "postgres")]
        neighbours: neighbours::Neighbours::of(options.numbers_from),
        clock: Clock::new(history.epoch_unix_ns(), engine.now()),
        engine,
        requests: inbox,
        outbox,
        listeners: listeners.clone(),
        event_sequence: 0,
        sessions: IdMap::default(),
        frames: IdMap::default(),
        waiters: IdMap::default(),
        releases: Vec::new(),
        lazy_since: None,
        progress: Arc::clone(&progress),
        instances: Arc::clone(&options.instances),
        told_instances: 0,
        witnesses: witnesses::Witnesses::new(position.0),
    };
    let now = decider.clock.now();
    // First of all: what is given out from here on has its number.
    decider.engine.number_from(now, options.numbers_from)?;
    match options.instances.is_only_shard {
        false => decider.engine.join_shards(now),
        true if decider.engine.is_one_of_several() => return Err(RecoverError::OneOfSeveral),
        true => {}
    }
    decider.engine.begin(now, &options.config);
    let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let committer = spawn("commit")
        .spawn(move || committer.run())
        .map_err(RecoverError::Thread)?;
    let engine = spawn("engine")
        .spawn(move || decider.run())
        .map_err(RecoverError::Thread)?;
    let handle = Handle::new(requests.clone(), listeners, history, progress);
    let running = Running {
        requests,
        engine,
        committer,
    };
    Ok((handle, running))
}

impl Decider {
    fn run(mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("the thread waits for time only");
        let mut batch = Vec::with_capacity(BATCH_MAX);
        if !self.flush() {
            return;
        }
        let mut woke = Instant::now();
        loop {
            let due = self.next_due();
            let busy = woke.elapsed();
            let meant = due.map(|due| Instant::now() + due);
            let received = runtime.block_on(async {
                let receive = self.requests.recv_many(&mut batch, BATCH_MAX);
                match due {
                    None => Some(receive.await),
                    Some(wait) => tokio::time::timeout(wait, receive).await.ok(),
                }
            });
            if received == Some(0) {
                // Everybody who could ask anything is gone.
                self.end();
                return;
            }
            woke = Instant::now();
            let late = meant.map_or(Duration::ZERO, |meant| {
                woke.saturating_duration_since(meant)
            });
            self.note_absence(late + busy);
            let now = self.clock.now();
            self.engine.tick_if_due(now);
            self.tell_instances();
            self.engine.warm_caches(tasks_spoken_of(&batch));
            for request in batch.drain(..) {
                if matches!(request, Request::Stop) {
                    self.end();
                    return;
                }
                let goes_on = match request {
                    Request::Snapshot(kept) => self.take_snapshot(Some(kept)),
                    Request::Prune(forgetting) => self.outbox.forget(forgetting),
                    request => self.take(request),
                };
                if !goes_on {
                    return;
                }
            }
            let flushed = if self.is_snapshot_due() {
                self.take_snapshot(None)
            } else {
                !self.should_flush() || self.flush()
            };
            if !flushed {
                return;
            }
        }
    }

    /// The last thing: whoever starts next has nothing to replay.
    fn end(&mut self) {
        if self.engine.is_snapshot_of_use() {
            self.take_snapshot(None);
        } else {
            self.flush();
        }
    }

    fn is_snapshot_due(&mut self) -> bool {
        if self.outbox.is_snapshot_underway() {
            return false;
        }
        self.engine.note_snapshot_size(self.outbox.snapshot_bytes());
        self.engine.is_snapshot_due()
    }

    /// Ends the open group, and has the state after it kept. False when the commit thread is over.
    fn take_snapshot(&mut self, waiting: Option<commit::Kept>) -> bool {
        if !self.flush() {
            return false;
        }
        let begun = Instant::now();
        let state = self.engine.copy_state();
        let us = begun.elapsed().as_micros();
        tracing::debug!(us, "copied the state for a snapshot");
        self.outbox.keep(state, waiting);
        true
    }

    /// How long the engine may sleep.
    fn next_due(&self) -> Option<Duration> {
        let timer = self.engine.next_timer();
        let timer = timer.map(|at| Duration::from(at.since(self.clock.peek())));
        let lazy = self
            .lazy_since
            .map(|since| LAZY_GROUP.saturating_sub(since.elapsed()));
        // Whoever sleeps longer does not know how long it stood still.
        let look = (!self.sessions.is_empty()).then_some(LOOK_EVERY);
        [timer, lazy, look].into_iter().flatten().min()
    }

    fn should_flush(&mut self) -> bool {
        if self.engine.has_effects() || !self.frames.is_empty() || !self.releases.is_empty() {
            return true;
        }
        if self.engine.is_group_empty() {
            return false;
        }
        let since = *self.lazy_since.get_or_insert_with(Instant::now);
        since.elapsed() >= LAZY_GROUP
    }

    fn record_and_apply(&mut self, fact: Fact) -> Result<Applied, ApiError> {
        let now = self.clock.now();
        let heartbeats = self.engine.config().heartbeats;
        let applied = self.engine.record_and_apply(now, fact, None);
        if self.engine.config().heartbeats != heartbeats {
            self.tell_pace();
        }
        applied
    }

    /// Looks at how late this thread comes to its work, and has what agents did not say meanwhile not count
    /// against them: nobody listened.
    fn note_absence(&mut self, late: Duration) {
        if late >= STOOD_STILL {
            tracing::warn!(?late, "stood still; agents get their time to speak");
            let gap = Span(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX));
            let _ = self.record_and_apply(Fact::StoodStill(gap));
        }
    }

    /// False when the commit thread is over.
    fn take(&mut self, request: Request) -> bool {
        let Listeners { events, steps } = &self.listeners;
        self.engine.want_events(events.receiver_count() > 0);
        self.engine.want_steps(steps.receiver_count() > 0);
        match request {
            Request::Tell { fact, answer } => {
                let applied = self.record_and_apply(fact);
                let told = applied.map(|applied| told(&self.engine, applied));
                self.release(move || {
                    let _ = answer.send(told);
                });
            }
            Request::Ask(question) => {
                let release = question(&View {
                    engine: &self.engine,
                    now: self.clock.peek(),
                    sessions: Some(&self.sessions),
                });
                self.releases.push(release);
            }
            Request::Wait { job, answer } if !self.engine.is_open(job) => {
                self.release(move || {
                    let _ = answer.send(None);
                });
            }
            Request::Wait { job, answer } => {
                let waiters = self.waiters.entry(job).or_default();
                waiters.retain(|waiter| !waiter.is_closed());
                waiters.push(answer);
            }
            Request::Connect {
                hello,
                link,
                answer,
            } => {
                let connected = self.connect(*hello, link);
                if self.witnesses.is_loss_certain() {
                    return false;
                }
                self.release(move || {
                    let _ = answer.send(connected);
                });
            }
            Request::Frame {
                agent,
                session,
                frame,
            } => {
                if self.is_current(agent, session) {
                    self.hear(agent, *frame);
                }
            }
            Request::Disconnect { agent, session } => self.disconnect(agent, session),
            Request::Dismiss {
                agent,
                farewell,
                answer,
            } => {
                let dismissed = self.dismiss(agent, farewell);
                self.release(move || {
                    let _ = answer.send(dismissed);
                });
            }
            #[cfg(feature = "postgres")]
            Request::SendAway { agent, shard } => self.send_away(agent, shard),
            #[cfg(feature = "postgres")]
            Request::Neighbours(news) => {
                if !self.hear_neighbours(*news) {
                    return false;
                }
            }
            Request::Snapshot(_) | Request::Prune(_) | Request::Stop => {}
        }
        self.engine.group_len() < GROUP_BYTES_MAX || self.flush()
    }

    /// Tells connected agents of instances that came or went.
    fn tell_instances(&mut self) {
        let version = self.instances.version.load(Ordering::Acquire);
        if version == self.told_instances {
            return;
        }
        self.told_instances = version;
        let servers = self.instance_urls();
        let agents: Vec<AgentId> = self.sessions.keys().copied().collect();
        for agent in agents {
            self.frame(agent).servers.clone_from(&servers);
        }
    }

    /// Where all instances listen, for an agent.
    fn instance_urls(&self) -> Vec<String> {
        let urls = self.instances.urls.read();
        urls.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn release(&mut self, release: impl FnOnce() + Send + 'static) {
        self.releases.push(Box::new(release));
    }

    /// Hands the group and what follows from it to the commit thread. False when that is over.
    fn flush(&mut self) -> bool {
        self.lazy_since = None;
        let Flushed { group, effects } = self.engine.flush();
        let mut packet = Packet {
            group,
            ..Packet::default()
        };
        let mut frames = std::mem::take(&mut self.frames);
        for (agent, orders) in effects.orders {
            frames::add_orders(frames.entry(agent).or_default(), orders);
        }
        for (agent, mut frame) in frames {
            let Some(session) = self.sessions.get_mut(&agent) else {
                continue;
            };
            session.add_templates(&self.engine, &mut frame);
            packet.frames.push((session.link.clone(), frame));
        }
        for agent in effects.parted {
            // The last frame still holds the link; the connection ends when it is through.
            self.sessions.remove(&agent);
        }
        let mut releases = std::mem::take(&mut self.releases);
        for job in effects.jobs_over {
            for waiter in self.waiters.remove(&job.id).unwrap_or_default() {
                let job = job.clone();
                releases.push(Box::new(move || {
                    let _ = waiter.send(Some(job));
                }));
            }
        }
        packet.releases = releases;
        packet.events = self.number_events(effects.events);
        packet.steps = effects.steps;
        // Whoever else wants something now would have to wait for a write by this thread.
        let alone = self.requests.is_empty();
        packet.is_empty() || self.outbox.send(packet, alone)
    }

    fn number_events(&mut self, kinds: Vec<EventKind>) -> Vec<Arc<Event>> {
        number_events(&self.engine, &mut self.event_sequence, kinds)
    }
}

fn number_events(engine: &Engine, last: &mut u64, kinds: Vec<EventKind>) -> Vec<Arc<Event>> {
    let unix_ms = engine.unix_ms(engine.now());
    let numbered = kinds.into_iter().map(|kind| {
        *last += 1;
        Arc::new(Event {
            sequence: *last,
            unix_ms,
            kind,
        })
    });
    numbered.collect()
}

fn told(engine: &Engine, applied: Applied) -> Told {
    match applied {
        Applied::Job(id) => match engine.job_info(id) {
            Some(job) => Told::Job(Box::new(job)),
            None => told_of_ended(engine, id),
        },
        Applied::Done | Applied::Agent(_) => Told::Done,
    }
}

/// A job that ended while it was accepted is among the effects; another one was accepted before, under the same key.
fn told_of_ended(engine: &Engine, id: JobId) -> Told {
    let ended = engine.jobs_over().iter().find(|job| job.id == id);
    ended.map_or(Told::Ended(id), |job| Told::Job(Box::new(job.clone())))
}

/// The tasks that agents say have started or ended.
fn tasks_spoken_of(batch: &[Request]) -> impl Iterator<Item = TaskId> {
    let frames = batch.iter().filter_map(|request| match request {
        Request::Frame { frame, .. } => Some(frame),
        _ => None,
    });
    frames.flat_map(|frame| {
        let started = frame.started.iter().map(|started| started.task);
        let finished = frame.finished.iter().map(|finished| finished.task);
        started.chain(finished).map(TaskId)
    })
}

#[cfg(test)]
mod tests;

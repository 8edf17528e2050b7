//! One thread decides.
//!
//! ```text
//!  sessions, HTTP ──requests──▶ engine thread ──packets──▶ commit thread ──▶ frames, answers, events
//!                   (bounded)   State::apply     (bounded)   Journal::append
//! ```
//!
//! The engine takes what is waiting, turns each request into facts, writes each fact into the open
//! group and applies it. Then group and effects go to the commit thread, which writes the group and only
//! then releases the effects; meanwhile the engine works on the next batch. So groups grow by themselves
//! when the disk is slow, and a lone request waits for nothing but its own write.
//!
//! What must stay true: nothing leaves before the facts it follows from are on disk; the engine never
//! blocks on a peer; a write that failed ends the server.

mod clock;
mod commit;
mod describe;
mod digest;
mod effects;
mod fact;
mod fleet;
mod handle;
mod ids;
mod jobs;
mod names;
mod past;
mod recover;
mod sessions;
mod snapshot;
mod state;
mod story;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use loxley_api::{ApiError, Event, EventKind, JobInfo};
use loxley_journal::Journal;
use loxley_model::{AgentId, JobId};
use loxley_policy::Config;
use loxley_protocol as wire;
use tokio::sync::{Notify, broadcast, mpsc, oneshot};

pub use fact::GroupError;
pub use handle::{Handle, HistorySource};
pub use recover::{Listener, RecoverError, Replayed, replay, retell};
pub use snapshot::SnapshotError;
pub use story::facts_of;

use clock::Clock;
use commit::{Committer, Outbox, Packet};
use effects::{Effects, Finish};
use fact::{Fact, GroupWriter};
use ids::IdMap;
use sessions::{Session, add_templates};
use state::{Applied, State};

/// How many requests may wait for the engine.
const REQUESTS_MAX: usize = 1024;
/// How many requests become one group.
const BATCH_MAX: usize = 256;
/// A group is closed when it has grown to this.
const GROUP_BYTES_MAX: usize = 4 << 20;
/// How long a group that nobody has to hear of waits for company.
const LAZY_GROUP: Duration = Duration::from_millis(50);
/// How many events a slow reader may be behind.
const EVENTS_MAX: usize = 8192;

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
    Ask(Box<dyn FnOnce(&Engine) -> Release + Send>),
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
    /// Take a snapshot of the state now.
    Snapshot,
    /// End, after everything that was told before is on disk.
    Stop,
}

/// What came of a fact.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Done,
    Job(Box<JobInfo>),
}

/// The way to an agent.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) session: u64,
    pub(crate) frames: mpsc::Sender<wire::ServerFrame>,
    /// Rung when the agent does not take its frames.
    pub(crate) cut: Arc<Notify>,
}

/// Settings of an engine.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// The configuration of the policy. When it differs from the one in the journal, it replaces it.
    pub config: Config,
}

/// The deciding thread's own things.
pub(crate) struct Engine {
    pub(crate) state: State,
    clock: Clock,
    requests: mpsc::Receiver<Request>,
    outbox: Outbox,
    events: broadcast::Sender<Arc<Event>>,
    event_sequence: u64,
    sessions: IdMap<AgentId, Session>,
    waiters: IdMap<JobId, Vec<oneshot::Sender<Option<JobInfo>>>>,
    group: GroupWriter,
    effects: Effects,
    releases: Vec<Release>,
    /// When the open group was begun, while nobody has to hear of it.
    lazy_since: Option<Instant>,
    progress: Arc<Progress>,
    pub(crate) stale_answers: u64,
    snapshots: SnapshotRule,
}

/// What the commit thread tells everybody.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The place after the last group that is on disk.
    pub(crate) position: AtomicU64,
    /// How long a write takes, in nanoseconds, recent ones counting more.
    pub(crate) commit_ns: AtomicU64,
    /// Whether no more jobs are accepted.
    pub(crate) draining: AtomicBool,
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
    let replayed = recover::bring_back(&mut *journal)?;
    let position = journal.next_position();
    let (requests, inbox) = mpsc::channel(REQUESTS_MAX);
    let (events, _) = broadcast::channel(EVENTS_MAX);
    let progress = Arc::new(Progress::default());
    progress.position.store(position.0, Ordering::Relaxed);
    let committer = Committer {
        journal,
        position,
        progress: Arc::clone(&progress),
        events: events.clone(),
        failed: None,
    };
    let (outbox, committer) = commit::outbox(committer);
    let mut state = replayed.state;
    state.epoch_unix_ns = history.epoch_unix_ns();
    let mut engine = Engine {
        clock: Clock::new(history.epoch_unix_ns(), state.now),
        state,
        requests: inbox,
        outbox,
        events: events.clone(),
        event_sequence: 0,
        sessions: IdMap::default(),
        waiters: IdMap::default(),
        group: GroupWriter::new(),
        effects: Effects::live(),
        releases: Vec::new(),
        lazy_since: None,
        progress: Arc::clone(&progress),
        stale_answers: 0,
        snapshots: SnapshotRule {
            facts: replayed.replayed.facts,
            bytes: 0,
        },
    };
    engine.begin(options);
    let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let committer = spawn("commit")
        .spawn(move || committer.run())
        .map_err(RecoverError::Thread)?;
    let engine = spawn("engine")
        .spawn(move || engine.run())
        .map_err(RecoverError::Thread)?;
    let handle = Handle::new(requests.clone(), events, history, progress);
    let running = Running {
        requests,
        engine,
        committer,
    };
    Ok((handle, running))
}

impl Engine {
    /// What a start means to the state.
    fn begin(&mut self, options: &EngineOptions) {
        let _ = self.tell(Fact::Restarted, None);
        if *self.state.scheduler.config() != options.config {
            let config = Box::new(options.config.clone());
            let _ = self.tell(Fact::ConfigChanged(config), None);
        }
    }

    fn run(mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("the engine waits for time only");
        let mut batch = Vec::with_capacity(BATCH_MAX);
        if !self.flush() {
            return;
        }
        loop {
            let due = self.next_due();
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
            let timer = self.state.scheduler.next_timer();
            if timer.is_some_and(|at| at <= self.clock.peek()) {
                let _ = self.tell(Fact::Tick, None);
            }
            for request in batch.drain(..) {
                if matches!(request, Request::Stop) {
                    self.end();
                    return;
                }
                if matches!(request, Request::Snapshot) {
                    self.take_snapshot();
                    continue;
                }
                self.take(request);
                if self.group.len() >= GROUP_BYTES_MAX && !self.flush() {
                    return;
                }
            }
            let flushed = if self.snapshots.is_due(self.state.live()) {
                self.take_snapshot()
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
        if self.snapshots.facts > 0 {
            self.take_snapshot();
        } else {
            self.flush();
        }
    }

    /// Ends the open group with a snapshot of the state after it. False when the commit thread is over.
    fn take_snapshot(&mut self) -> bool {
        let begun = Instant::now();
        let _ = self.tell(Fact::SnapshotTaken, None);
        let bytes = self.effects.snapshot.as_ref().map_or(0, Vec::len) as u64;
        self.snapshots = SnapshotRule { facts: 0, bytes };
        let ms = begun.elapsed().as_millis();
        tracing::debug!(bytes, ms, "took a snapshot");
        self.flush()
    }

    /// How long the engine may sleep.
    fn next_due(&self) -> Option<Duration> {
        let timer = self.state.scheduler.next_timer();
        let timer = timer.map(|at| Duration::from(at.since(self.clock.peek())));
        let lazy = self
            .lazy_since
            .map(|since| LAZY_GROUP.saturating_sub(since.elapsed()));
        [timer, lazy].into_iter().flatten().min()
    }

    fn should_flush(&mut self) -> bool {
        if !self.effects.is_empty() || !self.releases.is_empty() {
            return true;
        }
        if self.group.is_empty() {
            return false;
        }
        let since = *self.lazy_since.get_or_insert_with(Instant::now);
        since.elapsed() >= LAZY_GROUP
    }

    /// Writes a fact into the open group and applies it.
    fn tell(&mut self, fact: Fact, finish: Option<Finish>) -> Result<Applied, ApiError> {
        let now = self.clock.now();
        self.group.push(now, &fact);
        self.snapshots.facts += 1;
        self.state.apply(now, fact, finish, &mut self.effects)
    }

    fn take(&mut self, request: Request) {
        self.effects.wants_events = self.events.receiver_count() > 0;
        match request {
            Request::Tell { fact, answer } => {
                let told = self.tell(fact, None).map(|applied| self.told(applied));
                self.release(move || {
                    let _ = answer.send(told);
                });
            }
            Request::Ask(question) => {
                let release = question(self);
                self.releases.push(release);
            }
            Request::Wait { job, answer } if !self.state.jobs.is_open(job) => {
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
            Request::Snapshot | Request::Stop => {}
        }
    }

    fn release(&mut self, release: impl FnOnce() + Send + 'static) {
        self.releases.push(Box::new(release));
    }

    fn told(&self, applied: Applied) -> Told {
        match applied {
            Applied::Job(id) => match self.state.jobs.get(id) {
                Some(job) => Told::Job(Box::new(self.state.job_info(job))),
                None => self.told_of_ended(id),
            },
            Applied::Done | Applied::Agent(_) => Told::Done,
        }
    }

    /// A job that ended while it was accepted: it is among the effects.
    fn told_of_ended(&self, id: JobId) -> Told {
        let ended = self.effects.jobs_over.iter().find(|job| job.id == id);
        ended.map_or(Told::Done, |job| Told::Job(Box::new(job.clone())))
    }

    /// Hands the group and what follows from it to the commit thread. False when that is over.
    fn flush(&mut self) -> bool {
        self.lazy_since = None;
        let effects = std::mem::replace(&mut self.effects, Effects::live());
        let mut packet = Packet::default();
        for (agent, mut frame) in effects.frames {
            let Some(session) = self.sessions.get_mut(&agent) else {
                continue;
            };
            add_templates(&self.state, session, &mut frame);
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
        packet.snapshot = effects.snapshot;
        if !self.group.is_empty() {
            packet.group = Some(self.group.finish(self.state.digest.0, effects.rows));
        }
        // Whoever else wants something now would have to wait for a write by this thread.
        let alone = self.requests.is_empty();
        packet.is_empty() || self.outbox.send(packet, alone)
    }

    fn number_events(&mut self, kinds: Vec<EventKind>) -> Vec<Arc<Event>> {
        let unix_ms = self.state.unix_ms(self.state.now);
        let numbered = kinds.into_iter().map(|kind| {
            self.event_sequence += 1;
            Arc::new(Event {
                sequence: self.event_sequence,
                unix_ms,
                kind,
            })
        });
        numbered.collect()
    }
}

/// When a snapshot of the state is worth its while.
#[derive(Clone, Copy, Debug)]
struct SnapshotRule {
    /// Facts since the last one: so many a start would have to replay.
    facts: u64,
    /// How large the last one was.
    bytes: u64,
}

impl SnapshotRule {
    /// So many are replayed in well under a second.
    const FACTS_MIN: u64 = 200_000;
    /// A snapshot costs about as much as this many facts for each live task.
    const FACTS_PER_TASK: u64 = 4;
    /// The same for its size.
    const BYTES_PER_FACT: u64 = 64;

    /// Both what a snapshot costs and what a replay costs stay a small part of the work that was done
    /// meanwhile.
    fn is_due(&self, live_tasks: u64) -> bool {
        let worth = (live_tasks * Self::FACTS_PER_TASK).max(self.bytes / Self::BYTES_PER_FACT);
        self.facts >= worth.max(Self::FACTS_MIN)
    }
}

#[cfg(test)]
mod tests;

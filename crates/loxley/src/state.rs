//! What is behind the scheduler's lock: the deciding core, the names, the payloads, and a desk for
//! each agent where its assignments lie until one of its threads picks them up.
//!
//! [`State::feed`] is the only way to the core. It carries out the core's actions at once, all of
//! them in memory: nothing here blocks, and no code of a user runs here, not even the `Drop` of a
//! payload (see [`State::trash`]).

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar};

use loxley_driver::{Driver, Vocabulary, Why};
use loxley_model::{AgentId, JobId, Lease, TaskId, Time};
use loxley_policy::{
    Action, CancelReason, Counts, Ending as CoreEnding, Input, InputError, Reason, Report,
    SubmitError as CoreSubmitError,
};

use crate::directory::{Directory, Kept};
use crate::event::{Ending, Event};
use crate::task::TaskRef;

pub(crate) struct State<T> {
    pub(crate) driver: Driver,
    pub(crate) directory: Directory,
    pub(crate) tasks: HashMap<TaskId, Entry<T>>,
    /// Failed tasks that the core keeps on its dead-letter list.
    pub(crate) dead: BTreeMap<TaskId, Entry<T>>,
    /// Tasks that left with their agent, and may come back under the same number.
    pub(crate) returned: HashSet<TaskId>,
    pub(crate) desks: HashMap<AgentId, Inbox>,
    pub(crate) outbox: Vec<Notice<T>>,
    pub(crate) new_listeners: Vec<Listener<T>>,
    /// Whether anybody wants notices; else none are made.
    pub(crate) listening: bool,
    pub(crate) stopped: bool,
    /// Who must be woken once the lock is let go.
    pub(crate) wake: Vec<Arc<Condvar>>,
    /// Payloads to be dropped once the lock is let go.
    pub(crate) trash: Vec<Arc<T>>,
    /// Signalled when the last task is over.
    pub(crate) idle: Arc<Condvar>,
}

/// A task that is in the scheduler.
#[derive(Debug)]
pub(crate) struct Entry<T> {
    pub(crate) payload: Arc<T>,
    pub(crate) kept: Kept,
    /// What the last failed attempt said.
    pub(crate) message: Option<Arc<str>>,
}

impl<T> Entry<T> {
    pub(crate) fn copy(&self) -> Self {
        Self {
            payload: Arc::clone(&self.payload),
            kept: self.kept.clone(),
            message: self.message.clone(),
        }
    }
}

/// Where the assignments of an agent lie.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Assigned, and not picked up yet.
    inbox: VecDeque<Ready>,
    /// Signals of everything assigned that is not answered yet.
    held: HashMap<Lease, CancelSignal>,
    /// Threads that asked and did not get anything yet.
    waiting: u32,
    pub(crate) bell: Arc<Condvar>,
}

/// An assignment that waits to be picked up.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) task: TaskId,
    pub(crate) lease: Lease,
    pub(crate) attempt: u32,
    pub(crate) reason: Reason,
    pub(crate) signal: CancelSignal,
}

/// Says whether a task that is running should stop. Cheap to copy and to ask.
#[derive(Clone, Debug, Default)]
pub struct CancelSignal(Arc<AtomicU8>);

impl CancelSignal {
    /// Whether nobody wants the result any more.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// Why it should stop; none while it should go on.
    #[must_use]
    pub fn reason(&self) -> Option<CancelReason> {
        match self.0.load(Ordering::Acquire) {
            1 => Some(CancelReason::Requested),
            2 => Some(CancelReason::TimeLimit),
            3 => Some(CancelReason::OtherCopyWon),
            4 => Some(CancelReason::LeaseVoid),
            _ => None,
        }
    }

    fn set(&self, reason: CancelReason) {
        let code = match reason {
            CancelReason::Requested => 1,
            CancelReason::TimeLimit => 2,
            CancelReason::OtherCopyWon => 3,
            CancelReason::LeaseVoid => 4,
        };
        self.0.store(code, Ordering::Release);
    }
}

/// An event on its way to the listeners, with what only this crate's listeners see.
pub(crate) struct Notice<T> {
    pub(crate) event: Event,
    /// The payload of a task that is over.
    pub(crate) payload: Option<Arc<T>>,
    /// Where all tasks were just after it.
    pub(crate) counts: Counts,
}

/// Takes notices; says false when it wants no more.
pub(crate) type Listener<T> = Box<dyn FnMut(&Notice<T>) -> bool + Send>;

/// What the core said directly to one input.
pub(crate) struct Answer<T> {
    pub(crate) refused: Option<Box<[CoreSubmitError]>>,
    pub(crate) rejected: Option<InputError>,
    pub(crate) stale: bool,
    pub(crate) moved: u32,
    /// The tasks that an agent took along, in its order.
    pub(crate) returned: Vec<TaskId>,
    pub(crate) taken_along: HashMap<TaskId, Entry<T>>,
    /// Agents that lost an assignment before anybody picked it up: their threads still wait.
    robbed: Vec<AgentId>,
}

impl<T> Default for Answer<T> {
    fn default() -> Self {
        Self {
            refused: None,
            rejected: None,
            stale: false,
            moved: 0,
            returned: Vec::new(),
            taken_along: HashMap::new(),
            robbed: Vec::new(),
        }
    }
}

impl<T> State<T> {
    pub(crate) fn new(driver: Driver) -> Self {
        Self {
            driver,
            directory: Directory::new(),
            tasks: HashMap::new(),
            dead: BTreeMap::new(),
            returned: HashSet::new(),
            desks: HashMap::new(),
            outbox: Vec::new(),
            new_listeners: Vec::new(),
            listening: false,
            stopped: false,
            wake: Vec::new(),
            trash: Vec::new(),
            idle: Arc::new(Condvar::new()),
        }
    }

    /// Tells the core a fact, and carries out what it wants done.
    pub(crate) fn feed(&mut self, now: Time, input: Input) -> Answer<T> {
        let mut answer = Answer::default();
        let first_notice = self.outbox.len();
        self.driver.tell(now, input);
        loop {
            while let Some(action) = self.driver.next_action() {
                self.carry_out(action, &mut answer);
            }
            let Some(agent) = answer.robbed.pop() else {
                break;
            };
            // An agent that is gone wants nothing.
            if let Some(desk) = self.desks.get(&agent) {
                let want = desk.wants();
                self.driver.tell(now, Input::WorkRequested { agent, want });
            }
        }
        let counts = self.driver.scheduler().counts();
        for notice in &mut self.outbox[first_notice..] {
            notice.counts = counts;
        }
        if counts.live() == 0 {
            self.wake.push(Arc::clone(&self.idle));
        }
        answer
    }

    fn carry_out(&mut self, action: Action, answer: &mut Answer<T>) {
        match action {
            Action::Assign {
                task,
                agent,
                lease,
                attempt,
                reason,
            } => {
                let ready = Ready {
                    task,
                    lease,
                    attempt,
                    reason,
                    signal: CancelSignal::default(),
                };
                self.assign(agent, ready);
            }
            Action::Retract {
                task, agent, lease, ..
            } => {
                // What was picked up is running, and runs on: embedded tasks keep no checkpoints.
                let yielded = self
                    .desks
                    .get_mut(&agent)
                    .is_some_and(|desk| desk.put_back(lease));
                if yielded {
                    answer.robbed.push(agent);
                }
                self.driver.later(Input::TaskYielded {
                    task,
                    lease,
                    yielded,
                });
            }
            Action::Cancel {
                agent,
                lease,
                reason,
                ..
            } => {
                let desk = self.desks.get_mut(&agent);
                if desk.is_some_and(|desk| desk.cancel(lease, reason)) {
                    answer.robbed.push(agent);
                }
            }
            Action::Report(report) => self.take_report(report, answer),
            // The driver asks for `next_timer` after every input instead.
            Action::SetTimer { .. } => {}
        }
    }

    fn assign(&mut self, agent: AgentId, ready: Ready) {
        self.notify(|state| Event::Assigned {
            task: state.directory.task_ref(ready.task),
            agent: state.directory.agent_name(agent),
            attempt: ready.attempt,
            why: Why::new(ready.reason, state.directory.directory()),
        });
        let desk = self
            .desks
            .get_mut(&agent)
            .expect("the core gave a task to an agent that is not registered");
        desk.held.insert(ready.lease, ready.signal.clone());
        desk.inbox.push_back(ready);
        self.wake.push(Arc::clone(&desk.bell));
    }

    fn take_report(&mut self, report: Report, answer: &mut Answer<T>) {
        match report {
            Report::Refused { errors, .. } => answer.refused = Some(errors),
            Report::Rejected(error) => answer.rejected = Some(error),
            Report::Finished { task, job, ending } => self.finish(task, job, ending, answer),
            Report::AgentLost(agent) => {
                self.clear_desk(agent);
                let agent = self.directory.agent_name(agent);
                self.notify(|_| Event::AgentLost { agent });
            }
            Report::AgentLeft { agent, returned } => {
                self.clear_desk(agent);
                let count = returned.len();
                answer.returned = returned;
                self.notify(|state| Event::AgentLeft {
                    agent: state.directory.agent_name(agent),
                    returned: count,
                });
            }
            Report::StaleAnswer { task, lease } => {
                answer.stale = true;
                self.notify(|state| Event::StaleAnswer {
                    task: state.directory.task_ref(task),
                    lease,
                });
            }
            Report::Rebalanced { moved } => {
                answer.moved += moved;
                self.notify(|_| Event::Rebalanced { moved });
            }
            Report::NothingToSteal(_) => {}
            other => self.notify_of(other),
        }
    }

    /// Reports that only need to be told.
    fn notify_of(&mut self, report: Report) {
        self.notify(|state| {
            let names = &state.directory;
            match report {
                Report::Accepted { job, tasks } => Event::Submitted { job, tasks },
                Report::Queued {
                    task,
                    agent,
                    reason,
                } => Event::Queued {
                    task: names.task_ref(task),
                    agent: names.agent_name(agent),
                    why: Why::new(reason, names.directory()),
                },
                Report::Held { task } => Event::Held {
                    task: names.task_ref(task),
                },
                Report::WillRetry { task, failure, at } => Event::WillRetry {
                    task: names.task_ref(task),
                    failure,
                    at,
                },
                Report::JobFinished { job } => Event::JobFinished { job },
                Report::DeadlineLost { task, deadline } => Event::DeadlineLost {
                    task: names.task_ref(task),
                    deadline,
                },
                Report::AgentSuspected(agent) => Event::AgentSuspected {
                    agent: names.agent_name(agent),
                },
                Report::AgentRecovered(agent) => Event::AgentRecovered {
                    agent: names.agent_name(agent),
                },
                Report::SkillSuspended {
                    agent,
                    skill,
                    until,
                } => Event::SkillSuspended {
                    agent: names.agent_name(agent),
                    skill: names.skill_name(skill),
                    until,
                },
                Report::SkillRestored { agent, skill } => Event::SkillRestored {
                    agent: names.agent_name(agent),
                    skill: names.skill_name(skill),
                },
                Report::SkillEarned { agent, skill } => Event::SkillEarned {
                    agent: names.agent_name(agent),
                    skill: names.skill_name(skill),
                },
                Report::SkillRevoked { agent, skill } => Event::SkillRevoked {
                    agent: names.agent_name(agent),
                    skill: names.skill_name(skill),
                },
                Report::Refused { .. }
                | Report::Rejected(_)
                | Report::Finished { .. }
                | Report::AgentLost(_)
                | Report::AgentLeft { .. }
                | Report::StaleAnswer { .. }
                | Report::Rebalanced { .. }
                | Report::NothingToSteal(_) => unreachable!("told by take_report"),
            }
        });
    }

    fn finish(&mut self, task: TaskId, job: JobId, ending: CoreEnding, answer: &mut Answer<T>) {
        let entry = self
            .tasks
            .remove(&task)
            .expect("the core finished a task that nobody submitted");
        if self.listening {
            let event = Event::Finished {
                task: self.directory.task_ref(task),
                job,
                ending: self.ending(ending, entry.message.clone()),
            };
            self.push_notice(event, Some(Arc::clone(&entry.payload)));
        }
        match ending {
            CoreEnding::Returned => {
                self.returned.insert(task);
                answer.taken_along.insert(task, entry);
            }
            CoreEnding::Failed(_) => self.bury(task, entry),
            CoreEnding::Succeeded { .. } | CoreEnding::FellBack { .. } | CoreEnding::Cancelled => {
                self.trash.push(entry.payload);
            }
        }
    }

    /// Keeps a failed task as long as the core does: it forgets the lowest numbers first.
    fn bury(&mut self, task: TaskId, entry: Entry<T>) {
        self.dead.insert(task, entry);
        let first_kept = self.driver.scheduler().dead_letters().next();
        while let Some(oldest) = self.dead.first_entry()
            && first_kept.is_none_or(|kept| *oldest.key() < kept)
        {
            self.trash.push(oldest.remove().payload);
        }
    }

    fn ending(&self, ending: CoreEnding, message: Option<Arc<str>>) -> Ending {
        match ending {
            CoreEnding::Succeeded { agent, lease } => Ending::Succeeded {
                agent: self.directory.agent_name(agent),
                lease,
            },
            CoreEnding::FellBack { to } => Ending::FellBack {
                to: to.map(|task| self.directory.task_ref(task)),
            },
            CoreEnding::Failed(failure) => Ending::Failed { failure, message },
            CoreEnding::Cancelled => Ending::Cancelled,
            CoreEnding::Returned => Ending::Returned,
        }
    }

    /// Makes a notice, if anybody listens.
    pub(crate) fn notify(&mut self, event: impl FnOnce(&Self) -> Event) {
        if self.listening {
            let event = event(self);
            self.push_notice(event, None);
        }
    }

    fn push_notice(&mut self, event: Event, payload: Option<Arc<T>>) {
        self.outbox.push(Notice {
            event,
            payload,
            counts: Counts::default(),
        });
    }

    // Desks.

    /// Sets up a desk for an agent that registered; an earlier incarnation loses its own.
    pub(crate) fn open_desk(&mut self, agent: AgentId) {
        self.clear_desk(agent);
        let desk = Inbox {
            inbox: VecDeque::new(),
            held: HashMap::new(),
            waiting: 0,
            bell: Arc::new(Condvar::new()),
        };
        self.desks.insert(agent, desk);
    }

    fn clear_desk(&mut self, agent: AgentId) {
        if let Some(desk) = self.desks.remove(&agent) {
            for signal in desk.held.values() {
                signal.set(CancelReason::LeaseVoid);
            }
            self.wake.push(desk.bell);
        }
    }

    /// One thread of an agent asks for a task. If it gets none now, it stays counted as waiting
    /// until [`State::pick_up`] or [`State::withdraw`].
    pub(crate) fn ask(&mut self, now: Time, agent: AgentId) {
        if let Some(desk) = self.desks.get_mut(&agent) {
            desk.waiting += 1;
            let want = desk.wants();
            self.feed(now, Input::WorkRequested { agent, want });
        }
    }

    /// Takes what lies ready for a thread that asked.
    pub(crate) fn pick_up(&mut self, now: Time, agent: AgentId) -> Option<Ready> {
        let desk = self.desks.get_mut(&agent)?;
        let ready = desk.inbox.pop_front()?;
        desk.waiting = desk.waiting.saturating_sub(1);
        self.start(now, &ready);
        Some(ready)
    }

    /// Takes one certain assignment, which nobody waited for.
    pub(crate) fn pick_up_newest(&mut self, now: Time, agent: AgentId) -> Option<Ready> {
        let ready = self.desks.get_mut(&agent)?.inbox.pop_back()?;
        self.start(now, &ready);
        Some(ready)
    }

    /// Whether this is still the agent's bell, and nothing has happened that it would ring for.
    pub(crate) fn is_quiet(&self, agent: AgentId, bell: &Arc<Condvar>) -> bool {
        !self.stopped
            && self
                .desks
                .get(&agent)
                .is_some_and(|desk| Arc::ptr_eq(&desk.bell, bell) && desk.inbox.is_empty())
    }

    pub(crate) fn inbox_len(&self, agent: AgentId) -> usize {
        self.desks.get(&agent).map_or(0, |desk| desk.inbox.len())
    }

    fn start(&mut self, now: Time, ready: &Ready) {
        let (task, lease) = (ready.task, ready.lease);
        self.feed(now, Input::TaskStarted { task, lease });
    }

    /// A thread of an agent gives up waiting.
    pub(crate) fn withdraw(&mut self, now: Time, agent: AgentId) {
        let Some(desk) = self.desks.get_mut(&agent) else {
            return;
        };
        desk.waiting = desk.waiting.saturating_sub(1);
        let want = desk.wants();
        self.feed(now, Input::WorkRequested { agent, want });
    }

    /// Forgets the signal of a lease that was answered.
    pub(crate) fn answered(&mut self, lease: Lease) {
        if let Some(held) = self.driver.leases().get(lease)
            && let Some(desk) = self.desks.get_mut(&held.agent)
        {
            desk.held.remove(&lease);
        }
    }

    pub(crate) fn task_ref(&self, id: TaskId) -> TaskRef {
        self.directory.task_ref(id)
    }
}

impl Inbox {
    /// Gives an assignment back if nobody picked it up.
    fn put_back(&mut self, lease: Lease) -> bool {
        let before = self.inbox.len();
        self.inbox.retain(|ready| ready.lease != lease);
        let is_back = self.inbox.len() < before;
        if is_back {
            self.held.remove(&lease);
        }
        is_back
    }

    /// Voids an assignment. Says whether it was still waiting to be picked up.
    fn cancel(&mut self, lease: Lease, reason: CancelReason) -> bool {
        if let Some(signal) = self.held.get(&lease) {
            signal.set(reason);
        }
        let was_waiting = self.put_back(lease);
        self.held.remove(&lease);
        was_waiting
    }

    /// How many of its threads wait for an assignment that is not there yet.
    fn wants(&self) -> u32 {
        let ready = u32::try_from(self.inbox.len()).unwrap_or(u32::MAX);
        self.waiting.saturating_sub(ready)
    }
}

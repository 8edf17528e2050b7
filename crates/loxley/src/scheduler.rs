//! The scheduler as a library: one lock around the deciding core, and a thread for its timers.
//!
//! ```text
//! your threads ── submit, next_task, complete ──▶ lock ─▶ core.handle ─▶ actions into memory ─▶ unlock
//!                                                             ▲                                  │
//! the ticker thread ── sleeps until the next timer ───────────┘        wake agents, tell listeners
//! ```
//!
//! What must stay true: the lock is held for one `handle` and the memory operations around it, never
//! while waiting, never while code of a user runs; notices leave in the order in which they arose.

use std::fmt;
use std::fs;
use std::mem;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use loxley_model::{AgentId, Failure, JobId, Lease, Outcome, TaskId, Time};
use loxley_policy::{
    Config, Counts, Input, InputError, Leftovers, Metrics, Scheduler as Core, Selection,
    SubmitError as CoreSubmitError, TaskStatus, Vitals,
};

use crate::clock::{Clock, SystemClock};

use crate::error::{
    AgentError, AskError, ConfigError, LimitError, NotDeadLettered, StaleLease, SubmitError,
    SubmitProblem, UnknownTask,
};
use crate::event::{Event, Subscription};
use crate::state::{Answer, CancelSignal, Entry, Listener, Notice, Ready, State};
use crate::task::{Agent, Job, Name, Task, TaskKey, TaskRef};
use crate::ticker::Alarm;
use crate::words::{AgentStatus, Explanation, Problem, UtilizationSample, Why};

/// A thread-safe scheduler for agents that live in this process (or that this process speaks for).
///
/// `T` is the payload that tasks carry; the scheduler never looks at it. Clones are cheap and mean
/// the same scheduler.
///
/// An agent's life is a loop: [`next_task`](Self::next_task), do it, [`complete`](Self::complete)
/// or [`fail`](Self::fail). Where the next task comes from (its own queue, or stolen from a busy
/// agent) is the scheduler's business.
///
/// ```
/// use std::time::Duration;
/// use loxley::{Agent, Scheduler, Task};
///
/// let scheduler = Scheduler::builder().build();
/// scheduler.start();
/// scheduler.register_agent(Agent::new("ann").skill("python"))?;
/// scheduler.submit(Task::new("tidy").skill("python").priority(4), "tidy.py")?;
///
/// let assignment = scheduler
///     .next_task("ann", Duration::from_secs(1))?
///     .expect("there is one task, and ann can do it");
/// assert_eq!(*assignment.payload, "tidy.py");
/// println!("ann does {} because {}", assignment.task, assignment.why);
/// scheduler.complete(&assignment)?;
/// assert_eq!(scheduler.counts().finished, 1);
/// scheduler.stop();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Scheduler<T = ()> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// Held by whoever hands over notices, so that they arrive in order.
    listeners: Mutex<Vec<Listener<T>>>,
    clock: Arc<dyn Clock>,
    alarm: Arc<Alarm>,
    ticker: Mutex<Option<JoinHandle<()>>>,
    next_task: AtomicU64,
    next_job: AtomicU64,
}

/// Makes a [`Scheduler`].
pub struct SchedulerBuilder {
    config: Config,
    clock: Arc<dyn Clock>,
}

/// A task in an agent's hands. Answer it with [`Scheduler::complete`] or [`Scheduler::fail`].
#[derive(Debug)]
#[must_use = "the scheduler waits for an answer"]
pub struct Assignment<T> {
    /// The task.
    pub task: TaskRef,
    /// Who has it.
    pub agent: Name,
    /// The number of this assignment.
    pub lease: Lease,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Why this agent got it.
    pub why: Why,
    /// What was submitted with it.
    pub payload: Arc<T>,
    /// Says when nobody wants the result any more.
    pub signal: CancelSignal,
}

/// Names one assignment: all that is needed to answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The task.
    pub task: TaskId,
    /// The number of the assignment.
    pub lease: Lease,
}

impl<T> From<&Assignment<T>> for Ticket {
    fn from(assignment: &Assignment<T>) -> Self {
        Self {
            task: assignment.task.id,
            lease: assignment.lease,
        }
    }
}

/// What was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The job, to cancel it whole.
    pub job: JobId,
    /// The tasks, in the order of the batch.
    pub tasks: Vec<TaskId>,
}

/// A task that left the scheduler with its agent, or that failed for good.
#[derive(Clone, Debug)]
pub struct Leftover<T> {
    /// Which task it was.
    pub task: TaskRef,
    /// Its description, without dependencies, locality and fallback. Submitting the description of
    /// a task that left with its agent brings that task back, under the name and number it had, and
    /// whatever depends on it goes on.
    pub description: Task,
    /// What was submitted with it.
    pub payload: Arc<T>,
    /// What its last failed attempt said.
    pub message: Option<Arc<str>>,
}

impl Default for SchedulerBuilder {
    fn default() -> Self {
        Self {
            config: Config::default(),
            clock: Arc::new(SystemClock::new()),
        }
    }
}

impl SchedulerBuilder {
    /// Uses this configuration instead of the published defaults.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Uses the configuration in a YAML file. Every mistake in it is reported, with its line.
    pub fn config_file(self, path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Ok(self.config(read_config(path.as_ref())?))
    }

    /// Uses this clock instead of the machine's.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The scheduler. Call [`Scheduler::start`] to let time pass for it.
    #[must_use]
    pub fn build<T: Send + Sync + 'static>(self) -> Scheduler<T> {
        let core = Core::new(self.config, self.clock.now());
        let alarm = Arc::new(Alarm::new());
        alarm.set(core.next_timer());
        Scheduler {
            shared: Arc::new(Shared {
                state: Mutex::new(State::new(core)),
                listeners: Mutex::new(Vec::new()),
                clock: self.clock,
                alarm,
                ticker: Mutex::new(None),
                next_task: AtomicU64::new(1),
                next_job: AtomicU64::new(1),
            }),
        }
    }
}

impl fmt::Debug for SchedulerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulerBuilder")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Begins to make a scheduler.
    #[must_use]
    pub fn builder() -> SchedulerBuilder {
        SchedulerBuilder::default()
    }
}

/// Life.
impl<T: Send + Sync + 'static> Scheduler<T> {
    /// Starts the background thread that makes time pass: retries, time limits, heartbeats,
    /// rebalancing, speculation. Everything else works without it. Does nothing when it runs.
    pub fn start(&self) {
        let mut ticker = unpoisoned(self.shared.ticker.lock());
        self.shared.with(|state, _| state.stopped = false);
        if ticker.is_none() {
            self.shared.alarm.rearm();
            *ticker = Some(spawn_ticker(&self.shared));
        }
    }

    /// Stops the background thread and turns away agents and submissions. Nothing is forgotten:
    /// [`start`](Self::start) goes on where this stopped.
    pub fn stop(&self) {
        let ticker = unpoisoned(self.shared.ticker.lock()).take();
        self.shared.with(|state, _| {
            state.stopped = true;
            let bells = state.desks.values().map(|desk| Arc::clone(&desk.bell));
            let bells: Vec<_> = bells.collect();
            state.wake.extend(bells);
        });
        self.shared.alarm.stop();
        if let Some(ticker) = ticker
            && ticker.thread().id() != thread::current().id()
        {
            // A listener that panicked was dropped, so the thread itself does not panic.
            let _ = ticker.join();
        }
    }

    /// Lets the core see what time it is. Only needed without the background thread.
    pub fn tick(&self) {
        self.feed(Input::Tick);
    }

    /// The scheduler's time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// Applies another configuration. No task is lost or reordered.
    pub fn reload(&self, config: Config) {
        self.feed(Input::ConfigChanged(Box::new(config)));
    }

    /// Applies the configuration in a YAML file, or none of it if there is a mistake in it.
    pub fn reload_file(&self, path: impl AsRef<Path>) -> Result<(), ConfigError> {
        self.reload(read_config(path.as_ref())?);
        Ok(())
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> Config {
        self.shared.lock().core.config().clone()
    }
}

/// Agents.
impl<T: Send + Sync + 'static> Scheduler<T> {
    /// Registers an agent. Under a name that is already registered this is a new incarnation: what
    /// the old one had goes elsewhere, and its answers are stale.
    pub fn register_agent(&self, agent: impl Into<Agent>) -> Result<(), AgentError> {
        let agent = agent.into();
        self.shared.with(|state, now| {
            if state.stopped {
                return Err(AgentError::Stopped);
            }
            let spec = state.directory.agent_spec(&agent)?;
            let id = spec.id;
            check_agent(&spec, &state.directory.agent_name(id))?;
            state.open_desk(id);
            let answer = state.feed(now, Input::AgentJoined(spec));
            assert!(
                answer.rejected.is_none(),
                "a checked agent was rejected: {:?}",
                answer.rejected
            );
            state.notify(|state| Event::AgentJoined {
                agent: state.directory.agent_name(id),
            });
            Ok(())
        })
    }

    /// Unregisters an agent and returns what it still had, running tasks first. These tasks have
    /// left the scheduler: they are the caller's now.
    pub fn unregister_agent(&self, agent: &str) -> Result<Vec<Leftover<T>>, AgentError> {
        self.shared.with(|state, now| {
            let id = registered(state, agent).map_err(not_registered)?;
            let mut answer = state.feed(
                now,
                Input::AgentLeft {
                    agent: id,
                    tasks: Leftovers::Return,
                },
            );
            let mut taken = mem::take(&mut answer.taken_along);
            let leftovers = answer.returned.iter().map(|task| {
                let entry = taken.remove(task).expect("what was returned was finished");
                let mut leftover = leftover(state, *task, entry);
                leftover.description.again = Some(*task);
                leftover
            });
            Ok(leftovers.collect())
        })
    }

    /// Unregisters an agent; what it still had goes to other agents. Answers that it still gives
    /// are stale.
    pub fn remove_agent(&self, agent: &str) -> Result<(), AgentError> {
        self.tell_agent(agent, |agent| Input::AgentLeft {
            agent,
            tasks: Leftovers::Requeue,
        })
    }

    /// Gives an agent nothing new; it finishes what it has.
    pub fn drain_agent(&self, agent: &str) -> Result<(), AgentError> {
        self.tell_agent(agent, Input::AgentDrained)
    }

    /// A sign of life. `throttle` says how much heat, power or other load slow the agent down: 0
    /// not at all, 1 stands still.
    pub fn heartbeat(&self, agent: &str, throttle: f64) -> Result<(), AgentError> {
        let vitals = Vitals {
            throttle,
            ..Vitals::default()
        };
        self.tell_agent(agent, |agent| Input::AgentHeard { agent, vitals })
    }

    fn tell_agent(
        &self,
        agent: &str,
        input: impl FnOnce(AgentId) -> Input,
    ) -> Result<(), AgentError> {
        self.shared.with(|state, now| {
            let id = registered(state, agent).map_err(not_registered)?;
            match state.feed(now, input(id)).rejected {
                None => Ok(()),
                Some(InputError::BadThrottle(_)) => Err(AgentError::BadThrottle(agent.into())),
                Some(_) => Err(AgentError::NotRegistered(agent.into())),
            }
        })
    }
}

/// Work for agents.
impl<T: Send + Sync + 'static> Scheduler<T> {
    /// The next task for an agent, waiting for it no longer than `timeout`: from its own queue, or
    /// stolen from another one's. Several threads may wait for one agent.
    pub fn next_task(
        &self,
        agent: &str,
        timeout: Duration,
    ) -> Result<Option<Assignment<T>>, AskError> {
        let end = Instant::now().checked_add(timeout);
        let (id, found) = self.shared.with(|state, now| {
            let id = registered(state, agent)?;
            state.ask(now, id);
            Ok((id, pick_up(state, now, id)))
        })?;
        match found {
            Some(assignment) => Ok(Some(assignment)),
            None => self.wait_for_task(agent, id, end),
        }
    }

    /// Waits for the answer to a request that was made. Holds no lock while it waits.
    fn wait_for_task(
        &self,
        agent: &str,
        id: AgentId,
        end: Option<Instant>,
    ) -> Result<Option<Assignment<T>>, AskError> {
        let Some(bell) = self.bell(id) else {
            return Err(AskError::NotRegistered(agent.into()));
        };
        loop {
            let is_over = end.is_some_and(|end| Instant::now() >= end);
            let step = self.shared.with(|state, now| {
                if state.stopped {
                    state.withdraw(now, id);
                    return Some(Err(AskError::Stopped));
                }
                let is_same = state
                    .desks
                    .get(&id)
                    .is_some_and(|desk| Arc::ptr_eq(&desk.bell, &bell));
                if !is_same {
                    return Some(Err(AskError::NotRegistered(agent.into())));
                }
                if let Some(assignment) = pick_up(state, now, id) {
                    return Some(Ok(Some(assignment)));
                }
                is_over.then(|| {
                    state.withdraw(now, id);
                    Ok(None)
                })
            });
            if let Some(step) = step {
                return step;
            }
            self.doze(id, &bell, end);
        }
    }

    fn bell(&self, id: AgentId) -> Option<Arc<Condvar>> {
        let state = self.shared.lock();
        state.desks.get(&id).map(|desk| Arc::clone(&desk.bell))
    }

    /// Sleeps until the bell rings, unless something lies ready (or the desk is gone) already.
    fn doze(&self, id: AgentId, bell: &Arc<Condvar>, end: Option<Instant>) {
        let state = self.shared.lock();
        if !state.is_quiet(id, bell) {
            return;
        }
        let longest = Duration::from_secs(3600);
        let span = end.map_or(longest, |end| {
            end.saturating_duration_since(Instant::now()).min(longest)
        });
        drop(bell.wait_timeout(state, span));
    }

    /// The next task for an agent if there is one now.
    pub fn try_next_task(&self, agent: &str) -> Result<Option<Assignment<T>>, AskError> {
        self.shared.with(|state, now| {
            let id = registered(state, agent)?;
            state.ask(now, id);
            let found = pick_up(state, now, id);
            if found.is_none() {
                state.withdraw(now, id);
            }
            Ok(found)
        })
    }

    /// One explicit pull: takes a task from another agent's queue, or nothing. The agent's own
    /// queue does not count, and no request stays open.
    pub fn request_work(&self, agent: &str) -> Result<Option<Assignment<T>>, AskError> {
        self.shared.with(|state, now| {
            let id = registered(state, agent)?;
            let before = state.inbox_len(id);
            state.feed(now, Input::StealRequested { agent: id });
            if state.inbox_len(id) <= before {
                return Ok(None);
            }
            let ready = state.pick_up_newest(now, id);
            Ok(ready.map(|ready| assignment(state, id, ready)))
        })
    }

    /// The task is done. An error says that somebody else has it by now and this result must not
    /// count.
    pub fn complete(&self, ticket: impl Into<Ticket>) -> Result<(), StaleLease> {
        self.answer(ticket.into(), Outcome::Succeeded, None)
    }

    /// The attempt failed; the task is tried again if it has retries left.
    pub fn fail(
        &self,
        ticket: impl Into<Ticket>,
        message: impl Into<Arc<str>>,
    ) -> Result<(), StaleLease> {
        let outcome = Outcome::Failed(Failure::Error);
        self.answer(ticket.into(), outcome, Some(message.into()))
    }

    /// The attempt failed and would fail again: there are no retries.
    pub fn fail_for_good(
        &self,
        ticket: impl Into<Ticket>,
        message: impl Into<Arc<str>>,
    ) -> Result<(), StaleLease> {
        let outcome = Outcome::Failed(Failure::Permanent);
        self.answer(ticket.into(), outcome, Some(message.into()))
    }

    fn answer(
        &self,
        ticket: Ticket,
        outcome: Outcome,
        message: Option<Arc<str>>,
    ) -> Result<(), StaleLease> {
        let Ticket { task, lease } = ticket;
        self.shared.with(|state, now| {
            // The message must be there when the core reports the end; a stale one is taken back.
            let before = state
                .tasks
                .get_mut(&task)
                .map(|entry| mem::replace(&mut entry.message, message));
            state.answered(lease);
            let input = Input::TaskFinished {
                task,
                lease,
                outcome,
            };
            let answer = state.feed(now, input);
            if !answer.stale && answer.rejected.is_none() {
                return Ok(());
            }
            if let (Some(entry), Some(before)) = (state.tasks.get_mut(&task), before) {
                entry.message = before;
            }
            let task = state.task_ref(task);
            Err(StaleLease { task, lease })
        })
    }
}

/// Submitting.
impl<T: Send + Sync + 'static> Scheduler<T> {
    /// Submits one task. A task that no registered agent can do is refused; use
    /// [`Job::hold`] with [`submit_batch`](Self::submit_batch) to let it wait.
    pub fn submit(&self, task: Task, payload: T) -> Result<TaskId, SubmitError> {
        let submitted = self.submit_batch(&Job::new(), [(task, payload)])?;
        Ok(submitted.tasks[0])
    }

    /// Submits one task to the queue of a certain agent. It may still be stolen from there.
    pub fn submit_to(&self, agent: &str, task: Task, payload: T) -> Result<TaskId, SubmitError> {
        let submitted = self.submit_batch(&Job::new().onto(agent), [(task, payload)])?;
        Ok(submitted.tasks[0])
    }

    /// Submits several tasks: all are accepted or none. They may depend on each other by name, in
    /// any order.
    pub fn submit_batch(
        &self,
        job: &Job,
        tasks: impl IntoIterator<Item = (Task, T)>,
    ) -> Result<Submitted, SubmitError> {
        let (tasks, payloads): (Vec<Task>, Vec<Arc<T>>) = tasks
            .into_iter()
            .map(|(task, payload)| (task, Arc::new(payload)))
            .unzip();
        self.submit_shared(job, &tasks, &payloads)
    }

    pub(crate) fn submit_shared(
        &self,
        job: &Job,
        tasks: &[Task],
        payloads: &[Arc<T>],
    ) -> Result<Submitted, SubmitError> {
        if tasks.is_empty() {
            return Err(SubmitError::of(SubmitProblem::Empty));
        }
        let refs = self.number(tasks);
        let mut problems = Vec::new();
        for (task, task_ref) in tasks.iter().zip(&refs) {
            task.check(task_ref, &mut problems);
        }
        if !problems.is_empty() {
            return Err(SubmitError { problems });
        }
        let job_id = JobId(self.shared.next_job.fetch_add(1, Ordering::Relaxed));
        self.shared
            .with(|state, now| accept(state, now, job_id, job, tasks, refs, payloads))
    }

    /// Numbers for new tasks. A number is used up even if the submission is refused.
    fn number(&self, tasks: &[Task]) -> Vec<TaskRef> {
        let count = tasks.len() as u64;
        let first = self.shared.next_task.fetch_add(count, Ordering::Relaxed);
        let name = |task: &Task| task.name.as_deref().map(|name| Name::from(name.trim()));
        tasks
            .iter()
            .zip(first..)
            .map(|(task, number)| TaskRef {
                id: TaskId(number),
                name: name(task),
            })
            .collect()
    }

    /// Cancels a task, running or not.
    pub fn cancel(&self, task: impl Into<TaskKey>) -> Result<(), UnknownTask> {
        let key = task.into();
        self.shared.with(|state, now| {
            let Some(id) = state.directory.task_id(&key) else {
                return Err(UnknownTask(key));
            };
            let answer = state.feed(now, Input::CancelRequested(Selection::Task(id)));
            match answer.rejected {
                None => Ok(()),
                Some(_) => Err(UnknownTask(key)),
            }
        })
    }

    /// Cancels what is left of a job. False when nothing was.
    pub fn cancel_job(&self, job: JobId) -> bool {
        let answer = self.feed(Input::CancelRequested(Selection::Job(job)));
        answer.rejected.is_none()
    }

    /// Cancels everything.
    pub fn cancel_all(&self) {
        self.feed(Input::CancelRequested(Selection::All));
    }

    /// At most this many tasks of the group run at once in the whole fleet.
    pub fn limit_group(&self, group: &str, limit: u32) -> Result<(), LimitError> {
        self.shared.with(|state, now| {
            let id = state.directory.group(group)?;
            let input = Input::GroupLimitSet { group: id, limit };
            match state.feed(now, input).rejected {
                None => Ok(()),
                Some(_) => Err(LimitError::Zero(group.into())),
            }
        })
    }

    /// A user's share of the fleet is proportional to this weight; 1 when never said.
    pub fn weigh_user(&self, user: &str, weight: u32) -> Result<(), LimitError> {
        self.shared.with(|state, now| {
            let id = state.directory.user(user)?;
            let input = Input::UserWeightSet { user: id, weight };
            match state.feed(now, input).rejected {
                None => Ok(()),
                Some(_) => Err(LimitError::Zero(user.into())),
            }
        })
    }

    /// Runs a rebalancing pass now and says how many tasks it moved.
    pub fn rebalance_now(&self) -> u32 {
        self.feed(Input::RebalanceRequested).moved
    }

    /// Tasks that failed and can be tried again.
    #[must_use]
    pub fn dead_letters(&self) -> Vec<Leftover<T>> {
        let state = self.shared.lock();
        state
            .dead
            .iter()
            .map(|(task, entry)| leftover(&state, *task, entry.copy()))
            .collect()
    }

    /// Gives a task on the dead-letter list another chance, with all its retries.
    pub fn resubmit(&self, task: impl Into<TaskKey>) -> Result<(), NotDeadLettered> {
        let key = task.into();
        self.shared.with(|state, now| {
            let known = state.directory.task_id(&key);
            let Some(id) = known.filter(|id| state.dead.contains_key(id)) else {
                return Err(NotDeadLettered(key));
            };
            revive(state, now, vec![id]);
            Ok(())
        })
    }

    /// Gives everything on the dead-letter list another chance, and says how many tasks those are.
    pub fn resubmit_all(&self) -> usize {
        self.shared.with(|state, now| {
            let dead: Vec<TaskId> = state.dead.keys().copied().collect();
            let count = dead.len();
            if count > 0 {
                revive(state, now, dead);
            }
            count
        })
    }
}

/// Asking. None of these changes anything.
impl<T: Send + Sync + 'static> Scheduler<T> {
    /// The figures.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.shared.lock().core.metrics()
    }

    /// Where all tasks are.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.lock().core.counts()
    }

    /// The state of one agent; none when it is not registered.
    #[must_use]
    pub fn agent_status(&self, agent: &str) -> Option<AgentStatus> {
        let state = self.shared.lock();
        let id = state.directory.agent_id(agent)?;
        let status = state.core.agent_status(id)?;
        Some(AgentStatus::new(status, &state.directory))
    }

    /// The state of every agent, in the order in which they registered.
    #[must_use]
    pub fn agent_statuses(&self) -> Vec<AgentStatus> {
        let state = self.shared.lock();
        let statuses = state.core.agent_statuses();
        statuses
            .map(|status| AgentStatus::new(status, &state.directory))
            .collect()
    }

    /// The present queue length of every agent.
    #[must_use]
    pub fn queue_lengths(&self) -> Vec<usize> {
        let state = self.shared.lock();
        let statuses = state.core.agent_statuses();
        statuses.map(|status| status.queue_length).collect()
    }

    /// The queue lengths of all agents, sampled from time to time; the oldest first.
    #[must_use]
    pub fn utilization_samples(&self) -> Vec<UtilizationSample> {
        let state = self.shared.lock();
        state
            .core
            .utilization_samples()
            .map(|sample| UtilizationSample::new(sample, &state.directory))
            .collect()
    }

    /// The state of a task that is not over.
    #[must_use]
    pub fn task_status(&self, task: impl Into<TaskKey>) -> Option<TaskStatus> {
        let state = self.shared.lock();
        let id = state.directory.task_id(&task.into())?;
        state.core.task_status(id)
    }

    /// Why a task is where it is, why it does not run, and what would make it run. None when it is
    /// over or unknown.
    #[must_use]
    pub fn explain(&self, task: impl Into<TaskKey>) -> Option<Explanation> {
        let state = self.shared.lock();
        let id = state.directory.task_id(&task.into())?;
        let core = state.core.explain(id)?;
        let now = self.shared.clock.now();
        Some(Explanation::new(core, now, &state.core, &state.directory))
    }

    /// What is wrong with the fleet, and what to do about it; empty when nothing is.
    #[must_use]
    pub fn health(&self) -> Vec<Problem> {
        let state = self.shared.lock();
        let problems = state.core.health();
        problems
            .into_iter()
            .map(|problem| Problem::new(problem, &state.directory))
            .collect()
    }

    /// Waits until no task is left, no longer than `timeout`. Says whether none is.
    #[must_use]
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        let state = self.shared.lock();
        let idle = Arc::clone(&state.idle);
        let waited =
            idle.wait_timeout_while(state, timeout, |state| state.core.counts().live() > 0);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.core.counts().live() == 0
    }
}

/// Listening.
impl<T: Send + Sync + 'static> Scheduler<T> {
    /// Calls back for every event, in order, after the fact. It runs on whichever thread caused the
    /// event (or is just handing over others); it may call the scheduler. A listener that panics is
    /// dropped.
    pub fn on_event(&self, mut callback: impl FnMut(&Event) + Send + 'static) {
        self.listen(move |notice| {
            callback(&notice.event);
            true
        });
    }

    /// Calls back whenever tasks were accepted or one is over, with where all tasks are then.
    pub fn on_progress(&self, mut callback: impl FnMut(&Counts) + Send + 'static) {
        self.listen(move |notice| {
            if let Event::Submitted { .. } | Event::Finished { .. } = notice.event {
                callback(&notice.counts);
            }
            true
        });
    }

    /// Events from now on, to be read at leisure. At most `capacity` are kept for a reader that
    /// falls behind.
    #[must_use]
    pub fn subscribe(&self, capacity: usize) -> Subscription {
        let (subscription, mut feeder) = Subscription::new(capacity);
        self.listen(move |notice| feeder(&notice.event));
        subscription
    }

    pub(crate) fn listen(&self, listener: impl FnMut(&Notice<T>) -> bool + Send + 'static) {
        self.shared.with(|state, _| {
            state.listening = true;
            state.new_listeners.push(Box::new(listener));
        });
    }

    fn feed(&self, input: Input) -> Answer<T> {
        self.shared.with(|state, now| state.feed(now, input))
    }
}

impl<T> Clone for Scheduler<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T> fmt::Debug for Scheduler<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("counts", &self.shared.lock().core.counts())
            .finish_non_exhaustive()
    }
}

impl<T> Deref for Assignment<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.payload
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A panic under the lock is a broken invariant: whoever comes next must not go on with it.
        self.state
            .lock()
            .expect("the scheduler found its own books to be wrong")
    }

    /// Does something under the lock; what must happen outside of it happens afterwards.
    fn with<R>(&self, work: impl FnOnce(&mut State<T>, Time) -> R) -> R {
        let mut state = self.lock();
        let now = self.clock.now();
        let result = work(&mut state, now);
        self.alarm.set(state.core.next_timer());
        let wake = mem::take(&mut state.wake);
        let trash = mem::take(&mut state.trash);
        let has_mail = !state.outbox.is_empty();
        drop(state);
        wake.iter().for_each(|bell| bell.notify_all());
        drop(trash);
        if has_mail {
            self.deliver();
        }
        result
    }

    /// Hands notices to the listeners. One thread at a time does it, for all; a thread that finds
    /// another one at it leaves, because that one looks again after it let go.
    fn deliver(&self) {
        loop {
            let mut listeners = match self.listeners.try_lock() {
                Ok(listeners) => listeners,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            loop {
                let notices = self.take_mail(&mut listeners);
                if notices.is_empty() {
                    break;
                }
                for notice in &notices {
                    listeners.retain_mut(|listener| {
                        catch_unwind(AssertUnwindSafe(|| listener(notice))).unwrap_or(false)
                    });
                }
            }
            drop(listeners);
            if self.lock().outbox.is_empty() {
                return;
            }
        }
    }

    fn take_mail(&self, listeners: &mut Vec<Listener<T>>) -> Vec<Notice<T>> {
        let mut state = self.lock();
        listeners.append(&mut state.new_listeners);
        // When nobody is left to listen, no notices are made any more.
        state.listening = !listeners.is_empty();
        mem::take(&mut state.outbox)
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        self.alarm.stop();
    }
}

fn spawn_ticker<T: Send + Sync + 'static>(shared: &Arc<Shared<T>>) -> JoinHandle<()> {
    let weak: Weak<Shared<T>> = Arc::downgrade(shared);
    let alarm = Arc::clone(&shared.alarm);
    let clock = Arc::clone(&shared.clock);
    let run = move || {
        while alarm.sleep(|| clock.now()) {
            let Some(shared) = weak.upgrade() else {
                return;
            };
            shared.with(|state, now| {
                state.feed(now, Input::Tick);
            });
        }
    };
    thread::Builder::new()
        .name("loxley-ticker".into())
        .spawn(run)
        .expect("a thread can be started")
}

/// Hands a checked batch to the core, and keeps its names and payloads if it is accepted.
fn accept<T>(
    state: &mut State<T>,
    now: Time,
    job_id: JobId,
    job: &Job,
    tasks: &[Task],
    mut refs: Vec<TaskRef>,
    payloads: &[Arc<T>],
) -> Result<Submitted, SubmitError> {
    if state.stopped {
        return Err(SubmitError::of(SubmitProblem::Stopped));
    }
    for (task, task_ref) in tasks.iter().zip(&mut refs) {
        let again = task.again.filter(|id| state.returned.contains(id));
        task_ref.id = again.unwrap_or(task_ref.id);
    }
    let refs = refs;
    let job_spec = state
        .directory
        .job_spec(job_id, job)
        .map_err(SubmitError::of)?;
    let mut problems = Vec::new();
    let described: Vec<_> = refs.iter().cloned().zip(tasks).collect();
    let specs = state.directory.task_specs(now, &described, &mut problems);
    if !problems.is_empty() {
        return Err(SubmitError { problems });
    }
    // The core may start tasks while it takes them in, so everything is in place before.
    state.directory.keep_task_names(refs.iter().cloned());
    for (spec, payload) in specs.iter().zip(payloads) {
        let entry = Entry {
            payload: Arc::clone(payload),
            kept: spec.into(),
            message: None,
        };
        state.tasks.insert(spec.id, entry);
    }
    let input = Input::TasksSubmitted {
        job: job_spec,
        tasks: specs,
    };
    let Some(errors) = state.feed(now, input).refused else {
        for task in &refs {
            state.returned.remove(&task.id);
        }
        return Ok(Submitted {
            job: job_id,
            tasks: refs.iter().map(|task| task.id).collect(),
        });
    };
    let problems = errors
        .iter()
        .map(|error| in_names(state, job, error))
        .collect();
    for task in &refs {
        state.tasks.remove(&task.id);
        if !state.returned.contains(&task.id) {
            state.directory.forget_task(task);
        }
    }
    Err(SubmitError { problems })
}

/// What the core says of a submission, with the user's names.
fn in_names<T>(state: &State<T>, job: &Job, error: &CoreSubmitError) -> SubmitProblem {
    let name = |task: &TaskId| state.task_ref(*task);
    match error {
        CoreSubmitError::DuplicateTask(task) => SubmitProblem::Duplicate(name(task)),
        CoreSubmitError::UnknownDependency { task, dependency } => {
            SubmitProblem::UnknownDependency {
                task: name(task),
                dependency: dependency.into(),
            }
        }
        CoreSubmitError::FailedDependency { task, dependency } => SubmitProblem::FailedDependency {
            task: name(task),
            dependency: name(dependency),
        },
        CoreSubmitError::Cycle(tasks) => SubmitProblem::Cycle(tasks.iter().map(name).collect()),
        CoreSubmitError::DeadlinePassed(task) => SubmitProblem::DeadlinePassed(name(task)),
        CoreSubmitError::BadFallback { task, fallback } => SubmitProblem::BadFallback {
            task: name(task),
            fallback: match state.task_ref(*fallback).name {
                Some(name) => (*name).into(),
                None => fallback.into(),
            },
        },
        CoreSubmitError::NoCapableAgent(task) => SubmitProblem::NoCapableAgent(name(task)),
        CoreSubmitError::NotCapable { task, agent } => SubmitProblem::NotCapable {
            task: name(task),
            agent: match &job.onto {
                Some(agent) => agent.as_str().into(),
                None => state.directory.agent_name(*agent),
            },
        },
        CoreSubmitError::ForeignJob { .. } => unreachable!("every submission is a job of its own"),
    }
}

pub(crate) fn read_config(path: &Path) -> Result<Config, ConfigError> {
    let name = path.display().to_string();
    match fs::read(path) {
        Ok(bytes) => loxley_config::parse_bytes(&bytes)
            .map_err(|mistakes| ConfigError::Mistakes(mistakes.in_file(&name))),
        Err(source) => Err(ConfigError::Read { name, source }),
    }
}

fn check_agent(spec: &loxley_model::AgentSpec, name: &Name) -> Result<(), AgentError> {
    if spec.slots == 0 {
        return Err(AgentError::NoSlots(Arc::clone(name)));
    }
    if !(spec.speed.is_finite() && spec.speed > 0.0) {
        return Err(AgentError::BadSpeed(Arc::clone(name)));
    }
    Ok(())
}

fn registered<T>(state: &State<T>, agent: &str) -> Result<AgentId, AskError> {
    if state.stopped {
        return Err(AskError::Stopped);
    }
    let known = state.directory.agent_id(agent);
    known
        .filter(|id| state.desks.contains_key(id))
        .ok_or_else(|| AskError::NotRegistered(agent.into()))
}

fn not_registered(error: AskError) -> AgentError {
    match error {
        AskError::NotRegistered(agent) => AgentError::NotRegistered(agent),
        AskError::Stopped => AgentError::Stopped,
    }
}

fn pick_up<T>(state: &mut State<T>, now: Time, agent: AgentId) -> Option<Assignment<T>> {
    let ready = state.pick_up(now, agent)?;
    Some(assignment(state, agent, ready))
}

fn assignment<T>(state: &State<T>, agent: AgentId, ready: Ready) -> Assignment<T> {
    let entry = state
        .tasks
        .get(&ready.task)
        .expect("an assigned task is in the scheduler");
    Assignment {
        task: state.task_ref(ready.task),
        agent: state.directory.agent_name(agent),
        lease: ready.lease,
        attempt: ready.attempt,
        why: Why::new(ready.reason, &state.directory),
        payload: Arc::clone(&entry.payload),
        signal: ready.signal,
    }
}

fn leftover<T>(state: &State<T>, task: TaskId, entry: Entry<T>) -> Leftover<T> {
    let task = state.task_ref(task);
    Leftover {
        description: state.directory.describe(&task, &entry.kept),
        task,
        payload: entry.payload,
        message: entry.message,
    }
}

/// Takes tasks off the dead-letter list.
fn revive<T>(state: &mut State<T>, now: Time, tasks: Vec<TaskId>) {
    for task in &tasks {
        let entry = state.dead.remove(task).expect("was looked up");
        state.tasks.insert(*task, entry);
    }
    let answer = state.feed(now, Input::DeadLettersResubmitted(tasks));
    assert!(
        answer.rejected.is_none(),
        "the core does not know its own dead letters: {:?}",
        answer.rejected
    );
}

fn unpoisoned<G>(locked: Result<G, PoisonError<G>>) -> G {
    locked.unwrap_or_else(PoisonError::into_inner)
}

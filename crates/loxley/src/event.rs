//! What happened, for whoever wants to know: progress callbacks and subscriptions [I7].
//!
//! Events are made only while somebody listens. They are handed over after the scheduler's lock
//! was let go, in the order in which they happened, one at a time: a listener may call the
//! scheduler, and a slow one delays other listeners but no decision.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use loxley_driver::Why;
use loxley_driver::explain_text::failure_text;
use loxley_model::{Failure, JobId, Lease, Time};

use crate::task::{Name, TaskRef};
use crate::view::moment;

/// Something that happened. Its `Display` is one line in plain words.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A batch was accepted.
    Submitted {
        /// The job.
        job: JobId,
        /// How many tasks.
        tasks: usize,
    },
    /// A task is on an agent's queue.
    Queued {
        /// The task.
        task: TaskRef,
        /// Whose queue.
        agent: Name,
        /// Why there.
        why: Why,
    },
    /// A task waits for an agent that can do it.
    Held {
        /// The task.
        task: TaskRef,
    },
    /// A task was given to an agent.
    Assigned {
        /// The task.
        task: TaskRef,
        /// To whom.
        agent: Name,
        /// Which attempt this is, from 1.
        attempt: u32,
        /// Why.
        why: Why,
    },
    /// A task waits for its next attempt.
    WillRetry {
        /// The task.
        task: TaskRef,
        /// What went wrong.
        failure: Failure,
        /// When it is tried again.
        at: Time,
    },
    /// A task is over.
    Finished {
        /// The task.
        task: TaskRef,
        /// Its job.
        job: JobId,
        /// How it ended.
        ending: Ending,
    },
    /// The last task of a job is over.
    JobFinished {
        /// The job.
        job: JobId,
    },
    /// A task cannot meet its deadline any more.
    DeadlineLost {
        /// The task.
        task: TaskRef,
        /// The deadline.
        deadline: Time,
    },
    /// An agent registered.
    AgentJoined {
        /// Who.
        agent: Name,
    },
    /// An agent has been silent for a while and gets nothing new.
    AgentSuspected {
        /// Who.
        agent: Name,
    },
    /// A suspected agent was heard again.
    AgentRecovered {
        /// Who.
        agent: Name,
    },
    /// An agent is given up; its tasks go elsewhere.
    AgentLost {
        /// Who.
        agent: Name,
    },
    /// An agent unregistered.
    AgentLeft {
        /// Who.
        agent: Name,
        /// How many tasks it took along.
        returned: usize,
    },
    /// A skill was taken from an agent that kept failing it.
    SkillSuspended {
        /// Who.
        agent: Name,
        /// The skill.
        skill: Name,
        /// When it is tried again.
        until: Time,
    },
    /// An agent has a skill again.
    SkillRestored {
        /// Who.
        agent: Name,
        /// The skill.
        skill: Name,
    },
    /// An agent kept succeeding at tasks that need a skill which it did not declare: it has it from now on.
    SkillEarned {
        /// Who.
        agent: Name,
        /// The skill.
        skill: Name,
    },
    /// A skill that an agent earned was taken back.
    SkillRevoked {
        /// Who.
        agent: Name,
        /// The skill.
        skill: Name,
    },
    /// A rebalancing pass ended.
    Rebalanced {
        /// How many tasks it moved.
        moved: u32,
    },
    /// An answer to a lease that is no longer in force was dropped.
    StaleAnswer {
        /// The task.
        task: TaskRef,
        /// The old lease.
        lease: Lease,
    },
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// It succeeded.
    Succeeded {
        /// On which agent.
        agent: Name,
        /// Under which lease.
        lease: Lease,
    },
    /// Its time limit passed, and its fallback stands in.
    FellBack {
        /// The task whose result stands in; none for a value.
        to: Option<TaskRef>,
    },
    /// It failed.
    Failed {
        /// Why.
        failure: Failure,
        /// What its last attempt said of it.
        message: Option<Arc<str>>,
    },
    /// It was cancelled, or skipped.
    Cancelled,
    /// It left with the agent that had it.
    Returned,
}

impl Ending {
    /// Whether the task has a result.
    #[must_use]
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Succeeded { .. } | Self::FellBack { .. })
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded { agent, .. } => write!(f, "succeeded on `{agent}`"),
            Self::FellBack { to: Some(task) } => {
                write!(f, "ran out of time; the result of {task} stands in")
            }
            Self::FellBack { to: None } => {
                f.write_str("ran out of time; its fallback value stands in")
            }
            Self::Failed { failure, message } => {
                write!(f, "failed: {}", failure_text(*failure))?;
                match message {
                    Some(message) => write!(f, " ({message})"),
                    None => Ok(()),
                }
            }
            Self::Cancelled => f.write_str("was cancelled"),
            Self::Returned => f.write_str("left with its agent"),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Submitted { job, tasks } => write!(f, "{job} with {tasks} tasks was accepted"),
            Self::Queued { task, agent, why } => {
                write!(f, "{task} is on the queue of `{agent}`, because {why}")
            }
            Self::Held { task } => write!(f, "{task} is held: no agent can do it"),
            Self::Assigned {
                task,
                agent,
                attempt,
                why,
            } => {
                write!(f, "{task} goes to `{agent}`, because {why}")?;
                if *attempt > 1 {
                    write!(f, " (attempt {attempt})")?;
                }
                Ok(())
            }
            Self::WillRetry { task, failure, at } => {
                let (failure, at) = (failure_text(*failure), moment(*at));
                write!(f, "{task} is tried again at {at}: {failure}")
            }
            Self::Finished { task, ending, .. } => write!(f, "{task} {ending}"),
            Self::JobFinished { job } => write!(f, "{job} is finished"),
            Self::DeadlineLost { task, deadline } => {
                let deadline = moment(*deadline);
                write!(f, "{task} cannot meet its deadline at {deadline} any more")
            }
            Self::AgentJoined { agent } => write!(f, "agent `{agent}` joined"),
            Self::AgentSuspected { agent } => write!(f, "agent `{agent}` is silent"),
            Self::AgentRecovered { agent } => write!(f, "agent `{agent}` is heard again"),
            Self::AgentLost { agent } => {
                write!(f, "agent `{agent}` is lost; its tasks go elsewhere")
            }
            Self::AgentLeft { agent, returned } => {
                write!(f, "agent `{agent}` left and took {returned} tasks along")
            }
            Self::SkillSuspended {
                agent,
                skill,
                until,
            } => {
                let until = moment(*until);
                write!(
                    f,
                    "`{agent}` kept failing `{skill}` and does not get it until {until}"
                )
            }
            Self::SkillRestored { agent, skill } => {
                write!(f, "`{agent}` gets `{skill}` again")
            }
            Self::SkillEarned { agent, skill } => {
                write!(f, "`{agent}` earned `{skill}`, which it had not declared")
            }
            Self::SkillRevoked { agent, skill } => {
                write!(f, "`{skill}`, which `{agent}` had earned, was taken back")
            }
            Self::Rebalanced { moved } => write!(f, "a rebalancing pass moved {moved} tasks"),
            Self::StaleAnswer { task, lease } => {
                write!(
                    f,
                    "an answer to {lease} of {task} came too late and was dropped"
                )
            }
        }
    }
}

/// Events as they happen, to be read at leisure. Made by
/// [`Scheduler::subscribe`](crate::Scheduler::subscribe).
///
/// Its buffer is bounded: a reader that falls behind by more than its capacity misses the newest
/// events, and [`Subscription::missed`] says how many.
#[derive(Debug)]
pub struct Subscription {
    receiver: Receiver<Event>,
    missed: Arc<AtomicU64>,
}

impl Subscription {
    /// A subscription, and what feeds it; the feeder says false when nobody reads any more.
    pub(crate) fn new(capacity: usize) -> (Self, impl FnMut(&Event) -> bool + Send + 'static) {
        let (sender, receiver): (SyncSender<Event>, _) = sync_channel(capacity);
        let missed = Arc::new(AtomicU64::new(0));
        let feeder = {
            let missed = Arc::clone(&missed);
            move |event: &Event| match sender.try_send(event.clone()) {
                Ok(()) => true,
                Err(TrySendError::Full(_)) => {
                    missed.fetch_add(1, Ordering::Relaxed);
                    true
                }
                Err(TrySendError::Disconnected(_)) => false,
            }
        };
        (Self { receiver, missed }, feeder)
    }

    /// The next event if there is one already.
    #[must_use]
    pub fn try_next(&self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }

    /// The next event, waiting for it no longer than `timeout`. None also when the scheduler is
    /// gone.
    #[must_use]
    pub fn next_within(&self, timeout: Duration) -> Option<Event> {
        self.receiver.recv_timeout(timeout).ok()
    }

    /// How many events did not fit into the buffer.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

impl Iterator for Subscription {
    type Item = Event;

    /// The next event, waiting for it; none when the scheduler is gone.
    fn next(&mut self) -> Option<Event> {
        self.receiver.recv().ok()
    }
}

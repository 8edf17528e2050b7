//! The steps of a task on its way through a server, for whoever traces it.
//!
//! Steps are made only while somebody wants them, from facts and decisions as they pass; nothing depends on them.

use loxley_api::TaskState;
use loxley_model::{AgentId, Failure, JobId, JobState, Lease, Span, TaskId, Time};
use loxley_policy::{CancelReason, Reason};

/// Something that a task or its job went through.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskStep {
    /// When, on the engine's clock.
    pub at: Time,
    /// What.
    pub kind: TaskStepKind,
}

/// An agent, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedAgent {
    /// Its number.
    pub id: AgentId,
    /// What it is called.
    pub name: String,
}

/// What a task or its job went through.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskStepKind {
    /// A job was accepted.
    JobAccepted {
        /// Which one.
        job: JobId,
        /// What it is called.
        name: Option<String>,
        /// For whom it counts.
        user: String,
        /// How many tasks it has.
        tasks: u64,
        /// To which trace it belongs, as its submitter said.
        traceparent: Option<String>,
    },
    /// A task is on the queue of an agent.
    Queued {
        /// Which one.
        task: TaskId,
        /// Its job.
        job: JobId,
        /// Whose queue.
        agent: NamedAgent,
        /// From whose queue it came, and why it moved.
        moved: Option<(NamedAgent, &'static str)>,
    },
    /// A task was given to an agent.
    Assigned {
        /// Which one.
        task: TaskId,
        /// Its job.
        job: JobId,
        /// To whom.
        agent: NamedAgent,
        /// The number of this assignment.
        lease: Lease,
        /// Which attempt, from 1.
        attempt: u32,
        /// From whose queue it came, and why it moved.
        moved: Option<(NamedAgent, &'static str)>,
        /// Whether it is a second copy of one that is slow.
        is_second_copy: bool,
    },
    /// An agent said that it runs. Of short tasks it says so only with their end.
    Started {
        /// Which one.
        task: TaskId,
        /// Under which lease.
        lease: Lease,
    },
    /// An agent gave a task back that it had not begun, or had stopped.
    Yielded {
        /// Which one.
        task: TaskId,
        /// Under which lease.
        lease: Lease,
    },
    /// An agent said that an attempt is over.
    AttemptEnded {
        /// Which one.
        task: TaskId,
        /// Under which lease.
        lease: Lease,
        /// How long it ran on the agent.
        ran: Span,
        /// What went wrong, if something did.
        failure: Option<Failure>,
        /// The exit code of a command that exited.
        exit_code: Option<i32>,
    },
    /// An attempt is of no use any more.
    Stopped {
        /// Which one.
        task: TaskId,
        /// Under which lease.
        lease: Lease,
        /// Why: `cancelled`, `time_limit`, `other_copy_was_first`, `agent_lost`.
        why: &'static str,
    },
    /// A task failed and will be tried again.
    WillRetry {
        /// Which one.
        task: TaskId,
        /// What went wrong.
        failure: Failure,
    },
    /// A task is over.
    TaskEnded {
        /// Which one.
        task: TaskId,
        /// Its job.
        job: JobId,
        /// How.
        state: TaskState,
        /// What went wrong, if something did.
        failure: Option<Failure>,
    },
    /// A job is over.
    JobEnded {
        /// Which one.
        job: JobId,
        /// How.
        state: JobState,
    },
}

/// From whose queue a task came, and why, if that is the reason.
pub(crate) fn move_of(reason: Reason) -> Option<(AgentId, &'static str)> {
    match reason {
        Reason::Stolen(from) => Some((from, "stolen")),
        Reason::Rebalanced(from) => Some((from, "rebalanced")),
        Reason::BehindStraggler(from) => Some((from, "behind_straggler")),
        Reason::MadeRoom(from) => Some((from, "made_room")),
        _ => None,
    }
}

pub(crate) fn stop_word(reason: CancelReason) -> &'static str {
    match reason {
        CancelReason::Requested => "cancelled",
        CancelReason::TimeLimit => "time_limit",
        CancelReason::OtherCopyWon => "other_copy_was_first",
        CancelReason::LeaseVoid => "agent_lost",
    }
}

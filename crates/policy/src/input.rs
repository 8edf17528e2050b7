//! What can happen to a scheduler. Inputs are facts, in the past tense; the journal is their list.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use loxley_model::{
    AgentId, AgentSpec, GroupId, JobId, JobSpec, Lease, Outcome, SkillId, Span, TaskId, TaskSpec,
    UserId,
};

use crate::{Config, Ending};

/// A fact that the scheduler is told.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Input {
    /// Tasks were submitted together: all are accepted or none.
    TasksSubmitted {
        /// The job they belong to.
        job: JobSpec,
        /// The tasks. They may depend on each other in any order, and on earlier tasks. Shared: whoever
        /// submits them may keep them too.
        tasks: Arc<[TaskSpec]>,
    },
    /// An agent registered. Under a known id, this is a new incarnation: the old one is gone, and
    /// its tasks go elsewhere.
    AgentJoined(Box<AgentSpec>),
    /// An agent unregistered.
    AgentLeft {
        /// Which one.
        agent: AgentId,
        /// What becomes of the tasks it had.
        tasks: Leftovers,
    },
    /// An agent gets nothing new, and finishes what it has.
    AgentDrained(AgentId),
    /// A heartbeat.
    AgentHeard {
        /// Whose.
        agent: AgentId,
        /// What it says of itself.
        vitals: Vitals,
    },
    /// An agent wants this many more tasks now; 0 takes its request back.
    WorkRequested {
        /// Who asks.
        agent: AgentId,
        /// How many tasks it wants.
        want: u32,
    },
    /// An agent asked for a task from somebody else's queue, now or never: unlike with
    /// `WorkRequested`, its own queue does not count, and no request stays open.
    StealRequested {
        /// Who asks.
        agent: AgentId,
        /// Whether the task goes on its queue instead of being given to it.
        onto_queue: bool,
    },
    /// An agent began to run a task.
    TaskStarted {
        /// Which one.
        task: TaskId,
        /// Under which lease.
        lease: Lease,
    },
    /// An attempt is about to be reported as ended that was too short to be reported as started: so long it
    /// ran.
    TaskRan {
        /// Of which task.
        task: TaskId,
        /// Under which lease.
        lease: Lease,
        /// How long.
        ran: Span,
    },
    /// An attempt ended.
    TaskFinished {
        /// Of which task.
        task: TaskId,
        /// Under which lease.
        lease: Lease,
        /// How.
        outcome: Outcome,
    },
    /// The answer to a `Retract`.
    TaskYielded {
        /// The task that was asked back.
        task: TaskId,
        /// Under which lease.
        lease: Lease,
        /// Whether the agent gave it up: false when it had already started.
        yielded: bool,
    },
    /// A running task saved its state, and can go on from there. The driver keeps the state.
    CheckpointSaved {
        /// Which task.
        task: TaskId,
        /// Under which lease.
        lease: Lease,
    },
    /// Somebody does not want this any more.
    CancelRequested(Selection),
    /// Tasks on the dead-letter list were given another chance; an empty list means all of them.
    DeadLettersResubmitted(Vec<TaskId>),
    /// A task on the dead-letter list was given another chance, once these tasks, which are not over, have succeeded.
    DeadLetterResubmitted {
        /// Which task.
        task: TaskId,
        /// What it waits for again.
        after: Box<[TaskId]>,
    },
    /// At most this many tasks of the group may run at once.
    GroupLimitSet {
        /// The group.
        group: GroupId,
        /// The limit.
        limit: u32,
    },
    /// No task of a group may start before another limit is set: other schedulers have all that the group may have.
    GroupClosed(GroupId),
    /// A user's share of the slots is proportional to this weight; 1 when never set.
    UserWeightSet {
        /// The user.
        user: UserId,
        /// The weight, at least 1.
        weight: u32,
    },
    /// Somebody put a task on an agent's queue by hand, without asking whether the agent can do it.
    /// The task waits for no other one.
    TaskQueued {
        /// Whose queue.
        agent: AgentId,
        /// The job it belongs to.
        job: JobSpec,
        /// The task.
        task: Box<TaskSpec>,
    },
    /// Somebody took a task out by hand: it has left the scheduler (`Ending::Returned`), and its id
    /// may be used again. Nothing happens when there is no such task on the queue.
    TaskTaken(Taking),
    /// An agent's history, as its owner keeps it, in place of what was learned of its success.
    AgentRecalled {
        /// Whose.
        agent: AgentId,
        /// Tasks it completed.
        completed: u64,
        /// Tasks it failed.
        failed: u64,
    },
    /// A skill that an agent earned was taken back.
    SkillRevoked {
        /// Whose.
        agent: AgentId,
        /// Which one.
        skill: SkillId,
    },
    /// Somebody asked for a rebalancing pass now.
    RebalanceRequested,
    /// Time passed. The driver sends this when a timer is due; at any other time it does no harm.
    Tick,
    /// The configuration changed. Nothing is lost or reordered.
    ConfigChanged(Box<Config>),
    /// The connection to an agent broke: it gets nothing new until it is heard, and is given up when
    /// it stays silent.
    AgentSilent(AgentId),
    /// A task that waits went to another scheduler, which has an agent for it. It has not begun, is in no group, stands in for
    /// nothing and has no fallback.
    TaskSentAway(TaskId),
    /// A task that was sent away is back as it went.
    TaskCameBack(TaskId),
    /// A task that was sent away ended there.
    TaskEndedAway {
        /// Which one.
        task: TaskId,
        /// How. Whoever cancelled it here meanwhile has the last word.
        ending: Ending,
    },
    /// A task is over that belongs to another scheduler: nothing more is known of it, and its number may come again.
    TaskForgotten(TaskId),
    /// The driver did not run for so long, and heard nobody: that is nobody else's silence.
    StoodStill(Span),
}

// Every task brings a few inputs, and each is handed on from driver to scheduler: what is large and rare
// is boxed.
const _: () = assert!(size_of::<Input>() <= 56);

/// What becomes of the tasks of an agent that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Leftovers {
    /// They go to other agents.
    Requeue,
    /// They leave the scheduler with the agent: whoever unregistered it has them now.
    Return,
}

/// Which task was taken out by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Taking {
    /// This one, from a queue or from whoever has it.
    Task(TaskId),
    /// The first on an agent's queue.
    First(AgentId),
    /// The one that a thief would take from an agent's queue, if it could do everything.
    Loot {
        /// The agent.
        agent: AgentId,
        /// The newest of the lowest priority, else the oldest.
        newest_first: bool,
    },
}

/// What an agent says of itself in a heartbeat.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Vitals {
    /// How much it is slowed down by heat, power or other load: 0 not at all, 1 stands still.
    pub throttle: f64,
    /// The measured round trip to it.
    pub round_trip: Span,
}

/// Which tasks are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Selection {
    /// One task.
    Task(TaskId),
    /// All tasks of a job.
    Job(JobId),
    /// Everything.
    All,
}

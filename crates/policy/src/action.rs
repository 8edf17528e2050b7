//! What a scheduler wants done. Actions are commands, with their reason; the driver carries them out.

use alloc::boxed::Box;
use alloc::vec::Vec;

use loxley_model::{AgentId, Failure, GroupId, JobId, Lease, SkillId, TaskId, Time, UserId};

/// A command of the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Give this task to this agent.
    Assign {
        /// The task.
        task: TaskId,
        /// The agent.
        agent: AgentId,
        /// The number of this assignment; every answer names it.
        lease: Lease,
        /// Which attempt this is, from 1.
        attempt: u32,
        /// Why this agent.
        reason: Reason,
    },
    /// Ask an agent for a task back. It answers `TaskYielded`.
    Retract {
        /// The task.
        task: TaskId,
        /// Who holds it.
        agent: AgentId,
        /// Under which lease.
        lease: Lease,
        /// Whether it may be running: then it saves a checkpoint, stops and yields.
        running: bool,
    },
    /// Tell an agent to stop a task.
    Cancel {
        /// The task.
        task: TaskId,
        /// Who holds it.
        agent: AgentId,
        /// Under which lease.
        lease: Lease,
        /// Why.
        reason: CancelReason,
        /// Whether the lease stays in force until the agent says that nothing of the task is left
        /// (`TaskFinished`), or that it had not begun (`TaskYielded`). Else the lease is void already, and no
        /// answer is needed.
        awaited: bool,
    },
    /// Tell whoever wants to know.
    Report(Report),
    /// Send a `Tick` at this time. Replaces the timer set before.
    SetTimer {
        /// When.
        at: Time,
    },
}

/// Why a task went to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Reason {
    /// It had the highest score, in millionths.
    Score(i64),
    /// It was expected to finish the task first, at this time.
    EarliestFinish(Time),
    /// It was named by whoever submitted the task.
    Named,
    /// It was idle and took the task from this agent.
    Stolen(AgentId),
    /// A rebalancing pass moved the task from this agent.
    Rebalanced(AgentId),
    /// The task was stuck behind a slow one on this agent.
    BehindStraggler(AgentId),
    /// A second copy, because this agent is slow with the first.
    Speculation(AgentId),
    /// One task, to see whether the agent can do this skill again.
    Probe(SkillId),
    /// It was idle, and the task waited only for its user's share.
    SpareCapacity,
    /// Work like this was forecast, and its room was kept.
    KeptFree,
    /// The room of this agent is kept for work that is due.
    MadeRoom(AgentId),
}

/// Why an agent is told to stop a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelReason {
    /// Somebody asked for it.
    Requested,
    /// It ran longer than its time limit.
    TimeLimit,
    /// The other copy was first.
    OtherCopyWon,
    /// The agent was given up for lost, or replaced by a new incarnation.
    LeaseVoid,
}

/// Something worth knowing.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// A submission was accepted whole.
    Accepted {
        /// The job.
        job: JobId,
        /// How many tasks.
        tasks: usize,
    },
    /// A submission was refused whole; nothing changed.
    Refused {
        /// The job.
        job: JobId,
        /// Everything that is wrong with it (the first hundred).
        errors: Box<[SubmitError]>,
    },
    /// Another input made no sense; nothing changed.
    Rejected(InputError),
    /// An answer to a lease that is no longer in force was dropped.
    StaleAnswer {
        /// The task.
        task: TaskId,
        /// The old lease.
        lease: Lease,
    },
    /// A task is on an agent's queue.
    Queued {
        /// The task.
        task: TaskId,
        /// Whose queue.
        agent: AgentId,
        /// Why there.
        reason: Reason,
    },
    /// A task waits for an agent that can do it.
    Held {
        /// The task.
        task: TaskId,
    },
    /// A task waits for its next attempt.
    WillRetry {
        /// The task.
        task: TaskId,
        /// What went wrong.
        failure: Failure,
        /// When it is tried again.
        at: Time,
    },
    /// A task is over.
    Finished {
        /// The task.
        task: TaskId,
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
        task: TaskId,
        /// The deadline.
        deadline: Time,
    },
    /// An agent has been silent for a while and gets nothing new.
    AgentSuspected(AgentId),
    /// A suspected agent was heard again.
    AgentRecovered(AgentId),
    /// An agent is given up; its tasks go elsewhere. It must register again.
    AgentLost(AgentId),
    /// An agent left; these are the tasks it took along.
    AgentLeft {
        /// The agent.
        agent: AgentId,
        /// What it had, in the order it would have run them: running first.
        returned: Vec<TaskId>,
    },
    /// A pull steal found nothing: nobody had a task that this agent may take.
    NothingToSteal(AgentId),
    /// A skill was taken from an agent that kept failing it.
    SkillSuspended {
        /// The agent.
        agent: AgentId,
        /// The skill.
        skill: SkillId,
        /// When it is tried again.
        until: Time,
    },
    /// An agent has a skill again.
    SkillRestored {
        /// The agent.
        agent: AgentId,
        /// The skill.
        skill: SkillId,
    },
    /// An agent kept succeeding at tasks that need a skill which it did not declare: it has it from now on.
    SkillEarned {
        /// The agent.
        agent: AgentId,
        /// The skill.
        skill: SkillId,
    },
    /// A skill that an agent earned was taken back.
    SkillRevoked {
        /// The agent.
        agent: AgentId,
        /// The skill.
        skill: SkillId,
    },
    /// A rebalancing pass ended.
    Rebalanced {
        /// How many tasks it moved.
        moved: u32,
    },
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Ending {
    /// It succeeded.
    Succeeded {
        /// On which agent.
        agent: AgentId,
        /// Under which lease: the driver keeps the result that came with it.
        lease: Lease,
    },
    /// Its time limit passed, and its fallback value or fallback task stands in.
    FellBack {
        /// The task whose result stands in; none for a value.
        to: Option<TaskId>,
    },
    /// It failed, and is on the dead-letter list if it can be tried again.
    Failed(Failure),
    /// It was cancelled, or skipped.
    Cancelled,
    /// It left with the agent that had it.
    Returned,
}

/// What is wrong with a submitted task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The id is taken, or was once.
    #[error("{0} was submitted before")]
    DuplicateTask(TaskId),
    /// Nobody knows this dependency.
    #[error("{task} depends on {dependency}, which nobody submitted")]
    UnknownDependency {
        /// The task.
        task: TaskId,
        /// What it asks for.
        dependency: TaskId,
    },
    /// A dependency is over without success.
    #[error("{task} depends on {dependency}, which did not succeed")]
    FailedDependency {
        /// The task.
        task: TaskId,
        /// What it asks for.
        dependency: TaskId,
    },
    /// The tasks wait for each other in a circle.
    #[error("the tasks wait for each other in a circle: {}", Circle(.0))]
    Cycle(Vec<TaskId>),
    /// The deadline has already passed.
    #[error("the deadline of {0} has already passed")]
    DeadlinePassed(TaskId),
    /// The fallback task is not part of the submission, or stands in for another one.
    #[error(
        "the fallback of {task} is {fallback}, which is not a task of this submission of its own"
    )]
    BadFallback {
        /// The task.
        task: TaskId,
        /// What should stand in.
        fallback: TaskId,
    },
    /// No registered agent can do it.
    #[error("no registered agent can do {0}")]
    NoCapableAgent(TaskId),
    /// The agent that was named cannot do it, or is not registered.
    #[error("{agent} cannot do {task}")]
    NotCapable {
        /// The task.
        task: TaskId,
        /// The agent that was named.
        agent: AgentId,
    },
    /// The job belongs to another user.
    #[error("{job} belongs to {owner}")]
    ForeignJob {
        /// The job.
        job: JobId,
        /// Whose it is.
        owner: UserId,
    },
}

struct Circle<'a>(&'a [TaskId]);

impl core::fmt::Display for Circle<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for task in self.0 {
            write!(f, "{task} -> ")?;
        }
        match self.0.first() {
            Some(first) => write!(f, "{first}"),
            None => Ok(()),
        }
    }
}

/// What is wrong with another input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The agent is not registered (any more).
    #[error("{0} is not registered")]
    UnknownAgent(AgentId),
    /// The task is not here (any more).
    #[error("{0} is unknown or already over")]
    UnknownTask(TaskId),
    /// The job is not here (any more).
    #[error("{0} is unknown or already over")]
    UnknownJob(JobId),
    /// An agent must have at least one slot.
    #[error("{0} registered with no slot")]
    NoSlots(AgentId),
    /// A speed must be a positive number.
    #[error("{0} registered with a speed that is not a positive number")]
    BadSpeed(AgentId),
    /// A throttle is between 0 and 1.
    #[error("{0} reported a throttle that is not between 0 and 1")]
    BadThrottle(AgentId),
    /// A weight must be at least 1.
    #[error("a weight of 0 for {0}")]
    BadWeight(UserId),
    /// A limit must be at least 1.
    #[error("a limit of 0 for {0}")]
    BadLimit(GroupId),
    /// A task on a queue of somebody's own making waits for nothing and has no fallback.
    #[error("{0} has dependencies or a fallback, and cannot be put on a queue by hand")]
    NotAlone(TaskId),
    /// The agent has not earned this skill: it declared it, or does not have it.
    #[error("{0} has not earned {1}")]
    NotEarned(AgentId, SkillId),
    /// The task is not on the dead-letter list.
    #[error("{0} is not on the dead-letter list")]
    NotDeadLettered(TaskId),
}

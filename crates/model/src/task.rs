//! What a user says of a task.

use alloc::boxed::Box;
use alloc::sync::Arc;
#[cfg(feature = "openapi")]
use alloc::{string::String, vec, vec::Vec};

use crate::{
    AgentId, DataKey, GroupId, JobId, Priority, Resources, SkillSet, Span, TaskId, Time, UserId,
    WorkKey,
};

/// One task. What many tasks have in common is in their [`TaskKind`], shared between them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TaskSpec {
    /// Its id, never used before.
    pub id: TaskId,
    /// How urgent it is.
    pub priority: Priority,
    /// How long it is expected to run on an agent of speed 1.
    pub cost: Option<Span>,
    /// When it should be done.
    pub deadline: Option<Time>,
    /// What must succeed before it may start.
    pub dependencies: Box<[TaskId]>,
    /// The data it wants to be near.
    pub locality: Option<Locality>,
    /// What to do when its time limit passes.
    pub fallback: Fallback,
    /// Everything it shares with its like.
    pub kind: Arc<TaskKind>,
}

/// What tasks of one kind have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TaskKind {
    /// Which work it is, where that was said. How long tasks take and how fast agents are at them is learned of
    /// tasks of one kind: two that merely ask for the same are not alike.
    pub work: Option<WorkKey>,
    /// The skills it asks for.
    pub skills: SkillSet,
    /// What it needs while it runs.
    pub needs: Resources,
    /// The group whose limit it counts against.
    pub group: Option<GroupId>,
    /// How long one attempt may run.
    pub time_limit: Option<Span>,
    /// How long it may wait for an agent that can do it.
    pub hold_limit: Option<Span>,
    /// When and how often to try again.
    pub retry: RetryRule,
    /// Whether a second copy may run elsewhere: it must do no harm when it runs twice.
    pub speculate: bool,
    /// Whether it reports checkpoints and can go on from one.
    pub checkpoints: bool,
    /// Whether it must not run twice: when its agent is lost it fails, and goes to no other.
    pub once: bool,
}

/// Near which data a task should run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Locality {
    /// The data.
    pub key: DataKey,
    /// How long it takes to bring the data to an agent that lacks it.
    pub transfer: Span,
}

/// When and how often a failed task is tried again: after `base`, then twice that, and so on up to
/// `cap`, each with jitter. A task that used up its retries goes to the dead-letter list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RetryRule {
    /// How many times to try again after the first failure.
    pub retries: u32,
    /// The first delay.
    pub base: Span,
    /// The longest delay.
    pub cap: Span,
}

impl Default for RetryRule {
    fn default() -> Self {
        Self {
            retries: 0,
            base: Span::from_millis(100),
            cap: Span::from_secs(30),
        }
    }
}

/// What stands in for a task that ran into its time limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Fallback {
    /// Nothing: it is tried again or fails.
    #[default]
    None,
    /// A value that the driver keeps: the task counts as succeeded with it.
    Value,
    /// Another task of the same batch, which runs only if it is needed. Its result is the result.
    Task(TaskId),
}

/// What a job's tasks have in common as a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct JobSpec {
    /// Its id. More tasks may be submitted to a job that is still there.
    pub id: JobId,
    /// Who submitted it.
    pub user: UserId,
    /// What a failed dependency does to its dependents.
    pub dependency_failure: DependencyFailure,
    /// What to do with a task that no registered agent can do.
    pub unplaceable: Unplaceable,
    /// Put every task on this agent's queue, if it is capable, instead of choosing one.
    pub onto: Option<AgentId>,
}

impl JobSpec {
    /// A job of user 0 that holds what cannot be placed and fails what lost a dependency.
    #[must_use]
    pub fn new(id: JobId) -> Self {
        Self {
            id,
            user: UserId(0),
            dependency_failure: DependencyFailure::Fail,
            unplaceable: Unplaceable::Hold,
            onto: None,
        }
    }
}

/// What a failed dependency does to the tasks that wait for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum DependencyFailure {
    /// They fail too.
    #[default]
    Fail,
    /// They are skipped: cancelled, not failed.
    Skip,
}

/// What becomes of a task whose agent is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Rerun {
    /// It runs again, on another agent.
    #[default]
    OnLoss,
    /// It fails: it must not run twice.
    Never,
}

/// What becomes of a task that no registered agent can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Unplaceable {
    /// It waits, visibly, until an agent arrives.
    #[default]
    Hold,
    /// The whole job is refused.
    Refuse,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum JobState {
    /// Another job must be over first.
    Waiting,
    /// Accepted, and not over.
    Open,
    /// Over: every task succeeded.
    Succeeded,
    /// Over: at least one task failed.
    Failed,
    /// Over: none failed, at least one was cancelled.
    Cancelled,
}

impl JobState {
    /// Whether nothing will change any more, unless somebody retries a task.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Open => "open",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl TaskSpec {
    /// A task of normal priority with nothing special.
    #[must_use]
    pub fn new(id: TaskId, kind: Arc<TaskKind>) -> Self {
        Self {
            id,
            priority: Priority::NORMAL,
            cost: None,
            deadline: None,
            dependencies: Box::default(),
            locality: None,
            fallback: Fallback::None,
            kind,
        }
    }
}

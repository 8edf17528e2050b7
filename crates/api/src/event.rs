//! What happens, while it happens.

use loxley_model::{AgentId, JobId, JobState, TaskId};
use serde::{Deserialize, Serialize};

use crate::TaskState;

/// Something that happened, with its place in the order of things.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// Grows by one from event to event for as long as the server runs. Whoever sends it back as
    /// `Last-Event-ID` gets what came after it, or `missed` when that is no longer known.
    pub sequence: u64,
    /// When.
    pub unix_ms: u64,
    /// What.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What became of a skill of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SkillChange {
    /// It kept failing at it, and does not have it for now.
    Suspended,
    /// It has it again.
    Restored,
    /// It did not declare it, kept succeeding at it, and has it now.
    Earned,
    /// It had earned it, and it was taken back.
    Revoked,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// A job was accepted.
    JobAccepted {
        /// Which one.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        job: JobId,
        /// How many tasks it has.
        tasks: u64,
    },
    /// A job is over.
    JobEnded {
        /// Which one.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        job: JobId,
        /// How it ended.
        state: JobState,
    },
    /// A task began to run.
    TaskStarted {
        /// Which one.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        task: TaskId,
        /// Its job.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        job: JobId,
        /// Where.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        agent: AgentId,
        /// Which attempt, from 1.
        attempt: u32,
    },
    /// A task failed and will be tried again.
    TaskRetried {
        /// Which one.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        task: TaskId,
        /// Its job.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        job: JobId,
        /// What went wrong.
        failure: String,
    },
    /// A task moved from one agent to another.
    TaskMoved {
        /// Which one.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        task: TaskId,
        /// From whom.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        from: AgentId,
        /// To whom.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        to: AgentId,
        /// Why: `stolen`, `rebalanced`, `behind_straggler`.
        reason: String,
    },
    /// A task is over.
    TaskEnded {
        /// Which one.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        task: TaskId,
        /// Its job.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        job: JobId,
        /// How it ended.
        state: TaskState,
        /// What went wrong, if something did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
    },
    /// An agent registered.
    AgentJoined {
        /// Which one.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        agent: AgentId,
        /// Its name.
        name: String,
    },
    /// An agent is silent, drains, is back or is gone.
    AgentChanged {
        /// Which one.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        agent: AgentId,
        /// Its name.
        name: String,
        /// Its state now.
        state: crate::AgentState,
    },
    /// An agent lost, regained, earned or gave back a skill.
    AgentSkill {
        /// Which one.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        agent: AgentId,
        /// Its name.
        name: String,
        /// The skill.
        skill: String,
        /// What happened.
        change: SkillChange,
    },
    /// Some deadline can no longer be met, or was missed.
    DeadlineMissed {
        /// Whose.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        task: TaskId,
    },
    /// The configuration changed.
    ConfigChanged,
    /// The server drains or stops.
    ServerDraining,
    /// The reader was too slow, or was away too long: so many events are missing here.
    Missed {
        /// How many; absent when nobody knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        count: Option<u64>,
    },
    /// Something a newer server says.
    #[serde(other)]
    Unknown,
}

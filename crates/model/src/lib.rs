//! The words of Loxley: ids, time, skills, resources, and what a user says of a task or an agent.
//!
//! Everything here is plain data that is valid by construction: a [`Priority`] is between 1 and 5, a
//! [`SkillSet`] is sorted and free of repeats, a name is never empty. Text from the world becomes
//! numbers once, at the edge, through [`Names`]; the deciding core sees only the numbers.
#![no_std]

extern crate alloc;
// What derives the schemas of the HTTP API writes `std`; nothing else here may.
#[cfg(feature = "openapi")]
extern crate std;

mod agent;
mod ids;
mod names;
mod outcome;
mod priority;
mod resources;
mod skills;
mod task;
mod time;

pub use agent::{AgentSpec, Dispatch};
pub use ids::{
    AgentId, DataKey, GroupId, JobId, Lease, ResourceId, SkillId, TaskId, UserId, WorkKey, ZoneId,
};
pub use names::{NameError, NameId, Names};
pub use outcome::{Failure, Outcome};
pub use priority::{Priority, PriorityError};
pub use resources::Resources;
pub use skills::SkillSet;
pub use task::{
    DependencyFailure, Fallback, JobSpec, JobState, Locality, Rerun, RetryRule, TaskKind, TaskSpec,
    Unplaceable,
};
pub use time::{Span, Time};

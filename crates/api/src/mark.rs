//! What happened that a look at the present does not show: moves, retries, agents that came and went.

use serde::{Deserialize, Serialize};

use crate::Event;

/// Some of what happened, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Marks {
    /// Moves, retries, missed deadlines, agents that came, changed or left.
    pub items: Vec<Event>,
    /// What to give as `after` for the next part; absent when this was all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// From when on they are kept: the server started then, or there were too many before.
    pub since_unix_ms: u64,
    /// How many were never seen, because too much happened at once.
    pub missed: u64,
}

/// Which of them are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct MarkFilter {
    /// With a larger sequence than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Not before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_unix_ms: Option<u64>,
    /// Before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_unix_ms: Option<u64>,
    /// About this task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<u64>,
    /// At most so many; 1,000 when absent, 10,000 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

//! The shape of a job: its tasks and arrays, what waits for what, and the chain that decides when it is over.

use loxley_model::{JobId, TaskId};
use serde::{Deserialize, Serialize};

use crate::TaskCounts;

/// The graph of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobGraph {
    /// Which job.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub job: JobId,
    /// Its tasks and arrays, in the order of the request.
    pub nodes: Vec<GraphNode>,
    /// How many of its tasks were looked at for the counts and times.
    pub tasks_counted: u64,
    /// How many it has. When more were not looked at, counts and times are those of the first.
    pub tasks_total: u64,
    /// How long the critical path takes, or took: of what has ended as measured, of the rest as expected.
    pub critical_sec: f64,
}

/// A task, or an array of tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GraphNode {
    /// What the job calls it; what it does, where it has no name.
    pub name: String,
    /// Its first task.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub first_task: TaskId,
    /// Whether it is an array.
    pub is_array: bool,
    /// Which nodes must succeed first, by their place in the list.
    pub after: Vec<usize>,
    /// Where its tasks are.
    pub tasks: TaskCounts,
    /// The longest of its tasks so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_sec: Option<f64>,
    /// What was said to be expected of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_sec: Option<f64>,
    /// Whether it is on the critical path: no other way through the job takes longer.
    pub is_critical: bool,
}

impl GraphNode {
    /// One of which nothing but its name and its first task is known.
    #[must_use]
    pub fn new(name: String, first_task: TaskId) -> Self {
        Self {
            name,
            first_task,
            is_array: false,
            after: Vec::new(),
            tasks: TaskCounts::default(),
            longest_sec: None,
            expected_sec: None,
            is_critical: false,
        }
    }
}

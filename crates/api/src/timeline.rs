//! What ran where and when, and how the figures went.

use std::collections::BTreeMap;

use loxley_model::{AgentId, JobId, TaskId};
use serde::{Deserialize, Serialize};

use crate::TaskState;

/// Which time is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct TimelineFilter {
    /// Its beginning, in milliseconds since 1970; fractions are taken.
    pub from_unix_ms: f64,
    /// Its end.
    pub to_unix_ms: f64,
    /// Into how many columns it is cut; 500 when absent, 2,000 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<u32>,
    /// The `next` of the part before: what comes is added to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
}

/// What ran where in some time: all of it, or a part that says where the next one begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Timeline {
    /// The beginning.
    pub from_unix_ms: f64,
    /// The end.
    pub to_unix_ms: f64,
    /// How long a column is.
    pub column_ms: f64,
    /// Agents that ran something, by their numbers.
    pub agents: Vec<TimelineAgent>,
    /// How many tasks ran in this time: those whose last attempt did.
    pub tasks: u64,
    /// How many attempts ran that were not the last of their task, or copies of it that were not the first.
    #[serde(default)]
    pub earlier_attempts: u64,
    /// How many of all these have no span of their own: when there are too many, only columns tell of them.
    pub spans_omitted: u64,
    /// Whether the journal has more to tell of earlier attempts: it is still being read. Ask again.
    #[serde(default)]
    pub attempts_pending: bool,
    /// From when on earlier attempts are known: from the first fact that the journal has kept. Absent when nobody
    /// knows of any, because nothing is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts_since_unix_ms: Option<f64>,
    /// What to give as `cursor` for the next part; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// When the first task in the journal began, as far as it has been read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_unix_ms: Option<f64>,
}

/// What ran on an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TimelineAgent {
    /// Which one.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub id: AgentId,
    /// Its name.
    pub name: String,
    /// How many tasks it runs at once; 1 when nobody knows any more.
    pub slots: u32,
    /// How many tasks.
    pub tasks: u64,
    /// How many of them failed.
    pub failed: u64,
    /// For each column in which it was busy: its place, and the milliseconds of its slots that went to tasks that
    /// succeeded, failed, were cancelled, and still run.
    pub columns: Vec<(u32, f64, f64, f64, f64)>,
    /// The tasks one by one, if there are few enough.
    pub spans: Vec<TimelineSpan>,
}

/// A task that ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TimelineSpan {
    /// Which one.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub task: TaskId,
    /// Its job.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub job: JobId,
    /// When it began, in milliseconds from the beginning of the time that was asked for; negative when before that.
    pub start_ms: f64,
    /// When it ended; now, when it still runs.
    pub end_ms: f64,
    /// How it ended, or `running`.
    pub state: TaskState,
    /// Which attempt it was.
    pub attempt: u32,
    /// What it is beside the last attempt of its task, which says nothing here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<SpanKind>,
}

/// What an attempt is that is not the last, or not the only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SpanKind {
    /// A second copy of a task that runs elsewhere, too.
    Copy,
    /// It failed, and the task was tried again.
    Retried,
    /// Another copy of the task was first.
    Outrun,
    /// It was stopped while it ran, and the task went on elsewhere.
    GivenBack,
    /// It was lost with its agent.
    Lost,
    /// Something a newer server says.
    #[serde(other)]
    Unknown,
}

/// The figures since the server started, one point after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FigureHistory {
    /// How far points are from each other.
    pub every_sec: f64,
    /// From when on they are kept.
    pub since_unix_ms: u64,
    /// When each was taken.
    pub unix_ms: Vec<u64>,
    /// By the name of the figure: its value at each point, null where there was none.
    pub series: BTreeMap<String, Vec<Option<f64>>>,
}

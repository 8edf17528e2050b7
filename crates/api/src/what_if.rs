//! What another configuration, fleet or load would have done with the work that a server did.

use serde::{Deserialize, Serialize};

/// What is to be different. All of it is one question; what is left out is as it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WhatIfRequest {
    /// Keys of the configuration with other values: `strategy=pull`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// So many more agents, like those that were there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_agents: Option<u32>,
    /// Without the agents of these names, zones or skills.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
    /// Each job comes so many times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// How many pairs of runs are compared; 10 when absent, 2 to 50. Fewer where there is much work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seeds: Option<u32>,
}

/// What was, what the simulator makes of it, and what would have been.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WhatIfReport {
    /// What was asked, in words.
    pub label: String,
    /// How many tasks of the journal were run again.
    pub tasks: u64,
    /// When the first of them came, in milliseconds since 1970.
    pub from_unix_ms: f64,
    /// So many pairs of runs were compared.
    pub seeds: u32,
    /// The figures, the makespan first.
    pub figures: Vec<WhatIfFigure>,
    /// What differs by more than noise and what does not, a sentence each. Empty when nothing was to be different.
    pub verdicts: Vec<String>,
    /// What the journal does not say, and what was assumed instead.
    pub notes: Vec<String>,
    /// How long a column of the rows below is, in milliseconds.
    pub column_ms: f64,
    /// Who was busy when: what was.
    pub was: Vec<WhatIfRow>,
    /// What would have been.
    pub would: Vec<WhatIfRow>,
}

/// A figure four times: as it was, as the simulator has it, and the means of the runs that were compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WhatIfFigure {
    /// Its name: `makespan`, `mean_wait`, `p99_wait`, `utilization`, `misses`, `moved`, `cost`.
    pub name: String,
    /// Its name for people.
    pub title: String,
    /// What happened.
    pub happened: f64,
    /// The recorded work under the recorded configuration, in virtual time.
    pub simulated: f64,
    /// By how much of what happened that is off; of a share, in points. Absent where nothing happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// The mean as recorded, over all pairs. Absent when nothing was to be different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<f64>,
    /// The mean of what would have been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<f64>,
    /// Half of the 95 % interval of their difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
    /// Whether the difference is more than noise.
    #[serde(default)]
    pub more_than_noise: bool,
    /// The values above for people, in their order.
    pub shown: Vec<String>,
}

/// An agent and how busy it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WhatIfRow {
    /// What it is called.
    pub name: String,
    /// How many tasks it runs at once.
    pub slots: u32,
    /// Of each column the share of its slots that was busy, in thousandths.
    pub busy: Vec<u16>,
}

//! What a server expects to come.

use serde::{Deserialize, Serialize};

/// The forecasts of a server, and what it does about them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ForecastInfo {
    /// Whether there are any.
    pub enabled: bool,
    /// Arrivals are counted in steps of this length, in seconds.
    pub step_sec: f64,
    /// So far ahead one looks, in seconds.
    pub horizon_sec: f64,
    /// How often room was kept on an agent since the rules last changed.
    pub kept: u64,
    /// How many queued tasks moved to other agents for it.
    pub moved: u64,
    /// Every kind of work that is followed.
    pub work: Vec<WorkForecastInfo>,
}

/// What is known of the arrivals of one kind of work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkForecastInfo {
    /// The skills it takes.
    pub skills: Vec<String>,
    /// Whose tasks they are.
    pub user: String,
    /// The group whose limit they count against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Whether they are urgent.
    pub urgent: bool,
    /// How many came within the last horizon.
    pub last: u32,
    /// How many are expected within the next one.
    pub expected: u32,
    /// How long one takes, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takes_sec: Option<f64>,
    /// How many slots the expected ones fill, all through the horizon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots_needed: Option<f64>,
    /// After how long arrivals repeat, in seconds, if that was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub season_sec: Option<f64>,
    /// By how many tasks a forecast is wrong on average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// By how many it would be wrong to say that as many come as came last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_as_now: Option<f64>,
    /// Whether the forecast is acted on.
    pub acts: bool,
    /// When more than usual is due, in milliseconds since 1970, while room is kept for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_unix_ms: Option<u64>,
    /// The agents whose room is kept.
    pub kept_agents: Vec<String>,
}

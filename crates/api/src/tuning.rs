//! Settings that a server changes by itself.

use serde::{Deserialize, Serialize};

/// Self-tuning as it stands, and its story.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TuningInfo {
    /// Whether the server changes settings by itself.
    pub enabled: bool,
    /// How long one measurement takes, in seconds.
    pub window_sec: f64,
    /// Every setting that can be tuned.
    pub settings: Vec<TunedSetting>,
    /// What is being tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<TuningTrial>,
    /// What was tried, kept and taken back, the oldest first; the last 200.
    pub story: Vec<TuningStep>,
}

/// A setting that can be tuned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TunedSetting {
    /// Its key under `load_balancing`.
    pub key: String,
    /// Its value now, in the unit of its key.
    pub value: f64,
    /// What the configuration said that the server was given last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<f64>,
    /// Whether it may be changed.
    pub tuned: bool,
    /// Not below this.
    pub least: f64,
    /// Not above this.
    pub most: f64,
}

/// A change that is being tried: windows with it and without it alternate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TuningTrial {
    /// Which setting.
    pub key: String,
    /// Its value without the change.
    pub from: f64,
    /// Its value with it.
    pub to: f64,
    /// How many windows are over.
    pub windows: u32,
    /// How many there will be, unless it ends early.
    pub windows_max: u32,
}

/// A change that was tried, kept or taken back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TuningStep {
    /// When, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Which setting.
    pub key: String,
    /// Its value without the change.
    pub from: f64,
    /// Its value with it.
    pub to: f64,
    /// What became of it: `tried`, `kept`, `taken_back`.
    pub what: String,
    /// What was measured without the change, in seconds; less is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_sec: Option<f64>,
    /// What was measured with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_sec: Option<f64>,
    /// Why, for people.
    pub because: String,
}

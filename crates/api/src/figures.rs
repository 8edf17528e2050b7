//! How balanced work was, in figures: of a job, or of the fleet in the last minutes.

use serde::{Deserialize, Serialize};

/// How balanced work was, and how quickly it got to agents.
///
/// A figure that is absent has nothing to be computed from. What is counted while a server runs (moves, steals, the way
/// to an agent, queue lengths) is known of jobs that ended since it started, and of the last thousand of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Figures {
    /// Load imbalance, straggler ratio, worker utilization, queue-depth variance.
    pub balance: Vec<BalanceFigure>,
    /// Of how long they are: of a job from its submission on.
    pub window_sec: f64,
    /// The slots of the agents that had a part in it.
    pub slots: u64,
    /// For how long those slots stood idle, all together.
    pub idle_sec: f64,
    /// Tasks that ran and ended.
    pub tasks_ended: u64,
    /// The completion rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_per_sec: Option<f64>,
    /// The average task size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_mean_sec: Option<f64>,
    /// From being ready to being given to an agent: half of the tasks took no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assign_p50_sec: Option<f64>,
    /// The same of 99 in 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assign_p99_sec: Option<f64>,
    /// Tasks that an idle agent took from another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_stolen: Option<u64>,
    /// The steal rate: those among all that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_rate: Option<f64>,
    /// From asking for a task to having it, on average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_mean_sec: Option<f64>,
    /// Of the fleet: from being ready to being given to an agent, by priority, the most urgent first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<PriorityWait>,
    /// Of the fleet: what each user had of it, the most first. Whoever may see its own jobs only sees itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<UserShare>,
    /// Of the fleet: tasks with a deadline that succeeded before it.
    #[serde(default)]
    pub deadlines_met: u64,
    /// Of the fleet: tasks with a deadline that are over, and did not.
    #[serde(default)]
    pub deadlines_missed: u64,
}

/// How long tasks of a priority waited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PriorityWait {
    /// 5 is the most urgent.
    pub priority: u8,
    /// How often one was given to an agent; one that moved counts again.
    pub tasks: u64,
    /// Half of them waited no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_sec: Option<f64>,
    /// The same of 99 in 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_sec: Option<f64>,
}

/// What a user had of the fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UserShare {
    /// Who.
    pub user: String,
    /// How often a task was given to an agent; one that moved counts again.
    pub tasks: u64,
    /// From being ready to being given to an agent, on average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_mean_sec: Option<f64>,
    /// How long slots were busy with attempts of this user that ended.
    pub busy_sec: f64,
    /// That as a share of what all users had; absent when nobody had anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

/// A figure with its target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BalanceFigure {
    /// What people call it.
    pub name: String,
    /// What it came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// What it should stay below, or be above.
    pub target: f64,
    /// Whether it should be above the target.
    pub is_above: bool,
    /// Whether value and target are shares.
    pub is_share: bool,
    /// `met`, `missed`, `too little to judge` or `unknown`.
    pub verdict: String,
}

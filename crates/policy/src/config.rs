//! Every switch of the scheduler. `loxley-config` reads it from YAML; the names there are the names
//! here, with the unit taken off (`rebalance_interval_sec` is [`Thresholds::rebalance_interval`]).

use alloc::vec::Vec;

use loxley_model::{Priority, Span};

use crate::{AddedRules, ForecastRules, SelfTuning};

/// The configuration of a scheduler. [`Config::default`] holds the published defaults of the embedded scheduler,
/// [`Config::served`] those of the server and of `loxley run`.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Config {
    /// Who starts a move: the idle, the scheduler, or both.
    pub strategy: Strategy,
    /// When an agent counts as busy or idle, and when a fleet counts as out of balance.
    pub thresholds: Thresholds,
    /// How much is stolen, and which task first.
    pub work_stealing: WorkStealing,
    /// How tasks are matched to agents.
    pub capabilities: Capabilities,
    /// What urgent tasks are protected from.
    pub priority: PriorityRules,
    /// What is counted and kept.
    pub metrics: MetricsRules,
    /// Bounds on the work of the scheduler itself.
    pub performance: Performance,
    /// What keeps steals from cascading.
    pub guards: Guards,
    /// When silence means that an agent is gone.
    pub heartbeats: Heartbeats,
    /// How success and speed are learned, and when a skill is taken away.
    pub learning: Learning,
    /// Second copies of stragglers.
    pub speculation: Speculation,
    /// Shares of users, room for large tasks.
    pub quotas: Quotas,
    /// How many tasks an agent may hold that it has not started.
    pub prefetch: Prefetch,
    /// From when on health calls something a problem. No decision depends on it.
    pub health: HealthRules,
    /// Which of these settings may be changed by themselves. No decision depends on it. Journals hold it as a fact of
    /// its own: those of earlier versions have configurations without it.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub self_tuning: SelfTuning,
    /// Whether work that is due is made room for. Journals hold it as a fact of its own, too.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub forecast: ForecastRules,
    /// What was added since. Journals hold it as a fact of its own, for the same reason.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub added: AddedRules,
    /// Where all chance comes from: the jitter of delays.
    pub seed: u64,
}

impl Config {
    /// What a server and `loxley run` keep to where nothing else is said: as the embedded scheduler, but a task goes to
    /// whoever is expected to finish it first.
    #[must_use]
    pub fn served() -> Self {
        let mut config = Self::default();
        config.capabilities.matching_strategy = Matching::EarliestFinish;
        config
    }

    /// Tasks of this priority and above are not stolen.
    pub(crate) fn protected_from(&self) -> Option<Priority> {
        let rules = &self.priority;
        rules
            .preserve_high_priority
            .then_some(rules.high_priority_threshold)
    }
}

/// Who starts a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Strategy {
    /// Idle agents steal.
    Pull,
    /// The scheduler rebalances at intervals.
    Push,
    /// Both.
    #[default]
    Hybrid,
}

impl Strategy {
    /// Whether idle agents steal.
    #[must_use]
    pub fn pulls(self) -> bool {
        self != Self::Push
    }

    /// Whether the scheduler rebalances at intervals.
    #[must_use]
    pub fn pushes(self) -> bool {
        self != Self::Pull
    }
}

/// When an agent counts as busy or idle.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Thresholds {
    /// An agent with more than this many queued tasks is busy.
    pub busy_threshold: u32,
    /// An agent with fewer than this many queued tasks is idle.
    pub idle_threshold: u32,
    /// How often the fleet is checked for imbalance.
    pub rebalance_interval: Span,
    /// The longest queue over the shortest: above this, tasks are moved.
    pub severe_imbalance_ratio: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            busy_threshold: 5,
            idle_threshold: 2,
            rebalance_interval: Span::from_secs(30),
            severe_imbalance_ratio: 3.0,
        }
    }
}

/// How much is stolen, and which task first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WorkStealing {
    /// How many tasks one rebalancing pass moves at most.
    pub max_steal_per_cycle: u32,
    /// Steal the newest task first; else the oldest.
    pub prefer_recent_tasks: bool,
    /// Whether a started task that keeps checkpoints may be moved off a straggling agent.
    pub allow_task_migration: bool,
    /// The fewest waiting tasks a victim must have.
    pub min_tasks_to_steal: u32,
    /// Whether an agent with nothing at all to do may rob one that is not busy.
    pub steal_below_busy: bool,
}

impl Default for WorkStealing {
    fn default() -> Self {
        Self {
            max_steal_per_cycle: 3,
            prefer_recent_tasks: true,
            allow_task_migration: false,
            min_tasks_to_steal: 1,
            steal_below_busy: true,
        }
    }
}

/// How tasks are matched to agents.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Capabilities {
    /// Who may get a task, and who of them does.
    pub matching_strategy: Matching,
    /// Whether the success rate counts in the score.
    pub consider_history: bool,
    /// Whether [`Matching::Fallback`] may widen to agents that lack a skill.
    pub fallback_enabled: bool,
    /// The weight of the success rate in the score.
    pub history_weight: f64,
    /// What it is worth, in the score, that an agent already holds a task's data.
    pub locality_bonus: f64,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            matching_strategy: Matching::BestFit,
            consider_history: true,
            fallback_enabled: true,
            history_weight: 0.3,
            locality_bonus: 0.2,
        }
    }
}

/// Who may get a task, and who of them does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Matching {
    /// The highest score. Urgent tasks need every skill, others at least one.
    #[default]
    BestFit,
    /// The highest score among agents with every skill.
    Exact,
    /// As `Exact`, widened to `BestFit` only where no exact agent is registered.
    Fallback,
    /// The agent that is expected to finish first; capable as for `BestFit`.
    EarliestFinish,
}

/// What urgent tasks are protected from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PriorityRules {
    /// From this priority on, a task is urgent.
    pub high_priority_threshold: Priority,
    /// Whether urgent tasks stay where they are queued.
    pub preserve_high_priority: bool,
    /// Whether an agent that can start an urgent task now gets it all the same when its own cannot.
    pub rescue_high_priority: bool,
    /// Whether the lowest priority is stolen first; else only age decides.
    pub priority_stealing_order: bool,
}

impl Default for PriorityRules {
    fn default() -> Self {
        Self {
            high_priority_threshold: Priority::HIGH,
            preserve_high_priority: true,
            rescue_high_priority: true,
            priority_stealing_order: true,
        }
    }
}

/// What is counted and kept.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MetricsRules {
    /// Count the tasks that moved.
    pub track_migrations: bool,
    /// Sample queue lengths.
    pub track_utilization: bool,
    /// Keep how long tasks waited.
    pub track_wait_times: bool,
    /// The upper bounds of the wait-time histogram, in seconds, ascending.
    pub histogram_buckets: Vec<f64>,
    /// How often queue lengths are sampled.
    pub utilization_sample_interval: Span,
}

impl Default for MetricsRules {
    fn default() -> Self {
        Self {
            track_migrations: true,
            track_utilization: true,
            track_wait_times: true,
            histogram_buckets: [0.1, 0.5, 1.0, 5.0, 10.0, 30.0].into(),
            utilization_sample_interval: Span::from_secs(5),
        }
    }
}

/// Bounds on the work of the scheduler itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Performance {
    /// How many steals may be under way at once: tasks asked back from agents that hold them.
    pub max_concurrent_steals: u32,
    /// How many tasks one steal takes.
    pub steal_batch_size: u32,
    /// Whether to remember which agents suit which tasks.
    pub cache_capability_matches: bool,
    /// How long such a memory is good for.
    pub cache_ttl: Span,
}

impl Default for Performance {
    fn default() -> Self {
        Self {
            max_concurrent_steals: 5,
            steal_batch_size: 1,
            cache_capability_matches: true,
            cache_ttl: Span::from_secs(300),
        }
    }
}

/// What keeps steals from cascading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Guards {
    /// An agent that was robbed this recently is robbed again only when there is no other.
    pub robbed_cooldown: Span,
    /// A task that moved this often stays where it is.
    pub max_moves: u32,
    /// The first pause of an agent after it was refused a task that had already started; doubles
    /// with each refusal, with jitter, up to a hundred times this.
    pub steal_backoff: Span,
}

impl Default for Guards {
    fn default() -> Self {
        Self {
            robbed_cooldown: Span::from_millis(100),
            max_moves: 2,
            steal_backoff: Span::from_millis(1),
        }
    }
}

/// When silence means that an agent is gone. Counts only for agents that send heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Heartbeats {
    /// After this long, an agent gets no new work.
    pub suspect_after: Span,
    /// After this long, its tasks go to others.
    pub lost_after: Span,
}

impl Default for Heartbeats {
    fn default() -> Self {
        Self {
            suspect_after: Span::from_secs(15),
            lost_after: Span::from_secs(60),
        }
    }
}

/// How success and speed are learned, and when a skill is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Learning {
    /// After this long, what was learned counts half.
    pub half_life: Span,
    /// So many failures of one skill in a row take the skill away; 0 never does.
    pub breaker_failures: u32,
    /// How long until a skill that was taken away is tried again with one task; doubles with every
    /// failed try, up to 32 times this.
    pub breaker_probe: Span,
}

impl Default for Learning {
    fn default() -> Self {
        Self {
            half_life: Span::from_secs(600),
            breaker_failures: 5,
            breaker_probe: Span::from_secs(30),
        }
    }
}

/// Second copies of stragglers, for tasks that allow it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Speculation {
    /// Whether there are any.
    pub enabled: bool,
    /// A task that runs longer than this many times the median of its kind is a straggler.
    pub straggler_ratio: f64,
    /// How many of its kind must have finished before the median counts.
    pub min_samples: u32,
    /// Copies under way, as a share of all running tasks; one is always allowed.
    pub budget: f64,
}

impl Default for Speculation {
    fn default() -> Self {
        Self {
            enabled: true,
            straggler_ratio: 2.0,
            min_samples: 5,
            budget: 0.1,
        }
    }
}

/// Shares of users, room for large tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Quotas {
    /// Whether a user who holds its share of the slots waits while others want theirs.
    pub user_shares: bool,
    /// How many small tasks may pass a large one that waits for room; then room is kept for it.
    pub backfill_limit: u32,
    /// How many slots of an agent with several are kept free of large tasks.
    pub reserved_slots: u32,
    /// A task of more than this many times the mean cost is large.
    pub large_task_ratio: u32,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            user_shares: true,
            backfill_limit: 8,
            reserved_slots: 1,
            large_task_ratio: 10,
        }
    }
}

/// How many tasks an agent may hold that it has not started. Counts for [`KeepFull`] agents.
///
/// [`KeepFull`]: loxley_model::Dispatch::KeepFull
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Prefetch {
    /// The deepest backlog. Only tasks that take microseconds need one like this: an agent gets as many as it
    /// finishes in two round trips.
    pub max_depth: u32,
}

impl Default for Prefetch {
    fn default() -> Self {
        Self { max_depth: 256 }
    }
}

/// From when on [`Scheduler::health`](crate::Scheduler::health) calls something a problem.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HealthRules {
    /// Queues whose lengths vary by more than this differ widely.
    pub queue_variance_max: f64,
    /// When fewer than this share of the steals succeed, something keeps thieves away.
    pub steal_success_min: f64,
    /// More than this many queued tasks and no idle agent: the fleet is too small.
    pub queued_max: u32,
    /// Tasks that take less than this, one after the other, are worth putting together.
    pub short_task: Span,
    /// A data key, or a queue, with more than this share of all that is queued is a hot spot.
    pub hot_spot_share: f64,
}

impl Default for HealthRules {
    fn default() -> Self {
        Self {
            queue_variance_max: 10.0,
            steal_success_min: 0.5,
            queued_max: 100,
            short_task: Span::from_millis(5),
            hot_spot_share: 0.5,
        }
    }
}

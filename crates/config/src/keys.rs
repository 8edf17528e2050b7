//! The one table of keys: name, field, bounds and sentence of each.

use std::ops::RangeInclusive;

use loxley_model::{Priority, Span};
use loxley_policy::{Bounds, Config, Matching, Strategy};

use crate::mistake::{Kind, Mistake};
use crate::reader::{Reader, decimal};
use crate::tree::{Node, Style, Value};

/// The key under which everything stands.
pub(crate) const ROOT: &str = "load_balancing";

/// A group of keys; the first group has no name and stands directly under [`ROOT`].
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) keys: &'static [Key],
}

/// One key.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) field: Field,
}

/// Where a key's value lives in the configuration, and what it may be.
pub(crate) enum Field {
    Flag(At<bool>),
    Count(At<u32>, RangeInclusive<u32>),
    Whole(At<u64>),
    Number(At<f64>, RangeInclusive<f64>),
    Seconds(At<Span>, RangeInclusive<Span>),
    Millis(At<Span>, RangeInclusive<Span>),
    Level(At<Priority>),
    Strategy(At<Strategy>),
    Matching(At<Matching>),
    Buckets(At<Vec<f64>>),
    /// `[least, most]`, or `off`.
    Bounds(At<Bounds>, RangeInclusive<f64>),
}

/// The place of a value. Reading goes through it too, on a copy: one accessor cannot disagree with
/// another.
type At<T> = fn(&mut Config) -> &mut T;

const STRATEGIES: [(&str, Strategy); 3] = [
    ("pull", Strategy::Pull),
    ("push", Strategy::Push),
    ("hybrid", Strategy::Hybrid),
];

const MATCHINGS: [(&str, Matching); 4] = [
    ("best_fit", Matching::BestFit),
    ("exact", Matching::Exact),
    ("fallback", Matching::Fallback),
    ("earliest_finish", Matching::EarliestFinish),
];

const MANY: u32 = 1_000_000;
const MOMENT: Span = Span::from_millis(1);
const YEAR: Span = Span::from_secs(365 * 24 * 3600);
const BUCKETS_MAX: usize = 64;
/// Bounds of a setting that is not tuned.
const OFF: &str = "off";
const BUCKET_RANGE: RangeInclusive<f64> = 0.000_001..=31_536_000.0;

/// Every key, in the order in which they are written.
pub(crate) const SECTIONS: &[Section] = &[
    Section {
        name: "",
        about: "",
        keys: &[
            Key {
                name: "strategy",
                about: "Who starts a move: the idle agents (pull), the scheduler (push), or both (hybrid).",
                field: Field::Strategy(|c| &mut c.strategy),
            },
            Key {
                name: "seed",
                about: "Where all chance comes from: the jitter of delays.",
                field: Field::Whole(|c| &mut c.seed),
            },
        ],
    },
    Section {
        name: "thresholds",
        about: "When an agent counts as busy or idle, and when a fleet counts as out of balance.",
        keys: &[
            Key {
                name: "busy_threshold",
                about: "An agent with more than this many queued tasks is busy.",
                field: Field::Count(|c| &mut c.thresholds.busy_threshold, 1..=MANY),
            },
            Key {
                name: "idle_threshold",
                about: "An agent with fewer than this many queued tasks is idle. Not above busy_threshold.",
                field: Field::Count(|c| &mut c.thresholds.idle_threshold, 1..=MANY),
            },
            Key {
                name: "rebalance_interval_sec",
                about: "How often the fleet is checked for imbalance.",
                field: Field::Seconds(|c| &mut c.thresholds.rebalance_interval, MOMENT..=YEAR),
            },
            Key {
                name: "severe_imbalance_ratio",
                about: "The longest queue over the shortest: above this, tasks are moved.",
                field: Field::Number(|c| &mut c.thresholds.severe_imbalance_ratio, 1.0..=1e6),
            },
        ],
    },
    Section {
        name: "work_stealing",
        about: "How much is stolen, and which task first.",
        keys: &[
            Key {
                name: "max_steal_per_cycle",
                about: "How many tasks one rebalancing pass moves at most.",
                field: Field::Count(|c| &mut c.work_stealing.max_steal_per_cycle, 1..=MANY),
            },
            Key {
                name: "prefer_recent_tasks",
                about: "Steal the newest task first; else the oldest.",
                field: Field::Flag(|c| &mut c.work_stealing.prefer_recent_tasks),
            },
            Key {
                name: "allow_task_migration",
                about: "Whether a started task that keeps checkpoints may be moved off a straggling agent.",
                field: Field::Flag(|c| &mut c.work_stealing.allow_task_migration),
            },
            Key {
                name: "min_tasks_to_steal",
                about: "The fewest waiting tasks a victim must have.",
                field: Field::Count(|c| &mut c.work_stealing.min_tasks_to_steal, 1..=MANY),
            },
            Key {
                name: "steal_below_busy",
                about: "Whether an agent with nothing at all to do may rob one that is not busy.",
                field: Field::Flag(|c| &mut c.work_stealing.steal_below_busy),
            },
        ],
    },
    Section {
        name: "capabilities",
        about: "How tasks are matched to agents.",
        keys: &[
            Key {
                name: "matching_strategy",
                about: "Who may get a task, and who of them does. The embedded scheduler has best_fit.",
                field: Field::Matching(|c| &mut c.capabilities.matching_strategy),
            },
            Key {
                name: "consider_history",
                about: "Whether the success rate counts in the score.",
                field: Field::Flag(|c| &mut c.capabilities.consider_history),
            },
            Key {
                name: "fallback_enabled",
                about: "Whether matching_strategy fallback may widen to agents that lack a skill.",
                field: Field::Flag(|c| &mut c.capabilities.fallback_enabled),
            },
            Key {
                name: "history_weight",
                about: "The weight of the success rate in the score.",
                field: Field::Number(|c| &mut c.capabilities.history_weight, 0.0..=1.0),
            },
            Key {
                name: "locality_bonus",
                about: "What it is worth, in the score, that an agent already holds a task's data.",
                field: Field::Number(|c| &mut c.capabilities.locality_bonus, 0.0..=100.0),
            },
            Key {
                name: "near_share",
                about: "How much of that, and of the time that data takes to be brought, counts for agents in the zone of the one that holds it.",
                field: Field::Number(|c| &mut c.added.near_share, 0.0..=1.0),
            },
        ],
    },
    Section {
        name: "priority",
        about: "What urgent tasks are protected from.",
        keys: &[
            Key {
                name: "high_priority_threshold",
                about: "From this priority on, a task is urgent.",
                field: Field::Level(|c| &mut c.priority.high_priority_threshold),
            },
            Key {
                name: "preserve_high_priority",
                about: "Whether urgent tasks stay where they are queued.",
                field: Field::Flag(|c| &mut c.priority.preserve_high_priority),
            },
            Key {
                name: "rescue_high_priority",
                about: "Whether an agent that can start an urgent task now gets it when its own cannot.",
                field: Field::Flag(|c| &mut c.priority.rescue_high_priority),
            },
            Key {
                name: "priority_stealing_order",
                about: "Whether the lowest priority is stolen first; else only age decides.",
                field: Field::Flag(|c| &mut c.priority.priority_stealing_order),
            },
        ],
    },
    Section {
        name: "metrics",
        about: "What is counted and kept.",
        keys: &[
            Key {
                name: "track_migrations",
                about: "Count the tasks that moved.",
                field: Field::Flag(|c| &mut c.metrics.track_migrations),
            },
            Key {
                name: "track_utilization",
                about: "Sample queue lengths.",
                field: Field::Flag(|c| &mut c.metrics.track_utilization),
            },
            Key {
                name: "track_wait_times",
                about: "Keep how long tasks waited.",
                field: Field::Flag(|c| &mut c.metrics.track_wait_times),
            },
            Key {
                name: "histogram_buckets",
                about: "The upper bounds of the wait-time histogram, in seconds.",
                field: Field::Buckets(|c| &mut c.metrics.histogram_buckets),
            },
            Key {
                name: "utilization_sample_interval_sec",
                about: "How often queue lengths are sampled.",
                field: Field::Seconds(
                    |c| &mut c.metrics.utilization_sample_interval,
                    MOMENT..=YEAR,
                ),
            },
        ],
    },
    Section {
        name: "performance",
        about: "Bounds on the work of the scheduler itself.",
        keys: &[
            Key {
                name: "max_concurrent_steals",
                about: "How many steals may be under way at once: tasks asked back from agents that hold them.",
                field: Field::Count(|c| &mut c.performance.max_concurrent_steals, 1..=MANY),
            },
            Key {
                name: "steal_batch_size",
                about: "How many tasks one steal takes.",
                field: Field::Count(|c| &mut c.performance.steal_batch_size, 1..=MANY),
            },
            Key {
                name: "cache_capability_matches",
                about: "Whether to remember which agents suit which tasks.",
                field: Field::Flag(|c| &mut c.performance.cache_capability_matches),
            },
            Key {
                name: "cache_ttl_sec",
                about: "How long such a memory is good for.",
                field: Field::Seconds(|c| &mut c.performance.cache_ttl, MOMENT..=YEAR),
            },
        ],
    },
    Section {
        name: "guards",
        about: "What keeps steals from cascading.",
        keys: &[
            Key {
                name: "robbed_cooldown_ms",
                about: "An agent that was robbed this recently is robbed again only when there is no other.",
                field: Field::Millis(|c| &mut c.guards.robbed_cooldown, Span::ZERO..=YEAR),
            },
            Key {
                name: "max_moves",
                about: "A task that moved this often stays where it is.",
                field: Field::Count(|c| &mut c.guards.max_moves, 0..=MANY),
            },
            Key {
                name: "steal_backoff_ms",
                about: "The first pause of an agent that was refused a task which had already started; doubles with each refusal.",
                field: Field::Millis(|c| &mut c.guards.steal_backoff, Span::ZERO..=YEAR),
            },
        ],
    },
    Section {
        name: "heartbeats",
        about: "When silence means that an agent is gone. Counts only for agents that send heartbeats.",
        keys: &[
            Key {
                name: "suspect_after_sec",
                about: "After this long, an agent gets no new work. Below lost_after_sec.",
                field: Field::Seconds(|c| &mut c.heartbeats.suspect_after, MOMENT..=YEAR),
            },
            Key {
                name: "lost_after_sec",
                about: "After this long, its tasks go to others.",
                field: Field::Seconds(|c| &mut c.heartbeats.lost_after, MOMENT..=YEAR),
            },
        ],
    },
    Section {
        name: "learning",
        about: "How success and speed are learned, and when a skill is taken away.",
        keys: &[
            Key {
                name: "half_life_sec",
                about: "After this long, what was learned counts half.",
                field: Field::Seconds(|c| &mut c.learning.half_life, MOMENT..=YEAR),
            },
            Key {
                name: "breaker_failures",
                about: "So many failures of one skill in a row take the skill away; 0 never does.",
                field: Field::Count(|c| &mut c.learning.breaker_failures, 0..=MANY),
            },
            Key {
                name: "breaker_probe_sec",
                about: "How long until a skill that was taken away is tried again; doubles with every failed try.",
                field: Field::Seconds(|c| &mut c.learning.breaker_probe, MOMENT..=YEAR),
            },
            Key {
                name: "earn_skills",
                about: "Whether an agent that keeps succeeding at tasks with a skill it did not declare has that skill from then on.",
                field: Field::Flag(|c| &mut c.added.earning.enabled),
            },
            Key {
                name: "earn_successes",
                about: "So many successes in a row earn it.",
                field: Field::Count(|c| &mut c.added.earning.successes, 1..=MANY),
            },
        ],
    },
    Section {
        name: "speculation",
        about: "Second copies of stragglers, for tasks that allow it.",
        keys: &[
            Key {
                name: "enabled",
                about: "Whether there are any.",
                field: Field::Flag(|c| &mut c.speculation.enabled),
            },
            Key {
                name: "straggler_ratio",
                about: "A task that runs longer than this many times the median of its kind is a straggler.",
                field: Field::Number(|c| &mut c.speculation.straggler_ratio, 1.0..=1e6),
            },
            Key {
                name: "min_samples",
                about: "How many of its kind must have finished before the median counts.",
                field: Field::Count(|c| &mut c.speculation.min_samples, 1..=MANY),
            },
            Key {
                name: "budget",
                about: "Copies under way, as a share of all running tasks; one is always allowed.",
                field: Field::Number(|c| &mut c.speculation.budget, 0.0..=1.0),
            },
        ],
    },
    Section {
        name: "quotas",
        about: "Shares of users, room for large tasks.",
        keys: &[
            Key {
                name: "user_shares",
                about: "Whether a user who holds its share of the slots waits while others want theirs.",
                field: Field::Flag(|c| &mut c.quotas.user_shares),
            },
            Key {
                name: "agent_shares",
                about: "Whether an agent whose slots are taken is given no more ahead of its time than its share of what waits.",
                field: Field::Flag(|c| &mut c.added.agent_shares),
            },
            Key {
                name: "backfill_limit",
                about: "How many small tasks may pass a large one that waits for room; then room is kept for it.",
                field: Field::Count(|c| &mut c.quotas.backfill_limit, 0..=MANY),
            },
            Key {
                name: "reserved_slots",
                about: "How many slots of an agent with several are kept free of large tasks.",
                field: Field::Count(|c| &mut c.quotas.reserved_slots, 0..=MANY),
            },
            Key {
                name: "large_task_ratio",
                about: "A task of more than this many times the mean cost is large.",
                field: Field::Count(|c| &mut c.quotas.large_task_ratio, 1..=MANY),
            },
        ],
    },
    Section {
        name: "prefetch",
        about: "How many tasks an agent may hold that it has not started.",
        keys: &[Key {
            name: "max_depth",
            about: "The deepest backlog.",
            field: Field::Count(|c| &mut c.prefetch.max_depth, 0..=MANY),
        }],
    },
    Section {
        name: "self_tuning",
        about: "Settings that the scheduler changes by itself: one at a time, measured with and without, taken back unless it is better. See `loxley server tuning`.",
        keys: &[
            Key {
                name: "enabled",
                about: "Whether it does.",
                field: Field::Flag(|c| &mut c.self_tuning.enabled),
            },
            Key {
                name: "window_sec",
                about: "How long one measurement takes.",
                field: Field::Seconds(|c| &mut c.self_tuning.window, MOMENT..=YEAR),
            },
            Key {
                name: "pairs",
                about: "So many windows with a change are compared with as many without it.",
                field: Field::Count(|c| &mut c.self_tuning.pairs, 2..=64),
            },
            Key {
                name: "min_gain",
                about: "A change is kept only if it makes things better by this share.",
                field: Field::Number(|c| &mut c.self_tuning.min_gain, 0.0..=1.0),
            },
            Key {
                name: "busy_threshold",
                about: "Within which bounds `thresholds.busy_threshold` is tuned.",
                field: Field::Bounds(|c| &mut c.self_tuning.busy_threshold, 0.0..=1_000_000.0),
            },
            Key {
                name: "idle_threshold",
                about: "Within which bounds `thresholds.idle_threshold` is tuned.",
                field: Field::Bounds(|c| &mut c.self_tuning.idle_threshold, 0.0..=1_000_000.0),
            },
            Key {
                name: "rebalance_interval",
                about: "Within which bounds `thresholds.rebalance_interval_sec` is tuned.",
                field: Field::Bounds(
                    |c| &mut c.self_tuning.rebalance_interval,
                    0.001..=1_000_000.0,
                ),
            },
            Key {
                name: "max_steal_per_cycle",
                about: "Within which bounds `work_stealing.max_steal_per_cycle` is tuned.",
                field: Field::Bounds(
                    |c| &mut c.self_tuning.max_steal_per_cycle,
                    1.0..=1_000_000.0,
                ),
            },
            Key {
                name: "steal_batch_size",
                about: "Within which bounds `performance.steal_batch_size` is tuned.",
                field: Field::Bounds(|c| &mut c.self_tuning.steal_batch_size, 1.0..=1_000_000.0),
            },
            Key {
                name: "max_concurrent_steals",
                about: "Within which bounds `performance.max_concurrent_steals` is tuned.",
                field: Field::Bounds(
                    |c| &mut c.self_tuning.max_concurrent_steals,
                    1.0..=1_000_000.0,
                ),
            },
            Key {
                name: "steal_backoff",
                about: "Within which bounds `guards.steal_backoff_ms` is tuned.",
                field: Field::Bounds(|c| &mut c.self_tuning.steal_backoff, 0.001..=1_000_000.0),
            },
            Key {
                name: "max_depth",
                about: "Within which bounds `prefetch.max_depth` is tuned: the backlog of an agent.",
                field: Field::Bounds(|c| &mut c.self_tuning.max_depth, 0.0..=1_000_000.0),
            },
            Key {
                name: "straggler_ratio",
                about: "Within which bounds `speculation.straggler_ratio` is tuned.",
                field: Field::Bounds(|c| &mut c.self_tuning.straggler_ratio, 1.0..=1_000_000.0),
            },
            Key {
                name: "backfill_limit",
                about: "Within which bounds `quotas.backfill_limit` is tuned.",
                field: Field::Bounds(|c| &mut c.self_tuning.backfill_limit, 0.0..=1_000_000.0),
            },
            Key {
                name: "reserved_slots",
                about: "Within which bounds `quotas.reserved_slots` is tuned.",
                field: Field::Bounds(|c| &mut c.self_tuning.reserved_slots, 0.0..=1_000_000.0),
            },
            Key {
                name: "user_shares",
                about: "Whether `quotas.user_shares` may be switched: who gets how much is decided by speed then.",
                field: Field::Flag(|c| &mut c.self_tuning.user_shares),
            },
        ],
    },
    Section {
        name: "forecast",
        about: "Room for work that is due: what comes at the same time of each day, hour or other period is expected, and agents that can do it start nothing long beforehand that others could do. See `loxley server forecast`.",
        keys: &[
            Key {
                name: "enabled",
                about: "Whether there are forecasts.",
                field: Field::Flag(|c| &mut c.forecast.enabled),
            },
            Key {
                name: "step_sec",
                about: "Arrivals are counted in steps of this length.",
                field: Field::Seconds(|c| &mut c.forecast.step, MOMENT..=YEAR),
            },
            Key {
                name: "horizon_sec",
                about: "So far ahead one looks; 100 steps at most.",
                field: Field::Seconds(|c| &mut c.forecast.horizon, MOMENT..=YEAR),
            },
            Key {
                name: "season_max_sec",
                about: "Periods after which arrivals repeat are looked for up to this length; 10,000 steps at most.",
                field: Field::Seconds(|c| &mut c.forecast.season_max, MOMENT..=YEAR),
            },
            Key {
                name: "error_max",
                about: "A forecast is acted on once its error is below this share of that of *as now*, and no more when it is not below that of *as now*.",
                field: Field::Number(|c| &mut c.forecast.error_max, 0.0..=1.0),
            },
            Key {
                name: "share_max",
                about: "At most this share of the slots that can do a kind of work is kept for it.",
                field: Field::Number(|c| &mut c.forecast.share_max, 0.0..=1.0),
            },
        ],
    },
    Section {
        name: "health",
        about: "From when on `loxley server health` calls something a problem. No decision depends on it.",
        keys: &[
            Key {
                name: "queue_variance_max",
                about: "Queues whose lengths vary by more than this differ widely.",
                field: Field::Number(|c| &mut c.health.queue_variance_max, 0.0..=1e12),
            },
            Key {
                name: "steal_success_min",
                about: "When fewer than this share of the steals succeed, something keeps thieves away.",
                field: Field::Number(|c| &mut c.health.steal_success_min, 0.0..=1.0),
            },
            Key {
                name: "queued_max",
                about: "More than this many queued tasks and no idle agent: the fleet is too small.",
                field: Field::Count(|c| &mut c.health.queued_max, 0..=MANY),
            },
            Key {
                name: "short_task_ms",
                about: "Tasks of a kind that take less than this are worth putting together; 0: none is.",
                field: Field::Millis(|c| &mut c.health.short_task, Span::ZERO..=YEAR),
            },
            Key {
                name: "hot_spot_share",
                about: "A data key, or a queue, with more than this share of all that is queued is a hot spot.",
                field: Field::Number(|c| &mut c.health.hot_spot_share, 0.0..=1.0),
            },
        ],
    },
];

/// Two keys of which the first must not be above (or must be below) the second.
pub(crate) struct Relation {
    pub(crate) section: &'static str,
    pub(crate) lower: &'static str,
    pub(crate) upper: &'static str,
    pub(crate) strict: bool,
}

pub(crate) const RELATIONS: &[Relation] = &[
    Relation {
        section: "thresholds",
        lower: "idle_threshold",
        upper: "busy_threshold",
        strict: false,
    },
    Relation {
        section: "heartbeats",
        lower: "suspect_after_sec",
        upper: "lost_after_sec",
        strict: true,
    },
    Relation {
        section: "forecast",
        lower: "step_sec",
        upper: "horizon_sec",
        strict: false,
    },
    Relation {
        section: "forecast",
        lower: "horizon_sec",
        upper: "season_max_sec",
        strict: true,
    },
];

/// What there is to know about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// The whole name, `load_balancing.thresholds.busy_threshold`.
    pub path: String,
    /// What it does.
    pub about: &'static str,
    /// Which values it takes.
    pub allowed: String,
    /// What it is on a server and in `loxley run` when nobody says anything.
    pub default: String,
}

/// Every key of the configuration, in the order of [`default_yaml`](crate::default_yaml).
#[must_use]
pub fn keys() -> Vec<KeyInfo> {
    let config = Config::served();
    let info = |section: &Section, key: &Key| KeyInfo {
        path: path(section.name, key.name),
        about: key.about,
        allowed: key.field.allowed(),
        default: key.field.show(&config),
    };
    SECTIONS
        .iter()
        .flat_map(|section| section.keys.iter().map(move |key| info(section, key)))
        .collect()
}

/// The whole name of a key.
pub(crate) fn path(section: &str, key: &str) -> String {
    if section.is_empty() {
        format!("{ROOT}.{key}")
    } else {
        format!("{ROOT}.{section}.{key}")
    }
}

impl Field {
    /// Puts the node's value into the configuration; false, and a note, when it is not allowed.
    pub(crate) fn read(
        &self,
        name: &str,
        node: &Node,
        config: &mut Config,
        reader: &mut Reader<'_>,
    ) -> bool {
        match self {
            Self::Flag(at) => put(at(config), reader.flag(name, node)),
            Self::Count(at, range) => {
                let wide = u64::from(*range.start())..=u64::from(*range.end());
                let count = reader.whole(name, node, wide);
                put(at(config), count.and_then(|count| count.try_into().ok()))
            }
            Self::Whole(at) => put(at(config), reader.whole(name, node, 0..=u64::MAX)),
            Self::Number(at, range) => put(at(config), reader.number(name, node, range.clone())),
            Self::Seconds(at, range) => {
                put(at(config), self.span(name, node, SECOND, range, reader))
            }
            Self::Millis(at, range) => put(
                at(config),
                self.span(name, node, MILLISECOND, range, reader),
            ),
            Self::Level(at) => {
                let level = reader.whole(name, node, 1..=5);
                let level = level.and_then(|level| u8::try_from(level).ok());
                put(
                    at(config),
                    level.and_then(|level| Priority::new(level).ok()),
                )
            }
            Self::Strategy(at) => put(at(config), choose(name, node, &STRATEGIES, reader)),
            Self::Matching(at) => put(at(config), choose(name, node, &MATCHINGS, reader)),
            Self::Buckets(at) => put(at(config), buckets(name, node, reader)),
            Self::Bounds(at, range) => put(at(config), self.bounds(name, node, range, reader)),
        }
    }

    /// The value as YAML; what [`read`](Self::read) gives back exactly.
    pub(crate) fn show(&self, config: &Config) -> String {
        let config = &mut config.clone();
        match self {
            Self::Flag(at) => at(config).to_string(),
            Self::Count(at, _) => at(config).to_string(),
            Self::Whole(at) => at(config).to_string(),
            Self::Number(at, _) => show_number(*at(config)),
            Self::Seconds(at, _) => show_span(*at(config), SECOND),
            Self::Millis(at, _) => show_span(*at(config), MILLISECOND),
            Self::Level(at) => at(config).to_string(),
            Self::Strategy(at) => word(&STRATEGIES, *at(config)).to_owned(),
            Self::Matching(at) => word(&MATCHINGS, *at(config)).to_owned(),
            Self::Buckets(at) => {
                let bounds: Vec<String> = at(config).iter().copied().map(show_number).collect();
                format!("[{}]", bounds.join(", "))
            }
            Self::Bounds(at, _) => {
                let bounds = *at(config);
                match bounds.enabled {
                    true => format!(
                        "[{}, {}]",
                        show_number(bounds.least),
                        show_number(bounds.most)
                    ),
                    false => OFF.to_owned(),
                }
            }
        }
    }

    /// Which values are allowed, for a person.
    pub(crate) fn allowed(&self) -> String {
        match self {
            Self::Flag(_) => "true or false".to_owned(),
            Self::Count(_, range) => {
                format!("a whole number from {} to {}", range.start(), range.end())
            }
            Self::Whole(_) => format!("a whole number from 0 to {}", u64::MAX),
            Self::Number(_, range) => format!("a number from {} to {}", range.start(), range.end()),
            Self::Seconds(_, range) => show_range(range, SECOND, "seconds"),
            Self::Millis(_, range) => show_range(range, MILLISECOND, "milliseconds"),
            Self::Level(_) => "a priority from 1 (lowest) to 5 (highest)".to_owned(),
            Self::Strategy(_) => format!("one of {}", STRATEGIES.map(|(word, _)| word).join(", ")),
            Self::Matching(_) => format!("one of {}", MATCHINGS.map(|(word, _)| word).join(", ")),
            Self::Buckets(_) => format!("1 to {BUCKETS_MAX} ascending numbers above 0"),
            Self::Bounds(_, range) => format!(
                "[least, most], numbers from {} to {}; or {OFF}",
                range.start(),
                range.end()
            ),
        }
    }

    /// The value as a number, to compare two keys of one kind.
    pub(crate) fn measure(&self, config: &Config) -> f64 {
        decimal(&self.show(config)).unwrap_or(f64::NAN)
    }

    fn bounds(
        &self,
        name: &str,
        node: &Node,
        range: &RangeInclusive<f64>,
        reader: &mut Reader<'_>,
    ) -> Option<Bounds> {
        let items = match &node.value {
            // Scenarios come as JSON, where the word stands in quotes; to some readers of YAML it is `false`.
            Value::Scalar(text, _) if text == OFF || text == "false" => return Some(Bounds::OFF),
            Value::List(items) if items.len() == 2 => items,
            Value::List(_) => return reader.out_of_range(name, node, &self.allowed()),
            _ => return reader.wrong_type(name, node, &self.allowed()),
        };
        let least = reader.number(name, &items[0], range.clone())?;
        let most = reader.number(name, &items[1], range.clone())?;
        if least > most {
            let message = format!("`{name}` must ascend");
            let label = format!("below {}", show_number(least));
            let mistake = Mistake::new(Kind::Contradiction, items[1].span.clone(), message, label);
            reader.note(mistake.with_help("put the smaller number first"));
            return None;
        }
        Some(Bounds::new(least, most))
    }

    fn span(
        &self,
        name: &str,
        node: &Node,
        unit: Span,
        range: &RangeInclusive<Span>,
        reader: &mut Reader<'_>,
    ) -> Option<Span> {
        let text = match &node.value {
            Value::Scalar(text, Style::Plain) if decimal(text).is_some() => text,
            _ => return reader.wrong_type(name, node, &self.allowed()),
        };
        match span_of(text, unit) {
            Some(span) if range.contains(&span) => Some(span),
            _ => reader.out_of_range(name, node, &self.allowed()),
        }
    }
}

const SECOND: Span = Span::from_secs(1);
const MILLISECOND: Span = Span::from_millis(1);

fn put<T>(place: &mut T, value: Option<T>) -> bool {
    match value {
        Some(value) => {
            *place = value;
            true
        }
        None => false,
    }
}

fn choose<T: Copy>(
    name: &str,
    node: &Node,
    choices: &[(&str, T)],
    reader: &mut Reader<'_>,
) -> Option<T> {
    let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
    let position = reader.choice(name, node, &words)?;
    Some(choices[position].1)
}

fn word<T: PartialEq>(choices: &[(&'static str, T)], value: T) -> &'static str {
    choices
        .iter()
        .find(|(_, choice)| *choice == value)
        .map(|(word, _)| *word)
        .expect("every choice has a word")
}

fn buckets(name: &str, node: &Node, reader: &mut Reader<'_>) -> Option<Vec<f64>> {
    let items = reader.list(name, node, 1..=BUCKETS_MAX)?;
    let bounds: Vec<Option<f64>> = items
        .iter()
        .map(|item| reader.number(name, item, BUCKET_RANGE))
        .collect();
    let bounds: Vec<f64> = bounds.into_iter().collect::<Option<_>>()?;
    let falls = bounds.windows(2).position(|pair| pair[0] >= pair[1]);
    if let Some(at) = falls {
        let message = format!("`{name}` must ascend");
        let label = format!("not above {}", show_number(bounds[at]));
        let mistake = Mistake::new(
            Kind::Contradiction,
            items[at + 1].span.clone(),
            message,
            label,
        );
        reader.note(mistake.with_help("put the bounds in ascending order, each once"));
        return None;
    }
    Some(bounds)
}

/// The shortest decimal that reads back as the same number.
fn show_number(number: f64) -> String {
    format!("{number:?}")
}

fn show_range(range: &RangeInclusive<Span>, unit: Span, name: &str) -> String {
    let (least, most) = (
        show_span(*range.start(), unit),
        show_span(*range.end(), unit),
    );
    format!("{name} from {least} to {most}")
}

/// A length in units, exact to the nanosecond: `30`, `0.5`.
fn show_span(span: Span, unit: Span) -> String {
    let (whole, rest) = (span.0 / unit.0, span.0 % unit.0);
    if rest == 0 {
        return whole.to_string();
    }
    let digits = unit.0.ilog10() as usize;
    let fraction = format!("{rest:0digits$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

/// The length that a decimal number of units is; exact where the number is written in digits and
/// has no more of them than there are nanoseconds.
fn span_of(text: &str, unit: Span) -> Option<Span> {
    let digits = unit.0.ilog10() as usize;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() <= digits
        && let Ok(whole) = whole.parse::<u64>()
        && let Ok(fraction) = format!("{fraction:0<digits$}").parse::<u64>()
    {
        return whole.checked_mul(unit.0)?.checked_add(fraction).map(Span);
    }
    Span::try_from_secs_f64(decimal(text)? * unit.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_exact_to_the_nanosecond() {
        for nanos in [0, 1, 999, 1_000_000, 1_500_000_000, 31_535_999_999_999_999] {
            for unit in [SECOND, MILLISECOND] {
                let text = show_span(Span(nanos), unit);
                assert_eq!(span_of(&text, unit), Some(Span(nanos)), "{text}");
            }
        }
        assert_eq!(span_of("1e-3", SECOND), Some(Span::from_millis(1)));
        assert_eq!(span_of(".5", SECOND), Some(Span::from_millis(500)));
        assert_eq!(span_of("-1", SECOND), None);
        assert_eq!(span_of("99999999999999999999", SECOND), None);
    }
}

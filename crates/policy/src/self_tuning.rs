//! Which settings may be changed by themselves, and how far. The core does not read this: the one who drives it does
//! (`loxley_driver::self_tuning`), and every change reaches the core as any other change of the configuration.

use loxley_model::Span;

/// The rules of self-tuning.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SelfTuning {
    /// Whether anything is tuned at all.
    pub enabled: bool,
    /// How long one measurement takes.
    pub window: Span,
    /// So many windows with a change are compared with as many without it.
    pub pairs: u32,
    /// A change is kept only if it makes the objective better by this share.
    pub min_gain: f64,
    /// Bounds of [`Thresholds::busy_threshold`](crate::Thresholds::busy_threshold).
    pub busy_threshold: Bounds,
    /// Bounds of [`Thresholds::idle_threshold`](crate::Thresholds::idle_threshold).
    pub idle_threshold: Bounds,
    /// Bounds of [`Thresholds::rebalance_interval`](crate::Thresholds::rebalance_interval), in seconds.
    pub rebalance_interval: Bounds,
    /// Bounds of [`WorkStealing::max_steal_per_cycle`](crate::WorkStealing::max_steal_per_cycle).
    pub max_steal_per_cycle: Bounds,
    /// Bounds of [`Performance::steal_batch_size`](crate::Performance::steal_batch_size).
    pub steal_batch_size: Bounds,
    /// Bounds of [`Performance::max_concurrent_steals`](crate::Performance::max_concurrent_steals).
    pub max_concurrent_steals: Bounds,
    /// Bounds of [`Guards::steal_backoff`](crate::Guards::steal_backoff), in milliseconds.
    pub steal_backoff: Bounds,
    /// Bounds of [`Prefetch::max_depth`](crate::Prefetch::max_depth).
    pub max_depth: Bounds,
    /// Bounds of [`Speculation::straggler_ratio`](crate::Speculation::straggler_ratio).
    pub straggler_ratio: Bounds,
    /// Bounds of [`Quotas::backfill_limit`](crate::Quotas::backfill_limit).
    pub backfill_limit: Bounds,
    /// Bounds of [`Quotas::reserved_slots`](crate::Quotas::reserved_slots).
    pub reserved_slots: Bounds,
    /// Whether [`Quotas::user_shares`](crate::Quotas::user_shares) may be switched.
    pub user_shares: bool,
}

impl Default for SelfTuning {
    fn default() -> Self {
        Self {
            enabled: false,
            window: Span::from_secs(60),
            pairs: 4,
            min_gain: 0.03,
            busy_threshold: Bounds::new(1.0, 64.0),
            idle_threshold: Bounds::new(1.0, 16.0),
            rebalance_interval: Bounds::new(1.0, 300.0),
            max_steal_per_cycle: Bounds::new(1.0, 64.0),
            steal_batch_size: Bounds::new(1.0, 16.0),
            max_concurrent_steals: Bounds::new(1.0, 64.0),
            steal_backoff: Bounds::new(0.5, 1000.0),
            max_depth: Bounds::new(1.0, 1024.0),
            straggler_ratio: Bounds::new(1.5, 8.0),
            backfill_limit: Bounds::new(0.0, 64.0),
            reserved_slots: Bounds::new(0.0, 4.0),
            // Who gets how much is a matter of agreement between people, not of speed.
            user_shares: false,
        }
    }
}

/// How far one setting may go, in the unit of its key.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Bounds {
    /// Whether it is tuned.
    pub enabled: bool,
    /// Not below this.
    pub least: f64,
    /// Not above this.
    pub most: f64,
}

impl Bounds {
    /// Tuned from `least` to `most`.
    #[must_use]
    pub const fn new(least: f64, most: f64) -> Self {
        Self {
            enabled: true,
            least,
            most,
        }
    }

    /// Not tuned.
    pub const OFF: Self = Self {
        enabled: false,
        least: 0.0,
        most: 0.0,
    };
}

//! Was the run balanced? Four figures, the same for the pool, the fleet and the simulator.
//!
//! | figure | is | target |
//! |---|---|---|
//! | load imbalance | busiest worker's time ÷ mean worker's time | < 1.2 |
//! | straggler ratio | longest duration ÷ median duration | < 2.0 |
//! | worker utilization | busy time ÷ (workers × wall time) | > 90 % |
//! | queue-depth variance | spread of the queue lengths at one moment, averaged over moments | < max(1, mean depth) |
//!
//! The target of the last is ours. Work thrown at random over queues gives Poisson-like lengths,
//! whose variance is their mean; a balancer has to beat throwing dice. With short queues (0, 1 or
//! 2 waiting) whole numbers alone make a variance near 1, so no less than that is asked for.
//!
//! A figure without data (no worker, nothing run, no sample) has no value and meets no target: it
//! is reported as unknown, never as zero.

use alloc::string::String;
use core::fmt;

use crate::sketch::Sketch;

/// What was observed during a run.
#[derive(Clone, Copy, Debug)]
pub struct Observations<'a> {
    /// How long each worker (or each slot of an agent) was busy.
    pub busy_ns: &'a [u64],
    /// How long the run took.
    pub wall_ns: u64,
    /// How long each piece of work took.
    pub durations: &'a Sketch,
    /// How long the queues were, seen from time to time.
    pub queue_depths: &'a QueueDepths,
}

/// Queue lengths of all workers, looked at from time to time; takes no memory per sample.
///
/// ```
/// use loxley_balance::QueueDepths;
///
/// let mut depths = QueueDepths::default();
/// depths.sample([1, 3]); // variance 1
/// depths.sample([2, 2]); // variance 0
/// assert_eq!(depths.variance(), Some(0.5));
/// assert_eq!(depths.mean(), Some(2.0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueDepths {
    weight: f64,
    weighted_means: f64,
    weighted_variances: f64,
    max: usize,
}

impl QueueDepths {
    /// Notes the length of every queue at one moment.
    pub fn sample(&mut self, depths: impl IntoIterator<Item = usize>) {
        self.sample_for(1, depths);
    }

    /// Notes queue lengths that held for some time, so that long states count for more. All samples
    /// of one run should be weighted or none.
    pub fn sample_for(&mut self, duration_ns: u64, depths: impl IntoIterator<Item = usize>) {
        let (mut queues, mut sum, mut squares) = (0_u64, 0_u128, 0_u128);
        for depth in depths {
            queues += 1;
            sum += depth as u128;
            squares += (depth as u128) * (depth as u128);
            self.max = self.max.max(depth);
        }
        if queues == 0 || duration_ns == 0 {
            return;
        }
        // Whole numbers until the last step: n·Σx² − (Σx)² cannot lose digits or go negative.
        let count = u128::from(queues);
        let variance = (count * squares - sum * sum) as f64 / (count * count) as f64;
        let weight = duration_ns as f64;
        self.weight += weight;
        self.weighted_means += weight * (sum as f64 / queues as f64);
        self.weighted_variances += weight * variance;
    }

    /// The variance of the queue lengths at one moment, averaged over the samples.
    #[must_use]
    pub fn variance(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.weighted_variances / self.weight)
    }

    /// The mean queue length.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.weighted_means / self.weight)
    }

    /// The longest queue in any sample.
    #[must_use]
    pub fn max(&self) -> usize {
        self.max
    }
}

/// What a balanced run must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Targets {
    /// Load imbalance must stay below this.
    pub load_imbalance: f64,
    /// The straggler ratio must stay below this.
    pub straggler_ratio: f64,
    /// Utilization must be above this.
    pub utilization: f64,
    /// Queue-depth variance must stay below this many times the mean depth, or below this number
    /// itself where the mean is less than one.
    pub queue_depth_dispersion: f64,
}

impl Default for Targets {
    fn default() -> Self {
        Self {
            load_imbalance: 1.2,
            straggler_ratio: 2.0,
            utilization: 0.9,
            queue_depth_dispersion: 1.0,
        }
    }
}

/// On which side of what number a figure should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Less than this.
    Below(f64),
    /// More than this.
    Above(f64),
}

/// One figure of the balance report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// What people call it.
    pub name: &'static str,
    /// What it came to; nothing when there was nothing to compute it from.
    pub value: Option<f64>,
    /// What it should come to.
    pub target: Target,
    /// Whether value and target are shares, shown in per cent.
    pub is_share: bool,
}

impl Figure {
    /// Whether the target was met; nothing when the value is unknown.
    #[must_use]
    pub fn met(&self) -> Option<bool> {
        self.value.map(|value| match self.target {
            Target::Below(limit) => value < limit,
            Target::Above(limit) => value > limit,
        })
    }
}

/// The four figures of one run, each with its target.
///
/// ```
/// use loxley_balance::{BalanceReport, Observations, QueueDepths, Sketch};
///
/// let mut durations = Sketch::default();
/// [40, 50, 60, 90].into_iter().for_each(|ns| durations.record(ns));
/// let mut queue_depths = QueueDepths::default();
/// queue_depths.sample([0, 1]);
/// let report = BalanceReport::new(&Observations {
///     busy_ns: &[130, 110],
///     wall_ns: 130,
///     durations: &durations,
///     queue_depths: &queue_depths,
/// });
/// assert_eq!(report.to_string(), "\
/// load imbalance         1.08    target < 1.20    met
/// straggler ratio        1.80    target < 2.00    met
/// worker utilization     92.3 %  target > 90.0 %  met
/// queue-depth variance   0.25    target < 1.00    met");
/// assert!(report.is_balanced());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BalanceReport {
    /// The busiest worker's time over the mean worker's time.
    pub load_imbalance: Figure,
    /// The longest duration over the median duration.
    pub straggler_ratio: Figure,
    /// Busy time over all the time there was.
    pub utilization: Figure,
    /// How unequal the queues were.
    pub queue_depth_variance: Figure,
}

impl BalanceReport {
    /// The report against the usual targets.
    #[must_use]
    pub fn new(observations: &Observations<'_>) -> Self {
        Self::against(&Targets::default(), observations)
    }

    /// The report against other targets.
    #[must_use]
    pub fn against(targets: &Targets, observations: &Observations<'_>) -> Self {
        let depths = observations.queue_depths;
        let scale = depths.mean().unwrap_or(0.0).max(1.0);
        Self {
            load_imbalance: Figure {
                name: "load imbalance",
                value: load_imbalance(observations.busy_ns),
                target: Target::Below(targets.load_imbalance),
                is_share: false,
            },
            straggler_ratio: Figure {
                name: "straggler ratio",
                value: straggler_ratio(observations.durations),
                target: Target::Below(targets.straggler_ratio),
                is_share: false,
            },
            utilization: Figure {
                name: "worker utilization",
                value: utilization(observations.busy_ns, observations.wall_ns),
                target: Target::Above(targets.utilization),
                is_share: true,
            },
            queue_depth_variance: Figure {
                name: "queue-depth variance",
                value: depths.variance(),
                target: Target::Below(targets.queue_depth_dispersion * scale),
                is_share: false,
            },
        }
    }

    /// The four figures, in the order in which they are reported.
    #[must_use]
    pub fn figures(&self) -> [&Figure; 4] {
        [
            &self.load_imbalance,
            &self.straggler_ratio,
            &self.utilization,
            &self.queue_depth_variance,
        ]
    }

    /// Whether every figure is known and met its target.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        self.figures()
            .iter()
            .all(|figure| figure.met() == Some(true))
    }
}

/// The busiest over the mean; nothing when no one worked.
#[must_use]
pub fn load_imbalance(busy_ns: &[u64]) -> Option<f64> {
    let max = *busy_ns.iter().max()?;
    let sum: u128 = busy_ns.iter().map(|&busy| u128::from(busy)).sum();
    (sum > 0).then(|| max as f64 * busy_ns.len() as f64 / sum as f64)
}

/// The longest over the median; nothing when nothing ran or the median took no time at all.
#[must_use]
pub fn straggler_ratio(durations: &Sketch) -> Option<f64> {
    let (max, median) = (durations.max()?, durations.median()?);
    (median > 0).then(|| max as f64 / median as f64)
}

/// The busy share of all workers' time; nothing without workers or time.
#[must_use]
pub fn utilization(busy_ns: &[u64], wall_ns: u64) -> Option<f64> {
    let sum: u128 = busy_ns.iter().map(|&busy| u128::from(busy)).sum();
    let available = busy_ns.len() as u128 * u128::from(wall_ns);
    (available > 0).then(|| sum as f64 / available as f64)
}

impl fmt::Display for Figure {
    /// One aligned line, without a line break.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self
            .value
            .map_or_else(|| String::from("-"), |value| self.show(value));
        let (sign, limit) = match self.target {
            Target::Below(limit) => ('<', limit),
            Target::Above(limit) => ('>', limit),
        };
        let verdict = match self.met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "unknown",
        };
        let limit = self.show(limit);
        write!(
            f,
            "{:<22} {value:<7} target {sign} {limit:<7} {verdict}",
            self.name
        )
    }
}

impl Figure {
    fn show(&self, number: f64) -> String {
        if self.is_share {
            alloc::format!("{:.1} %", number * 100.0)
        } else {
            alloc::format!("{number:.2}")
        }
    }
}

impl fmt::Display for BalanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, figure) in self.figures().into_iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            figure.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn durations(values: &[u64]) -> Sketch {
        let mut sketch = Sketch::default();
        values.iter().for_each(|&value| sketch.record(value));
        sketch
    }

    #[test]
    fn load_imbalance_is_max_over_mean() {
        assert_eq!(load_imbalance(&[10, 20, 30]), Some(1.5));
        assert_eq!(load_imbalance(&[5, 5]), Some(1.0));
        assert_eq!(load_imbalance(&[8, 0, 0, 0]), Some(4.0));
        assert_eq!(load_imbalance(&[0, 0]), None);
        assert_eq!(load_imbalance(&[]), None);
        assert_eq!(load_imbalance(&[u64::MAX; 4]), Some(1.0));
    }

    #[test]
    fn straggler_ratio_is_max_over_median() {
        assert_eq!(straggler_ratio(&durations(&[10, 20, 90])), Some(4.5));
        assert_eq!(straggler_ratio(&durations(&[7])), Some(1.0));
        assert_eq!(straggler_ratio(&durations(&[0, 0, 5])), None);
        assert_eq!(straggler_ratio(&durations(&[])), None);
    }

    #[test]
    fn utilization_is_busy_over_available() {
        assert_eq!(utilization(&[50, 100], 100), Some(0.75));
        assert_eq!(utilization(&[50], 0), None);
        assert_eq!(utilization(&[], 100), None);
    }

    #[test]
    fn queue_depth_variance_averages_moments_not_queues() {
        // Every queue has the same mean over time, yet at every moment they are unequal.
        let mut depths = QueueDepths::default();
        depths.sample([0, 4]);
        depths.sample([4, 0]);
        assert_eq!(depths.variance(), Some(4.0));
        assert_eq!(depths.mean(), Some(2.0));
        assert_eq!(depths.max(), 4);
        // A state that lasted three times as long counts three times.
        let mut weighted = QueueDepths::default();
        weighted.sample_for(3, [0, 4]);
        weighted.sample_for(1, [1, 1]);
        assert_eq!(weighted.variance(), Some(3.0));
        assert_eq!(QueueDepths::default().variance(), None);
    }

    #[test]
    fn huge_queues_do_not_lose_digits() {
        let mut depths = QueueDepths::default();
        let base = 1_usize << 40;
        depths.sample([base, base + 2]);
        assert_eq!(depths.variance(), Some(1.0));
    }

    #[test]
    fn the_variance_target_grows_with_the_queues() {
        let mut queue_depths = QueueDepths::default();
        queue_depths.sample([10, 14]);
        let observations = Observations {
            busy_ns: &[1],
            wall_ns: 1,
            durations: &durations(&[1]),
            queue_depths: &queue_depths,
        };
        let report = BalanceReport::new(&observations);
        assert_eq!(report.queue_depth_variance.value, Some(4.0));
        assert_eq!(report.queue_depth_variance.target, Target::Below(12.0));
        assert_eq!(report.queue_depth_variance.met(), Some(true));
    }

    #[test]
    fn targets_are_strict() {
        let at = |value| Figure {
            name: "x",
            value: Some(value),
            target: Target::Below(1.2),
            is_share: false,
        };
        assert_eq!(at(1.2).met(), Some(false));
        assert_eq!(at(1.19).met(), Some(true));
        let share = Figure {
            target: Target::Above(0.9),
            is_share: true,
            ..at(0.9)
        };
        assert_eq!(share.met(), Some(false));
    }

    #[test]
    fn a_run_without_data_is_unknown_not_balanced() {
        let observations = Observations {
            busy_ns: &[],
            wall_ns: 0,
            durations: &Sketch::default(),
            queue_depths: &QueueDepths::default(),
        };
        let report = BalanceReport::new(&observations);
        assert!(!report.is_balanced());
        assert!(report.figures().iter().all(|figure| figure.met().is_none()));
        assert!(
            report
                .to_string()
                .lines()
                .all(|line| line.ends_with("unknown"))
        );
    }

    #[test]
    fn a_missed_target_is_said() {
        let mut queue_depths = QueueDepths::default();
        queue_depths.sample([0, 9]);
        let observations = Observations {
            busy_ns: &[30, 10],
            wall_ns: 40,
            durations: &durations(&[10, 10, 50]),
            queue_depths: &queue_depths,
        };
        let text = BalanceReport::new(&observations).to_string();
        let expected = "\
load imbalance         1.50    target < 1.20    missed
straggler ratio        5.00    target < 2.00    missed
worker utilization     50.0 %  target > 90.0 %  missed
queue-depth variance   20.25   target < 4.50    missed";
        assert_eq!(text, expected);
    }
}

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
//! is reported as unknown, never as zero. A verdict needs enough to judge: a run of a tenth of a second, two pieces of
//! work for each worker, five of one kind. A ratio of durations compares work of one kind, where kinds are known
//! ([`BalanceReport::with_kinds`]), and a long piece counts as a straggler only if it is a fiftieth of the run.

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

    /// Adds what was noted elsewhere, or later.
    pub fn merge(&mut self, other: &Self) {
        self.weight += other.weight;
        self.weighted_means += other.weighted_means;
        self.weighted_variances += other.weighted_variances;
        self.max = self.max.max(other.max);
    }

    /// What was noted since these had been all; the longest queue is that of both times.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            weight: self.weight - earlier.weight,
            weighted_means: self.weighted_means - earlier.weighted_means,
            weighted_variances: (self.weighted_variances - earlier.weighted_variances).max(0.0),
            max: self.max,
        }
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

/// How a figure compares with its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is on the right side.
    Met,
    /// It is not.
    Missed,
    /// It has a value, but of too little to say anything.
    TooLittle,
    /// There was nothing to compute it from.
    Unknown,
}

impl Verdict {
    /// In words.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::TooLittle => "too little to judge",
            Self::Unknown => "unknown",
        }
    }
}

/// A verdict needs a run of at least this.
const WALL_TO_JUDGE_NS: u64 = 100_000_000;
/// So many pieces of work for each worker.
const PIECES_TO_JUDGE: u64 = 2;
/// So many pieces of one kind.
const OF_A_KIND_TO_JUDGE: u64 = 5;
/// A piece that takes less than this part of the run holds nobody up.
const STRAGGLER_PART: u64 = 50;

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
    /// Whether there is enough to compare the two.
    pub is_enough: bool,
}

impl Figure {
    /// Whether the target was met; nothing when the value is unknown or of too little.
    #[must_use]
    pub fn met(&self) -> Option<bool> {
        match self.verdict() {
            Verdict::Met => Some(true),
            Verdict::Missed => Some(false),
            Verdict::TooLittle | Verdict::Unknown => None,
        }
    }

    /// How it compares with its target.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let Some(value) = self.value else {
            return Verdict::Unknown;
        };
        let is_met = match self.target {
            Target::Below(limit) => value < limit,
            Target::Above(limit) => value > limit,
        };
        match (self.is_enough, is_met) {
            (false, _) => Verdict::TooLittle,
            (true, true) => Verdict::Met,
            (true, false) => Verdict::Missed,
        }
    }
}

/// The four figures of one run, each with its target.
///
/// ```
/// use loxley_balance::{BalanceReport, Observations, QueueDepths, Sketch};
///
/// let second = 1_000_000_000;
/// let mut durations = Sketch::default();
/// [40, 50, 50, 50, 90].into_iter().for_each(|s| durations.record(s * second));
/// let mut queue_depths = QueueDepths::default();
/// queue_depths.sample([0, 1]);
/// let report = BalanceReport::new(&Observations {
///     busy_ns: &[150 * second, 130 * second],
///     wall_ns: 150 * second,
///     durations: &durations,
///     queue_depths: &queue_depths,
/// });
/// assert_eq!(report.to_string(), "\
/// load imbalance         1.07    target < 1.20    met
/// straggler ratio        1.79    target < 2.00    met
/// worker utilization     93.3 %  target > 90.0 %  met
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
    wall_ns: u64,
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
        let pieces = observations.durations.count();
        let workers = observations.busy_ns.len() as u64;
        let is_long = observations.wall_ns >= WALL_TO_JUDGE_NS;
        let is_shared = is_long && pieces >= PIECES_TO_JUDGE * workers;
        let mut report = Self {
            wall_ns: observations.wall_ns,
            load_imbalance: Figure {
                name: "load imbalance",
                value: load_imbalance(observations.busy_ns),
                target: Target::Below(targets.load_imbalance),
                is_share: false,
                is_enough: is_shared,
            },
            straggler_ratio: Figure {
                name: "straggler ratio",
                value: None,
                target: Target::Below(targets.straggler_ratio),
                is_share: false,
                is_enough: false,
            },
            utilization: Figure {
                name: "worker utilization",
                value: utilization(observations.busy_ns, observations.wall_ns),
                target: Target::Above(targets.utilization),
                is_share: true,
                is_enough: is_shared,
            },
            queue_depth_variance: Figure {
                name: "queue-depth variance",
                value: depths.variance(),
                target: Target::Below(targets.queue_depth_dispersion * scale),
                is_share: false,
                is_enough: is_shared,
            },
        };
        report.compare_durations(core::iter::once(observations.durations));
        report
    }

    /// The same report, with the straggler ratio of the kind of work where it is the worst: what is of another kind may
    /// well take longer.
    #[must_use]
    pub fn with_kinds<'a>(mut self, kinds: impl IntoIterator<Item = &'a Sketch>) -> Self {
        self.compare_durations(kinds);
        self
    }

    fn compare_durations<'a>(&mut self, kinds: impl IntoIterator<Item = &'a Sketch>) {
        let limit = match self.straggler_ratio.target {
            Target::Below(limit) | Target::Above(limit) => limit,
        };
        let judged = |durations: &Sketch, ratio: f64| {
            let (max, median) = (
                durations.max().unwrap_or(0),
                durations.median().unwrap_or(0),
            );
            let longer = max.saturating_sub(median);
            self.wall_ns >= WALL_TO_JUDGE_NS
                && durations.count() >= OF_A_KIND_TO_JUDGE
                && (ratio < limit || longer >= self.wall_ns / STRAGGLER_PART)
        };
        let ratios = kinds.into_iter().filter_map(|durations| {
            let ratio = straggler_ratio(durations)?;
            Some((judged(durations, ratio), ratio))
        });
        // What can be judged comes before what cannot.
        let worst = ratios.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        self.straggler_ratio.value = worst.map(|(_, ratio)| ratio);
        self.straggler_ratio.is_enough = worst.is_some_and(|(enough, _)| enough);
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
        let verdict = self.verdict().word();
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
    use alloc::vec::Vec;

    const SECOND: u64 = 1_000_000_000;

    /// Two workers that were busy all the time, with these kinds of work.
    fn with_wall(wall_ns: u64, kinds: &[&[u64]]) -> BalanceReport {
        let all: Vec<u64> = kinds.concat();
        let all = durations(&all);
        let kinds: Vec<Sketch> = kinds.iter().map(|kind| durations(kind)).collect();
        let observations = Observations {
            busy_ns: &[wall_ns, wall_ns],
            wall_ns,
            durations: &all,
            queue_depths: &QueueDepths::default(),
        };
        BalanceReport::new(&observations).with_kinds(&kinds)
    }

    #[test]
    fn a_verdict_needs_enough_to_judge() {
        let short = with_wall(SECOND / 100, &[&[1_000_000; 9], &[9_000_000; 9]]);
        assert_eq!(short.straggler_ratio.verdict(), Verdict::TooLittle);
        assert_eq!(short.utilization.verdict(), Verdict::TooLittle);
        // Fewer pieces than twice the workers cannot be even.
        let few = with_wall(SECOND, &[&[SECOND, SECOND, SECOND]]);
        assert_eq!(few.load_imbalance.verdict(), Verdict::TooLittle);
        assert_eq!(few.straggler_ratio.verdict(), Verdict::TooLittle);
        // A hundredth of a second more holds nobody up in a run of ten.
        let hiccup = [
            SECOND / 1000,
            SECOND / 1000,
            SECOND / 1000,
            SECOND / 1000,
            SECOND / 100,
        ];
        let long = with_wall(10 * SECOND, &[&hiccup]);
        assert_eq!(long.straggler_ratio.verdict(), Verdict::TooLittle);
        assert_eq!(long.load_imbalance.verdict(), Verdict::Met);
    }

    #[test]
    fn only_work_of_one_kind_is_compared() {
        let even = with_wall(90 * SECOND, &[&[SECOND; 9], &[9 * SECOND; 9]]);
        assert_eq!(even.straggler_ratio.value, Some(1.0));
        assert_eq!(even.straggler_ratio.verdict(), Verdict::Met);
        let odd = [SECOND, SECOND, SECOND, SECOND, 9 * SECOND];
        let odd = with_wall(90 * SECOND, &[&odd, &[9 * SECOND; 9]]);
        // A sketch knows its median to a percent.
        let ratio = odd.straggler_ratio.value.unwrap_or_default();
        assert!((8.9..=9.1).contains(&ratio), "{ratio}");
        assert_eq!(odd.straggler_ratio.verdict(), Verdict::Missed);
    }

    #[test]
    fn queue_lengths_of_a_part_of_the_time() {
        let mut all = QueueDepths::default();
        all.sample([0, 4]);
        let before = all;
        all.sample([1, 1]);
        assert_eq!(all.since(&before).variance(), Some(0.0));
        let mut merged = before;
        merged.merge(&all.since(&before));
        assert_eq!(merged, all);
    }

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
            wall_ns: SECOND,
            durations: &durations(&[1, 1]),
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
            is_enough: true,
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
            busy_ns: &[30 * SECOND, 10 * SECOND],
            wall_ns: 40 * SECOND,
            durations: &durations(&[10, 10, 10, 10, 50].map(|s| s * SECOND)),
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

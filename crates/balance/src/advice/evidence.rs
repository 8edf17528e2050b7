//! What a sample of costs shows.

use alloc::vec::Vec;
use core::fmt;

use super::{Brief, TARGET};

/// Up to this coefficient of variation items count as alike.
const UNIFORM_VARIATION: f64 = 0.1;

/// From this many times the mean on, the costliest hundredth is a long tail. An exponential
/// distribution has 5.6; a log-normal one has 9 at σ = 1 and 37 at σ = 2.
const LONG_TAIL: f64 = 10.0;

/// From this correlation on, an item's cost can be told from its place or its neighbour.
const PREDICTABLE: f64 = 0.5;

/// A sample below this size is said to be small.
const SMALL_SAMPLE: usize = 30;

/// The figures that decide about a strategy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// How many items the sample has.
    pub count: usize,
    /// How many parts they are for.
    pub parts: usize,
    /// The mean cost.
    pub mean: f64,
    /// The (lower) median cost.
    pub median: f64,
    /// 95 of 100 items cost no more.
    pub percentile_95: f64,
    /// 99 of 100 items cost no more.
    pub percentile_99: f64,
    /// The largest cost.
    pub largest: f64,
    /// The coefficient of variation: standard deviation ÷ mean; 0 when all costs are 0.
    pub variation: f64,
    /// The largest cost ÷ the mean.
    pub largest_ratio: f64,
    /// The largest cost ÷ the fair share of one part.
    pub largest_share: f64,
    /// The share of the whole cost that the costliest 1 % of the items hold (at least one item).
    pub tail_share: f64,
    /// The mean of those items ÷ the mean of all.
    pub tail_ratio: f64,
    /// The correlation of cost with place in the order: 1 rises, −1 falls, 0 neither.
    pub trend: f64,
    /// The correlation of each cost with the one before it.
    pub autocorrelation: f64,
}

impl Evidence {
    /// Takes the figures of checked costs, at least one, in their original order.
    pub(super) fn new(costs: &[f64], parts: usize) -> Self {
        let count = costs.len();
        let total: f64 = costs.iter().sum();
        let mean = total / count as f64;
        let mut sorted: Vec<f64> = costs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let largest = sorted[count - 1];
        let tail_count = count.div_ceil(100);
        let tail: f64 = sorted[count - tail_count..].iter().sum();
        // Costs of nothing are all alike: each one the mean, none of them a load.
        let over_mean = |cost: f64| if mean > 0.0 { cost / mean } else { 1.0 };
        let fair_count = count as f64 / parts as f64;
        let tail_ratio = over_mean(tail / tail_count as f64);
        Self {
            count,
            parts,
            mean,
            median: percentile(&sorted, 50),
            percentile_95: percentile(&sorted, 95),
            percentile_99: percentile(&sorted, 99),
            largest,
            variation: variation(costs, mean),
            largest_ratio: over_mean(largest),
            largest_share: if mean > 0.0 {
                over_mean(largest) / fair_count
            } else {
                0.0
            },
            tail_share: tail_ratio * tail_count as f64 / count as f64,
            tail_ratio,
            trend: trend(costs, mean),
            autocorrelation: autocorrelation(costs, mean),
        }
    }

    /// All items cost nearly the same.
    #[must_use]
    pub fn is_uniform(&self) -> bool {
        self.variation <= UNIFORM_VARIATION
    }

    /// A few items cost many times the mean.
    #[must_use]
    pub fn is_long_tailed(&self) -> bool {
        self.tail_ratio >= LONG_TAIL
    }

    /// A single item started last could push a part over the target, however well the rest is
    /// spread: handing items out blindly is off by at most the largest item.
    #[must_use]
    pub fn has_large_items(&self) -> bool {
        self.largest_share >= large_share()
    }

    /// An item's cost can be told from its place or from its neighbour's.
    #[must_use]
    pub fn looks_predictable(&self) -> bool {
        let correlation = self.trend.abs().max(self.autocorrelation);
        correlation >= self.predictable_from()
    }

    /// The correlation that counts: a small sample shows some by accident (about 1/√n).
    #[must_use]
    pub fn predictable_from(&self) -> f64 {
        PREDICTABLE.max(2.0 / libm::sqrt(self.count as f64))
    }

    /// The imbalance below which no strategy can come without splitting items.
    #[must_use]
    pub fn floor(&self) -> f64 {
        self.largest_share.max(1.0)
    }

    /// A limit that keeps one item from deciding the end of the run, yet cuts off no more than one
    /// in a hundred: the larger of what makes an item large and the 99th percentile.
    #[must_use]
    pub fn time_limit(&self) -> f64 {
        let fair_share = self.mean * self.count as f64 / self.parts as f64;
        (large_share() * fair_share).max(self.percentile_99)
    }
}

/// The share of a part's work from which an item is large: as much as the target leaves.
fn large_share() -> f64 {
    TARGET - 1.0
}

/// The smallest value that so many of 100 values do not exceed.
fn percentile(sorted: &[f64], rank: usize) -> f64 {
    let at = (sorted.len() * rank).div_ceil(100).max(1);
    sorted[at - 1]
}

fn variation(costs: &[f64], mean: f64) -> f64 {
    if mean == 0.0 {
        return 0.0;
    }
    // Dividing before squaring keeps huge costs finite.
    let squares: f64 = costs.iter().map(|cost| square(cost / mean - 1.0)).sum();
    libm::sqrt(squares / costs.len() as f64)
}

fn trend(costs: &[f64], mean: f64) -> f64 {
    let middle = (costs.len() - 1) as f64 / 2.0;
    let places = (0..costs.len()).map(|place| place as f64 - middle);
    correlation(places.zip(costs.iter().map(|cost| deviation(*cost, mean))))
}

fn autocorrelation(costs: &[f64], mean: f64) -> f64 {
    let around = costs.iter().map(|cost| deviation(*cost, mean));
    correlation(around.clone().zip(around.skip(1)))
}

fn deviation(cost: f64, mean: f64) -> f64 {
    if mean > 0.0 { cost / mean - 1.0 } else { 0.0 }
}

/// The correlation of pairs that already are deviations; 0 when one side does not vary.
fn correlation(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (mut products, mut firsts, mut seconds) = (0.0, 0.0, 0.0);
    for (first, second) in pairs {
        products += first * second;
        firsts += square(first);
        seconds += square(second);
    }
    let scale = libm::sqrt(firsts) * libm::sqrt(seconds);
    if scale > 0.0 { products / scale } else { 0.0 }
}

fn square(number: f64) -> f64 {
    number * number
}

impl fmt::Display for Evidence {
    /// Five labelled lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let small = if self.count < SMALL_SAMPLE {
            " (a small sample)"
        } else {
            ""
        };
        writeln!(
            f,
            "evidence   {} items on {} parts{small}",
            self.count, self.parts
        )?;
        writeln!(
            f,
            "cost       mean {}, median {}, 95 % below {}, largest {}",
            Brief(self.mean),
            Brief(self.median),
            Brief(self.percentile_95),
            Brief(self.largest)
        )?;
        writeln!(
            f,
            "variation  {:.1} % of the mean; alike up to {:.0} %",
            self.variation * 100.0,
            UNIFORM_VARIATION * 100.0
        )?;
        writeln!(
            f,
            "largest    {:.2} × the mean, {:.2} × the fair share of a part; large from {:.2}",
            self.largest_ratio,
            self.largest_share,
            large_share()
        )?;
        writeln!(
            f,
            "tail       the costliest 1 % hold {:.1} % and average {:.1} × the mean; long from {LONG_TAIL}",
            self.tail_share * 100.0,
            self.tail_ratio
        )?;
        write!(
            f,
            "order      trend {:.2}, neighbours {:.2}; predictable from {:.2}",
            self.trend,
            self.autocorrelation,
            self.predictable_from()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-12
    }

    #[test]
    fn figures_by_hand() {
        let evidence = Evidence::new(&[1.0, 2.0, 3.0, 6.0], 2);
        assert_eq!(
            (evidence.count, evidence.mean, evidence.median),
            (4, 3.0, 2.0)
        );
        assert_eq!((evidence.largest, evidence.largest_ratio), (6.0, 2.0));
        assert_eq!(evidence.largest_share, 1.0);
        // Deviations −2 −1 0 3: variance 14/4.
        assert!(close(evidence.variation, libm::sqrt(3.5) / 3.0));
        assert!(close(evidence.tail_share, 0.5) && close(evidence.tail_ratio, 2.0));
        // Places −1.5 −0.5 0.5 1.5: products 3 + 0.5 + 0 + 4.5 = 8, squares 5 and 14.
        assert!(close(evidence.trend, 8.0 / libm::sqrt(70.0)));
        // Neighbours (−2, −1) (−1, 0) (0, 3): products 2, squares 5 and 10.
        assert!(close(evidence.autocorrelation, 2.0 / libm::sqrt(50.0)));
    }

    #[test]
    fn percentiles_are_values_of_the_sample() {
        let sorted: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(percentile(&sorted, 50), 100.0);
        assert_eq!(percentile(&sorted, 95), 190.0);
        assert_eq!(percentile(&sorted, 99), 198.0);
        assert_eq!(percentile(&[7.0], 1), 7.0);
    }

    #[test]
    fn the_tail_is_the_costliest_hundredth() {
        let mut costs = alloc::vec![1.0; 297];
        costs.extend([101.0; 3]);
        let evidence = Evidence::new(&costs, 2);
        assert!(close(evidence.tail_share, 303.0 / 600.0) && close(evidence.tail_ratio, 50.5));
        assert!(evidence.is_long_tailed());
    }

    #[test]
    fn order_shows_in_trend_or_in_neighbours() {
        let falling: Vec<f64> = (0..100).rev().map(f64::from).collect();
        assert!(close(Evidence::new(&falling, 2).trend, -1.0));
        // A slow wave has no trend but near neighbours.
        let wave: Vec<f64> = (0..400)
            .map(|n| 2.0 + libm::sin(f64::from(n) / 10.0))
            .collect();
        let evidence = Evidence::new(&wave, 2);
        assert!(evidence.trend.abs() < 0.1 && evidence.autocorrelation > 0.9);
        assert!(evidence.looks_predictable());
        // Ups and downs in turn can be told too, but not by being like the neighbour.
        let mut rng = crate::Rng::new(4);
        let noise: Vec<f64> = (0..400).map(|_| rng.unit_f64()).collect();
        assert!(!Evidence::new(&noise, 2).looks_predictable());
    }

    #[test]
    fn a_few_items_are_never_called_predictable_by_accident() {
        assert!(!Evidence::new(&[1.0, 2.0], 2).looks_predictable());
        assert!(!Evidence::new(&[1.0], 2).looks_predictable());
    }

    #[test]
    fn degenerate_samples_have_plain_figures() {
        for costs in [&[0.0, 0.0, 0.0][..], &[5.0], &[f64::MAX / 8.0; 4]] {
            let evidence = Evidence::new(costs, 2);
            assert!(
                evidence.is_uniform() && evidence.trend == 0.0,
                "{evidence:?}"
            );
            assert!(evidence.largest_share.is_finite() && evidence.tail_ratio == 1.0);
        }
    }

    #[test]
    fn costs_of_nothing_do_not_raise_the_floor() {
        assert_eq!(Evidence::new(&[0.0], 9).floor(), 1.0);
        assert_eq!(Evidence::new(&[2.0], 9).floor(), 9.0);
    }

    #[test]
    fn the_time_limit_spares_ninety_nine_in_a_hundred() {
        let mut costs = alloc::vec![1.0; 990];
        costs.extend([500.0; 10]);
        let evidence = Evidence::new(&costs, 4);
        // A fifth of the fair share of (990 + 5000) ÷ 4.
        assert!((evidence.time_limit() - 299.5).abs() < 1e-9);
        // Were the tail less heavy, the 99th percentile would spare more of it.
        let little = Evidence::new(&[1.0, 2.0, 30.0], 4);
        assert_eq!(little.time_limit(), 30.0);
    }
}

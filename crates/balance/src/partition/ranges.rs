//! P5: contiguous ranges of sorted data, split by weight, with the smallest possible maximum.
//!
//! The order of the items is kept, and of all ways to cut it into that many ranges none has a
//! lighter heaviest range. Cutting greedily at the average, as is often done, can miss by a factor
//! of two; this does not miss.
//!
//! How: a *probe* asks whether all ranges can stay within some limit, by filling each to the brim
//! with a binary search in the prefix sums, O(p log n). Bisection narrows the limit down, but on
//! both sides it snaps to sums that really occur (Pınar and Aykanat's exact bisection): a feasible
//! limit to the heaviest range it produced, an infeasible one to the lightest range that would
//! change the outcome. So it ends at the exact optimum, after at most about as many steps as the limit
//! has significant bits.
//!
//! Among the many optimal ways the ranges are then spread as evenly as the limit allows, instead
//! of all leftovers in the last one.
//!
//! Items with equal keys that must not be separated are one item: add up their weights first.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::{PartitionError, check};

/// Cuts the items into `parts` contiguous ranges, some perhaps empty, with the smallest possible
/// maximal weight.
///
/// ```
/// use loxley_balance::partition::ranges::ranges;
///
/// let cut = ranges(&[1.0, 1.0, 1.0, 9.0, 1.0, 1.0], 3)?;
/// assert_eq!(cut, [0..3, 3..4, 4..6]);
/// # Ok::<(), loxley_balance::PartitionError>(())
/// ```
///
/// Weights are summed as prefix sums in floating point: for whole numbers up to 2⁵³ in total the
/// result is exact, otherwise it is optimal up to the rounding of those sums.
///
/// # Errors
/// When there are no parts or a weight is not a weight.
pub fn ranges(weights: &[f64], parts: usize) -> Result<Vec<Range<usize>>, PartitionError> {
    check(weights, parts)?;
    let prefix = Prefix::new(weights);
    let limit = smallest_limit(&prefix, parts);
    Ok(spread(&prefix, parts, limit))
}

/// Sums of the first 0, 1, 2, … items.
///
/// Rounding keeps the sums monotone, hence the weight of a range grows with its end and shrinks
/// with its start. That is all the probe's argument needs, so it holds for rounded sums too.
struct Prefix {
    sums: Vec<f64>,
}

impl Prefix {
    fn new(weights: &[f64]) -> Self {
        let mut sums = Vec::with_capacity(weights.len() + 1);
        let mut sum = 0.0;
        sums.push(sum);
        for weight in weights {
            sum += weight;
            sums.push(sum);
        }
        Self { sums }
    }

    fn items(&self) -> usize {
        self.sums.len() - 1
    }

    fn weight(&self, start: usize, end: usize) -> f64 {
        self.sums[end] - self.sums[start]
    }

    /// The furthest end at which a range from `start` stays within `limit`.
    fn furthest_end(&self, start: usize, limit: f64) -> usize {
        let ends = &self.sums[start..];
        start + ends.partition_point(|sum| sum - self.sums[start] <= limit) - 1
    }

    /// The earliest start from which a range up to `end` stays within `limit`.
    fn earliest_start(&self, end: usize, limit: f64) -> usize {
        self.sums[..=end].partition_point(|sum| self.sums[end] - sum > limit)
    }
}

/// What filling every range to the brim of a limit leads to.
enum Probe {
    /// Everything fits; this is the heaviest range that came of it.
    Fits(f64),
    /// It does not; no limit below this one changes that.
    NeedsAtLeast(f64),
}

fn probe(prefix: &Prefix, parts: usize, limit: f64) -> Probe {
    let mut start = 0;
    let mut heaviest = 0.0_f64;
    let mut next_limit = f64::INFINITY;
    for _ in 0..parts {
        let end = prefix.furthest_end(start, limit);
        heaviest = heaviest.max(prefix.weight(start, end));
        if end == prefix.items() {
            return Probe::Fits(heaviest);
        }
        next_limit = next_limit.min(prefix.weight(start, end + 1));
        start = end;
    }
    Probe::NeedsAtLeast(next_limit)
}

fn smallest_limit(prefix: &Prefix, parts: usize) -> f64 {
    let total = prefix.weight(0, prefix.items());
    let heaviest_item = (0..prefix.items())
        .map(|item| prefix.weight(item, item + 1))
        .fold(0.0, f64::max);
    let low = heaviest_item.max(total / parts as f64);
    bisect(low, total, |limit| probe(prefix, parts, limit))
}

/// The smallest limit that fits, where nothing below `low` does (up to the rounding of the mean)
/// and `high` does.
fn bisect(mut low: f64, mut high: f64, mut probe: impl FnMut(f64) -> Probe) -> f64 {
    while low < high {
        match probe(low + (high - low) / 2.0) {
            Probe::Fits(heaviest) => high = heaviest,
            Probe::NeedsAtLeast(limit) => low = limit,
        }
    }
    high
}

/// Cuts near the even shares, but never so that a range, or what is left, breaks the limit.
fn spread(prefix: &Prefix, parts: usize, limit: f64) -> Vec<Range<usize>> {
    let earliest = earliest_starts(prefix, parts, limit);
    let mut cut = Vec::with_capacity(parts);
    let mut start = 0;
    for part in 0..parts {
        let left = parts - part;
        let share = prefix.weight(start, prefix.items()) / left as f64;
        let brim = prefix.furthest_end(start, limit);
        let end = nearest_end(prefix, start, share).clamp(earliest[part + 1], brim);
        cut.push(start..end);
        start = end;
    }
    assert_eq!(start, prefix.items(), "the limit was proven feasible");
    cut
}

/// For each part, the earliest item at which it may start so that the rest still fits.
fn earliest_starts(prefix: &Prefix, parts: usize, limit: f64) -> Vec<usize> {
    let mut starts = vec![prefix.items(); parts + 1];
    for part in (0..parts).rev() {
        starts[part] = prefix.earliest_start(starts[part + 1], limit);
    }
    starts
}

/// The end whose range from `start` is nearest to `share`, the shorter of two equally near ones.
fn nearest_end(prefix: &Prefix, start: usize, share: f64) -> usize {
    let below = prefix.furthest_end(start, share);
    if below == prefix.items() {
        return below;
    }
    let short_by = share - prefix.weight(start, below);
    let long_by = prefix.weight(start, below + 1) - share;
    if long_by < short_by { below + 1 } else { below }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heaviest(weights: &[f64], cut: &[Range<usize>]) -> f64 {
        cut.iter()
            .map(|range| weights[range.clone()].iter().sum())
            .fold(0.0, f64::max)
    }

    #[test]
    fn equal_weights_are_spread_evenly() {
        let cut = ranges(&[1.0; 10], 4).unwrap();
        let sizes: Vec<usize> = cut.iter().map(ExactSizeIterator::len).collect();
        assert!(sizes.iter().all(|size| (2..=3).contains(size)), "{sizes:?}");
    }

    #[test]
    fn cuts_are_made_where_they_come_nearest_to_the_even_share() {
        // The heavy item allows 9 everywhere; 23 ÷ 3 is nearer to four twos than to three.
        let weights = [2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 9.0];
        assert_eq!(ranges(&weights, 3).unwrap(), [0..4, 4..7, 7..8]);
    }

    #[test]
    fn cutting_greedily_at_the_average_would_be_worse() {
        // Filling up to the average of 6 gives 3 2 | 5 | 2 2 4, hence 8.
        let weights = [3.0, 2.0, 5.0, 2.0, 2.0, 4.0];
        let cut = ranges(&weights, 3).unwrap();
        assert_eq!(heaviest(&weights, &cut), 7.0);
    }

    #[test]
    fn one_heavy_item_stands_alone() {
        let weights = [1.0, 100.0, 1.0];
        assert_eq!(heaviest(&weights, &ranges(&weights, 3).unwrap()), 100.0);
        assert_eq!(heaviest(&weights, &ranges(&weights, 2).unwrap()), 101.0);
    }

    #[test]
    fn weightless_and_missing_items_are_fine() {
        assert_eq!(ranges(&[], 3).unwrap(), [0..0, 0..0, 0..0]);
        let cut = ranges(&[0.0; 4], 2).unwrap();
        assert_eq!((cut[0].start, cut[0].end, cut[1].end), (0, cut[1].start, 4));
        assert_eq!(
            ranges(&[2.0], 3)
                .unwrap()
                .iter()
                .map(ExactSizeIterator::len)
                .sum::<usize>(),
            1
        );
    }

    #[test]
    fn no_parts_and_bad_weights_are_refused() {
        assert_eq!(ranges(&[1.0], 0), Err(PartitionError::NoParts));
        assert!(ranges(&[f64::NAN], 1).is_err());
    }

    #[test]
    fn bisection_needs_few_probes() {
        let mut rng = crate::Rng::new(1);
        let weights: Vec<f64> = (0..200_000)
            .map(|_| rng.unit_f64() * rng.unit_f64())
            .collect();
        let prefix = Prefix::new(&weights);
        let total = prefix.weight(0, weights.len());
        let mut probes = 0;
        let limit = bisect(total / 64.0, total, |limit| {
            probes += 1;
            probe(&prefix, 64, limit)
        });
        assert!(probes < 40, "{probes} probes");
        assert!(matches!(probe(&prefix, 64, limit), Probe::Fits(heaviest) if heaviest == limit));
        assert!(matches!(
            probe(&prefix, 64, limit.next_down()),
            Probe::NeedsAtLeast(_)
        ));
    }
}

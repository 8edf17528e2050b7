//! A bounded summary of any number of durations: count, sum, extremes exactly, quantiles nearly.
//!
//! The picture is a ruler whose marks grow with the distance: below 128 there is a bucket for every
//! value, above it each doubling is cut into 64 equal buckets. A quantile is answered with the
//! middle of its bucket, which is off by less than 1/128 (0.8 %) of the value. A hundred million
//! durations between a microsecond and an hour need 19 KiB, and summaries of many workers add up
//! to exactly the summary of all they saw.

use alloc::vec::Vec;

/// The number of buckets per doubling, as a power of two.
const BITS: u32 = 6;

/// A streaming summary of durations in nanoseconds (or of any other whole numbers).
///
/// ```
/// use loxley_balance::Sketch;
///
/// let mut sketch = Sketch::default();
/// for ns in [10, 20, 30, 40, 5_000] {
///     sketch.record(ns);
/// }
/// assert_eq!(sketch.max(), Some(5_000));
/// assert_eq!(sketch.median(), Some(30));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    count: u64,
    sum: u128,
    extremes: Option<(u64, u64)>,
    /// How many values fell into each bucket; only as long as the highest one used.
    buckets: Vec<u64>,
}

impl Sketch {
    /// Notes one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_many(value, 1);
    }

    /// Notes the same value `times` times.
    #[inline]
    pub fn record_many(&mut self, value: u64, times: u64) {
        if times == 0 {
            return;
        }
        let bucket = bucket_of(value);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += times;
        self.count += times;
        self.sum += u128::from(value) * u128::from(times);
        self.widen(value, value);
    }

    /// Adds everything that `other` has seen.
    pub fn merge(&mut self, other: &Self) {
        let Some((low, high)) = other.extremes else {
            return;
        };
        if other.buckets.len() > self.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.widen(low, high);
    }

    /// How many values were noted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The exact sum of all values.
    #[must_use]
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The mean, from the exact sum.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The smallest value, exactly.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        self.extremes.map(|(low, _)| low)
    }

    /// The largest value, exactly.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        self.extremes.map(|(_, high)| high)
    }

    /// The lower median, within 0.8 %.
    #[must_use]
    pub fn median(&self) -> Option<u64> {
        self.quantile(0.5)
    }

    /// The smallest value that at least the share `rank` of all values does not exceed, within
    /// 0.8 %. A rank outside of 0 to 1 is taken as the nearer of the two (and NaN as 0).
    #[must_use]
    pub fn quantile(&self, rank: f64) -> Option<u64> {
        let (low, high) = self.extremes?;
        let wanted = (libm::ceil(rank * self.count as f64) as u64).clamp(1, self.count);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|&here| {
            seen += here;
            seen >= wanted
        })?;
        Some(middle_of(bucket).clamp(low, high))
    }

    fn widen(&mut self, low: u64, high: u64) {
        let (old_low, old_high) = self.extremes.unwrap_or((low, high));
        self.extremes = Some((old_low.min(low), old_high.max(high)));
    }
}

/// The bucket that holds `value`: the value itself while small, then octave and top bits.
#[inline]
fn bucket_of(value: u64) -> usize {
    let octave = (u64::BITS - value.leading_zeros()).saturating_sub(BITS + 1);
    ((u64::from(octave) << BITS) + (value >> octave)) as usize
}

/// The middle of a bucket; the inverse of [`bucket_of`] up to rounding.
fn middle_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let octave = (bucket >> BITS).saturating_sub(1);
    let low = (bucket - (octave << BITS)) << octave;
    low + ((1_u64 << octave) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_are_exact() {
        for value in 0..128 {
            assert_eq!(middle_of(bucket_of(value)), value);
        }
    }

    #[test]
    fn every_value_is_near_the_middle_of_its_bucket() {
        let mut rng = crate::Rng::new(1);
        for _ in 0..100_000 {
            let value = rng.next_u64() >> rng.below(64);
            let middle = middle_of(bucket_of(value));
            assert!(
                middle.abs_diff(value) as f64 <= value as f64 / 128.0,
                "{value} {middle}"
            );
        }
        assert_eq!(bucket_of(u64::MAX), bucket_of(u64::MAX - 1));
    }

    #[test]
    fn buckets_follow_the_order_of_values_without_gaps() {
        let mut last = bucket_of(0);
        for value in 1..100_000 {
            let bucket = bucket_of(value);
            assert!(bucket == last || bucket == last + 1, "{value}");
            last = bucket;
        }
    }

    #[test]
    fn quantiles_agree_with_sorting() {
        let mut rng = crate::Rng::new(2);
        let mut values: Vec<u64> = (0..5_001)
            .map(|_| rng.below(1 << 40) >> rng.below(30))
            .collect();
        let mut sketch = Sketch::default();
        values.iter().for_each(|&value| sketch.record(value));
        values.sort_unstable();
        for rank in [0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0] {
            let exact = values[(libm::ceil(rank * 5_001.0) as usize).max(1) - 1];
            let near = sketch.quantile(rank).unwrap();
            assert!(
                near.abs_diff(exact) as f64 <= exact as f64 / 128.0,
                "{rank}: {near} {exact}"
            );
        }
        assert_eq!(sketch.min(), values.first().copied());
        assert_eq!(sketch.max(), values.last().copied());
        assert_eq!(
            sketch.sum(),
            values.iter().map(|&value| u128::from(value)).sum()
        );
    }

    #[test]
    fn merged_summaries_equal_the_summary_of_all() {
        let (mut one, mut other, mut all) = <(Sketch, Sketch, Sketch)>::default();
        for value in 0..1_000_u64 {
            let part = if value % 3 == 0 { &mut one } else { &mut other };
            part.record(value * value);
            all.record(value * value);
        }
        one.merge(&other);
        one.merge(&Sketch::default());
        assert_eq!(one, all);
    }

    #[test]
    fn nothing_seen_is_nothing_known() {
        let sketch = Sketch::default();
        assert_eq!(
            (sketch.median(), sketch.max(), sketch.mean()),
            (None, None, None)
        );
    }

    #[test]
    fn an_hour_in_nanoseconds_fits_the_promised_memory() {
        let mut sketch = Sketch::default();
        sketch.record(3_600_000_000_000);
        assert!(
            sketch.buckets.len() * 8 <= 19 * 1024,
            "{}",
            sketch.buckets.len() * 8
        );
    }
}

//! Means with their uncertainty, and whether a difference is more than noise.

use std::fmt;

/// A mean of independent runs with its 95 % confidence interval (Student's t).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half of the interval's width; infinite for a single run.
    pub half_width: f64,
    /// How many runs.
    pub runs: usize,
}

impl Estimate {
    /// The estimate from these runs.
    ///
    /// # Panics
    /// Without any run.
    #[must_use]
    pub fn of(runs: &[f64]) -> Self {
        assert!(!runs.is_empty(), "an estimate needs a run");
        let count = runs.len() as f64;
        let mean = runs.iter().sum::<f64>() / count;
        let squares: f64 = runs.iter().map(|run| (run - mean) * (run - mean)).sum();
        let half_width = if runs.len() < 2 {
            f64::INFINITY
        } else {
            let deviation = libm::sqrt(squares / (count - 1.0));
            student_t(runs.len() - 1) * deviation / libm::sqrt(count)
        };
        Self {
            mean,
            half_width,
            runs: runs.len(),
        }
    }

    /// The estimate of the difference `second - first` of runs made in pairs (same seed, hence the
    /// same workload): what the pairs have in common cancels out.
    ///
    /// # Panics
    /// When the lists differ in length or are empty.
    #[must_use]
    pub fn of_differences(first: &[f64], second: &[f64]) -> Self {
        assert_eq!(first.len(), second.len(), "runs come in pairs");
        let differences: Vec<f64> = first.iter().zip(second).map(|(a, b)| b - a).collect();
        Self::of(&differences)
    }

    /// Whether zero lies outside the interval: for a difference, whether it is more than noise.
    #[must_use]
    pub fn excludes_zero(&self) -> bool {
        self.mean.abs() > self.half_width
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.half_width.is_finite() {
            write!(f, "{:.4} ± {:.4}", self.mean, self.half_width)
        } else {
            write!(f, "{:.4}", self.mean)
        }
    }
}

/// The two-sided 95 % quantile of Student's t: a table, then its expansion in 1/n around 1.96.
fn student_t(degrees: usize) -> f64 {
    const TABLE: [f64; 10] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    ];
    if let Some(&value) = TABLE.get(degrees.wrapping_sub(1)) {
        return value;
    }
    let z = 1.959_964;
    let n = degrees as f64;
    let first = (z * z * z + z) / 4.0;
    let second = (5.0 * libm::pow(z, 5.0) + 16.0 * z * z * z + 3.0 * z) / 96.0;
    let third =
        (3.0 * libm::pow(z, 7.0) + 19.0 * libm::pow(z, 5.0) + 17.0 * z * z * z - 15.0 * z) / 384.0;
    z + first / n + second / (n * n) + third / (n * n * n)
}

#[cfg(test)]
mod tests {
    use super::{Estimate, student_t};

    #[test]
    fn quantiles_agree_with_the_printed_table() {
        for (degrees, printed) in [
            (1, 12.706),
            (10, 2.228),
            (11, 2.201),
            (20, 2.086),
            (120, 1.980),
        ] {
            assert!((student_t(degrees) - printed).abs() < 0.002, "{degrees}");
        }
    }

    #[test]
    fn pairs_cancel_what_they_share() {
        let first = [10.0, 20.0, 30.0, 40.0];
        let second = [9.0, 19.1, 28.9, 39.0];
        let difference = Estimate::of_differences(&first, &second);
        assert!(difference.excludes_zero(), "{difference}");
        assert!((difference.mean + 1.0).abs() < 1e-9);
        assert!(!Estimate::of(&[-1.0, 1.0, -1.0, 1.1]).excludes_zero());
        assert!(
            !Estimate::of(&[5.0]).excludes_zero(),
            "one run says nothing"
        );
    }
}

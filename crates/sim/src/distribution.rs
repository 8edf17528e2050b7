//! How long things take: distributions that people write in scenarios.
//!
//! Logarithms and powers come from `libm`, so a seed gives the same durations on every machine.

use loxley_balance::Rng;
use serde::Deserialize;

use crate::time::{Nanos, nanos};

/// A distribution of durations, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Distribution {
    /// Always the same.
    Fixed(f64),
    /// Evenly between two values.
    Uniform(f64, f64),
    /// Exponential with this mean.
    Exponential(f64),
    /// Log-normal: half are below `median`; `sigma` is the spread of the logarithm.
    LogNormal {
        /// The middle value.
        median: f64,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
    },
    /// A heavy tail: at least `minimum`, and beyond x with probability (minimum ÷ x)^shape.
    Pareto {
        /// The smallest value.
        minimum: f64,
        /// Smaller is heavier; the mean exists above 1.
        shape: f64,
    },
    /// `common`, but `rare` with the given chance.
    Mixed {
        /// The usual value.
        common: f64,
        /// The unusual one.
        rare: f64,
        /// How often it is unusual, 0 to 1.
        chance: f64,
    },
}

impl Distribution {
    /// Draws one duration.
    pub fn sample(&self, rng: &mut Rng) -> Nanos {
        nanos(self.seconds(rng))
    }

    fn seconds(&self, rng: &mut Rng) -> f64 {
        match *self {
            Self::Fixed(value) => value,
            Self::Uniform(low, high) => low + (high - low) * rng.unit_f64(),
            Self::Exponential(mean) => exponential(mean, rng),
            Self::LogNormal { median, sigma } => median * libm::exp(sigma * normal(rng)),
            Self::Pareto { minimum, shape } => {
                minimum / libm::pow(1.0 - rng.unit_f64(), 1.0 / shape)
            }
            Self::Mixed {
                common,
                rare,
                chance,
            } => {
                if rng.chance(chance) {
                    rare
                } else {
                    common
                }
            }
        }
    }

    /// The mean in seconds; infinite where it does not exist.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match *self {
            Self::Fixed(value) | Self::Exponential(value) => value,
            Self::Uniform(low, high) => f64::midpoint(low, high),
            Self::LogNormal { median, sigma } => median * libm::exp(sigma * sigma / 2.0),
            Self::Pareto { minimum, shape } if shape > 1.0 => minimum * shape / (shape - 1.0),
            Self::Pareto { .. } => f64::INFINITY,
            Self::Mixed {
                common,
                rare,
                chance,
            } => common + (rare - common) * chance,
        }
    }

    /// Why these numbers make no distribution of durations, if they do not.
    #[must_use]
    pub fn problem(&self) -> Option<&'static str> {
        let duration = |value: f64| value >= 0.0 && value.is_finite();
        let good = match *self {
            Self::Fixed(value) | Self::Exponential(value) => duration(value),
            Self::Uniform(low, high) => duration(low) && duration(high) && low <= high,
            Self::LogNormal { median, sigma } => duration(median) && duration(sigma),
            Self::Pareto { minimum, shape } => duration(minimum) && shape > 0.0,
            Self::Mixed {
                common,
                rare,
                chance,
            } => duration(common) && duration(rare) && (0.0..=1.0).contains(&chance),
        };
        (!good).then_some("durations must be finite and not negative, low before high")
    }
}

/// An exponential duration in seconds; also the time between arrivals of a Poisson process.
pub(crate) fn exponential(mean: f64, rng: &mut Rng) -> f64 {
    -mean * libm::log(1.0 - rng.unit_f64())
}

/// A standard normal number (Box and Muller; the second of the pair is not kept).
fn normal(rng: &mut Rng) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - rng.unit_f64()));
    radius * libm::cos(std::f64::consts::TAU * rng.unit_f64())
}

#[cfg(test)]
mod tests {
    use loxley_balance::Rng;

    use super::Distribution;
    use crate::time::seconds;

    #[test]
    fn sample_means_are_the_means_they_claim() {
        let all = [
            Distribution::Fixed(2.0),
            Distribution::Uniform(0.5, 2.0),
            Distribution::Exponential(3.0),
            Distribution::LogNormal {
                median: 1.0,
                sigma: 0.8,
            },
            Distribution::Pareto {
                minimum: 1.0,
                shape: 3.5,
            },
            Distribution::Mixed {
                common: 1.0,
                rare: 11.0,
                chance: 0.1,
            },
        ];
        for distribution in all {
            assert_eq!(distribution.problem(), None);
            let mut rng = Rng::new(5).child("test");
            let count = 200_000;
            let total: f64 = (0..count)
                .map(|_| seconds(distribution.sample(&mut rng)))
                .sum();
            let error = total / f64::from(count) / distribution.mean() - 1.0;
            assert!(error.abs() < 0.02, "{distribution:?}: {error}");
        }
    }

    #[test]
    fn impossible_durations_are_refused() {
        assert!(Distribution::Uniform(2.0, 1.0).problem().is_some());
        assert!(Distribution::Fixed(f64::NAN).problem().is_some());
    }
}

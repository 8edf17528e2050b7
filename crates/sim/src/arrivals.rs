//! When tasks come in: all at once, at random, in bursts, or as a log says.

use loxley_balance::Rng;
use serde::Deserialize;

use crate::distribution::exponential;
use crate::time::{Nanos, nanos, seconds};

/// A process of arrivals. Rates are per second.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Arrivals {
    /// Everything at the start.
    #[default]
    AtOnce,
    /// Everything at this moment, in seconds.
    At(f64),
    /// At random with this rate.
    Poisson(f64),
    /// At random, with a second rate during bursts.
    Bursty {
        /// The usual rate.
        rate: f64,
        /// The rate during a burst.
        burst_rate: f64,
        /// From the start of one burst to the start of the next, in seconds.
        every: f64,
        /// How long a burst lasts, in seconds.
        lasting: f64,
    },
}

impl Arrivals {
    /// When the next one comes after one at `previous`.
    pub fn next(&self, previous: Nanos, rng: &mut Rng) -> Nanos {
        match *self {
            Self::AtOnce => previous,
            Self::At(moment) => nanos(moment),
            Self::Poisson(rate) => previous + nanos(exponential(1.0 / rate, rng)),
            Self::Bursty {
                rate,
                burst_rate,
                every,
                lasting,
            } => next_bursty(seconds(previous), [rate, burst_rate], every, lasting, rng),
        }
    }

    /// Why these numbers make no process of arrivals, if they do not.
    #[must_use]
    pub fn problem(&self) -> Option<&'static str> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let good = match *self {
            Self::AtOnce => true,
            Self::At(moment) => moment >= 0.0 && moment.is_finite(),
            Self::Poisson(rate) => positive(rate),
            Self::Bursty {
                rate,
                burst_rate,
                every,
                lasting,
            } => rate >= 0.0 && positive(burst_rate) && positive(lasting) && every > lasting,
        };
        (!good).then_some("rates and times must be positive, and bursts shorter than their period")
    }
}

/// Walks the phases (quiet, then burst, in every period) until one arrival falls into its phase.
fn next_bursty(
    mut moment: f64,
    [quiet, burst]: [f64; 2],
    every: f64,
    lasting: f64,
    rng: &mut Rng,
) -> Nanos {
    loop {
        let period = libm::floor(moment / every);
        let burst_start = period * every + (every - lasting);
        let (rate, phase_end) = if moment < burst_start {
            (quiet, burst_start)
        } else {
            (burst, (period + 1.0) * every)
        };
        let gap = if rate > 0.0 {
            exponential(1.0 / rate, rng)
        } else {
            f64::INFINITY
        };
        if moment + gap < phase_end {
            return nanos(moment + gap);
        }
        moment = phase_end;
    }
}

#[cfg(test)]
mod tests {
    use loxley_balance::Rng;

    use super::Arrivals;
    use crate::time::{SECOND, seconds};

    fn moments(arrivals: Arrivals, count: usize) -> Vec<u64> {
        let mut rng = Rng::new(3);
        let mut now = 0;
        let mut next = || {
            now = arrivals.next(now, &mut rng);
            now
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn poisson_has_its_rate() {
        let moments = moments(Arrivals::Poisson(4.0), 40_000);
        let rate = 40_000.0 / seconds(moments[39_999]);
        assert!((rate / 4.0 - 1.0).abs() < 0.02, "{rate}");
    }

    #[test]
    fn bursts_hold_what_they_should() {
        let bursty = Arrivals::Bursty {
            rate: 1.0,
            burst_rate: 20.0,
            every: 10.0,
            lasting: 2.0,
        };
        let moments = moments(bursty, 48_000);
        let in_burst = moments
            .iter()
            .filter(|moment| *moment % (10 * SECOND) >= 8 * SECOND)
            .count();
        let share = in_burst as f64 / 48_000.0;
        assert!((share - 40.0 / 48.0).abs() < 0.01, "{share}");
    }
}

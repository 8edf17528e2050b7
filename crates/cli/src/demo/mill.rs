//! Real work of a chosen length: rounds of integer mixing that no compiler can skip.

use std::hint::black_box;
use std::time::{Duration, Instant};

use loxley::Context;

/// After so many rounds it is asked whether anybody still wants the result.
const ROUNDS_BETWEEN_LOOKS: u64 = 100_000;

/// Knows how much work this machine does in a microsecond.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mill {
    rounds_per_us: f64,
}

impl Mill {
    /// Measures the machine; the fastest of a few runs is the least disturbed.
    pub(super) fn calibrate() -> Self {
        const ROUNDS: u64 = 4_000_000;
        let fastest = (0..5)
            .map(|_| {
                let begin = Instant::now();
                black_box(grind(ROUNDS, 1));
                begin.elapsed()
            })
            .min()
            .unwrap_or(Duration::from_millis(1));
        let micros = fastest.as_secs_f64() * 1e6;
        Self {
            rounds_per_us: ROUNDS as f64 / micros.max(1.0),
        }
    }

    /// Works for about so long, on a core of its own. None when nobody wanted the result any more.
    pub(super) fn work(&self, length: Duration, context: &Context) -> Option<u64> {
        let mut rounds = (length.as_secs_f64() * 1e6 * self.rounds_per_us) as u64;
        let mut value = 1;
        while rounds > 0 {
            if context.is_cancelled() {
                return None;
            }
            let now = rounds.min(ROUNDS_BETWEEN_LOOKS);
            value = grind(now, value);
            rounds -= now;
        }
        Some(value)
    }
}

fn grind(rounds: u64, start: u64) -> u64 {
    let mut value = black_box(start);
    for round in 0..rounds {
        value = (value ^ round)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23);
    }
    black_box(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_work_gives_the_same_value() {
        assert_eq!(grind(1000, 1), grind(1000, 1));
        assert_ne!(grind(1000, 1), grind(1001, 1));
        assert!(Mill::calibrate().rounds_per_us > 0.0);
    }
}

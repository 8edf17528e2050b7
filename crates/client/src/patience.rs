//! Waiting for something while the server comes and goes.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use loxley_balance::{Delay, Rng};

use crate::ClientError;

/// Pauses between attempts: longer from one to the next, each less a random part, so that a thousand
/// clients do not come back in the same moment.
#[derive(Clone, Debug)]
pub struct Patience {
    delay: Delay,
    rng: Rng,
    attempt: u32,
}

/// What somebody who waits may want to hear.
#[derive(Debug)]
pub enum Waiting<'a, T> {
    /// The state so far.
    Now(&'a T),
    /// The server is away; the next attempt comes after this pause.
    Away(&'a ClientError, Duration),
}

impl Patience {
    /// From 50 ms to 5 s.
    #[must_use]
    pub fn new() -> Self {
        // The hasher's keys are random and different in each process: enough to spread clients.
        let seed = RandomState::new().hash_one(std::process::id());
        let delay = Delay::new(50_000_000, 2.0, 5_000_000_000, 0.5);
        Self {
            delay: delay.expect("a law of growing waits"),
            rng: Rng::new(seed),
            attempt: 0,
        }
    }

    /// How long to wait after one more failure.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.delay.ns(self.attempt, &mut self.rng);
        self.attempt = self.attempt.saturating_add(1);
        Duration::from_nanos(pause)
    }

    /// Something worked: the next failure is the first again.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_start_anew() {
        let mut patience = Patience::new();
        let pauses: Vec<Duration> = (0..20).map(|_| patience.next_pause()).collect();
        assert!(pauses[0] <= Duration::from_millis(50));
        assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(5)));
        assert!(pauses[19] >= Duration::from_millis(2500));
        patience.reset();
        assert!(patience.next_pause() <= Duration::from_millis(50));
    }
}

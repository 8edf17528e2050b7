//! The engine's clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use loxley_model::Time;

/// The time: nanoseconds since the journal was made, but never backwards, whatever somebody does to the clock.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    at_start: u64,
    last: Time,
}

impl Clock {
    /// A clock that counts from this moment since 1970, and begins no earlier than `not_before`.
    #[must_use]
    pub fn new(epoch_unix_ns: u64, not_before: Time) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall = wall.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0));
        Self {
            started: Instant::now(),
            at_start: wall.saturating_sub(epoch_unix_ns).max(not_before.0),
            last: not_before,
        }
    }

    /// The time, without holding on to it.
    #[must_use]
    pub fn peek(&self) -> Time {
        let elapsed = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last.max(Time(self.at_start.saturating_add(elapsed)))
    }

    /// The time; no earlier one is given out from now on.
    pub fn now(&mut self) -> Time {
        self.last = self.peek();
        self.last
    }
}

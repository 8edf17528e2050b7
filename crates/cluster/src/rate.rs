//! So many per second, and a few at once after a pause.

use loxley_model::{Span, Time};

/// What is left of a rate. It goes by the time of facts, so that whoever takes over goes on with the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Rate {
    /// When everything that was taken so far would have been due, one after the other.
    due: Time,
}

impl Rate {
    /// How many may be taken now: at most as many as one second holds.
    #[must_use]
    pub fn left(self, now: Time, per_sec: u32) -> u32 {
        let ahead = self.due.0.saturating_sub(now.0);
        let room = SECOND.saturating_sub(ahead);
        u32::try_from(room / step(per_sec)).unwrap_or(u32::MAX)
    }

    /// Takes so many; whoever takes more than are left waits the longer for the next.
    pub fn take(&mut self, now: Time, per_sec: u32, count: u32) {
        let due = self.due.max(now);
        self.due = due + Span(step(per_sec).saturating_mul(u64::from(count)));
    }

    /// When the next one may be taken.
    #[must_use]
    pub fn next(self, per_sec: u32) -> Time {
        Time((self.due.0 + step(per_sec)).saturating_sub(SECOND))
    }
}

const SECOND: u64 = 1_000_000_000;

fn step(per_sec: u32) -> u64 {
    SECOND / u64::from(per_sec.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_rate_goes_through_and_all_of_it_does() {
        let (mut rate, mut taken) = (Rate::default(), 0);
        let start = 100 * SECOND;
        for tick in 0..10_000 {
            let now = Time(start + tick * SECOND / 1_000);
            if rate.left(now, 20) > 0 {
                rate.take(now, 20, 1);
                taken += 1;
            }
        }
        // Ten seconds, and what one second holds at the start.
        assert!((218..=220).contains(&taken), "{taken}");
    }

    #[test]
    fn it_says_when_the_next_one_may_go() {
        let (mut rate, now) = (Rate::default(), Time(50 * SECOND));
        assert_eq!(rate.left(now, 4), 4);
        rate.take(now, 4, 4);
        assert_eq!(rate.left(now, 4), 0);
        let next = rate.next(4);
        assert_eq!(next, Time(50 * SECOND + SECOND / 4));
        assert_eq!(rate.left(next, 4), 1);
    }
}

//! Waiting longer and longer: bounded search, then growing pauses with jitter, then sleep.
//!
//! Two things grow here and they are kept apart. A [`Delay`] is a law: "the n-th wait lasts so
//! long". Retries of failed tasks use it alone. A [`Backoff`] is where one searcher stands on its
//! way from eager to asleep; it uses a `Delay` for the middle part:
//!
//! ```text
//!   found nothing:  Search Search Search │ Pause  Pause    Pause        │ Park Park ...
//!                   └── searches ───────┘ └── pauses, each ~factor × ──┘
//!   found something: reset
//! ```
//!
//! Nothing here waits. The pool's threads, the simulator's virtual workers and the policy's timers
//! all carry the answer out in their own kind of time.

use core::fmt;

use crate::rng::Rng;

/// How long the n-th wait lasts: `base × factorⁿ`, at most `cap`, less a random part.
///
/// Jitter only shortens: a wait is drawn evenly from `(1 − jitter) × d ..= d`, so the cap holds,
/// and `jitter = 1` is what is known as full jitter.
///
/// ```
/// use loxley_balance::{Delay, Rng};
///
/// let retry = Delay::new(100, 2.0, 1_000, 0.0)?;
/// let mut rng = Rng::new(1);
/// let waits: Vec<u64> = (0..5).map(|attempt| retry.ns(attempt, &mut rng)).collect();
/// assert_eq!(waits, [100, 200, 400, 800, 1_000]);
/// # Ok::<(), loxley_balance::backoff::DelayError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delay {
    base_ns: u64,
    factor: f64,
    cap_ns: u64,
    jitter: f64,
}

impl Delay {
    /// A law that starts at `base_ns`, grows by `factor` and never exceeds `cap_ns`.
    ///
    /// # Errors
    /// When `factor` is not a finite number ≥ 1, `jitter` is not within 0 and 1, or the cap is
    /// below the base.
    pub fn new(base_ns: u64, factor: f64, cap_ns: u64, jitter: f64) -> Result<Self, DelayError> {
        if !(factor >= 1.0 && factor.is_finite()) {
            return Err(DelayError::Factor(factor));
        }
        if !(0.0..=1.0).contains(&jitter) {
            return Err(DelayError::Jitter(jitter));
        }
        if cap_ns < base_ns {
            return Err(DelayError::CapBelowBase { base_ns, cap_ns });
        }
        Ok(Self {
            base_ns,
            factor,
            cap_ns,
            jitter,
        })
    }

    /// The wait before attempt `attempt` (counted from 0) is made again.
    pub fn ns(&self, attempt: u32, rng: &mut Rng) -> u64 {
        let longest = self.longest_ns(attempt);
        let spread = (longest as f64 * self.jitter) as u64;
        if spread == 0 {
            return longest;
        }
        longest - rng.below(spread.min(longest).saturating_add(1))
    }

    /// The same wait without its random part: no draw for `attempt` is longer.
    #[must_use]
    pub fn longest_ns(&self, attempt: u32) -> u64 {
        let grown = self.base_ns as f64 * libm::pow(self.factor, f64::from(attempt));
        // 0 × ∞ is NaN, which casts to 0: a base of zero stays zero.
        (grown as u64).min(self.cap_ns)
    }
}

impl Default for Delay {
    /// One microsecond, doubled up to one millisecond, half of it random.
    fn default() -> Self {
        Self {
            base_ns: 1_000,
            factor: 2.0,
            cap_ns: 1_000_000,
            jitter: 0.5,
        }
    }
}

/// Why a [`Delay`] cannot be.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum DelayError {
    /// Waits that shrink, or grow to NaN or infinity at once.
    Factor(f64),
    /// A random part that is not a share of the whole.
    Jitter(f64),
    /// The longest wait would be shorter than the first.
    CapBelowBase {
        /// The first wait.
        base_ns: u64,
        /// The longest wait.
        cap_ns: u64,
    },
}

impl fmt::Display for DelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Factor(factor) => write!(f, "factor must be a finite number ≥ 1, not {factor}"),
            Self::Jitter(jitter) => write!(f, "jitter must be between 0 and 1, not {jitter}"),
            Self::CapBelowBase { base_ns, cap_ns } => {
                write!(
                    f,
                    "the cap of {cap_ns} ns is below the base of {base_ns} ns"
                )
            }
        }
    }
}

impl core::error::Error for DelayError {}

/// How often a searcher looks and pauses before it gives up and parks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience {
    /// Fruitless rounds that are repeated at once.
    pub searches: u32,
    /// Fruitless rounds after those that are repeated after a pause; `u32::MAX` never parks.
    pub pauses: u32,
    /// How the pauses grow.
    pub delay: Delay,
}

impl Default for Patience {
    /// Four searches, then six pauses (together at most 63 µs), then park.
    fn default() -> Self {
        Self {
            searches: 4,
            pauses: 6,
            delay: Delay::default(),
        }
    }
}

/// What a searcher that found nothing does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Look again at once.
    Search,
    /// Wait so long, then look again.
    Pause {
        /// Nanoseconds, in whatever time the searcher lives.
        ns: u64,
    },
    /// Sleep until woken.
    Park,
}

/// Where one searcher stands between eager and asleep: a count of fruitless rounds.
///
/// ```
/// use loxley_balance::{Backoff, Delay, Patience, Rng, Step};
///
/// let patience = Patience { searches: 1, pauses: 2, delay: Delay::new(50, 2.0, 80, 0.0)? };
/// let (mut backoff, mut rng) = (Backoff::default(), Rng::new(1));
/// assert_eq!(backoff.next(&patience, &mut rng), Step::Search);
/// assert_eq!(backoff.next(&patience, &mut rng), Step::Pause { ns: 50 });
/// assert_eq!(backoff.next(&patience, &mut rng), Step::Pause { ns: 80 });
/// assert_eq!(backoff.next(&patience, &mut rng), Step::Park);
/// backoff.reset();
/// assert_eq!(backoff.next(&patience, &mut rng), Step::Search);
/// # Ok::<(), loxley_balance::backoff::DelayError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    fruitless: u32,
}

impl Backoff {
    /// Notes one more fruitless round and says what to do about it.
    #[inline]
    pub fn next(&mut self, patience: &Patience, rng: &mut Rng) -> Step {
        let round = self.fruitless;
        self.fruitless = self.fruitless.saturating_add(1);
        let Some(pause) = round.checked_sub(patience.searches) else {
            return Step::Search;
        };
        if pause < patience.pauses {
            Step::Pause {
                ns: patience.delay.ns(pause, rng),
            }
        } else {
            Step::Park
        }
    }

    /// Something was found: the next search is eager again.
    #[inline]
    pub fn reset(&mut self) {
        self.fruitless = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_never_pass_the_cap_and_never_fall_below_the_unjittered_share() {
        let delay = Delay::new(1_000, 1.7, 1_000_000, 0.25).unwrap();
        let mut rng = Rng::new(4);
        for attempt in (0..40).chain([1_000, u32::MAX]) {
            let longest = delay.longest_ns(attempt);
            assert!(longest <= 1_000_000);
            for _ in 0..200 {
                let ns = delay.ns(attempt, &mut rng);
                assert!(ns <= longest && ns as f64 >= longest as f64 * 0.75 - 1.0);
            }
        }
        assert_eq!(delay.longest_ns(u32::MAX), 1_000_000);
    }

    #[test]
    fn full_jitter_reaches_both_ends() {
        let delay = Delay::new(3, 1.0, 3, 1.0).unwrap();
        let mut rng = Rng::new(4);
        let mut seen = [false; 4];
        for _ in 0..200 {
            seen[delay.ns(0, &mut rng) as usize] = true;
        }
        assert_eq!(seen, [true; 4]);
    }

    #[test]
    fn extreme_laws_do_not_overflow() {
        let mut rng = Rng::new(4);
        let longest = Delay::new(u64::MAX, 10.0, u64::MAX, 1.0).unwrap();
        let _any_value_is_fine = longest.ns(u32::MAX, &mut rng);
        assert_eq!(longest.longest_ns(u32::MAX), u64::MAX);
        assert_eq!(
            Delay::new(0, 2.0, 9, 1.0).unwrap().ns(u32::MAX, &mut rng),
            0
        );
    }

    #[test]
    fn impossible_laws_are_refused() {
        assert_eq!(Delay::new(1, 0.9, 1, 0.0), Err(DelayError::Factor(0.9)));
        assert!(Delay::new(1, f64::NAN, 1, 0.0).is_err());
        assert!(Delay::new(1, f64::INFINITY, 1, 0.0).is_err());
        assert_eq!(Delay::new(1, 2.0, 1, 1.1), Err(DelayError::Jitter(1.1)));
        assert!(Delay::new(1, 2.0, 1, f64::NAN).is_err());
        let refused = Delay::new(2, 2.0, 1, 0.0);
        assert_eq!(
            refused,
            Err(DelayError::CapBelowBase {
                base_ns: 2,
                cap_ns: 1
            })
        );
    }

    #[test]
    fn the_default_parks_after_the_pauses_it_promises() {
        let (patience, mut backoff, mut rng) =
            (Patience::default(), Backoff::default(), Rng::new(2));
        let mut paused_ns = 0;
        let mut rounds = 0;
        loop {
            match backoff.next(&patience, &mut rng) {
                Step::Search => assert!(rounds < 4),
                Step::Pause { ns } => paused_ns += ns,
                Step::Park => break,
            }
            rounds += 1;
        }
        assert_eq!(rounds, 10);
        assert!((31_500..=63_000).contains(&paused_ns), "{paused_ns}");
    }

    #[test]
    fn a_searcher_that_never_parks_keeps_pausing() {
        let patience = Patience {
            pauses: u32::MAX,
            ..Patience::default()
        };
        let (mut backoff, mut rng) = (
            Backoff {
                fruitless: u32::MAX - 5,
            },
            Rng::new(2),
        );
        for _ in 0..20 {
            assert!(matches!(
                backoff.next(&patience, &mut rng),
                Step::Pause { .. }
            ));
        }
    }
}

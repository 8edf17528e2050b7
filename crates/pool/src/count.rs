//! Counters that cost an addition, and how to tell from many of them that nothing is left.
//!
//! Each counter has one writer. A unit is counted as made before it can run, and its children before
//! it is counted as done. So whoever first adds up everything done and then everything made, and gets
//! the same sum, knows that at the moment between the two nothing was left: the first sum can only be
//! too small and the second too large.

use crate::sync::{AtomicU64, Ordering};

/// A number that one thread changes and everybody may read: no locked instruction.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Release: what the writer did before is visible to whoever reads the new value. The exact
    /// termination of detached work ([`crate::detached`]) builds on it.
    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(amount),
            Ordering::Release,
        );
    }

    #[inline]
    pub(crate) fn raise_to(&self, value: u64) {
        if value > self.0.load(Ordering::Relaxed) {
            self.0.store(value, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Was there a moment with everything made also done? `done` is added up first.
pub(crate) fn all_done(done: impl FnOnce() -> u64, made: impl FnOnce() -> u64) -> bool {
    let done = done();
    done == made()
}

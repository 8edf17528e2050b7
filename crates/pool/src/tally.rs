//! How many units of a scope are still out: a counter that is cheap where it is used most.
//!
//! The worker whose stack holds the scope is its *home*. It counts the units it makes and finishes
//! in an ordinary cell; everyone else counts in an atomic. The true number is the sum of both. When
//! home has nothing left to do it moves its part into the atomic and leaves a flag there, and the
//! one who then counts down to nothing wakes it.
//!
//! ```text
//!   elsewhere: bit 0 = home sleeps, its part is included;  the rest = count, in steps of two
//! ```

use std::cell::Cell;

use crate::sync::{AtomicIsize, Ordering};

const ASLEEP: isize = 1;
const ONE: isize = 2;

/// Counts the unfinished units of one scope.
#[derive(Debug)]
pub(crate) struct Tally {
    home: Cell<isize>,
    elsewhere: AtomicIsize,
}

// SAFETY: `home` is only touched by the methods named `*_at_home`, which are unsafe and may only be
// called by the home thread; the rest is atomic.
unsafe impl Sync for Tally {}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            home: Cell::new(0),
            elsewhere: AtomicIsize::new(0),
        }
    }

    /// Counts one more (or, with -1, one less) unit.
    ///
    /// # Safety
    /// To be called on the home thread.
    #[inline]
    pub(crate) unsafe fn count_at_home(&self, change: isize) {
        self.home.set(self.home.get() + change);
    }

    /// One more unit, made away from home.
    pub(crate) fn made_elsewhere(&self) {
        self.elsewhere.fetch_add(ONE, Ordering::Relaxed);
    }

    /// One unit less, finished away from home. `true`: it was the last one and home sleeps, so the
    /// caller has to unpark it. This is the caller's last access to the scope.
    #[must_use]
    pub(crate) fn done_elsewhere(&self) -> bool {
        // Release: home sees what the unit did.
        self.elsewhere.fetch_sub(ONE, Ordering::AcqRel) == ONE + ASLEEP
    }

    /// Is every unit finished?
    ///
    /// # Safety
    /// To be called on the home thread.
    #[inline]
    pub(crate) unsafe fn is_over_at_home(&self) -> bool {
        let elsewhere = self.elsewhere.load(Ordering::Acquire) & !ASLEEP;
        self.home.get() * ONE + elsewhere == 0
    }

    /// Home is about to park. `false`: every unit is finished.
    ///
    /// # Safety
    /// To be called on the home thread.
    #[must_use]
    pub(crate) unsafe fn announce_sleep_at_home(&self) -> bool {
        let mine = self.home.replace(0) * ONE;
        let before = self.elsewhere.fetch_add(mine + ASLEEP, Ordering::AcqRel);
        if before + mine == 0 {
            self.elsewhere.fetch_sub(ASLEEP, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Home is awake again.
    pub(crate) fn announce_awake(&self) {
        self.elsewhere.fetch_and(!ASLEEP, Ordering::AcqRel);
    }
}

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

use crate::sync::{Apart, AtomicIsize, AtomicUsize, Ordering};

const ASLEEP: isize = 1;
const ONE: isize = 2;

/// Counts the unfinished units of one scope.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Apart from each other: home changes its part with every unit, the others theirs.
    home: Apart<Cell<isize>>,
    elsewhere: Apart<AtomicIsize>,
}

// SAFETY: `home` is only touched by the methods named `*_at_home`, which are unsafe and may only be
// called by the home thread; the rest is atomic.
unsafe impl Sync for Tally {}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            home: Apart(Cell::new(0)),
            elsewhere: Apart(AtomicIsize::new(0)),
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

/// Counts the unfinished units of a scope whose thread does not sit in the pool, and its body as one more.
#[derive(Debug)]
pub(crate) struct Remaining(AtomicUsize);

impl Remaining {
    /// Only the body is left.
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(1))
    }

    /// One more, made by one that is counted.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Is everything finished? Acquire: what was done is visible.
    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    /// One less. The last one gets what `look_up` finds, which is called while everything is still there;
    /// all of it may be gone when this returns.
    pub(crate) fn done<W>(&self, look_up: impl FnOnce() -> W) -> Option<W> {
        let mut before = self.0.load(Ordering::Relaxed);
        loop {
            if before == 1 {
                // Nobody else is counted, so nobody else counts.
                let found = look_up();
                self.0.swap(0, Ordering::AcqRel);
                return Some(found);
            }
            // Release: the last one, and whoever waits, see what we did.
            let less = self.0.compare_exchange_weak(
                before,
                before - 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            match less {
                Ok(_) => return None,
                Err(now) => before = now,
            }
        }
    }
}

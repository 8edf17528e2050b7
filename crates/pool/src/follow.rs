//! Whom to call when a worker shows something: those who sleep until it does.
//!
//! A worker that waits for a stolen join sleeps when whoever runs it has nothing to give. It is then
//! the runner's *heir*, if there is none yet: what the runner shows next descends from what the heir
//! waits for, so the heir is called first and counted as awake by the caller. Otherwise a stranger
//! would be woken for the same unit, and from then on one thread too many would share the
//! processors. All others who wait are *followers*: a bit each, called as well, but not counted.
//!
//! What must stay true: an entry is made, then a fence, then a look at what the runner shows; the
//! runner shows, then a fence, then reads the entries. Both fences are `SeqCst`, so one of the two
//! sees the other. Only the heir itself enters its number; whoever takes it out, by
//! [`call_heir`](Followers::call_heir) or [`resign`](Followers::resign), says whether it was called.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Those who sleep until one particular worker shows something.
#[derive(Debug)]
pub(crate) struct Followers {
    /// One more than the seat of the heir; zero if there is none.
    heir: AtomicU32,
    /// A bit for each seat number modulo 64.
    others: AtomicU64,
}

impl Followers {
    pub(crate) fn new() -> Self {
        Self {
            heir: AtomicU32::new(0),
            others: AtomicU64::new(0),
        }
    }

    /// Makes the worker in this seat the heir. `false`: there is one.
    #[must_use]
    pub(crate) fn become_heir(&self, seat: usize) -> bool {
        self.heir
            .compare_exchange(0, mark(seat), Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    /// Was this heir not called yet?
    pub(crate) fn is_heir(&self, seat: usize) -> bool {
        self.heir.load(Ordering::Relaxed) == mark(seat)
    }

    /// The heir stops waiting. `true`: it was called before, and counted as active by its caller.
    #[must_use]
    pub(crate) fn resign(&self, seat: usize) -> bool {
        self.heir
            .compare_exchange(mark(seat), 0, Ordering::SeqCst, Ordering::Relaxed)
            .is_err()
    }

    /// The heir's seat, if there is one. The caller counts it as active and unparks it.
    #[inline]
    pub(crate) fn call_heir(&self) -> Option<usize> {
        if self.heir.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mark = self.heir.swap(0, Ordering::SeqCst);
        (mark as usize).checked_sub(1)
    }

    pub(crate) fn add(&self, seat: usize) {
        self.others.fetch_or(bit(seat), Ordering::SeqCst);
    }

    pub(crate) fn remove(&self, seat: usize) {
        self.others.fetch_and(!bit(seat), Ordering::SeqCst);
    }

    /// Was this follower not called yet?
    pub(crate) fn contains(&self, seat: usize) -> bool {
        self.others.load(Ordering::Relaxed) & bit(seat) != 0
    }

    /// Everyone but the heir, to be unparked; there may be seats among them that do not follow.
    #[inline]
    pub(crate) fn call_others(&self) -> Called {
        if self.others.load(Ordering::Relaxed) == 0 {
            return Called(0);
        }
        Called(self.others.swap(0, Ordering::SeqCst))
    }
}

/// A set of seats to be unparked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Called(u64);

impl Called {
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn contains(self, seat: usize) -> bool {
        self.0 & bit(seat) != 0
    }
}

fn mark(seat: usize) -> u32 {
    seat as u32 + 1
}

fn bit(seat: usize) -> u64 {
    1 << (seat % 64)
}

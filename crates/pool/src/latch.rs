//! The latch of a stolen join unit: one owner waits, one thief settles.
//!
//! ```text
//!   Open --announce_sleep--> Asleep --announce_awake--> Open
//!     \__________ settle(Done | Returned) __________/ -> settled for ever
//! ```
//!
//! The latch lives in the owner's stack frame. `settle` is the thief's last access to it: the owner
//! may return from the frame right after.

use crate::sync::{AtomicU32, Ordering};

const OPEN: u32 = 0;
const ASLEEP: u32 = 1;
const DONE: u32 = 2;
const RETURNED: u32 = 3;

/// How a unit was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It has run; its result is in place.
    Done,
    /// It has not run and belongs to its owner again.
    Returned,
}

/// Tells an owner that its unit is settled.
#[derive(Debug)]
pub(crate) struct Latch(AtomicU32);

impl Latch {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(OPEN))
    }

    /// Settles. `true`: the owner sleeps and the caller has to unpark it.
    ///
    /// Release: what the thief wrote is visible to the owner that sees it settled.
    #[must_use]
    pub(crate) fn settle(&self, how: Settled) -> bool {
        let word = match how {
            Settled::Done => DONE,
            Settled::Returned => RETURNED,
        };
        self.0.swap(word, Ordering::AcqRel) == ASLEEP
    }

    /// How it was settled, if it was. Acquire pairs with the Release of `settle`.
    #[inline]
    pub(crate) fn settled(&self) -> Option<Settled> {
        match self.0.load(Ordering::Acquire) {
            DONE => Some(Settled::Done),
            RETURNED => Some(Settled::Returned),
            _ => None,
        }
    }

    /// The owner is about to park. `false`: it is settled already.
    #[must_use]
    pub(crate) fn announce_sleep(&self) -> bool {
        self.0
            .compare_exchange(OPEN, ASLEEP, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// The owner is awake again. Failing means that it is settled, which is as good.
    pub(crate) fn announce_awake(&self) {
        let _ = self
            .0
            .compare_exchange(ASLEEP, OPEN, Ordering::AcqRel, Ordering::Acquire);
    }
}

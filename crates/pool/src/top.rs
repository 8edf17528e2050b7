//! The end of a queue that thieves take from: the Chase-Lev protocol, for ring and deque alike.
//!
//! ```text
//!   entries  | top  ...  end |
//!     thieves take here     the owner adds and takes back here
//! ```
//!
//! `top` only grows: an entry is gone for good when it has passed. The owner moves `end`. The two
//! meet at the last entry only, and settle it by a compare-and-swap of `top`.
//!
//! # Why the last entry is not taken twice
//! The owner lowers `end`, fences, reads `top`; a thief reads `top`, fences, reads `end`. Both fences
//! are `SeqCst`, so at least one sees the other: the thief finds nothing, or the owner finds that
//! there is something to settle.

use std::ptr::NonNull;

use crate::sync::{Apart, AtomicPtr, AtomicUsize, Ordering, fence};

/// What came of an attempt to steal.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Steal<T> {
    /// There was nothing.
    Empty,
    /// Somebody else was faster; there may be more.
    Retry,
    /// It belongs to the caller now.
    Taken(T),
}

/// What came of an owner's attempt to take back the newest entry.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum TakeBack {
    /// It is the owner's, and the end is below it.
    Ours,
    /// It is the owner's, and was the last one: `top` has passed it, the end is above it.
    OursAndLast,
    /// A thief has it. The end is above it, as before.
    Stolen,
}

/// The index of the oldest entry.
#[derive(Debug)]
pub(crate) struct Top(Apart<AtomicUsize>);

impl Top {
    pub(crate) fn new() -> Self {
        Self(Apart(AtomicUsize::new(0)))
    }

    /// Where it is, or was a moment ago.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// As `index`; what the thieves did before is visible, so slots below it may be reused.
    #[inline]
    pub(crate) fn index_to_reuse(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// How many entries there are: exact for the owner when nobody steals, a hint for others.
    #[inline]
    pub(crate) fn len(&self, end: &AtomicUsize) -> usize {
        let top = self.index();
        let end = end.load(Ordering::Relaxed);
        if is_before(top, end) {
            end.wrapping_sub(top)
        } else {
            0
        }
    }

    /// A thief takes the oldest entry; `slot` tells where one is.
    #[inline]
    pub(crate) fn steal<'s, T: 's>(
        &self,
        end: &AtomicUsize,
        slot: impl FnOnce(usize) -> &'s AtomicPtr<T>,
    ) -> Steal<NonNull<T>> {
        let top = self.0.load(Ordering::Acquire);
        // Pairs with the fence in `take_back`.
        fence(Ordering::SeqCst);
        // Acquire pairs with every store of the owner: its slots, and what they point to, are there.
        if !is_before(top, end.load(Ordering::Acquire)) {
            return Steal::Empty;
        }
        let entry = slot(top).load(Ordering::Relaxed);
        match (self.advance(top), NonNull::new(entry)) {
            (true, Some(entry)) => Steal::Taken(entry),
            _ => Steal::Retry,
        }
    }

    /// The owner takes back the entry `newest`, which is the one below `end`.
    #[inline]
    pub(crate) fn take_back(&self, end: &AtomicUsize, newest: usize) -> TakeBack {
        // Release here and below: a thief may learn of older entries from this store, and must then
        // see their slots.
        end.store(newest, Ordering::Release);
        // Pairs with the fence in `steal`.
        fence(Ordering::SeqCst);
        let top = self.index();
        if is_before(top, newest) {
            return TakeBack::Ours;
        }
        let won = top == newest && self.advance(top);
        // Either way `top` is past the entry now, and nothing is left.
        end.store(newest.wrapping_add(1), Ordering::Release);
        if won {
            TakeBack::OursAndLast
        } else {
            TakeBack::Stolen
        }
    }

    #[inline]
    fn advance(&self, top: usize) -> bool {
        let next = top.wrapping_add(1);
        self.0
            .compare_exchange(top, next, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }
}

/// `a < b` for counters that may wrap around.
#[inline]
pub(crate) fn is_before(a: usize, b: usize) -> bool {
    (b.wrapping_sub(a) as isize) > 0
}

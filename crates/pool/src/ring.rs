//! Where forked joins wait: a short ring with a private and a shared part.
//!
//! ```text
//!        thieves take here            the owner pushes and pops here
//!              v                                  v
//!   slots  | top ... shared ... split ... private ... bottom |
//! ```
//!
//! The shared part `top..split` is a Chase-Lev deque whose newest end is `split`. The private part
//! `split..bottom` is a plain stack: pushing and popping there is a few ordinary instructions, no
//! fence. [`expose`](RingOwner::expose) moves `split` up, so the oldest private entry, which stands
//! for the most work, becomes visible first.
//!
//! What must stay true:
//! - only the owner writes `split`, `bottom` and the slots; `top` only grows;
//! - thieves take from `top` alone, so when an entry is gone every older one is gone too. Hence a
//!   join whose entry was stolen finds its ring empty, and everything that enters the ring later,
//!   while it waits, belongs to the unit it runs meanwhile;
//! - at most [`CAPACITY`] entries are present, so a slot is never overwritten while it is live.

use std::cell::Cell;
use std::ptr::NonNull;

use crate::sync::{Apart, AtomicPtr, AtomicUsize, Ordering};
use crate::top::{Steal, TakeBack, Top};

/// How many entries fit. The owner keeps far fewer; see `Worker::fork`.
pub(crate) const CAPACITY: usize = if cfg!(loom) { 4 } else { 32 };

/// The part of the ring that thieves may touch.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    top: Top,
    split: Apart<AtomicUsize>,
    slots: [AtomicPtr<T>; CAPACITY],
}

impl<T> Ring<T> {
    pub(crate) fn new() -> Self {
        Self {
            top: Top::new(),
            split: Apart(AtomicUsize::new(0)),
            slots: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
        }
    }

    /// Takes the oldest shared entry.
    pub(crate) fn steal(&self) -> Steal<NonNull<T>> {
        self.top
            .steal(&self.split, |index| &self.slots[index % CAPACITY])
    }

    /// How many entries thieves can see. A hint for everyone but the owner.
    #[inline]
    pub(crate) fn shared_len(&self) -> usize {
        self.top.len(&self.split)
    }
}

/// The owner's end. There is one per ring: whoever holds it is the owner.
#[derive(Debug)]
pub(crate) struct RingOwner<'r, T> {
    ring: &'r Ring<T>,
    bottom: Cell<usize>,
    /// The owner's copy of `ring.split`.
    split: Cell<usize>,
}

impl<'r, T> RingOwner<'r, T> {
    /// Takes ownership of an empty ring; there must be no other owner.
    pub(crate) fn new(ring: &'r Ring<T>) -> Self {
        let split = ring.split.load(Ordering::Relaxed);
        Self {
            ring,
            bottom: Cell::new(split),
            split: Cell::new(split),
        }
    }

    /// Entries that no thief can see.
    #[inline]
    pub(crate) fn private_len(&self) -> usize {
        self.bottom.get().wrapping_sub(self.split.get())
    }

    /// Is there no room for another entry?
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        // An old `top` makes it look fuller than it is, never emptier. The slot of an entry that was
        // stolen is written next.
        let top = self.ring.top.index_to_reuse();
        self.bottom.get().wrapping_sub(top) >= CAPACITY
    }

    /// Puts an entry on the private end. The ring must not be full.
    #[inline]
    pub(crate) fn push(&self, entry: NonNull<T>) {
        let bottom = self.bottom.get();
        debug_assert!(!self.is_full(), "there must be room");
        self.ring.slots[bottom % CAPACITY].store(entry.as_ptr(), Ordering::Relaxed);
        self.bottom.set(bottom.wrapping_add(1));
    }

    /// Shows thieves the oldest private entry, if there is one.
    #[inline]
    pub(crate) fn expose(&self) {
        let split = self.split.get();
        if split != self.bottom.get() {
            self.split.set(split.wrapping_add(1));
            // Release: whoever sees the new split sees the slot and the entry behind it.
            self.ring
                .split
                .store(split.wrapping_add(1), Ordering::Release);
        }
    }

    /// Takes back the newest entry. `false`: it was stolen, and so was everything older.
    #[inline]
    pub(crate) fn pop(&self) -> bool {
        let newest = self.bottom.get().wrapping_sub(1);
        if self.bottom.get() == self.split.get() {
            return self.pop_shared(newest);
        }
        self.bottom.set(newest);
        true
    }

    /// The newest entry is shared: settle it with the thieves.
    fn pop_shared(&self, newest: usize) -> bool {
        let result = self.ring.top.take_back(&self.ring.split, newest);
        if result == TakeBack::Ours {
            self.split.set(newest);
            self.bottom.set(newest);
        }
        result != TakeBack::Stolen
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn entry(value: &mut u32) -> NonNull<u32> {
        NonNull::from(value)
    }

    #[test]
    fn the_oldest_is_stolen_and_the_newest_is_popped() {
        let (mut a, mut b, mut c) = (1, 2, 3);
        let ring = Ring::new();
        let owner = RingOwner::new(&ring);
        owner.push(entry(&mut a));
        owner.push(entry(&mut b));
        owner.push(entry(&mut c));
        assert_eq!(ring.steal(), Steal::Empty, "nothing is exposed yet");
        owner.expose();
        assert_eq!((ring.shared_len(), owner.private_len()), (1, 2));
        assert_eq!(ring.steal(), Steal::Taken(entry(&mut a)));
        assert!(owner.pop());
        assert!(owner.pop());
        assert!(!owner.pop(), "the oldest is gone");
        assert!(!owner.pop(), "and stays gone");
    }

    #[test]
    fn a_ring_says_when_it_is_full() {
        let mut a = 1;
        let ring = Ring::new();
        let owner = RingOwner::new(&ring);
        for _ in 0..CAPACITY {
            assert!(!owner.is_full());
            owner.push(entry(&mut a));
        }
        assert!(owner.is_full());
        owner.expose();
        assert_eq!(ring.steal(), Steal::Taken(entry(&mut a)));
        assert!(!owner.is_full());
    }

    #[test]
    fn an_exposed_entry_can_be_taken_back() {
        let mut a = 1;
        let ring = Ring::new();
        let owner = RingOwner::new(&ring);
        for _ in 0..3 * CAPACITY {
            owner.push(entry(&mut a));
            owner.expose();
            assert!(owner.pop());
            assert_eq!(ring.steal(), Steal::Empty);
        }
    }
}

//! Where spawned units wait: a growing Chase-Lev deque.
//!
//! The owner pushes and pops at `bottom`, thieves take at `top`. Entries are single pointers in
//! contiguous slots, so a slot can be read while it is being overwritten and nothing is torn.
//!
//! Growing fills the next, twice as large buffer and leaves the old one in place until the deque is
//! dropped: a thief that still reads the old one finds there what it would have found before. All
//! old buffers together are smaller than the current one, so this costs less than a factor of two
//! and needs no reclamation scheme.
//!
//! What must stay true: one owner; `top` only grows; an index in `top..bottom` has its entry in the
//! current buffer, and a slot is reused only for an index whose predecessor `top` has passed.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::sync::{Apart, AtomicPtr, AtomicUsize, Ordering};
use crate::top::{Steal, TakeBack, Top, is_before};

/// The first buffer has this many slots.
const FIRST: usize = if cfg!(loom) { 2 } else { 256 };
/// Buffers double; this many are more than memory can hold.
const BUFFERS: usize = 40;

/// The part of the deque that thieves may touch.
#[derive(Debug)]
pub(crate) struct Deque<T> {
    top: Top,
    bottom: Apart<AtomicUsize>,
    /// Which of `buffers` is the current one.
    current: AtomicUsize,
    buffers: [OnceLock<Box<[AtomicPtr<T>]>>; BUFFERS],
}

impl<T> Deque<T> {
    pub(crate) fn new() -> Self {
        Self {
            top: Top::new(),
            bottom: Apart(AtomicUsize::new(0)),
            current: AtomicUsize::new(0),
            buffers: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    /// Takes the oldest entry.
    pub(crate) fn steal(&self) -> Steal<NonNull<T>> {
        // Acquire pairs with the store in `grow`: the buffer's content is complete. A later buffer
        // than the one `bottom` was written with is fine: it was filled from `top` on.
        self.top.steal(&self.bottom, |index| {
            self.slot(self.current.load(Ordering::Acquire), index)
        })
    }

    /// How many entries there are: exact for the owner when nobody steals, a hint for others.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.top.len(&self.bottom)
    }

    #[inline]
    fn slot(&self, buffer: usize, index: usize) -> &AtomicPtr<T> {
        let slots = self.buffers[buffer].get_or_init(|| {
            (0..FIRST << buffer)
                .map(|_| AtomicPtr::new(std::ptr::null_mut()))
                .collect()
        });
        &slots[index & (slots.len() - 1)]
    }
}

/// The owner's end. There is one per deque: whoever holds it is the owner.
#[derive(Debug)]
pub(crate) struct DequeOwner<'d, T> {
    deque: &'d Deque<T>,
    /// A `top` seen earlier: `top` only grows, so there is at least this much room.
    seen_top: Cell<usize>,
}

impl<'d, T> DequeOwner<'d, T> {
    /// Takes ownership; there must be no other owner.
    pub(crate) fn new(deque: &'d Deque<T>) -> Self {
        let seen_top = Cell::new(deque.top.index());
        Self { deque, seen_top }
    }

    /// The index the next entry will get. Entries pushed later have this one or a higher one.
    #[inline]
    pub(crate) fn mark(&self) -> usize {
        self.deque.bottom.load(Ordering::Relaxed)
    }

    /// Puts an entry on the newest end. The caller tells the sleepers (with a fence in between).
    #[inline]
    pub(crate) fn push(&self, entry: NonNull<T>) {
        let deque = self.deque;
        let bottom = deque.bottom.load(Ordering::Relaxed);
        let mut buffer = deque.current.load(Ordering::Relaxed);
        if bottom.wrapping_sub(self.seen_top.get()) >= FIRST << buffer {
            self.seen_top.set(deque.top.index_to_reuse());
            if bottom.wrapping_sub(self.seen_top.get()) >= FIRST << buffer {
                buffer = self.grow(buffer, bottom);
            }
        }
        deque
            .slot(buffer, bottom)
            .store(entry.as_ptr(), Ordering::Relaxed);
        // Release: whoever sees the new bottom sees the slot and the entry behind it.
        deque
            .bottom
            .store(bottom.wrapping_add(1), Ordering::Release);
    }

    /// Takes the newest entry.
    #[inline]
    pub(crate) fn pop(&self) -> Option<NonNull<T>> {
        self.pop_above(self.seen_top.get())
    }

    /// Takes the newest entry unless it is older than `mark`.
    pub(crate) fn pop_above(&self, mark: usize) -> Option<NonNull<T>> {
        let deque = self.deque;
        let bottom = deque.bottom.load(Ordering::Relaxed);
        if !is_before(mark, bottom) || !is_before(deque.top.index(), bottom) {
            return None;
        }
        let newest = bottom.wrapping_sub(1);
        if deque.top.take_back(&deque.bottom, newest) == TakeBack::Stolen {
            return None;
        }
        // Only the owner writes slots, so the entry is still there.
        let slot = deque.slot(deque.current.load(Ordering::Relaxed), newest);
        NonNull::new(slot.load(Ordering::Relaxed))
    }

    #[cold]
    fn grow(&self, old: usize, bottom: usize) -> usize {
        let deque = self.deque;
        let new = old + 1;
        let mut index = self.seen_top.get();
        while index != bottom {
            let entry = deque.slot(old, index).load(Ordering::Relaxed);
            deque.slot(new, index).store(entry, Ordering::Relaxed);
            index = index.wrapping_add(1);
        }
        // Release pairs with the Acquire in `steal`.
        deque.current.store(new, Ordering::Release);
        new
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn it_behaves_like_a_double_ended_queue_while_it_grows() {
        let mut values: Vec<usize> = (0..5 * FIRST).collect();
        let entries: Vec<NonNull<usize>> = values.iter_mut().map(NonNull::from).collect();
        let deque = Deque::new();
        let owner = DequeOwner::new(&deque);
        let mut model = VecDeque::new();
        for (step, &entry) in entries.iter().enumerate() {
            owner.push(entry);
            model.push_back(entry);
            if step % 5 == 0 {
                assert_eq!(deque.steal(), Steal::Taken(model.pop_front().unwrap()));
            }
            if step % 7 == 0 {
                assert_eq!(owner.pop(), model.pop_back());
            }
            assert_eq!(deque.len(), model.len());
        }
        while let Some(expected) = model.pop_back() {
            assert_eq!(owner.pop(), Some(expected));
        }
        assert_eq!(owner.pop(), None);
        assert_eq!(deque.steal(), Steal::Empty);
    }

    #[test]
    fn a_mark_protects_what_is_older() {
        let (mut a, mut b) = (1, 2);
        let deque = Deque::new();
        let owner = DequeOwner::new(&deque);
        owner.push(NonNull::from(&mut a));
        let mark = owner.mark();
        owner.push(NonNull::from(&mut b));
        assert_eq!(owner.pop_above(mark), Some(NonNull::from(&mut b)));
        assert_eq!(owner.pop_above(mark), None);
        assert_eq!(owner.pop(), Some(NonNull::from(&mut a)));
    }
}

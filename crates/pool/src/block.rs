//! Memory for units on the heap: blocks cut from slabs, without a call to the allocator each.
//!
//! A thread that spawns cuts blocks off the *slab* it has in hand, one after the other. Whoever
//! runs a unit, mostly another thread, gives its block back by counting the slab down. When the slab
//! has been cut up and all blocks are back, it is used again. So a block costs an addition to make
//! and one atomic subtraction to give back, the spawner and the runners do not touch the same
//! counter at the same time, and memory is returned slab by slab.
//!
//! ```text
//!   slab, 4 KiB, aligned to its size:  | live | block | block | block |  not cut yet  |
//!                                                                  ^ cursor
//! ```
//!
//! # What must stay true
//! - `live` is the number of blocks in use, plus [`IN_HAND`] while a thread still cuts it. It comes
//!   to zero once, and whoever brings it there owns the slab.
//! - A block's address, rounded down to [`SLAB`], is that of its slab; pointers to blocks are made
//!   from the pointer to the slab and may be used for all of it.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::{NonNull, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sync::{AtomicUsize, Ordering};

/// Size and alignment of a slab.
const SLAB: usize = 4096;
/// Blocks begin at multiples of this.
const GRAIN: usize = 16;
/// What does not fit into so many bytes gets memory of its own.
const LARGEST: usize = 256;
/// More than a slab has blocks.
const IN_HAND: usize = SLAB;
/// So many empty slabs are kept for use; one MiB.
const KEPT: usize = 256;

/// The beginning of a slab.
#[repr(C, align(16))]
struct Slab {
    live: Live,
}

/// How much of a slab is in use: its blocks, and the thread that still cuts it.
#[derive(Debug)]
pub(crate) struct Live(AtomicUsize);

impl Live {
    /// A slab in the hands of a thread that will cut it.
    pub(crate) fn in_hand() -> Self {
        Self(AtomicUsize::new(IN_HAND))
    }

    /// A slab with one block that will not be cut further.
    pub(crate) fn one_block() -> Self {
        Self(AtomicUsize::new(1))
    }

    /// One block is not used any more. `true`: it was the last, and the caller owns the slab.
    #[inline]
    #[must_use]
    pub(crate) fn give_back_block(&self) -> bool {
        self.give_back(1)
    }

    /// The thread that cut so many blocks from it lets it go. `true`: the caller owns the slab.
    #[inline]
    #[must_use]
    pub(crate) fn let_go(&self, cut: usize) -> bool {
        self.give_back(IN_HAND - cut)
    }

    #[inline]
    fn give_back(&self, amount: usize) -> bool {
        // Release: what we did with the block comes before its next use. Acquire: for the last one.
        self.0.fetch_sub(amount, Ordering::AcqRel) == amount
    }
}

const LAYOUT: Layout = match Layout::from_size_align(SLAB, SLAB) {
    Ok(layout) => layout,
    Err(_) => panic!("a slab is a power of two"),
};

/// Empty slabs, for whoever needs one.
static EMPTY: Mutex<Vec<SlabRef>> = Mutex::new(Vec::new());

/// A slab on its way to another thread.
struct SlabRef(NonNull<Slab>);

// SAFETY: whoever holds it owns the slab, which is plain memory.
unsafe impl Send for SlabRef {}

/// The slab this thread cuts, and how far it has come.
struct Cutter {
    slab: Cell<*mut Slab>,
    cursor: Cell<usize>,
    cut: Cell<usize>,
}

thread_local! {
    static CUTTER: Cutter = const {
        Cutter { slab: Cell::new(null_mut()), cursor: Cell::new(SLAB), cut: Cell::new(0) }
    };
}

/// Does a `T` come from a slab? Nothing does under loom, which checks for leaks itself and has no
/// statics, nor under shuttle, whose threads share one thread of the system.
const fn is_small<T>() -> bool {
    size_of::<T>() <= LARGEST && align_of::<T>() <= GRAIN && !cfg!(any(loom, shuttle))
}

fn empty() -> MutexGuard<'static, Vec<SlabRef>> {
    EMPTY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts a value into memory that [`take`] gives back.
#[inline]
pub(crate) fn put<T>(value: T) -> NonNull<T> {
    if !is_small::<T>() {
        return NonNull::from(Box::leak(Box::new(value)));
    }
    let size = size_of::<T>().max(1).next_multiple_of(GRAIN);
    let block = CUTTER.try_with(|cutter| cutter.cut(size));
    let block = block.unwrap_or_else(|_| only_block()).cast::<T>();
    // SAFETY: the block is new, large enough and aligned, as `is_small` checked.
    unsafe { block.write(value) };
    block
}

/// Takes the value out and gives its memory back.
///
/// # Safety
/// `block` comes from [`put`] with the same type and has not been taken.
#[inline]
pub(crate) unsafe fn take<T>(block: NonNull<T>) -> T {
    if !is_small::<T>() {
        // SAFETY: this is the box that `put` gave up.
        return *unsafe { Box::from_raw(block.as_ptr()) };
    }
    // SAFETY: `put` wrote it, and nobody has read it.
    let value = unsafe { block.read() };
    let slab = block
        .as_ptr()
        .map_addr(|address| address & !(SLAB - 1))
        .cast::<Slab>();
    // SAFETY: no allocation begins at null.
    let slab = unsafe { NonNull::new_unchecked(slab) };
    // SAFETY: the slab is there as long as this block is counted.
    if unsafe { slab.as_ref() }.live.give_back_block() {
        keep(slab);
    }
    value
}

impl Cutter {
    #[inline]
    fn cut(&self, size: usize) -> NonNull<u8> {
        if self.cursor.get() + size > SLAB {
            self.next_slab();
        }
        let start = self.cursor.get();
        self.cursor.set(start + size);
        self.cut.set(self.cut.get() + 1);
        // SAFETY: `start` is within the slab.
        let block = unsafe { self.slab.get().cast::<u8>().add(start) };
        // SAFETY: no allocation begins at null, so nothing inside is null.
        unsafe { NonNull::new_unchecked(block) }
    }

    #[cold]
    #[inline(never)]
    fn next_slab(&self) {
        self.retire();
        self.slab.set(new_slab(Live::in_hand()).as_ptr());
        self.cursor.set(size_of::<Slab>());
    }

    /// Lets go of the slab in hand.
    fn retire(&self) {
        if let Some(slab) = NonNull::new(self.slab.replace(null_mut())) {
            // SAFETY: it is there as long as it is in hand.
            if unsafe { slab.as_ref() }.live.let_go(self.cut.replace(0)) {
                keep(slab);
            }
        }
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.retire();
    }
}

/// A block for a thread that is ending and has no slab any more.
#[cold]
fn only_block() -> NonNull<u8> {
    let slab = new_slab(Live::one_block());
    // SAFETY: a block fits behind the beginning of an empty slab.
    unsafe { slab.cast::<u8>().add(size_of::<Slab>()) }
}

fn new_slab(live: Live) -> NonNull<Slab> {
    let kept = empty().pop();
    let slab = kept.map_or_else(allocate, |slab| slab.0);
    // SAFETY: nobody else knows this slab.
    unsafe { slab.write(Slab { live }) };
    slab
}

fn allocate() -> NonNull<Slab> {
    // SAFETY: the layout is not empty.
    let slab = unsafe { alloc(LAYOUT) };
    NonNull::new(slab.cast()).unwrap_or_else(|| handle_alloc_error(LAYOUT))
}

#[cold]
fn keep(slab: NonNull<Slab>) {
    let mut kept = empty();
    if kept.len() < KEPT {
        kept.push(SlabRef(slab));
    } else {
        drop(kept);
        // SAFETY: all its blocks are back, and it came from `allocate`.
        unsafe { dealloc(slab.as_ptr().cast(), LAYOUT) };
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    struct Sent<T>(NonNull<T>);
    // SAFETY: the tests send blocks of values that are `Send`.
    unsafe impl<T: Send> Send for Sent<T> {}

    fn take_sent<T>(block: Sent<T>) -> T {
        // SAFETY: the tests take each block once.
        unsafe { take(block.0) }
    }

    #[test]
    fn values_of_any_size_come_back_as_they_were() {
        fn check<T: Clone + PartialEq + std::fmt::Debug + Send>(value: T) {
            assert_eq!(take_sent(Sent(put(value.clone()))), value);
        }
        check(());
        check(7_u8);
        check([3_u64; 32]);
        check([3_u64; 33]);
        check("text".to_owned());
        #[derive(Clone, PartialEq, Debug)]
        #[repr(align(64))]
        struct Wide(u8);
        check(Wide(9));
    }

    #[test]
    fn blocks_may_be_taken_by_another_thread_while_more_are_cut() {
        let count = if cfg!(miri) { 300 } else { 100_000 };
        let (sender, receiver) = mpsc::channel();
        let taker = std::thread::spawn(move || {
            receiver
                .into_iter()
                .map(take_sent::<(usize, Box<usize>)>)
                .all(|(n, boxed)| n == *boxed)
        });
        for number in 0..count {
            sender.send(Sent(put((number, Box::new(number))))).unwrap();
        }
        drop(sender);
        assert!(taker.join().unwrap());
    }

    #[test]
    fn what_a_thread_leaves_behind_can_still_be_taken() {
        let blocks = std::thread::spawn(|| (0..500_u64).map(|n| Sent(put(n))).collect::<Vec<_>>());
        let blocks = blocks.join().unwrap();
        assert_eq!(
            blocks.into_iter().map(take_sent).sum::<u64>(),
            499 * 500 / 2
        );
    }
}

//! Sorting slices.
//!
//! The standard library's sorts are the fastest there are on one processor, so the parallel levels
//! on top are as few as balance allows: a piece is handed over whole once it is a small part of
//! everything (`Pool::grain`). What is in order already, or in reverse, is found out first.
//!
//! | | divides | cost of a level |
//! |---|---|---|
//! | unstable | by a pivot, in place | one pass, before the two halves begin |
//! | stable | in the middle | one merge ([`crate::merge`]), itself parallel, after both halves are done |

use std::cmp::Ordering;
use std::mem::MaybeUninit;

use crate::join::{join_halves, join_unordered_on};
use crate::merge::{copy, merge};
use crate::pool::Pool;
use crate::sync::{AtomicBool, Ordering as Memory};
use crate::worker::Worker;

/// Pieces up to this length are sorted in one go.
const SMALL: usize = 4096;
/// How many pieces there are for each worker: enough for balance where pivots make them unequal, and
/// few where they are equal anyway and every level costs a merge.
const UNEQUAL_PIECES: usize = 8;
const EQUAL_PIECES: usize = 2;
/// Items above this many bytes are moved only when they have to be.
const HEAVY: usize = 32;

impl Pool {
    /// Sorts; equal items may change places. In place, without extra memory.
    pub fn sort_unstable<T: Ord + Send>(&self, items: &mut [T]) {
        self.sort_unstable_by(items, T::cmp);
    }

    /// Sorts by a key; equal items may change places.
    pub fn sort_unstable_by_key<T: Send, K: Ord>(
        &self,
        items: &mut [T],
        key: impl Fn(&T) -> K + Sync,
    ) {
        self.sort_unstable_by(items, |a, b| key(a).cmp(&key(b)));
    }

    /// Sorts by a comparison; equal items may change places.
    pub fn sort_unstable_by<T: Send>(
        &self,
        items: &mut [T],
        compare: impl Fn(&T, &T) -> Ordering + Sync,
    ) {
        let depth = 2 * items.len().checked_ilog2().unwrap_or(0);
        let grain = self.grain(items.len(), UNEQUAL_PIECES);
        self.enter(|worker| {
            if !straighten(worker, items, &compare) {
                quicksort(worker, items, &compare, grain, depth);
            }
        });
    }

    /// Sorts; equal items keep their order. Uses memory for as many items.
    pub fn sort<T: Ord + Send>(&self, items: &mut [T]) {
        self.sort_by(items, T::cmp);
    }

    /// Sorts by a key; equal items keep their order.
    pub fn sort_by_key<T: Send, K: Ord>(&self, items: &mut [T], key: impl Fn(&T) -> K + Sync) {
        self.sort_by(items, |a, b| key(a).cmp(&key(b)));
    }

    /// Sorts by a comparison; equal items keep their order.
    pub fn sort_by<T: Send>(&self, items: &mut [T], compare: impl Fn(&T, &T) -> Ordering + Sync) {
        let grain = self.grain(items.len(), EQUAL_PIECES);
        if items.len() <= grain {
            items.sort_by(compare);
            return;
        }
        self.enter(|worker| {
            if !straighten(worker, items, &compare) {
                let mut scratch = Box::new_uninit_slice(items.len());
                merge_sort(worker, items, &mut scratch, Buffer::Items, &compare, grain);
            }
        });
    }

    /// Up to which length a piece is sorted in one go, for so many pieces per worker.
    fn grain(&self, len: usize, pieces: usize) -> usize {
        match self.workers() {
            1 => len,
            workers => SMALL.max(len.div_ceil(pieces * workers)),
        }
    }
}

/// Brings items that are in reverse order into order. `false`: they were neither in order nor in
/// reverse, and are as before.
fn straighten<T: Send>(
    worker: &Worker<'_>,
    items: &mut [T],
    compare: &(impl Fn(&T, &T) -> Ordering + Sync),
) -> bool {
    let in_order = |a: &T, b: &T| compare(a, b) != Ordering::Greater;
    let in_reverse = |a: &T, b: &T| compare(a, b) == Ordering::Greater;
    let [first, second, ..] = items else {
        return true;
    };
    if in_order(first, second) {
        return is_chain(worker, items, &in_order, &AtomicBool::new(false));
    }
    let is_reversed = is_chain(worker, items, &in_reverse, &AtomicBool::new(false));
    if is_reversed {
        let (front, back) = items.split_at_mut(items.len() / 2);
        swap_ends(worker, front, back);
    }
    is_reversed
}

/// Does `follows` hold for all neighbours? Stops early when somebody has `broken` the chain.
///
/// Items may not be shared between threads, so pieces do not overlap; the seams come last.
fn is_chain<T: Send>(
    worker: &Worker<'_>,
    items: &mut [T],
    follows: &(impl Fn(&T, &T) -> bool + Sync),
    broken: &AtomicBool,
) -> bool {
    if items.len() <= SMALL {
        if !broken.load(Memory::Relaxed) && !items.is_sorted_by(follows) {
            broken.store(true, Memory::Relaxed);
        }
        return !broken.load(Memory::Relaxed);
    }
    let middle = items.len() / 2;
    let (left, right) = items.split_at_mut(middle);
    let (left, right) = join_unordered_on(
        worker,
        |worker| is_chain(worker, left, follows, broken),
        |worker| is_chain(worker, right, follows, broken),
    );
    left && right && follows(&items[middle - 1], &items[middle])
}

/// Exchanges the first of `front` with the last of `back`, and so on inwards. `back` may be one
/// longer: then its first stays.
fn swap_ends<T: Send>(worker: &Worker<'_>, front: &mut [T], back: &mut [T]) {
    if front.len() <= SMALL {
        front
            .iter_mut()
            .zip(back.iter_mut().rev())
            .for_each(|(a, b)| std::mem::swap(a, b));
        return;
    }
    let count = front.len() / 2;
    let (outer, inner) = front.split_at_mut(count);
    let (inner_back, outer_back) = back.split_at_mut(back.len() - count);
    join_unordered_on(
        worker,
        |worker| swap_ends(worker, outer, outer_back),
        |worker| swap_ends(worker, inner, inner_back),
    );
}

fn quicksort<T: Send>(
    worker: &Worker<'_>,
    items: &mut [T],
    compare: &(impl Fn(&T, &T) -> Ordering + Sync),
    grain: usize,
    depth: u32,
) {
    // Pivots that keep failing mean that the input is made against us: the standard library's sort
    // is prepared for that.
    if items.len() <= grain || depth == 0 {
        items.sort_unstable_by(|a, b| compare(a, b));
        return;
    }
    let middle = partition(items, compare);
    let (below, rest) = items.split_at_mut(middle);
    let above = skip_equal(rest, compare);
    join_unordered_on(
        worker,
        |worker| quicksort(worker, below, compare, grain, depth - 1),
        |worker| quicksort(worker, above, compare, grain, depth - 1),
    );
}

/// Moves what is smaller than a pivot to the front and returns how many there are; the pivot
/// follows.
fn partition<T>(items: &mut [T], compare: &impl Fn(&T, &T) -> Ordering) -> usize {
    let pivot = median_of_samples(items, compare);
    items.swap(0, pivot);
    let (pivot, rest) = items.split_at_mut(1);
    let smaller = gather(rest, |item| compare(item, &pivot[0]) == Ordering::Less);
    items.swap(0, smaller);
    smaller
}

/// Moves the wanted ones to the front and returns how many there are.
fn gather<T>(items: &mut [T], is_wanted: impl Fn(&T) -> bool) -> usize {
    if size_of::<T>() > HEAVY {
        return gather_from_both_ends(items, is_wanted);
    }
    let mut gathered = 0;
    for index in 0..items.len() {
        // Always swapping keeps the loop free of branches that cannot be predicted.
        let wanted = is_wanted(&items[index]);
        items.swap(gathered, index);
        gathered += usize::from(wanted);
    }
    gathered
}

/// As `gather`, exchanging only pairs that are both on the wrong side.
fn gather_from_both_ends<T>(items: &mut [T], is_wanted: impl Fn(&T) -> bool) -> usize {
    let (mut low, mut high) = (0, items.len());
    loop {
        while low < high && is_wanted(&items[low]) {
            low += 1;
        }
        while low < high && !is_wanted(&items[high - 1]) {
            high -= 1;
        }
        if low == high {
            return low;
        }
        high -= 1;
        items.swap(low, high);
        low += 1;
    }
}

/// Given a pivot and what is not smaller: what is left to sort. Many equal items, which would make
/// the halves uneven for ever, are gathered and left out.
fn skip_equal<'a, T>(rest: &'a mut [T], compare: &impl Fn(&T, &T) -> Ordering) -> &'a mut [T] {
    let (pivot, above) = rest.split_at_mut(1);
    let probes = [above.len() / 4, above.len() / 2, above.len() * 3 / 4];
    let is_equal = |item: &T| compare(item, &pivot[0]) == Ordering::Equal;
    if above.is_empty() || !probes.iter().any(|&probe| is_equal(&above[probe])) {
        return above;
    }
    let gathered = gather(above, is_equal);
    &mut above[gathered..]
}

/// Where the median of a few dozen items is: a good pivot saves the level that a bad one costs.
fn median_of_samples<T>(items: &[T], compare: &impl Fn(&T, &T) -> Ordering) -> usize {
    const SAMPLES: usize = 63;
    let step = items.len() / SAMPLES;
    let mut sample: [usize; SAMPLES] = std::array::from_fn(|i| i * step + step / 2);
    let by_item = |&a: &usize, &b: &usize| compare(&items[a], &items[b]);
    *sample.select_nth_unstable_by(SAMPLES / 2, by_item).1
}

/// Where the result of a sort has to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Buffer {
    Items,
    Scratch,
}

/// Sorts `items` into `place`, the halves into the other place and merged from there.
///
/// `items` holds every item once when this returns, in whatever order, also on unwinding; what is in
/// the scratch space besides are copies of which nobody thinks as items.
fn merge_sort<T: Send>(
    worker: &Worker<'_>,
    items: &mut [T],
    scratch: &mut [MaybeUninit<T>],
    place: Buffer,
    compare: &(impl Fn(&T, &T) -> Ordering + Sync),
    grain: usize,
) {
    debug_assert_eq!(items.len(), scratch.len());
    if items.len() <= grain {
        items.sort_by(|a, b| compare(a, b));
        if place == Buffer::Scratch {
            copy(items, scratch);
        }
        return;
    }
    let other = match place {
        Buffer::Items => Buffer::Scratch,
        Buffer::Scratch => Buffer::Items,
    };
    let middle = items.len() / 2;
    let (left, right) = items.split_at_mut(middle);
    let (left_scratch, right_scratch) = scratch.split_at_mut(middle);
    join_halves(
        worker,
        |worker| merge_sort(worker, left, left_scratch, other, compare, grain),
        |worker| merge_sort(worker, right, right_scratch, other, compare, grain),
    );
    match place {
        Buffer::Scratch => {
            let (left, right) = items.split_at_mut(middle);
            merge(worker, left, right, scratch, compare, grain);
        }
        Buffer::Items => merge_back(worker, items, scratch, middle, compare, grain),
    }
}

/// Merges the two halves that are in the scratch space into `items`.
fn merge_back<T: Send>(
    worker: &Worker<'_>,
    items: &mut [T],
    scratch: &mut [MaybeUninit<T>],
    middle: usize,
    compare: &(impl Fn(&T, &T) -> Ordering + Sync),
    grain: usize,
) {
    let restore = Restore {
        from: scratch.as_mut_ptr().cast::<T>(),
        to: items.as_mut_ptr(),
        len: items.len(),
    };
    // SAFETY: the scratch space is filled and as long as `items`, and only used through this here.
    let sorted = unsafe { std::slice::from_raw_parts_mut(restore.from, restore.len) };
    // SAFETY: as above; what is in `items` are copies now, to be written over.
    let target = unsafe { std::slice::from_raw_parts_mut(restore.to.cast(), restore.len) };
    let (left, right) = sorted.split_at_mut(middle);
    merge(worker, left, right, target, compare, grain);
    std::mem::forget(restore);
}

/// Puts the items back in place when a comparison panics while they are being merged.
struct Restore<T> {
    /// Holds every item once.
    from: *mut T,
    to: *mut T,
    len: usize,
}

impl<T> Drop for Restore<T> {
    fn drop(&mut self) {
        // SAFETY: both are valid for so many items and lie in different slices, as `merge_back` made
        // them; the merge is over, also on other threads.
        unsafe { std::ptr::copy_nonoverlapping(self.from, self.to, self.len) };
    }
}

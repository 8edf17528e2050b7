//! Sorting slices.
//!
//! Both sorts hand pieces that are small enough to the standard library and only add the parallel
//! levels on top: a quicksort for the unstable one, a merge sort for the stable one.

use std::cmp::Ordering;
use std::mem::MaybeUninit;

use crate::join::join_on;
use crate::pool::Pool;
use crate::worker::Worker;

/// Pieces up to this length are sorted in one go.
const SMALL: usize = 4096;

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
        self.enter(|worker| quicksort(worker, items, &compare, depth));
    }

    /// Sorts; equal items keep their order. Uses memory for half of the items.
    pub fn sort<T: Ord + Send>(&self, items: &mut [T]) {
        self.sort_by(items, T::cmp);
    }

    /// Sorts by a key; equal items keep their order.
    pub fn sort_by_key<T: Send, K: Ord>(&self, items: &mut [T], key: impl Fn(&T) -> K + Sync) {
        self.sort_by(items, |a, b| key(a).cmp(&key(b)));
    }

    /// Sorts by a comparison; equal items keep their order.
    pub fn sort_by<T: Send>(&self, items: &mut [T], compare: impl Fn(&T, &T) -> Ordering + Sync) {
        let mut scratch = Vec::new();
        scratch.resize_with(items.len(), MaybeUninit::uninit);
        self.enter(|worker| merge_sort(worker, items, &mut scratch, &compare));
    }
}

fn quicksort<T: Send>(
    worker: &Worker<'_>,
    items: &mut [T],
    compare: &(impl Fn(&T, &T) -> Ordering + Sync),
    depth: u32,
) {
    // Pivots that keep failing mean that the input is made against us: the standard library's sort
    // is prepared for that.
    if items.len() <= SMALL || depth == 0 {
        items.sort_unstable_by(|a, b| compare(a, b));
        return;
    }
    let middle = partition(items, compare);
    let (below, rest) = items.split_at_mut(middle);
    let above = skip_equal(rest, compare);
    join_on(
        worker,
        |worker| quicksort(worker, below, compare, depth - 1),
        |worker| quicksort(worker, above, compare, depth - 1),
    );
}

/// Moves what is smaller than a pivot to the front and returns how many there are; the pivot
/// follows.
fn partition<T>(items: &mut [T], compare: &impl Fn(&T, &T) -> Ordering) -> usize {
    let pivot = median_of_nine(items, compare);
    items.swap(0, pivot);
    let (pivot, rest) = items.split_at_mut(1);
    let mut smaller = 0;
    for index in 0..rest.len() {
        // Always swapping keeps the loop free of branches that cannot be predicted.
        let is_smaller = compare(&rest[index], &pivot[0]) == Ordering::Less;
        rest.swap(smaller, index);
        smaller += usize::from(is_smaller);
    }
    items.swap(0, smaller);
    smaller
}

/// Given a pivot and what is not smaller: what is left to sort. Many equal items, which would make
/// the halves uneven for ever, are gathered and left out.
fn skip_equal<'a, T>(rest: &'a mut [T], compare: &impl Fn(&T, &T) -> Ordering) -> &'a mut [T] {
    let (pivot, above) = rest.split_at_mut(1);
    let probes = [above.len() / 4, above.len() / 2, above.len() * 3 / 4];
    let equal = |item: &T| compare(item, &pivot[0]) == Ordering::Equal;
    if above.is_empty() || !probes.iter().any(|&probe| equal(&above[probe])) {
        return above;
    }
    let mut gathered = 0;
    for index in 0..above.len() {
        let is_equal = compare(&above[index], &pivot[0]) == Ordering::Equal;
        above.swap(gathered, index);
        gathered += usize::from(is_equal);
    }
    &mut above[gathered..]
}

fn median_of_nine<T>(items: &[T], compare: &impl Fn(&T, &T) -> Ordering) -> usize {
    let ninth = items.len() / 9;
    let three = |a: usize, b: usize, c: usize| {
        let mut order = [a, b, c];
        order.sort_unstable_by(|&x, &y| compare(&items[x], &items[y]));
        order[1]
    };
    let at = |position: usize| position * ninth + ninth / 2;
    three(
        three(at(0), at(1), at(2)),
        three(at(3), at(4), at(5)),
        three(at(6), at(7), at(8)),
    )
}

fn merge_sort<T: Send>(
    worker: &Worker<'_>,
    items: &mut [T],
    scratch: &mut [MaybeUninit<T>],
    compare: &(impl Fn(&T, &T) -> Ordering + Sync),
) {
    if items.len() <= SMALL {
        items.sort_by(|a, b| compare(a, b));
        return;
    }
    let middle = items.len() / 2;
    let (left, right) = items.split_at_mut(middle);
    let (left_scratch, right_scratch) = scratch.split_at_mut(middle);
    join_on(
        worker,
        |worker| merge_sort(worker, left, left_scratch, compare),
        |worker| merge_sort(worker, right, right_scratch, compare),
    );
    if compare(&items[middle - 1], &items[middle]) == Ordering::Greater {
        merge(items, middle, &mut scratch[..middle], compare);
    }
}

/// Merges the sorted `items[..middle]` and `items[middle..]`.
fn merge<T>(
    items: &mut [T],
    middle: usize,
    scratch: &mut [MaybeUninit<T>],
    compare: &impl Fn(&T, &T) -> Ordering,
) {
    debug_assert!(middle <= items.len() && middle <= scratch.len());
    let start = items.as_mut_ptr();
    let len = items.len();
    // SAFETY: both are valid for `middle` items and, being two exclusive borrows, do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(start, scratch.as_mut_ptr().cast(), middle) };
    // From here on the gap in `items` is as large as what is left in the scratch space; `Gap` closes
    // it, also when a comparison panics.
    let mut gap = Gap {
        items: start,
        filled: 0,
        scratch: scratch.as_ptr().cast(),
        used: 0,
        middle,
    };
    let mut right = middle;
    while gap.used < middle && right < len {
        // SAFETY: `used < middle`, so this is within the scratch space.
        let left = unsafe { gap.scratch.add(gap.used) };
        // SAFETY: `right < len`, so this is within the items.
        let next = unsafe { start.add(right) };
        // SAFETY: `filled < right`, because `right - filled == middle - used > 0`.
        let target = unsafe { start.add(gap.filled) };
        // SAFETY: this item of the scratch space was copied there above and not used up.
        let from_left = unsafe { &*left };
        // SAFETY: items from `right` on have not been moved.
        let from_right = unsafe { &*next };
        let source = if compare(from_right, from_left) == Ordering::Less {
            right += 1;
            next.cast_const()
        } else {
            gap.used += 1;
            left
        };
        // SAFETY: the source is valid, as said above, and the target is in the gap, so they are
        // different places.
        unsafe { std::ptr::copy_nonoverlapping(source, target, 1) };
        gap.filled += 1;
    }
}

/// What is left of the left half while merging.
struct Gap<T> {
    items: *mut T,
    /// Where the gap in `items` begins.
    filled: usize,
    scratch: *const T,
    /// What is left is `scratch[used..middle]`.
    used: usize,
    middle: usize,
}

impl<T> Drop for Gap<T> {
    fn drop(&mut self) {
        let left = self.middle - self.used;
        // SAFETY: `used <= middle`, which is within the scratch space.
        let source = unsafe { self.scratch.add(self.used) };
        // SAFETY: the gap of length `left` begins here, within `items`.
        let target = unsafe { self.items.add(self.filled) };
        // SAFETY: both are valid for `left` items and lie in different slices.
        unsafe { std::ptr::copy_nonoverlapping(source, target, left) };
    }
}

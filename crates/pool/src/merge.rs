//! Merging two sorted runs, in parallel and without branches that cannot be predicted.
//!
//! A large merge is cut in two: at the middle of the longer run, and in the other where that item
//! belongs. A small one is done from both ends at once, which gives the processor two independent
//! chains of comparisons. As long as both runs have `2 k` items left, `k` steps from each end cannot
//! exhaust either, so the inner loop does not ask.
//!
//! Items are copied, not moved: the runs keep theirs, so nothing is lost when a comparison panics,
//! and whoever calls decides which of the two copies counts. Each item is looked at by one thread at
//! a time, which is why `T: Send` is enough.

use std::cmp::Ordering;
use std::hint::select_unpredictable;
use std::mem::MaybeUninit;

use crate::join::join_halves;
use crate::worker::Worker;

/// Copies both sorted runs into `target`, which is as long as both together, in order; of equal
/// items those on the left come first. When it returns normally, all of `target` is filled.
pub(crate) fn merge<T: Send>(
    worker: &Worker<'_>,
    left: &mut [T],
    right: &mut [T],
    target: &mut [MaybeUninit<T>],
    compare: &(impl Fn(&T, &T) -> Ordering + Sync),
    grain: usize,
) {
    assert_eq!(left.len() + right.len(), target.len(), "room for both runs");
    if target.len() <= grain {
        merge_here(left, right, target, compare);
        return;
    }
    let (left_cut, right_cut) = cuts(left, right, compare);
    let (left_low, left_high) = left.split_at_mut(left_cut);
    let (right_low, right_high) = right.split_at_mut(right_cut);
    let (low, high) = target.split_at_mut(left_cut + right_cut);
    join_halves(
        worker,
        |worker| merge(worker, left_low, right_low, low, compare, grain),
        |worker| merge(worker, left_high, right_high, high, compare, grain),
    );
}

/// Where to cut both runs so that everything before the cuts comes first.
fn cuts<T>(left: &[T], right: &[T], compare: &impl Fn(&T, &T) -> Ordering) -> (usize, usize) {
    if left.len() >= right.len() {
        let cut = left.len() / 2;
        let is_before = |item: &T| compare(item, &left[cut]) == Ordering::Less;
        return (cut, right.partition_point(is_before));
    }
    let cut = right.len() / 2;
    let is_before = |item: &T| compare(item, &right[cut]) != Ordering::Greater;
    (left.partition_point(is_before), cut)
}

/// One thread's merge, from both ends.
fn merge_here<T>(
    left: &[T],
    right: &[T],
    target: &mut [MaybeUninit<T>],
    compare: &impl Fn(&T, &T) -> Ordering,
) {
    let is_above = |left: &T, right: &T| compare(right, left) == Ordering::Less;
    let is_in_order = match (left.last(), right.first()) {
        (Some(last), Some(first)) => !is_above(last, first),
        _ => true,
    };
    if is_in_order {
        let (low, high) = target.split_at_mut(left.len());
        copy(left, low);
        copy(right, high);
        return;
    }
    // What is left to merge: `left[a..a_end]`, `right[b..b_end]`, into `target[a + b..a_end + b_end]`.
    let (mut a, mut b, mut a_end, mut b_end) = (0, 0, left.len(), right.len());
    loop {
        let steps = (a_end - a).min(b_end - b) / 2;
        if steps == 0 {
            break;
        }
        for _ in 0..steps {
            let (first, second) = (&left[a], &right[b]);
            let takes_right = is_above(first, second);
            put(
                target,
                a + b,
                select_unpredictable(takes_right, second, first),
            );
            a += usize::from(!takes_right);
            b += usize::from(takes_right);

            let (first, second) = (&left[a_end - 1], &right[b_end - 1]);
            let takes_left = is_above(first, second);
            put(
                target,
                a_end + b_end - 1,
                select_unpredictable(takes_left, first, second),
            );
            a_end -= usize::from(takes_left);
            b_end -= usize::from(!takes_left);
        }
    }
    while a < a_end && b < b_end {
        let takes_right = is_above(&left[a], &right[b]);
        put(
            target,
            a + b,
            if takes_right { &right[b] } else { &left[a] },
        );
        a += usize::from(!takes_right);
        b += usize::from(takes_right);
    }
    // One of the two is exhausted.
    let rest = &mut target[a + b..a_end + b_end];
    copy(
        if a < a_end {
            &left[a..a_end]
        } else {
            &right[b..b_end]
        },
        rest,
    );
}

/// Copies one item.
#[inline]
fn put<T>(target: &mut [MaybeUninit<T>], index: usize, item: &T) {
    // SAFETY: a reference is valid for reading. The copy is not treated as an item before the caller
    // of `merge` decides so.
    target[index].write(unsafe { std::ptr::read(item) });
}

/// Copies all items into a target of the same length.
pub(crate) fn copy<T>(items: &[T], target: &mut [MaybeUninit<T>]) {
    assert_eq!(items.len(), target.len(), "room for all items");
    let start = target.as_mut_ptr().cast::<T>();
    // SAFETY: both are valid for so many items; a shared and an exclusive borrow do not overlap. The
    // copies are not treated as items before the caller decides so.
    unsafe { std::ptr::copy_nonoverlapping(items.as_ptr(), start, items.len()) };
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn merged(left: &[(u32, char)], right: &[(u32, char)]) -> Vec<(u32, char)> {
        let mut target = vec![MaybeUninit::uninit(); left.len() + right.len()];
        merge_here(left, right, &mut target, &|a, b| a.0.cmp(&b.0));
        // SAFETY: `merge_here` filled all of it.
        target
            .into_iter()
            .map(|item| unsafe { item.assume_init() })
            .collect()
    }

    #[test]
    fn every_pair_of_short_runs_is_merged_and_equal_items_keep_their_order() {
        // Every multiset of up to five numbers below four, on both sides.
        let runs: Vec<Vec<u32>> = (0..1024_u32)
            .flat_map(|bits| {
                (0..=5).map(move |len| (0..len).map(|i| bits >> (2 * i) & 3).collect())
            })
            .filter(|run: &Vec<u32>| run.is_sorted())
            .collect();
        for left in &runs {
            for right in &runs {
                let left: Vec<_> = left.iter().map(|&n| (n, 'l')).collect();
                let right: Vec<_> = right.iter().map(|&n| (n, 'r')).collect();
                let mut expected = [&left[..], &right[..]].concat();
                expected.sort_by_key(|item| item.0);
                assert_eq!(merged(&left, &right), expected);
            }
        }
    }

    #[test]
    fn a_nonsensical_order_loses_nothing() {
        let (left, right) = ([1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11]);
        for answers in 0..1 << 12_u32 {
            let asked = std::cell::Cell::new(answers);
            let compare = |_: &u32, _: &u32| {
                let answer = asked.get() & 1;
                asked.set(asked.get() >> 1);
                if answer == 1 {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            };
            let mut target = [MaybeUninit::uninit(); 11];
            merge_here(&left, &right, &mut target, &compare);
            // SAFETY: `merge_here` filled all of it.
            let mut all = target.map(|item| unsafe { item.assume_init() });
            all.sort_unstable();
            assert_eq!(all, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        }
    }
}

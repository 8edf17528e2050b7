//! Loops over slices and ranges that need no grain size.
//!
//! A worker runs its loop in blocks and splits what is left only when somebody could use half of
//! it: when a thief asked, or when it shows nothing that could be stolen ([`Worker::should_split`]).
//! The size of the blocks follows the clock: they double while they take less than [`BRIEF_NS`]
//! and halve when they take much longer. So items of a nanosecond cost next to nothing extra, and
//! of items of a second none waits behind another while a worker is idle.

use std::time::Instant;

use loxley_balance::PartitionError;

use crate::join::{Both, fork};
use crate::partition::Partition;
use crate::pool::Pool;
use crate::worker::Worker;

/// How long a block should take at least.
const BRIEF_NS: u128 = 5_000;

/// Something that can be cut into two parts and looped over.
pub trait Divide: Sized + Send {
    /// What the loop body gets.
    type Item;

    /// How many items there are.
    fn len(&self) -> usize;

    /// Are there none?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `count` items and the rest. `count` is at most `len`.
    #[must_use]
    fn cut(self, count: usize) -> (Self, Self);

    /// Takes each item in order into a running result.
    fn fold<R>(self, start: R, step: impl FnMut(R, Self::Item) -> R) -> R;
}

impl<'a, T: Sync> Divide for &'a [T] {
    type Item = &'a T;

    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    fn cut(self, count: usize) -> (Self, Self) {
        self.split_at(count)
    }

    fn fold<R>(self, start: R, step: impl FnMut(R, &'a T) -> R) -> R {
        self.iter().fold(start, step)
    }
}

impl<'a, T: Send> Divide for &'a mut [T] {
    type Item = &'a mut T;

    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    fn cut(self, count: usize) -> (Self, Self) {
        self.split_at_mut(count)
    }

    fn fold<R>(self, start: R, step: impl FnMut(R, &'a mut T) -> R) -> R {
        self.iter_mut().fold(start, step)
    }
}

macro_rules! divide_range {
    ($($number:ty),*) => {$(
        impl Divide for std::ops::Range<$number> {
            type Item = $number;

            fn len(&self) -> usize {
                if self.start < self.end {
                    usize::try_from(self.end.abs_diff(self.start)).unwrap_or(usize::MAX)
                } else {
                    0
                }
            }

            fn cut(self, count: usize) -> (Self, Self) {
                // `count` is at most the length, so it fits and the sum does not overflow; the
                // wrap is for signed ranges longer than the largest positive number.
                let middle = self.start.wrapping_add(count as $number);
                (self.start..middle, middle..self.end)
            }

            fn fold<R>(self, start: R, step: impl FnMut(R, $number) -> R) -> R {
                Iterator::fold(self, start, step)
            }
        }
    )*};
}

divide_range!(usize, u64, u32, i64, i32);

/// Runs a loop on this worker, sharing it as needed.
pub(crate) fn each_on<D, F>(worker: &Worker<'_>, items: D, body: &F)
where
    D: Divide,
    F: Fn(D::Item) + Sync,
{
    fold_on(worker, items, &|| (), &|(), item| body(item), &|(), ()| ());
}

/// Folds on this worker, sharing as needed. Results are combined in the order of the items.
pub(crate) fn fold_on<D, R, I, F, C>(
    worker: &Worker<'_>,
    mut items: D,
    identity: &I,
    step: &F,
    combine: &C,
) -> R
where
    D: Divide,
    R: Send,
    I: Fn() -> R + Sync,
    F: Fn(R, D::Item) -> R + Sync,
    C: Fn(R, R) -> R + Sync,
{
    let mut result = identity();
    let mut block = Block::new();
    loop {
        let left = items.len();
        if left > 1 && worker.should_split() {
            let (near, far) = items.cut(left / 2);
            let (near, far) = fork(
                worker,
                Both {
                    a: |worker: &Worker<'_>| fold_on(worker, near, identity, step, combine),
                    b: |worker: &Worker<'_>| fold_on(worker, far, identity, step, combine),
                },
            );
            return combine(combine(result, near), far);
        }
        if left == 0 {
            return result;
        }
        let (now, later) = items.cut(block.size(left));
        items = later;
        result = now.fold(result, step);
        block.finished();
    }
}

/// How many items to run between two looks around.
struct Block {
    size: usize,
    start: Instant,
}

impl Block {
    fn new() -> Self {
        Self {
            size: 1,
            start: Instant::now(),
        }
    }

    fn size(&self, left: usize) -> usize {
        self.size.min(left)
    }

    fn finished(&mut self) {
        let now = Instant::now();
        let took = now.duration_since(self.start).as_nanos();
        self.start = now;
        if took < BRIEF_NS {
            self.size = self.size.saturating_mul(2);
        } else if took > 4 * BRIEF_NS {
            self.size = (self.size / 2).max(1);
        }
    }
}

impl Pool {
    /// Calls `body` for each item of a slice or range, in parallel.
    ///
    /// ```
    /// # let pool = loxley_pool::Pool::new()?;
    /// let total = std::sync::atomic::AtomicU64::new(0);
    /// pool.par_for(0..100_u64, |i| {
    ///     total.fetch_add(i, std::sync::atomic::Ordering::Relaxed);
    /// });
    /// assert_eq!(total.into_inner(), 4950);
    /// # Ok::<(), loxley_pool::BuildError>(())
    /// ```
    pub fn par_for<D, F>(&self, items: D, body: F)
    where
        D: Divide,
        F: Fn(D::Item) + Sync,
    {
        self.enter(|worker| each_on(worker, items, &body));
    }

    /// Calls `body` with a mutable reference to each item of a slice, in parallel.
    pub fn par_for_each_mut<T, F>(&self, items: &mut [T], body: F)
    where
        T: Send,
        F: Fn(&mut T) + Sync,
    {
        self.par_for(items, body);
    }

    /// Maps each item and combines the results in the order of the items.
    ///
    /// `reduce` must be associative and `identity` neutral; it need not be commutative.
    ///
    /// ```
    /// # let pool = loxley_pool::Pool::new()?;
    /// let longest = pool.map_reduce(&["a", "ccc", "bb"][..], || 0, |s| s.len(), usize::max);
    /// assert_eq!(longest, 3);
    /// # Ok::<(), loxley_pool::BuildError>(())
    /// ```
    pub fn map_reduce<D, R, I, M, C>(&self, items: D, identity: I, map: M, reduce: C) -> R
    where
        D: Divide,
        R: Send,
        I: Fn() -> R + Sync,
        M: Fn(D::Item) -> R + Sync,
        C: Fn(R, R) -> R + Sync,
    {
        self.enter(|worker| {
            fold_on(
                worker,
                items,
                &identity,
                &|sum, item| reduce(sum, map(item)),
                &reduce,
            )
        })
    }

    /// Maps each item and collects the results in the order of the items.
    pub fn par_map<D, R, M>(&self, items: D, map: M) -> Vec<R>
    where
        D: Divide,
        R: Send,
        M: Fn(D::Item) -> R + Sync,
    {
        let push = |mut results: Vec<R>, item| {
            results.push(map(item));
            results
        };
        // Loops split only when somebody is idle, so there are few parts to put together.
        let append = |mut near: Vec<R>, mut far: Vec<R>| {
            if near.is_empty() {
                return far;
            }
            near.append(&mut far);
            near
        };
        self.enter(|worker| fold_on(worker, items, &Vec::new, &push, &append))
    }

    /// Calls `body` with consecutive pieces of `size` items (the last may be shorter) and the
    /// number of each piece, in parallel.
    ///
    /// # Panics
    /// If `size` is zero.
    pub fn par_chunks<T, F>(&self, items: &[T], size: usize, body: F)
    where
        T: Sync,
        F: Fn(usize, &[T]) + Sync,
    {
        assert!(size > 0, "a chunk has at least one item");
        self.par_for(0..items.len().div_ceil(size), |index| {
            let start = index * size;
            body(index, &items[start..items.len().min(start + size)]);
        });
    }

    /// As [`par_chunks`](Self::par_chunks), with mutable pieces.
    ///
    /// # Panics
    /// If `size` is zero.
    pub fn par_chunks_mut<T, F>(&self, items: &mut [T], size: usize, body: F)
    where
        T: Send,
        F: Fn(usize, &mut [T]) + Sync,
    {
        let mut pieces: Vec<(usize, &mut [T])> = items.chunks_mut(size).enumerate().collect();
        self.par_for(&mut pieces[..], |(index, piece)| body(*index, piece));
    }

    /// Calls `body` for each item, divided beforehand into one part per worker: for those who know
    /// what their items cost, or where they belong. Parts are not divided further.
    pub fn par_for_partitioned<T, F>(
        &self,
        items: &[T],
        partition: &Partition<'_>,
        body: F,
    ) -> Result<(), PartitionError>
    where
        T: Sync,
        F: Fn(&T) + Sync,
    {
        let parts = partition.divide(items.len(), self.workers())?;
        self.scope(|scope| {
            for part in &parts {
                let body = &body;
                scope.spawn(move |_| part.iter().for_each(|&index| body(&items[index])));
            }
        });
        Ok(())
    }
}

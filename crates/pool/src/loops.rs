//! Loops over slices and ranges that need no grain size.
//!
//! A worker runs its loop in blocks and splits what is left only when somebody could use half of
//! it: when a thief asked, or when it shows nothing that could be stolen ([`Worker::should_split`]).
//! The size of the blocks follows the clock: they grow while they take less than [`BRIEF`]
//! and halve when they take much longer. So items of a nanosecond cost next to nothing extra, and
//! of items of a second none waits behind another while a worker is idle.
//!
//! A loop that is over in a moment is not worth sharing at all. Nobody knows beforehand, so a worker
//! remembers which loops were brief the last time and begins those alone: for a block, then it looks at
//! the clock.

use loxley_balance::PartitionError;

use crate::divide::{Divide, IntoDivide};
use crate::join::{Both, fork_halves};
use crate::machine::{TICKS_PER_NS, ticks};
use crate::partition::Partition;
use crate::pool::Pool;
use crate::unwind::{Held, discard};
use crate::worker::Worker;

/// How long a block should take at least, in ticks: some microseconds.
const BRIEF: u64 = 5_000 * TICKS_PER_NS;
/// Shorter loops are always offered: one item may be most of the work.
const FEW: usize = 16;
/// With so many items a loop begins that was brief the last time, and so many times more items a block
/// may have than the one before.
const STEP: usize = 16;

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
    let code = fold_on::<D, R, I, F, C> as *const () as usize;
    let was_brief = items.len() >= FEW && worker.is_brief_loop(code);
    let mut result = identity();
    let mut block = Block::new(if was_brief { STEP } else { 1 });
    loop {
        let left = items.len();
        let may_split = left > 1 && !(was_brief && block.is_early());
        if may_split && worker.should_split() {
            let result = Held::new(result);
            let (near, far) = items.cut(left / 2);
            let (near, far) = fork_halves(
                worker,
                Both {
                    a: |worker: &Worker<'_>| fold_on(worker, near, identity, step, combine),
                    b: |worker: &Worker<'_>| fold_on(worker, far, identity, step, combine),
                },
            );
            let far = Held::new(far);
            return combine(combine(result.release(), near), far.release());
        }
        if left == 0 {
            worker.note_loop(code, block.is_early());
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
    begun: u64,
    /// When the last block ended.
    last: u64,
}

impl Block {
    #[inline]
    fn new(size: usize) -> Self {
        let begun = ticks();
        Self {
            size,
            begun,
            last: begun,
        }
    }

    #[inline]
    fn size(&self, left: usize) -> usize {
        self.size.min(left)
    }

    /// Has the loop just begun, as far as the clock was looked at?
    #[inline]
    fn is_early(&self) -> bool {
        self.last.wrapping_sub(self.begun) < BRIEF
    }

    #[inline]
    fn finished(&mut self) {
        let now = ticks();
        let took = now.wrapping_sub(self.last);
        self.last = now;
        if took < BRIEF {
            // As many as fit, judging by this one; twice as many at least.
            let fit = (BRIEF / took.max(1)) as usize;
            self.size = self.size.saturating_mul(fit.clamp(2, STEP));
        } else if took > 4 * BRIEF {
            self.size = (self.size / 2).max(1);
        }
    }
}

/// Items, each with the place where its result belongs.
struct Placed<D, R> {
    items: D,
    places: *mut R,
}

// SAFETY: the places are like `&mut [R]`: each is used by one thread, to write a result into it.
unsafe impl<D: Send, R: Send> Send for Placed<D, R> {}

impl<D: Divide, R: Send> Divide for Placed<D, R> {
    type Item = (D::Item, *mut R);

    fn len(&self) -> usize {
        self.items.len()
    }

    fn cut(self, count: usize) -> (Self, Self) {
        let (near, far) = self.items.cut(count);
        // SAFETY: there are as many places as items, and `count` is at most as many.
        let far_places = unsafe { self.places.add(count) };
        let near = Self {
            items: near,
            places: self.places,
        };
        let far = Self {
            items: far,
            places: far_places,
        };
        (near, far)
    }

    #[inline]
    fn fold<S>(self, start: S, mut step: impl FnMut(S, Self::Item) -> S) -> S {
        let mut place = self.places;
        self.items.fold(start, |state, item| {
            let here = place;
            // Not beyond the last place but by one; never followed there.
            place = here.wrapping_add(1);
            step(state, (item, here))
        })
    }
}

/// Results that lie one after the other and have to be dropped, unless all of them are there.
struct Written<R> {
    first: *mut R,
    count: usize,
}

// SAFETY: it owns results, which may go to other threads.
unsafe impl<R: Send> Send for Written<R> {}

impl<R> Written<R> {
    fn none() -> Self {
        Self {
            first: std::ptr::null_mut(),
            count: 0,
        }
    }

    #[inline]
    fn add(&mut self, place: *mut R) {
        if self.count == 0 {
            self.first = place;
        }
        self.count += 1;
    }

    /// Adds what comes right after.
    fn append(mut self, after: Self) -> Self {
        if self.count == 0 {
            return after;
        }
        self.count += after.count;
        std::mem::forget(after);
        self
    }
}

impl<R> Drop for Written<R> {
    fn drop(&mut self) {
        for index in 0..self.count {
            // SAFETY: so many results were written from there on.
            let place = unsafe { self.first.add(index) };
            // SAFETY: a result was written there, and nobody else owns it. One by one: an item has panicked, and
            // any of these may.
            discard(unsafe { place.read() });
        }
    }
}

/// Maps each item into the place of its result.
fn map_on<D, R, M>(worker: &Worker<'_>, items: D, map: &M) -> Vec<R>
where
    D: Divide,
    R: Send,
    M: Fn(D::Item) -> R + Sync,
{
    let count = items.len();
    let mut results = Vec::with_capacity(count);
    let placed = Placed {
        items,
        places: results.as_mut_ptr(),
    };
    let step = |mut written: Written<R>, (item, place): (D::Item, *mut R)| {
        let result = map(item);
        // SAFETY: the place is within the capacity and belongs to this item.
        unsafe { place.write(result) };
        if std::mem::needs_drop::<R>() {
            written.add(place);
        }
        written
    };
    let append = |near: Written<R>, far| near.append(far);
    let written = fold_on(worker, placed, &Written::none, &step, &append);
    std::mem::forget(written);
    // SAFETY: there is room for so many, and a result was written for each item.
    unsafe { results.set_len(count) };
    results
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
        D: IntoDivide,
        F: Fn(<D::Divide as Divide>::Item) + Sync,
    {
        self.enter(|worker| each_on(worker, items.into_divide(), &body));
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
        D: IntoDivide,
        R: Send,
        I: Fn() -> R + Sync,
        M: Fn(<D::Divide as Divide>::Item) -> R + Sync,
        C: Fn(R, R) -> R + Sync,
    {
        self.enter(|worker| {
            fold_on(
                worker,
                items.into_divide(),
                &identity,
                &|sum, item| {
                    let sum = Held::new(sum);
                    let mapped = map(item);
                    reduce(sum.release(), mapped)
                },
                &reduce,
            )
        })
    }

    /// Maps each item and collects the results in the order of the items.
    pub fn par_map<D, R, M>(&self, items: D, map: M) -> Vec<R>
    where
        D: IntoDivide,
        R: Send,
        M: Fn(<D::Divide as Divide>::Item) -> R + Sync,
    {
        self.enter(|worker| map_on(worker, items.into_divide(), &map))
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

//! A work-stealing thread pool: takes work from the busy and gives it to the idle.
//!
//! ```
//! use loxley_pool::{Pool, join};
//!
//! fn sum(numbers: &[u64]) -> u64 {
//!     if numbers.len() <= 2 {
//!         return numbers.iter().sum();
//!     }
//!     let (left, right) = numbers.split_at(numbers.len() / 2);
//!     let (left, right) = join(|| sum(left), || sum(right)); // no grain size, no tuning
//!     left + right
//! }
//!
//! let pool = Pool::builder().workers(2).build()?;
//! let numbers: Vec<u64> = (1..=1000).collect();
//! assert_eq!(pool.install(|| sum(&numbers)), 500_500);
//!
//! let squares = pool.par_map(&numbers[..], |n| n * n);
//! assert_eq!(squares[9], 100);
//!
//! let handle = pool.spawn(|| 6 * 7);
//! assert_eq!(handle.wait(), 42);
//! # Ok::<(), loxley_pool::BuildError>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | run two closures, perhaps at once | [`join`], [`join_unordered`] |
//! | run many closures that borrow | [`scope`], [`Scope::spawn`] |
//! | loop, map, fold, sort | [`Pool::par_for`], [`Pool::par_map`], [`Pool::map_reduce`], [`Pool::sort`] |
//! | divide by known costs | [`Pool::par_for_partitioned`] with a [`Partition`] |
//! | run something later | [`spawn`] with a [`Handle`], [`Pool::spawn_detached`] |
//! | say how urgent, or where | [`Pool::spawn_at`], [`Pool::spawn_near`], [`Pool::spawn_near_data`] |
//! | run futures; limit concurrency; block | [`Pool::spawn_future`], [`Pool::group`], [`blocking`] |
//! | see what happened | [`Pool::metrics`], [`Pool::measure`], [`Pool::start_trace`] |
//!
//! # What you can rely on
//! - **No tuning.** A join is two plain calls until somebody is idle; loops split only then.
//! - **Locks across joins are safe.** A worker that waits for a join, a scope or a handle runs only
//!   units made inside what it waits for. It never takes up unrelated work that could want a lock
//!   its caller holds, and its stack grows only with your own recursion. (rayon and others do take
//!   up anything.) When unrelated work waits meanwhile and nobody is free, another thread stands in.
//! - **Exact ends.** [`scope`] returns when all of its units, and theirs, are over;
//!   [`Pool::wait_idle`] when no detached unit is left; dropping a pool runs what was spawned.
//! - **Panics travel** to whoever waits, and never take a worker with them. If both closures of a
//!   join panic, the first one's panic is passed on. A scope whose unit panics cancels the rest.
//! - **An idle pool sleeps.** One new unit wakes at most one thread.
//!
//! # Words
//! A *unit* is a closure that may run on another thread; a *worker* is a thread of the pool; a
//! *guest* is any other thread while it is inside [`Pool::install`] or similar: it works along on a
//! seat of its own, and one worker fewer is kept awake.
//!
//! How it works and what was measured: `docs/internals/pool.md`. What proves it: loom models of the
//! lock-free parts (`tests/loom.rs`), stress and property tests.
#![expect(
    unsafe_code,
    reason = "units on the stack, borrowed closures on other threads: what a pool is for"
)]

mod block;
mod blocking;
mod builder;
mod count;
mod deque;
mod detached;
mod divide;
mod errand;
mod follow;
mod future;
mod group;
mod handle;
mod injector;
mod join;
mod join_order;
mod latch;
mod loops;
mod machine;
mod mailbox;
mod measure;
mod merge;
mod metrics;
mod numbers;
mod partition;
mod pool;
mod priority;
#[doc(hidden)]
pub mod raw;
mod ring;
mod scope;
mod seat;
mod sleep;
mod slot;
mod sort;
mod spawn;
mod sync;
mod tally;
mod top;
mod trace;
mod unit;
mod unwind;
mod wait;
mod worker;

pub use blocking::blocking;
pub use builder::{BuildError, PoolBuilder};
pub use divide::{Divide, IntoDivide, Owned};
pub use group::Group;
pub use handle::Handle;
pub use loxley_balance::{
    BalanceReport, PartitionError, Patience, Place, StealAmount, Topology, VictimOrder,
};
pub use metrics::{Metrics, WorkerMetrics};
pub use partition::Partition;
pub use pool::Pool;
pub use priority::Priority;
pub use scope::Scope;

/// Calls `a` and `b`, potentially in parallel, and returns both results.
///
/// Uses the pool the caller is in, or the global one. `a` begins, on the calling thread; `b` follows
/// there, unless a thief took it meanwhile. Costs next to nothing while nobody is idle, so it can be
/// called for very small pieces of work.
///
/// # Panics
/// If one of them panics, with its payload; `a`'s if both do. Both are called in any case.
///
/// ```
/// let (a, b) = loxley_pool::join(|| 1 + 1, || "two".len());
/// assert_eq!((a, b), (2, 3));
/// ```
#[inline(always)]
pub fn join<RA: Send, RB: Send>(
    a: impl FnOnce() -> RA + Send,
    b: impl FnOnce() -> RB + Send,
) -> (RA, RB) {
    worker::with_current(|worker| match worker {
        Some(worker) => join::join_on(worker, |_| a(), |_, _| b()),
        None => join_outside(join::Both { a, b }),
    })
}

#[cold]
#[inline(never)]
fn join_outside<A, B, RA, RB>(both: join::Both<A, B>) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    Pool::global().join(both.a, both.b)
}

/// As [`join`], without its promise about the order: which closure begins is learned from earlier joins
/// of the same thread, and is the one that took longer. Faster where one side is much larger and it is
/// not known which; neither closure may wait for something that the other does.
///
/// # Panics
/// As [`join`].
///
/// ```
/// let (a, b) = loxley_pool::join_unordered(|| 1 + 1, || "two".len());
/// assert_eq!((a, b), (2, 3));
/// ```
#[inline]
pub fn join_unordered<RA: Send, RB: Send>(
    a: impl FnOnce() -> RA + Send,
    b: impl FnOnce() -> RB + Send,
) -> (RA, RB) {
    worker::with_current(|worker| match worker {
        Some(worker) => join::join_unordered_on(worker, |_| a(), |_| b()),
        None => Pool::global().join_unordered(a, b),
    })
}

/// Calls `body` with a [`Scope`] and returns when all units spawned in it, directly or not, are done.
///
/// Uses the pool the caller is in, or the global one.
///
/// # Panics
/// If `body` or one of the units panics, with its payload; the units that have not started by then
/// are dropped.
///
/// ```
/// let mut parts = [0; 4];
/// loxley_pool::scope(|s| {
///     for (i, part) in parts.iter_mut().enumerate() {
///         s.spawn(move |_| *part = i * i);
///     }
/// });
/// assert_eq!(parts, [0, 1, 4, 9]);
/// ```
///
/// What a unit borrows must outlive the scope:
/// ```compile_fail,E0597
/// loxley_pool::scope(|s| {
///     let local = 1;
///     s.spawn(|_| println!("{local}"));
/// });
/// ```
/// and must be fit for other threads:
/// ```compile_fail,E0277
/// let shared = std::rc::Rc::new(1);
/// loxley_pool::scope(|s| s.spawn(|_| drop(shared.clone())));
/// ```
pub fn scope<'scope, R: Send>(body: impl FnOnce(&Scope<'scope>) -> R + Send) -> R {
    worker::with_current(|worker| match worker {
        Some(worker) => scope::scope_on(worker, body),
        None => Pool::global().scope(body),
    })
}

/// Runs `body` some time on some worker of the current pool, or of the global one, and gives its
/// result to the handle.
///
/// ```
/// let handle = loxley_pool::spawn(|| 6 * 7);
/// assert_eq!(handle.wait(), 42);
/// ```
pub fn spawn<T, F>(body: F) -> Handle<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    spawn::spawn_here(body)
}

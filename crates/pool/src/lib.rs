//! A work-stealing thread pool.
#![expect(
    unsafe_code,
    reason = "units on the stack, borrowed closures on other threads: what a pool is for"
)]

mod block;
mod blocking;
mod deque;
mod detached;
mod future;
mod group;
mod handle;
mod injector;
mod join;
mod latch;
mod loops;
mod machine;
mod mailbox;
mod measure;
mod metrics;
mod partition;
mod pool;
mod priority;
mod ring;
mod scope;
mod sleep;
mod sort;
mod spawn;
mod sync;
mod tally;
mod trace;
mod unit;
mod wait;
mod worker;

pub use blocking::blocking;
pub use group::Group;
pub use handle::Handle;
pub use loops::Divide;
pub use loxley_balance::{
    BalanceReport, PartitionError, Patience, Place, StealAmount, Topology, VictimOrder,
};
pub use metrics::{Metrics, WorkerMetrics};
pub use partition::Partition;
pub use pool::{BuildError, Pool, PoolBuilder};
pub use priority::Priority;
pub use scope::Scope;

/// Calls `a` and `b`, potentially in parallel, and returns both results.
#[inline]
pub fn join<RA: Send, RB: Send>(
    a: impl FnOnce() -> RA + Send,
    b: impl FnOnce() -> RB + Send,
) -> (RA, RB) {
    worker::with_current(|worker| match worker {
        Some(worker) => join::join_on(worker, |_| a(), |_| b()),
        None => join_outside(a, b),
    })
}

#[cold]
#[inline(never)]
fn join_outside<RA: Send, RB: Send>(
    a: impl FnOnce() -> RA + Send,
    b: impl FnOnce() -> RB + Send,
) -> (RA, RB) {
    Pool::global().join(a, b)
}

/// Calls `body` with a [`Scope`] and returns when all units spawned in it, directly or not, are done.
pub fn scope<'scope, R: Send>(body: impl FnOnce(&Scope<'scope>) -> R + Send) -> R {
    worker::with_current(|worker| match worker {
        Some(worker) => scope::scope_on(worker, body),
        None => Pool::global().scope(body),
    })
}

/// Runs `body` some time on some worker of the current pool, or of the global one, and gives its
/// result to the handle.
pub fn spawn<T, F>(body: F) -> Handle<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    spawn::spawn_here(body)
}

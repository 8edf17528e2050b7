//! Something that every thread of a pool does once.

use std::fmt;
use std::marker::PhantomData;

use loxley_pool::raw::{self, RawPool};

use crate::registry;

/// Runs `op` once on each thread of the current pool, or of the global one, and returns the results in
/// the order of the threads. A busy thread does it when its own queue is empty.
pub fn broadcast<OP, R>(op: OP) -> Vec<R>
where
    OP: Fn(BroadcastContext<'_>) -> R + Sync,
    R: Send,
{
    broadcast_in(&registry::current(), op)
}

/// As [`broadcast`], without waiting.
pub fn spawn_broadcast<OP>(op: OP)
where
    OP: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
{
    spawn_broadcast_in(&registry::current(), op);
}

pub(crate) fn broadcast_in<OP, R>(pool: &RawPool, op: OP) -> Vec<R>
where
    OP: Fn(BroadcastContext<'_>) -> R + Sync,
    R: Send,
{
    pool.broadcast(|index| op(BroadcastContext::new(index)))
}

pub(crate) fn spawn_broadcast_in<OP>(pool: &RawPool, op: OP)
where
    OP: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
{
    for _ in 0..pool.threads() {
        pool.keep();
    }
    pool.spawn_broadcast(move |index| op(BroadcastContext::new(index)));
}

/// Where a broadcast closure runs.
pub struct BroadcastContext<'a> {
    index: usize,
    /// It says something about the thread that it is given to.
    stays: PhantomData<&'a mut dyn Fn()>,
}

impl BroadcastContext<'_> {
    pub(crate) fn new(index: usize) -> Self {
        Self {
            index,
            stays: PhantomData,
        }
    }

    /// The number of the thread in its pool.
    #[inline]
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many threads take part.
    #[inline]
    #[must_use]
    pub fn num_threads(&self) -> usize {
        raw::current_threads().expect("a broadcast runs on threads of a pool")
    }
}

impl fmt::Debug for BroadcastContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroadcastContext")
            .field("index", &self.index())
            .field("num_threads", &self.num_threads())
            .finish_non_exhaustive()
    }
}

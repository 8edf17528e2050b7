//! Pools of one's own, and what a thread can ask about the one it is in.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use loxley_pool::raw;

use crate::broadcast::{BroadcastContext, broadcast_in, spawn_broadcast_in};
use crate::registry::{Registry, ThreadSpawn};
use crate::scope::in_place_scope_in;
use crate::spawn::{spawn_fifo_in, spawn_in};
use crate::{Scope, ScopeFifo, ThreadPoolBuildError, ThreadPoolBuilder, join, scope, scope_fifo};

/// A pool of threads. When it is dropped its threads end, after everything that was spawned.
pub struct ThreadPool {
    registry: Arc<Registry>,
}

impl ThreadPool {
    /// Starts a pool.
    #[deprecated(note = "Use `ThreadPoolBuilder::build`")]
    #[expect(deprecated, reason = "rayon still has it")]
    pub fn new(configuration: crate::Configuration) -> Result<Self, Box<dyn Error>> {
        Self::build(configuration.builder).map_err(Box::from)
    }

    pub(crate) fn build<S: ThreadSpawn>(
        builder: ThreadPoolBuilder<S>,
    ) -> Result<Self, ThreadPoolBuildError> {
        let registry = Registry::new(builder)?;
        Ok(Self { registry })
    }

    /// Calls `op` on a thread of this pool and returns its result. A thread of another pool goes on with
    /// the work of its own pool meanwhile.
    pub fn install<OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce() -> R + Send,
        R: Send,
    {
        self.registry.pool.run(|_| op())
    }

    /// Runs `op` once on each thread and returns the results in the order of the threads.
    pub fn broadcast<OP, R>(&self, op: OP) -> Vec<R>
    where
        OP: Fn(BroadcastContext<'_>) -> R + Sync,
        R: Send,
    {
        broadcast_in(&self.registry.pool, op)
    }

    /// How many threads it has.
    #[inline]
    #[must_use]
    pub fn current_num_threads(&self) -> usize {
        self.registry.num_threads()
    }

    /// The number of the calling thread, if it is one of this pool.
    #[inline]
    #[must_use]
    pub fn current_thread_index(&self) -> Option<usize> {
        self.registry.pool.index()
    }

    /// Does anything wait in the queues of the calling thread, if it is one of this pool?
    #[inline]
    #[must_use]
    pub fn current_thread_has_pending_tasks(&self) -> Option<bool> {
        self.in_it(raw::has_pending)
    }

    /// [`join`](crate::join) in this pool.
    pub fn join<A, B, RA, RB>(&self, oper_a: A, oper_b: B) -> (RA, RB)
    where
        A: FnOnce() -> RA + Send,
        B: FnOnce() -> RB + Send,
        RA: Send,
        RB: Send,
    {
        self.install(|| join(oper_a, oper_b))
    }

    /// [`scope`](crate::scope) in this pool.
    pub fn scope<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&Scope<'scope>) -> R + Send,
        R: Send,
    {
        self.install(|| scope(op))
    }

    /// [`scope_fifo`](crate::scope_fifo) in this pool.
    pub fn scope_fifo<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&ScopeFifo<'scope>) -> R + Send,
        R: Send,
    {
        self.install(|| scope_fifo(op))
    }

    /// [`in_place_scope`](crate::in_place_scope) with the units in this pool.
    pub fn in_place_scope<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&Scope<'scope>) -> R,
    {
        in_place_scope_in(self.registry.pool.clone(), op)
    }

    /// [`in_place_scope_fifo`](crate::in_place_scope_fifo) with the units in this pool.
    pub fn in_place_scope_fifo<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&ScopeFifo<'scope>) -> R,
    {
        in_place_scope_in(self.registry.pool.clone(), op)
    }

    /// [`spawn`](crate::spawn) in this pool.
    pub fn spawn<OP>(&self, op: OP)
    where
        OP: FnOnce() + Send + 'static,
    {
        spawn_in(&self.registry.pool, op);
    }

    /// [`spawn_fifo`](crate::spawn_fifo) in this pool.
    pub fn spawn_fifo<OP>(&self, op: OP)
    where
        OP: FnOnce() + Send + 'static,
    {
        spawn_fifo_in(&self.registry.pool, op);
    }

    /// [`spawn_broadcast`](crate::spawn_broadcast) in this pool.
    pub fn spawn_broadcast<OP>(&self, op: OP)
    where
        OP: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
    {
        spawn_broadcast_in(&self.registry.pool, op);
    }

    /// [`yield_now`](crate::yield_now), on a thread of this pool.
    #[must_use]
    pub fn yield_now(&self) -> Option<Yield> {
        self.in_it(yield_now)
    }

    /// [`yield_local`](crate::yield_local), on a thread of this pool.
    #[must_use]
    pub fn yield_local(&self) -> Option<Yield> {
        self.in_it(yield_local)
    }

    /// What `ask` says, on a thread of this pool.
    fn in_it<R>(&self, ask: impl FnOnce() -> Option<R>) -> Option<R> {
        self.registry.pool.is_current().then(ask).flatten()
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.registry.pool.let_go();
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool")
            .field("num_threads", &self.current_num_threads())
            .field("id", &self.registry.pool.id())
            .finish()
    }
}

/// The number of the calling thread in the pool that it is in.
#[inline]
#[must_use]
pub fn current_thread_index() -> Option<usize> {
    raw::current_index()
}

/// Does anything wait in the queues of the calling thread?
#[inline]
#[must_use]
pub fn current_thread_has_pending_tasks() -> Option<bool> {
    raw::has_pending()
}

/// Runs one unit of the pool that the calling thread is in, if there is one.
pub fn yield_now() -> Option<Yield> {
    raw::yield_now().map(Yield::of)
}

/// Runs one unit that waits in the queues of the calling thread, if there is one.
pub fn yield_local() -> Option<Yield> {
    raw::yield_local().map(Yield::of)
}

/// What came of yielding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yield {
    /// A unit was run.
    Executed,
    /// There was none.
    Idle,
}

impl Yield {
    fn of(has_run: bool) -> Self {
        if has_run { Self::Executed } else { Self::Idle }
    }
}

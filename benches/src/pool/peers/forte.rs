//! forte: lazy heartbeat scheduling; pools are static, and a thread that joins becomes a member.

use crate::pool::contract::{ForkJoin, Spawner};

pub(crate) struct Forte(&'static forte::ThreadPool);

impl Forte {
    /// A pool for fork-join: the calling thread is a member too, so one thread fewer is started.
    pub(crate) fn joining(workers: usize) -> Self {
        Self::with_threads(workers - 1)
    }

    /// A pool for closures from outside: the submitting thread does not work.
    pub(crate) fn spawning(workers: usize) -> Self {
        Self::with_threads(workers)
    }

    fn with_threads(threads: usize) -> Self {
        // forte wants a static pool; a leaked one is emptied again when this is dropped.
        let pool: &'static forte::ThreadPool = Box::leak(Box::new(forte::ThreadPool::new()));
        pool.resize_to(threads);
        Self(pool)
    }
}

impl Drop for Forte {
    fn drop(&mut self) {
        self.0.depopulate();
    }
}

impl ForkJoin for Forte {
    type Context<'a> = &'a forte::Worker;

    fn run<R, F>(&self, root: F) -> R
    where
        F: FnOnce(&mut &forte::Worker) -> R + Send,
        R: Send,
    {
        self.0.with_worker(|mut worker| root(&mut worker))
    }

    #[inline]
    fn join<A, B, RA, RB>(worker: &mut &forte::Worker, left: A, right: B) -> (RA, RB)
    where
        A: FnOnce(&mut &forte::Worker) -> RA + Send,
        B: FnOnce(&mut &forte::Worker) -> RB + Send,
        RA: Send,
        RB: Send,
    {
        // forte runs its second closure first and offers the first one to others; everyone else
        // begins on the left.
        let (right, left) = worker.join(
            |mut worker| right(&mut worker),
            |mut worker| left(&mut worker),
        );
        (left, right)
    }
}

impl Spawner for Forte {
    type Inside<'a> = forte::Worker;

    fn spawn(&self, unit: impl FnOnce() + Send + 'static) {
        self.0.spawn(|_: &forte::Worker| unit());
    }

    fn enter(&self, root: impl FnOnce(&forte::Worker) + Send + 'static) {
        self.0.spawn(|worker: &forte::Worker| root(worker));
    }

    fn spawn_inside(inside: &forte::Worker, unit: impl FnOnce() + Send + 'static) {
        inside.spawn(|_: &forte::Worker| unit());
    }
}

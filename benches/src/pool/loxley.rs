//! The subject: `loxley-pool`, used as a program would use it.

use std::sync::Arc;

use loxley_pool::{Pool, Priority};

use super::contract::{ForkJoin, Scoping, Spawner};

pub(crate) struct Loxley(Arc<Pool>);

impl Loxley {
    pub(crate) fn new(workers: usize) -> Self {
        let pool = Pool::builder().workers(workers).build();
        Self(Arc::new(pool.expect("threads can be started")))
    }
}

impl ForkJoin for Loxley {
    type Context<'a> = ();

    fn run<R, F>(&self, root: F) -> R
    where
        F: FnOnce(&mut ()) -> R + Send,
        R: Send,
    {
        self.0.install(|| root(&mut ()))
    }

    #[inline]
    fn join<A, B, RA, RB>((): &mut (), left: A, right: B) -> (RA, RB)
    where
        A: FnOnce(&mut ()) -> RA + Send,
        B: FnOnce(&mut ()) -> RB + Send,
        RA: Send,
        RB: Send,
    {
        loxley_pool::join(|| left(&mut ()), || right(&mut ()))
    }

    fn for_each<F>(&self, count: usize, body: F)
    where
        F: Fn(usize) + Sync,
    {
        self.0.par_for(0..count, body);
    }
}

impl Spawner for Loxley {
    type Inside<'a> = Pool;

    fn spawn(&self, unit: impl FnOnce() + Send + 'static) {
        self.0.spawn_detached(unit);
    }

    fn enter(&self, root: impl FnOnce(&Pool) + Send + 'static) {
        let pool = Arc::clone(&self.0);
        self.0.spawn_detached(move || root(&pool));
    }

    fn spawn_inside(inside: &Pool, unit: impl FnOnce() + Send + 'static) {
        inside.spawn_detached(unit);
    }

    fn spawn_urgent(&self, unit: impl FnOnce() + Send + 'static) {
        drop(self.0.spawn_at(Priority::Highest, unit));
    }
}

impl Scoping for Loxley {
    type Scope = loxley_pool::Scope<'static>;

    fn scope(body: impl FnOnce(&Self::Scope) + Send) {
        loxley_pool::scope(body);
    }

    #[inline]
    fn spawn_scoped(scope: &Self::Scope, unit: impl FnOnce(&Self::Scope) + Send + 'static) {
        scope.spawn(unit);
    }
}

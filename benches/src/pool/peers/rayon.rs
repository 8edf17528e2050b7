//! rayon: Chase-Lev deques, a shared injector, workers found through a thread-local.

use rayon::prelude::*;

use crate::pool::contract::{ForkJoin, Scoping, Spawner};

pub(crate) struct Rayon(rayon::ThreadPool);

impl Rayon {
    pub(crate) fn new(workers: usize) -> Self {
        Self(
            rayon::ThreadPoolBuilder::new()
                .num_threads(workers)
                .build()
                .expect("threads can be started"),
        )
    }
}

impl ForkJoin for Rayon {
    type Context<'a> = ();

    fn run<R, F>(&self, root: F) -> R
    where
        F: FnOnce(&mut ()) -> R + Send,
        R: Send,
    {
        self.0.install(|| root(&mut ()))
    }

    #[inline]
    fn join<A, B, RA, RB>(_: &mut (), left: A, right: B) -> (RA, RB)
    where
        A: FnOnce(&mut ()) -> RA + Send,
        B: FnOnce(&mut ()) -> RB + Send,
        RA: Send,
        RB: Send,
    {
        rayon::join(|| left(&mut ()), || right(&mut ()))
    }

    fn for_each<F>(&self, count: usize, body: F)
    where
        F: Fn(usize) + Sync,
    {
        self.0
            .install(|| (0..count).into_par_iter().for_each(&body));
    }
}

impl Spawner for Rayon {
    type Inside<'a> = ();

    fn spawn(&self, unit: impl FnOnce() + Send + 'static) {
        self.0.spawn(unit);
    }

    fn enter(&self, root: impl FnOnce(&()) + Send + 'static) {
        self.0.spawn(|| root(&()));
    }

    fn spawn_inside((): &(), unit: impl FnOnce() + Send + 'static) {
        rayon::spawn(unit);
    }
}

impl Scoping for Rayon {
    type Scope = rayon::Scope<'static>;

    fn scope(body: impl FnOnce(&Self::Scope) + Send) {
        rayon::scope(body);
    }

    #[inline]
    fn spawn_scoped(scope: &Self::Scope, unit: impl FnOnce(&Self::Scope) + Send + 'static) {
        scope.spawn(unit);
    }
}

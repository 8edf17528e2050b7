//! chili: heartbeat scheduling, fork-join only; the calling thread is one of the workers.

use std::num::NonZero;

use crate::pool::contract::ForkJoin;

pub(crate) struct Chili(chili::ThreadPool);

impl Chili {
    pub(crate) fn new(workers: usize) -> Self {
        Self(chili::ThreadPool::with_config(chili::Config {
            thread_count: NonZero::new(workers),
            ..chili::Config::default()
        }))
    }
}

impl ForkJoin for Chili {
    type Context<'a> = chili::Scope<'a>;

    fn run<R, F>(&self, root: F) -> R
    where
        F: FnOnce(&mut chili::Scope<'_>) -> R + Send,
        R: Send,
    {
        root(&mut self.0.scope())
    }

    #[inline]
    fn join<A, B, RA, RB>(scope: &mut chili::Scope<'_>, left: A, right: B) -> (RA, RB)
    where
        A: FnOnce(&mut chili::Scope<'_>) -> RA + Send,
        B: FnOnce(&mut chili::Scope<'_>) -> RB + Send,
        RA: Send,
        RB: Send,
    {
        // chili runs its second closure first and offers the first one to others; everyone else
        // begins on the left.
        let (right, left) = scope.join(right, left);
        (left, right)
    }
}

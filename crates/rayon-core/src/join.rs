//! Two closures, potentially in parallel.

use std::marker::PhantomData;

use loxley_pool::raw;

use crate::registry;

/// What a closure of [`join_context`] is told.
#[derive(Debug)]
pub struct FnContext {
    migrated: bool,
    /// It says something about the thread that it is given to.
    stays: PhantomData<*mut ()>,
}

impl FnContext {
    #[inline]
    fn new(migrated: bool) -> Self {
        Self {
            migrated,
            stays: PhantomData,
        }
    }

    /// Does the closure run on another thread than the one that called `join_context`?
    #[inline]
    #[must_use]
    pub fn migrated(&self) -> bool {
        self.migrated
    }
}

/// Calls both closures, potentially in parallel, and returns both results.
#[inline(always)]
pub fn join<A, B, RA, RB>(oper_a: A, oper_b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    raw::join(move |_| oper_a(), move |_| oper_b(), join_outside)
}

/// As [`join`]; the closures are told whether they were moved to another thread.
#[inline(always)]
pub fn join_context<A, B, RA, RB>(oper_a: A, oper_b: B) -> (RA, RB)
where
    A: FnOnce(FnContext) -> RA + Send,
    B: FnOnce(FnContext) -> RB + Send,
    RA: Send,
    RB: Send,
{
    raw::join(
        move |migrated| oper_a(FnContext::new(migrated)),
        move |migrated| oper_b(FnContext::new(migrated)),
        join_outside,
    )
}

/// Moves both closures to the global pool.
#[cold]
#[inline(never)]
fn join_outside<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce(bool) -> RA + Send,
    B: FnOnce(bool) -> RB + Send,
    RA: Send,
    RB: Send,
{
    registry::global().pool.run(|_| {
        raw::join(
            |_| a(true),
            |_| b(true),
            |_, _| unreachable!("a thread of the pool sits in it"),
        )
    })
}

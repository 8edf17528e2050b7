//! Units that borrow.

use std::fmt;
use std::marker::PhantomData;

use loxley_pool::raw::{RawPool, RawScope, Turns};

use crate::broadcast::BroadcastContext;
use crate::registry;

/// Units that may borrow, and are done when [`scope`] returns.
pub type Scope<'scope> = OrderedScope<'scope, NewestFirst>;

/// As [`Scope`]; what one thread spawns into it begins in order.
pub type ScopeFifo<'scope> = OrderedScope<'scope, OldestFirst>;

/// Units that may borrow, and in which order a thread begins with those that it spawned.
#[repr(transparent)]
pub struct OrderedScope<'scope, O>(RawScope<'scope>, PhantomData<O>);

/// The order in which a thread begins with what it spawned. Implemented in this crate only.
pub trait Order: sealed::Sealed {
    /// For the pool.
    const TURNS: Turns;
    /// What rayon calls such a scope.
    const SCOPE: &'static str;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::NewestFirst {}
    impl Sealed for super::OldestFirst {}
}

/// Last in, first out.
#[derive(Debug)]
pub struct NewestFirst;

impl Order for NewestFirst {
    const TURNS: Turns = Turns::Newest;
    const SCOPE: &'static str = "Scope";
}

/// First in, first out.
#[derive(Debug)]
pub struct OldestFirst;

impl Order for OldestFirst {
    const TURNS: Turns = Turns::Oldest;
    const SCOPE: &'static str = "ScopeFifo";
}

/// Calls `op` with a new scope, on a thread of the current pool, or of the global one, and returns when
/// all of its units are done.
pub fn scope<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&Scope<'scope>) -> R + Send,
    R: Send,
{
    scope_in(&registry::current(), op)
}

/// As [`scope`], with a [`ScopeFifo`].
pub fn scope_fifo<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&ScopeFifo<'scope>) -> R + Send,
    R: Send,
{
    scope_in(&registry::current(), op)
}

/// As [`scope`], but `op` is called right here; only what it spawns goes to the pool.
pub fn in_place_scope<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&Scope<'scope>) -> R,
{
    in_place_scope_in(registry::current(), op)
}

/// As [`in_place_scope`], with a [`ScopeFifo`].
pub fn in_place_scope_fifo<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&ScopeFifo<'scope>) -> R,
{
    in_place_scope_in(registry::current(), op)
}

fn scope_in<'scope, O: Order, R: Send>(
    pool: &RawPool,
    op: impl FnOnce(&OrderedScope<'scope, O>) -> R + Send,
) -> R {
    pool.run(|_| in_place_scope_in(pool.clone(), op))
}

pub(crate) fn in_place_scope_in<'scope, O: Order, R>(
    pool: RawPool,
    op: impl FnOnce(&OrderedScope<'scope, O>) -> R,
) -> R {
    RawScope::in_place(pool, O::TURNS, |scope| op(OrderedScope::of(scope)))
}

impl<'scope, O: Order> OrderedScope<'scope, O> {
    fn of<'a>(scope: &'a RawScope<'scope>) -> &'a Self {
        // SAFETY: it is the same thing under another name: `repr(transparent)`.
        unsafe { &*std::ptr::from_ref(scope).cast() }
    }

    #[inline]
    fn spawn_in_order(&self, body: impl FnOnce(&Self) + Send + 'scope) {
        self.0.spawn(move |scope| body(Self::of(scope)));
    }

    /// Runs `body` once on each thread of the pool, before the scope ends.
    pub fn spawn_broadcast<BODY>(&self, body: BODY)
    where
        BODY: Fn(&Self, BroadcastContext<'_>) + Send + Sync + 'scope,
    {
        let body = move |scope: &_, index| body(Self::of(scope), BroadcastContext::new(index));
        self.0.broadcast(body);
    }
}

impl<'scope> Scope<'scope> {
    /// Spawns a unit that may borrow everything that outlives the scope. It runs also when another one
    /// panics.
    #[inline]
    pub fn spawn<BODY>(&self, body: BODY)
    where
        BODY: FnOnce(&Self) + Send + 'scope,
    {
        self.spawn_in_order(body);
    }
}

impl<'scope> ScopeFifo<'scope> {
    /// As [`Scope::spawn`]; what one thread spawns begins in order.
    #[inline]
    pub fn spawn_fifo<BODY>(&self, body: BODY)
    where
        BODY: FnOnce(&Self) + Send + 'scope,
    {
        self.spawn_in_order(body);
    }
}

impl<O: Order> fmt::Debug for OrderedScope<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(O::SCOPE)
            .field("pool_id", &self.0.pool().id())
            .finish_non_exhaustive()
    }
}

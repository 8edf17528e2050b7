//! Units that nobody waits for.

use loxley_pool::raw::RawPool;

use crate::registry;

/// Runs `func` some time in the current pool, or in the global one.
pub fn spawn<F>(func: F)
where
    F: FnOnce() + Send + 'static,
{
    spawn_in(&registry::current(), func);
}

/// As [`spawn`]; what one thread spawns in this way begins in order.
pub fn spawn_fifo<F>(func: F)
where
    F: FnOnce() + Send + 'static,
{
    spawn_fifo_in(&registry::current(), func);
}

pub(crate) fn spawn_in(pool: &RawPool, func: impl FnOnce() + Send + 'static) {
    pool.keep();
    pool.spawn(func);
}

pub(crate) fn spawn_fifo_in(pool: &RawPool, func: impl FnOnce() + Send + 'static) {
    pool.keep();
    pool.spawn_fifo(func);
}

//! Termination of detached work, exact and without a contended counter.
//!
//! Each seat counts the detached units it made and the ones it finished; outside threads count what
//! they submit in one place. How the sums tell that nothing is left: [`crate::count`].

use std::sync::PoisonError;

use crate::count::{Count, all_done};
use crate::metrics::Counters;
use crate::pool::Shared;
use crate::sync::whole::{Condvar, Mutex, MutexGuard};
use crate::sync::{AtomicUsize, Ordering, fence};

/// Counts detached units and lets threads wait for the last one.
#[derive(Debug, Default)]
pub(crate) struct Detached {
    /// Made by threads that are not workers. Written under the injector's lock.
    made_outside: Count,
    /// How many threads wait.
    waiting: AtomicUsize,
    turns: Mutex<u64>,
    turned: Condvar,
}

impl Detached {
    /// A unit was made by a thread that is not a worker, which holds the injector's lock.
    #[inline]
    pub(crate) fn count_outside(&self) {
        self.made_outside.add(1);
    }

    pub(crate) fn made_outside(&self) -> u64 {
        self.made_outside.get()
    }

    pub(crate) fn is_idle(&self, shared: &Shared) -> bool {
        let sum = |count: fn(&Counters) -> &Count| -> u64 {
            let seats = shared.seats.iter();
            seats.map(|seat| count(&seat.counters).get()).sum()
        };
        all_done(
            || sum(|seat| &seat.detached_done),
            || sum(|seat| &seat.detached_made) + self.made_outside(),
        )
    }

    /// A thread has run out of units: perhaps that was the last one. To be exact it has to come
    /// after a fence; without one it is a favour that saves the waiter some time.
    #[inline]
    pub(crate) fn tell_if_idle(&self, shared: &Shared) {
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.tell(shared);
        }
    }

    #[cold]
    fn tell(&self, shared: &Shared) {
        if self.is_idle(shared) {
            *self.lock() += 1;
            self.turned.notify_all();
        }
    }

    /// Blocks until there was a moment with no detached unit left.
    pub(crate) fn wait(&self, shared: &Shared) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // Pairs with the fence that every thread passes between finishing its last unit and
        // looking at `waiting` (in `Sleep::lie_down` or `Sleep::leave`).
        fence(Ordering::SeqCst);
        let mut turns = self.lock();
        while !self.is_idle(shared) {
            turns = self
                .turned
                .wait(turns)
                .unwrap_or_else(PoisonError::into_inner);
        }
        drop(turns);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

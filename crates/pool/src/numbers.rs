//! Numbers for the threads of a pool whose users count on them: below the number of workers, and never
//! used by two threads that run.
//!
//! A thread uses a number from when it is first asked for it until its unit is over, but not while it sleeps in a
//! wait. A worker uses that of its seat, unless a stand-in does, which has none of its own; both then take any that
//! nobody uses. Who was asked before it slept goes on when nobody else uses its number. So there may be a queue, but
//! never behind one who sleeps: two threads that wait for each other's units cannot hold each other up. Units that
//! never ask hold up nobody.

use std::sync::PoisonError;

use crate::sync::whole::{Condvar, Mutex, MutexGuard};

/// Which numbers are in use.
#[derive(Debug)]
pub(crate) struct Numbers {
    in_use: Mutex<Box<[bool]>>,
    /// One is not in use any more.
    released: Condvar,
}

/// Which number somebody wants to use.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    /// No other one.
    Only(usize),
    /// This one if it is not in use, and if there is such a number at all.
    Rather(usize),
}

impl Numbers {
    /// So many, of which none is in use.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            in_use: Mutex::new((0..count).map(|_| false).collect()),
            released: Condvar::new(),
        }
    }

    /// A number that the caller alone uses; waits for one.
    pub(crate) fn acquire(&self, wanted: Wanted) -> usize {
        let mut in_use = self.lock();
        loop {
            let is_free = |number: &usize| in_use.get(*number) == Some(&false);
            let free = match wanted {
                Wanted::Only(number) => Some(number).filter(is_free),
                Wanted::Rather(number) => Some(number)
                    .filter(is_free)
                    .or_else(|| (0..in_use.len()).find(is_free)),
            };
            if let Some(number) = free {
                in_use[number] = true;
                return number;
            }
            let waited = self.released.wait(in_use);
            in_use = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The caller does not use this number any more.
    pub(crate) fn release(&self, number: usize) {
        self.lock()[number] = false;
        self.released.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Box<[bool]>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

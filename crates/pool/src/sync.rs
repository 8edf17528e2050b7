//! The one door to atomics, locks and threads.
//!
//! Everything lock-free reaches them through here, so that the same source runs on the standard
//! library and, built with `--cfg loom`, inside the model checker (`tests/loom.rs`). Built with
//! `--cfg shuttle` the whole pool runs on threads whose order a random scheduler decides
//! (`tests/shuttle.rs`); what only a whole pool needs, and no model of a part, is in [`whole`].

#[cfg(not(any(loom, shuttle)))]
mod real {
    pub(crate) use std::sync::Mutex;
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
    pub(crate) use std::thread::{Thread, current, park, park_timeout, yield_now};

    /// One polite turn of a spinning loop.
    #[inline]
    pub(crate) fn spin() {
        std::hint::spin_loop();
    }
}

#[cfg(loom)]
mod real {
    pub(crate) use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
    pub(crate) use loom::thread::{Thread, current, park, yield_now};

    /// Any time is over when another thread has moved.
    pub(crate) fn park_timeout(_: std::time::Duration) {
        yield_now();
    }

    /// Loom must be told that nothing changes until another thread has moved.
    #[inline]
    pub(crate) fn spin() {
        yield_now();
    }
}

#[cfg(shuttle)]
mod real {
    pub(crate) use shuttle::sync::Mutex;
    pub(crate) use shuttle::sync::atomic::{
        AtomicBool, AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
    pub(crate) use shuttle::thread::{Thread, current, park, yield_now};

    /// Any time is over as soon as the scheduler says so.
    pub(crate) fn park_timeout(_: std::time::Duration) {
        yield_now();
    }

    /// The scheduler must be told that nothing changes until another thread has moved.
    #[inline]
    pub(crate) fn spin() {
        yield_now();
    }
}

/// What belongs to threads and to waiting in the system's own way.
pub(crate) mod whole {
    #[cfg(not(shuttle))]
    pub(crate) use std::{
        sync::{Condvar, Mutex, MutexGuard},
        thread::{Builder, JoinHandle, Thread, current, park},
        thread_local,
    };

    #[cfg(shuttle)]
    pub(crate) use shuttle::{
        sync::{Condvar, Mutex, MutexGuard},
        thread::{Builder, JoinHandle, Thread, current, park},
        thread_local,
    };
}

pub(crate) use real::*;
pub(crate) use std::sync::atomic::Ordering;

/// Locks, and goes on with the data of a lock whose holder panicked: none of our critical sections
/// runs foreign code, so nothing can be half done.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Guard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(not(any(loom, shuttle)))]
pub(crate) type Guard<'a, T> = std::sync::MutexGuard<'a, T>;
#[cfg(loom)]
pub(crate) type Guard<'a, T> = loom::sync::MutexGuard<'a, T>;
#[cfg(shuttle)]
pub(crate) type Guard<'a, T> = shuttle::sync::MutexGuard<'a, T>;

/// A value that one thread at a time may use, by an agreement that the compiler does not see; loom does.
pub(crate) struct Guarded<T>(GuardedCell<T>);

#[cfg(not(loom))]
type GuardedCell<T> = std::cell::UnsafeCell<T>;
#[cfg(loom)]
type GuardedCell<T> = loom::cell::UnsafeCell<T>;

impl<T> Guarded<T> {
    #[inline]
    pub(crate) fn new(value: T) -> Self {
        Self(GuardedCell::new(value))
    }

    /// Calls `body` with a pointer to the value, which is valid.
    ///
    /// # Safety
    /// No other thread uses the value meanwhile.
    #[inline]
    pub(crate) unsafe fn with_mut<R>(&self, body: impl FnOnce(*mut T) -> R) -> R {
        #[cfg(not(loom))]
        return body(self.0.get());
        #[cfg(loom)]
        return self.0.with_mut(body);
    }
}

impl<T> std::fmt::Debug for Guarded<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guarded").finish_non_exhaustive()
    }
}

/// Keeps its content on cache lines of its own, two of them because processors fetch pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

impl<T> std::ops::Deref for Apart<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

//! What becomes of a unit with a handle: it runs once, or it is cancelled, never both.
//!
//! ```text
//!   WAITING --begin--> RUNNING --finish--> OVER --take--> EMPTY
//!      \_____________ cancel ______________________________/
//! ```
//!
//! One word holds the stage, whether it was cancelled, and whether somebody wants to be told of the end. The content belongs to
//! whoever made the last step: the closure while it waits to whoever begins it, the result to whoever
//! takes it. Waiters enter the list, then raise [`WATCHED`]; the end is written over both with one swap.
//! So either the waiter sees that it is over, or whoever ends it sees that there is someone to tell.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use std::thread;

use crate::sync::whole::Thread;
use crate::sync::{AtomicU32, Guarded, Mutex, Ordering, lock};
use crate::unwind::discard;

const WAITING: u32 = 0;
const RUNNING: u32 = 1;
const OVER: u32 = 2;
/// Cancelled, or the result was taken.
const EMPTY: u32 = 3;
const STAGE: u32 = 3;
/// Somebody is, or was, in the list of waiters.
const WATCHED: u32 = 4;
/// It will not run. Set with the step that takes the closure, so that whoever finds nothing to begin knows why.
const CANCELLED: u32 = 8;

/// The closure of a unit, or its result, and who wants to know.
#[derive(Debug)]
pub(crate) struct Slot<F, T> {
    state: AtomicU32,
    content: Guarded<Content<F, T>>,
    waiters: Mutex<Vec<Waiter>>,
}

union Content<F, T> {
    nothing: (),
    closure: ManuallyDrop<F>,
    result: ManuallyDrop<thread::Result<T>>,
}

// SAFETY: closure and result are handed from thread to thread, and used by one at a time: by whoever
// made the last step of the state.
unsafe impl<F: Send, T: Send> Sync for Slot<F, T> {}
// SAFETY: as above.
unsafe impl<F: Send, T: Send> Send for Slot<F, T> {}

/// Who is to be told of the end.
#[derive(Debug)]
pub(crate) enum Waiter {
    Thread(Thread),
    Task(Waker),
}

impl Waiter {
    fn tell(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            // A waker is foreign code, and no business of the unit that has ended.
            Self::Task(waker) => discard(catch_unwind(AssertUnwindSafe(|| waker.wake()))),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Thread(a), Self::Thread(b)) => a.id() == b.id(),
            (Self::Task(a), Self::Task(b)) => a.will_wake(b),
            _ => false,
        }
    }
}

impl<F, T> Slot<F, T> {
    /// Has a closure that nobody has begun.
    pub(crate) fn waiting(body: F) -> Self {
        let closure = ManuallyDrop::new(body);
        Self::at(WAITING, Content { closure })
    }

    /// Waits for a result that comes from elsewhere.
    pub(crate) fn running() -> Self {
        Self::at(RUNNING, Content { nothing: () })
    }

    fn at(stage: u32, content: Content<F, T>) -> Self {
        Self {
            state: AtomicU32::new(stage),
            content: Guarded::new(content),
            waiters: Mutex::new(Vec::new()),
        }
    }

    /// Takes the closure; nothing if somebody else has, or if it was cancelled.
    #[inline]
    pub(crate) fn begin(&self) -> Option<F> {
        self.take_closure(RUNNING)
    }

    #[inline]
    fn take_closure(&self, next: u32) -> Option<F> {
        if !self.step(WAITING, next) {
            return None;
        }
        let closure = |content: *mut Content<F, T>| {
            // SAFETY: the pointer is valid, and nobody else has one.
            let content = unsafe { &mut *content };
            // SAFETY: we made the step from `WAITING`, where a closure is.
            let closure = unsafe { &mut content.closure };
            // SAFETY: the step is made once, so it is taken once.
            unsafe { ManuallyDrop::take(closure) }
        };
        // SAFETY: whoever made the last step has the content to itself.
        Some(unsafe { self.content.with_mut(closure) })
    }

    /// Stores the result of the unit, which the caller has begun, and tells everyone.
    #[inline]
    pub(crate) fn finish(&self, result: thread::Result<T>) {
        debug_assert_eq!(self.stage(), RUNNING, "what ends has begun");
        let result = ManuallyDrop::new(result);
        // SAFETY: the pointer is valid, and what was there was taken out by `begin`.
        let store = |content: *mut Content<F, T>| unsafe { content.write(Content { result }) };
        // SAFETY: whoever has begun has the content to itself.
        unsafe { self.content.with_mut(store) };
        self.end(OVER);
    }

    /// Prevents it from running. `false`: it has begun.
    pub(crate) fn cancel(&self) -> bool {
        let body = self.take_closure(RUNNING | CANCELLED);
        if body.is_some() {
            self.end(EMPTY | CANCELLED);
        }
        // The closure is dropped here, when all is done.
        body.is_some()
    }

    /// Was it prevented from running? To be asked by one who found nothing to begin.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.state.load(Ordering::Relaxed) & CANCELLED != 0
    }

    #[inline]
    fn end(&self, stage: u32) {
        // Release: whoever sees the end sees the result. Acquire: we see who waits.
        if self.state.swap(stage, Ordering::AcqRel) & WATCHED != 0 {
            self.tell();
        }
    }

    #[cold]
    fn tell(&self) {
        let waiters = std::mem::take(&mut *lock(&self.waiters));
        waiters.into_iter().for_each(Waiter::tell);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stage() >= OVER
    }

    /// Asks to be told. `false`: it is over.
    pub(crate) fn add_waiter(&self, waiter: Waiter) -> bool {
        let mut waiters = lock(&self.waiters);
        if self.is_over() {
            return false;
        }
        let is_new = !waiters.iter().any(|known| known.is_same(&waiter));
        if is_new {
            waiters.push(waiter);
        }
        let before = self.state.fetch_or(WATCHED, Ordering::AcqRel);
        if before & STAGE < OVER {
            return true;
        }
        if is_new {
            waiters.pop();
        }
        false
    }

    /// The result of a unit that is over.
    ///
    /// # Safety
    /// One thread at a time takes and asks to be told: there is one handle.
    ///
    /// # Panics
    /// If it was taken before.
    #[inline]
    pub(crate) unsafe fn take(&self) -> thread::Result<T> {
        let is_there = self.stage() == OVER;
        assert!(is_there, "the result of a unit was taken twice");
        // Nobody else changes the state of what is over.
        self.state.store(EMPTY, Ordering::Relaxed);
        let result = |content: *mut Content<F, T>| {
            // SAFETY: the pointer is valid, and nobody else has one.
            let content = unsafe { &mut *content };
            // SAFETY: it was `OVER`, where a result is.
            let result = unsafe { &mut content.result };
            // SAFETY: it is `EMPTY` now, so it is taken once.
            unsafe { ManuallyDrop::take(result) }
        };
        // SAFETY: whoever ended it is through with the content, and nobody else takes it, by the contract.
        unsafe { self.content.with_mut(result) }
    }

    #[inline]
    fn stage(&self) -> u32 {
        // Acquire pairs with the Release in `end`.
        self.state.load(Ordering::Acquire) & STAGE
    }

    /// Goes from one stage to another, unless somebody else has.
    #[inline]
    fn step(&self, from: u32, to: u32) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & STAGE == from {
            let next = state & !STAGE | to;
            let exchanged =
                self.state
                    .compare_exchange_weak(state, next, Ordering::AcqRel, Ordering::Relaxed);
            match exchanged {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }
}

impl<F, T> Drop for Slot<F, T> {
    fn drop(&mut self) {
        match self.stage() {
            WAITING => drop(self.begin()),
            // SAFETY: nobody else is there.
            OVER => drop(unsafe { self.take() }),
            _ => {}
        }
    }
}

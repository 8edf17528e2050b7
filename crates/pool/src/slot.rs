//! What becomes of a unit with a handle: it runs once, or it is cancelled, never both.
//!
//! ```text
//!   Waiting --begin--> Running --finish--> Over --take--> Empty
//!      \_____________ cancel ______________________________/
//! ```

use std::mem;
use std::task::Waker;
use std::thread;

use crate::sync::whole::Thread;
use crate::sync::{Guard, Mutex, lock};

/// The closure of a unit, or its result, and who wants to know.
#[derive(Debug)]
pub(crate) struct Slot<F, T>(Mutex<Content<F, T>>);

#[derive(Debug)]
struct Content<F, T> {
    stage: Stage<F, T>,
    waiters: Vec<Waiter>,
}

#[derive(Debug)]
enum Stage<F, T> {
    Waiting(F),
    Running,
    Over(thread::Result<T>),
    /// Cancelled, or the result was taken.
    Empty,
}

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
            Self::Task(waker) => waker.wake(),
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
        Self::at(Stage::Waiting(body))
    }

    /// Waits for a result that comes from elsewhere.
    pub(crate) fn running() -> Self {
        Self::at(Stage::Running)
    }

    fn at(stage: Stage<F, T>) -> Self {
        Self(Mutex::new(Content {
            stage,
            waiters: Vec::new(),
        }))
    }

    fn lock(&self) -> Guard<'_, Content<F, T>> {
        lock(&self.0)
    }

    /// Takes the closure; nothing if somebody else has, or if it was cancelled.
    pub(crate) fn begin(&self) -> Option<F> {
        let mut content = self.lock();
        match mem::replace(&mut content.stage, Stage::Running) {
            Stage::Waiting(body) => Some(body),
            other => {
                content.stage = other;
                None
            }
        }
    }

    /// Stores the result and tells everyone.
    pub(crate) fn finish(&self, result: thread::Result<T>) {
        self.end(Stage::Over(result));
    }

    /// Prevents it from running. `false`: it has begun.
    pub(crate) fn cancel(&self) -> bool {
        let body = self.begin();
        if body.is_some() {
            self.end(Stage::Empty);
        }
        // The closure is dropped here, outside of the lock.
        body.is_some()
    }

    fn end(&self, stage: Stage<F, T>) {
        let mut content = self.lock();
        content.stage = stage;
        let waiters = mem::take(&mut content.waiters);
        drop(content);
        waiters.into_iter().for_each(Waiter::tell);
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.lock().stage, Stage::Over(_) | Stage::Empty)
    }

    /// Asks to be told. `false`: it is over.
    pub(crate) fn add_waiter(&self, waiter: Waiter) -> bool {
        let mut content = self.lock();
        if matches!(content.stage, Stage::Over(_) | Stage::Empty) {
            return false;
        }
        if !content.waiters.iter().any(|known| known.is_same(&waiter)) {
            content.waiters.push(waiter);
        }
        true
    }

    /// The result of a unit that is over; to be called once.
    pub(crate) fn take(&self) -> thread::Result<T> {
        match mem::replace(&mut self.lock().stage, Stage::Empty) {
            Stage::Over(result) => result,
            _ => panic!("the result of a unit was taken twice"),
        }
    }
}

//! What anyone can write in an hour: crossbeam's deques and injector, a condition variable to
//! sleep on. No join, no priorities, no panics.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam_deque::{Injector, Steal, Stealer, Worker};

use crate::pool::contract::Spawner;

type Unit = Box<dyn FnOnce(&Local) + Send>;

pub(crate) struct Crossbeam {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    injector: Injector<Unit>,
    stealers: Vec<Stealer<Unit>>,
    sleepers: AtomicUsize,
    closed: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

/// A worker as its units see it.
pub(crate) struct Local {
    deque: Worker<Unit>,
    shared: Arc<Shared>,
}

impl Crossbeam {
    pub(crate) fn new(workers: usize) -> Self {
        let deques: Vec<Worker<Unit>> = (0..workers).map(|_| Worker::new_lifo()).collect();
        let shared = Arc::new(Shared {
            injector: Injector::new(),
            stealers: deques.iter().map(Worker::stealer).collect(),
            sleepers: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        });
        let start = |deque| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || Local { deque, shared }.work())
        };
        let threads = deques.into_iter().map(start).collect();
        Self { shared, threads }
    }
}

impl Shared {
    /// Wakes one sleeper, if there is any. The fence pairs with the one in [`Local::sleep`]:
    /// either the pusher sees the sleeper or the sleeper sees what was pushed.
    fn pushed(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.wake.notify_one();
        }
    }
}

impl Local {
    fn work(&self) {
        let mut misses = 0;
        while !self.shared.closed.load(Ordering::Acquire) {
            match self.find() {
                Some(unit) => {
                    misses = 0;
                    unit(self);
                }
                None if misses < 32 => {
                    misses += 1;
                    std::thread::yield_now();
                }
                None => self.sleep(),
            }
        }
    }

    fn find(&self) -> Option<Unit> {
        self.deque.pop().or_else(|| {
            std::iter::repeat_with(|| {
                let injected = self.shared.injector.steal_batch_and_pop(&self.deque);
                injected.or_else(|| self.shared.stealers.iter().map(Stealer::steal).collect())
            })
            .find(|steal| !steal.is_retry())
            .and_then(Steal::success)
        })
    }

    fn sleep(&self) {
        let guard = self
            .shared
            .lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.shared.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let nothing_waits =
            self.shared.injector.is_empty() && self.shared.stealers.iter().all(Stealer::is_empty);
        if nothing_waits && !self.shared.closed.load(Ordering::Acquire) {
            drop(self.shared.wake.wait(guard));
        }
        self.shared.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Crossbeam {
    fn drop(&mut self) {
        let guard = self
            .shared
            .lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.shared.closed.store(true, Ordering::Release);
        self.shared.wake.notify_all();
        drop(guard);
        for thread in self.threads.drain(..) {
            thread.join().expect("the workloads do not panic");
        }
    }
}

impl Spawner for Crossbeam {
    type Inside<'a> = Local;

    fn spawn(&self, unit: impl FnOnce() + Send + 'static) {
        self.enter(|_| unit());
    }

    fn enter(&self, root: impl FnOnce(&Local) + Send + 'static) {
        self.shared.injector.push(Box::new(root));
        self.shared.pushed();
    }

    fn spawn_inside(inside: &Local, unit: impl FnOnce() + Send + 'static) {
        inside.deque.push(Box::new(|_| unit()));
        inside.shared.pushed();
    }
}

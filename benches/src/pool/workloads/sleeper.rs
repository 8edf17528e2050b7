//! A bare parked thread: what the operating system charges for waking someone, without any pool.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

const CALL: u64 = 1;
const END: u64 = 1 << 63;

/// A thread that sleeps and, for each time it is woken, calls the same closure once.
pub(crate) struct Sleeper {
    /// How many calls are due, and whether to end after them.
    due: &'static AtomicU64,
    thread: Option<JoinHandle<()>>,
}

impl Sleeper {
    pub(crate) fn new(call: impl Fn() + Send + 'static) -> Self {
        let due: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
        let thread = std::thread::spawn(move || {
            loop {
                std::thread::park();
                let now = due.swap(0, Ordering::Acquire);
                (0..now & !END).for_each(|_| call());
                if now & END != 0 {
                    return;
                }
            }
        });
        Self {
            due,
            thread: Some(thread),
        }
    }

    pub(crate) fn wake(&self) {
        self.send(CALL);
    }

    fn send(&self, command: u64) {
        self.due.fetch_add(command, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.send(END);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the sleeper does not panic");
        }
    }
}

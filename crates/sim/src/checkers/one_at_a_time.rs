//! No worker runs more tasks at once than it has slots.

use crate::checkers::{Books, Violation};
use crate::observer::{Happening, Observer};
use crate::time::Nanos;

/// The books: how many tasks each worker runs.
#[derive(Debug)]
pub struct OneAtATime {
    books: Books,
    slots: Vec<u32>,
    running: Vec<u32>,
}

impl OneAtATime {
    /// Books for workers with these slots.
    #[must_use]
    pub fn new(slots: Vec<u32>) -> Self {
        Self {
            books: Books::new("no worker runs more than it has slots for"),
            running: vec![0; slots.len()],
            slots,
        }
    }

    /// What was found.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.books.verdict()
    }

    fn end_one(&mut self, now: Nanos, worker: u32) {
        let running = &mut self.running[worker as usize];
        self.books.require(*running > 0, now, || {
            format!("worker {worker} ended a task and ran none")
        });
        *running = running.saturating_sub(1);
    }
}

impl Observer for OneAtATime {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        match *happening {
            Happening::Started { worker, task } => {
                let running = &mut self.running[worker as usize];
                *running += 1;
                let slots = self.slots[worker as usize];
                self.books.require(*running <= slots, now, || {
                    format!("worker {worker} started task {task} with {slots} slots taken")
                });
            }
            Happening::Finished { worker, .. } | Happening::Stopped { worker, .. } => {
                self.end_one(now, worker);
            }
            _ => {}
        }
    }
}

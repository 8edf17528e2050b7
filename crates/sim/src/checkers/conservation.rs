//! Every task appears once, is started once and is finished once, by whoever started it.

use std::collections::HashMap;

use crate::checkers::{Books, Violation};
use crate::observer::{Happening, Observer};
use crate::time::Nanos;

/// The books: where each task stands.
#[derive(Debug)]
pub struct Conservation {
    books: Books,
    tasks: HashMap<u64, Standing>,
    finished: u64,
    last: Nanos,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Waiting,
    Running(u32),
    Finished,
}

impl Default for Conservation {
    fn default() -> Self {
        Self {
            books: Books::new("every task is done exactly once"),
            tasks: HashMap::new(),
            finished: 0,
            last: 0,
        }
    }
}

impl Conservation {
    /// Whether all of `expected` tasks were finished and nothing else was.
    pub fn verdict(&self, expected: u64) -> Result<(), Violation> {
        let mut books = self.books.clone();
        books.require(self.finished == expected, self.last, || {
            format!("{} of {expected} tasks were finished", self.finished)
        });
        books.verdict()
    }

    fn appear(&mut self, now: Nanos, task: u64) {
        let before = self.tasks.insert(task, Standing::Waiting);
        self.books.require(before.is_none(), now, || {
            format!("task {task} appeared while it was {before:?}")
        });
    }
}

impl Observer for Conservation {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        self.last = now;
        match *happening {
            Happening::Queued { task, .. } | Happening::Spawned { child: task, .. } => {
                self.appear(now, task);
            }
            Happening::Started { worker, task } => {
                let before = self.tasks.insert(task, Standing::Running(worker));
                // A task of the shared queue is first seen when it is started.
                let fresh = matches!(before, None | Some(Standing::Waiting));
                self.books.require(fresh, now, || {
                    format!("task {task} was started while it was {before:?}")
                });
            }
            Happening::Finished { worker, task, .. } => {
                let before = self.tasks.insert(task, Standing::Finished);
                self.finished += 1;
                self.books
                    .require(before == Some(Standing::Running(worker)), now, || {
                        format!("worker {worker} finished task {task}, which was {before:?}")
                    });
            }
            _ => {}
        }
    }
}

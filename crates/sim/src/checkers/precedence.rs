//! No task starts before everything it waits for is finished, nor before its release.

use std::sync::Arc;

use crate::checkers::{Books, Violation};
use crate::observer::{Happening, Observer};
use crate::time::Nanos;
use crate::workload::Workload;

/// The books: which tasks are finished.
#[derive(Debug)]
pub struct Precedence {
    books: Books,
    workload: Arc<Workload>,
    finished: Vec<bool>,
}

impl Precedence {
    /// Books for the tasks of `workload`, whose numbers the world uses too.
    #[must_use]
    pub fn new(workload: Arc<Workload>) -> Self {
        Self {
            books: Books::new("no task starts before what it waits for"),
            finished: vec![false; workload.len()],
            workload,
        }
    }

    /// What was found.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.books.verdict()
    }
}

impl Observer for Precedence {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        match *happening {
            Happening::Started { task, .. } => {
                let record = &self.workload.tasks()[task as usize];
                self.books.require(now >= record.release, now, || {
                    format!("task {task} was started before its release")
                });
                for &before in self.workload.predecessors(task as u32) {
                    let finished = self.finished[before as usize];
                    self.books.require(finished, now, || {
                        format!("task {task} was started before task {before} was finished")
                    });
                }
            }
            Happening::Finished { task, ok: true, .. } => self.finished[task as usize] = true,
            _ => {}
        }
    }
}

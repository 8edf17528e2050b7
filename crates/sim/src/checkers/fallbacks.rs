//! A fallback runs only while its task waits for it, and one that was not needed ends with its task [R1].

use std::sync::Arc;

use loxley_model::{Fallback, TaskId};

use crate::checkers::{Books, Violation};
use crate::fleet::FleetTasks;
use crate::observer::{Happening, Observer};
use crate::time::Nanos;

/// The books: which tasks are over, and which fallbacks have begun.
#[derive(Debug)]
pub struct Fallbacks {
    books: Books,
    /// For each task, whom it stands in for.
    primary: Vec<Option<u64>>,
    fallback: Vec<Option<u64>>,
    started: Vec<bool>,
    over: Vec<bool>,
    /// Fallbacks whose task is over, and since when.
    useless: Vec<(Nanos, u64)>,
}

impl Fallbacks {
    /// Books for these tasks.
    #[must_use]
    pub fn new(tasks: &Arc<FleetTasks>) -> Self {
        let count = tasks.len();
        let (mut primary, mut fallback) = (vec![None; count], vec![None; count]);
        for (task, fallback) in fallback.iter_mut().enumerate() {
            if let Fallback::Task(TaskId(other)) = tasks.spec(task).fallback {
                primary[other as usize] = Some(task as u64);
                *fallback = Some(other);
            }
        }
        Self {
            books: Books::new("fallbacks run when they are needed, and end when they are not"),
            primary,
            fallback,
            started: vec![false; count],
            over: vec![false; count],
            useless: Vec::new(),
        }
    }

    /// What was found.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.books.verdict()
    }
}

impl Observer for Fallbacks {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        // Both are told of in one breath: what is still there at a later moment stays.
        while let Some(&(since, task)) = self.useless.first()
            && since < now
        {
            self.useless.remove(0);
            self.books.require(self.over[task as usize], since, || {
                format!("task {task} stood by for a task that is over, and stays")
            });
        }
        match *happening {
            Happening::Started { task, .. } => {
                self.started[task as usize] = true;
                if let Some(primary) = self.primary[task as usize] {
                    self.books.require(self.started[primary as usize], now, || {
                        format!("task {task} stands in for task {primary}, which never ran")
                    });
                }
            }
            Happening::Ended { task, .. } => {
                self.over[task as usize] = true;
                if let Some(fallback) = self.fallback[task as usize]
                    && !self.started[fallback as usize]
                {
                    self.useless.push((now, fallback));
                }
            }
            _ => {}
        }
    }
}

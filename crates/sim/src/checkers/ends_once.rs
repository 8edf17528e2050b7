//! Every submitted task ends exactly once; none succeeds on an agent that had not finished it; none
//! starts before what it depends on has succeeded.

use std::sync::Arc;

use loxley_model::Fallback;

use crate::checkers::{Books, Violation};
use crate::fleet::FleetTasks;
use crate::observer::{Happening, Observer};
use crate::time::Nanos;

/// The books: what each task went through.
#[derive(Debug)]
pub struct EndsOnce {
    books: Books,
    tasks: Arc<FleetTasks>,
    entries: Vec<Entry>,
    last: Nanos,
}

#[derive(Debug, Clone, Default)]
struct Entry {
    submitted: bool,
    /// Who finished it well.
    finished_by: Vec<u32>,
    ended: Option<bool>,
}

impl EndsOnce {
    /// Books for these tasks.
    #[must_use]
    pub fn new(tasks: Arc<FleetTasks>) -> Self {
        Self {
            books: Books::new("every task ends exactly once"),
            entries: vec![Entry::default(); tasks.len()],
            tasks,
            last: 0,
        }
    }

    /// What was found; after a complete run, that nothing is left open too.
    pub fn verdict(&self, complete: bool) -> Result<(), Violation> {
        let mut books = self.books.clone();
        if complete {
            let open = self.entries.iter().position(|entry| entry.ended.is_none());
            books.require(open.is_none(), self.last, || {
                format!("task {} never ended", open.unwrap_or(0))
            });
        }
        books.verdict()
    }

    fn ended(&mut self, now: Nanos, task: u64, ok: bool, by: Option<u32>) {
        let entry = &mut self.entries[task as usize];
        let before = entry.ended.replace(ok);
        self.books.require(entry.submitted, now, || {
            format!("task {task} ended and was never submitted")
        });
        self.books.require(before.is_none(), now, || {
            format!("task {task} ended twice: {before:?}, then {ok}")
        });
        let stands_in = self.tasks.spec(task as usize).fallback != Fallback::None;
        let earned = match by {
            Some(agent) => entry.finished_by.contains(&agent),
            None => !ok || stands_in,
        };
        self.books.require(earned, now, || {
            format!("task {task} succeeded on agent {by:?}, which had not finished it")
        });
    }

    fn started(&mut self, now: Nanos, task: u64) {
        self.books
            .require(self.entries[task as usize].submitted, now, || {
                format!("task {task} was started and never submitted")
            });
        for before in &self.tasks.spec(task as usize).dependencies {
            let done = self.entries[before.0 as usize].ended == Some(true);
            self.books.require(done, now, || {
                format!("task {task} was started before {before} had succeeded")
            });
        }
    }
}

impl Observer for EndsOnce {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        self.last = now;
        match *happening {
            Happening::Submitted { task } => self.entries[task as usize].submitted = true,
            Happening::Started { task, .. } => self.started(now, task),
            Happening::Finished {
                worker,
                task,
                ok: true,
            } => self.entries[task as usize].finished_by.push(worker),
            Happening::Ended { task, ok, by, .. } => self.ended(now, task, ok, by),
            _ => {}
        }
    }
}

//! No more second copies run at once than their budget allows [R2].

use std::collections::HashMap;

use crate::checkers::{Books, Violation, idle};
use crate::fleet::FleetSetup;
use crate::observer::{Happening, Observer};
use crate::time::Nanos;

/// The books: how many agents run each task.
#[derive(Debug)]
pub struct Copies {
    books: Books,
    running: HashMap<u64, u32>,
    budget: f64,
    enabled: bool,
}

impl Copies {
    /// Books for this fleet, if nothing but the scheduler can make a task run twice in it.
    #[must_use]
    pub fn new(setup: &FleetSetup) -> Option<Self> {
        let rules = &setup.config.speculation;
        idle::is_exact(setup).then(|| Self {
            books: Books::new("second copies keep within their budget"),
            running: HashMap::new(),
            budget: rules.budget,
            enabled: rules.enabled,
        })
    }

    /// What was found.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.books.verdict()
    }
}

impl Observer for Copies {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        match *happening {
            Happening::Started { task, .. } => {
                let runs = self.running.entry(task).or_default();
                *runs += 1;
                let (is_copy, runs) = (*runs > 1, *runs);
                let copies = self.running.values().filter(|runs| **runs > 1).count() as f64;
                let allowed = (self.budget * self.running.len() as f64).max(1.0).ceil();
                self.books.require(!is_copy || self.enabled, now, || {
                    format!("task {task} runs twice, and there are no second copies")
                });
                self.books.require(!is_copy || copies <= allowed, now, || {
                    format!("{copies} second copies run where {allowed} may")
                });
                self.books.require(runs <= 2, now, || {
                    format!("task {task} runs {runs} times at once")
                });
            }
            Happening::Finished { task, .. } | Happening::Stopped { task, .. } => {
                let left = self.running.get_mut(&task).map(|runs| {
                    *runs -= 1;
                    *runs
                });
                if left == Some(0) {
                    self.running.remove(&task);
                }
            }
            _ => {}
        }
    }
}

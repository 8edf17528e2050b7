//! No agent runs more at once than its memory holds.

use std::sync::Arc;

use crate::checkers::{Books, Violation};
use crate::fleet::{FleetSetup, FleetTasks};
use crate::observer::{Happening, Observer};
use crate::time::Nanos;

/// The books: memory in use on each agent.
#[derive(Debug)]
pub struct Memory {
    books: Books,
    tasks: Arc<FleetTasks>,
    /// What each agent has; zero is endless.
    has: Vec<u64>,
    used: Vec<u64>,
}

impl Memory {
    /// Books for this fleet.
    #[must_use]
    pub fn new(setup: &FleetSetup, tasks: Arc<FleetTasks>) -> Self {
        let has: Vec<u64> = setup
            .agents
            .iter()
            .map(|agent| agent.spec.resources.memory_bytes)
            .collect();
        Self {
            books: Books::new("no agent uses more memory than it has"),
            used: vec![0; has.len()],
            has,
            tasks,
        }
    }

    /// What was found.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.books.verdict()
    }

    fn needs(&self, task: u64) -> u64 {
        self.tasks.spec(task as usize).kind.needs.memory_bytes
    }
}

impl Observer for Memory {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        match *happening {
            Happening::Started { worker, task } => {
                let needs = self.needs(task);
                let used = &mut self.used[worker as usize];
                *used += needs;
                let has = self.has[worker as usize];
                self.books
                    .require(has == 0 || needs == 0 || *used <= has, now, || {
                        format!("agent {worker} started task {task}: {used} of {has} bytes")
                    });
            }
            Happening::Finished { worker, task, .. } | Happening::Stopped { worker, task } => {
                self.used[worker as usize] -= self.needs(task);
            }
            _ => {}
        }
    }
}

//! Urgent tasks are not stolen, and no task is passed on for ever [S6, S15], except to somebody who starts
//! it at once.

use std::sync::Arc;

use loxley_model::Priority;

use crate::checkers::{Books, Violation};
use crate::fleet::{Fault, FleetSetup, FleetTasks};
use crate::observer::{Happening, Observer};
use crate::time::Nanos;

/// The books: how often each task was stolen.
#[derive(Debug)]
pub struct Protection {
    books: Books,
    tasks: Arc<FleetTasks>,
    protected_from: Option<Priority>,
    rescue: bool,
    moves_max: Option<u32>,
    moves: Vec<u32>,
}

impl Protection {
    /// Books for this fleet.
    #[must_use]
    pub fn new(setup: &FleetSetup, tasks: Arc<FleetTasks>) -> Self {
        let rules = &setup.config.priority;
        let reconfigured = setup
            .faults
            .iter()
            .any(|(_, fault)| matches!(fault, Fault::Reconfigure(_)));
        Self {
            books: Books::new("urgent tasks stay, and nobody is passed on for ever"),
            protected_from: (rules.preserve_high_priority && !reconfigured)
                .then_some(rules.high_priority_threshold),
            rescue: rules.rescue_high_priority,
            moves_max: (!reconfigured).then_some(setup.config.guards.max_moves),
            moves: vec![0; tasks.len()],
            tasks,
        }
    }

    /// What was found.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.books.verdict()
    }
}

impl Observer for Protection {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        match *happening {
            Happening::Moved {
                from,
                to,
                task,
                stolen: true,
                given,
            } => {
                let priority = self.tasks.spec(task as usize).priority;
                let free = self.protected_from.is_none_or(|level| priority < level)
                    || (given && self.rescue);
                self.books.require(free, now, || {
                    format!(
                        "task {task} of priority {} was taken from agent {from} by agent {to}",
                        priority.level()
                    )
                });
                let moves = &mut self.moves[task as usize];
                *moves += 1;
                let max = self.moves_max.unwrap_or(u32::MAX);
                self.books.require(given || *moves <= max, now, || {
                    format!("task {task} was stolen {moves} times, and {max} is the most")
                });
            }
            // A task that was run and comes back (a failure, a lost agent) begins anew.
            Happening::Started { task, .. } => self.moves[task as usize] = 0,
            _ => {}
        }
    }
}

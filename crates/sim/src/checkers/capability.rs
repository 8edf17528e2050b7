//! No agent runs a task that it is not capable of under the rule in force [S4].

use std::sync::Arc;

use loxley_model::{Priority, SkillSet};
use loxley_policy::Matching;

use crate::checkers::{Books, Violation};
use crate::fleet::{Fault, FleetSetup, FleetTasks};
use crate::observer::{Happening, Observer};
use crate::time::Nanos;

/// The books: who can do what.
#[derive(Debug)]
pub struct Capability {
    books: Books,
    tasks: Arc<FleetTasks>,
    skills: Vec<SkillSet>,
    /// Whether every skill is always needed.
    exact: bool,
    /// From this priority on, every skill is needed.
    high: Priority,
}

impl Capability {
    /// Books for this fleet.
    #[must_use]
    pub fn new(setup: &FleetSetup, tasks: Arc<FleetTasks>) -> Self {
        let reconfigured = setup
            .faults
            .iter()
            .any(|(_, fault)| matches!(fault, Fault::Reconfigure(_)));
        let rules = &setup.config;
        Self {
            books: Books::new("no agent runs what it cannot do"),
            skills: setup
                .agents
                .iter()
                .map(|agent| agent.spec.skills.clone())
                .collect(),
            exact: rules.capabilities.matching_strategy == Matching::Exact && !reconfigured,
            high: if reconfigured {
                Priority::HIGHEST
            } else {
                rules.priority.high_priority_threshold
            },
            tasks,
        }
    }

    /// What was found.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.books.verdict()
    }
}

impl Observer for Capability {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        let Happening::Started { worker, task } = *happening else {
            return;
        };
        let spec = self.tasks.spec(task as usize);
        let needed = &spec.kind.skills;
        let has = needed.count_in(&self.skills[worker as usize]);
        let every = self.exact || spec.priority >= self.high;
        let capable = needed.is_empty() || has == needed.len() || (!every && has > 0);
        self.books.require(capable, now, || {
            format!(
                "agent {worker} has {has} of the {} skills of task {task} (priority {})",
                needed.len(),
                spec.priority.level()
            )
        });
    }
}

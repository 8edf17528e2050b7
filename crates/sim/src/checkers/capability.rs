//! No agent runs a task that it is not capable of under the rule in force [S4], by skills that it declared, or earned
//! [S18]: whoever has a skill that it did not declare succeeded often enough at tasks that need it.

use std::collections::HashMap;
use std::sync::Arc;

use loxley_model::{Priority, SkillId, SkillSet};
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
    /// How often an agent succeeded at tasks that need a skill.
    successes: HashMap<(u32, SkillId), u32>,
    /// So many earn it, if it can be earned.
    earned_after: Option<u32>,
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
            successes: HashMap::new(),
            earned_after: rules
                .added
                .earning
                .enabled
                .then_some(rules.added.earning.successes),
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
        let (worker, task) = match *happening {
            Happening::Started { worker, task } => (worker, task),
            Happening::Finished {
                worker,
                task,
                ok: true,
            } => {
                for skill in self.tasks.spec(task as usize).kind.skills.iter() {
                    *self.successes.entry((worker, skill)).or_default() += 1;
                }
                return;
            }
            _ => return,
        };
        let spec = self.tasks.spec(task as usize);
        let needed = &spec.kind.skills;
        let may_have = |skill: &SkillId| {
            let successes = self.successes.get(&(worker, *skill)).copied();
            let has_earned = |after| successes.unwrap_or(0) >= after;
            self.skills[worker as usize].contains(*skill)
                || self.earned_after.is_some_and(has_earned)
        };
        let has = needed.iter().filter(may_have).count();
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

//! What is learned of an agent's speed moves toward the truth, and stays there [S18].
//!
//! Only where what is seen is true: messages arrive at once, no clock is wrong, chance has no say in how long tasks take,
//! and what each costs is declared. Tasks that keep checkpoints do not count: what goes on from one takes less than it
//! costs, and nobody may take that for a faster agent.

use std::sync::Arc;

use crate::checkers::{Books, Violation, idle};
use crate::fleet::{FleetSetup, FleetTasks};
use crate::observer::{Happening, Observer};
use crate::time::Nanos;

/// After so many tasks, what is known is close to the truth.
const ENOUGH: u32 = 40;

/// So close, as a share of it.
const CLOSE: f64 = 0.05;

/// Times are whole nanoseconds, so nothing is quite exact.
const ROUNDING: f64 = 0.001;

/// The books: how much there was to learn from.
#[derive(Debug)]
pub struct Learning {
    books: Books,
    tasks: Arc<FleetTasks>,
    agents: Vec<Entry>,
    now: Nanos,
}

#[derive(Debug)]
struct Entry {
    said: f64,
    truth: f64,
    ended: u32,
}

impl Learning {
    /// Books for this fleet, if the claim holds of it.
    #[must_use]
    pub fn new(setup: &FleetSetup, tasks: &Arc<FleetTasks>) -> Option<Self> {
        let is_steady = |agent: &crate::fleet::AgentSetup| agent.straggler.0 == 0.0;
        let mut costs = tasks.specs().map(|spec| spec.cost).zip(tasks.work());
        let holds = idle::is_exact(setup)
            && setup.clock_skew == 0
            && setup.agents.iter().all(is_steady)
            && costs.all(|(cost, work)| cost.is_some_and(|cost| cost.0 == *work));
        holds.then(|| Self {
            books: Books::new("what is learned of a speed moves toward the truth"),
            tasks: Arc::clone(tasks),
            agents: setup
                .agents
                .iter()
                .map(|agent| Entry {
                    said: agent.spec.speed,
                    truth: agent.true_speed,
                    ended: 0,
                })
                .collect(),
            now: 0,
        })
    }

    /// What the scheduler knew of each agent at the end, if it knew it.
    pub fn learned(&mut self, speeds: &[Option<f64>]) {
        let off = |speed: f64, truth: f64| (speed / truth).max(truth / speed) - 1.0;
        for (number, (agent, speed)) in self.agents.iter().zip(speeds).enumerate() {
            let Some(speed) = *speed else { continue };
            let (before, after) = (off(agent.said, agent.truth), off(speed, agent.truth));
            let is_close = agent.ended < ENOUGH || after < CLOSE;
            let holds = after <= before + ROUNDING && is_close;
            self.books.require(holds, self.now, || {
                let Entry { said, truth, ended } = agent;
                format!(
                    "agent {number} said {said}, is as fast as {truth}, and is taken for {speed} after {ended} tasks"
                )
            });
        }
    }

    /// What was found.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.books.verdict()
    }
}

impl Observer for Learning {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        self.now = now;
        if let Happening::Finished {
            worker,
            task,
            ok: true,
        } = *happening
            && !self.tasks.spec(task as usize).kind.checkpoints
        {
            self.agents[worker as usize].ended += 1;
        }
    }
}

//! Nothing less urgent starts where an urgent task waits that could start there [S6, S14]: so an urgent task never waits
//! longer than a normal one in its place would have.
//!
//! Only where every moment adds up, as for [`Idle`](super::Idle), and no user's share keeps a task back. Tasks are long
//! enough not to be given to agents ahead of their time: what lies in an agent's hands it starts by itself.

use std::sync::Arc;

use loxley_model::Priority;

use crate::checkers::floor::Floor;
use crate::checkers::idle::{self, Leaving};
use crate::checkers::{Books, Violation};
use crate::fleet::{FleetSetup, FleetTasks};
use crate::observer::{Happening, Observer};
use crate::time::{Nanos, SECOND};

/// Whether no task is so short, or can seem so, that it may lie at an agent before it starts. Where nobody said how long
/// they take, that is known from agents that may be fast; by a clock that jumps, any may have taken no time at all.
pub(super) fn are_long(setup: &FleetSetup, tasks: &FleetTasks) -> bool {
    let speeds = setup.agents.iter().map(|agent| agent.spec.speed);
    let fastest = speeds.fold(1.0, f64::max);
    let guessed = tasks.specs().any(|spec| spec.cost.is_none());
    let shortest = (SECOND * 3 / 100) as f64 * fastest * if guessed { fastest } else { 1.0 };
    setup.clock_skew == 0 && tasks.work().iter().all(|work| *work as f64 >= shortest)
}

/// The books: what waits, and what starts.
#[derive(Debug)]
pub struct Urgency {
    books: Books,
    floor: Floor,
    leaving: Leaving,
    /// From this priority on, a task is urgent.
    urgent_from: Priority,
}

impl Urgency {
    /// Books for this fleet, if the claim holds of it.
    #[must_use]
    pub fn new(setup: &FleetSetup, tasks: &Arc<FleetTasks>) -> Option<Self> {
        let holds = idle::is_exact(setup)
            && idle::nothing_keeps_back(setup, tasks)
            && !setup.config.quotas.user_shares
            && are_long(setup, tasks);
        holds.then(|| Self {
            books: Books::new("nothing starts before an urgent task that could start there"),
            floor: Floor::new(setup, tasks),
            leaving: Leaving::new(setup, tasks),
            urgent_from: setup.config.priority.high_priority_threshold,
        })
    }

    /// What was found.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.books.verdict()
    }

    fn starts(&mut self, now: Nanos, worker: u32, task: u64) {
        let floor = &self.floor;
        let agent = &floor.agents[worker as usize];
        if self.leaving.may_leave(floor, agent, 0) || !floor.is_first_start(task) {
            return;
        }
        let priority = |task: u64| floor.tasks.spec(task as usize).priority;
        let mut before = floor.startable().filter(|(other, since)| {
            // What became startable in this very moment may have come just after.
            *since < now
                && priority(*other) >= self.urgent_from
                && priority(*other) > priority(task)
                && floor.fits(worker as usize, *other)
        });
        let before = before.next();
        self.books.require(before.is_none(), now, || {
            let (urgent, _) = before.unwrap_or_default();
            format!("agent {worker} starts task {task} while {urgent}, which is urgent, waits")
        });
    }
}

impl Observer for Urgency {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        if let Happening::Started { worker, task } = *happening {
            self.starts(now, worker, task);
        }
        self.floor.see(now, happening);
    }
}

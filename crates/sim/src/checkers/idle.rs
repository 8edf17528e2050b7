//! No agent stands idle while a task waits that it could start [S6].
//!
//! Only where every moment adds up and no switch allows it: messages arrive at once, nobody fails, agents are as fast
//! as they say, and neither reserved slots nor room kept for large tasks nor a strict rule of stealing keep a task back.
//! Users' shares do not either: nobody idles for them. Where placement knows speeds, a task may wait for a faster agent
//! that is busy. How fast agents are is learned; where nobody says what tasks cost, only from what others of their kind
//! took, and an agent may be thought faster than it is; so it may by a clock that jumps. Who only seems to be faster is
//! found out: no agent leaves a task to it for longer than a few of the longest tasks take.

use std::sync::Arc;

use loxley_policy::{Matching, Strategy};

use crate::checkers::floor::{Desk, Floor};
use crate::checkers::{Books, Violation};
use crate::fleet::{Fault, FleetSetup, FleetTasks};
use crate::observer::{Happening, Observer};
use crate::time::{Nanos, SECOND};

/// Who leaves a task to another looks again after this time at the latest.
const LOOKS_AGAIN: Nanos = 10 * SECOND;

/// So many of the longest tasks, at the slowest agent, a task may wait for one that only seems to be faster.
const GUESSES: f64 = 2.0;

/// The books: who runs what, and which tasks could be started.
#[derive(Debug)]
pub struct Idle {
    books: Books,
    floor: Floor,
    leaving: Leaving,
    /// Since when each agent has had a free slot without a break.
    idle_since: Vec<Option<Nanos>>,
    last: Nanos,
}

/// What idle agents may leave to others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaving {
    /// Whether a task may wait for somebody faster.
    knows_speeds: bool,
    /// Whether some speeds are learned from costs that nobody declared, or by a clock that jumps: then for how long
    /// a task may wait for an agent that is no faster.
    by_guess: Option<Nanos>,
}

impl Leaving {
    pub(super) fn new(setup: &FleetSetup, tasks: &FleetTasks) -> Self {
        let matching = setup.config.capabilities.matching_strategy;
        let guesses = setup.clock_skew > 0 || tasks.specs().any(|spec| spec.cost.is_none());
        Self {
            knows_speeds: matching == Matching::EarliestFinish,
            by_guess: guesses.then(|| {
                let speeds = setup.agents.iter().map(|agent| agent.true_speed);
                let slowest = speeds.fold(1.0, f64::min);
                let longest = tasks.work().iter().max().copied().unwrap_or(0);
                LOOKS_AGAIN + (GUESSES * longest as f64 / slowest) as Nanos
            }),
        }
    }

    /// Whether an idle agent may leave what has waited beside it for so long, since some agent that is faster, or may
    /// seem so, is busy.
    pub(super) fn may_leave(self, floor: &Floor, idle: &Desk, waited: Nanos) -> bool {
        let guesses = self.by_guess.is_some_and(|most| waited <= most);
        let seems_faster = |other: &Desk| guesses || other.speed >= idle.speed * 1.3;
        let is_busy = |other: &Desk| other.up && other.free_slots < other.slots;
        let mut others = floor.agents.iter();
        self.knows_speeds && others.any(|other| seems_faster(other) && is_busy(other))
    }
}

impl Idle {
    /// Books for this fleet, if the claim holds of it.
    #[must_use]
    pub fn new(setup: &FleetSetup, tasks: &Arc<FleetTasks>) -> Option<Self> {
        let holds = is_exact(setup) && nothing_keeps_back(setup, tasks);
        holds.then(|| Self {
            books: Books::new("nobody idles beside a task that it could start"),
            floor: Floor::new(setup, tasks),
            leaving: Leaving::new(setup, tasks),
            idle_since: vec![None; setup.agents.len()],
            last: 0,
        })
    }

    /// What was found.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.books.verdict()
    }

    /// Everything that belongs to the last moment has happened, and nothing else before `now`.
    fn check(&mut self, now: Nanos) {
        for (number, agent) in self.floor.agents.iter().enumerate() {
            if !agent.up || agent.free_slots == 0 {
                self.idle_since[number] = None;
                continue;
            }
            let idle_since = *self.idle_since[number].get_or_insert(self.last);
            let startable = self.floor.startable();
            let startable = startable.filter(|(task, _)| self.floor.fits(number, *task));
            let Some((task, since)) = startable.min_by_key(|(_, since)| *since) else {
                continue;
            };
            let waited = now - since.max(idle_since);
            let is_left = self.leaving.may_leave(&self.floor, agent, waited);
            self.books.require(is_left, self.last, || {
                format!("agent {number} has a free slot, and task {task} waits")
            });
        }
    }
}

/// Whether every moment adds up.
pub(super) fn is_exact(setup: &FleetSetup) -> bool {
    let harmless = |fault: &Fault| {
        matches!(
            fault,
            Fault::Cancel(_) | Fault::Rebalance | Fault::Weight(..)
        )
    };
    setup.network.is_instant() && setup.faults.iter().all(|(_, fault)| harmless(fault))
}

pub(super) fn nothing_keeps_back(setup: &FleetSetup, tasks: &FleetTasks) -> bool {
    let config = &setup.config;
    let is_plain = |agent: &crate::fleet::AgentSetup| {
        agent.true_speed == agent.spec.speed && agent.failure == 0.0 && agent.straggler.0 == 0.0
    };
    let has_large = tasks.specs().any(|spec| !spec.kind.needs.is_empty());
    let has_skills = setup
        .agents
        .iter()
        .any(|agent| !agent.spec.skills.is_empty());
    config.strategy != Strategy::Push
        && config.work_stealing.steal_below_busy
        && config.work_stealing.min_tasks_to_steal == 1
        && (config.priority.rescue_high_priority || !config.priority.preserve_high_priority)
        && config.quotas.reserved_slots == 0
        && (config.quotas.backfill_limit == u32::MAX || !has_large)
        && !has_skills
        && !config.forecast.enabled
        && setup.agents.iter().all(is_plain)
}

impl Observer for Idle {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        if now > self.last {
            self.check(now);
            self.last = now;
        }
        self.floor.see(now, happening);
    }
}

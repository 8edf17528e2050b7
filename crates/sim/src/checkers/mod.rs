//! Checkers: observers that keep their own books and never ask a world whether it is right [X7].
//!
//! Each file is one claim. A checker notes the first thing that contradicts its claim and says so
//! at the end; it does not stop the run, so the event log still holds what followed.

mod capability;
mod conservation;
mod copies;
mod deadlines;
mod ends_once;
mod fallbacks;
mod floor;
mod idle;
mod learning;
mod liveness;
mod memory;
mod one_at_a_time;
mod precedence;
mod protection;
mod shares;
mod urgency;

use std::sync::Arc;

use thiserror::Error;

pub use self::capability::Capability;
pub use self::conservation::Conservation;
pub use self::copies::Copies;
pub use self::deadlines::Deadlines;
pub use self::ends_once::EndsOnce;
pub use self::fallbacks::Fallbacks;
pub use self::idle::Idle;
pub use self::learning::Learning;
pub use self::liveness::Liveness;
pub use self::memory::Memory;
pub use self::one_at_a_time::OneAtATime;
pub use self::precedence::Precedence;
pub use self::protection::Protection;
pub use self::shares::Shares;
pub use self::urgency::Urgency;
use crate::fleet::{FleetSetup, FleetTasks};
use crate::observer::{Happening, Observer};
use crate::time::{Nanos, human};
use crate::workload::Workload;

/// A claim that did not hold.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{claim}: {what} (at {})", human(*.at))]
pub struct Violation {
    /// The claim.
    pub claim: &'static str,
    /// What contradicts it.
    pub what: String,
    /// When.
    pub at: Nanos,
}

/// The books of one claim: what was first seen to contradict it.
#[derive(Debug, Clone)]
pub(crate) struct Books {
    claim: &'static str,
    first: Option<Violation>,
}

impl Books {
    pub(crate) fn new(claim: &'static str) -> Self {
        Self { claim, first: None }
    }

    pub(crate) fn require(&mut self, holds: bool, at: Nanos, what: impl FnOnce() -> String) {
        if !holds && self.first.is_none() {
            self.first = Some(Violation {
                claim: self.claim,
                what: what(),
                at,
            });
        }
    }

    pub(crate) fn verdict(&self) -> Result<(), Violation> {
        self.first.clone().map_or(Ok(()), Err)
    }
}

/// All claims about a deque world.
#[derive(Debug)]
pub struct DequeCheckers {
    conservation: Conservation,
    one_at_a_time: OneAtATime,
    precedence: Option<Precedence>,
}

impl DequeCheckers {
    /// Fresh books for a world of so many workers, and of the graph it runs if it runs one.
    #[must_use]
    pub fn new(workers: usize, graph: Option<Arc<Workload>>) -> Self {
        Self {
            conservation: Conservation::default(),
            one_at_a_time: OneAtATime::new(vec![1; workers]),
            precedence: graph.map(Precedence::new),
        }
    }

    /// The verdict after a run that went to its end with so many tasks.
    pub fn verdict(&self, tasks: u64) -> Result<(), Violation> {
        self.conservation.verdict(tasks)?;
        self.one_at_a_time.verdict()?;
        self.precedence.as_ref().map_or(Ok(()), Precedence::verdict)
    }
}

impl Observer for DequeCheckers {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        self.conservation.see(now, happening);
        self.one_at_a_time.see(now, happening);
        self.precedence.see(now, happening);
    }
}

/// All claims about a fleet.
#[derive(Debug)]
pub struct FleetCheckers {
    ends_once: EndsOnce,
    one_at_a_time: OneAtATime,
    capability: Capability,
    protection: Protection,
    deadlines: Deadlines,
    liveness: Liveness,
    fallbacks: Fallbacks,
    memory: Option<Memory>,
    copies: Option<Copies>,
    idle: Option<Idle>,
    urgency: Option<Urgency>,
    shares: Option<Shares>,
    learning: Option<Learning>,
}

impl FleetCheckers {
    /// Fresh books for `setup` running `tasks`.
    #[must_use]
    pub fn new(setup: &FleetSetup, tasks: &Arc<FleetTasks>) -> Self {
        let slots = setup.agents.iter().map(|agent| agent.spec.slots).collect();
        // With messages under way the scheduler and an agent disagree for a while about what runs
        // there; only without them must every moment add up.
        let exact = setup.network.is_instant() && setup.faults.is_empty();
        Self {
            ends_once: EndsOnce::new(Arc::clone(tasks)),
            one_at_a_time: OneAtATime::new(slots),
            capability: Capability::new(setup, Arc::clone(tasks)),
            protection: Protection::new(setup, Arc::clone(tasks)),
            deadlines: Deadlines::new(setup, Arc::clone(tasks)),
            liveness: Liveness::new(setup),
            fallbacks: Fallbacks::new(tasks),
            memory: exact.then(|| Memory::new(setup, Arc::clone(tasks))),
            copies: Copies::new(setup),
            idle: Idle::new(setup, tasks),
            urgency: Urgency::new(setup, tasks),
            shares: Shares::new(setup, tasks),
            learning: Learning::new(setup, tasks),
        }
    }

    /// Claims that do not hold of every fleet, and whether they are checked in this one.
    #[must_use]
    pub fn conditional(&self) -> [(&'static str, bool); 6] {
        [
            ("memory", self.memory.is_some()),
            ("copies", self.copies.is_some()),
            ("idle", self.idle.is_some()),
            ("urgency", self.urgency.is_some()),
            ("shares", self.shares.is_some()),
            ("learning", self.learning.is_some()),
        ]
    }

    /// What the scheduler knew of each agent's speed at the end, if it knew it.
    pub fn learned(&mut self, speeds: &[Option<f64>]) {
        if let Some(learning) = &mut self.learning {
            learning.learned(speeds);
        }
    }

    /// The verdict after a run; `complete` if it should have gone to its end.
    pub fn verdict(&self, complete: bool) -> Result<(), Violation> {
        self.ends_once.verdict(complete)?;
        self.one_at_a_time.verdict()?;
        self.capability.verdict()?;
        self.protection.verdict()?;
        self.deadlines.verdict()?;
        self.liveness.verdict()?;
        self.fallbacks.verdict()?;
        self.copies.as_ref().map_or(Ok(()), Copies::verdict)?;
        self.idle.as_ref().map_or(Ok(()), Idle::verdict)?;
        self.urgency.as_ref().map_or(Ok(()), Urgency::verdict)?;
        self.shares.as_ref().map_or(Ok(()), Shares::verdict)?;
        self.learning.as_ref().map_or(Ok(()), Learning::verdict)?;
        self.memory.as_ref().map_or(Ok(()), Memory::verdict)
    }
}

impl Observer for FleetCheckers {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        self.ends_once.see(now, happening);
        self.one_at_a_time.see(now, happening);
        self.capability.see(now, happening);
        self.protection.see(now, happening);
        self.deadlines.see(now, happening);
        self.liveness.see(now, happening);
        self.fallbacks.see(now, happening);
        self.copies.see(now, happening);
        self.idle.see(now, happening);
        self.urgency.see(now, happening);
        self.shares.see(now, happening);
        self.learning.see(now, happening);
        self.memory.see(now, happening);
    }
}

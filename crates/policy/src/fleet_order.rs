//! One order over the whole fleet: what should start next, wherever it is queued.
//!
//! A queue keeps its own tasks in order, but work is done soonest when no agent starts a task while one that
//! should come first waits on another queue. So queued tasks that an order matters for are also in one set: those
//! with others behind them (the longest chain first), those of a submission whose costs differ (the longest first),
//! those with a deadline (the earliest first) and urgent ones. An agent with a free slot takes the first of them
//! that it may have, if that comes before the first of its own queue.
//!
//! The set is kept in one strand for each admission class: whoever may not have the first of a strand may have
//! none of it. So an agent looks at the first of each strand and never further.

use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;

use loxley_model::{Priority, Time};

use crate::Scheduler;
use crate::admission::Shares;
use crate::facts::Facts;
use crate::refs::{AdmissionClassRef, AgentRef, TaskRef};
use crate::tasks::{NO_CHAIN, OrderKey};

/// How many strands an agent is tried on: more classes than this wait for their queues' turn.
const STRANDS_MAX: usize = 64;

/// Where a task stands in the order of the fleet.
type Place = (Reverse<Priority>, OrderKey, TaskRef);

/// Tasks in that order.
pub(crate) type InFleetOrder = BTreeSet<Place>;

/// Queued tasks in the order in which the whole fleet should start them.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct FleetOrder {
    strands: BTreeMap<AdmissionClassRef, InFleetOrder>,
    /// The first task of each strand, in order.
    fronts: BTreeSet<(Place, AdmissionClassRef)>,
}

impl FleetOrder {
    pub(crate) fn is_empty(&self) -> bool {
        self.fronts.is_empty()
    }

    /// A task came to a queue.
    pub(crate) fn insert(&mut self, facts: &Facts, task: TaskRef) {
        if !is_ordered(facts, task) {
            return;
        }
        let (place, class) = place_of(facts, task);
        let strand = self.strands.entry(class).or_default();
        let before = strand.first().copied();
        strand.insert(place);
        if before.is_none_or(|before| place < before) {
            if let Some(before) = before {
                self.fronts.remove(&(before, class));
            }
            self.fronts.insert((place, class));
        }
    }

    /// A task left its queue.
    pub(crate) fn remove(&mut self, facts: &Facts, task: TaskRef) {
        if !is_ordered(facts, task) {
            return;
        }
        let (place, class) = place_of(facts, task);
        let strand = self.strands.get_mut(&class);
        let strand = strand.expect("a queued task is in the order of the fleet");
        strand.remove(&place);
        if self.fronts.remove(&(place, class)) {
            match strand.first() {
                Some(next) => {
                    self.fronts.insert((*next, class));
                }
                None => {
                    self.strands.remove(&class);
                }
            }
        }
    }

    /// The first task of each class, in order.
    fn fronts(&self) -> impl Iterator<Item = (TaskRef, AdmissionClassRef)> {
        self.fronts
            .iter()
            .map(|((_, _, task), class)| (*task, *class))
    }
}

fn place_of(facts: &Facts, task: TaskRef) -> (Place, AdmissionClassRef) {
    let this = &facts.tasks[task];
    let (priority, key) = this.fleet_order();
    ((priority, key, task), this.admission_class)
}

/// Whether it matters when this task starts, compared with those on other queues.
pub(crate) fn is_ordered(facts: &Facts, task: TaskRef) -> bool {
    let this = &facts.tasks[task];
    this.slack != NO_CHAIN
        || this.deadline() != Time::MAX
        || facts
            .classes
            .class_of_admission(this.admission_class)
            .strict
}

impl Scheduler {
    /// Sorts tasks that become ready together: what comes first is placed first, so that idle agents do not
    /// start on what comes later.
    pub(crate) fn put_in_order(&self, tasks: &mut [TaskRef]) {
        tasks.sort_by_cached_key(|task| self.facts.tasks[*task].fleet_order());
    }

    /// The task that the whole fleet should start next, if it is on another queue, an agent may have it,
    /// and it comes before all that the agent could start of its own.
    pub(crate) fn first_elsewhere(&mut self, agent: AgentRef, shares: Shares) -> Option<TaskRef> {
        if !self.facts.config.strategy.pulls() {
            return None;
        }
        let task = self.first_of_fleet(agent, shares)?;
        if self.facts.tasks[task].agent == agent {
            // Its own queue knows best: a task that has no place in this order may come first.
            return None;
        }
        let own = self.peek_own(agent, shares);
        let order = |task: TaskRef| self.facts.tasks[task].fleet_order();
        own.is_none_or(|own| order(task) < order(own))
            .then_some(task)
    }

    fn first_of_fleet(&self, agent: AgentRef, shares: Shares) -> Option<TaskRef> {
        let fronts = self.derived.order.fronts().take(STRANDS_MAX);
        let mut may_have = fronts.filter(|(task, class)| {
            (self.facts.tasks[*task].agent == agent || self.may_be_taken(*task, agent))
                && self.bar(agent, *class, shares).is_none()
        });
        may_have.next().map(|(task, _)| task)
    }

    /// Whether an agent that would start this task at once may take it off another's queue. How often it
    /// has moved does not count: it moves no more. What comes first stays with an agent that is faster; of what
    /// that has, only the last is taken, by the rules of stealing.
    fn may_be_taken(&self, task: TaskRef, agent: AgentRef) -> bool {
        let this = &self.facts.tasks[task];
        let owner = self.derived.fleet.hand(this.agent);
        let class = self.facts.admission_class_of(this).capability;
        // An urgent one stays if its own agent can start it too.
        let is_free =
            !self.is_protected(this.priority) || (self.may_rescue() && !self.is_idle(this.agent));
        is_free
            && !self.is_faster(this.agent, agent)
            && owner.queue.len() > self.robbed_above()
            && self.has_room_for_loot(agent)
            && self.is_capable(class, self.facts.agents[agent].cohort)
    }
}

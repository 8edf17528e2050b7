//! One order over the whole fleet: what should start next, wherever it is queued.
//!
//! A queue keeps its own tasks in order, but work is done soonest when no agent starts a task while one that
//! should come first waits on another queue. So queued tasks that an order matters for are also in one set: those
//! with others behind them (the longest chain first), those of a submission whose costs differ (the longest first),
//! those with a deadline (the earliest first) and urgent ones. An agent with a free slot takes the first of them
//! that it may have, if that comes before the first of its own queue.
//!
//! The set is kept in one strand for each admission class and priority: whoever may not have the first of a strand may
//! have none of it. So an agent looks at the first of each strand and never further.

use alloc::collections::BTreeSet;

use loxley_model::{Priority, Time};

use crate::Scheduler;
use crate::admission::Shares;
use crate::facts::Facts;
use crate::refs::{AdmissionClassRef, AgentRef, TaskRef};
use crate::strand::Strands;
use crate::tasks::{NO_CHAIN, Tasks};

/// How many strands an agent is tried on: more classes than this wait for their queues' turn.
const STRANDS_MAX: usize = 64;

/// Queued tasks in the order in which the whole fleet should start them.
#[derive(Debug, Default)]
pub(crate) struct FleetOrder {
    /// The lowest priority first.
    levels: [Strands<AdmissionClassRef>; Priority::LEVELS],
    len: usize,
}

impl FleetOrder {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A task came to a queue.
    pub(crate) fn insert(&mut self, facts: &Facts, task: TaskRef) {
        if is_ordered(facts, task) {
            let this = &facts.tasks[task];
            self.levels[this.priority.index()].push(task, this, this.admission_class);
            self.len += 1;
        }
    }

    /// A task left its queue. Its stamp changes right after.
    pub(crate) fn remove(&mut self, facts: &Facts, task: TaskRef) {
        if is_ordered(facts, task) {
            let this = &facts.tasks[task];
            let level = &mut self.levels[this.priority.index()];
            level.remove(&facts.tasks, task, this.admission_class);
            self.len -= 1;
        }
    }

    /// The first task of each priority and class, in order.
    fn fronts(&self) -> impl Iterator<Item = (TaskRef, AdmissionClassRef)> {
        self.levels.iter().rev().flat_map(Strands::fronts)
    }

    /// Whether this is the order of the same tasks, as it should be.
    pub(crate) fn agrees(&self, tasks: &Tasks, fresh: &Self) -> bool {
        let all = |order: &Self| -> BTreeSet<TaskRef> {
            let strands = order.levels.iter().flat_map(Strands::values);
            strands.flat_map(|strand| strand.tasks(tasks)).collect()
        };
        self.len == fresh.len
            && all(self) == all(fresh)
            && self.fronts().eq(fresh.fronts())
            && self.levels.iter().all(|level| level.fronts_agree(tasks))
    }
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
        // Worked out once, so that nobody has to search for each task who can do it.
        let cohort = self.facts.agents[agent].cohort;
        self.derived.appetite(&self.facts, cohort);
        let task = self.first_of_fleet(agent, shares)?;
        if self.facts.tasks[task].agent == agent {
            // Its own queue knows best: a task that has no place in this order may come first.
            return None;
        }
        let own = self.peek_own(agent, shares);
        // Of two that only their places in one submission tell apart, its own is as good as the other.
        let order = |task: TaskRef| self.facts.tasks[task].rank();
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
    /// has moved does not count: it moves no more. It stays with an agent that is faster, unless that is known to
    /// end it later.
    fn may_be_taken(&self, task: TaskRef, agent: AgentRef) -> bool {
        let this = &self.facts.tasks[task];
        let owner = self.derived.fleet.hand(this.agent);
        let class = self.facts.admission_class_of(this).capability;
        let is_free = || {
            !self.is_protected(this.priority)
                || (self.may_rescue() && !self.could_start(this.agent, this.admission_class))
        };
        self.is_capable(class, self.facts.agents[agent].cohort)
            && is_free()
            && !self.keeps_first(task, agent, this.agent)
            && owner.queue.len() > self.robbed_above()
            && self.has_room_for_loot(agent)
    }
    /// Whether an agent could start a task of this class of its own queue now. Then an urgent one stays there.
    fn could_start(&self, agent: AgentRef, class: AdmissionClassRef) -> bool {
        self.is_idle(agent) && self.bar(agent, class, Shares::Ignored).is_none()
    }
}

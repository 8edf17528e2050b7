//! What follows from the facts, kept up to date as they change.
//!
//! [`Derived::of`] works all of it out; a new scheduler and one that goes on from a snapshot begin with
//! it. Sums are whole numbers, so that what is kept up by adding and taking away and what is worked out
//! anew are the same to the bit.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use loxley_model::SkillId;

use crate::agents::Breaker;
use crate::capability::Capabilities;
use crate::facts::Facts;
use crate::fleet::{Change, Fleet, InHand};
use crate::fleet_order::FleetOrder;
use crate::limits::Loads;
use crate::paged::Paged;
use crate::refs::{AgentRef, JobRef, TaskRef};
use crate::task_classes::ClassIndex;
use crate::tasks::{State, Task};

#[derive(Debug)]
pub(crate) struct Derived {
    pub(crate) fleet: Fleet,
    pub(crate) job_of: Paged<JobRef>,
    pub(crate) index: ClassIndex,
    pub(crate) loads: Loads,
    pub(crate) capabilities: Capabilities,
    /// Queued tasks for which it matters what starts elsewhere.
    pub(crate) order: FleetOrder,
    /// Skills that may be tried again, and where.
    pub(crate) probes: BTreeSet<(SkillId, AgentRef)>,
    pub(crate) counts: LiveCounts,
}

/// How many tasks that are not over are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveCounts {
    pub(crate) waiting: u64,
    pub(crate) held: u64,
    pub(crate) queued: u64,
    /// In the hands of an agent that has not started it.
    pub(crate) leased: u64,
    pub(crate) started: u64,
    /// Those that are not large.
    pub(crate) small: u64,
    /// Second copies under way.
    pub(crate) copies: u32,
    /// Those that agents were asked to give back and have not answered.
    pub(crate) retracts: u32,
}

impl LiveCounts {
    /// The count of tasks in this state.
    pub(crate) fn of(&mut self, state: State) -> &mut u64 {
        match state {
            State::Waiting | State::Backoff | State::Standby | State::Delegated | State::Away => {
                &mut self.waiting
            }
            State::Held => &mut self.held,
            State::Queued => &mut self.queued,
            State::Leased => &mut self.leased,
            State::Running => &mut self.started,
        }
    }

    /// Those with an agent, started or about to be.
    pub(crate) fn running(&self) -> u64 {
        self.leased + self.started
    }
}

impl Derived {
    /// What follows from these facts.
    pub(crate) fn of(facts: &Facts) -> Self {
        let mut derived = Self {
            fleet: Fleet::of(facts),
            job_of: Paged::default(),
            index: ClassIndex::of(&facts.classes),
            loads: Loads::of(&facts.limits),
            capabilities: Capabilities::of(&facts.classes),
            order: FleetOrder::default(),
            probes: BTreeSet::new(),
            counts: LiveCounts::default(),
        };
        for (job, this) in facts.jobs.iter() {
            derived.job_of.insert(this.spec.id.0, job);
        }
        for (agent, this) in facts.agents.iter() {
            let probing = this.record.skills.iter();
            let probing = probing.filter(|record| record.breaker == Breaker::Probing);
            derived
                .probes
                .extend(probing.map(|record| (record.skill, agent)));
        }
        for (id, incarnation) in facts.timers.who_looks_again() {
            if let Some(agent) = derived.fleet.find(id)
                && facts.agents[agent].incarnation == incarnation
            {
                derived.fleet.look(agent).leaves_work = true;
            }
        }
        // In order, so that queues are filled from their ends.
        let mut tasks: Vec<TaskRef> = facts.tasks.iter().map(|(task, _)| task).collect();
        tasks.sort_by_key(|task| facts.tasks[*task].key());
        for task in tasks {
            derived.count_in(facts, task);
        }
        derived
    }

    /// Takes a task into all books, as its state says.
    fn count_in(&mut self, facts: &Facts, task: TaskRef) {
        let this = &facts.tasks[task];
        let class = facts.admission_class_of(this);
        self.begin(facts, this);
        *self.counts.of(this.state) += 1;
        match this.state {
            State::Queued => self.queue(facts, task),
            State::Held => self.capabilities.hold(class.capability, this, task),
            State::Leased | State::Running => {
                let started = this.state == State::Running;
                let held = InHand {
                    lease: this.lease,
                    task,
                };
                self.lease(facts, held, this.agent, started);
                if let Some(copy) = this.copy() {
                    let held = InHand {
                        lease: copy.lease,
                        task,
                    };
                    self.counts.copies += 1;
                    self.lease(facts, held, copy.agent, copy.running);
                }
            }
            State::Waiting | State::Backoff | State::Standby | State::Delegated | State::Away => {}
        }
        if this.is_retracting() {
            self.counts.retracts += 1;
            let thief = this.extra.as_ref().and_then(|extra| extra.retract_for);
            if let Some((id, incarnation)) = thief
                && let Some(thief) = self.fleet.find(id)
                && facts.agents[thief].incarnation == incarnation
            {
                self.fleet.look(thief).awaited += 1;
            }
        }
    }

    // Each of these keeps several books: what one puts in, its counterpart takes out.

    /// A task is here.
    pub(crate) fn begin(&mut self, facts: &Facts, task: &Task) {
        let class = facts.admission_class_of(task);
        self.loads.task_begins(&facts.limits, class.user);
        self.index.count_task(task.kind, 1);
        self.counts.small += u64::from(!class.large);
    }

    /// A task is over. It is on no queue and has no lease.
    pub(crate) fn end(&mut self, facts: &Facts, task: &Task) {
        let class = facts.admission_class_of(task);
        self.loads.task_ends(&facts.limits, class.user);
        self.index.count_task(task.kind, -1);
        self.counts.small -= u64::from(!class.large);
    }

    /// A task is on the queue of its agent.
    pub(crate) fn queue(&mut self, facts: &Facts, task: TaskRef) {
        let this = &facts.tasks[task];
        let class = facts.admission_class_of(this);
        let hand = self.fleet.change(this.agent, Change::Queue);
        hand.queue.push(&facts.tasks, task, facts.sort_of(this));
        hand.queued_cost += u128::from(this.queue_cost().0);
        hand.unknown_costs += u32::from(this.known_cost().is_none());
        self.loads.task_queued(class.user, class.group);
        self.order.insert(facts, task);
    }

    /// A task leaves the queue of its agent. Its stamp changes right after.
    pub(crate) fn unqueue(&mut self, facts: &Facts, task: TaskRef) {
        let this = &facts.tasks[task];
        let class = facts.admission_class_of(this);
        let hand = self.fleet.change(this.agent, Change::Queue);
        hand.queue.remove(&facts.tasks, task, facts.sort_of(this));
        hand.queued_cost -= u128::from(this.queue_cost().0);
        hand.unknown_costs -= u32::from(this.known_cost().is_none());
        self.loads.task_unqueued(class.user, class.group);
        self.order.remove(facts, task);
    }

    /// An agent holds a lease.
    pub(crate) fn lease(&mut self, facts: &Facts, held: InHand, agent: AgentRef, started: bool) {
        let this = &facts.tasks[held.task];
        let class = facts.admission_class_of(this);
        self.loads.lease_begins(class.user, class.group);
        let hand = self.fleet.change(agent, Change::Leases);
        hand.hold(held);
        hand.held_cost += u128::from(this.queue_cost().0);
        hand.unstarted += u32::from(!started);
        hand.large += u32::from(class.large);
        if class.needy {
            hand.used
                .take(&facts.classes.class_at(class.capability).needs);
        }
    }

    /// An agent holds a lease no more.
    pub(crate) fn unlease(&mut self, facts: &Facts, held: InHand, agent: AgentRef, started: bool) {
        let this = &facts.tasks[held.task];
        let class = facts.admission_class_of(this);
        self.loads.lease_ends(class.user, class.group);
        let hand = self.fleet.change(agent, Change::Leases);
        hand.drop_lease(held.lease);
        hand.held_cost -= u128::from(this.queue_cost().0);
        if !started {
            hand.start();
        }
        hand.large -= u32::from(class.large);
        if class.needy {
            hand.used
                .give_back(&facts.classes.class_at(class.capability).needs);
        }
    }

    /// Whether this is what follows from the facts; names a book that is wrong.
    pub(crate) fn verify(&mut self, facts: &Facts) -> Result<(), &'static str> {
        let mut fresh = Self::of(facts);
        if self.counts != fresh.counts {
            return Err("counts");
        }
        if self.loads != fresh.loads {
            return Err("limits");
        }
        if self.index != fresh.index {
            return Err("kinds");
        }
        if !self.order.agrees(&facts.tasks, &fresh.order) {
            return Err("the order of the fleet");
        }
        if self.probes != fresh.probes {
            return Err("probes");
        }
        if !self.job_of.iter().eq(fresh.job_of.iter()) {
            return Err("jobs");
        }
        self.capabilities
            .verify(facts, &self.fleet, &fresh.capabilities)?;
        self.fleet.agrees(facts, &mut fresh.fleet)
    }
}

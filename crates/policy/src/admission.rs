//! What is asked before a task is started on an agent.

use loxley_model::{GroupId, Resources};

use crate::Scheduler;
use crate::agents::Agent;
use crate::facts::Facts;
use crate::fleet::Hand;
use crate::limits::Loads;
use crate::refs::{AdmissionClassRef, AgentRef};

/// Why an admission class may not be started on an agent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bar {
    /// The agent has not enough free resources.
    Room,
    /// The last slots are kept for small tasks.
    Reserved,
    /// The group is at its limit.
    Group(GroupId),
    /// The user has its share, and others wait.
    Share,
    /// Work is due that the agent is kept for.
    Kept,
}

/// Whether users' shares count. When nothing else could start, they do not: nobody idles for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shares {
    Enforced,
    Ignored,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission<'a> {
    facts: &'a Facts,
    loads: &'a Loads,
    total_slots: u64,
    shares: Shares,
    /// How many slots large tasks may not have; 0 while there are no small ones.
    reserved_slots: u32,
}

impl<'a> Admission<'a> {
    pub(crate) fn new(
        facts: &'a Facts,
        loads: &'a Loads,
        total_slots: u64,
        small: u64,
        shares: Shares,
    ) -> Self {
        let reserved_slots = if small > 0 {
            facts.config.quotas.reserved_slots
        } else {
            0
        };
        Self {
            facts,
            loads,
            total_slots,
            shares,
            reserved_slots,
        }
    }

    /// Why `class` may not start on `agent` now, if it may not.
    pub(crate) fn bar(
        &self,
        agent: &Agent,
        used: &Resources,
        large_in_hand: u32,
        class: AdmissionClassRef,
    ) -> Option<Bar> {
        if self.facts.keeps_from(agent.id, class) {
            return Some(Bar::Kept);
        }
        let class = self.facts.classes.admission_class(class);
        if class.needy {
            let needs = &self.facts.classes.class_at(class.capability).needs;
            if !agent.resources.have_room(used, needs) {
                return Some(Bar::Room);
            }
        }
        if class.large && self.reserved_slots > 0 && agent.slots > self.reserved_slots {
            let open = agent.slots - self.reserved_slots;
            if large_in_hand >= open {
                return Some(Bar::Reserved);
            }
        }
        if let Some(group) = class.group
            && !self.loads.group_has_room(&self.facts.limits, group)
        {
            return Some(Bar::Group(group));
        }
        if self.shares == Shares::Enforced {
            let limits = &self.facts.limits;
            if !self
                .loads
                .within_share(limits, class.user, self.total_slots)
            {
                return Some(Bar::Share);
            }
        }
        None
    }

    /// The same for what the agent has in hand.
    pub(crate) fn bar_with(
        &self,
        agent: &Agent,
        hand: &Hand,
        class: AdmissionClassRef,
    ) -> Option<Bar> {
        self.bar(agent, &hand.used, hand.large, class)
    }
}

impl Scheduler {
    pub(crate) fn admission(&self, shares: Shares) -> Admission<'_> {
        let derived = &self.derived;
        let (slots, small) = (derived.fleet.total_slots, derived.counts.small);
        Admission::new(&self.facts, &derived.loads, slots, small, shares)
    }

    /// Whether an agent whose slots are taken may be given one more task ahead of its time: what lies in its hands for a slot
    /// is below its share of all that waits, by its slots. The others can have the rest without a round trip.
    pub(crate) fn is_within_agent_share(&self, agent: AgentRef) -> bool {
        if !self.facts.config.added.agent_shares {
            return true;
        }
        let this = &self.facts.agents[agent];
        let bound = u64::from(self.derived.fleet.hand(agent).backlog(this));
        let waiting = self.derived.counts.queued + bound;
        let share = waiting * u64::from(this.slots);
        bound < share.div_ceil(self.derived.fleet.total_slots.max(1)).max(1)
    }

    /// Whether shares can make a difference.
    pub(crate) fn shares(&self) -> Shares {
        if self.facts.config.quotas.user_shares && self.facts.limits.user_count() > 1 {
            Shares::Enforced
        } else {
            Shares::Ignored
        }
    }

    /// Why an admission class may not start on an agent now, if it may not.
    pub(crate) fn bar(
        &self,
        agent: AgentRef,
        class: AdmissionClassRef,
        shares: Shares,
    ) -> Option<Bar> {
        let hand = self.derived.fleet.hand(agent);
        let admission = self.admission(shares);
        admission.bar_with(&self.facts.agents[agent], hand, class)
    }
}

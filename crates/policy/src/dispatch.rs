//! Giving tasks to agents that have room.

use alloc::vec::Vec;

use loxley_model::{AgentId, Dispatch, GroupId, Lease};

use crate::agents::{Agent, InHand, Stale};
use crate::limits::Limits;
use crate::lots::Lots;
use crate::refs::{AgentRef, LotRef, TaskRef};
use crate::scheduler::reject;
use crate::tasks::State;
use crate::view::Liveness;
use crate::{Action, InputError, Reason, Scheduler};

/// With more agents than this, what is fetched ahead of its turn would be gone from the cache again by then.
const LOOK_AHEAD_AGENTS_MAX: usize = 256;

/// Why a lot may not be started on an agent now.
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
}

/// What is asked before a lot is started on an agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission<'a> {
    pub(crate) lots: &'a Lots,
    pub(crate) limits: &'a Limits,
    pub(crate) total_slots: u64,
    pub(crate) enforce_shares: bool,
    /// How many slots large tasks may not have; 0 while there are no small ones.
    pub(crate) reserved_slots: u32,
}

impl Admission<'_> {
    /// Why `lot` may not start on `agent` now, if it may not.
    pub(crate) fn bar(&self, agent: &Agent, lot: LotRef) -> Option<Bar> {
        let lot = self.lots.at(lot);
        if lot.needy {
            let needs = &self.lots.class_at(lot.class).needs;
            if !agent.resources.have_room(&agent.used, needs) {
                return Some(Bar::Room);
            }
        }
        if lot.large && self.reserved_slots > 0 && agent.slots > self.reserved_slots {
            let open = agent.slots - self.reserved_slots;
            if agent.large_in_hand >= open {
                return Some(Bar::Reserved);
            }
        }
        if let Some(group) = lot.group
            && !self.limits.group_has_room(Some(group))
        {
            return Some(Bar::Group(group));
        }
        if self.enforce_shares && !self.limits.within_share(lot.user, self.total_slots) {
            return Some(Bar::Share);
        }
        None
    }
}

impl Scheduler {
    pub(crate) fn work_requested(&mut self, agent: AgentId, want: u32, actions: &mut Vec<Action>) {
        let Some(agent) = self.agents.find(agent) else {
            return reject(InputError::UnknownAgent(agent), actions);
        };
        self.agents.touch(agent);
        self.agents[agent].want = want;
        self.feed(agent, actions);
    }

    pub(crate) fn admission(&self, enforce_shares: bool) -> Admission<'_> {
        let small_ones = self.small_live > 0;
        Admission {
            lots: &self.lots,
            limits: &self.limits,
            total_slots: self.agents.total_slots,
            enforce_shares,
            reserved_slots: if small_ones {
                self.config.quotas.reserved_slots
            } else {
                0
            },
        }
    }

    /// Gives an agent as much as it has room for: from its own queue, then from others.
    pub(crate) fn feed(&mut self, agent: AgentRef, actions: &mut Vec<Action>) {
        let shares = self.config.quotas.user_shares && self.limits.has_rivals();
        let depth = self.config.prefetch.max_depth;
        while self.agents[agent].room(depth) > 0 {
            let given = (!self.overdue.is_empty() && self.run_urgent_copy(agent, actions))
                || (!self.chained.is_empty() && self.take_longest_chain(agent, shares, actions))
                || self.start_own(agent, shares, actions)
                || self.steal(agent, shares, actions)
                || (shares && self.start_own(agent, false, actions))
                || (shares && self.steal(agent, false, actions));
            if given {
                continue;
            }
            self.ask_back_for(agent, actions);
            let expects_work = self.agents[agent].awaited > 0;
            if expects_work || !self.run_second_copy(agent, None, actions) {
                let hungry = self.agents[agent].room(depth) > 0;
                return self.agents.set_hungry(agent, hungry);
            }
        }
        self.agents.set_hungry(agent, false);
    }

    /// Gives an agent the next task of its own queue that may start.
    fn start_own(
        &mut self,
        agent: AgentRef,
        enforce_shares: bool,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some(task) = self.next_own(agent, enforce_shares) else {
            return false;
        };
        let reason = self.tasks[task].reason;
        self.unqueue(task);
        self.assign(task, agent, reason, actions);
        if self.agents.len() <= LOOK_AHEAD_AGENTS_MAX {
            self.agents[agent].queue.look_ahead(&self.tasks);
        }
        true
    }

    pub(crate) fn next_own(&mut self, agent: AgentRef, enforce_shares: bool) -> Option<TaskRef> {
        if self.agents[agent].queue.is_empty() {
            return None;
        }
        let backfill_limit = self.config.quotas.backfill_limit;
        // The queue is lent out while the rest of the agent is looked at.
        let mut queue = core::mem::take(&mut self.agents[agent].queue);
        let admission = self.admission(enforce_shares);
        let this = &self.agents[agent];
        let mut lacks_room = false;
        let mut full_groups = Vec::new();
        let mut chosen = queue.first(&self.tasks, &mut |lot| match admission.bar(this, lot) {
            None => true,
            Some(bar) => {
                lacks_room |= bar == Bar::Room;
                if let Bar::Group(group) = bar {
                    full_groups.push(group);
                }
                false
            }
        });
        let mut bypassed = 0;
        if lacks_room {
            let first = queue.first(&self.tasks, &mut |lot| {
                matches!(admission.bar(this, lot), None | Some(Bar::Room))
            });
            if first != chosen {
                bypassed = (this.bypassed + u32::from(chosen.is_some())).max(1);
                // Enough small tasks went past: room is kept until the large one fits.
                chosen = chosen.filter(|_| bypassed <= backfill_limit);
            }
        }
        self.agents[agent].bypassed = bypassed;
        self.agents[agent].queue = queue;
        for group in full_groups {
            if let Some(group) = self.limits.groups.get_mut(&group) {
                group.turned_away.insert(agent);
            }
        }
        chosen
    }

    /// Gives a task that is on no queue to an agent, under a new lease.
    pub(crate) fn assign(
        &mut self,
        task: TaskRef,
        agent: AgentRef,
        reason: Reason,
        actions: &mut Vec<Action>,
    ) {
        let lease = self.next_lease();
        self.set_state(task, State::Leased);
        let this = &mut self.tasks[task];
        this.agent = agent;
        this.lease = lease;
        this.reason = reason;
        this.assigned = self.now;
        this.attempts = this.attempts.saturating_add(1);
        if let Some(extra) = &mut this.extra {
            extra.copied = false;
        }
        let (id, attempt) = (this.id, u32::from(this.attempts));
        let agent = self.begin_lease(task, agent, lease);
        actions.push(Action::Assign {
            task: id,
            agent,
            lease,
            attempt,
            reason,
        });
    }

    /// Books a lease with the agent, the group and the user. Returns the id of the agent.
    pub(crate) fn begin_lease(&mut self, task: TaskRef, agent: AgentRef, lease: Lease) -> AgentId {
        let this = &self.tasks[task];
        let locality = this.locality();
        let lot = self.lots.at(this.lot);
        self.limits.lease_begins(lot.user, lot.group);
        let holder = &mut self.agents[agent];
        if lot.needy {
            holder.used.take(&self.lots.class_at(lot.class).needs);
        }
        holder.in_hand.push(InHand { task, lease });
        holder.large_in_hand += u32::from(lot.large);
        holder.unstarted += 1;
        let (id, is_hungry) = (holder.id, holder.hungry_at.is_some());
        match holder.dispatch {
            Dispatch::OnRequest => holder.want = holder.want.saturating_sub(1),
            Dispatch::KeepFull => self.note_backlog(agent),
        }
        if let Some(locality) = locality {
            self.note_location(locality.key, id);
        }
        self.refresh(agent);
        if is_hungry {
            let hungry = self.agents[agent].room(self.config.prefetch.max_depth) > 0;
            self.agents.set_hungry(agent, hungry);
        }
        id
    }

    /// Takes a lease off the books. Returns false if the agent holds no such lease.
    pub(crate) fn end_lease(
        &mut self,
        task: TaskRef,
        agent: AgentRef,
        lease: Lease,
        was_started: bool,
    ) {
        let lot = self.lots.at(self.tasks[task].lot);
        self.limits.lease_ends(lot.user, lot.group);
        let holder = &mut self.agents[agent];
        if lot.needy {
            holder.used.give_back(&self.lots.class_at(lot.class).needs);
        }
        let at = holder.in_hand.iter().position(|held| held.lease == lease);
        holder
            .in_hand
            .swap_remove(at.expect("the agent holds the lease"));
        holder.large_in_hand -= u32::from(lot.large);
        if holder.hungry_at.is_some() {
            self.agents.set_hungry(agent, true);
        }
        if was_started {
            self.note_backlog(agent);
        } else {
            self.one_less_unstarted(agent);
        }
        self.refresh(agent);
    }

    /// A task that an agent holds was started, or is held no more.
    pub(crate) fn one_less_unstarted(&mut self, agent: AgentRef) {
        let this = &mut self.agents[agent];
        let left = this.unstarted.checked_sub(1);
        this.unstarted = left.expect("counted what was started twice");
        self.note_backlog(agent);
    }

    /// Notes that the set of backlogged agents may be behind an agent.
    pub(crate) fn note_backlog(&mut self, agent: AgentRef) {
        let this = &mut self.agents[agent];
        if this.dispatch == Dispatch::KeepFull && this.stale.add(Stale::BACKLOG) {
            self.stale_backlog.push(agent);
        }
    }

    /// Brings the set of backlogged agents up to date. Whoever looks into it calls this first.
    pub(crate) fn update_backlog(&mut self) {
        while let Some(agent) = self.stale_backlog.pop() {
            let Some(this) = self.agents.get_mut(agent) else {
                continue;
            };
            if !this.stale.remove(Stale::BACKLOG) {
                continue;
            }
            let has_backlog = this.in_hand.len() as u32 > this.slots;
            let backlog = if has_backlog { this.unstarted } else { 0 };
            let listed = core::mem::replace(&mut this.listed_backlog, backlog);
            if listed != backlog {
                self.backlogged.remove(&(listed, agent));
                if backlog > 0 {
                    self.backlogged.insert((backlog, agent));
                }
            }
        }
    }

    /// A place in a group is free: agents that were turned away, and idle ones, may have it.
    pub(crate) fn group_has_room(&mut self, group: GroupId, actions: &mut Vec<Action>) {
        while let Some(this) = self.limits.groups.get_mut(&group)
            && this.has_room()
            && let Some(agent) = this.turned_away.pop_first()
        {
            if self
                .agents
                .get(agent)
                .is_some_and(|agent| agent.liveness == Liveness::Alive)
            {
                self.feed(agent, actions);
            }
        }
        let is_open = |this: &Self| {
            let group = this.limits.groups.get(&group);
            group.is_some_and(|group| group.queued > 0 && group.has_room())
        };
        if is_open(self) {
            for agent in self.hungry_agents() {
                self.feed(agent, actions);
                if !is_open(self) {
                    return;
                }
            }
        }
    }

    /// Agents with room that found nothing to do.
    pub(crate) fn hungry_agents(&self) -> Vec<AgentRef> {
        self.agents
            .cohorts
            .iter()
            .flat_map(|cohort| cohort.hungry.iter().copied())
            .collect()
    }

    /// Something that kept tasks from starting is gone: every agent with room looks again.
    pub(crate) fn feed_hungry(&mut self, actions: &mut Vec<Action>) {
        for agent in self.hungry_agents() {
            self.feed(agent, actions);
        }
    }

    pub(crate) fn set_group_limit(
        &mut self,
        group: GroupId,
        limit: u32,
        actions: &mut Vec<Action>,
    ) {
        if limit == 0 {
            return reject(InputError::BadLimit(group), actions);
        }
        self.limits.groups.entry(group).or_default().limit = Some(limit);
        self.group_has_room(group, actions);
    }
}

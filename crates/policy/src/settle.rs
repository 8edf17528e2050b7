//! Who gets what: the one loop that gives tasks to agents.
//!
//! Whatever an input changed has left marks: tasks that may run, agents that may have room, groups with
//! a place. This loop goes through them until none is left. It ends on what the scheduler promises: *no
//! capable agent idles while a task that it could start waits* ([`Scheduler::nobody_idles`]).
//!
//! The order of the steps, and why:
//!
//! 1. Tasks that may run get a place: an agent's queue, or the list of held ones. All of them, before
//!    anything is started, so that the most urgent are seen first.
//! 2. Tasks that were given back go to whom they were asked back for.
//! 3. Agents fill their free slots with what is theirs: the copy of a slow task if that is more urgent
//!    than all they have, what the whole fleet should start next if that comes first, their own queue. Those with the
//!    most urgent work of their own begin: what they cannot start is then free for others.
//! 4. Agents with slots still free take from others: by the rules of stealing; what users' shares kept
//!    back; as a last resort what has moved often enough or is protected, since they can start it now
//!    and its own agent cannot; then they ask for something back that lies in another agent's hands; then
//!    they run second copies.
//! 5. A place in a group that came free goes to who was turned away; tasks that came to queues are offered to whoever was idle before.
//! 6. Only what nobody could start by now goes into the hands of an agent ahead of its time, and only what is
//!    short ([`Binding::AheadOfTime`](crate::dispatch::Binding)): whatever is long or has others behind it is bound
//!    when a slot is free, since by then something better may have come for that slot.
//! 7. What lies in an agent's hands and would start before an urgent task that waits there is asked back.

use alloc::vec::Vec;

use loxley_model::{GroupId, Priority, ZoneId};

use crate::admission::Shares;
use crate::cache_warm::FEW_AGENTS;
use crate::dispatch::Binding;
use crate::marks::{Handover, Step};
use crate::refs::{AgentRef, CohortRef, TaskRef};
use crate::scheduler::report;
use crate::stealing::Theft;
use crate::tournament::ClassBits;
use crate::{Action, Reason, Report, Scheduler};

impl Scheduler {
    /// Looks at everything that is marked, and at what becomes marked on the way.
    pub(crate) fn settle(&mut self, actions: &mut Vec<Action>) {
        while let Some(step) = self.marks.next() {
            match step {
                Step::ReleaseHeld => self.release_held(actions),
                Step::Place(ready) => self.place(ready.task, ready.avoid, actions),
                Step::HandOver(handover) => self.hand_over(handover, actions),
                Step::Steal { thief, onto_queue } => {
                    self.steal_explicitly(thief, onto_queue, actions);
                }
                Step::FillSlots(agent) => self.fill_slots(agent, actions),
                Step::Feed(agent) => self.feed(agent, actions),
                Step::OpenGroup(group) => self.group_has_room(group),
                Step::Offer(classes, near) => self.offer(classes, near, actions),
                Step::AskBack => self.ask_back_for_idle(actions),
                Step::LookAgain => {
                    for agent in self.derived.fleet.roomy(&self.facts) {
                        self.mark_agent(agent);
                    }
                }
                Step::FillBacklog(agent) => self.fill_backlog(agent, actions),
                Step::MakeWay(task) => self.make_way(task, actions),
            }
        }
    }

    /// Gives a waiting task to an agent, under a new lease.
    fn give(&mut self, task: TaskRef, agent: AgentRef, reason: Reason, actions: &mut Vec<Action>) {
        let agent = self.lease_first(task, agent, reason);
        let this = &self.facts.tasks[task];
        actions.push(Action::Assign {
            task: this.id,
            agent,
            lease: this.lease,
            attempt: this.attempts.into(),
            reason,
        });
    }

    /// Gives a second copy of a running task to an agent, under a new lease.
    fn give_copy(&mut self, task: TaskRef, agent: AgentRef, actions: &mut Vec<Action>) {
        let reason = Reason::Speculation(self.facts.agents[self.facts.tasks[task].agent].id);
        let agent = self.lease_copy(task, agent);
        self.facts.tallies.speculations += 1;
        let this = &self.facts.tasks[task];
        let lease = this.copy().expect("it was just leased").lease;
        actions.push(Action::Assign {
            task: this.id,
            agent,
            lease,
            attempt: this.attempts.into(),
            reason,
        });
    }

    pub(crate) fn room(&self, agent: AgentRef) -> u32 {
        let hand = self.derived.fleet.hand(agent);
        hand.room(&self.facts.agents[agent])
    }

    /// Whether an agent may be given a task that it would start at once.
    pub(crate) fn is_idle(&self, agent: AgentRef) -> bool {
        let hand = self.derived.fleet.hand(agent);
        hand.has_free_slot(&self.facts.agents[agent]) && self.room(agent) > 0
    }

    /// A task that was given back goes to whom it was asked back for, if it can start it; else it finds
    /// a place as any other.
    fn hand_over(&mut self, handover: Handover, actions: &mut Vec<Action>) {
        let Handover { task, from, thief } = handover;
        let is_free = self.may_rescue() || !self.is_protected(self.facts.tasks[task].priority);
        let thief = thief.filter(|thief| {
            let this = &self.facts.tasks[task];
            let class = self.facts.admission_class_of(this).capability;
            is_free
                && self.is_idle(*thief)
                && self.is_capable(class, self.facts.agents[*thief].cohort)
                && self
                    .bar(*thief, this.admission_class, Shares::Ignored)
                    .is_none()
        });
        let Some(thief) = thief else {
            return self.mark_ready(task, Some(from));
        };
        self.facts.agents[thief].refusals = 0;
        self.note_move(task);
        let reason = Reason::Stolen(self.facts.agents[from].id);
        self.give(task, thief, reason, actions);
        self.mark_agent(thief);
    }

    /// A place in a group is free: the agents that were turned away are looked at one after the other,
    /// then whoever is idle.
    fn group_has_room(&mut self, group: GroupId) {
        let loads = &self.derived.loads;
        if !loads.group_has_room(&self.facts.limits, group) || !loads.group_waits(group) {
            return;
        }
        match self.facts.limits.call_back(group) {
            Some(agent) => {
                self.mark_agent(agent);
                self.marks.open_group(group);
            }
            None => self.marks.offer(ClassBits::MAX),
        }
    }

    /// Fills an agent's free slots with what is its own.
    fn fill_slots(&mut self, agent: AgentRef, actions: &mut Vec<Action>) {
        let was_marked = core::mem::take(&mut self.derived.fleet.look(agent).is_marked);
        if !was_marked || self.facts.agents.get(agent).is_none() {
            return;
        }
        let shares = self.shares();
        while self.is_idle(agent) {
            let given = self.start_urgent_copy(agent, actions)
                || self.start_first_of_fleet(agent, shares, actions)
                || self.start_own(agent, shares, Binding::ToStart, actions);
            if !given {
                return self.marks.feed(agent);
            }
        }
        if self.room(agent) > 0 {
            self.marks.fill_backlog(agent);
        }
    }

    /// Lets an agent with a free slot and nothing of its own to fill it take from others.
    fn feed(&mut self, agent: AgentRef, actions: &mut Vec<Action>) {
        if self.facts.agents.get(agent).is_none() || !self.is_idle(agent) {
            return;
        }
        if self.take_from_others(agent, actions) {
            return self.mark_agent(agent);
        }
        if self.may_steal(agent) && self.others_have_work(agent) {
            self.facts.tallies.steal_failed();
        }
        self.ask_back_for(agent, actions);
        let expects_work = self.derived.fleet.hand(agent).awaited > 0;
        if !expects_work && self.start_second_copy(agent, None, actions) {
            self.mark_agent(agent);
        }
    }

    /// Lets an agent with a free slot start what is on another's queue, or what only users' shares keep
    /// on its own.
    fn take_from_others(&mut self, agent: AgentRef, actions: &mut Vec<Action>) -> bool {
        let shares = self.shares();
        self.start_first_of_fleet(agent, shares, actions)
            || self.steal(agent, Theft::ByTheRules, shares, actions)
            || (shares == Shares::Enforced
                && (self.start_own(agent, Shares::Ignored, Binding::ToStart, actions)
                    || self.steal(agent, Theft::ByTheRules, Shares::Ignored, actions)))
            || self.steal(agent, Theft::LastResort, Shares::Ignored, actions)
    }

    /// Tasks came to queues: agents that were idle before may take them, those in the zone of the first one before others.
    fn offer(&mut self, offered: ClassBits, near: Option<ZoneId>, actions: &mut Vec<Action>) {
        if self.derived.counts.queued == 0 || self.derived.fleet.idle_count(&self.facts) == 0 {
            return;
        }
        let [near, far] = self.groups_by_distance(near);
        for group in near.into_iter().chain(far) {
            let mut from = 0;
            while let Some((position, agent)) =
                self.derived.fleet.next_idle(&self.facts, group, from)
                && self.derived.appetite(&self.facts, group.cohort) & offered != 0
            {
                from = position + 1;
                if self.take_from_others(agent, actions) {
                    self.mark_agent(agent);
                } else if self.are_alike() {
                    // What one of them may not have, none of them may.
                    break;
                }
            }
        }
    }

    /// Whether agents with the same skills and resources may have the same tasks.
    fn are_alike(&self) -> bool {
        !self.derived.index.has_demanding() && self.facts.forecasts.room.is_empty()
    }

    /// Another task may be asked back: for whoever is idle and waits for that.
    fn ask_back_for_idle(&mut self, actions: &mut Vec<Action>) {
        if self.derived.fleet.idle_count(&self.facts) == 0 {
            return;
        }
        for cohort in (0..self.facts.agents.cohorts().len()).map(CohortRef::new) {
            for group in self.derived.fleet.groups(cohort) {
                let mut from = 0;
                while let Some((position, agent)) =
                    self.derived.fleet.next_idle(&self.facts, group, from)
                {
                    from = position + 1;
                    let asked = self.ask_back_for(agent, actions);
                    if asked == Some(false) && self.are_alike() {
                        // What one of them may not have, none of them may.
                        break;
                    }
                }
            }
        }
    }

    /// Gives an agent whose slots are taken what it shall have at hand when one is free.
    fn fill_backlog(&mut self, agent: AgentRef, actions: &mut Vec<Action>) {
        if self.facts.agents.get(agent).is_none() {
            return;
        }
        let (shares, before) = (self.shares(), self.room(agent));
        let mut bind =
            |this: &mut Self, shares| this.start_own(agent, shares, Binding::AheadOfTime, actions);
        while self.room(agent) > 0
            && self.is_within_agent_share(agent)
            && (bind(self, shares) || (shares == Shares::Enforced && bind(self, Shares::Ignored)))
        {
        }
        // Something that it had not started yet has to wait now: somebody idle may do that instead.
        if self.room(agent) < before && self.derived.fleet.idle_count(&self.facts) > 0 {
            self.marks.ask_back();
        }
    }

    /// Gives an agent the next task of its own queue that may start.
    fn start_own(
        &mut self,
        agent: AgentRef,
        shares: Shares,
        binding: Binding,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some(task) = self.next_own(agent, shares, binding) else {
            return false;
        };
        let reason = self.facts.tasks[task].reason;
        self.unqueue(task);
        self.give(task, agent, reason, actions);
        if self.derived.fleet.len() <= FEW_AGENTS {
            let queue = &self.derived.fleet.hand(agent).queue;
            queue.look_ahead(&self.facts.tasks);
        }
        true
    }

    /// An urgent task waits on the queue of an agent whose slots are taken: of what lies in its hands and
    /// would start before it, one that is less urgent is asked back.
    fn make_way(&mut self, task: TaskRef, actions: &mut Vec<Action>) {
        let queued = self.facts.tasks.get(task).filter(|task| task.is_queued());
        let Some((agent, priority)) = queued.map(|task| (task.agent, task.priority)) else {
            return;
        };
        let limit = self.facts.config.performance.max_concurrent_steals;
        if self.derived.counts.retracts >= limit || !self.facts.agents[agent].is_alive() {
            return;
        }
        if let Some(other) = self.unstarted_below(agent, priority) {
            self.retract(other, None, false, actions);
        }
    }

    /// Gives an agent the task that the whole fleet should start next, if it may have it.
    fn start_first_of_fleet(
        &mut self,
        agent: AgentRef,
        shares: Shares,
        actions: &mut Vec<Action>,
    ) -> bool {
        if self.derived.order.is_empty() {
            return false;
        }
        let Some(task) = self.first_elsewhere(agent, shares) else {
            return false;
        };
        let from = self.facts.agents[self.facts.tasks[task].agent].id;
        self.facts.tallies.steal_succeeded();
        self.move_off_queue(task);
        self.give(task, agent, Reason::Stolen(from), actions);
        true
    }

    /// Lets an agent take tasks from another: the first it is given at once, further ones of a batch
    /// go to its queue.
    fn steal(
        &mut self,
        thief: AgentRef,
        theft: Theft,
        shares: Shares,
        actions: &mut Vec<Action>,
    ) -> bool {
        self.may_steal(thief) && self.rob(thief, theft, shares, false, actions)
    }

    /// Takes from another agent, if there is something to take.
    fn rob(
        &mut self,
        thief: AgentRef,
        theft: Theft,
        shares: Shares,
        onto_queue: bool,
        actions: &mut Vec<Action>,
    ) -> bool {
        if !self.others_have_work(thief) {
            return false;
        }
        let Some((victim, task)) = self.find_loot(thief, theft, shares) else {
            return false;
        };
        self.facts.tallies.steal_succeeded();
        let this = &mut self.facts.agents[thief];
        if this.bypassed > 0 {
            // A large task on the thief's own queue waits for room: this one goes past it too.
            this.bypassed += 1;
        }
        let waiting = self.derived.fleet.hand(victim).queue.len();
        let from = self.facts.agents[victim].id;
        self.facts.agents[victim].robbed_at = Some(self.facts.now);
        self.move_off_queue(task);
        if onto_queue {
            self.enqueue(task, thief, Reason::Stolen(from), actions);
        } else {
            self.give(task, thief, Reason::Stolen(from), actions);
        }
        if theft == Theft::LastResort {
            return true;
        }
        // A thief never takes more than half: it would be robbed in turn.
        let batch = self.facts.config.performance.steal_batch_size;
        for _ in 1..batch.min(waiting.div_ceil(2)) {
            let order = self.steal_order();
            let Some(task) = self.loot_of(victim, thief, order, shares) else {
                break;
            };
            if self.is_faster(victim, thief) {
                break; // It would end there sooner than behind the first one here.
            }
            self.move_off_queue(task);
            self.enqueue(task, thief, Reason::Stolen(from), actions);
        }
        true
    }

    /// A steal that was asked for, whatever the agent's own queue holds.
    fn steal_explicitly(&mut self, thief: AgentRef, onto_queue: bool, actions: &mut Vec<Action>) {
        let shares = self.shares();
        let may_steal = self.facts.config.strategy.pulls()
            && self.facts.agents[thief].is_alive()
            && (onto_queue || self.has_room_for_loot(thief));
        let mut rob = |shares| self.rob(thief, Theft::Explicit, shares, onto_queue, actions);
        let stole =
            may_steal && (rob(shares) || (shares == Shares::Enforced && rob(Shares::Ignored)));
        if !stole {
            self.facts.tallies.steal_failed();
            let thief = self.facts.agents[thief].id;
            report(Report::NothingToSteal(thief), actions);
        }
    }

    /// Lets an agent with a free slot run the second copy of a slow task, if one waits for such an
    /// agent: one that is more urgent than `than`, where something else could run instead.
    fn start_second_copy(
        &mut self,
        agent: AgentRef,
        than: Option<Priority>,
        actions: &mut Vec<Action>,
    ) -> bool {
        if self.facts.overdue.is_empty() {
            return false;
        }
        let Some(task) = self.slow_task_for(agent, than) else {
            return false;
        };
        self.give_copy(task, agent, actions);
        true
    }

    /// The same, where it is more urgent than all that waits in the agent's own queue.
    fn start_urgent_copy(&mut self, agent: AgentRef, actions: &mut Vec<Action>) -> bool {
        let waiting = self.derived.fleet.hand(agent).queue.highest_priority();
        waiting.is_some() && self.start_second_copy(agent, waiting, actions)
    }
}

//! Pull: what an idle agent may take from a busy one.
//!
//! Nothing here changes anything but the pace at which agents ask: [`settle`](crate::settle) asks these
//! questions and acts on the answers.

use alloc::vec::Vec;
use core::cmp::Reverse;

use loxley_balance::Delay;
use loxley_model::{AgentId, Priority, Span, ZoneId};
use smallvec::SmallVec;

use crate::admission::{Admission, Bar, Shares};
use crate::derived::Derived;
use crate::facts::sort_of;
use crate::faster::ASKED_MAX;
use crate::fleet::GroupRef;
use crate::queue::StealOrder;
use crate::refs::{AgentRef, CohortRef, TaskRef};
use crate::tasks::State;
use crate::timers::Alarm;
use crate::tournament::{ClassBits, Reach};
use crate::{Action, Scheduler};

/// A near queue is robbed before one elsewhere, unless that is more than so many times as long.
const FAR_FACTOR: u32 = 2;

/// By which rules something is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theft {
    /// Somebody asked for a steal: the strict rules.
    Explicit,
    /// An agent has a free slot and nothing of its own that may start.
    ByTheRules,
    /// It would stand idle beside work that it can start now and whose own agent cannot: what has moved
    /// often enough and what is protected moves once more.
    LastResort,
}

/// A search for victims.
#[derive(Clone, Copy, Debug)]
struct Search {
    /// Only queues longer than this.
    above: u32,
    /// How many agents to pass over because they were robbed a moment ago. When that many of the
    /// longest queues were, they are robbed again: looking further would take longer than it is worth.
    spare: u32,
    order: StealOrder,
    reach: Reach,
    /// Whether is left to faster agents what they end sooner.
    leaves: bool,
}

/// What an idle agent leaves to faster ones while it looks for something to do.
#[derive(Debug, Default)]
struct LeftToFaster {
    /// How many of a group it has left something to.
    asked: u32,
    /// How long the shortest of what it left would have taken it.
    patience: Option<Span>,
}

impl LeftToFaster {
    /// Notes whether something is left, which would have taken so long.
    fn note(&mut self, span: Option<Span>) -> bool {
        if let Some(span) = span {
            self.asked += 1;
            self.patience = Some(self.patience.map_or(span, |least| least.min(span)));
        }
        span.is_some()
    }
}

impl Scheduler {
    /// An explicit attempt to steal, whatever the agent's own queue holds.
    pub(crate) fn steal_requested(
        &mut self,
        agent: AgentId,
        onto_queue: bool,
        actions: &mut Vec<Action>,
    ) {
        if let Some(thief) = self.find_agent(agent, actions) {
            self.marks.steal(thief, onto_queue);
        }
    }

    pub(crate) fn others_have_work(&self, thief: AgentRef) -> bool {
        let own = self.derived.fleet.hand(thief).queue.len();
        self.derived.counts.queued > u64::from(own)
    }

    pub(crate) fn may_steal(&self, thief: AgentRef) -> bool {
        self.facts.config.strategy.pulls() && self.has_room_for_loot(thief)
    }

    /// Whether an agent could begin at once with what it takes.
    pub(crate) fn has_room_for_loot(&self, thief: AgentRef) -> bool {
        let this = &self.facts.agents[thief];
        self.derived.fleet.hand(thief).has_free_slot(this)
            && this.bypassed <= self.facts.config.quotas.backfill_limit
    }

    /// Whether an urgent task may be taken by who can start it now when its own agent cannot.
    pub(crate) fn may_rescue(&self) -> bool {
        self.facts.config.priority.rescue_high_priority
    }

    /// Queues with at most so many tasks are not robbed by somebody who has nothing to do.
    pub(crate) fn robbed_above(&self) -> u32 {
        let rules = &self.facts.config.work_stealing;
        let fewest = rules.min_tasks_to_steal.max(1);
        if rules.steal_below_busy {
            fewest - 1
        } else {
            self.facts.config.thresholds.busy_threshold.max(fewest - 1)
        }
    }

    /// The busiest victim with something that the thief may take, and what that is.
    pub(crate) fn find_loot(
        &mut self,
        thief: AgentRef,
        theft: Theft,
        shares: Shares,
    ) -> Option<(AgentRef, TaskRef)> {
        let config = &self.facts.config;
        let own = self.derived.fleet.hand(thief).queue.len();
        let fewest = config.work_stealing.min_tasks_to_steal.max(1);
        let busy = config.thresholds.busy_threshold.max(fewest - 1);
        let anybody = Some(self.robbed_above()).filter(|above| {
            let has_nothing = theft != Theft::Explicit || own == 0;
            has_nothing && *above < busy
        });
        let mut order = self.steal_order();
        let mut reach = Reach::Free;
        if theft == Theft::LastResort {
            order.moves_max = u32::MAX;
            order.protected_from = order.protected_from.filter(|_| !self.may_rescue());
            reach = Reach::Any;
        }
        let appetite = self.appetite_of(thief);
        let mut spared = false;
        for spare in [8, 0] {
            if spare == 0 && !spared {
                break; // Nobody was passed over: looking again finds the same.
            }
            for above in [Some(busy), anybody].into_iter().flatten() {
                let search = Search {
                    above,
                    spare,
                    order,
                    reach,
                    leaves: theft != Theft::Explicit,
                };
                let (found, left) = self.search_loot(thief, appetite, search, shares);
                if found.is_some() {
                    return found;
                }
                spared |= left < spare;
            }
        }
        None
    }

    fn appetite_of(&mut self, thief: AgentRef) -> ClassBits {
        let cohort = self.facts.agents[thief].cohort;
        self.derived.appetite(&self.facts, cohort)
    }

    /// The victim with the longest queue and what to take from it; and how many more could have been spared.
    fn search_loot(
        &mut self,
        thief: AgentRef,
        appetite: ClassBits,
        search: Search,
        shares: Shares,
    ) -> (Option<(AgentRef, TaskRef)>, u32) {
        let mut best: Option<(AgentRef, TaskRef)> = None;
        let Search {
            mut above,
            mut spare,
            order,
            reach,
            leaves,
        } = search;
        let mut left = LeftToFaster::default();
        let [near, far] = self.groups_by_distance(self.derived.fleet.hand(thief).zone);
        for (is_far, groups) in [(false, near), (true, far)] {
            if is_far && best.is_some() {
                above = above.saturating_mul(FAR_FACTOR);
            }
            for group in groups {
                let victims = self.derived.fleet.victims(&self.facts, group);
                let all = victims.best();
                if all.queue_len <= above || !all.has(appetite, reach) {
                    continue;
                }
                // The tree is lent out while the queues of its agents are looked into.
                let tree = core::mem::take(victims);
                left.asked = 0;
                let longest = tree.longest(appetite, reach, above, &mut |position| {
                    let Some(victim) = self.facts.agents.cohort(group.cohort).members[position]
                    else {
                        return false;
                    };
                    if left.asked >= ASKED_MAX {
                        return true; // The longest queues end sooner: so do the others.
                    }
                    let loot = (victim != thief)
                        .then(|| self.loot_of(victim, thief, order, shares))
                        .flatten();
                    let Some(task) = loot else { return false };
                    if leaves && left.note(self.leaves_queued(task, thief, victim)) {
                        return false;
                    }
                    if spare > 0 && self.was_just_robbed(victim) {
                        spare -= 1;
                        return false;
                    }
                    best = Some((victim, task));
                    true
                });
                *self.derived.fleet.victims(&self.facts, group) = tree;
                if left.asked < ASKED_MAX {
                    above = longest.unwrap_or(above);
                }
            }
        }
        if let Some(patience) = left.patience.filter(|_| best.is_none()) {
            self.look_again_after(thief, patience);
        }
        (best, spare)
    }

    /// All groups of agents: those in a zone, and the others.
    pub(crate) fn groups_by_distance(&self, home: Option<ZoneId>) -> [SmallVec<[GroupRef; 4]>; 2] {
        let fleet = &self.derived.fleet;
        let mut groups = [SmallVec::new(), SmallVec::new()];
        for cohort in (0..self.facts.agents.cohorts().len()).map(CohortRef::new) {
            for group in fleet.groups(cohort) {
                groups[usize::from(fleet.zone(group) != home)].push(group);
            }
        }
        groups
    }

    fn was_just_robbed(&self, victim: AgentRef) -> bool {
        let cooldown = self.facts.config.guards.robbed_cooldown;
        let robbed_at = self.facts.agents[victim].robbed_at;
        robbed_at.is_some_and(|at| self.facts.now.since(at) < cooldown)
    }

    /// What the thief would take from this victim.
    pub(crate) fn loot_of(
        &mut self,
        victim: AgentRef,
        thief: AgentRef,
        order: StealOrder,
        shares: Shares,
    ) -> Option<TaskRef> {
        let cohort = self.facts.agents[thief].cohort;
        let Derived {
            fleet,
            capabilities,
            loads,
            counts,
            ..
        } = &mut self.derived;
        let facts = &self.facts;
        let admission = Admission::new(facts, loads, fleet.total_slots, counts.small, shares);
        let known = capabilities.known(facts, fleet);
        let (queue, hand) = fleet.robbing(victim, thief);
        let sort_of = |task: &_| sort_of(&facts.classes, facts.config.guards.max_moves, task);
        queue.loot(&facts.tasks, order, &sort_of, &mut |class| {
            let capability = facts.classes.admission_class(class).capability;
            known.can_do(capability, cohort)
                && admission
                    .bar_with(&facts.agents[thief], hand, class)
                    .is_none()
        })
    }

    /// No queue has anything for an idle agent: asks the agent with the longest unstarted backlog to
    /// give something back. Returns whether it could ask, nothing if it may not.
    pub(crate) fn ask_back_for(
        &mut self,
        thief: AgentRef,
        actions: &mut Vec<Action>,
    ) -> Option<bool> {
        let limit = self.facts.config.performance.max_concurrent_steals;
        if !self.may_steal(thief)
            || self.derived.counts.retracts >= limit
            || self.derived.fleet.hand(thief).awaited > 0
            || self.facts.agents[thief].backs_off_until.is_some()
        {
            return None;
        }
        let appetite = self.appetite_of(thief);
        let (mut above, mut best) = (0_u32, None);
        let mut left = LeftToFaster::default();
        let [near, far] = self.groups_by_distance(self.derived.fleet.hand(thief).zone);
        for (is_far, groups) in [(false, near), (true, far)] {
            if is_far && best.is_some() {
                above = above.saturating_mul(FAR_FACTOR);
            }
            for group in groups {
                let backlogs = core::mem::take(self.derived.fleet.backlogs(&self.facts, group));
                left.asked = 0;
                let longest = backlogs.longest(appetite, Reach::Any, above, &mut |position| {
                    if left.asked >= ASKED_MAX {
                        return true;
                    }
                    let holder = self.facts.agents.cohort(group.cohort).members[position];
                    let holder = holder.filter(|holder| *holder != thief);
                    let loot = holder.and_then(|holder| {
                        let task = self.unstarted_loot(holder, thief)?;
                        let is_left = left.note(self.leaves_in_hand(task, thief, holder));
                        (!is_left).then_some(task)
                    });
                    best = loot.or(best);
                    loot.is_some()
                });
                *self.derived.fleet.backlogs(&self.facts, group) = backlogs;
                if left.asked < ASKED_MAX {
                    above = longest.unwrap_or(above);
                }
            }
        }
        match (best, left.patience) {
            (Some(task), _) => self.retract(task, Some(thief), false, actions),
            (None, Some(patience)) => self.look_again_after(thief, patience),
            (None, None) => {}
        }
        Some(best.is_some())
    }

    /// The task in the holder's hands, not started, that the thief could start now: the most urgent, and of
    /// those the latest.
    pub(crate) fn unstarted_loot(&self, holder: AgentRef, thief: AgentRef) -> Option<TaskRef> {
        let may_have = |task: &TaskRef| {
            let this = &self.facts.tasks[*task];
            let class = self.facts.admission_class_of(this).capability;
            // The group and the user already count this task: moving it changes nothing there.
            let bar = self.bar(thief, this.admission_class, Shares::Ignored);
            (self.may_rescue() || !self.is_protected(this.priority))
                && !matches!(bar, Some(Bar::Room | Bar::Reserved | Bar::Kept))
                && self.is_capable(class, self.facts.agents[thief].cohort)
        };
        self.unstarted(holder)
            .filter(may_have)
            .max_by_key(|task| self.facts.tasks[*task].priority)
    }

    /// What in the hands of an agent has not started and is less urgent than this: the latest of the least
    /// urgent.
    pub(crate) fn unstarted_below(&self, holder: AgentRef, than: Priority) -> Option<TaskRef> {
        let hand = self.derived.fleet.hand(holder);
        if hand.backlog(&self.facts.agents[holder]) == 0 {
            return None;
        }
        let priority = |task: &TaskRef| self.facts.tasks[*task].priority;
        self.unstarted(holder)
            .filter(|task| priority(task) < than)
            .max_by_key(|task| Reverse(priority(task)))
    }

    /// What in the hands of an agent has not started, and is not asked back, the latest last.
    fn unstarted(&self, holder: AgentRef) -> impl Iterator<Item = TaskRef> {
        let in_hand = self.derived.fleet.hand(holder).in_hand().iter();
        in_hand.map(|held| held.task).filter(move |task| {
            let this = &self.facts.tasks[*task];
            this.state == State::Leased && this.agent == holder && !this.is_on_its_way()
        })
    }

    /// Asks an agent for a task back, for `thief` or for anybody.
    pub(crate) fn retract(
        &mut self,
        task: TaskRef,
        thief: Option<AgentRef>,
        running: bool,
        actions: &mut Vec<Action>,
    ) {
        self.begin_retract(task, thief);
        let this = &self.facts.tasks[task];
        actions.push(Action::Retract {
            task: this.id,
            agent: self.facts.agents[this.agent].id,
            lease: this.lease,
            running,
        });
    }

    /// An agent was too late: it waits before it asks again, the longer the more often this happens.
    pub(crate) fn back_off(&mut self, thief: AgentRef) {
        let base = self.facts.config.guards.steal_backoff.0.max(1);
        let delay = Delay::new(base, 2.0, base.saturating_mul(100), 0.5)
            .expect("the cap is above the base");
        let this = &mut self.facts.agents[thief];
        let pause = Span(delay.ns(this.refusals, &mut self.facts.rng));
        this.refusals = this.refusals.saturating_add(1);
        let until = self.facts.now + pause;
        this.backs_off_until = Some(until);
        let alarm = Alarm::StealAgain(this.id, this.incarnation);
        self.facts.timers.set(until, alarm);
    }

    /// An agent that was too late may ask again, unless it was too late again since.
    pub(crate) fn steal_again(&mut self, agent: AgentRef) {
        let until = &mut self.facts.agents[agent].backs_off_until;
        if until.is_some_and(|until| until <= self.facts.now) {
            *until = None;
            self.mark_agent(agent);
        }
    }

    /// No capable agent idles while a task that it could start waits: what settling ends on.
    pub(crate) fn nobody_idles(&self) -> Result<(), &'static str> {
        let idle = self.facts.agents.iter().map(|(agent, _)| agent);
        for agent in idle.filter(|agent| self.is_idle(*agent)) {
            let this = &self.facts.agents[agent];
            if this.bypassed > self.facts.config.quotas.backfill_limit {
                continue; // It keeps room for a large task.
            }
            for (_, task) in self.facts.tasks.iter() {
                let class = self.facts.admission_class_of(task).capability;
                let may_have = self.may_rescue() || !self.is_protected(task.priority);
                let robbed = task.agent != agent
                    && self.facts.config.strategy.pulls()
                    && may_have
                    && self.is_capable(class, this.cohort);
                let bar = self.bar(agent, task.admission_class, Shares::Ignored);
                match task.state {
                    State::Queued if bar.is_none() => {
                        let len = self.derived.fleet.hand(task.agent).queue.len();
                        let is_left = self.leaves_work_to(agent, task.agent);
                        if task.agent == agent || (robbed && len > self.robbed_above() && !is_left)
                        {
                            return Err("an agent idles beside a queued task that it could start");
                        }
                    }
                    State::Leased
                        if robbed
                            && !matches!(bar, Some(Bar::Room | Bar::Reserved | Bar::Kept)) =>
                    {
                        let holder = &self.facts.agents[task.agent];
                        let hand = self.derived.fleet.hand(task.agent);
                        let limit = self.facts.config.performance.max_concurrent_steals;
                        let asks = this.backs_off_until.is_none()
                            && self.derived.counts.retracts < limit
                            && self.derived.fleet.hand(agent).awaited == 0;
                        if asks
                            && hand.backlog(holder) > 0
                            && holder.is_alive()
                            && !task.is_on_its_way()
                            && !self.leaves_work_to(agent, task.agent)
                        {
                            return Err("an agent idles beside a task in another's hands");
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

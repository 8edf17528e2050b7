//! Pull: an idle agent takes from a busy one.

use alloc::vec::Vec;

use loxley_balance::Delay;
use loxley_model::{AgentId, Priority, Span};

use crate::agents::{Agent, Appetite};
use crate::dispatch::{Admission, Bar};
use crate::lots::class_bit;
use crate::refs::{AgentRef, ClassRef, CohortRef, LotRef, TaskRef};
use crate::scheduler::{reject, report};
use crate::tasks::State;
use crate::timers::Alarm;
use crate::tournament::ClassBits;
use crate::view::Liveness;
use crate::{Action, InputError, Reason, Report, Scheduler};

/// A search for victims, in the order in which searches are tried.
#[derive(Clone, Copy, Debug)]
struct Search {
    /// Only queues longer than this.
    above: u32,
    /// How many agents to pass over because they were robbed a moment ago. When that many of the
    /// longest queues were, they are robbed again: looking further would take longer than it is worth.
    spare: u32,
}

impl Scheduler {
    /// An explicit attempt to steal, whatever the agent's own queue holds.
    pub(crate) fn steal_requested(&mut self, agent: AgentId, actions: &mut Vec<Action>) {
        let Some(thief) = self.agents.find(agent) else {
            return reject(InputError::UnknownAgent(agent), actions);
        };
        let shares = self.config.quotas.user_shares && self.limits.has_rivals();
        let stole = self.agents[thief].liveness == Liveness::Alive
            && (self.steal(thief, shares, actions)
                || (shares && self.steal(thief, false, actions)));
        if !stole {
            if !self.others_have_work(thief) {
                // `steal` counts only attempts that had somebody to rob; this one was asked for.
                self.tallies.steal_failed();
            }
            report(Report::NothingToSteal(agent), actions);
        }
    }

    fn others_have_work(&self, thief: AgentRef) -> bool {
        self.counts.queued > u64::from(self.agents[thief].queue.len())
    }

    /// Lets an agent take tasks from another: the first it is given at once, further ones of a batch
    /// go to its queue.
    pub(crate) fn steal(
        &mut self,
        thief: AgentRef,
        enforce_shares: bool,
        actions: &mut Vec<Action>,
    ) -> bool {
        if !self.may_steal(thief) || !self.others_have_work(thief) {
            return false;
        }
        let Some((victim, task)) = self.find_loot(thief, enforce_shares) else {
            self.tallies.steal_failed();
            return false;
        };
        self.tallies.steal_succeeded();
        if self.agents[thief].bypassed > 0 {
            // A large task on the thief's own queue waits for room: this one goes past it too.
            self.agents[thief].bypassed += 1;
        }
        let waiting = self.agents[victim].queue.len();
        let from = self.agents[victim].id;
        self.agents[victim].robbed_at = Some(self.now);
        self.move_off_queue(task);
        self.assign(task, thief, Reason::Stolen(from), actions);
        // A thief never takes more than half: it would be robbed in turn.
        let batch = self
            .config
            .performance
            .steal_batch_size
            .min(waiting.div_ceil(2));
        for _ in 1..batch {
            let Some(task) = self.loot_of(victim, thief, enforce_shares) else {
                break;
            };
            self.move_off_queue(task);
            self.enqueue(task, thief, Reason::Stolen(from), actions);
        }
        true
    }

    fn may_steal(&self, thief: AgentRef) -> bool {
        let this = &self.agents[thief];
        self.config.strategy.pulls()
            && this.has_free_slot()
            && this.queue.len() < self.config.thresholds.idle_threshold
            && this.bypassed <= self.config.quotas.backfill_limit
    }

    /// Takes a task off its queue because it moves to another agent.
    pub(crate) fn move_off_queue(&mut self, task: TaskRef) {
        self.unqueue(task);
        self.tasks[task].moves = self.tasks[task].moves.saturating_add(1);
        self.tallies.task_moved();
    }

    /// The busiest victim with something that the thief may take, and what that is.
    fn find_loot(&mut self, thief: AgentRef, enforce_shares: bool) -> Option<(AgentRef, TaskRef)> {
        self.update_victims();
        let appetite = self.appetite(self.agents[thief].cohort);
        let stealing = &self.config.work_stealing;
        let fewest = stealing.min_tasks_to_steal.max(1);
        let busy = self.config.thresholds.busy_threshold.max(fewest - 1);
        let has_nothing = self.agents[thief].queue.is_empty();
        let anybody = (stealing.steal_below_busy && has_nothing).then_some(fewest - 1);
        for spare in [8, 0] {
            for above in [Some(busy), anybody].into_iter().flatten() {
                let search = Search { above, spare };
                let found = self.search_loot(thief, appetite, search, enforce_shares);
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    fn search_loot(
        &mut self,
        thief: AgentRef,
        appetite: ClassBits,
        search: Search,
        enforce_shares: bool,
    ) -> Option<(AgentRef, TaskRef)> {
        let mut best: Option<(AgentRef, TaskRef)> = None;
        let Search {
            mut above,
            mut spare,
        } = search;
        for index in 0..self.agents.cohorts.len() {
            let cohort = CohortRef::new(index);
            let loot = self.agents.cohort(cohort).victims.best();
            if loot.queue_len <= above || loot.classes & appetite == 0 {
                continue;
            }
            // The tree is lent out while the queues of its agents are looked into.
            let tree = core::mem::take(&mut self.agents.cohorts[index].victims);
            let found = tree.longest(appetite, above, &mut |position| {
                let Some(victim) = self.agents.cohort(cohort).members[position] else {
                    return false;
                };
                if victim == thief {
                    return false;
                }
                if spare > 0 && self.was_just_robbed(victim) {
                    spare -= 1;
                    return false;
                }
                let loot = self.loot_of(victim, thief, enforce_shares);
                if let Some(task) = loot {
                    best = Some((victim, task));
                }
                loot.is_some()
            });
            self.agents.cohorts[index].victims = tree;
            above = found.map_or(above, |(_, queue_len)| queue_len);
        }
        best
    }

    fn was_just_robbed(&self, victim: AgentRef) -> bool {
        let cooldown = self.config.guards.robbed_cooldown;
        let robbed_at = self.agents[victim].robbed_at;
        robbed_at.is_some_and(|at| self.now.since(at) < cooldown)
    }

    /// What the thief would take from this victim.
    fn loot_of(
        &mut self,
        victim: AgentRef,
        thief: AgentRef,
        enforce_shares: bool,
    ) -> Option<TaskRef> {
        let order = self.steal_order();
        let mut queue = core::mem::take(&mut self.agents[victim].queue);
        let admission = self.admission(enforce_shares);
        let this = &self.agents[thief];
        let task = queue.loot(&self.tasks, order, &mut |lot| {
            self.may_take(this, lot, &admission)
        });
        self.agents[victim].queue = queue;
        task
    }

    pub(crate) fn may_take(&self, thief: &Agent, lot: LotRef, admission: &Admission<'_>) -> bool {
        let class = self.lots.at(lot).class;
        let appetite = &self.agents.cohort(thief.cohort).appetite;
        let known_for = (self.agents.generation, self.lots.class_count());
        let capable = if appetite.known_for == known_for {
            appetite.capable[class.index()]
        } else {
            self.is_capable(class, thief.cohort)
        };
        capable && admission.bar(thief, lot).is_none()
    }

    /// The classes of task that the agents of a cohort can do.
    pub(crate) fn appetite(&mut self, cohort: CohortRef) -> ClassBits {
        let known_for = (self.agents.generation, self.lots.class_count());
        let memo = &self.agents.cohort(cohort).appetite;
        if self.config.performance.cache_capability_matches && memo.known_for == known_for {
            return memo.bits;
        }
        let mut appetite = Appetite {
            known_for,
            ..Appetite::default()
        };
        for class in (0..known_for.1).map(ClassRef::new) {
            self.refresh_class(class);
            let capable = self.is_capable(class, cohort);
            appetite.capable.push(capable);
            appetite.bits |= ClassBits::from(capable) << class_bit(class);
        }
        let bits = appetite.bits;
        self.agents.cohorts[cohort.index()].appetite = appetite;
        bits
    }

    /// A task waits on a queue: an idle agent that may steal it does so at once.
    pub(crate) fn offer(&mut self, task: TaskRef, actions: &mut Vec<Action>) {
        if self.agents.idle_count == 0 {
            return;
        }
        let this = &self.tasks[task];
        if !self.config.strategy.pulls() || this.settled || self.is_protected(this.priority) {
            return;
        }
        let (lot, victim) = (this.lot, this.agent);
        let class = self.lots.at(lot).class;
        self.refresh_class(class);
        for index in 0..self.lots.class_at(class).capable.len() {
            let (cohort, _) = self.lots.class_at(class).capable[index];
            // The latest to fall idle is asked first. Whoever is fed leaves the list, and only somebody
            // who was asked before takes its place there.
            let mut left = self.agents.cohort(cohort).idle.len();
            while left > 0 {
                left -= 1;
                let Some(thief) = self.agents.cohort(cohort).idle.get(left).copied() else {
                    continue;
                };
                if thief != victim && self.would_take(thief, lot) {
                    self.feed(thief, actions);
                    if self.tasks[task].state != State::Queued {
                        return;
                    }
                }
            }
        }
    }

    fn would_take(&self, thief: AgentRef, lot: LotRef) -> bool {
        self.may_steal(thief) && self.may_take(&self.agents[thief], lot, &self.admission(false))
    }

    pub(crate) fn is_protected(&self, priority: Priority) -> bool {
        self.protected_from().is_some_and(|from| priority >= from)
    }

    /// No queue has anything for an idle agent: asks the agent with the longest unstarted backlog to
    /// give something back.
    pub(crate) fn ask_back_for(&mut self, thief: AgentRef, actions: &mut Vec<Action>) {
        let limit = self.config.performance.max_concurrent_steals;
        if !self.may_steal(thief)
            || self.retracts >= limit
            || self.agents[thief].awaited > 0
            || self.agents[thief].no_asking_until > self.now
        {
            return;
        }
        self.update_backlog();
        let holders = self.backlogged.iter().rev().map(|(_, agent)| *agent);
        let others = holders
            .filter(|holder| *holder != thief)
            .filter(|holder| self.agents[*holder].liveness == Liveness::Alive);
        let loot = |holder| self.unstarted_loot(holder, thief);
        if let Some(task) = others.into_iter().find_map(loot) {
            self.retract(task, Some(thief), false, actions);
        }
    }

    fn unstarted_loot(&self, holder: AgentRef, thief: AgentRef) -> Option<TaskRef> {
        let admission = self.admission(false);
        let in_hand = self.agents[holder].in_hand.iter().rev();
        in_hand.map(|held| held.task).find(|task| {
            let this = &self.tasks[*task];
            // The group and the user already count this task: moving it changes nothing there.
            let class = self.lots.at(this.lot).class;
            let bar = admission.bar(&self.agents[thief], this.lot);
            this.state == State::Leased
                && this.agent == holder
                && !this.is_retracting()
                && !self.is_protected(this.priority)
                && u32::from(this.moves) < self.config.guards.max_moves
                && !matches!(bar, Some(Bar::Room | Bar::Reserved))
                && self.is_capable(class, self.agents[thief].cohort)
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
        let id = thief.map(|thief| self.agents[thief].id);
        if let Some(thief) = thief {
            self.agents[thief].awaited += 1;
        }
        self.retracts += 1;
        let extra = self.tasks[task].extra_mut();
        extra.retract_for = id;
        extra.retracting = true;
        let this = &self.tasks[task];
        let agent = self.agents[this.agent].id;
        actions.push(Action::Retract {
            task: this.id,
            agent,
            lease: this.lease,
            running,
        });
    }

    /// A retraction is over, one way or the other. Returns for whom it was.
    pub(crate) fn end_retract(&mut self, task: TaskRef) -> Option<AgentRef> {
        if !self.tasks[task].is_retracting() {
            return None;
        }
        let extra = self.tasks[task].extra_mut();
        extra.retracting = false;
        let thief = extra.retract_for.take();
        self.retracts -= 1;
        let thief = self.agents.find(thief?)?;
        let awaited = &mut self.agents[thief].awaited;
        *awaited = awaited.saturating_sub(1);
        Some(thief)
    }

    /// An agent was too late: it waits before it asks again, the longer the more often this happens.
    pub(crate) fn back_off(&mut self, thief: AgentRef) {
        let base = self.config.guards.steal_backoff.0.max(1);
        let delay = Delay::new(base, 2.0, base.saturating_mul(100), 0.5)
            .expect("the cap is above the base");
        let this = &mut self.agents[thief];
        let pause = Span(delay.ns(this.refusals, &mut self.rng));
        this.refusals = this.refusals.saturating_add(1);
        this.no_asking_until = self.now + pause;
        let alarm = Alarm::StealAgain(this.id, this.incarnation);
        self.timers.set(this.no_asking_until, alarm);
    }
}

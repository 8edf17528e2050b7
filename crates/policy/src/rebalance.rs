//! Push: when the fleet is out of balance, tasks move from busy agents to idle ones.
//!
//! The score that places a task knows how well an agent suits it, not how few others do: tasks that
//! anybody can do fill the queues of the few that can do more. So a task which not everybody can do
//! makes room for itself when it comes to a busy agent: one that others can do moves to the shortest
//! queue of those others. Nobody waits longer for it, and every queue stays in order.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::refs::{AgentRef, ClassRef, CohortRef, TaskRef};
use crate::scheduler::report;
use crate::tasks::State;
use crate::view::Liveness;
use crate::{Action, Reason, Report, Scheduler};

impl Scheduler {
    /// One pass: moves up to `max_steal_per_cycle` tasks if the fleet is out of balance.
    pub(crate) fn rebalance(&mut self, actions: &mut Vec<Action>) {
        if !self.is_out_of_balance() {
            return report(Report::Rebalanced { moved: 0 }, actions);
        }
        self.tallies.rebalance_cycles += 1;
        let mut idle = self.idle_by_cohort();
        let mut moved = 0;
        for busy in self.busiest_first() {
            while moved < self.config.work_stealing.max_steal_per_cycle
                && self.agents[busy].queue.len() > self.config.thresholds.busy_threshold
            {
                let Some((task, target)) = self.next_move(busy, &mut idle) else {
                    break;
                };
                let from = self.agents[busy].id;
                self.move_off_queue(task);
                self.tallies.steal_succeeded();
                self.enqueue(task, target, Reason::Rebalanced(from), actions);
                self.feed(target, actions);
                moved += 1;
            }
        }
        if moved == 0 {
            self.tallies.steal_failed();
        }
        report(Report::Rebalanced { moved }, actions);
    }

    /// A task was put on a queue. If its agent is busy, one that agents which cannot do this task can do
    /// moves to the shortest of their queues.
    pub(crate) fn make_room_for(&mut self, task: TaskRef, actions: &mut Vec<Action>) {
        let this = &self.tasks[task];
        let busy = this.agent;
        if this.state != State::Queued
            || !self.config.strategy.pushes()
            || !self.is_busier_than_need_be(busy)
        {
            return;
        }
        let class = self.lots.at(self.tasks[task].lot).class;
        if let Some((task, target)) = self.next_to_make_room(class, busy) {
            let from = self.agents[busy].id;
            self.move_off_queue(task);
            self.enqueue(task, target, Reason::Rebalanced(from), actions);
            self.after_enqueue(task, target, actions);
        }
    }

    /// Whether an agent is busy, and its queue longer than that of the agent with the best score, by
    /// more than comes about by chance. Asked for every task, so it looks at no others.
    fn is_busier_than_need_be(&mut self, agent: AgentRef) -> bool {
        let len = self.agents[agent].queue.len();
        let by_chance = 1 + len / 16;
        if len <= self.config.thresholds.busy_threshold || self.best_has_surely(len - by_chance) {
            return false;
        }
        self.update_rankings();
        let best = self.agents.best_placed();
        let shortest = best.map_or(len, |best| self.agents[best].queue.len());
        len.saturating_sub(shortest) > by_chance
    }

    /// A task on the queue of `busy`, and who shall have it: an agent that cannot do tasks of `class`,
    /// with the shortest queue, which must stay shorter than that of `busy` was.
    fn next_to_make_room(
        &mut self,
        class: ClassRef,
        busy: AgentRef,
    ) -> Option<(TaskRef, AgentRef)> {
        if self.lots.class_at(class).capable.len() == self.agents.cohorts.len() {
            return None; // Everybody can do it.
        }
        let order = self.steal_order();
        let classes = self.agents[busy].queue.loot_classes(order.protected_from);
        let mut shorter_than = self.agents[busy].queue.len() - 1;
        let mut chosen = None;
        for cohort in (0..self.agents.cohorts.len()).map(CohortRef::new) {
            let capable = self.lots.class_at(class).capable.iter();
            let members = self.agents.cohort(cohort);
            let Some(target) = (members.ranking.best()).and_then(|best| members.members[best])
            else {
                continue;
            };
            let len = self.agents[target].queue.len();
            if len >= shorter_than
                || capable.into_iter().any(|(other, _)| *other == cohort)
                || self.appetite(cohort) & classes == 0
            {
                continue;
            }
            let mut queue = core::mem::take(&mut self.agents[busy].queue);
            let task = queue.loot(&self.tasks, order, &mut |lot| {
                self.is_capable(self.lots.at(lot).class, cohort)
            });
            self.agents[busy].queue = queue;
            if let Some(task) = task {
                shorter_than = len;
                chosen = Some((task, target));
            }
        }
        chosen
    }

    /// The longest queue is many times the shortest, or busy beside an empty one.
    fn is_out_of_balance(&self) -> bool {
        let lengths = || {
            let alive = self
                .agents
                .iter()
                .filter(|(_, agent)| agent.liveness == Liveness::Alive);
            alive.map(|(_, agent)| agent.queue.len())
        };
        let (Some(longest), Some(shortest)) = (lengths().max(), lengths().min()) else {
            return false;
        };
        let thresholds = &self.config.thresholds;
        if shortest == 0 {
            longest > thresholds.busy_threshold
        } else {
            f64::from(longest) / f64::from(shortest) > thresholds.severe_imbalance_ratio
        }
    }

    fn busiest_first(&self) -> Vec<AgentRef> {
        let threshold = self.config.thresholds.busy_threshold;
        let busy = self
            .agents
            .iter()
            .filter(|(_, agent)| agent.queue.len() > threshold);
        let mut busy: Vec<_> = busy
            .map(|(agent, this)| (this.queue.len(), agent))
            .collect();
        busy.sort_by_key(|(len, agent)| (core::cmp::Reverse(*len), *agent));
        busy.into_iter().map(|(_, agent)| agent).collect()
    }

    /// The idle agents of each cohort, the shortest queue last.
    fn idle_by_cohort(&self) -> BTreeMap<CohortRef, Vec<AgentRef>> {
        let threshold = self.config.thresholds.idle_threshold;
        let mut idle: BTreeMap<CohortRef, Vec<AgentRef>> = BTreeMap::new();
        for (agent, this) in self.agents.iter() {
            if this.liveness == Liveness::Alive && this.queue.len() < threshold {
                idle.entry(this.cohort).or_default().push(agent);
            }
        }
        for agents in idle.values_mut() {
            agents
                .sort_by_key(|agent| (core::cmp::Reverse(self.agents[*agent].queue.len()), *agent));
        }
        idle
    }

    /// A task of a busy agent and an idle agent that can do it.
    fn next_move(
        &mut self,
        busy: AgentRef,
        idle: &mut BTreeMap<CohortRef, Vec<AgentRef>>,
    ) -> Option<(TaskRef, AgentRef)> {
        let threshold = self.config.thresholds.idle_threshold;
        let order = self.steal_order();
        let mut queue = core::mem::take(&mut self.agents[busy].queue);
        let mut chosen: Option<(u32, TaskRef, AgentRef)> = None;
        for (cohort, agents) in idle.iter_mut() {
            while agents
                .last()
                .is_some_and(|agent| self.agents[*agent].queue.len() >= threshold)
            {
                agents.pop();
            }
            let Some(target) = agents.last().copied().filter(|target| *target != busy) else {
                continue;
            };
            let len = self.agents[target].queue.len();
            if chosen.is_some_and(|(other, ..)| other <= len) {
                continue;
            }
            let task = queue.loot(&self.tasks, order, &mut |lot| {
                self.is_capable(self.lots.at(lot).class, *cohort)
            });
            if let Some(task) = task {
                chosen = Some((len, task, target));
            }
        }
        self.agents[busy].queue = queue;
        chosen.map(|(_, task, target)| (task, target))
    }
}

//! Push: when the fleet is out of balance, tasks move from busy agents to idle ones.
//!
//! The score that places a task knows how well an agent suits it, not how few others do: tasks that
//! anybody can do fill the queues of the few that can do more. So a task which not everybody can do
//! makes room for itself when it comes to a busy agent: one that others can do moves to the shortest
//! queue of those others. Nobody waits longer for it, and every queue stays in order.

use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;

use loxley_model::ZoneId;

use crate::derived::Derived;
use crate::refs::{AgentRef, ClassRef, CohortRef, TaskRef};
use crate::scheduler::report;
use crate::tournament::ABSENT;
use crate::{Action, Matching, Reason, Report, Scheduler};

/// The idle agents of each cohort and zone.
type Idle = BTreeMap<(CohortRef, Option<ZoneId>), Vec<AgentRef>>;

impl Scheduler {
    /// One pass: moves up to `max_steal_per_cycle` tasks if the fleet is out of balance.
    pub(crate) fn rebalance(&mut self, actions: &mut Vec<Action>) {
        if !self.is_out_of_balance() {
            return report(Report::Rebalanced { moved: 0 }, actions);
        }
        self.facts.tallies.rebalance_cycles += 1;
        let mut idle = self.idle_by_cohort();
        let mut moved = 0;
        for busy in self.busiest_first() {
            while moved < self.facts.config.work_stealing.max_steal_per_cycle
                && self.queue_at(busy) > self.facts.config.thresholds.busy_threshold
            {
                let Some((task, target)) = self.next_move(busy, &mut idle) else {
                    break;
                };
                let from = self.facts.agents[busy].id;
                self.move_off_queue(task);
                self.facts.tallies.steal_succeeded();
                self.enqueue(task, target, Reason::Rebalanced(from), actions);
                moved += 1;
            }
        }
        if moved == 0 {
            self.facts.tallies.steal_failed();
        }
        report(Report::Rebalanced { moved }, actions);
    }

    fn queue_at(&self, agent: AgentRef) -> u32 {
        self.derived.fleet.hand(agent).queue.len()
    }

    /// What may be taken from the queue of `busy` by agents of a cohort.
    fn movable(&mut self, busy: AgentRef, cohort: CohortRef) -> Option<TaskRef> {
        let (order, facts) = (self.steal_order(), &self.facts);
        let Derived {
            capabilities,
            fleet,
            ..
        } = &mut self.derived;
        let known = capabilities.known(facts, fleet);
        let queue = &mut fleet.look(busy).queue;
        let sort_of = |task: &_| facts.sort_of(task);
        queue.loot(&facts.tasks, order, &sort_of, &mut |class| {
            let class = facts.classes.admission_class(class).capability;
            known.can_do(class, cohort)
        })
    }

    /// A task was put on the queue of a busy agent: one that agents which cannot do this task can do
    /// moves to the shortest of their queues.
    pub(crate) fn make_room_for(&mut self, task: TaskRef, actions: &mut Vec<Action>) {
        let busy = self.facts.tasks[task].agent;
        let class = self
            .facts
            .admission_class_of(&self.facts.tasks[task])
            .capability;
        if let Some((task, target)) = self.next_to_make_room(class, busy) {
            let from = self.facts.agents[busy].id;
            self.move_off_queue(task);
            self.enqueue(task, target, Reason::Rebalanced(from), actions);
        }
    }

    /// Whether an agent that is about to get a task will be busy, and its queue longer than that of the
    /// agent that is best placed, by more than comes about by chance. Asked for every task, so it looks
    /// at no others.
    pub(crate) fn will_be_crowded(&mut self, agent: AgentRef) -> bool {
        let len = self.queue_at(agent) + 1;
        if len <= self.facts.config.thresholds.busy_threshold
            || !self.facts.config.strategy.pushes()
        {
            return false;
        }
        let by_chance = 1 + len / 16;
        let best = self.derived.fleet.ranked(&self.facts).best_keys();
        let (best, best_key) = (best.best().map(CohortRef::new), best.best_key());
        if self.facts.config.capabilities.matching_strategy == Matching::EarliestFinish {
            // Keys are how long agents have to do: the same in time, with what its tasks take for one of them.
            let key = self.derived.fleet.ranking_key(&self.facts, agent);
            let (own, least) = (key.unsigned_abs(), best_key.unsigned_abs());
            return key != ABSENT && own.saturating_sub(least) > own / u64::from(len) + own / 16;
        }
        let capabilities = &self.facts.config.capabilities;
        if capabilities.has_surely_queued(best_key, len - by_chance) {
            return false;
        }
        let best = best.and_then(|cohort| self.derived.fleet.best_of(&self.facts, cohort));
        let shortest = best.map_or(len, |best| best.queue_len);
        len.saturating_sub(shortest) > by_chance
    }

    /// A task on the queue of `busy`, and who shall have it: an agent that cannot do tasks of `class`,
    /// with the shortest queue, which must stay shorter than that of `busy` was.
    fn next_to_make_room(
        &mut self,
        class: ClassRef,
        busy: AgentRef,
    ) -> Option<(TaskRef, AgentRef)> {
        let Derived {
            capabilities,
            fleet,
            ..
        } = &mut self.derived;
        let cohorts = self.facts.agents.cohorts().len();
        if capabilities.capable(&self.facts, fleet, class).len() == cohorts {
            return None; // Everybody can do it.
        }
        let known = capabilities.known(&self.facts, fleet);
        let queue = &fleet.hand(busy).queue;
        let classes = queue.free_classes(self.facts.config.protected_from());
        let shorter_than = queue.len() - 1;
        let mut shorter = Vec::new();
        for cohort in known.others_for(class, classes) {
            if let Some(best) = fleet.best_of(&self.facts, cohort)
                && best.queue_len < shorter_than
            {
                shorter.push(Reverse((best.queue_len, cohort, best.agent)));
            }
        }
        // Mostly the agents with the shortest queue can do something of it.
        let mut shorter = BinaryHeap::from(shorter);
        core::iter::from_fn(|| shorter.pop()).find_map(|Reverse((_, cohort, target))| {
            let task = self.movable(busy, cohort)?;
            Some((task, target))
        })
    }

    /// The longest queue is many times the shortest, or busy beside an empty one.
    fn is_out_of_balance(&self) -> bool {
        let lengths = || {
            let agents = self.facts.agents.iter();
            let alive = agents.filter(|(_, agent)| agent.is_alive());
            alive.map(|(agent, _)| self.queue_at(agent))
        };
        let (Some(longest), Some(shortest)) = (lengths().max(), lengths().min()) else {
            return false;
        };
        let thresholds = &self.facts.config.thresholds;
        if shortest == 0 {
            longest > thresholds.busy_threshold
        } else {
            f64::from(longest) / f64::from(shortest) > thresholds.severe_imbalance_ratio
        }
    }

    fn busiest_first(&self) -> Vec<AgentRef> {
        let threshold = self.facts.config.thresholds.busy_threshold;
        let lengths = self
            .facts
            .agents
            .iter()
            .map(|(agent, _)| (self.queue_at(agent), agent));
        let mut busy: Vec<_> = lengths.filter(|(len, _)| *len > threshold).collect();
        busy.sort_by_key(|(len, agent)| (Reverse(*len), *agent));
        busy.into_iter().map(|(_, agent)| agent).collect()
    }

    /// The idle agents of each cohort and zone, the shortest queue last.
    fn idle_by_cohort(&self) -> Idle {
        let threshold = self.facts.config.thresholds.idle_threshold;
        let mut idle = Idle::new();
        for (agent, this) in self.facts.agents.iter() {
            let is_kept = self.facts.forecasts.room.keeps(this.id);
            if this.is_alive() && !is_kept && self.queue_at(agent) < threshold {
                idle.entry((this.cohort, this.added.zone))
                    .or_default()
                    .push(agent);
            }
        }
        for agents in idle.values_mut() {
            agents.sort_by_key(|agent| (Reverse(self.queue_at(*agent)), *agent));
        }
        idle
    }

    /// A task of a busy agent and an idle agent that can do it.
    fn next_move(&mut self, busy: AgentRef, idle: &mut Idle) -> Option<(TaskRef, AgentRef)> {
        let threshold = self.facts.config.thresholds.idle_threshold;
        let home = self.facts.agents[busy].added.zone;
        // The shortest queue, and of equally short ones a near one.
        let mut chosen: Option<((u32, bool), TaskRef, AgentRef)> = None;
        for ((cohort, zone), agents) in idle.iter_mut() {
            let is_idle = |agent: &AgentRef| self.queue_at(*agent) < threshold;
            while agents.pop_if(|agent| !is_idle(agent)).is_some() {}
            let Some(target) = agents.last().copied().filter(|target| *target != busy) else {
                continue;
            };
            let rank = (self.queue_at(target), *zone != home);
            if chosen.is_some_and(|(other, ..)| other <= rank) {
                continue;
            }
            let task = self.movable(busy, *cohort);
            if let Some(task) =
                task.filter(|task| self.leaves_queued(*task, target, busy).is_none())
            {
                chosen = Some((rank, task, target));
            }
        }
        chosen.map(|(_, task, target)| (task, target))
    }
}

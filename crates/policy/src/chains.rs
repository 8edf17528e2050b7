//! The order of a whole job: the task with the longest chain behind it first, fleet-wide.
//!
//! A queue keeps this order among its own tasks, but a job is done soonest when no agent starts a task
//! while one with a longer chain waits on another queue. So queued tasks that have a chain are also in
//! one ordered set, and an agent with a free slot takes the first of them that it may have, if that
//! comes before the first of its own queue.

use crate::Scheduler;
use crate::admission::Shares;
use crate::refs::{AgentRef, TaskRef};

/// How many tasks of the set an agent is tried on.
const CANDIDATES: usize = 8;

impl Scheduler {
    /// Sorts tasks that become ready together: the longest chain is placed first, so that idle agents
    /// do not start on a shorter one.
    pub(crate) fn put_in_order(&self, tasks: &mut [TaskRef]) {
        tasks.sort_by_cached_key(|task| self.facts.tasks[*task].fleet_order());
    }

    /// The task that the whole fleet should start next, if it is on another queue, an agent may have it,
    /// and it comes before all that the agent could start of its own.
    pub(crate) fn longest_chain_elsewhere(
        &mut self,
        agent: AgentRef,
        shares: Shares,
    ) -> Option<TaskRef> {
        if !self.facts.config.strategy.pulls() {
            return None;
        }
        let task = self.longest_chain(agent, shares)?;
        if self.facts.tasks[task].agent == agent {
            // Its own queue knows best: a task without a chain may come first.
            return None;
        }
        let own = self.peek_own(agent, shares);
        let order = |task: TaskRef| self.facts.tasks[task].fleet_order();
        own.is_none_or(|own| order(task) < order(own))
            .then_some(task)
    }

    fn longest_chain(&self, agent: AgentRef, shares: Shares) -> Option<TaskRef> {
        let first = self.derived.chained.iter().take(CANDIDATES);
        let cohort = self.facts.agents[agent].cohort;
        first.map(|(_, _, task)| *task).find(|task| {
            let candidate = &self.facts.tasks[*task];
            let class = self.facts.admission_class_of(candidate).capability;
            let may_move = || {
                u32::from(candidate.moves) < self.facts.config.guards.max_moves
                    && !self.is_protected(candidate.priority)
                    && self.is_capable(class, cohort)
            };
            (candidate.agent == agent || may_move())
                && self.bar(agent, candidate.admission_class, shares).is_none()
        })
    }
}

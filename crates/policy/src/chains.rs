//! The order of a whole job: the task with the longest chain behind it first, fleet-wide.
//!
//! A queue keeps this order among its own tasks, but a job is done soonest when no agent starts a task
//! while one with a longer chain waits on another queue. So queued tasks that have a chain are also in
//! one ordered set, and an agent with a free slot takes the first of them that it may have, if that
//! comes before the first of its own queue.

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::refs::{AgentRef, TaskRef};
use crate::tasks::{NO_CHAIN, State};
use crate::{Action, Reason, Scheduler};

/// How many tasks of the set an agent is tried on.
const CANDIDATES: usize = 8;

impl Scheduler {
    /// Notes that a task with a chain is on a queue, or that it is not any more.
    pub(crate) fn note_chain(&mut self, task: TaskRef, queued: bool) {
        let this = &self.tasks[task];
        if this.slack == NO_CHAIN {
            return;
        }
        let entry = (Reverse(this.priority), this.key(), task);
        if queued {
            self.chained.insert(entry);
        } else {
            self.chained.remove(&entry);
        }
    }

    /// Sorts tasks that become ready together: the longest chain is placed first, so that idle agents
    /// do not start on a shorter one.
    pub(crate) fn put_in_order(&self, tasks: &mut [TaskRef]) {
        tasks.sort_by_cached_key(|task| {
            (Reverse(self.tasks[*task].priority), self.tasks[*task].key())
        });
    }

    /// Gives an agent the task that the whole fleet should start next, if it may have it.
    pub(crate) fn take_longest_chain(
        &mut self,
        agent: AgentRef,
        enforce_shares: bool,
        actions: &mut Vec<Action>,
    ) -> bool {
        if !self.config.strategy.pulls() || !self.agents[agent].has_free_slot() {
            return false;
        }
        let Some(task) = self.next_in_fleet(agent, enforce_shares) else {
            return false;
        };
        let from = self.tasks[task].agent;
        if from == agent {
            // Its own queue knows best: a task without a chain may come first.
            return false;
        }
        // Only a look: what goes past a large task is counted when something is started.
        let bypassed = self.agents[agent].bypassed;
        let own = self.next_own(agent, enforce_shares);
        self.agents[agent].bypassed = bypassed;
        if let Some(own) = own {
            let order =
                |task: TaskRef| (Reverse(self.tasks[task].priority), self.tasks[task].key());
            if order(own) < order(task) {
                return false;
            }
        }
        let from = self.agents[from].id;
        self.tallies.steal_succeeded();
        self.move_off_queue(task);
        self.assign(task, agent, Reason::Stolen(from), actions);
        true
    }

    fn next_in_fleet(&self, agent: AgentRef, enforce_shares: bool) -> Option<TaskRef> {
        let admission = self.admission(enforce_shares);
        let this = &self.agents[agent];
        let first = self
            .chained
            .iter()
            .take(CANDIDATES)
            .map(|(_, _, task)| *task);
        first.into_iter().find(|task| {
            let candidate = &self.tasks[*task];
            debug_assert_eq!(
                candidate.state,
                State::Queued,
                "only queued tasks are in the set"
            );
            if candidate.agent == agent {
                return admission.bar(this, candidate.lot).is_none();
            }
            !candidate.settled
                && !self.is_protected(candidate.priority)
                && self.may_take(this, candidate.lot, &admission)
        })
    }
}

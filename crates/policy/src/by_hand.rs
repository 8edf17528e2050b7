//! Queues that are filled and emptied by hand.
//!
//! A program may treat an agent's queue as its own: put a task there without asking who should have
//! it, take the first one out, rob it. Such a task is known here only while it is on a queue. Whoever
//! takes it out has it, without a lease and without an answer to give; it counts as returned, and its
//! id may be used again to put it back.

use alloc::vec::Vec;

use loxley_model::{AgentId, Fallback, JobSpec, TaskId, TaskSpec, Unplaceable};

use crate::queue::StealOrder;
use crate::refs::{AgentRef, TaskRef};
use crate::scheduler::reject;
use crate::submission::Checked;
use crate::tasks::State;
use crate::{Action, Ending, InputError, Reason, Scheduler, Taking};

impl Scheduler {
    /// Puts a task on a queue, whether or not the agent can do it.
    pub(crate) fn queue_by_hand(
        &mut self,
        agent: AgentId,
        job: JobSpec,
        task: TaskSpec,
        actions: &mut Vec<Action>,
    ) {
        let Some(target) = self.derived.fleet.find(agent) else {
            return reject(InputError::UnknownAgent(agent), actions);
        };
        if !task.dependencies.is_empty() || task.fallback != Fallback::None {
            return reject(InputError::NotAlone(task.id), actions);
        }
        let job = JobSpec {
            onto: None,
            unplaceable: Unplaceable::Hold,
            ..job
        };
        let mut checked = Checked::default();
        let task = [task];
        if !self.check_submission(&job, &task, &mut checked, actions) {
            return;
        }
        for place in self.insert_all(job, &task, &checked, actions) {
            self.facts.tasks[place].since = self.facts.now;
            self.enqueue(place, target, Reason::Named, actions);
        }
    }

    /// Lets a task leave the scheduler with whoever takes it.
    pub(crate) fn take_by_hand(&mut self, taking: Taking, actions: &mut Vec<Action>) {
        let order = self.steal_order();
        let facts = &self.facts;
        let sort_of = |task: &_| facts.sort_of(task);
        let found = match taking {
            Taking::Task(task) => self.task_to_take(task),
            Taking::First(agent) => self.queue_to_take_from(agent).map(|agent| {
                let queue = &mut self.derived.fleet.look(agent).queue;
                queue.first(&facts.tasks, &sort_of, &mut |_| true)
            }),
            Taking::Loot {
                agent,
                newest_first,
            } => self.queue_to_take_from(agent).map(|agent| {
                let order = StealOrder {
                    newest_first,
                    ..order
                };
                let queue = &mut self.derived.fleet.look(agent).queue;
                queue.loot(&facts.tasks, order, &sort_of, &mut |_| true)
            }),
        };
        match found {
            Ok(Some(task)) => self.end_task(task, Ending::Returned, actions),
            Ok(None) => {}
            Err(error) => reject(error, actions),
        }
    }

    /// An agent comes with a history of its own.
    pub(crate) fn recall(
        &mut self,
        id: AgentId,
        completed: u64,
        failed: u64,
        actions: &mut Vec<Action>,
    ) {
        let Some(agent) = self.derived.fleet.find(id) else {
            return reject(InputError::UnknownAgent(id), actions);
        };
        let now = self.facts.now;
        let record = &mut self.facts.agents[agent].record;
        record.completed = completed;
        record.failed = failed;
        record.successes = completed as f64;
        record.failures = failed as f64;
        record.decayed_at = now;
        self.derived.fleet.agent_changed(&self.facts, agent);
    }

    fn task_to_take(&self, id: TaskId) -> Result<Option<TaskRef>, InputError> {
        let known = self.facts.ids.live(id);
        // Copies and fallbacks have others who wait for them; they are cancelled, not taken.
        let task = known.ok_or(InputError::UnknownTask(id))?;
        let is_plain = !matches!(
            self.facts.tasks[task].state,
            State::Standby | State::Delegated | State::Waiting | State::Backoff | State::Away
        );
        is_plain
            .then_some(Some(task))
            .ok_or(InputError::UnknownTask(id))
    }

    fn queue_to_take_from(&self, id: AgentId) -> Result<AgentRef, InputError> {
        self.derived
            .fleet
            .find(id)
            .ok_or(InputError::UnknownAgent(id))
    }
}

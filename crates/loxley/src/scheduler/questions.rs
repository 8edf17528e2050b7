//! Questions. None of them changes anything.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use loxley_policy::{Counts, Metrics, TaskStatus};

use super::Scheduler;
use crate::task::TaskKey;
use crate::view::{AgentStatus, Explanation, Problem, UtilizationSample};

/// Asking. None of these changes anything.
impl<T: Send + Sync + 'static> Scheduler<T> {
    /// The figures.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.shared.lock().driver.scheduler().metrics()
    }

    /// Where all tasks are.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.lock().driver.scheduler().counts()
    }

    /// The state of one agent; none when it is not registered.
    #[must_use]
    pub fn agent_status(&self, agent: &str) -> Option<AgentStatus> {
        let state = self.shared.lock();
        let id = state.directory.agent_id(agent)?;
        let status = state.driver.scheduler().agent_status(id)?;
        Some(AgentStatus::new(status, &state.directory))
    }

    /// The state of every agent, in the order in which they registered.
    #[must_use]
    pub fn agent_statuses(&self) -> Vec<AgentStatus> {
        let state = self.shared.lock();
        let statuses = state.driver.scheduler().agent_statuses();
        statuses
            .map(|status| AgentStatus::new(status, &state.directory))
            .collect()
    }

    /// The present queue length of every agent.
    #[must_use]
    pub fn queue_lengths(&self) -> Vec<usize> {
        let state = self.shared.lock();
        let statuses = state.driver.scheduler().agent_statuses();
        statuses.map(|status| status.queue_length).collect()
    }

    /// The queue lengths of all agents, sampled from time to time; the oldest first.
    #[must_use]
    pub fn utilization_samples(&self) -> Vec<UtilizationSample> {
        let state = self.shared.lock();
        state
            .driver
            .scheduler()
            .utilization_samples()
            .map(|sample| UtilizationSample::new(sample, &state.directory))
            .collect()
    }

    /// The state of a task that is not over.
    #[must_use]
    pub fn task_status(&self, task: impl Into<TaskKey>) -> Option<TaskStatus> {
        let state = self.shared.lock();
        let id = state.directory.task_id(&task.into())?;
        state.driver.scheduler().task_status(id)
    }

    /// Why a task is where it is, why it does not run, and what would make it run. None when it is
    /// over or unknown.
    #[must_use]
    pub fn explain(&self, task: impl Into<TaskKey>) -> Option<Explanation> {
        let state = self.shared.lock();
        let id = state.directory.task_id(&task.into())?;
        let core = state.driver.scheduler().explain(id)?;
        let now = self.shared.clock.now();
        Some(Explanation::new(
            core,
            now,
            state.driver.scheduler(),
            &state.directory,
        ))
    }

    /// What is wrong with the fleet, and what to do about it; empty when nothing is.
    #[must_use]
    pub fn health(&self) -> Vec<Problem> {
        let state = self.shared.lock();
        let problems = state.driver.scheduler().health();
        problems
            .into_iter()
            .map(|problem| Problem::new(problem, &state.directory))
            .collect()
    }

    /// Waits until no task is left, no longer than `timeout`. Says whether none is.
    #[must_use]
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        let state = self.shared.lock();
        let idle = Arc::clone(&state.idle);
        let waited = idle.wait_timeout_while(state, timeout, |state| {
            state.driver.scheduler().counts().live() > 0
        });
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.driver.scheduler().counts().live() == 0
    }
}

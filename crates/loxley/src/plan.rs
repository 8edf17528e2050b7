//! Agents and tasks as an orchestrator keeps them: two lists [I7].
//!
//! A workflow system knows its agents and what they can do, and its tasks and what they wait for.
//! [`Plan::from_json`] reads such a list; [`Scheduler::import`] takes it over, all or nothing; what
//! becomes of it is told by [`Scheduler::on_progress`] and [`Scheduler::on_event`].

use std::time::Duration;

use serde::Deserialize;

use crate::error::{AgentError, SubmitError};
use crate::scheduler::{Scheduler, Submitted};
use crate::task::{Agent, Job, Task};

/// The lists of an orchestrator.
///
/// ```
/// let plan = loxley::Plan::from_json(r#"{
///     "agents": [{"id": "ann", "capabilities": ["python"], "slots": 2}],
///     "tasks": [
///         {"id": "fetch", "skills": ["python"]},
///         {"id": "clean", "skills": ["python"], "priority": 4, "dependencies": ["fetch"],
///          "expected_cost_sec": 1.5, "payload": {"table": "users"}}
///     ]
/// }"#)?;
/// assert_eq!((plan.agents.len(), plan.tasks.len()), (1, 2));
/// # Ok::<(), loxley::PlanError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The agents. Those that are registered already stay as they are.
    #[serde(default)]
    pub agents: Vec<PlannedAgent>,
    /// The tasks.
    #[serde(default)]
    pub tasks: Vec<PlannedTask>,
}

/// An agent on an orchestrator's list.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedAgent {
    /// Its name.
    pub id: String,
    /// What it can do.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// How many tasks it runs at once.
    #[serde(default = "one")]
    pub slots: u32,
}

/// A task on an orchestrator's list.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedTask {
    /// Its name.
    pub id: String,
    /// The skills it asks for.
    #[serde(default)]
    pub skills: Vec<String>,
    /// How urgent it is: 1 to 5, 5 first.
    pub priority: Option<u8>,
    /// The names of the tasks that must succeed before it.
    #[serde(default)]
    pub dependencies: Vec<String>,
    /// How long it is expected to run.
    pub expected_cost_sec: Option<f64>,
    /// How long after its submission it should be done.
    pub deadline_sec: Option<f64>,
    /// How long one attempt may run.
    pub time_limit_sec: Option<f64>,
    /// How many times it is tried again after a failure.
    #[serde(default)]
    pub retries: u32,
    /// The group whose limit it counts against.
    pub group: Option<String>,
    /// Whatever the orchestrator wants to give to the agent.
    #[serde(default)]
    pub payload: serde_json::Value,
}

fn one() -> u32 {
    1
}

/// A list that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the list of agents and tasks cannot be read: {0}")]
pub struct PlanError(#[from] serde_json::Error);

/// A plan that cannot be taken over. Nothing changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ImportError {
    /// An agent cannot be registered.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The tasks were refused.
    #[error(transparent)]
    Tasks(#[from] SubmitError),
    /// A length of time that is negative, not a number, or too large to count.
    #[error("`{task}`: {field} of {secs} is not a length of time")]
    BadSeconds {
        /// The task.
        task: String,
        /// Which field.
        field: &'static str,
        /// What it says.
        secs: f64,
    },
}

impl Plan {
    /// Reads the lists. An unknown field is an error, so that no typing mistake goes unnoticed.
    pub fn from_json(text: &str) -> Result<Self, PlanError> {
        Ok(serde_json::from_str(text)?)
    }
}

impl PlannedTask {
    fn to_task(&self) -> Result<Task, ImportError> {
        let mut task = Task::new(&self.id)
            .skills(&self.skills)
            .after_all(&self.dependencies)
            .retries(self.retries);
        task.priority = self.priority;
        task.cost_secs = self.expected_cost_sec;
        task.group.clone_from(&self.group);
        if let Some(secs) = self.deadline_sec {
            task = task.due_in(self.seconds("deadline_sec", secs)?);
        }
        if let Some(secs) = self.time_limit_sec {
            task = task.time_limit(self.seconds("time_limit_sec", secs)?);
        }
        Ok(task)
    }

    fn seconds(&self, field: &'static str, secs: f64) -> Result<Duration, ImportError> {
        Duration::try_from_secs_f64(secs).map_err(|_| ImportError::BadSeconds {
            task: self.id.clone(),
            field,
            secs,
        })
    }
}

impl<T: Send + Sync + 'static> Scheduler<T> {
    /// Takes over an orchestrator's lists: registers the agents that are not there yet, and submits
    /// the tasks as one job. If anything is wrong, nothing changes.
    pub fn import(
        &self,
        plan: &Plan,
        job: &Job,
        mut payload: impl FnMut(&PlannedTask) -> T,
    ) -> Result<Option<Submitted>, ImportError> {
        let tasks = plan
            .tasks
            .iter()
            .map(|planned| Ok((planned.to_task()?, payload(planned))))
            .collect::<Result<Vec<_>, ImportError>>()?;
        let mut joined = Vec::new();
        let result = self
            .import_agents(&plan.agents, &mut joined)
            .map_err(ImportError::from)
            .and_then(|()| match tasks.is_empty() {
                true => Ok(None),
                false => Ok(Some(self.submit_batch(job, tasks)?)),
            });
        if result.is_err() {
            for agent in joined {
                // It may have left by itself in the meantime, which is as good.
                let _ = self.remove_agent(&agent);
            }
        }
        result
    }

    fn import_agents(
        &self,
        agents: &[PlannedAgent],
        joined: &mut Vec<String>,
    ) -> Result<(), AgentError> {
        for agent in agents {
            if self.agent_status(&agent.id).is_none() {
                let described = Agent::new(&agent.id)
                    .skills(&agent.capabilities)
                    .slots(agent.slots);
                self.register_agent(described)?;
                joined.push(agent.id.clone());
            }
        }
        Ok(())
    }
}

//! Who is called what. Users speak names; the deciding core knows only numbers.
//!
//! A name that was used once keeps its number as long as the scheduler lives: so a task may depend,
//! by name, on one that finished long ago, and a name never means two tasks. Tasks without a name
//! leave nothing here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use loxley_driver::{Directory as Names, Vocabulary, data_key, milli};
use loxley_model::{
    AgentId, AgentSpec, Fallback, GroupId, JobId, JobSpec, Locality, NameError, Priority,
    RetryRule, SkillId, Span, TaskId, TaskKind, TaskSpec, Time, Unplaceable, UserId,
};

use crate::error::{AgentError, SubmitProblem};
use crate::task::{Agent, Due, Job, Name, StandIn, Task, TaskKey, TaskRef, check_name};

#[derive(Debug)]
pub(crate) struct Directory {
    names: Names,
    tasks: HashMap<Name, TaskId>,
    task_names: HashMap<TaskId, Name>,
}

impl Vocabulary for Directory {
    fn directory(&self) -> &Names {
        &self.names
    }

    fn task_name(&self, task: TaskId) -> Option<Name> {
        self.task_names.get(&task).cloned()
    }
}

impl Directory {
    pub(crate) fn new() -> Self {
        Self {
            names: Names::with_default_user(),
            tasks: HashMap::new(),
            task_names: HashMap::new(),
        }
    }

    // Names of agents.

    pub(crate) fn agent_id(&self, name: &str) -> Option<AgentId> {
        self.names.agents.id(name)
    }

    pub(crate) fn agent_name(&self, id: AgentId) -> Name {
        self.names.agent_name(id)
    }

    // Names of tasks.

    pub(crate) fn task_id(&self, key: &TaskKey) -> Option<TaskId> {
        match key {
            TaskKey::Id(id) => Some(*id),
            TaskKey::Name(name) => self.tasks.get(name.trim()).copied(),
        }
    }

    pub(crate) fn task_ref(&self, id: TaskId) -> TaskRef {
        TaskRef {
            id,
            name: self.task_names.get(&id).cloned(),
        }
    }

    /// Remembers the names of tasks that were accepted.
    pub(crate) fn keep_task_names(&mut self, refs: impl IntoIterator<Item = TaskRef>) {
        for task in refs {
            if let Some(name) = task.name {
                self.tasks.insert(Arc::clone(&name), task.id);
                self.task_names.insert(task.id, name);
            }
        }
    }

    /// Forgets the name of a task that was refused after all.
    pub(crate) fn forget_task(&mut self, task: &TaskRef) {
        if let Some(name) = self.task_names.remove(&task.id) {
            self.tasks.remove(&name);
        }
    }

    // Everything else.

    pub(crate) fn skill_name(&self, id: SkillId) -> Name {
        self.names.skill_name(id)
    }

    pub(crate) fn skill_names(&self, skills: impl IntoIterator<Item = SkillId>) -> Vec<Name> {
        self.names.skill_names(skills)
    }

    pub(crate) fn group(&mut self, name: &str) -> Result<GroupId, NameError> {
        self.names.groups.intern(name)
    }

    pub(crate) fn user(&mut self, name: &str) -> Result<UserId, NameError> {
        self.names.users.intern(name)
    }

    // From what users say to what the core understands.

    pub(crate) fn agent_spec(&mut self, agent: &Agent) -> Result<AgentSpec, AgentError> {
        let name = check_name("agent", &agent.name)?;
        let cpu_milli = milli(agent.cpu).ok_or_else(|| AgentError::BadCpu(name.into()))?;
        let skills = self.names.skill_set(&agent.skills)?;
        let resources =
            self.names
                .amounts(cpu_milli, agent.memory_bytes, amounts(&agent.resources))?;
        let zone = self.names.zone(agent.zone.as_deref())?;
        for data in &agent.holds {
            check_name("data", data)?;
        }
        Ok(AgentSpec {
            slots: agent.slots,
            speed: agent.speed,
            resources,
            zone,
            holds: agent.holds.iter().map(|data| data_key(data)).collect(),
            heartbeats: agent.heartbeats,
            ..AgentSpec::new(self.names.agents.intern(name)?, skills)
        })
    }

    pub(crate) fn job_spec(&mut self, id: JobId, job: &Job) -> Result<JobSpec, SubmitProblem> {
        let user = match &job.user {
            Some(user) => self.user(user).map_err(SubmitProblem::BadJobName)?,
            None => UserId(0),
        };
        // An agent that nobody registered gets a number that no agent has.
        let onto = job
            .onto
            .as_deref()
            .map(|name| self.agent_id(name).unwrap_or(AgentId(u64::MAX)));
        Ok(JobSpec {
            user,
            dependency_failure: job.dependency_failure,
            unplaceable: if job.hold {
                Unplaceable::Hold
            } else {
                Unplaceable::Refuse
            },
            onto,
            ..JobSpec::new(id)
        })
    }

    /// Specs for tasks that passed [`Task::check`]. What is wrong with their names and dependencies
    /// goes to `problems`.
    pub(crate) fn task_specs(
        &mut self,
        now: Time,
        tasks: &[(TaskRef, &Task)],
        problems: &mut Vec<SubmitProblem>,
    ) -> Vec<TaskSpec> {
        let mut batch: HashMap<&str, TaskId> = HashMap::new();
        for (task, _) in tasks {
            let Some(name) = task.name.as_deref() else {
                continue;
            };
            let is_new = batch.insert(name, task.id).is_none();
            if !is_new || self.tasks.get(name).is_some_and(|id| *id != task.id) {
                problems.push(SubmitProblem::Duplicate(task.clone()));
            }
        }
        tasks
            .iter()
            .map(|(task_ref, task)| self.task_spec(now, task_ref, task, &batch, problems))
            .collect()
    }

    fn task_spec(
        &mut self,
        now: Time,
        task_ref: &TaskRef,
        task: &Task,
        batch: &HashMap<&str, TaskId>,
        problems: &mut Vec<SubmitProblem>,
    ) -> TaskSpec {
        let mut dependencies = Vec::with_capacity(task.after.len());
        for key in &task.after {
            match self.dependency(key, batch) {
                Some(id) => dependencies.push(id),
                None => problems.push(SubmitProblem::UnknownDependency {
                    task: task_ref.clone(),
                    dependency: key.clone(),
                }),
            }
        }
        let fallback = match &task.fallback {
            None => Fallback::None,
            Some(StandIn::Value) => Fallback::Value,
            Some(StandIn::Task(name)) => match batch.get(name.trim()) {
                Some(id) => Fallback::Task(*id),
                None => {
                    problems.push(SubmitProblem::BadFallback {
                        task: task_ref.clone(),
                        fallback: name.into(),
                    });
                    Fallback::None
                }
            },
        };
        TaskSpec {
            priority: Priority::new(task.priority.unwrap_or(3)).expect("was checked"),
            cost: task.cost_secs.and_then(Span::try_from_secs_f64),
            deadline: task.due.map(|due| match due {
                Due::In(span) => now + Span::from(span),
                Due::At(time) => time,
            }),
            dependencies: dependencies.into(),
            locality: task.near.as_ref().map(|(data, transfer)| Locality {
                key: data_key(data),
                transfer: Span::from(*transfer),
            }),
            fallback,
            ..TaskSpec::new(task_ref.id, self.kind(task))
        }
    }

    fn dependency(&self, key: &TaskKey, batch: &HashMap<&str, TaskId>) -> Option<TaskId> {
        match key {
            TaskKey::Name(name) => batch
                .get(name.trim())
                .copied()
                .or_else(|| self.task_id(key)),
            TaskKey::Id(id) => Some(*id),
        }
    }

    fn kind(&mut self, task: &Task) -> Arc<TaskKind> {
        let checked = "was checked";
        let retry = RetryRule::default();
        let (base, cap) = task.backoff.map_or((retry.base, retry.cap), |(base, cap)| {
            (base.into(), cap.into())
        });
        let cpu_milli = milli(task.cpu).expect(checked);
        let needs = self
            .names
            .amounts(cpu_milli, task.memory_bytes, amounts(&task.resources));
        let kind = TaskKind {
            work: task.work,
            skills: self.names.skill_set(&task.skills).expect(checked),
            needs: needs.expect(checked),
            group: self.names.group(task.group.as_deref()).expect(checked),
            time_limit: task.time_limit.map(Span::from),
            hold_limit: task.hold_limit.map(Span::from),
            retry: RetryRule {
                retries: task.retries,
                base,
                cap,
            },
            speculate: task.speculate,
            checkpoints: false,
            once: false,
        };
        self.names.kind(kind)
    }

    /// The way back: a description with which a task can be submitted again.
    pub(crate) fn describe(&self, task: &TaskRef, kept: &Kept) -> Task {
        let TaskKind {
            work,
            skills,
            needs,
            group,
            time_limit,
            hold_limit,
            retry,
            speculate,
            checkpoints: _,
            once: _,
        } = &*kept.kind;
        Task {
            name: task.name.as_deref().map(Into::into),
            work: *work,
            skills: skills
                .iter()
                .map(|id| self.skill_name(id).as_ref().into())
                .collect(),
            priority: Some(kept.priority.level()),
            cost_secs: kept.cost.map(Span::as_secs_f64),
            due: kept.deadline.map(Due::At),
            cpu: needs.cpu_milli as f64 / 1000.0,
            memory_bytes: needs.memory_bytes,
            resources: needs
                .named
                .iter()
                .filter_map(|(id, amount)| Some((self.names.resources.name(*id)?.into(), *amount)))
                .collect(),
            group: group
                .and_then(|id| self.names.groups.name(id))
                .map(Into::into),
            time_limit: time_limit.map(Duration::from),
            hold_limit: hold_limit.map(Duration::from),
            retries: retry.retries,
            backoff: Some((retry.base.into(), retry.cap.into())),
            speculate: *speculate,
            ..Task::default()
        }
    }
}

/// What is kept of a task's description while it is in the scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) kind: Arc<TaskKind>,
    pub(crate) priority: Priority,
    pub(crate) cost: Option<Span>,
    pub(crate) deadline: Option<Time>,
}

impl From<&TaskSpec> for Kept {
    fn from(spec: &TaskSpec) -> Self {
        Self {
            kind: Arc::clone(&spec.kind),
            priority: spec.priority,
            cost: spec.cost,
            deadline: spec.deadline,
        }
    }
}

fn amounts(resources: &[(String, u64)]) -> impl Iterator<Item = (&str, u64)> {
    resources
        .iter()
        .map(|(name, amount)| (name.as_str(), *amount))
}

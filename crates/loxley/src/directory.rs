//! Who is called what. Users speak names; the deciding core knows only numbers.
//!
//! A name that was used once keeps its number as long as the scheduler lives: so a task may depend,
//! by name, on one that finished long ago, and a name never means two tasks. Tasks without a name
//! leave nothing here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use loxley_model::{
    AgentId, AgentSpec, DataKey, Fallback, GroupId, JobId, JobSpec, Locality, NameError, NameId,
    Names, Priority, ResourceId, Resources, RetryRule, SkillId, SkillSet, Span, TaskId, TaskKind,
    TaskSpec, Time, Unplaceable, UserId, ZoneId,
};

use crate::error::{AgentError, SubmitProblem};
use crate::task::{Agent, Due, Job, Name, StandIn, Task, TaskKey, TaskRef, check_name};

/// How many kinds are remembered so that like tasks share one; then it starts afresh.
const KINDS_MAX: usize = 4096;

#[derive(Debug)]
pub(crate) struct Directory {
    skills: Names<SkillId>,
    resources: Names<ResourceId>,
    groups: Names<GroupId>,
    users: Names<UserId>,
    zones: Names<ZoneId>,
    agents: HashMap<Name, AgentId>,
    agent_names: Vec<Name>,
    tasks: HashMap<Name, TaskId>,
    task_names: HashMap<TaskId, Name>,
    kinds: HashMap<TaskKind, Arc<TaskKind>>,
}

impl Directory {
    pub(crate) fn new() -> Self {
        let mut users = Names::new();
        users
            .intern("default")
            .expect("a word is a name; it gets number 0, which means nobody in particular");
        Self {
            skills: Names::new(),
            resources: Names::new(),
            groups: Names::new(),
            users,
            zones: Names::new(),
            agents: HashMap::new(),
            agent_names: Vec::new(),
            tasks: HashMap::new(),
            task_names: HashMap::new(),
            kinds: HashMap::new(),
        }
    }

    // Names of agents.

    pub(crate) fn agent_id(&self, name: &str) -> Option<AgentId> {
        self.agents.get(name.trim()).copied()
    }

    pub(crate) fn agent_name(&self, id: AgentId) -> Name {
        let known = usize::try_from(id.0)
            .ok()
            .and_then(|index| self.agent_names.get(index));
        known.map_or_else(|| id.to_string().into(), Arc::clone)
    }

    fn intern_agent(&mut self, name: &str) -> AgentId {
        if let Some(id) = self.agents.get(name) {
            return *id;
        }
        let id = AgentId(self.agent_names.len() as u64);
        let name: Name = name.into();
        self.agent_names.push(Arc::clone(&name));
        self.agents.insert(name, id);
        id
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
        named(&self.skills, id).unwrap_or_else(|| id.to_string().into())
    }

    pub(crate) fn skill_names(&self, skills: impl IntoIterator<Item = SkillId>) -> Vec<Name> {
        skills.into_iter().map(|id| self.skill_name(id)).collect()
    }

    pub(crate) fn group(&mut self, name: &str) -> Result<GroupId, NameError> {
        self.groups.intern(name)
    }

    pub(crate) fn user(&mut self, name: &str) -> Result<UserId, NameError> {
        self.users.intern(name)
    }

    // From what users say to what the core understands.

    pub(crate) fn agent_spec(&mut self, agent: &Agent) -> Result<AgentSpec, AgentError> {
        let name = check_name("agent", &agent.name)?;
        let cpu_milli = milli(agent.cpu).ok_or_else(|| AgentError::BadCpu(name.into()))?;
        let skills = intern_all(&mut self.skills, &agent.skills)?;
        let named = self.amounts(&agent.resources)?;
        let zone = agent
            .zone
            .as_deref()
            .map(|zone| self.zones.intern(zone))
            .transpose()?;
        for data in &agent.holds {
            check_name("data", data)?;
        }
        Ok(AgentSpec {
            slots: agent.slots,
            speed: agent.speed,
            resources: Resources {
                cpu_milli,
                memory_bytes: agent.memory_bytes,
                named,
            },
            zone,
            holds: agent.holds.iter().map(|data| data_key(data)).collect(),
            heartbeats: agent.heartbeats,
            ..AgentSpec::new(self.intern_agent(name), skills)
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
        let kind = TaskKind {
            skills: intern_all(&mut self.skills, &task.skills).expect(checked),
            needs: Resources {
                cpu_milli: milli(task.cpu).expect(checked),
                memory_bytes: task.memory_bytes,
                named: self.amounts(&task.resources).expect(checked),
            },
            group: task
                .group
                .as_deref()
                .map(|group| self.groups.intern(group).expect(checked)),
            time_limit: task.time_limit.map(Span::from),
            hold_limit: task.hold_limit.map(Span::from),
            retry: RetryRule {
                retries: task.retries,
                base,
                cap,
            },
            speculate: task.speculate,
            checkpoints: false,
        };
        if let Some(known) = self.kinds.get(&kind) {
            return Arc::clone(known);
        }
        if self.kinds.len() >= KINDS_MAX {
            self.kinds.clear();
        }
        let shared = Arc::new(kind.clone());
        self.kinds.insert(kind, Arc::clone(&shared));
        shared
    }

    fn amounts(
        &mut self,
        resources: &[(String, u64)],
    ) -> Result<std::collections::BTreeMap<ResourceId, u64>, NameError> {
        resources
            .iter()
            .map(|(name, amount)| Ok((self.resources.intern(name)?, *amount)))
            .collect()
    }

    /// The way back: a description with which a task can be submitted again.
    pub(crate) fn describe(&self, task: &TaskRef, kept: &Kept) -> Task {
        let TaskKind {
            skills,
            needs,
            group,
            time_limit,
            hold_limit,
            retry,
            speculate,
            checkpoints: _,
        } = &*kept.kind;
        Task {
            name: task.name.as_deref().map(Into::into),
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
                .filter_map(|(id, amount)| Some((self.resources.name(*id)?.into(), *amount)))
                .collect(),
            group: group.and_then(|id| self.groups.name(id)).map(Into::into),
            time_limit: time_limit.map(Duration::from),
            hold_limit: hold_limit.map(Duration::from),
            retries: retry.retries,
            backoff: Some((retry.base.into(), retry.cap.into())),
            speculate: *speculate,
            ..Task::default()
        }
    }

    /// Replaces `agent-3`, `task-7` and `skill-1` in a text of the core by the users' names.
    pub(crate) fn with_names(&self, text: &str) -> String {
        let mut words = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((start, end, name)) = self.next_id(rest) {
            words.push_str(&rest[..start]);
            words.push_str(&name);
            rest = &rest[end..];
        }
        words.push_str(rest);
        words
    }

    /// The first id in a text: where it starts and ends, and what it is called.
    fn next_id(&self, text: &str) -> Option<(usize, usize, String)> {
        let starts = ["agent-", "task-", "skill-", "group-", "user-"]
            .into_iter()
            .flat_map(|prefix| {
                text.match_indices(prefix)
                    .map(move |(start, _)| (start, prefix))
            });
        let mut starts: Vec<(usize, &str)> = starts.collect();
        starts.sort_unstable();
        starts.into_iter().find_map(|(start, prefix)| {
            let digits = &text[start + prefix.len()..];
            let length = digits.bytes().take_while(u8::is_ascii_digit).count();
            let number: u64 = digits[..length].parse().ok()?;
            let small = u32::try_from(number).ok();
            let name = match prefix {
                "agent-" => Some(self.agent_name(AgentId(number))),
                "task-" => self.task_names.get(&TaskId(number)).cloned(),
                "skill-" => small.and_then(|id| named(&self.skills, SkillId(id))),
                "group-" => small.and_then(|id| named(&self.groups, GroupId(id))),
                _ => small.and_then(|id| named(&self.users, UserId(id))),
            };
            let end = start + prefix.len() + length;
            Some((start, end, name.map(|name| format!("`{name}`"))?))
        })
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

fn named<Id: NameId>(names: &Names<Id>, id: Id) -> Option<Name> {
    names.name(id).map(Into::into)
}

fn intern_all(names: &mut Names<SkillId>, skills: &[String]) -> Result<SkillSet, NameError> {
    skills.iter().map(|skill| names.intern(skill)).collect()
}

/// Thousandths; none when the number is negative, not a number or too large.
fn milli(number: f64) -> Option<u64> {
    Span::try_from_secs_f64(number).map(|span| span.0 / 1_000_000)
}

/// The number of a piece of data: FNV-1a of its name, the same in every process.
fn data_key(name: &str) -> DataKey {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    DataKey(name.trim().bytes().fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_in_a_text_become_names() {
        let mut directory = Directory::new();
        let spec = directory
            .agent_spec(&Agent::new("ann").skill("gpu"))
            .unwrap();
        assert_eq!(spec.id, AgentId(0));
        let text = "agent-0 lacks skill-0 and skill-9; task-3 and non-agent-";
        assert_eq!(
            directory.with_names(text),
            "`ann` lacks `gpu` and skill-9; task-3 and non-agent-"
        );
    }

    #[test]
    fn tasks_that_are_alike_share_one_kind() {
        let mut directory = Directory::new();
        let one = directory.kind(&Task::new("a").skill("x"));
        let two = directory.kind(&Task::new("b").skill("x").priority(5));
        assert!(Arc::ptr_eq(&one, &two));
    }
}

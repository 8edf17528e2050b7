//! What a user says of a task, an agent and a job: in strings, checked when it is handed in.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use loxley_driver::work_key;
use loxley_model::{DependencyFailure, NameError, Names, SkillId, TaskId, Time, WorkKey};

use crate::error::SubmitProblem;

/// A name as the user wrote it, cheap to copy.
pub type Name = Arc<str>;

/// A task for messages: its name if it has one, else its number.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskRef {
    /// Its number, never used again for another task.
    pub id: TaskId,
    /// The name its user gave it.
    pub name: Option<Name>,
}

impl fmt::Display for TaskRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "`{name}`"),
            None => write!(f, "{}", self.id),
        }
    }
}

impl fmt::Debug for TaskRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which task is meant: by number or by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TaskKey {
    /// By number.
    Id(TaskId),
    /// By name.
    Name(String),
}

impl From<TaskId> for TaskKey {
    fn from(id: TaskId) -> Self {
        Self::Id(id)
    }
}

impl From<&TaskId> for TaskKey {
    fn from(id: &TaskId) -> Self {
        Self::Id(*id)
    }
}

impl From<&TaskRef> for TaskKey {
    fn from(task: &TaskRef) -> Self {
        Self::Id(task.id)
    }
}

impl From<&str> for TaskKey {
    fn from(name: &str) -> Self {
        Self::Name(name.into())
    }
}

impl From<&String> for TaskKey {
    fn from(name: &String) -> Self {
        Self::Name(name.clone())
    }
}

impl From<String> for TaskKey {
    fn from(name: String) -> Self {
        Self::Name(name)
    }
}

impl fmt::Display for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Name(name) => write!(f, "`{name}`"),
        }
    }
}

/// A task, described by whoever submits it. Nothing is checked before it is submitted; then every
/// mistake is reported together.
///
/// ```
/// use std::time::Duration;
/// use loxley::Task;
///
/// let task = Task::new("render-17")
///     .skill("gpu")
///     .priority(5)
///     .after("fetch-17")
///     .cost(Duration::from_millis(80))
///     .due_in(Duration::from_secs(10))
///     .time_limit(Duration::from_secs(2))
///     .retries(3);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Task {
    pub(crate) name: Option<String>,
    pub(crate) work: Option<WorkKey>,
    pub(crate) skills: Vec<String>,
    pub(crate) priority: Option<u8>,
    pub(crate) cost_secs: Option<f64>,
    pub(crate) due: Option<Due>,
    pub(crate) after: Vec<TaskKey>,
    pub(crate) cpu: f64,
    pub(crate) memory_bytes: u64,
    pub(crate) resources: Vec<(String, u64)>,
    pub(crate) near: Option<(String, Duration)>,
    pub(crate) group: Option<String>,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) hold_limit: Option<Duration>,
    pub(crate) retries: u32,
    pub(crate) backoff: Option<(Duration, Duration)>,
    pub(crate) speculate: bool,
    pub(crate) fallback: Option<StandIn>,
    /// The number it had before it left the scheduler with its agent.
    pub(crate) again: Option<TaskId>,
}

/// When a task should be done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    /// So long after it was submitted.
    In(Duration),
    /// At this moment of the scheduler's clock.
    At(Time),
}

/// What stands in for a task that ran into its time limit.
#[derive(Clone, Debug)]
pub(crate) enum StandIn {
    /// A value that whoever submitted the task keeps.
    Value,
    /// Another task of the same batch.
    Task(String),
}

impl Task {
    /// A task with a name. The name must be new; other tasks may depend on it by that name, as long
    /// as the scheduler lives.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: Some(name.into()),
            ..Self::default()
        }
    }

    /// A task without a name. It is known by the number that submitting it gives back.
    #[must_use]
    pub fn unnamed() -> Self {
        Self::default()
    }

    /// Asks for a skill. May be called several times.
    #[must_use]
    pub fn skill(mut self, skill: impl Into<String>) -> Self {
        self.skills.push(skill.into());
        self
    }

    /// Asks for several skills.
    #[must_use]
    pub fn skills<S: Into<String>>(mut self, skills: impl IntoIterator<Item = S>) -> Self {
        self.skills.extend(skills.into_iter().map(Into::into));
        self
    }

    /// How urgent it is: 1 to 5, 5 first, 3 when nothing is said.
    #[must_use]
    pub fn priority(mut self, level: u8) -> Self {
        self.priority = Some(level);
        self
    }

    /// How long it is expected to run.
    #[must_use]
    pub fn cost(self, cost: Duration) -> Self {
        self.cost_secs(cost.as_secs_f64())
    }

    /// How long it is expected to run, in seconds.
    #[must_use]
    pub fn cost_secs(mut self, secs: f64) -> Self {
        self.cost_secs = Some(secs);
        self
    }

    /// It should be done so long after it was submitted.
    #[must_use]
    pub fn due_in(mut self, span: Duration) -> Self {
        self.due = Some(Due::In(span));
        self
    }

    /// It should be done at this moment of the scheduler's clock
    /// ([`Scheduler::now`](crate::Scheduler::now)).
    #[must_use]
    pub fn due_at(mut self, time: Time) -> Self {
        self.due = Some(Due::At(time));
        self
    }

    /// It may start only when that task has succeeded. May be called several times. A name may be
    /// that of a later task of the same batch.
    #[must_use]
    pub fn after(mut self, task: impl Into<TaskKey>) -> Self {
        self.after.push(task.into());
        self
    }

    /// It may start only when all these tasks have succeeded.
    #[must_use]
    pub fn after_all<K: Into<TaskKey>>(mut self, tasks: impl IntoIterator<Item = K>) -> Self {
        self.after.extend(tasks.into_iter().map(Into::into));
        self
    }

    /// How many processors it needs while it runs.
    #[must_use]
    pub fn cpu(mut self, processors: f64) -> Self {
        self.cpu = processors;
        self
    }

    /// How much memory it needs while it runs.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// How much of a named resource it needs while it runs.
    #[must_use]
    pub fn resource(mut self, name: impl Into<String>, amount: u64) -> Self {
        self.resources.push((name.into(), amount));
        self
    }

    /// It should run where this data is; elsewhere, bringing the data takes `transfer`.
    #[must_use]
    pub fn near(mut self, data: impl Into<String>, transfer: Duration) -> Self {
        self.near = Some((data.into(), transfer));
        self
    }

    /// What kind of work it is. How long tasks take, and how good and fast agents are at them, is learned of tasks of
    /// one kind that also ask for the same. Without it, what they ask for is all there is to tell them apart.
    #[must_use]
    pub fn kind(mut self, kind: &str) -> Self {
        self.work = Some(work_key("kind", [kind.trim()]));
        self
    }

    /// It counts against the limit of this group
    /// ([`Scheduler::limit_group`](crate::Scheduler::limit_group)).
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// How long one attempt may run.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// How long it may wait for an agent that can do it, if its job holds such tasks.
    #[must_use]
    pub fn hold_limit(mut self, limit: Duration) -> Self {
        self.hold_limit = Some(limit);
        self
    }

    /// How many times it is tried again after a failure.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// The delay before the first retry, which doubles with each one, and the longest delay.
    #[must_use]
    pub fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        self.backoff = Some((base, cap));
        self
    }

    /// A second copy may run elsewhere when this one is slow: it does no harm when it runs twice.
    #[must_use]
    pub fn speculate(mut self) -> Self {
        self.speculate = true;
        self
    }

    /// When its time limit passes, this other task of the same batch runs, and its result counts.
    #[must_use]
    pub fn fallback(mut self, task: impl Into<String>) -> Self {
        self.fallback = Some(StandIn::Task(task.into()));
        self
    }

    /// When its time limit passes, it counts as succeeded with a value that the submitter keeps.
    /// With a [`Fleet`](crate::Fleet), use [`submit_or`](crate::Fleet::submit_or).
    #[must_use]
    pub fn fallback_value(mut self) -> Self {
        self.fallback = Some(StandIn::Value);
        self
    }

    /// What is wrong with it that shows without knowing anything else.
    pub(crate) fn check(&self, task: &TaskRef, problems: &mut Vec<SubmitProblem>) {
        let mut name = |noun, name: &str| {
            if let Err(source) = check_name(noun, name) {
                let task = task.clone();
                problems.push(SubmitProblem::BadName { task, source });
            }
        };
        self.name.iter().for_each(|text| name("task", text));
        self.skills.iter().for_each(|text| name("skill", text));
        self.group.iter().for_each(|text| name("group", text));
        self.resources
            .iter()
            .for_each(|(text, _)| name("resource", text));
        self.near.iter().for_each(|(text, _)| name("data", text));
        if let Some(level) = self.priority.filter(|level| !(1..=5).contains(level)) {
            let task = task.clone();
            problems.push(SubmitProblem::BadPriority { task, level });
        }
        let is_amount = |number: f64| loxley_model::Span::try_from_secs_f64(number).is_some();
        if let Some(secs) = self.cost_secs.filter(|secs| !is_amount(*secs)) {
            let task = task.clone();
            problems.push(SubmitProblem::BadCost { task, secs });
        }
        if !is_amount(self.cpu) {
            let (task, processors) = (task.clone(), self.cpu);
            problems.push(SubmitProblem::BadCpu { task, processors });
        }
    }
}

impl From<&str> for Task {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// The rules of [`Names`], for names that are not kept in such a table.
pub(crate) fn check_name<'a>(noun: &'static str, name: &'a str) -> Result<&'a str, NameError> {
    let name = name.trim();
    if name.is_empty() {
        return Err(NameError::Empty(noun));
    }
    if name.len() > Names::<SkillId>::LONGEST {
        return Err(NameError::TooLong(noun));
    }
    if name.chars().any(char::is_control) {
        return Err(NameError::Control(noun));
    }
    Ok(name)
}

/// An agent, described by whoever registers it.
///
/// ```
/// use loxley::Agent;
///
/// let agent = Agent::new("builder-2").skills(["rust", "python"]).slots(4).memory(8 << 30);
/// ```
#[derive(Clone, Debug)]
pub struct Agent {
    pub(crate) name: String,
    pub(crate) skills: Vec<String>,
    pub(crate) slots: u32,
    pub(crate) speed: f64,
    pub(crate) cpu: f64,
    pub(crate) memory_bytes: u64,
    pub(crate) resources: Vec<(String, u64)>,
    pub(crate) zone: Option<String>,
    pub(crate) holds: Vec<String>,
    pub(crate) heartbeats: bool,
}

impl Agent {
    /// An agent with one slot and no skill.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            skills: Vec::new(),
            slots: 1,
            speed: 1.0,
            cpu: 0.0,
            memory_bytes: 0,
            resources: Vec::new(),
            zone: None,
            holds: Vec::new(),
            heartbeats: false,
        }
    }

    /// It has a skill. May be called several times.
    #[must_use]
    pub fn skill(mut self, skill: impl Into<String>) -> Self {
        self.skills.push(skill.into());
        self
    }

    /// It has these skills.
    #[must_use]
    pub fn skills<S: Into<String>>(mut self, skills: impl IntoIterator<Item = S>) -> Self {
        self.skills.extend(skills.into_iter().map(Into::into));
        self
    }

    /// How many tasks it runs at once.
    #[must_use]
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }

    /// How fast it is, until that is learned: 1.0 runs a task in its expected cost.
    #[must_use]
    pub fn speed(mut self, speed: f64) -> Self {
        self.speed = speed;
        self
    }

    /// How many processors it has; 0 when nobody counts.
    #[must_use]
    pub fn cpu(mut self, processors: f64) -> Self {
        self.cpu = processors;
        self
    }

    /// How much memory it has; 0 when nobody counts.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// How much of a named resource it has.
    #[must_use]
    pub fn resource(mut self, name: impl Into<String>, amount: u64) -> Self {
        self.resources.push((name.into(), amount));
        self
    }

    /// The rack or zone it stands in.
    #[must_use]
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = Some(zone.into());
        self
    }

    /// It holds this data already. May be called several times.
    #[must_use]
    pub fn holds(mut self, data: impl Into<String>) -> Self {
        self.holds.push(data.into());
        self
    }

    /// Its silence means that it is gone: it must call
    /// [`Scheduler::heartbeat`](crate::Scheduler::heartbeat).
    #[must_use]
    pub fn heartbeats(mut self) -> Self {
        self.heartbeats = true;
        self
    }
}

impl From<&str> for Agent {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// What the tasks of one submission have in common.
///
/// The library's rule is to refuse a task that no registered agent can do, so that the caller
/// knows at once; [`Job::hold`] keeps it until an agent arrives.
#[derive(Clone, Debug, Default)]
pub struct Job {
    pub(crate) user: Option<String>,
    pub(crate) dependency_failure: DependencyFailure,
    pub(crate) hold: bool,
    pub(crate) onto: Option<String>,
}

impl Job {
    /// A job with nothing special.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whose share of the fleet it counts against.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Tasks that lost a dependency are cancelled instead of failed.
    #[must_use]
    pub fn skip_dependents(mut self) -> Self {
        self.dependency_failure = DependencyFailure::Skip;
        self
    }

    /// Tasks that no registered agent can do are held until one arrives.
    #[must_use]
    pub fn hold(mut self) -> Self {
        self.hold = true;
        self
    }

    /// Every task goes on this agent's queue, instead of the one that the scheduler would choose.
    /// It may still be stolen from there.
    #[must_use]
    pub fn onto(mut self, agent: impl Into<String>) -> Self {
        self.onto = Some(agent.into());
        self
    }
}

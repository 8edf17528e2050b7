//! What a client asks for.

use std::collections::BTreeMap;

use loxley_model::{DependencyFailure, JobId, JobState, Priority, Rerun, TaskId, Unplaceable};
use loxley_template::{Template, TemplateError};
use serde::{Deserialize, Serialize};

use crate::{Blob, Role, TaskState};

/// Work to be done: one task, an array, or a graph of both.
///
/// The tasks of a job get consecutive ids, in the order in which they stand here; an array with
/// 1,000 entries gets 1,000 ids. All of a job is accepted, or none of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct JobRequest {
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For whom it counts where users have shares; the user of the token when absent. Only an admin may
    /// name another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Chosen by the client, different for each job: a second request with the same key is answered
    /// with the job of the first one, so that a request whose answer got lost can be sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Jobs that must have succeeded before this one may start. When one of them fails, this one does
    /// what `on_dependency_failure` says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<u64>))]
    pub after: Vec<JobId>,
    /// What becomes of a task when one that it depends on does not succeed.
    #[serde(default)]
    pub on_dependency_failure: DependencyFailure,
    /// What becomes of a task that no agent can do.
    #[serde(default)]
    pub when_unplaceable: Unplaceable,
    /// How many tasks of a group may run at once in the whole fleet. Set by the job, stays after it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, u32>,
    /// Whether more entries may be added to its arrays, until it is closed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub open: bool,
    /// Tasks that are done already, by their number in the job from 1: they count as succeeded and do not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<Numbers>,
    /// To which trace of OpenTelemetry it belongs, as W3C's Trace Context writes it; the header `traceparent` of the
    /// request when absent. Commands find it as TRACEPARENT in their environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// At least one.
    pub tasks: Vec<TaskRequest>,
}

/// Numbers from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Numbers {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

/// Entries for an array of a job that is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ExtendRequest {
    /// The name of the array; the first array of the job when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// What to do it for.
    pub entries: Entries,
    /// How long each is expected to run on an agent of speed 1; as the job says when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_sec: Option<f64>,
}

/// A task, or with `entries` as many tasks as there are entries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskRequest {
    /// What other tasks of the job call it, and people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What to do.
    pub run: Work,
    /// What kind of work it is. How long tasks take, and how good and fast agents are at them, is learned of each kind.
    /// Absent: tasks with the same command, before an entry is put in, or the same function, are of one kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Do it once for each of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<Entries>,
    /// Names of tasks of this job that must succeed first; all entries of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// Names of arrays of this job with as many entries: each entry waits for the one in the same place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on_each: Vec<String>,
    /// Numbers of tasks of earlier jobs that must succeed first. Of an array of more than 1,000 tasks
    /// the server may not know the later ones yet: then it refuses the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<u64>))]
    pub depends_on_tasks: Vec<TaskId>,
    /// What an agent must be able to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// 1 to 5, 5 the most urgent.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = u8, minimum = 1, maximum = 5))]
    pub priority: Priority,
    /// How long it is expected to run on an agent of speed 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_sec: Option<f64>,
    /// When it should be done, counted from the moment the job is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_sec: Option<f64>,
    /// What it needs while it runs.
    #[serde(default, skip_serializing_if = "Needs::is_empty")]
    pub needs: Needs,
    /// The group whose limit it counts against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// How long one attempt may run. Then its process group gets TERM, and KILL after a grace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_sec: Option<f64>,
    /// How long it may wait for an agent that can do it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_limit_sec: Option<f64>,
    /// When and how often it is tried again.
    #[serde(default, skip_serializing_if = "RetryRequest::is_never")]
    pub retry: RetryRequest,
    /// Whether a second copy may run elsewhere when this one is slow.
    #[serde(default, skip_serializing_if = "is_false")]
    pub speculate: bool,
    /// What becomes of it when its agent is lost.
    #[serde(default, skip_serializing_if = "may_run_again")]
    pub rerun: Rerun,
    /// Whether it saves checkpoints (`LOXLEY_CHECKPOINT`) and can go on from one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub checkpoints: bool,
    /// What stands in for it when its time limit passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackRequest>,
    /// The data it wants to be near.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<Near>,
    /// What becomes of its output.
    #[serde(default, skip_serializing_if = "OutputRule::is_default")]
    pub output: OutputRule,
}

impl TaskRequest {
    /// One task of it, as whoever only runs it has to know it: without its entries, and without those that it waits for.
    #[must_use]
    pub fn alone(&self) -> Self {
        Self {
            name: self.name.clone(),
            run: self.run.clone(),
            kind: self.kind.clone(),
            entries: None,
            depends_on: Vec::new(),
            depends_on_each: Vec::new(),
            depends_on_tasks: Vec::new(),
            skills: self.skills.clone(),
            priority: self.priority,
            cost_sec: self.cost_sec,
            deadline_sec: self.deadline_sec,
            needs: self.needs.clone(),
            group: self.group.clone(),
            time_limit_sec: self.time_limit_sec,
            hold_limit_sec: self.hold_limit_sec,
            retry: self.retry,
            speculate: self.speculate,
            rerun: self.rerun,
            checkpoints: self.checkpoints,
            fallback: None,
            near: self.near.clone(),
            output: self.output.clone(),
        }
    }

    /// A task with nothing special.
    #[must_use]
    pub fn new(run: Work) -> Self {
        Self {
            name: None,
            run,
            kind: None,
            entries: None,
            depends_on: Vec::new(),
            depends_on_each: Vec::new(),
            depends_on_tasks: Vec::new(),
            skills: Vec::new(),
            priority: Priority::NORMAL,
            cost_sec: None,
            deadline_sec: None,
            needs: Needs::default(),
            group: None,
            time_limit_sec: None,
            hold_limit_sec: None,
            retry: RetryRequest::default(),
            speculate: false,
            rerun: Rerun::default(),
            checkpoints: false,
            fallback: None,
            near: None,
            output: OutputRule::default(),
        }
    }

    /// How many tasks it stands for.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.entries.as_ref().map_or(1, Entries::count)
    }
}

/// What a task does: a command, or a function that agents registered by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Start a process.
    Command(CommandRequest),
    /// Call a function of an agent program.
    Function(FunctionRequest),
}

/// A process to start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CommandRequest {
    /// The program and its arguments, exactly as they are, unless there is a `shell`. In a task with entries,
    /// `{}` stands for the entry, `{.}`, `{/}`, `{//}` and `{/.}` for its parts as of a path, `{#}` for its number
    /// from 1, and `{%}` for the number of the slot that runs it; in any other task braces mean themselves. A byte
    /// that is no text is the character U+10FF00 plus its value: U+10FFE9 for the byte 0xE9.
    pub words: Vec<String>,
    /// The shell that reads the words, joined by blanks, as a line. The entry arrives as exactly its own bytes,
    /// wherever it stands in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Added to the environment of the agent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Where it runs, on the agent; the agent's own directory when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

impl CommandRequest {
    /// The command, ready to be filled, of an array or of a task of its own.
    ///
    /// # Errors
    /// When a placeholder stands where it cannot be filled.
    pub fn template(&self, is_array: bool) -> Result<Template, TemplateError> {
        Template::of_task(&self.words, self.shell.as_deref(), is_array)
    }
}

/// A function to call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FunctionRequest {
    /// Under which name agents registered it.
    pub name: String,
    /// What it gets. In a task with entries, the bytes of the entry are added at the end.
    #[serde(default)]
    pub input: Blob,
}

/// One task for each of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Entries {
    /// Numbers, both ends included.
    Range {
        /// The first.
        first: u64,
        /// The last at most.
        last: u64,
        /// From one to the next.
        #[serde(default = "one")]
        step: u64,
    },
    /// Texts, such as the lines of a file; bytes that are no text as in `words`.
    Lines(Vec<String>),
}

impl Entries {
    /// How many there are; none in a range that makes no sense.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self {
            Self::Range { first, last, step } => match last.checked_sub(*first) {
                Some(distance) if *step > 0 => (distance / step).saturating_add(1),
                _ => 0,
            },
            Self::Lines(lines) => lines.len() as u64,
        }
    }

    /// The text of an entry, counted from 0.
    #[must_use]
    pub fn text(&self, index: u64) -> Option<String> {
        match self {
            Self::Range { first, step, .. } => {
                (index < self.count()).then(|| (first + index * step).to_string())
            }
            Self::Lines(lines) => lines.get(usize::try_from(index).ok()?).cloned(),
        }
    }
}

/// What a task needs while it runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Needs {
    /// Processors; parts are fine.
    #[serde(default)]
    pub cpus: f64,
    /// Memory. Enforced on the agent where the system allows.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Everything else, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub named: BTreeMap<String, u64>,
}

impl Needs {
    /// Whether nothing is needed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cpus == 0.0 && self.memory_bytes == 0 && self.named.is_empty()
    }
}

/// When and how often a task that failed is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RetryRequest {
    /// How often after the first failure.
    #[serde(default)]
    pub retries: u32,
    /// The first pause; it doubles from one attempt to the next.
    #[serde(default = "RetryRequest::default_base")]
    pub base_sec: f64,
    /// The longest pause.
    #[serde(default = "RetryRequest::default_cap")]
    pub cap_sec: f64,
}

impl RetryRequest {
    const fn default_base() -> f64 {
        0.1
    }

    const fn default_cap() -> f64 {
        30.0
    }

    fn is_never(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for RetryRequest {
    fn default() -> Self {
        Self {
            retries: 0,
            base_sec: Self::default_base(),
            cap_sec: Self::default_cap(),
        }
    }
}

/// What stands in for a task whose time limit passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FallbackRequest {
    /// This result.
    Value(Blob),
    /// Another task of the job, by name, which runs only then; of an array, one with as many entries.
    Task(String),
}

/// Near which data a task should run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Near {
    /// The name of the data.
    pub data: String,
    /// How long it takes to bring it to an agent that lacks it.
    #[serde(default)]
    pub transfer_sec: f64,
}

/// What becomes of a task's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OutputRule {
    /// The server keeps so much of the end of each stream.
    #[serde(default = "OutputRule::default_keep")]
    pub keep_bytes: u32,
    /// The agent also writes the whole output to `TASK.out` and `TASK.err` in this directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

impl OutputRule {
    const fn default_keep() -> u32 {
        64 << 10
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for OutputRule {
    fn default() -> Self {
        Self {
            keep_bytes: Self::default_keep(),
            directory: None,
        }
    }
}

/// A skill that an agent earned and shall not have any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RevokeRequest {
    /// The skill.
    pub skill: String,
}

/// How much a server logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LogRequest {
    /// A level (error, warn, info, debug, trace), or levels for parts: `info,loxley_server=debug`.
    pub log: String,
}

/// Where a server sends the traces of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TracesRequest {
    /// A collector of OpenTelemetry that speaks gRPC: `https://collector.example.org:4317`. Nowhere, when absent.
    #[serde(default)]
    pub collector: Option<String>,
}

/// Which jobs of a list are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub struct JobFilter {
    /// In this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    /// With this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of this user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// With this text in the name or the user, whatever the case, or with this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// With a smaller id than this: the `next` of the page before. Newest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// At most so many; 100 when absent, 1,000 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Which tasks of a job are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub struct TaskFilter {
    /// In this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<TaskState>,
    /// With this id or a larger one: the `next` of the page before. Smallest id first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// At most so many; 100 when absent, 1,000 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// A new configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ConfigRequest {
    /// The whole file, as `loxley config check` reads it.
    pub yaml: String,
}

/// A token to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// What it is called; each name once.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// For whom its jobs count; the name when absent. Several tokens may count for one user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl TokenRequest {
    /// A token whose jobs count for its own name.
    #[must_use]
    pub fn new(name: &str, role: Role) -> Self {
        Self {
            name: name.to_owned(),
            role,
            user: None,
        }
    }
}

const fn one() -> u64 {
    1
}

fn may_run_again(rerun: &Rerun) -> bool {
    *rerun == Rerun::OnLoss
}

fn is_false(value: &bool) -> bool {
    !value
}

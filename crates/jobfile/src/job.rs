//! What a job file says.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use loxley_agent::{Template, TemplateError};
use loxley_model::{DependencyFailure, Priority, RetryRule, Span};
use loxley_policy::Config;

use crate::entries::Entries;

/// A whole file.
#[derive(Clone, Debug)]
pub struct JobFile {
    /// What the job is called.
    pub name: Option<String>,
    /// What a failed dependency does to its dependents.
    pub dependency_failure: DependencyFailure,
    /// How many tasks of a group may run at once.
    pub limits: BTreeMap<String, u32>,
    /// Who runs the tasks of a local run. Empty: whoever is there.
    pub agents: Vec<AgentDef>,
    /// How the scheduler of a local run decides, if the file says so.
    pub config: Option<Config>,
    /// What to run, in the order of the file.
    pub tasks: Vec<TaskDef>,
}

impl JobFile {
    /// How many tasks there are, every entry counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.tasks.iter().map(TaskDef::count).sum()
    }
}

/// An agent of a local run.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentDef {
    /// What it is called.
    pub name: String,
    /// What it can do.
    pub skills: Vec<String>,
    /// How many tasks it runs at once.
    pub slots: u32,
    /// Its speed as it claims; 1 runs a task in its expected cost.
    pub speed: f64,
    /// What it has. See [`Resources`](loxley_model::Resources) for what zero means.
    pub has: Needs,
}

/// A task, or an array of them.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskDef {
    /// What it is called; no two tasks of a file share a name.
    pub name: String,
    /// What to run.
    pub command: Line,
    /// What an array runs for; none for a single task.
    pub entries: Option<Entries>,
    /// The tasks that must succeed first, every entry of them, as places in [`JobFile::tasks`].
    pub after: Vec<usize>,
    /// Arrays of the same length: each entry waits for the entry in the same place.
    pub after_each: Vec<usize>,
    /// What stands in when the time limit passes.
    pub fallback: Option<FallbackDef>,
    /// Everything that `defaults` may say too.
    pub traits: Traits,
}

impl TaskDef {
    /// How many tasks it stands for.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.entries.as_ref().map_or(1, Entries::count)
    }

    /// The command, ready to be filled. An array has one list of items, its entries; in a task of
    /// its own, braces mean themselves.
    pub fn template(&self) -> Result<Template, TemplateError> {
        self.command
            .template(self.entries.is_some(), &self.traits.shell)
    }
}

/// A command as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line for the shell.
    Shell(String),
    /// A program and its arguments: no shell.
    Words(Vec<String>),
}

impl Line {
    pub(crate) fn template(
        &self,
        has_entries: bool,
        shell: &str,
    ) -> Result<Template, TemplateError> {
        let words = |words: &[String]| -> Vec<OsString> { words.iter().map(Into::into).collect() };
        match (self, has_entries) {
            (Self::Shell(line), true) => {
                Template::parse(&[line.into()], 1, false, OsStr::new(shell))
            }
            (Self::Shell(line), false) => {
                Ok(Template::plain_line(OsStr::new(line), OsStr::new(shell)))
            }
            (Self::Words(list), true) => Template::parse_words(&words(list), 1, false),
            (Self::Words(list), false) => Ok(Template::plain_words(&words(list))),
        }
    }
}

/// What stands in for a task that ran into its time limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FallbackDef {
    /// This text, as if the task had written it.
    Value(String),
    /// Another task of the file, as its place in [`JobFile::tasks`]; it runs only if it is needed.
    Task(usize),
}

/// What a task may say and `defaults` may say for all.
#[derive(Clone, Debug, PartialEq)]
pub struct Traits {
    /// The skills it asks for.
    pub skills: Vec<String>,
    /// How urgent it is.
    pub priority: Priority,
    /// When it should be done, counted from the submission.
    pub deadline: Option<Span>,
    /// How long it is expected to run on an agent of speed 1.
    pub cost: Option<Span>,
    /// What it needs while it runs.
    pub needs: Needs,
    /// The group whose limit it counts against.
    pub group: Option<String>,
    /// When and how often to try again.
    pub retry: RetryRule,
    /// How long one attempt may run.
    pub time_limit: Option<Span>,
    /// How long it may wait for an agent that can do it.
    pub hold_limit: Option<Span>,
    /// Whether it keeps its state in the file that `LOXLEY_CHECKPOINT` names.
    pub checkpoint: bool,
    /// Whether a second copy may run elsewhere.
    pub speculate: bool,
    /// Added to its environment.
    pub environment: BTreeMap<String, String>,
    /// Where it runs. A relative path starts at the directory of the file.
    pub directory: Option<PathBuf>,
    /// The shell for lines that need one.
    pub shell: String,
}

impl Default for Traits {
    fn default() -> Self {
        Self {
            skills: Vec::new(),
            priority: Priority::NORMAL,
            deadline: None,
            cost: None,
            needs: Needs::default(),
            group: None,
            retry: RetryRule::default(),
            time_limit: None,
            hold_limit: None,
            checkpoint: false,
            speculate: false,
            environment: BTreeMap::new(),
            directory: None,
            shell: "/bin/sh".to_owned(),
        }
    }
}

/// Amounts of processor, memory and named resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Processors, in thousandths.
    pub cpu_milli: u64,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Everything else, by name.
    pub named: BTreeMap<String, u64>,
}

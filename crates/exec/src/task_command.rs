//! What a task runs: what it has in common with its like, what fills it, and what it finds around it.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use loxley_model::{Lease, Priority, TaskId};
use loxley_template::{Filling, Template};

use crate::checkpoint::Checkpoint;
use crate::command::{Command, Input, Limits, Streams};
use crate::output::LineWriter;

/// The longest entry that a task is told of: the system takes 128 KiB as one variable, its name included.
const ENTRY_BYTES_MAX: usize = (128 << 10) - "LOXLEY_ENTRY=\0".len();

/// What tasks that are alike have in common.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// What `LOXLEY_JOB_ID` says.
    pub job: u64,
    /// What to do.
    pub work: Work,
    /// Added to the environment, beside the variables of Loxley.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it runs; where we are when none is given.
    pub directory: Option<PathBuf>,
    /// What it may use.
    pub limits: Limits,
    /// Whether it saves states from which it can go on.
    pub checkpoints: bool,
    /// Whether it finds `PARALLEL_SEQ` and `PARALLEL_JOBSLOT` too, as a task of GNU parallel does.
    pub as_in_parallel: bool,
    /// What becomes of its output.
    pub output: OutputRule,
    /// How late the end of a short one that succeeded may be told of while there is enough other work, so that
    /// many are told of at once; none where other tasks wait for it.
    pub hold: Duration,
    /// What is more urgent starts first, of all that waits at the agent.
    pub priority: Priority,
}

/// What a task does.
#[derive(Clone, Debug)]
pub enum Work {
    /// Start a process.
    Command {
        /// Its command.
        template: Template,
        /// Where its output goes.
        streams: Streams,
    },
    /// Call a function that was registered by name.
    Function {
        /// Its name.
        name: String,
        /// What it gets, in front of the entry.
        input: Bytes,
    },
}

/// What becomes of the output of a task that is captured.
#[derive(Clone, Debug)]
pub struct OutputRule {
    /// How much of it is kept.
    pub keep: Keep,
    /// Where the whole of it is written, too: `TASK.out` and `TASK.err`.
    pub directory: Option<PathBuf>,
    /// Whether it is shown while the task runs.
    pub live: bool,
    /// Takes each line as soon as it is whole. What it took is not kept.
    pub lines: Option<Arc<dyn LineWriter>>,
}

/// How much of an output is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All of it.
    Whole,
    /// So many bytes of the end of each stream.
    Tail(usize),
}

/// What a task is: its recipe and what fills it.
#[derive(Clone, Debug)]
pub struct TaskCommand {
    /// What it has in common with others.
    pub recipe: Arc<Recipe>,
    /// What stands for the placeholders: its entry, or an item of each list. None for a task that is no array.
    pub items: Box<[OsString]>,
    /// What `{#}` stands for.
    pub sequence: u64,
    /// What it reads; nothing when none is given.
    pub input: Option<Input>,
}

/// A task that an agent is to run, under a lease.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The task.
    pub task: TaskId,
    /// Under which number everything is said about this attempt.
    pub lease: Lease,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// What to run.
    pub command: Arc<TaskCommand>,
    /// How it goes on from an earlier attempt.
    pub checkpoint: Checkpoint,
}

impl TaskCommand {
    /// What fills the template, on the slot with this number (from 0).
    fn filling(&self, slot: Option<usize>) -> Filling<'_> {
        Filling {
            items: &self.items,
            sequence: self.sequence,
            slot: slot.map(|slot| slot + 1),
        }
    }

    /// The command as people read it; of one that has run, on which slot.
    #[must_use]
    pub fn line(&self, slot: Option<usize>) -> OsString {
        match &self.recipe.work {
            Work::Command { template, .. } => template.line(&self.filling(slot)),
            Work::Function { name, .. } => name.into(),
        }
    }

    /// What `LOXLEY_ENTRY` says.
    fn entry(&self) -> Option<OsString> {
        (!self.items.is_empty()).then(|| self.items.join(OsStr::new(" ")))
    }
}

impl Assignment {
    /// What to start on the slot with this number (from 0), with everything that a task finds around it. This
    /// is the one place that says what its environment is.
    pub(crate) fn command(
        &self,
        template: &Template,
        streams: Streams,
        slot: usize,
        checkpoint: Option<PathBuf>,
    ) -> Command {
        let recipe = &self.command.recipe;
        let mut words = template
            .words(&self.command.filling(Some(slot)))
            .into_iter();
        let mut environment = Vec::with_capacity(recipe.environment.len() + 6);
        environment.extend_from_slice(&recipe.environment);
        let mut set = |name: &str, value: OsString| environment.push((name.into(), value));
        for (name, number) in [
            ("LOXLEY_JOB_ID", recipe.job),
            ("LOXLEY_TASK_ID", self.task.0),
            ("LOXLEY_ATTEMPT", self.attempt.into()),
            ("LOXLEY_SLOT", slot as u64 + 1),
        ] {
            set(name, number.to_string().into());
        }
        if recipe.as_in_parallel {
            set("PARALLEL_SEQ", self.command.sequence.to_string().into());
            set("PARALLEL_JOBSLOT", (slot + 1).to_string().into());
        }
        if let Some(entry) = self.command.entry()
            && entry.len() <= ENTRY_BYTES_MAX
        {
            set("LOXLEY_ENTRY", entry);
        }
        if let Some(path) = checkpoint {
            set("LOXLEY_CHECKPOINT", path.into());
        }
        Command {
            program: words.next().unwrap_or_default(),
            arguments: words.collect(),
            environment,
            directory: recipe.directory.clone(),
            input: self.command.input.clone(),
            streams,
            limits: recipe.limits,
            ..Command::default()
        }
    }
}

//! What can go wrong at the edge: one small enum for each operation, with the user's own names.

use loxley_model::{Lease, NameError};

use crate::task::{Name, TaskKey, TaskRef};

/// A submission was refused whole, and nothing changed. Everything that is wrong is listed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("submission refused: {}", list(.problems))]
pub struct SubmitError {
    /// What is wrong, at least one thing.
    pub problems: Vec<SubmitProblem>,
}

impl SubmitError {
    pub(crate) fn of(problem: SubmitProblem) -> Self {
        Self {
            problems: vec![problem],
        }
    }

    /// The first thing that is wrong.
    #[must_use]
    pub fn first(&self) -> &SubmitProblem {
        &self.problems[0]
    }
}

fn list(problems: &[SubmitProblem]) -> String {
    let words: Vec<String> = problems.iter().map(ToString::to_string).collect();
    words.join("; ")
}

/// One thing that is wrong with a submission.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitProblem {
    /// The name is taken, or was once.
    #[error("{0} was submitted before")]
    Duplicate(TaskRef),
    /// A name that cannot be one: empty, too long, or with control characters.
    #[error("{task}: {source}")]
    BadName {
        /// The task.
        task: TaskRef,
        /// What is wrong with the name.
        source: NameError,
    },
    /// The user's or agent's name of the job cannot be one.
    #[error("the job: {0}")]
    BadJobName(NameError),
    /// A priority that is not between 1 and 5.
    #[error("{task}: priority {level} is not between 1 (lowest) and 5 (highest)")]
    BadPriority {
        /// The task.
        task: TaskRef,
        /// What it asked for.
        level: u8,
    },
    /// A cost that is negative, not a number, or too large to count.
    #[error("{task}: an expected cost of {secs} s is not a length of time")]
    BadCost {
        /// The task.
        task: TaskRef,
        /// What was said.
        secs: f64,
    },
    /// A number of processors that is negative or not a number.
    #[error("{task}: {processors} is not a number of processors")]
    BadCpu {
        /// The task.
        task: TaskRef,
        /// What was said.
        processors: f64,
    },
    /// Nobody knows this dependency.
    #[error("{task} depends on {dependency}, which nobody submitted")]
    UnknownDependency {
        /// The task.
        task: TaskRef,
        /// What it asks for.
        dependency: TaskKey,
    },
    /// A dependency is over without success.
    #[error("{task} depends on {dependency}, which did not succeed")]
    FailedDependency {
        /// The task.
        task: TaskRef,
        /// What it asks for.
        dependency: TaskRef,
    },
    /// The tasks wait for each other in a circle.
    #[error("the tasks wait for each other in a circle: {}", circle(.0))]
    Cycle(Vec<TaskRef>),
    /// The deadline has already passed.
    #[error("the deadline of {0} has already passed")]
    DeadlinePassed(TaskRef),
    /// The fallback is not another task of the same batch, or stands in for another one.
    #[error("the fallback of {task} is {fallback}, which is not a task of this batch of its own")]
    BadFallback {
        /// The task.
        task: TaskRef,
        /// What should stand in.
        fallback: TaskKey,
    },
    /// No registered agent can do it.
    #[error("no registered agent can do {0}")]
    NoCapableAgent(TaskRef),
    /// The agent that was named cannot do it, or is not registered.
    #[error("agent `{agent}` is not registered or cannot do {task}")]
    NotCapable {
        /// The task.
        task: TaskRef,
        /// The agent that was named.
        agent: Name,
    },
    /// A batch without a task.
    #[error("a batch without a task")]
    Empty,
    /// The scheduler was stopped.
    #[error("the scheduler was stopped")]
    Stopped,
}

fn circle(tasks: &[TaskRef]) -> String {
    let mut words: Vec<String> = tasks.iter().map(ToString::to_string).collect();
    words.extend(words.first().cloned());
    words.join(" -> ")
}

/// An agent could not be registered, or what was said of it made no sense. Nothing changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A name that cannot be one.
    #[error(transparent)]
    BadName(#[from] NameError),
    /// An agent must have at least one slot.
    #[error("agent `{0}` has no slot")]
    NoSlots(Name),
    /// A speed must be a positive number.
    #[error("agent `{0}` has a speed that is not a positive number")]
    BadSpeed(Name),
    /// A number of processors that is negative or not a number.
    #[error("agent `{0}` has a number of processors that is not one")]
    BadCpu(Name),
    /// A throttle is between 0 and 1.
    #[error("agent `{0}` reported a throttle that is not between 0 and 1")]
    BadThrottle(Name),
    /// The agent is not registered, or not any more.
    #[error("agent `{0}` is not registered")]
    NotRegistered(Name),
    /// An agent of this name is already there (a fleet has one thread per slot).
    #[error("agent `{0}` is already there")]
    AlreadyThere(Name),
    /// The scheduler was stopped.
    #[error("the scheduler was stopped")]
    Stopped,
}

/// An agent that asked for work cannot get any.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The agent is not registered, or not any more.
    #[error("agent `{0}` is not registered")]
    NotRegistered(Name),
    /// The scheduler was stopped.
    #[error("the scheduler was stopped")]
    Stopped,
}

/// An answer came too late: its lease is no longer in force, so it was dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{lease} of {task} is no longer in force; the answer was dropped")]
pub struct StaleLease {
    /// The task.
    pub task: TaskRef,
    /// The lease that was named.
    pub lease: Lease,
}

/// The task is not known, or already over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is unknown or already over")]
pub struct UnknownTask(pub TaskKey);

/// A limit or a weight that makes no sense. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// A name that cannot be one.
    #[error(transparent)]
    BadName(#[from] NameError),
    /// Limits and weights are at least 1.
    #[error("a limit or weight of 0 for `{0}`")]
    Zero(Name),
}

/// A task cannot be taken off the dead-letter list, because it is not on it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not on the dead-letter list")]
pub struct NotDeadLettered(pub TaskKey);

/// A configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It could not be read.
    #[error("cannot read {name}")]
    Read {
        /// The file.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// It has mistakes; all of them are listed, with their lines.
    #[error("{0}")]
    Mistakes(loxley_config::Mistakes),
}

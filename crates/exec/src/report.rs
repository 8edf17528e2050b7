//! What an agent tells of its tasks.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use loxley_model::{Failure, Lease, Outcome, TaskId};

use crate::ended::{Ended, Stopped};
use crate::functions::FunctionError;
use crate::output::Captured;
use crate::slot::StartError;

/// What happened since the last time somebody asked.
#[derive(Debug, Default)]
pub struct Reports {
    /// Tasks that run and are not short. Of a short one only its end is told.
    pub started: Vec<Started>,
    /// Attempts that are over.
    pub ended: Vec<End>,
    /// Answers to retractions that took their time.
    pub yielded: Vec<Yielded>,
    /// States that running tasks saved.
    pub saved: Vec<SavedState>,
    /// Output of tasks that still run.
    pub shown: Vec<ShownOutput>,
    /// How many slots will say nothing more.
    pub closed_slots: usize,
}

impl Reports {
    /// Whether nothing happened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.started.is_empty()
            && self.ended.is_empty()
            && self.yielded.is_empty()
            && self.saved.is_empty()
            && self.shown.is_empty()
            && self.closed_slots == 0
    }
}

/// A task runs.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    /// The task.
    pub task: TaskId,
    /// Its lease.
    pub lease: Lease,
    /// On which slot, from 0.
    pub slot: usize,
    /// Since when.
    pub at: Instant,
}

/// The end of one attempt at a task.
#[derive(Debug)]
pub struct End {
    /// The task.
    pub task: TaskId,
    /// Its lease.
    pub lease: Lease,
    /// On which slot it ran, from 0.
    pub slot: usize,
    /// Which attempt it was, from 1.
    pub attempt: u32,
    /// When it began.
    pub begun: Instant,
    /// When it began, by the clock on the wall.
    pub started: SystemTime,
    /// When it was over.
    pub at: Instant,
    /// How it ended.
    pub ran: Ran,
    /// What it wrote.
    pub output: Captured,
    /// What it was to be limited to, for words about it.
    pub memory_limit: Option<u64>,
    /// Whether its agent gave it up: that is no fault of the task.
    pub given_up: bool,
    /// Whether it stays what it is, though the agent is to blame: nobody else could do better.
    pub(crate) is_final: bool,
}

/// A task did not run because the system refused its agent something: the fault of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentsFault {
    /// It had not begun.
    NotBegun,
    /// It had, and was killed for it.
    Begun,
}

/// How an attempt ended.
#[derive(Debug)]
pub enum Ran {
    /// As a process.
    Process(Result<Ended, StartError>),
    /// As a function, with what it returned.
    Function(Result<Vec<u8>, FunctionError>),
}

impl End {
    /// What it means to whoever decides. What is not there now may be there the next time, or elsewhere: a
    /// program that cannot be started is a failure like any other.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match &self.ran {
            _ if self.given_up => Outcome::Failed(Failure::AgentLost),
            Ran::Process(Ok(ended)) if ended.success() => Outcome::Succeeded,
            Ran::Process(Ok(ended)) if ended.stopped == Some(Stopped::TimeLimit) => {
                Outcome::Failed(Failure::TimeLimit)
            }
            Ran::Function(Ok(_)) => Outcome::Succeeded,
            Ran::Function(Err(error)) if error.permanent => Outcome::Failed(Failure::Permanent),
            _ => Outcome::Failed(Failure::Error),
        }
    }

    /// How long it ran.
    #[must_use]
    pub fn duration(&self) -> Duration {
        match &self.ran {
            Ran::Process(Ok(ended)) => ended.duration,
            Ran::Process(Err(_)) => Duration::ZERO,
            Ran::Function(_) => self.at - self.begun,
        }
    }

    /// Whether it was ended by us because somebody asked for that.
    #[must_use]
    pub fn was_killed(&self) -> bool {
        matches!(&self.ran, Ran::Process(Ok(ended)) if ended.stopped == Some(Stopped::Killed))
    }

    /// Whether the agent is to blame that it did not run.
    pub(crate) fn agents_fault(&self) -> Option<AgentsFault> {
        match &self.ran {
            Ran::Process(Err(error)) if !self.is_final => error.agents_fault(),
            _ => None,
        }
    }

    /// Whether it failed, and not because we ended it: somebody else killed it, or its children, and a shell that
    /// loses a child ends with a code of its own.
    #[must_use]
    pub fn failed_unasked(&self) -> bool {
        matches!(&self.ran, Ran::Process(Ok(ended)) if !ended.success() && ended.stopped.is_none())
    }

    /// What an exit code does not say; empty when that says all.
    #[must_use]
    pub fn message(&self) -> String {
        match (&self.ran, self.memory_limit) {
            _ if self.given_up => "its agent gave it up".to_owned(),
            (Ran::Process(Err(error)), _) => error.in_words(),
            (Ran::Process(Ok(ended)), Some(limit))
                if ended.stopped == Some(Stopped::MemoryLimit) =>
            {
                format!("out of memory (limit {})", in_units(limit))
            }
            (Ran::Function(Err(error)), _) => error.message.clone(),
            _ => String::new(),
        }
    }

    /// About how many bytes it takes to tell of it.
    #[must_use]
    pub fn size(&self) -> usize {
        let result = match &self.ran {
            Ran::Function(Ok(result)) => result.len(),
            _ => 0,
        };
        64 + result + self.output.kept_bytes()
    }
}

/// Bytes in the largest unit that gives a whole number.
fn in_units(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let steps = (bytes.trailing_zeros() / 10).min(4);
    format!("{} {}", bytes >> (10 * steps), units[steps as usize])
}

/// The answer to a retraction.
#[derive(Clone, Copy, Debug)]
pub struct Yielded {
    /// The task.
    pub task: TaskId,
    /// Its lease.
    pub lease: Lease,
}

/// A state that a running task saved.
#[derive(Clone, Debug)]
pub struct SavedState {
    /// The task.
    pub task: TaskId,
    /// Its lease.
    pub lease: Lease,
    /// The state.
    pub state: Bytes,
}

/// A piece of output of a task that still runs.
#[derive(Clone, Debug)]
pub struct ShownOutput {
    /// The task.
    pub task: TaskId,
    /// Its lease.
    pub lease: Lease,
    /// What it wrote to standard output.
    pub stdout: Bytes,
    /// What it wrote to standard error.
    pub stderr: Bytes,
}

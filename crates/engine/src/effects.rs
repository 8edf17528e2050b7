//! What follows from facts. Nothing of it leaves before the facts are on disk.

use bytes::Bytes;
use loxley_api::{EventKind, JobInfo};
use loxley_driver::IdMap;
use loxley_journal::{Rows, Usage};
use loxley_model::{AgentId, Lease, Span, TaskId, Time};
use loxley_policy::{Action, Reason};
use serde::{Deserialize, Serialize};

use crate::jobs::Spot;
use crate::task_steps::{TaskStep, TaskStepKind};

/// What an agent is to do.
#[derive(Debug, Default)]
pub struct Orders {
    /// Tasks that it is given.
    pub assign: Vec<Assignment>,
    /// Tasks that it is asked to give back.
    pub retract: Vec<Retraction>,
    /// Leases that are void: what runs under them is to end, and nobody wants to hear how.
    pub cancel: Vec<Lease>,
    /// What is to end, and is over when the agent says that nothing is left of it.
    pub stop: Vec<(TaskId, Lease)>,
}

/// A task that an agent is given.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The task.
    pub task: TaskId,
    /// The number of this assignment; every answer names it.
    pub lease: Lease,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The first task of its part: [`Engine::part`](crate::Engine::part) knows what to do.
    pub part: TaskId,
    /// Its place within the part, from 0.
    pub position: u64,
    /// The text of its entry, in an array.
    pub entry: Option<String>,
    /// Where an earlier attempt left off.
    pub checkpoint: Option<Bytes>,
    /// Why this agent.
    pub reason: Reason,
}

/// A task that an agent is asked to give back.
#[derive(Clone, Copy, Debug)]
pub struct Retraction {
    /// The task.
    pub task: TaskId,
    /// Under which lease.
    pub lease: Lease,
    /// Whether it may be running: then it saves a checkpoint, stops and yields.
    pub running: bool,
}

/// What is written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Records {
    /// Facts and history.
    Everything,
    /// Nothing: there are orders, events and ends of jobs, and that is all.
    Nothing,
    /// It was written long ago: a journal is replayed, and nothing is made again.
    #[default]
    OfThePast,
}

/// What the facts of one group lead to.
#[derive(Debug, Default)]
pub struct Effects {
    records: Records,
    /// Whether somebody listens to events.
    pub(crate) wants_events: bool,
    /// What agents are to do.
    pub orders: IdMap<AgentId, Orders>,
    pub(crate) rows: Rows,
    /// What happened, if somebody listens.
    pub events: Vec<EventKind>,
    /// Whether somebody wants to see every decision.
    pub(crate) wants_decisions: bool,
    /// What the core decided, in its order, each with its time, if somebody wants to see.
    pub decisions: Vec<(Time, Action)>,
    /// Whether somebody traces tasks.
    pub(crate) wants_steps: bool,
    /// What tasks and jobs went through, in its order, if somebody traces them.
    pub steps: Vec<TaskStep>,
    /// Jobs that are over.
    pub jobs_over: Vec<JobInfo>,
    /// Agents that the fleet parted with: their connections end.
    pub parted: Vec<AgentId>,
}

impl Effects {
    /// Effects that will be carried out.
    pub(crate) fn new(records: Records) -> Self {
        Self {
            records,
            ..Self::default()
        }
    }

    /// Empty ones, wanted by the same people.
    pub(crate) fn next(&self) -> Self {
        Self {
            records: self.records,
            wants_events: self.wants_events,
            wants_decisions: self.wants_decisions,
            wants_steps: self.wants_steps,
            ..Self::default()
        }
    }

    /// Effects that nobody carries out.
    pub(crate) fn of_the_past() -> Self {
        Self::default()
    }

    /// Effects that nobody carries out, but of which somebody wants to hear.
    pub(crate) fn retold() -> Self {
        Self {
            wants_events: true,
            ..Self::default()
        }
    }

    /// Whether they are carried out.
    pub(crate) fn is_live(&self) -> bool {
        self.records != Records::OfThePast
    }

    /// Whether tasks that failed can be tried again later: not where nothing is kept. A replay books as whoever
    /// wrote the journal.
    pub(crate) fn may_retry(&self) -> bool {
        self.records != Records::Nothing
    }

    /// Whether rows of history are wanted.
    pub(crate) fn keeps_history(&self) -> bool {
        self.records == Records::Everything
    }

    /// What an agent is to do next.
    pub(crate) fn orders(&mut self, agent: AgentId) -> &mut Orders {
        self.orders.entry(agent).or_default()
    }

    pub(crate) fn event(&mut self, event: EventKind) {
        self.event_with(|| event);
    }

    /// As `event`, made only when somebody listens.
    pub(crate) fn event_with(&mut self, event: impl FnOnce() -> EventKind) {
        if self.wants_events {
            self.events.push(event());
        }
    }

    /// Notes a step of a task, made only when somebody traces.
    pub(crate) fn step_with(&mut self, at: Time, step: impl FnOnce() -> TaskStepKind) {
        if self.wants_steps {
            let kind = step();
            self.steps.push(TaskStep { at, kind });
        }
    }

    /// Forgets everything: a group of the past was applied.
    pub(crate) fn clear(&mut self) {
        self.orders.clear();
        self.events.clear();
        self.jobs_over.clear();
        self.parted.clear();
    }

    /// Whether nobody has to hear of the group.
    pub(crate) fn is_empty(&self) -> bool {
        self.orders.is_empty()
            && self.rows.tasks.is_empty()
            && self.rows.jobs.is_empty()
            && self.rows.agents.is_empty()
            && self.rows.letters.is_empty()
            && self.rows.letters_read.is_empty()
            && self.rows.letters_arrived.is_empty()
            && self.events.is_empty()
            && self.decisions.is_empty()
            && self.steps.is_empty()
            && self.jobs_over.is_empty()
            && self.parted.is_empty()
    }
}

/// What an agent says of an attempt beyond its outcome.
#[derive(Clone, Debug, Default)]
pub struct Finish {
    /// The exit code of a command that exited.
    pub exit_code: Option<i32>,
    /// The signal that ended a command.
    pub signal: Option<i32>,
    /// What it used.
    pub usage: Usage,
    /// The end of its output.
    pub stdout: Bytes,
    /// The end of its other output.
    pub stderr: Bytes,
    /// How many earlier bytes are gone.
    pub stdout_dropped: u64,
    /// The same of the other output.
    pub stderr_dropped: u64,
    /// What a function returned.
    pub result: Bytes,
    /// Why it failed, in words.
    pub message: String,
}

/// What the history keeps of an attempt besides its row and its result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) stdout: Bytes,
    pub(crate) stderr: Bytes,
    pub(crate) stdout_dropped: u64,
    pub(crate) stderr_dropped: u64,
    pub(crate) message: String,
    /// The entry of a task that was added to an open job, and to which of its arrays.
    pub(crate) added: Option<(u32, String)>,
}

impl From<Finish> for Kept {
    fn from(finish: Finish) -> Self {
        Self {
            stdout: finish.stdout,
            stderr: finish.stderr,
            stdout_dropped: finish.stdout_dropped,
            stderr_dropped: finish.stderr_dropped,
            message: finish.message,
            added: None,
        }
    }
}

impl Kept {
    /// Whether there is nothing that the row does not say.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn pack(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("memory takes every output")
    }

    pub(crate) fn unpack(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}

/// How long an agent may keep the end of a short task back: hardly, when other tasks of its job wait for it. Of
/// one in a long array nobody waits for this very task.
pub(crate) fn hold(spot: &Spot<'_>) -> Span {
    const MANY: u64 = 256;
    match spot.part.count {
        _ if spot.job.is_graph() => Span::from_millis(2),
        0..MANY => Span::from_millis(10),
        _ => Span::from_millis(40),
    }
}

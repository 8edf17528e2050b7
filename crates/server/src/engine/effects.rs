//! What follows from facts. Nothing of it leaves before the facts are on disk.

use bytes::Bytes;
use loxley_api::{EventKind, JobInfo, Work};
use loxley_journal::{Rows, Usage};
use loxley_model::{AgentId, Span};
use loxley_protocol as wire;
use serde::{Deserialize, Serialize};

use super::ids::IdMap;
use super::jobs::Spot;

/// What the facts of one group lead to.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// False while a journal is replayed: what was written and sent then is not made again.
    live: bool,
    /// Whether somebody listens to events.
    pub(crate) wants_events: bool,
    pub(crate) frames: IdMap<AgentId, wire::ServerFrame>,
    pub(crate) rows: Rows,
    pub(crate) events: Vec<EventKind>,
    pub(crate) jobs_over: Vec<JobInfo>,
    /// Agents that the fleet parted with: their connections end.
    pub(crate) parted: Vec<AgentId>,
    /// The state after the last fact of the group, to be kept.
    pub(crate) snapshot: Option<Vec<u8>>,
}

impl Effects {
    /// Effects that will be carried out.
    pub(crate) fn live() -> Self {
        Self {
            live: true,
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

    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// What goes to an agent next.
    pub(crate) fn frame(&mut self, agent: AgentId) -> &mut wire::ServerFrame {
        self.frames.entry(agent).or_default()
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

    /// Forgets everything: a group of the past was applied.
    pub(crate) fn clear(&mut self) {
        self.frames.clear();
        self.events.clear();
        self.jobs_over.clear();
        self.parted.clear();
    }

    /// Whether nobody has to hear of the group.
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
            && self.rows.tasks.is_empty()
            && self.rows.jobs.is_empty()
            && self.rows.agents.is_empty()
            && self.events.is_empty()
            && self.jobs_over.is_empty()
            && self.parted.is_empty()
            && self.snapshot.is_none()
    }
}

/// What an agent says of an attempt beyond its outcome.
#[derive(Clone, Debug, Default)]
pub(crate) struct Finish {
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) usage: Usage,
    stdout: Bytes,
    stderr: Bytes,
    stdout_dropped: u64,
    stderr_dropped: u64,
    pub(crate) result: Bytes,
    pub(crate) message: String,
}

impl Finish {
    /// From the wire. What is too long is cut to what is kept.
    pub(crate) fn new(finished: wire::Finished) -> Self {
        let tail = |mut bytes: Bytes| {
            let excess = bytes.len().saturating_sub(wire::TAIL_MAX);
            bytes.split_off(excess)
        };
        Self {
            exit_code: finished.code,
            signal: finished.signal,
            usage: Usage {
                duration: Span(finished.duration_ns),
                user: Span(finished.user_ns),
                system: Span(finished.system_ns),
                memory_bytes: finished.memory_bytes,
            },
            stdout: tail(finished.stdout),
            stderr: tail(finished.stderr),
            stdout_dropped: finished.stdout_dropped,
            stderr_dropped: finished.stderr_dropped,
            result: finished.result,
            message: finished.message,
        }
    }
}

/// What the history keeps of an attempt besides its row and its result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) stdout: Bytes,
    pub(crate) stderr: Bytes,
    pub(crate) stdout_dropped: u64,
    pub(crate) stderr_dropped: u64,
    pub(crate) message: String,
}

impl From<Finish> for Kept {
    fn from(finish: Finish) -> Self {
        Self {
            stdout: finish.stdout,
            stderr: finish.stderr,
            stdout_dropped: finish.stdout_dropped,
            stderr_dropped: finish.stderr_dropped,
            message: finish.message,
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

/// What an agent needs to know to run the tasks of a part.
pub(crate) fn template(spot: &Spot<'_>) -> wire::Template {
    let nanoseconds = |seconds: Option<f64>| {
        let span = seconds.and_then(Span::try_from_secs_f64);
        span.map_or(0, |span| span.0)
    };
    let request = spot.request;
    let base = wire::Template {
        id: spot.part.first.0,
        job: spot.job.id.0,
        time_limit_ns: nanoseconds(request.time_limit_sec),
        memory_limit_bytes: request.needs.memory_bytes,
        output_directory: request.output.directory.clone().unwrap_or_default(),
        checkpoints: request.checkpoints,
        keep_bytes: request.output.keep_bytes,
        hold_ns: hold(spot).0,
        ..wire::Template::default()
    };
    match &request.run {
        Work::Command(command) => wire::Template {
            argv: command.words.clone(),
            environment: command
                .environment
                .iter()
                .map(|(name, value)| wire::Variable {
                    name: name.clone(),
                    value: value.clone(),
                })
                .collect(),
            directory: command.directory.clone().unwrap_or_default(),
            ..base
        },
        Work::Function(function) => wire::Template {
            function: function.name.clone(),
            input: function.input.0.clone().into(),
            ..base
        },
    }
}

/// How long an agent may keep the end of a short task back: hardly, when other tasks of its job wait for it. Of
/// one in a long array nobody waits for this very task.
fn hold(spot: &Spot<'_>) -> Span {
    const MANY: u64 = 256;
    match spot.part.count {
        _ if spot.job.is_graph() => Span::from_millis(2),
        0..MANY => Span::from_millis(10),
        _ => Span::from_millis(40),
    }
}

//! What an agent and its server must agree on: which leases are here, and what the server has not acknowledged.
//!
//! ```text
//!   server ──assign──▶ desk ──▶ slot ──▶ reports ──frame──▶ unacknowledged ──ack──▶ gone
//! ```
//!
//! The desk knows what waits and what runs. Here assignments are turned into what the desk takes, and its
//! reports into frames. A lease is known from its assignment until the server has acknowledged its end, so that
//! after a reconnect both sides can compare. A lease that was cancelled is forgotten at once.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use loxley_exec::{
    Assignment, Captured, Checkpoint, Desk, End, Keep, Limits, OutputRule, Ran, Recipe, Reports,
    Status, Stopping, Stream, Streams, TaskCommand, Template, TemplateError, Urgency, Work,
    raw_bytes,
};
use loxley_model::{Failure, Lease, Outcome, Priority, TaskId};
use loxley_protocol as wire;
use tokio::sync::Notify;

use crate::fence::Fence;

/// What the conversation with the server knows beside the desk.
#[derive(Debug)]
pub(crate) struct Ledger {
    desk: Arc<Desk>,
    /// Rung when there is something to say.
    bell: Arc<Notify>,
    fence: Arc<Fence>,
    state: Mutex<LedgerState>,
}

#[derive(Debug, Default)]
struct LedgerState {
    templates: HashMap<u64, Known>,
    template_order: VecDeque<u64>,
    /// What is ready to be said and did not fit into the last frame, or came up here.
    finished: VecDeque<wire::Finished>,
    checkpoints: VecDeque<wire::Checkpoint>,
    yielded: Vec<wire::Yielded>,
    unacknowledged: VecDeque<wire::AgentFrame>,
    last_number: u64,
}

/// A template as the server sent it, and as slots need it once a task of it has come.
#[derive(Debug)]
enum Known {
    Sent(Box<wire::Template>),
    Ready(Arc<Recipe>),
}

/// How many templates are remembered: twice as many as the server believes we remember.
const TEMPLATES_MAX: usize = 3 * 4096;
/// A frame is sent when it has grown to this.
const FRAME_BYTES: usize = 4 << 20;

impl Ledger {
    /// A ledger for this desk, which rings this bell.
    pub(crate) fn new(desk: Arc<Desk>, bell: Arc<Notify>, fence: Arc<Fence>) -> Self {
        Self {
            desk,
            bell,
            fence,
            state: Mutex::default(),
        }
    }

    pub(crate) fn desk(&self) -> &Desk {
        &self.desk
    }

    pub(crate) fn bell(&self) -> &Notify {
        &self.bell
    }

    fn lock(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what the server says.
    pub(crate) fn hear(&self, frame: wire::ServerFrame) {
        let mut state = self.lock();
        for template in frame.templates {
            state.remember(template);
        }
        for cancel in frame.cancel {
            let lease = Lease(cancel.lease);
            if !cancel.awaited {
                self.desk.cancel(lease);
                state.finished.retain(|known| known.lease != cancel.lease);
            } else if self.desk.stop(lease, Urgency::Gentle) == Stopping::Over {
                state.yielded.push(wire::Yielded {
                    task: cancel.task,
                    lease: cancel.lease,
                    yielded: true,
                });
            }
        }
        for wire::Retract {
            task,
            lease,
            running,
        } in frame.retract
        {
            let is_over = state.finished.iter().any(|known| known.lease == lease);
            let answer = self.desk.retract(Lease(lease), running);
            if let Some(yielded) = answer.or(is_over.then_some(false)) {
                state.yielded.push(wire::Yielded {
                    task,
                    lease,
                    yielded,
                });
            }
        }
        let assignments = frame.assign.into_iter();
        let assignments: Vec<_> = assignments
            .filter_map(|assign| state.assignment(assign))
            .collect();
        self.desk.assign(assignments);
        if frame.acknowledged > 0 {
            state.acknowledge(frame.acknowledged);
        }
        if state.has_something_to_say() {
            self.bell.notify_one();
        }
    }

    /// What there is to say now, if anything. What must not be lost is kept until it is acknowledged.
    pub(crate) fn next_frame(&self, starts_alone: bool) -> Option<wire::AgentFrame> {
        let mut state = self.lock();
        let mut reports = self
            .desk
            .reports(starts_alone || state.has_something_to_say());
        for end in &mut reports.ended {
            end.given_up |= self.fence.has_killed(end);
        }
        let frame = state.frame(reports);
        (frame != wire::AgentFrame::default()).then_some(frame)
    }

    /// All leases that are known here.
    pub(crate) fn leases(&self) -> Vec<u64> {
        let state = self.lock();
        let sent = state.unacknowledged.iter().flat_map(|sent| &sent.finished);
        let said = sent.chain(&state.finished).map(|finished| finished.lease);
        let here = self.desk.leases();
        here.into_iter().map(|lease| lease.0).chain(said).collect()
    }

    /// What the server has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> Vec<wire::AgentFrame> {
        self.desk.tell_starts_again();
        self.lock().unacknowledged.iter().cloned().collect()
    }

    /// The server does not know us any more: nothing that we have counts.
    pub(crate) fn drop_everything(&self) {
        self.desk.clear();
        let mut state = self.lock();
        state.finished.clear();
        state.checkpoints.clear();
        state.yielded.clear();
        state.unacknowledged.clear();
    }

    /// Stops everything, because we may not go on with it. What came of it is told when the server is there.
    pub(crate) fn give_up(&self, urgency: Urgency) {
        let mut state = self.lock();
        for given_up in self.desk.give_up(urgency) {
            let (task, lease) = (given_up.task.0, given_up.lease.0);
            if given_up.begun {
                state.finished.push_back(wire::Finished {
                    task,
                    lease,
                    outcome: wire::Outcome::AgentLost.into(),
                    message: "its agent gave it up".to_owned(),
                    ..wire::Finished::default()
                });
            } else {
                state.yielded.push(wire::Yielded {
                    task,
                    lease,
                    yielded: true,
                });
            }
        }
        drop(state);
        self.bell.notify_one();
    }

    /// Whether nothing is left to do or to say.
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.lock();
        self.desk.is_empty() && !state.has_something_to_say() && state.unacknowledged.is_empty()
    }
}

impl LedgerState {
    fn has_something_to_say(&self) -> bool {
        !self.yielded.is_empty() || !self.finished.is_empty() || !self.checkpoints.is_empty()
    }

    fn remember(&mut self, template: wire::Template) {
        self.template_order.push_back(template.id);
        let id = template.id;
        self.templates.insert(id, Known::Sent(template.into()));
        if self.template_order.len() > TEMPLATES_MAX
            && let Some(oldest) = self.template_order.pop_front()
            && !self.template_order.contains(&oldest)
        {
            self.templates.remove(&oldest);
        }
    }

    /// What goes on the desk; none for what cannot be run here.
    fn assignment(&mut self, assign: wire::Assign) -> Option<Assignment> {
        let (task, lease) = (assign.task, assign.lease);
        let Some(known) = self.templates.get_mut(&assign.template) else {
            // The server always sends it first; if it did not, the task is better off elsewhere.
            self.yielded.push(wire::Yielded {
                task,
                lease,
                yielded: true,
            });
            return None;
        };
        let (recipe, carries) = match known.recipe(assign.entry.is_some()) {
            Ok(recipe) => recipe,
            Err(error) => {
                self.finished.push_back(wire::Finished {
                    task,
                    lease,
                    outcome: wire::Outcome::FailedForGood.into(),
                    message: format!("the command cannot be filled: {error}"),
                    ..wire::Finished::default()
                });
                return None;
            }
        };
        let item = assign.entry.map(|entry| {
            let bytes = raw_bytes::from_text(&entry).into_owned();
            OsString::from_vec(bytes)
        });
        Some(Assignment {
            task: TaskId(task),
            lease: Lease(lease),
            attempt: assign.attempt,
            command: Arc::new(TaskCommand {
                recipe,
                items: item.into_iter().collect(),
                sequence: assign.position + 1,
                input: None,
            }),
            checkpoint: match carries {
                true => Checkpoint::Carried(assign.checkpoint),
                false => Checkpoint::None,
            },
        })
    }

    fn acknowledge(&mut self, number: u64) {
        while let Some(frame) = self.unacknowledged.front()
            && frame.number <= number
        {
            self.unacknowledged.pop_front();
        }
    }

    /// The next frame, with as much as fits of what there is to say.
    fn frame(&mut self, reports: Reports) -> wire::AgentFrame {
        let started = reports.started.iter().map(|started| wire::Started {
            task: started.task.0,
            lease: started.lease.0,
        });
        let shown = reports.shown.into_iter().map(|shown| wire::Output {
            task: shown.task.0,
            lease: shown.lease.0,
            stdout: shown.stdout,
            stderr: shown.stderr,
        });
        let yielded = reports.yielded.iter().map(|yielded| wire::Yielded {
            task: yielded.task.0,
            lease: yielded.lease.0,
            yielded: true,
        });
        let saved = reports.saved.into_iter().map(|saved| wire::Checkpoint {
            task: saved.task.0,
            lease: saved.lease.0,
            state: saved.state,
        });
        self.yielded.extend(yielded);
        self.checkpoints.extend(saved);
        self.finished
            .extend(reports.ended.into_iter().map(finished));
        let mut frame = wire::AgentFrame {
            started: started.collect(),
            yielded: std::mem::take(&mut self.yielded),
            outputs: shown.collect(),
            checkpoints: take_some(&mut self.checkpoints, |saved| saved.state.len()),
            finished: take_some(&mut self.finished, size_of),
            ..wire::AgentFrame::default()
        };
        if !frame.finished.is_empty() || !frame.checkpoints.is_empty() {
            self.last_number += 1;
            frame.number = self.last_number;
            self.unacknowledged.push_back(wire::AgentFrame {
                number: frame.number,
                finished: frame.finished.clone(),
                checkpoints: frame.checkpoints.clone(),
                ..wire::AgentFrame::default()
            });
        }
        frame
    }
}

impl Known {
    /// What slots need, and whether checkpoints are carried. A part of a job is an array or it is none, so the
    /// first task of it says how its command is read.
    fn recipe(&mut self, is_array: bool) -> Result<(Arc<Recipe>, bool), TemplateError> {
        if let Self::Sent(template) = self {
            *self = Self::Ready(Arc::new(recipe(template, is_array)?));
        }
        let Self::Ready(recipe) = self else {
            unreachable!("it was made ready");
        };
        Ok((Arc::clone(recipe), recipe.checkpoints))
    }
}

fn recipe(template: &wire::Template, is_array: bool) -> Result<Recipe, TemplateError> {
    let is_function = !template.function.is_empty();
    let work = if is_function {
        Work::Function {
            name: template.function.clone(),
            input: template.input.clone(),
        }
    } else {
        let shell = Some(template.shell.as_str()).filter(|shell| !shell.is_empty());
        Work::Command {
            template: Template::of_task(&template.argv, shell, is_array)?,
            streams: Streams::Captured,
        }
    };
    let path = |path: &str| (!path.is_empty()).then(|| path.into());
    let variables = template.environment.iter();
    let limits = Limits {
        time: some_duration(template.time_limit_ns),
        memory: Some(template.memory_limit_bytes).filter(|bytes| *bytes > 0),
        ..Limits::default()
    };
    Ok(Recipe {
        job: template.job,
        work,
        environment: variables
            .map(|variable| ((&variable.name).into(), (&variable.value).into()))
            .collect(),
        directory: path(&template.directory),
        limits: match some_duration(template.grace_ns) {
            Some(grace) => Limits { grace, ..limits },
            None => limits,
        },
        // Functions save through their call, whenever they like.
        checkpoints: template.checkpoints || is_function,
        as_in_parallel: false,
        output: OutputRule {
            keep: Keep::Tail((template.keep_bytes as usize).min(wire::TAIL_MAX)),
            directory: path(&template.output_directory),
            live: true,
            lines: None,
        },
        hold: Duration::from_nanos(template.hold_ns),
        priority: u8::try_from(template.priority)
            .ok()
            .and_then(|level| Priority::new(level).ok())
            .unwrap_or_default(),
    })
}

/// The end of a task as the server hears it.
fn finished(end: End) -> wire::Finished {
    let base = wire::Finished {
        task: end.task.0,
        lease: end.lease.0,
        outcome: match end.outcome() {
            Outcome::Succeeded => wire::Outcome::Succeeded,
            Outcome::Failed(Failure::TimeLimit) => wire::Outcome::TimeLimit,
            Outcome::Failed(Failure::Permanent) => wire::Outcome::FailedForGood,
            Outcome::Failed(Failure::AgentLost) => wire::Outcome::AgentLost,
            Outcome::Failed(_) => wire::Outcome::Failed,
        }
        .into(),
        message: end.message(),
        duration_ns: nanoseconds(end.duration()),
        ..wire::Finished::default()
    };
    let base = match end.output {
        Captured::Tail(mut tail) => wire::Finished {
            stdout_dropped: tail.dropped(Stream::Stdout),
            stderr_dropped: tail.dropped(Stream::Stderr),
            stdout: Bytes::copy_from_slice(tail.stdout()),
            stderr: Bytes::copy_from_slice(tail.stderr()),
            ..base
        },
        Captured::Nothing | Captured::Whole(_) => base,
    };
    match end.ran {
        Ran::Process(Ok(ended)) => {
            let (code, signal) = match ended.status {
                Status::Exited(code) => (Some(code), None),
                Status::Signalled(signal) => (None, Some(signal)),
            };
            wire::Finished {
                code,
                signal,
                user_ns: nanoseconds(ended.user_time),
                system_ns: nanoseconds(ended.system_time),
                memory_bytes: ended.memory_max,
                ..base
            }
        }
        Ran::Function(Ok(result)) if result.len() > wire::PAYLOAD_MAX => wire::Finished {
            outcome: wire::Outcome::FailedForGood.into(),
            message: format!("the result has {} bytes, more than fits", result.len()),
            ..base
        },
        Ran::Function(Ok(result)) => wire::Finished {
            result: result.into(),
            ..base
        },
        Ran::Process(Err(_)) | Ran::Function(Err(_)) => base,
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn some_duration(nanoseconds: u64) -> Option<Duration> {
    (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
}

/// About how many bytes a frame grows by this.
fn size_of(finished: &wire::Finished) -> usize {
    64 + finished.stdout.len() + finished.stderr.len() + finished.result.len()
}

/// Takes as many from the front as fit into a frame, and at least one.
fn take_some<T>(all: &mut VecDeque<T>, size: impl Fn(&T) -> usize) -> Vec<T> {
    let mut bytes = 0;
    let fitting = all.iter().take_while(|item| {
        let fits = bytes < FRAME_BYTES;
        bytes += size(item);
        fits
    });
    let count = fitting.count();
    all.drain(..count).collect()
}

//! A slot at work: one thread that runs one task after the other. It decides nothing.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use loxley_model::{Lease, TaskId};
use loxley_template::Template;

use crate::checkpoint::CheckpointFile;
use crate::command::Streams;
use crate::desk::{Desk, START_NOTICE};
use crate::ended::Ended;
use crate::functions::Call;
use crate::guardian::Guardian;
use crate::local_agent::SlotSettings;
use crate::output::{Captured, Files, LineWriter, Sink, Spool, Stream};
use crate::report::{End, Ran, ShownOutput};
use crate::slot::{Slot, StartError};
use crate::task_command::{Assignment, TaskCommand, Work};

/// How often a task that is not short is looked after: its output is shown, its checkpoint is read.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often its output is shown when it prints all the time.
const SHOW_EVERY: Duration = Duration::from_millis(50);

/// How often a task is tried whose process the system refuses us, where nobody else could try.
const REFUSALS_MAX: u32 = 20;

/// How long a slot rests that was refused what a task needs so many times in a row.
fn pause_after(refusals: u32) -> Duration {
    Duration::from_millis(25) * (1 << refusals.min(6))
}

/// A slot, and what it needs.
#[derive(Debug)]
pub(crate) struct SlotThread {
    /// Its number among all slots of the process, from 0.
    pub(crate) number: usize,
    /// Its number at its desk, from 0.
    pub(crate) position: usize,
    pub(crate) slot: Slot,
    pub(crate) desk: Arc<Desk>,
    pub(crate) settings: Arc<SlotSettings>,
}

impl SlotThread {
    /// Runs what comes until the desk is closed.
    pub(crate) fn work(mut self) {
        let settings = Arc::clone(&self.settings);
        let desk = Arc::clone(&self.desk);
        let cancelled = desk.cancelled(self.position);
        let mut ended = None;
        let mut refusals = 0;
        while let Some(assignment) = desk.next(self.position, ended.take(), settings.gate.is_open())
        {
            let Some(_pass) = settings.gate.pass(|| desk.is_closed()) else {
                break;
            };
            let mut end = self.run(&assignment, &cancelled);
            while end.agents_fault().is_some() && !desk.is_closed() {
                // Others give back what we lack, sooner or later. Until then this slot is better off idle.
                refusals += 1;
                tracing::warn!(why = end.message(), "the system refuses what a task needs");
                thread::sleep(pause_after(refusals));
                if settings.gives_back || refusals >= REFUSALS_MAX {
                    break;
                }
                end = self.run(&assignment, &cancelled);
            }
            if end.agents_fault().is_none() {
                refusals = 0;
            } else if !settings.gives_back {
                end.is_final = true;
            }
            ended = Some(end);
        }
        desk.leave();
    }

    fn run(&mut self, assignment: &Assignment, cancelled: &AtomicBool) -> End {
        let (started, begun) = (SystemTime::now(), Instant::now());
        let (ran, output) = match &assignment.command.recipe.work {
            Work::Command { template, streams } => {
                let (result, output) = self.run_command(assignment, template, *streams);
                (Ran::Process(result), output)
            }
            Work::Function { name, input } => {
                let result = self.call_function(assignment, name, input, cancelled);
                (Ran::Function(result), Captured::Nothing)
            }
        };
        End {
            task: assignment.task,
            lease: assignment.lease,
            slot: self.number,
            attempt: assignment.attempt,
            begun,
            started,
            at: Instant::now(),
            ran,
            output,
            memory_limit: assignment.command.recipe.limits.memory,
            given_up: false,
            is_final: false,
        }
    }

    fn call_function(
        &self,
        assignment: &Assignment,
        name: &str,
        input: &[u8],
        cancelled: &AtomicBool,
    ) -> Result<Vec<u8>, crate::FunctionError> {
        let joined;
        let input = match assignment.command.items.first() {
            None => input,
            Some(entry) if input.is_empty() => entry.as_encoded_bytes(),
            Some(entry) => {
                joined = [input, entry.as_encoded_bytes()].concat();
                &joined
            }
        };
        let (task, lease) = (assignment.task, assignment.lease);
        let mut save = |state: Vec<u8>| self.desk.save(task, lease, state.into());
        let checkpoint = match &assignment.checkpoint {
            crate::Checkpoint::Carried(state) => state.as_deref(),
            _ => None,
        };
        let mut call = Call {
            input,
            task: task.0,
            attempt: assignment.attempt,
            checkpoint,
            cancelled,
            save: &mut save,
        };
        self.settings.functions.call(name, &mut call)
    }

    fn run_command(
        &mut self,
        assignment: &Assignment,
        template: &Template,
        streams: Streams,
    ) -> (Result<Ended, StartError>, Captured) {
        let rule = &assignment.command.recipe.output;
        let (task, lease) = (assignment.task, assignment.lease);
        let opened = assignment.open_checkpoint(&self.settings.scratch);
        let path = match &opened {
            Ok(Some(file)) => Some(file.path().to_owned()),
            _ => None,
        };
        let mut command = assignment.command(template, streams, self.number, path);
        let refused = |source| StartError::Refused {
            program: command.program.to_string_lossy().into_owned(),
            source,
        };
        let files = rule.directory.as_deref().map(|to| files_in(to, task));
        let (checkpoint, files) = match (opened, files.transpose()) {
            (Ok(checkpoint), Ok(files)) => (checkpoint, files),
            (Err(error), _) | (_, Err(error)) => return (Err(refused(error)), Captured::Nothing),
        };
        command.notice = Some(START_NOTICE);
        let is_live = rule.live || self.settings.watched.load(Ordering::Relaxed);
        command.notice_every = (is_live || checkpoint.is_some()).then_some(LOOK_EVERY);
        let mut sink = TaskSink {
            captured: Captured::new(rule.keep),
            files,
            live: is_live.then(LiveOutput::default),
            lines: rule.lines.as_deref(),
            command: &assignment.command,
            slot: self.number,
            checkpoint,
            desk: &self.desk,
            tells_start: self.settings.tells_starts,
            guardian: self.settings.guardian.as_deref(),
            task,
            lease,
        };
        let ran = self.slot.run(lease.0, &command, &mut sink);
        sink.look_at_checkpoint();
        (ran, sink.captured)
    }
}

/// The files that take the whole output of a task.
fn files_in(directory: &Path, task: TaskId) -> io::Result<Files> {
    std::fs::create_dir_all(directory)?;
    let name = |end: &str| directory.join(format!("{task}.{end}"));
    Files::create(&name("out"), &name("err"))
}

/// Keeps the output of a task, shows it while it comes, and looks after the task meanwhile.
struct TaskSink<'a> {
    captured: Captured,
    files: Option<Files>,
    live: Option<LiveOutput>,
    lines: Option<&'a dyn LineWriter>,
    command: &'a TaskCommand,
    slot: usize,
    checkpoint: Option<CheckpointFile>,
    desk: &'a Desk,
    /// Whether it has to be told that the task is not short.
    tells_start: bool,
    guardian: Option<&'a Guardian>,
    task: TaskId,
    lease: Lease,
}

/// Output that is shown while a task runs.
#[derive(Default)]
struct LiveOutput {
    /// When output was last shown; none until the task has run for a while.
    shown_at: Option<Instant>,
    /// Whether it was noticed that the task is not short.
    is_long: bool,
    unshown: [Vec<u8>; 2],
}

impl LiveOutput {
    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        /// Of what nobody has seen yet the end is kept.
        const UNSHOWN_MAX: usize = 64 << 10;
        let unshown = &mut self.unshown[stream as usize];
        unshown.extend_from_slice(bytes);
        let excess = unshown.len().saturating_sub(UNSHOWN_MAX);
        unshown.drain(..excess);
    }

    fn is_due(&self) -> bool {
        self.shown_at.is_some_and(|at| at.elapsed() >= SHOW_EVERY)
    }
}

impl TaskSink<'_> {
    fn look_at_checkpoint(&mut self) {
        let changed = self.checkpoint.as_mut().and_then(CheckpointFile::changed);
        if let Some(state) = changed {
            self.desk.save(self.task, self.lease, state);
        }
    }

    fn show(&mut self) {
        let Some(live) = &mut self.live else { return };
        live.shown_at = Some(Instant::now());
        let [stdout, stderr] = std::mem::take(&mut live.unshown);
        if !stdout.is_empty() || !stderr.is_empty() {
            self.desk.show(ShownOutput {
                task: self.task,
                lease: self.lease,
                stdout: stdout.into(),
                stderr: stderr.into(),
            });
        }
    }
}

impl Sink for TaskSink<'_> {
    fn runs_on(&mut self) {
        if let Some(guardian) = self.guardian.take() {
            guardian.start();
        }
        if std::mem::take(&mut self.tells_start) {
            self.desk.runs_on();
        }
        self.look_at_checkpoint();
        match &mut self.live {
            // The first notice comes early: what is shown so soon is over before anybody has looked.
            Some(live) if !live.is_long => live.is_long = true,
            _ => self.show(),
        }
    }

    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        match (self.lines, &mut self.captured) {
            (Some(lines), Captured::Whole(kept)) => {
                pass_lines(lines, self.command, self.slot, kept, stream, bytes)?;
            }
            (_, captured) => captured.take(stream, bytes)?,
        }
        if let Some(files) = &mut self.files {
            files.take(stream, bytes)?;
        }
        if let Some(live) = &mut self.live {
            live.take(stream, bytes);
            if live.is_due() {
                self.look_at_checkpoint();
                self.show();
            }
        }
        Ok(())
    }
}

/// Hands over the lines that are whole, with what was kept before them.
fn pass_lines(
    writer: &dyn LineWriter,
    command: &TaskCommand,
    slot: usize,
    kept: &mut Spool,
    stream: Stream,
    bytes: &[u8],
) -> io::Result<()> {
    let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
        return kept.take(stream, bytes);
    };
    let (lines, rest) = bytes.split_at(end + 1);
    let taken = match kept.is_empty(stream) {
        true => writer.write(command, slot, stream, lines)?,
        false => false,
    };
    if taken {
        kept.pass(stream, lines.len());
        return kept.take(stream, rest);
    }
    kept.take(stream, bytes)?;
    // They may only be waiting for their turn; what waits is read back once it has come.
    if writer.write(command, slot, stream, &[])? {
        let lines = kept.take_all_but(stream, rest.len())?;
        writer.write(command, slot, stream, &lines)?;
    }
    Ok(())
}

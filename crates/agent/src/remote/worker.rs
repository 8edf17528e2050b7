//! A slot at work: one thread that runs one task after the other.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use loxley_protocol as wire;

use super::board::{Board, Given};
use super::functions::{Call, Functions};
use crate::{Command, Ended, Files, Sink, Slot, StartError, Status, Stopped, Stream, Tail};

/// After how long the output of a task is shown while it runs, and how often from then on.
const SHOW_AFTER: Duration = Duration::from_millis(200);
const SHOW_EVERY: Duration = Duration::from_millis(50);

/// A slot and what it needs.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) number: usize,
    pub(super) slot: Slot,
    pub(super) board: Arc<Board>,
    pub(super) functions: Arc<Functions>,
    /// Where checkpoints of processes are.
    pub(super) scratch: PathBuf,
}

impl Worker {
    /// Runs what comes until the agent ends.
    pub(super) fn run(mut self) {
        let mut ended = None;
        while let Some((given, cancelled)) = self.board.next(self.number, ended.take()) {
            ended = Some(self.run_one(&given, &cancelled));
        }
    }

    fn run_one(&mut self, given: &Given, cancelled: &AtomicBool) -> wire::Finished {
        if given.template.function.is_empty() {
            self.run_command(given)
        } else {
            self.call_function(given, cancelled)
        }
    }

    fn call_function(&self, given: &Given, cancelled: &AtomicBool) -> wire::Finished {
        let begun = Instant::now();
        let joined;
        let input: &[u8] = match &given.entry {
            None => &given.template.input,
            Some(entry) if given.template.input.is_empty() => entry,
            Some(entry) => {
                joined = [&given.template.input[..], entry].concat();
                &joined
            }
        };
        let mut save = |state: Vec<u8>| self.board.save_checkpoint(given, state.into());
        let mut call = Call {
            input,
            task: given.task,
            attempt: given.attempt,
            checkpoint: given.checkpoint.as_deref(),
            cancelled,
            save: &mut save,
        };
        let result = self.functions.call(&given.template.function, &mut call);
        let base = wire::Finished {
            task: given.task,
            lease: given.lease,
            duration_ns: nanoseconds(begun.elapsed()),
            ..wire::Finished::default()
        };
        match result {
            Ok(result) if result.len() > wire::PAYLOAD_MAX => wire::Finished {
                outcome: wire::Outcome::FailedForGood.into(),
                message: format!("the result has {} bytes, more than fits", result.len()),
                ..base
            },
            Ok(result) => wire::Finished {
                result: result.into(),
                ..base
            },
            Err(error) => wire::Finished {
                outcome: match error.permanent {
                    true => wire::Outcome::FailedForGood.into(),
                    false => wire::Outcome::Failed.into(),
                },
                message: error.message,
                ..base
            },
        }
    }

    fn run_command(&mut self, given: &Given) -> wire::Finished {
        let base = wire::Finished {
            task: given.task,
            lease: given.lease,
            ..wire::Finished::default()
        };
        let prepared = self.prepare(given);
        let (command, checkpoint, mut sink) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                return wire::Finished {
                    outcome: wire::Outcome::Failed.into(),
                    message: error.to_string(),
                    ..base
                };
            }
        };
        let ran = self.slot.run(given.lease, &command, &mut sink);
        if let Some(checkpoint) = checkpoint {
            checkpoint.close(&self.board, given);
        }
        match ran {
            Ok(ended) => wire::Finished {
                message: reason(&ended, &command),
                ..finished(base, &ended, &mut sink.tail)
            },
            Err(error) => wire::Finished {
                // What is not there now may be there on another agent.
                outcome: wire::Outcome::Failed.into(),
                message: in_words(&error),
                ..base
            },
        }
    }

    fn prepare(&self, given: &Given) -> io::Result<(Command, Option<CheckpointFile>, OutputSink)> {
        let template = &given.template;
        let entry = given
            .entry
            .as_ref()
            .map(|entry| String::from_utf8_lossy(entry));
        let number = given.position + 1;
        let word = |word: &String| match &entry {
            Some(entry) => wire::fill_in(word, entry, number),
            None => word.clone(),
        };
        let mut words = template.argv.iter().map(word);
        let program = words.next().unwrap_or_default();
        let mut command = Command {
            program: program.into(),
            arguments: words.map(Into::into).collect(),
            directory: (!template.directory.is_empty()).then(|| template.directory.clone().into()),
            notice: Some(SHOW_AFTER),
            notice_every: Some(SHOW_AFTER),
            ..Command::default()
        };
        for variable in &template.environment {
            command = command.env(&variable.name, &variable.value);
        }
        command = command
            .env("LOXLEY_TASK_ID", given.task.to_string())
            .env("LOXLEY_JOB_ID", template.job.to_string())
            .env("LOXLEY_ATTEMPT", given.attempt.to_string());
        if let Some(entry) = &entry {
            command = command.env("LOXLEY_ENTRY", entry.as_ref());
        }
        command.limits.time = some_duration(template.time_limit_ns);
        command.limits.memory = Some(template.memory_limit_bytes).filter(|bytes| *bytes > 0);
        if let Some(grace) = some_duration(template.grace_ns) {
            command.limits.grace = grace;
        }
        let mut checkpoint = None;
        if template.checkpoints {
            let file = CheckpointFile::open(&self.scratch, given)?;
            command = command.env("LOXLEY_CHECKPOINT", &file.path);
            checkpoint = Some(file);
        }
        let mut files = None;
        if !template.output_directory.is_empty() {
            let directory = Path::new(&template.output_directory);
            std::fs::create_dir_all(directory)?;
            let name = |end: &str| directory.join(format!("{}.{end}", given.task));
            files = Some(Files::create(&name("out"), &name("err"))?);
        }
        let keep = (template.keep_bytes as usize).min(wire::TAIL_MAX);
        let sink = OutputSink {
            tail: Tail::with_capacity(keep),
            files,
            board: Arc::clone(&self.board),
            task: given.task,
            lease: given.lease,
            shown_at: None,
            unshown: [Vec::new(), Vec::new()],
            watched: checkpoint
                .as_ref()
                .map(|file| (file.watch(), given.clone())),
        };
        Ok((command, checkpoint, sink))
    }
}

fn finished(base: wire::Finished, ended: &Ended, tail: &mut Tail) -> wire::Finished {
    let (code, signal) = match ended.status {
        Status::Exited(code) => (Some(code), None),
        Status::Signalled(signal) => (None, Some(signal)),
    };
    let outcome = match ended.stopped {
        Some(Stopped::TimeLimit) => wire::Outcome::TimeLimit,
        _ if ended.success() => wire::Outcome::Succeeded,
        _ => wire::Outcome::Failed,
    };
    wire::Finished {
        outcome: outcome.into(),
        code,
        signal,
        duration_ns: nanoseconds(ended.duration),
        user_ns: nanoseconds(ended.user_time),
        system_ns: nanoseconds(ended.system_time),
        memory_bytes: ended.memory_max,
        stdout_dropped: tail.dropped(Stream::Stdout),
        stderr_dropped: tail.dropped(Stream::Stderr),
        stdout: Bytes::copy_from_slice(tail.stdout()),
        stderr: Bytes::copy_from_slice(tail.stderr()),
        ..base
    }
}

/// What an exit code does not say.
fn reason(ended: &Ended, command: &Command) -> String {
    match (ended.stopped, command.limits.memory) {
        (Some(Stopped::MemoryLimit), Some(limit)) => {
            format!("out of memory (limit {})", in_units(limit))
        }
        _ => String::new(),
    }
}

/// Bytes in the largest unit that gives a whole number.
fn in_units(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let steps = (bytes.trailing_zeros() / 10).min(4);
    format!("{} {}", bytes >> (10 * steps), units[steps as usize])
}

fn in_words(error: &StartError) -> String {
    use std::error::Error;
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn some_duration(nanoseconds: u64) -> Option<Duration> {
    (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
}

/// Keeps the end of the output, writes the whole of it when asked to, and shows it while it comes.
#[derive(Debug)]
struct OutputSink {
    tail: Tail,
    files: Option<Files>,
    board: Arc<Board>,
    task: u64,
    lease: u64,
    /// When output was last shown; none until the task has run for a while.
    shown_at: Option<Instant>,
    unshown: [Vec<u8>; 2],
    /// The task's checkpoint: looked at whenever the task is heard.
    watched: Option<(CheckpointWatch, Given)>,
}

impl OutputSink {
    fn show(&mut self) {
        if let Some((watch, given)) = &mut self.watched
            && let Some(state) = watch.changed()
        {
            self.board.save_checkpoint(given, state);
        }
        let [stdout, stderr] = std::mem::take(&mut self.unshown);
        if !stdout.is_empty() || !stderr.is_empty() {
            self.board.show_output(wire::Output {
                task: self.task,
                lease: self.lease,
                stdout: stdout.into(),
                stderr: stderr.into(),
            });
        }
        self.shown_at = Some(Instant::now());
    }
}

impl Sink for OutputSink {
    fn runs_on(&mut self) {
        self.show();
    }

    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        self.tail.take(stream, bytes)?;
        if let Some(files) = &mut self.files {
            files.take(stream, bytes)?;
        }
        let unshown = &mut self.unshown[stream as usize];
        unshown.extend_from_slice(bytes);
        let excess = unshown.len().saturating_sub(64 << 10);
        unshown.drain(..excess);
        if self.shown_at.is_some_and(|at| at.elapsed() >= SHOW_EVERY) {
            self.show();
        }
        Ok(())
    }
}

/// The file behind `LOXLEY_CHECKPOINT`: holds what the last attempt left, and takes what this one saves.
#[derive(Debug)]
struct CheckpointFile {
    path: PathBuf,
    watch: CheckpointWatch,
}

/// Notices when a checkpoint was written.
#[derive(Clone, Debug)]
struct CheckpointWatch {
    path: PathBuf,
    seen: Option<(SystemTime, u64)>,
}

impl CheckpointFile {
    fn open(scratch: &Path, given: &Given) -> io::Result<Self> {
        let path = scratch.join(format!("checkpoint-{}-{}", given.task, given.lease));
        match &given.checkpoint {
            Some(state) => std::fs::write(&path, state)?,
            // Absent until somebody writes it: a task sees that it is the first to run.
            None => match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            },
        }
        let mut watch = CheckpointWatch {
            path: path.clone(),
            seen: None,
        };
        watch.seen = watch.stamp();
        Ok(Self { path, watch })
    }

    fn watch(&self) -> CheckpointWatch {
        self.watch.clone()
    }

    /// The task is over: what it saved last goes to whoever tries again.
    fn close(mut self, board: &Board, given: &Given) {
        if let Some(state) = self.watch.changed() {
            board.save_checkpoint(given, state);
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

impl CheckpointWatch {
    fn stamp(&self) -> Option<(SystemTime, u64)> {
        let data = std::fs::metadata(&self.path).ok()?;
        Some((data.modified().ok()?, data.len()))
    }

    fn changed(&mut self) -> Option<Bytes> {
        let stamp = self.stamp()?;
        if self.seen.replace(stamp) == Some(stamp) || stamp.1 > wire::PAYLOAD_MAX as u64 {
            return None;
        }
        std::fs::read(&self.path).ok().map(Into::into)
    }
}

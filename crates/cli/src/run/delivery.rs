//! What happens with a task that is over: its output is shown, its line goes to the log, its result
//! to the directory.
//!
//! The output of one task is never mixed with that of another. With `--keep-order` it waits for the
//! tasks before it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result};
use loxley_exec::{
    End, Ended, Filling, Input, Ran, Spool, StartError, Status, Stopped, Stream, TaskCommand,
    Template,
};
use serde_json::json;

use super::joblog::{Entry, JobLog, exit_of};
use super::lines::Lines;
use super::results::{Results, Row};

/// How tasks that are over are delivered.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) keep_order: bool,
    pub(super) tag: bool,
    pub(super) json: bool,
    pub(super) verbose: bool,
    /// Whether the command is shown in front of its output.
    pub(super) show_commands: bool,
    /// What stands in front of each line instead of the items.
    pub(super) tag_text: Option<Template>,
    /// Shows lines while tasks run, so that only what is left of them is shown at the end.
    pub(super) lines: Option<Arc<Lines>>,
    pub(super) log: Option<JobLog>,
    pub(super) results: Option<Results>,
    /// The number of the task whose output is shown next, in order.
    next: u64,
    /// Output that waits for its turn; none for a task that has nothing to show.
    waiting: BTreeMap<u64, Option<Parcel>>,
}

/// A task that is over.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) sequence: u64,
    pub(super) command: Arc<TaskCommand>,
    /// Its last attempt, if there was one.
    pub(super) done: Option<Done>,
    /// What else is known of a task of a job file.
    pub(super) story: Option<Story>,
}

/// The last attempt at a task.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) slot: usize,
    pub(super) attempt: u32,
    /// When it started, by the clock on the wall.
    pub(super) started: SystemTime,
    pub(super) result: Result<Ended, StartError>,
    pub(super) output: Spool,
}

impl Done {
    /// Its exit code, as a shell would say it.
    pub(super) fn exit_code(&self) -> u8 {
        match self.result.as_ref().map(|ended| ended.status) {
            Err(_) => 127,
            Ok(Status::Exited(code)) => u8::try_from(code).unwrap_or(1),
            Ok(Status::Signalled(signal)) => u8::try_from(128 + signal).unwrap_or(255),
        }
    }
}

impl From<End> for Done {
    fn from(end: End) -> Self {
        let Ran::Process(result) = end.ran else {
            unreachable!("a run has no functions");
        };
        Self {
            slot: end.slot,
            attempt: end.attempt,
            started: end.started,
            result,
            output: end.output.into_whole(),
        }
    }
}

/// A task of a job file.
#[derive(Debug)]
pub(super) struct Story {
    /// Its name, with its entry.
    pub(super) title: String,
    /// Its name.
    pub(super) name: String,
    /// Who ran its last attempt.
    pub(super) agent: Option<String>,
    /// How it ended, in a word.
    pub(super) ending: &'static str,
    /// What stands in for its output.
    pub(super) value: Option<String>,
    /// Whether its own output does not count.
    pub(super) is_replaced: bool,
    /// What to tell of a task that failed or was skipped.
    pub(super) trouble: Option<String>,
}

impl Parcel {
    /// What stands in front of its lines: the items as GNU parallel shows them, or its title.
    fn tag(&self, plain: bool, text: Option<&Template>) -> Option<Vec<u8>> {
        match &self.story {
            Some(story) if plain && text.is_none() => Some(format!("{}\t", story.title).into()),
            _ => {
                let slot = self.done.as_ref().map(|done| done.slot);
                tag_of(&self.command, slot, plain, text)
            }
        }
    }

    /// What names the directory of its results, level by level.
    fn labels(&self) -> Vec<OsString> {
        let name = self.story.as_ref().map(|story| story.name.clone().into());
        name.into_iter()
            .chain(self.command.items.iter().cloned())
            .collect()
    }

    fn line(&self) -> OsString {
        self.command.line(self.done.as_ref().map(|done| done.slot))
    }

    /// Replaces its output by what stands in for it.
    fn stand_in(&mut self) -> io::Result<()> {
        use loxley_exec::Sink;
        let Some(story) = self.story.as_ref().filter(|story| story.is_replaced) else {
            return Ok(());
        };
        let mut output = Spool::default();
        if let Some(value) = &story.value {
            output.take(Stream::Stdout, value.as_bytes())?;
        }
        if let Some(done) = &mut self.done {
            done.output = output;
        }
        Ok(())
    }
}

impl Delivery {
    pub(super) fn new(keep_order: bool, tag: bool, json: bool) -> Self {
        Self {
            keep_order,
            tag,
            json,
            verbose: false,
            show_commands: false,
            tag_text: None,
            lines: None,
            log: None,
            results: None,
            next: 1,
            waiting: BTreeMap::new(),
        }
    }

    /// Delivers a task that is over.
    pub(super) fn deliver(&mut self, mut parcel: Parcel, out: &mut dyn Write) -> Result<()> {
        parcel.stand_in()?;
        self.write_log(&parcel)
            .context("cannot write the job log")?;
        self.write_results(&mut parcel)?;
        if self.json {
            show_json(&mut parcel, out)?;
        } else if self.keep_order {
            self.waiting.insert(parcel.sequence, Some(parcel));
            self.show_in_order(out)?;
        } else {
            self.show(parcel, out)?;
        }
        Ok(())
    }

    /// A task that has nothing to show: skipped, or stopped before it ran.
    pub(super) fn skip(&mut self, sequence: u64, out: &mut dyn Write) -> Result<()> {
        if self.keep_order {
            self.waiting.insert(sequence, None);
            self.show_in_order(out)?;
        }
        Ok(())
    }

    /// Shows what still waits, though something before it never came.
    pub(super) fn finish(&mut self, out: &mut dyn Write) -> Result<()> {
        for parcel in std::mem::take(&mut self.waiting).into_values().flatten() {
            self.show(parcel, out)?;
        }
        Ok(())
    }

    fn show_in_order(&mut self, out: &mut dyn Write) -> Result<()> {
        while let Some(parcel) = self.waiting.remove(&self.next) {
            self.next += 1;
            if let Some(parcel) = parcel {
                self.show(parcel, out)?;
            }
            if let Some(lines) = &self.lines {
                // What is written past our buffer must not be in front of what is in it.
                out.flush()?;
                lines.set_turn(self.next);
            }
        }
        Ok(())
    }

    fn show(&self, mut parcel: Parcel, out: &mut dyn Write) -> Result<()> {
        if let Some(trouble) = parcel
            .story
            .as_ref()
            .and_then(|story| story.trouble.as_ref())
        {
            let how = parcel.done.as_ref().map(how_it_ended).unwrap_or_default();
            writeln!(io::stderr(), "loxley: {trouble}{how}")?;
        } else if let Some(Err(error)) = parcel.done.as_ref().map(|done| &done.result) {
            let causes = error.in_words();
            writeln!(io::stderr(), "loxley: task {}: {causes}", parcel.sequence)?;
        }
        if self.verbose && parcel.done.is_some() {
            let mut stderr = io::stderr().lock();
            stderr.write_all(parcel.line().as_bytes())?;
            writeln!(stderr)?;
        }
        if self.show_commands && parcel.done.is_some() {
            out.write_all(parcel.line().as_bytes())?;
            writeln!(out)?;
        }
        let tag = parcel.tag(self.tag, self.tag_text.as_ref());
        let Some(done) = &mut parcel.done else {
            return Ok(());
        };
        for stream in [Stream::Stdout, Stream::Stderr] {
            if done.output.is_empty(stream) {
                continue;
            }
            let mut stderr;
            let to: &mut dyn Write = match stream {
                Stream::Stdout => &mut *out,
                Stream::Stderr => {
                    stderr = io::stderr().lock();
                    &mut stderr
                }
            };
            if let Some(tag) = &tag {
                let output = done.output.reader(stream)?;
                copy_tagged(BufReader::new(output), tag, to)?;
            } else {
                done.output.copy(stream, to)?;
            }
        }
        Ok(())
    }

    fn write_log(&mut self, parcel: &Parcel) -> io::Result<()> {
        let (Some(log), Some(done)) = (&mut self.log, &parcel.done) else {
            return Ok(());
        };
        let ended = done.result.as_ref().ok();
        log.write(&Entry {
            sequence: parcel.sequence,
            started: done.started,
            duration: ended.map(|ended| ended.duration).unwrap_or_default(),
            sent: parcel.command.input.as_ref().map_or(Ok(0), Input::size)?,
            received: done.output.written(Stream::Stdout),
            // As a shell says it of a command that it cannot start.
            exit: ended.map_or((127, 0), exit_of),
            command: &parcel.line(),
        })
    }

    fn write_results(&mut self, parcel: &mut Parcel) -> Result<()> {
        let (labels, line) = (parcel.labels(), parcel.line());
        let (Some(results), Some(done)) = (&mut self.results, &mut parcel.done) else {
            return Ok(());
        };
        let ended = done.result.as_ref().ok();
        let row = Row {
            items: &labels,
            filling: Filling {
                items: &parcel.command.items,
                sequence: parcel.sequence,
                slot: Some(done.slot + 1),
            },
            started: done.started,
            duration: ended.map(|ended| ended.duration).unwrap_or_default(),
            exit: ended.map_or((127, 0), exit_of),
            command: &line,
        };
        results.write(&row, &mut done.output)
    }
}

/// What stands in front of the lines of a task, if anything does: a text of its own, filled, or its items.
pub(super) fn tag_of(
    command: &TaskCommand,
    slot: Option<usize>,
    plain: bool,
    text: Option<&Template>,
) -> Option<Vec<u8>> {
    let mut tag = match text {
        Some(text) => {
            let words = text.words(&Filling {
                items: &command.items,
                sequence: command.sequence,
                slot: slot.map(|slot| slot + 1),
            });
            words.join(std::ffi::OsStr::new(" ")).into_encoded_bytes()
        }
        None if plain => {
            let items: Vec<&[u8]> = command.items.iter().map(|item| item.as_bytes()).collect();
            items.join(&b' ')
        }
        None => return None,
    };
    tag.push(b'\t');
    Some(tag)
}

/// `: exit code 2`, as the end of a sentence on a task that failed.
fn how_it_ended(done: &Done) -> String {
    let attempts = match done.attempt {
        0 | 1 => String::new(),
        attempts => format!(" at attempt {attempts}"),
    };
    match &done.result {
        Err(error) => format!(": {}", error.in_words()),
        Ok(ended) if ended.success() => String::new(),
        Ok(ended) if ended.stopped == Some(Stopped::Killed) => format!(": stopped{attempts}"),
        Ok(ended) => match ended.status {
            Status::Exited(code) => format!(": exit code {code}{attempts}"),
            Status::Signalled(signal) => format!(": signal {signal}{attempts}"),
        },
    }
}

fn copy_tagged(mut from: impl BufRead, tag: &[u8], to: &mut dyn Write) -> io::Result<()> {
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(tag)?;
        to.write_all(&line)?;
        line.clear();
    }
    Ok(())
}

fn show_json(parcel: &mut Parcel, out: &mut dyn Write) -> Result<()> {
    let line = parcel.line();
    let items: Vec<_> = parcel
        .command
        .items
        .iter()
        .map(|item| item.to_string_lossy())
        .collect();
    let mut row = json!({
        "task": parcel.sequence,
        "items": items,
        "command": line.to_string_lossy(),
    });
    if let Some(story) = &parcel.story {
        row["name"] = json!(story.name);
        row["agent"] = json!(story.agent);
        row["ending"] = json!(story.ending);
    }
    if let Some(done) = &mut parcel.done {
        let mut texts = [Vec::new(), Vec::new()];
        done.output.copy(Stream::Stdout, &mut texts[0])?;
        done.output.copy(Stream::Stderr, &mut texts[1])?;
        let [stdout, stderr] = texts.map(|text| String::from_utf8_lossy(&text).into_owned());
        let ended = done.result.as_ref().ok();
        let (code, signal) = ended.map_or((127, 0), exit_of);
        let started = done.started.duration_since(std::time::UNIX_EPOCH);
        for (key, value) in [
            ("slot", json!(done.slot + 1)),
            ("attempt", json!(done.attempt)),
            ("exit", json!(code)),
            ("signal", json!(signal)),
            (
                "error",
                json!(done.result.as_ref().err().map(StartError::in_words)),
            ),
            ("started", json!(started.unwrap_or_default().as_secs_f64())),
            (
                "seconds",
                json!(ended.map(|ended| ended.duration.as_secs_f64())),
            ),
            (
                "user_seconds",
                json!(ended.map(|ended| ended.user_time.as_secs_f64())),
            ),
            (
                "system_seconds",
                json!(ended.map(|ended| ended.system_time.as_secs_f64())),
            ),
            ("memory_max", json!(ended.map(|ended| ended.memory_max))),
            ("stdout", json!(stdout)),
            ("stderr", json!(stderr)),
        ] {
            row[key] = value;
        }
    }
    serde_json::to_writer(&mut *out, &row).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

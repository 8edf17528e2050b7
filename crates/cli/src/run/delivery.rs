//! What happens with a task that is over: its output is shown, its line goes to the log, its result
//! to the directory.
//!
//! The output of one task is never mixed with that of another. With `--keep-order` it waits for the
//! tasks before it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use loxley_agent::{Spool, Status, Stopped, Stream};
use serde_json::json;

use super::joblog::{Entry, JobLog, exit_of};
use super::results;
use super::slots::{Done, What};

/// How tasks that are over are delivered.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) keep_order: bool,
    pub(super) tag: bool,
    pub(super) json: bool,
    pub(super) verbose: bool,
    pub(super) log: Option<JobLog>,
    pub(super) results: Option<PathBuf>,
    /// The number of the task whose output is shown next, in order.
    next: u64,
    /// Output that waits for its turn; none for a task that has nothing to show.
    waiting: BTreeMap<u64, Option<Parcel>>,
}

/// A task that is over.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) sequence: u64,
    pub(super) what: Arc<What>,
    /// Its last attempt, if there was one.
    pub(super) done: Option<Done>,
    /// What else is known of a task of a job file.
    pub(super) story: Option<Story>,
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
    fn tag(&self) -> Vec<u8> {
        let mut tag = match &self.story {
            Some(story) => story.title.clone().into_bytes(),
            None => {
                let items: Vec<&[u8]> = self.what.items.iter().map(|i| i.as_bytes()).collect();
                items.join(&b' ')
            }
        };
        tag.push(b'\t');
        tag
    }

    /// What names the directory of its results, level by level.
    fn labels(&self) -> Vec<OsString> {
        let name = self.story.as_ref().map(|story| story.name.clone().into());
        name.into_iter()
            .chain(self.what.items.iter().cloned())
            .collect()
    }

    fn line(&self) -> OsString {
        let slot = self.done.as_ref().map_or(0, |done| done.slot);
        self.what.line(slot)
    }

    /// Replaces its output by what stands in for it.
    fn stand_in(&mut self) -> io::Result<()> {
        use loxley_agent::Sink;
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
            log: None,
            results: None,
            next: 1,
            waiting: BTreeMap::new(),
        }
    }

    /// Delivers a task that is over.
    pub(super) fn deliver(&mut self, mut parcel: Parcel, out: &mut dyn Write) -> Result<()> {
        parcel.stand_in()?;
        if let Some(done) = &parcel.done {
            self.write_log(parcel.sequence, done, &parcel.line())
                .context("cannot write the job log")?;
        }
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
            let causes = with_cause(error);
            writeln!(io::stderr(), "loxley: task {}: {causes}", parcel.sequence)?;
        }
        if self.verbose && parcel.done.is_some() {
            let mut stderr = io::stderr().lock();
            stderr.write_all(parcel.line().as_bytes())?;
            writeln!(stderr)?;
        }
        let tag = self.tag.then(|| parcel.tag());
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

    fn write_log(&mut self, sequence: u64, done: &Done, line: &OsStr) -> io::Result<()> {
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        let ended = done.result.as_ref().ok();
        log.write(&Entry {
            sequence,
            started: done.started,
            duration: ended.map(|ended| ended.duration).unwrap_or_default(),
            received: done.output.len(Stream::Stdout),
            // As a shell says it of a command that it cannot start.
            exit: ended.map_or((127, 0), exit_of),
            command: line,
        })
    }

    fn write_results(&self, parcel: &mut Parcel) -> Result<()> {
        let Some(root) = &self.results else {
            return Ok(());
        };
        let labels = parcel.labels();
        let Some(done) = &mut parcel.done else {
            return Ok(());
        };
        let mut write = || -> io::Result<()> {
            let (stdout, stderr) = results::prepare(root, &labels, parcel.sequence)?;
            done.output
                .copy(Stream::Stdout, &mut File::create(stdout)?)?;
            done.output.copy(Stream::Stderr, &mut File::create(stderr)?)
        };
        write().with_context(|| format!("cannot write results to {}", root.display()))
    }
}

fn with_cause(error: &loxley_agent::StartError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// `: exit code 2`, as the end of a sentence on a task that failed.
fn how_it_ended(done: &Done) -> String {
    let attempts = match done.attempt {
        0 | 1 => String::new(),
        attempts => format!(" at attempt {attempts}"),
    };
    match &done.result {
        Err(error) => format!(": {}", with_cause(error)),
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
        .what
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
            ("error", json!(done.result.as_ref().err().map(with_cause))),
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

//! What happens with a task that is over: its output is shown, its line goes to the log, its result
//! to the directory.
//!
//! The output of one task is never mixed with that of another. With `--keep-order` it waits for the
//! tasks before it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use loxley_agent::{Filling, Stream, Template};
use serde_json::json;

use super::joblog::{Entry, JobLog, exit_of};
use super::results;
use super::slots::Done;

/// How tasks that are over are delivered.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) keep_order: bool,
    pub(super) tag: bool,
    pub(super) json: bool,
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
    pub(super) items: Arc<[OsString]>,
    pub(super) done: Done,
}

impl Delivery {
    pub(super) fn new(keep_order: bool, tag: bool, json: bool) -> Self {
        Self {
            keep_order,
            tag,
            json,
            log: None,
            results: None,
            next: 1,
            waiting: BTreeMap::new(),
        }
    }

    /// Delivers a task that ran.
    pub(super) fn deliver(
        &mut self,
        mut parcel: Parcel,
        template: &Template,
        out: &mut dyn Write,
    ) -> Result<()> {
        let filling = Filling {
            items: &parcel.items,
            sequence: parcel.sequence,
            slot: parcel.done.slot + 1,
        };
        let line = template.line(&filling);
        self.write_log(&parcel, &line)
            .context("cannot write the job log")?;
        self.write_results(&mut parcel)?;
        if self.json {
            show_json(&mut parcel, &line, out)?;
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
        if let Err(error) = &parcel.done.result {
            let causes = std::error::Error::source(error).map(|cause| format!(": {cause}"));
            let causes = causes.unwrap_or_default();
            writeln!(
                io::stderr(),
                "loxley: task {}: {error}{causes}",
                parcel.sequence
            )?;
        }
        for stream in [Stream::Stdout, Stream::Stderr] {
            if parcel.done.output.is_empty(stream) {
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
            if self.tag {
                let output = parcel.done.output.reader(stream)?;
                copy_tagged(BufReader::new(output), &tag_of(&parcel.items), to)?;
            } else {
                parcel.done.output.copy(stream, to)?;
            }
        }
        Ok(())
    }

    fn write_log(&mut self, parcel: &Parcel, line: &std::ffi::OsStr) -> io::Result<()> {
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        let ended = parcel.done.result.as_ref().ok();
        log.write(&Entry {
            sequence: parcel.sequence,
            started: parcel.done.started,
            duration: ended.map(|ended| ended.duration).unwrap_or_default(),
            received: parcel.done.output.len(Stream::Stdout),
            // As a shell says it of a command that it cannot start.
            exit: ended.map_or((127, 0), exit_of),
            command: line,
        })
    }

    fn write_results(&self, parcel: &mut Parcel) -> Result<()> {
        let Some(root) = &self.results else {
            return Ok(());
        };
        let write = |parcel: &mut Parcel| -> io::Result<()> {
            let (stdout, stderr) = results::prepare(root, &parcel.items, parcel.sequence)?;
            parcel
                .done
                .output
                .copy(Stream::Stdout, &mut File::create(stdout)?)?;
            parcel
                .done
                .output
                .copy(Stream::Stderr, &mut File::create(stderr)?)
        };
        write(parcel).with_context(|| format!("cannot write results to {}", root.display()))
    }
}

/// The items of a task in front of each of its lines, as GNU parallel shows them.
fn tag_of(items: &[OsString]) -> Vec<u8> {
    let items: Vec<&[u8]> = items.iter().map(|item| item.as_bytes()).collect();
    let mut tag = items.join(&b' ');
    tag.push(b'\t');
    tag
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

fn show_json(parcel: &mut Parcel, line: &std::ffi::OsStr, out: &mut dyn Write) -> Result<()> {
    let mut texts = [Vec::new(), Vec::new()];
    parcel.done.output.copy(Stream::Stdout, &mut texts[0])?;
    parcel.done.output.copy(Stream::Stderr, &mut texts[1])?;
    let [stdout, stderr] = texts.map(|text| String::from_utf8_lossy(&text).into_owned());
    let ended = parcel.done.result.as_ref().ok();
    let (code, signal) = ended.map_or((127, 0), exit_of);
    let items: Vec<_> = parcel
        .items
        .iter()
        .map(|item| item.to_string_lossy())
        .collect();
    let started = parcel
        .done
        .started
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let row = json!({
        "task": parcel.sequence,
        "items": items,
        "command": line.to_string_lossy(),
        "slot": parcel.done.slot + 1,
        "attempt": parcel.done.attempt,
        "exit": code,
        "signal": signal,
        "error": parcel.done.result.as_ref().err().map(ToString::to_string),
        "started": started.as_secs_f64(),
        "seconds": ended.map(|ended| ended.duration.as_secs_f64()),
        "user_seconds": ended.map(|ended| ended.user_time.as_secs_f64()),
        "system_seconds": ended.map(|ended| ended.system_time.as_secs_f64()),
        "memory_max": ended.map(|ended| ended.memory_max),
        "stdout": stdout,
        "stderr": stderr,
    });
    serde_json::to_writer(&mut *out, &row).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

//! The list of what ran, in the columns of GNU parallel: one line for each task that ended.
//!
//! A line is written with one call and never changed, so a run that was killed leaves at most one
//! torn line, the last; it does not count when the run is resumed.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use loxley_exec::{Ended, Status, TaskCommand};

const HEADING: &str = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";

/// The log of a run.
#[derive(Debug)]
pub(super) struct JobLog {
    file: File,
}

/// One line of it.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    /// The number of the task.
    pub(super) sequence: u64,
    /// When it was started.
    pub(super) started: SystemTime,
    /// How long it ran.
    pub(super) duration: Duration,
    /// How many bytes it was given to read.
    pub(super) sent: u64,
    /// How many bytes it wrote to standard output.
    pub(super) received: u64,
    /// Its exit code and the signal that ended it; one of them is 0.
    pub(super) exit: (i32, i32),
    /// The line that was run.
    pub(super) command: &'a OsStr,
}

/// What an earlier run did, by the numbers of its tasks.
pub(super) type Earlier = HashMap<u64, Logged>;

/// A task that ended in an earlier run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Logged {
    pub(super) succeeded: bool,
    /// The line that was run, as the log writes it.
    command: Vec<u8>,
}

impl Logged {
    /// Whether the same would run now.
    ///
    /// # Errors
    /// When not: whoever left it out would leave out something that never ran.
    pub(super) fn check(&self, sequence: u64, command: &TaskCommand) -> Result<()> {
        /// More slots than anybody has: where the line depends on the slot, it may have been any of them.
        const SLOTS: usize = 4096;
        let is_line = |slot| escaped(&command.line(slot)) == self.command;
        let depends_on_slot = || command.line(None) != command.line(Some(0));
        if is_line(None) || (depends_on_slot() && (0..SLOTS).any(|slot| is_line(Some(slot)))) {
            return Ok(());
        }
        bail!(
            "task {sequence} is another one than in the job log: `{}` then, `{}` now; resume with the same \
             command and items, or begin a new log",
            String::from_utf8_lossy(&self.command),
            String::from_utf8_lossy(&escaped(&command.line(None)))
        )
    }
}

/// A task that failed in an earlier run, at its last attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) sequence: u64,
    /// The line that was run.
    pub(super) command: OsString,
}

/// What failed according to a log, in the order of the tasks.
pub(super) fn failed(path: &Path) -> Result<Vec<Failed>> {
    let text = std::fs::read(path).with_context(|| cannot("read", path))?;
    let whole = text.iter().rposition(|byte| *byte == b'\n');
    let whole = whole.map_or(0, |end| end + 1);
    let logged = read(&text[..whole]).with_context(|| cannot("take failures from", path))?;
    let failed = logged.into_iter().filter(|(_, logged)| !logged.succeeded);
    let mut failed: Vec<Failed> = failed
        .map(|(sequence, logged)| Failed {
            sequence,
            command: unescaped(&logged.command),
        })
        .collect();
    failed.sort_by_key(|failed| failed.sequence);
    Ok(failed)
}

/// A command as it was before its line breaks and tabs were spelled out.
fn unescaped(command: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(command.len());
    let mut rest = command;
    while let [first, behind @ ..] = rest {
        let (byte, length) = match rest {
            [b'\\', b'n', ..] => (b'\n', 2),
            [b'\\', b't', ..] => (b'\t', 2),
            _ => (*first, 1),
        };
        bytes.push(byte);
        rest = &behind[length - 1..];
    }
    OsString::from_vec(bytes)
}

impl JobLog {
    /// Starts a new log; what was in the file is gone.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| cannot("write", path))?;
        let mut log = Self { file };
        log.put(HEADING.as_bytes())
            .with_context(|| cannot("write", path))?;
        Ok(log)
    }

    /// Goes on with the log of an earlier run, if there is one; says which tasks ended in it and
    /// whether they succeeded.
    pub(super) fn resume(path: &Path) -> Result<(Self, Earlier)> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(|| cannot("open", path))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)
            .with_context(|| cannot("read", path))?;
        // A torn last line is overwritten.
        let whole = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        let earlier = read(&text[..whole]).with_context(|| cannot("resume from", path))?;
        file.set_len(whole as u64)?;
        file.seek(SeekFrom::End(0))?;
        let mut log = Self { file };
        if whole == 0 {
            log.put(HEADING.as_bytes())?;
        }
        Ok((log, earlier))
    }

    /// Adds a line.
    pub(super) fn write(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        let started = entry
            .started
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64();
        let mut line = format!(
            "{}\t:\t{started:.3}\t{:10.3}\t{}\t{}\t{}\t{}\t",
            entry.sequence,
            entry.duration.as_secs_f64(),
            entry.sent,
            entry.received,
            entry.exit.0,
            entry.exit.1,
        )
        .into_bytes();
        line.extend_from_slice(&escaped(entry.command));
        line.push(b'\n');
        self.put(&line)
    }

    fn put(&mut self, line: &[u8]) -> io::Result<()> {
        self.file.write_all(line)
    }
}

/// Exit code and signal as the log shows them: a task that had to be stopped has code -1.
pub(super) fn exit_of(ended: &Ended) -> (i32, i32) {
    match ended.status {
        Status::Exited(code) if ended.stopped.is_some() => (if code == 0 { -1 } else { code }, 0),
        Status::Exited(code) => (code, 0),
        Status::Signalled(signal) => (if ended.stopped.is_some() { -1 } else { 0 }, signal),
    }
}

/// A command as it stands in a line of a log.
fn escaped(command: &OsStr) -> Vec<u8> {
    let mut line = Vec::with_capacity(command.len());
    for &byte in command.as_bytes() {
        match byte {
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\t' => line.extend_from_slice(b"\\t"),
            _ => line.push(byte),
        }
    }
    line
}

fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} the job log {}", path.display())
}

fn read(text: &[u8]) -> Result<Earlier> {
    let mut earlier = Earlier::new();
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        if line.is_empty() || (number == 1 && line.starts_with(b"Seq\t")) {
            continue;
        }
        let field = |index: usize| {
            let field = line.split(|byte| *byte == b'\t').nth(index)?;
            str::from_utf8(field).ok()?.trim().parse::<i64>().ok()
        };
        let (Some(sequence), Some(code), Some(signal)) = (field(0), field(6), field(7)) else {
            bail!("line {number} is not a line of a job log");
        };
        let sequence = u64::try_from(sequence).context("a task has a negative number")?;
        let succeeded = code == 0 && signal == 0;
        let command = line.splitn(9, |byte| *byte == b'\t').nth(8);
        let command = command.unwrap_or_default().to_vec();
        earlier.insert(sequence, Logged { succeeded, command });
    }
    Ok(earlier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn entry(sequence: u64, code: i32) -> Entry<'static> {
        Entry {
            sequence,
            started: UNIX_EPOCH + Duration::from_millis(1_431_699_523_118),
            duration: Duration::from_millis(2),
            sent: 0,
            received: 2,
            exit: (code, 0),
            command: OsStr::new("echo a"),
        }
    }

    #[test]
    fn the_columns_are_those_of_gnu_parallel() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = JobLog::create(&path).unwrap();
        log.write(&entry(1, 0)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n\
             1\t:\t1431699523.118\t     0.002\t0\t2\t0\t0\techo a\n"
        );
    }

    #[test]
    fn a_resumed_log_knows_what_ended_and_drops_a_torn_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = JobLog::create(&path).unwrap();
        log.write(&entry(1, 0)).unwrap();
        log.write(&entry(2, 3)).unwrap();
        let whole = fs::read(&path).unwrap();
        let mut torn = whole.clone();
        torn.extend_from_slice(b"3\t:\t14316");
        fs::write(&path, torn).unwrap();
        let (mut log, earlier) = JobLog::resume(&path).unwrap();
        let logged = |succeeded| Logged {
            succeeded,
            command: b"echo a".to_vec(),
        };
        assert_eq!(
            earlier,
            Earlier::from([(1, logged(true)), (2, logged(false))])
        );
        log.write(&entry(3, 0)).unwrap();
        let text = fs::read(&path).unwrap();
        assert!(text.starts_with(&whole));
        assert_eq!(read(&text).unwrap().len(), 3);
        fs::write(&path, "what is this\n").unwrap();
        assert!(JobLog::resume(&path).is_err());
    }

    #[test]
    fn a_log_that_is_not_there_yet_is_begun() {
        let directory = tempfile::tempdir().unwrap();
        let (mut log, earlier) = JobLog::resume(&directory.path().join("log")).unwrap();
        assert!(earlier.is_empty());
        log.write(&entry(1, 0)).unwrap();
    }
}

//! The list of what ran, in the columns of GNU parallel: one line for each task that ended.
//!
//! A line is written with one call and never changed, so a run that was killed leaves at most one
//! torn line, the last; it does not count when the run is resumed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use loxley_agent::{Ended, Status};

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
    /// How many bytes it wrote to standard output.
    pub(super) received: u64,
    /// Its exit code and the signal that ended it; one of them is 0.
    pub(super) exit: (i32, i32),
    /// The line that was run.
    pub(super) command: &'a OsStr,
}

/// What an earlier run did.
pub(super) type Earlier = HashMap<u64, bool>;

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
            "{}\t:\t{started:.3}\t{:10.3}\t0\t{}\t{}\t{}\t",
            entry.sequence,
            entry.duration.as_secs_f64(),
            entry.received,
            entry.exit.0,
            entry.exit.1,
        )
        .into_bytes();
        for &byte in entry.command.as_bytes() {
            match byte {
                b'\n' => line.extend_from_slice(b"\\n"),
                b'\t' => line.extend_from_slice(b"\\t"),
                _ => line.push(byte),
            }
        }
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
        earlier.insert(sequence, code == 0 && signal == 0);
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
        assert_eq!(earlier, Earlier::from([(1, true), (2, false)]));
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

//! One writer per directory, and a message that names it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Held while it lives; the system lets go when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

#[derive(Debug)]
pub(super) enum Refused {
    /// By whom, as they wrote it down.
    Held(String),
    Io(std::io::Error),
}

impl Lock {
    pub(super) fn take(path: &Path, holder: &str) -> Result<Self, Refused> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(Refused::Io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Refused::Held(read_holder(&mut file))),
            Err(TryLockError::Error(error)) => return Err(Refused::Io(error)),
        }
        match write_holder(&mut file, holder) {
            // The lock is what counts; on a full disk its file stays without a name.
            Err(error) if error.kind() != std::io::ErrorKind::StorageFull => {
                return Err(Refused::Io(error));
            }
            _ => {}
        }
        Ok(Self { file })
    }
}

impl Drop for Lock {
    /// Closing the file would not do: a process that is being started by another thread has a copy of it until it
    /// begins its own program, and the lock is in force until the last copy is closed.
    fn drop(&mut self) {
        // Nothing can be done about an error; closing follows.
        let _ = self.file.unlock();
    }
}

fn write_holder(file: &mut File, holder: &str) -> std::io::Result<()> {
    let host = rustix::system::uname();
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    file.set_len(0)?;
    file.rewind()?;
    writeln!(
        file,
        "{holder}, process {} on {}, since {}",
        std::process::id(),
        host.nodename().to_string_lossy(),
        utc(since)
    )
}

fn read_holder(file: &mut File) -> String {
    let mut text = String::new();
    // The holder may be about to write its line: an unknown holder is still a holder.
    let read = file.take(1024).read_to_string(&mut text);
    match (read, text.trim()) {
        (Ok(_), line) if !line.is_empty() => line.to_owned(),
        _ => "another process".to_owned(),
    }
}

/// A moment as people write it. Days are turned into a date by counting 400-year cycles from a year
/// that begins in March, so that the leap day is the last of its year.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!(
        "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC",
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(4_107_542_399), "2100-02-28 23:59:59 UTC");
        assert_eq!(utc(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }

    #[test]
    fn the_second_holder_is_told_of_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal.lock");
        let first = Lock::take(&path, "loxley server").unwrap();
        let Err(Refused::Held(holder)) = Lock::take(&path, "loxley server") else {
            panic!("two writers")
        };
        let begin = format!("loxley server, process {} on ", std::process::id());
        assert!(holder.starts_with(&begin), "{holder}");
        drop(first);
        assert!(Lock::take(&path, "loxley server").is_ok());
    }

    #[test]
    fn a_copy_in_a_process_that_is_being_started_does_not_keep_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal.lock");
        let first = Lock::take(&path, "loxley server").unwrap();
        // As a child has it between fork and exec.
        let _copy = first.file.try_clone().unwrap();
        drop(first);
        assert!(Lock::take(&path, "loxley server").is_ok());
    }
}

//! `--limit group=N`: at most N tasks of a group at once on this machine, over all runs of one user.
//!
//! A group is a directory with one file for each seat. Whoever holds the lock of a seat runs a task;
//! the system gives the lock back when its holder ends, however it ends. Runs that name different
//! limits for one group share the seats that both know.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use loxley_balance::Rng;

/// `group=N` as it stands on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupLimit {
    pub(super) group: String,
    pub(super) limit: u32,
}

impl FromStr for GroupLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a group and how many of it may run, like disk=2");
        let (group, limit) = text.rsplit_once('=').ok_or_else(wrong)?;
        // The name becomes that of a directory.
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
        let fits = !group.is_empty() && group.len() <= 100 && !group.starts_with('.');
        let limit = limit
            .parse()
            .ok()
            .filter(|limit| (1..=4096).contains(limit));
        match limit {
            Some(limit) if fits && group.chars().all(is_plain) => Ok(Self {
                group: group.to_owned(),
                limit,
            }),
            _ => Err(wrong()),
        }
    }
}

/// A limit that all runs of one user share.
#[derive(Debug)]
pub(super) struct SharedLimit {
    seats: Vec<PathBuf>,
}

/// A place in a group: it is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    _lock: File,
}

/// How long to wait before all seats are tried again. Nobody tells when one is free.
const TRY_AGAIN: Duration = Duration::from_millis(20);

impl SharedLimit {
    /// The seats of a group, below `root`.
    pub(super) fn new(root: &Path, limit: &GroupLimit) -> Result<Self> {
        let directory = root.join(&limit.group);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .with_context(|| format!("cannot keep the limit in {}", directory.display()))?;
        let seat = |number: u32| directory.join(number.to_string());
        Ok(Self {
            seats: (1..=limit.limit).map(seat).collect(),
        })
    }

    /// Waits for a free seat; none when `is_closed` became true before, or the seats are gone.
    pub(super) fn wait_for_seat(&self, is_closed: &impl Fn() -> bool) -> Option<Seat> {
        let mut rng = Rng::new(u64::from(std::process::id()));
        loop {
            if is_closed() {
                return None;
            }
            if let Some(seat) = self.take_seat().ok()? {
                return Some(seat);
            }
            // Jitter: runs that wait for the same seat should not look at the same moment.
            thread::sleep(TRY_AGAIN.mul_f64(0.5 + rng.unit_f64()));
        }
    }

    fn take_seat(&self) -> io::Result<Option<Seat>> {
        for path in &self.seats {
            let lock = File::options().create(true).append(true).open(path)?;
            match lock.try_lock() {
                Ok(()) => return Ok(Some(Seat { _lock: lock })),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// Where the seats are: the user's own directory for such things, or one beside the temporary files
/// that carries the user's number.
pub(super) fn root() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()) {
        Some(directory) => Path::new(&directory).join("loxley/limits"),
        None => {
            let user = rustix::process::getuid().as_raw();
            std::env::temp_dir().join(format!("loxley-{user}/limits"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_seats_as_the_limit_says() {
        let root = tempfile::tempdir().unwrap();
        let limit = SharedLimit::new(root.path(), &"disk=2".parse().unwrap()).unwrap();
        let other = SharedLimit::new(root.path(), &"disk=2".parse().unwrap()).unwrap();
        let first = limit.take_seat().unwrap().unwrap();
        let _second = other.take_seat().unwrap().unwrap();
        assert!(limit.take_seat().unwrap().is_none());
        drop(first);
        assert!(other.take_seat().unwrap().is_some());
    }

    #[test]
    fn a_group_is_a_plain_name() {
        assert_eq!("a.b-c=3".parse::<GroupLimit>().unwrap().limit, 3);
        for wrong in [
            "", "x", "x=0", "=1", "../x=1", ".x=1", "a/b=1", "x=99999", "x=y",
        ] {
            assert!(wrong.parse::<GroupLimit>().is_err(), "{wrong}");
        }
    }
}

//! A limit that all runs of one user on this machine share: at most so many tasks of a group at once.
//!
//! A group is a directory with one file for each seat. Whoever holds the lock of a seat runs a task;
//! the system gives the lock back when its holder ends, however it ends. Runs that name different
//! limits for one group share the seats that both know.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use loxley_balance::Rng;

/// A limit that all runs of one user share.
#[derive(Debug)]
pub struct SharedLimit {
    seats: Vec<PathBuf>,
}

/// A place in a group: it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    _lock: File,
}

/// How long to wait before all seats are tried again. Nobody tells when one is free.
const TRY_AGAIN: Duration = Duration::from_millis(20);

impl SharedLimit {
    /// The seats of a group below `root`, as many as may run at once. The group becomes the name of a directory.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn new(root: &Path, group: &str, limit: u32) -> io::Result<Self> {
        let directory = root.join(group);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(|error| {
                let said = format!("cannot keep the limit in {}: {error}", directory.display());
                io::Error::new(error.kind(), said)
            })?;
        let seat = |number: u32| directory.join(number.to_string());
        Ok(Self {
            seats: (1..=limit).map(seat).collect(),
        })
    }

    /// Waits for a free seat; none when `is_closed` became true before, or the seats are gone.
    pub(crate) fn wait_for_seat(&self, is_closed: &impl Fn() -> bool) -> Option<Seat> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_seats_as_the_limit_says() {
        let root = tempfile::tempdir().unwrap();
        let limit = SharedLimit::new(root.path(), "disk", 2).unwrap();
        let other = SharedLimit::new(root.path(), "disk", 2).unwrap();
        let first = limit.take_seat().unwrap().unwrap();
        let _second = other.take_seat().unwrap().unwrap();
        assert!(limit.take_seat().unwrap().is_none());
        drop(first);
        assert!(other.take_seat().unwrap().is_some());
    }
}

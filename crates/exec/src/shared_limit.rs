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
pub struct Seat {
    lock: File,
}

impl Seat {
    /// Leaves the seat to the processes that are started from now on: it is free when the last of them has ended.
    ///
    /// # Errors
    /// When the system does not let a lock be inherited.
    pub fn leave_to_children(&self) -> io::Result<()> {
        Ok(rustix::io::fcntl_setfd(
            &self.lock,
            rustix::io::FdFlags::empty(),
        )?)
    }
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
    pub fn wait_for_seat(&self, is_closed: &impl Fn() -> bool) -> Option<Seat> {
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

    /// Waits until every seat that this group ever had is free; false when `is_closed` became true before.
    ///
    /// # Errors
    /// When the seats cannot be looked at.
    pub fn wait_until_empty(
        root: &Path,
        group: &str,
        is_closed: &impl Fn() -> bool,
    ) -> io::Result<bool> {
        let mut seats = Vec::new();
        match fs::read_dir(root.join(group)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(entries) => {
                for entry in entries {
                    seats.push(entry?.path());
                }
            }
        }
        for seat in seats {
            let lock = File::options().create(true).append(true).open(seat)?;
            loop {
                match lock.try_lock() {
                    Ok(()) => break,
                    Err(TryLockError::WouldBlock) if is_closed() => return Ok(false),
                    Err(TryLockError::WouldBlock) => thread::sleep(TRY_AGAIN),
                    Err(TryLockError::Error(error)) => return Err(error),
                }
            }
        }
        Ok(true)
    }

    fn take_seat(&self) -> io::Result<Option<Seat>> {
        for path in &self.seats {
            let lock = File::options().create(true).append(true).open(path)?;
            match lock.try_lock() {
                Ok(()) => return Ok(Some(Seat { lock })),
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

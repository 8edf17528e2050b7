//! How a command ended.

use std::time::Duration;

/// How a command ended and what it used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What the system says.
    pub status: Status,
    /// Who ended it, when it was not itself.
    pub stopped: Option<Stopped>,
    /// From the moment it was started to its end.
    pub duration: Duration,
    /// Processor time in its own code, with that of its children that it waited for.
    pub user_time: Duration,
    /// Processor time in the system on its behalf, likewise.
    pub system_time: Duration,
    /// The most memory it held at once, in bytes.
    pub memory_max: u64,
}

impl Ended {
    /// Whether it ended by itself, with exit code 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.status == Status::Exited(0) && self.stopped.is_none()
    }
}

/// What the system says about an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
}

/// Who ended a command that did not end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Its time limit passed.
    TimeLimit,
    /// The system, because it held as much memory as it may. Known only where commands have control groups.
    MemoryLimit,
    /// A [`Killer`](crate::Killer).
    Killed,
}

//! What holds a task back though a slot is free: a pause between starts, too little free memory, too
//! much load, a limit that is shared with other runs.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::limit::{Seat, SharedLimit};

/// What must be true before a task starts.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// The pause between two starts.
    pub(super) delay: Duration,
    /// So many bytes of memory must be free.
    pub(super) memory_free: Option<u64>,
    /// The load average of the last minute must not be above this.
    pub(super) load_max: Option<f64>,
    /// Limits that are shared with other runs on this machine.
    pub(super) limits: Vec<SharedLimit>,
    /// When the next task may start, for the pause.
    pub(super) next_start: Mutex<Option<Instant>>,
}

/// The right to run one task.
#[derive(Debug, Default)]
pub(super) struct Pass {
    _seats: Vec<Seat>,
}

/// Memory and load can only be asked for; nobody tells when they change.
const ASK_AGAIN: Duration = Duration::from_millis(200);

impl Gate {
    /// Waits until a task may start; none when `is_closed` became true before. The pass is given
    /// back when the task is over.
    pub(super) fn pass(&self, is_closed: impl Fn() -> bool) -> Option<Pass> {
        if self.is_open() {
            return Some(Pass::default());
        }
        if !wait(self.pause(), &is_closed) || !self.wait_for_room(&is_closed) {
            return None;
        }
        let mut seats = Vec::with_capacity(self.limits.len());
        for limit in &self.limits {
            seats.push(limit.wait_for_seat(&is_closed)?);
        }
        Some(Pass { _seats: seats })
    }

    /// Whether there is no condition at all.
    pub(super) fn is_open(&self) -> bool {
        self.delay.is_zero()
            && self.memory_free.is_none()
            && self.load_max.is_none()
            && self.limits.is_empty()
    }

    /// Books the next moment at which a task may start; says how long that is from now.
    fn pause(&self) -> Duration {
        let mut next = self
            .next_start
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let start = next.unwrap_or(now).max(now);
        *next = start.checked_add(self.delay);
        start.saturating_duration_since(now)
    }

    fn wait_for_room(&self, is_closed: &impl Fn() -> bool) -> bool {
        loop {
            let enough = self
                .memory_free
                .is_none_or(|least| memory_available().is_none_or(|free| free >= least));
            let calm = self
                .load_max
                .is_none_or(|most| load().is_none_or(|load| load <= most));
            if enough && calm {
                return !is_closed();
            }
            if !wait(ASK_AGAIN, is_closed) {
                return false;
            }
        }
    }
}

/// Sleeps, in pieces short enough to notice the end.
fn wait(duration: Duration, is_closed: &impl Fn() -> bool) -> bool {
    let end = Instant::now() + duration;
    loop {
        if is_closed() {
            return false;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(ASK_AGAIN));
    }
}

/// Bytes that new processes could have; none where the system does not say.
fn memory_available() -> Option<u64> {
    memory("MemAvailable:")
}

/// Bytes of memory of the machine; none where the system does not say.
pub(super) fn memory_total() -> Option<u64> {
    memory("MemTotal:")
}

fn memory(what: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with(what))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// The load average of the last minute; none where the system does not say.
fn load() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_keep_their_distance() {
        let gate = Gate {
            delay: Duration::from_secs(1),
            ..Gate::default()
        };
        assert!(gate.pause().is_zero());
        let second = gate.pause();
        let third = gate.pause();
        assert!(second > Duration::from_millis(900) && second <= Duration::from_secs(1));
        assert!(third > second + Duration::from_millis(900));
    }

    #[test]
    fn a_closed_gate_lets_go_of_those_who_wait() {
        let gate = Gate {
            memory_free: Some(u64::MAX),
            ..Gate::default()
        };
        assert!(gate.pass(|| true).is_none());
        let gate = Gate {
            memory_free: Some(1),
            load_max: Some(1e9),
            ..Gate::default()
        };
        assert!(gate.pass(|| false).is_some());
    }
}

//! What holds a task back though a slot is free: a pause between starts, too little free memory, too
//! much load, a limit that is shared with other runs.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::machine::{load, memory_available};
use crate::shared_limit::{Seat, SharedLimit};

/// What must be true before a task starts.
#[derive(Debug, Default)]
pub struct StartGate {
    delay: Duration,
    memory_free: Option<u64>,
    load_max: Option<f64>,
    limits: Vec<SharedLimit>,
    /// When the next task may start, for the pause.
    next_start: Mutex<Option<Instant>>,
}

/// The right to run one task.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    _seats: Vec<Seat>,
}

/// Memory and load can only be asked for; nobody tells when they change.
const ASK_AGAIN: Duration = Duration::from_millis(200);

impl StartGate {
    /// So long a pause between two starts.
    #[must_use]
    pub fn with_delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// So many bytes of memory must be free.
    #[must_use]
    pub fn with_memory_free(self, bytes: u64) -> Self {
        let memory_free = Some(bytes);
        Self {
            memory_free,
            ..self
        }
    }

    /// The load average of the last minute must not be above this.
    #[must_use]
    pub fn with_load_max(self, load: f64) -> Self {
        let load_max = Some(load);
        Self { load_max, ..self }
    }

    /// A limit that is shared with other runs on this machine.
    #[must_use]
    pub fn with_limit(mut self, limit: SharedLimit) -> Self {
        self.limits.push(limit);
        self
    }

    /// Waits until a task may start; none when `is_closed` became true before. The pass is given
    /// back when the task is over.
    pub(crate) fn pass(&self, is_closed: impl Fn() -> bool) -> Option<Pass> {
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
    pub(crate) fn is_open(&self) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_keep_their_distance() {
        let gate = StartGate {
            delay: Duration::from_secs(1),
            ..StartGate::default()
        };
        assert!(gate.pause().is_zero());
        let second = gate.pause();
        let third = gate.pause();
        assert!(second > Duration::from_millis(900) && second <= Duration::from_secs(1));
        assert!(third > second + Duration::from_millis(900));
    }

    #[test]
    fn a_closed_gate_lets_go_of_those_who_wait() {
        let gate = StartGate {
            memory_free: Some(u64::MAX),
            ..StartGate::default()
        };
        assert!(gate.pass(|| true).is_none());
        let gate = StartGate {
            memory_free: Some(1),
            load_max: Some(1e9),
            ..StartGate::default()
        };
        assert!(gate.pass(|| false).is_some());
    }
}

//! Until when a server may act as the holder of a shard, by the clock of its own machine.
//!
//! The clock goes on while the machine sleeps or the process is stopped: whoever wakes up sees at once that its time is
//! over. It is for liveness and for answers that need no write; what is written is guarded by the write itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Shared by the one who renews it and by those who act under it.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Nanoseconds since the machine started.
    until: Arc<AtomicU64>,
}

impl Lease {
    /// One that is over.
    #[must_use]
    pub fn over() -> Self {
        Self {
            until: Arc::new(AtomicU64::new(0)),
        }
    }

    /// One that is never over: for whoever is alone.
    #[must_use]
    pub fn forever() -> Self {
        Self {
            until: Arc::new(AtomicU64::new(u64::MAX)),
        }
    }

    /// The clock that leases go by.
    #[must_use]
    pub fn now() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// It holds until then.
    pub fn set(&self, until: Duration) {
        let until = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        self.until.store(until, Ordering::Release);
    }

    /// It is over from now on.
    pub fn end(&self) {
        self.until.store(0, Ordering::Release);
    }

    /// Whether it is in force.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.left().is_zero()
    }

    /// How long it still is.
    #[must_use]
    pub fn left(&self) -> Duration {
        let until = Duration::from_nanos(self.until.load(Ordering::Acquire));
        until.saturating_sub(Self::now())
    }
}

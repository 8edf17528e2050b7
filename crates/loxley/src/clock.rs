//! Where the embedded scheduler gets the time from. The deciding core has no clock of its own.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use loxley_model::{Span, Time};

/// Tells the time since some origin. It must never go backwards.
pub trait Clock: Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Time;
}

/// The monotonic clock of the machine; its origin is the moment it was made.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// A clock that starts at zero now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            origin: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Time {
        Time::ZERO + Span::from(self.origin.elapsed())
    }
}

/// A clock that stands still until it is told to move: for tests of one's own code.
///
/// With it, do not [`start`](crate::Scheduler::start) the background thread; move the clock and
/// call [`tick`](crate::Scheduler::tick).
#[derive(Clone, Default)]
pub struct ManualClock {
    now_ns: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let by = Span::from(by).0;
        self.now_ns.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time(self.now_ns.load(Ordering::SeqCst))
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ManualClock({})", self.now())
    }
}

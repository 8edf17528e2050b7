//! The alarm clock: a thread that sleeps until the core's next timer, and no longer.
//!
//! Every operation tells the alarm when the core wants to be woken ([`Alarm::set`]); that is two
//! atomic accesses, and a lock only when the sleeper must be woken earlier than it planned. The
//! setter writes `wanted` and then reads `planned`; the sleeper writes `planned` and then reads
//! `wanted`, all sequentially consistent: at least one of the two sees the other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use loxley_model::Time;

/// Nobody sleeps: whoever is awake will look at `wanted` by itself.
const AWAKE: u64 = 0;

#[derive(Debug)]
pub(crate) struct Alarm {
    /// When the core wants a tick, in nanoseconds.
    wanted: AtomicU64,
    /// Until when the sleeper sleeps, or [`AWAKE`].
    planned: AtomicU64,
    stopped: Mutex<bool>,
    bell: Condvar,
}

impl Alarm {
    pub(crate) fn new() -> Self {
        Self {
            wanted: AtomicU64::new(u64::MAX),
            planned: AtomicU64::new(AWAKE),
            stopped: Mutex::new(false),
            bell: Condvar::new(),
        }
    }

    /// The core wants a tick at this time; none at all when there is none. Called under the
    /// scheduler's lock, so that the last call is the truth.
    pub(crate) fn set(&self, at: Option<Time>) {
        let wanted = at.map_or(u64::MAX, |time| time.0);
        if self.wanted.swap(wanted, Ordering::SeqCst) == wanted {
            return;
        }
        if wanted < self.planned.load(Ordering::SeqCst) {
            let _stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
            self.bell.notify_one();
        }
    }

    /// Makes it usable again after [`Alarm::stop`].
    pub(crate) fn rearm(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }

    pub(crate) fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.notify_one();
    }

    /// Sleeps until a tick is wanted. False when it was stopped.
    pub(crate) fn sleep(&self, now: impl Fn() -> Time) -> bool {
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if *stopped {
                return false;
            }
            let planned = self.wanted.load(Ordering::SeqCst);
            self.planned.store(planned.max(AWAKE + 1), Ordering::SeqCst);
            if self.wanted.load(Ordering::SeqCst) < planned {
                continue;
            }
            let span = Time(planned).since(now());
            if span.0 == 0 {
                self.planned.store(AWAKE, Ordering::SeqCst);
                return true;
            }
            // A sleep of an hour costs nothing and spares the platform its largest durations.
            let span = Duration::from(span).min(Duration::from_secs(3600));
            stopped = self
                .bell
                .wait_timeout(stopped, span)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;
    use crate::clock::{Clock as _, SystemClock};

    #[test]
    fn an_earlier_wish_wakes_the_sleeper() {
        let alarm = Arc::new(Alarm::new());
        let clock = SystemClock::new();
        let (sender, receiver) = channel();
        let sleeper = {
            let alarm = Arc::clone(&alarm);
            thread::spawn(move || {
                while alarm.sleep(|| clock.now()) {
                    alarm.set(None);
                    sender.send(()).unwrap();
                }
            })
        };
        assert!(receiver.recv_timeout(Duration::from_millis(20)).is_err());
        alarm.set(Some(clock.now() + loxley_model::Span::from_secs(60)));
        assert!(receiver.recv_timeout(Duration::from_millis(20)).is_err());
        alarm.set(Some(clock.now()));
        assert!(receiver.recv_timeout(Duration::from_secs(5)).is_ok());
        alarm.stop();
        sleeper.join().unwrap();
    }
}

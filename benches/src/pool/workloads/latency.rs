//! How long a single closure waits: submitted to a sleeping pool, or urgently to a full one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::countdown::Countdown;
use super::sleeper::Sleeper;
use super::spin_for;
use crate::measure::quantile;
use crate::pool::contract::{SpawnWorkload, Spawner};

/// Between two submissions: long enough for every pool to fall asleep.
const PAUSE: Duration = Duration::from_millis(1);

/// Submissions to an idle pool, one by one; the figure is a quantile of the microseconds from the
/// call to the first line of the closure.
pub(crate) struct IdleSubmit {
    /// How many submissions make one figure.
    pub(crate) count: usize,
    /// Which quantile.
    pub(crate) share: f64,
}

/// A clock that closures on other threads can write to.
struct Stopwatch {
    origin: Instant,
    nanoseconds: AtomicU64,
}

impl Stopwatch {
    fn leaked() -> &'static Self {
        Box::leak(Box::new(Self {
            origin: Instant::now(),
            nanoseconds: AtomicU64::new(0),
        }))
    }

    fn stop(&self) {
        let elapsed = self.origin.elapsed().as_nanos() as u64;
        self.nanoseconds.store(elapsed, Ordering::Release);
    }

    /// Calls `submit` with a closure that stops the watch; the microseconds until it ran.
    fn microseconds(&'static self, submit: impl FnOnce(&'static Self)) -> f64 {
        self.nanoseconds.store(0, Ordering::Relaxed);
        let start = self.origin.elapsed().as_nanos() as u64;
        submit(self);
        loop {
            std::thread::sleep(PAUSE);
            match self.nanoseconds.load(Ordering::Acquire) {
                0 => {}
                stop => return (stop - start) as f64 / 1e3,
            }
        }
    }
}

impl SpawnWorkload for IdleSubmit {
    fn figure<P: Spawner>(&self, pool: &P) -> f64 {
        let watch = Stopwatch::leaked();
        let waits: Vec<f64> = (0..self.count)
            .map(|_| watch.microseconds(|watch| pool.spawn(move || watch.stop())))
            .collect();
        quantile(&waits, self.share)
    }
}

impl IdleSubmit {
    /// The same with a bare parked thread: what the operating system needs to wake someone.
    pub(crate) fn floor(&self) -> f64 {
        let watch = Stopwatch::leaked();
        let sleeper = Sleeper::new(|| watch.stop());
        let waits: Vec<f64> = (0..self.count)
            .map(|_| watch.microseconds(|_| sleeper.wake()))
            .collect();
        quantile(&waits, self.share)
    }
}

/// One urgent closure submitted after 2,000 of 100 µs; the figure is milliseconds until it starts.
pub(crate) struct Urgent;

impl SpawnWorkload for Urgent {
    fn figure<P: Spawner>(&self, pool: &P) -> f64 {
        const OTHERS: usize = 2_000;
        let left = Countdown::leaked();
        left.start(OTHERS);
        for index in 0..OTHERS {
            pool.spawn(move || {
                spin_for(Duration::from_micros(100));
                left.done(index);
            });
        }
        let wait =
            Stopwatch::leaked().microseconds(|watch| pool.spawn_urgent(move || watch.stop()));
        left.wait();
        wait / 1e3
    }
}

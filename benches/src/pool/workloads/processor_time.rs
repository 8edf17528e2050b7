//! What a pool burns while it has little or nothing to do, in processor time of the process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::countdown::Countdown;
use super::sleeper::Sleeper;
use super::spin_for;
use crate::measure::processor_time;
use crate::pool::contract::{ForkJoin, ForkJoinWorkload, SpawnWorkload, Spawner};

/// A computation on the pool that sleeps; the figure is milliseconds of processor time in 3 s.
pub(crate) struct Idle {
    /// How long to look; the figure is scaled to 3 s.
    pub(crate) window: Duration,
}

impl ForkJoinWorkload for Idle {
    fn figure<P: ForkJoin>(&self, pool: &P) -> f64 {
        let used = pool.run(|_| {
            let before = processor_time();
            std::thread::sleep(self.window);
            processor_time() - before
        });
        used.as_secs_f64() / self.window.as_secs_f64() * 3e3
    }
}

/// A closure of 20 µs every millisecond; the figure is processor time ÷ useful time.
pub(crate) struct DutyCycle {
    pub(crate) count: usize,
}

const USEFUL: Duration = Duration::from_micros(20);

impl SpawnWorkload for DutyCycle {
    fn figure<P: Spawner>(&self, pool: &P) -> f64 {
        let left = Countdown::leaked();
        self.measure(left, |index| {
            pool.spawn(move || {
                spin_for(USEFUL);
                left.done(index);
            });
        })
    }
}

impl DutyCycle {
    /// The same with a bare parked thread: timer, wake-up and work, and no pool.
    pub(crate) fn floor(&self) -> f64 {
        let left = Countdown::leaked();
        let next = AtomicUsize::new(0);
        let sleeper = Sleeper::new(move || {
            spin_for(USEFUL);
            left.done(next.fetch_add(1, Ordering::Relaxed));
        });
        self.measure(left, |_| sleeper.wake())
    }

    fn measure(&self, left: &Countdown, submit: impl Fn(usize)) -> f64 {
        left.start(self.count);
        let before = processor_time();
        for index in 0..self.count {
            std::thread::sleep(Duration::from_millis(1));
            submit(index);
        }
        left.wait();
        let used = processor_time() - before;
        used.as_secs_f64() / (USEFUL.as_secs_f64() * self.count as f64)
    }
}

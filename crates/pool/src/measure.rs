//! The balance figures of one piece of work.
//!
//! While something is measured every unit is timed: its duration, and, for the outermost one on
//! each thread, how long that thread was busy. Time a thread spends waiting inside a unit, with
//! nothing to do, is taken off.

use std::time::{Duration, Instant};

use loxley_balance::{BalanceReport, Observations, QueueDepths, Sketch};

use crate::pool::Pool;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};
use crate::worker::Worker;

/// What is measured, per seat.
#[derive(Debug)]
pub(crate) struct Meter {
    on: AtomicBool,
    /// One measurement at a time.
    turn: Mutex<()>,
    readings: Box<[Mutex<Reading>]>,
}

#[derive(Debug, Default)]
struct Reading {
    busy: Duration,
    durations: Sketch,
    depths: QueueDepths,
}

impl Meter {
    pub(crate) fn new(seats: usize) -> Self {
        Self {
            on: AtomicBool::new(false),
            turn: Mutex::new(()),
            readings: (0..seats).map(|_| Mutex::new(Reading::default())).collect(),
        }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }
}

impl Worker<'_> {
    /// Runs `body` as a unit that is timed.
    pub(crate) fn timed<R>(&self, body: impl FnOnce() -> R) -> R {
        let meter = &self.shared.meter;
        let load = |index: usize| self.shared.used_seats()[index].load();
        let depths = (0..self.shared.used_seats().len()).map(load);
        lock(&meter.readings[self.index]).depths.sample(depths);
        let waited_before = self.waited.get();
        let depth = self.depth.replace(self.depth.get() + 1);
        let start = Instant::now();
        let result = body();
        let took = start.elapsed();
        self.depth.set(depth);
        let mut reading = lock(&meter.readings[self.index]);
        reading.durations.record(took.as_nanos() as u64);
        if depth == 0 {
            reading.busy += took.saturating_sub(self.waited.get() - waited_before);
        }
        result
    }
}

impl Pool {
    /// Calls `body` inside the pool and tells how evenly its work was spread: the four balance
    /// figures, over as many threads as the pool has workers.
    ///
    /// `body` itself counts as a unit, like everything that is spawned or stolen meanwhile. Units
    /// are timed while this runs, so very short ones take longer than usual. One measurement at a
    /// time: a second caller waits.
    pub fn measure<R: Send>(&self, body: impl FnOnce() -> R + Send) -> (R, BalanceReport) {
        let meter = &self.shared.meter;
        let _turn = lock(&meter.turn);
        for reading in &meter.readings {
            *lock(reading) = Reading::default();
        }
        let _off = SwitchOff(&meter.on);
        meter.on.store(true, Ordering::Relaxed);
        let start = Instant::now();
        let result = self.enter(|worker| worker.timed(body));
        let report = self.balance(start.elapsed());
        (result, report)
    }

    fn balance(&self, wall: Duration) -> BalanceReport {
        let mut durations = Sketch::default();
        let mut depths = QueueDepths::default();
        let mut busy = Vec::new();
        for reading in &self.shared.meter.readings {
            let reading = lock(reading);
            durations.merge(&reading.durations);
            // Seats in which nothing ran have no sample, which is not the same as empty queues.
            if reading.depths.mean().is_some() && reading.depths.max() >= depths.max() {
                depths = reading.depths;
            }
            busy.push(reading.busy.as_nanos() as u64);
        }
        // Guests take the place of workers: the busiest threads are the ones that count.
        busy.sort_unstable_by(|a, b| b.cmp(a));
        busy.truncate(self.workers());
        BalanceReport::new(&Observations {
            busy_ns: &busy,
            wall_ns: wall.as_nanos() as u64,
            durations: &durations,
            queue_depths: &depths,
        })
    }
}

struct SwitchOff<'a>(&'a AtomicBool);

impl Drop for SwitchOff<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

//! What single steps of the pool cost on this machine.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use loxley_pool::Pool;
use serde::Serialize;

use super::real::spin;
use super::{Kind, POLICIES, processors, real};
use crate::measure::quantile;

/// What the deque world is told of the machine and the pool.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Calibration {
    setting: Kind,
    /// What a unit costs on top of its work: making it, taking it, and for what sleeps, waking late.
    pub(super) unit_ns: u64,
    /// To look at a victim and to take something from it.
    pub(super) steal_ns: u64,
    /// From something new to a sleeping worker that runs it.
    pub(super) wake_ns: u64,
    /// How fast a worker is while all of them work; 1 is one alone.
    pub(super) speed: f64,
    pub(super) spins_per_ns: f64,
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} ns per unit, {} ns per steal, {} ns to wake, speed {:.3} when all work",
            self.setting.name(),
            self.unit_ns,
            self.steal_ns,
            self.wake_ns,
            self.speed
        )
    }
}

pub(super) fn measure(kind: Kind) -> Result<Calibration> {
    let pool = real::pool(kind, &POLICIES[0])?;
    let spins_per_ns = spins_per_ns();
    let own = unit_ns(&pool);
    let late = match kind {
        Kind::Computing => 0,
        Kind::Waiting => sleeps_late_ns(),
    };
    Ok(Calibration {
        setting: kind,
        unit_ns: own + late,
        steal_ns: steal_ns(&pool)?,
        wake_ns: wake_ns(&pool),
        speed: match kind {
            Kind::Computing => speed_together(),
            Kind::Waiting => 1.0,
        },
        spins_per_ns,
    })
}

/// The best of several tries, for a machine that is never quite quiet.
fn spins_per_ns() -> f64 {
    const TURNS: u64 = 2_000_000;
    let best = (0..15)
        .map(|_| timed(|| spin(TURNS)))
        .fold(f64::MAX, f64::min);
    TURNS as f64 / best
}

/// The median time of a million turns alone over that on all processors at once.
fn speed_together() -> f64 {
    const TURNS: u64 = 2_000_000;
    let alone: Vec<f64> = (0..15).map(|_| timed(|| spin(TURNS))).collect();
    let best = quantile(&alone, 0.0);
    let together: Vec<f64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..processors())
            .map(|_| scope.spawn(|| (0..15).map(|_| timed(|| spin(TURNS))).collect::<Vec<_>>()))
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("it only counts"))
            .collect()
    });
    best / quantile(&together, 0.5)
}

/// Units that do nothing, made by one worker.
fn unit_ns(pool: &Arc<Pool>) -> u64 {
    const UNITS: u32 = 20_000;
    let rounds: Vec<f64> = (0..9)
        .map(|_| {
            let inside = Arc::clone(pool);
            timed(|| {
                pool.spawn_detached(move || (0..UNITS).for_each(|_| inside.spawn_detached(|| ())));
                pool.wait_idle();
            }) / f64::from(UNITS)
        })
        .collect();
    quantile(&rounds, 0.5) as u64
}

/// The pool's own figure, taken while one worker makes short units and the others live by stealing.
fn steal_ns(pool: &Arc<Pool>) -> Result<u64> {
    pool.start_trace();
    for _ in 0..20 {
        let inside = Arc::clone(pool);
        pool.spawn_detached(move || {
            (0..200).for_each(|_| inside.spawn_detached(|| spin(10_000)));
        });
        pool.wait_idle();
    }
    let latency = pool.metrics().total().steal_latency;
    pool.write_trace(std::io::sink())
        .context("cannot end the trace")?;
    Ok(latency.map_or(0, |latency| latency.as_nanos() as u64))
}

/// From a submission to an idle pool until the unit runs.
fn wake_ns(pool: &Arc<Pool>) -> u64 {
    let ran_after = Arc::new(AtomicU64::new(0));
    let times: Vec<f64> = (0..51)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(4));
            let (start, ran) = (Instant::now(), Arc::clone(&ran_after));
            pool.spawn_detached(move || {
                ran.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
            });
            pool.wait_idle();
            ran_after.load(Ordering::Relaxed) as f64
        })
        .collect();
    quantile(&times, 0.5) as u64
}

/// How much longer than it was told a thread sleeps.
fn sleeps_late_ns() -> u64 {
    let told = Duration::from_millis(2);
    let times: Vec<f64> = (0..51)
        .map(|_| timed(|| std::thread::sleep(told)) - told.as_nanos() as f64)
        .collect();
    quantile(&times, 0.5) as u64
}

/// How many nanoseconds this takes.
fn timed(body: impl FnOnce()) -> f64 {
    let start = Instant::now();
    body();
    start.elapsed().as_nanos() as f64
}

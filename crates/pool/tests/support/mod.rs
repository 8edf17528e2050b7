//! A pool that stands still, so that a test can say who goes on and when.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use loxley_pool::{Pool, PoolBuilder};

/// A pool whose workers all run a unit that does nothing until its worker is let go.
pub(crate) struct StandStill {
    pub(crate) pool: Pool,
    gates: Arc<[AtomicBool]>,
}

impl StandStill {
    /// Stops all workers. Then `prepare` runs on each of them, with its number; what it spawns stays
    /// in that worker's queue, since nobody is free to take it.
    pub(crate) fn new(
        builder: PoolBuilder,
        prepare: impl Fn(usize) + Send + Sync + 'static,
    ) -> Self {
        let pool = builder.name("still").build().expect("threads");
        let workers = pool.workers();
        let gates: Arc<[AtomicBool]> = (0..workers).map(|_| AtomicBool::new(false)).collect();
        let (all_stand, all_are_ready) = (
            Arc::new(Barrier::new(workers)),
            Arc::new(Barrier::new(workers + 1)),
        );
        let prepare = Arc::new(prepare);
        for _ in 0..workers {
            let (all_stand, all_are_ready) = (all_stand.clone(), all_are_ready.clone());
            let (gates, prepare) = (gates.clone(), prepare.clone());
            pool.spawn_detached(move || {
                let worker = worker_number();
                all_stand.wait();
                prepare(worker);
                all_are_ready.wait();
                wait_until(|| gates[worker].load(Ordering::Acquire));
            });
        }
        all_are_ready.wait();
        Self { pool, gates }
    }

    pub(crate) fn let_go(&self, worker: usize) {
        self.gates[worker].store(true, Ordering::Release);
    }
}

impl Drop for StandStill {
    fn drop(&mut self) {
        (0..self.gates.len()).for_each(|worker| self.let_go(worker));
    }
}

/// The number of the worker that calls this, from the name of its thread.
pub(crate) fn worker_number() -> usize {
    let thread = std::thread::current();
    let number = thread.name().and_then(|name| name.rsplit('-').next());
    number
        .and_then(|number| number.parse().ok())
        .expect("a worker")
}

/// Waits for something that must happen; fails instead of hanging.
pub(crate) fn wait_until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it never happens"
        );
        std::thread::sleep(Duration::from_micros(200));
    }
}

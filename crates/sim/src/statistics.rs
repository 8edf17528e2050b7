//! What a run came to: counts, times, the lower bound and the four balance figures [X3, M1].

use loxley_balance::{BalanceReport, Observations, QueueDepths, Sketch};

use crate::time::{Nanos, seconds};

/// What one worker (or agent) did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkerTotals {
    /// Its speed; 1 runs a task in its nominal time.
    pub speed: f64,
    /// How many tasks it can run at once.
    pub slots: u32,
    /// Tasks it finished.
    pub executed: u64,
    /// Time it spent on them, summed over its slots.
    pub busy: Nanos,
    /// Tasks it took from others.
    pub stolen: u64,
    /// Tasks others took from it.
    pub robbed: u64,
    /// Times it looked for work elsewhere.
    pub searches: u64,
    /// The longest its queue ever was.
    pub queue_max: usize,
}

/// What a whole run did.
#[derive(Debug, Clone, Default)]
pub struct RunStatistics {
    /// One entry per worker.
    pub workers: Vec<WorkerTotals>,
    /// Tasks that came in from outside or were spawned.
    pub submitted: u64,
    /// Tasks that were spawned by other tasks.
    pub spawned: u64,
    /// Tasks that failed or were given up.
    pub failed: u64,
    /// Tasks that were executed more than once (backup copies, lost agents).
    pub repeated: u64,
    /// Tasks that missed their deadline.
    pub deadline_misses: u64,
    /// Searches that brought something home.
    pub successful_searches: u64,
    /// From the first submission to the last finish.
    pub makespan: Nanos,
    /// The work that had to be done, at speed 1.
    pub total_work: Nanos,
    /// The longest chain of work on the fastest worker, releases included.
    pub critical_path: Nanos,
    /// How long each task ran.
    pub durations: Sketch,
    /// How long each task waited before it was started.
    pub waits: Sketch,
    /// From ready to finished, for each task.
    pub responses: Sketch,
    /// Queue lengths, weighted by time.
    pub queue_depths: QueueDepths,
    /// Events that the engine took from its queue.
    pub events: u64,
}

impl RunStatistics {
    /// Tasks that were executed.
    #[must_use]
    pub fn executed(&self) -> u64 {
        self.workers.iter().map(|worker| worker.executed).sum()
    }

    /// Tasks that were taken from another worker.
    #[must_use]
    pub fn stolen(&self) -> u64 {
        self.workers.iter().map(|worker| worker.stolen).sum()
    }

    /// Searches for work elsewhere.
    #[must_use]
    pub fn searches(&self) -> u64 {
        self.workers.iter().map(|worker| worker.searches).sum()
    }

    /// Stolen tasks per executed task.
    #[must_use]
    pub fn steal_rate(&self) -> f64 {
        ratio(self.stolen(), self.executed())
    }

    /// All speed together: how much work could be done per second.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        self.workers
            .iter()
            .map(|worker| worker.speed * f64::from(worker.slots))
            .sum()
    }

    /// No schedule ends sooner: all work spread evenly, or the longest chain, whichever is longer.
    #[must_use]
    pub fn lower_bound(&self) -> Nanos {
        let capacity = self.capacity();
        if capacity <= 0.0 {
            return self.critical_path;
        }
        let spread = (self.total_work as f64 / capacity) as Nanos;
        spread.max(self.critical_path)
    }

    /// How far the run was from the lower bound; 1 is perfect.
    #[must_use]
    pub fn ratio_to_bound(&self) -> f64 {
        ratio(self.makespan, self.lower_bound())
    }

    /// How many times faster than one processor of speed 1.
    #[must_use]
    pub fn speedup(&self) -> f64 {
        ratio(self.total_work, self.makespan)
    }

    /// Speedup as a share of all the speed there was.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        let capacity = self.capacity();
        if capacity > 0.0 {
            self.speedup() / capacity
        } else {
            0.0
        }
    }

    /// Mean waiting time in seconds.
    #[must_use]
    pub fn mean_wait(&self) -> f64 {
        self.waits.mean().unwrap_or(0.0) / 1e9
    }

    /// Mean time from ready to finished, in seconds.
    #[must_use]
    pub fn mean_response(&self) -> f64 {
        self.responses.mean().unwrap_or(0.0) / 1e9
    }

    /// The makespan in seconds.
    #[must_use]
    pub fn makespan_seconds(&self) -> f64 {
        seconds(self.makespan)
    }

    /// The four balance figures. An agent of several slots counts as that many workers that share
    /// its work evenly.
    #[must_use]
    pub fn balance(&self) -> BalanceReport {
        let busy: Vec<Nanos> = self
            .workers
            .iter()
            .flat_map(|worker| {
                let slots = worker.slots.max(1);
                std::iter::repeat_n(worker.busy / Nanos::from(slots), slots as usize)
            })
            .collect();
        BalanceReport::new(&Observations {
            busy_ns: &busy,
            wall_ns: self.makespan,
            durations: &self.durations,
            queue_depths: &self.queue_depths,
        })
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

//! What a pool did: plain counters, one set per seat, each written by one thread only.

use std::fmt::Write as _;
use std::time::Duration;

use crate::count::Count;
use crate::pool::{Pool, Shared};
use crate::sync::Ordering;

/// The counters of one seat.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) spawned: Count,
    pub(crate) run: Count,
    pub(crate) steals: Count,
    pub(crate) steals_tried: Count,
    pub(crate) steal_ns: Count,
    pub(crate) steals_timed: Count,
    pub(crate) idle_ns: Count,
    pub(crate) queue_high: Count,
    pub(crate) parks: Count,
    pub(crate) wakes: Count,
    /// Detached units made and finished here, for `wait_idle`.
    pub(crate) detached_made: Count,
    pub(crate) detached_done: Count,
}

/// What the threads of a pool did since it was built.
///
/// The counters are read one after the other while the pool goes on, so they describe one moment
/// only when it is idle. Then they are exact: `spawned` equals `run`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// One entry per regular worker.
    pub workers: Vec<WorkerMetrics>,
    /// Threads from outside that called into the pool, and spares.
    pub guests: WorkerMetrics,
    /// Units submitted by threads that were not in the pool. Not counted elsewhere.
    pub submitted: u64,
    /// Panics of detached units.
    pub panics: u64,
}

/// What one worker did.
///
/// A *unit* is a spawned closure, or the second half of a `join` that was made visible to thieves.
/// Joins that were two plain calls are not counted: that is what makes them cheap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerMetrics {
    /// Units made.
    pub spawned: u64,
    /// Units run (a unit of a cancelled scope counts as run when it is thrown away).
    pub run: u64,
    /// Visits to a victim that seemed to have something.
    pub steals_tried: u64,
    /// Units stolen.
    pub steals: u64,
    /// Mean time from the decision to rob a victim to having the unit, of the steals that were timed.
    pub steal_latency: Option<Duration>,
    /// Steals that were timed: a few, and every one while a trace is taken.
    pub steals_timed: u64,
    /// Time spent searching and sleeping.
    pub idle: Duration,
    /// The most units that waited in its deque when it took one out, or when a batch came in.
    pub queue_high: u64,
    /// Times it went to sleep.
    pub parks: u64,
    /// Times it was woken to search.
    pub wakes: u64,
}

impl Metrics {
    /// The sum over all workers and guests.
    #[must_use]
    pub fn total(&self) -> WorkerMetrics {
        let mut total = self.guests.clone();
        self.workers.iter().for_each(|worker| total.add(worker));
        total
    }

    /// Units made anywhere.
    #[must_use]
    pub fn spawned(&self) -> u64 {
        self.submitted + self.total().spawned
    }

    /// Units run anywhere.
    #[must_use]
    pub fn run(&self) -> u64 {
        self.total().run
    }

    /// The counters in the text format of Prometheus.
    #[must_use]
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        for family in FAMILIES {
            let Family {
                name, kind, help, ..
            } = family;
            // Writing to a string does not fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            let rows = self.workers.iter().map(Some).chain([None]).enumerate();
            for (index, row) in rows {
                let (label, row) = match row {
                    Some(row) => (index.to_string(), row),
                    None => ("guest".to_owned(), &self.guests),
                };
                let _ = writeln!(text, "{name}{{worker=\"{label}\"}} {}", (family.value)(row));
            }
        }
        for (name, help, value) in [
            (
                "loxley_pool_submitted_total",
                "Units submitted from outside.",
                self.submitted,
            ),
            (
                "loxley_pool_panics_total",
                "Panics of detached units.",
                self.panics,
            ),
        ] {
            let _ = writeln!(
                text,
                "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}"
            );
        }
        text
    }
}

struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&WorkerMetrics) -> f64,
}

const FAMILIES: &[Family] = &[
    Family {
        name: "loxley_pool_units_spawned_total",
        kind: "counter",
        help: "Units made by this worker.",
        value: |worker| worker.spawned as f64,
    },
    Family {
        name: "loxley_pool_units_run_total",
        kind: "counter",
        help: "Units run by this worker.",
        value: |worker| worker.run as f64,
    },
    Family {
        name: "loxley_pool_steals_tried_total",
        kind: "counter",
        help: "Visits to a victim that seemed to have something.",
        value: |worker| worker.steals_tried as f64,
    },
    Family {
        name: "loxley_pool_steals_total",
        kind: "counter",
        help: "Units stolen by this worker.",
        value: |worker| worker.steals as f64,
    },
    Family {
        name: "loxley_pool_steals_timed_total",
        kind: "counter",
        help: "Steals that were timed.",
        value: |worker| worker.steals_timed as f64,
    },
    Family {
        name: "loxley_pool_steal_seconds_total",
        kind: "counter",
        help: "What the timed steals took together.",
        value: |worker| worker.steal_time().as_secs_f64(),
    },
    Family {
        name: "loxley_pool_idle_seconds_total",
        kind: "counter",
        help: "Time spent searching and sleeping.",
        value: |worker| worker.idle.as_secs_f64(),
    },
    Family {
        name: "loxley_pool_queue_high_units",
        kind: "gauge",
        help: "The most units that waited in the deque at once.",
        value: |worker| worker.queue_high as f64,
    },
    Family {
        name: "loxley_pool_parks_total",
        kind: "counter",
        help: "Times this worker went to sleep.",
        value: |worker| worker.parks as f64,
    },
    Family {
        name: "loxley_pool_wakes_total",
        kind: "counter",
        help: "Times this worker was woken to search.",
        value: |worker| worker.wakes as f64,
    },
];

impl WorkerMetrics {
    pub(crate) fn read(counters: &Counters) -> Self {
        let timed = counters.steals_timed.get();
        Self {
            spawned: counters.spawned.get(),
            run: counters.run.get(),
            steals_tried: counters.steals_tried.get(),
            steals: counters.steals.get(),
            steals_timed: timed,
            steal_latency: counters
                .steal_ns
                .get()
                .checked_div(timed)
                .map(Duration::from_nanos),
            idle: Duration::from_nanos(counters.idle_ns.get()),
            queue_high: counters.queue_high.get(),
            parks: counters.parks.get(),
            wakes: counters.wakes.get(),
        }
    }

    /// How long the timed steals took together.
    fn steal_time(&self) -> Duration {
        let timed = u32::try_from(self.steals_timed).unwrap_or(u32::MAX);
        self.steal_latency.unwrap_or_default() * timed
    }

    fn add(&mut self, other: &Self) {
        self.spawned += other.spawned;
        self.run += other.run;
        self.steals_tried += other.steals_tried;
        self.steals += other.steals;
        let time = self.steal_time() + other.steal_time();
        self.steals_timed += other.steals_timed;
        let timed = u32::try_from(self.steals_timed).unwrap_or(u32::MAX);
        self.steal_latency = time.checked_div(timed);
        self.idle += other.idle;
        self.queue_high = self.queue_high.max(other.queue_high);
        self.parks += other.parks;
        self.wakes += other.wakes;
    }
}

impl Shared {
    fn metrics(&self) -> Metrics {
        let read = |seat: &crate::seat::Seat| WorkerMetrics::read(&seat.counters);
        let (regular, others) = self.seats.split_at(self.workers);
        let mut guests = WorkerMetrics::default();
        others.iter().map(read).for_each(|guest| guests.add(&guest));
        Metrics {
            workers: regular.iter().map(read).collect(),
            guests,
            submitted: self.detached.made_outside() + self.scoped_outside.load(Ordering::Relaxed),
            panics: self.panics.load(Ordering::Relaxed),
        }
    }
}

impl Pool {
    /// What the workers did so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.shared.metrics()
    }
}

//! Four ways to hand the items of a loop to the workers of one pool, and what each worker did.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use loxley_balance::partition::{chunks::chunks, ranges::ranges};
use loxley_balance::{BalanceReport, Observations, QueueDepths, Sketch};
use loxley_pool::Pool;

use super::index::Loop;

/// Who decides which worker runs an item, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// Nobody: one thread runs them all.
    Sequential,
    /// Beforehand: a chunk per worker, equal by count.
    EqualChunks,
    /// Beforehand: a chunk per worker, equal by estimated cost.
    SizeWeighted,
    /// On the way: whoever is free takes the next item from one shared counter.
    Dynamic,
    /// On the way: everyone works on its own range, and whoever runs dry takes half of another's.
    Stealing,
}

impl Strategy {
    pub(crate) const ALL: [Self; 5] = [
        Self::Sequential,
        Self::EqualChunks,
        Self::SizeWeighted,
        Self::Dynamic,
        Self::Stealing,
    ];
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sequential => "sequential",
            Self::EqualChunks => "equal chunks",
            Self::SizeWeighted => "size-weighted chunks",
            Self::Dynamic => "dynamic",
            Self::Stealing => "stealing",
        })
    }
}

/// Runs loops on a pool by one strategy and remembers who was busy for how long.
pub(crate) struct Runner<'a> {
    pool: &'a Pool,
    strategy: Strategy,
    past: Mutex<Past>,
}

/// What has been observed over all loops so far.
#[derive(Default)]
struct Past {
    busy_ns: HashMap<ThreadId, u64>,
    wall_ns: u64,
    durations: Sketch,
}

impl<'a> Runner<'a> {
    pub(crate) fn new(pool: &'a Pool, strategy: Strategy) -> Self {
        Self {
            pool,
            strategy,
            past: Mutex::default(),
        }
    }

    /// How balanced the loops were. It does not see the queues, so their figure stays unknown.
    pub(crate) fn balance(&self) -> BalanceReport {
        let past = self.past();
        let mut busy_ns: Vec<u64> = past.busy_ns.values().copied().collect();
        // Threads that came too late to get anything count as well.
        busy_ns.resize(self.workers().max(busy_ns.len()), 0);
        BalanceReport::new(&Observations {
            busy_ns: &busy_ns,
            wall_ns: past.wall_ns,
            durations: &past.durations,
            queue_depths: &QueueDepths::default(),
        })
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().expect("taking notes does not panic")
    }

    fn workers(&self) -> usize {
        match self.strategy {
            Strategy::Sequential => 1,
            _ => self.pool.workers(),
        }
    }

    /// A chunk per worker, decided beforehand.
    fn run_chunks(&self, chunks: &[Range<usize>], item: impl Fn(usize) + Sync) -> Vec<Piece> {
        let pieces = Pieces::new(chunks.len());
        self.pool.scope(|scope| {
            for (number, chunk) in chunks.iter().enumerate() {
                let (pieces, item) = (&pieces, &item);
                scope.spawn(move |_| pieces.time(number, || chunk.clone().for_each(item)));
            }
        });
        pieces.finish()
    }

    /// Every worker takes the next item when it is done with the last.
    fn run_dynamic(&self, count: usize, item: impl Fn(usize) + Sync) -> Vec<Piece> {
        let pieces = Pieces::new(count);
        let next = AtomicUsize::new(0);
        let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&index| index < count);
        self.pool.scope(|scope| {
            for _ in 0..self.pool.workers() {
                scope.spawn(|_| {
                    while let Some(index) = take() {
                        pieces.time(index, || item(index));
                    }
                });
            }
        });
        pieces.finish()
    }

    fn run_stealing(&self, count: usize, item: impl Fn(usize) + Sync) -> Vec<Piece> {
        let pieces = Pieces::new(count);
        self.pool
            .par_for(0..count, |index| pieces.time(index, || item(index)));
        pieces.finish()
    }
}

impl Loop for Runner<'_> {
    fn for_each(&self, costs: &[u64], item: impl Fn(usize) + Sync) {
        let (count, workers) = (costs.len(), self.pool.workers());
        let start = Instant::now();
        let pieces = match self.strategy {
            Strategy::Sequential => {
                let pieces = Pieces::new(1);
                pieces.time(0, || (0..count).for_each(item));
                pieces.finish()
            }
            Strategy::EqualChunks => {
                let chunks = chunks(count, workers).expect("a pool has workers");
                self.run_chunks(&chunks.collect::<Vec<_>>(), item)
            }
            Strategy::SizeWeighted => {
                let weights: Vec<f64> = costs.iter().map(|&cost| cost as f64).collect();
                let chunks = ranges(&weights, workers).expect("costs are finite");
                self.run_chunks(&chunks, item)
            }
            Strategy::Dynamic => self.run_dynamic(count, item),
            Strategy::Stealing => self.run_stealing(count, item),
        };
        self.past().note(start.elapsed(), &pieces);
    }
}

impl Past {
    fn note(&mut self, wall: Duration, pieces: &[Piece]) {
        self.wall_ns += wall.as_nanos() as u64;
        for piece in pieces {
            *self.busy_ns.entry(piece.worker).or_default() += piece.ns;
            self.durations.record(piece.ns);
        }
    }
}

/// One thing that was handed out whole: a chunk, or an item.
#[derive(Clone, Copy)]
struct Piece {
    worker: ThreadId,
    ns: u64,
}

/// A place for the times of all pieces, each written once by whoever ran it.
struct Pieces(Vec<OnceLock<Piece>>);

impl Pieces {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| OnceLock::new()).collect())
    }

    fn time(&self, number: usize, run: impl FnOnce()) {
        let start = Instant::now();
        run();
        let piece = Piece {
            worker: std::thread::current().id(),
            ns: start.elapsed().as_nanos() as u64,
        };
        assert!(
            self.0[number].set(piece).is_ok(),
            "piece {number} ran twice"
        );
    }

    fn finish(self) -> Vec<Piece> {
        let piece = |slot: OnceLock<Piece>| slot.into_inner().expect("every piece has run");
        self.0.into_iter().map(piece).collect()
    }
}

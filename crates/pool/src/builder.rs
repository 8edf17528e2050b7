//! Settings for a pool, and building it.

use std::any::Any;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use loxley_balance::{Patience, StealAmount, Topology, VictimOrder};

use crate::machine;
use crate::pool::{PanicHandler, Pool, Shared};
use crate::sync::whole::JoinHandle;
use crate::wait::Company;
use crate::worker::Worker;

/// Why a pool could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The operating system refused a thread.
    #[error("could not start worker {worker}")]
    Thread {
        /// Which worker it was to be.
        worker: usize,
        /// What the operating system said.
        source: std::io::Error,
    },
}

/// What was decided when a pool was built, and does not change.
pub(crate) struct Settings {
    /// How many regular workers there are, and how many threads may be active.
    pub(crate) workers: usize,
    /// A place for every seat.
    pub(crate) topology: Topology,
    pub(crate) victim_order: VictimOrder,
    pub(crate) steal_amount: StealAmount,
    pub(crate) patience: Patience,
    pub(crate) seed: u64,
    /// Are idle times and steals timed?
    pub(crate) is_metered: bool,
    pub(crate) name: String,
    pub(crate) stack_size: Option<usize>,
    pub(crate) on_panic: Option<PanicHandler>,
    pub(crate) company: Company,
}

/// Settings for a new [`Pool`].
#[derive(Clone, Default)]
pub struct PoolBuilder {
    workers: Option<NonZeroUsize>,
    stack_size: Option<usize>,
    name: Option<String>,
    pin: bool,
    victim_order: VictimOrder,
    steal_amount: Option<StealAmount>,
    patience: Option<Patience>,
    topology: Option<Topology>,
    metrics: Option<bool>,
    seed: u64,
    on_panic: Option<PanicHandler>,
}

impl fmt::Debug for PoolBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBuilder")
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

impl PoolBuilder {
    /// How many workers; zero means one per processor, which is the default.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = NonZeroUsize::new(workers);
        self
    }

    /// In which order a thief tries the others. Default: at random.
    #[must_use]
    pub fn victim_order(mut self, order: VictimOrder) -> Self {
        self.victim_order = order;
        self
    }

    /// How much a thief takes from a deque at once. Default: half, up to 32.
    #[must_use]
    pub fn steal_amount(mut self, amount: StealAmount) -> Self {
        self.steal_amount = Some(amount);
        self
    }

    /// How long a worker looks for work before it sleeps.
    #[must_use]
    pub fn backoff(mut self, patience: Patience) -> Self {
        self.patience = Some(patience);
        self
    }

    /// The stack size of the workers, in bytes. Default: the standard library's.
    #[must_use]
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// What the threads are called; their number is added. Default: `loxley`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Where the workers are, for victim orders that care. Default: read from the machine.
    #[must_use]
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = Some(topology);
        self
    }

    /// Ties each worker to one processor, on systems where that is possible. Default: no.
    #[must_use]
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = pin;
        self
    }

    /// Whether times are measured: how long workers are idle and what a steal takes. Default: yes.
    /// The counts are always kept; they are plain additions, and exact ends build on some of them.
    #[must_use]
    pub fn metrics(mut self, measure_times: bool) -> Self {
        self.metrics = Some(measure_times);
        self
    }

    /// The seed of the random choices of thieves. Default: 0.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// What to do with the panic of a unit that nobody waits for. Default: nothing more than the
    /// panic hook did. Call `std::process::abort` here for the strict way.
    #[must_use]
    pub fn on_panic(
        mut self,
        handler: impl Fn(Box<dyn Any + Send>) + Send + Sync + 'static,
    ) -> Self {
        self.on_panic = Some(Arc::new(handler));
        self
    }

    /// Starts the threads.
    pub fn build(self) -> Result<Pool, BuildError> {
        let workers = self
            .workers
            .or_else(|| std::thread::available_parallelism().ok())
            .map_or(1, NonZeroUsize::get);
        let guests = workers.max(8);
        // As many spares as workers: see `blocking`.
        let seats = workers + guests + workers;
        let shared = Shared::new(
            Settings {
                workers,
                topology: self.seat_topology(workers, seats),
                victim_order: self.victim_order,
                steal_amount: self.steal_amount.unwrap_or(StealAmount::batch(32)),
                patience: self.patience.unwrap_or_default(),
                seed: self.seed,
                is_metered: self.metrics.unwrap_or(true),
                name: self.name.clone().unwrap_or_else(|| "loxley".to_owned()),
                stack_size: self.stack_size,
                on_panic: self.on_panic.clone(),
                company: Company::PartsOnly,
            },
            guests,
            None,
        );
        let mut pool = Pool::without_threads(shared);
        for index in 0..workers {
            let thread = self.start(&pool.shared, index);
            pool.threads
                .push(thread.map_err(|source| BuildError::Thread {
                    worker: index,
                    source,
                })?);
        }
        Ok(pool)
    }

    /// A place for every seat: guests and spares are taken to be near some worker.
    fn seat_topology(&self, workers: usize, seats: usize) -> Topology {
        let by_distance = matches!(
            self.victim_order,
            VictimOrder::Nearest | VictimOrder::Hierarchical
        );
        let given = match &self.topology {
            Some(topology) => topology.clone(),
            None if by_distance => machine::topology(workers),
            None => return Topology::flat(seats),
        };
        let places = given.len().max(1);
        Topology::new(
            (0..seats)
                .map(|seat| given.place(seat % workers % places))
                .collect(),
        )
    }

    fn start(&self, shared: &Arc<Shared>, index: usize) -> std::io::Result<JoinHandle<()>> {
        let thread = shared.thread(index);
        let shared = Arc::clone(shared);
        let processor = if self.pin {
            machine::processor(index)
        } else {
            None
        };
        // Counted before it runs: nobody has to stand in for a thread that is about to begin.
        shared.sleep.enter();
        let started = Arc::clone(&shared);
        let thread = thread.spawn(move || {
            if let Some(processor) = processor {
                machine::pin(processor);
            }
            Worker::sit_down_counted(&started, index, |worker| worker.serve());
        });
        if thread.is_err() {
            shared.sleep.leave();
        }
        thread
    }
}

//! The pool itself: seats, threads, and how to get in.

use std::any::Any;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;

use loxley_balance::{Patience, StealAmount, Topology, VictimOrder};

use crate::detached::Detached;
use crate::injector::Injector;
use crate::join::join_on;
use crate::machine;
use crate::measure::Meter;
use crate::sleep::Sleep;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use crate::trace::{self, Trace};
use crate::unit::Header;
use crate::worker::{Seat, Worker, with_current};

/// What all threads of a pool share.
pub(crate) struct Shared {
    me: Weak<Self>,
    /// Regular workers first, then guests.
    pub(crate) seats: Box<[Seat]>,
    pub(crate) injector: Injector<Header>,
    pub(crate) sleep: Sleep,
    pub(crate) detached: Detached,
    pub(crate) topology: Topology,
    pub(crate) victim_order: VictimOrder,
    pub(crate) steal_amount: StealAmount,
    pub(crate) patience: Patience,
    pub(crate) seed: u64,
    /// How many regular workers there are, and how many threads may be active.
    pub(crate) workers: usize,
    /// The guest seats nobody sits in, the lowest last.
    free_seats: std::sync::Mutex<Vec<usize>>,
    seat_freed: Condvar,
    /// Seats for threads that stand in for blocked ones, and those threads.
    spares: std::sync::Mutex<Spares>,
    /// Seats from here on were never taken; nobody needs to look at them.
    used: AtomicUsize,
    closing: AtomicBool,
    /// Units of scopes made by threads that are not in the pool.
    pub(crate) scoped_outside: AtomicU64,
    pub(crate) panics: AtomicU64,
    name: String,
    pub(crate) trace: Trace,
    pub(crate) meter: Meter,
    on_panic: Option<PanicHandler>,
}

/// Threads that stand in for blocked ones.
#[derive(Debug)]
struct Spares {
    free_seats: Vec<usize>,
    threads: Vec<JoinHandle<()>>,
}

/// What to do with the panic of a unit that nobody waits for.
type PanicHandler = Arc<dyn Fn(Box<dyn Any + Send>) + Send + Sync>;

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Another reference to the same.
    pub(crate) fn strong(&self) -> Arc<Self> {
        self.me.upgrade().expect("a pool in use is alive")
    }

    /// The seats that somebody sits in or once did.
    #[inline]
    pub(crate) fn used_seats(&self) -> &[Seat] {
        &self.seats[..self.used.load(Ordering::Acquire)]
    }

    /// A guest seat; waits for one if all are taken.
    fn take_seat(&self) -> usize {
        let mut free = self
            .free_seats
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(seat) = free.pop() {
                self.used.fetch_max(seat + 1, Ordering::AcqRel);
                return seat;
            }
            free = self
                .seat_freed
                .wait(free)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn free_seat(&self, seat: usize) {
        let mut free = self
            .free_seats
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        free.push(seat);
        self.seat_freed.notify_one();
    }

    /// Is there ever somebody to steal from us? A pool of one never forks.
    #[inline]
    pub(crate) fn forks(&self) -> bool {
        self.workers > 1
    }

    /// Tells one sleeper, if that makes sense, that a unit became visible.
    #[inline]
    pub(crate) fn notify(&self) {
        fence(Ordering::SeqCst);
        self.notify_after_fence();
    }

    /// As `notify`, for callers that have passed a `SeqCst` fence since the unit became visible.
    #[inline]
    pub(crate) fn notify_after_fence(&self) {
        if let Some(seat) = self.sleep.notify_after_fence() {
            self.seats[seat].unpark();
        }
    }

    /// Wakes one sleeper if there is something to do.
    pub(crate) fn wake_if_work(&self) {
        if self.has_work()
            && let Some(seat) = self.sleep.wake_one()
        {
            self.seats[seat].unpark();
        }
    }

    /// Does any unit wait where a thief could see it?
    pub(crate) fn has_work(&self) -> bool {
        !self.injector.is_empty() || self.used_seats().iter().any(Seat::has_work)
    }

    /// Is a trace or a measurement going on?
    #[inline]
    pub(crate) fn is_observed(&self) -> bool {
        trace::is_on(self) | self.meter.is_on()
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// A detached unit panicked.
    #[cold]
    pub(crate) fn report(&self, panic: Box<dyn Any + Send>) {
        self.panics.fetch_add(1, Ordering::Relaxed);
        let reported = catch_unwind(AssertUnwindSafe(|| match &self.on_panic {
            Some(handler) => handler(panic),
            None => drop(panic),
        }));
        if let Err(again) = reported {
            // A handler, or a payload's destructor, that panics itself gets no second chance.
            std::mem::forget(again);
        }
    }

    /// Sees to it that somebody sleeps who can take the place of a thread that blocks.
    pub(crate) fn ensure_stand_in(&self) {
        if self.sleep.nobody_is_parked() && !self.is_closing() {
            self.start_spare();
        }
    }

    #[cold]
    fn start_spare(&self) {
        let mut spares = self.spares.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(index) = spares.free_seats.pop() else {
            return;
        };
        self.used.fetch_max(index + 1, Ordering::AcqRel);
        let shared = self.strong();
        let thread = std::thread::Builder::new()
            .name(format!("{}-{index}", self.name))
            .spawn(move || Worker::sit_down(&shared, index, |worker| worker.serve()));
        match thread {
            Ok(thread) => spares.threads.push(thread),
            // Without a stand-in the pool is slower for a while, not wrong.
            Err(_) => spares.free_seats.push(index),
        }
    }

    fn close(&self) {
        self.closing.store(true, Ordering::Release);
        for (index, seat) in self.seats.iter().enumerate() {
            if self.sleep.wake(index) {
                seat.unpark();
            }
        }
    }
}

/// A work-stealing thread pool.
#[derive(Debug)]
pub struct Pool {
    pub(crate) shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool with one worker per processor.
    pub fn new() -> Result<Self, BuildError> {
        Self::builder().build()
    }

    /// Settings for a new pool.
    #[must_use]
    pub fn builder() -> PoolBuilder {
        PoolBuilder::default()
    }

    /// The pool that the free functions use outside of any pool. Started on first use.
    #[must_use]
    pub fn global() -> &'static Self {
        static GLOBAL: OnceLock<Pool> = OnceLock::new();
        GLOBAL.get_or_init(|| Self::new().expect("the operating system gives us threads"))
    }

    /// How many workers there are.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.shared.workers
    }

    /// Calls `body` inside the pool: `join`, `scope` and so on in it use this pool.
    ///
    /// A thread from outside becomes a guest of the pool: the body runs on the calling thread,
    /// which takes a seat of its own, and one worker fewer is kept awake meanwhile.
    pub fn install<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        self.enter(|_| body())
    }

    /// Calls `a` and `b`, potentially in parallel, and returns both results.
    pub fn join<RA: Send, RB: Send>(
        &self,
        a: impl FnOnce() -> RA + Send,
        b: impl FnOnce() -> RB + Send,
    ) -> (RA, RB) {
        self.enter(|worker| join_on(worker, |_| a(), |_| b()))
    }

    /// Calls `body` with this thread seated in this pool.
    #[inline]
    pub(crate) fn enter<R>(&self, body: impl FnOnce(&Worker<'_>) -> R) -> R {
        with_current(|worker| match worker {
            Some(worker) if std::ptr::eq(worker.shared, &*self.shared) => body(worker),
            _ => self.enter_as_guest(body),
        })
    }

    fn enter_as_guest<R>(&self, body: impl FnOnce(&Worker<'_>) -> R) -> R {
        struct GiveBack<'a>(&'a Shared, usize);
        impl Drop for GiveBack<'_> {
            fn drop(&mut self) {
                self.0.free_seat(self.1);
            }
        }
        let seat = self.shared.take_seat();
        let _give_back = GiveBack(&self.shared, seat);
        Worker::sit_down(&self.shared, seat, body)
    }
}

impl Drop for Pool {
    /// Waits until everything that was spawned has run, then ends the threads.
    fn drop(&mut self) {
        self.shared.close();
        let own = std::thread::current().id();
        let mut spares = self
            .shared
            .spares
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let spares = std::mem::take(&mut spares.threads);
        for thread in self.threads.drain(..).chain(spares) {
            if thread.thread().id() != own {
                let _ = thread.join();
            }
        }
    }
}

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
        let seats = workers + guests + workers;
        let shared = Arc::new_cyclic(|me| Shared {
            me: Weak::clone(me),
            seats: (0..seats).map(|_| Seat::new()).collect(),
            injector: Injector::new(),
            sleep: Sleep::new(workers, seats),
            detached: Detached::default(),
            topology: self.seat_topology(workers, seats),
            victim_order: self.victim_order,
            steal_amount: self.steal_amount.unwrap_or(StealAmount::batch(32)),
            patience: self.patience.unwrap_or_default(),
            seed: self.seed,
            workers,
            free_seats: std::sync::Mutex::new((workers..workers + guests).rev().collect()),
            seat_freed: Condvar::new(),
            spares: std::sync::Mutex::new(Spares {
                free_seats: (workers + guests..seats).rev().collect(),
                threads: Vec::new(),
            }),
            name: self.name.clone().unwrap_or_else(|| "loxley".to_owned()),
            trace: Trace::default(),
            meter: Meter::new(seats),
            used: AtomicUsize::new(workers),
            closing: AtomicBool::new(false),
            scoped_outside: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            on_panic: self.on_panic.clone(),
        });
        let mut pool = Pool {
            shared,
            threads: Vec::with_capacity(workers),
        };
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
        let mut builder = std::thread::Builder::new().name(format!("{}-{index}", shared.name));
        if let Some(stack_size) = self.stack_size {
            builder = builder.stack_size(stack_size);
        }
        let shared = Arc::clone(shared);
        let processor = if self.pin {
            machine::processor(index)
        } else {
            None
        };
        builder.spawn(move || {
            if let Some(processor) = processor {
                machine::pin(processor);
            }
            Worker::sit_down(&shared, index, |worker| worker.serve());
        })
    }
}

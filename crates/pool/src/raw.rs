//! The pool without its manners: what the drop-in for `rayon-core` is made of, and nobody else should use.
//!
//! Threads are started by the caller, who tells when all is over; work is moved to a thread of the pool
//! instead of giving the caller a seat; waiting threads also run what they put into their own deque.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use loxley_balance::{Patience, StealAmount, Topology, VictimOrder};

use crate::builder::Settings;
use crate::errand::run_on;
use crate::join::join_on;
use crate::mailbox::Mailbox;
use crate::numbers::Numbers;
use crate::pool::{PanicHandler, Shared};
use crate::priority::Priority;
use crate::scope::{AfterPanic, ScopeRef, ScopeUnits};
use crate::spawn::heap_unit;
use crate::sync::{Mutex, Ordering, fence, lock};
use crate::unit::{Header, UnitRef};
use crate::wait::Company;
use crate::worker::{Worker, claim, with_current};

/// A pool whose threads are somebody else's business.
#[derive(Clone, Debug)]
pub struct RawPool(Arc<Shared>);

impl RawPool {
    /// A pool for so many threads, which have to be [`serve`](Self::serve)d by as many threads, and of which others
    /// may stand in for those that wait.
    pub fn new(
        threads: usize,
        stand_ins: StandIns,
        on_panic: Arc<dyn Fn(Box<dyn Any + Send>) + Send + Sync>,
    ) -> Self {
        let on_panic: PanicHandler = on_panic;
        let settings = Settings {
            workers: threads,
            topology: Topology::flat(threads + stand_ins.count),
            victim_order: VictimOrder::default(),
            steal_amount: StealAmount::batch(32),
            patience: Patience::default(),
            seed: 0,
            is_metered: false,
            name: "rayon stand-in".to_owned(),
            stack_size: stand_ins.stack_size,
            on_panic: Some(on_panic),
            company: Company::OwnToo,
        };
        let numbers = (stand_ins.count > 0).then(|| Numbers::new(threads));
        let shared = Shared::new(settings, 0, numbers);
        // Counted before they begin, so that nobody stands in for threads that are about to.
        (0..threads).for_each(|_| shared.sleep.enter());
        Self(shared)
    }

    /// The pool that the calling thread sits in.
    pub fn current() -> Option<Self> {
        with_current(|worker| worker.map(|worker| Self(worker.shared.strong())))
    }

    /// How many threads it was made for.
    pub fn threads(&self) -> usize {
        self.0.workers
    }

    /// A number that no other living pool has.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// The number of the calling thread, if it sits in this pool.
    pub fn index(&self) -> Option<usize> {
        self.inside(|worker| worker.map(Worker::number))
    }

    /// Does the calling thread sit in this pool?
    pub fn is_current(&self) -> bool {
        self.inside(|worker| worker.is_some())
    }

    fn inside<R>(&self, body: impl FnOnce(Option<&Worker<'_>>) -> R) -> R {
        with_current(|worker| body(worker.filter(|worker| std::ptr::eq(worker.shared, &*self.0))))
    }

    /// Takes the seat of this number, which nobody has, calls `begin`, runs what there is until the pool is
    /// closed and nothing is left, and calls `end`.
    pub fn serve(&self, index: usize, begin: impl FnOnce(), end: impl FnOnce()) {
        Worker::sit_down_counted(&self.0, index, |worker| {
            begin();
            worker.serve();
            end();
        });
        let mut ended = self.0.ended.lock().unwrap_or_else(PoisonError::into_inner);
        *ended += 1;
        self.0.thread_ended.notify_all();
    }

    /// Waits until so many threads have ended.
    pub fn wait_for_ends(&self, count: usize) {
        let mut ended = self.0.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while *ended < count {
            let waited = self.0.thread_ended.wait(ended);
            ended = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives the seat of this number to the calling thread for ever. It keeps the pool.
    ///
    /// # Panics
    /// If the thread sits in some pool.
    pub fn adopt(&self, index: usize) {
        let shared: &'static Arc<Shared> = Box::leak(Box::new(Arc::clone(&self.0)));
        Worker::stay(shared, index);
    }

    /// Something needs the pool: it stays open until as many [`let_go`](Self::let_go) have come. A new
    /// pool is kept once.
    pub fn keep(&self) {
        self.0.keepers.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back one [`keep`](Self::keep). The last one closes the pool: threads leave when nothing is left.
    pub fn let_go(&self) {
        self.0.let_go();
    }

    /// Calls `body` on a thread of the pool: at once if this is one, else on another while this one waits,
    /// or goes on with the work of its own pool. Tells `body` whether it was moved.
    pub fn run<R: Send>(&self, body: impl FnOnce(bool) -> R + Send) -> R {
        if self.is_current() {
            return body(false);
        }
        run_on(&self.0, |_| body(true))
    }

    /// Runs `body` some time; its panic goes to the handler. The caller has a [`keep`](Self::keep) for it.
    pub fn spawn(&self, body: impl FnOnce() + Send + 'static) {
        self.0.accept(kept_unit(body), Priority::Normal);
    }

    /// As [`spawn`](Self::spawn); what one thread spawns in this way begins in order.
    pub fn spawn_fifo(&self, body: impl FnOnce() + Send + 'static) {
        let unit = kept_unit(body);
        self.inside(|worker| match worker {
            Some(worker) => {
                worker.counters().detached_made.add(1);
                let fifo = &raw const worker.seat.fifo;
                // SAFETY: seats live as long as their pool, which outlives its units.
                unsafe { push_in_turn(worker, fifo, unit) };
            }
            None => self.0.accept(unit, Priority::Normal),
        });
    }

    /// Runs `body` once on each thread, with its number, and returns the results in order.
    pub fn broadcast<R: Send>(&self, body: impl Fn(usize) -> R + Sync) -> Vec<R> {
        let results: Vec<Mutex<Option<R>>> =
            (0..self.threads()).map(|_| Mutex::new(None)).collect();
        RawScope::in_place(self.clone(), Turns::Newest, |scope| {
            scope.broadcast(|_, index| {
                let result = body(index);
                *lock(&results[index]) = Some(result);
            });
        });
        let result = |result: &Mutex<Option<R>>| lock(result).take();
        let result = |mutex| result(mutex).expect("every thread ran it");
        results.iter().map(result).collect()
    }

    /// Runs `body` some time once on each thread, with its number; panics go to the handler. The caller
    /// has as many [`keep`](Self::keep)s for it as there are threads.
    pub fn spawn_broadcast(&self, body: impl Fn(usize) + Send + Sync + 'static) {
        self.0.forbid_spares();
        let body = Arc::new(body);
        for index in 0..self.threads() {
            let body = Arc::clone(&body);
            self.0.count_detached();
            let body = move || {
                use_own_number();
                body(index);
            };
            self.0.order(index, kept_unit(body));
        }
    }
}

impl PartialEq for RawPool {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Threads that a pool may start itself, to stand in for those that wait for something and may not run what else
/// there is.
#[derive(Debug, Clone, Copy)]
pub struct StandIns {
    /// How many at most.
    pub count: usize,
    /// Their stack size, in bytes.
    pub stack_size: Option<usize>,
}

/// The number of the calling thread in the pool that it sits in.
#[inline]
pub fn current_index() -> Option<usize> {
    with_current(|worker| worker.map(Worker::number))
}

fn use_own_number() {
    with_current(|worker| worker.iter().for_each(|worker| worker.use_own_number()));
}

/// Does the calling thread sit in some pool?
#[inline]
pub fn is_inside() -> bool {
    with_current(|worker| worker.is_some())
}

/// How many threads the pool has that the calling thread sits in.
#[inline]
pub fn current_threads() -> Option<usize> {
    with_current(|worker| worker.map(|worker| worker.shared.workers))
}

/// Does anything wait in the queues of the calling thread?
pub fn has_pending() -> Option<bool> {
    with_current(|worker| worker.map(Worker::has_pending))
}

/// Runs one unit, from wherever there is one. `Some(false)`: there was none.
pub fn yield_now() -> Option<bool> {
    with_current(|worker| worker.map(|worker| run_some(worker, worker.take_any())))
}

/// Runs one unit that waits for the calling thread. `Some(false)`: there was none.
pub fn yield_local() -> Option<bool> {
    with_current(|worker| worker.map(|worker| run_some(worker, worker.take_local())))
}

fn run_some(worker: &Worker<'_>, unit: Option<UnitRef>) -> bool {
    let is_some = unit.is_some();
    if let Some(unit) = unit {
        worker.run(unit);
    }
    is_some
}

/// Calls `a`, here, and `b`, potentially in parallel, and tells each whether it was moved to another
/// thread, which `a` never is. A thread that sits in no pool calls `outside` with both.
#[inline(always)]
pub fn join<A, B, RA, RB>(a: A, b: B, outside: impl FnOnce(A, B) -> (RA, RB)) -> (RA, RB)
where
    A: FnOnce(bool) -> RA,
    B: FnOnce(bool) -> RB + Send,
    RB: Send,
{
    with_current(|worker| match worker {
        Some(worker) => join_on(worker, |_| a(false), |_, is_moved| b(is_moved)),
        None => outside(a, b),
    })
}

/// In which order a thread begins with the units that it spawned into a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turns {
    /// The newest first.
    Newest,
    /// The oldest first.
    Oldest,
}

/// The units of a scope.
#[derive(Debug)]
pub struct RawScope<'scope> {
    pool: RawPool,
    units: ScopeUnits,
    /// One for each seat, if the oldest go first.
    fifos: Box<[Mailbox<Header>]>,
    borrows: PhantomData<fn(&'scope ()) -> &'scope ()>,
}

impl<'scope> RawScope<'scope> {
    /// Calls `body` with a new scope of this pool, on the calling thread, wherever that sits, and returns
    /// when all units are done. They run also when one has panicked; the first panic is passed on.
    pub fn in_place<R>(pool: RawPool, turns: Turns, body: impl FnOnce(&Self) -> R) -> R {
        let queues = match turns {
            Turns::Newest => 0,
            Turns::Oldest => pool.0.seats.len(),
        };
        with_current(|worker| {
            let home = worker.filter(|worker| std::ptr::eq(worker.shared, &*pool.0));
            let units = match home {
                Some(worker) => ScopeUnits::at_home(worker, AfterPanic::GoOn),
                None => ScopeUnits::elsewhere(&pool.0, AfterPanic::GoOn),
            };
            let scope = Self {
                pool,
                units,
                fifos: (0..queues).map(|_| Mailbox::new()).collect(),
                borrows: PhantomData,
            };
            scope.units.complete(home, || body(&scope))
        })
    }

    /// The pool of the scope.
    pub fn pool(&self) -> &RawPool {
        &self.pool
    }

    /// Spawns a unit.
    #[inline]
    pub fn spawn(&self, body: impl FnOnce(&Self) + Send + 'scope) {
        let this = ScopeRef::new(self);
        let body = move || {
            // SAFETY: this unit is counted, so the scope is alive.
            body(unsafe { this.get() });
        };
        if self.fifos.is_empty() {
            // SAFETY: the closure is `Send`, and what it borrows for `'scope` outlives the scope.
            unsafe { self.units.spawn(body) };
        } else {
            // SAFETY: as above.
            unsafe { self.spawn_in_turn(body) };
        }
    }

    /// # Safety
    /// Any thread may call `body`, and what it borrows outlives the scope.
    unsafe fn spawn_in_turn(&self, body: impl FnOnce()) {
        self.pool.inside(|worker| {
            let Some(worker) = worker else {
                // SAFETY: by the contract.
                return unsafe { self.units.spawn(body) };
            };
            // SAFETY: by the contract; the unit is counted before it can run.
            let unit = unsafe { self.units.unit(body) };
            self.units.count_on(worker);
            // SAFETY: the queue belongs to the scope, which ends when the unit has run.
            unsafe { push_in_turn(worker, &raw const self.fifos[worker.index], unit) };
        });
    }

    /// Runs `body` once on each thread of the pool, with its number.
    pub fn broadcast(&self, body: impl Fn(&Self, usize) + Send + Sync + 'scope) {
        // It may be how threads are prepared, each for what it will run.
        self.pool.0.forbid_spares();
        let body = Arc::new(body);
        for index in 0..self.pool.threads() {
            let (this, body) = (ScopeRef::new(self), Arc::clone(&body));
            let body = move || {
                use_own_number();
                // SAFETY: this unit is counted, so the scope is alive.
                body(unsafe { this.get() }, index);
            };
            // SAFETY: the closure is `Send`, what it borrows for `'scope` outlives the scope, and the
            // unit is counted before it is given away.
            let unit = unsafe { self.units.unit(body) };
            self.pool.inside(|worker| match worker {
                Some(worker) => self.units.count_on(worker),
                None => self.units.count_outside(),
            });
            self.pool.0.scoped_outside.fetch_add(1, Ordering::Relaxed);
            self.pool.0.order(index, unit);
        }
    }
}

/// Puts `unit` into the queue, and into the worker's deque one that runs whichever is first in the queue
/// then: units move through the deque as always, and begin in order.
///
/// # Safety
/// The queue lives until the unit has run.
unsafe fn push_in_turn(worker: &Worker<'_>, fifo: *const Mailbox<Header>, unit: UnitRef) {
    let origin = unit
        .origin()
        .map_or(std::ptr::null(), |origin| origin as *const _);
    // SAFETY: by the contract.
    unsafe { &*fifo }.post(unit.into_raw());
    let run_first = move |worker: &Worker<'_>| {
        // SAFETY: as many units come into the queue as into the deques, so there is one that has not run.
        let fifo = unsafe { &*fifo };
        let first = fifo.pop().expect("a unit in the queue for each in a deque");
        // SAFETY: it was just taken out of the queue.
        unsafe { claim(first) }.run(worker);
    };
    // SAFETY: any thread may run it; the queue and the origin live until the unit has run.
    worker.push(unsafe { heap_unit(run_first, origin) });
}

/// A unit that gives a panic to the handler and lets the pool go.
fn kept_unit(body: impl FnOnce() + Send + 'static) -> UnitRef {
    let closure = move |worker: &Worker<'_>| {
        let result = worker.within(std::ptr::null(), || catch_unwind(AssertUnwindSafe(body)));
        if let Err(panic) = result {
            worker.shared.report(panic);
        }
        worker.counters().detached_done.add(1);
        worker.shared.let_go();
    };
    // SAFETY: the closure is `Send` and owns what it uses; there is no origin.
    unsafe { heap_unit(closure, std::ptr::null()) }
}

impl Shared {
    /// Gives a unit to one worker, who alone may run it.
    fn order(&self, index: usize, unit: UnitRef) {
        let seat = &self.seats[index];
        seat.orders.post(unit.into_raw());
        // Pairs with the fences of those who go to sleep.
        fence(Ordering::SeqCst);
        self.sleep.wake(index);
        // It may also wait for something that the unit is part of.
        seat.unpark();
    }

    fn let_go(&self) {
        if self.keepers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close();
        }
    }
}

//! `scope`: units that borrow, and a call that returns when the last of them is done.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::pool::{Pool, Shared};
use crate::spawn::heap_unit;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};
use crate::tally::Tally;
use crate::unit::{Lineage, UnitRef};
use crate::wait::{Awaited, Runner};
use crate::worker::{Worker, with_current};

/// A set of units that may borrow from outside of the scope and is finished when [`scope`] returns.
///
/// [`scope`]: crate::scope
#[derive(Debug)]
pub struct Scope<'scope> {
    shared: *const Shared,
    lineage: Lineage,
    tally: Tally,
    cancelled: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Invariant: a scope must not be used for data that lives shorter than it.
    borrows: PhantomData<fn(&'scope ()) -> &'scope ()>,
}

// SAFETY: `shared` points to the pool, which outlives the call of `scope` and may be used by all
// threads. Everything else is made for use by several threads.
unsafe impl Sync for Scope<'_> {}
// SAFETY: as above; a scope is never moved while it is in use.
unsafe impl Send for Scope<'_> {}

/// Calls `body` with a new scope on this worker and waits for all of its units.
pub(crate) fn scope_on<'scope, R>(
    worker: &Worker<'_>,
    body: impl FnOnce(&Scope<'scope>) -> R,
) -> R {
    let mark = worker.deque.mark();
    let scope = Scope {
        shared: worker.shared,
        lineage: Lineage::new(worker),
        tally: Tally::new(),
        cancelled: AtomicBool::new(false),
        panic: Mutex::new(None),
        borrows: PhantomData,
    };
    let result = worker.within(&raw const scope.lineage, || {
        let result = catch_unwind(AssertUnwindSafe(|| body(&scope)));
        if result.is_err() {
            scope.cancel();
        }
        worker.wait_for_since(&scope, mark);
        result
    });
    let panic = lock(&scope.panic).take();
    match (result, panic) {
        (Err(panic), _) | (Ok(_), Some(panic)) => resume_unwind(panic),
        (Ok(result), None) => result,
    }
}

impl<'scope> Scope<'scope> {
    /// Spawns a unit that may borrow everything that outlives the scope. It can spawn more.
    pub fn spawn<F>(&self, body: F)
    where
        F: FnOnce(&Self) + Send + 'scope,
    {
        let this = ScopeRef(self);
        let closure = move |worker: &Worker<'_>| {
            // SAFETY: this unit is counted in the scope's tally, so the scope is alive.
            unsafe { this.get() }.run(worker, body);
            // SAFETY: as before; this counts the unit off, and nothing touches the scope later.
            unsafe { this.count_off(worker) };
        };
        // SAFETY: the scope does not end before the unit has run, so what the closure borrows for
        // `'scope` and the lineage stay alive. The closure is `Send` because `body` is.
        let unit = unsafe { heap_unit(closure, &raw const self.lineage) };
        with_current(|worker| match worker {
            Some(worker) if self.is_of(worker) => self.push(worker, unit),
            _ => self.push_outside(unit),
        });
    }

    /// Stops units that have not started: they are dropped without being run.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Was [`cancel`](Self::cancel) called, or did a unit panic?
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    #[inline]
    fn is_of(&self, worker: &Worker<'_>) -> bool {
        std::ptr::eq(worker.shared, self.shared)
    }

    /// Is this worker, which is of our pool, the one that waits for us?
    #[inline]
    fn is_home(&self, worker: &Worker<'_>) -> bool {
        worker.index == self.lineage.home()
    }

    #[inline]
    fn push(&self, worker: &Worker<'_>, unit: UnitRef) {
        if self.is_home(worker) {
            // SAFETY: a seat has one thread, and ours is in the home seat.
            unsafe { self.tally.count_at_home(1) };
        } else {
            self.tally.made_elsewhere();
        }
        worker.push(unit);
    }

    #[cold]
    fn push_outside(&self, unit: UnitRef) {
        self.tally.made_elsewhere();
        // SAFETY: the pool outlives the scope.
        let shared = unsafe { &*self.shared };
        shared.scoped_outside.fetch_add(1, Ordering::Relaxed);
        shared.stray(unit);
    }

    /// Runs one unit, unless the scope is cancelled.
    #[inline]
    fn run(&self, worker: &Worker<'_>, body: impl FnOnce(&Self)) {
        if !self.is_cancelled() {
            let result = worker.within(&raw const self.lineage, || {
                catch_unwind(AssertUnwindSafe(|| body(self)))
            });
            if let Err(panic) = result {
                self.note(panic);
            }
        } else if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(body))) {
            self.note(panic);
        }
    }

    /// Keeps the first panic for whoever waits, and stops the rest.
    #[cold]
    fn note(&self, panic: Box<dyn Any + Send>) {
        self.cancel();
        lock(&self.panic).get_or_insert(panic);
    }
}

impl Awaited for Scope<'_> {
    fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    fn is_over(&self) -> bool {
        // SAFETY: only the home worker waits for a scope.
        unsafe { self.tally.is_over_at_home() }
    }

    fn runner(&self) -> Runner {
        Runner::Anyone
    }

    fn announce_sleep(&self) -> bool {
        // SAFETY: only the home worker waits for a scope.
        unsafe { self.tally.announce_sleep_at_home() }
    }

    fn announce_awake(&self) {
        self.tally.announce_awake();
    }
}

/// A scope, as its units know it.
struct ScopeRef<'scope>(*const Scope<'scope>);

// SAFETY: `Scope` is `Sync`.
unsafe impl Send for ScopeRef<'_> {}

impl<'scope> ScopeRef<'scope> {
    /// # Safety
    /// The scope must be alive for `'a`.
    unsafe fn get<'a>(&self) -> &'a Scope<'scope> {
        // SAFETY: by the contract.
        unsafe { &*self.0 }
    }

    /// Counts a finished unit. The scope may be gone when this returns.
    ///
    /// # Safety
    /// `worker` belongs to the scope's pool and has just run a unit that is still counted.
    #[inline]
    unsafe fn count_off(&self, worker: &Worker<'_>) {
        // SAFETY: the unit is still counted. The reference is not used after the last access below
        // and, being local, claims nothing about the time after it.
        let scope = unsafe { &*self.0 };
        let home = scope.lineage.home();
        if worker.index == home {
            // SAFETY: a seat has one thread, and ours is in the home seat.
            unsafe { scope.tally.count_at_home(-1) };
        } else if scope.tally.done_elsewhere() {
            worker.shared.seats[home].unpark();
        }
    }
}

impl Pool {
    /// Calls `body` with a [`Scope`] and returns when all units spawned in it, directly or not,
    /// are done.
    pub fn scope<'scope, R: Send>(&self, body: impl FnOnce(&Scope<'scope>) -> R + Send) -> R {
        self.enter(|worker| scope_on(worker, body))
    }
}

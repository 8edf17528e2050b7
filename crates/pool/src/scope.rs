//! `scope`: units that borrow, and a call that returns when the last of them is done.
//!
//! A scope whose thread sits in the pool is at *home* there: it counts in its tally, and the thread runs
//! units of the scope while it waits. A scope of a thread from elsewhere, which the drop-in for rayon
//! knows ([`crate::raw`]), counts all of its units in one atomic and wakes that thread at the end.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::errand::Caller;
use crate::pool::{Pool, Shared};
use crate::spawn::heap_unit;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};
use crate::tally::{Remaining, Tally};
use crate::unit::{Header, Kind, Lineage, RunUnit, UnitRef};
use crate::unwind::{discard, without_unwinding};
use crate::wait::{Awaited, Runner};
use crate::worker::{Worker, with_current};

/// A set of units that may borrow from outside of the scope and is finished when [`scope`] returns.
///
/// [`scope`]: crate::scope
#[derive(Debug)]
pub struct Scope<'scope> {
    units: ScopeUnits,
    /// The unit of the first closure without captures that was spawned: there are as many of it as queues have
    /// pointers to it.
    plain: OnceLock<PlainUnit>,
    /// Invariant: a scope must not be used for data that lives shorter than it.
    borrows: PhantomData<fn(&'scope ()) -> &'scope ()>,
}

/// Calls `body` with a new scope on this worker and waits for all of its units.
pub(crate) fn scope_on<'scope, R>(
    worker: &Worker<'_>,
    body: impl FnOnce(&Scope<'scope>) -> R,
) -> R {
    let scope = Scope {
        units: ScopeUnits::at_home(worker, AfterPanic::Stop),
        plain: OnceLock::new(),
        borrows: PhantomData,
    };
    scope.units.complete(Some(worker), || body(&scope))
}

impl<'scope> Scope<'scope> {
    /// Spawns a unit that may borrow everything that outlives the scope. It can spawn more.
    pub fn spawn<F>(&self, body: F)
    where
        F: FnOnce(&Self) + Send + 'scope,
    {
        if size_of::<F>() == 0
            && let Some(unit) = self.plain_unit::<F>()
        {
            std::mem::forget(body);
            self.units.count_and_push(unit);
            return;
        }
        let this = ScopeRef(self);
        let body = move || {
            // SAFETY: this unit is counted, so the scope is alive.
            body(unsafe { this.get() });
        };
        // SAFETY: the closure is `Send`, and the scope does not end before it has run, so what it
        // borrows for `'scope` stays alive.
        unsafe { self.units.spawn(body) };
    }

    /// A unit that brings back a closure which has no bytes, needs no memory of its own, and counts itself off. None
    /// if the scope keeps that of another closure. The caller forgets such a closure.
    #[inline]
    fn plain_unit<F: FnOnce(&Self) + Send + 'scope>(&self) -> Option<UnitRef> {
        let run: RunUnit = Self::run_plain::<F>;
        let unit = self.plain.get_or_init(|| PlainUnit {
            header: Header::new(run, &raw const self.units.lineage, Kind::Heap),
            scope: std::ptr::from_ref(self).cast(),
        });
        if !unit.header.is_run_by(run) {
            return None;
        }
        // SAFETY: each unit stands for one closure that was forgotten, and `run_plain` brings back one; the closure
        // is `Send`; the scope, with the unit and the lineage in it, does not end before all of them have run, and
        // neither does what they borrow; the pointer is to the whole unit.
        Some(unsafe { UnitRef::new(NonNull::from(unit).cast()) })
    }

    /// # Safety
    /// `header` begins the `PlainUnit` of a `Scope<'scope>`, made for `F`, and the caller has one unit of it, which is
    /// still counted.
    unsafe fn run_plain<F: FnOnce(&Self)>(header: NonNull<Header>, worker: &Worker<'_>) {
        // SAFETY: by the contract; the unit is counted, so its scope is alive.
        let unit = unsafe { header.cast::<PlainUnit>().as_ref() };
        // SAFETY: as above.
        let this = unsafe { &*unit.scope.cast::<Self>() };
        // SAFETY: `F` has no bytes to read, and the one that was forgotten is ours.
        let body = unsafe { NonNull::<F>::dangling().read() };
        this.units.run(worker, || body(this));
        // SAFETY: the unit is still counted; this counts it off, and nothing touches the scope later.
        unsafe { ScopeUnits::count_off(&raw const this.units, worker) };
    }

    /// Stops units that have not started: they are dropped without being run.
    pub fn cancel(&self) {
        self.units.cancel();
    }

    /// Was [`cancel`](Self::cancel) called, or did a unit panic?
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.units.is_cancelled()
    }
}

/// A unit without a closure, which has no bytes, and the scope that it is part of.
#[derive(Debug)]
#[repr(C)]
struct PlainUnit {
    header: Header,
    scope: *const (),
}

// SAFETY: it points to the scope that it is part of, which is shared between threads, and does not change.
unsafe impl Send for PlainUnit {}
// SAFETY: as above.
unsafe impl Sync for PlainUnit {}

/// A scope, as its units know it.
pub(crate) struct ScopeRef<T>(*const T);

// SAFETY: what it points to is shared between threads.
unsafe impl<T: Sync> Send for ScopeRef<T> {}

impl<T> ScopeRef<T> {
    pub(crate) fn new(scope: &T) -> Self {
        Self(scope)
    }

    /// # Safety
    /// The scope must be alive for `'a`.
    pub(crate) unsafe fn get<'a>(&self) -> &'a T {
        // SAFETY: by the contract.
        unsafe { &*self.0 }
    }
}

/// What the panic of a unit does to those that have not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterPanic {
    /// They are dropped.
    Stop,
    /// They run all the same.
    GoOn,
}

/// The units of a scope.
#[derive(Debug)]
pub(crate) struct ScopeUnits {
    shared: *const Shared,
    lineage: Lineage,
    count: UnitCount,
    after_panic: AfterPanic,
    cancelled: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// How many units are out.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a scope lives on the stack; the room keeps its counters on lines of their own"
)]
enum UnitCount {
    Home(Tally),
    /// Whoever brings it to zero wakes the caller.
    Elsewhere(Remaining, Caller),
}

// SAFETY: `shared` points to the pool, which outlives the call of `scope` and may be used by all
// threads. Everything else is made for use by several threads.
unsafe impl Sync for ScopeUnits {}
// SAFETY: as above; a scope is never moved while it is in use.
unsafe impl Send for ScopeUnits {}

impl ScopeUnits {
    /// For a scope on the stack of this worker.
    pub(crate) fn at_home(worker: &Worker<'_>, after_panic: AfterPanic) -> Self {
        let (lineage, tally) = (Lineage::new(worker), Tally::new());
        Self::new(worker.shared, lineage, UnitCount::Home(tally), after_panic)
    }

    /// For a scope on the stack of a thread that does not sit in this pool. The pool must outlive it.
    pub(crate) fn elsewhere(shared: &Shared, after_panic: AfterPanic) -> Self {
        let count = UnitCount::Elsewhere(Remaining::new(), Caller::current());
        Self::new(shared, Lineage::root(), count, after_panic)
    }

    fn new(
        shared: *const Shared,
        lineage: Lineage,
        count: UnitCount,
        after_panic: AfterPanic,
    ) -> Self {
        Self {
            shared,
            lineage,
            count,
            after_panic,
            cancelled: AtomicBool::new(false),
            panic: Mutex::new(None),
        }
    }

    /// Calls `body`, waits for all units and passes on the first panic. `home` is the worker that the
    /// scope was made for, if it was.
    pub(crate) fn complete<R>(&self, home: Option<&Worker<'_>>, body: impl FnOnce() -> R) -> R {
        let result = match (home, &self.count) {
            (Some(worker), UnitCount::Home(_)) => {
                let mark = worker.deque.mark();
                worker.within(&raw const self.lineage, || {
                    let result = self.call(body);
                    without_unwinding(|| worker.wait_for_since(self, mark));
                    result
                })
            }
            (None, UnitCount::Elsewhere(count, caller)) => {
                let result = self.call(body);
                without_unwinding(|| {
                    if count.done(|| ()).is_none() {
                        caller.wait(&|| count.is_over());
                    }
                });
                result
            }
            _ => unreachable!("a scope is completed where it was made"),
        };
        let panic = lock(&self.panic).take();
        match (result, panic) {
            (Ok(result), None) => result,
            (Ok(result), Some(panic)) => {
                discard(result);
                resume_unwind(panic)
            }
            (Err(panic), loser) => {
                discard(loser);
                resume_unwind(panic)
            }
        }
    }

    fn call<R>(&self, body: impl FnOnce() -> R) -> std::thread::Result<R> {
        let result = catch_unwind(AssertUnwindSafe(body));
        if result.is_err() {
            self.stop();
        }
        result
    }

    /// Spawns a unit: into the deque of the calling worker, or from outside.
    ///
    /// # Safety
    /// Any thread may call `body`, and what it borrows stays alive until the scope has been completed.
    #[inline]
    pub(crate) unsafe fn spawn(&self, body: impl FnOnce()) {
        // SAFETY: by the contract.
        self.count_and_push(unsafe { self.unit(body) });
    }

    /// Counts a unit and puts it into the deque of the calling worker, or into the injector.
    #[inline]
    fn count_and_push(&self, unit: UnitRef) {
        with_current(|worker| match worker {
            Some(worker) if std::ptr::eq(worker.shared, self.shared) => {
                self.count_on(worker);
                worker.push(unit);
            }
            _ => self.push_outside(unit),
        });
    }

    /// A unit that counts itself off, still to be counted.
    ///
    /// # Safety
    /// As for `spawn`, and the caller counts it before it can run.
    #[inline]
    pub(crate) unsafe fn unit(&self, body: impl FnOnce()) -> UnitRef {
        let this = ScopeRef(self);
        let closure = move |worker: &Worker<'_>| {
            // SAFETY: this unit is counted, so the scope is alive.
            unsafe { this.get() }.run(worker, body);
            // SAFETY: as before; this counts the unit off, and nothing touches the scope later.
            unsafe { Self::count_off(this.0, worker) };
        };
        let origin = match self.count {
            UnitCount::Home(_) => &raw const self.lineage,
            UnitCount::Elsewhere(..) => std::ptr::null(),
        };
        // SAFETY: the scope does not end before the unit has run, so what the closure borrows and the
        // lineage stay alive; the rest is the caller's promise.
        unsafe { heap_unit(closure, origin) }
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Counts a unit that this worker, which is of our pool, makes.
    #[inline]
    pub(crate) fn count_on(&self, worker: &Worker<'_>) {
        match &self.count {
            UnitCount::Home(tally) if worker.index == self.lineage.home() => {
                // SAFETY: a seat has one thread, and ours is in the home seat.
                unsafe { tally.count_at_home(1) };
            }
            _ => self.count_outside(),
        }
    }

    /// Counts a unit that somebody else makes.
    pub(crate) fn count_outside(&self) {
        match &self.count {
            UnitCount::Home(tally) => tally.made_elsewhere(),
            UnitCount::Elsewhere(count, _) => count.add(),
        }
    }

    #[cold]
    fn push_outside(&self, unit: UnitRef) {
        self.count_outside();
        // SAFETY: the pool outlives the scope.
        let shared = unsafe { &*self.shared };
        shared.scoped_outside.fetch_add(1, Ordering::Relaxed);
        shared.stray(unit);
    }

    /// Runs one unit, unless the scope is cancelled.
    #[inline]
    fn run(&self, worker: &Worker<'_>, body: impl FnOnce()) {
        if !self.is_cancelled() {
            let lineage = match self.count {
                UnitCount::Home(_) => &raw const self.lineage,
                UnitCount::Elsewhere(..) => std::ptr::null(),
            };
            let result = worker.within(lineage, || catch_unwind(AssertUnwindSafe(body)));
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
        self.stop();
        let mut first = lock(&self.panic);
        if first.is_none() {
            *first = Some(panic);
        } else {
            drop(first);
            discard(panic);
        }
    }

    fn stop(&self) {
        if self.after_panic == AfterPanic::Stop {
            self.cancel();
        }
    }

    /// Counts a finished unit. The scope may be gone when this returns.
    ///
    /// # Safety
    /// `worker` belongs to the scope's pool and has just run a unit that is still counted.
    #[inline]
    unsafe fn count_off(this: *const Self, worker: &Worker<'_>) {
        // SAFETY: the unit is still counted. The reference is not used after the last access below
        // and, being local, claims nothing about the time after it.
        let scope = unsafe { &*this };
        let home = scope.lineage.home();
        match &scope.count {
            UnitCount::Home(tally) if worker.index == home => {
                // SAFETY: a seat has one thread, and ours is in the home seat.
                unsafe { tally.count_at_home(-1) };
            }
            UnitCount::Home(tally) => {
                if tally.done_elsewhere() {
                    worker.shared.seats[home].unpark();
                }
            }
            UnitCount::Elsewhere(count, caller) => {
                if let Some(caller) = count.done(|| caller.clone()) {
                    caller.wake();
                }
            }
        }
    }
}

impl Awaited for ScopeUnits {
    fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    fn is_over(&self) -> bool {
        // SAFETY: only the home worker waits for a scope.
        unsafe { self.tally().is_over_at_home() }
    }

    fn runner(&self) -> Runner {
        Runner::Anyone
    }

    fn announce_sleep(&self) -> bool {
        // SAFETY: only the home worker waits for a scope.
        unsafe { self.tally().announce_sleep_at_home() }
    }

    fn announce_awake(&self) {
        self.tally().announce_awake();
    }
}

impl ScopeUnits {
    fn tally(&self) -> &Tally {
        match &self.count {
            UnitCount::Home(tally) => tally,
            UnitCount::Elsewhere(..) => unreachable!("a worker waits for a scope at home"),
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

//! `join`: two closures, potentially in parallel.
//!
//! Most joins are two plain calls: a worker that has enough units ready for thieves, and whom
//! nobody asked for more, does nothing else ([`Worker::is_quiet`], two loads). The others are
//! *forked*: one closure becomes a unit on this stack frame and enters the worker's ring; when the
//! other one is done the unit is taken back and run here, unless a thief has it.
//!
//! `join` promises that its first closure begins, on the calling thread, and that both are called, also
//! when one panics. `join_unordered` promises only the latter: it begins with the half that has been the
//! larger ([`crate::join_order`]). Our own loops and sorts stop at the first panic instead.
//!
//! # Who may touch a unit when
//! - `closure`: the owner before the unit is in the ring and after it took it back; the thief from
//!   the steal until it has called it.
//! - `result`: the thief until it settles the unit, the owner afterwards.
//! - the frame itself: alive until the unit is settled. Settling is the thief's last access; what
//!   it needs to wake the owner (the seat) belongs to the pool and is looked up before.

use std::any::Any;
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

use crate::join_order::Half;
use crate::latch::{Latch, Settled};
use crate::pool::Shared;
use crate::sync::{AtomicU32, Ordering};
use crate::unit::{Header, Kind, Lineage, UnitRef};
use crate::unwind::{Held, discard, without_unwinding};
use crate::wait::{Awaited, Runner};
use crate::worker::Worker;

/// The part of a join unit that does not depend on its types.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct JoinHead {
    header: Header,
    lineage: Lineage,
    latch: Latch,
    /// One more than the seat of the thief, once it has begun.
    runner: AtomicU32,
    /// The half that the owner began with, if something is to be learned from it.
    begun: Option<Half>,
}

impl JoinHead {
    /// Returns a stolen unit, not run, to its owner, who is told.
    pub(crate) fn give_back(unit: UnitRef, shared: &Shared) {
        debug_assert_eq!(unit.kind(), Kind::Join);
        let head = unit.into_raw().cast::<Self>();
        // SAFETY: a unit of kind `Join` begins with a `JoinHead`, and its owner keeps it alive
        // until it is settled.
        let home = unsafe { head.as_ref() }.lineage.home();
        // SAFETY: as above; this settles it and is the last access.
        if unsafe { head.as_ref() }.latch.settle(Settled::Returned) {
            shared.seats[home].unpark();
        }
    }
}

impl Awaited for JoinHead {
    fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    fn is_over(&self) -> bool {
        self.latch.settled().is_some()
    }

    fn runner(&self) -> Runner {
        Runner::from_mark(&self.runner)
    }

    fn announce_sleep(&self) -> bool {
        self.latch.announce_sleep()
    }

    fn announce_awake(&self) {
        self.latch.announce_awake();
    }

    fn is_late(&self, owner: &Worker<'_>) {
        if let Some(begun) = self.begun {
            owner.seat.join_order.learn(begun.other());
        }
    }
}

/// The closure of a join that others may take, on the stack of the one that its owner began with.
#[repr(C)]
struct JoinUnit<B, R> {
    head: JoinHead,
    closure: UnsafeCell<ManuallyDrop<B>>,
    result: UnsafeCell<Option<std::thread::Result<R>>>,
}

impl<B, R> JoinUnit<B, R>
where
    B: FnOnce(&Worker<'_>, Migrated) -> R,
{
    fn new(worker: &Worker<'_>, closure: B, begun: Option<Half>) -> Self {
        let lineage = Lineage::new(worker);
        Self {
            head: JoinHead {
                header: Header::new(Self::run_stolen, lineage.parent(), Kind::Join),
                lineage,
                latch: Latch::new(),
                runner: AtomicU32::new(0),
                begun,
            },
            closure: UnsafeCell::new(ManuallyDrop::new(closure)),
            result: UnsafeCell::new(None),
        }
    }

    /// What a thief does with it.
    ///
    /// # Safety
    /// `header` begins a `JoinUnit<B, R>` that the caller has stolen and nobody has run.
    unsafe fn run_stolen(header: NonNull<Header>, worker: &Worker<'_>) {
        // SAFETY: by the contract; the owner keeps it alive until it is settled below. Shared
        // access is enough, the closure and the result are in cells.
        let unit = unsafe { header.cast::<Self>().as_ref() };
        unit.head
            .runner
            .store(worker.index as u32 + 1, Ordering::Relaxed);
        // SAFETY: the thief has the closure to itself and takes it once.
        let closure = unsafe { unit.take() };
        let result = worker.within(&raw const unit.head.lineage, || {
            catch_unwind(AssertUnwindSafe(|| closure(worker, true)))
        });
        // SAFETY: the owner does not look at the result before the unit is settled.
        unsafe { *unit.result.get() = Some(result) };
        let home = unit.head.lineage.home();
        if unit.head.latch.settle(Settled::Done) {
            worker.shared.seats[home].unpark();
        }
    }

    /// # Safety
    /// The caller has the closure to itself, and this is the first and only call.
    unsafe fn take(&self) -> B {
        // SAFETY: exclusive, by the contract.
        let closure = unsafe { &mut *self.closure.get() };
        // SAFETY: first and only take, by the contract.
        unsafe { ManuallyDrop::take(closure) }
    }
}

/// Calls `a`, here, and `b`, potentially in parallel. Both are called, also when one panics.
#[inline(always)]
pub(crate) fn join_on<A, B, RA, RB>(worker: &Worker<'_>, a: A, b: B) -> (RA, RB)
where
    A: FnOnce(&Worker<'_>) -> RA,
    B: FnOnce(&Worker<'_>, Migrated) -> RB + Send,
    RB: Send,
{
    if worker.is_quiet() {
        return call_both(worker, a, b);
    }
    fork::<true, _, _, _, _>(worker, Both { a, b })
}

/// As [`join_on`], for the halves of our own loops and sorts: when the first panics, the second is not
/// called unless a thief has begun with it.
#[inline]
pub(crate) fn join_halves<A, B, RA, RB>(worker: &Worker<'_>, a: A, b: B) -> (RA, RB)
where
    A: FnOnce(&Worker<'_>) -> RA,
    B: FnOnce(&Worker<'_>) -> RB + Send,
    RB: Send,
{
    if worker.is_quiet() {
        let first = Held::new(a(worker));
        let second = b(worker);
        return (first.release(), second);
    }
    fork_halves(worker, Both { a, b })
}

/// As [`join_on`], beginning with the half that has been the larger.
#[inline]
pub(crate) fn join_unordered_on<A, B, RA, RB>(worker: &Worker<'_>, a: A, b: B) -> (RA, RB)
where
    A: FnOnce(&Worker<'_>) -> RA + Send,
    B: FnOnce(&Worker<'_>) -> RB + Send,
    RA: Send,
    RB: Send,
{
    if worker.is_quiet() {
        return call_both(worker, a, |worker, _| b(worker));
    }
    fork_smaller(worker, Both { a, b })
}

/// Was a closure of a join taken by a thief?
pub(crate) type Migrated = bool;

/// A join that is two plain calls.
#[inline(always)]
fn call_both<RA, RB>(
    worker: &Worker<'_>,
    a: impl FnOnce(&Worker<'_>) -> RA,
    b: impl FnOnce(&Worker<'_>, Migrated) -> RB,
) -> (RA, RB) {
    match catch_unwind(AssertUnwindSafe(|| a(worker))) {
        Ok(first) => {
            let first = Held::new(first);
            let second = b(worker, false);
            (first.release(), second)
        }
        Err(panic) => call_after_panic(panic, || b(worker, false)),
    }
}

#[cold]
#[inline(never)]
fn call_after_panic<R>(panic: Box<dyn Any + Send>, second: impl FnOnce() -> R) -> ! {
    discard(catch_unwind(AssertUnwindSafe(second)));
    resume_unwind(panic)
}

/// The two closures of a join, on their way to a function that is rarely called. Moved into this they
/// are put in memory where that function is called; passed as they are, they would be put there
/// whenever they are made, also for a join that is two plain calls.
pub(crate) struct Both<A, B> {
    pub(crate) a: A,
    pub(crate) b: B,
}

/// A join whose smaller half, as far as is known, can be stolen.
#[cold]
#[inline(never)]
fn fork_smaller<A, B, RA, RB>(worker: &Worker<'_>, Both { a, b }: Both<A, B>) -> (RA, RB)
where
    A: FnOnce(&Worker<'_>) -> RA + Send,
    B: FnOnce(&Worker<'_>) -> RB + Send,
    RA: Send,
    RB: Send,
{
    let order = &worker.seat.join_order;
    if worker.is_full() || order.larger() == Half::First {
        let b = |worker: &Worker<'_>, _| b(worker);
        return fork_learning::<true, _, _, _, _>(worker, Both { a, b }, Some(Half::First));
    }
    // Caught, because the panic of the first half goes before that of the second.
    let b = |worker: &Worker<'_>| catch_unwind(AssertUnwindSafe(|| b(worker)));
    let a = |worker: &Worker<'_>, _| a(worker);
    let both = Both { a: b, b: a };
    let (second, first) = fork_learning::<true, _, _, _, _>(worker, both, Some(Half::Second));
    match second {
        Ok(second) => (first, second),
        Err(panic) => {
            discard(first);
            resume_unwind(panic)
        }
    }
}

/// A join of a loop's or a sort's halves whose second one can be stolen.
pub(crate) fn fork_halves<A, B, RA, RB>(worker: &Worker<'_>, Both { a, b }: Both<A, B>) -> (RA, RB)
where
    A: FnOnce(&Worker<'_>) -> RA,
    B: FnOnce(&Worker<'_>) -> RB + Send,
    RB: Send,
{
    let b = |worker: &Worker<'_>, _| b(worker);
    fork::<false, _, _, _, _>(worker, Both { a, b })
}

/// A join whose second closure can be stolen. `ALWAYS`: it is called also when the first one panics.
#[cold]
#[inline(never)]
fn fork<const ALWAYS: bool, A, B, RA, RB>(worker: &Worker<'_>, both: Both<A, B>) -> (RA, RB)
where
    A: FnOnce(&Worker<'_>) -> RA,
    B: FnOnce(&Worker<'_>, Migrated) -> RB + Send,
    RB: Send,
{
    fork_learning::<ALWAYS, _, _, _, _>(worker, both, None)
}

/// Begins with `a`; `b` can be stolen. `begun` says which half of the join as it was written `a` is, if
/// that matters to later joins.
#[inline]
fn fork_learning<const ALWAYS: bool, A, B, RA, RB>(
    worker: &Worker<'_>,
    Both { a, b }: Both<A, B>,
    begun: Option<Half>,
) -> (RA, RB)
where
    A: FnOnce(&Worker<'_>) -> RA,
    B: FnOnce(&Worker<'_>, Migrated) -> RB + Send,
    RB: Send,
{
    if worker.is_full() {
        return call_both(worker, a, b);
    }
    let mark = worker.deque.mark();
    let unit = JoinUnit::new(worker, b, begun);
    // The pointer is made from the whole unit, so it may be cast back to the whole.
    let header = NonNull::from(&unit).cast::<Header>();
    // SAFETY: the unit is run once: by a thief, or below after it was taken back. Until one of the two
    // has happened nothing below unwinds, so this frame stays. `B` and `RB` are `Send`.
    worker.fork(unsafe { UnitRef::new(header) });
    let forked = Forked {
        worker,
        unit: &unit,
        mark,
    };
    match (catch_unwind(AssertUnwindSafe(|| a(worker))), ALWAYS) {
        (Ok(first), _) => match forked.finish() {
            Ok(second) => (first, second),
            Err(panic) => {
                discard(first);
                resume_unwind(panic)
            }
        },
        (Err(panic), true) => {
            discard(forked.finish());
            resume_unwind(panic)
        }
        (Err(panic), false) => {
            forked.abandon();
            resume_unwind(panic)
        }
    }
}

/// A unit in the ring or with a thief. It has to be finished or abandoned before its frame ends.
struct Forked<'f, B, R>
where
    B: FnOnce(&Worker<'_>, Migrated) -> R,
{
    worker: &'f Worker<'f>,
    unit: &'f JoinUnit<B, R>,
    /// What the owner's deque held when the join began.
    mark: usize,
}

impl<B, R> Forked<'_, B, R>
where
    B: FnOnce(&Worker<'_>, Migrated) -> R,
{
    /// The result of the unit's closure, which is called here if no thief has called it.
    #[inline]
    fn finish(self) -> std::thread::Result<R> {
        if !self.regain() {
            return self.stolen_result();
        }
        self.worker.counters().run.add(1);
        // SAFETY: `regain` says that it is ours and has not run.
        let closure = unsafe { self.unit.take() };
        catch_unwind(AssertUnwindSafe(|| closure(self.worker, false)))
    }

    /// Drops the closure uncalled, or waits for it if it runs.
    #[cold]
    fn abandon(self) {
        if self.regain() {
            self.worker.counters().run.add(1);
            // SAFETY: `regain` says that it is ours and has not run.
            discard(unsafe { self.unit.take() });
        } else {
            discard(self.stolen_result());
        }
    }

    /// Waits until the unit is done or ours; `true` if it is ours and has not run.
    #[inline]
    fn regain(&self) -> bool {
        self.worker.unfork() || self.regain_stolen()
    }

    #[cold]
    #[inline(never)]
    fn regain_stolen(&self) -> bool {
        let head = &self.unit.head;
        if head.latch.settled() == Some(Settled::Done)
            && let Some(begun) = head.begun
        {
            self.worker.seat.join_order.learn(begun);
        }
        without_unwinding(|| self.worker.wait_for_since(head, self.mark));
        head.latch.settled() == Some(Settled::Returned)
    }

    fn stolen_result(&self) -> std::thread::Result<R> {
        // SAFETY: the unit is done, so the thief is through with it.
        let result = unsafe { &mut *self.unit.result.get() };
        result.take().expect("a unit that is done has a result")
    }
}

//! `spawn`: a unit whose result somebody may want.
//!
//! The unit is shared by the queue it waits in and by its [`Handle`]. Whoever comes first takes the
//! closure out: a worker that found it in a queue, or the one who waits for it, if that is a worker of
//! the same pool. The other finds nothing to do. So waiting for a unit that has not started never
//! depends on a free worker.
//!
//! Closure, result and all that is needed to wait are in one block ([`crate::block`]); it is given back
//! by the last of the two who lets go.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};
use std::thread;

use crate::block;
use crate::pool::Shared;
use crate::slot::{Slot, Waiter};
use crate::sync::whole::{current, park};
use crate::sync::{AtomicU32, Ordering};
use crate::unit::{Header, Kind, Lineage, UnitRef};
use crate::unwind::discard;
use crate::wait::{Awaited, Runner};
use crate::worker::{Worker, with_current};

/// The result of a unit that was spawned with [`spawn`](crate::spawn).
///
/// Wait for it, poll it as a future, cancel it, or drop the handle and let it run unobserved.
#[must_use = "dropping a handle lets the unit run unobserved; `spawn_detached` says so"]
pub struct Handle<T> {
    unit: Share<dyn Outcome<T>>,
}

impl<T> std::fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Handle<T> {
    /// Makes the unit and its handle; the caller puts the unit in a queue.
    #[inline]
    pub(crate) fn new<F>(shared: &Shared, body: F) -> (Self, UnitRef)
    where
        F: FnOnce() -> T + Send + 'static,
    {
        let (ours, queued) = HandleUnit::share(shared, 0, Slot::waiting(body));
        let queued = queued.into_raw().cast();
        // SAFETY: the queue's share keeps the unit alive until `run_queued`; `F` and `T` are `Send`;
        // there is no origin; the pointer covers the whole unit.
        let queued = unsafe { UnitRef::new(queued) };
        (Self::of(ours), queued)
    }

    fn of<F>(unit: Share<HandleUnit<F, T>>) -> Self
    where
        F: FnOnce() -> T + Send + 'static,
    {
        let unit: NonNull<dyn Outcome<T>> = unit.into_raw();
        Self { unit: Share(unit) }
    }
}

/// The other side of a handle whose result comes from somewhere else than a closure.
pub(crate) struct Promise<T>(Share<HandleUnit<fn() -> T, T>>);

impl<T: Send + 'static> Promise<T> {
    /// Makes a promise and the handle that it fulfils.
    pub(crate) fn new(shared: &Shared) -> (Self, Handle<T>) {
        let (ours, theirs) = HandleUnit::share(shared, u32::MAX, Slot::running());
        (Self(ours), Handle::of(theirs))
    }

    pub(crate) fn fulfil(&self, result: thread::Result<T>) {
        self.0.get().slot.finish(result);
    }
}

impl<T> Handle<T> {
    fn outcome(&self) -> &dyn Outcome<T> {
        self.unit.get()
    }

    /// Has it run to its end?
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.outcome().is_over()
    }

    /// Waits for the result.
    ///
    /// On a worker of the same pool a unit that has not started is run right here; for one that
    /// runs elsewhere the worker helps with the units made inside it, and with nothing else.
    ///
    /// # Panics
    /// If the unit panicked, with the same payload.
    pub fn wait(self) -> T {
        let unit = self.outcome();
        with_current(|worker| match worker {
            Some(worker) if std::ptr::eq(worker.shared, unit.head().pool) => {
                if !unit.run(worker) {
                    worker.wait_for(&HandleWait(unit));
                }
            }
            _ => {
                while unit.add_waiter(Waiter::Thread(current())) {
                    park();
                }
            }
        });
        self.result()
    }

    /// Prevents the unit from running. `false`: too late, it has started.
    pub fn cancel(self) -> bool {
        self.outcome().cancel()
    }

    fn result(&self) -> T {
        // SAFETY: this is the handle, there is one, and its owner is here.
        match unsafe { self.outcome().take() } {
            Ok(result) => result,
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl<T> Future for Handle<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let waiter = Waiter::Task(context.waker().clone());
        if self.outcome().add_waiter(waiter) {
            return Poll::Pending;
        }
        Poll::Ready(self.result())
    }
}

/// One of the two shares of a unit.
struct Share<U: Headed + ?Sized>(NonNull<U>);

// SAFETY: a share gives access to the unit, and the last one disposes of it.
unsafe impl<U: Headed + Send + Sync + ?Sized> Send for Share<U> {}
// SAFETY: as above.
unsafe impl<U: Headed + Send + Sync + ?Sized> Sync for Share<U> {}

impl<U: Headed + ?Sized> Share<U> {
    fn get(&self) -> &U {
        // SAFETY: the unit is there as long as there is a share.
        unsafe { self.0.as_ref() }
    }

    fn into_raw(self) -> NonNull<U> {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl<U: Headed + ?Sized> Drop for Share<U> {
    #[inline]
    fn drop(&mut self) {
        let head = self.get().head();
        let dispose = head.dispose;
        // Release: what we did with the unit comes before its end. Acquire: for whoever ends it. Nobody
        // else can come while there is one share, so the second half needs no locked instruction.
        let is_last = head.shares.load(Ordering::Acquire) == 1
            || head.shares.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last {
            // SAFETY: it was the last share, and `dispose` was stored with this type.
            unsafe { dispose(self.0.cast()) };
        }
    }
}

/// A unit with a handle: the types of its closure and result do not matter.
trait Headed {
    fn head(&self) -> &HandleHead;
}

/// A unit with a handle, as the handle sees it: the closure's type does not matter.
trait Outcome<T>: Headed + Send + Sync {
    fn is_over(&self) -> bool;
    /// Asks to be told. `false`: it is over.
    fn add_waiter(&self, waiter: Waiter) -> bool;
    fn cancel(&self) -> bool;
    /// The result of a unit that is over; to be called once.
    ///
    /// # Safety
    /// The caller has the handle to itself.
    unsafe fn take(&self) -> thread::Result<T>;
    /// Runs it unless somebody else has begun. `true`: it did, and it is over.
    fn run(&self, worker: &Worker<'_>) -> bool;
}

/// The part of a unit with a handle that does not depend on its types.
struct HandleHead {
    /// Which pool it was spawned in. Only compared: a worker of that pool may run it while it waits. The pool may be
    /// gone when the unit is over, and another one in its place, where there is nothing left to run.
    pool: *const Shared,
    /// What is made inside the unit descends from it.
    lineage: Lineage,
    /// One more than the seat of the worker that runs it.
    runner: AtomicU32,
    /// The queue's, and the handle's.
    shares: AtomicU32,
    dispose: unsafe fn(NonNull<()>),
}

#[repr(C)]
struct HandleUnit<F, T> {
    header: Header,
    head: HandleHead,
    slot: Slot<F, T>,
}

// SAFETY: the header holds a function and a null pointer, the head a pointer that is only compared; the rest is
// atomic, or a slot that says itself what it needs.
unsafe impl<F: Send, T: Send> Sync for HandleUnit<F, T> {}
// SAFETY: as above.
unsafe impl<F: Send, T: Send> Send for HandleUnit<F, T> {}

impl<F, T> HandleUnit<F, T>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    /// Makes the unit and its two shares.
    #[inline]
    fn share(pool: *const Shared, runner: u32, slot: Slot<F, T>) -> (Share<Self>, Share<Self>) {
        let unit = block::put(Self {
            header: Header::new(Self::run_queued, std::ptr::null(), Kind::Heap),
            head: HandleHead {
                pool,
                lineage: Lineage::root(),
                runner: AtomicU32::new(runner),
                shares: AtomicU32::new(2),
                dispose: Self::dispose,
            },
            slot,
        });
        (Share(unit), Share(unit))
    }

    /// # Safety
    /// `unit` is a `HandleUnit<F, T>` made by `share` of which no share is left.
    unsafe fn dispose(unit: NonNull<()>) {
        // SAFETY: by the contract; `share` put it there.
        let unit = unsafe { block::take(unit.cast::<Self>()) };
        // Whoever comes last, the worker or the one that drops the handle, does not want the result: its
        // destructor may panic, and which of the two that would hit is a matter of luck.
        discard(unit);
    }

    /// # Safety
    /// `header` begins a `HandleUnit<F, T>` and stands for one share of it, which this consumes.
    unsafe fn run_queued(header: NonNull<Header>, worker: &Worker<'_>) {
        let unit = Share(header.cast::<Self>());
        if !unit.get().run(worker) && unit.get().slot.is_cancelled() {
            // By us, and not by whoever cancelled it: until here it waited, and kept the pool open.
            worker.counters().detached_done.add(1);
        }
    }
}

impl<F, T> Headed for HandleUnit<F, T> {
    #[inline]
    fn head(&self) -> &HandleHead {
        &self.head
    }
}

impl<F, T> Outcome<T> for HandleUnit<F, T>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    fn is_over(&self) -> bool {
        self.slot.is_over()
    }

    fn add_waiter(&self, waiter: Waiter) -> bool {
        self.slot.add_waiter(waiter)
    }

    fn cancel(&self) -> bool {
        self.slot.cancel()
    }

    unsafe fn take(&self) -> thread::Result<T> {
        // SAFETY: by the contract.
        unsafe { self.slot.take() }
    }

    #[inline]
    fn run(&self, worker: &Worker<'_>) -> bool {
        let Some(body) = self.slot.begin() else {
            return false;
        };
        self.head
            .runner
            .store(worker.index as u32 + 1, Ordering::Relaxed);
        let result = worker.within(&raw const self.head.lineage, || {
            catch_unwind(AssertUnwindSafe(body))
        });
        worker.counters().detached_done.add(1);
        self.slot.finish(result);
        true
    }
}

/// A worker's wait for a unit with a handle.
struct HandleWait<'a, T>(&'a dyn Outcome<T>);

impl<T> Awaited for HandleWait<'_, T> {
    fn lineage(&self) -> &Lineage {
        &self.0.head().lineage
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }

    fn runner(&self) -> Runner {
        Runner::from_mark(&self.0.head().runner)
    }

    fn announce_sleep(&self) -> bool {
        self.0.add_waiter(Waiter::Thread(current()))
    }

    fn announce_awake(&self) {}

    fn needs_others(&self) -> bool {
        true
    }
}

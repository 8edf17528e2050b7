//! Work that a thread from elsewhere gives to a pool and waits for, for [`crate::raw`]: the pool's own
//! callers take a seat instead.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::latch::{Latch, Settled};
use crate::pool::Shared;
use crate::priority::Priority;
use crate::sync::whole::{Thread, current, park};
use crate::sync::{Ordering, spin, yield_now};
use crate::unit::{Header, Kind, UnitRef};
use crate::unwind::without_unwinding;
use crate::worker::{Worker, with_current};

/// How often a thread of no pool looks whether its errand is over before it sleeps. Short ones are over before it has
/// been put to bed, and waking it takes longer than they do.
const LOOKS: u32 = if cfg!(shuttle) { 2 } else { 64 };

/// A thread that waits for another pool: a worker, which goes on with whatever its own pool has to do,
/// or a thread of no pool, which sleeps.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    Worker { shared: Arc<Shared>, seat: usize },
    Thread(Thread),
}

impl Caller {
    pub(crate) fn current() -> Self {
        with_current(|worker| match worker {
            Some(worker) => Self::Worker {
                shared: worker.shared.strong(),
                seat: worker.index,
            },
            None => Self::Thread(current()),
        })
    }

    /// Returns when `is_over`. To be called on the caller's own thread; whoever makes it true then
    /// calls [`wake`](Self::wake).
    pub(crate) fn wait(&self, is_over: &dyn Fn() -> bool) {
        match self {
            Self::Thread(_) => {
                while !is_over() {
                    park();
                }
            }
            Self::Worker { .. } => with_current(|worker| {
                let worker = worker.expect("a worker stays one while it waits");
                worker.serve_until(is_over);
            }),
        }
    }

    /// Lets it look whether its wait is over. No wake-up is lost: a worker lists itself as asleep and
    /// then looks, we come after the change, and the list has a lock.
    pub(crate) fn wake(&self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Worker { shared, seat } => {
                if shared.sleep.wake(*seat) {
                    shared.seats[*seat].unpark();
                }
            }
        }
    }
}

/// Runs `body` on a thread of this pool, in which the calling one has no seat, and waits for it.
pub(crate) fn run_on<R, F>(shared: &Shared, body: F) -> R
where
    F: FnOnce(&Worker<'_>) -> R + Send,
    R: Send,
{
    let errand = Errand {
        header: Header::new(Errand::<F, R>::run, std::ptr::null(), Kind::Heap),
        closure: UnsafeCell::new(ManuallyDrop::new(body)),
        result: UnsafeCell::new(None),
        latch: Latch::new(),
        caller: Caller::current(),
    };
    // The pointer is made from the whole errand, so it may be cast back to the whole.
    let header = NonNull::from(&errand).cast::<Header>();
    // SAFETY: it is taken out of the queue and run once, and this frame stays until it has run; closure
    // and result are `Send`; there is no origin.
    let unit = unsafe { UnitRef::new(header) };
    shared.scoped_outside.fetch_add(1, Ordering::Relaxed);
    shared.inject(Priority::Normal, unit, || ());
    without_unwinding(|| errand.wait());
    let result = errand.result.into_inner();
    match result.expect("an errand that is over has a result") {
        Ok(result) => result,
        Err(panic) => resume_unwind(panic),
    }
}

/// A closure on the stack of a thread that waits for it.
#[repr(C)]
struct Errand<F, R> {
    header: Header,
    /// Whoever runs it takes it.
    closure: UnsafeCell<ManuallyDrop<F>>,
    /// Written by whoever runs it, read by the caller when it is over.
    result: UnsafeCell<Option<std::thread::Result<R>>>,
    latch: Latch,
    caller: Caller,
}

impl<F, R> Errand<F, R>
where
    F: FnOnce(&Worker<'_>) -> R,
{
    /// Returns when it is over.
    fn wait(&self) {
        let is_over = || self.latch.settled().is_some();
        if matches!(self.caller, Caller::Thread(_)) {
            for look in 0..LOOKS {
                if is_over() {
                    return;
                }
                // Not only spinning: whoever runs it may have to get this processor.
                if look % 8 == 7 {
                    yield_now();
                } else {
                    spin();
                }
            }
        }
        if self.latch.announce_sleep() {
            self.caller.wait(&is_over);
        }
    }

    /// # Safety
    /// `header` begins an `Errand<F, R>` that nobody has run and whose caller waits.
    unsafe fn run(header: NonNull<Header>, worker: &Worker<'_>) {
        // SAFETY: by the contract; the caller keeps it alive until it is over.
        let errand = unsafe { header.cast::<Self>().as_ref() };
        // SAFETY: we have the closure to ourselves.
        let closure = unsafe { &mut *errand.closure.get() };
        // SAFETY: it is taken once.
        let closure = unsafe { ManuallyDrop::take(closure) };
        let result = worker.within(std::ptr::null(), || {
            catch_unwind(AssertUnwindSafe(|| closure(worker)))
        });
        // SAFETY: the caller does not look at the result before it is over.
        unsafe { *errand.result.get() = Some(result) };
        // Looked up before the caller may return from its frame.
        let caller = errand.caller.clone();
        // The last access: the caller sees the result and may return from its frame.
        if errand.latch.settle(Settled::Done) {
            caller.wake();
        }
    }
}

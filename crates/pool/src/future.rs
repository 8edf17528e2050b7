//! Futures on the pool.
//!
//! A future is polled by workers, one unit per poll. Between polls it is not a unit and occupies
//! nobody; its waker makes it one again. The `scheduled` flag sees to it that it is in at most one
//! queue: a wake-up during a poll leads to one more poll, however many there were.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::blocking::blocking;
use crate::handle::{Handle, Promise};
use crate::pool::{Pool, Shared};
use crate::priority::Priority;
use crate::spawn::detached_unit;
use crate::sync::whole::{Mutex, Thread, current, park};
use crate::sync::{AtomicBool, Ordering};
use crate::unit::UnitRef;
use crate::unwind::discard;

struct FutureTask<F: Future> {
    shared: Arc<Shared>,
    /// Gone once it is finished.
    future: Mutex<Option<Pin<Box<F>>>>,
    promise: Promise<F::Output>,
    scheduled: AtomicBool,
}

impl<F> FutureTask<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn schedule(self: Arc<Self>) {
        if self.scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        shared.accept(detached_unit(move || self.poll()), Priority::Normal);
    }

    fn poll(self: Arc<Self>) {
        let mut slot = self.future.lock().unwrap_or_else(PoisonError::into_inner);
        // From here on a wake-up makes a new unit, which waits at the lock above.
        self.scheduled.store(false, Ordering::Release);
        let Some(future) = slot.as_mut() else { return };
        let waker = Waker::from(Arc::clone(&self));
        let mut context = Context::from_waker(&waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        let result = match polled {
            Ok(Poll::Pending) => return,
            Ok(Poll::Ready(result)) => Ok(result),
            Err(panic) => Err(panic),
        };
        let future = slot.take();
        drop(slot);
        // A destructor that panics must not hide the result.
        discard(future);
        self.promise.fulfil(result);
    }
}

impl<F> Wake for FutureTask<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn wake(self: Arc<Self>) {
        self.schedule();
    }
}

impl Shared {
    /// A future as a unit that polls it for the first time.
    pub(crate) fn prepare_future<F>(self: &Arc<Self>, future: F) -> (Handle<F::Output>, UnitRef)
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (promise, handle) = Promise::new(self);
        let task = Arc::new(FutureTask {
            shared: Arc::clone(self),
            future: Mutex::new(Some(Box::pin(future))),
            promise,
            scheduled: AtomicBool::new(true),
        });
        (handle, detached_unit(move || task.poll()))
    }
}

impl Pool {
    /// Runs a future on the pool; its handle can be awaited or waited for.
    ///
    /// [`wait_idle`](Self::wait_idle) does not wait for a future that waits for something else.
    /// [`Handle::cancel`] has no effect on it: it has started.
    pub fn spawn_future<F>(&self, future: F) -> Handle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (handle, unit) = self.shared.prepare_future(future);
        self.shared.accept(unit, Priority::Normal);
        handle
    }

    /// Runs a future on this thread, inside the pool, and returns its result. While it waits,
    /// another thread takes this one's place.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.enter(|_| {
            let mut future = pin!(future);
            let signal = Arc::new(Signal {
                thread: current(),
                given: AtomicBool::new(false),
            });
            let waker = Waker::from(Arc::clone(&signal));
            let mut context = Context::from_waker(&waker);
            loop {
                if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
                    return result;
                }
                blocking(|| {
                    while !signal.given.swap(false, Ordering::Acquire) {
                        park();
                    }
                });
            }
        })
    }
}

/// Wakes a thread that waits in `block_on`.
struct Signal {
    thread: Thread,
    given: AtomicBool,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.given.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

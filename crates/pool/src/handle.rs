//! `spawn`: a unit whose result somebody may want.
//!
//! A task is shared by the queue it waits in and by its [`Handle`]. Whoever comes first
//! takes the closure out: a worker that found it in a queue, or the one who waits for it, if that is
//! a worker of the same pool. The other finds nothing to do. So waiting for a unit that has not
//! started never depends on a free worker.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

use crate::pool::Shared;
use crate::slot::{Slot, Waiter};
use crate::sync::whole::{current, park};
use crate::sync::{AtomicU32, Ordering};
use crate::unit::{Header, Kind, Lineage, UnitRef};
use crate::wait::{Awaited, Runner};
use crate::worker::{Worker, with_current};

/// The result of a unit that was spawned with [`spawn`](crate::spawn).
///
/// Wait for it, poll it as a future, cancel it, or drop the handle and let it run unobserved.
#[must_use = "dropping a handle lets the unit run unobserved; `spawn_detached` says so"]
pub struct Handle<T> {
    task: Arc<dyn Outcome<T>>,
    shared: Arc<Shared>,
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
    pub(crate) fn new<F>(shared: &Arc<Shared>, body: F) -> (Self, UnitRef)
    where
        F: FnOnce() -> T + Send + 'static,
    {
        let task = Arc::new(Task {
            header: Header::new(Task::<F, T>::run_queued, std::ptr::null(), Kind::Heap),
            lineage: Lineage::root(),
            runner: AtomicU32::new(0),
            slot: Slot::waiting(body),
        });
        let handle = Self {
            task: Arc::clone(&task) as _,
            shared: Arc::clone(shared),
        };
        // The queue's reference, which `run_queued` takes back.
        let queued = Arc::into_raw(task).cast_mut().cast::<Header>();
        // SAFETY: `Arc::into_raw` never gives null.
        let queued = unsafe { NonNull::new_unchecked(queued) };
        // SAFETY: the queue's reference keeps the task alive until `run_queued`; `F` and `T` are
        // `Send`; there is no origin; the pointer covers the whole task.
        (handle, unsafe { UnitRef::new(queued) })
    }
}

/// The other side of a handle whose result comes from somewhere else than a closure.
pub(crate) struct Promise<T>(Arc<Task<fn() -> T, T>>);

impl<T: Send + 'static> Promise<T> {
    /// Makes a promise and the handle that it fulfils.
    pub(crate) fn new(shared: &Arc<Shared>) -> (Self, Handle<T>) {
        let task = Arc::new(Task {
            header: Header::new(
                Task::<fn() -> T, T>::run_queued,
                std::ptr::null(),
                Kind::Heap,
            ),
            lineage: Lineage::root(),
            runner: AtomicU32::new(u32::MAX),
            slot: Slot::running(),
        });
        let handle = Handle {
            task: Arc::clone(&task) as _,
            shared: Arc::clone(shared),
        };
        (Self(task), handle)
    }

    pub(crate) fn fulfil(&self, result: thread::Result<T>) {
        self.0.slot.finish(result);
    }
}

impl<T> Handle<T> {
    /// Has it run to its end?
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.task.is_over()
    }

    /// Waits for the result.
    ///
    /// On a worker of the same pool a unit that has not started is run right here; for one that
    /// runs elsewhere the worker helps with the units made inside it, and with nothing else.
    ///
    /// # Panics
    /// If the unit panicked, with the same payload.
    pub fn wait(self) -> T {
        with_current(|worker| match worker {
            Some(worker) if std::ptr::eq(worker.shared, &*self.shared) => {
                Arc::clone(&self.task).run_now(worker);
                worker.wait_for(&TaskWait(&*self.task));
            }
            _ => {
                while self.task.add_waiter(Waiter::Thread(current())) {
                    park();
                }
            }
        });
        self.result()
    }

    /// Prevents the unit from running. `false`: too late, it has started.
    pub fn cancel(self) -> bool {
        let cancelled = self.task.cancel();
        if cancelled {
            with_current(|worker| match worker {
                Some(worker) if std::ptr::eq(worker.shared, &*self.shared) => {
                    worker.counters().detached_done.add(1);
                }
                _ => self.shared.detached.done_outside(&self.shared),
            });
        }
        cancelled
    }

    fn result(&self) -> T {
        match self.task.take() {
            Ok(result) => result,
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl<T> Future for Handle<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if self.task.add_waiter(Waiter::Task(context.waker().clone())) {
            return Poll::Pending;
        }
        Poll::Ready(self.result())
    }
}

/// A task, as its handle sees it: the closure's type does not matter.
trait Outcome<T>: Send + Sync {
    fn is_over(&self) -> bool;
    /// Asks to be told. `false`: it is over.
    fn add_waiter(&self, waiter: Waiter) -> bool;
    fn cancel(&self) -> bool;
    /// The result of a task that is over; to be called once.
    fn take(&self) -> thread::Result<T>;
    /// Runs it unless somebody else has begun.
    fn run_now(self: Arc<Self>, worker: &Worker<'_>);
    fn lineage(&self) -> &Lineage;
    fn runner(&self) -> Runner;
}

#[repr(C)]
struct Task<F, T> {
    header: Header,
    /// What is made inside the task descends from it.
    lineage: Lineage,
    /// One more than the seat of the worker that runs it.
    runner: AtomicU32,
    slot: Slot<F, T>,
}

// SAFETY: the header holds a function and a null pointer; the rest is `Sync` when its content is
// `Send`, being a lock and atomics.
unsafe impl<F: Send, T: Send> Sync for Task<F, T> {}
// SAFETY: as above.
unsafe impl<F: Send, T: Send> Send for Task<F, T> {}

impl<F, T> Task<F, T>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    /// # Safety
    /// `header` begins a `Task<F, T>` and stands for one reference to it, which this consumes.
    unsafe fn run_queued(header: NonNull<Header>, worker: &Worker<'_>) {
        // SAFETY: by the contract.
        let task = unsafe { Arc::from_raw(header.cast::<Self>().as_ptr()) };
        task.run(worker);
    }

    fn run(&self, worker: &Worker<'_>) {
        let Some(body) = self.slot.begin() else {
            return;
        };
        self.runner
            .store(worker.index as u32 + 1, Ordering::Relaxed);
        let result = worker.within(&raw const self.lineage, || {
            catch_unwind(AssertUnwindSafe(body))
        });
        worker.counters().detached_done.add(1);
        self.slot.finish(result);
    }
}

impl<F, T> Outcome<T> for Task<F, T>
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

    fn take(&self) -> thread::Result<T> {
        self.slot.take()
    }

    fn run_now(self: Arc<Self>, worker: &Worker<'_>) {
        self.run(worker);
    }

    fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    fn runner(&self) -> Runner {
        Runner::from_mark(&self.runner)
    }
}

/// A worker's wait for a task.
struct TaskWait<'a, T>(&'a dyn Outcome<T>);

impl<T> Awaited for TaskWait<'_, T> {
    fn lineage(&self) -> &Lineage {
        self.0.lineage()
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }

    fn runner(&self) -> Runner {
        self.0.runner()
    }

    fn announce_sleep(&self) -> bool {
        self.0.add_waiter(Waiter::Thread(current()))
    }

    fn announce_awake(&self) {}

    fn needs_others(&self) -> bool {
        true
    }
}

//! Units on the heap: detached ones, and ones with a handle.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::block;
use crate::handle::Handle;
use crate::pool::{Pool, Shared};
use crate::priority::Priority;
use crate::sleep::News;
use crate::trace::{self, Event};
use crate::unit::{Header, Kind, Lineage, UnitRef};
use crate::worker::{Worker, with_current};

/// A closure in a heap block of its own.
#[repr(C)]
struct HeapUnit<F> {
    header: Header,
    closure: F,
}

impl<F: FnOnce(&Worker<'_>)> HeapUnit<F> {
    /// # Safety
    /// `header` begins a unit made by `heap_unit` that nobody has run.
    unsafe fn run(header: NonNull<Header>, worker: &Worker<'_>) {
        // SAFETY: by the contract, `heap_unit` put it there, and it is ours.
        let unit = unsafe { block::take(header.cast::<Self>()) };
        (unit.closure)(worker);
    }
}

/// Puts a closure on the heap. It must not unwind.
///
/// # Safety
/// Any thread may run the closure; it and `origin` stay valid until it has run.
#[inline]
pub(crate) unsafe fn heap_unit<F>(closure: F, origin: *const Lineage) -> UnitRef
where
    F: FnOnce(&Worker<'_>),
{
    let header = Header::new(HeapUnit::<F>::run, origin, Kind::Heap);
    let unit = block::put(HeapUnit { header, closure });
    // SAFETY: the unit is new, on the heap until it runs, the pointer covers all of it, and the
    // rest is the caller's promise.
    unsafe { UnitRef::new(unit.cast()) }
}

/// A closure that no one waits for. A panic in it is reported to the pool's handler.
#[inline]
pub(crate) fn detached_unit<F: FnOnce() + Send + 'static>(body: F) -> UnitRef {
    if size_of::<F>() == 0 {
        return Bodiless::unit(body);
    }
    let closure = move |worker: &Worker<'_>| run_detached(body, worker);
    // SAFETY: the closure is `Send` and owns what it uses; there is no origin.
    unsafe { heap_unit(closure, std::ptr::null()) }
}

#[inline]
fn run_detached(body: impl FnOnce(), worker: &Worker<'_>) {
    let result = worker.within(std::ptr::null(), || catch_unwind(AssertUnwindSafe(body)));
    if let Err(panic) = result {
        worker.shared.report(panic);
    }
    worker.counters().detached_done.add(1);
}

/// Units of a closure that captures nothing: all of them are one constant, and need no memory.
struct Bodiless<F>(PhantomData<F>);

impl<F: FnOnce() + Send + 'static> Bodiless<F> {
    const HEADER: &'static Header = &Header::new(Self::run, std::ptr::null(), Kind::Heap);

    fn unit(body: F) -> UnitRef {
        std::mem::forget(body);
        // SAFETY: each unit stands for one closure that was forgotten, and `run` brings back one; the
        // closure is `Send`; there is no origin; the header is all there is.
        unsafe { UnitRef::new(NonNull::from(Self::HEADER)) }
    }

    /// # Safety
    /// The caller has a unit made by `unit`.
    unsafe fn run(_: NonNull<Header>, worker: &Worker<'_>) {
        // SAFETY: `F` has no bytes to read, and the one that was forgotten is ours.
        let body = unsafe { NonNull::<F>::dangling().read() };
        run_detached(body, worker);
    }
}

/// Spawns in the current pool, or in the global one.
pub(crate) fn spawn_here<T, F>(body: F) -> Handle<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    with_current(|worker| {
        let shared = worker.map_or_else(|| &*Pool::global().shared, |worker| worker.shared);
        let (handle, unit) = Handle::new(shared, body);
        shared.accept(unit, Priority::Normal);
        handle
    })
}

impl Shared {
    /// Takes in a detached unit, from whatever thread.
    #[inline]
    pub(crate) fn accept(&self, unit: UnitRef, priority: Priority) {
        with_current(|worker| match worker {
            Some(worker) if std::ptr::eq(worker.shared, self) => {
                worker.counters().detached_made.add(1);
                if priority == Priority::Normal {
                    worker.push(unit);
                    return;
                }
                worker.counters().spawned.add(1);
                trace::mark(worker, Event::Spawn);
                self.inject(priority, unit, || ());
            }
            _ => self.inject(priority, unit, || self.detached.count_outside()),
        });
    }
}

impl Shared {
    /// Calls `before` and puts a unit into the injector, under one lock, and wakes somebody for it if that makes
    /// sense.
    #[inline]
    pub(crate) fn inject(&self, priority: Priority, unit: UnitRef, before: impl FnOnce()) {
        // Under the lock, which whoever goes to sleep takes after it has said so: it sees the unit, or we see it.
        let needs_one = || self.sleep.needs_a_thread();
        let unit = unit.into_raw();
        if self
            .injector
            .push_between(priority, unit, before, needs_one)
        {
            self.notify_after_fence(News::Spawned);
        }
    }

    /// Puts a detached unit into a worker's mailbox and wakes that worker.
    fn post(&self, unit: UnitRef, worker: usize) {
        self.count_detached();
        self.seats[worker].mailbox.post(unit.into_raw());
        if self.sleep.wake(worker) {
            self.seats[worker].unpark();
        } else {
            self.notify();
        }
    }

    /// Counts a new detached unit where the calling thread counts.
    pub(crate) fn count_detached(&self) {
        with_current(|worker| match worker {
            Some(worker) if std::ptr::eq(worker.shared, self) => {
                worker.counters().detached_made.add(1);
                worker.counters().spawned.add(1);
                trace::mark(worker, Event::Spawn);
            }
            _ => self.injector.locked(|| self.detached.count_outside()),
        });
    }
}

impl Pool {
    /// Runs `body` some time on some worker. Nobody waits for it, except
    /// [`wait_idle`](Self::wait_idle) and dropping the pool.
    pub fn spawn_detached(&self, body: impl FnOnce() + Send + 'static) {
        self.shared.accept(detached_unit(body), Priority::Normal);
    }

    /// Runs `body` some time on some worker and gives its result to the handle.
    pub fn spawn<T, F>(&self, body: F) -> Handle<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.spawn_at(Priority::Normal, body)
    }

    /// As [`spawn`](Self::spawn), with a priority.
    pub fn spawn_at<T, F>(&self, priority: Priority, body: F) -> Handle<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (handle, unit) = Handle::new(&self.shared, body);
        self.shared.accept(unit, priority);
        handle
    }

    /// As [`spawn`](Self::spawn), on the worker with this number if it has time: where its data
    /// is warm. Others take over when they are idle and it is busy.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn spawn_near<T, F>(&self, worker: usize, body: F) -> Handle<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        assert!(
            worker < self.workers(),
            "worker {worker} of {}",
            self.workers()
        );
        let (handle, unit) = Handle::new(&self.shared, body);
        self.shared.post(unit, worker);
        handle
    }

    /// As [`spawn`](Self::spawn), near the data that `key` names: units with equal keys run on one
    /// worker, whose cache has the data, as long as that one has time.
    ///
    /// ```
    /// # let pool = loxley_pool::Pool::new()?;
    /// let handles = [1, 2, 1].map(|shard| pool.spawn_near_data(&shard, move || shard * 10));
    /// assert_eq!(handles.map(|handle| handle.wait()), [10, 20, 10]);
    /// # Ok::<(), loxley_pool::BuildError>(())
    /// ```
    pub fn spawn_near_data<K, T, F>(&self, key: &K, body: F) -> Handle<T>
    where
        K: Hash + ?Sized,
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        // The same in every run; the modulo is fair enough for the few workers there are.
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let worker = hasher.finish() % self.workers() as u64;
        self.spawn_near(worker as usize, body)
    }

    /// Returns when there was a moment with no detached unit left, running or waiting.
    ///
    /// # Panics
    /// On a worker of this pool: it may be running such a unit, and would wait for itself.
    pub fn wait_idle(&self) {
        let is_inside = with_current(|worker| {
            worker.is_some_and(|worker| {
                std::ptr::eq(worker.shared, &*self.shared) && !self.shared.is_guest(worker.index)
            })
        });
        assert!(
            !is_inside,
            "a worker cannot wait for its own pool to be idle"
        );
        self.shared.detached.wait(&self.shared);
    }
}

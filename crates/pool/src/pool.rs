//! The pool itself: seats, threads, and how to get in.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use crate::builder::{BuildError, PoolBuilder, Settings};
use crate::detached::Detached;
use crate::injector::Injector;
use crate::join::{join_on, join_unordered_on};
use crate::measure::Meter;
use crate::numbers::Numbers;
use crate::seat::Seat;
use crate::sleep::{News, Sleep};
use crate::sync::whole::{Builder, Condvar, JoinHandle, Mutex, MutexGuard, current};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use crate::trace::{self, Trace};
use crate::unit::Header;
use crate::unwind::discard;
use crate::worker::{Worker, with_current};

/// What all threads of a pool share.
pub(crate) struct Shared {
    me: Weak<Self>,
    /// Regular workers first, then guests.
    pub(crate) seats: Box<[Seat]>,
    pub(crate) injector: Injector<Header>,
    pub(crate) sleep: Sleep,
    pub(crate) detached: Detached,
    /// Out here because every fork asks for it.
    pub(crate) workers: usize,
    pub(crate) settings: Settings,
    /// The guest seats nobody sits in, the lowest last.
    free_seats: Mutex<Vec<usize>>,
    seat_freed: Condvar,
    /// Seats for threads that stand in for blocked ones, and those threads.
    spares: Mutex<Spares>,
    /// How many more of those threads may be started. A hint: changed under the lock, read without.
    spares_left: AtomicUsize,
    /// Seats from here on were never taken; nobody needs to look at them.
    used: AtomicUsize,
    closing: AtomicBool,
    /// Threads that sit in a seat but cannot go on before somebody else does something.
    absent: AtomicUsize,
    /// Units that somebody waits for, made by threads that are not in the pool.
    pub(crate) scoped_outside: AtomicU64,
    /// For a pool whose threads are somebody else's: what keeps it open, and how many of them ended.
    pub(crate) keepers: AtomicUsize,
    pub(crate) ended: Mutex<usize>,
    pub(crate) thread_ended: Condvar,
    /// For a pool whose users number its threads, and which may have stand-ins.
    pub(crate) numbers: Option<Numbers>,
    pub(crate) panics: AtomicU64,
    pub(crate) trace: Trace,
    pub(crate) meter: Meter,
}

/// Threads that stand in for blocked ones.
#[derive(Debug)]
struct Spares {
    free_seats: Vec<usize>,
    threads: Vec<JoinHandle<()>>,
}

/// What to do with the panic of a unit that nobody waits for.
pub(crate) type PanicHandler = Arc<dyn Fn(Box<dyn Any + Send>) + Send + Sync>;

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// A pool without threads; `guests` from outside may be inside at once.
    pub(crate) fn new(settings: Settings, guests: usize, numbers: Option<Numbers>) -> Arc<Self> {
        let workers = settings.workers;
        let spares = workers + guests;
        let seats = settings.topology.len();
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            seats: (0..seats).map(|_| Seat::new()).collect(),
            injector: Injector::new(),
            sleep: Sleep::new(workers, seats),
            detached: Detached::default(),
            workers,
            settings,
            free_seats: Mutex::new((workers..spares).rev().collect()),
            seat_freed: Condvar::new(),
            spares: Mutex::new(Spares {
                free_seats: (spares..seats).rev().collect(),
                threads: Vec::new(),
            }),
            spares_left: AtomicUsize::new(seats - spares),
            used: AtomicUsize::new(workers),
            closing: AtomicBool::new(false),
            absent: AtomicUsize::new(0),
            scoped_outside: AtomicU64::new(0),
            keepers: AtomicUsize::new(1),
            ended: Mutex::new(0),
            thread_ended: Condvar::new(),
            numbers,
            panics: AtomicU64::new(0),
            trace: Trace::default(),
            meter: Meter::new(seats),
        })
    }

    /// A thread to be started for a seat.
    pub(crate) fn thread(&self, index: usize) -> Builder {
        let thread = Builder::new().name(format!("{}-{index}", self.settings.name));
        match self.settings.stack_size {
            Some(stack_size) => thread.stack_size(stack_size),
            None => thread,
        }
    }

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

    /// Tells one sleeper, if that makes sense, that a spawned unit became visible.
    #[inline]
    pub(crate) fn notify(&self) {
        fence(Ordering::SeqCst);
        self.notify_after_fence(News::Spawned);
    }

    /// As `notify`, for callers that have passed a `SeqCst` fence since the unit became visible, or have asked
    /// under the injector's lock whether this is needed.
    #[inline]
    pub(crate) fn notify_after_fence(&self, news: News) {
        if let Some(seat) = self.sleep.notify_after_fence(news) {
            self.seats[seat].unpark();
        } else {
            self.stand_in(news);
        }
    }

    /// Starts a thread for what became visible if there is nobody to wake: threads of ours wait for
    /// something else, in which they may not run it, or block. Joins are left to those who wait for them,
    /// unless somebody blocks.
    #[inline]
    fn stand_in(&self, news: News) {
        let counts = news == News::Spawned || self.absent.load(Ordering::Relaxed) != 0;
        if counts && self.sleep.lacks_a_thread() {
            self.start_spare();
        }
    }

    /// Wakes one sleeper if there is something to do.
    pub(crate) fn wake_if_work(&self) {
        let news = if self.has_spawned() {
            News::Spawned
        } else if self.shows_work() {
            News::Join
        } else {
            return;
        };
        if let Some(seat) = self.sleep.wake_one(news) {
            self.seats[seat].unpark();
        } else {
            self.stand_in(news);
        }
    }

    /// Does any unit but a join wait where a thief could see it?
    pub(crate) fn has_spawned(&self) -> bool {
        !self.injector.is_surely_empty() || self.used_seats().iter().any(Seat::has_spawned)
    }

    /// Does any unit wait where a thief could see it?
    pub(crate) fn has_work(&self) -> bool {
        !self.injector.is_surely_empty() || self.shows_work()
    }

    /// The same, without the injector.
    pub(crate) fn shows_work(&self) -> bool {
        self.used_seats().iter().any(Seat::has_work)
    }

    /// Is a trace or a measurement going on?
    #[inline]
    pub(crate) fn is_observed(&self) -> bool {
        trace::is_on(self) | self.meter.is_on()
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Is this the seat of a thread from outside, and not of one of ours?
    pub(crate) fn is_guest(&self, index: usize) -> bool {
        let spares = self.seats.len() - self.workers;
        (self.workers..spares).contains(&index)
    }

    /// A detached unit panicked.
    #[cold]
    pub(crate) fn report(&self, panic: Box<dyn Any + Send>) {
        self.panics.fetch_add(1, Ordering::Relaxed);
        // A handler, or a payload's destructor, that panics itself gets no second chance.
        discard(catch_unwind(AssertUnwindSafe(|| {
            match &self.settings.on_panic {
                Some(handler) => handler(panic),
                None => drop(panic),
            }
        })));
    }

    /// The calling thread, counted as active, cannot go on for a while, and what it waits for may
    /// need the pool: somebody else takes its place.
    pub(crate) fn step_away(&self) {
        self.absent.fetch_add(1, Ordering::SeqCst);
        self.sleep.leave();
        self.wake_if_work();
    }

    /// What it waited for has happened. It still has to be counted as active.
    pub(crate) fn come_back(&self) {
        // The last one out there may have been all that a closing pool waited for.
        if self.absent.fetch_sub(1, Ordering::SeqCst) == 1 && self.is_closing() {
            self.wake_all();
        }
    }

    /// From now on nobody is started to stand in.
    pub(crate) fn forbid_spares(&self) {
        self.spares_left.store(0, Ordering::Relaxed);
        self.lock_spares().free_seats.clear();
    }

    /// Starts a thread that takes the place of one that waits or blocks, if there is a seat left for one.
    #[cold]
    fn start_spare(&self) {
        if self.spares_left.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut spares = self.lock_spares();
        let Some(index) = spares.free_seats.pop() else {
            return;
        };
        self.spares_left
            .store(spares.free_seats.len(), Ordering::Relaxed);
        // Counted from now on, or another one would be started for the same reason.
        self.sleep.enter();
        self.used.fetch_max(index + 1, Ordering::AcqRel);
        let shared = self.strong();
        let thread = self.thread(index).spawn(move || {
            Worker::sit_down_counted(&shared, index, |worker| worker.serve());
            shared.lock_spares().free_seats.push(index);
        });
        match thread {
            Ok(thread) => spares.threads.push(thread),
            // Without a stand-in the pool is slower for a while, not wrong.
            Err(_) => {
                self.sleep.leave();
                spares.free_seats.push(index);
                self.spares_left
                    .store(spares.free_seats.len(), Ordering::Relaxed);
            }
        }
    }

    fn lock_spares(&self) -> MutexGuard<'_, Spares> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Can everyone go on without what others do? A closing pool keeps its threads until then: an
    /// absent one may depend on a unit that has not come in yet.
    pub(crate) fn nobody_is_absent(&self) -> bool {
        self.absent.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    fn wake_all(&self) {
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
    pub(crate) threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// For the builder, which starts the threads.
    pub(crate) fn without_threads(shared: Arc<Shared>) -> Self {
        let threads = Vec::with_capacity(shared.workers);
        Self { shared, threads }
    }

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

    /// Calls `a` and `b`, potentially in parallel, and returns both results: [`join`](crate::join) on
    /// this pool.
    pub fn join<RA: Send, RB: Send>(
        &self,
        a: impl FnOnce() -> RA + Send,
        b: impl FnOnce() -> RB + Send,
    ) -> (RA, RB) {
        self.enter(|worker| join_on(worker, |_| a(), |_, _| b()))
    }

    /// As [`join`](Self::join), in whichever order is faster:
    /// [`join_unordered`](crate::join_unordered) on this pool.
    pub fn join_unordered<RA: Send, RB: Send>(
        &self,
        a: impl FnOnce() -> RA + Send,
        b: impl FnOnce() -> RB + Send,
    ) -> (RA, RB) {
        self.enter(|worker| join_unordered_on(worker, |_| a(), |_| b()))
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
        self.shared.sleep.enter();
        Worker::sit_down_counted(&self.shared, seat, body)
    }
}

impl Drop for Pool {
    /// Waits until everything that was spawned has run, then ends the threads.
    fn drop(&mut self) {
        self.shared.close();
        let own = current().id();
        let mut threads = std::mem::take(&mut self.threads);
        // Threads that end may have started others to stand in for them.
        while !threads.is_empty() {
            for thread in threads {
                if thread.thread().id() != own {
                    let _ = thread.join();
                }
            }
            threads = std::mem::take(&mut self.shared.lock_spares().threads);
        }
    }
}

//! A worker: a thread that has taken a seat in a pool.
//!
//! The pool has a fixed number of *seats*. A seat holds what others may touch: the stealable ends
//! of the ring and the deque, the mailbox, flags and counters. A [`Worker`] holds what only its
//! thread touches and lives on that thread's stack; a thread-local points to it. Regular workers
//! sit down once, guests (threads from outside that call into the pool) for one call, spares while
//! somebody blocks.
//!
//! # Where a worker looks for work, in this order
//! 1. urgent lanes of the injector (one relaxed load when there is nothing urgent);
//! 2. its mailbox, its own deque, newest first;
//! 3. the other lanes of the injector, a batch at a time; also every [`FAIR_EVERY`]th unit;
//! 4. the rings, deques and mailboxes of others, in the configured order.
//!
//! A worker that *waits* (for a join, a scope or a handle) looks only for what it waits for.

mod search;

pub(crate) use search::FUTILE;

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use loxley_balance::{Patience, Rng, Victims};

use crate::deque::DequeOwner;
use crate::follow::Called;
use crate::metrics::Counters;
use crate::pool::Shared;
use crate::ring::RingOwner;
use crate::seat::Seat;
use crate::sleep::News;
use crate::sync::whole::thread_local;
use crate::sync::{Ordering, fence};
use crate::trace::{self, Event};
use crate::unit::{Header, Kind, Lineage, UnitRef};

/// After so many units of its own a worker looks at the injector first.
const FAIR_EVERY: u32 = 61;
/// How many units a worker takes from the injector in one visit.
const INJECTOR_BATCH: usize = 64;
/// How many joins a worker keeps to itself, ready to be shown to thieves: enough that the largest
/// pieces are at hand, few enough that most joins of a deep recursion are plain calls.
const PRIVATE_JOINS: usize = 2;

/// The owner's side of a seat.
#[derive(Debug)]
pub(crate) struct Worker<'p> {
    pub(crate) shared: &'p Shared,
    pub(crate) seat: &'p Seat,
    pub(crate) index: usize,
    /// Fewer joins are kept than could be; the next one should be.
    room: Cell<bool>,
    /// How many joins are kept besides those that are shown.
    keeps: Cell<usize>,
    ring: RingOwner<'p, Header>,
    pub(crate) deque: DequeOwner<'p, Header>,
    /// The innermost join unit or scope being run.
    lineage: Cell<*const Lineage>,
    victims: RefCell<Victims>,
    rng: RefCell<Rng>,
    since_fair: Cell<u32>,
    /// How often a search may look again, and how often it may pause: less after fruitless ones.
    eagerness: Cell<u32>,
    /// How many joins in a row were not worth stealing, and until when to leave them alone.
    futile: Cell<u32>,
    rests_until: Cell<Instant>,
    /// How long a wait leaves whoever runs a stolen join alone before it takes parts of it.
    pub(crate) patience: Cell<Duration>,
    /// It is in a blocking section and not counted as active.
    pub(crate) is_away: Cell<bool>,
    /// How many timed units are being run inside each other, and how long they waited idly.
    pub(crate) depth: Cell<u32>,
    pub(crate) waited: Cell<Duration>,
}

thread_local! {
    static CURRENT: Cell<*const Worker<'static>> = const { Cell::new(std::ptr::null()) };
}

/// Gives the worker of this thread, if it is one, to `body`.
#[inline]
pub(crate) fn with_current<R>(body: impl FnOnce(Option<&Worker<'_>>) -> R) -> R {
    let worker = CURRENT.with(Cell::get);
    // SAFETY: `CURRENT` is null or points to the worker that a `Worker::sit_down` further up on this
    // thread's stack owns, which resets it before it returns. `body` cannot keep the reference.
    body(unsafe { worker.as_ref() })
}

/// Resets the thread-local and the seat, also on unwinding.
struct Seated<'w, 'p> {
    worker: &'w Worker<'p>,
    outer: *const Worker<'static>,
}

impl Drop for Seated<'_, '_> {
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.outer));
        self.worker.seat.vacate();
        let shared = self.worker.shared;
        shared.sleep.leave();
        shared.detached.tell_if_idle(shared);
        shared.wake_if_work();
    }
}

impl<'p> Worker<'p> {
    /// Takes the seat, which nobody else has, and calls `body`.
    pub(crate) fn sit_down<R>(
        shared: &'p Shared,
        index: usize,
        body: impl FnOnce(&Worker<'_>) -> R,
    ) -> R {
        let seat = &shared.seats[index];
        seat.occupy();
        let worker = Worker {
            shared,
            seat,
            index,
            room: Cell::new(shared.forks()),
            keeps: Cell::new(PRIVATE_JOINS),
            ring: RingOwner::new(&seat.ring),
            deque: DequeOwner::new(&seat.deque),
            lineage: Cell::new(std::ptr::null()),
            victims: RefCell::new(Victims::new(
                shared.settings.victim_order,
                &shared.settings.topology,
                index,
            )),
            rng: RefCell::new(
                Rng::new(shared.settings.seed).numbered_child("worker", index as u64),
            ),
            since_fair: Cell::new(0),
            eagerness: Cell::new(most_eager(&shared.settings.patience)),
            futile: Cell::new(0),
            rests_until: Cell::new(Instant::now()),
            patience: Cell::new(FUTILE),
            is_away: Cell::new(false),
            depth: Cell::new(0),
            waited: Cell::new(Duration::ZERO),
        };
        shared.sleep.enter();
        let outer = CURRENT.with(|current| current.replace((&raw const worker).cast()));
        let seated = Seated {
            worker: &worker,
            outer,
        };
        body(seated.worker)
    }

    // ---- joins -------------------------------------------------------------------------------

    /// May a join be two plain calls? Two loads.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        !self.room.get() & !self.seat.hungry.load(Ordering::Relaxed)
    }

    /// Can no further join be forked? Then it is two plain calls, whoever asked.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.ring.is_full()
    }

    /// Puts a join's unit in the ring, which is not full, and shows thieves what they want to see.
    #[inline]
    pub(crate) fn fork(&self, unit: UnitRef) {
        self.ring.push(unit.into_raw());
        self.counters().spawned.add(1);
        trace::mark(self, Event::Spawn);
        self.share();
        self.keeps.set(if self.shared.sleep.is_anyone_dozing() {
            0
        } else {
            PRIVATE_JOINS
        });
        self.room.set(self.ring.private_len() < self.keeps.get());
    }

    /// Takes back the newest join unit; `false` if it was stolen.
    #[inline]
    pub(crate) fn unfork(&self) -> bool {
        // One of those that are shown must always be replaced.
        self.room.set(self.ring.private_len() <= self.keeps.get());
        self.ring.pop()
    }

    /// Keeps at least one join visible, and as many as there are idle threads.
    fn share(&self) {
        let shown = self.seat.ring.shared_len();
        let asked = self.seat.hungry.load(Ordering::Relaxed);
        if shown > 0 && !asked && shown >= self.shared.sleep.idle() {
            return;
        }
        if asked {
            self.seat.hungry.store(false, Ordering::Relaxed);
        }
        if self.ring.private_len() > 0 {
            self.ring.expose();
            self.tell(News::Join);
        }
    }

    /// Is it time to split a loop? One or two loads.
    #[inline]
    pub(crate) fn should_split(&self) -> bool {
        self.shared.forks()
            && (self.seat.hungry.load(Ordering::Relaxed) || self.seat.ring.shared_len() == 0)
    }

    /// After a unit of ours became visible: wakes those who wait for it, or else a sleeper.
    #[inline]
    fn tell(&self, news: News) {
        // Pairs with the fences of everyone who goes to sleep: see `sleep.rs` and `follow.rs`.
        fence(Ordering::SeqCst);
        if let Some(heir) = self.seat.followers.call_heir() {
            // Counted before the sleepers are told, so that nobody else is woken in its stead.
            self.shared.sleep.enter();
            self.shared.seats[heir].unpark();
        }
        self.shared.notify_after_fence(news);
        let called = self.seat.followers.call_others();
        if !called.is_empty() {
            self.unpark_all(called);
        }
    }

    #[cold]
    fn unpark_all(&self, called: Called) {
        for (index, seat) in self.shared.used_seats().iter().enumerate() {
            if called.contains(index) {
                seat.unpark();
            }
        }
    }

    /// Runs `body` as part of `lineage`.
    #[inline]
    pub(crate) fn within<R>(&self, lineage: *const Lineage, body: impl FnOnce() -> R) -> R {
        struct Restore<'a>(&'a Cell<*const Lineage>, *const Lineage);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                self.0.set(self.1);
            }
        }
        let _restore = Restore(&self.lineage, self.lineage.replace(lineage));
        body()
    }

    pub(crate) fn lineage(&self) -> *const Lineage {
        self.lineage.get()
    }

    // ---- running and finding -----------------------------------------------------------------

    #[inline]
    pub(crate) fn counters(&self) -> &'p Counters {
        &self.seat.counters
    }

    #[inline]
    pub(crate) fn run(&self, unit: UnitRef) {
        if self.shared.is_observed() {
            self.run_observed(unit);
        } else {
            unit.run(self);
        }
        self.counters().run.add(1);
    }

    #[cold]
    fn run_observed(&self, unit: UnitRef) {
        let start = trace::is_on(self.shared).then(Instant::now);
        if self.shared.meter.is_on() {
            self.timed(|| unit.run(self));
        } else {
            unit.run(self);
        }
        if let Some(start) = start {
            trace::record(self, Event::Unit, start, start.elapsed());
        }
    }

    /// Adds a unit to the own deque and tells a sleeper.
    #[inline]
    pub(crate) fn push(&self, unit: UnitRef) {
        self.deque.push(unit.into_raw());
        self.counters().spawned.add(1);
        trace::mark(self, Event::Spawn);
        self.tell(News::Spawned);
    }

    /// The life of a regular worker or spare.
    pub(crate) fn serve(&self) {
        loop {
            while let Some(unit) = self.next_own() {
                self.run(unit);
            }
            self.shared.detached.tell_if_idle(self.shared);
            match self.search() {
                Some(unit) if unit.kind() == Kind::Join => self.run_stolen_join(unit),
                Some(unit) => self.run(unit),
                None => return,
            }
        }
    }

    /// The next unit that is at hand without stealing.
    fn next_own(&self) -> Option<UnitRef> {
        let injector = &self.shared.injector;
        if injector.is_urgent()
            && let Some(unit) = injector.pop_batch(0, |_| ())
        {
            return Some(self.claim(unit));
        }
        let due = self.since_fair.get() >= FAIR_EVERY;
        self.since_fair
            .set(if due { 0 } else { self.since_fair.get() + 1 });
        if due && let Some(unit) = injector.pop_batch(0, |_| ()) {
            return Some(self.claim(unit));
        }
        if let Some(unit) = self.seat.mailbox.pop() {
            return Some(self.claim(unit));
        }
        self.note_queue();
        if let Some(unit) = self.deque.pop() {
            return Some(self.claim(unit));
        }
        self.next_injected()
    }

    fn next_injected(&self) -> Option<UnitRef> {
        let injector = &self.shared.injector;
        let waiting = injector.len();
        if waiting == 0 {
            return None;
        }
        let share = (waiting / self.shared.workers).min(INJECTOR_BATCH - 1);
        let unit = injector.pop_batch(share, |unit| self.deque.push(unit))?;
        if share > 0 {
            self.note_queue();
            self.shared.notify();
        }
        Some(self.claim(unit))
    }

    /// The deque is at its fullest when a batch came in and before something is taken out.
    #[inline]
    pub(crate) fn note_queue(&self) {
        let queue_high = &self.counters().queue_high;
        queue_high.raise_to(self.seat.deque.len() as u64);
    }

    pub(crate) fn claim(&self, unit: NonNull<Header>) -> UnitRef {
        // SAFETY: everything in our queues was put there by `UnitRef::into_raw` and is taken out
        // once: the queues hand out each entry to one taker.
        unsafe { UnitRef::new(unit) }
    }
}

fn most_eager(patience: &Patience) -> u32 {
    patience.searches.max(patience.pauses)
}

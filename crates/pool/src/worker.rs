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

use search::{Spoils, persist};

pub(crate) use search::FUTILE;

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use loxley_balance::{Patience, Rng, Victims};

use crate::blocking::present;
use crate::deque::DequeOwner;
use crate::follow::Called;
use crate::metrics::Counters;
use crate::numbers::Wanted;
use crate::pool::Shared;
use crate::ring::RingOwner;
use crate::seat::Seat;
use crate::sleep::News;
use crate::sync::whole::thread_local;
use crate::sync::{Ordering, fence};
use crate::trace::{self, Event};
use crate::unit::{Header, Kind, Lineage, UnitRef};
use crate::unwind::without_unwinding;

/// After so many units of its own a worker looks at the injector first.
const FAIR_EVERY: u32 = 61;
/// How many units a worker takes from the injector in one visit.
const INJECTOR_BATCH: usize = 64;
/// How many joins a worker keeps to itself, ready to be shown to thieves: enough that the largest
/// pieces are at hand, few enough that most joins of a deep recursion are plain calls.
const PRIVATE_JOINS: usize = 2;

/// How many brief loops a worker remembers.
const BRIEF_LOOPS: usize = 8;

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
    /// Loops that were over in a moment the last time, by the address of their code.
    brief_loops: [Cell<usize>; BRIEF_LOOPS],
    /// How long a wait leaves whoever runs a stolen join alone before it takes parts of it.
    pub(crate) patience: Cell<Duration>,
    /// It is in a blocking section and not counted as active.
    pub(crate) is_away: Cell<bool>,
    /// The number that this thread uses, for users who number the pool's threads: see [`crate::numbers`].
    number: Cell<Option<usize>>,
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
        self.worker.give_number_back();
        shared.sleep.leave();
        shared.detached.tell_if_idle(shared);
        shared.wake_if_work();
    }
}

impl<'p> Worker<'p> {
    /// Takes the seat, which nobody else has, and calls `body`. The thread was counted as active when it
    /// was started, or before this.
    pub(crate) fn sit_down_counted<R>(
        shared: &'p Shared,
        index: usize,
        body: impl FnOnce(&Worker<'_>) -> R,
    ) -> R {
        let worker = Worker::new(shared, index);
        let outer = CURRENT.with(|current| current.replace((&raw const worker).cast()));
        let seated = Seated {
            worker: &worker,
            outer,
        };
        body(seated.worker)
    }

    /// Gives the seat, which nobody else has, to the calling thread for ever. The thread must not sit in
    /// any pool, and was counted as active before.
    pub(crate) fn stay(shared: &'static Shared, index: usize) {
        let worker: &'static Worker<'static> = Box::leak(Box::new(Worker::new(shared, index)));
        let outer = CURRENT.with(|current| current.replace(worker));
        assert!(outer.is_null(), "a thread sits in one pool");
    }

    /// The worker for a seat that nobody has.
    fn new(shared: &'p Shared, index: usize) -> Self {
        let seat = &shared.seats[index];
        seat.occupy();
        Worker {
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
            brief_loops: Default::default(),
            patience: Cell::new(FUTILE),
            is_away: Cell::new(false),
            number: Cell::new(None),
            depth: Cell::new(0),
            waited: Cell::new(Duration::ZERO),
        }
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

    /// Was the loop with this code over in a moment the last time?
    #[inline]
    pub(crate) fn is_brief_loop(&self, code: usize) -> bool {
        self.brief_loop(code).get() == code
    }

    #[inline]
    pub(crate) fn note_loop(&self, code: usize, is_brief: bool) {
        let known = self.brief_loop(code);
        if is_brief {
            known.set(code);
        } else if known.get() == code {
            known.set(0);
        }
    }

    #[inline]
    fn brief_loop(&self, code: usize) -> &Cell<usize> {
        &self.brief_loops[code / 16 % BRIEF_LOOPS]
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
        let called = self.seat.followers.call_others();
        if called.is_empty() {
            self.shared.notify_after_fence(news);
        } else {
            // They look first: nobody has to be started for what they may run.
            self.unpark_all(called, news);
        }
    }

    #[cold]
    fn unpark_all(&self, called: Called, news: News) {
        if let Some(seat) = self.shared.sleep.notify_after_fence(news) {
            self.shared.seats[seat].unpark();
        }
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

    /// Runs a unit. None of them unwinds: what its closure throws is caught where it is kept for whoever
    /// waits.
    #[inline]
    pub(crate) fn run(&self, unit: UnitRef) {
        without_unwinding(|| {
            if self.shared.is_observed() {
                self.run_observed(unit);
            } else {
                unit.run(self);
            }
        });
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
                self.give_number_back();
            }
            self.shared.detached.tell_if_idle(self.shared);
            match self.search_until(None) {
                Some(unit) if unit.kind() == Kind::Join => self.run_stolen_join(unit),
                Some(unit) => self.run(unit),
                None => return,
            }
            self.give_number_back();
        }
    }

    /// The number of this thread.
    #[inline]
    pub(crate) fn number(&self) -> usize {
        self.number.get().unwrap_or_else(|| self.take_number())
    }

    fn take_number(&self) -> usize {
        let Some(numbers) = &self.shared.numbers else {
            return self.index;
        };
        let number = numbers.acquire(Wanted::Rather(self.index));
        self.number.set(Some(number));
        number
    }

    /// Uses the number of its seat, for something that each worker does once, unless it was asked before.
    pub(crate) fn use_own_number(&self) {
        if let (None, Some(numbers)) = (self.number.get(), &self.shared.numbers) {
            self.number
                .set(Some(numbers.acquire(Wanted::Only(self.index))));
        }
    }

    /// A unit is over, in which this thread may have been asked for its number.
    #[inline]
    fn give_number_back(&self) {
        if let (Some(number), Some(numbers)) = (self.number.take(), &self.shared.numbers) {
            numbers.release(number);
        }
    }

    /// Calls `body`, which puts this thread to sleep; others may use its number meanwhile.
    pub(crate) fn without_number<R>(&self, body: impl FnOnce() -> R) -> R {
        let (Some(number), Some(numbers)) = (self.number.get(), &self.shared.numbers) else {
            return body();
        };
        numbers.release(number);
        let result = body();
        numbers.acquire(Wanted::Only(number));
        result
    }

    /// The next unit that is at hand without stealing.
    fn next_own(&self) -> Option<UnitRef> {
        let unit = self.take_own()?;
        // SAFETY: it was just taken out of one of the queues.
        Some(unsafe { claim(unit) })
    }

    fn take_own(&self) -> Option<NonNull<Header>> {
        let injector = &self.shared.injector;
        if injector.is_urgent()
            && let Some(unit) = injector.pop_batch(0, |_| ())
        {
            return Some(unit);
        }
        let due = self.since_fair.get() >= FAIR_EVERY;
        self.since_fair
            .set(if due { 0 } else { self.since_fair.get() + 1 });
        if due && let Some(unit) = injector.pop_batch(0, |_| ()) {
            return Some(unit);
        }
        if let Some(unit) = self.seat.mailbox.pop() {
            return Some(unit);
        }
        self.note_queue();
        (self.deque.pop())
            .or_else(|| self.seat.orders.pop())
            .or_else(|| self.take_injected())
    }

    /// A unit from wherever there is one, for a worker in the middle of something. From its own deque
    /// it takes the oldest, as a thief would: what is on top belongs to frames further down the stack,
    /// whose marks must stay true; and it moves nothing into it.
    pub(crate) fn take_any(&self) -> Option<UnitRef> {
        self.take_local().or_else(|| {
            let injected = self.shared.injector.pop_batch(0, |_| ());
            // SAFETY: it was just taken out of the injector.
            let injected = injected.map(|unit| unsafe { claim(unit) });
            injected.or_else(|| self.steal_round(Spoils::One))
        })
    }

    /// As [`take_any`](Self::take_any), of what waits for this worker.
    pub(crate) fn take_local(&self) -> Option<UnitRef> {
        let unit = persist(|| self.seat.deque.steal())
            .or_else(|| self.seat.orders.pop())
            .or_else(|| self.seat.mailbox.pop())?;
        // SAFETY: it was just taken out of one of the queues.
        Some(unsafe { claim(unit) })
    }

    /// Is there anything that waits for this worker?
    pub(crate) fn has_pending(&self) -> bool {
        self.ring.private_len() != 0 || self.seat.ring.shared_len() != 0 || self.seat.has_spawned()
    }

    /// Runs whatever there is to do until `is_over`: for waits that no unit of this pool can end.
    pub(crate) fn serve_until(&self, is_over: &dyn Fn() -> bool) {
        present(self, || {
            while !is_over() {
                match self.take_any().or_else(|| self.search_until(Some(is_over))) {
                    Some(unit) => self.run(unit),
                    None => return,
                }
            }
        });
    }

    fn take_injected(&self) -> Option<NonNull<Header>> {
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
        Some(unit)
    }

    /// The deque is at its fullest when a batch came in and before something is taken out.
    #[inline]
    pub(crate) fn note_queue(&self) {
        let queue_high = &self.counters().queue_high;
        queue_high.raise_to(self.seat.deque.len() as u64);
    }
}

/// What was taken out of a queue, as a unit again.
///
/// # Safety
/// `unit` comes from one of the pool's queues, and the caller is the one who took it out. Everything in
/// there was put in by `UnitRef::into_raw`, and a queue hands out each entry to one taker.
#[inline]
pub(crate) unsafe fn claim(unit: NonNull<Header>) -> UnitRef {
    // SAFETY: by the contract, this is the unit that was put in, and it has one owner.
    unsafe { UnitRef::new(unit) }
}

fn most_eager(patience: &Patience) -> u32 {
    patience.searches.max(patience.pauses)
}

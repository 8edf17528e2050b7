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

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use loxley_balance::{Backoff, Patience, Rng, Step, Victims};

use crate::deque::{Deque, DequeOwner};
use crate::follow::{Called, Followers};
use crate::mailbox::Mailbox;
use crate::metrics::Counters;
use crate::pool::Shared;
use crate::ring::{Ring, RingOwner};
use crate::sleep::LieDown;
use crate::sync::{
    Apart, AtomicBool, Mutex, Ordering, Thread, current, fence, lock, park, spin, yield_now,
};
use crate::top::Steal;
use crate::trace::{self, Event, Record};
use crate::unit::{Header, Lineage, UnitRef};

/// After so many units of its own a worker looks at the injector first.
const FAIR_EVERY: u32 = 61;
/// How many units a worker takes from the injector in one visit.
const INJECTOR_BATCH: usize = 64;
/// One steal in so many is timed.
const TIMED_STEALS: u64 = 16;
/// How many joins a worker keeps to itself, ready to be shown to thieves: enough that the largest
/// pieces are at hand, few enough that most joins of a deep recursion are plain calls.
const PRIVATE_JOINS: usize = 2;

/// What others may touch of a worker.
#[derive(Debug)]
pub(crate) struct Seat {
    /// A thief found nothing here: the owner should show something at its next join.
    pub(crate) hungry: Apart<AtomicBool>,
    pub(crate) ring: Ring<Header>,
    pub(crate) deque: Deque<Header>,
    pub(crate) mailbox: Mailbox<Header>,
    pub(crate) counters: Apart<Counters>,
    /// Workers that wait for what this one runs, and sleep.
    pub(crate) followers: Followers,
    /// What happened here, while a trace is taken.
    pub(crate) records: Mutex<Vec<Record>>,
    occupied: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Seat {
    pub(crate) fn new() -> Self {
        Self {
            hungry: Apart(AtomicBool::new(false)),
            ring: Ring::new(),
            deque: Deque::new(),
            mailbox: Mailbox::new(),
            counters: Apart(Counters::default()),
            followers: Followers::new(),
            records: Mutex::new(Vec::new()),
            occupied: AtomicBool::new(false),
            thread: Mutex::new(None),
        }
    }

    /// Does anything wait here that a thief could take?
    pub(crate) fn has_work(&self) -> bool {
        self.ring.shared_len() != 0 || self.deque.len() != 0 || !self.mailbox.is_empty()
    }

    /// How much waits here.
    pub(crate) fn load(&self) -> usize {
        self.ring.shared_len() + self.deque.len() + self.mailbox.len()
    }

    /// Lets the thread in this seat go on.
    pub(crate) fn unpark(&self) {
        if let Some(thread) = lock(&self.thread).as_ref() {
            thread.unpark();
        }
    }

    /// Asks the owner to show something, without disturbing its cache line more than needed.
    #[inline]
    pub(crate) fn ask(&self) {
        if !self.hungry.load(Ordering::Relaxed) && self.occupied.load(Ordering::Relaxed) {
            self.hungry.store(true, Ordering::Relaxed);
        }
    }
}

/// The owner's side of a seat.
#[derive(Debug)]
pub(crate) struct Worker<'p> {
    pub(crate) shared: &'p Shared,
    pub(crate) seat: &'p Seat,
    pub(crate) index: usize,
    /// Fewer joins are kept than could be; the next one should be.
    room: Cell<bool>,
    ring: RingOwner<'p, Header>,
    pub(crate) deque: DequeOwner<'p, Header>,
    /// The innermost join unit or scope being run.
    lineage: Cell<*const Lineage>,
    victims: RefCell<Victims>,
    rng: RefCell<Rng>,
    since_fair: Cell<u32>,
    /// How often a search may look again, and how often it may pause: less after fruitless ones.
    eagerness: Cell<u32>,
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
    let worker = CURRENT.get();
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
        CURRENT.set(self.outer);
        let seat = self.worker.seat;
        seat.occupied.store(false, Ordering::Relaxed);
        *lock(&seat.thread) = None;
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
        *lock(&seat.thread) = Some(current());
        seat.hungry.store(false, Ordering::Relaxed);
        seat.occupied.store(true, Ordering::Relaxed);
        let worker = Worker {
            shared,
            seat,
            index,
            room: Cell::new(shared.forks()),
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
            is_away: Cell::new(false),
            depth: Cell::new(0),
            waited: Cell::new(Duration::ZERO),
        };
        shared.sleep.enter();
        let outer = CURRENT.replace((&raw const worker).cast());
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
        self.room.set(self.ring.private_len() < PRIVATE_JOINS);
    }

    /// Takes back the newest join unit; `false` if it was stolen.
    #[inline]
    pub(crate) fn unfork(&self) -> bool {
        self.room.set(true);
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
            self.tell();
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
    fn tell(&self) {
        // Pairs with the fences of everyone who goes to sleep: see `sleep.rs` and `follow.rs`.
        fence(Ordering::SeqCst);
        if let Some(heir) = self.seat.followers.call_heir() {
            // Counted before the sleepers are told, so that nobody else is woken in its stead.
            self.shared.sleep.enter();
            self.shared.seats[heir].unpark();
        }
        self.shared.notify_after_fence();
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
        self.tell();
    }

    /// The life of a regular worker or spare.
    pub(crate) fn serve(&self) {
        loop {
            while let Some(unit) = self.next_own() {
                self.run(unit);
            }
            self.shared.detached.tell_if_idle(self.shared);
            match self.search() {
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

    /// Looks for work until there is some, sleeping in between. `None`: the pool is closing.
    fn search(&self) -> Option<UnitRef> {
        self.shared.sleep.start_searching();
        let start = self.is_timed().then(Instant::now);
        let mut backoff = Backoff::default();
        let mut has_slept = false;
        let mut patience = self.shared.settings.patience;
        patience.searches = patience.searches.min(self.eagerness.get());
        patience.pauses = patience.pauses.min(self.eagerness.get());
        loop {
            if let Some(unit) = self.next_own().or_else(|| self.steal_round()) {
                self.finish_search(start, has_slept);
                return Some(unit);
            }
            let step = if self.shared.sleep.is_crowded() {
                Step::Park
            } else {
                backoff.next(&patience, &mut self.rng.borrow_mut())
            };
            match step {
                Step::Search => spin(),
                Step::Pause { ns } => self.pause(ns),
                Step::Park => {
                    self.eagerness.set(self.eagerness.get() / 2);
                    has_slept = true;
                    if !self.sleep() {
                        return None;
                    }
                    backoff.reset();
                }
            }
        }
    }

    /// Are idle times to be measured?
    fn is_timed(&self) -> bool {
        self.shared.settings.is_metered || trace::is_on(self.shared)
    }

    fn finish_search(&self, start: Option<Instant>, has_slept: bool) {
        if let Some(start) = start {
            let waited = start.elapsed();
            self.counters().idle_ns.add(waited.as_nanos() as u64);
            trace::record(self, Event::Idle, start, waited);
        }
        if !has_slept {
            let most = most_eager(&self.shared.settings.patience);
            self.eagerness.set((self.eagerness.get() + 1).min(most));
        }
        self.victims.borrow_mut().found();
        if self.shared.sleep.stop_searching() {
            self.shared.wake_if_work();
        }
    }

    /// Waits so long without sleeping, but lets others run.
    fn pause(&self, ns: u64) {
        let start = Instant::now();
        let pause = Duration::from_nanos(ns);
        loop {
            for _ in 0..8 {
                spin();
            }
            let passed = start.elapsed();
            if passed >= pause {
                return;
            }
            if passed > Duration::from_micros(4) {
                yield_now();
            }
        }
    }

    /// Parks until woken. `false`: the pool is closing and nothing is left to do.
    fn sleep(&self) -> bool {
        let sleep = &self.shared.sleep;
        let look = sleep.lie_down(self.index) == LieDown::LookOnceMore;
        self.shared.detached.tell_if_idle(self.shared);
        let leave = self.shared.may_leave();
        // While the pool closes nobody is too many: a surplus thread would not be woken again.
        let look = look || self.shared.is_closing();
        if (leave || look && self.shared.has_work()) && sleep.stay_awake(self.index) {
            if leave {
                // A searcher that leaves is like one that found something.
                let _ = sleep.stop_searching();
            }
            return !leave;
        }
        self.counters().parks.add(1);
        trace::span(self, Event::Asleep, || {
            while !sleep.take_woken(self.index) {
                park();
            }
        });
        self.counters().wakes.add(1);
        true
    }

    fn steal_round(&self) -> Option<UnitRef> {
        let shared = self.shared;
        let load = |index: usize| shared.seats[index].load();
        let round = self.victims.borrow_mut().round(
            &shared.settings.topology,
            &mut self.rng.borrow_mut(),
            load,
        );
        let used = shared.used_seats().len();
        for index in round.filter(|&index| index < used) {
            let victim = &shared.seats[index];
            if let Some(unit) = self.steal_one(victim) {
                self.steal_more(victim);
                return Some(unit);
            }
            victim.ask();
        }
        None
    }

    /// One unit from that seat: a join, a spawned unit, or mail nobody fetched.
    pub(crate) fn steal_one(&self, victim: &Seat) -> Option<UnitRef> {
        if !victim.has_work() {
            return None;
        }
        let start = self.is_steal_timed().then(Instant::now);
        self.counters().steals_tried.add(1);
        let stolen = persist(|| victim.ring.steal());
        let stolen = match stolen {
            Some(unit) => {
                // The owner should show the next one.
                victim.ask();
                Some(unit)
            }
            None => persist(|| victim.deque.steal()).or_else(|| victim.mailbox.pop()),
        };
        let unit = self.claim(stolen?);
        self.counters().steals.add(1);
        if let Some(start) = start {
            let latency = start.elapsed();
            self.counters().steal_ns.add(latency.as_nanos() as u64);
            self.counters().steals_timed.add(1);
            trace::record(self, Event::Steal, start, latency);
        }
        Some(unit)
    }

    /// Is the next steal to be timed? Each one while tracing, else one in [`TIMED_STEALS`]: reading
    /// the clock takes as long as stealing.
    fn is_steal_timed(&self) -> bool {
        let is_due = self
            .counters()
            .steals_tried
            .get()
            .is_multiple_of(TIMED_STEALS);
        self.shared.settings.is_metered && is_due || trace::is_on(self.shared)
    }

    /// Moves as many more as the steal amount says into the own deque.
    fn steal_more(&self, victim: &Seat) {
        let len = victim.deque.len();
        let amount = self
            .shared
            .settings
            .steal_amount
            .take(len + 1)
            .saturating_sub(1);
        let mut moved = 0;
        while moved < amount {
            let Some(unit) = persist(|| victim.deque.steal()) else {
                break;
            };
            self.deque.push(unit);
            moved += 1;
        }
        if moved > 0 {
            self.counters().steals.add(moved as u64);
            self.note_queue();
        }
    }
}

fn most_eager(patience: &Patience) -> u32 {
    patience.searches.max(patience.pauses)
}

/// Steals until there is a clear answer.
fn persist<T>(mut steal: impl FnMut() -> Steal<T>) -> Option<T> {
    loop {
        match steal() {
            Steal::Taken(unit) => return Some(unit),
            Steal::Empty => return None,
            Steal::Retry => spin(),
        }
    }
}

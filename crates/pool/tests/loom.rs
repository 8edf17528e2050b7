//! Exhaustive model checks of the lock-free parts, one per promise.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p loxley-pool --test loom`; the long ones with
//! `-- --include-ignored`. Without the flag this file is empty. The modules under test are
//! compiled into this file, on loom's atomics.
#![cfg(loom)]
#![expect(unsafe_code, reason = "the modules under test use it")]
#![expect(
    dead_code,
    unused_imports,
    reason = "a model uses only part of each module"
)]

#[path = "../src/block.rs"]
mod block;
#[path = "../src/count.rs"]
mod count;
#[path = "../src/deque.rs"]
mod deque;
#[path = "../src/follow.rs"]
mod follow;
#[path = "../src/injector.rs"]
mod injector;
#[path = "../src/latch.rs"]
mod latch;
#[path = "../src/priority.rs"]
mod priority;
#[path = "../src/ring.rs"]
mod ring;
#[path = "../src/sleep.rs"]
mod sleep;
#[path = "../src/slot.rs"]
mod slot;
#[path = "../src/sync.rs"]
mod sync;
#[path = "../src/tally.rs"]
mod tally;
#[path = "../src/top.rs"]
mod top;
#[path = "../src/unwind.rs"]
mod unwind;

use std::ptr::NonNull;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use block::Live;
use count::{Count, all_done};
use deque::{Deque, DequeOwner};
use follow::Followers;
use injector::Injector;
use latch::{Latch, Settled};
use priority::Priority;
use ring::{Ring, RingOwner};
use sleep::{LieDown, News, Sleep};
use slot::{Slot, Waiter};
use tally::{Remaining, Tally};
use top::Steal;

/// Counts how often each entry was taken.
struct Book(Vec<AtomicUsize>);

impl Book {
    fn new(len: usize) -> Self {
        Self((0..len).map(|_| AtomicUsize::new(0)).collect())
    }

    fn entry(&self, index: usize) -> NonNull<AtomicUsize> {
        NonNull::from(&self.0[index])
    }

    fn every_entry_was_taken_once(&self) {
        for (index, count) in self.0.iter().enumerate() {
            assert_eq!(count.load(Ordering::Relaxed), 1, "entry {index}");
        }
    }
}

fn take(entry: NonNull<AtomicUsize>) {
    // SAFETY: the book outlives the model's threads.
    unsafe { entry.as_ref() }.fetch_add(1, Ordering::Relaxed);
}

fn steal_all(mut steal: impl FnMut() -> Steal<NonNull<AtomicUsize>>, attempts: usize) {
    for _ in 0..attempts {
        if let Steal::Taken(entry) = steal() {
            take(entry);
        }
    }
}

/// With one thief every interleaving is tried, with two every one with at most two preemptions.
fn explore(thieves: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = (thieves > 1).then_some(2);
    builder.check(model);
}

struct RingModel {
    ring: Ring<AtomicUsize>,
    book: Book,
}

/// An owner that pushes, exposes and pops while thieves steal.
fn ring_model(entries: usize, thieves: usize, attempts: usize) {
    explore(thieves, move || {
        let model = Arc::new(RingModel {
            ring: Ring::new(),
            book: Book::new(entries),
        });
        let thieves: Vec<_> = (0..thieves)
            .map(|_| {
                let model = Arc::clone(&model);
                thread::spawn(move || steal_all(|| model.ring.steal(), attempts))
            })
            .collect();
        let owner = RingOwner::new(&model.ring);
        for index in 0..entries {
            owner.push(model.book.entry(index));
            owner.expose();
        }
        // What the owner gets back is the newest: count from the end.
        for index in (0..entries).rev() {
            if owner.pop() {
                take(model.book.entry(index));
            } else {
                break;
            }
        }
        for thief in thieves {
            thief.join().unwrap();
        }
        model.book.every_entry_was_taken_once();
    });
}

#[test]
fn of_a_ring_with_one_entry_owner_and_thief_get_one() {
    ring_model(1, 1, 1);
}

#[test]
fn a_ring_gives_each_entry_to_owner_or_thief() {
    ring_model(3, 1, 2);
}

#[test]
#[ignore = "long: two thieves"]
fn a_ring_gives_each_entry_to_one_of_two_thieves_or_the_owner() {
    ring_model(2, 2, 2);
}

#[test]
fn a_ring_reuses_slots_only_after_they_are_free() {
    loom::model(|| {
        let model = Arc::new(RingModel {
            ring: Ring::new(),
            book: Book::new(3),
        });
        let thief = {
            let model = Arc::clone(&model);
            thread::spawn(move || steal_all(|| model.ring.steal(), 2))
        };
        let owner = RingOwner::new(&model.ring);
        for index in 0..3 {
            owner.push(model.book.entry(index));
            owner.expose();
            if owner.pop() {
                take(model.book.entry(index));
            }
        }
        thief.join().unwrap();
        model.book.every_entry_was_taken_once();
    });
}

struct DequeModel {
    deque: Deque<AtomicUsize>,
    book: Book,
}

/// An owner that pushes (the first buffer holds two) and pops while thieves steal.
fn deque_model(entries: usize, thieves: usize, attempts: usize) {
    explore(thieves, move || {
        let model = Arc::new(DequeModel {
            deque: Deque::new(),
            book: Book::new(entries),
        });
        let thieves: Vec<_> = (0..thieves)
            .map(|_| {
                let model = Arc::clone(&model);
                thread::spawn(move || steal_all(|| model.deque.steal(), attempts))
            })
            .collect();
        let owner = DequeOwner::new(&model.deque);
        for index in 0..entries {
            owner.push(model.book.entry(index));
        }
        while let Some(entry) = owner.pop() {
            take(entry);
        }
        for thief in thieves {
            thief.join().unwrap();
        }
        model.book.every_entry_was_taken_once();
    });
}

#[test]
fn of_a_deque_with_one_entry_owner_and_thief_get_one() {
    deque_model(1, 1, 1);
}

#[test]
fn a_deque_that_grows_gives_each_entry_to_owner_or_thief() {
    deque_model(3, 1, 2);
}

#[test]
#[ignore = "long: two thieves"]
fn a_deque_gives_each_entry_to_one_of_two_thieves_or_the_owner() {
    deque_model(2, 2, 2);
}

#[test]
fn a_deque_never_gives_away_what_is_older_than_a_mark() {
    loom::model(|| {
        let model = Arc::new(DequeModel {
            deque: Deque::new(),
            book: Book::new(2),
        });
        let thief = {
            let model = Arc::clone(&model);
            thread::spawn(move || steal_all(|| model.deque.steal(), 1))
        };
        let owner = DequeOwner::new(&model.deque);
        owner.push(model.book.entry(0));
        let mark = owner.mark();
        owner.push(model.book.entry(1));
        while let Some(entry) = owner.pop_above(mark) {
            assert_eq!(entry, model.book.entry(1));
            take(entry);
        }
        thief.join().unwrap();
        while let Some(entry) = owner.pop() {
            take(entry);
        }
        model.book.every_entry_was_taken_once();
    });
}

fn push(injector: &Injector<AtomicUsize>, priority: Priority, entry: NonNull<AtomicUsize>) {
    injector.push_between(priority, entry, || (), || ());
}

#[test]
fn an_injector_gives_each_unit_to_one_taker() {
    loom::model(|| {
        let model = Arc::new((Injector::new(), Book::new(3)));
        let producer = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                push(&model.0, Priority::Normal, model.1.entry(0));
                push(&model.0, Priority::Highest, model.1.entry(1));
            })
        };
        push(&model.0, Priority::Normal, model.1.entry(2));
        if let Some(unit) = model.0.pop_batch(1, take) {
            take(unit);
        }
        producer.join().unwrap();
        while let Some(unit) = model.0.pop_batch(1, take) {
            take(unit);
        }
        assert!(model.0.is_empty() && !model.0.is_urgent());
        model.1.every_entry_was_taken_once();
    });
}

#[test]
fn an_urgent_unit_that_was_pushed_is_seen_as_urgent() {
    loom::model(|| {
        let model = Arc::new((Injector::new(), Book::new(2), AtomicBool::new(false)));
        let producer = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                push(&model.0, Priority::Normal, model.1.entry(0));
                push(&model.0, Priority::High, model.1.entry(1));
                model.2.store(true, Ordering::Release);
            })
        };
        if model.2.load(Ordering::Acquire) {
            assert!(model.0.is_urgent());
            assert_eq!(model.0.pop_batch(1, |_| ()), Some(model.1.entry(1)));
        }
        producer.join().unwrap();
    });
}

#[test]
fn a_settled_latch_wakes_its_owner_and_shows_the_result() {
    loom::model(|| {
        let model = Arc::new((Latch::new(), AtomicUsize::new(0)));
        let owner = thread::current();
        let thief = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                model.1.store(7, Ordering::Relaxed);
                if model.0.settle(Settled::Done) {
                    owner.unpark();
                }
            })
        };
        if model.0.settled().is_none() && model.0.announce_sleep() {
            while model.0.settled().is_none() {
                thread::park();
            }
            model.0.announce_awake();
        }
        assert_eq!(model.0.settled(), Some(Settled::Done));
        assert_eq!(model.1.load(Ordering::Relaxed), 7);
        thief.join().unwrap();
    });
}

#[test]
fn a_scope_is_over_when_the_last_unit_is_counted_off_and_home_is_woken() {
    loom::model(|| {
        let model = Arc::new(Tally::new());
        let home = thread::current();
        // SAFETY: this is the home thread, here and below.
        unsafe { model.count_at_home(2) };
        let away = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                // One unit that makes another, both finished away from home.
                model.made_elsewhere();
                assert!(!model.done_elsewhere(), "one is left");
                if model.done_elsewhere() {
                    home.unpark();
                }
            })
        };
        // SAFETY: home.
        unsafe { model.count_at_home(-1) };
        // SAFETY: home.
        while !unsafe { model.is_over_at_home() } {
            // SAFETY: home.
            if unsafe { model.announce_sleep_at_home() } {
                // SAFETY: home.
                while !unsafe { model.is_over_at_home() } {
                    thread::park();
                }
                model.announce_awake();
            }
        }
        away.join().unwrap();
        // SAFETY: home.
        assert!(unsafe { model.is_over_at_home() });
    });
}

/// One per seat. Not `thread::park`: loom forgets an unpark when the thread blocks on a lock before
/// it parks.
#[derive(Default)]
struct Signal {
    is_given: loom::sync::Mutex<bool>,
    given: loom::sync::Condvar,
}

impl Signal {
    fn unpark(&self) {
        *self.is_given.lock().unwrap() = true;
        self.given.notify_one();
    }

    fn park(&self) {
        let mut is_given = self.is_given.lock().unwrap();
        while !*is_given {
            is_given = self.given.wait(is_given).unwrap();
        }
        *is_given = false;
    }
}

/// A pool reduced to its sleep: one flag is the queue.
struct SleepModel {
    sleep: Sleep,
    work: AtomicUsize,
    done: AtomicUsize,
    signals: Vec<Signal>,
}

impl SleepModel {
    fn new(limit: usize, seats: usize) -> Self {
        Self {
            sleep: Sleep::new(limit, seats),
            work: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            signals: (0..seats).map(|_| Signal::default()).collect(),
        }
    }

    fn unpark(&self, seat: Option<usize>) {
        if let Some(seat) = seat {
            self.signals[seat].unpark();
        }
    }

    fn has_work(&self) -> bool {
        self.work.load(Ordering::Relaxed) > 0
    }

    fn try_work(&self) -> bool {
        let taken = self
            .work
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| n.checked_sub(1));
        if taken.is_ok() {
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    fn produce(&self, news: News) {
        self.work.fetch_add(1, Ordering::Release);
        loom::sync::atomic::fence(Ordering::SeqCst);
        self.unpark(self.sleep.notify_after_fence(news));
    }

    /// Runs one unit, sleeping until there is one.
    fn serve_one(&self, seat: usize) {
        self.sleep.enter();
        self.sleep.start_searching();
        self.search(seat);
    }

    /// As `serve_one`, by a thread that dozes first. Until somebody wakes it, or for no time at all?
    fn doze_and_serve_one(&self, seat: usize, news: News) {
        self.sleep.enter();
        self.sleep.start_searching();
        self.sleep.doze(seat);
        let is_needed = news == News::Spawned && self.has_work();
        if !(is_needed && self.sleep.stay_awake(seat)) {
            // A join wakes nobody, so that the doze has to end by itself.
            let is_up = news == News::Join && self.sleep.get_up(seat);
            while !is_up && !self.sleep.take_woken(seat) {
                self.signals[seat].park();
            }
        }
        self.search(seat);
    }

    fn search(&self, seat: usize) {
        while !self.try_work() {
            let look = self.sleep.lie_down(seat) == LieDown::LookOnceMore;
            if look && self.has_work() && self.sleep.stay_awake(seat) {
                continue;
            }
            while !self.sleep.take_woken(seat) {
                self.signals[seat].park();
            }
        }
        if self.sleep.stop_searching() && self.has_work() {
            self.unpark(self.sleep.wake_one(News::Join));
        }
        self.sleep.leave();
        if self.has_work() {
            self.unpark(self.sleep.wake_one(News::Join));
        }
    }
}

#[test]
fn a_unit_is_never_left_with_everyone_asleep() {
    loom::model(|| {
        let model = Arc::new(SleepModel::new(1, 1));
        let worker = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.serve_one(0))
        };
        model.produce(News::Join);
        worker.join().unwrap();
        assert_eq!(model.done.load(Ordering::Relaxed), 1);
    });
}

/// A unit that comes from outside, without a fence: the injector's lock orders what the producer and whoever goes to
/// sleep see of each other.
struct SubmitModel {
    pool: SleepModel,
    injector: Injector<AtomicUsize>,
    book: Book,
    stand_ins: AtomicUsize,
}

impl SubmitModel {
    fn new() -> Self {
        Self {
            pool: SleepModel::new(1, 1),
            injector: Injector::new(),
            book: Book::new(1),
            stand_ins: AtomicUsize::new(0),
        }
    }

    fn submit(&self, priority: Priority) {
        let needs_one = || self.pool.sleep.needs_a_thread();
        let entry = self.book.entry(0);
        if self
            .injector
            .push_between(priority, entry, || (), needs_one)
        {
            self.wake_or_start(self.pool.sleep.notify_after_fence(News::Spawned));
        }
    }

    fn wake_or_start(&self, woken: Option<usize>) {
        if woken.is_none() && self.pool.sleep.lacks_a_thread() {
            self.stand_ins.fetch_add(1, Ordering::Relaxed);
        }
        self.pool.unpark(woken);
    }
}

fn submit_model(priority: Priority) {
    loom::model(move || {
        let model = Arc::new(SubmitModel::new());
        let worker = {
            let model = Arc::clone(&model);
            model.pool.sleep.enter();
            thread::spawn(move || {
                let sleep = &model.pool.sleep;
                sleep.start_searching();
                let unit = loop {
                    if let Some(unit) = model.injector.pop_batch(0, take) {
                        break unit;
                    }
                    let _may_look = sleep.lie_down(0);
                    if !model.injector.is_surely_empty() && sleep.stay_awake(0) {
                        continue;
                    }
                    while !sleep.take_woken(0) {
                        model.pool.signals[0].park();
                    }
                };
                take(unit);
            })
        };
        model.submit(priority);
        worker.join().unwrap();
        model.book.every_entry_was_taken_once();
    });
}

#[test]
fn a_submitted_unit_is_never_left_with_everyone_asleep() {
    submit_model(Priority::Normal);
}

#[test]
fn an_urgent_submitted_unit_is_never_left_with_everyone_asleep() {
    submit_model(Priority::High);
}

/// As `a_unit_finds_a_stand_in_when_everybody_waits`, for one that is submitted.
#[test]
fn a_submitted_unit_finds_a_stand_in_when_everybody_waits() {
    loom::model(|| {
        let model = Arc::new(SubmitModel::new());
        model.pool.sleep.enter();
        let producer = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.submit(Priority::Normal))
        };
        model.pool.sleep.leave();
        if !model.injector.is_surely_empty() {
            model.wake_or_start(model.pool.sleep.wake_one(News::Spawned));
        }
        producer.join().unwrap();
        assert_ne!(model.stand_ins.load(Ordering::Relaxed), 0);
    });
}

#[test]
#[ignore = "long: two workers"]
fn two_units_find_two_workers() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let model = Arc::new(SleepModel::new(2, 2));
        let workers: Vec<_> = (0..2)
            .map(|seat| {
                let model = Arc::clone(&model);
                thread::spawn(move || model.serve_one(seat))
            })
            .collect();
        model.produce(News::Join);
        model.produce(News::Join);
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(model.done.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_spawned_unit_wakes_whoever_dozes() {
    loom::model(|| {
        let model = Arc::new(SleepModel::new(1, 1));
        let worker = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.doze_and_serve_one(0, News::Spawned))
        };
        model.produce(News::Spawned);
        worker.join().unwrap();
        assert_eq!(model.done.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_join_is_found_after_a_doze() {
    loom::model(|| {
        let model = Arc::new(SleepModel::new(1, 1));
        let worker = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.doze_and_serve_one(0, News::Join))
        };
        model.produce(News::Join);
        worker.join().unwrap();
        assert_eq!(model.done.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_join_is_found_by_a_surplus_thread_that_dozed() {
    loom::model(|| {
        let model = Arc::new(SleepModel::new(1, 1));
        // The producer is active, and one too many for the other.
        model.sleep.enter();
        let worker = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.doze_and_serve_one(0, News::Join))
        };
        model.produce(News::Join);
        model.sleep.leave();
        if model.has_work() {
            model.unpark(model.sleep.wake_one(News::Join));
        }
        worker.join().unwrap();
        assert_eq!(model.done.load(Ordering::Relaxed), 1);
    });
}

/// Notes that it was woken.
struct Bell(std::sync::atomic::AtomicBool);

impl std::task::Wake for Bell {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn a_unit_runs_or_is_cancelled_and_its_waiter_is_told() {
    loom::model(|| {
        let model = Arc::new((Slot::<u32, u32>::waiting(7), AtomicUsize::new(0)));
        let bell = std::sync::Arc::new(Bell(std::sync::atomic::AtomicBool::new(false)));
        let runner = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                if let Some(body) = model.0.begin() {
                    model.1.fetch_add(1, Ordering::Relaxed);
                    model.0.finish(Ok(body));
                } else {
                    assert!(model.0.is_cancelled(), "whoever finds nothing knows why");
                }
            })
        };
        let canceller = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                if model.0.cancel() {
                    model.1.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let asked = model
            .0
            .add_waiter(Waiter::Task(std::sync::Arc::clone(&bell).into()));
        runner.join().unwrap();
        canceller.join().unwrap();
        assert_eq!(model.1.load(Ordering::Relaxed), 1, "either, not both");
        assert!(model.0.is_over());
        assert_eq!(asked, bell.0.load(std::sync::atomic::Ordering::SeqCst));
    });
}

/// A waiter and the runner of what it waits for, as in `wait.rs`; a third thread, a stranger, is
/// parked for want of work. What the runner shows is one flag.
struct FollowModel {
    sleep: Sleep,
    followers: Followers,
    latch: Latch,
    shown: AtomicBool,
    taken: AtomicUsize,
    waiter: Signal,
}

const RUNNER: usize = 0;
const WAITER: usize = 1;
const STRANGER: usize = 2;

impl FollowModel {
    /// Runner and waiter are awake, as many as may be, and the stranger sleeps.
    fn new() -> Self {
        let sleep = Sleep::new(2, 3);
        sleep.enter();
        sleep.start_searching();
        assert_eq!(sleep.lie_down(STRANGER), LieDown::LookOnceMore);
        sleep.enter();
        sleep.enter();
        Self {
            sleep,
            followers: Followers::new(),
            latch: Latch::new(),
            shown: AtomicBool::new(false),
            taken: AtomicUsize::new(0),
            waiter: Signal::default(),
        }
    }

    fn take(&self) -> bool {
        let taken = self.shown.swap(false, Ordering::AcqRel);
        self.taken.fetch_add(usize::from(taken), Ordering::Relaxed);
        taken
    }

    /// `Worker::tell`. Returns whom it woke for want of better.
    fn show(&self) -> Option<usize> {
        // A swap: loom lets a plain store come between the two halves of the swap in `take`.
        self.shown.swap(true, Ordering::AcqRel);
        loom::sync::atomic::fence(Ordering::SeqCst);
        if let Some(heir) = self.followers.call_heir() {
            assert_eq!(heir, WAITER);
            self.sleep.enter();
            self.waiter.unpark();
        }
        let called = self.followers.call_others();
        let stranger = self.sleep.notify_after_fence(News::Join);
        assert!(!called.contains(RUNNER) && !called.contains(STRANGER));
        if !called.is_empty() {
            self.waiter.unpark();
        }
        stranger
    }

    fn settle(&self) {
        if self.latch.settle(Settled::Done) {
            self.waiter.unpark();
        }
    }

    /// `Worker::wait_for`.
    fn wait(&self, as_heir: bool) {
        while self.latch.settled().is_none() {
            if !self.take() {
                self.nap(as_heir);
            }
        }
    }

    fn is_called(&self, as_heir: bool) -> bool {
        if as_heir {
            !self.followers.is_heir(WAITER)
        } else {
            !self.followers.contains(WAITER)
        }
    }

    fn nap(&self, as_heir: bool) {
        if as_heir {
            assert!(self.followers.become_heir(WAITER));
        } else {
            self.followers.add(WAITER);
        }
        loom::sync::atomic::fence(Ordering::SeqCst);
        let is_idle = !self.shown.load(Ordering::Relaxed) && !self.is_called(as_heir);
        let sleeps = is_idle && self.latch.announce_sleep();
        if sleeps {
            self.sleep.leave();
            while self.latch.settled().is_none() && !self.is_called(as_heir) {
                self.waiter.park();
            }
            self.latch.announce_awake();
        }
        let is_counted = if as_heir {
            self.followers.resign(WAITER)
        } else {
            self.followers.remove(WAITER);
            false
        };
        if sleeps && !is_counted {
            self.sleep.enter();
        } else if is_counted && !sleeps {
            self.sleep.leave();
        }
    }
}

/// The runner shows a unit, takes it back if it still can, and is done. Every interleaving with at
/// most two preemptions.
fn follow_model(as_heir: bool) {
    explore(2, move || {
        let model = Arc::new(FollowModel::new());
        let runner = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                let stranger = model.show();
                if as_heir && stranger.is_some() {
                    let is_there = model.shown.load(Ordering::Relaxed);
                    assert!(!is_there, "nobody is woken before the heir has been there");
                }
                model.take();
                model.settle();
                stranger
            })
        };
        model.wait(as_heir);
        let stranger = runner.join().unwrap();
        assert_eq!(model.taken.load(Ordering::Relaxed), 1, "taken once");
        if stranger.is_none() {
            assert_eq!(model.sleep.idle(), 0, "both are counted as awake");
            assert!(!model.sleep.is_crowded(), "and nobody twice");
        }
    });
}

#[test]
fn a_waiting_heir_is_called_counted_once_and_nobody_in_its_stead() {
    follow_model(true);
}

#[test]
fn a_waiting_follower_is_called_and_wakes_at_the_end() {
    follow_model(false);
}

#[test]
fn a_heir_is_woken_by_what_is_shown_alone() {
    loom::model(|| {
        let model = Arc::new(FollowModel::new());
        let runner = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.show())
        };
        // No end comes before the unit is taken: if the call were lost, this would never return.
        while !model.take() {
            model.nap(true);
        }
        assert_eq!(runner.join().unwrap(), None);
        model.settle();
    });
}

/// A slab reduced to one cell per block and the count.
struct SlabModel {
    live: Live,
    blocks: Vec<UnsafeCell<u32>>,
    /// How many blocks were handed over.
    ready: AtomicUsize,
    owners: AtomicUsize,
}

impl SlabModel {
    /// Whoever owns the slab may write to all of it: loom reports it if somebody still uses a block.
    fn reuse_if(&self, is_ours: bool) {
        if is_ours {
            self.owners.fetch_add(1, Ordering::Relaxed);
            for block in &self.blocks {
                // SAFETY: the slab is ours, which is what is being checked.
                block.with_mut(|value| unsafe { *value = 0 });
            }
        }
    }
}

/// One thread cuts blocks and lets the slab go, another uses them and gives them back.
fn slab_model(blocks: usize) {
    loom::model(move || {
        let model = Arc::new(SlabModel {
            live: Live::in_hand(),
            blocks: (0..blocks).map(|_| UnsafeCell::new(0)).collect(),
            ready: AtomicUsize::new(0),
            owners: AtomicUsize::new(0),
        });
        let taker = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                for index in 0..model.ready.load(Ordering::Acquire) {
                    // SAFETY: the block was handed over.
                    model.blocks[index].with(|value| assert_eq!(unsafe { *value }, 7));
                    model.reuse_if(model.live.give_back_block());
                }
            })
        };
        for block in &model.blocks {
            // SAFETY: the slab is in our hand and this block not yet handed over.
            block.with_mut(|value| unsafe { *value = 7 });
            model.ready.fetch_add(1, Ordering::Release);
        }
        model.reuse_if(model.live.let_go(blocks));
        taker.join().unwrap();
        // What the taker did not see is given back here.
        while model.owners.load(Ordering::Relaxed) == 0 {
            model.reuse_if(model.live.give_back_block());
        }
        assert_eq!(model.owners.load(Ordering::Relaxed), 1, "one owner");
    });
}

#[test]
fn a_slab_is_used_again_by_one_thread_when_nobody_uses_its_blocks() {
    slab_model(1);
    slab_model(2);
}

impl std::task::Wake for Signal {
    fn wake(self: std::sync::Arc<Self>) {
        self.unpark();
    }
}

#[test]
fn whoever_waits_for_a_handle_from_outside_gets_its_result() {
    loom::model(|| {
        let slot = Arc::new(Slot::<u32, u32>::waiting(7));
        let runner = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || {
                let body = slot.begin().expect("nobody cancels");
                slot.finish(Ok(body + 1));
            })
        };
        let signal = std::sync::Arc::new(Signal::default());
        while slot.add_waiter(Waiter::Task(std::sync::Arc::clone(&signal).into())) {
            signal.park();
        }
        // SAFETY: only this thread takes.
        assert_eq!(unsafe { slot.take() }.unwrap(), 8);
        runner.join().unwrap();
    });
}

/// Two workers that run detached units: the first unit makes a second one, which the other worker
/// runs. Whoever asks meanwhile whether all is done gets the right answer.
#[test]
fn all_is_done_only_when_the_last_detached_unit_has_run() {
    loom::model(|| {
        struct Model {
            made: [Count; 2],
            done: [Count; 2],
            passed_on: AtomicBool,
            ran: AtomicUsize,
        }
        let model = Arc::new(Model {
            made: [Count::default(), Count::default()],
            done: [Count::default(), Count::default()],
            passed_on: AtomicBool::new(false),
            ran: AtomicUsize::new(0),
        });
        model.made[0].add(1);
        let worker = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                // The child is counted before it can run, the parent after.
                model.made[0].add(1);
                model.passed_on.store(true, Ordering::Release);
                model.ran.fetch_add(1, Ordering::Relaxed);
                model.done[0].add(1);
            })
        };
        let other = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                if model.passed_on.load(Ordering::Acquire) {
                    model.ran.fetch_add(1, Ordering::Relaxed);
                    model.done[1].add(1);
                }
            })
        };
        let sum = |counts: &[Count; 2]| counts[0].get() + counts[1].get();
        if all_done(|| sum(&model.done), || sum(&model.made)) {
            assert_eq!(model.ran.load(Ordering::Relaxed), 2, "both have run");
        }
        worker.join().unwrap();
        other.join().unwrap();
    });
}

/// A worker that waits for another pool sleeps like one without work; whoever ends its wait comes after
/// the change, and the list of sleepers has a lock.
#[test]
fn a_worker_that_waits_for_another_pool_wakes_at_the_end() {
    loom::model(|| {
        let model = Arc::new((SleepModel::new(1, 1), AtomicBool::new(false)));
        model.0.sleep.enter();
        let other = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                model.1.store(true, Ordering::Release);
                if model.0.sleep.wake(0) {
                    model.0.signals[0].unpark();
                }
            })
        };
        let (pool, is_over) = &*model;
        pool.sleep.start_searching();
        while !is_over.load(Ordering::Acquire) {
            let _may_look = pool.sleep.lie_down(0);
            if is_over.load(Ordering::Acquire) && pool.sleep.stay_awake(0) {
                continue;
            }
            while !pool.sleep.take_woken(0) {
                pool.signals[0].park();
            }
        }
        let _was_last = pool.sleep.stop_searching();
        other.join().unwrap();
        assert!(!pool.sleep.is_crowded() && pool.sleep.idle() == 0);
    });
}

/// The only thread goes to sleep in a wait while a unit comes in that it may not run: one of the two sees
/// that somebody has to stand in.
#[test]
fn a_unit_finds_a_stand_in_when_everybody_waits() {
    loom::model(|| {
        let model = Arc::new((SleepModel::new(1, 1), AtomicUsize::new(0)));
        model.0.sleep.enter();
        let producer = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                let (pool, stand_ins) = &*model;
                pool.work.fetch_add(1, Ordering::Release);
                loom::sync::atomic::fence(Ordering::SeqCst);
                let woken = pool.sleep.notify_after_fence(News::Spawned);
                if woken.is_none() && pool.sleep.lacks_a_thread() {
                    stand_ins.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let (pool, stand_ins) = &*model;
        pool.sleep.leave();
        if pool.has_work() {
            let woken = pool.sleep.wake_one(News::Spawned);
            if woken.is_none() && pool.sleep.lacks_a_thread() {
                stand_ins.fetch_add(1, Ordering::Relaxed);
            }
        }
        producer.join().unwrap();
        assert_ne!(stand_ins.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn the_last_unit_of_a_scope_from_elsewhere_wakes_its_caller_once() {
    explore(2, || {
        let scope = Arc::new((Remaining::new(), UnsafeCell::new([0; 2]), Signal::default()));
        let unit = |index: usize| {
            scope.0.add();
            let scope = Arc::clone(&scope);
            thread::spawn(move || {
                // SAFETY: each unit has a place of its own.
                scope
                    .1
                    .with(|places| unsafe { places.cast::<i32>().cast_mut().add(index).write(1) });
                let last = scope.0.done(|| Arc::clone(&scope));
                last.is_some_and(|scope| {
                    scope.2.unpark();
                    true
                })
            })
        };
        let units = [unit(0), unit(1)];
        let was_last = scope.0.done(|| ()).is_some();
        if !was_last {
            scope.2.park();
        }
        assert!(scope.0.is_over());
        // SAFETY: everything is over.
        assert_eq!(scope.1.with(|places| unsafe { *places }), [1, 1]);
        let woke = units.map(|unit| usize::from(unit.join().unwrap()));
        assert_eq!(woke[0] + woke[1] + usize::from(was_last), 1);
    });
}

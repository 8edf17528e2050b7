//! Exhaustive model checks of the lock-free parts, one per promise.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p loxley-pool --test loom`; the long ones with
//! `-- --include-ignored`. Without the flag this file is empty. The modules under test are
//! compiled into this file, on loom's atomics.
#![cfg(loom)]
#![expect(unsafe_code, reason = "the modules under test use it")]
#![expect(dead_code, reason = "a model uses only part of each module")]

#[path = "../src/deque.rs"]
mod deque;
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

use std::ptr::NonNull;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use deque::{Deque, DequeOwner};
use injector::Injector;
use latch::{Latch, Settled};
use priority::Priority;
use ring::{Ring, RingOwner, Steal};
use sleep::{LieDown, Sleep};
use slot::{Slot, Waiter};
use tally::Tally;

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

#[test]
fn an_injector_gives_each_unit_to_one_taker() {
    loom::model(|| {
        let model = Arc::new((Injector::new(), Book::new(3)));
        let producer = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                model.0.push(Priority::Normal, model.1.entry(0));
                model.0.push(Priority::Highest, model.1.entry(1));
            })
        };
        model.0.push(Priority::Normal, model.1.entry(2));
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
                model.0.push(Priority::Normal, model.1.entry(0));
                model.0.push(Priority::High, model.1.entry(1));
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

/// A pool reduced to its sleep: one flag is the queue.
struct SleepModel {
    sleep: Sleep,
    work: AtomicUsize,
    done: AtomicUsize,
    /// One per seat. Not `thread::park`: loom forgets an unpark when the thread blocks on a lock
    /// before it parks.
    signals: Vec<(loom::sync::Mutex<bool>, loom::sync::Condvar)>,
}

impl SleepModel {
    fn new(limit: usize, seats: usize) -> Self {
        Self {
            sleep: Sleep::new(limit, seats),
            work: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            signals: (0..seats).map(|_| Default::default()).collect(),
        }
    }

    fn unpark(&self, seat: Option<usize>) {
        if let Some(seat) = seat {
            let (signal, condvar) = &self.signals[seat];
            *signal.lock().unwrap() = true;
            condvar.notify_one();
        }
    }

    fn park(&self, seat: usize) {
        let (signal, condvar) = &self.signals[seat];
        let mut signalled = signal.lock().unwrap();
        while !*signalled {
            signalled = condvar.wait(signalled).unwrap();
        }
        *signalled = false;
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

    fn produce(&self) {
        self.work.fetch_add(1, Ordering::Release);
        self.unpark(self.sleep.notify());
    }

    /// Runs one unit, sleeping until there is one.
    fn serve_one(&self, seat: usize) {
        self.sleep.enter();
        self.sleep.start_searching();
        while !self.try_work() {
            let look = self.sleep.lie_down(seat) == LieDown::LookOnceMore;
            if look && self.has_work() && self.sleep.stay_awake(seat) {
                continue;
            }
            while !self.sleep.take_woken(seat) {
                self.park(seat);
            }
        }
        if self.sleep.stop_searching() && self.has_work() {
            self.unpark(self.sleep.wake_one());
        }
        self.sleep.leave();
        if self.has_work() {
            self.unpark(self.sleep.wake_one());
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
        model.produce();
        worker.join().unwrap();
        assert_eq!(model.done.load(Ordering::Relaxed), 1);
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
        model.produce();
        model.produce();
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(model.done.load(Ordering::Relaxed), 2);
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

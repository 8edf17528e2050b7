//! The whole pool under a scheduler that decides at random who moves at every step.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p loxley-pool --test shuttle`; without the flag
//! this file is empty. loom proves the parts, every interleaving of them; this looks for mistakes in
//! their play together: guests, stand-ins, waiting, the end of a pool. It finds deadlocks and lost
//! wake-ups as well as wrong results, but knows no weak memory: every atomic is `SeqCst` here.
//!
//! `LOXLEY_SHUTTLE=n` tries `n` schedules of each test instead of a few. A failure prints a schedule
//! that `shuttle::replay` runs again.
#![cfg(shuttle)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use loxley_pool::raw::{self, RawPool, RawScope, StandIns, Turns};
use loxley_pool::{Patience, Pool, blocking, join};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};

/// Runs a scenario under many schedules: at random, and with few but well-placed preemptions.
fn explore(scenario: impl Fn() + Send + Sync + 'static) {
    let schedules = std::env::var("LOXLEY_SHUTTLE").ok();
    let schedules = schedules.map_or(200, |count| count.parse().expect("a number"));
    let scenario = Arc::new(scenario);
    let config = || {
        let mut config = Config::new();
        config.stack_size = 256 * 1024;
        config
    };
    let random = Arc::clone(&scenario);
    Runner::new(RandomScheduler::new(schedules), config()).run(move || random());
    Runner::new(PctScheduler::new(3, schedules), config()).run(move || scenario());
}

/// A pool that does not spin: a scheduler would follow every turn.
fn pool(workers: usize) -> Pool {
    let patience = Patience {
        searches: 1,
        pauses: 0,
        ..Patience::default()
    };
    let builder = Pool::builder().workers(workers).backoff(patience);
    builder.metrics(false).build().expect("threads")
}

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

#[test]
fn joins_of_guests_on_a_shared_pool() {
    explore(|| {
        let pool = Arc::new(pool(2));
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.install(|| fib(4)))
        };
        assert_eq!(pool.install(|| fib(5)), 5);
        assert_eq!(other.join().unwrap(), 3);
    });
}

#[test]
fn a_scope_whose_units_make_units_and_end_elsewhere() {
    explore(|| {
        let pool = pool(2);
        let count = AtomicUsize::new(0);
        pool.scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|scope| {
                    scope.spawn(|_| {
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                    join(|| (), || count.fetch_add(1, Ordering::Relaxed));
                });
            }
        });
        assert_eq!(count.into_inner(), 4);
    });
}

#[test]
fn a_scope_that_is_fed_from_outside_while_its_worker_waits() {
    explore(|| {
        let pool = pool(1);
        let count = Arc::new(AtomicUsize::new(0));
        let inner = Arc::clone(&count);
        pool.scope(|scope| {
            // Keeps the scope open on another thread, which spawns into it.
            scope.spawn(move |scope| {
                let count = &inner;
                for _ in 0..2 {
                    let count = Arc::clone(count);
                    scope.spawn(move |_| {
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
        });
        assert_eq!(count.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn detached_units_are_over_when_the_pool_says_so() {
    explore(|| {
        let pool = Arc::new(pool(2));
        let count = Arc::new(AtomicUsize::new(0));
        let submit = |pool: &Pool, count: &Arc<AtomicUsize>| {
            let count = Arc::clone(count);
            pool.spawn_detached(move || {
                let inner = Arc::clone(&count);
                drop(loxley_pool::spawn(move || {
                    inner.fetch_add(1, Ordering::Relaxed);
                }));
                count.fetch_add(1, Ordering::Relaxed);
            });
        };
        submit(&pool, &count);
        let other = {
            let (pool, count) = (Arc::clone(&pool), Arc::clone(&count));
            thread::spawn(move || submit(&pool, &count))
        };
        pool.wait_idle();
        assert!(count.load(Ordering::Relaxed) >= 2, "its own are over");
        other.join().unwrap();
        pool.wait_idle();
        assert_eq!(count.load(Ordering::Relaxed), 4);
    });
}

#[test]
fn dropping_a_pool_runs_everything() {
    explore(|| {
        let count = Arc::new(AtomicUsize::new(0));
        let pool = pool(2);
        for _ in 0..2 {
            let count = Arc::clone(&count);
            pool.spawn_detached(move || {
                let inner = Arc::clone(&count);
                drop(loxley_pool::spawn(move || {
                    inner.fetch_add(1, Ordering::Relaxed);
                }));
            });
        }
        drop(pool);
        assert_eq!(count.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_stand_in_polls_what_the_only_worker_waits_for_while_the_pool_ends() {
    explore(|| {
        let pool = pool(1);
        let group = pool.group(1);
        let handle = pool.spawn(move || group.spawn_future(async { 5 }).wait());
        drop(pool);
        assert_eq!(handle.wait(), 5);
    });
}

#[test]
fn a_blocked_worker_is_replaced() {
    explore(|| {
        let pool = pool(1);
        let (sender, receiver) = shuttle::sync::mpsc::channel();
        let blocked = pool.spawn(move || blocking(|| receiver.recv().unwrap()));
        pool.spawn_detached(move || sender.send(3).unwrap());
        assert_eq!(blocked.wait(), 3);
    });
}

#[test]
fn waits_inside_blocking_sections() {
    explore(|| {
        let pool = pool(1);
        let group = pool.group(1);
        let handle = pool.spawn(move || {
            blocking(|| blocking(|| group.spawn_future(async { 2 }).wait() + join(|| 1, || 1).0))
        });
        assert_eq!(handle.wait(), 3);
    });
}

#[test]
fn a_worker_waits_for_a_unit_that_another_runs_and_helps_with_its_parts() {
    explore(|| {
        let pool = Arc::new(pool(2));
        let unit = pool.spawn(|| fib(3));
        let waiter = pool.spawn(move || unit.wait() + 1);
        assert_eq!(waiter.wait(), 3);
    });
}

#[test]
fn a_unit_runs_or_is_cancelled_and_a_group_goes_on() {
    explore(|| {
        let pool = pool(1);
        let group = pool.group(1);
        let count = Arc::new(AtomicUsize::new(0));
        let first = {
            let count = Arc::clone(&count);
            group.spawn(move || count.fetch_add(1, Ordering::Relaxed))
        };
        let second = group.spawn(|| 2);
        let cancelled = first.cancel();
        assert_eq!(second.wait(), 2);
        pool.wait_idle();
        assert_eq!(count.load(Ordering::Relaxed), usize::from(!cancelled));
    });
}

#[test]
fn a_lock_held_across_a_join() {
    explore(|| {
        let pool = pool(2);
        let lock = shuttle::sync::Mutex::new(0);
        pool.scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|_| {
                    let mut guard = lock.lock().unwrap();
                    *guard += fib(3);
                });
            }
        });
        assert_eq!(lock.into_inner().unwrap(), 4);
    });
}

/// The longer half is the second at first, then the first, so the half to begin with changes, in
/// schedules in which it is stolen and waited for.
#[test]
fn joins_of_which_now_one_and_now_the_other_half_is_longer() {
    explore(|| {
        let pool = pool(2);
        pool.install(|| {
            for _ in 0..2 {
                assert_eq!(join(|| fib(1), || fib(4)), (1, 3));
            }
            for _ in 0..2 {
                assert_eq!(join(|| fib(4), || fib(1)), (3, 1));
            }
        });
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.install(|| {
                let _: (u64, u64) = join(|| fib(1), || fib(4));
                let thrown = |what: &'static str| std::panic::resume_unwind(Box::new(what));
                let _: ((), ()) = join(|| thrown("first"), || thrown("second"));
            });
        }));
        let thrown = caught.expect_err("both halves panic");
        assert_eq!(thrown.downcast_ref::<&str>(), Some(&"first"));
    });
}

#[test]
fn a_panic_in_a_stolen_half_reaches_its_owner() {
    explore(|| {
        let pool = pool(2);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.join(|| fib(3), || std::panic::resume_unwind(Box::new("thrown")))
        }));
        let thrown = caught.expect_err("the second half panics");
        assert_eq!(thrown.downcast_ref::<&str>(), Some(&"thrown"));
        assert_eq!(pool.install(|| fib(3)), 2);
    });
}

/// The drop-in's pool: its threads are the caller's.
fn raw_pool(threads: usize) -> (RawPool, Vec<thread::JoinHandle<()>>) {
    let stand_ins = StandIns {
        count: 1,
        stack_size: None,
    };
    let pool = RawPool::new(threads, stand_ins, Arc::new(|_| ()));
    let serve = |index| {
        let pool = pool.clone();
        thread::spawn(move || pool.serve(index, || (), || ()))
    };
    let threads = (0..threads).map(serve).collect();
    (pool, threads)
}

fn end(pool: &RawPool, threads: Vec<thread::JoinHandle<()>>) {
    pool.let_go();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn the_drop_in_waits_across_pools_while_each_goes_on() {
    explore(|| {
        let ((first, first_threads), (second, second_threads)) = (raw_pool(1), raw_pool(1));
        let result = first.run(|_| second.run(|_| first.run(|_| fib(3))));
        assert_eq!(result, 2);
        end(&first, first_threads);
        end(&second, second_threads);
    });
}

#[test]
fn the_drop_in_ends_its_scopes_from_elsewhere_and_its_broadcasts() {
    explore(|| {
        let (pool, threads) = raw_pool(2);
        let count = AtomicUsize::new(0);
        RawScope::in_place(pool.clone(), Turns::Oldest, |scope| {
            for _ in 0..3 {
                scope.spawn(|scope| {
                    scope.spawn(|_| {
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                });
            }
        });
        assert_eq!(count.into_inner(), 3);
        assert_eq!(pool.broadcast(|index| index), [0, 1]);
        assert_eq!(pool.run(|_| pool.broadcast(|index| index)), [0, 1]);
        end(&pool, threads);
    });
}

#[test]
fn the_drop_in_runs_what_was_spawned_before_it_ends() {
    explore(|| {
        let (pool, threads) = raw_pool(2);
        let count = Arc::new(AtomicUsize::new(0));
        for turn in 0..3 {
            let (inner, count) = (pool.clone(), Arc::clone(&count));
            pool.keep();
            let body = move || {
                inner.keep();
                inner.spawn(move || {
                    count.fetch_add(1, Ordering::Relaxed);
                });
            };
            if turn == 1 {
                pool.spawn_fifo(body);
            } else {
                pool.spawn(body);
            }
        }
        end(&pool, threads);
        assert_eq!(count.load(Ordering::Relaxed), 3);
    });
}

/// A stand-in runs what those who wait may not, and has the number of one of them when it asks.
#[test]
fn the_drop_in_never_gives_one_number_to_two_threads_that_run() {
    explore(|| {
        let (pool, threads) = raw_pool(2);
        let in_use = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let use_number = |in_use: &[AtomicBool; 2]| {
            let number = raw::current_index().expect("a thread of the pool");
            assert!(
                !in_use[number].swap(true, Ordering::SeqCst),
                "{number} twice"
            );
            thread::yield_now();
            in_use[number].store(false, Ordering::SeqCst);
        };
        for _ in 0..2 {
            let in_use = Arc::clone(&in_use);
            pool.keep();
            pool.spawn(move || use_number(&in_use));
        }
        pool.run(|_| {
            RawScope::in_place(pool.clone(), Turns::Newest, |scope| {
                scope.spawn(|_| use_number(&in_use));
                use_number(&in_use);
            });
            use_number(&in_use);
        });
        end(&pool, threads);
    });
}

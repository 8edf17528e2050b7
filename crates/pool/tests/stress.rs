//! Many short pools, too many workers, panics everywhere, locks across joins, deep nesting.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use loxley_pool::{Pool, join};

#[path = "support/patience.rs"]
mod patience;
use patience::within_a_minute;

fn pool(workers: usize) -> Pool {
    Pool::builder().workers(workers).build().expect("threads")
}

/// `LOXLEY_TEST_LONG` makes the sweeps ten times as long.
fn rounds(short: usize) -> usize {
    if std::env::var_os("LOXLEY_TEST_LONG").is_some() {
        10 * short
    } else {
        short
    }
}

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

#[test]
fn thousands_of_short_pools() {
    within_a_minute(|| {
        for round in 0..rounds(2000) {
            let pool = pool(1 + round % 4);
            match round % 4 {
                0 => assert_eq!(pool.install(|| fib(8)), 21),
                1 => (0..8).for_each(|_| pool.spawn_detached(|| ())),
                2 => assert_eq!(pool.spawn(move || round).wait(), round),
                _ => {}
            }
        }
    });
}

#[test]
fn dropping_a_pool_runs_what_was_spawned() {
    within_a_minute(|| {
        for round in 0..rounds(200) {
            let count = Arc::new(AtomicUsize::new(0));
            let pool = pool(1 + round % 3);
            for _ in 0..50 {
                let count = count.clone();
                pool.spawn_detached(move || {
                    let inner = count.clone();
                    drop(loxley_pool::spawn(move || {
                        inner.fetch_add(1, Ordering::Relaxed)
                    }));
                    count.fetch_add(1, Ordering::Relaxed);
                });
            }
            drop(pool);
            assert_eq!(count.load(Ordering::Relaxed), 100);
        }
    });
}

#[test]
fn eight_workers_on_few_cores_with_nested_scopes() {
    within_a_minute(|| {
        let pool = pool(8);
        for _ in 0..rounds(30) {
            let count = AtomicUsize::new(0);
            pool.scope(|outer| {
                for _ in 0..16 {
                    outer.spawn(|outer| {
                        loxley_pool::scope(|inner| {
                            for _ in 0..8 {
                                inner.spawn(|_| {
                                    fib(6);
                                    count.fetch_add(1, Ordering::Relaxed);
                                });
                            }
                            // To the outer scope, from inside the inner one.
                            outer.spawn(|_| {
                                count.fetch_add(1, Ordering::Relaxed);
                            });
                        });
                    });
                }
            });
            assert_eq!(count.into_inner(), 16 * 9);
        }
    });
}

#[test]
fn many_threads_call_into_one_pool() {
    within_a_minute(|| {
        let pool = pool(2);
        std::thread::scope(|threads| {
            for _ in 0..16 {
                threads.spawn(|| {
                    for _ in 0..rounds(20) {
                        assert_eq!(pool.install(|| fib(12)), 144);
                    }
                });
            }
        });
    });
}

#[test]
fn a_scope_may_be_used_by_foreign_threads() {
    within_a_minute(|| {
        let pool = pool(2);
        let count = AtomicUsize::new(0);
        pool.scope(|scope| {
            std::thread::scope(|threads| {
                for _ in 0..4 {
                    threads.spawn(|| {
                        for _ in 0..100 {
                            scope.spawn(|_| {
                                count.fetch_add(1, Ordering::Relaxed);
                            });
                        }
                    });
                }
            });
        });
        assert_eq!(count.into_inner(), 400);
    });
}

/// The oldest complaint about work stealing: a worker that waits in a join takes up an unrelated
/// unit that wants a lock the join's caller holds.
#[test]
fn a_lock_held_across_a_join_does_not_deadlock() {
    within_a_minute(|| {
        for workers in [2, 3, 8] {
            let pool = pool(workers);
            let locks: Vec<Mutex<u64>> = (0..3).map(|_| Mutex::new(0)).collect();
            pool.par_for(0..rounds(300), |i| {
                let mut guard = locks[i % 3].lock().unwrap();
                let (a, b) = join(|| fib(9), || fib(10));
                *guard += a + b;
            });
            let total: u64 = locks.iter().map(|lock| *lock.lock().unwrap()).sum();
            assert_eq!(total, rounds(300) as u64 * (34 + 55));
        }
    });
}

#[test]
fn a_lock_held_across_a_scope_does_not_deadlock() {
    within_a_minute(|| {
        let pool = pool(4);
        let lock = Mutex::new(0);
        pool.scope(|outer| {
            for _ in 0..rounds(100) {
                outer.spawn(|_| {
                    let mut guard = lock.lock().unwrap();
                    let count = AtomicUsize::new(0);
                    loxley_pool::scope(|inner| {
                        for _ in 0..4 {
                            inner.spawn(|_| {
                                count.fetch_add(1, Ordering::Relaxed);
                            });
                        }
                    });
                    *guard += count.into_inner();
                });
            }
        });
        assert_eq!(lock.into_inner().unwrap(), 4 * rounds(100));
    });
}

/// Waiting workers run only descendants of what they wait for, so the stack does not grow with the
/// number of units, only with the depth of the program's own recursion.
#[test]
fn waiting_does_not_pile_up_foreign_work_on_the_stack() {
    within_a_minute(|| {
        let pool = Pool::builder()
            .workers(4)
            .stack_size(256 * 1024)
            .build()
            .expect("threads");
        let handle = {
            let pool = Arc::new(pool);
            let inner = Arc::clone(&pool);
            let handle = pool.spawn(move || {
                inner.scope(|scope| {
                    for _ in 0..rounds(20_000) {
                        scope.spawn(|_| {
                            let big = [0_u8; 1024];
                            join(|| std::hint::black_box(&big).len(), || fib(3));
                        });
                    }
                });
            });
            (pool, handle)
        };
        handle.1.wait();
    });
}

#[test]
fn a_deep_recursion_of_joins_fits_on_the_stack() {
    within_a_minute(|| {
        fn deep(levels: usize) -> usize {
            if levels == 0 {
                return 0;
            }
            let (a, b) = join(|| deep(levels - 1), || 1);
            a + b
        }
        let pool = Pool::builder()
            .workers(2)
            .stack_size(16 << 20)
            .build()
            .expect("threads");
        let levels = 10_000;
        assert_eq!(pool.spawn(move || deep(levels)).wait(), levels);
    });
}

#[test]
fn panics_in_every_position_of_a_join() {
    within_a_minute(|| {
        for workers in [1, 2, 8] {
            let pool = pool(workers);
            for round in 0..rounds(200) {
                let result = catch_unwind(AssertUnwindSafe(|| {
                    pool.join(
                        || {
                            if round % 3 != 1 {
                                panic!("first")
                            } else {
                                fib(5)
                            }
                        },
                        || {
                            if round % 3 != 0 {
                                panic!("second")
                            } else {
                                fib(5)
                            }
                        },
                    )
                }));
                let panic = result.expect_err("one of them panicked");
                let text = panic.downcast_ref::<&str>().copied();
                let expected = if round % 3 == 1 { "second" } else { "first" };
                assert_eq!(text, Some(expected), "the first closure's panic wins");
            }
            assert_eq!(pool.install(|| fib(10)), 55, "the pool goes on");
        }
    });
}

#[test]
fn panics_in_scopes_reach_the_caller_after_all_units_are_over() {
    within_a_minute(|| {
        for workers in [1, 2, 8] {
            let pool = pool(workers);
            for position in 0..rounds(50) {
                let running = AtomicUsize::new(0);
                let result = catch_unwind(AssertUnwindSafe(|| {
                    pool.scope(|scope| {
                        for i in 0..50 {
                            let running = &running;
                            scope.spawn(move |_| {
                                running.fetch_add(1, Ordering::SeqCst);
                                let _leave = Leave(running);
                                assert!(i != position % 50, "unit {i}");
                            });
                        }
                        assert!(position % 7 != 0, "the body");
                    });
                }));
                assert!(result.is_err());
                assert_eq!(
                    running.load(Ordering::SeqCst),
                    0,
                    "a unit outlived its scope"
                );
            }
        }
    });
}

struct Leave<'a>(&'a AtomicUsize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn panics_in_loops_and_detached_units_do_not_wedge_the_pool() {
    within_a_minute(|| {
        let seen = Arc::new(AtomicUsize::new(0));
        let pool = {
            let seen = seen.clone();
            Pool::builder()
                .workers(4)
                .on_panic(move |_| {
                    seen.fetch_add(1, Ordering::Relaxed);
                })
                .build()
                .expect("threads")
        };
        for position in 0..20 {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.par_for(0..1000, |i| assert!(i != position * 50, "item"));
            }));
            assert!(result.is_err());
            pool.spawn_detached(|| panic!("detached"));
        }
        pool.wait_idle();
        assert_eq!(seen.load(Ordering::Relaxed), 20);
        assert_eq!(pool.metrics().panics, 20);
        assert_eq!(pool.map_reduce(0..100, || 0, |i| i, |a, b| a + b), 4950);
    });
}

/// Everything that calls foreign code, with foreign code that panics.
#[test]
fn panics_in_every_other_position_reach_the_caller() {
    type Attempt = fn(&Pool);
    let attempts: &[(&str, Attempt)] = &[
        ("install", |pool| pool.install(|| panic!("boom"))),
        ("measure", |pool| pool.measure(|| panic!("boom")).0),
        ("map", |pool| {
            drop(pool.par_map(0..500, |i| assert!(i != 333, "boom")));
        }),
        ("combine", |pool| {
            let combine = |a: usize, b: usize| if b == 400 { panic!("boom") } else { a + b };
            pool.map_reduce(0..500_usize, || 0, |i| i, combine);
        }),
        ("chunks", |pool| {
            pool.par_chunks(&[0; 100], 7, |i, _| assert!(i != 9, "boom"));
        }),
        ("mutable chunks", |pool| {
            pool.par_chunks_mut(&mut [0; 100], 7, |i, _| assert!(i != 9, "boom"));
        }),
        ("partition", |pool| {
            let items: Vec<usize> = (0..100).collect();
            let partition = loxley_pool::Partition::RoundRobin;
            let result =
                pool.par_for_partitioned(&items, &partition, |&i| assert!(i != 50, "boom"));
            result.expect("it panics before");
        }),
        ("stable sort", |pool| {
            let mut items: Vec<u32> = (0..30_000).rev().map(|i| i ^ 0x55).collect();
            pool.sort_by(&mut items, |a, b| {
                if *a == 777 { panic!("boom") } else { a.cmp(b) }
            });
        }),
        ("unstable sort", |pool| {
            let mut items: Vec<u32> = (0..30_000).rev().map(|i| i ^ 0x55).collect();
            pool.sort_unstable_by(&mut items, |a, b| {
                if *a == 777 { panic!("boom") } else { a.cmp(b) }
            });
        }),
        ("handle", |pool| pool.spawn(|| panic!("boom")).wait()),
        ("group", |pool| {
            pool.group(1).spawn(|| panic!("boom")).wait();
        }),
        ("blocking", |pool| {
            pool.install(|| loxley_pool::blocking(|| panic!("boom")));
        }),
        ("block on", |pool| pool.block_on(async { panic!("boom") })),
        ("nested scopes and joins", |pool| {
            pool.scope(|scope| {
                scope.spawn(|_| {
                    join(
                        || fib(6),
                        || loxley_pool::scope(|inner| inner.spawn(|_| panic!("boom"))),
                    );
                });
            });
        }),
    ];
    within_a_minute(move || {
        for workers in [1, 2, 5] {
            let pool = pool(workers);
            for _ in 0..rounds(5) {
                for (position, attempt) in attempts {
                    let result = catch_unwind(AssertUnwindSafe(|| attempt(&pool)));
                    let panic = result.expect_err(position);
                    let text = panic.downcast_ref::<&str>().copied();
                    assert_eq!(text, Some("boom"), "{position}");
                    assert_eq!(pool.spawn(|| fib(7)).wait(), 13, "after {position}");
                }
            }
        }
    });
}

#[test]
fn panics_of_handlers_and_destructors_do_not_take_a_worker_along() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("in a destructor");
            }
        }
    }
    within_a_minute(|| {
        let pool = Pool::builder()
            .workers(2)
            .on_panic(|_| panic!("in the handler"))
            .build()
            .expect("threads");
        for _ in 0..rounds(20) {
            pool.spawn_detached(|| panic!("detached"));
            // Dropped uncalled, because the scope is cancelled.
            let scoped = catch_unwind(AssertUnwindSafe(|| {
                pool.scope(|scope| {
                    scope.cancel();
                    let bomb = Bomb;
                    scope.spawn(move |_| drop(bomb));
                });
            }));
            assert!(scoped.is_err());
            // Dropped after the call.
            let bomb = Bomb;
            let handle = pool.spawn(move || bomb);
            assert!(catch_unwind(AssertUnwindSafe(|| drop(handle.wait()))).is_err());
        }
        pool.wait_idle();
        assert_eq!(pool.metrics().panics as usize, rounds(20));
        assert_eq!(pool.metrics().workers.len(), 2);
        assert_eq!(pool.install(|| fib(12)), 144);
    });
}

/// Does nobody do anything for a while?
fn is_settled(pool: &Pool) -> bool {
    let before = pool.metrics().total();
    std::thread::sleep(Duration::from_millis(200));
    pool.metrics().total() == before
}

#[test]
fn one_new_unit_wakes_one_worker() {
    let pool = pool(6);
    pool.install(|| fib(15));
    for _ in 0..3 {
        assert!(
            (0..20).any(|_| is_settled(&pool)),
            "somebody keeps searching"
        );
        let before = pool.metrics().total();
        assert_eq!(pool.spawn(|| 7).wait(), 7);
        assert!(
            (0..20).any(|_| is_settled(&pool)),
            "somebody keeps searching"
        );
        let after = pool.metrics().total();
        assert_eq!((after.wakes - before.wakes, after.run - before.run), (1, 1));
    }
}

#[test]
fn an_idle_pool_uses_no_processor() {
    let pool = pool(4);
    pool.install(|| fib(15));
    assert!(
        (0..20).any(|_| is_settled(&pool)),
        "somebody keeps searching"
    );
    let flag = AtomicBool::new(false);
    // Also while a guest is inside and does something else.
    pool.install(|| {
        assert!(
            (0..20).any(|_| is_settled(&pool)),
            "somebody keeps searching"
        );
        flag.store(true, Ordering::Relaxed);
    });
    assert!(flag.into_inner());
}

#[test]
fn large_joins_and_spawned_units_are_shared_after_a_phase_of_small_joins() {
    within_a_minute(|| {
        let pool = pool(2);
        for _ in 0..rounds(5) {
            // Long enough that the worker has given up on joins and sleeps.
            let start = Instant::now();
            let spawned = pool.install(|| {
                while start.elapsed() < Duration::from_millis(5) {
                    assert_eq!(fib(10), 55);
                }
                pool.spawn(|| std::thread::current().id())
            });
            let here = std::thread::current().id();
            assert_ne!(spawned.wait(), here, "a worker has run it");

            let start = Instant::now();
            pool.install(|| {
                while start.elapsed() < Duration::from_millis(5) {
                    assert_eq!(fib(10), 55);
                }
                let both_have_begun = Barrier::new(2);
                join(|| both_have_begun.wait(), || both_have_begun.wait());
            });
        }
    });
}

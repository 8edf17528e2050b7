//! Panics in every place where one can begin, payloads and results that panic as they are dropped
//! included: whoever waits gets the first one, and the pool goes on.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use loxley_pool::{Pool, join, join_unordered, scope};

#[path = "support/patience.rs"]
mod patience;
use patience::within_a_minute;

const ROUNDS: usize = 40;

/// Panics as it is dropped, with a payload that does the same.
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            panic_any(Self(self.0 - 1));
        }
    }
}

fn pool(workers: usize) -> Pool {
    Pool::builder().workers(workers).build().expect("threads")
}

/// Pools of one worker, where joins are plain calls, and of several.
fn on_pools(body: impl Fn(&Pool) + Send + 'static) {
    within_a_minute(move || {
        for workers in [1, 2, 4] {
            let pool = pool(workers);
            (0..ROUNDS).for_each(|_| body(&pool));
            assert_eq!(
                pool.spawn(|| 6 * 7).wait(),
                42,
                "a pool of {workers} goes on"
            );
        }
    });
}

fn message(result: std::thread::Result<impl Sized>) -> &'static str {
    match result {
        Ok(_) => "no panic",
        Err(panic) => panic.downcast_ref::<&str>().copied().unwrap_or("?"),
    }
}

/// Gives thieves something to take: the join below is forked, and perhaps stolen.
fn pause_sometimes() {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    if TURN.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn the_first_half_begins_on_the_calling_thread_and_the_second_may_wait_for_it() {
    within_a_minute(|| {
        let pool = pool(2);
        for _ in 0..ROUNDS {
            pool.install(|| {
                // A few uneven joins before: whatever was learned from them must not matter.
                join(
                    || (),
                    || join(|| (), || std::thread::sleep(Duration::from_micros(300))),
                );
                let flag = AtomicBool::new(false);
                let caller = std::thread::current().id();
                join(
                    || {
                        assert_eq!(std::thread::current().id(), caller);
                        flag.store(true, Ordering::Release);
                    },
                    || {
                        while !flag.load(Ordering::Acquire) {
                            std::hint::spin_loop();
                        }
                    },
                );
            });
        }
    });
}

#[test]
fn both_halves_of_a_join_are_called_when_one_panics() {
    on_pools(|pool| {
        for unordered in [false, true] {
            let (first, second) = (AtomicBool::new(false), AtomicBool::new(false));
            let result = catch_unwind(AssertUnwindSafe(|| {
                let a = || {
                    pause_sometimes();
                    first.store(true, Ordering::Relaxed);
                    panic!("first")
                };
                let b = || second.store(true, Ordering::Relaxed);
                if unordered {
                    pool.join_unordered(a, b)
                } else {
                    pool.join(a, b)
                }
            }));
            assert_eq!(message(result), "first");
            assert!(first.into_inner() && second.into_inner());
        }
    });
}

#[test]
fn of_two_panics_the_first_halfs_is_passed_on_and_the_other_payload_may_panic() {
    on_pools(|pool| {
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.join(
                || -> () {
                    pause_sometimes();
                    panic!("first")
                },
                || -> () { panic_any(Bomb(3)) },
            )
        }));
        assert_eq!(message(result), "first");
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.install(|| join_unordered(|| panic!("first"), || panic_any(Bomb(3))))
        }));
        assert_eq!(message(result), "first");
    });
}

#[test]
fn a_result_that_nobody_gets_may_panic_as_it_is_dropped() {
    on_pools(|pool| {
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.join(
                || {
                    pause_sometimes();
                    panic!("first")
                },
                || Bomb(2),
            )
        }));
        assert_eq!(message(result), "first");
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.scope(|s| {
                s.spawn(|_| panic!("unit"));
                Bomb(2)
            })
        }));
        assert_eq!(message(result), "unit");
    });
}

#[test]
fn the_result_of_the_first_half_may_panic_as_it_is_dropped_because_the_second_panicked() {
    on_pools(|pool| {
        let first = || {
            pause_sometimes();
            Bomb(2)
        };
        let second = || -> () { panic!("second") };
        let result = catch_unwind(AssertUnwindSafe(|| pool.join(first, second)));
        assert_eq!(message(result), "second");
        let result = catch_unwind(AssertUnwindSafe(|| pool.join_unordered(first, second)));
        assert_eq!(message(result), "second");
        // Joins inside others are plain calls on any pool.
        let nested = || join(|| join(first, second), || ());
        let result = catch_unwind(AssertUnwindSafe(|| pool.install(nested)));
        assert_eq!(message(result), "second");
    });
}

#[test]
fn the_results_of_a_loop_may_panic_as_they_are_dropped() {
    on_pools(|pool| {
        let map = |i: u32| {
            assert!(i != 32, "item");
            Bomb(2)
        };
        let result = catch_unwind(AssertUnwindSafe(|| pool.par_map(0..50_u32, map)));
        assert_eq!(message(result), "item");
        let keep_first = |first: Bomb, second: Bomb| {
            std::mem::forget(second);
            first
        };
        let reduced = || pool.map_reduce(0..50_u32, || Bomb(2), map, keep_first);
        assert_eq!(message(catch_unwind(AssertUnwindSafe(reduced))), "item");
    });
}

#[test]
fn the_items_that_a_loop_did_not_get_to_may_panic_as_they_are_dropped() {
    on_pools(|pool| {
        let items: Vec<(u32, Bomb)> = (0..50_u32).map(|i| (i, Bomb(2))).collect();
        let body = |(i, bomb): (u32, Bomb)| {
            std::mem::forget(bomb);
            assert!(i != 32, "item");
        };
        let result = catch_unwind(AssertUnwindSafe(|| pool.par_for(items, body)));
        assert_eq!(message(result), "item");
    });
}

#[test]
fn what_a_cancelled_handles_closure_captured_may_panic_as_it_is_dropped() {
    on_pools(|pool| {
        let bomb = Bomb(2);
        let handle = pool.spawn(move || {
            std::mem::forget(bomb);
        });
        // Here if it has not begun, which tells whoever cancelled it.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| handle.cancel())) {
            std::mem::forget(panic);
        }
        pool.wait_idle();
    });
}

#[test]
fn a_scope_passes_on_its_bodys_panic_or_the_first_units() {
    on_pools(|pool| {
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.scope(|s| {
                for _ in 0..8 {
                    s.spawn(|_| {
                        pause_sometimes();
                        panic_any(Bomb(2))
                    });
                }
            });
        }));
        let Err(panic) = result else {
            panic!("a unit panicked");
        };
        assert!(panic.is::<Bomb>());
        std::mem::forget(panic);
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.install(|| {
                scope(|s| {
                    s.spawn(|_| panic_any(Bomb(2)));
                    panic!("body")
                })
            })
        }));
        assert_eq!(message(result), "body");
    });
}

#[test]
fn what_a_cancelled_unit_captured_may_panic_as_it_is_dropped() {
    on_pools(|pool| {
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.scope(|s| {
                s.cancel();
                for _ in 0..8 {
                    let bomb = Bomb(2);
                    s.spawn(move |_| {
                        let _bomb = &bomb;
                    });
                }
            });
        }));
        if let Err(panic) = result {
            std::mem::forget(panic);
        }
    });
}

#[test]
fn a_dropped_handle_leaves_the_result_to_the_pool_however_it_ends() {
    on_pools(|pool| {
        drop(pool.spawn(|| Bomb(2)));
        drop(pool.spawn(|| -> () { panic_any(Bomb(2)) }));
        drop(pool.group(1).spawn(|| Bomb(2)));
        drop(pool.spawn_future(async { Bomb(2) }));
        pool.spawn_detached(|| panic_any(Bomb(2)));
        pool.wait_idle();
    });
}

#[test]
fn whoever_waits_for_a_handle_gets_its_panic() {
    on_pools(|pool| {
        let handle = pool.spawn(|| -> () { panic!("unit") });
        assert_eq!(
            message(catch_unwind(AssertUnwindSafe(|| handle.wait()))),
            "unit"
        );
        let inside = pool.install(|| {
            let handle = loxley_pool::spawn(|| -> () { panic!("unit") });
            message(catch_unwind(AssertUnwindSafe(|| handle.wait())))
        });
        assert_eq!(inside, "unit");
    });
}

#[test]
fn a_waker_that_panics_does_not_harm_the_worker_that_calls_it() {
    struct Explosive;
    impl Wake for Explosive {
        fn wake(self: Arc<Self>) {
            panic_any(Bomb(2));
        }
    }
    on_pools(|pool| {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let mut handle = Box::pin(pool.spawn(move || wait.recv().is_ok()));
        let waker = Waker::from(Arc::new(Explosive));
        let polled = handle.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(matches!(polled, Poll::Pending));
        go.send(()).expect("the unit waits");
        while !handle.is_finished() {
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_loop_stops_at_a_panic_and_passes_it_on() {
    on_pools(|pool| {
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.par_map(0..10_000_u32, |i| {
                assert!(i != 4321, "item");
                Arc::new(i)
            })
        }));
        let panic = result.expect_err("an item panicked");
        assert!(panic.downcast_ref::<&str>().is_some_and(|m| *m == "item"));
    });
}

//! Handles, priorities, affinity, groups, futures, blocking sections, traces, figures.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

use loxley_pool::{Partition, Pool, Priority, StealAmount, Topology, VictimOrder};

fn pool(workers: usize) -> Pool {
    Pool::builder().workers(workers).build().expect("threads")
}

/// Occupies all workers of a pool until it is dropped.
struct Occupied(Arc<AtomicBool>);

impl Occupied {
    fn new(pool: &Pool) -> Self {
        let (go, started) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(Barrier::new(pool.workers() + 1)),
        );
        for _ in 0..pool.workers() {
            let (go, started) = (go.clone(), started.clone());
            pool.spawn_detached(move || {
                started.wait();
                while !go.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            });
        }
        started.wait();
        Self(go)
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_handle_gives_the_result_to_whoever_waits() {
    for workers in [1, 2, 4] {
        let pool = pool(workers);
        assert_eq!(pool.spawn(|| 7).wait(), 7);
        // Waiting on a worker, for a unit in its own deque.
        assert_eq!(pool.spawn(|| loxley_pool::spawn(|| 8).wait()).wait(), 8);
        // As a guest.
        assert_eq!(pool.install(|| loxley_pool::spawn(|| 9).wait()), 9);
    }
}

#[test]
fn a_cancelled_unit_does_not_run() {
    let pool = pool(1);
    let occupied = Occupied::new(&pool);
    let ran = Arc::new(AtomicBool::new(false));
    let handle = {
        let ran = ran.clone();
        pool.spawn(move || ran.store(true, Ordering::Relaxed))
    };
    assert!(!handle.is_finished());
    assert!(handle.cancel());
    drop(occupied);
    pool.wait_idle();
    assert!(!ran.load(Ordering::Relaxed));
    let done = pool.spawn(|| ());
    while !done.is_finished() {
        std::thread::yield_now();
    }
    assert!(!done.cancel(), "too late");
}

#[test]
fn a_cancelled_scope_starts_nothing_more() {
    for workers in [1, 3] {
        let pool = pool(workers);
        let ran = AtomicUsize::new(0);
        pool.scope(|scope| {
            scope.cancel();
            for _ in 0..100 {
                scope.spawn(|_| {
                    ran.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(ran.into_inner(), 0);
        // From within: units that have not started when the first one cancels do not start.
        let after = AtomicUsize::new(0);
        pool.scope(|scope| {
            for _ in 0..1000 {
                scope.spawn(|scope| {
                    if scope.is_cancelled() {
                        after.fetch_add(1, Ordering::Relaxed);
                    }
                    scope.cancel();
                });
            }
        });
        assert!(
            after.into_inner() < workers + 1,
            "only those that ran at that moment"
        );
    }
}

#[test]
fn urgent_units_overtake_and_low_ones_are_not_forgotten() {
    let pool = pool(1);
    let occupied = Occupied::new(&pool);
    let order = Arc::new(Mutex::new(Vec::new()));
    for priority in [
        Priority::Low,
        Priority::Normal,
        Priority::Highest,
        Priority::Lowest,
        Priority::High,
    ] {
        let order = order.clone();
        drop(pool.spawn_at(priority, move || order.lock().unwrap().push(priority)));
    }
    drop(occupied);
    pool.wait_idle();
    let expected: Vec<Priority> = Priority::ALL.into_iter().rev().collect();
    assert_eq!(*order.lock().unwrap(), expected);
}

#[test]
fn the_lowest_unit_runs_although_urgent_ones_keep_coming() {
    let pool = Arc::new(pool(1));
    let (done, is_done) = mpsc::channel();
    let stop = Arc::new(AtomicBool::new(false));
    fn again(pool: &Arc<Pool>, stop: &Arc<AtomicBool>) {
        let (pool2, stop2) = (Arc::clone(pool), Arc::clone(stop));
        drop(pool.spawn_at(Priority::Highest, move || {
            if !stop2.load(Ordering::Relaxed) {
                again(&pool2, &stop2);
            }
        }));
    }
    again(&pool, &stop);
    drop(pool.spawn_at(Priority::Lowest, move || done.send(()).unwrap()));
    is_done
        .recv_timeout(Duration::from_secs(20))
        .expect("it was starved");
    stop.store(true, Ordering::Relaxed);
    pool.wait_idle();
}

#[test]
fn a_unit_runs_near_the_worker_it_names_when_that_one_is_free() {
    let pool = pool(2);
    for worker in 0..2 {
        let name = pool
            .spawn_near(worker, || std::thread::current().name().map(str::to_owned))
            .wait();
        assert!(name.is_some_and(|name| name.starts_with("loxley-")));
    }
    // A busy worker's mail is taken by an idle one.
    let (go, wait) = mpsc::channel::<()>();
    let busy = pool.spawn_near(0, move || wait.recv());
    pool.spawn_near(0, || ()).wait();
    go.send(()).unwrap();
    busy.wait().unwrap();
}

#[test]
fn a_group_never_has_more_in_flight_than_its_limit() {
    let pool = pool(8);
    let group = pool.group(3);
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let handles: Vec<_> = (0..200)
        .map(|i| {
            let (now, most) = (now.clone(), most.clone());
            group.spawn(move || {
                let running = now.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(running, Ordering::SeqCst);
                std::thread::yield_now();
                now.fetch_sub(1, Ordering::SeqCst);
                i
            })
        })
        .collect();
    let mut sum = 0;
    for (index, handle) in handles.into_iter().enumerate() {
        // Cancelled units and panics must give their place back too.
        if index % 10 == 0 {
            handle.cancel();
        } else {
            sum += handle.wait();
        }
    }
    assert!(sum > 0);
    drop(group.spawn(|| panic!("in a group")));
    pool.wait_idle();
    assert!(most.load(Ordering::SeqCst) <= 3);
    assert_eq!((group.in_flight(), group.waiting()), (0, 0));
}

#[test]
fn futures_run_on_the_pool_and_wait_for_each_other() {
    for workers in [1, 2] {
        let pool = pool(workers);
        let first = pool.spawn(|| 20);
        let second = pool.spawn_future(async move { first.await + 1 });
        let third = pool.spawn_future(async move { second.await * 2 });
        assert_eq!(pool.block_on(third), 42);
        let group = pool.group(1);
        let handles: Vec<_> = (0..10)
            .map(|i| group.spawn_future(async move { i }))
            .collect();
        let sum: i32 = handles.into_iter().map(|handle| handle.wait()).sum();
        assert_eq!(sum, 45);
    }
}

#[test]
fn a_worker_may_wait_for_a_future_even_in_a_pool_of_one() {
    let pool = Arc::new(pool(1));
    let inner = Arc::clone(&pool);
    let handle = pool.spawn(move || inner.spawn_future(async { 5 }).wait());
    assert_eq!(handle.wait(), 5);
}

#[test]
fn a_panicking_future_tells_its_handle() {
    let pool = pool(2);
    let handle = pool.spawn_future(async { panic!("in a future") });
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| handle.wait()));
    assert!(result.is_err());
    assert_eq!(pool.spawn(|| 1).wait(), 1, "the pool goes on");
}

#[test]
fn blocked_workers_are_replaced() {
    let pool = pool(2);
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let blocked: Vec<_> = (0..2)
        .map(|_| {
            let gate = gate.clone();
            pool.spawn(move || loxley_pool::blocking(|| gate.lock().unwrap().recv().unwrap()))
        })
        .collect();
    // Both workers block; somebody still runs this.
    let (done, is_done) = mpsc::channel();
    pool.spawn_detached(move || done.send(()).unwrap());
    is_done
        .recv_timeout(Duration::from_secs(20))
        .expect("nobody stood in");
    release.send(()).unwrap();
    release.send(()).unwrap();
    blocked.into_iter().for_each(|handle| handle.wait());
}

#[test]
fn explicit_partitions_visit_each_item_once() {
    let pool = pool(3);
    let items: Vec<usize> = (0..1000).collect();
    let costs: Vec<f64> = items.iter().map(|&i| 1.0 + i as f64).collect();
    let keys: Vec<u64> = items.iter().map(|&i| i as u64 % 17).collect();
    for partition in [
        Partition::Equal,
        Partition::RoundRobin,
        Partition::Weighted(&costs),
        Partition::Hash(&keys),
        Partition::Ranges(&costs),
    ] {
        let seen: Vec<AtomicUsize> = items.iter().map(|_| AtomicUsize::new(0)).collect();
        pool.par_for_partitioned(&items, &partition, |&i| {
            seen[i].fetch_add(1, Ordering::Relaxed);
        })
        .expect("costs are positive");
        assert!(
            seen.iter().all(|count| count.load(Ordering::Relaxed) == 1),
            "{partition:?}"
        );
    }
}

#[test]
fn every_victim_order_and_steal_amount_does_the_work() {
    let orders = [
        VictimOrder::Random,
        VictimOrder::Nearest,
        VictimOrder::MostLoaded,
        VictimOrder::Hierarchical,
    ];
    let amounts = [StealAmount::One, StealAmount::Half, StealAmount::batch(4)];
    for order in orders {
        for amount in amounts {
            let pool = Pool::builder()
                .workers(4)
                .victim_order(order)
                .steal_amount(amount)
                .topology(Topology::regular(2, 1, 2))
                .pin(true)
                .name("test")
                .build()
                .expect("threads");
            let count = AtomicUsize::new(0);
            pool.scope(|scope| {
                for _ in 0..500 {
                    scope.spawn(|_| {
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
            assert_eq!(count.into_inner(), 500);
        }
    }
}

#[test]
fn a_trace_is_json_with_one_event_per_unit() {
    let pool = pool(2);
    pool.start_trace();
    for _ in 0..10 {
        pool.spawn(|| ()).wait();
    }
    // A unit is counted as run after it was recorded.
    while pool.metrics().run() < 10 {
        std::thread::yield_now();
    }
    let mut text = Vec::new();
    pool.write_trace(&mut text).expect("memory takes it");
    let text = String::from_utf8(text).expect("text");
    assert_eq!(text.matches("\"name\":\"unit\"").count(), 10);
    assert_eq!(text.matches('{').count(), text.matches('}').count());
    assert!(text.starts_with("{\"traceEvents\":[") && text.trim_end().ends_with("]}"));
}

#[test]
fn figures_tell_balanced_from_unbalanced_work() {
    let pool = pool(2);
    let work = |_| {
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(1) {}
    };
    // Two units that meet, so that each is on a thread of its own however busy the machine is.
    let meeting = Barrier::new(2);
    let ((), report) = pool.measure(|| {
        pool.scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|_| {
                    meeting.wait();
                    (0..30).for_each(work);
                });
            }
        });
    });
    let imbalance = report.load_imbalance.value.expect("there was work");
    assert!(imbalance < 1.9, "{imbalance}: both worked");
    let ((), report) = pool.measure(|| (0..30).for_each(work));
    assert_eq!(
        report.load_imbalance.value,
        Some(2.0),
        "one of two did it all"
    );
}

#[test]
fn metrics_add_up_when_the_pool_is_idle() {
    for workers in [1, 2, 4] {
        let pool = pool(workers);
        for _ in 0..300 {
            pool.spawn_detached(|| {
                drop(loxley_pool::spawn(|| ()));
            });
        }
        pool.scope(|scope| {
            for _ in 0..200 {
                scope.spawn(|_| {
                    loxley_pool::join(|| (), || ());
                });
            }
        });
        pool.wait_idle();
        // The counter of the last unit is written just after the unit is counted as done.
        let mut metrics = pool.metrics();
        while metrics.run() < metrics.spawned() {
            std::thread::yield_now();
            metrics = pool.metrics();
        }
        assert_eq!(metrics.run(), metrics.spawned());
        assert!(metrics.spawned() >= 800 && metrics.submitted == 300);
        let text = metrics.prometheus();
        assert!(text.contains("loxley_pool_units_run_total{worker=\"0\"}"));
        assert!(text.contains("loxley_pool_submitted_total 300"));
    }
}

#[test]
fn sorts_agree_with_the_standard_library() {
    let pool = pool(4);
    let mut rng = loxley_balance::Rng::new(5);
    for len in [0, 1, 2, 100, 5_000, 60_000] {
        for range in [2, 100, u64::MAX] {
            let original: Vec<(u64, usize)> = (0..len).map(|i| (rng.below(range), i)).collect();
            let mut stable = original.clone();
            pool.sort_by_key(&mut stable, |&(key, _)| key);
            let mut expected = original.clone();
            expected.sort_by_key(|&(key, _)| key);
            assert_eq!(stable, expected);
            let mut unstable = original.clone();
            pool.sort_unstable(&mut unstable);
            expected.sort_unstable();
            assert_eq!(unstable, expected);
        }
    }
}

#[test]
fn a_comparison_that_panics_leaves_all_items_in_place() {
    let pool = pool(4);
    let items = Arc::new(());
    let mut shared: Vec<(usize, Arc<()>)> = (0..20_000)
        .map(|i| (i * 7919 % 20_000, items.clone()))
        .collect();
    let calls = AtomicUsize::new(0);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        pool.sort_by(&mut shared, |a, b| {
            assert!(calls.fetch_add(1, Ordering::Relaxed) < 200_000, "enough");
            a.0.cmp(&b.0)
        });
    }));
    assert!(result.is_err());
    let mut numbers: Vec<usize> = shared.iter().map(|item| item.0).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..20_000));
    drop(shared);
    assert_eq!(Arc::strong_count(&items), 1, "nothing lost, nothing twice");
}

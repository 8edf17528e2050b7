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
fn units_that_are_cancelled_while_workers_come_for_them_are_all_counted() {
    let pool = pool(2);
    for _ in 0..100 {
        let handles: Vec<_> = (0..20).map(|_| pool.spawn(|| ())).collect();
        for handle in handles {
            handle.cancel();
        }
        pool.install(|| {
            loxley_pool::spawn(|| ()).cancel();
        });
        pool.wait_idle();
    }
    let late = pool.spawn(|| 5);
    drop(pool);
    assert_eq!(late.wait(), 5, "a handle outlives its pool");
}

#[test]
fn closures_without_captures_run_as_often_as_they_were_spawned_into_a_scope() {
    static FIRST: AtomicUsize = AtomicUsize::new(0);
    static SECOND: AtomicUsize = AtomicUsize::new(0);
    fn count(counter: &AtomicUsize) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
    for workers in [1, 2, 4] {
        let pool = pool(workers);
        pool.scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|scope| {
                    count(&FIRST);
                    scope.spawn(|_| count(&SECOND));
                });
                scope.spawn(|_| count(&SECOND));
            }
        });
    }
    assert_eq!(FIRST.load(Ordering::Relaxed), 300);
    assert_eq!(SECOND.load(Ordering::Relaxed), 600);
    // One that panics stops the rest, as any other.
    let caught = std::panic::catch_unwind(|| {
        pool(2).scope(|scope| (0..50).for_each(|_| scope.spawn(|_| panic!("thrown"))));
    });
    assert!(caught.is_err());
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
fn nested_blocking_sections_and_waits_inside_them_do_not_wedge_a_pool_of_one() {
    let pool = pool(1);
    let group = pool.group(4);
    let inside = move || {
        // Long enough for the stand-in to go to sleep.
        std::thread::sleep(Duration::from_millis(30));
        let joined = loxley_pool::join(|| 2, || loxley_pool::spawn(|| 3).wait());
        joined.0 + joined.1 + group.spawn_future(async { 4 }).wait()
    };
    let (done, is_done) = mpsc::channel();
    pool.spawn_detached(move || {
        let result = loxley_pool::blocking(|| loxley_pool::blocking(inside));
        done.send(result).unwrap();
    });
    let result = is_done.recv_timeout(Duration::from_secs(20));
    assert_eq!(result.expect("it hangs"), 9);
    assert_eq!(pool.spawn(|| 1).wait(), 1, "the pool goes on");
}

#[test]
fn stand_ins_have_the_stack_that_was_asked_for() {
    fn deep(bytes: usize) -> usize {
        let frame = std::hint::black_box([1_u8; 4096]);
        match bytes.checked_sub(frame.len()) {
            Some(less) => deep(less) + usize::from(frame[0]),
            None => 0,
        }
    }
    let pool = Pool::builder()
        .workers(1)
        .stack_size(64 << 20)
        .build()
        .expect("threads");
    let (release, gate) = mpsc::channel::<()>();
    let blocked = pool.spawn(move || loxley_pool::blocking(|| gate.recv().unwrap()));
    // More than the two megabytes that threads have otherwise.
    assert_eq!(pool.spawn(|| deep(8 << 20)).wait(), 2048);
    release.send(()).unwrap();
    blocked.wait();
}

#[test]
fn dropping_a_pool_waits_for_units_that_wait_for_the_pool() {
    for _ in 0..20 {
        let (started, has_started) = mpsc::channel();
        let (done, is_done) = mpsc::channel();
        let pool = pool(1);
        let group = pool.group(1);
        pool.spawn_detached(move || {
            started.send(()).unwrap();
            // The pool closes meanwhile. The future needs somebody to poll it, and once more after
            // a thread that is not of the pool has woken it.
            std::thread::sleep(Duration::from_millis(2));
            let handle = group.spawn_future(async {
                let mut waited = false;
                std::future::poll_fn(|context| {
                    if std::mem::replace(&mut waited, true) {
                        return std::task::Poll::Ready(7);
                    }
                    let waker = context.waker().clone();
                    std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(2));
                        waker.wake();
                    });
                    std::task::Poll::Pending
                })
                .await
            });
            done.send(handle.wait()).unwrap();
        });
        has_started.recv().unwrap();
        drop(pool);
        assert_eq!(is_done.try_recv(), Ok(7));
    }
}

/// What Perfetto needs to draw it: valid JSON, known phases, times, and spans that nest.
#[test]
fn a_trace_is_json_with_nested_spans_and_one_event_per_unit() {
    let pool = pool(2);
    pool.start_trace();
    for _ in 0..10 {
        pool.spawn(|| ()).wait();
    }
    pool.scope(|scope| {
        for _ in 0..30 {
            scope.spawn(|_| {
                let ((), ()) = loxley_pool::join(|| (), || ());
            });
        }
    });
    // A unit is counted as run after it was recorded.
    while pool.metrics().run() < pool.metrics().spawned() {
        std::thread::yield_now();
    }
    let mut text = Vec::new();
    pool.write_trace(&mut text).expect("memory takes it");
    let trace: serde_json::Value = serde_json::from_slice(&text).expect("it is JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    let named = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    let regained = pool.metrics().run() as usize - named("unit");
    assert!(
        named("unit") >= 40 && regained <= 30,
        "joins taken back are calls"
    );
    assert_eq!(named("spawn") as u64, pool.metrics().total().spawned);
    let mut open: std::collections::HashMap<u64, Vec<(f64, f64)>> = Default::default();
    for event in events {
        let thread = event["tid"].as_u64().expect("a thread");
        assert!(event["pid"].is_u64());
        match event["ph"].as_str() {
            Some("M") => assert!(event["args"]["name"].is_string()),
            Some("i") => assert!(event["ts"].as_f64() >= Some(0.0)),
            Some("X") => {
                let start = event["ts"].as_f64().expect("a time");
                let span = (start, start + event["dur"].as_f64().expect("a duration"));
                open.entry(thread).or_default().push(span);
            }
            other => panic!("{other:?} is no phase that we write"),
        }
    }
    for spans in open.values_mut() {
        spans.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let mut around: Vec<f64> = Vec::new();
        for &(start, end) in &*spans {
            around.retain(|&outer| start < outer);
            // Less than a nanosecond is the rounding of the sum.
            let nests = around.last().is_none_or(|&outer| end < outer + 0.000_5);
            assert!(nests, "{start} to {end} sticks out of {around:?}");
            around.push(end);
        }
    }
    let mut again = Vec::new();
    pool.write_trace(&mut again).expect("memory takes it");
    assert_eq!(again, b"{\"traceEvents\":[]}\n", "it was switched off");
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
    let utilization = report.utilization.value.expect("there was time");
    assert!(utilization > 0.5 && utilization <= 1.0, "{utilization}");
    assert!(report.straggler_ratio.value >= Some(1.0));
    assert!(report.queue_depth_variance.value >= Some(0.0));
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
        is_prometheus_text(&metrics.prometheus());
        let text = metrics.prometheus();
        assert!(text.contains("\nloxley_pool_submitted_total 300\n"));
        for worker in (0..workers)
            .map(|worker| worker.to_string())
            .chain(["guest".into()])
        {
            let line = format!("\nloxley_pool_units_run_total{{worker=\"{worker}\"}} ");
            assert_eq!(text.matches(&line).count(), 1, "{worker}");
        }
    }
}

/// The rules of the text format: help, type, then the samples of that family, numbers at the end.
fn is_prometheus_text(text: &str) {
    assert!(text.ends_with('\n'));
    let mut families = std::collections::HashSet::new();
    let mut family = ("", "");
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split_once(' ').expect("a help text");
            assert!(families.insert(family.0), "{} comes twice", family.0);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a type");
            assert!(name == family.0 && ["counter", "gauge"].contains(&kind));
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        } else {
            let (sample, value) = line.rsplit_once(' ').expect("a value");
            assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
            let labels = sample.strip_prefix(family.0).expect("of this family");
            assert!(labels.is_empty() || labels.starts_with('{') && labels.ends_with('}'));
        }
    }
    assert!(families.len() >= 10);
}

#[test]
fn sorts_agree_with_the_standard_library() {
    let pool = pool(4);
    let mut rng = loxley_balance::Rng::new(5);
    for len in [0, 1, 2, 3, 100, 5_000, 60_001, 200_000] {
        let mut inputs: Vec<Vec<(u64, usize)>> = [2, 100, u64::MAX]
            .into_iter()
            .map(|range| (0..len).map(|i| (rng.below(range), i)).collect())
            .collect();
        // In order, in order but for the last, in reverse, in reverse with equal neighbours.
        let shapes: [fn(usize, usize) -> u64; 4] = [
            |i, _| i as u64,
            |i, len| (i % len.max(2).saturating_sub(1)) as u64,
            |i, len| (len - i) as u64,
            |i, len| ((len - i) / 2) as u64,
        ];
        inputs.extend(shapes.map(|shape| (0..len).map(|i| (shape(i, len), i)).collect()));
        for original in inputs {
            let mut stable = original.clone();
            pool.sort_by_key(&mut stable, |&(key, _)| key);
            let mut expected = original.clone();
            expected.sort_by_key(|&(key, _)| key);
            assert!(stable == expected, "{len} items");
            let mut unstable = original.clone();
            pool.sort_unstable(&mut unstable);
            expected.sort_unstable();
            assert!(unstable == expected, "{len} items");
            // Items that are costly to move are parted in another way.
            let heavy = |&(key, i): &(u64, usize)| (key, i, [key; 8]);
            let mut heavy: Vec<_> = original.iter().map(heavy).collect();
            pool.sort_unstable(&mut heavy);
            let light = heavy.iter().map(|&(key, i, _)| (key, i));
            assert!(light.eq(expected), "{len} items");
        }
    }
}

/// Items that must not be looked at by two threads at once are sorted all the same.
#[test]
fn sorts_need_no_shared_items() {
    use std::cell::Cell;
    let pool = pool(4);
    let mut items: Vec<Cell<u32>> = (0..100_000)
        .map(|i| Cell::new(i * 7919 % 100_000))
        .collect();
    let looked = |cell: &Cell<u32>| {
        // Not a pure look: a race would be found by the sanitizers.
        cell.set(cell.get());
        cell.get()
    };
    pool.sort_by(&mut items, |a, b| looked(a).cmp(&looked(b)));
    assert!(items.iter().map(Cell::get).eq(0..100_000));
    pool.sort_unstable_by(&mut items, |a, b| looked(b).cmp(&looked(a)));
    assert!(items.iter().map(Cell::get).eq((0..100_000).rev()));
}

#[test]
fn a_comparison_that_panics_leaves_all_items_in_place() {
    const COUNT: usize = 100_000;
    let pool = pool(4);
    // From the first look to the last merge.
    for limit in [
        0, 10, 90_000, 150_000, 800_000, 1_300_000, 1_500_000, 1_700_000,
    ] {
        let items = Arc::new(());
        let mut shared: Vec<(usize, Arc<()>)> = (0..COUNT)
            .map(|i| (i * 7919 % COUNT, items.clone()))
            .collect();
        let calls = AtomicUsize::new(0);
        let sorted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.sort_by(&mut shared, |a, b| {
                assert!(calls.fetch_add(1, Ordering::Relaxed) < limit, "enough");
                a.0.cmp(&b.0)
            });
        }));
        assert!(limit > 1_000_000 || sorted.is_err(), "{limit}");
        let mut numbers: Vec<usize> = shared.iter().map(|item| item.0).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..COUNT), "{limit}");
        drop(shared);
        assert_eq!(Arc::strong_count(&items), 1, "nothing lost, nothing twice");
    }
}

//! What the builder was told is what the workers do: whom they rob, of how much, where units run.
//!
//! One worker is let go while all others stand still, so its way through the queues is certain.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use loxley_pool::{Pool, PoolBuilder, StealAmount, Topology, VictimOrder};
use support::{StandStill, wait_until, worker_number};

/// What happened, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<usize>>>);

impl Log {
    fn entries(&self) -> MutexGuard<'_, Vec<usize>> {
        self.0.lock().expect("noting does not panic")
    }

    fn note(&self, entry: usize) {
        self.entries().push(entry);
    }

    fn wait_for(&self, len: usize) -> Vec<usize> {
        wait_until(|| self.entries().len() >= len);
        self.entries().clone()
    }
}

/// Which queues worker 0 robs, in order, when `units[w]` units wait in the queue of worker `w`.
fn victims_of_worker_0(builder: PoolBuilder, units: &[usize]) -> Vec<usize> {
    let log = Log::default();
    let still = {
        let (log, units) = (log.clone(), units.to_vec());
        StandStill::new(builder.workers(units.len()), move |worker| {
            for _ in 0..units[worker] {
                let log = log.clone();
                drop(loxley_pool::spawn(move || {
                    assert_eq!(worker_number(), 0, "the others stand still");
                    log.note(worker);
                }));
            }
        })
    };
    still.let_go(0);
    log.wait_for(units.iter().sum())
}

/// Workers 0 and 1 share a core group, 2 and 3 are on the same socket, 4 to 7 on another.
fn two_sockets(order: VictimOrder) -> PoolBuilder {
    Pool::builder()
        .topology(Topology::regular(2, 2, 2))
        .victim_order(order)
        .steal_amount(StealAmount::One)
}

#[test]
fn nearest_first_robs_the_own_group_then_the_socket_then_the_other() {
    let builder = two_sockets(VictimOrder::Nearest);
    let robbed = victims_of_worker_0(builder, &[0, 4, 0, 4, 0, 0, 4, 0]);
    assert_eq!(robbed, [1, 1, 1, 1, 3, 3, 3, 3, 6, 6, 6, 6]);
}

#[test]
fn a_hierarchical_thief_leaves_its_group_only_when_it_is_dry() {
    let builder = two_sockets(VictimOrder::Hierarchical);
    let robbed = victims_of_worker_0(builder, &[0, 3, 3, 0, 0, 3, 0, 0]);
    assert_eq!(robbed, [1, 1, 1, 2, 2, 2, 5, 5, 5]);
}

/// The same queues, another made-up machine, another order.
#[test]
fn the_topology_given_decides_who_is_near() {
    let places = [0, 1, 0, 1].map(|socket| loxley_pool::Place {
        socket,
        ..Default::default()
    });
    let builder = Pool::builder()
        .topology(Topology::new(places.to_vec()))
        .victim_order(VictimOrder::Nearest)
        .steal_amount(StealAmount::One);
    let robbed = victims_of_worker_0(builder, &[0, 2, 2, 0]);
    assert_eq!(robbed, [2, 2, 1, 1], "worker 2 is on our socket");
}

#[test]
fn most_loaded_first_robs_the_longest_queue() {
    let mut left = [0, 3, 9, 6];
    let builder = Pool::builder()
        .victim_order(VictimOrder::MostLoaded)
        .steal_amount(StealAmount::One);
    for victim in victims_of_worker_0(builder, &left.clone()) {
        assert_eq!(
            Some(&left[victim]),
            left.iter().max(),
            "{victim} of {left:?}"
        );
        left[victim] -= 1;
    }
}

#[test]
fn a_thief_takes_as_much_as_it_was_told() {
    // How often one has to go to empty a queue of 20.
    for (amount, visits) in [
        (StealAmount::One, 20),
        (StealAmount::Half, 5),     // 10, 5, 3, 1, 1
        (StealAmount::batch(4), 7), // 4, 4, 4, 4, 2, 1, 1
    ] {
        let log = Log::default();
        let still = {
            let log = log.clone();
            let builder = Pool::builder().workers(2).steal_amount(amount);
            StandStill::new(builder, move |worker| {
                for _ in 0..20 * worker {
                    let log = log.clone();
                    drop(loxley_pool::spawn(move || log.note(worker)));
                }
            })
        };
        let thief = || still.pool.metrics().workers[0].clone();
        // It may have stolen the unit in which it stands.
        let before = thief();
        still.let_go(0);
        log.wait_for(20);
        let after = thief();
        assert_eq!(after.steals - before.steals, 20, "{amount:?}");
        let visited = after.steals_tried - before.steals_tried;
        assert_eq!(visited, visits, "{amount:?}");
    }
}

#[test]
fn a_worker_serves_its_own_mail_first_and_that_of_others_last() {
    let log = Log::default();
    let still = StandStill::new(Pool::builder().workers(2), |_| ());
    let post = |worker, entry| {
        let log = log.clone();
        drop(still.pool.spawn_near(worker, move || log.note(entry)));
    };
    post(1, 4);
    drop(still.pool.spawn({
        let log = log.clone();
        move || log.note(3)
    }));
    post(0, 1);
    post(0, 2);
    still.let_go(0);
    assert_eq!(log.wait_for(4), [1, 2, 3, 4]);
}

#[test]
fn units_near_the_same_data_go_to_the_same_worker() {
    const KEYS: usize = 20;
    let log = Log::default();
    let still = StandStill::new(Pool::builder().workers(2), |_| ());
    for _ in 0..3 {
        for key in 0..KEYS {
            let log = log.clone();
            drop(still.pool.spawn_near_data(&key, move || log.note(key)));
        }
    }
    // Worker 0 runs its own mail, then that of worker 1: no key is in both.
    still.let_go(0);
    let ran = log.wait_for(3 * KEYS);
    let is_parted = |at: usize| ran[..at].iter().all(|key| !ran[at..].contains(key));
    assert!((1..ran.len()).any(is_parted), "{ran:?}");
}

#[test]
fn times_are_measured_unless_the_builder_says_no() {
    for measured in [true, false] {
        let log = Log::default();
        let still = {
            let log = log.clone();
            let builder = Pool::builder().workers(2).metrics(measured);
            StandStill::new(builder, move |worker| {
                for _ in 0..100 * worker {
                    let log = log.clone();
                    drop(loxley_pool::spawn(move || log.note(worker)));
                }
            })
        };
        still.let_go(0);
        log.wait_for(100);
        still.let_go(1);
        still.pool.wait_idle();
        let metrics = still.pool.metrics();
        assert_eq!(metrics.total().steal_latency.is_some(), measured);
        assert_eq!(metrics.total().steals_timed > 0, measured);
        assert_eq!(!metrics.total().idle.is_zero(), measured);
        assert_eq!(metrics.workers[1].spawned, 100, "counts are always there");
    }
}

#[test]
fn the_high_water_mark_is_the_most_that_waited() {
    let still = StandStill::new(Pool::builder().workers(1), |_| {
        (0..77).for_each(|_| drop(loxley_pool::spawn(|| ())));
    });
    still.let_go(0);
    still.pool.wait_idle();
    assert_eq!(still.pool.metrics().workers[0].queue_high, 77);
}

#[cfg(target_os = "linux")]
#[test]
fn pinned_workers_stay_on_their_processor() {
    let allowed = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("Cpus_allowed_list"));
        line.unwrap().split_whitespace().nth(1).unwrap().to_owned()
    };
    let pool = Pool::builder().workers(2).pin(true).build().unwrap();
    for worker in 0..2 {
        let processors = pool.spawn_near(worker, allowed).wait();
        assert!(
            processors.parse::<u32>().is_ok(),
            "{processors}: one, not a range"
        );
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    First,
    Second,
}

/// Joins two closures of which one takes so long that whoever waits for it goes to sleep. The other one
/// waits until it has begun: if that is begun with, the long one has to be stolen.
fn join_with_a_longer(longer: Half) {
    let has_begun = AtomicBool::new(false);
    let long = || {
        has_begun.store(true, Ordering::Release);
        std::thread::sleep(Duration::from_millis(20));
    };
    let short = || wait_until(|| has_begun.load(Ordering::Acquire));
    match longer {
        Half::First => loxley_pool::join_unordered(long, short),
        Half::Second => loxley_pool::join_unordered(short, long),
    };
}

/// Which half of a join is begun with here. May itself teach something, if the other one is stolen and
/// its thread held up.
fn begun_with() -> Half {
    let here = std::thread::current().id();
    let begun = OnceLock::new();
    let note = |half| {
        if std::thread::current().id() == here {
            let _is_the_second_here = begun.set(half);
        }
    };
    loxley_pool::join_unordered(|| note(Half::First), || note(Half::Second));
    begun.into_inner().expect("one of them ran here")
}

#[test]
fn an_unordered_join_begins_with_the_half_that_took_longer() {
    let pool = Pool::builder().workers(2).build().expect("threads");
    pool.install(|| {
        assert_eq!(begun_with(), Half::First, "as it is written");
        join_with_a_longer(Half::Second);
    });
    pool.install(|| {
        assert_eq!(begun_with(), Half::Second, "another guest, the same seat");
        join_with_a_longer(Half::First);
        assert_eq!(begun_with(), Half::First);
    });
}

#[test]
fn the_panic_of_the_first_half_is_passed_on_whichever_was_begun_with() {
    let pool = Pool::builder().workers(2).build().expect("threads");
    let thrown = |first: Option<&'static str>, second: Option<&'static str>| {
        let throw = |panic: Option<&'static str>| {
            if let Some(panic) = panic {
                std::panic::resume_unwind(Box::new(panic));
            }
        };
        let joined = catch_unwind(AssertUnwindSafe(|| {
            loxley_pool::join_unordered(|| throw(first), || throw(second));
        }));
        let panic = joined.expect_err("one of them panics");
        *panic.downcast::<&str>().expect("what was thrown")
    };
    pool.install(|| {
        for longer in [Half::First, Half::Second] {
            join_with_a_longer(longer);
            assert_eq!(thrown(Some("first"), Some("second")), "first");
            join_with_a_longer(longer);
            assert_eq!(thrown(Some("first"), None), "first");
            join_with_a_longer(longer);
            assert_eq!(thrown(None, Some("second")), "second");
        }
    });
}

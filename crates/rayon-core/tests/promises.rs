//! What programs rely on besides rayon's own tests, which `cargo xtask test rayon` runs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rayon_core::{ThreadPool, ThreadPoolBuilder, join, scope, spawn};

fn pool(threads: usize) -> ThreadPool {
    let builder = ThreadPoolBuilder::new().num_threads(threads);
    builder.build().expect("threads")
}

/// Marks the number of the calling thread as used while it lives.
struct InUse<'a>(&'a AtomicBool);

impl<'a> InUse<'a> {
    fn new(flags: &'a [AtomicBool]) -> Self {
        let index = rayon_core::current_thread_index().expect("a thread of the pool");
        assert!(index < rayon_core::current_num_threads());
        let is_shared = flags[index].swap(true, Ordering::SeqCst);
        assert!(!is_shared, "two threads with the number {index}");
        Self(&flags[index])
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

#[test]
fn numbers_are_below_the_count_and_never_shared_by_threads_that_run() {
    fn leaves(flags: &[AtomicBool], depth: u32) {
        if depth == 0 {
            let _used = InUse::new(flags);
            std::thread::sleep(Duration::from_micros(50));
            return;
        }
        join(|| leaves(flags, depth - 1), || leaves(flags, depth - 1));
    }
    for threads in [1, 2, 5] {
        let pool = pool(threads);
        let flags: Arc<[AtomicBool]> = (0..threads).map(|_| AtomicBool::new(false)).collect();
        let foreign = Arc::new(AtomicUsize::new(0));
        for _ in 0..50 {
            let (flags, foreign) = (Arc::clone(&flags), Arc::clone(&foreign));
            pool.spawn(move || {
                drop(InUse::new(&flags));
                foreign.fetch_add(1, Ordering::SeqCst);
            });
        }
        pool.scope(|s| {
            for _ in 0..8 {
                let flags = &flags;
                s.spawn(move |_| leaves(flags, 4));
            }
        });
        while foreign.load(Ordering::SeqCst) < 50 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_lock_may_be_held_across_a_join_while_foreign_units_want_it() {
    let pool = Arc::new(pool(2));
    let lock = Arc::new(Mutex::new(0));
    for _ in 0..200 {
        let foreign = Arc::clone(&lock);
        pool.spawn(move || *foreign.lock().expect("no panic") += 1);
        let lock = Arc::clone(&lock);
        pool.install(move || {
            let mut guard = lock.lock().expect("no panic");
            join(
                || std::thread::sleep(Duration::from_micros(20)),
                || std::thread::sleep(Duration::from_micros(40)),
            );
            *guard += 1;
        });
    }
    while *lock.lock().expect("no panic") < 400 {
        std::thread::yield_now();
    }
}

/// Both threads wait: one for its scope, whose unit blocks on the other until a foreign unit has run.
#[test]
fn no_processor_idles_while_foreign_work_waits() {
    let pool = Arc::new(pool(2));
    let flags: Arc<[AtomicBool]> = (0..2).map(|_| AtomicBool::new(false)).collect();
    let (has_begun, begun) = mpsc::channel();
    let (has_run, ran) = mpsc::channel();
    let other = {
        let (pool, flags) = (Arc::clone(&pool), Arc::clone(&flags));
        std::thread::spawn(move || {
            begun.recv().expect("the unit begins");
            pool.spawn(move || {
                drop(InUse::new(&flags));
                has_run.send(()).expect("somebody waits");
            });
        })
    };
    pool.install(|| {
        let is_stolen = AtomicBool::new(false);
        let (flags, is_stolen) = (&flags, &is_stolen);
        scope(|s| {
            s.spawn(move |_| {
                let _used = InUse::new(flags);
                is_stolen.store(true, Ordering::SeqCst);
                has_begun.send(()).expect("somebody waits");
                let patience = Duration::from_secs(60);
                ran.recv_timeout(patience).expect("a stand-in runs it");
            });
            while !is_stolen.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        });
        drop(InUse::new(flags));
    });
    other.join().expect("no panic");
}

/// Threads that are prepared by a handler are the only ones that run anything.
#[test]
fn nobody_stands_in_for_threads_that_a_handler_prepared() {
    thread_local! {
        static IS_PREPARED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    let builder = ThreadPoolBuilder::new().num_threads(2);
    let pool = builder.start_handler(|_| IS_PREPARED.set(true)).build();
    let pool = pool.expect("threads");
    let left = Arc::new(AtomicUsize::new(100));
    for _ in 0..100 {
        let left = Arc::clone(&left);
        pool.spawn(move || {
            assert!(IS_PREPARED.get());
            scope(|s| s.spawn(|_| assert!(IS_PREPARED.get())));
            left.fetch_sub(1, Ordering::SeqCst);
        });
    }
    while left.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_dropped_pool_runs_what_was_spawned_and_what_that_spawns() {
    let (send, receive) = mpsc::channel();
    {
        let pool = pool(3);
        for _ in 0..20 {
            let send = send.clone();
            pool.spawn(move || {
                spawn(move || {
                    rayon_core::spawn_broadcast(move |_| send.send(()).expect("a reader"));
                });
            });
        }
    }
    drop(send);
    assert_eq!(receive.iter().count(), 60);
}

#[test]
fn scopes_of_other_pools_and_of_no_pool_wait_for_their_units() {
    let (first, second) = (pool(1), pool(1));
    let count = AtomicUsize::new(0);
    let add = || {
        count.fetch_add(1, Ordering::Relaxed);
    };
    first.install(|| {
        second.in_place_scope(|s| {
            for _ in 0..10 {
                s.spawn(|_| scope(|s| s.spawn(|_| add())));
            }
        });
    });
    first.in_place_scope_fifo(|s| (0..10).for_each(|_| s.spawn_fifo(|_| add())));
    assert_eq!(count.into_inner(), 20);
}

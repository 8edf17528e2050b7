//! What every operation promises, on small and odd shapes.

use std::sync::atomic::{AtomicUsize, Ordering};

use loxley_pool::Pool;

fn pool(workers: usize) -> Pool {
    Pool::builder().workers(workers).build().expect("threads")
}

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = loxley_pool::join(|| fib(n - 1), || fib(n - 2));
    a + b
}

#[test]
fn join_gives_both_results() {
    for workers in [1, 2, 3, 8] {
        assert_eq!(pool(workers).install(|| fib(20)), 6765, "{workers} workers");
    }
}

#[test]
fn a_scope_waits_for_everything_spawned_in_it() {
    for workers in [1, 2, 3, 8] {
        let pool = pool(workers);
        let count = AtomicUsize::new(0);
        pool.scope(|s| {
            for _ in 0..100 {
                s.spawn(|s| {
                    for _ in 0..10 {
                        s.spawn(|_| {
                            count.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 1000, "{workers} workers");
    }
}

#[test]
fn loops_visit_each_item_once() {
    for workers in [1, 2, 8] {
        let pool = pool(workers);
        for len in [0, 1, 2, 3, 1000, 100_000] {
            let mut seen = vec![0u8; len];
            pool.par_for_each_mut(&mut seen, |x| *x += 1);
            assert!(seen.iter().all(|&x| x == 1));
            let sum = pool.map_reduce(0..len, || 0, |x| x, |a, b| a + b);
            assert_eq!(sum, (0..len).sum::<usize>());
        }
    }
}

#[test]
fn detached_units_are_all_done_when_the_pool_is_idle() {
    for workers in [1, 2, 8] {
        let pool = pool(workers);
        let count = std::sync::Arc::new(AtomicUsize::new(0));
        for _ in 0..1000 {
            let count = count.clone();
            pool.spawn_detached(move || {
                count.fetch_add(1, Ordering::Relaxed);
            });
        }
        pool.wait_idle();
        assert_eq!(count.load(Ordering::Relaxed), 1000);
    }
}

#[test]
fn loops_take_vectors_arrays_and_inclusive_ranges() {
    let pool = pool(2);
    let words: Vec<String> = (0..1_000).map(|i| i.to_string()).collect();
    let lengths = pool.par_map(words.clone(), |word: String| word.len());
    assert_eq!(lengths, words.iter().map(String::len).collect::<Vec<_>>());
    let joined = pool.map_reduce(words, String::new, |word| word, |a, b| a + &b);
    assert_eq!(
        joined,
        (0..1_000).map(|i| i.to_string()).collect::<String>()
    );
    assert_eq!(pool.par_map([1, 2, 3], |n: i32| n + 1), [2, 3, 4]);
    assert_eq!(pool.par_map(Vec::<Box<u8>>::new(), |item| *item), []);
    let all = pool.par_map(0..=u8::MAX, |n| n);
    assert_eq!(all, (0..=u8::MAX).collect::<Vec<_>>());
    let all = pool.par_map(i8::MIN..=i8::MAX, |n| n);
    assert_eq!(all, (i8::MIN..=i8::MAX).collect::<Vec<_>>());
    assert_eq!(
        pool.map_reduce(
            std::ops::RangeInclusive::new(5_u64, 4),
            || 0,
            |n| n,
            |a, b| a + b
        ),
        0
    );
    assert_eq!(pool.par_map(u64::MAX - 2..=u64::MAX, |n| !n), [2, 1, 0]);
}

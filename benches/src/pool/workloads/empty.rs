//! A million closures that do nothing but count: the price of a spawn, by how much they capture.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::pool::contract::{ScopeWorkload, Scoping, SpawnWorkload, Spawner};

/// What ran on each thread, ever. A closure that captures nothing has no place of its own to count in, and one
/// counter for all would cost more than the pools that are measured.
static COUNTERS: Mutex<Vec<&'static Counter>> = Mutex::new(Vec::new());

/// A counter on cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Counter(AtomicU64);

/// Counts one closure on the calling thread.
#[inline]
pub(crate) fn count() {
    thread_local! {
        static MINE: Cell<Option<&'static Counter>> = const { Cell::new(None) };
    }
    let mine = MINE.get().unwrap_or_else(|| {
        let counter: &'static Counter = Box::leak(Box::default());
        let mut counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
        counters.push(counter);
        MINE.set(Some(counter));
        counter
    });
    // Only this thread writes it.
    let next = mine.0.load(Ordering::Relaxed) + 1;
    mine.0.store(next, Ordering::Release);
}

/// How many closures have been counted.
pub(crate) fn counted() -> u64 {
    let counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
    let values = counters
        .iter()
        .map(|counter| counter.0.load(Ordering::Acquire));
    values.sum()
}

/// Waits until so many have been counted, without taking a processor from them.
pub(crate) fn wait_for(total: u64) {
    while counted() < total {
        std::thread::sleep(Duration::from_micros(20));
    }
}

/// A closure that captures so many words, and counts.
#[inline]
fn unit<const WORDS: usize>(captured: [u64; WORDS]) -> impl FnOnce() + Send + 'static {
    move || {
        black_box(captured);
        count();
    }
}

/// Who submits the closures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// A thread that is not a worker.
    Outside,
    /// So many of them at once.
    Threads(usize),
    /// A closure on the pool.
    Inside,
}

/// `count` closures that capture so many words; the figure is nanoseconds each.
pub(crate) struct Empty<const WORDS: usize> {
    pub(crate) count: usize,
    pub(crate) from: From,
}

impl<const WORDS: usize> Empty<WORDS> {
    /// The same closures boxed and called by the same thread.
    pub(crate) fn floor(&self) -> f64 {
        self.nanoseconds(|| {
            for index in 0..self.count {
                let unit: Box<dyn FnOnce()> = Box::new(unit([index as u64; WORDS]));
                black_box(unit)();
            }
        })
    }

    fn nanoseconds(&self, submit: impl FnOnce()) -> f64 {
        let total = counted() + self.count as u64;
        let start = Instant::now();
        submit();
        wait_for(total);
        start.elapsed().as_nanos() as f64 / self.count as f64
    }
}

impl<const WORDS: usize> SpawnWorkload for Empty<WORDS> {
    fn figure<P: Spawner>(&self, pool: &P) -> f64 {
        let submit = |count| {
            for index in 0..count {
                pool.spawn(unit([index as u64; WORDS]));
            }
        };
        let count = self.count;
        self.nanoseconds(|| match self.from {
            From::Outside => submit(count),
            From::Threads(threads) => std::thread::scope(|scope| {
                (0..threads).for_each(|_| {
                    scope.spawn(|| submit(count / threads));
                });
            }),
            From::Inside => pool.enter(move |inside| {
                for index in 0..count {
                    P::spawn_inside(inside, unit([index as u64; WORDS]));
                }
            }),
        })
    }
}

impl<const WORDS: usize> ScopeWorkload for Empty<WORDS> {
    /// All of them in one scope, on the pool.
    fn figure<P: Scoping>(&self, pool: &P) -> f64 {
        let count = self.count;
        self.nanoseconds(|| {
            pool.enter(move |_| {
                P::scope(|scope| {
                    for index in 0..count {
                        let unit = unit([index as u64; WORDS]);
                        P::spawn_scoped(scope, move |_| unit());
                    }
                });
            });
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_on_any_thread_is_waited_for() {
        let before = counted();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..1000).for_each(|_| count()));
            }
            wait_for(before + 3000);
        });
        assert_eq!(counted(), before + 3000);
    }
}

//! Scopes: a closure per node of a tree with random fan-out, and foreign work that arrives while a worker
//! waits for its scope.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::branching::hash;
use super::empty::{count, counted, wait_for};
use super::spin_for;
use crate::pool::contract::{ScopeWorkload, Scoping};

/// A scope with a closure per node; the figure is nanoseconds per node.
pub(crate) struct ScopeTree {
    pub(crate) depth: u32,
}

/// How many children a node has, and what they descend from.
fn children(node: u64, level: u32) -> (u64, u64) {
    let hashed = hash(node);
    (if level < 4 { 4 } else { hashed % 4 }, hashed)
}

impl ScopeTree {
    fn nodes(node: u64, depth: u32, level: u32) -> u64 {
        let (wide, hashed) = children(node, level);
        let wide = if level == depth { 0 } else { wide };
        let below = |child| Self::nodes(hashed.wrapping_add(child), depth, level + 1);
        1 + (0..wide).map(below).sum::<u64>()
    }

    fn descend<P: Scoping>(scope: &P::Scope, node: u64, depth: u32, level: u32) {
        count();
        if level == depth {
            return;
        }
        let (wide, hashed) = children(node, level);
        for child in 0..wide {
            P::spawn_scoped(scope, move |scope| {
                Self::descend::<P>(scope, hashed.wrapping_add(child), depth, level + 1);
            });
        }
    }
}

impl ScopeWorkload for ScopeTree {
    fn figure<P: Scoping>(&self, pool: &P) -> f64 {
        let depth = self.depth;
        let nodes = Self::nodes(42, depth, 0);
        let before = counted();
        let start = Instant::now();
        pool.enter(move |_| P::scope(|scope| Self::descend::<P>(scope, 42, depth, 0)));
        wait_for(before + nodes);
        start.elapsed().as_nanos() as f64 / nodes as f64
    }
}

/// A worker waits for a scope whose only unit was stolen and takes five milliseconds, when forty closures of
/// 100 µs arrive that have nothing to do with it; the figure is milliseconds until all is done.
pub(crate) struct Foreign {
    pub(crate) repeats: u32,
}

const STOLEN: Duration = Duration::from_millis(5);
const OTHERS: u64 = 40;
const OTHER: Duration = Duration::from_micros(100);

impl ScopeWorkload for Foreign {
    fn figure<P: Scoping>(&self, pool: &P) -> f64 {
        let time: Duration = (0..self.repeats).map(|_| foreign(pool)).sum();
        time.as_secs_f64() * 1e3 / f64::from(self.repeats)
    }
}

fn foreign<P: Scoping>(pool: &P) -> Duration {
    let before = counted();
    let has_begun: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let start = Instant::now();
    pool.enter(move |_| {
        P::scope(|scope| {
            P::spawn_scoped(scope, move |_| {
                has_begun.store(true, Ordering::Release);
                spin_for(STOLEN);
                count();
            });
            while !has_begun.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
        });
        count();
    });
    while !has_begun.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_micros(20));
    }
    std::thread::sleep(Duration::from_micros(300));
    for _ in 0..OTHERS {
        pool.spawn(|| {
            spin_for(OTHER);
            count();
        });
    }
    wait_for(before + OTHERS + 2);
    start.elapsed()
}

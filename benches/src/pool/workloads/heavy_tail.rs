//! A loop whose items grow more expensive towards its end, by a power law.
//!
//! Equal halves by count are badly unequal by cost: whoever took the second half must be robbed
//! again and again, and the dearest item comes last.

use std::hint::black_box;
use std::time::Instant;

use super::countdown::Countdown;
use crate::pool::contract::{ForkJoin, ForkJoinWorkload, SpawnWorkload, Spawner};

/// Shape of the power law; below two, the variance has no bound.
const SHAPE: f64 = 1.5;

/// Items of ascending cost, in steps of [`spin`]; the figure is milliseconds for all of them.
pub(crate) struct HeavyTail {
    costs: Vec<u64>,
}

impl HeavyTail {
    /// `count` items of `total` steps together.
    pub(crate) fn ascending(count: usize, total: usize) -> Self {
        let weight = |index: usize| (1.0 - index as f64 / count as f64).powf(-1.0 / SHAPE);
        let sum: f64 = (0..count).map(weight).sum();
        let cost = |index: usize| (weight(index) / sum * total as f64) as u64;
        Self {
            costs: (0..count).map(cost).collect(),
        }
    }

    /// What each item costs.
    pub(crate) fn costs(&self) -> &[u64] {
        &self.costs
    }

    /// Milliseconds when the costs are known beforehand: dearest first to the least loaded of
    /// `workers` plain threads. Without that knowledge nobody can be expected to do better.
    pub(crate) fn ideal(&self, workers: usize) -> f64 {
        let mut parts = vec![(0_u64, Vec::new()); workers];
        for &cost in self.costs.iter().rev() {
            let least = parts.iter_mut().min_by_key(|(load, _)| *load);
            let (load, items) = least.expect("there is at least one worker");
            *load += cost;
            items.push(cost);
        }
        let start = Instant::now();
        std::thread::scope(|scope| {
            let (first, others) = parts.split_first().expect("there is at least one worker");
            for (_, items) in others {
                scope.spawn(|| items.iter().copied().for_each(spin));
            }
            first.1.iter().copied().for_each(spin);
        });
        start.elapsed().as_secs_f64() * 1e3
    }
}

impl ForkJoinWorkload for HeavyTail {
    fn figure<P: ForkJoin>(&self, pool: &P) -> f64 {
        let start = Instant::now();
        pool.for_each(self.costs.len(), |index| spin(self.costs[index]));
        start.elapsed().as_secs_f64() * 1e3
    }
}

impl SpawnWorkload for HeavyTail {
    fn figure<P: Spawner>(&self, pool: &P) -> f64 {
        let left = Countdown::leaked();
        left.start(self.costs.len());
        let start = Instant::now();
        for (index, &cost) in self.costs.iter().enumerate() {
            pool.spawn(move || {
                spin(cost);
                left.done(index);
            });
        }
        left.wait();
        start.elapsed().as_secs_f64() * 1e3
    }
}

/// Work that takes the same number of steps wherever it runs, about a nanosecond each.
pub(crate) fn spin(steps: u64) {
    let mut state = black_box(steps);
    for _ in 0..steps {
        state = state.wrapping_mul(6_364_136_223_846_793_005).rotate_left(1);
    }
    black_box(state);
}

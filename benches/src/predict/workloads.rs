//! What is run: the same tasks, with the same work, for the pool and for the simulator.

use std::sync::Arc;

use loxley_balance::Rng;
use loxley_sim::workload::{TaskRecord, WorkloadBuilder};
use loxley_sim::{Distribution, Workload};

use super::Kind;

/// Where the units are at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Submitted by a thread that is not in the pool.
    Outside,
    /// Spawned by one worker, into its own deque.
    OnOne,
}

/// Units with their work. A unit spawns its successors at its end, and has one predecessor at most.
pub(super) struct Units {
    pub(super) name: &'static str,
    pub(super) graph: Arc<Workload>,
    pub(super) start: Start,
}

impl Units {
    /// The units that wait for nothing.
    pub(super) fn roots(&self) -> impl Iterator<Item = u32> {
        let graph = &self.graph;
        (0..graph.len() as u32).filter(|task| graph.predecessors(*task).is_empty())
    }
}

/// The workloads of one setting: about a tenth of a second each, in some hundred units.
pub(super) fn all(kind: Kind) -> Vec<Units> {
    // Sleeping is exact to some fifty microseconds, so what sleeps is longer and there are more at
    // once.
    let (count, mean) = match kind {
        Kind::Computing => (400, 0.000_4),
        Kind::Waiting => (200, 0.004),
    };
    let heavy = Distribution::Exponential(mean);
    let even = Distribution::Uniform(0.8 * mean, 1.2 * mean);
    let fixed = Distribution::Fixed(mean);
    vec![
        flat("heavy tail", Start::Outside, count, heavy_tail(heavy)),
        flat("uniform", Start::Outside, count, move |rng| {
            even.sample(rng)
        }),
        flat("skewed", Start::OnOne, count, move |rng| even.sample(rng)),
        flat("few large", Start::OnOne, count / 8, few_large(fixed)),
        tree(count, move |rng| even.sample(rng)),
    ]
}

/// Most are short, one in sixteen is ten times as long.
fn heavy_tail(work: Distribution) -> impl FnMut(&mut Rng) -> u64 {
    move |rng| {
        let drawn = work.sample(rng);
        if rng.chance(1.0 / 16.0) {
            10 * drawn
        } else {
            drawn
        }
    }
}

/// One to ten times the work of the others, in whole numbers.
fn few_large(work: Distribution) -> impl FnMut(&mut Rng) -> u64 {
    move |rng| (1 + rng.below(10)) * work.sample(rng)
}

fn flat(
    name: &'static str,
    start: Start,
    count: usize,
    mut work: impl FnMut(&mut Rng) -> u64,
) -> Units {
    let mut rng = Rng::new(1).child(name);
    let mut builder = WorkloadBuilder::default();
    for index in 0..count {
        builder.add(TaskRecord::new(index.to_string(), work(&mut rng)));
    }
    let graph = Arc::new(builder.build().expect("there are units and no edges"));
    Units { name, graph, start }
}

/// Each unit spawns two, until there are enough.
fn tree(count: usize, mut work: impl FnMut(&mut Rng) -> u64) -> Units {
    let name = "tree";
    let mut rng = Rng::new(1).child(name);
    let mut builder = WorkloadBuilder::default();
    for index in 0..count as u32 {
        builder.add(TaskRecord::new(index.to_string(), work(&mut rng)));
        if index > 0 {
            builder.edge((index - 1) / 2, index);
        }
    }
    Units {
        name,
        graph: Arc::new(builder.build().expect("a tree has no cycle")),
        start: Start::OnOne,
    }
}

//! Summing a binary tree with a `join` at every node: the price of a fork.
//!
//! Everyone walks the same tree object, left child first, so the layout of the nodes and the
//! order of the walk are the same for subject, peers and the sequential code.

use std::hint::black_box;
use std::time::Instant;

use crate::pool::contract::{ForkJoin, ForkJoinWorkload};

/// A tree and how often it is summed; the figure is nanoseconds per node.
pub(crate) struct Tree {
    root: Node,
    nodes: u64,
    repeats: u64,
}

struct Node {
    value: u64,
    left: Option<Box<Self>>,
    right: Option<Box<Self>>,
}

impl Tree {
    /// A full tree of `2^levels - 1` nodes, to be summed `repeats` times.
    pub(crate) fn full(levels: u32, repeats: u64) -> Self {
        Self {
            root: Node::full(levels),
            nodes: (1 << levels) - 1,
            repeats,
        }
    }
}

impl Node {
    fn full(levels: u32) -> Self {
        let child = || (levels > 1).then(|| Box::new(Self::full(levels - 1)));
        Self {
            value: 1,
            left: child(),
            right: child(),
        }
    }
}

impl ForkJoinWorkload for Tree {
    fn figure<P: ForkJoin>(&self, pool: &P) -> f64 {
        let start = Instant::now();
        let total: u64 = pool.run(|context| {
            (0..self.repeats)
                .map(|_| sum::<P>(context, black_box(&self.root)))
                .sum()
        });
        let elapsed = start.elapsed();
        assert_eq!(total, self.nodes * self.repeats, "every node counts once");
        elapsed.as_nanos() as f64 / total as f64
    }
}

fn sum<P: ForkJoin>(context: &mut P::Context<'_>, node: &Node) -> u64 {
    let (left, right) = P::join(
        context,
        |context| below::<P>(context, node.left.as_deref()),
        |context| below::<P>(context, node.right.as_deref()),
    );
    node.value + left + right
}

fn below<P: ForkJoin>(context: &mut P::Context<'_>, node: Option<&Node>) -> u64 {
    node.map_or(0, |node| sum::<P>(context, node))
}

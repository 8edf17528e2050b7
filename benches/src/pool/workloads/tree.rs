//! Summing a binary tree with a `join` at every node: the price of a fork.
//!
//! Everyone walks the same tree, left child first where the pool lets the caller choose. Its nodes
//! lie breadth-first in one allocation, which favours neither side: in a tree of boxes made
//! depth-first, merely walking the right child first is three times as fast as the left one.

use std::hint::black_box;
use std::time::Instant;

use crate::pool::contract::{ForkJoin, ForkJoinWorkload, Sequential};
#[cfg(feature = "peers")]
use crate::pool::peers::Tokio;

/// A full tree and how often it is summed; the figure is nanoseconds per node.
pub(crate) struct Tree {
    nodes: Vec<Node>,
    repeats: u64,
}

struct Node {
    value: u64,
    left: Option<u32>,
    right: Option<u32>,
}

impl Tree {
    /// A full tree of `2^levels - 1` nodes of value one, to be summed `repeats` times.
    pub(crate) fn full(levels: u32, repeats: u64) -> Self {
        let count = (1 << levels) - 1;
        let node = |index: u32| Node {
            value: 1,
            left: (index < count / 2).then_some(2 * index + 1),
            right: (index < count / 2).then_some(2 * index + 2),
        };
        Self {
            nodes: (0..count).map(node).collect(),
            repeats,
        }
    }
}

impl ForkJoinWorkload for Tree {
    fn figure<P: ForkJoin>(&self, pool: &P) -> f64 {
        let start = Instant::now();
        let total: u64 = pool.run(|context| {
            (0..self.repeats)
                .map(|_| sum::<P>(context, black_box(&self.nodes), Some(0)))
                .sum()
        });
        let elapsed = start.elapsed();
        assert_eq!(
            total,
            self.nodes.len() as u64 * self.repeats,
            "every node counts once"
        );
        elapsed.as_nanos() as f64 / total as f64
    }

    /// Too small a tree is not worth a thread.
    fn is_balanced(&self) -> bool {
        self.repeats == 1
    }

    #[cfg(feature = "peers")]
    fn on_tokio(&self) -> Option<fn(&Tokio) -> f64> {
        Some(|tokio| tokio.tree_ns_per_node(14))
    }
}

/// Leaves join two empty subtrees: a fork per node, not per inner node.
fn sum<P: ForkJoin>(context: &mut P::Context<'_>, nodes: &[Node], index: Option<u32>) -> u64 {
    let Some(index) = index else {
        return 0;
    };
    let node = &nodes[index as usize];
    let (left, right) = P::join(
        context,
        |context| sum::<P>(context, nodes, node.left),
        |context| sum::<P>(context, nodes, node.right),
    );
    node.value + left + right
}

/// The same tree, summed once, with forks only down to subtrees that are summed sequentially: what
/// a program does that thinks about its grain.
pub(crate) struct Subtrees {
    tree: Tree,
    /// Nodes from this index on are not forked.
    forks_end: u32,
}

impl Subtrees {
    /// A tree of `2^levels - 1` nodes in subtrees of `2^below - 1`.
    pub(crate) fn full(levels: u32, below: u32) -> Self {
        Self {
            tree: Tree::full(levels, 1),
            forks_end: (1 << (levels - below)) - 1,
        }
    }
}

impl ForkJoinWorkload for Subtrees {
    fn figure<P: ForkJoin>(&self, pool: &P) -> f64 {
        let nodes = black_box(&self.tree.nodes);
        let start = Instant::now();
        let total = pool.run(|context| sum_subtrees::<P>(context, nodes, self.forks_end, 0));
        let elapsed = start.elapsed();
        assert_eq!(total, nodes.len() as u64, "every node counts once");
        elapsed.as_nanos() as f64 / total as f64
    }
}

fn sum_subtrees<P: ForkJoin>(
    context: &mut P::Context<'_>,
    nodes: &[Node],
    forks_end: u32,
    index: u32,
) -> u64 {
    let node = &nodes[index as usize];
    let (Some(left), Some(right), true) = (node.left, node.right, index < forks_end) else {
        return sum::<Sequential>(&mut (), nodes, Some(index));
    };
    let (left, right) = P::join(
        context,
        |context| sum_subtrees::<P>(context, nodes, forks_end, left),
        |context| sum_subtrees::<P>(context, nodes, forks_end, right),
    );
    node.value + left + right
}

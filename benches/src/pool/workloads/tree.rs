//! Summing a binary tree with a `join` at every node: the price of a fork.
//!
//! Everyone walks the same tree in the same order. Its nodes lie breadth-first in one allocation, which
//! favours neither side, or in boxes that were made depth-first, left child first, where one order may be
//! three times as fast as the other whoever walks: so both orders are measured.

use std::hint::black_box;
use std::time::Instant;

use crate::pool::contract::{ForkJoin, ForkJoinWorkload, Sequential};
#[cfg(feature = "peers")]
use crate::pool::peers::Tokio;

/// Which child of a node comes first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Left,
    Right,
}

/// A full tree and how often it is summed; the figure is nanoseconds per node.
pub(crate) struct Tree {
    nodes: Vec<Node>,
    repeats: u64,
    order: Order,
}

struct Node {
    value: u64,
    left: Option<u32>,
    right: Option<u32>,
}

impl Tree {
    /// A full tree of `2^levels - 1` nodes of value one, to be summed `repeats` times.
    pub(crate) fn full(levels: u32, repeats: u64, order: Order) -> Self {
        let count = (1 << levels) - 1;
        let node = |index: u32| Node {
            value: 1,
            left: (index < count / 2).then_some(2 * index + 1),
            right: (index < count / 2).then_some(2 * index + 2),
        };
        Self {
            nodes: (0..count).map(node).collect(),
            repeats,
            order,
        }
    }
}

impl ForkJoinWorkload for Tree {
    fn figure<P: ForkJoin>(&self, pool: &P) -> f64 {
        let expected = self.nodes.len() as u64 * self.repeats;
        let nodes = || black_box(&self.nodes[..]);
        match self.order {
            Order::Left => summed(pool, self.repeats, expected, |context| {
                sum::<P, true>(context, nodes(), Some(0))
            }),
            Order::Right => summed(pool, self.repeats, expected, |context| {
                sum::<P, false>(context, nodes(), Some(0))
            }),
        }
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

/// Nanoseconds per node when a tree is summed so often.
fn summed<P: ForkJoin>(
    pool: &P,
    repeats: u64,
    expected: u64,
    sum: impl Fn(&mut P::Context<'_>) -> u64 + Sync,
) -> f64 {
    let start = Instant::now();
    let total: u64 = pool.run(|context| (0..repeats).map(|_| sum(context)).sum());
    let elapsed = start.elapsed();
    assert_eq!(total, expected, "every node counts once");
    elapsed.as_nanos() as f64 / total as f64
}

/// Leaves join two empty subtrees: a fork per node, not per inner node.
fn sum<P: ForkJoin, const LEFT_FIRST: bool>(
    context: &mut P::Context<'_>,
    nodes: &[Node],
    index: Option<u32>,
) -> u64 {
    let Some(index) = index else {
        return 0;
    };
    let node = &nodes[index as usize];
    let (first, second) = match LEFT_FIRST {
        true => (node.left, node.right),
        false => (node.right, node.left),
    };
    let (first, second) = P::join(
        context,
        |context| sum::<P, LEFT_FIRST>(context, nodes, first),
        |context| sum::<P, LEFT_FIRST>(context, nodes, second),
    );
    node.value + first + second
}

/// A full tree of boxes, made depth-first; the figure is nanoseconds per node.
pub(crate) struct BoxTree {
    root: Option<Box<BoxNode>>,
    count: u64,
    repeats: u64,
    order: Order,
}

struct BoxNode {
    value: u64,
    left: Option<Box<Self>>,
    right: Option<Box<Self>>,
}

impl BoxNode {
    fn full(levels: u32) -> Option<Box<Self>> {
        let level = levels.checked_sub(1)?;
        let mut node = Box::new(Self {
            value: 1,
            left: None,
            right: None,
        });
        node.left = Self::full(level);
        node.right = Self::full(level);
        Some(node)
    }
}

impl BoxTree {
    /// A full tree of `2^levels - 1` nodes of value one, to be summed `repeats` times.
    pub(crate) fn full(levels: u32, repeats: u64, order: Order) -> Self {
        Self {
            root: BoxNode::full(levels),
            count: (1 << levels) - 1,
            repeats,
            order,
        }
    }
}

impl ForkJoinWorkload for BoxTree {
    fn figure<P: ForkJoin>(&self, pool: &P) -> f64 {
        let expected = self.count * self.repeats;
        let root = || black_box(self.root.as_deref());
        match self.order {
            Order::Left => summed(pool, self.repeats, expected, |context| {
                sum_boxes::<P, true>(context, root())
            }),
            Order::Right => summed(pool, self.repeats, expected, |context| {
                sum_boxes::<P, false>(context, root())
            }),
        }
    }
}

fn sum_boxes<P: ForkJoin, const LEFT_FIRST: bool>(
    context: &mut P::Context<'_>,
    node: Option<&BoxNode>,
) -> u64 {
    let Some(node) = node else {
        return 0;
    };
    let (first, second) = match LEFT_FIRST {
        true => (&node.left, &node.right),
        false => (&node.right, &node.left),
    };
    let (first, second) = P::join(
        context,
        |context| sum_boxes::<P, LEFT_FIRST>(context, first.as_deref()),
        |context| sum_boxes::<P, LEFT_FIRST>(context, second.as_deref()),
    );
    node.value + first + second
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
            tree: Tree::full(levels, 1, Order::Left),
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
        return sum::<Sequential, true>(&mut (), nodes, Some(index));
    };
    let (left, right) = P::join(
        context,
        |context| sum_subtrees::<P>(context, nodes, forks_end, left),
        |context| sum_subtrees::<P>(context, nodes, forks_end, right),
    );
    node.value + left + right
}

//! Knock-out trees over the agents of a cohort: who has the best score, who has the longest queue.
//!
//! The leaves are the agents; each inner node holds the better of its two children. Changing a leaf
//! replays only the matches on its way up, and stops where the winner stays the same, so both asking
//! and changing take O(log n).

use alloc::vec;
use alloc::vec::Vec;

/// A tree that knows its greatest key. Ties go to the lower position.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranking {
    /// Node 1 is the root; the children of `i` are `2i` and `2i + 1`; leaves fill the upper half.
    nodes: Vec<i64>,
}

/// The key of somebody who takes no part.
pub(crate) const ABSENT: i64 = i64::MIN;

impl Ranking {
    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    /// The keys of all positions, as they were set.
    pub(crate) fn keys(&self) -> &[i64] {
        &self.nodes[self.leaves()..]
    }

    /// A tree with these keys.
    pub(crate) fn with_keys(keys: &[i64]) -> Self {
        let mut tree = Self::default();
        // The last one first, so that the tree grows once, to its full size.
        for (position, key) in keys.iter().enumerate().rev() {
            tree.set(position, *key);
        }
        tree
    }

    /// The greatest key.
    pub(crate) fn best_key(&self) -> i64 {
        self.nodes.get(1).copied().unwrap_or(ABSENT)
    }

    /// The key of `position`, which was set before.
    pub(crate) fn key(&self, position: usize) -> i64 {
        self.nodes[self.leaves() + position]
    }

    /// Who has the greatest key.
    pub(crate) fn best(&self) -> Option<usize> {
        let best = self.best_key();
        if best == ABSENT {
            return None;
        }
        let mut node = 1;
        while node < self.leaves() {
            node = if self.nodes[2 * node] == best {
                2 * node
            } else {
                2 * node + 1
            };
        }
        Some(node - self.leaves())
    }

    /// Sets the key of `position`.
    pub(crate) fn set(&mut self, position: usize, key: i64) {
        if position >= self.leaves() {
            self.grow(position);
        }
        let mut node = self.leaves() + position;
        let mut winner = key;
        let nodes = self.nodes.as_mut_slice();
        // The key at `node` is replaced; unless that changes nothing, so may be the one above.
        while nodes[node] != winner {
            nodes[node] = winner;
            if node == 1 {
                return;
            }
            winner = winner.max(nodes[node ^ 1]);
            node /= 2;
        }
    }

    fn grow(&mut self, position: usize) {
        let leaves = (position + 1).next_power_of_two().max(2);
        let mut nodes = vec![ABSENT; 2 * leaves];
        let old = self.leaves();
        nodes[leaves..leaves + old].copy_from_slice(&self.nodes[old..]);
        for node in (1..leaves).rev() {
            nodes[node] = nodes[2 * node].max(nodes[2 * node + 1]);
        }
        self.nodes = nodes;
    }

    /// Visits positions from the greatest key down, until `visit` returns false.
    pub(crate) fn visit_best_first(&self, visit: &mut impl FnMut(usize, i64) -> bool) {
        if self.best_key() == ABSENT {
            return;
        }
        // The open nodes, best last. Few: each visit opens one node a level.
        let mut open = vec![(self.best_key(), 1)];
        while let Some((key, node)) = open.pop() {
            if node >= self.leaves() {
                if !visit(node - self.leaves(), key) {
                    return;
                }
                continue;
            }
            for child in [2 * node + 1, 2 * node] {
                let entry = (self.nodes[child], child);
                if entry.0 != ABSENT {
                    // Among equal keys, the lower node number is tried first.
                    let at = open.partition_point(|o| {
                        (o.0, usize::MAX - o.1) < (entry.0, usize::MAX - child)
                    });
                    open.insert(at, entry);
                }
            }
        }
    }
}

/// A set of classes of task: one bit each, shared when there are more than 128.
pub(crate) type ClassBits = u128;

/// How much can be taken from an agent, or from the best of a subtree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Loot {
    /// The longest queue.
    pub(crate) queue_len: u32,
    /// The classes of task that may be taken.
    pub(crate) classes: ClassBits,
}

impl Loot {
    fn better(self, other: Self) -> Self {
        // A queue with nothing to take must not hide one that has something.
        let length = |loot: Self| if loot.classes == 0 { 0 } else { loot.queue_len };
        Self {
            queue_len: length(self).max(length(other)),
            classes: self.classes | other.classes,
        }
    }
}

/// A tree that finds the longest queue with something to take.
#[derive(Clone, Debug, Default)]
pub(crate) struct Victims {
    nodes: Vec<Loot>,
}

impl Victims {
    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    /// What can be taken at every position, as it was set.
    pub(crate) fn all(&self) -> &[Loot] {
        &self.nodes[self.leaves()..]
    }

    /// A tree in which this can be taken.
    pub(crate) fn with_all(all: &[Loot]) -> Self {
        let mut tree = Self::default();
        for (position, loot) in all.iter().enumerate().rev() {
            tree.set(position, *loot);
        }
        tree
    }

    /// The best that any agent of the tree has to offer.
    pub(crate) fn best(&self) -> Loot {
        self.nodes.get(1).copied().unwrap_or_default()
    }

    /// Sets what can be taken at `position`.
    pub(crate) fn set(&mut self, position: usize, loot: Loot) {
        if position >= self.leaves() {
            self.grow(position);
        }
        let mut node = self.leaves() + position;
        self.nodes[node] = loot;
        while node > 1 {
            node /= 2;
            let winner = self.nodes[2 * node].better(self.nodes[2 * node + 1]);
            if self.nodes[node] == winner {
                return;
            }
            self.nodes[node] = winner;
        }
    }

    fn grow(&mut self, position: usize) {
        let leaves = (position + 1).next_power_of_two().max(2);
        let mut nodes = vec![Loot::default(); 2 * leaves];
        let old = self.leaves();
        nodes[leaves..leaves + old].copy_from_slice(&self.nodes[old..]);
        for node in (1..leaves).rev() {
            nodes[node] = nodes[2 * node].better(nodes[2 * node + 1]);
        }
        self.nodes = nodes;
    }

    /// The longest queue of more than `above` tasks that may hold one of `classes` and that
    /// `accept` agrees to.
    pub(crate) fn longest(
        &self,
        classes: ClassBits,
        above: u32,
        accept: &mut impl FnMut(usize) -> bool,
    ) -> Option<(usize, u32)> {
        let mut best = None;
        let mut floor = above;
        if !self.nodes.is_empty() {
            self.search(1, classes, &mut floor, &mut best, accept);
        }
        best
    }

    fn search(
        &self,
        node: usize,
        classes: ClassBits,
        floor: &mut u32,
        best: &mut Option<(usize, u32)>,
        accept: &mut impl FnMut(usize) -> bool,
    ) {
        let loot = self.nodes[node];
        if loot.queue_len <= *floor || loot.classes & classes == 0 {
            return;
        }
        if node >= self.leaves() {
            let position = node - self.leaves();
            if accept(position) {
                *floor = loot.queue_len;
                *best = Some((position, loot.queue_len));
            }
            return;
        }
        let (left, right) = (2 * node, 2 * node + 1);
        let left_first = self.nodes[left].queue_len >= self.nodes[right].queue_len;
        let (first, second) = if left_first {
            (left, right)
        } else {
            (right, left)
        };
        self.search(first, classes, floor, best, accept);
        self.search(second, classes, floor, best, accept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_key_wins_and_ties_go_to_the_lower_position() {
        let mut ranking = Ranking::default();
        assert_eq!(ranking.best(), None);
        for (position, key) in [(0, 5), (3, 9), (7, 9), (2, -4)] {
            ranking.set(position, key);
        }
        assert_eq!(ranking.best(), Some(3));
        ranking.set(3, ABSENT);
        assert_eq!(ranking.best(), Some(7));
        let mut seen = Vec::new();
        ranking.visit_best_first(&mut |position, key| {
            seen.push((position, key));
            true
        });
        assert_eq!(seen, [(7, 9), (0, 5), (2, -4)]);
    }

    #[test]
    fn the_longest_queue_with_the_right_class_is_found() {
        let mut victims = Victims::default();
        for (position, queue_len, classes) in [(0, 9, 0b01), (1, 7, 0b10), (2, 8, 0b10), (3, 99, 0)]
        {
            victims.set(position, Loot { queue_len, classes });
        }
        assert_eq!(victims.longest(0b10, 0, &mut |_| true), Some((2, 8)));
        assert_eq!(
            victims.longest(0b10, 0, &mut |position| position != 2),
            Some((1, 7))
        );
        assert_eq!(victims.longest(0b11, 8, &mut |_| true), Some((0, 9)));
        assert_eq!(victims.longest(0b11, 9, &mut |_| true), None);
    }
}

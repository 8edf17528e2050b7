//! Knock-out trees over the agents of a cohort: who has the best score, who has the longest queue.
//!
//! The leaves are the agents; each inner node holds the better of its two children. Changing a leaf
//! replays only the matches on its way up, and stops where the winner stays the same, so both asking
//! and changing take O(log n).

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// A tree that knows its greatest key. Ties go to the lower position.
#[derive(Clone, Debug, Default, PartialEq)]
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

    /// The lowest position below a node.
    fn first_position(&self, node: usize) -> usize {
        let levels = self.leaves().ilog2() - node.ilog2();
        (node << levels) - self.leaves()
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
                    // Among equal keys, the lower position is tried first.
                    let order = |(key, node)| (key, Reverse(self.first_position(node)));
                    let at = open.partition_point(|other| order(*other) < order(entry));
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
pub(crate) struct Loot {
    /// The longest queue.
    pub(crate) queue_len: u32,
    /// The classes of task that may be taken; perhaps some too many.
    pub(crate) free: ClassBits,
    /// The classes of all tasks, for whoever would else stand idle; perhaps some too many.
    pub(crate) any: ClassBits,
}

/// Which tasks are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Those that may be taken freely.
    Free,
    /// All: the thief would else stand idle.
    Any,
}

impl Loot {
    /// Whether there may be a task of one of these classes.
    pub(crate) fn has(&self, classes: ClassBits, reach: Reach) -> bool {
        let offered = match reach {
            Reach::Free => self.free,
            Reach::Any => self.any,
        };
        offered & classes != 0
    }

    /// Whether it promises at least what is there, of as many tasks.
    pub(crate) fn covers(self, there: Self) -> bool {
        self.queue_len == there.queue_len
            && there.free & !self.free == 0
            && there.any & !self.any == 0
    }

    fn better(self, other: Self) -> Self {
        Self {
            queue_len: self.queue_len.max(other.queue_len),
            free: self.free | other.free,
            any: self.any | other.any,
        }
    }
}

/// A tree that finds the longest queue with something to take.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Victims {
    nodes: Vec<Loot>,
}

impl Victims {
    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    /// The best that any agent of the tree has to offer.
    pub(crate) fn best(&self) -> Loot {
        self.nodes.get(1).copied().unwrap_or_default()
    }

    /// What can be taken at `position`, as it was set.
    pub(crate) fn at(&self, position: usize) -> Loot {
        let leaf = self.nodes.get(self.leaves() + position);
        leaf.copied().unwrap_or_default()
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
    /// `accept` agrees to. Among queues of equal length the way down the tree decides, which depends
    /// on the lengths alone: classes only spare useless steps.
    pub(crate) fn longest(
        &self,
        classes: ClassBits,
        reach: Reach,
        above: u32,
        accept: &mut impl FnMut(usize) -> bool,
    ) -> Option<u32> {
        let mut floor = above;
        if !self.nodes.is_empty() {
            self.search(1, &|loot| loot.has(classes, reach), &mut floor, accept);
        }
        (floor > above).then_some(floor)
    }

    fn search(
        &self,
        node: usize,
        may_have: &impl Fn(Loot) -> bool,
        floor: &mut u32,
        accept: &mut impl FnMut(usize) -> bool,
    ) {
        let loot = self.nodes[node];
        if loot.queue_len <= *floor || !may_have(loot) {
            return;
        }
        if node >= self.leaves() {
            if accept(node - self.leaves()) {
                *floor = loot.queue_len;
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
        self.search(first, may_have, floor, accept);
        self.search(second, may_have, floor, accept);
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
        for (position, queue_len, free) in [(0, 9, 0b01), (1, 7, 0b10), (2, 8, 0b10), (3, 99, 0)] {
            let any = free | 0b100;
            victims.set(
                position,
                Loot {
                    queue_len,
                    free,
                    any,
                },
            );
        }
        let longest = |classes, reach, above, not: usize| {
            let mut found = None;
            let len = victims.longest(classes, reach, above, &mut |position| {
                let accepted = position != not;
                found = accepted.then_some(position).or(found);
                accepted
            });
            found.zip(len)
        };
        assert_eq!(longest(0b10, Reach::Free, 0, 9), Some((2, 8)));
        assert_eq!(longest(0b10, Reach::Free, 0, 2), Some((1, 7)));
        assert_eq!(longest(0b11, Reach::Free, 8, 9), Some((0, 9)));
        assert_eq!(longest(0b11, Reach::Free, 9, 9), None);
        assert_eq!(longest(0b100, Reach::Any, 9, 9), Some((3, 99)));
    }
}

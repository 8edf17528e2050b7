//! Which queues hold something, kept up as they change, so that a round of probes can be *decided* instead of walked.
//!
//! A thief that finds nothing has looked at everybody. That is what it pays for, in a pool as in a simulation, but a
//! simulation need not do it: where a round ends follows from its start, its stride and the set of workers that have
//! something. [`Victims::decide_round`](crate::Victims::decide_round) says where, for any order, without visiting those
//! that have nothing.
//!
//! Rings (`Random`, `Nearest`, `Hierarchical`) ask who of a range of positions has anything: a tree of bits, one a
//! worker, sixty-four to a word. `MostLoaded` asks for the longest queue: a tree of greatest lengths, sixteen to a node,
//! so that a node is one cache line.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::topology::Topology;
use crate::victim::VictimOrder;

/// How long the queue of each worker is, as far as a [`VictimOrder`] must know.
///
/// ```
/// use loxley_balance::{QueueIndex, Rng, Topology, VictimOrder, Victims};
///
/// let topology = Topology::flat(1_000_000);
/// let mut queues = QueueIndex::new(VictimOrder::Random, &topology);
/// let mut victims = Victims::new(VictimOrder::Random, &topology, 3);
/// let mut rng = Rng::new(1);
/// let in_vain = victims.decide_round(&topology, &mut rng, &queues, usize::MAX);
/// assert_eq!((in_vain.victim, in_vain.probes), (None, 999_999));
///
/// queues.set(77, 4);
/// let found = victims.decide_round(&topology, &mut rng, &queues, usize::MAX);
/// assert_eq!(found.victim, Some(77));
/// ```
#[derive(Clone, Debug)]
pub struct QueueIndex {
    kind: Kind,
    /// The position by place of each worker, where that is not its number.
    positions: Option<Vec<u32>>,
}

#[derive(Clone, Debug)]
enum Kind {
    Occupied(BitTree),
    Lengths(MaxTree),
}

impl QueueIndex {
    /// Empty queues of all workers of `topology`, for thieves that keep `order`.
    #[must_use]
    pub fn new(order: VictimOrder, topology: &Topology) -> Self {
        let workers = topology.len();
        if order == VictimOrder::MostLoaded {
            return Self {
                kind: Kind::Lengths(MaxTree::new(workers)),
                positions: None,
            };
        }
        let in_order = (0_u32..)
            .zip(topology.by_place())
            .all(|(position, &worker)| position == worker);
        let positions = (!in_order).then(|| {
            let mut positions = vec![0; workers];
            for (position, &worker) in (0..).zip(topology.by_place()) {
                positions[worker as usize] = position;
            }
            positions
        });
        Self {
            kind: Kind::Occupied(BitTree::new(workers)),
            positions,
        }
    }

    /// Notes that `length` tasks wait at `worker` now.
    ///
    /// # Panics
    /// If there is no such worker.
    #[inline]
    pub fn set(&mut self, worker: usize, length: usize) {
        match &mut self.kind {
            Kind::Occupied(bits) => {
                let position = match &self.positions {
                    Some(positions) => positions[worker] as usize,
                    None => worker,
                };
                bits.set(position, length > 0);
            }
            Kind::Lengths(lengths) => {
                lengths.set(worker, u32::try_from(length).unwrap_or(u32::MAX));
            }
        }
    }

    /// The positions that have something.
    ///
    /// # Panics
    /// When this index was made for `MostLoaded`.
    pub(crate) fn occupied(&self) -> &BitTree {
        match &self.kind {
            Kind::Occupied(bits) => bits,
            Kind::Lengths(_) => panic!("an index of lengths does not know who is near whom"),
        }
    }

    /// The worker with the longest queue, and of several the last one before `start`, counted in a circle.
    ///
    /// # Panics
    /// When this index was made for another order.
    pub(crate) fn longest_before(&self, start: usize) -> Option<usize> {
        match &self.kind {
            Kind::Lengths(lengths) => lengths.longest_before(start),
            Kind::Occupied(_) => panic!("an index of bits does not know how long queues are"),
        }
    }
}

/// A set of small numbers: each level has a bit for each word of the level below that is not zero.
#[derive(Clone, Debug)]
pub(crate) struct BitTree {
    levels: Vec<Vec<u64>>,
    len: usize,
}

impl BitTree {
    fn new(size: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = size.div_ceil(64).max(1);
        loop {
            levels.push(vec![0; words]);
            if words == 1 {
                return Self { levels, len: 0 };
            }
            words = words.div_ceil(64);
        }
    }

    /// How many numbers are in the set.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn contains(&self, number: usize) -> bool {
        self.levels[0][number / 64] >> (number % 64) & 1 == 1
    }

    #[inline]
    fn set(&mut self, number: usize, member: bool) {
        if self.contains(number) == member {
            return;
        }
        if member {
            self.len += 1;
        } else {
            self.len -= 1;
        }
        let mut index = number;
        for level in &mut self.levels {
            let word = &mut level[index / 64];
            let before = *word;
            *word ^= 1 << (index % 64);
            // Above, only whether there is anything counts.
            if before != 0 && *word != 0 {
                return;
            }
            index /= 64;
        }
    }

    /// The members of a range, ascending.
    pub(crate) fn members(&self, range: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        let mut from = range.start;
        core::iter::from_fn(move || {
            let member = self.next_from(from)?;
            from = member + 1;
            (member < range.end).then_some(member)
        })
    }

    /// The least member that is not below `number`.
    fn next_from(&self, number: usize) -> Option<usize> {
        let mut index = number;
        for (height, level) in self.levels.iter().enumerate() {
            let word = level.get(index / 64)? >> (index % 64);
            if word != 0 {
                let mut found = index + word.trailing_zeros() as usize;
                for below in self.levels[..height].iter().rev() {
                    found = found * 64 + below[found].trailing_zeros() as usize;
                }
                return Some(found);
            }
            index = index / 64 + 1;
        }
        None
    }
}

/// Lengths, and above them the greatest of each sixteen.
#[derive(Clone, Debug)]
struct MaxTree {
    /// Each level is filled up with zeros to whole nodes.
    levels: Vec<Vec<u32>>,
}

const NODE: usize = 16;

impl MaxTree {
    fn new(size: usize) -> Self {
        let mut levels = Vec::new();
        let mut nodes = size.div_ceil(NODE).max(1);
        loop {
            levels.push(vec![0; nodes * NODE]);
            if nodes == 1 {
                return Self { levels };
            }
            nodes = nodes.div_ceil(NODE);
        }
    }

    #[inline]
    fn set(&mut self, index: usize, length: u32) {
        let (mut index, mut value) = (index, length);
        for level in &mut self.levels {
            if level[index] == value {
                return;
            }
            level[index] = value;
            let node = index / NODE * NODE;
            value = greatest(&level[node..node + NODE]);
            index /= NODE;
        }
    }

    fn longest_before(&self, start: usize) -> Option<usize> {
        let longest = greatest(self.levels.last()?);
        if longest == 0 {
            return None;
        }
        self.last_below(start, longest)
            .or_else(|| self.last_below(self.levels[0].len(), longest))
    }

    /// The last index below `limit` whose length is `length`, which is the greatest of all.
    fn last_below(&self, limit: usize, length: u32) -> Option<usize> {
        let last_of = |level: &[u32], from: usize, to: usize| {
            (from..to).rev().find(|&index| level[index] == length)
        };
        let mut limit = limit;
        for (height, level) in self.levels.iter().enumerate() {
            let node = limit.checked_sub(1)? / NODE * NODE;
            if let Some(mut found) = last_of(level, node, limit) {
                for below in self.levels[..height].iter().rev() {
                    found = last_of(below, found * NODE, (found + 1) * NODE)?;
                }
                return Some(found);
            }
            limit = node / NODE;
        }
        None
    }
}

fn greatest(lengths: &[u32]) -> u32 {
    lengths.iter().copied().fold(0, u32::max)
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use super::{BitTree, MaxTree};
    use crate::rng::Rng;

    #[test]
    fn bits_agree_with_a_set() {
        for size in [1, 63, 64, 65, 4_096, 5_000, 300_000] {
            let mut rng = Rng::new(size as u64);
            let (mut bits, mut model) = (BitTree::new(size), BTreeSet::new());
            for _ in 0..600 {
                let number = rng.index(size);
                if rng.chance(0.5) {
                    bits.set(number, true);
                    model.insert(number);
                } else {
                    bits.set(number, false);
                    model.remove(&number);
                }
                assert_eq!(bits.len(), model.len());
                let (from, to) = (rng.index(size), rng.index(size) + 1);
                let expected: Vec<usize> = if from < to {
                    model.range(from..to).copied().collect()
                } else {
                    Vec::new()
                };
                assert_eq!(bits.members(from..to).collect::<Vec<_>>(), expected);
            }
        }
    }

    #[test]
    fn the_longest_queue_is_the_longest_before_the_start() {
        for size in [1, 15, 16, 17, 300, 5_000] {
            let mut rng = Rng::new(size as u64);
            let (mut tree, mut model) = (MaxTree::new(size), alloc::vec![0_u32; size]);
            for _ in 0..400 {
                let index = rng.index(size);
                let length = rng.below(4) as u32;
                tree.set(index, length);
                model[index] = length;
                let start = rng.index(size);
                let longest = *model.iter().max().unwrap();
                let expected = (0..start)
                    .rev()
                    .chain((start..size).rev())
                    .find(|&index| model[index] == longest)
                    .filter(|_| longest > 0);
                assert_eq!(tree.longest_before(start), expected);
            }
        }
    }
}

//! Whom an idle worker robs, and of how much.
//!
//! Each worker keeps a [`Victims`]: a few numbers, prepared once. Looking for work is a *round*, an
//! iterator over other workers in the chosen order. A round draws one random number, allocates
//! nothing and, as long as nothing else happens, names each victim once and never the thief itself.
//!
//! | order | first | then | a round names |
//! |---|---|---|---|
//! | `Random` | anyone, evenly | the rest, scattered | everyone |
//! | `Nearest` | someone on the same core | group, socket, machine, elsewhere | everyone |
//! | `MostLoaded` | the longest queue | the next longest | everyone with something queued |
//! | `Hierarchical` | someone in the own core group | only that, until it stays dry | those in reach |
//!
//! `Nearest` crosses the machine in every fruitless round. `Hierarchical` widens its reach by one
//! level per fruitless round and falls back to the own group when it found something, so traffic
//! between sockets stays rare. It reaches everyone after at most four fruitless rounds.
//!
//! Within a set of equals the order is a random start and a random stride coprime to the size of
//! the set: every member once, no two thieves in step, no table to shuffle. It is also what lets
//! [`Victims::decide_round`] say where a round ends without walking it: when a stride comes to a number is one
//! multiplication with the inverse of its step.

use core::num::NonZeroUsize;

use crate::queue_index::{BitTree, QueueIndex};
use crate::rng::{Rng, mix};
use crate::topology::{Distance, Topology};

/// In which order a thief tries the other workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum VictimOrder {
    /// Anyone, with equal chances. Needs no knowledge and cannot be wrong by much.
    #[default]
    Random,
    /// By distance, at random among equally near ones.
    Nearest,
    /// By queue length, at random among equally long ones. Each step looks at every queue.
    MostLoaded,
    /// The own core group; after a fruitless round the socket too, then the machine, then everyone.
    Hierarchical,
}

/// How much a thief takes from a queue.
///
/// ```
/// use loxley_balance::StealAmount;
///
/// assert_eq!(StealAmount::One.take(9), 1);
/// assert_eq!(StealAmount::Half.take(9), 5);
/// assert_eq!(StealAmount::batch(3).take(9), 3);
/// assert_eq!(StealAmount::batch(3).take(4), 2);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StealAmount {
    /// A single one.
    #[default]
    One,
    /// Half, rounded up, so that the last one can be taken.
    Half,
    /// Half, but no more than this many at once.
    Batch(NonZeroUsize),
}

impl StealAmount {
    /// Half, but no more than `cap` at once.
    ///
    /// # Panics
    /// If `cap` is zero: a thief that takes nothing would try forever.
    #[must_use]
    pub const fn batch(cap: usize) -> Self {
        Self::Batch(NonZeroUsize::new(cap).expect("a steal cap is at least one"))
    }

    /// How many to take from a queue of `len`: at least one and at most `len`, unless it is empty.
    #[inline]
    #[must_use]
    pub fn take(self, len: usize) -> usize {
        match self {
            Self::One => len.min(1),
            Self::Half => len.div_ceil(2),
            Self::Batch(cap) => len.div_ceil(2).min(cap.get()),
        }
    }
}

/// One worker's view of whom it may rob.
///
/// ```
/// use loxley_balance::{Rng, Topology, VictimOrder, Victims};
///
/// let topology = Topology::regular(2, 1, 2); // workers 0 and 1 share a socket, 2 and 3 another
/// let mut victims = Victims::new(VictimOrder::Nearest, &topology, 3);
/// let mut rng = Rng::new(1);
/// let tried: Vec<usize> = victims.round(&topology, &mut rng, |_| 0).collect();
/// assert_eq!(tried.len(), 3);
/// assert_eq!(tried[0], 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victims {
    order: VictimOrder,
    thief: u32,
    /// The thief's position among the workers sorted by place.
    position: u32,
    /// For each distance, the range of positions within it. Each contains the one before.
    within: [(u32, u32); Distance::ALL.len()],
    /// How far a hierarchical round goes; the widest for all other orders.
    reach: Distance,
}

impl Victims {
    /// The view of worker `thief`.
    ///
    /// # Panics
    /// If the topology has no such worker.
    #[must_use]
    pub fn new(order: VictimOrder, topology: &Topology, thief: usize) -> Self {
        let within = Distance::ALL.map(|distance| {
            let range = topology.neighbourhood(thief, distance);
            (range.start, range.end)
        });
        let mut victims = Self {
            order,
            thief: thief as u32,
            position: topology.position(thief),
            within,
            reach: Distance::Elsewhere,
        };
        victims.found();
        victims
    }

    /// The next round. `load` tells how much waits at a worker; only `MostLoaded` asks.
    ///
    /// Calling it again means that the last round found nothing: a hierarchical search widens.
    /// Say [`found`](Self::found) otherwise. `topology` must be the one given to `new`.
    #[inline]
    pub fn round<'t, L: FnMut(usize) -> usize>(
        &mut self,
        topology: &'t Topology,
        rng: &mut Rng,
        load: L,
    ) -> Round<'t, L> {
        let reach = self.reach;
        self.reach = self.reach_after_failure();
        self.round_within(reach, topology, rng, load)
    }

    /// A round that leaves nobody out, whatever the reach: what a worker owes before it sleeps.
    #[inline]
    pub fn full_round<'t, L: FnMut(usize) -> usize>(
        &self,
        topology: &'t Topology,
        rng: &mut Rng,
        load: L,
    ) -> Round<'t, L> {
        self.round_within(Distance::Elsewhere, topology, rng, load)
    }

    /// What [`round`](Self::round) would come to if nothing changed while it lasts, without walking it: the same draw,
    /// the same victim, the same number of probes at each distance. At most `probes_max` workers are looked at.
    ///
    /// A round in vain takes constant time, the longest queue logarithmic time. Where m of n workers have something, a
    /// round by place takes the shorter of about n/m steps and 8 m: at most a few times √n.
    ///
    /// The thief's own queue must be empty, as that of whoever looks for work is. `queues` must have been made for the
    /// order and the topology of these victims.
    pub fn decide_round(
        &mut self,
        topology: &Topology,
        rng: &mut Rng,
        queues: &QueueIndex,
        probes_max: usize,
    ) -> RoundOutcome {
        let reach = self.reach;
        self.reach = self.reach_after_failure();
        let chance = rng.next_u64();
        let limit = u32::try_from(probes_max).unwrap_or(u32::MAX);
        match self.order {
            VictimOrder::Random => {
                let rings = Rings::everyone_alike(self, chance);
                rings.decide_mixed(queues.occupied(), limit, topology)
            }
            VictimOrder::Nearest | VictimOrder::Hierarchical => {
                let rings = Rings::by_distance(self, reach, chance);
                rings.decide(queues.occupied(), limit, topology)
            }
            VictimOrder::MostLoaded => {
                let start = Loads::new(topology.len(), self.thief, chance).start;
                let victim = queues.longest_before(start as usize);
                let mut by_distance = [0; Distance::ALL.len()];
                if let Some(victim) = victim {
                    by_distance[topology.distance(self.thief as usize, victim) as usize] = 1;
                }
                RoundOutcome {
                    victim,
                    probes: u32::from(victim.is_some()),
                    looks: Looks::Counted(by_distance),
                }
            }
        }
    }

    /// Something was found: a hierarchical search starts near again.
    #[inline]
    pub fn found(&mut self) {
        if self.order == VictimOrder::Hierarchical {
            // Start where there is somebody besides the thief.
            self.reach = self.first_inhabited(Distance::SameGroup);
        }
    }

    /// How far the next round goes.
    #[must_use]
    pub fn reach(&self) -> Distance {
        self.reach
    }

    fn round_within<'t, L: FnMut(usize) -> usize>(
        &self,
        reach: Distance,
        topology: &'t Topology,
        rng: &mut Rng,
        load: L,
    ) -> Round<'t, L> {
        let chance = rng.next_u64();
        let walk = match self.order {
            VictimOrder::Random => Walk::Rings(Rings::everyone_alike(self, chance)),
            VictimOrder::Nearest | VictimOrder::Hierarchical => {
                Walk::Rings(Rings::by_distance(self, reach, chance))
            }
            VictimOrder::MostLoaded => Walk::Loads(Loads::new(topology.len(), self.thief, chance)),
        };
        Round {
            by_place: topology.by_place(),
            walk,
            load,
        }
    }

    /// One level wider, skipping levels that would add nobody.
    fn reach_after_failure(&self) -> Distance {
        let current = self.within[self.reach as usize];
        let mut reach = self.reach;
        while reach != Distance::Elsewhere {
            reach = reach.wider();
            if self.within[reach as usize] != current {
                break;
            }
        }
        reach
    }

    fn first_inhabited(&self, start: Distance) -> Distance {
        let mut reach = start;
        while reach != Distance::Elsewhere {
            let (from, to) = self.within[reach as usize];
            if to - from > 1 {
                break;
            }
            reach = reach.wider();
        }
        reach
    }
}

/// What one round came to.
#[derive(Clone, Debug)]
pub struct RoundOutcome {
    /// The first worker met that has something.
    pub victim: Option<usize>,
    /// How many workers were looked at, the victim included.
    pub probes: u32,
    looks: Looks,
}

/// The looks of a round by distance, or what it takes to count them.
#[derive(Clone, Debug)]
enum Looks {
    Counted([u32; Distance::ALL.len()]),
    /// A stride across all distances, and for each the range of its numbers within that distance.
    Strided(Stride, [(u32, u32); Distance::ALL.len()]),
}

impl RoundOutcome {
    /// How many workers were looked at at each distance, the nearest first.
    #[must_use]
    pub fn probes_by_distance(&self) -> [u32; Distance::ALL.len()] {
        match &self.looks {
            Looks::Counted(counts) => *counts,
            Looks::Strided(stride, within) => {
                let mut nearer = 0;
                within.map(|(from, to)| {
                    let up_to = stride.clone().count_below(to, self.probes)
                        - stride.clone().count_below(from, self.probes);
                    let here = up_to - nearer;
                    nearer = up_to;
                    here
                })
            }
        }
    }
}

/// One search for a victim: an iterator over worker numbers.
#[derive(Debug)]
pub struct Round<'t, L> {
    by_place: &'t [u32],
    walk: Walk,
    load: L,
}

impl<L: FnMut(usize) -> usize> Iterator for Round<'_, L> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        match &mut self.walk {
            Walk::Rings(rings) => {
                let position = rings.next()?;
                Some(self.by_place[position as usize] as usize)
            }
            Walk::Loads(loads) => loads.next(&mut self.load),
        }
    }
}

#[derive(Debug)]
enum Walk {
    Rings(Rings),
    Loads(Loads),
}

/// Walks rings around the thief: the positions within one distance but not within the one before.
#[derive(Debug)]
struct Rings {
    within: [(u32, u32); Distance::ALL.len()],
    /// The ring being walked, as an index into `within`, and the last one to walk.
    ring: usize,
    last: usize,
    /// What the rings before took out of the middle: the thief itself at first.
    hole: (u32, u32),
    stride: Stride,
    chance: u64,
}

impl Rings {
    /// A single ring that holds everyone but the thief.
    #[inline]
    fn everyone_alike(victims: &Victims, chance: u64) -> Self {
        let widest = Distance::Elsewhere as usize;
        Self::new(victims, widest, widest, chance)
    }

    #[inline]
    fn by_distance(victims: &Victims, reach: Distance, chance: u64) -> Self {
        Self::new(victims, 0, reach as usize, chance)
    }

    #[inline]
    fn new(victims: &Victims, first: usize, last: usize, chance: u64) -> Self {
        let hole = (victims.position, victims.position + 1);
        let mut rings = Self {
            within: victims.within,
            ring: first,
            last,
            hole,
            stride: Stride::EMPTY,
            chance,
        };
        rings.enter(first);
        rings
    }

    #[inline]
    fn enter(&mut self, ring: usize) {
        let (start, end) = self.within[ring];
        let size = (end - start) - (self.hole.1 - self.hole.0);
        self.chance = mix(self.chance.wrapping_add(ring as u64));
        self.ring = ring;
        self.stride = Stride::new(size, self.chance);
    }

    #[inline]
    fn next(&mut self) -> Option<u32> {
        loop {
            if let Some(step) = self.stride.next() {
                return Some(self.position_of(step));
            }
            if !self.widen() {
                return None;
            }
        }
    }

    /// Enters the next ring, if there is one.
    #[inline]
    fn widen(&mut self) -> bool {
        if self.ring >= self.last {
            return false;
        }
        self.hole = self.within[self.ring];
        self.enter(self.ring + 1);
        true
    }

    /// The position of a number of this ring's stride.
    #[inline]
    fn position_of(&self, step: u32) -> u32 {
        let position = self.within[self.ring].0 + step;
        if position >= self.hole.0 {
            position + (self.hole.1 - self.hole.0)
        } else {
            position
        }
    }

    /// The number that the stride of this ring has for a position of it.
    #[inline]
    fn number_of(&self, position: u32) -> u32 {
        let number = position - self.within[self.ring].0;
        if position >= self.hole.1 {
            number - (self.hole.1 - self.hole.0)
        } else {
            number
        }
    }

    /// Ring after ring, each of one distance.
    fn decide(mut self, occupied: &BitTree, limit: u32, topology: &Topology) -> RoundOutcome {
        let mut counts = [0; Distance::ALL.len()];
        let mut probes = 0;
        loop {
            let here = self.stride.size.min(limit - probes);
            let met = self.first_occupied(occupied, here);
            let looks = met.map_or(here, |(steps, _)| steps + 1);
            counts[self.ring] += looks;
            probes += looks;
            if met.is_some() || probes == limit || !self.widen() {
                return RoundOutcome {
                    victim: met
                        .map(|(_, position)| topology.by_place()[position as usize] as usize),
                    probes,
                    looks: Looks::Counted(counts),
                };
            }
        }
    }

    /// One ring of all distances.
    fn decide_mixed(mut self, occupied: &BitTree, limit: u32, topology: &Topology) -> RoundOutcome {
        let base = self.within[self.ring].0;
        // The thief is in each of these ranges, and has no number.
        let within = self
            .within
            .map(|(from, to)| (from - base, (to - base).saturating_sub(1)));
        let unmoved = self.stride.clone();
        let here = self.stride.size.min(limit);
        let met = self.first_occupied(occupied, here);
        RoundOutcome {
            victim: met.map(|(_, position)| topology.by_place()[position as usize] as usize),
            probes: met.map_or(here, |(steps, _)| steps + 1),
            looks: Looks::Strided(unmoved, within),
        }
    }

    /// The first position that has something among the first `limit` of this ring, and how many come before it.
    ///
    /// Walks for as long as asking every occupied position would take, then asks them: the one whose number the stride
    /// comes to first.
    fn first_occupied(&mut self, occupied: &BitTree, limit: u32) -> Option<(u32, u32)> {
        if occupied.len() == 0 || limit == 0 {
            return None;
        }
        let size = self.stride.size;
        let start = self.stride.at;
        // Finding a member and its turn costs about as much as eight looks at a bit.
        let walk = (occupied.len().saturating_mul(8)).min(4 * size.isqrt() as usize + 4);
        let walk = limit.min(u32::try_from(walk).unwrap_or(u32::MAX));
        for steps in 0..walk {
            let number = self.stride.next()?;
            let position = self.position_of(number);
            if occupied.contains(position as usize) {
                return Some((steps, position));
            }
        }
        if walk == limit {
            return None;
        }
        let turns = Turns::new(size, start, self.stride.step());
        let (from, to) = self.within[self.ring];
        let (hole_from, hole_to) = self.hole;
        let before = occupied.members(from as usize..hole_from.clamp(from, to) as usize);
        let after = occupied.members(hole_to.clamp(from, to) as usize..to as usize);
        before
            .chain(after)
            .map(|position| (turns.of(self.number_of(position as u32)), position as u32))
            .min()
            .filter(|&(steps, _)| steps < limit)
    }
}

/// When a stride comes to a number: the inverse of the walk.
struct Turns {
    size: u64,
    start: u64,
    /// `step × inverse` is 1 more than a multiple of the size.
    inverse: u64,
}

impl Turns {
    fn new(size: u32, start: u32, step: u32) -> Self {
        // Euclid's algorithm, with the coefficient of the step alone.
        let (mut rest, mut next) = (i64::from(size), i64::from(step));
        let (mut inverse, mut next_inverse) = (0_i64, 1_i64);
        while next != 0 {
            let times = rest / next;
            (rest, next) = (next, rest - times * next);
            (inverse, next_inverse) = (next_inverse, inverse - times * next_inverse);
        }
        Self {
            size: u64::from(size),
            start: u64::from(start),
            inverse: inverse.rem_euclid(i64::from(size)) as u64,
        }
    }

    #[inline]
    fn of(&self, number: u32) -> u32 {
        let ahead = (u64::from(number) + self.size - self.start) % self.size;
        (ahead * self.inverse % self.size) as u32
    }
}

/// Every number below `size` once, in a scattered order.
#[derive(Clone, Debug)]
struct Stride {
    size: u32,
    left: u32,
    at: u32,
    /// Chosen only when a second number is wanted: most rounds end with the first.
    step: Option<u32>,
    chance: u32,
}

impl Stride {
    const EMPTY: Self = Self {
        size: 0,
        left: 0,
        at: 0,
        step: None,
        chance: 0,
    };

    /// The high half of `chance` picks the start, the low half the stride, both evenly up to
    /// 2⁻³² × size.
    #[inline]
    fn new(size: u32, chance: u64) -> Self {
        Self {
            size,
            left: size,
            at: scale((chance >> 32) as u32, size),
            step: None,
            chance: chance as u32,
        }
    }

    #[inline]
    fn next(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        if self.left + 1 < self.size {
            let next = u64::from(self.at) + u64::from(self.step());
            let size = u64::from(self.size);
            self.at = (if next >= size { next - size } else { next }) as u32;
        }
        Some(self.at)
    }

    #[inline]
    fn step(&mut self) -> u32 {
        *self
            .step
            .get_or_insert_with(|| coprime_below(self.size, self.chance))
    }

    /// How many of the next `count` numbers are below `bound`, which is at most the size.
    fn count_below(mut self, bound: u32, count: u32) -> u32 {
        if bound == 0 || count == 0 {
            return 0;
        }
        let (size, at, step) = (
            u64::from(self.size),
            u64::from(self.at),
            u64::from(self.step()),
        );
        // `x mod size` is below the bound when ⌊x ÷ size⌋ and ⌊(x − bound) ÷ size⌋ differ. Sums may wrap: their
        // difference is small.
        let all = floor_sum(u64::from(count), size, step, at);
        let from_bound = floor_sum(u64::from(count), size, step, at + size - u64::from(bound));
        (all.wrapping_sub(from_bound).wrapping_add(u64::from(count))) as u32
    }
}

/// The sum of ⌊(step × i + first) ÷ size⌋ over i below `count`, modulo 2⁶⁴, in logarithmic time.
fn floor_sum(mut count: u64, mut size: u64, mut step: u64, mut first: u64) -> u64 {
    let mut sum = 0_u64;
    loop {
        let pairs = if count.is_multiple_of(2) {
            (count / 2).wrapping_mul(count.wrapping_sub(1))
        } else {
            (count.wrapping_sub(1) / 2).wrapping_mul(count)
        };
        sum = sum.wrapping_add(pairs.wrapping_mul(step / size));
        sum = sum.wrapping_add(count.wrapping_mul(first / size));
        step %= size;
        first %= size;
        let last = step * count + first;
        if last < size {
            return sum;
        }
        // Count the lattice points under the line by rows instead of by columns.
        count = last / size;
        first = last % size;
        (size, step) = (step, size);
    }
}

/// A number from 1 to `size` without a common divisor, so that stepping by it meets everyone.
fn coprime_below(size: u32, chance: u32) -> u32 {
    let mut step = 1 + scale(chance, size);
    while common_divisor(step, size) != 1 {
        step = if step >= size { 1 } else { step + 1 };
    }
    step
}

/// Maps 32 random bits evenly onto `0..size`.
#[inline]
fn scale(bits: u32, size: u32) -> u32 {
    ((u64::from(bits) * u64::from(size)) >> 32) as u32
}

fn common_divisor(mut one: u32, mut other: u32) -> u32 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// Walks the workers by falling load, reading all loads anew at each step.
///
/// Loads change while we look. The walk remembers the last `(load, rank)` it gave out and continues
/// strictly below it, so it ends after at most as many steps as there are workers; a queue that
/// shrank meanwhile may be named twice, one that grew may be missed until the next round.
#[derive(Debug)]
struct Loads {
    workers: u32,
    thief: u32,
    /// Where ranks start, so that ties do not always fall on the same worker.
    start: u32,
    last: Option<(usize, u32)>,
    left: u32,
}

impl Loads {
    #[inline]
    fn new(workers: usize, thief: u32, chance: u64) -> Self {
        let workers = workers as u32;
        let start = scale((chance >> 32) as u32, workers);
        Self {
            workers,
            thief,
            start,
            last: None,
            left: workers,
        }
    }

    #[inline]
    fn next(&mut self, load: &mut impl FnMut(usize) -> usize) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let mut best: Option<(usize, u32)> = None;
        for rank in 0..self.workers {
            let worker = self.worker_at(rank);
            if worker == self.thief {
                continue;
            }
            let candidate = (load(worker as usize), rank);
            let is_new = self.last.is_none_or(|last| candidate < last);
            if candidate.0 > 0 && is_new && best.is_none_or(|best| candidate > best) {
                best = Some(candidate);
            }
        }
        self.last = best;
        match best {
            Some((_, rank)) => Some(self.worker_at(rank) as usize),
            None => {
                self.left = 0;
                None
            }
        }
    }

    #[inline]
    fn worker_at(&self, rank: u32) -> u32 {
        ((u64::from(self.start) + u64::from(rank)) % u64::from(self.workers)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    const ORDERS: [VictimOrder; 4] = [
        VictimOrder::Random,
        VictimOrder::Nearest,
        VictimOrder::MostLoaded,
        VictimOrder::Hierarchical,
    ];

    #[test]
    fn a_full_round_names_everyone_else_once() {
        for topology in [
            Topology::flat(7),
            Topology::cluster(2, 2, 3, 2),
            Topology::flat(1),
        ] {
            let mut rng = Rng::new(1);
            for order in ORDERS {
                for thief in 0..topology.len() {
                    let victims = Victims::new(order, &topology, thief);
                    let mut named: Vec<usize> =
                        victims.full_round(&topology, &mut rng, |_| 1).collect();
                    named.sort_unstable();
                    let others: Vec<usize> = (0..topology.len()).filter(|&w| w != thief).collect();
                    assert_eq!(named, others, "{order:?}");
                }
            }
        }
    }

    #[test]
    fn the_first_random_victim_is_anyone_with_equal_chance() {
        let topology = Topology::cluster(1, 2, 2, 2);
        let mut victims = Victims::new(VictimOrder::Random, &topology, 3);
        let mut rng = Rng::new(6);
        let mut first = [0_u32; 8];
        let mut second = [0_u32; 8];
        for _ in 0..7_000 {
            let mut round = victims.round(&topology, &mut rng, |_| 0);
            first[round.next().unwrap()] += 1;
            second[round.next().unwrap()] += 1;
        }
        for counts in [first, second] {
            assert_eq!(counts[3], 0);
            let even =
                |(worker, &count): (usize, &u32)| worker == 3 || (880..1_120).contains(&count);
            assert!(counts.iter().enumerate().all(even), "{counts:?}");
        }
    }

    #[test]
    fn nearest_never_goes_far_before_near() {
        let topology = Topology::cluster(2, 2, 2, 3);
        let mut rng = Rng::new(2);
        for thief in 0..topology.len() {
            let mut victims = Victims::new(VictimOrder::Nearest, &topology, thief);
            for _ in 0..20 {
                let distances: Vec<Distance> = victims
                    .round(&topology, &mut rng, |_| 0)
                    .map(|victim| topology.distance(thief, victim))
                    .collect();
                assert!(distances.is_sorted());
                assert_eq!(distances.len(), topology.len() - 1);
            }
        }
    }

    #[test]
    fn nearest_varies_among_equals() {
        let topology = Topology::regular(1, 2, 4);
        let mut victims = Victims::new(VictimOrder::Nearest, &topology, 0);
        let mut rng = Rng::new(2);
        let mut first = vec![0; 8];
        for _ in 0..3_000 {
            first[victims.round(&topology, &mut rng, |_| 0).next().unwrap()] += 1;
        }
        assert!(
            first[1..4].iter().all(|count| (880..1_120).contains(count)),
            "{first:?}"
        );
        assert!(first[4..].iter().all(|&count| count == 0));
    }

    #[test]
    fn most_loaded_goes_down_and_leaves_out_the_empty() {
        let loads = [4, 9, 0, 9, 1, 100];
        let topology = Topology::flat(6);
        let mut victims = Victims::new(VictimOrder::MostLoaded, &topology, 5);
        let mut rng = Rng::new(2);
        let mut first = [0; 6];
        for _ in 0..400 {
            let named: Vec<usize> = victims.round(&topology, &mut rng, |w| loads[w]).collect();
            assert_eq!(
                named.iter().map(|&w| loads[w]).collect::<Vec<_>>(),
                [9, 9, 4, 1]
            );
            first[named[0]] += 1;
        }
        // Ties are broken by a rotation, which is not quite even; both must win.
        assert!(first[1] > 50 && first[3] > 50, "{first:?}");
    }

    #[test]
    fn most_loaded_ends_even_when_loads_keep_changing() {
        let topology = Topology::flat(5);
        let mut victims = Victims::new(VictimOrder::MostLoaded, &topology, 0);
        let mut rng = Rng::new(2);
        let mut churn = Rng::new(3);
        let named = victims
            .round(&topology, &mut rng, |_| 1 + churn.index(1_000_000))
            .count();
        assert!(named <= 5);
    }

    #[test]
    fn hierarchical_widens_level_by_level_and_falls_back() {
        let topology = Topology::cluster(2, 2, 2, 2);
        let mut victims = Victims::new(VictimOrder::Hierarchical, &topology, 5);
        let mut rng = Rng::new(2);
        let mut sizes = Vec::new();
        for _ in 0..5 {
            sizes.push(victims.round(&topology, &mut rng, |_| 0).count());
        }
        assert_eq!(sizes, [1, 3, 7, 15, 15]);
        victims.found();
        assert_eq!(
            victims
                .round(&topology, &mut rng, |_| 0)
                .collect::<Vec<_>>(),
            [4]
        );
    }

    #[test]
    fn hierarchical_wastes_no_round_on_levels_that_add_nobody() {
        // One worker per group and one group per socket: the first round spans the machine.
        let topology = Topology::cluster(3, 2, 1, 1);
        let mut victims = Victims::new(VictimOrder::Hierarchical, &topology, 0);
        let mut rng = Rng::new(2);
        assert_eq!(victims.round(&topology, &mut rng, |_| 0).count(), 1);
        assert_eq!(victims.round(&topology, &mut rng, |_| 0).count(), 5);
    }

    #[test]
    fn amounts_are_never_more_than_there_is_and_never_nothing_of_something() {
        for amount in [StealAmount::One, StealAmount::Half, StealAmount::batch(4)] {
            assert_eq!(amount.take(0), 0);
            for len in 1..100 {
                assert!((1..=len).contains(&amount.take(len)), "{amount:?} of {len}");
            }
        }
        assert_eq!(StealAmount::Half.take(usize::MAX), usize::MAX / 2 + 1);
        assert_eq!(StealAmount::batch(4).take(100), 4);
        assert_eq!(StealAmount::batch(4).take(5), 3);
    }
}

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
//! the set: every member once, no two thieves in step, no table to shuffle.

use core::num::NonZeroUsize;

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
                let position = self.within[self.ring].0 + step;
                let jumps_hole = position >= self.hole.0;
                return Some(if jumps_hole {
                    position + (self.hole.1 - self.hole.0)
                } else {
                    position
                });
            }
            if self.ring >= self.last {
                return None;
            }
            self.hole = self.within[self.ring];
            self.enter(self.ring + 1);
        }
    }
}

/// Every number below `size` once, in a scattered order.
#[derive(Debug)]
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
            let step = *self
                .step
                .get_or_insert_with(|| coprime_below(self.size, self.chance));
            let next = u64::from(self.at) + u64::from(step);
            self.at = (next % u64::from(self.size)) as u32;
        }
        Some(self.at)
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

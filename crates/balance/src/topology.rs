//! Where workers sit, as plain data: machine > socket > core group > core.
//!
//! The pool reads it from the machine it runs on; tests and the simulator make it up. What counts
//! is only who is near whom. Sort the workers by place and every neighbourhood of a worker is one
//! contiguous range of that order, each range inside the next wider one:
//!
//! ```text
//!   by place:   0   4 │ 1   5 ║ 2   6 │ 3   7
//!               └core group┘  ║
//!               └── socket ───┘ ...
//! ```
//!
//! So a topology of a million workers takes a few megabytes in all, not a table per worker.

use alloc::vec::Vec;
use core::ops::Range;

/// Where one worker sits. Each number is a label that needs to be unique only within the level
/// above it, so "core 0 of group 0 of socket 1" and globally numbered cores both work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The machine; always the same within one process.
    pub machine: u32,
    /// The socket, or the NUMA node: what shares memory of one speed.
    pub socket: u32,
    /// The core group: what shares a last-level cache.
    pub group: u32,
    /// The physical core: what shares everything but registers.
    pub core: u32,
}

impl Place {
    /// How far it is from here to there.
    #[must_use]
    pub fn distance(&self, other: &Self) -> Distance {
        if self.machine != other.machine {
            Distance::Elsewhere
        } else if self.socket != other.socket {
            Distance::SameMachine
        } else if self.group != other.group {
            Distance::SameSocket
        } else if self.core != other.core {
            Distance::SameGroup
        } else {
            Distance::SameCore
        }
    }
}

/// The narrowest thing two workers share. Nearer is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// One physical core (simultaneous multithreading).
    SameCore,
    /// One core group, hence one last-level cache.
    SameGroup,
    /// One socket or NUMA node, hence memory of one speed.
    SameSocket,
    /// One machine.
    SameMachine,
    /// Nothing but the network.
    Elsewhere,
}

impl Distance {
    /// Every distance, the nearest first.
    pub const ALL: [Self; 5] = [
        Self::SameCore,
        Self::SameGroup,
        Self::SameSocket,
        Self::SameMachine,
        Self::Elsewhere,
    ];

    /// The next wider one, or the same when there is none.
    #[must_use]
    pub fn wider(self) -> Self {
        Self::ALL[(self as usize + 1).min(Self::ALL.len() - 1)]
    }
}

/// The places of all workers, numbered from 0.
///
/// ```
/// use loxley_balance::{Distance, Topology};
///
/// let topology = Topology::regular(2, 2, 2); // 2 sockets × 2 groups × 2 cores
/// assert_eq!(topology.len(), 8);
/// assert_eq!(topology.distance(0, 1), Distance::SameGroup);
/// assert_eq!(topology.distance(0, 2), Distance::SameSocket);
/// assert_eq!(topology.distance(0, 4), Distance::SameMachine);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    places: Vec<Place>,
    /// The workers sorted by place, ties by number.
    by_place: Vec<u32>,
}

impl Topology {
    /// The topology in which worker `i` sits at `places[i]`.
    ///
    /// # Panics
    /// With more than `u32::MAX` workers.
    #[must_use]
    pub fn new(places: Vec<Place>) -> Self {
        let count = u32::try_from(places.len()).expect("at most u32::MAX workers");
        let mut by_place: Vec<u32> = (0..count).collect();
        by_place.sort_by_key(|&worker| places[worker as usize]);
        Self { places, by_place }
    }

    /// `workers` cores side by side in one group: nobody is nearer than anybody else.
    #[must_use]
    pub fn flat(workers: usize) -> Self {
        Self::regular(1, 1, workers)
    }

    /// One machine of equal sockets, equal groups and equal cores, one worker per core.
    #[must_use]
    pub fn regular(sockets: usize, groups_per_socket: usize, cores_per_group: usize) -> Self {
        Self::cluster(1, sockets, groups_per_socket, cores_per_group)
    }

    /// Several such machines.
    #[must_use]
    pub fn cluster(
        machines: usize,
        sockets: usize,
        groups_per_socket: usize,
        cores_per_group: usize,
    ) -> Self {
        let mut places =
            Vec::with_capacity(machines * sockets * groups_per_socket * cores_per_group);
        for machine in 0..machines as u32 {
            for socket in 0..sockets as u32 {
                for group in 0..groups_per_socket as u32 {
                    for core in 0..cores_per_group as u32 {
                        places.push(Place {
                            machine,
                            socket,
                            group,
                            core,
                        });
                    }
                }
            }
        }
        Self::new(places)
    }

    /// How many workers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True without any worker.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Where a worker sits.
    ///
    /// # Panics
    /// If there is no such worker, as in every method that takes one.
    #[must_use]
    pub fn place(&self, worker: usize) -> Place {
        self.places[worker]
    }

    /// How far two workers are from each other.
    #[must_use]
    pub fn distance(&self, one: usize, other: usize) -> Distance {
        self.places[one].distance(&self.places[other])
    }

    /// The workers sorted by place: near ones are neighbours in this order.
    #[must_use]
    pub fn by_place(&self) -> &[u32] {
        &self.by_place
    }

    /// The positions in [`by_place`](Self::by_place) of all workers within `distance` of `worker`,
    /// itself included.
    #[must_use]
    pub fn neighbourhood(&self, worker: usize, distance: Distance) -> Range<u32> {
        let center = self.places[worker];
        let place_at = |position: &u32| self.places[*position as usize];
        let start = self.by_place.partition_point(|position| {
            let place = place_at(position);
            place < center && place.distance(&center) > distance
        });
        let end = self.by_place.partition_point(|position| {
            let place = place_at(position);
            place <= center || place.distance(&center) <= distance
        });
        start as u32..end as u32
    }

    /// The position of a worker in [`by_place`](Self::by_place).
    #[must_use]
    pub fn position(&self, worker: usize) -> u32 {
        let key = (self.places[worker], worker as u32);
        self.by_place
            .partition_point(|&other| (self.places[other as usize], other) < key) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn distances_name_the_narrowest_thing_shared() {
        let topology = Topology::cluster(2, 2, 2, 2);
        let from_zero: Vec<Distance> = [0, 1, 2, 4, 8].map(|to| topology.distance(0, to)).to_vec();
        assert_eq!(from_zero, Distance::ALL);
    }

    #[test]
    fn labels_need_to_be_unique_only_within_their_parent() {
        let here = Place {
            socket: 0,
            group: 7,
            core: 7,
            machine: 0,
        };
        let there = Place { socket: 1, ..here };
        assert_eq!(here.distance(&there), Distance::SameMachine);
    }

    #[test]
    fn neighbourhoods_hold_exactly_the_workers_within_the_distance() {
        // Shuffled on purpose: numbers say nothing about places.
        let mut places: Vec<Place> = Topology::cluster(2, 2, 3, 2).places;
        places.extend_from_within(0..5);
        crate::Rng::new(3).shuffle(&mut places);
        let topology = Topology::new(places);
        for worker in 0..topology.len() {
            assert_eq!(
                topology.by_place()[topology.position(worker) as usize] as usize,
                worker
            );
            for distance in Distance::ALL {
                let range = topology.neighbourhood(worker, distance);
                let mut found: Vec<usize> = topology.by_place()
                    [range.start as usize..range.end as usize]
                    .iter()
                    .map(|&w| w as usize)
                    .collect();
                found.sort_unstable();
                let expected: Vec<usize> = (0..topology.len())
                    .filter(|&other| topology.distance(worker, other) <= distance)
                    .collect();
                assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn widening_stops_at_the_widest() {
        assert_eq!(Distance::SameCore.wider(), Distance::SameGroup);
        assert_eq!(Distance::Elsewhere.wider(), Distance::Elsewhere);
    }

    #[test]
    fn an_empty_topology_is_fine() {
        assert!(Topology::new(vec![]).is_empty());
        assert!(Topology::flat(0).is_empty());
    }
}

//! Pure load-balancing algorithms: what the pool, the scheduler and the simulator have in common.
//!
//! Nothing here has a clock, a thread or a random source of its own. Time comes in as nanoseconds,
//! chance comes in as a seeded [`Rng`], and the same inputs give the same bits on every machine
//! (square roots and powers come from `libm`, never from the platform).
//!
//! | question | module |
//! |---|---|
//! | how is work divided up front? | [`partition`] |
//! | which of these ways fits my work? | [`advice`] |
//! | whom does an idle worker rob, and of how much? | [`victim`], over a [`topology`] |
//! | where does such a search end, without walking it? | [`queue_index`] |
//! | how long does it wait when it found nothing? | [`backoff`] |
//! | was the run balanced? | [`figures`], fed by a [`sketch`] of the durations |
//! | where does chance come from? | [`rng`] |
//!
//! # One worker looking for work
//!
//! ```
//! use loxley_balance::{Backoff, Patience, Rng, StealAmount, Step, Topology, VictimOrder, Victims};
//!
//! let queues = [0_usize, 7, 2, 0]; // how much waits at each of four workers
//! let topology = Topology::regular(1, 2, 2); // one socket, two core groups of two cores
//! let mut rng = Rng::new(7).numbered_child("worker", 0);
//! let mut victims = Victims::new(VictimOrder::MostLoaded, &topology, 0);
//! let mut backoff = Backoff::default();
//!
//! let robbed = victims
//!     .round(&topology, &mut rng, |worker| queues[worker])
//!     .find(|&worker| queues[worker] > 0);
//! match robbed {
//!     Some(victim) => {
//!         assert_eq!(StealAmount::Half.take(queues[victim]), 4);
//!         backoff.reset();
//!         victims.found();
//!     }
//!     None => match backoff.next(&Patience::default(), &mut rng) {
//!         Step::Search => {}            // look again at once
//!         Step::Pause { ns: _ } => {}   // wait, then look again
//!         Step::Park => {}              // sleep until someone wakes us
//!     },
//! }
//! assert_eq!(robbed, Some(1));
//! ```
#![no_std]
#![warn(missing_docs)]

extern crate alloc;

pub mod advice;
pub mod backoff;
pub mod figures;
pub mod partition;
pub mod queue_index;
pub mod rng;
pub mod sketch;
pub mod topology;
pub mod victim;

pub use backoff::{Backoff, Delay, Patience, Step};
pub use figures::{BalanceReport, Observations, QueueDepths, Targets, Verdict};
pub use partition::{Assignment, PartitionError};
pub use queue_index::QueueIndex;
pub use rng::Rng;
pub use sketch::Sketch;
pub use topology::{Distance, Place, Topology};
pub use victim::{RoundOutcome, StealAmount, VictimOrder, Victims};

//! Dividing work up front.
//!
//! | what is known | way | module | cost |
//! |---|---|---|---|
//! | how many items, all alike | equal chunks (P1) | [`chunks`] | O(1) per part |
//! | nothing, they arrive one by one | round-robin (P2) | [`round_robin`] | O(1) per item |
//! | what each item costs | largest first (P3) | [`largest_first`] | O(n log n) |
//! | a key that should stay with its worker | bounded rendezvous hashing (P4) | [`routing`] | O(workers) per item |
//! | costs, and the order must be kept | ranges by weight (P5) | [`ranges`] | O(n + p log n · steps) |
//! | costs and memory | memory-aware (P6) | [`memory`] | O(n log n + n p) |
//! | costs and where the data is | locality-aware (P7) | [`locality`] | O(n log n) |
//!
//! [`granularity`] (P9) comes before all of them: it makes items neither so small that handing them
//! out costs more than doing them, nor so large that one of them holds up everybody.
//!
//! Items and parts are numbered from 0. Weights are finite and not negative; anything else is an
//! error that names the item. An empty input is fine and gives empty parts; zero parts are not.

pub mod chunks;
pub mod granularity;
pub mod largest_first;
pub(crate) mod loads;
pub mod locality;
pub mod memory;
pub mod ranges;
pub mod round_robin;
pub mod routing;

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;

/// Which part got which item.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    part_of: Vec<usize>,
    loads: Vec<f64>,
}

impl Assignment {
    pub(crate) fn new(part_of: Vec<usize>, loads: Vec<f64>) -> Self {
        Self { part_of, loads }
    }

    /// The part of each item.
    #[must_use]
    pub fn part_of(&self) -> &[usize] {
        &self.part_of
    }

    /// How long each part needs for its items.
    #[must_use]
    pub fn loads(&self) -> &[f64] {
        &self.loads
    }

    /// The items of each part, in their original order.
    #[must_use]
    pub fn members(&self) -> Vec<Vec<usize>> {
        let mut members: Vec<Vec<usize>> = self.loads.iter().map(|_| Vec::new()).collect();
        for (item, &part) in self.part_of.iter().enumerate() {
            members[part].push(item);
        }
        members
    }

    /// How long the slowest part needs.
    #[must_use]
    pub fn makespan(&self) -> f64 {
        largest(&self.loads)
    }

    /// The slowest part over the mean part; nothing when there is no load at all.
    #[must_use]
    pub fn imbalance(&self) -> Option<f64> {
        imbalance(&self.loads)
    }
}

/// The largest load over the mean load; nothing when there is no load at all.
#[must_use]
pub fn imbalance(loads: &[f64]) -> Option<f64> {
    let total: f64 = loads.iter().sum();
    (total > 0.0).then(|| largest(loads) * loads.len() as f64 / total)
}

pub(crate) fn largest(loads: &[f64]) -> f64 {
    loads.iter().copied().fold(0.0, f64::max)
}

/// Why work cannot be divided.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum PartitionError {
    /// There is nobody to give work to.
    NoParts,
    /// A weight is NaN, infinite or negative.
    Weight {
        /// The item that has it.
        item: usize,
        /// What it is.
        weight: f64,
    },
    /// Each weight is finite but their sum is not.
    WeightsOverflow,
    /// A speed is NaN, infinite, zero or negative.
    Speed {
        /// The part that has it.
        part: usize,
        /// What it is.
        speed: f64,
    },
}

impl fmt::Display for PartitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoParts => f.write_str("there must be at least one part"),
            Self::Weight { item, weight } => {
                write!(
                    f,
                    "item {item} weighs {weight}; a weight is finite and not negative"
                )
            }
            Self::WeightsOverflow => f.write_str("the sum of all weights is not finite"),
            Self::Speed { part, speed } => {
                write!(
                    f,
                    "part {part} has speed {speed}; a speed is finite and above zero"
                )
            }
        }
    }
}

impl core::error::Error for PartitionError {}

/// Refuses what no partition can be made of; gives the sum of the weights.
pub(crate) fn check(weights: &[f64], parts: usize) -> Result<f64, PartitionError> {
    if parts == 0 {
        return Err(PartitionError::NoParts);
    }
    let mut total = 0.0;
    for (item, &weight) in weights.iter().enumerate() {
        if !is_weight(weight) {
            return Err(PartitionError::Weight { item, weight });
        }
        total += weight;
    }
    if total.is_finite() {
        Ok(total)
    } else {
        Err(PartitionError::WeightsOverflow)
    }
}

/// A weight is finite and not negative.
pub(crate) fn is_weight(weight: f64) -> bool {
    weight.is_finite() && weight >= 0.0
}

/// The items by falling weight, equals in their original order.
pub(crate) fn by_falling_weight(weights: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    // Floats that are not negative order like their bits; adding zero turns −0 into 0.
    order.sort_by_cached_key(|&item| Reverse((weights[item] + 0.0).to_bits()));
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    #[test]
    fn an_assignment_knows_its_parts() {
        let assignment = Assignment::new(vec![1, 0, 1], vec![2.0, 6.0]);
        assert_eq!(assignment.members(), [vec![1], vec![0, 2]]);
        assert_eq!(assignment.makespan(), 6.0);
        assert_eq!(assignment.imbalance(), Some(1.5));
        assert_eq!(imbalance(&[0.0, 0.0]), None);
        assert_eq!(imbalance(&[]), None);
    }

    #[test]
    fn falling_weights_keep_equals_in_order() {
        let weights = [1.0, -0.0, 3.0, 0.0, 1.0, f64::MIN_POSITIVE, 1e300];
        assert_eq!(by_falling_weight(&weights), [6, 2, 0, 4, 5, 1, 3]);
    }

    #[test]
    fn bad_weights_are_named() {
        assert_eq!(check(&[1.0], 0), Err(PartitionError::NoParts));
        assert_eq!(check(&[], 1), Ok(0.0));
        for bad in [-1.0, f64::INFINITY, f64::NEG_INFINITY] {
            let refused = check(&[1.0, bad], 2);
            assert_eq!(
                refused,
                Err(PartitionError::Weight {
                    item: 1,
                    weight: bad
                })
            );
        }
        let nan = check(&[f64::NAN], 1).unwrap_err();
        assert_eq!(
            nan.to_string(),
            "item 0 weighs NaN; a weight is finite and not negative"
        );
        assert_eq!(
            check(&[f64::MAX; 2], 1),
            Err(PartitionError::WeightsOverflow)
        );
    }
}

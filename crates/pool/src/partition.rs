//! Dividing a slice beforehand, when the costs are known.

use loxley_balance::PartitionError;
use loxley_balance::partition::chunks::chunks;
use loxley_balance::partition::largest_first::largest_first;
use loxley_balance::partition::ranges::ranges;
use loxley_balance::partition::round_robin::RoundRobin;
use loxley_balance::partition::routing::Router;

/// How to divide items among the workers beforehand.
///
/// When nothing is known about the costs, [`par_for`](crate::Pool::par_for) is the better choice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Partition<'a> {
    /// Contiguous pieces of equal length.
    Equal,
    /// One item for each worker in turn.
    RoundRobin,
    /// By the cost of each item: the largest first, each to the least loaded worker.
    Weighted(&'a [f64]),
    /// By the key of each item: equal keys meet on one worker, unless that one would get more than
    /// a quarter above its share.
    Hash(&'a [u64]),
    /// Contiguous pieces of equal cost, given the cost of each item.
    Ranges(&'a [f64]),
}

impl Partition<'_> {
    /// The items of each part.
    pub(crate) fn divide(
        &self,
        len: usize,
        parts: usize,
    ) -> Result<Vec<Vec<usize>>, PartitionError> {
        match *self {
            Self::Equal => Ok(chunks(len, parts)?.map(|range| range.collect()).collect()),
            Self::RoundRobin => Ok(deal(len, parts, RoundRobin::new(parts)?)),
            Self::Weighted(costs) => {
                check(costs.len(), len);
                Ok(largest_first(costs, parts)?.members())
            }
            Self::Hash(keys) => {
                check(keys.len(), len);
                Ok(route(keys, parts))
            }
            Self::Ranges(costs) => {
                check(costs.len(), len);
                Ok(ranges(costs, parts)?
                    .into_iter()
                    .map(|range| range.collect())
                    .collect())
            }
        }
    }
}

fn check(given: usize, items: usize) {
    assert_eq!(given, items, "a partition needs one number per item");
}

fn deal(len: usize, parts: usize, mut turns: RoundRobin) -> Vec<Vec<usize>> {
    let mut members = vec![Vec::new(); parts];
    for (part, item) in turns.deal(0..len) {
        members[part].push(item);
    }
    members
}

fn route(keys: &[u64], parts: usize) -> Vec<Vec<usize>> {
    let mut router = Router::new(0.25).expect("a quarter is a fair slack");
    for part in 0..parts {
        router
            .join(part as u64, 1.0)
            .expect("each part joins once, with a weight of one");
    }
    let mut members = vec![Vec::new(); parts];
    for (item, &key) in keys.iter().enumerate() {
        let part = router.place(key, 1).expect("there is at least one part");
        members[part as usize].push(item);
    }
    members
}

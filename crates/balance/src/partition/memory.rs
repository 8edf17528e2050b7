//! P6: balanced parts of which none exceeds its memory.
//!
//! Two wishes that pull apart. Balance wants the long items spread; memory wants the bulky ones
//! packed. Whether a packing exists at all is a hard problem, so this tries three ways in turn:
//!
//! 1. largest *time* first to the least loaded part with room: the best balance, and with memory to
//!    spare it always works;
//! 2. largest *memory* first to the part where it fits tightest, then balanced by moving and
//!    exchanging items of the slowest part;
//! 3. a systematic search, in the same order, that gives up after a fixed number of steps.
//!
//! An error says which items could not be placed, and how sure that is: an item larger than any
//! part, a sum larger than all parts and a search that saw every possibility are proofs; a search
//! that gave up is not.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;

use super::{Assignment, PartitionError, by_falling_weight, check};

/// How many placements the systematic search tries before it gives up.
const SEARCH_STEPS: u32 = 200_000;

/// How many exchanges of two items are looked at to balance what was packed by memory.
const EXCHANGES: u32 = 1_000_000;

/// Something to do that occupies memory as long as its part works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item {
    /// How long it takes.
    pub weight: f64,
    /// How much memory it occupies.
    pub memory: u64,
}

/// Divides items over parts with these memory limits.
///
/// ```
/// use loxley_balance::partition::memory::{Item, within_memory};
///
/// let items = [
///     Item { weight: 9.0, memory: 10 },
///     Item { weight: 1.0, memory: 90 },
///     Item { weight: 1.0, memory: 20 },
/// ];
/// let assignment = within_memory(&items, &[40, 100])?;
/// assert_eq!(assignment.part_of(), [0, 1, 0]);
///
/// let refused = within_memory(&items, &[40, 80]).unwrap_err();
/// assert_eq!(refused.to_string(), "item 1 needs more memory than any part has");
/// # Ok::<(), loxley_balance::partition::memory::MemoryError>(())
/// ```
///
/// # Errors
/// When there are no parts, a weight is not a weight, or not everything fits.
pub fn within_memory(items: &[Item], limits: &[u64]) -> Result<Assignment, MemoryError> {
    let weights: Vec<f64> = items.iter().map(|item| item.weight).collect();
    check(&weights, limits.len()).map_err(MemoryError::Input)?;
    refuse_the_impossible(items, limits)?;
    if let Ok(packing) = by_time(items, &weights, limits) {
        return Ok(packing.into_assignment());
    }
    let order = by_falling_memory(items);
    let mut packing = match tightest_fit(items, &order, limits) {
        Ok(packing) => packing,
        Err(unplaced) => search(items, &order, limits, unplaced)?,
    };
    packing.level();
    Ok(packing.into_assignment())
}

fn refuse_the_impossible(items: &[Item], limits: &[u64]) -> Result<(), MemoryError> {
    let widest = limits.iter().copied().max().unwrap_or(0);
    let too_large: Vec<usize> = (0..items.len())
        .filter(|&item| items[item].memory > widest)
        .collect();
    if !too_large.is_empty() {
        return Err(MemoryError::DoesNotFit {
            items: too_large,
            because: Because::LargerThanAnyPart,
        });
    }
    let needed: u128 = items.iter().map(|item| u128::from(item.memory)).sum();
    let mut room: u128 = limits.iter().map(|&limit| u128::from(limit)).sum();
    if needed <= room {
        return Ok(());
    }
    // Name the items that are over, counting the small ones in first: the fewest possible.
    let mut order = by_falling_memory(items);
    order.reverse();
    let mut over = Vec::new();
    for item in order {
        match room.checked_sub(u128::from(items[item].memory)) {
            Some(left) => room = left,
            None => over.push(item),
        }
    }
    over.sort_unstable();
    Err(MemoryError::DoesNotFit {
        items: over,
        because: Because::MoreThanAllParts,
    })
}

fn by_falling_memory(items: &[Item]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&item| Reverse(items[item].memory));
    order
}

/// Parts being filled.
struct Packing<'a> {
    items: &'a [Item],
    part_of: Vec<usize>,
    loads: Vec<f64>,
    room: Vec<u64>,
}

impl<'a> Packing<'a> {
    fn new(items: &'a [Item], limits: &[u64]) -> Self {
        Self {
            items,
            part_of: vec![0; items.len()],
            loads: vec![0.0; limits.len()],
            room: limits.to_vec(),
        }
    }

    fn fits(&self, item: usize, part: usize) -> bool {
        self.items[item].memory <= self.room[part]
    }

    fn put(&mut self, item: usize, part: usize) {
        self.part_of[item] = part;
        self.loads[part] += self.items[item].weight;
        self.room[part] -= self.items[item].memory;
    }

    fn take(&mut self, item: usize) {
        let part = self.part_of[item];
        self.loads[part] -= self.items[item].weight;
        self.room[part] += self.items[item].memory;
    }

    /// The least loaded part with room for an item.
    fn least_loaded(&self, item: usize) -> Option<usize> {
        (0..self.room.len())
            .filter(|&part| self.fits(item, part))
            .min_by(|&one, &other| self.loads[one].total_cmp(&self.loads[other]))
    }

    /// The part with the least room that still has enough, the less loaded of equals.
    fn tightest(&self, item: usize) -> Option<usize> {
        (0..self.room.len())
            .filter(|&part| self.fits(item, part))
            .min_by(|&one, &other| {
                let by_room = self.room[one].cmp(&self.room[other]);
                by_room.then_with(|| self.loads[one].total_cmp(&self.loads[other]))
            })
    }

    fn slowest(&self) -> usize {
        let parts = 0..self.loads.len();
        parts
            .max_by(|&one, &other| self.loads[one].total_cmp(&self.loads[other]))
            .unwrap_or(0)
    }

    /// Moves items away from the slowest part, or exchanges them for shorter ones, while that lowers
    /// the larger of the two loads. Each step lowers the sum of squared loads, so it ends; a cap on
    /// the steps and on the exchanges looked at bounds how late.
    fn level(&mut self) {
        let mut exchanges = EXCHANGES;
        for _ in 0..self.items.len() {
            let slowest = self.slowest();
            if let Some((item, part)) = self.relief(slowest) {
                self.take(item);
                self.put(item, part);
            } else if let Some((item, other)) = self.exchange(slowest, &mut exchanges) {
                let part = self.part_of[other];
                self.take(item);
                self.take(other);
                self.put(item, part);
                self.put(other, slowest);
            } else {
                return;
            }
        }
    }

    /// The move from the slowest part that leaves the lowest larger load of the two.
    fn relief(&self, slowest: usize) -> Option<(usize, usize)> {
        let mut best = None;
        let mut lowest = self.loads[slowest];
        for item in self.members(slowest) {
            let Some(part) = self.least_loaded(item) else {
                continue;
            };
            let weight = self.items[item].weight;
            let after = (self.loads[part] + weight).max(self.loads[slowest] - weight);
            if part != slowest && after < lowest {
                (best, lowest) = (Some((item, part)), after);
            }
        }
        best
    }

    /// An item of the slowest part and one of the fastest that had better change places.
    fn exchange(&self, slowest: usize, budget: &mut u32) -> Option<(usize, usize)> {
        let fastest = self.fastest();
        let mut best = None;
        let mut lowest = self.loads[slowest];
        for item in self.members(slowest) {
            for other in self.members(fastest) {
                *budget = budget.checked_sub(1)?;
                let gain = self.items[item].weight - self.items[other].weight;
                let after = (self.loads[fastest] + gain).max(self.loads[slowest] - gain);
                if after < lowest && self.can_exchange(item, other) {
                    (best, lowest) = (Some((item, other)), after);
                }
            }
        }
        best
    }

    fn can_exchange(&self, one: usize, other: usize) -> bool {
        let (here, there) = (self.items[one].memory, self.items[other].memory);
        let (room_here, room_there) =
            (self.room[self.part_of[one]], self.room[self.part_of[other]]);
        there <= room_here.saturating_add(here) && here <= room_there.saturating_add(there)
    }

    fn members(&self, part: usize) -> impl Iterator<Item = usize> {
        (0..self.items.len()).filter(move |&item| self.part_of[item] == part)
    }

    fn fastest(&self) -> usize {
        let parts = 0..self.loads.len();
        parts
            .min_by(|&one, &other| self.loads[one].total_cmp(&self.loads[other]))
            .unwrap_or(0)
    }

    fn into_assignment(mut self) -> Assignment {
        // Taking out and putting in leaves rounding behind; the result should not show it.
        self.loads.fill(0.0);
        for (item, &part) in self.items.iter().zip(&self.part_of) {
            self.loads[part] += item.weight;
        }
        Assignment::new(self.part_of, self.loads)
    }
}

/// Largest time first to the least loaded part with room; the items without any on failure.
fn by_time<'a>(
    items: &'a [Item],
    weights: &[f64],
    limits: &[u64],
) -> Result<Packing<'a>, Vec<usize>> {
    fill(
        items,
        &by_falling_weight(weights),
        limits,
        Packing::least_loaded,
    )
}

/// Largest memory first to where it fits tightest; the items without any on failure.
fn tightest_fit<'a>(
    items: &'a [Item],
    order: &[usize],
    limits: &[u64],
) -> Result<Packing<'a>, Vec<usize>> {
    fill(items, order, limits, Packing::tightest)
}

fn fill<'a>(
    items: &'a [Item],
    order: &[usize],
    limits: &[u64],
    choose: impl Fn(&Packing<'a>, usize) -> Option<usize>,
) -> Result<Packing<'a>, Vec<usize>> {
    let mut packing = Packing::new(items, limits);
    let mut unplaced = Vec::new();
    for &item in order {
        match choose(&packing, item) {
            Some(part) => packing.put(item, part),
            None => unplaced.push(item),
        }
    }
    if unplaced.is_empty() {
        return Ok(packing);
    }
    unplaced.sort_unstable();
    Err(unplaced)
}

/// Tries every placement, the bulkiest items first, parts of equal room only once.
fn search<'a>(
    items: &'a [Item],
    order: &[usize],
    limits: &[u64],
    unplaced: Vec<usize>,
) -> Result<Packing<'a>, MemoryError> {
    let mut packing = Packing::new(items, limits);
    // For each placed item the part to try next; the last entry belongs to the item in hand.
    let mut tries = vec![0];
    for _ in 0..SEARCH_STEPS {
        let depth = tries.len() - 1;
        if depth == order.len() {
            return Ok(packing);
        }
        let item = order[depth];
        match next_candidate(&packing, item, tries[depth]) {
            Some(part) => {
                tries[depth] = part + 1;
                packing.put(item, part);
                tries.push(0);
            }
            None => {
                tries.pop();
                let Some(previous) = tries.len().checked_sub(1) else {
                    return Err(MemoryError::DoesNotFit {
                        items: unplaced,
                        because: Because::NoPackingExists,
                    });
                };
                packing.take(order[previous]);
            }
        }
    }
    Err(MemoryError::DoesNotFit {
        items: unplaced,
        because: Because::NoPackingFound,
    })
}

/// The next part from `from` on that has room, leaving out those like an earlier one.
fn next_candidate(packing: &Packing<'_>, item: usize, from: usize) -> Option<usize> {
    (from..packing.room.len()).find(|&part| {
        packing.fits(item, part) && !packing.room[..part].contains(&packing.room[part])
    })
}

/// Why items cannot be placed within memory.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MemoryError {
    /// Parts or weights are not such.
    Input(PartitionError),
    /// Some items have no place.
    DoesNotFit {
        /// Which ones, in rising order. Where only the whole is too much, these are the ones left
        /// over when the others were placed.
        items: Vec<usize>,
        /// How that is known.
        because: Because,
    },
}

/// How it is known that items do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Because {
    /// Each of them needs more than the largest part has.
    LargerThanAnyPart,
    /// All items together need more than all parts together have.
    MoreThanAllParts,
    /// Every way to place all items was tried.
    NoPackingExists,
    /// The search gave up; there may be a way, but only just.
    NoPackingFound,
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (items, because) = match self {
            Self::Input(_) => return f.write_str("the input cannot be divided"),
            Self::DoesNotFit { items, because } => (items, because),
        };
        let many = items.len() != 1;
        f.write_str(if many { "items " } else { "item " })?;
        name_some(f, items)?;
        let plural = |one: &'static str, more: &'static str| if many { more } else { one };
        match because {
            Because::LargerThanAnyPart => {
                write!(
                    f,
                    " {} more memory than any part has",
                    plural("needs", "need")
                )
            }
            Because::MoreThanAllParts => {
                write!(
                    f,
                    " {} over: all parts together lack the memory",
                    plural("is", "are")
                )
            }
            Because::NoPackingExists => {
                write!(
                    f,
                    " {} over: no way to place everything exists",
                    plural("is", "are")
                )
            }
            Because::NoPackingFound => {
                write!(
                    f,
                    " {} over: no way to place everything was found",
                    plural("is", "are")
                )
            }
        }
    }
}

/// The first few items, and how many more there are.
fn name_some(f: &mut fmt::Formatter<'_>, items: &[usize]) -> fmt::Result {
    const SHOWN: usize = 10;
    for (index, item) in items.iter().take(SHOWN).enumerate() {
        write!(f, "{}{item}", if index == 0 { "" } else { ", " })?;
    }
    match items.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => write!(f, " and {more} more"),
        _ => Ok(()),
    }
}

impl core::error::Error for MemoryError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Input(source) => Some(source),
            Self::DoesNotFit { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn items(pairs: &[(f64, u64)]) -> Vec<Item> {
        pairs
            .iter()
            .map(|&(weight, memory)| Item { weight, memory })
            .collect()
    }

    fn refusal(items: &[Item], limits: &[u64]) -> (Vec<usize>, Because) {
        match within_memory(items, limits).unwrap_err() {
            MemoryError::DoesNotFit { items, because } => (items, because),
            MemoryError::Input(input) => panic!("{input}"),
        }
    }

    #[test]
    fn with_memory_to_spare_it_is_largest_first() {
        let some = items(&[(2.0, 1), (7.0, 1), (3.0, 1), (4.0, 1)]);
        let assignment = within_memory(&some, &[100, 100]).unwrap();
        assert_eq!(assignment.loads(), [9.0, 7.0]);
    }

    #[test]
    fn where_spreading_time_would_burst_memory_it_packs() {
        // By time, 5 and 5 go to different parts and the bulky one fits nowhere.
        let some = items(&[(5.0, 4), (5.0, 4), (1.0, 8)]);
        let assignment = within_memory(&some, &[8, 8]).unwrap();
        assert_eq!(assignment.members(), [vec![2], vec![0, 1]]);
    }

    #[test]
    fn where_tightest_fit_fails_it_searches() {
        // Six items that fill two parts exactly, in the one way that no greedy order finds.
        let some = items(&[(1.0, 6), (1.0, 5), (1.0, 5), (1.0, 4), (1.0, 3), (1.0, 3)]);
        assert!(tightest_fit(&some, &by_falling_memory(&some), &[13, 13]).is_err());
        let assignment = within_memory(&some, &[13, 13]).unwrap();
        assert_eq!(assignment.loads(), [3.0, 3.0]);
    }

    #[test]
    fn what_is_larger_than_any_part_is_named() {
        let some = items(&[(1.0, 5), (1.0, 50), (1.0, 60)]);
        assert_eq!(
            refusal(&some, &[40, 10]),
            (vec![1, 2], Because::LargerThanAnyPart)
        );
    }

    #[test]
    fn a_sum_too_large_names_the_fewest() {
        let some = items(&[(1.0, 9), (1.0, 2), (1.0, 2)]);
        assert_eq!(
            refusal(&some, &[9, 3]),
            (vec![0], Because::MoreThanAllParts)
        );
    }

    #[test]
    fn an_impossible_packing_is_proven() {
        // 12 of 12 in sum, but three threes cannot share two fives and a two.
        let some = items(&[(1.0, 3), (1.0, 3), (1.0, 3), (1.0, 3)]);
        let (over, because) = refusal(&some, &[5, 5, 2]);
        assert_eq!((over.len(), because), (2, Because::NoPackingExists));
    }

    #[test]
    fn a_search_that_gives_up_says_so() {
        // Odd sizes, even limits, nearly full: many ways to try, none of them right.
        let some: Vec<Item> = (0..40)
            .map(|n| Item {
                weight: 1.0,
                memory: 1_001 + 2 * (n * n % 37),
            })
            .collect();
        let needed: u64 = some.iter().map(|item| item.memory).sum();
        let (_, because) = refusal(&some, &[needed / 8; 8].map(|limit| limit + 1));
        assert_eq!(because, Because::NoPackingFound);
    }

    #[test]
    fn levelling_moves_where_there_is_room_and_exchanges_where_there_is_none() {
        // Packed by memory, the first part is full and has little to do.
        let mut pairs = vec![(10.0, 10), (1.0, 10)];
        pairs.extend([(2.0, 1); 10]);
        let some = items(&pairs);
        let order = by_falling_memory(&some);
        for room in [20, 40] {
            let Ok(mut packing) = tightest_fit(&some, &order, &[20, room]) else {
                panic!("there is room for all");
            };
            assert_eq!(packing.loads, [11.0, 20.0]);
            packing.level();
            assert_eq!(packing.loads[packing.slowest()], 16.0);
        }
    }

    #[test]
    fn an_exchange_that_helps_nobody_is_not_made() {
        let some = items(&[(5.0, 5), (4.0, 5)]);
        let Ok(packing) = tightest_fit(&some, &[0, 1], &[5, 5]) else {
            panic!("there is room for both");
        };
        assert_eq!(packing.exchange(packing.slowest(), &mut 10), None);
    }

    #[test]
    fn messages_name_items_and_say_how_sure_they_are() {
        let many: Vec<Item> = (0..13)
            .map(|_| Item {
                weight: 1.0,
                memory: 9,
            })
            .collect();
        let message = within_memory(&many, &[1]).unwrap_err().to_string();
        let expected =
            "items 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 3 more need more memory than any part has";
        assert_eq!(message, expected);
    }

    #[test]
    fn empty_input_is_fine_and_bad_input_is_not() {
        assert_eq!(within_memory(&[], &[1]).unwrap().loads(), [0.0]);
        let no_parts = within_memory(&[], &[]).unwrap_err();
        assert_eq!(no_parts, MemoryError::Input(PartitionError::NoParts));
        assert!(within_memory(&items(&[(f64::NAN, 1)]), &[1]).is_err());
    }
}

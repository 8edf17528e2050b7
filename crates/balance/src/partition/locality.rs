//! P7: items near their data, unless that makes somebody wait.
//!
//! Every item names the parts that already hold its data. Elsewhere it takes longer by its transfer
//! time. Items go, the longest first, to the part that would be done with them earliest, transfer
//! included; so data moves exactly when waiting at home would take longer than moving. Then items
//! that turned out to be away for nothing are brought home.
//!
//! `transfer_price` says what moving costs besides the receiver's time (the network, money): at 0
//! only the end of the run counts, and as it grows items stay home however long they wait there.
//!
//! Only the homes of an item and the least loaded part can be the earliest, so each item looks at
//! those alone: O(n log n + total number of homes).

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::loads::Loads;
use super::{Assignment, PartitionError, by_falling_weight, check, is_weight, largest};

/// Something to do and where its data is.
#[derive(Clone, Debug, PartialEq)]
pub struct Item<'a> {
    /// How long it takes where its data is.
    pub weight: f64,
    /// The parts that hold its data. None at all means that it has to be fetched wherever it runs.
    pub homes: &'a [usize],
    /// How much longer it takes elsewhere.
    pub transfer: f64,
}

/// Who got what, and what had to move for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Who got what; the loads include transfers.
    pub assignment: Assignment,
    /// The sum of all transfer times.
    pub transfer: f64,
    /// The items that run away from their data, in rising order.
    pub moved: Vec<usize>,
}

/// Divides items over parts, trading imbalance against transfer.
///
/// ```
/// use loxley_balance::partition::locality::{Item, near_data};
///
/// // Four items whose data is all at part 0.
/// let item = Item { weight: 10.0, homes: &[0], transfer: 5.0 };
/// let items = vec![item; 4];
/// let placement = near_data(&items, 2, 0.0)?;
/// assert_eq!(placement.assignment.loads(), [30.0, 15.0]);
/// assert_eq!(placement.transfer, 5.0);
///
/// let stay = near_data(&items, 2, 10.0)?; // moving is dear
/// assert_eq!(stay.assignment.loads(), [40.0, 0.0]);
/// # Ok::<(), loxley_balance::partition::locality::LocalityError>(())
/// ```
///
/// # Errors
/// When there are no parts, or a weight, a transfer, a home or the price is not one.
pub fn near_data(
    items: &[Item<'_>],
    parts: usize,
    transfer_price: f64,
) -> Result<Placement, LocalityError> {
    let weights: Vec<f64> = items.iter().map(|item| item.weight).collect();
    check_items(items, &weights, parts, transfer_price)?;
    let longest_first = by_falling_weight(&weights);
    let spread = earliest_finish(items, &longest_first, parts, transfer_price);
    let home = all_at_home(items, &longest_first, parts);
    let cost = |plan: &Plan<'_, '_>| largest(&plan.loads) + transfer_price * plan.transfer();
    // Earliest finish is a rule of thumb; staying home must never have been better.
    let best = if cost(&home) <= cost(&spread) {
        home
    } else {
        spread
    };
    Ok(best.into_placement())
}

fn check_items(
    items: &[Item<'_>],
    weights: &[f64],
    parts: usize,
    price: f64,
) -> Result<(), LocalityError> {
    check(weights, parts).map_err(LocalityError::Input)?;
    if !is_weight(price) {
        return Err(LocalityError::Price(price));
    }
    let mut total = 0.0;
    for (index, item) in items.iter().enumerate() {
        if !is_weight(item.transfer) {
            return Err(LocalityError::Transfer {
                item: index,
                transfer: item.transfer,
            });
        }
        if let Some(&part) = item.homes.iter().find(|&&part| part >= parts) {
            return Err(LocalityError::UnknownHome { item: index, part });
        }
        total += item.weight + item.transfer * (1.0 + price);
    }
    if total.is_finite() {
        Ok(())
    } else {
        Err(LocalityError::Input(PartitionError::WeightsOverflow))
    }
}

/// A placement in the making.
struct Plan<'p, 'h> {
    items: &'p [Item<'h>],
    part_of: Vec<usize>,
    loads: Vec<f64>,
}

impl Plan<'_, '_> {
    fn transfer(&self) -> f64 {
        self.items
            .iter()
            .zip(&self.part_of)
            .map(|(item, &part)| fetch(item, part))
            .sum()
    }

    fn sum_loads_anew(&mut self) {
        self.loads.fill(0.0);
        for (item, &part) in self.items.iter().zip(&self.part_of) {
            self.loads[part] += item.weight + fetch(item, part);
        }
    }

    /// Brings items home, the costliest transfers first, as long as the slowest part is not
    /// thereby made slower.
    fn bring_home(&mut self) {
        let limit = largest(&self.loads);
        let mut away: Vec<usize> = (0..self.items.len())
            .filter(|&item| fetch(&self.items[item], self.part_of[item]) > 0.0)
            .collect();
        away.sort_by(|&one, &other| {
            self.items[other]
                .transfer
                .total_cmp(&self.items[one].transfer)
        });
        for item in away {
            let weight = self.items[item].weight;
            let homes = self.items[item].homes.iter().copied();
            let least = homes.min_by(|&one, &other| self.loads[one].total_cmp(&self.loads[other]));
            if let Some(home) = least.filter(|&home| self.loads[home] + weight <= limit) {
                self.loads[self.part_of[item]] -= weight + self.items[item].transfer;
                self.loads[home] += weight;
                self.part_of[item] = home;
            }
        }
        self.sum_loads_anew();
    }

    fn into_placement(self) -> Placement {
        let is_away = |&item: &usize| !self.items[item].homes.contains(&self.part_of[item]);
        Placement {
            transfer: self.transfer(),
            moved: (0..self.items.len()).filter(is_away).collect(),
            assignment: Assignment::new(self.part_of, self.loads),
        }
    }
}

/// What an item has to wait for its data at a part.
fn fetch(item: &Item<'_>, part: usize) -> f64 {
    if item.homes.contains(&part) {
        0.0
    } else {
        item.transfer
    }
}

/// In the given order, each item to where it is done earliest.
fn earliest_finish<'p, 'h>(
    items: &'p [Item<'h>],
    order: &[usize],
    parts: usize,
    price: f64,
) -> Plan<'p, 'h> {
    let mut loads = Loads::new(parts);
    let mut part_of = vec![0; items.len()];
    for &index in order {
        let item = &items[index];
        let part = cheapest_part(item, &mut loads, price);
        part_of[index] = part;
        loads.add(part, item.weight + fetch(item, part));
    }
    let mut plan = Plan {
        items,
        part_of,
        loads: loads.into_vec(),
    };
    plan.bring_home();
    plan
}

/// The best of the item's homes and the least loaded part; home on a tie.
fn cheapest_part(item: &Item<'_>, loads: &mut Loads, price: f64) -> usize {
    let anywhere = loads.least();
    let cost = |part: usize| loads.of(part) + fetch(item, part) * (1.0 + price);
    let candidates = item.homes.iter().copied().chain([anywhere]);
    candidates
        .min_by(|&one, &other| cost(one).total_cmp(&cost(other)))
        .unwrap_or(anywhere)
}

/// In the given order, each item at the least loaded of its homes.
fn all_at_home<'p, 'h>(items: &'p [Item<'h>], order: &[usize], parts: usize) -> Plan<'p, 'h> {
    let mut loads = Loads::new(parts);
    let mut part_of = vec![0; items.len()];
    for &index in order {
        let item = &items[index];
        let homes = item.homes.iter().copied();
        let least = homes.min_by(|&one, &other| loads.of(one).total_cmp(&loads.of(other)));
        let part = least.unwrap_or_else(|| loads.least());
        part_of[index] = part;
        loads.add(part, item.weight + fetch(item, part));
    }
    Plan {
        items,
        part_of,
        loads: loads.into_vec(),
    }
}

/// Why items cannot be placed near their data.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum LocalityError {
    /// Parts or weights are not such.
    Input(PartitionError),
    /// A transfer time is NaN, infinite or negative.
    Transfer {
        /// The item that has it.
        item: usize,
        /// What it is.
        transfer: f64,
    },
    /// An item's data is said to be at a part that does not exist.
    UnknownHome {
        /// The item.
        item: usize,
        /// The part it named.
        part: usize,
    },
    /// The price of a transfer is NaN, infinite or negative.
    Price(f64),
}

impl fmt::Display for LocalityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(_) => f.write_str("the input cannot be divided"),
            Self::Transfer { item, transfer } => {
                write!(
                    f,
                    "item {item} has transfer time {transfer}; it is finite and not negative"
                )
            }
            Self::UnknownHome { item, part } => {
                write!(
                    f,
                    "item {item} has its data at part {part}, which does not exist"
                )
            }
            Self::Price(price) => {
                write!(
                    f,
                    "the transfer price is {price}; it is finite and not negative"
                )
            }
        }
    }
}

impl core::error::Error for LocalityError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Input(source) => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(weight: f64, homes: &[usize], transfer: f64) -> Item<'_> {
        Item {
            weight,
            homes,
            transfer,
        }
    }

    #[test]
    fn balanced_data_stays_home() {
        const HOMES: [&[usize]; 3] = [&[0], &[1], &[2]];
        let items: Vec<Item<'_>> = (0..12).map(|n| item(3.0, HOMES[n % 3], 1.0)).collect();
        let placement = near_data(&items, 3, 0.0).unwrap();
        assert_eq!(placement.moved, []);
        assert_eq!(placement.assignment.loads(), [12.0; 3]);
    }

    #[test]
    fn free_transfers_give_largest_first() {
        let weights = [7.0, 4.0, 3.0, 2.0];
        let items = weights.map(|weight| item(weight, &[], 0.0));
        let placement = near_data(&items, 2, 0.0).unwrap();
        let plain = super::super::largest_first::largest_first(&weights, 2).unwrap();
        assert_eq!(placement.assignment, plain);
    }

    #[test]
    fn a_transfer_dearer_than_waiting_is_never_made() {
        let items = [const {
            Item {
                weight: 1.0,
                homes: &[0],
                transfer: 100.0,
            }
        }; 50];
        let placement = near_data(&items, 4, 0.0).unwrap();
        assert_eq!(
            (placement.transfer, placement.assignment.makespan()),
            (0.0, 50.0)
        );
    }

    #[test]
    fn replicas_are_used_before_transfers() {
        let items = [const {
            Item {
                weight: 1.0,
                homes: &[0, 2],
                transfer: 0.5,
            }
        }; 8];
        let placement = near_data(&items, 3, 1e6).unwrap();
        assert_eq!(placement.assignment.loads(), [4.0, 0.0, 4.0]);
    }

    #[test]
    fn items_away_for_nothing_come_home() {
        // One of the long items has to move, to 11. A short one moves too, to be early; but at home
        // it is in time as well.
        let long = item(10.0, &[2], 1.0);
        let short = item(2.0, &[3], 1.0);
        let items = [long.clone(), long, short.clone(), short.clone(), short];
        let placement = near_data(&items, 4, 0.0).unwrap();
        assert_eq!(placement.assignment.makespan(), 11.0);
        assert_eq!((placement.moved, placement.transfer), (vec![1], 1.0));
    }

    #[test]
    fn a_higher_price_never_moves_more() {
        let mut rng = crate::Rng::new(3);
        let items: Vec<Item<'_>> = (0..60)
            .map(|_| {
                item(
                    1.0 + rng.unit_f64(),
                    if rng.chance(0.7) { &[0] } else { &[1] },
                    rng.unit_f64(),
                )
            })
            .collect();
        let prices = [0.0, 1.0, 4.0, 16.0, 1e6];
        let transfers = prices.map(|price| near_data(&items, 4, price).unwrap().transfer);
        assert!(
            transfers.is_sorted_by(|more, less| more >= less),
            "{transfers:?}"
        );
        assert!(transfers[0] > 0.0 && transfers[4] == 0.0, "{transfers:?}");
    }

    #[test]
    fn bad_input_is_named() {
        let refused = |items: &[Item<'_>], price| near_data(items, 2, price).unwrap_err();
        let fine = item(1.0, &[0], 1.0);
        assert_eq!(
            refused(&[fine.clone(), item(1.0, &[2], 1.0)], 0.0),
            LocalityError::UnknownHome { item: 1, part: 2 }
        );
        assert_eq!(
            refused(&[item(1.0, &[], -1.0)], 0.0),
            LocalityError::Transfer {
                item: 0,
                transfer: -1.0
            }
        );
        assert_eq!(
            refused(core::slice::from_ref(&fine), -2.0),
            LocalityError::Price(-2.0)
        );
        assert!(matches!(
            refused(&[item(f64::NAN, &[], 0.0)], 0.0),
            LocalityError::Input(_)
        ));
        assert!(matches!(
            refused(&[item(1.0, &[], f64::MAX)], 9.0),
            LocalityError::Input(_)
        ));
        assert!(near_data(&[], 2, 0.0).is_ok());
        assert_eq!(
            near_data(&[], 0, 0.0),
            Err(LocalityError::Input(PartitionError::NoParts))
        );
    }
}

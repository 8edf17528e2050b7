//! P9: pieces that are neither too small nor too large.
//!
//! Handing out a piece costs something, whatever is in it. Pieces too small waste that overhead;
//! pieces too large leave others waiting for the last one. A [`Grain`] says what lies between, and
//! a [`Batcher`] makes it so, for a list or a stream: small items are gathered until together they
//! are worth handing out, and large ones are split if they know how ([`Split`]).

use alloc::vec::Vec;
use core::fmt;

/// The smallest and the largest piece worth handing out, in the unit of the items' costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grain {
    smallest: f64,
    largest: f64,
}

impl Grain {
    /// Pieces of at least `smallest` and, where items allow it, at most `largest`.
    ///
    /// # Errors
    /// When `smallest` is NaN, infinite or negative, or `largest` is zero, NaN or less than
    /// `smallest`. An infinite `largest` never splits.
    pub fn new(smallest: f64, largest: f64) -> Result<Self, GranularityError> {
        let is_grain =
            smallest.is_finite() && smallest >= 0.0 && largest > 0.0 && largest >= smallest;
        if is_grain {
            Ok(Self { smallest, largest })
        } else {
            Err(GranularityError::Grain { smallest, largest })
        }
    }

    /// The grain for `total` work over `parts`, when handing out a piece costs `overhead`.
    ///
    /// The smallest piece keeps the overhead below one part in [`WORTH`]. The largest gives every
    /// part [`PIECES_PER_PART`] of them, so that waiting for the last one costs little, unless that
    /// would make it too small; a largest piece is always at least twice the smallest.
    ///
    /// ```
    /// use loxley_balance::partition::granularity::Grain;
    ///
    /// let grain = Grain::fitting(8_000.0, 10, 1.0)?;
    /// assert_eq!((grain.smallest(), grain.largest()), (20.0, 50.0));
    /// # Ok::<(), loxley_balance::partition::granularity::GranularityError>(())
    /// ```
    ///
    /// # Errors
    /// When a number is NaN, infinite or negative, when there is no work, or there are no parts.
    pub fn fitting(total: f64, parts: usize, overhead: f64) -> Result<Self, GranularityError> {
        let smallest = overhead * WORTH;
        let even = total / (parts as f64 * PIECES_PER_PART);
        Self::new(
            smallest,
            if even.is_finite() {
                even.max(2.0 * smallest)
            } else {
                f64::NAN
            },
        )
    }

    /// The smallest piece worth handing out.
    #[must_use]
    pub fn smallest(&self) -> f64 {
        self.smallest
    }

    /// The largest piece that should be handed out.
    #[must_use]
    pub fn largest(&self) -> f64 {
        self.largest
    }
}

/// A piece is worth handing out when it costs this many times the handing out: 5 % overhead.
pub const WORTH: f64 = 20.0;

/// How many largest pieces each part should get: waiting for the last costs 1/16 of the run.
pub const PIECES_PER_PART: f64 = 16.0;

/// An item with a cost that may know how to become two.
///
/// ```
/// use core::ops::Range;
/// use loxley_balance::partition::granularity::{Batcher, Grain, Split};
///
/// #[derive(Debug, PartialEq)]
/// struct Rows(Range<u32>);
///
/// impl Split for Rows {
///     fn cost(&self) -> f64 {
///         self.0.len() as f64
///     }
///     fn split(self) -> Result<(Self, Self), Self> {
///         let middle = self.0.start + self.0.len() as u32 / 2;
///         Ok((Rows(self.0.start..middle), Rows(middle..self.0.end)))
///     }
/// }
///
/// let mut batcher = Batcher::new(Grain::new(3.0, 6.0)?);
/// let pieces = batcher.pieces([Rows(0..2), Rows(2..4), Rows(4..14)])?;
/// let costs: Vec<f64> = pieces.iter().map(|piece| piece.cost).collect();
/// assert_eq!(costs, [4.0, 5.0, 5.0]); // two gathered, one split
/// # Ok::<(), loxley_balance::partition::granularity::GranularityError>(())
/// ```
pub trait Split: Sized {
    /// What it costs, in the unit of the grain.
    fn cost(&self) -> f64;

    /// Two smaller items that together do the same, the first one first; or itself, whole.
    ///
    /// # Errors
    /// The item itself when it cannot be split.
    fn split(self) -> Result<(Self, Self), Self>;
}

/// An item of a certain cost that cannot be split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Whole<T> {
    /// What it is.
    pub item: T,
    /// What it costs.
    pub cost: f64,
}

impl<T> Split for Whole<T> {
    fn cost(&self) -> f64 {
        self.cost
    }

    fn split(self) -> Result<(Self, Self), Self> {
        Err(self)
    }
}

/// Items that are handed out together.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece<T> {
    /// The items, in their original order.
    pub items: Vec<T>,
    /// What they cost together.
    pub cost: f64,
}

/// Makes pieces out of items, keeping their order.
///
/// - No piece costs more than the largest grain, except a single item that cannot be split.
/// - Of two neighbouring pieces of which the first is below the smallest grain, both together cost
///   more than the largest; only the last piece may be small for no other reason than that nothing
///   follows.
#[derive(Clone, Debug)]
pub struct Batcher<T> {
    grain: Grain,
    gathered: Vec<T>,
    cost: f64,
    pushed: usize,
}

impl<T: Split> Batcher<T> {
    /// A batcher that has gathered nothing.
    #[must_use]
    pub fn new(grain: Grain) -> Self {
        Self {
            grain,
            gathered: Vec::new(),
            cost: 0.0,
            pushed: 0,
        }
    }

    /// Takes the next item of a stream and passes on every piece that is complete.
    ///
    /// # Errors
    /// When the item, or something it was split into, has a cost that is NaN, infinite or
    /// negative. Pieces made of the rest of it have been passed on.
    pub fn push(
        &mut self,
        item: T,
        mut complete: impl FnMut(Piece<T>),
    ) -> Result<(), GranularityError> {
        let index = self.pushed;
        self.pushed += 1;
        // What is still to be looked at, the first on top. Splitting in halves keeps it short.
        let mut waiting = Vec::from([item]);
        while let Some(item) = waiting.pop() {
            let cost = checked_cost(&item, index)?;
            if cost <= self.grain.largest {
                self.gather(item, cost, &mut complete);
                continue;
            }
            match item.split() {
                Ok((first, second))
                    if checked_cost(&first, index)? < cost
                        && checked_cost(&second, index)? < cost =>
                {
                    waiting.extend([second, first]);
                }
                // A split that does not make both smaller might go on forever.
                Ok((first, second)) => {
                    for half in [first, second] {
                        let cost = checked_cost(&half, index)?;
                        self.gather(half, cost, &mut complete);
                    }
                }
                Err(whole) => self.gather(whole, cost, &mut complete),
            }
        }
        Ok(())
    }

    /// The last piece, if anything is left in it.
    pub fn finish(&mut self) -> Option<Piece<T>> {
        let cost = core::mem::take(&mut self.cost);
        let items = core::mem::take(&mut self.gathered);
        (!items.is_empty()).then_some(Piece { items, cost })
    }

    /// All pieces of a list, the last one included.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    pub fn pieces(
        &mut self,
        items: impl IntoIterator<Item = T>,
    ) -> Result<Vec<Piece<T>>, GranularityError> {
        let mut pieces = Vec::new();
        for item in items {
            self.push(item, |piece| pieces.push(piece))?;
        }
        pieces.extend(self.finish());
        Ok(pieces)
    }

    fn gather(&mut self, item: T, cost: f64, complete: &mut impl FnMut(Piece<T>)) {
        if self.cost + cost > self.grain.largest
            && let Some(piece) = self.finish()
        {
            complete(piece);
        }
        self.gathered.push(item);
        self.cost += cost;
        if self.cost >= self.grain.smallest
            && let Some(piece) = self.finish()
        {
            complete(piece);
        }
    }
}

fn checked_cost<T: Split>(item: &T, index: usize) -> Result<f64, GranularityError> {
    let cost = item.cost();
    if super::is_weight(cost) {
        Ok(cost)
    } else {
        Err(GranularityError::Cost { item: index, cost })
    }
}

/// Why pieces cannot be made.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum GranularityError {
    /// Smallest and largest are not such.
    Grain {
        /// The smallest piece.
        smallest: f64,
        /// The largest piece.
        largest: f64,
    },
    /// A cost is NaN, infinite or negative.
    Cost {
        /// The item that has it, or was split into something that has.
        item: usize,
        /// What it is.
        cost: f64,
    },
}

impl fmt::Display for GranularityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grain { smallest, largest } => {
                write!(f, "pieces of {smallest} to {largest} cannot be made")
            }
            Self::Cost { item, cost } => {
                write!(
                    f,
                    "item {item} costs {cost}; a cost is finite and not negative"
                )
            }
        }
    }
}

impl core::error::Error for GranularityError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn whole(cost: f64) -> Whole<()> {
        Whole { item: (), cost }
    }

    fn costs(grain: Grain, items: &[f64]) -> Vec<f64> {
        let pieces = Batcher::new(grain)
            .pieces(items.iter().map(|&cost| whole(cost)))
            .unwrap();
        pieces.iter().map(|piece| piece.cost).collect()
    }

    /// Splits wherever told, however unwisely.
    #[derive(Debug)]
    struct Odd(f64, f64);

    impl Split for Odd {
        fn cost(&self) -> f64 {
            self.0
        }
        fn split(self) -> Result<(Self, Self), Self> {
            Ok((
                Self(self.0 * self.1, self.1),
                Self(self.0 * (1.0 - self.1), self.1),
            ))
        }
    }

    #[test]
    fn small_items_are_gathered_until_worth_it() {
        let grain = Grain::new(10.0, 20.0).unwrap();
        assert_eq!(costs(grain, &[3.0; 7]), [12.0, 9.0]);
        assert_eq!(costs(grain, &[1.0, 15.0, 1.0]), [16.0, 1.0]);
        assert_eq!(costs(grain, &[6.0, 15.0]), [6.0, 15.0]);
        assert_eq!(costs(grain, &[]), []);
    }

    #[test]
    fn an_unsplittable_giant_stands_alone() {
        let grain = Grain::new(10.0, 20.0).unwrap();
        assert_eq!(costs(grain, &[1.0, 500.0, 1.0]), [1.0, 500.0, 1.0]);
    }

    #[test]
    fn uneven_splits_still_end_within_the_grain() {
        let mut batcher = Batcher::new(Grain::new(1.0, 8.0).unwrap());
        let pieces = batcher.pieces([Odd(100.0, 0.9)]).unwrap();
        assert!(pieces.iter().all(|piece| piece.cost <= 8.0));
        let sum: f64 = pieces.iter().map(|piece| piece.cost).sum();
        assert!((sum - 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_split_that_makes_nothing_smaller_ends() {
        let mut batcher = Batcher::new(Grain::new(1.0, 8.0).unwrap());
        let pieces = batcher.pieces([Odd(100.0, 0.0)]).unwrap();
        assert_eq!(
            pieces.iter().map(|piece| piece.cost).fold(0.0, f64::max),
            100.0
        );
    }

    #[test]
    fn a_stream_gives_pieces_as_they_complete() {
        let mut batcher = Batcher::new(Grain::new(2.0, 4.0).unwrap());
        let mut seen = vec![];
        for number in 0..5 {
            let item = Whole {
                item: number,
                cost: 1.0,
            };
            batcher
                .push(item, |piece| seen.push(piece.items.len()))
                .unwrap();
        }
        assert_eq!(seen, [2, 2]);
        assert_eq!(batcher.finish().unwrap().items[0].item, 4);
        assert_eq!(batcher.finish(), None);
    }

    #[test]
    fn the_fitting_grain_bounds_both_overhead_and_waiting() {
        let coarse = Grain::fitting(1e9, 10, 1.0).unwrap();
        assert_eq!((coarse.smallest(), coarse.largest()), (20.0, 1e9 / 160.0));
        // Little work: overhead wins over evenness.
        let little = Grain::fitting(100.0, 10, 1.0).unwrap();
        assert_eq!((little.smallest(), little.largest()), (20.0, 40.0));
    }

    #[test]
    fn impossible_grains_and_costs_are_refused() {
        for (smallest, largest) in [
            (2.0, 1.0),
            (-1.0, 1.0),
            (f64::NAN, 1.0),
            (0.0, f64::NAN),
            (0.0, 0.0),
        ] {
            assert!(
                Grain::new(smallest, largest).is_err(),
                "{smallest} {largest}"
            );
        }
        for (total, parts, overhead) in [
            (1.0, 0, 1.0),
            (f64::NAN, 1, 1.0),
            (0.0, 1, 0.0),
            (1.0, 1, -1.0),
        ] {
            assert!(
                Grain::fitting(total, parts, overhead).is_err(),
                "{total} {parts} {overhead}"
            );
        }
        let mut batcher = Batcher::new(Grain::new(0.0, f64::INFINITY).unwrap());
        batcher.push(whole(1.0), drop).unwrap();
        let refused = batcher.push(whole(-3.0), drop);
        assert_eq!(
            refused,
            Err(GranularityError::Cost {
                item: 1,
                cost: -3.0
            })
        );
        assert!(batcher.push(whole(f64::NAN), drop).is_err());
    }
}

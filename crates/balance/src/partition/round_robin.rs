//! P2: round-robin, for streams whose length nobody knows.

use super::PartitionError;

/// Deals items to parts in turn. After any number of items, no part got more than one item more
/// than another.
///
/// ```
/// use loxley_balance::partition::round_robin::RoundRobin;
///
/// let mut dealer = RoundRobin::new(2)?;
/// let stream = ["a", "b", "c"].into_iter();
/// let dealt: Vec<_> = dealer.deal(stream).collect();
/// assert_eq!(dealt, [(0, "a"), (1, "b"), (0, "c")]);
/// assert_eq!(dealer.next_part(), 1); // goes on where it stopped
/// # Ok::<(), loxley_balance::PartitionError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundRobin {
    parts: usize,
    next: usize,
}

impl RoundRobin {
    /// A dealer that begins with part 0.
    ///
    /// # Errors
    /// When there are no parts.
    pub fn new(parts: usize) -> Result<Self, PartitionError> {
        Self::starting_at(parts, 0)
    }

    /// A dealer that begins with another part, so that several streams over the same parts do not
    /// all favour the first ones.
    ///
    /// # Errors
    /// When there are no parts.
    pub fn starting_at(parts: usize, first: usize) -> Result<Self, PartitionError> {
        let next = first.checked_rem(parts).ok_or(PartitionError::NoParts)?;
        Ok(Self { parts, next })
    }

    /// The part of the next item.
    pub fn next_part(&mut self) -> usize {
        let part = self.next;
        self.next = if part + 1 == self.parts { 0 } else { part + 1 };
        part
    }

    /// Pairs every item of a stream with its part, one at a time.
    pub fn deal<I: IntoIterator>(&mut self, stream: I) -> impl Iterator<Item = (usize, I::Item)> {
        stream.into_iter().map(|item| (self.next_part(), item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_every_moment_the_parts_are_within_one_item() {
        let mut dealer = RoundRobin::starting_at(3, 5).unwrap();
        let mut counts = [0; 3];
        for (part, _) in dealer.deal(0..100) {
            counts[part] += 1;
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most - least <= 1);
        }
        assert_eq!(counts, [33, 33, 34]);
    }

    #[test]
    fn an_endless_stream_is_dealt_lazily() {
        let mut dealer = RoundRobin::new(4).unwrap();
        assert_eq!(dealer.deal(0_u64..).nth(1_001), Some((1, 1_001)));
    }

    #[test]
    fn no_parts_are_refused() {
        assert_eq!(RoundRobin::new(0), Err(PartitionError::NoParts));
    }
}

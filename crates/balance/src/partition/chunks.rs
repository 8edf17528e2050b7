//! P1: equal contiguous chunks, for items that are all alike.

use core::iter::FusedIterator;
use core::ops::Range;

use super::PartitionError;

/// Cuts `0..len` into `parts` contiguous ranges whose sizes differ by at most one, the larger ones
/// first.
///
/// ```
/// use loxley_balance::partition::chunks::chunks;
///
/// let ranges: Vec<_> = chunks(10, 4)?.collect();
/// assert_eq!(ranges, [0..3, 3..6, 6..8, 8..10]);
/// # Ok::<(), loxley_balance::PartitionError>(())
/// ```
///
/// # Errors
/// When there are no parts.
pub fn chunks(len: usize, parts: usize) -> Result<Chunks, PartitionError> {
    if parts == 0 {
        return Err(PartitionError::NoParts);
    }
    Ok(Chunks {
        size: len / parts,
        larger: len % parts,
        parts,
        next: 0,
    })
}

/// The chunks of a length, in order; [`get`](Self::get) finds any of them without walking.
#[derive(Clone, Debug)]
pub struct Chunks {
    size: usize,
    /// So many chunks at the front hold one item more.
    larger: usize,
    parts: usize,
    next: usize,
}

impl Chunks {
    /// The chunk of a part, counted from the first whatever was iterated.
    #[must_use]
    pub fn get(&self, part: usize) -> Option<Range<usize>> {
        (part < self.parts).then(|| self.start(part)..self.start(part + 1))
    }

    fn start(&self, part: usize) -> usize {
        part * self.size + part.min(self.larger)
    }
}

impl Iterator for Chunks {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let chunk = self.get(self.next)?;
        self.next += 1;
        Some(chunk)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.parts - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Chunks {}
impl FusedIterator for Chunks {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn chunks_cover_everything_and_differ_by_at_most_one() {
        for len in 0..40 {
            for parts in 1..12 {
                let ranges: Vec<_> = chunks(len, parts).unwrap().collect();
                assert_eq!(ranges.len(), parts);
                assert_eq!(
                    ranges
                        .iter()
                        .flat_map(Clone::clone)
                        .collect::<Vec<_>>()
                        .len(),
                    len
                );
                assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
                assert_eq!((ranges[0].start, ranges[parts - 1].end), (0, len));
                let sizes = || ranges.iter().map(ExactSizeIterator::len);
                assert!(sizes().max().unwrap() - sizes().min().unwrap() <= 1);
            }
        }
    }

    #[test]
    fn the_largest_length_does_not_overflow() {
        let last = chunks(usize::MAX, 3).unwrap().last().unwrap();
        assert_eq!(last.end, usize::MAX);
        let many = chunks(3, usize::MAX).unwrap();
        assert_eq!(many.get(2), Some(2..3));
        assert_eq!(many.get(usize::MAX - 1), Some(3..3));
    }

    #[test]
    fn no_parts_are_refused() {
        assert_eq!(chunks(3, 0).unwrap_err(), PartitionError::NoParts);
    }
}

//! A set of positions, the lowest first.

use alloc::vec::Vec;

/// Small whole numbers, close together: a bit each, and a bit for each word that is not empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Positions {
    words: Vec<u64>,
    occupied: Vec<u64>,
    len: usize,
}

/// The same positions are the same set, however much room there is for more.
impl PartialEq for Positions {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Positions {
    pub(crate) fn contains(&self, position: usize) -> bool {
        let word = self.words.get(position / 64);
        word.is_some_and(|word| word >> (position % 64) & 1 == 1)
    }

    /// Puts a position in or takes it out.
    pub(crate) fn set(&mut self, position: usize, present: bool) {
        if self.contains(position) == present {
            return;
        }
        let (at, bit) = (position / 64, 1 << (position % 64));
        if at >= self.words.len() {
            self.words.resize(at + 1, 0);
            self.occupied.resize(at / 64 + 1, 0);
        }
        self.words[at] ^= bit;
        let mark = 1 << (at % 64);
        if self.words[at] == 0 {
            self.occupied[at / 64] &= !mark;
        } else {
            self.occupied[at / 64] |= mark;
        }
        self.len = if present { self.len + 1 } else { self.len - 1 };
    }

    /// The first position at or behind this one.
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        let at = from / 64;
        let here = self.words.get(at)? & (u64::MAX << (from % 64));
        if here != 0 {
            return Some(64 * at + here.trailing_zeros() as usize);
        }
        let at = self.next_word(at + 1)?;
        Some(64 * at + self.words[at].trailing_zeros() as usize)
    }

    /// The first word at or behind this one that is not empty.
    fn next_word(&self, from: usize) -> Option<usize> {
        let at = from / 64;
        let here = self.occupied.get(at)? & (u64::MAX << (from % 64));
        if here != 0 {
            return Some(64 * at + here.trailing_zeros() as usize);
        }
        let rest = self.occupied.iter().enumerate().skip(at + 1);
        let (at, word) = rest.into_iter().find(|(_, word)| **word != 0)?;
        Some(64 * at + word.trailing_zeros() as usize)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        core::iter::successors(self.next(0), |last| self.next(last + 1))
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn positions_come_back_in_order() {
        let mut set = Positions::default();
        let all = [70_000, 3, 64, 63, 4_096, 5_000, 0];
        for position in all {
            set.set(position, true);
            set.set(position, true);
        }
        assert!(set.iter().eq([0, 3, 63, 64, 4_096, 5_000, 70_000]));
        for position in [0, 64, 70_000, 9] {
            set.set(position, false);
        }
        assert!(set.iter().eq([3, 63, 4_096, 5_000]));
        assert_eq!((set.len, set.next(64)), (4, Some(4_096)));
        assert_eq!(set.next(5_001), None);
    }

    #[test]
    fn the_next_position_is_that_of_a_sorted_set() {
        let (mut set, mut sorted) = (Positions::default(), BTreeSet::new());
        let mut number = 1_usize;
        for round in 0..400 {
            number = (number * 7_919 + 13) % 20_011;
            let present = round % 3 != 2;
            set.set(number, present);
            match present {
                true => sorted.insert(number),
                false => sorted.remove(&number),
            };
        }
        for from in (0..20_100).step_by(17) {
            let next = sorted.range(from..).next().copied();
            assert_eq!(set.next(from), next, "{from}");
        }
        assert!(set.iter().eq(sorted));
    }
}

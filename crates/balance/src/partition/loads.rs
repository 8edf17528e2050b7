//! Parts and how much they carry, with the least loaded always at hand.

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};

/// A float in its total order, so that it can live in a heap. Ours are never NaN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Total(pub(crate) f64);

impl PartialEq for Total {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Total {}

impl PartialOrd for Total {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Total {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Loads that only grow. Each change pushes a new heap entry; entries that no longer tell the
/// truth are dropped when they surface, so n changes cost O(n log n) together.
#[derive(Debug)]
pub(crate) struct Loads {
    loads: Vec<f64>,
    heap: BinaryHeap<Reverse<(Total, usize)>>,
}

impl Loads {
    /// At least one part, all without load.
    pub(crate) fn new(parts: usize) -> Self {
        assert!(parts > 0, "the caller has checked that there are parts");
        let heap = (0..parts).map(|part| Reverse((Total(0.0), part))).collect();
        Self {
            loads: vec![0.0; parts],
            heap,
        }
    }

    /// The least loaded part, the first of equals.
    pub(crate) fn least(&mut self) -> usize {
        loop {
            let &Reverse((load, part)) = self.heap.peek().expect("every part has a true entry");
            if load == Total(self.loads[part]) {
                return part;
            }
            self.heap.pop();
        }
    }

    pub(crate) fn add(&mut self, part: usize, load: f64) {
        let before = Total(self.loads[part]);
        self.loads[part] += load;
        let entry = Reverse((Total(self.loads[part]), part));
        // Mostly the least loaded is added to: then its entry is corrected in place.
        let is_top = self.heap.peek() == Some(&Reverse((before, part)));
        if is_top && let Some(mut top) = self.heap.peek_mut() {
            *top = entry;
        } else if load > 0.0 {
            self.heap.push(entry);
        }
    }

    pub(crate) fn of(&self, part: usize) -> f64 {
        self.loads[part]
    }

    pub(crate) fn into_vec(self) -> Vec<f64> {
        self.loads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_always_the_least() {
        let mut rng = crate::Rng::new(1);
        let mut loads = Loads::new(5);
        for _ in 0..1_000 {
            let least = loads.least();
            assert!((0..5).all(|part| loads.of(least) <= loads.of(part)));
            assert!((0..least).all(|part| loads.of(least) < loads.of(part)));
            let part = if rng.chance(0.5) { least } else { rng.index(5) };
            loads.add(part, rng.below(4) as f64);
        }
    }
}

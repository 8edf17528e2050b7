//! The queue of things that have yet to happen, popped by `(time, sequence)`.
//!
//! Two events of the same instant come out in the order in which they were put in, so a run is the
//! same on every machine. The queue is a four-ary heap with one trick: `pop` leaves a hole at the
//! root, and the `push` that nearly always follows (a worker finishes, its next finish is planned)
//! fills the hole. One walk down the heap pays for both.
//!
//! What must stay true: every entry but a hole at the root is not later than its children.

/// A priority queue of future events.
///
/// ```
/// let mut queue = loxley_sim::EventQueue::new();
/// queue.push(20, "late");
/// queue.push(10, "early");
/// queue.push(10, "early too");
/// assert_eq!(queue.pop(), Some((10, "early")));
/// assert_eq!(queue.pop(), Some((10, "early too")));
/// assert_eq!(queue.pop(), Some((20, "late")));
/// assert_eq!(queue.pop(), None);
/// ```
#[derive(Debug, Clone)]
pub struct EventQueue<E> {
    heap: Vec<Entry<E>>,
    hole: bool,
    sequence: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry<E> {
    time: u64,
    sequence: u64,
    event: E,
}

impl<E> Entry<E> {
    /// Time first, then the order of arrival, as one number: a comparison without a branch.
    fn key(&self) -> u128 {
        (u128::from(self.time) << 64) | u128::from(self.sequence)
    }
}

const ARITY: usize = 4;

impl<E: Copy> EventQueue<E> {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self {
            heap: Vec::new(),
            hole: false,
            sequence: 0,
        }
    }

    /// How many events are waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len() - usize::from(self.hole)
    }

    /// Whether nothing is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Plans `event` for `time`.
    #[inline]
    pub fn push(&mut self, time: u64, event: E) {
        let entry = Entry {
            time,
            sequence: self.sequence,
            event,
        };
        self.sequence += 1;
        if self.hole {
            self.hole = false;
            self.sift_down(entry);
        } else {
            self.heap.push(entry);
            self.sift_up(entry);
        }
    }

    /// Takes the earliest event, and of several the one planned first.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, E)> {
        self.close_hole();
        let first = *self.heap.first()?;
        self.hole = true;
        Some((first.time, first.event))
    }

    /// When the next event is due.
    pub fn next_time(&mut self) -> Option<u64> {
        self.close_hole();
        self.heap.first().map(|entry| entry.time)
    }

    fn close_hole(&mut self) {
        if !self.hole {
            return;
        }
        self.hole = false;
        if let Some(last) = self.heap.pop()
            && !self.heap.is_empty()
        {
            self.sift_down(last);
        }
    }

    /// Puts `entry` in the subtree below the root, whose own entry is taken as absent.
    #[inline]
    fn sift_down(&mut self, entry: Entry<E>) {
        let heap = self.heap.as_mut_slice();
        let key = entry.key();
        let mut index = 0;
        loop {
            let first = index * ARITY + 1;
            let Some(children) = heap.get(first..heap.len().min(first + ARITY)) else {
                break;
            };
            let Some((least, least_key)) = least_of(children) else {
                break;
            };
            if key <= least_key {
                break;
            }
            heap[index] = heap[first + least];
            index = first + least;
        }
        heap[index] = entry;
    }

    fn sift_up(&mut self, entry: Entry<E>) {
        let key = entry.key();
        let mut index = self.heap.len() - 1;
        while index > 0 {
            let parent = (index - 1) / ARITY;
            if self.heap[parent].key() <= key {
                break;
            }
            self.heap[index] = self.heap[parent];
            index = parent;
        }
        self.heap[index] = entry;
    }
}

/// The earliest of up to four entries. A full set is decided by two rounds of selections, without
/// a branch that the processor would guess wrong every other time.
#[inline]
fn least_of<E>(children: &[Entry<E>]) -> Option<(usize, u128)> {
    if let [a, b, c, d] = children {
        let low = earlier((0, a.key()), (1, b.key()));
        let high = earlier((2, c.key()), (3, d.key()));
        return Some(earlier(low, high));
    }
    children.iter().map(Entry::key).enumerate().reduce(earlier)
}

#[inline]
fn earlier(one: (usize, u128), other: (usize, u128)) -> (usize, u128) {
    let second = other.1 < one.1;
    (
        std::hint::select_unpredictable(second, other.0, one.0),
        std::hint::select_unpredictable(second, other.1, one.1),
    )
}

impl<E: Copy> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use proptest::prelude::*;

    use super::EventQueue;

    proptest! {
        #[test]
        fn it_agrees_with_a_binary_heap(steps in prop::collection::vec(prop::option::of(0_u64..20), 0..400)) {
            let mut queue = EventQueue::new();
            let mut model = BinaryHeap::new();
            for (sequence, step) in steps.into_iter().enumerate() {
                if let Some(time) = step {
                    queue.push(time, sequence);
                    model.push(Reverse((time, sequence)));
                } else {
                    prop_assert_eq!(queue.next_time(), model.peek().map(|entry| entry.0.0));
                    prop_assert_eq!(queue.pop(), model.pop().map(|entry| entry.0));
                }
                prop_assert_eq!(queue.len(), model.len());
            }
        }
    }
}

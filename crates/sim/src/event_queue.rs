//! The queue of things that have yet to happen, popped by `(time, sequence)`.
//!
//! Two events of the same instant come out in the order in which they were put in, so a run is the
//! same on every machine. A few thousand events are a four-ary heap with one trick: `pop` leaves a hole at the
//! root, and the `push` that nearly always follows (a worker finishes, its next finish is planned)
//! fills the hole. One walk down the heap pays for both.
//!
//! A heap of a million events is ten levels, and most of them wait for memory. So a long queue sorts only what is due
//! next (a *ladder*, after Tang, Goh and Thng):
//!
//! ```text
//!   now                horizon
//!    │ run (sorted)       │ buckets of the finest rung │ buckets of the rung above │ top (unsorted)
//!    │ heap (came later)  │                            │                           │
//! ```
//!
//! A push goes to the bucket of its time, which is two writes. When run and heap are used up, the next bucket is sorted
//! and becomes the run; one that is too full becomes a finer rung. When all buckets are used up, what is on top is dealt
//! out over new ones, as wide as the events then lie apart. The order is the same in both shapes.
//!
//! What must stay true: every entry of the heap but a hole at the root is not later than its children; run and heap lie
//! before the horizon, everything else does not; a rung ends where the bucket that it was made of ended.

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
    /// Whether there is a horizon; without one everything is in the heap.
    laddered: bool,
    horizon: u64,
    /// What was next when the horizon was set, in order, from `at` on.
    run: Vec<Entry<E>>,
    at: usize,
    /// How far the run has been announced.
    announced: usize,
    /// The widest first. Each but the last has its current bucket taken apart in the next.
    rungs: Vec<Rung<E>>,
    /// What lies beyond all rungs.
    top: Vec<Entry<E>>,
    /// How many are in rungs and on top.
    beyond: usize,
    /// Emptied buckets, to be filled again.
    spare: Vec<Vec<Entry<E>>>,
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

/// Events side by side in buckets of equal width (but for the last, which reaches to the end).
#[derive(Debug, Clone)]
struct Rung<E> {
    start: u64,
    end: u64,
    /// A bucket is 2 to this power wide.
    shift: u32,
    buckets: Vec<Vec<Entry<E>>>,
    /// The next bucket to be taken.
    next: usize,
}

const ARITY: usize = 4;

/// A heap that grows beyond this becomes a ladder: it would no longer fit a core's own cache beside the world.
const HEAP_MAX: usize = 4_096;

/// A ladder that is down to this becomes a heap.
const HEAP_AGAIN: usize = 1_024;

/// How many events a bucket should get.
const BUCKET_AIM: usize = 16;

/// A bucket with more is taken apart.
const BUCKET_MAX: usize = 128;

/// How many events are announced at once.
const BATCH: usize = 16;

impl<E: Copy> EventQueue<E> {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self {
            heap: Vec::new(),
            hole: false,
            sequence: 0,
            laddered: false,
            horizon: 0,
            run: Vec::new(),
            at: 0,
            announced: 0,
            rungs: Vec::new(),
            top: Vec::new(),
            beyond: 0,
            spare: Vec::new(),
        }
    }

    /// How many events are waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len() - usize::from(self.hole) + self.run.len() - self.at + self.beyond
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
        if self.laddered && time >= self.horizon {
            self.push_beyond(entry);
        } else if self.hole {
            self.hole = false;
            self.sift_down(entry);
        } else {
            self.heap.push(entry);
            self.sift_up(entry);
            if !self.laddered && self.heap.len() > HEAP_MAX {
                self.become_ladder();
            }
        }
    }

    /// Takes the earliest event, and of several the one planned first.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, E)> {
        let from_run = self.find_next()?;
        let first = if from_run {
            self.at += 1;
            self.run[self.at - 1]
        } else {
            self.hole = true;
            self.heap[0]
        };
        Some((first.time, first.event))
    }

    /// When the next event is due.
    pub fn next_time(&mut self) -> Option<u64> {
        let from_run = self.find_next()?;
        Some(if from_run {
            self.run[self.at].time
        } else {
            self.heap[0].time
        })
    }

    /// Events that are due soon, each named at most once, to fetch what they will need from memory. Empty most of the
    /// time, and always for a short queue.
    #[inline]
    pub(crate) fn batch_ahead(&mut self) -> impl Iterator<Item = E> + Clone + '_ {
        let batch = if self.at >= self.announced {
            self.announced = self.run.len().min(self.at + BATCH);
            &self.run[self.at..self.announced]
        } else {
            &[]
        };
        batch.iter().map(|entry| entry.event)
    }

    /// Whether the next event is the run's; false for the heap's; nothing when there is none.
    #[inline]
    fn find_next(&mut self) -> Option<bool> {
        self.close_hole();
        if self.at == self.run.len() && self.heap.is_empty() && !self.refill() {
            return None;
        }
        Some(match (self.run.get(self.at), self.heap.first()) {
            (Some(run), Some(heap)) => run.key() < heap.key(),
            (run, _) => run.is_some(),
        })
    }

    fn push_beyond(&mut self, entry: Entry<E>) {
        self.beyond += 1;
        for rung in self.rungs.iter_mut().rev() {
            if entry.time < rung.end {
                let bucket = rung.bucket_of(entry.time);
                rung.buckets[bucket].push(entry);
                return;
            }
        }
        self.top.push(entry);
    }

    #[cold]
    fn become_ladder(&mut self) {
        debug_assert!(!self.hole && self.beyond == 0);
        std::mem::swap(&mut self.heap, &mut self.top);
        self.beyond = self.top.len();
        self.laddered = true;
        self.horizon = 0;
    }

    /// Run and heap are used up: the next bucket becomes the run. False when there is nothing more.
    fn refill(&mut self) -> bool {
        let empty = std::mem::take(&mut self.run);
        (self.at, self.announced) = (0, 0);
        self.recycle(empty);
        if self.beyond <= HEAP_AGAIN {
            return self.become_heap();
        }
        loop {
            let (events, end) = if let Some(rung) = self.rungs.last_mut() {
                if let Some(found) = rung.next_bucket(&mut self.spare) {
                    found
                } else {
                    let spent = self.rungs.pop();
                    spent
                        .into_iter()
                        .flat_map(|rung| rung.buckets)
                        .for_each(|bucket| self.recycle(bucket));
                    continue;
                }
            } else {
                let empty = self.spare.pop().unwrap_or_default();
                let events = std::mem::replace(&mut self.top, empty);
                let latest = events.iter().map(|entry| entry.time).max();
                (events, latest.unwrap_or(0).saturating_add(1))
            };
            if let Some(events) = self.take_apart(events, end) {
                self.beyond -= events.len();
                self.run = events;
                self.run.sort_unstable_by_key(Entry::key);
                self.horizon = end;
                return true;
            }
        }
    }

    /// Makes a finer rung of a bucket that is too full; hands back what cannot or need not be.
    fn take_apart(&mut self, events: Vec<Entry<E>>, end: u64) -> Option<Vec<Entry<E>>> {
        let times = events.iter().map(|entry| entry.time);
        let (earliest, latest) = (times.clone().min()?, times.max()?);
        if events.len() <= BUCKET_MAX || earliest == latest {
            return Some(events);
        }
        let apart = latest - earliest;
        let width = apart / (events.len() / BUCKET_AIM) as u64;
        let shift = u64::BITS - width.leading_zeros();
        let count = (apart >> shift) as usize + 1;
        let spare = &mut self.spare;
        let mut rung = Rung {
            start: earliest,
            end,
            shift,
            buckets: (0..count)
                .map(|_| spare.pop().unwrap_or_default())
                .collect(),
            next: 0,
        };
        for &entry in &events {
            let bucket = rung.bucket_of(entry.time);
            rung.buckets[bucket].push(entry);
        }
        self.rungs.push(rung);
        self.recycle(events);
        None
    }

    /// What is left goes into the heap. False when nothing is.
    #[cold]
    fn become_heap(&mut self) -> bool {
        for rung in self.rungs.drain(..) {
            rung.buckets
                .into_iter()
                .for_each(|bucket| self.heap.extend(bucket));
        }
        self.heap.append(&mut self.top);
        // What is sorted is a heap.
        self.heap.sort_unstable_by_key(Entry::key);
        self.laddered = false;
        self.beyond = 0;
        self.spare = Vec::new();
        !self.heap.is_empty()
    }

    fn recycle(&mut self, mut bucket: Vec<Entry<E>>) {
        // A huge one (a million events of one instant) would be held for ever.
        if (1..=BUCKET_MAX).contains(&bucket.capacity()) {
            bucket.clear();
            self.spare.push(bucket);
        }
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

impl<E> Rung<E> {
    #[inline]
    fn bucket_of(&self, time: u64) -> usize {
        let bucket = ((time - self.start) >> self.shift) as usize;
        bucket.min(self.buckets.len() - 1)
    }

    /// The next bucket that is not empty, and where it ends.
    fn next_bucket(&mut self, spare: &mut Vec<Vec<Entry<E>>>) -> Option<(Vec<Entry<E>>, u64)> {
        while let Some(bucket) = self.buckets.get_mut(self.next) {
            self.next += 1;
            if bucket.is_empty() {
                continue;
            }
            let empty = spare.pop().unwrap_or_default();
            let events = std::mem::replace(bucket, empty);
            let end = if self.next == self.buckets.len() {
                self.end
            } else {
                self.start + ((self.next as u64) << self.shift)
            };
            return Some((events, end));
        }
        None
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

    use loxley_balance::Rng;
    use proptest::prelude::*;

    use super::{EventQueue, HEAP_AGAIN, HEAP_MAX};

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

    /// Grows to a ladder, works as a simulation does (what is pushed is not before now), and shrinks to a heap again.
    #[test]
    fn a_ladder_agrees_with_a_binary_heap_whatever_the_times() {
        type Draw = fn(&mut Rng) -> u64;
        let draws: [(&str, Draw); 6] = [
            ("even", |rng| rng.below(1_000_000)),
            ("one instant", |_| 0),
            ("few instants", |rng| rng.below(3) * 1_000),
            ("skewed", |rng| rng.next_u64() >> (1 + rng.below(62))),
            ("two heaps far apart", |rng| {
                rng.below(2) * (1 << 60) + rng.below(50)
            }),
            ("the end of time", |rng| u64::MAX - rng.below(2)),
        ];
        for (name, draw) in draws {
            let mut rng = Rng::new(5);
            let (mut queue, mut model) = (EventQueue::new(), BinaryHeap::new());
            let (mut sequence, mut now) = (0_u64, 0_u64);
            let mut laddered = false;
            for (aim, rounds) in [
                (3 * HEAP_MAX, 9_000),
                (HEAP_AGAIN / 4, 30_000),
                (2 * HEAP_MAX, 20_000),
                (0, 40_000),
            ] {
                for _ in 0..rounds {
                    let grow = if model.len() < aim { 0.95 } else { 0.2 };
                    if rng.chance(grow) && aim > 0 {
                        let time = now.saturating_add(draw(&mut rng));
                        queue.push(time, sequence);
                        model.push(Reverse((time, sequence)));
                        sequence += 1;
                    } else {
                        let expected = model.pop().map(|entry| entry.0);
                        assert_eq!(queue.next_time(), expected.map(|entry| entry.0), "{name}");
                        assert_eq!(queue.pop(), expected, "{name}");
                        now = expected.map_or(now, |entry| entry.0);
                    }
                    laddered |= queue.laddered;
                    assert_eq!(queue.len(), model.len(), "{name}");
                }
            }
            assert!(laddered, "{name}: nothing but the heap was tried");
            assert!(model.is_empty() && queue.pop().is_none(), "{name}");
        }
    }
}

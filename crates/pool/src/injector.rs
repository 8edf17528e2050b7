//! Where units wait that belong to no worker yet: five lanes, one per priority.
//!
//! Submissions from outside the pool land here, and so does everything that is not of normal
//! priority. A lock guards the lanes; it is held for a few instructions, and workers take a whole
//! batch per visit, so it is rarely contended. Two counters outside the lock let the common case,
//! "nothing urgent" and "nothing at all", cost one relaxed load.
//!
//! # Aging
//! The highest lane that has something goes first, except that a lane whose head was passed over
//! by [`PATIENCE`] units of higher lanes is served next. So each lane gets at least about one unit
//! in `PATIENCE`, however busy the lanes above it are, and an urgent unit is delayed by at most one
//! starving unit per lower lane.

use std::collections::VecDeque;
use std::ptr::NonNull;

use crate::priority::{LANES, Priority};
use crate::sync::{Apart, AtomicUsize, Mutex, Ordering, lock};

/// How many units may overtake the head of a lower lane before it is served.
pub(crate) const PATIENCE: u32 = if cfg!(loom) { 2 } else { 64 };

/// The shared queue.
#[derive(Debug)]
pub(crate) struct Injector<T> {
    lanes: Apart<Mutex<Lanes<T>>>,
    /// How many units wait in all lanes. Changed under the lock, read without.
    waiting: Apart<AtomicUsize>,
    /// How many of those are above normal priority.
    urgent: AtomicUsize,
}

#[derive(Debug)]
struct Lanes<T> {
    queues: [VecDeque<Entry<T>>; LANES],
    /// For each lane, how many units of higher lanes were served since its head was looked at last.
    overtaken: [u32; LANES],
}

/// A pointer on its way to some worker.
#[derive(Debug)]
struct Entry<T>(NonNull<T>);

// SAFETY: an entry is only moved, never followed, in here. Whoever pushes promises (see `push`) that
// the pointee may be used by whichever thread takes it out.
unsafe impl<T> Send for Entry<T> {}

impl<T> Injector<T> {
    pub(crate) fn new() -> Self {
        Self {
            lanes: Apart(Mutex::new(Lanes {
                queues: std::array::from_fn(|_| VecDeque::new()),
                overtaken: [0; LANES],
            })),
            waiting: Apart(AtomicUsize::new(0)),
            urgent: AtomicUsize::new(0),
        }
    }

    /// Adds a unit. The pointee must be something that any thread may take over.
    ///
    /// The caller then tells the sleepers, with a fence in between: see `sleep.rs`.
    pub(crate) fn push(&self, priority: Priority, unit: NonNull<T>) {
        self.push_after(priority, unit, || ());
    }

    /// Calls `before`, then adds a unit, with no [`pop_where`](Self::pop_where) in between.
    pub(crate) fn push_after(&self, priority: Priority, unit: NonNull<T>, before: impl FnOnce()) {
        let mut lanes = lock(&self.lanes);
        before();
        lanes.queues[priority.lane()].push_back(Entry(unit));
        self.publish(&lanes);
    }

    /// Calls `body` while nobody pushes or pops.
    pub(crate) fn locked(&self, body: impl FnOnce()) {
        let _lanes = lock(&self.lanes);
        body();
    }

    /// Takes the most urgent unit, and up to `extra` more of the same lane for `take`.
    pub(crate) fn pop_batch(
        &self,
        extra: usize,
        mut take: impl FnMut(NonNull<T>),
    ) -> Option<NonNull<T>> {
        if self.is_empty() {
            return None;
        }
        let mut lanes = lock(&self.lanes);
        let lane = lanes.next_lane()?;
        let first = lanes.queues[lane].pop_front()?.0;
        // Only normal units may move on in company: a worker looks at its own deque without
        // regard to priority.
        let extra = if lane == Priority::Normal.lane() {
            extra
        } else {
            0
        };
        for _ in 0..extra {
            let Some(entry) = lanes.queues[lane].pop_front() else {
                break;
            };
            take(entry.0);
        }
        self.publish(&lanes);
        Some(first)
    }

    /// Takes the first unit for which `wanted` says yes. Slow: looks at all of them.
    pub(crate) fn pop_where(&self, wanted: impl Fn(NonNull<T>) -> bool) -> Option<NonNull<T>> {
        let mut lanes = lock(&self.lanes);
        for lane in (0..LANES).rev() {
            let found = lanes.queues[lane].iter().position(|entry| wanted(entry.0));
            if let Some(position) = found {
                let entry = lanes.queues[lane].remove(position)?;
                self.publish(&lanes);
                return Some(entry.0);
            }
        }
        None
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Does anything above normal priority wait? One relaxed load.
    #[inline]
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::Relaxed) != 0
    }

    fn publish(&self, lanes: &Lanes<T>) {
        let normal = Priority::Normal.lane();
        let above: usize = lanes.queues[normal + 1..].iter().map(VecDeque::len).sum();
        let rest: usize = lanes.queues[..=normal].iter().map(VecDeque::len).sum();
        self.urgent.store(above, Ordering::Relaxed);
        self.waiting.store(above + rest, Ordering::Release);
    }
}

impl<T> Lanes<T> {
    /// Which lane goes next: a starving one, else the highest that has something.
    fn next_lane(&mut self) -> Option<usize> {
        let highest = (0..LANES)
            .rev()
            .find(|&lane| !self.queues[lane].is_empty())?;
        let starving = (0..highest)
            .find(|&lane| !self.queues[lane].is_empty() && self.overtaken[lane] >= PATIENCE);
        let next = starving.unwrap_or(highest);
        for lane in 0..LANES {
            if lane == next || self.queues[lane].is_empty() {
                self.overtaken[lane] = 0;
            } else if lane < next {
                self.overtaken[lane] += 1;
            }
        }
        Some(next)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn push_all(injector: &Injector<u32>, priority: Priority, values: &mut [u32]) {
        for value in values {
            injector.push(priority, NonNull::from(value));
        }
    }

    fn pop(injector: &Injector<u32>) -> Option<NonNull<u32>> {
        injector.pop_batch(0, |_| ())
    }

    #[test]
    fn higher_lanes_go_first_and_each_lane_is_first_in_first_out() {
        let injector = Injector::new();
        let (mut low, mut normal, mut urgent) = ([1, 2], [3, 4], [5]);
        push_all(&injector, Priority::Low, &mut low);
        push_all(&injector, Priority::Normal, &mut normal);
        push_all(&injector, Priority::Highest, &mut urgent);
        assert!(injector.is_urgent());
        let order: Vec<_> = std::iter::from_fn(|| pop(&injector)).collect();
        let expected: Vec<_> = urgent
            .iter_mut()
            .chain(&mut normal)
            .chain(&mut low)
            .map(NonNull::from)
            .collect();
        assert_eq!(order, expected);
        assert!(injector.is_empty() && !injector.is_urgent());
    }

    #[test]
    fn the_lowest_lane_is_served_after_being_overtaken_often_enough() {
        let injector = Injector::new();
        let mut lowest = 0;
        let mut urgent = vec![1; 3 * PATIENCE as usize];
        injector.push(Priority::Lowest, NonNull::from(&mut lowest));
        push_all(&injector, Priority::Highest, &mut urgent);
        let place = std::iter::from_fn(|| pop(&injector))
            .position(|unit| unit == NonNull::from(&mut lowest));
        assert_eq!(place, Some(PATIENCE as usize));
    }

    #[test]
    fn a_batch_holds_only_normal_units() {
        let injector = Injector::new();
        let (mut normal, mut high) = ([1, 2, 3], [4, 5]);
        push_all(&injector, Priority::Normal, &mut normal);
        push_all(&injector, Priority::High, &mut high);
        let mut company = 0;
        injector.pop_batch(8, |_| company += 1);
        assert_eq!(company, 0);
        injector.pop_batch(8, |_| company += 1);
        injector.pop_batch(8, |_| company += 1);
        assert_eq!((company, injector.len()), (2, 0));
    }
}

//! Where units wait that belong to no worker yet: five lanes, one per priority.
//!
//! Submissions from outside the pool land here, and so does everything that is not of normal
//! priority. Normal units, which are the many, come in through an *inlet* with a lock of its own;
//! workers empty it into the lanes in one move when the normal lane has run dry. So a producer and
//! the workers meet at that lock once per hundreds of units, and either lock is held for a few
//! instructions. Counters outside the locks let the common case, "nothing urgent" and "nothing at
//! all", cost one or two relaxed loads.
//!
//! ```text
//!   producers -> inlet (normal units) --all at once--> lanes -> a batch per worker and visit
//!   producers -> lanes (all other priorities)
//! ```
//! Everything in the inlet is younger than everything in the normal lane. Who needs both locks
//! takes that of the lanes first.
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
    inlet: Apart<Mutex<VecDeque<Entry<T>>>>,
    /// How many units wait in the inlet. Changed under its lock, read without.
    incoming: Apart<AtomicUsize>,
    lanes: Apart<Mutex<Lanes<T>>>,
    /// How many units wait in all lanes. Changed under their lock, read without.
    waiting: Apart<AtomicUsize>,
    /// How many of those are above normal priority.
    urgent: Apart<AtomicUsize>,
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
            inlet: Apart(Mutex::new(VecDeque::new())),
            incoming: Apart(AtomicUsize::new(0)),
            lanes: Apart(Mutex::new(Lanes {
                queues: std::array::from_fn(|_| VecDeque::new()),
                overtaken: [0; LANES],
            })),
            waiting: Apart(AtomicUsize::new(0)),
            urgent: Apart(AtomicUsize::new(0)),
        }
    }

    /// Calls `before`, adds a unit and calls `after`, with no [`pop_where`](Self::pop_where) or
    /// [`is_surely_empty`](Self::is_surely_empty) in between. The pointee must be something that any thread may
    /// take over.
    #[inline]
    pub(crate) fn push_between<R>(
        &self,
        priority: Priority,
        unit: NonNull<T>,
        before: impl FnOnce(),
        after: impl FnOnce() -> R,
    ) -> R {
        let mut lanes = (priority != Priority::Normal).then(|| lock(&self.lanes));
        let mut inlet = lock(&self.inlet);
        before();
        if let Some(lanes) = &mut lanes {
            lanes.queues[priority.lane()].push_back(Entry(unit));
            self.publish(lanes);
        } else {
            inlet.push_back(Entry(unit));
            self.incoming.store(inlet.len(), Ordering::Release);
        }
        after()
    }

    /// Calls `body` under the lock of the inlet, as every `before` of a push is.
    pub(crate) fn locked(&self, body: impl FnOnce()) {
        let _inlet = lock(&self.inlet);
        body();
    }

    /// Moves what came in to the normal lane.
    fn let_in(&self, lanes: &mut Lanes<T>, inlet: &mut VecDeque<Entry<T>>) {
        let lane = &mut lanes.queues[Priority::Normal.lane()];
        if lane.is_empty() {
            std::mem::swap(lane, inlet);
        } else {
            lane.append(inlet);
        }
        // In this order, so that nobody who looks in between thinks that all is empty.
        self.publish(lanes);
        self.incoming.store(0, Ordering::Release);
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
        let normal_is_empty = lanes.queues[Priority::Normal.lane()].is_empty();
        if normal_is_empty && self.incoming.load(Ordering::Relaxed) != 0 {
            self.let_in(&mut lanes, &mut lock(&self.inlet));
        }
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
        // Held until the end: whoever waits for this lock has not yet called its `before`.
        let mut inlet = lock(&self.inlet);
        self.let_in(&mut lanes, &mut inlet);
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
        self.len() == 0
    }

    /// Is nothing there? Either this sees a unit, or whoever pushes one sees, in its `after`, what the caller did
    /// before: both hold the inlet's lock.
    pub(crate) fn is_surely_empty(&self) -> bool {
        if !self.is_empty() {
            return false;
        }
        let _inlet = lock(&self.inlet);
        self.is_empty()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Acquire pairs with the store in `let_in`: if it has happened, `waiting` has grown.
        self.incoming.load(Ordering::Acquire) + self.waiting.load(Ordering::Relaxed)
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
        // Workers look at `urgent` before every unit: leave its cache line with them if we can.
        if self.urgent.load(Ordering::Relaxed) != above {
            self.urgent.store(above, Ordering::Relaxed);
        }
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn push_all(injector: &Injector<u32>, priority: Priority, values: &mut [u32]) {
        for value in values {
            push(injector, priority, NonNull::from(value));
        }
    }

    fn push(injector: &Injector<u32>, priority: Priority, unit: NonNull<u32>) {
        injector.push_between(priority, unit, || (), || ());
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
        push(&injector, Priority::Lowest, NonNull::from(&mut lowest));
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

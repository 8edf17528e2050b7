//! Groups: at most so many units in flight at once.
//!
//! A group is a counter and a queue beside the pool. A unit enters the pool when there is room, and
//! its [`Slot`], which travels inside its closure, makes room again when the closure is gone:
//! because it ran, because it panicked, or because the unit was cancelled and dropped.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, PoisonError};

use crate::handle::Handle;
use crate::pool::{Pool, Shared};
use crate::priority::Priority;
use crate::sync::whole::{Mutex, MutexGuard};
use crate::sync::{AtomicU32, Ordering};
use crate::unit::UnitRef;

/// Units of which only so many run at once, for example because they use a disk or a service.
///
/// A group does not keep its pool: what is spawned after the pool was dropped never runs.
#[derive(Debug, Clone)]
pub struct Group(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    in_flight: usize,
    waiting: VecDeque<Waiting>,
}

/// A unit that waits for room.
#[derive(Debug)]
struct Waiting {
    unit: UnitRef,
    stage: Arc<AtomicU32>,
}

// SAFETY: a `UnitRef` is a unit that any thread may run, by the promise made when it was made.
unsafe impl Send for Waiting {}

const QUEUED: u32 = 0;
const ADMITTED: u32 = 1;
const GONE: u32 = 2;

/// Sits in a unit's closure. Its end makes room in the group.
#[derive(Debug)]
struct Slot {
    group: Arc<Inner>,
    stage: Arc<AtomicU32>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.stage.swap(GONE, Ordering::AcqRel) == ADMITTED {
            self.group.make_room();
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a unit into the pool, now or when there is room.
    fn admit(&self, waiting: Waiting) {
        let mut state = self.lock();
        if state.in_flight >= self.limit {
            state.waiting.push_back(waiting);
            return;
        }
        state.in_flight += 1;
        drop(state);
        self.start(waiting);
    }

    fn make_room(&self) {
        let mut state = self.lock();
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.in_flight -= 1;
        }
        drop(state);
        if let Some(next) = next {
            self.start(next);
        }
    }

    /// Puts a unit, whose place is counted, into the pool.
    fn start(&self, waiting: Waiting) {
        let admitted =
            waiting
                .stage
                .compare_exchange(QUEUED, ADMITTED, Ordering::AcqRel, Ordering::Acquire);
        // Also when it was cancelled: the pool disposes of what is left.
        self.shared.accept(waiting.unit, Priority::Normal);
        if admitted.is_err() {
            self.make_room();
        }
    }
}

impl Group {
    /// As [`Pool::spawn`], when there is room in the group; first come, first served.
    pub fn spawn<T, F>(&self, body: F) -> Handle<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (slot, stage) = self.slot();
        let (handle, unit) = Handle::new(&self.0.shared, move || {
            let _slot = slot;
            body()
        });
        self.0.admit(Waiting { unit, stage });
        handle
    }

    /// As [`Pool::spawn_future`], when there is room in the group. It takes a place from its first
    /// poll to its end, also while it waits.
    pub fn spawn_future<F>(&self, future: F) -> Handle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (slot, stage) = self.slot();
        let shared = Arc::clone(&self.0.shared);
        let with_slot = async move {
            let _slot = slot;
            future.await
        };
        let (handle, unit) = shared.prepare_future(with_slot);
        self.0.admit(Waiting { unit, stage });
        handle
    }

    /// How many units are in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.0.lock().in_flight
    }

    /// How many units wait for room.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.lock().waiting.len()
    }

    fn slot(&self) -> (Slot, Arc<AtomicU32>) {
        let stage = Arc::new(AtomicU32::new(QUEUED));
        let slot = Slot {
            group: Arc::clone(&self.0),
            stage: Arc::clone(&stage),
        };
        (slot, stage)
    }
}

impl Pool {
    /// A group of units of which at most `limit` are in flight at once.
    ///
    /// # Panics
    /// If `limit` is zero.
    #[must_use]
    pub fn group(&self, limit: usize) -> Group {
        assert!(limit > 0, "a group without room would never run anything");
        Group(Arc::new(Inner {
            shared: Arc::clone(&self.shared),
            limit,
            state: Mutex::new(State::default()),
        }))
    }
}

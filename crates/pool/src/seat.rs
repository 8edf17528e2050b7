//! A seat: what others may touch of a worker.

use crate::deque::Deque;
use crate::follow::Followers;
use crate::join_order::JoinOrder;
use crate::mailbox::Mailbox;
use crate::metrics::Counters;
use crate::ring::Ring;
use crate::sync::{Apart, AtomicBool, Mutex, Ordering, Thread, current, lock};
use crate::trace::Record;
use crate::unit::Header;

/// What others may touch of a worker.
#[derive(Debug)]
pub(crate) struct Seat {
    /// A thief found nothing here: the owner should show something at its next join.
    pub(crate) hungry: Apart<AtomicBool>,
    pub(crate) ring: Ring<Header>,
    pub(crate) deque: Deque<Header>,
    pub(crate) mailbox: Mailbox<Header>,
    /// What only the owner may run: its part of a broadcast.
    pub(crate) orders: Mailbox<Header>,
    /// Units of `spawn_fifo` that the owner made, the oldest first.
    pub(crate) fifo: Mailbox<Header>,
    pub(crate) counters: Apart<Counters>,
    /// Workers that wait for what this one runs, and sleep.
    pub(crate) followers: Followers,
    /// What the owner begins its unordered joins with. Not touched by others, but there for the next guest.
    pub(crate) join_order: JoinOrder,
    /// What happened here, while a trace is taken.
    pub(crate) records: Mutex<Vec<Record>>,
    occupied: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Seat {
    pub(crate) fn new() -> Self {
        Self {
            hungry: Apart(AtomicBool::new(false)),
            ring: Ring::new(),
            deque: Deque::new(),
            mailbox: Mailbox::new(),
            orders: Mailbox::new(),
            fifo: Mailbox::new(),
            counters: Apart(Counters::default()),
            followers: Followers::new(),
            join_order: JoinOrder::new(),
            records: Mutex::new(Vec::new()),
            occupied: AtomicBool::new(false),
            thread: Mutex::new(None),
        }
    }

    /// Does anything wait here that a thief could take?
    pub(crate) fn has_work(&self) -> bool {
        self.ring.shared_len() != 0 || self.has_spawned()
    }

    /// Does anything wait here that was spawned or posted, and not made by a join?
    pub(crate) fn has_spawned(&self) -> bool {
        self.deque.len() != 0 || !self.mailbox.is_empty()
    }

    /// How much waits here.
    pub(crate) fn load(&self) -> usize {
        self.ring.shared_len() + self.deque.len() + self.mailbox.len()
    }

    /// The calling thread takes the seat, which nobody has: the owner's ends of the queues and the
    /// counts of scopes at home are for one thread.
    ///
    /// # Panics
    /// If somebody sits in it.
    pub(crate) fn occupy(&self) {
        // Acquire pairs with the Release in `vacate`: what the one before us did is visible.
        let is_taken = self.occupied.swap(true, Ordering::Acquire);
        assert!(!is_taken, "two threads in one seat");
        *lock(&self.thread) = Some(current());
        self.hungry.store(false, Ordering::Relaxed);
    }

    /// The thread in this seat leaves it.
    pub(crate) fn vacate(&self) {
        *lock(&self.thread) = None;
        self.occupied.store(false, Ordering::Release);
    }

    /// Lets the thread in this seat go on.
    pub(crate) fn unpark(&self) {
        if let Some(thread) = lock(&self.thread).as_ref() {
            thread.unpark();
        }
    }

    /// Asks the owner to show something, without disturbing its cache line more than needed.
    #[inline]
    pub(crate) fn ask(&self) {
        if !self.hungry.load(Ordering::Relaxed) && self.occupied.load(Ordering::Relaxed) {
            self.hungry.store(true, Ordering::Relaxed);
        }
    }
}

//! One simulated agent: what a real agent process would hold and do.
//!
//! It runs what it is given as slots become free, the most urgent first and then in the order in which it came, as
//! the desk of a real one does; and it is built for a network that repeats and reorders: a lease it has seen is not taken twice, a cancellation that
//! comes before its assignment is remembered, and a request for something back is answered with
//! "here you are" if the task never came.

use std::collections::HashSet;

use loxley_model::{Dispatch, Lease, Priority, TaskId};
use smallvec::SmallVec;

use super::AgentSetup;
use crate::time::Nanos;

/// A task in the hands of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) task: TaskId,
    pub(super) lease: Lease,
}

/// A task that an agent runs, at one pace since a moment: when the agent becomes slower or faster,
/// so does what it runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Running {
    pub(super) held: Held,
    pub(super) started: Nanos,
    /// Since when it runs at the pace it has.
    since: Nanos,
    /// How much of its work was left then.
    left: Nanos,
    /// When it will be done at this pace.
    pub(super) ends: Nanos,
}

impl Running {
    pub(super) fn new(held: Held, now: Nanos, work: Nanos, duration: Nanos) -> Self {
        Self {
            held,
            started: now,
            since: now,
            left: work,
            ends: now + duration,
        }
    }

    /// How much of its work is left.
    pub(super) fn left_at(&self, now: Nanos) -> Nanos {
        let whole = (self.ends - self.since).max(1) as f64;
        (self.left as f64 * ((self.ends - now) as f64 / whole)) as Nanos
    }

    /// From now on it takes so many times as long.
    fn change_pace(&mut self, now: Nanos, factor: f64) {
        self.left = self.left_at(now);
        self.ends = now + libm::ceil((self.ends - now) as f64 * factor) as Nanos;
        self.since = now;
    }
}

/// With ten thousand of these, most are found cold in memory: what is needed for every task comes first,
/// in two cache lines.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct AgentModel {
    /// Whether its process runs.
    pub(super) up: bool,
    /// Whether messages get through.
    pub(super) connected: bool,
    /// Whether chance has a say in how long its tasks take or how they end.
    pub(super) is_fickle: bool,
    pub(super) dispatch: Dispatch,
    /// How many tasks it runs at once.
    pub(super) slots: u32,
    /// Which life of the process, and which registration within it, this is.
    pub(super) session: u32,
    /// The session that the scheduler knows.
    pub(super) known_session: u32,
    pub(super) speed: f64,
    /// What it has and does not run yet, the most urgent first, of those the oldest.
    pub(super) backlog: SmallVec<[Held; 2]>,
    pub(super) running: SmallVec<[Running; 1]>,
    /// Leases that came, or that were called off before they came. Only kept where messages may
    /// be repeated or overtake each other.
    seen: Option<HashSet<Lease>>,
    /// The last moment a message to it (and from it) arrives, where none may overtake another.
    pub(super) arrivals: [Nanos; 2],
    /// Messages that wait for the network to be mended.
    pub(super) waiting: Vec<u32>,
}

const _: () = assert!(std::mem::offset_of!(AgentModel, seen) <= 128);

impl AgentModel {
    pub(super) fn new(setup: &AgentSetup, careful: bool) -> Self {
        Self {
            up: false,
            connected: true,
            is_fickle: setup.failure > 0.0 || setup.straggler.0 > 0.0,
            dispatch: setup.spec.dispatch,
            slots: setup.spec.slots,
            session: 0,
            known_session: 0,
            speed: setup.true_speed,
            backlog: SmallVec::new(),
            running: SmallVec::new(),
            seen: careful.then(HashSet::new),
            arrivals: [0; 2],
            waiting: Vec::new(),
        }
    }

    /// A new registration: everything from before is void.
    pub(super) fn begin_session(&mut self) {
        self.session += 1;
        self.backlog.clear();
        if let Some(seen) = &mut self.seen {
            seen.clear();
        }
    }

    /// Takes a task in; false if it came before or was called off.
    pub(super) fn take(&mut self, held: Held, priority_of: impl Fn(TaskId) -> Priority) -> bool {
        let fresh = self
            .seen
            .as_mut()
            .is_none_or(|seen| seen.insert(held.lease));
        if fresh {
            let at = match self.backlog.len() {
                0 => 0,
                _ => {
                    let priority = priority_of(held.task);
                    let before = |other: &Held| priority_of(other.task) >= priority;
                    self.backlog.partition_point(before)
                }
            };
            self.backlog.insert(at, held);
        }
        fresh
    }

    /// The next task to run, if a slot is free.
    pub(super) fn next_to_run(&mut self) -> Option<Held> {
        let may_run = self.running.len() < self.slots as usize && !self.backlog.is_empty();
        may_run.then(|| self.backlog.remove(0))
    }

    /// Everything it runs goes at this speed from now on.
    pub(super) fn change_speed(&mut self, now: Nanos, speed: f64) {
        let factor = self.speed / speed;
        self.speed = speed;
        if factor == 1.0 {
            return;
        }
        for run in &mut self.running {
            run.change_pace(now, factor);
        }
    }

    /// Ends a run; nothing if it was stopped before.
    pub(super) fn end(&mut self, lease: Lease) -> Option<Running> {
        let at = self
            .running
            .iter()
            .position(|run| run.held.lease == lease)?;
        Some(self.running.swap_remove(at))
    }

    /// Ends a run whose time has come; nothing if it was stopped before, or goes on for longer.
    pub(super) fn finish(&mut self, lease: Lease, now: Nanos) -> Option<Running> {
        let at = self
            .running
            .iter()
            .position(|run| run.held.lease == lease && run.ends <= now)?;
        Some(self.running.swap_remove(at))
    }

    /// Gives up a task that it has not started; what it never got, it will not take.
    pub(super) fn give_up(&mut self, lease: Lease) -> GiveUp {
        if let Some(at) = self.backlog.iter().position(|held| held.lease == lease) {
            self.backlog.remove(at);
            return GiveUp::Waiting;
        }
        if self.running.iter().any(|run| run.held.lease == lease) {
            return GiveUp::Running;
        }
        let unseen = self.seen.as_mut().is_some_and(|seen| seen.insert(lease));
        if unseen { GiveUp::Unseen } else { GiveUp::Gone }
    }

    /// How many more tasks it could start at once.
    pub(super) fn free_slots(&self) -> u32 {
        self.slots
            .saturating_sub((self.running.len() + self.backlog.len()) as u32)
    }
}

/// Where a task stood that an agent was told to give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GiveUp {
    /// In the backlog, and is not any more.
    Waiting,
    /// It runs.
    Running,
    /// It never came, and will not be taken.
    Unseen,
    /// It is over.
    Gone,
}

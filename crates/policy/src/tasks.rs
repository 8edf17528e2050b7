//! The tasks that are not over.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use loxley_model::{AgentId, Fallback, Lease, Locality, Priority, Span, TaskId, Time};

use crate::Reason;
use crate::refs::{AgentRef, JobRef, KindRef, LotRef, TaskRef};

/// The order of tasks within one priority: earliest deadline, then first submission, then the longest
/// way to the end of its job, then first in the submission. Fixed for life, so that a task which is
/// put back, moved or tried again keeps its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OrderKey {
    pub(crate) deadline: Time,
    pub(crate) submission: u64,
    /// `u64::MAX` minus the length of the longest chain of tasks that begins here.
    pub(crate) slack: u64,
    pub(crate) arrival: u64,
}

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Some dependencies have not succeeded yet.
    Waiting,
    /// It is tried again later.
    Backoff,
    /// It stands by as a fallback.
    Standby,
    /// Its fallback runs in its stead.
    Delegated,
    /// No agent can do it.
    Held,
    /// On the queue of `agent`.
    Queued,
    /// Given to `agent` under `lease`.
    Leased,
    /// Started by `agent` under `lease`.
    Running,
}

/// The slack of a task that nothing waits for in its submission.
pub(crate) const NO_CHAIN: u64 = u64::MAX;

/// No edge: the end of a list.
pub(crate) const NO_EDGE: u32 = u32::MAX;

/// A task that is not over. Kept small: a million of these may be queued.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) id: TaskId,
    pub(crate) job: JobRef,
    pub(crate) kind: KindRef,
    pub(crate) lot: LotRef,
    pub(crate) key: OrderKey,
    /// The expected cost; `Span::MAX` when nobody knows.
    pub(crate) cost: Span,
    pub(crate) created: Time,
    /// When it could first have been started.
    pub(crate) ready: Time,
    /// When it was last given to an agent or put on its queue.
    pub(crate) assigned: Time,
    pub(crate) started: Time,
    pub(crate) lease: Lease,
    pub(crate) reason: Reason,
    /// Meaningful while queued, leased or running.
    pub(crate) agent: AgentRef,
    /// Changes whenever the task leaves a queue, so that old queue entries are recognised.
    pub(crate) stamp: u32,
    pub(crate) dependencies_left: u32,
    /// The first edge to a task that waits for this one.
    pub(crate) dependents: u32,
    pub(crate) attempts: u16,
    /// Attempts that failed: what the retry rule counts.
    pub(crate) failures: u16,
    pub(crate) losses: u8,
    pub(crate) moves: u8,
    pub(crate) priority: Priority,
    pub(crate) state: State,
    pub(crate) deadline_reported: bool,
    /// Whether it may not be moved any more, as of when it was queued.
    pub(crate) settled: bool,
    /// Whether it is about to end because of another task.
    pub(crate) doomed: bool,
    pub(crate) extra: Option<Box<Extra>>,
}

/// What few tasks have.
#[derive(Debug)]
pub(crate) struct Extra {
    pub(crate) locality: Option<Locality>,
    pub(crate) fallback: Fallback,
    /// The task this one stands in for when it is needed.
    pub(crate) stands_in_for: Option<TaskId>,
    pub(crate) copy: Option<Copy>,
    /// Whether this attempt had its second copy.
    pub(crate) copied: bool,
    /// Who gets the task when its agent gives it back.
    pub(crate) retract_for: Option<AgentId>,
    pub(crate) retracting: bool,
    pub(crate) retry_at: Time,
}

impl Default for Extra {
    fn default() -> Self {
        Self {
            locality: None,
            fallback: Fallback::None,
            stands_in_for: None,
            copy: None,
            copied: false,
            retract_for: None,
            retracting: false,
            retry_at: Time::ZERO,
        }
    }
}

/// A second copy of a running task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) agent: AgentRef,
    pub(crate) lease: Lease,
    pub(crate) started: Time,
    pub(crate) running: bool,
}

impl Task {
    pub(crate) fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    pub(crate) fn extra_mut_if_any(&mut self) -> Option<&mut Extra> {
        self.extra.as_deref_mut()
    }

    pub(crate) fn locality(&self) -> Option<Locality> {
        self.extra.as_ref().and_then(|extra| extra.locality)
    }

    pub(crate) fn copy(&self) -> Option<Copy> {
        self.extra.as_ref().and_then(|extra| extra.copy)
    }

    pub(crate) fn is_retracting(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.retracting)
    }

    pub(crate) fn known_cost(&self) -> Option<Span> {
        (self.cost != Span::MAX).then_some(self.cost)
    }

    pub(crate) fn has_lease(&self) -> bool {
        matches!(self.state, State::Leased | State::Running)
    }
}

const CHUNK: usize = 1024;

/// The table of tasks. Grows by chunks, so that a growing table is never copied, and gives its memory
/// back when the last task is over.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    chunks: Vec<Vec<Entry>>,
    /// The first free entry.
    free: Option<TaskRef>,
    len: usize,
}

#[derive(Debug)]
enum Entry {
    Free { next: Option<TaskRef>, stamp: u32 },
    Used(Task),
}

impl Tasks {
    /// Puts a task in. Its stamp goes on from the last one at this place.
    pub(crate) fn insert(&mut self, mut task: Task) -> TaskRef {
        self.len += 1;
        if let Some(place) = self.free {
            let entry = self.entry_mut(place);
            let Entry::Free { next, stamp } = *entry else {
                unreachable!("the free list leads to a used entry")
            };
            task.stamp = stamp;
            *entry = Entry::Used(task);
            self.free = next;
            return place;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let last = self.chunks.len() - 1;
        let chunk = &mut self.chunks[last];
        chunk.push(Entry::Used(task));
        TaskRef::new(last * CHUNK + chunk.len() - 1)
    }

    pub(crate) fn remove(&mut self, place: TaskRef) -> Task {
        let stamp = self[place].stamp.wrapping_add(1);
        let next = self.free.replace(place);
        let entry = core::mem::replace(self.entry_mut(place), Entry::Free { next, stamp });
        self.len -= 1;
        if self.len == 0 {
            // Entries in queues that outlive their task are only recognised by stamps of entries
            // that exist, so the queues must be empty too: they are, they hold live tasks only.
            self.chunks = Vec::new();
            self.free = None;
        }
        match entry {
            Entry::Used(task) => task,
            Entry::Free { .. } => unreachable!("removed a task twice"),
        }
    }

    /// Every task, in the order of the table.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TaskRef, &Task)> {
        let entries = self.chunks.iter().flatten().enumerate();
        entries.filter_map(|(index, entry)| match entry {
            Entry::Used(task) => Some((TaskRef::new(index), task)),
            Entry::Free { .. } => None,
        })
    }

    /// The stamp at a place, whether or not a task is there.
    pub(crate) fn stamp(&self, place: TaskRef) -> Option<u32> {
        let chunk = self.chunks.get(place.index() / CHUNK)?;
        Some(match chunk.get(place.index() % CHUNK)? {
            Entry::Free { stamp, .. } => *stamp,
            Entry::Used(task) => task.stamp,
        })
    }

    /// The task at a place, if there is one.
    pub(crate) fn get(&self, place: TaskRef) -> Option<&Task> {
        match self
            .chunks
            .get(place.index() / CHUNK)?
            .get(place.index() % CHUNK)?
        {
            Entry::Used(task) => Some(task),
            Entry::Free { .. } => None,
        }
    }

    /// The task at a place, if there is one, to be changed.
    pub(crate) fn get_mut(&mut self, place: TaskRef) -> Option<&mut Task> {
        let chunk = self.chunks.get_mut(place.index() / CHUNK)?;
        match chunk.get_mut(place.index() % CHUNK)? {
            Entry::Used(task) => Some(task),
            Entry::Free { .. } => None,
        }
    }

    fn entry_mut(&mut self, place: TaskRef) -> &mut Entry {
        &mut self.chunks[place.index() / CHUNK][place.index() % CHUNK]
    }
}

impl Index<TaskRef> for Tasks {
    type Output = Task;
    fn index(&self, place: TaskRef) -> &Task {
        match &self.chunks[place.index() / CHUNK][place.index() % CHUNK] {
            Entry::Used(task) => task,
            Entry::Free { .. } => panic!("a reference outlived its task"),
        }
    }
}

impl IndexMut<TaskRef> for Tasks {
    fn index_mut(&mut self, place: TaskRef) -> &mut Task {
        match self.entry_mut(place) {
            Entry::Used(task) => task,
            Entry::Free { .. } => panic!("a reference outlived its task"),
        }
    }
}

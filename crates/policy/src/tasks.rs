//! The tasks that are not over.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::{Index, IndexMut};

use loxley_model::{AgentId, Fallback, Lease, Locality, Priority, Span, TaskId, Time};

use crate::refs::{AdmissionClassRef, AgentRef, JobRef, KindRef, TaskRef};
use crate::{Ending, Reason};

/// The order of tasks within one priority: earliest deadline, then first submission, then the longest
/// way to the end of its job, then first in the submission. So a task which is put back, moved or tried again keeps its
/// place. It changes once at most: a task that can no longer make its deadline comes behind all that still can, and
/// before those without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OrderKey {
    pub(crate) deadline: Time,
    /// The arrival of the first task of its submission.
    submission: u64,
    slack: u64,
    pub(crate) arrival: u64,
}

impl OrderKey {
    /// Comes before the key of every task.
    pub(crate) const LEAST: Self = Self {
        deadline: Time::ZERO,
        submission: 0,
        slack: 0,
        arrival: 0,
    };
}

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
    /// Another scheduler has it.
    Away,
}

/// The cost of a task of which nothing is known.
pub(crate) const UNKNOWN_COST: Span = Span::from_millis(100);

/// The slack of a task of which nothing says when it should start: nothing waits for it in its submission, and it
/// costs the same as the others.
pub(crate) const NO_CHAIN: u64 = u64::MAX;

/// Puts a deadline behind all that are not centuries away, and keeps the order of those that it is put to.
const LOST: u64 = 1 << 63;

/// No edge: the end of a list.
pub(crate) const NO_EDGE: u32 = u32::MAX;

/// A task that is not over: two cache lines, since a million of these may be queued and each is found
/// cold in memory when its turn comes. What few tasks need is in [`Extra`].
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(align(64))]
pub(crate) struct Task {
    pub(crate) id: TaskId,
    /// Which task this is of all that ever came, from 1; 0 marks a vacant place of the table.
    pub(crate) arrival: u64,
    /// `NO_CHAIN` minus the length of the longest chain of tasks that begins here; without dependents, minus its
    /// own cost, where those of its submission differ.
    pub(crate) slack: u64,
    /// The expected cost; `Span::MAX` when nobody knows.
    pub(crate) cost: Span,
    pub(crate) created: Time,
    /// While it runs, when it was started; before, when it could first have been.
    pub(crate) since: Time,
    /// When it was last given to an agent or put on its queue.
    pub(crate) assigned: Time,
    pub(crate) lease: Lease,
    pub(crate) reason: Reason,
    pub(crate) extra: Option<Box<Extra>>,
    pub(crate) job: JobRef,
    pub(crate) kind: KindRef,
    pub(crate) admission_class: AdmissionClassRef,
    /// Meaningful while queued, leased or running.
    pub(crate) agent: AgentRef,
    /// Changes whenever the task leaves a queue, so that old queue entries are recognised.
    pub(crate) stamp: u32,
    /// Its position in its submission.
    pub(crate) position: u32,
    pub(crate) dependencies_left: u32,
    /// The first edge to a task that waits for this one.
    pub(crate) dependents: u32,
    pub(crate) attempts: u16,
    pub(crate) moves: u8,
    pub(crate) priority: Priority,
    pub(crate) state: State,
    /// Whether it is about to end because of another task.
    pub(crate) doomed: bool,
}

const _: () = assert!(size_of::<Task>() == 128);

/// What few tasks have.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Extra {
    /// `Time::MAX` when there is none.
    pub(crate) deadline: Time,
    pub(crate) deadline_reported: bool,
    /// Attempts that failed: what the retry rule counts.
    pub(crate) failures: u16,
    /// How many agents were lost with it.
    pub(crate) losses: u8,
    pub(crate) locality: Option<Locality>,
    pub(crate) fallback: Fallback,
    /// The task this one stands in for when it is needed.
    pub(crate) stands_in_for: Option<TaskId>,
    pub(crate) copy: Option<SecondCopy>,
    /// Whether this attempt had its second copy.
    pub(crate) copied: bool,
    /// Who gets the task when its agent gives it back: an id and an incarnation.
    pub(crate) retract_for: Option<(AgentId, u32)>,
    pub(crate) retracting: bool,
    pub(crate) retry_at: Time,
    /// Whether its agent was told to end it, and has not said yet that nothing of it is left.
    pub(crate) called_off: bool,
    /// How it ends once all its leases have. Without one, a task that was called off has run too long.
    pub(crate) ending: Option<Ending>,
}

impl Default for Extra {
    fn default() -> Self {
        Self {
            deadline: Time::MAX,
            deadline_reported: false,
            failures: 0,
            losses: 0,
            locality: None,
            fallback: Fallback::None,
            stands_in_for: None,
            copy: None,
            copied: false,
            retract_for: None,
            retracting: false,
            retry_at: Time::ZERO,
            called_off: false,
            ending: None,
        }
    }
}

/// A second copy of a running task.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct SecondCopy {
    pub(crate) agent: AgentRef,
    pub(crate) lease: Lease,
    pub(crate) started: Time,
    pub(crate) running: bool,
    /// As with the first one.
    pub(crate) called_off: bool,
}

impl Task {
    pub(crate) fn key(&self) -> OrderKey {
        OrderKey {
            deadline: self.ordering_deadline(),
            submission: self.arrival - u64::from(self.position),
            slack: self.slack,
            arrival: self.arrival,
        }
    }

    /// What it is ordered by: its deadline, or later than any other if it is lost.
    fn ordering_deadline(&self) -> Time {
        let Some(extra) = &self.extra else {
            return Time::MAX;
        };
        if extra.deadline_reported && extra.deadline != Time::MAX {
            Time((extra.deadline.0 | LOST).min(Time::MAX.0 - 1))
        } else {
            extra.deadline
        }
    }

    /// When it should be done; `Time::MAX` when nobody said.
    pub(crate) fn deadline(&self) -> Time {
        self.extra
            .as_ref()
            .map_or(Time::MAX, |extra| extra.deadline)
    }

    pub(crate) fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    pub(crate) fn extra_mut_if_any(&mut self) -> Option<&mut Extra> {
        self.extra.as_deref_mut()
    }

    pub(crate) fn locality(&self) -> Option<Locality> {
        self.extra.as_ref().and_then(|extra| extra.locality)
    }

    pub(crate) fn copy(&self) -> Option<SecondCopy> {
        self.extra.as_ref().and_then(|extra| extra.copy)
    }

    pub(crate) fn is_retracting(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.retracting)
    }

    /// Whether the agent with its first lease was told to end it.
    pub(crate) fn is_called_off(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.called_off)
    }

    /// Whether its agent was asked for it back, or told to end it.
    pub(crate) fn is_on_its_way(&self) -> bool {
        self.is_retracting() || self.is_called_off()
    }

    pub(crate) fn known_cost(&self) -> Option<Span> {
        (self.cost != Span::MAX).then_some(self.cost)
    }

    /// What it counts as on a queue: its own cost, or a guess.
    pub(crate) fn queue_cost(&self) -> Span {
        self.known_cost().unwrap_or(UNKNOWN_COST)
    }

    /// The order in which the whole fleet should start tasks.
    pub(crate) fn fleet_order(&self) -> (Reverse<Priority>, OrderKey) {
        (Reverse(self.priority), self.key())
    }

    /// The same without the place in its submission: tasks of one rank may start in any order.
    pub(crate) fn rank(&self) -> (Reverse<Priority>, OrderKey) {
        let key = OrderKey {
            arrival: 0,
            ..self.key()
        };
        (Reverse(self.priority), key)
    }

    pub(crate) fn is_queued(&self) -> bool {
        self.state == State::Queued
    }

    pub(crate) fn has_lease(&self) -> bool {
        matches!(self.state, State::Leased | State::Running)
    }
}

/// The table of tasks. Gives its memory back when the last task is over.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Tasks {
    entries: Vec<Task>,
    /// The first vacant place.
    vacant: Option<TaskRef>,
    len: usize,
}

impl Tasks {
    /// Puts a task in. Its stamp goes on from the last one at this place.
    pub(crate) fn insert(&mut self, mut task: Task) -> TaskRef {
        self.len += 1;
        let Some(place) = self.vacant else {
            self.entries.push(task);
            return TaskRef::new(self.entries.len() - 1);
        };
        let entry = &mut self.entries[place.index()];
        task.stamp = entry.stamp;
        self.vacant = entry.next_vacant();
        *entry = task;
        place
    }

    /// Makes room for so many more tasks at once.
    pub(crate) fn reserve(&mut self, more: usize) {
        let vacant = self.entries.len() - self.len;
        self.entries.reserve(more.saturating_sub(vacant));
    }

    pub(crate) fn remove(&mut self, place: TaskRef) -> Gone {
        let entry = &mut self.entries[place.index()];
        assert!(!entry.is_vacant(), "removed a task twice");
        let task = Gone {
            id: entry.id,
            cost: entry.known_cost(),
            extra: entry.extra.take(),
            job: entry.job,
            kind: entry.kind,
            dependents: entry.dependents,
            priority: entry.priority,
        };
        entry.vacate(self.vacant);
        self.vacant = Some(place);
        self.len -= 1;
        if self.len == 0 {
            // Entries in queues that outlive their task are only recognised by stamps of places
            // that exist, so the queues must be empty too: they are, they hold live tasks only.
            *self = Self::default();
        }
        task
    }

    /// Every task, in the order of the table.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TaskRef, &Task)> {
        let entries = self.entries.iter().enumerate();
        let used = entries.filter(|(_, task)| !task.is_vacant());
        used.map(|(index, task)| (TaskRef::new(index), task))
    }

    /// The stamp at a place, whether or not a task is there.
    pub(crate) fn stamp(&self, place: TaskRef) -> Option<u32> {
        self.entries.get(place.index()).map(|task| task.stamp)
    }

    /// Has a task fetched from memory, both of its lines.
    pub(crate) fn touch(&self, place: TaskRef) {
        if let Some(task) = self.entries.get(place.index()) {
            core::hint::black_box((task.id, task.state));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the places without a task are those on the list of them.
    pub(crate) fn vacancies_agree(&self) -> bool {
        let mut place = self.vacant;
        for _ in self.len..self.entries.len() {
            match place.and_then(|place| self.entries.get(place.index())) {
                Some(entry) if entry.is_vacant() => place = entry.next_vacant(),
                _ => return false,
            }
        }
        place.is_none() && self.iter().count() == self.len
    }

    /// The task at a place, if there is one.
    pub(crate) fn get(&self, place: TaskRef) -> Option<&Task> {
        let entry = self.entries.get(place.index());
        entry.filter(|task| !task.is_vacant())
    }

    /// The task at a place, if there is one, to be changed.
    pub(crate) fn get_mut(&mut self, place: TaskRef) -> Option<&mut Task> {
        let entry = self.entries.get_mut(place.index());
        entry.filter(|task| !task.is_vacant())
    }
}

/// What is left to do with a task that is over concerns this.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) id: TaskId,
    pub(crate) cost: Option<Span>,
    pub(crate) extra: Option<Box<Extra>>,
    pub(crate) job: JobRef,
    pub(crate) kind: KindRef,
    /// The first edge to a task that waited for this one.
    pub(crate) dependents: u32,
    pub(crate) priority: Priority,
}

impl Task {
    /// Makes this a place without a task. It remembers the next such place instead of an edge.
    fn vacate(&mut self, next: Option<TaskRef>) {
        self.arrival = 0;
        self.stamp = self.stamp.wrapping_add(1);
        self.dependents = next.map_or(NO_EDGE, |next| next.index() as u32);
    }

    fn is_vacant(&self) -> bool {
        self.arrival == 0
    }

    fn next_vacant(&self) -> Option<TaskRef> {
        debug_assert!(self.is_vacant());
        (self.dependents != NO_EDGE).then(|| TaskRef::new(self.dependents as usize))
    }
}

impl Index<TaskRef> for Tasks {
    type Output = Task;
    fn index(&self, place: TaskRef) -> &Task {
        let task = &self.entries[place.index()];
        assert!(!task.is_vacant(), "a reference outlived its task");
        task
    }
}

impl IndexMut<TaskRef> for Tasks {
    fn index_mut(&mut self, place: TaskRef) -> &mut Task {
        let task = &mut self.entries[place.index()];
        assert!(!task.is_vacant(), "a reference outlived its task");
        task
    }
}

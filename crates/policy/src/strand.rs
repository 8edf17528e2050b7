//! A sorted double-ended queue of tasks from which any may leave.
//!
//! Most tasks arrive in order, so a strand is a plain double-ended queue, beside a sorted set for those that do not:
//! retries, moved tasks, tasks put back. Leaving the middle only makes an entry stale; entries are compared with the
//! task's stamp when they come to an end.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::refs::TaskRef;
use crate::tasks::{OrderKey, Task, Tasks};

/// So many tasks are passed over before a search is given up.
const PASSED_OVER_MAX: usize = 32;

/// There is room for so many tasks at least, also when the last one has left.
const KEPT: usize = 8;

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Strand {
    sorted: VecDeque<Entry>,
    /// What did not arrive in order; none at all for most strands.
    strays: Option<Box<Strays>>,
    len: u32,
    /// The greatest key in the sorted part, or greater.
    last_key: OrderKey,
}

type Strays = BTreeSet<(OrderKey, Entry)>;

impl Default for Strand {
    fn default() -> Self {
        Self {
            sorted: VecDeque::new(),
            strays: None,
            len: 0,
            last_key: OrderKey::LEAST,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    task: TaskRef,
    stamp: u32,
}

impl Entry {
    fn new(task: TaskRef, this: &Task) -> Self {
        Self {
            task,
            stamp: this.stamp,
        }
    }
}

/// What came of looking for a task from one end of a strand.
pub(crate) enum Search {
    Found(TaskRef),
    Nothing,
    PassedOverMany,
}

impl Strand {
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn push(&mut self, task: TaskRef, this: &Task) {
        let (key, entry) = (this.key(), Entry::new(task, this));
        if self.last_key < key {
            self.last_key = key;
            if self.sorted.len() == self.sorted.capacity() {
                // With a million tasks queued, twice as much room would be several bytes a task that nobody uses.
                self.sorted.reserve_exact((self.sorted.len() / 8).max(KEPT));
            }
            self.sorted.push_back(entry);
        } else {
            self.strays.get_or_insert_default().insert((key, entry));
        }
        self.len += 1;
    }

    /// Takes an entry out. In the middle of the sorted part it stays behind: the task's stamp is about
    /// to change, which makes the entry stale.
    pub(crate) fn remove(&mut self, tasks: &Tasks, task: TaskRef) {
        let entry = Entry::new(task, &tasks[task]);
        if self.strays.is_none() || !self.remove_stray(tasks[task].key(), entry) {
            if self.sorted.front() != Some(&entry) {
                self.trim_front(tasks);
            }
            if self.sorted.front() == Some(&entry) {
                self.sorted.pop_front();
            } else if self.sorted.back() == Some(&entry) {
                self.sorted.pop_back();
            }
        }
        self.len -= 1;
        if self.len == 0 {
            self.become_empty();
        } else if self.sorted.len() > 2 * self.len as usize + 16 {
            self.sorted.retain(|e| *e != entry && is_fresh(tasks, *e));
        }
    }

    /// Forgets what is stale. A little memory is kept for the next task.
    fn become_empty(&mut self) {
        if self.sorted.capacity() > KEPT {
            self.sorted = VecDeque::new();
        }
        self.sorted.clear();
        self.last_key = OrderKey::LEAST;
    }

    fn strays(&self) -> impl DoubleEndedIterator<Item = &(OrderKey, Entry)> {
        self.strays.iter().flat_map(|strays| strays.iter())
    }

    fn remove_stray(&mut self, key: OrderKey, entry: Entry) -> bool {
        let Some(strays) = &mut self.strays else {
            return false;
        };
        let removed = strays.remove(&(key, entry));
        if strays.is_empty() {
            self.strays = None;
        }
        removed
    }

    /// The first task from one end that `accepts` agrees to.
    pub(crate) fn find(
        &mut self,
        tasks: &Tasks,
        from_back: bool,
        accepts: &mut impl FnMut(&Task) -> bool,
    ) -> Search {
        if self.len == 0 {
            return Search::Nothing;
        }
        if from_back {
            self.trim_back(tasks);
        } else {
            self.trim_front(tasks);
        }
        if self.strays.is_none() {
            let fresh = self
                .sorted
                .iter()
                .copied()
                .filter(|entry| is_fresh(tasks, *entry));
            return if from_back {
                search(tasks, fresh.rev(), accepts)
            } else {
                search(tasks, fresh, accepts)
            };
        }
        if let Some(entry) = if from_back {
            self.back_entry(tasks)
        } else {
            self.front_entry(tasks)
        } && accepts(&tasks[entry.task])
        {
            return Search::Found(entry.task);
        }
        // Both parts matter further in.
        let fresh = self.sorted.iter().filter(|entry| is_fresh(tasks, **entry));
        let sorted = fresh.map(|entry| (tasks[entry.task].key(), *entry));
        let strays = self.strays().copied();
        if from_back {
            let merged = merge(sorted.rev(), strays.rev(), |one, other| one > other);
            search(tasks, merged, accepts)
        } else {
            let merged = merge(sorted, strays, |one, other| one < other);
            search(tasks, merged, accepts)
        }
    }

    fn front_entry(&self, tasks: &Tasks) -> Option<Entry> {
        let sorted = self
            .sorted
            .front()
            .map(|entry| (tasks[entry.task].key(), *entry));
        sorted
            .into_iter()
            .chain(self.strays().next().copied())
            .min()
            .map(|(_, entry)| entry)
    }

    fn back_entry(&self, tasks: &Tasks) -> Option<Entry> {
        let sorted = self
            .sorted
            .back()
            .map(|entry| (tasks[entry.task].key(), *entry));
        sorted
            .into_iter()
            .chain(self.strays().next_back().copied())
            .max()
            .map(|(_, entry)| entry)
    }

    /// The first task, after `gone` was taken out: its entry may still be there, with the stamp of
    /// before.
    fn front_without(&mut self, tasks: &Tasks, gone: TaskRef) -> Option<(OrderKey, TaskRef)> {
        while self
            .sorted
            .front()
            .is_some_and(|entry| entry.task == gone || !is_fresh(tasks, *entry))
        {
            self.sorted.pop_front();
        }
        self.front_entry(tasks)
            .map(|entry| (tasks[entry.task].key(), entry.task))
    }

    fn back(&mut self, tasks: &Tasks) -> Option<TaskRef> {
        self.trim_back(tasks);
        self.back_entry(tasks).map(|entry| entry.task)
    }

    /// The tasks of the sorted part, the first one first; some may have left. Only to have them fetched from memory.
    pub(crate) fn likely(&self) -> impl ExactSizeIterator<Item = TaskRef> {
        self.sorted.iter().map(|entry| entry.task)
    }

    fn trim_front(&mut self, tasks: &Tasks) {
        while self
            .sorted
            .front()
            .is_some_and(|entry| !is_fresh(tasks, *entry))
        {
            self.sorted.pop_front();
        }
    }

    fn trim_back(&mut self, tasks: &Tasks) {
        while self
            .sorted
            .back()
            .is_some_and(|entry| !is_fresh(tasks, *entry))
        {
            self.sorted.pop_back();
        }
    }

    pub(crate) fn tasks(&self, tasks: &Tasks) -> impl Iterator<Item = TaskRef> {
        let sorted = self.sorted.iter().filter(|entry| is_fresh(tasks, **entry));
        let strays = self.strays().map(|(_, entry)| entry);
        sorted.chain(strays).map(|entry| entry.task)
    }
}

/// Strands of tasks that have something in common, with the first task of each in order.
#[derive(Debug)]
pub(crate) struct Strands<K> {
    strands: BTreeMap<K, SortedStrand>,
    fronts: BTreeSet<(OrderKey, TaskRef, K)>,
}

/// A strand with its first task.
#[derive(Debug, Default)]
struct SortedStrand {
    strand: Strand,
    front: Option<(OrderKey, TaskRef)>,
}

impl<K> Default for Strands<K> {
    fn default() -> Self {
        Self {
            strands: BTreeMap::new(),
            fronts: BTreeSet::new(),
        }
    }
}

impl<K: Copy + Ord> Strands<K> {
    pub(crate) fn is_empty(&self) -> bool {
        self.fronts.is_empty()
    }

    pub(crate) fn has_one(&self) -> bool {
        self.strands.len() == 1 && self.values().all(|strand| strand.len() == 1)
    }

    pub(crate) fn push(&mut self, task: TaskRef, this: &Task, common: K) {
        let key = this.key();
        let strand = self.strands.entry(common).or_default();
        let is_first = match strand.front {
            Some((first, front)) if key < first => {
                self.fronts.remove(&(first, front, common));
                true
            }
            front => front.is_none(),
        };
        if is_first {
            strand.front = Some((key, task));
            self.fronts.insert((key, task, common));
        }
        strand.strand.push(task, this);
    }

    /// Takes a task out, whose stamp changes right after; true if its strand is gone with it.
    pub(crate) fn remove(&mut self, tasks: &Tasks, task: TaskRef, common: K) -> bool {
        let strand = self.strands.get_mut(&common);
        let strand = strand.expect("a queued task is on its strand");
        strand.strand.remove(tasks, task);
        let Some((key, first)) = strand.front.filter(|(_, first)| *first == task) else {
            return false;
        };
        self.fronts.remove(&(key, first, common));
        strand.front = strand.strand.front_without(tasks, task);
        match strand.front {
            Some((key, first)) => {
                self.fronts.insert((key, first, common));
                false
            }
            None => {
                self.strands.remove(&common);
                true
            }
        }
    }

    /// What the tasks of each strand have in common.
    pub(crate) fn keys(&self) -> impl Iterator<Item = K> {
        self.strands.keys().copied()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Strand> {
        self.strands.values().map(|sorted| &sorted.strand)
    }

    /// The first task of each strand, in order.
    pub(crate) fn fronts(&self) -> impl Iterator<Item = (TaskRef, K)> {
        self.fronts.iter().map(|(_, task, common)| (*task, *common))
    }

    /// The last task of all strands that `takes` agrees to.
    pub(crate) fn last(
        &mut self,
        tasks: &Tasks,
        takes: &mut impl FnMut(K) -> bool,
    ) -> Option<TaskRef> {
        let taken = self
            .strands
            .iter_mut()
            .filter(|(common, _)| takes(**common));
        let lasts = taken.filter_map(|(_, strand)| strand.strand.back(tasks));
        lasts.max_by_key(|task| tasks[*task].key())
    }

    /// Whether the first tasks that are noted are the first ones.
    pub(crate) fn fronts_agree(&self, tasks: &Tasks) -> bool {
        let firsts = self.strands.iter().map(|(common, sorted)| {
            let keyed = |task: TaskRef| (tasks[task].key(), task);
            let first = sorted.strand.tasks(tasks).map(keyed).min();
            let (key, task) = first.filter(|_| first == sorted.front)?;
            Some((key, task, *common))
        });
        let firsts: Option<BTreeSet<_>> = firsts.collect();
        firsts.as_ref() == Some(&self.fronts)
    }
}

/// The entries of two that are in order, in order.
fn merge(
    one: impl Iterator<Item = (OrderKey, Entry)>,
    other: impl Iterator<Item = (OrderKey, Entry)>,
    comes_first: impl Fn(OrderKey, OrderKey) -> bool,
) -> impl Iterator<Item = Entry> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    core::iter::from_fn(move || {
        let is_one = match (one.peek(), other.peek()) {
            (Some((key, _)), Some((other, _))) => comes_first(*key, *other),
            (first, _) => first.is_some(),
        };
        let next = if is_one { one.next() } else { other.next() };
        next.map(|(_, entry)| entry)
    })
}

fn search(
    tasks: &Tasks,
    entries: impl Iterator<Item = Entry>,
    accepts: &mut impl FnMut(&Task) -> bool,
) -> Search {
    for (passed_over, entry) in entries.enumerate() {
        if passed_over > PASSED_OVER_MAX {
            return Search::PassedOverMany;
        }
        if accepts(&tasks[entry.task]) {
            return Search::Found(entry.task);
        }
    }
    Search::Nothing
}

fn is_fresh(tasks: &Tasks, entry: Entry) -> bool {
    tasks.stamp(entry.task) == Some(entry.stamp)
}

//! The queue of one agent: five priorities, no scan.
//!
//! ```text
//! priority 5   a b c d
//! priority 4
//! priority 3   [class 2: e f]  [class 7: h]  [class 2, settled: g]
//!    ...
//! ```
//!
//! A level starts as one *strand*, a sorted queue of whatever has this priority. The owner takes its
//! first task and a thief its last, and nearly always they may have it. When somebody had to pass over
//! many tasks that it may not have, the level is split into strands by [`AdmissionClass`](crate::task_classes::AdmissionClass):
//! tasks that are the same in everything that can keep them from being started. Whoever may not have
//! one of an admission class may have none of it, so from then on only the ends of strands are looked at. Tasks
//! that moved often enough (*settled*) have strands of their own, which thieves pass over at first.
//! Whether a level is split makes no difference to what is found, only to how long that takes.
//!
//! A strand is a sorted double-ended queue, since most tasks arrive in order, beside a sorted set for
//! those that do not: retries, moved tasks, tasks put back. Leaving the middle of a strand only makes
//! its entry stale; entries are compared with the task's stamp when they come to an end.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use loxley_model::Priority;

use crate::refs::{AdmissionClassRef, TaskRef};
use crate::tasks::{OrderKey, Task, Tasks};
use crate::tournament::ClassBits;

/// So many tasks are passed over before a level is split.
const PASSED_OVER_MAX: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Apart from the agent; none before the first task.
    levels: Option<Box<[Level; Priority::LEVELS]>>,
    len: u32,
    /// One bit for each level that is not empty.
    occupied: u8,
}

/// The tasks of one priority: two cache lines, of which taking the first task needs one.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Level {
    split: Option<Box<Split>>,
    /// All of them, unless the level is split.
    mixed: Strand,
    /// One bit for each class of task that is not settled; perhaps some too many while not split.
    free: ClassBits,
    /// The same for all tasks.
    any: ClassBits,
}

const _: () = assert!(size_of::<Level>() == 128);

/// A level in strands of one sort each.
#[derive(Debug, Default)]
struct Split {
    strands: BTreeMap<Sort, SortedStrand>,
    /// The first task of each strand, in order.
    fronts: BTreeSet<(OrderKey, TaskRef, Sort)>,
}

/// What the entries of a strand have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sort {
    pub(crate) admission_class: AdmissionClassRef,
    /// Whether it moved often enough.
    pub(crate) settled: bool,
    /// Which bit stands for the capability class.
    pub(crate) class_bit: u8,
}

impl Sort {
    fn any(self) -> ClassBits {
        1 << self.class_bit
    }

    fn free(self) -> ClassBits {
        ClassBits::from(!self.settled) << self.class_bit
    }
}

#[derive(Debug)]
#[repr(C)]
struct Strand {
    sorted: VecDeque<Entry>,
    /// What did not arrive in order; none at all for most strands.
    strays: Option<Box<Strays>>,
    len: u32,
    /// The greatest key in the sorted part, or greater.
    last_key: OrderKey,
}

/// A strand of one sort, with its first task.
#[derive(Debug, Default)]
struct SortedStrand {
    strand: Strand,
    front: Option<(OrderKey, TaskRef)>,
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

/// Which task a thief prefers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StealOrder {
    pub(crate) newest_first: bool,
    pub(crate) lowest_priority_first: bool,
    /// Tasks of this priority and above stay.
    pub(crate) protected_from: Option<Priority>,
    /// Tasks that moved so often stay.
    pub(crate) moves_max: u32,
}

impl StealOrder {
    fn is_settled(&self, task: &Task) -> bool {
        u32::from(task.moves) >= self.moves_max
    }
}

impl Queue {
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// The levels, the lowest priority first.
    fn levels(&self) -> impl DoubleEndedIterator<Item = &Level> {
        self.levels.iter().flat_map(|levels| levels.iter())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts a task in its place.
    pub(crate) fn push(&mut self, tasks: &Tasks, task: TaskRef, sort: Sort) {
        let this = &tasks[task];
        self.len += 1;
        self.occupied |= 1 << this.priority.index();
        let levels = self.levels.get_or_insert_default();
        levels[this.priority.index()].push(task, this, sort);
    }

    /// Takes a task out, wherever it is. The caller changes its stamp right after.
    pub(crate) fn remove(&mut self, tasks: &Tasks, task: TaskRef, sort: Sort) {
        let this = &tasks[task];
        self.len -= 1;
        let levels = self.levels.as_mut().expect("the queue is not empty");
        let level = &mut levels[this.priority.index()];
        level.remove(tasks, task, sort);
        if level.is_empty() {
            self.occupied &= !(1 << this.priority.index());
        }
    }

    /// The first task, by priority and order, of an admission class that `admits` lets through.
    pub(crate) fn first(
        &mut self,
        tasks: &Tasks,
        sort_of: &impl Fn(&Task) -> Sort,
        admits: &mut impl FnMut(AdmissionClassRef) -> bool,
    ) -> Option<TaskRef> {
        let mut left = self.occupied;
        while let Some(index) = left.checked_ilog2() {
            let level = &mut self.levels.as_mut()?[index as usize];
            if let Some(task) = level.first(tasks, sort_of, admits) {
                return Some(task);
            }
            left &= !(1 << index);
        }
        None
    }

    /// Has the level that comes next fetched from memory.
    pub(crate) fn touch(&self) {
        if let Some(level) = self.top() {
            core::hint::black_box((level.mixed.len, level.free));
        }
    }

    /// Has the tasks whose turn comes soon fetched from memory, several at once: otherwise each would be
    /// waited for alone when its turn has come.
    pub(crate) fn look_ahead(&self, tasks: &Tasks) {
        const AHEAD: usize = 8;
        let Some(level) = self.top() else { return };
        let soon = &level.mixed.sorted;
        if soon.len().is_multiple_of(AHEAD) {
            for entry in soon.iter().take(AHEAD) {
                tasks.touch(entry.task);
            }
        }
    }

    /// The task that probably comes next. Only to have it fetched from memory: it may be stale.
    pub(crate) fn likely_next(&self) -> Option<TaskRef> {
        let level = self.top()?;
        let front = level.split.as_ref().and_then(|split| split.fronts.first());
        let mixed = || level.mixed.sorted.front().map(|entry| entry.task);
        front.map(|(_, task, _)| *task).or_else(mixed)
    }

    /// The priority of what comes next.
    pub(crate) fn highest_priority(&self) -> Option<Priority> {
        let index = self.occupied.checked_ilog2()?;
        Priority::all().nth(index as usize)
    }

    /// The highest level with tasks.
    fn top(&self) -> Option<&Level> {
        let index = self.occupied.checked_ilog2()?;
        self.levels.as_ref()?.get(index as usize)
    }

    /// The task that a thief takes, among the admission classes that it `may_take`.
    pub(crate) fn loot(
        &mut self,
        tasks: &Tasks,
        order: StealOrder,
        sort_of: &impl Fn(&Task) -> Sort,
        may_take: &mut impl FnMut(AdmissionClassRef) -> bool,
    ) -> Option<TaskRef> {
        let mut best: Option<TaskRef> = None;
        let levels = self.levels.as_mut()?;
        for level in &mut levels[..open_levels(order.protected_from)] {
            let Some(task) = level.loot(tasks, order, sort_of, may_take) else {
                continue;
            };
            if order.lowest_priority_first {
                return Some(task);
            }
            if best.is_none_or(|best| is_preferred(tasks, order.newest_first, task, best)) {
                best = Some(task);
            }
        }
        best
    }

    /// One bit for each class of which something may be stolen; perhaps some too many.
    pub(crate) fn free_classes(&self, protected_from: Option<Priority>) -> ClassBits {
        let open = (1 << open_levels(protected_from)) - 1;
        let free = self.levels_of(self.occupied & open).map(|level| level.free);
        free.fold(0, |all, classes| all | classes)
    }

    /// One bit for each class of which there is a task; perhaps some too many.
    pub(crate) fn any_classes(&self) -> ClassBits {
        let any = self.levels_of(self.occupied).map(|level| level.any);
        any.fold(0, |all, classes| all | classes)
    }

    /// The levels that these bits stand for.
    fn levels_of(&self, mut bits: u8) -> impl Iterator<Item = &Level> {
        let levels = self.levels.as_deref().map_or(&[][..], |levels| levels);
        core::iter::from_fn(move || {
            let index = bits.trailing_zeros() as usize;
            bits &= bits.wrapping_sub(1);
            levels.get(index)
        })
    }

    /// All tasks, in the order in which the agent would run them.
    pub(crate) fn in_order(&self, tasks: &Tasks) -> Vec<TaskRef> {
        let mut all = Vec::with_capacity(self.len as usize);
        for level in self.levels().rev() {
            let from = all.len();
            all.extend(level.strands().flat_map(|strand| strand.tasks(tasks)));
            all[from..].sort_by_key(|task| tasks[*task].key());
        }
        all
    }

    /// Whether this is a queue of the same tasks, as it should be: what it remembers besides them is
    /// enough.
    pub(crate) fn agrees(&self, tasks: &Tasks, fresh: &Self) -> bool {
        let covers = |(level, fresh): (&Level, &Level)| {
            fresh.free & !level.free == 0 && fresh.any & !level.any == 0
        };
        let keyed = |task: TaskRef| (tasks[task].key(), task);
        let fronts_are_first = |level: &Level| {
            let strands = level.split.iter().flat_map(|split| &split.strands);
            let firsts = strands.map(|(sort, sorted)| {
                let first = sorted.strand.tasks(tasks).map(keyed).min();
                (first == sorted.front)
                    .then_some(first)
                    .flatten()
                    .map(|(key, task)| (key, task, *sort))
            });
            let firsts: Option<BTreeSet<_>> = firsts.collect();
            let noted = level.split.as_ref().map(|split| &split.fronts);
            noted.is_none_or(|noted| firsts.as_ref() == Some(noted))
        };
        self.len == fresh.len
            && self.occupied == fresh.occupied
            && self.in_order(tasks) == fresh.in_order(tasks)
            && self.levels().zip(fresh.levels()).all(covers)
            && self.levels().all(fronts_are_first)
    }

    /// What the tasks cost that would come before this one; nothing if there are too many to look at. How the queue
    /// lies in memory makes no difference.
    pub(crate) fn cost_ahead(&self, tasks: &Tasks, this: &Task) -> Option<u128> {
        const LOOKS_MAX: u32 = 16;
        if self.len > LOOKS_MAX {
            return None;
        }
        let strands = self.levels().flat_map(Level::strands);
        let queued = strands.flat_map(|strand| strand.tasks(tasks));
        let others = queued.map(|task| &tasks[task]);
        let ahead = others.filter(|other| other.fleet_order() < this.fleet_order());
        Some(ahead.map(|other| u128::from(other.queue_cost().0)).sum())
    }

    /// How many tasks come before `task`, which must be on this queue.
    pub(crate) fn ahead_of(&self, tasks: &Tasks, task: TaskRef) -> usize {
        let (priority, key) = (tasks[task].priority, tasks[task].key());
        let above = self.levels().skip(priority.index() + 1);
        let above = above.flat_map(Level::strands);
        let beside = self.levels().skip(priority.index()).take(1);
        let beside = beside.flat_map(Level::strands);
        above.map(|strand| strand.len as usize).sum::<usize>()
            + beside
                .flat_map(|s| s.tasks(tasks))
                .filter(|t| tasks[*t].key() < key)
                .count()
    }
}

fn open_levels(protected_from: Option<Priority>) -> usize {
    protected_from.map_or(Priority::LEVELS, Priority::index)
}

/// Whether a thief prefers `task` to `other`.
fn is_preferred(tasks: &Tasks, newest_first: bool, task: TaskRef, other: TaskRef) -> bool {
    let (this, that) = (tasks[task].arrival, tasks[other].arrival);
    if newest_first {
        this > that
    } else {
        this < that
    }
}

impl Level {
    fn is_empty(&self) -> bool {
        self.mixed.len == 0 && self.split.is_none()
    }

    fn strands(&self) -> impl Iterator<Item = &Strand> {
        let split = self.split.iter().flat_map(|split| split.strands.values());
        core::iter::once(&self.mixed).chain(split.map(|sorted| &sorted.strand))
    }

    fn push(&mut self, task: TaskRef, this: &Task, sort: Sort) {
        self.free |= sort.free();
        self.any |= sort.any();
        match &mut self.split {
            None => self.mixed.push(this.key(), Entry::new(task, this)),
            Some(split) => split.push(task, this, sort),
        }
    }

    fn remove(&mut self, tasks: &Tasks, task: TaskRef, sort: Sort) {
        let Some(split) = &mut self.split else {
            self.mixed.remove(tasks, task);
            if self.mixed.len == 0 {
                (self.free, self.any) = (0, 0);
            }
            return;
        };
        if split.remove(tasks, task, sort) {
            (self.free, self.any) = split.classes();
            if split.strands.is_empty() {
                self.split = None;
            }
        }
    }

    fn first(
        &mut self,
        tasks: &Tasks,
        sort_of: &impl Fn(&Task) -> Sort,
        admits: &mut impl FnMut(AdmissionClassRef) -> bool,
    ) -> Option<TaskRef> {
        if self.split.is_none() {
            match self
                .mixed
                .find(tasks, false, &mut |task| admits(task.admission_class))
            {
                Search::Found(task) => return Some(task),
                Search::Nothing => return None,
                Search::PassedOverMany => self.split_up(tasks, sort_of),
            }
        }
        self.split
            .as_ref()?
            .first(&mut |sort| admits(sort.admission_class))
    }

    fn loot(
        &mut self,
        tasks: &Tasks,
        order: StealOrder,
        sort_of: &impl Fn(&Task) -> Sort,
        may_take: &mut impl FnMut(AdmissionClassRef) -> bool,
    ) -> Option<TaskRef> {
        if self.any == 0 {
            return None;
        }
        if self.split.is_none() {
            let mut takes = |task: &Task| !order.is_settled(task) && may_take(task.admission_class);
            match self.mixed.find(tasks, order.newest_first, &mut takes) {
                Search::Found(task) => return Some(task),
                Search::Nothing => return None,
                Search::PassedOverMany => self.split_up(tasks, sort_of),
            }
        }
        let split = self.split.as_mut()?;
        let takes_settled = order.moves_max == u32::MAX;
        let mut takes =
            |sort: Sort| (takes_settled || !sort.settled) && may_take(sort.admission_class);
        if order.newest_first {
            split.last(tasks, &mut takes)
        } else {
            split.first(&mut takes)
        }
    }

    fn split_up(&mut self, tasks: &Tasks, sort_of: &impl Fn(&Task) -> Sort) {
        let mixed = core::mem::take(&mut self.mixed);
        let mut split = Split::default();
        let mut all: Vec<TaskRef> = mixed.tasks(tasks).collect();
        all.sort_by_key(|task| tasks[*task].key());
        for task in all {
            split.push(task, &tasks[task], sort_of(&tasks[task]));
        }
        (self.free, self.any) = split.classes();
        self.split = Some(Box::new(split));
    }
}

impl Split {
    fn push(&mut self, task: TaskRef, this: &Task, sort: Sort) {
        let key = this.key();
        let strand = self.strands.entry(sort).or_default();
        let is_first = match strand.front {
            Some((first, front)) if key < first => {
                self.fronts.remove(&(first, front, sort));
                true
            }
            front => front.is_none(),
        };
        if is_first {
            strand.front = Some((key, task));
            self.fronts.insert((key, task, sort));
        }
        strand.strand.push(key, Entry::new(task, this));
    }

    /// Takes a task out; true if its strand is gone with it.
    fn remove(&mut self, tasks: &Tasks, task: TaskRef, sort: Sort) -> bool {
        let strand = self
            .strands
            .get_mut(&sort)
            .expect("a queued task is on its agent's queue");
        strand.strand.remove(tasks, task);
        let Some((key, first)) = strand.front.filter(|(_, first)| *first == task) else {
            return false;
        };
        self.fronts.remove(&(key, first, sort));
        strand.front = strand.strand.front_without(tasks, task);
        match strand.front {
            Some((key, first)) => {
                self.fronts.insert((key, first, sort));
                false
            }
            None => {
                self.strands.remove(&sort);
                true
            }
        }
    }

    /// The first task of all strands that `takes` agrees to.
    fn first(&self, takes: &mut impl FnMut(Sort) -> bool) -> Option<TaskRef> {
        let taken = self.fronts.iter().find(|(_, _, sort)| takes(*sort));
        taken.map(|(_, task, _)| *task)
    }

    /// The last task of all strands that `takes` agrees to.
    fn last(&mut self, tasks: &Tasks, takes: &mut impl FnMut(Sort) -> bool) -> Option<TaskRef> {
        let taken = self.strands.iter_mut().filter(|(sort, _)| takes(**sort));
        let lasts = taken.filter_map(|(_, strand)| strand.strand.back(tasks));
        lasts.max_by_key(|task| tasks[*task].key())
    }

    /// The classes of what is not settled, and of all.
    fn classes(&self) -> (ClassBits, ClassBits) {
        let sorts = self.strands.keys();
        sorts.fold((0, 0), |(free, any), sort| {
            (free | sort.free(), any | sort.any())
        })
    }
}

/// What came of looking for a task from one end of a strand.
enum Search {
    Found(TaskRef),
    Nothing,
    PassedOverMany,
}

impl Strand {
    fn push(&mut self, key: OrderKey, entry: Entry) {
        if self.last_key < key {
            self.last_key = key;
            self.sorted.push_back(entry);
        } else {
            self.strays.get_or_insert_default().insert((key, entry));
        }
        self.len += 1;
    }

    /// Takes an entry out. In the middle of the sorted part it stays behind: the task's stamp is about
    /// to change, which makes the entry stale.
    fn remove(&mut self, tasks: &Tasks, task: TaskRef) {
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
        const KEPT: usize = 8;
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
    fn find(
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
        // Both parts matter further in: their ends are merged.
        let mut merged: Vec<(OrderKey, Entry)> = Vec::new();
        let fresh = self.sorted.iter().filter(|entry| is_fresh(tasks, **entry));
        let keyed = |entry: &Entry| (tasks[entry.task].key(), *entry);
        let strays = self.strays().copied();
        // One more than may be passed over tells that there are more.
        const ENOUGH: usize = PASSED_OVER_MAX + 2;
        if from_back {
            merged.extend(fresh.rev().take(ENOUGH).map(keyed));
            merged.extend(strays.rev().take(ENOUGH));
            merged.sort_unstable_by_key(|(key, _)| core::cmp::Reverse(*key));
        } else {
            merged.extend(fresh.take(ENOUGH).map(keyed));
            merged.extend(strays.take(ENOUGH));
            merged.sort_unstable_by_key(|(key, _)| *key);
        }
        let merged = merged.into_iter().map(|(_, entry)| entry);
        search(tasks, merged, accepts)
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

    fn tasks(&self, tasks: &Tasks) -> impl Iterator<Item = TaskRef> {
        let sorted = self.sorted.iter().filter(|entry| is_fresh(tasks, **entry));
        let strays = self.strays().map(|(_, entry)| entry);
        sorted.chain(strays).map(|entry| entry.task)
    }
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

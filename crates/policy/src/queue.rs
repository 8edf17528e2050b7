//! The queue of one agent: five priorities, no scan.
//!
//! ```text
//! priority 5   a b c d
//! priority 4
//! priority 3   [lot 2: e f]  [lot 7: h]  [lot 2, settled: g]
//!    ...
//! ```
//!
//! A level starts as one *strand*, a sorted queue of whatever has this priority. The owner takes its
//! first task and a thief its last, and nearly always they may have it. When somebody had to pass over
//! many tasks that it may not have, the level is split into strands by [`Lot`](crate::lots::Lot):
//! tasks that are the same in everything that can keep them from being started. Whoever may not have
//! one of a lot may have none of it, so from then on only the ends of strands are looked at. Tasks
//! that may not be moved any more (*settled*) have strands of their own, which thieves pass over.
//!
//! A strand is a sorted double-ended queue, since most tasks arrive in order, beside a sorted set for
//! those that do not: retries, moved tasks, tasks put back. Leaving the middle of a strand only makes
//! its entry stale; entries are compared with the task's stamp when they come to an end.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use loxley_model::Priority;

use crate::refs::{LotRef, TaskRef};
use crate::tasks::{OrderKey, Task, Tasks};
use crate::tournament::ClassBits;

/// So many tasks are passed over before a level is split.
const PASSED_OVER_MAX: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Apart from the agent, so that a queue is lent out cheaply; none before the first task.
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
    /// One bit for each class of task that may be stolen from here; too many while not split.
    loot: ClassBits,
}

const _: () = assert!(size_of::<Level>() == 128);

/// A level in strands of one lot each.
#[derive(Debug, Default)]
struct Split {
    /// What is looked at again and again, apart from the rest and close together.
    fronts: Vec<Front>,
    /// The strands, in the same order as their fronts.
    strands: Vec<Strand>,
}

/// The first task of a strand.
#[derive(Clone, Copy, Debug)]
struct Front {
    key: OrderKey,
    task: TaskRef,
    sort: Sort,
}

/// What the entries of a strand have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sort {
    lot: LotRef,
    settled: bool,
    /// Which bit stands for the class of the lot.
    class_bit: u8,
}

impl Sort {
    fn of(task: &Task) -> Self {
        Self {
            lot: task.lot,
            settled: task.settled,
            class_bit: task.class_bit,
        }
    }

    fn loot(self) -> ClassBits {
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

    /// Puts a task in its place. `class_bit` is the bit of its lot's class.
    pub(crate) fn push(&mut self, tasks: &mut Tasks, task: TaskRef, settled: bool, class_bit: u8) {
        let this = &mut tasks[task];
        this.settled = settled;
        this.class_bit = class_bit;
        self.len += 1;
        self.occupied |= 1 << this.priority.index();
        let levels = self.levels.get_or_insert_default();
        levels[this.priority.index()].push(task, this);
    }

    /// Takes a task out, wherever it is. The caller changes its stamp right after.
    pub(crate) fn remove(&mut self, tasks: &Tasks, task: TaskRef) {
        let this = &tasks[task];
        self.len -= 1;
        let levels = self.levels.as_mut().expect("the queue is not empty");
        let level = &mut levels[this.priority.index()];
        level.remove(tasks, task);
        if level.is_empty() {
            self.occupied &= !(1 << this.priority.index());
        }
    }

    /// The first task, by priority and order, of a lot that `admits` lets through.
    pub(crate) fn first(
        &mut self,
        tasks: &Tasks,
        admits: &mut impl FnMut(LotRef) -> bool,
    ) -> Option<TaskRef> {
        let mut left = self.occupied;
        while let Some(index) = left.checked_ilog2() {
            let level = &mut self.levels.as_mut()?[index as usize];
            if let Some(task) = level.first(tasks, admits) {
                return Some(task);
            }
            left &= !(1 << index);
        }
        None
    }

    /// Has the level that comes next fetched from memory.
    pub(crate) fn touch(&self) {
        if let Some(level) = self.top() {
            core::hint::black_box((level.mixed.len, level.loot));
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
        front.map(|front| front.task).or_else(mixed)
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

    /// The task that a thief takes, among the lots that it `may_take`.
    pub(crate) fn loot(
        &mut self,
        tasks: &Tasks,
        order: StealOrder,
        may_take: &mut impl FnMut(LotRef) -> bool,
    ) -> Option<TaskRef> {
        let mut best: Option<TaskRef> = None;
        let levels = self.levels.as_mut()?;
        for level in &mut levels[..open_levels(order.protected_from)] {
            let Some(task) = level.loot(tasks, order.newest_first, may_take) else {
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
    pub(crate) fn loot_classes(&self, protected_from: Option<Priority>) -> ClassBits {
        let open = self.levels().take(open_levels(protected_from));
        open.fold(0, |classes, level| classes | level.loot)
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

/// What a level of a queue remembers besides its tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct LevelShape {
    /// If it is split, its strands in their order: the lot, and whether its tasks are settled. The
    /// order decides who is asked first, and whoever is asked may be noted as turned away.
    strands: Option<Vec<(u32, bool)>>,
    loot: ClassBits,
}

impl Queue {
    /// What its levels remember, the lowest priority first; nothing when the queue is empty.
    pub(crate) fn shape(&self) -> Vec<LevelShape> {
        if self.is_empty() {
            return Vec::new();
        }
        let shape = |level: &Level| LevelShape {
            strands: level.split.as_ref().map(|split| {
                let sorts = split.fronts.iter().map(|front| front.sort);
                sorts.map(Sort::name).collect()
            }),
            loot: level.loot,
        };
        self.levels().map(shape).collect()
    }

    /// Makes a queue, filled anew, remember what another one with the same tasks did.
    pub(crate) fn reshape(&mut self, tasks: &Tasks, shape: &[LevelShape]) {
        let levels = self.levels.iter_mut().flat_map(|levels| levels.iter_mut());
        for (level, shape) in levels.zip(shape) {
            if level.is_empty() {
                continue;
            }
            if let Some(order) = &shape.strands {
                level.split_up(tasks);
                level.split.as_mut().expect("just split").arrange(order);
            }
            level.loot = shape.loot;
        }
    }
}

impl Sort {
    fn name(self) -> (u32, bool) {
        (self.lot.index() as u32, self.settled)
    }
}

impl Split {
    /// Puts the strands in this order.
    fn arrange(&mut self, order: &[(u32, bool)]) {
        for (to, name) in order.iter().enumerate().take(self.fronts.len()) {
            let rest = &self.fronts[to..];
            if let Some(from) = rest.iter().position(|front| front.sort.name() == *name) {
                self.fronts.swap(to, to + from);
                self.strands.swap(to, to + from);
            }
        }
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
        core::iter::once(&self.mixed).chain(self.split.iter().flat_map(|split| &split.strands))
    }

    fn push(&mut self, task: TaskRef, this: &Task) {
        self.loot |= Sort::of(this).loot();
        match &mut self.split {
            None => self.mixed.push(this.key(), Entry::new(task, this)),
            Some(split) => split.push(task, this),
        }
    }

    fn remove(&mut self, tasks: &Tasks, task: TaskRef) {
        let Some(split) = &mut self.split else {
            self.mixed.remove(tasks, task);
            if self.mixed.len == 0 {
                self.loot = 0;
            }
            return;
        };
        if split.remove(tasks, task) {
            self.loot = split.loot_classes();
            if split.strands.is_empty() {
                self.split = None;
            }
        }
    }

    fn first(&mut self, tasks: &Tasks, admits: &mut impl FnMut(LotRef) -> bool) -> Option<TaskRef> {
        if self.split.is_none() {
            match self.mixed.find(tasks, false, &mut |task| admits(task.lot)) {
                Search::Found(task) => return Some(task),
                Search::Nothing => return None,
                Search::PassedOverMany => self.split_up(tasks),
            }
        }
        self.split.as_ref()?.first(admits)
    }

    fn loot(
        &mut self,
        tasks: &Tasks,
        newest_first: bool,
        may_take: &mut impl FnMut(LotRef) -> bool,
    ) -> Option<TaskRef> {
        if self.loot == 0 {
            return None;
        }
        if self.split.is_none() {
            let mut takes = |task: &Task| !task.settled && may_take(task.lot);
            match self.mixed.find(tasks, newest_first, &mut takes) {
                Search::Found(task) => return Some(task),
                Search::Nothing => return None,
                Search::PassedOverMany => self.split_up(tasks),
            }
        }
        self.split.as_mut()?.loot(tasks, newest_first, may_take)
    }

    fn split_up(&mut self, tasks: &Tasks) {
        let mixed = core::mem::take(&mut self.mixed);
        let mut split = Split::default();
        // In the order of the tasks, not in that of the two parts: strands must not depend on how tasks
        // came to be where they are, which a snapshot does not tell.
        let mut all: Vec<TaskRef> = mixed.tasks(tasks).collect();
        all.sort_by_key(|task| tasks[*task].key());
        for task in all {
            split.push(task, &tasks[task]);
        }
        self.loot = split.loot_classes();
        self.split = Some(Box::new(split));
    }
}

impl Split {
    fn find(&self, sort: Sort) -> Option<usize> {
        self.fronts.iter().position(|front| front.sort == sort)
    }

    fn push(&mut self, task: TaskRef, this: &Task) {
        let (key, sort) = (this.key(), Sort::of(this));
        let at = self.find(sort).unwrap_or_else(|| {
            self.fronts.push(Front { key, task, sort });
            self.strands.push(Strand::default());
            self.strands.len() - 1
        });
        self.strands[at].push(key, Entry::new(task, this));
        if key < self.fronts[at].key {
            self.fronts[at].key = key;
            self.fronts[at].task = task;
        }
    }

    /// Takes a task out; true if its strand is gone with it.
    fn remove(&mut self, tasks: &Tasks, task: TaskRef) -> bool {
        let at = self
            .find(Sort::of(&tasks[task]))
            .expect("a queued task is on its agent's queue");
        self.strands[at].remove(tasks, task);
        if self.strands[at].len == 0 {
            self.fronts.swap_remove(at);
            self.strands.swap_remove(at);
            return true;
        }
        if self.fronts[at].task == task {
            let (key, task) = self.strands[at]
                .front(tasks)
                .expect("the strand is not empty");
            self.fronts[at].key = key;
            self.fronts[at].task = task;
        }
        false
    }

    fn loot(
        &mut self,
        tasks: &Tasks,
        newest_first: bool,
        may_take: &mut impl FnMut(LotRef) -> bool,
    ) -> Option<TaskRef> {
        let mut best: Option<TaskRef> = None;
        for (front, strand) in self.fronts.iter().zip(&mut self.strands) {
            if front.sort.settled || !may_take(front.sort.lot) {
                continue;
            }
            let end = if newest_first {
                strand.back(tasks)
            } else {
                Some(front.task)
            };
            let Some(task) = end else { continue };
            if best.is_none_or(|best| is_preferred(tasks, newest_first, task, best)) {
                best = Some(task);
            }
        }
        best
    }

    fn first(&self, admits: &mut impl FnMut(LotRef) -> bool) -> Option<TaskRef> {
        let mut best: Option<&Front> = None;
        for front in &self.fronts {
            // The question whether a lot is admitted costs more than the comparison.
            if best.is_none_or(|best| front.key < best.key) && admits(front.sort.lot) {
                best = Some(front);
            }
        }
        best.map(|front| front.task)
    }

    /// The classes of which something may be stolen.
    fn loot_classes(&self) -> ClassBits {
        self.fronts
            .iter()
            .fold(0, |classes, front| classes | front.sort.loot())
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
        if from_back {
            merged.extend(fresh.rev().take(PASSED_OVER_MAX + 1).map(keyed));
            merged.extend(strays.rev().take(PASSED_OVER_MAX + 1));
            merged.sort_unstable_by_key(|(key, _)| core::cmp::Reverse(*key));
        } else {
            merged.extend(fresh.take(PASSED_OVER_MAX + 1).map(keyed));
            merged.extend(strays.take(PASSED_OVER_MAX + 1));
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

    fn front(&mut self, tasks: &Tasks) -> Option<(OrderKey, TaskRef)> {
        self.trim_front(tasks);
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

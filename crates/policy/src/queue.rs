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

use alloc::boxed::Box;
use alloc::vec::Vec;

use loxley_model::Priority;

use crate::refs::{AdmissionClassRef, TaskRef};
use crate::strand::{Search, Strand, Strands};
use crate::tasks::{Task, Tasks};
use crate::tournament::ClassBits;

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
type Split = Strands<Sort>;

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
            core::hint::black_box((level.mixed.len(), level.free));
        }
    }

    /// Has the tasks whose turn comes soon fetched from memory, several at once: otherwise each would be
    /// waited for alone when its turn has come.
    pub(crate) fn look_ahead(&self, tasks: &Tasks) {
        const AHEAD: usize = 8;
        let Some(level) = self.top() else { return };
        let soon = level.mixed.likely();
        if soon.len().is_multiple_of(AHEAD) {
            for task in soon.take(AHEAD) {
                tasks.touch(task);
            }
        }
    }

    /// The task that probably comes next. Only to have it fetched from memory: it may be stale.
    pub(crate) fn likely_next(&self) -> Option<TaskRef> {
        let level = self.top()?;
        let front = level.split.as_ref().and_then(|split| split.fronts().next());
        let mixed = || level.mixed.likely().next();
        front.map(|(task, _)| task).or_else(mixed)
    }

    /// The priority of what comes next.
    pub(crate) fn highest_priority(&self) -> Option<Priority> {
        let index = self.occupied.checked_ilog2()?;
        Priority::all().nth(index as usize)
    }

    /// The index of the highest priority; that of the lowest if it is empty.
    pub(crate) fn top_level(&self) -> usize {
        self.occupied.checked_ilog2().unwrap_or(0) as usize
    }

    /// Whether the one task of this priority comes before all others.
    pub(crate) fn is_alone_on_top(&self, priority: Priority) -> bool {
        self.highest_priority() == Some(priority) && self.top().is_some_and(Level::has_one)
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
        let fronts_agree = |level: &Level| {
            let split = level.split.as_ref();
            split.is_none_or(|split| split.fronts_agree(tasks))
        };
        self.len == fresh.len
            && self.occupied == fresh.occupied
            && self.in_order(tasks) == fresh.in_order(tasks)
            && self.levels().zip(fresh.levels()).all(covers)
            && self.levels().all(fronts_agree)
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
        above.map(|strand| strand.len() as usize).sum::<usize>()
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
    fn has_one(&self) -> bool {
        match &self.split {
            None => self.mixed.len() == 1,
            Some(split) => split.has_one(),
        }
    }

    fn is_empty(&self) -> bool {
        self.mixed.len() == 0 && self.split.is_none()
    }

    fn strands(&self) -> impl Iterator<Item = &Strand> {
        let split = self.split.iter().flat_map(|split| split.values());
        core::iter::once(&self.mixed).chain(split)
    }

    fn push(&mut self, task: TaskRef, this: &Task, sort: Sort) {
        self.free |= sort.free();
        self.any |= sort.any();
        match &mut self.split {
            None => self.mixed.push(task, this),
            Some(split) => split.push(task, this, sort),
        }
    }

    fn remove(&mut self, tasks: &Tasks, task: TaskRef, sort: Sort) {
        let Some(split) = &mut self.split else {
            self.mixed.remove(tasks, task);
            if self.mixed.len() == 0 {
                (self.free, self.any) = (0, 0);
            }
            return;
        };
        if split.remove(tasks, task, sort) {
            (self.free, self.any) = classes(split);
            if split.is_empty() {
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
        first_of(self.split.as_ref()?, &mut |sort| {
            admits(sort.admission_class)
        })
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
            first_of(split, &mut takes)
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
        (self.free, self.any) = classes(&split);
        self.split = Some(Box::new(split));
    }
}

/// The classes of what is not settled, and of all.
fn classes(split: &Split) -> (ClassBits, ClassBits) {
    split.keys().fold((0, 0), |(free, any), sort| {
        (free | sort.free(), any | sort.any())
    })
}

/// The first task of all strands that `takes` agrees to.
fn first_of(split: &Split, takes: &mut impl FnMut(Sort) -> bool) -> Option<TaskRef> {
    let taken = split.fronts().find(|(_, sort)| takes(*sort));
    taken.map(|(task, _)| task)
}

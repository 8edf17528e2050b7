//! The queue of one agent: five priorities, no scan.
//!
//! ```text
//! priority 5   [lot 2: a b c]  [lot 7: d]
//! priority 4
//! priority 3   [lot 2: e f]  [lot 2, settled: g]
//!    ...
//! ```
//!
//! Within a priority, tasks lie in strands, one for each [`Lot`](crate::lots::Lot): tasks that are the
//! same in everything that can keep them from being started. Whoever may not have one of a strand may
//! have none of it, so both the owner and a thief look only at the ends of strands. Tasks that may not
//! be moved any more (*settled*) have strands of their own, which thieves pass over.
//!
//! A strand is a sorted double-ended queue, since most tasks arrive in order, beside a sorted set for
//! those that do not: retries, moved tasks, tasks put back. Leaving the middle of a strand only makes
//! its entry stale; entries are compared with the task's stamp when they come to an end.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use loxley_model::Priority;

use crate::refs::{LotRef, TaskRef};
use crate::tasks::{OrderKey, Task, Tasks};

#[derive(Debug, Default)]
pub(crate) struct Queue {
    levels: [Vec<Strand>; Priority::LEVELS],
    len: u32,
}

#[derive(Debug)]
struct Strand {
    lot: LotRef,
    settled: bool,
    len: u32,
    sorted: VecDeque<Entry>,
    strays: BTreeSet<(OrderKey, Entry)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    task: TaskRef,
    stamp: u32,
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

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts a task in its place.
    pub(crate) fn push(&mut self, tasks: &mut Tasks, task: TaskRef, settled: bool) {
        tasks[task].settled = settled;
        let Task { priority, lot, .. } = &tasks[task];
        let level = &mut self.levels[priority.index()];
        let strand = match level
            .iter_mut()
            .position(|s| s.lot == *lot && s.settled == settled)
        {
            Some(at) => &mut level[at],
            None => {
                level.push(Strand::new(*lot, settled));
                level.last_mut().expect("just pushed")
            }
        };
        strand.push(tasks, task);
        self.len += 1;
    }

    /// Takes a task out, wherever it is. The caller changes its stamp right after.
    pub(crate) fn remove(&mut self, tasks: &Tasks, task: TaskRef) {
        let Task {
            priority,
            lot,
            settled,
            ..
        } = &tasks[task];
        let level = &mut self.levels[priority.index()];
        let at = level
            .iter()
            .position(|strand| strand.lot == *lot && strand.settled == *settled)
            .expect("a queued task is on its agent's queue");
        level[at].remove(tasks, task);
        if level[at].len == 0 {
            level.swap_remove(at);
        }
        self.len -= 1;
    }

    /// The first task, by priority and order, of a lot that `admits` lets through.
    pub(crate) fn first(
        &mut self,
        tasks: &Tasks,
        admits: &mut impl FnMut(LotRef) -> bool,
    ) -> Option<TaskRef> {
        if self.len == 0 {
            return None;
        }
        self.levels.iter_mut().rev().find_map(|level| {
            let open = level
                .iter_mut()
                .filter_map(|strand| admits(strand.lot).then(|| strand.front(tasks)).flatten());
            open.min_by_key(|task| tasks[*task].key)
        })
    }

    /// The task that a thief takes, among the lots that it `may_take`.
    pub(crate) fn loot(
        &mut self,
        tasks: &Tasks,
        order: StealOrder,
        may_take: &mut impl FnMut(LotRef) -> bool,
    ) -> Option<TaskRef> {
        let open_levels = order
            .protected_from
            .map_or(Priority::LEVELS, Priority::index);
        let mut best: Option<TaskRef> = None;
        for level in &mut self.levels[..open_levels] {
            for strand in level.iter_mut().filter(|strand| !strand.settled) {
                if !may_take(strand.lot) {
                    continue;
                }
                let end = if order.newest_first {
                    strand.back(tasks)
                } else {
                    strand.front(tasks)
                };
                let Some(task) = end else { continue };
                let better = best.is_none_or(|best| {
                    let (this, that) = (tasks[task].key, tasks[best].key);
                    if order.newest_first {
                        this.arrival > that.arrival
                    } else {
                        this.arrival < that.arrival
                    }
                });
                if better {
                    best = Some(task);
                }
            }
            if order.lowest_priority_first && best.is_some() {
                return best;
            }
        }
        best
    }

    /// The lots of which something may be stolen.
    pub(crate) fn lootable_lots(
        &self,
        protected_from: Option<Priority>,
    ) -> impl Iterator<Item = LotRef> {
        let open_levels = protected_from.map_or(Priority::LEVELS, Priority::index);
        let strands = self.levels[..open_levels].iter().flatten();
        strands
            .filter(|strand| !strand.settled)
            .map(|strand| strand.lot)
    }

    /// All tasks, in the order in which the agent would run them.
    pub(crate) fn in_order(&self, tasks: &Tasks) -> Vec<TaskRef> {
        let mut all = Vec::with_capacity(self.len as usize);
        for level in self.levels.iter().rev() {
            let from = all.len();
            all.extend(level.iter().flat_map(|strand| strand.tasks(tasks)));
            all[from..].sort_by_key(|task| tasks[*task].key);
        }
        all
    }

    /// How many tasks come before `task`, which must be on this queue.
    pub(crate) fn ahead_of(&self, tasks: &Tasks, task: TaskRef) -> usize {
        let Task { priority, key, .. } = &tasks[task];
        let above = self.levels[priority.index() + 1..].iter().flatten();
        let beside = self.levels[priority.index()].iter();
        above.map(|strand| strand.len as usize).sum::<usize>()
            + beside
                .flat_map(|s| s.tasks(tasks))
                .filter(|t| tasks[*t].key < *key)
                .count()
    }
}

impl Strand {
    fn new(lot: LotRef, settled: bool) -> Self {
        Self {
            lot,
            settled,
            len: 0,
            sorted: VecDeque::new(),
            strays: BTreeSet::new(),
        }
    }

    fn push(&mut self, tasks: &Tasks, task: TaskRef) {
        let Task { key, stamp, .. } = &tasks[task];
        let entry = Entry {
            task,
            stamp: *stamp,
        };
        self.trim_back(tasks);
        let in_order = self
            .sorted
            .back()
            .is_none_or(|last| tasks[last.task].key < *key);
        if in_order {
            self.sorted.push_back(entry);
        } else {
            self.strays.insert((*key, entry));
        }
        self.len += 1;
    }

    /// Takes `task` out. In the middle of the sorted part its entry stays behind: the task's stamp is
    /// about to change, which makes the entry stale.
    fn remove(&mut self, tasks: &Tasks, task: TaskRef) {
        let Task { key, stamp, .. } = &tasks[task];
        let entry = Entry {
            task,
            stamp: *stamp,
        };
        if self.strays.is_empty() || !self.strays.remove(&(*key, entry)) {
            if self.sorted.front() == Some(&entry) {
                self.sorted.pop_front();
            } else if self.sorted.back() == Some(&entry) {
                self.sorted.pop_back();
            }
        }
        self.len -= 1;
        if self.len == 0 {
            self.sorted.clear();
        } else if self.sorted.len() > 2 * self.len as usize + 16 {
            self.sorted.retain(|e| *e != entry && is_fresh(tasks, *e));
        }
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

    fn front(&mut self, tasks: &Tasks) -> Option<TaskRef> {
        self.trim_front(tasks);
        let sorted = self
            .sorted
            .front()
            .map(|entry| (tasks[entry.task].key, entry.task));
        let stray = self.strays.first().map(|(key, entry)| (*key, entry.task));
        sorted.into_iter().chain(stray).min().map(|(_, task)| task)
    }

    fn back(&mut self, tasks: &Tasks) -> Option<TaskRef> {
        self.trim_back(tasks);
        let sorted = self
            .sorted
            .back()
            .map(|entry| (tasks[entry.task].key, entry.task));
        let stray = self.strays.last().map(|(key, entry)| (*key, entry.task));
        sorted.into_iter().chain(stray).max().map(|(_, task)| task)
    }

    fn tasks(&self, tasks: &Tasks) -> impl Iterator<Item = TaskRef> {
        let sorted = self.sorted.iter().filter(|entry| is_fresh(tasks, **entry));
        sorted
            .chain(self.strays.iter().map(|(_, entry)| entry))
            .map(|entry| entry.task)
    }
}

fn is_fresh(tasks: &Tasks, entry: Entry) -> bool {
    tasks.stamp(entry.task) == Some(entry.stamp)
}

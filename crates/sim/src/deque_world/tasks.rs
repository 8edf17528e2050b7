//! The tasks of a deque world: 32 bytes each, held where they wait.
//!
//! A deque holds the tasks themselves and not their numbers, so an owner or a thief reads memory in
//! a row, and a finished task leaves nothing behind. Only what some kinds of load need besides is
//! kept in tables: of a graph by task number, of a family by a place that is used again.
//!
//! A task's `path` is the moment it could have started with endless workers: with its own work
//! added, the largest is the critical path, also for tasks that nobody knew of beforehand.
//!
//! A task that may have children has a seed. Whatever it draws depends on that seed alone and not
//! on when or where it runs, so every policy faces the same tree.

use loxley_balance::Rng;

use crate::time::Nanos;
use crate::workload::{Workload, index_u32};

/// One task that waits or runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    /// How long it takes at speed 1.
    pub(super) work: Nanos,
    /// When it could be started.
    pub(super) ready: Nanos,
    /// When it could be started with endless workers.
    pub(super) path: Nanos,
    /// Its number.
    pub(super) id: u32,
    /// Where the table of families has what it needs to make children; [`CHILDLESS`] if it makes none.
    pub(super) family: u32,
}

/// No place in the table of families.
pub(super) const CHILDLESS: u32 = u32::MAX;

const _: () = assert!(size_of::<Task>() == 32, "the memory budget is 32 bytes");

/// What must be known of a task apart from where it waits.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// How many tasks there have been.
    pub(super) count: u32,
    /// Graphs: how many predecessors are not finished.
    pub(super) missing: Vec<u32>,
    /// Graphs: when each could start with endless workers.
    pub(super) paths: Vec<Nanos>,
    /// Spawning and trees: the source of chance of each task that has yet to make its children.
    seeds: Vec<u64>,
    /// Trees: generations still to come below each of them.
    depths: Vec<u8>,
    /// Places in the two tables above that nobody has any more.
    free: Vec<u32>,
}

impl Tables {
    pub(super) fn next_id(&mut self) -> u32 {
        self.count = self.count.checked_add(1).expect("fewer than 2^32 tasks");
        self.count - 1
    }

    pub(super) fn of_graph(workload: &Workload, top_speed: f64) -> Self {
        let mut paths: Vec<Nanos> = workload.tasks().iter().map(|task| task.release).collect();
        for &task in workload.topological_order() {
            let work = workload.tasks()[task as usize].work;
            let end = paths[task as usize] + scaled(work, top_speed);
            for &successor in workload.successors(task) {
                let path = &mut paths[successor as usize];
                *path = (*path).max(end);
            }
        }
        let count = index_u32(workload.len());
        Self {
            count,
            missing: (0..count)
                .map(|task| index_u32(workload.predecessors(task).len()))
                .collect(),
            paths,
            ..Self::default()
        }
    }

    /// A place for a task that will make children: its source of chance, and in a tree the generations below it.
    pub(super) fn found_family(&mut self, seed: u64, depth: Option<u8>) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.seeds.push(0);
            index_u32(self.seeds.len() - 1)
        });
        self.seeds[place as usize] = seed;
        if let Some(depth) = depth {
            self.depths.resize(self.seeds.len(), 0);
            self.depths[place as usize] = depth;
        }
        place
    }

    /// The generator that belongs to one task alone, and in a tree the generations below it; its place is free again.
    pub(super) fn take_family(&mut self, place: u32) -> (Rng, Option<u8>) {
        self.free.push(place);
        let depth = self.depths.get(place as usize).copied();
        (Rng::new(self.seeds[place as usize]), depth)
    }
}

/// How long `work` takes at `speed`, never rounded down to nothing.
#[inline]
pub(super) fn scaled(work: Nanos, speed: f64) -> Nanos {
    if speed == 1.0 {
        work
    } else {
        libm::ceil(work as f64 / speed) as Nanos
    }
}

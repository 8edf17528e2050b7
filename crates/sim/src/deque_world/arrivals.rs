//! Tasks from outside: where they come from, and which worker gets them.

use loxley_balance::Rng;

use super::setup::{Load, Placement};
use super::tasks::{CHILDLESS, Tables, Task, scaled};
use super::{DequeWorld, Event, NEVER};
use crate::observer::{Happening, Observer};
use crate::time::Nanos;
use crate::workload::index_u32;

impl<O: Observer> DequeWorld<'_, O> {
    pub(super) fn load(&mut self, root: &Rng) {
        let setup = self.setup;
        match &setup.load {
            Load::Stream { count, .. } => {
                self.unfinished = u64::from(*count);
                self.stream.left = *count;
                self.reserve_deques(*count as usize);
                self.plan_arrival();
            }
            Load::Pieces { total, piece } => {
                let count = total.div_ceil((*piece).max(1));
                self.unfinished = count;
                self.reserve_deques(count as usize);
                for index in 0..count {
                    let work = (*piece).min(total - index * piece);
                    self.add(work, 0);
                }
            }
            Load::Graph(workload) => {
                self.tables = Tables::of_graph(workload, self.top_speed);
                self.unfinished = workload.len() as u64;
                for (task, record) in (0..).zip(workload.tasks()) {
                    self.note_bounds(record.work, self.tables.paths[task as usize]);
                    if self.tables.missing[task as usize] == 0 {
                        self.release(task, record.release);
                    }
                }
            }
            Load::Tree { depth, work, .. } => {
                self.unfinished = 1;
                let mut rng = root.child("tree");
                let drawn = work.sample(&mut rng);
                self.add_root(drawn, *depth);
            }
        }
    }

    /// A block for each worker is known beforehand, so its deque need not grow by doubling.
    fn reserve_deques(&mut self, count: usize) {
        let share = count.div_ceil(self.workers.len());
        match (&self.setup.placement, &self.setup.load) {
            (Placement::On(worker), Load::Pieces { .. })
            | (
                Placement::On(worker),
                Load::Stream {
                    arrivals: crate::Arrivals::AtOnce,
                    ..
                },
            ) => self.workers[*worker as usize].deque.reserve_exact(count),
            (Placement::Shared, _) => self.shared.reserve_exact(count),
            (
                Placement::RoundRobin | Placement::Blocks,
                Load::Pieces { .. }
                | Load::Stream {
                    arrivals: crate::Arrivals::AtOnce,
                    ..
                },
            ) => {
                for worker in &mut self.workers {
                    worker.deque.reserve_exact(share);
                }
            }
            _ => {}
        }
    }

    /// A task of a graph that waits for nothing but its release.
    fn release(&mut self, task: u32, moment: Nanos) {
        if moment > self.now {
            self.events.push(moment, Event::Release(task));
        } else {
            self.place_graph_task(task);
        }
    }

    pub(super) fn place_graph_task(&mut self, task: u32) {
        let task = self.graph_task(task);
        self.place(task);
    }

    /// A task of a graph that is ready now.
    pub(super) fn graph_task(&self, task: u32) -> Task {
        let Load::Graph(workload) = &self.setup.load else {
            unreachable!("only graphs release tasks")
        };
        Task {
            work: workload.tasks()[task as usize].work,
            ready: self.now,
            path: self.tables.paths[task as usize],
            id: task,
            family: CHILDLESS,
        }
    }

    fn plan_arrival(&mut self) {
        let Load::Stream { arrivals, .. } = &self.setup.load else {
            return;
        };
        while self.stream.left > 0 {
            let moment = arrivals.next(self.stream.last, &mut self.stream.moments);
            self.stream.last = moment;
            if moment > self.now {
                self.events.push(moment, Event::Arrival);
                return;
            }
            self.take_from_stream();
        }
    }

    pub(super) fn arrive(&mut self) {
        self.take_from_stream();
        self.plan_arrival();
    }

    fn take_from_stream(&mut self) {
        let Load::Stream { work, .. } = &self.setup.load else {
            return;
        };
        self.stream.left -= 1;
        let work = work.sample(&mut self.stream.work);
        self.add(work, self.now);
    }

    /// A new task that is ready now.
    fn add(&mut self, work: Nanos, path: Nanos) {
        let family = if self.setup.spawning.is_some() {
            let seed = self.stream.work.next_u64();
            self.tables.found_family(seed, None)
        } else {
            CHILDLESS
        };
        self.add_with(work, path, family);
    }

    /// The first task of a tree.
    fn add_root(&mut self, work: Nanos, depth: u8) {
        let seed = self.stream.work.next_u64();
        let family = self.tables.found_family(seed, Some(depth));
        self.add_with(work, 0, family);
    }

    fn add_with(&mut self, work: Nanos, path: Nanos, family: u32) {
        let id = self.tables.next_id();
        self.note_bounds(work, path);
        self.place(Task {
            work,
            ready: self.now,
            path,
            id,
            family,
        });
    }

    pub(super) fn note_bounds(&mut self, work: Nanos, path: Nanos) {
        self.statistics.total_work += work;
        let end = path + scaled(work, self.top_speed);
        self.statistics.critical_path = self.statistics.critical_path.max(end);
    }

    /// Puts a ready task where the placement says.
    fn place(&mut self, task: Task) {
        if self.setup.placement == Placement::Shared {
            self.shared.push_back(task);
            self.queued += 1;
            self.wake_one();
            return;
        }
        let worker = self.choose_worker();
        self.observer.see(
            self.now,
            &Happening::Queued {
                worker,
                task: u64::from(task.id),
            },
        );
        self.push(worker, task);
        let hand = &self.workers[worker as usize];
        if hand.asleep {
            self.wake(worker);
        } else if hand.look_at != NEVER && hand.look_at > self.now {
            self.plan_look(worker, self.now);
        }
    }

    fn choose_worker(&mut self) -> u32 {
        let count = index_u32(self.workers.len());
        match &self.setup.placement {
            Placement::On(worker) => *worker,
            Placement::Random => self.placer.rng.below(u64::from(count)) as u32,
            Placement::LeastOf(choices) => self.least_of(*choices),
            Placement::Counts(counts) => {
                let counted = self.placer.counted(counts);
                counted.unwrap_or_else(|| self.placer.turn(count))
            }
            Placement::Blocks => {
                let share = self.unfinished.div_ceil(u64::from(count)) as u32;
                self.placer.block(count, share)
            }
            Placement::RoundRobin | Placement::Shared => self.placer.turn(count),
        }
    }

    fn least_of(&mut self, choices: u32) -> u32 {
        let count = self.workers.len() as u64;
        let mut best = (usize::MAX, 0);
        for _ in 0..choices.max(1) {
            let worker = self.placer.rng.below(count) as u32;
            let load = self.workers[worker as usize].load();
            if load < best.0 {
                best = (load, worker);
            }
        }
        best.1
    }
}

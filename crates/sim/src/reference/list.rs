//! List scheduling (Graham 1966): whenever a processor is free, it takes the ready task that comes first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::reference::Schedule;
use crate::time::Nanos;
use crate::workload::Workload;

/// Which ready task comes first.
#[derive(Debug, Clone, Copy)]
pub enum Order<'a> {
    /// The one with the largest of these numbers, one for each task.
    Largest(&'a [u64]),
    /// The one with the smallest of these numbers.
    Smallest(&'a [u64]),
    /// The one that has been ready for longest.
    FirstReady,
}

/// Schedules `workload` on processors of these speeds. Of several free processors the fastest is taken.
#[must_use]
pub fn schedule(workload: &Workload, speeds: &[f64], order: Order<'_>) -> Schedule {
    let mut run = Run::new(workload, speeds, order);
    while let Some(now) = run.next_moment() {
        run.take_in(now);
        run.start(now);
    }
    run.result
}

struct Run<'a> {
    workload: &'a Workload,
    speeds: &'a [f64],
    order: Order<'a>,
    result: Schedule,
    /// How many tasks each task still waits for.
    missing: Vec<usize>,
    /// Tasks that wait for nothing but their release.
    released: BinaryHeap<Reverse<(Nanos, u32)>>,
    ready: BinaryHeap<(u64, Reverse<u64>, u32)>,
    became_ready: u64,
    /// Free processors by their rank, the fastest first.
    free: BinaryHeap<Reverse<usize>>,
    ranked: Vec<usize>,
    running: BinaryHeap<Reverse<(Nanos, u32, usize)>>,
}

impl<'a> Run<'a> {
    fn new(workload: &'a Workload, speeds: &'a [f64], order: Order<'a>) -> Self {
        let count = workload.len();
        let waits = |task: u32| workload.predecessors(task).len();
        let missing: Vec<usize> = (0..count as u32).map(waits).collect();
        let first = (0..count as u32).filter(|&task| missing[task as usize] == 0);
        let released = first.map(|task| Reverse((workload.tasks()[task as usize].release, task)));
        let mut ranked: Vec<usize> = (0..speeds.len()).collect();
        ranked.sort_by(|one, other| speeds[*other].total_cmp(&speeds[*one]));
        Self {
            released: released.collect(),
            result: Schedule {
                processors: vec![0; count],
                times: vec![(0, 0); count],
            },
            missing,
            ready: BinaryHeap::new(),
            became_ready: 0,
            free: (0..speeds.len()).map(Reverse).collect(),
            ranked,
            running: BinaryHeap::new(),
            workload,
            speeds,
            order,
        }
    }

    /// When something ends or is released next.
    fn next_moment(&self) -> Option<Nanos> {
        let end = self.running.peek().map(|Reverse((end, ..))| *end);
        let release = self.released.peek().map(|Reverse((release, _))| *release);
        end.into_iter().chain(release).min()
    }

    /// Notes what has ended and what is released by now.
    fn take_in(&mut self, now: Nanos) {
        while let Some(&Reverse((end, task, rank))) = self.running.peek()
            && end <= now
        {
            self.running.pop();
            self.free.push(Reverse(rank));
            for &successor in self.workload.successors(task) {
                let missing = &mut self.missing[successor as usize];
                *missing -= 1;
                if *missing == 0 {
                    let release = self.workload.tasks()[successor as usize].release;
                    self.released.push(Reverse((release.max(now), successor)));
                }
            }
        }
        while let Some(&Reverse((release, task))) = self.released.peek()
            && release <= now
        {
            self.released.pop();
            self.became_ready += 1;
            let key = match self.order {
                Order::Largest(keys) => keys[task as usize],
                Order::Smallest(keys) => u64::MAX - keys[task as usize],
                Order::FirstReady => 0,
            };
            let ready_since = match self.order {
                Order::FirstReady => self.became_ready,
                _ => u64::from(task),
            };
            self.ready.push((key, Reverse(ready_since), task));
        }
    }

    fn start(&mut self, now: Nanos) {
        while !self.ready.is_empty()
            && let Some(Reverse(rank)) = self.free.pop()
        {
            let (_, _, task) = self.ready.pop().expect("it is not empty");
            let processor = self.ranked[rank];
            let end = now + self.workload.duration(task, self.speeds[processor]);
            self.result.processors[task as usize] = processor as u32;
            self.result.times[task as usize] = (now, end);
            self.running.push(Reverse((end, task, rank)));
        }
    }
}

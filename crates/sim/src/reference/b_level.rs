//! List scheduling by bottom level (critical path first): whenever a processor is free, it takes the
//! ready task with the longest chain of work behind it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::reference::Schedule;
use crate::time::Nanos;
use crate::workload::Workload;

/// Schedules `workload` on so many equal processors.
#[must_use]
pub fn schedule(workload: &Workload, processors: u32) -> Schedule {
    let levels = workload.bottom_levels();
    let count = workload.len();
    let mut result = Schedule {
        processors: vec![0; count],
        times: vec![(0, 0); count],
    };
    let mut missing: Vec<usize> = (0..count as u32)
        .map(|task| workload.predecessors(task).len())
        .collect();
    let mut ready: BinaryHeap<(Nanos, Reverse<u32>)> = BinaryHeap::new();
    let mut released: BinaryHeap<Reverse<(Nanos, u32)>> = (0..count as u32)
        .filter(|&task| missing[task as usize] == 0)
        .map(|task| Reverse((workload.tasks()[task as usize].release, task)))
        .collect();
    let mut free: BinaryHeap<Reverse<u32>> = (0..processors.max(1)).map(Reverse).collect();
    let mut running: BinaryHeap<Reverse<(Nanos, u32)>> = BinaryHeap::new();
    let mut now = 0;
    loop {
        while let Some(&Reverse((release, task))) = released.peek()
            && release <= now
        {
            released.pop();
            ready.push((levels[task as usize], Reverse(task)));
        }
        while !ready.is_empty()
            && let Some(Reverse(processor)) = free.pop()
        {
            let (_, Reverse(task)) = ready.pop().expect("it is not empty");
            let end = now + workload.tasks()[task as usize].work;
            result.processors[task as usize] = processor;
            result.times[task as usize] = (now, end);
            running.push(Reverse((end, task)));
        }
        let next_end = running.peek().map(|Reverse((end, _))| *end);
        let next_release = released.peek().map(|Reverse((release, _))| *release);
        let Some(next) = next_end.into_iter().chain(next_release).min() else {
            return result;
        };
        now = next;
        while let Some(&Reverse((end, task))) = running.peek()
            && end <= now
        {
            running.pop();
            free.push(Reverse(result.processors[task as usize]));
            for &successor in workload.successors(task) {
                missing[successor as usize] -= 1;
                if missing[successor as usize] == 0 {
                    let release = workload.tasks()[successor as usize].release;
                    released.push(Reverse((release.max(now), successor)));
                }
            }
        }
    }
}

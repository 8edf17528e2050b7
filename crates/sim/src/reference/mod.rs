//! Reference schedulers: what the literature does with a task graph whose costs are known.
//!
//! They see the whole graph beforehand and pay nothing for a decision, so they are a yardstick and
//! not a rival: one file each, to be read with the paper.

pub mod b_level;
pub mod heft;

use crate::time::Nanos;
use crate::workload::Workload;

/// Where and when each task runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// For each task, on which processor.
    pub processors: Vec<u32>,
    /// For each task, from when to when.
    pub times: Vec<(Nanos, Nanos)>,
}

impl Schedule {
    /// When the last task ends.
    #[must_use]
    pub fn makespan(&self) -> Nanos {
        self.times.iter().map(|(_, end)| *end).max().unwrap_or(0)
    }

    /// What is wrong with it, if anything: a task before what it waits for, or two at once.
    #[must_use]
    pub fn problem(&self, workload: &Workload) -> Option<String> {
        for task in 0..workload.len() as u32 {
            let (start, _) = self.times[task as usize];
            for &before in workload.predecessors(task) {
                if self.times[before as usize].1 > start {
                    return Some(format!("task {task} starts before task {before} ends"));
                }
            }
        }
        let mut order: Vec<usize> = (0..self.times.len()).collect();
        order.sort_by_key(|&task| (self.processors[task], self.times[task]));
        order.windows(2).find_map(|pair| {
            let [one, other] = [pair[0], pair[1]];
            let overlap = self.processors[one] == self.processors[other]
                && self.times[one].1 > self.times[other].0;
            overlap.then(|| format!("tasks {one} and {other} overlap"))
        })
    }
}

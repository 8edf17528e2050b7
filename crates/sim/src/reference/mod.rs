//! Reference schedulers: what the literature does with a task graph whose costs are known.
//!
//! They see the whole graph beforehand and pay nothing for a decision, so they are a yardstick and
//! not a rival: one file each, to be read with the paper.

pub mod b_level;
pub mod heft;
pub mod list;

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

    /// What becomes of this plan when tasks take as long as they take: the same tasks on the same
    /// processors in the same order, each as soon as it may.
    #[must_use]
    pub fn executed(&self, workload: &Workload, speeds: &[f64]) -> Self {
        let mut order: Vec<u32> = (0..workload.len() as u32).collect();
        let mut position = vec![0; workload.len()];
        for (index, &task) in workload.topological_order().iter().enumerate() {
            position[task as usize] = index;
        }
        // Planned times never contradict the edges, so this order serves both; tasks of no work keep the order
        // of the graph.
        order.sort_by_key(|&task| (self.times[task as usize], position[task as usize]));
        let mut free: Vec<Nanos> = vec![0; speeds.len()];
        let mut result = self.clone();
        for task in order {
            let processor = self.processors[task as usize] as usize;
            let before = workload.predecessors(task).iter();
            let ready = before.map(|&before| result.times[before as usize].1).max();
            let release = workload.tasks()[task as usize].release;
            let start = ready.unwrap_or(0).max(release).max(free[processor]);
            let end = start + workload.duration(task, speeds[processor]);
            result.times[task as usize] = (start, end);
            free[processor] = end;
        }
        result
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

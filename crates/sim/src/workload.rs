//! A workload: tasks with their work, when they are released and what they wait for.
//!
//! Every reader produces one and both worlds and every reference scheduler consume one. Edges are
//! stored flat (all successors of task 0, then of task 1, ...), so a graph of a million tasks is two
//! vectors. What must stay true: edges point at existing tasks and make no cycle;
//! [`WorkloadBuilder::build`] refuses anything else and names the cycle.

use std::collections::HashMap;

use thiserror::Error;

use crate::time::Nanos;

/// One task of a [`Workload`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRecord {
    /// The name in the file it came from.
    pub name: Box<str>,
    /// How long it takes on a processor of speed 1.
    pub work: Nanos,
    /// When it is submitted.
    pub release: Nanos,
    /// How many processors it asks for at once (SWF); 1 elsewhere.
    pub processors: u32,
    /// Memory it needs, in bytes; 0 when the file does not say.
    pub memory: u64,
    /// Priority 1 to 5.
    pub priority: u8,
    /// Skills that whoever runs it should have.
    pub skills: Vec<String>,
}

impl TaskRecord {
    /// A task of normal priority that anyone may run from the beginning.
    #[must_use]
    pub fn new(name: impl Into<Box<str>>, work: Nanos) -> Self {
        Self {
            name: name.into(),
            work,
            release: 0,
            processors: 1,
            memory: 0,
            priority: 3,
            skills: Vec::new(),
        }
    }
}

/// Tasks and the edges between them. Task `i` is `tasks()[i]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    tasks: Vec<TaskRecord>,
    successors: Edges,
    predecessors: Edges,
    /// A topological order: every task after everything it waits for.
    order: Vec<u32>,
}

/// Why tasks and edges do not make a workload.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WorkloadError {
    /// There is nothing to do.
    #[error("there are no tasks")]
    Empty,
    /// An edge names a task that is not there.
    #[error("task `{task}` waits for `{missing}`, which is not in the file")]
    UnknownTask {
        /// The task that waits.
        task: String,
        /// What it waits for.
        missing: String,
    },
    /// Two tasks have one name, so an edge would be ambiguous.
    #[error("two tasks are called `{0}`")]
    DuplicateTask(String),
    /// The tasks wait for each other in a circle.
    #[error("tasks wait for each other in a circle: {}", .0.join(" -> "))]
    Cycle(Vec<String>),
}

impl Workload {
    /// The tasks, in the order of the file.
    #[must_use]
    pub fn tasks(&self) -> &[TaskRecord] {
        &self.tasks
    }

    /// How many tasks there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether there is nothing to do (never true for a built workload).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The tasks that wait for `task`.
    #[must_use]
    pub fn successors(&self, task: u32) -> &[u32] {
        self.successors.of(task)
    }

    /// The tasks that `task` waits for.
    #[must_use]
    pub fn predecessors(&self, task: u32) -> &[u32] {
        self.predecessors.of(task)
    }

    /// How many edges there are.
    #[must_use]
    pub fn edge_count(&self) -> usize {
        self.successors.targets.len()
    }

    /// The tasks so that each comes after everything it waits for.
    #[must_use]
    pub fn topological_order(&self) -> &[u32] {
        &self.order
    }

    /// The work of each task.
    #[must_use]
    pub fn works(&self) -> Vec<Nanos> {
        self.tasks.iter().map(|task| task.work).collect()
    }

    /// How long a task takes at this speed.
    #[must_use]
    pub fn duration(&self, task: u32, speed: f64) -> Nanos {
        libm::ceil(self.tasks[task as usize].work as f64 / speed) as Nanos
    }

    /// All work together.
    #[must_use]
    pub fn total_work(&self) -> Nanos {
        self.tasks.iter().map(|task| task.work).sum()
    }

    /// For each task the earliest moment it could start with endless processors of speed 1.
    #[must_use]
    pub fn earliest_starts(&self) -> Vec<Nanos> {
        let mut starts: Vec<Nanos> = self.tasks.iter().map(|task| task.release).collect();
        for &task in &self.order {
            let end = starts[task as usize] + self.tasks[task as usize].work;
            for &successor in self.successors(task) {
                let start = &mut starts[successor as usize];
                *start = (*start).max(end);
            }
        }
        starts
    }

    /// For each task the longest chain of work from its start to the end of the graph (its
    /// *bottom level*): the most urgent task is the one with the largest.
    #[must_use]
    pub fn bottom_levels(&self) -> Vec<Nanos> {
        self.bottom_levels_of(&self.works())
    }

    /// The bottom levels that would follow if tasks took as long as `costs` say.
    #[must_use]
    pub fn bottom_levels_of(&self, costs: &[Nanos]) -> Vec<Nanos> {
        let mut levels: Vec<Nanos> = vec![0; self.tasks.len()];
        for &task in self.order.iter().rev() {
            let below = self
                .successors(task)
                .iter()
                .map(|&successor| levels[successor as usize])
                .max()
                .unwrap_or(0);
            levels[task as usize] = below + costs[task as usize];
        }
        levels
    }

    /// The longest chain of work, counted from time zero (so a late release lengthens it).
    #[must_use]
    pub fn critical_path(&self) -> Nanos {
        self.earliest_starts()
            .iter()
            .zip(&self.tasks)
            .map(|(start, task)| start + task.work)
            .max()
            .unwrap_or(0)
    }

    /// The same workload with every task of `n` processors replaced by `n` tasks of one: what a
    /// world of single-processor workers can run. Edges are kept between all pieces.
    #[must_use]
    pub fn split_processors(&self) -> Self {
        if self.tasks.iter().all(|task| task.processors <= 1) {
            return self.clone();
        }
        let mut builder = WorkloadBuilder::default();
        let mut pieces: Vec<(u32, u32)> = Vec::with_capacity(self.tasks.len());
        for task in &self.tasks {
            let count = task.processors.max(1);
            pieces.push((builder.len(), count));
            for piece in 0..count {
                let mut record = task.clone();
                record.processors = 1;
                if count > 1 {
                    record.name = format!("{}/{piece}", task.name).into();
                }
                builder.add(record);
            }
        }
        for (task, &(first, count)) in pieces.iter().enumerate() {
            for &before in self.predecessors.of(index_u32(task)) {
                let (before_first, before_count) = pieces[before as usize];
                for piece in first..first + count {
                    for before_piece in before_first..before_first + before_count {
                        builder.edge(before_piece, piece);
                    }
                }
            }
        }
        builder
            .build()
            .expect("pieces of an acyclic workload are acyclic")
    }
}

/// Collects tasks and edges and checks them.
#[derive(Debug, Clone, Default)]
pub struct WorkloadBuilder {
    tasks: Vec<TaskRecord>,
    edges: Vec<(u32, u32)>,
    named_edges: Vec<(String, u32)>,
}

impl WorkloadBuilder {
    /// How many tasks there are so far.
    #[must_use]
    pub fn len(&self) -> u32 {
        index_u32(self.tasks.len())
    }

    /// Whether there are none yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Adds a task and returns its index.
    pub fn add(&mut self, task: TaskRecord) -> u32 {
        self.tasks.push(task);
        self.len() - 1
    }

    /// `after` waits for `before`.
    pub fn edge(&mut self, before: u32, after: u32) {
        self.edges.push((before, after));
    }

    /// `after` waits for the task called `before`, which may be added later.
    pub fn named_edge(&mut self, before: impl Into<String>, after: u32) {
        self.named_edges.push((before.into(), after));
    }

    /// Checks and indexes the edges.
    pub fn build(mut self) -> Result<Workload, WorkloadError> {
        if self.tasks.is_empty() {
            return Err(WorkloadError::Empty);
        }
        self.resolve_names()?;
        self.edges.sort_unstable();
        self.edges.dedup();
        if let Some(&(before, after)) = self
            .edges
            .iter()
            .find(|(before, after)| *before >= self.len() || *after >= self.len())
        {
            return Err(WorkloadError::UnknownTask {
                task: after.to_string(),
                missing: before.to_string(),
            });
        }
        let count = self.tasks.len();
        let successors = Edges::new(count, self.edges.iter().copied());
        let predecessors = Edges::new(
            count,
            self.edges.iter().map(|&(before, after)| (after, before)),
        );
        let order = topological_order(&successors, &predecessors)
            .map_err(|circle| WorkloadError::Cycle(self.names_of(&circle)))?;
        Ok(Workload {
            tasks: self.tasks,
            successors,
            predecessors,
            order,
        })
    }

    fn resolve_names(&mut self) -> Result<(), WorkloadError> {
        if self.named_edges.is_empty() {
            return Ok(());
        }
        let mut index = HashMap::with_capacity(self.tasks.len());
        for (task, record) in self.tasks.iter().enumerate() {
            if index.insert(&*record.name, index_u32(task)).is_some() {
                return Err(WorkloadError::DuplicateTask(record.name.to_string()));
            }
        }
        for (before, after) in &self.named_edges {
            let Some(&before) = index.get(before.as_str()) else {
                return Err(WorkloadError::UnknownTask {
                    task: self.tasks[*after as usize].name.to_string(),
                    missing: before.clone(),
                });
            };
            self.edges.push((before, *after));
        }
        Ok(())
    }

    fn names_of(&self, tasks: &[u32]) -> Vec<String> {
        tasks
            .iter()
            .map(|&task| self.tasks[task as usize].name.to_string())
            .collect()
    }
}

/// Lists of task numbers, one per task, in two flat vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edges {
    starts: Vec<u32>,
    targets: Vec<u32>,
}

impl Edges {
    fn new(count: usize, edges: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        let mut starts = vec![0_u32; count + 1];
        for (from, _) in edges.clone() {
            starts[from as usize + 1] += 1;
        }
        for task in 0..count {
            starts[task + 1] += starts[task];
        }
        let mut next = starts.clone();
        let mut targets = vec![0_u32; starts[count] as usize];
        for (from, to) in edges {
            targets[next[from as usize] as usize] = to;
            next[from as usize] += 1;
        }
        Self { starts, targets }
    }

    fn of(&self, task: u32) -> &[u32] {
        let task = task as usize;
        &self.targets[self.starts[task] as usize..self.starts[task + 1] as usize]
    }
}

/// Kahn's algorithm; the error is one circle, first task repeated at its end.
fn topological_order(successors: &Edges, predecessors: &Edges) -> Result<Vec<u32>, Vec<u32>> {
    let count = successors.starts.len() - 1;
    let mut missing: Vec<u32> = (0..count)
        .map(|task| index_u32(predecessors.of(index_u32(task)).len()))
        .collect();
    let mut order: Vec<u32> = (0..index_u32(count))
        .filter(|&task| missing[task as usize] == 0)
        .collect();
    let mut next = 0;
    while next < order.len() {
        for &successor in successors.of(order[next]) {
            missing[successor as usize] -= 1;
            if missing[successor as usize] == 0 {
                order.push(successor);
            }
        }
        next += 1;
    }
    if order.len() == count {
        Ok(order)
    } else {
        Err(find_circle(&missing, predecessors))
    }
}

/// Walks backwards among the tasks that never became ready until one repeats.
fn find_circle(missing: &[u32], predecessors: &Edges) -> Vec<u32> {
    let stuck = |task: &u32| missing[*task as usize] > 0;
    let mut walk: Vec<u32> = (0..index_u32(missing.len()))
        .filter(stuck)
        .take(1)
        .collect();
    loop {
        let last = walk[walk.len() - 1];
        let before = *predecessors
            .of(last)
            .iter()
            .find(|task| stuck(task))
            .expect("a stuck task waits for a stuck task");
        let seen = walk.iter().position(|&task| task == before);
        walk.push(before);
        if let Some(start) = seen {
            walk.drain(..start);
            walk.reverse();
            return walk;
        }
    }
}

/// Task numbers are 32 bits: four billion tasks, half the memory.
pub(crate) fn index_u32(index: usize) -> u32 {
    u32::try_from(index).expect("a workload has fewer than 2^32 tasks and edges")
}

#[cfg(test)]
mod tests {
    use super::{TaskRecord, WorkloadBuilder, WorkloadError};

    fn diamond() -> WorkloadBuilder {
        let mut builder = WorkloadBuilder::default();
        for (name, work) in [("a", 1), ("b", 5), ("c", 2), ("d", 1)] {
            builder.add(TaskRecord::new(name, work));
        }
        for (before, after) in [("a", 1), ("a", 2), ("b", 3), ("c", 3)] {
            builder.named_edge(before, after);
        }
        builder
    }

    #[test]
    fn levels_and_paths_of_a_diamond() {
        let workload = diamond().build().unwrap();
        assert_eq!(workload.total_work(), 9);
        assert_eq!(workload.critical_path(), 7);
        assert_eq!(workload.bottom_levels(), [7, 6, 3, 1]);
        assert_eq!(workload.earliest_starts(), [0, 1, 1, 6]);
        assert_eq!(workload.successors(0), [1, 2]);
        assert_eq!(workload.predecessors(3), [1, 2]);
    }

    #[test]
    fn a_circle_is_named() {
        let mut builder = diamond();
        builder.edge(3, 1);
        let error = builder.build().unwrap_err();
        assert_eq!(
            error.to_string(),
            "tasks wait for each other in a circle: b -> d -> b"
        );
    }

    #[test]
    fn an_unknown_predecessor_is_named() {
        let mut builder = diamond();
        builder.named_edge("z", 0);
        let expected = WorkloadError::UnknownTask {
            task: "a".to_owned(),
            missing: "z".to_owned(),
        };
        assert_eq!(builder.build().unwrap_err(), expected);
    }

    #[test]
    fn a_wide_task_is_split_and_keeps_its_edges() {
        let mut builder = WorkloadBuilder::default();
        let mut wide = TaskRecord::new("wide", 3);
        wide.processors = 3;
        builder.add(wide);
        builder.add(TaskRecord::new("after", 1));
        builder.edge(0, 1);
        let split = builder.build().unwrap().split_processors();
        assert_eq!(split.len(), 4);
        assert_eq!(split.predecessors(3), [0, 1, 2]);
    }
}

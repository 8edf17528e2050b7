//! Task graphs out of a seed: the shapes that people have, in sizes that nobody chose.

use loxley_balance::Rng;

use crate::distribution::Distribution;
use crate::workload::{TaskRecord, Workload, WorkloadBuilder};

/// A family of workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Layers of several widths; each task waits for a few of the layer before, some for earlier ones.
    Layered,
    /// Wide parts, one after the other, each begun and ended by one task.
    ForkJoin,
    /// One thing after the other, or beside it, nested.
    SeriesParallel,
    /// Chains of unequal lengths beside each other.
    Chains,
    /// One task that many wait for, or many that one waits for.
    Stars,
    /// Tasks that wait for nothing.
    Independent,
}

impl Shape {
    /// All shapes in which tasks wait for each other.
    pub const GRAPHS: [Self; 5] = [
        Self::Layered,
        Self::ForkJoin,
        Self::SeriesParallel,
        Self::Chains,
        Self::Stars,
    ];

    /// Its name, for tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Layered => "layered",
            Self::ForkJoin => "fork-join",
            Self::SeriesParallel => "series-parallel",
            Self::Chains => "chains",
            Self::Stars => "stars",
            Self::Independent => "independent",
        }
    }

    /// A workload of this shape with about `size` tasks. The seed picks its widths, its edges and how the work
    /// of its tasks is spread.
    #[must_use]
    pub fn workload(self, size: u32, seed: u64) -> Workload {
        let root = Rng::new(seed).child(self.name());
        let mut sketch = Sketch {
            builder: WorkloadBuilder::default(),
            work: spread_of_work(&mut root.child("spread")),
            works: root.child("work"),
            edges: root.child("edges"),
        };
        sketch.draw(self, size.max(4));
        let workload = sketch.builder.build();
        workload.expect("edges only point from earlier tasks to later ones")
    }
}

/// How the work of tasks is spread: even, exponential, or with a tail; all with a mean of about a second.
fn spread_of_work(rng: &mut Rng) -> Distribution {
    match rng.below(4) {
        0 => Distribution::Uniform(0.8, 1.2),
        1 => Distribution::Uniform(0.1, 1.9),
        2 => Distribution::Exponential(1.0),
        _ => Distribution::LogNormal {
            median: 0.6,
            sigma: 1.0,
        },
    }
}

struct Sketch {
    builder: WorkloadBuilder,
    work: Distribution,
    works: Rng,
    edges: Rng,
}

impl Sketch {
    fn draw(&mut self, shape: Shape, size: u32) {
        match shape {
            Shape::Layered => self.layered(size),
            Shape::ForkJoin => self.fork_join(size),
            Shape::SeriesParallel => {
                self.series_parallel(size);
            }
            Shape::Chains => self.chains(size),
            Shape::Stars => self.stars(size),
            Shape::Independent => {
                for _ in 0..size {
                    self.task();
                }
            }
        }
    }

    fn task(&mut self) -> u32 {
        let work = self.work.sample(&mut self.works).max(1);
        let name = format!("t{}", self.builder.len());
        self.builder.add(TaskRecord::new(name, work))
    }

    fn after(&mut self, before: u32) -> u32 {
        let task = self.task();
        self.builder.edge(before, task);
        task
    }

    /// A number between two, both included.
    fn between(&mut self, least: u32, most: u32) -> u32 {
        least + self.edges.below(u64::from(most - least) + 1) as u32
    }

    fn layered(&mut self, size: u32) {
        let width = self.between(2, (size / 3).clamp(2, 60));
        let mut layer: Vec<u32> = Vec::new();
        while self.builder.len() < size {
            let count = self.between(1, width);
            let next: Vec<u32> = (0..count).map(|_| self.task()).collect();
            for &task in &next {
                let mut before: Vec<u32> = (0..self.between(1, 4))
                    .filter(|_| !layer.is_empty())
                    .map(|_| layer[self.edges.index(layer.len())])
                    .collect();
                if !layer.is_empty() && self.edges.chance(0.1) {
                    before.push(self.edges.below(u64::from(layer[0]) + 1) as u32);
                }
                before.sort_unstable();
                before.dedup();
                for before in before {
                    self.builder.edge(before, task);
                }
            }
            layer = next;
        }
    }

    fn fork_join(&mut self, size: u32) {
        let mut last = self.task();
        while self.builder.len() < size {
            let width = self.between(2, (size / 3).clamp(2, 80));
            let branches: Vec<u32> = (0..width).map(|_| self.after(last)).collect();
            last = self.task();
            for branch in branches {
                self.builder.edge(branch, last);
            }
        }
    }

    /// About `size` tasks between a first and a last one, which are returned.
    fn series_parallel(&mut self, size: u32) -> (u32, u32) {
        if size <= 3 {
            let first = self.task();
            let last = (1..size).fold(first, |last, _| self.after(last));
            return (first, last);
        }
        if self.edges.chance(0.4) {
            let share = self.between(1, size - 1);
            let (first, middle) = self.series_parallel(share);
            let (next, last) = self.series_parallel(size - share);
            self.builder.edge(middle, next);
            return (first, last);
        }
        let first = self.task();
        let branches = self.between(2, (size - 2).min(6));
        let ends: Vec<u32> = (0..branches)
            .map(|_| {
                let (begin, end) = self.series_parallel(((size - 2) / branches).max(1));
                self.builder.edge(first, begin);
                end
            })
            .collect();
        let last = self.task();
        for end in ends {
            self.builder.edge(end, last);
        }
        (first, last)
    }

    fn chains(&mut self, size: u32) {
        let longest = self.between(3, (size / 4).max(3));
        while self.builder.len() < size {
            let length = self.between(1, longest);
            let first = self.task();
            (1..length).fold(first, |last, _| self.after(last));
        }
    }

    fn stars(&mut self, size: u32) {
        while self.builder.len() < size {
            let leaves = self.between(1, (size / 3).max(2));
            if self.edges.chance(0.5) {
                let hub = self.task();
                for _ in 0..leaves {
                    self.after(hub);
                }
            } else {
                let leaves: Vec<u32> = (0..leaves).map(|_| self.task()).collect();
                let hub = self.task();
                for leaf in leaves {
                    self.builder.edge(leaf, hub);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Shape;

    #[test]
    fn a_seed_gives_one_graph_and_another_seed_another() {
        for shape in Shape::GRAPHS.into_iter().chain([Shape::Independent]) {
            let one = shape.workload(60, 7);
            assert_eq!(one, shape.workload(60, 7), "{}", shape.name());
            assert_ne!(one, shape.workload(60, 8), "{}", shape.name());
            assert!((20..=200).contains(&one.len()), "{}", shape.name());
        }
    }

    #[test]
    fn shapes_are_what_they_are_called() {
        for seed in 0..50 {
            let fork_join = Shape::ForkJoin.workload(40, seed);
            let ends = (0..fork_join.len() as u32).filter(|&t| fork_join.successors(t).is_empty());
            assert_eq!(ends.count(), 1);
            let chains = Shape::Chains.workload(40, seed);
            for task in 0..chains.len() as u32 {
                assert!(chains.predecessors(task).len() <= 1);
                assert!(chains.successors(task).len() <= 1);
            }
            assert_eq!(Shape::Independent.workload(40, seed).edge_count(), 0);
            let series = Shape::SeriesParallel.workload(40, seed);
            let begins = (0..series.len() as u32).filter(|&t| series.predecessors(t).is_empty());
            assert_eq!(begins.count(), 1);
            assert!(Shape::Layered.workload(40, seed).edge_count() > 0);
            assert!(Shape::Stars.workload(40, seed).edge_count() > 0);
        }
    }
}

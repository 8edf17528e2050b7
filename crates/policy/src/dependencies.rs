//! Who waits for whom.
//!
//! Edges lie in one arena, as linked lists from each task to those that wait for it. A submission is
//! checked as a whole before anything is changed: unknown ids and circles are found with Kahn's
//! algorithm, which also gives the order for the length of the longest chain behind each task.

use alloc::vec;
use alloc::vec::Vec;

use loxley_model::TaskId;

use crate::refs::TaskRef;
use crate::tasks::NO_EDGE;

/// The edges from tasks to their dependents.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Edges {
    arena: Vec<Edge>,
    free: u32,
    count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Edge {
    dependent: Dependent,
    next: u32,
}

/// A task that waits. It may be over when what it waits for is, and another one in its place, so its
/// number of arrival (the lower half) is kept beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Dependent {
    pub(crate) task: TaskRef,
    pub(crate) arrival: u32,
}

impl Edges {
    /// Adds an edge in front of the list that starts at `first`; returns the new start.
    pub(crate) fn add(&mut self, first: u32, dependent: Dependent) -> u32 {
        let edge = Edge {
            dependent,
            next: first,
        };
        self.count += 1;
        if self.count > self.arena.len() {
            self.arena.push(edge);
            return u32::try_from(self.arena.len() - 1).expect("fewer than 2^32 edges");
        }
        let at = self.free;
        self.free = core::mem::replace(&mut self.arena[at as usize], edge).next;
        at
    }

    /// Empties the list that starts at `first`, in the order in which it was filled.
    pub(crate) fn take(&mut self, mut first: u32) -> Vec<Dependent> {
        let mut dependents = Vec::new();
        while first != NO_EDGE {
            let Edge { dependent, next } = self.arena[first as usize];
            dependents.push(dependent);
            self.arena[first as usize].next = core::mem::replace(&mut self.free, first);
            self.count -= 1;
            first = next;
        }
        if self.count == 0 {
            *self = Self::default();
        }
        dependents.reverse();
        dependents
    }
}

impl Edges {
    /// Whether a list that starts at `first` comes to an end.
    pub(crate) fn is_list(&self, first: u32) -> bool {
        let mut at = first;
        for _ in 0..=self.arena.len() {
            match self.arena.get(at as usize) {
                Some(edge) => at = edge.next,
                None => return at == NO_EDGE,
            }
        }
        false
    }

    /// The dependents in the list that starts at `first`.
    pub(crate) fn iter(&self, first: u32) -> impl Iterator<Item = Dependent> {
        let next = |at: u32| (at != NO_EDGE).then(|| self.arena[at as usize]);
        core::iter::successors(next(first), move |edge| next(edge.next)).map(|edge| edge.dependent)
    }
}

/// The dependencies inside one submission, by position.
#[derive(Debug)]
pub(crate) struct Graph {
    /// For each task, where its dependents start in `dependents`; one more at the end.
    starts: Vec<u32>,
    dependents: Vec<u32>,
    indegree: Vec<u32>,
}

impl Graph {
    /// From pairs (task, dependency), both positions below `len`.
    pub(crate) fn new(len: usize, pairs: &[(u32, u32)]) -> Self {
        let mut starts = vec![0_u32; len + 1];
        let mut indegree = vec![0_u32; len];
        for (task, dependency) in pairs {
            starts[*dependency as usize + 1] += 1;
            indegree[*task as usize] += 1;
        }
        for index in 0..len {
            starts[index + 1] += starts[index];
        }
        let mut cursor = starts.clone();
        let mut dependents = vec![0; pairs.len()];
        for (task, dependency) in pairs {
            let at = &mut cursor[*dependency as usize];
            dependents[*at as usize] = *task;
            *at += 1;
        }
        Self {
            starts,
            dependents,
            indegree,
        }
    }

    pub(crate) fn dependents(&self, task: usize) -> &[u32] {
        &self.dependents[self.starts[task] as usize..self.starts[task + 1] as usize]
    }

    /// An order in which every task comes after its dependencies, or the positions of a circle.
    pub(crate) fn order(&self) -> Result<Vec<u32>, Vec<u32>> {
        let mut left = self.indegree.clone();
        let mut order: Vec<u32> = (0..)
            .zip(&left)
            .filter(|(_, n)| **n == 0)
            .map(|(i, _)| i)
            .collect();
        let mut done = 0;
        while let Some(task) = order.get(done).copied() {
            done += 1;
            for dependent in self.dependents(task as usize) {
                let left = &mut left[*dependent as usize];
                *left -= 1;
                if *left == 0 {
                    order.push(*dependent);
                }
            }
        }
        if order.len() == left.len() {
            Ok(order)
        } else {
            Err(self.circle(&left))
        }
    }

    /// A circle among the tasks that still wait for something.
    fn circle(&self, left: &[u32]) -> Vec<u32> {
        // Each task that is left waits for another one that is left: following these leads around.
        let mut waits_for = vec![u32::MAX; left.len()];
        for (task, _) in left.iter().enumerate().filter(|(_, n)| **n > 0) {
            for dependent in self.dependents(task) {
                if left[*dependent as usize] > 0 {
                    waits_for[*dependent as usize] = task as u32;
                }
            }
        }
        let start = left.iter().position(|n| *n > 0).expect("somebody is left");
        let mut seen = vec![false; left.len()];
        let mut at = start as u32;
        while !seen[at as usize] {
            seen[at as usize] = true;
            at = waits_for[at as usize];
        }
        let mut circle = vec![at];
        let mut next = waits_for[at as usize];
        while next != at {
            circle.push(next);
            next = waits_for[next as usize];
        }
        circle
    }

    /// For each task the cost of the longest chain that begins with it.
    pub(crate) fn longest_chains(&self, order: &[u32], cost: impl Fn(usize) -> u64) -> Vec<u64> {
        let mut longest = vec![0_u64; order.len()];
        for task in order.iter().rev().map(|task| *task as usize) {
            let after = self
                .dependents(task)
                .iter()
                .map(|d| longest[*d as usize])
                .max();
            longest[task] = cost(task).saturating_add(after.unwrap_or(0));
        }
        longest
    }
}

/// Positions of a circle as ids.
pub(crate) fn name_circle(circle: &[u32], id: impl Fn(usize) -> TaskId) -> Vec<TaskId> {
    circle
        .iter()
        .map(|position| id(*position as usize))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_named_and_only_the_circle() {
        // 0 <- 1 <- 2 <- 3 <- 1, and 4 waits for 3.
        let graph = Graph::new(5, &[(1, 0), (2, 1), (3, 2), (1, 3), (4, 3)]);
        let mut circle = graph.order().expect_err("there is a circle");
        circle.sort_unstable();
        assert_eq!(circle, [1, 2, 3]);
    }

    #[test]
    fn a_task_that_waits_for_itself_is_a_circle() {
        assert_eq!(Graph::new(1, &[(0, 0)]).order(), Err(vec![0]));
    }

    #[test]
    fn chains_are_measured_from_their_first_task() {
        let graph = Graph::new(4, &[(1, 0), (2, 0), (3, 1)]);
        let order = graph.order().expect("no circle");
        assert_eq!(
            graph.longest_chains(&order, |task| task as u64 + 1),
            [1 + 2 + 4, 2 + 4, 3, 4]
        );
    }

    #[test]
    fn edges_are_used_again() {
        let waiting = |n: u32| Dependent {
            task: TaskRef::new(n as usize),
            arrival: n,
        };
        let mut edges = Edges::default();
        let mut list = NO_EDGE;
        for task in [3, 5, 8] {
            list = edges.add(list, waiting(task));
        }
        let other = edges.add(NO_EDGE, waiting(1));
        assert_eq!(edges.take(list), [3, 5, 8].map(waiting));
        let again = edges.add(NO_EDGE, waiting(9));
        assert_eq!(edges.arena.len(), 4);
        assert_eq!(edges.take(again), [waiting(9)]);
        assert_eq!(edges.take(other), [waiting(1)]);
        assert!(edges.arena.is_empty());
    }
}

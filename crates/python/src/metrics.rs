//! The figures of a scheduler: what the core counted, and what the program counted by hand.

use std::collections::VecDeque;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::agent::Agent;
use crate::engine::Engine;
use crate::task::{Task, wall_clock};

/// So many waiting times and samples by hand are kept; the oldest make room.
const KEPT_MAX: usize = 10_000;

/// What the program counted.
#[derive(Default)]
pub(crate) struct HandTallies {
    successful: u64,
    failed: u64,
    migrated: u64,
    waits: VecDeque<f64>,
    wait_count: u64,
    wait_sum: f64,
    samples: VecDeque<(f64, Vec<(String, u64)>)>,
    sample_count: u64,
}

impl HandTallies {
    pub(crate) fn waited(&mut self, seconds: f64) {
        self.wait_count += 1;
        self.wait_sum += seconds;
        self.waits.push_back(seconds);
        if self.waits.len() > KEPT_MAX {
            self.waits.pop_front();
        }
    }
}

/// Figures of a scheduler. Steals and rebalancing are counted by themselves; the `record_*` methods
/// are for what happens outside of it.
///
/// >>> metrics = WorkStealingScheduler().metrics
/// >>> metrics.record_task_wait(0.5)
/// >>> metrics.record_steal_attempt(True)
/// >>> stats = metrics.get_stats()
/// >>> stats["avg_task_wait_time"], stats["successful_steals"], stats["success_rate"]
/// (0.5, 1, 1.0)
#[pyclass(module = "loxley", frozen)]
pub(crate) struct Metrics {
    engine: Arc<Engine>,
    /// The scheduler's agents by id.
    agents: Py<PyDict>,
}

struct Figures {
    successful: u64,
    failed: u64,
    migrated: u64,
    cycles: u64,
    average_wait: f64,
    samples: u64,
}

impl Metrics {
    pub(crate) fn new(engine: Arc<Engine>, agents: Py<PyDict>) -> Self {
        Self { engine, agents }
    }

    fn figures(&self, py: Python<'_>) -> Figures {
        let books = self.engine.books(py);
        let core = books.core.metrics();
        let hand = &books.tallies;
        Figures {
            successful: core.successful_steals + hand.successful,
            failed: core.failed_steals + hand.failed,
            migrated: core.tasks_migrated + hand.migrated,
            cycles: core.rebalance_cycles,
            average_wait: if hand.wait_count == 0 {
                0.0
            } else {
                hand.wait_sum / hand.wait_count as f64
            },
            samples: core.total_samples + hand.sample_count,
        }
    }
}

#[pymethods]
impl Metrics {
    /// Notes how long a task waited, in seconds, or a task that has waited.
    fn record_task_wait(&self, py: Python<'_>, wait: &Bound<'_, PyAny>) -> PyResult<()> {
        let seconds = match wait.cast::<Task>() {
            Ok(task) => task.borrow().wait_time(),
            Err(_) => wait.extract()?,
        };
        self.engine.books(py).tallies.waited(seconds);
        Ok(())
    }

    /// Notes an attempt to steal that the program made, and how many tasks moved.
    #[pyo3(signature = (success, migrated=None))]
    fn record_steal_attempt(&self, py: Python<'_>, success: bool, migrated: Option<u64>) {
        let mut books = self.engine.books(py);
        let tallies = &mut books.tallies;
        if success {
            tallies.successful += 1;
            tallies.migrated += migrated.unwrap_or(1);
        } else {
            tallies.failed += 1;
        }
    }

    /// Notes the queue length of each agent, now. `queues` maps ids to lengths or to agents; without
    /// it, the scheduler's own agents are looked at.
    #[pyo3(signature = (queues=None))]
    fn record_utilization_sample(
        &self,
        py: Python<'_>,
        queues: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let queues = match queues {
            Some(queues) => PyDict::from_sequence(&queues.call_method0("items")?)?,
            None => self.agents.bind(py).copy()?,
        };
        let mut lengths = Vec::with_capacity(queues.len());
        for (id, queue) in &queues {
            let length = match queue.cast::<Agent>() {
                Ok(agent) => Agent::queue_length(agent) as u64,
                Err(_) => queue.extract()?,
            };
            lengths.push((id.str()?.to_string(), length));
        }
        let mut books = self.engine.books(py);
        books.tallies.sample_count += 1;
        books.tallies.samples.push_back((wall_clock(), lengths));
        if books.tallies.samples.len() > KEPT_MAX {
            books.tallies.samples.pop_front();
        }
        Ok(())
    }

    /// Attempts to steal.
    #[getter]
    fn total_steals(&self, py: Python<'_>) -> u64 {
        let figures = self.figures(py);
        figures.successful + figures.failed
    }

    /// Attempts that moved a task.
    #[getter]
    fn successful_steals(&self, py: Python<'_>) -> u64 {
        self.figures(py).successful
    }

    /// Attempts that found nothing.
    #[getter]
    fn failed_steals(&self, py: Python<'_>) -> u64 {
        self.figures(py).failed
    }

    /// Tasks that moved from one agent to another.
    #[getter]
    fn tasks_migrated(&self, py: Python<'_>) -> u64 {
        self.figures(py).migrated
    }

    /// Rebalancing passes that found the fleet out of balance.
    #[getter]
    fn rebalance_cycles(&self, py: Python<'_>) -> u64 {
        self.figures(py).cycles
    }

    /// The last waiting times, in seconds.
    #[getter]
    fn task_wait_times<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let waits: Vec<f64> = self
            .engine
            .books(py)
            .tallies
            .waits
            .iter()
            .copied()
            .collect();
        PyList::new(py, waits)
    }

    /// Queue lengths over time, the oldest first. Each sample is a pair of a timestamp and a mapping
    /// from agent ids to queue lengths. Bounded: old samples make room for new ones.
    #[getter]
    fn utilization_samples<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut ids = std::collections::HashMap::new();
        for (id, agent) in self.agents.bind(py) {
            if let Some((_, number)) = agent.cast::<Agent>()?.borrow().engine() {
                ids.insert(number, id);
            }
        }
        let books = self.engine.books(py);
        let core: Vec<_> = books.core.utilization_samples().cloned().collect();
        let hand: Vec<_> = books.tallies.samples.iter().cloned().collect();
        drop(books);
        let mut samples = Vec::with_capacity(core.len() + hand.len());
        for sample in core {
            let lengths = PyDict::new(py);
            for (agent, length) in &sample.queue_lengths {
                // An agent that left has no name any more.
                if let Some(id) = ids.get(agent) {
                    lengths.set_item(id, length)?;
                }
            }
            samples.push((
                self.engine.began_at + sample.timestamp.as_secs_f64(),
                lengths,
            ));
        }
        for (at, named) in hand {
            let lengths = PyDict::new(py);
            for (id, length) in named {
                lengths.set_item(id, length)?;
            }
            samples.push((at, lengths));
        }
        samples.sort_by(|one, other| one.0.total_cmp(&other.0));
        let class = py.import("loxley._samples")?.getattr("UtilizationSample")?;
        let samples = samples.into_iter().map(|sample| class.call1(sample));
        PyList::new(py, samples.collect::<PyResult<Vec<_>>>()?)
    }

    /// The figures as a dictionary.
    pub(crate) fn get_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let figures = self.figures(py);
        let total = figures.successful + figures.failed;
        let rate = match total {
            0 => 0.0,
            total => figures.successful as f64 / total as f64,
        };
        let stats = PyDict::new(py);
        stats.set_item("total_steals", total)?;
        stats.set_item("successful_steals", figures.successful)?;
        stats.set_item("failed_steals", figures.failed)?;
        stats.set_item("success_rate", rate)?;
        stats.set_item("tasks_migrated", figures.migrated)?;
        stats.set_item("rebalance_cycles", figures.cycles)?;
        stats.set_item("avg_task_wait_time", figures.average_wait)?;
        stats.set_item("total_samples", figures.samples)?;
        Ok(stats)
    }
}

//! The figures of a scheduler: what the core counted, and what the program counted by hand.

use std::collections::VecDeque;
use std::sync::Arc;

use loxley_model::AgentId;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::agent::Agent;
use crate::engine::Engine;
use crate::scheduler::defaults;
use crate::task::{Task, wall_clock};

/// So many waiting times and samples by hand are kept; the oldest make room.
const KEPT_MAX: usize = 10_000;

/// What the program counted, over what the core did; below zero where a program set a figure back.
#[derive(Default)]
pub(crate) struct HandTallies {
    total: i64,
    successful: i64,
    failed: i64,
    migrated: i64,
    cycles: i64,
    /// When a rebalancing pass last moved something, in seconds since the epoch.
    last_rebalance: Option<f64>,
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

    pub(crate) fn rebalanced(&mut self) {
        self.last_rebalance = Some(wall_clock());
    }

    /// An attempt to steal that the core counted does not count: there was nobody to steal from.
    pub(crate) fn take_back_attempt(&mut self) {
        self.total -= 1;
        self.failed -= 1;
    }
}

/// Figures of a scheduler, or of a program that counts alone. A scheduler's steals and rebalancing are
/// counted by themselves; the `record_*` methods are for what happens outside of it.
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
    total: u64,
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

    /// A program sets a figure: what it is beyond what the core counted is its own.
    fn count_by_hand(
        &self,
        py: Python<'_>,
        count: i64,
        shown: impl FnOnce(&Figures) -> u64,
        hand: impl FnOnce(&mut HandTallies) -> &mut i64,
    ) {
        let before = i64::try_from(shown(&self.figures(py))).unwrap_or(i64::MAX);
        *hand(&mut self.engine.books(py).tallies) += count - before;
    }

    fn figures(&self, py: Python<'_>) -> Figures {
        let books = self.engine.books(py);
        let core = books.core().metrics();
        let hand = &books.tallies;
        let attempts = core.successful_steals + core.failed_steals;
        Figures {
            total: attempts.saturating_add_signed(hand.total),
            successful: core
                .successful_steals
                .saturating_add_signed(hand.successful),
            failed: core.failed_steals.saturating_add_signed(hand.failed),
            migrated: core.tasks_migrated.saturating_add_signed(hand.migrated),
            cycles: core.rebalance_cycles.saturating_add_signed(hand.cycles),
            average_wait: if hand.wait_count == 0 {
                0.0
            } else {
                hand.wait_sum / hand.wait_count as f64
            },
            samples: core.total_samples + books.samples.taken() + hand.sample_count,
        }
    }
}

#[pymethods]
impl Metrics {
    #[new]
    fn alone(py: Python<'_>) -> Self {
        Self::new(Engine::new(defaults()), PyDict::new(py).unbind())
    }

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
    #[pyo3(signature = (success, tasks_stolen=0))]
    fn record_steal_attempt(&self, py: Python<'_>, success: bool, tasks_stolen: u32) {
        let mut books = self.engine.books(py);
        let tallies = &mut books.tallies;
        tallies.total += 1;
        if success {
            tallies.successful += 1;
            tallies.migrated += i64::from(tasks_stolen);
        } else {
            tallies.failed += 1;
        }
    }

    /// Notes the queue length of each agent, now. `queues` are agents, or maps ids to lengths or to
    /// agents; without it, the scheduler's own agents are looked at.
    #[pyo3(signature = (queues=None))]
    fn record_utilization_sample(
        &self,
        py: Python<'_>,
        queues: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let queues = match queues {
            Some(queues) if queues.hasattr("items")? => {
                PyDict::from_sequence(&queues.call_method0("items")?)?
            }
            Some(agents) => by_id(agents)?,
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
        self.figures(py).total
    }

    #[setter]
    fn set_total_steals(&self, py: Python<'_>, count: i64) {
        self.count_by_hand(py, count, |figures| figures.total, |hand| &mut hand.total);
    }

    /// Attempts that moved a task.
    #[getter]
    fn successful_steals(&self, py: Python<'_>) -> u64 {
        self.figures(py).successful
    }

    #[setter]
    fn set_successful_steals(&self, py: Python<'_>, count: i64) {
        self.count_by_hand(
            py,
            count,
            |figures| figures.successful,
            |hand| &mut hand.successful,
        );
    }

    /// Attempts that found nothing.
    #[getter]
    fn failed_steals(&self, py: Python<'_>) -> u64 {
        self.figures(py).failed
    }

    #[setter]
    fn set_failed_steals(&self, py: Python<'_>, count: i64) {
        self.count_by_hand(py, count, |figures| figures.failed, |hand| &mut hand.failed);
    }

    /// Tasks that moved from one agent to another.
    #[getter]
    fn tasks_migrated(&self, py: Python<'_>) -> u64 {
        self.figures(py).migrated
    }

    #[setter]
    fn set_tasks_migrated(&self, py: Python<'_>, count: i64) {
        self.count_by_hand(
            py,
            count,
            |figures| figures.migrated,
            |hand| &mut hand.migrated,
        );
    }

    /// Rebalancing passes that found the fleet out of balance.
    #[getter]
    fn rebalance_cycles(&self, py: Python<'_>) -> u64 {
        self.figures(py).cycles
    }

    #[setter]
    fn set_rebalance_cycles(&self, py: Python<'_>, count: i64) {
        self.count_by_hand(py, count, |figures| figures.cycles, |hand| &mut hand.cycles);
    }

    /// When a rebalancing pass last moved something, in seconds since the epoch; before the first one,
    /// when this began.
    #[getter]
    fn last_rebalance(&self, py: Python<'_>) -> f64 {
        let last = self.engine.books(py).tallies.last_rebalance;
        last.unwrap_or(self.engine.began_at)
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

    /// Queue lengths over time, the oldest first: one sample for each submission and, while the
    /// scheduler is started, one at each interval. Each has a timestamp, a mapping from agent ids to
    /// queue lengths and their sum. Bounded: old samples make room for new ones.
    #[getter]
    fn utilization_samples<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut ids = std::collections::HashMap::new();
        for (id, agent) in self.agents.bind(py) {
            if let Some((_, number)) = agent.cast::<Agent>()?.borrow().engine() {
                ids.insert(number, id);
            }
        }
        let books = self.engine.books(py);
        let core: Vec<_> = books.core().utilization_samples().cloned().collect();
        let submissions = books.samples.work_out();
        let hand: Vec<_> = books.tallies.samples.iter().cloned().collect();
        drop(books);
        let by_id = |lengths: &[(AgentId, u64)]| {
            let shown = PyDict::new(py);
            for (agent, length) in lengths {
                // An agent that left has no name any more.
                if let Some(id) = ids.get(agent) {
                    shown.set_item(id, length)?;
                }
            }
            PyResult::Ok(shown)
        };
        let mut samples = Vec::with_capacity(core.len() + submissions.len() + hand.len());
        for sample in core {
            let at = self.engine.began_at + sample.timestamp.as_secs_f64();
            let lengths = sample.queue_lengths.iter();
            let lengths: Vec<_> = lengths
                .map(|(agent, len)| (*agent, u64::from(*len)))
                .collect();
            let total = lengths.iter().map(|(_, len)| len).sum();
            samples.push((at, by_id(&lengths)?, total));
        }
        for sample in submissions {
            samples.push((sample.at, by_id(&sample.lengths)?, sample.total));
        }
        for (at, named) in hand {
            let total: u64 = named.iter().map(|(_, len)| len).sum();
            let lengths = PyDict::new(py);
            for (id, length) in named {
                lengths.set_item(id, length)?;
            }
            samples.push((at, lengths, total));
        }
        samples.sort_by(|one, other| one.0.total_cmp(&other.0));
        let class = py.import("loxley._samples")?.getattr("UtilizationSample")?;
        let samples = samples.into_iter().map(|sample| class.call1(sample));
        PyList::new(py, samples.collect::<PyResult<Vec<_>>>()?)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let figures = self.figures(py);
        let Figures {
            successful,
            failed,
            migrated,
            cycles,
            samples,
            ..
        } = figures;
        format!(
            "Metrics(successful_steals={successful}, failed_steals={failed}, \
             tasks_migrated={migrated}, rebalance_cycles={cycles}, total_samples={samples})"
        )
    }

    /// The figures as a dictionary.
    pub(crate) fn get_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let figures = self.figures(py);
        let total = figures.total;
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

/// Agents by their ids.
fn by_id<'py>(agents: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(agents.py());
    for agent in agents.try_iter()? {
        let agent = agent?.cast_into::<Agent>()?;
        let id = agent.borrow().id(agents.py());
        found.set_item(id, agent)?;
    }
    Ok(found)
}

//! Dividing work up front, by positions; `loxley.partition` turns positions into items.

use loxley_balance::advice::{self, Hints};
use loxley_balance::partition::granularity::{Batcher, Grain, Split};
use loxley_balance::partition::locality::{self, near_data};
use loxley_balance::partition::memory::{self, MemoryError, within_memory};
use loxley_balance::partition::routing::{self, key_hash};
use loxley_balance::partition::{chunks, largest_first, ranges};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

fn mistake(error: impl std::error::Error) -> PyErr {
    let cause = error.source().map(|source| format!(": {source}"));
    PyValueError::new_err(format!("{error}{}", cause.unwrap_or_default()))
}

/// Contiguous chunks whose sizes differ by at most one [P1].
#[pyfunction]
pub(crate) fn equal_chunks(length: usize, parts: usize) -> PyResult<Vec<(usize, usize)>> {
    let chunks = chunks::chunks(length, parts).map_err(mistake)?;
    Ok(chunks.map(|range| (range.start, range.end)).collect())
}

/// Contiguous ranges of equal weight [P5].
#[pyfunction]
pub(crate) fn weighted_ranges(weights: Vec<f64>, parts: usize) -> PyResult<Vec<(usize, usize)>> {
    let ranges = ranges::ranges(&weights, parts).map_err(mistake)?;
    Ok(ranges
        .into_iter()
        .map(|range| (range.start, range.end))
        .collect())
}

/// The part of each item: the largest first, to the part that is done with it first [P3].
#[pyfunction]
pub(crate) fn largest_to_least(
    py: Python<'_>,
    weights: Vec<f64>,
    speeds: Vec<f64>,
) -> PyResult<Vec<usize>> {
    let assignment = py.detach(|| {
        if speeds.iter().all(|speed| *speed == 1.0) {
            largest_first::largest_first(&weights, speeds.len())
        } else {
            largest_first::largest_first_by_speed(&weights, &speeds)
        }
    });
    Ok(assignment.map_err(mistake)?.part_of().to_vec())
}

/// The part of each item, so that no part exceeds its memory [P6]; or nothing, the items that are left
/// over, and a sentence about them.
#[pyfunction]
pub(crate) fn fit_memory(
    py: Python<'_>,
    weights: Vec<f64>,
    needs: Vec<u64>,
    limits: Vec<u64>,
) -> PyResult<(Option<Vec<usize>>, Vec<usize>, String)> {
    let items: Vec<memory::Item> = weights
        .into_iter()
        .zip(needs)
        .map(|(weight, memory)| memory::Item { weight, memory })
        .collect();
    match py.detach(|| within_memory(&items, &limits)) {
        Ok(assignment) => {
            let part_of = assignment.part_of().to_vec();
            Ok((Some(part_of), Vec::new(), String::new()))
        }
        Err(MemoryError::Input(error)) => Err(mistake(error)),
        Err(error) => {
            let message = error.to_string();
            match error {
                MemoryError::DoesNotFit { items, .. } => Ok((None, items, message)),
                _ => Err(PyValueError::new_err(message)),
            }
        }
    }
}

/// The part of each item, the sum of all transfers and the items that move [P7].
#[pyfunction]
pub(crate) fn near(
    py: Python<'_>,
    weights: Vec<f64>,
    homes: Vec<Vec<usize>>,
    transfers: Vec<f64>,
    parts: usize,
    price: f64,
) -> PyResult<(Vec<usize>, f64, Vec<usize>)> {
    let items: Vec<locality::Item<'_>> = weights
        .iter()
        .zip(&homes)
        .zip(&transfers)
        .map(|((weight, homes), transfer)| locality::Item {
            weight: *weight,
            homes,
            transfer: *transfer,
        })
        .collect();
    let placement = py
        .detach(|| near_data(&items, parts, price))
        .map_err(mistake)?;
    let part_of = placement.assignment.part_of().to_vec();
    Ok((part_of, placement.transfer, placement.moved))
}

/// The smallest and the largest piece that are worth handing out [P9].
#[pyfunction]
pub(crate) fn fitting_grain(total: f64, parts: usize, overhead: f64) -> PyResult<(f64, f64)> {
    let grain = Grain::fitting(total, parts, overhead).map_err(mistake)?;
    Ok((grain.smallest(), grain.largest()))
}

/// Batches of items between a smallest and a largest cost [P9]. `cost` tells what an item costs,
/// `split` makes two of one, or returns None.
#[pyfunction]
pub(crate) fn batch_items<'py>(
    items: Vec<Bound<'py, PyAny>>,
    cost: Bound<'py, PyAny>,
    split: Option<Bound<'py, PyAny>>,
    smallest: f64,
    largest: f64,
) -> PyResult<Vec<Vec<Bound<'py, PyAny>>>> {
    let mut batcher = Batcher::new(Grain::new(smallest, largest).map_err(mistake)?);
    let problem = std::cell::RefCell::new(None);
    let mut pieces = Vec::new();
    for object in items {
        let item = Splittable {
            cost: cost.call1((&object,))?.extract()?,
            object,
            tell: &cost,
            split: split.as_ref(),
            problem: &problem,
        };
        let mut complete = |items: Vec<Splittable<'_, 'py>>| {
            pieces.push(items.into_iter().map(|item| item.object).collect());
        };
        let pushed = batcher.push(item, |piece| complete(piece.items));
        if let Some(problem) = problem.take() {
            return Err(problem);
        }
        pushed.map_err(mistake)?;
    }
    let last = batcher.finish();
    pieces.extend(last.map(|piece| piece.items.into_iter().map(|item| item.object).collect()));
    Ok(pieces)
}

/// A Python object that a Python function may split.
struct Splittable<'a, 'py> {
    object: Bound<'py, PyAny>,
    cost: f64,
    tell: &'a Bound<'py, PyAny>,
    split: Option<&'a Bound<'py, PyAny>>,
    /// What a function raised, for whoever called.
    problem: &'a std::cell::RefCell<Option<PyErr>>,
}

impl<'py> Splittable<'_, 'py> {
    fn halves(&self) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        let Some(split) = self.split else {
            return Ok(None);
        };
        split.call1((&self.object,))?.extract()
    }

    fn of(&self, object: Bound<'py, PyAny>) -> PyResult<Self> {
        Ok(Self {
            cost: self.tell.call1((&object,))?.extract()?,
            object,
            ..*self
        })
    }
}

impl Split for Splittable<'_, '_> {
    fn cost(&self) -> f64 {
        self.cost
    }

    fn split(self) -> Result<(Self, Self), Self> {
        let both = self.halves().and_then(|halves| {
            let Some((first, second)) = halves else {
                return Ok(None);
            };
            Ok(Some((self.of(first)?, self.of(second)?)))
        });
        match both {
            Ok(Some(halves)) => Ok(halves),
            Ok(None) => Err(self),
            Err(error) => {
                *self.problem.borrow_mut() = Some(error);
                Err(self)
            }
        }
    }
}

/// Keys stay with their worker when others come or go, and no worker gets much more than its share
/// [P4].
///
/// >>> router = Router(["a", "b", "c"])
/// >>> before = {key: router.home(key) for key in range(1000)}
/// >>> router.join("d")
/// >>> moved = [key for key in before if router.home(key) != before[key]]
/// >>> all(router.home(key) == "d" for key in moved), len(moved) < 350
/// (True, True)
#[pyclass(module = "loxley")]
pub(crate) struct Router {
    router: routing::Router,
    /// Names by number; a worker that left leaves a hole.
    names: Vec<Option<String>>,
}

#[pymethods]
impl Router {
    #[new]
    #[pyo3(signature = (workers=Vec::new(), slack=0.25))]
    fn new(workers: Vec<String>, slack: f64) -> PyResult<Self> {
        let mut this = Self {
            router: routing::Router::new(slack).map_err(mistake)?,
            names: Vec::new(),
        };
        for worker in workers {
            this.join(worker, 1.0)?;
        }
        Ok(this)
    }

    /// Adds a worker. One of weight 2 gets twice as many keys as one of weight 1.
    #[pyo3(signature = (worker, weight=1.0))]
    fn join(&mut self, worker: String, weight: f64) -> PyResult<()> {
        if self.names.iter().flatten().any(|name| *name == worker) {
            let message = format!("worker {worker:?} is there already");
            return Err(PyValueError::new_err(message));
        }
        // By its name, so that it has the same keys whenever it comes.
        let id = key_hash(worker.as_bytes()) >> 20 << 20 | self.names.len() as u64;
        self.router.join(id, weight).map_err(mistake)?;
        self.names.push(Some(worker));
        Ok(())
    }

    /// Removes a worker. Says whether there was one.
    fn leave(&mut self, worker: &str) -> bool {
        let Some(id) = self.id(worker) else {
            return false;
        };
        self.names[(id & 0xf_ffff) as usize] = None;
        self.router.leave(id).is_some()
    }

    /// The worker a key belongs to, whatever the loads; None without workers.
    fn home(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
        Ok(self.router.home(hash(key)?).and_then(|id| self.name(id)))
    }

    /// Gives work for a key to its worker, or to the next one that is not full, and counts it there
    /// until `release`.
    #[pyo3(signature = (key, cost=1))]
    fn place(&mut self, key: &Bound<'_, PyAny>, cost: u64) -> PyResult<Option<String>> {
        let placed = self.router.place(hash(key)?, cost);
        Ok(placed.and_then(|id| self.name(id)))
    }

    /// The work is done.
    #[pyo3(signature = (worker, cost=1))]
    fn release(&mut self, worker: &str, cost: u64) {
        if let Some(id) = self.id(worker) {
            self.router.release(id, cost);
        }
    }

    /// What is counted where.
    fn loads<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let loads = PyDict::new(py);
        for (id, load) in self.router.loads() {
            loads.set_item(self.name(id), load)?;
        }
        Ok(loads)
    }

    fn __len__(&self) -> usize {
        self.router.len()
    }

    fn __repr__(&self) -> String {
        format!("<Router of {} workers>", self.router.len())
    }
}

impl Router {
    fn name(&self, id: u64) -> Option<String> {
        self.names.get((id & 0xf_ffff) as usize)?.clone()
    }

    fn id(&self, worker: &str) -> Option<u64> {
        let mut ids = self.router.loads().map(|(id, _)| id);
        ids.find(|id| self.name(*id).as_deref() == Some(worker))
    }
}

/// The same on every machine and in every run, unlike Python's own hash.
fn hash(key: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(bytes) = key.extract::<&[u8]>() {
        return Ok(key_hash(bytes));
    }
    Ok(key_hash(key.str()?.to_string().as_bytes()))
}

/// The strategy that fits, and everything that speaks for it. Printed, it is the whole comparison.
#[pyclass(module = "loxley", frozen)]
pub(crate) struct Advice(advice::Advice);

#[pymethods]
impl Advice {
    /// equal_chunks, round_robin, largest_first, ranges_by_weight, shared_queue or work_stealing.
    #[getter]
    fn strategy(&self) -> &'static str {
        self.0.strategy.id()
    }

    /// Why, in one sentence with the figures that decided.
    #[getter]
    fn explanation(&self) -> String {
        self.0.explanation()
    }

    /// How long one item should be allowed to run, where the tail is long.
    #[getter]
    fn time_limit(&self) -> Option<f64> {
        self.0.time_limit
    }

    /// What every strategy came to on the sample: one record each.
    #[getter]
    fn trials<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let show = |trial: &advice::Trial| {
            let record = PyDict::new(py);
            record.set_item("strategy", trial.strategy.id())?;
            record.set_item("makespan", trial.makespan)?;
            record.set_item("imbalance", trial.imbalance)?;
            record.set_item("handed_out", trial.handed_out)?;
            record.set_item("needs_costs", trial.strategy.needs_costs())?;
            Ok(record)
        };
        self.0.trials.iter().map(show).collect()
    }

    fn __repr__(&self) -> String {
        format!("Advice({:?}, {:?})", self.strategy(), self.explanation())
    }

    /// For notebooks.
    fn _repr_html_(slf: &Bound<'_, Self>) -> PyResult<String> {
        let html = slf.py().import("loxley._html")?;
        html.call_method1("advice_table", (slf,))?.extract()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }
}

/// Names the strategy that fits a sample of costs [P8].
#[pyfunction]
#[pyo3(signature = (costs, parts, streaming, order_matters, predictable, overhead))]
pub(crate) fn advise_costs(
    py: Python<'_>,
    costs: Vec<f64>,
    parts: usize,
    streaming: bool,
    order_matters: bool,
    predictable: Option<bool>,
    overhead: f64,
) -> PyResult<Advice> {
    let hints = Hints {
        streaming,
        order_matters,
        predictable,
        overhead,
    };
    let advice = py.detach(|| advice::advise(&costs, parts, &hints));
    Ok(Advice(advice.map_err(mistake)?))
}

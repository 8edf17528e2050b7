//! Was the run balanced? What a pool notes, and the report of it.

use std::time::Instant;

use loxley_balance::{Observations, QueueDepths, Sketch};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// What is noted while calls run.
#[derive(Default)]
pub(crate) struct Figures {
    durations: Sketch,
    depths: QueueDepths,
    begin: Option<Instant>,
    end: Option<Instant>,
    last_sample: Option<Instant>,
}

impl Figures {
    /// Something was submitted.
    pub(crate) fn begin(&mut self) {
        if self.begin.is_none() {
            let now = Instant::now();
            self.begin = Some(now);
            self.last_sample = Some(now);
        }
    }

    /// So many calls ran one after the other, for so long in all.
    pub(crate) fn ran(&mut self, calls: u32, nanos: u64) {
        let each = nanos / u64::from(calls.max(1));
        self.durations.record_many(each, calls.into());
        self.end = Some(Instant::now());
    }

    /// Whether the queues should be looked at; they are not more often than every two milliseconds.
    pub(crate) fn sample(&mut self, depths: impl Iterator<Item = usize>) {
        const INTERVAL_NANOS: u64 = 2_000_000;
        let now = Instant::now();
        let Some(last) = self.last_sample else {
            return;
        };
        let span = u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX);
        if span >= INTERVAL_NANOS {
            self.depths.sample_for(span, depths);
            self.last_sample = Some(now);
        }
    }

    pub(crate) fn report(&self, busy_ns: &[u64]) -> BalanceReport {
        let wall = match (self.begin, self.end) {
            (Some(begin), Some(end)) => end.saturating_duration_since(begin),
            _ => std::time::Duration::ZERO,
        };
        BalanceReport(loxley_balance::BalanceReport::new(&Observations {
            busy_ns,
            wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
            durations: &self.durations,
            queue_depths: &self.depths,
        }))
    }
}

/// Was the run balanced? Four figures, each with its target. A figure without data is None.
#[pyclass(module = "loxley", frozen)]
pub(crate) struct BalanceReport(pub(crate) loxley_balance::BalanceReport);

#[pymethods]
impl BalanceReport {
    /// The busiest worker's time over the mean worker's time; should be below 1.2.
    #[getter]
    fn load_imbalance(&self) -> Option<f64> {
        self.0.load_imbalance.value
    }

    /// The longest call over the median call; should be below 2.
    #[getter]
    fn straggler_ratio(&self) -> Option<f64> {
        self.0.straggler_ratio.value
    }

    /// Busy time over all the time there was; should be above 0.9.
    #[getter]
    fn utilization(&self) -> Option<f64> {
        self.0.utilization.value
    }

    /// How unequal the queues were.
    #[getter]
    fn queue_depth_variance(&self) -> Option<f64> {
        self.0.queue_depth_variance.value
    }

    /// Whether every figure is known and met its target.
    #[getter]
    fn is_balanced(&self) -> bool {
        self.0.is_balanced()
    }

    /// The figures by name, each with its value and whether it met its target.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        let add = |name: &str, figure: &loxley_balance::figures::Figure| {
            let shown = PyDict::new(py);
            shown.set_item("value", figure.value)?;
            shown.set_item("met", figure.met())?;
            all.set_item(name, shown)
        };
        add("load_imbalance", &self.0.load_imbalance)?;
        add("straggler_ratio", &self.0.straggler_ratio)?;
        add("utilization", &self.0.utilization)?;
        add("queue_depth_variance", &self.0.queue_depth_variance)?;
        Ok(all)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        let shown = |name: &str, figure: &loxley_balance::figures::Figure| match figure.value {
            Some(value) => format!("{name}={value:.3}"),
            None => format!("{name}=None"),
        };
        format!(
            "BalanceReport({}, {}, {}, {})",
            shown("load_imbalance", &self.0.load_imbalance),
            shown("straggler_ratio", &self.0.straggler_ratio),
            shown("utilization", &self.0.utilization),
            shown("queue_depth_variance", &self.0.queue_depth_variance),
        )
    }

    /// For notebooks.
    fn _repr_html_(slf: &Bound<'_, Self>) -> PyResult<String> {
        let html = slf.py().import("loxley._html")?;
        html.call_method1("balance_table", (slf,))?.extract()
    }
}

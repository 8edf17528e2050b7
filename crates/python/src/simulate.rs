//! The simulator: a scenario goes in, records come out as JSON.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use loxley_sim::experiment::{self, Results, Variant};
use loxley_sim::time::Nanos;
use loxley_sim::{Change, Happening, Observer, Scenario, json, library};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A scenario: a ready one by name, a file, or text.
fn find(what: &str, is_text: bool, workers: Option<u32>) -> PyResult<Scenario> {
    let scenario = if is_text {
        Scenario::parse("scenario", what)
    } else {
        Scenario::find(what, workers)
    };
    scenario.map_err(mistake)
}

fn parse_changes(changes: &[String]) -> PyResult<Vec<Change>> {
    let parsed = changes.iter().map(|change| Change::parse(change));
    parsed.map(|change| change.map_err(mistake)).collect()
}

fn mistake(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Names and sentences of the ready scenarios.
#[pyfunction]
pub(crate) fn ready_scenarios() -> Vec<(String, String)> {
    library::all()
        .map(|scenario| (scenario.name().to_owned(), scenario.about().to_owned()))
        .collect()
}

/// Runs a scenario once. Returns the statistics and what can be drawn, as JSON.
#[pyfunction]
pub(crate) fn run_scenario(
    py: Python<'_>,
    what: &str,
    is_text: bool,
    seed: u64,
    policy: Option<&str>,
    changes: Vec<String>,
    workers: Option<u32>,
) -> PyResult<(String, String)> {
    let scenario = find(what, is_text, workers)?;
    let mut all = parse_changes(&changes)?;
    if let Some(policy) = policy {
        all.extend(Change::policy(policy).map_err(mistake)?);
    }
    let world = scenario.build(&all).map_err(mistake)?;
    let (statistics, timeline) = watched(py, |watch| world.run_recorded(seed, watch))?;
    let results = Results {
        labels: vec![policy.unwrap_or("as written").to_owned()],
        runs: vec![vec![statistics]],
    };
    let shown = json::experiment(&scenario, &[seed], &results);
    let timeline = serde_json::to_string(&timeline).map_err(mistake)?;
    Ok((shown.to_string(), timeline))
}

/// Runs a scenario under several policies with the same seeds, and compares them, as JSON.
#[pyfunction]
pub(crate) fn compare_policies(
    py: Python<'_>,
    what: &str,
    is_text: bool,
    policies: Vec<String>,
    seeds: Vec<u64>,
    changes: Vec<String>,
    workers: Option<u32>,
) -> PyResult<String> {
    let scenario = find(what, is_text, workers)?;
    let changes = parse_changes(&changes)?;
    let variants: Vec<Variant> =
        experiment::variants(&scenario, &policies, None, &changes).map_err(mistake)?;
    let runs = watched(py, |watch| {
        let run_all = |variant: &Variant| {
            let each = seeds.iter().map(|seed| variant.world.run(*seed, watch));
            each.collect()
        };
        variants.iter().map(run_all).collect()
    })?;
    let labels = variants.into_iter().map(|variant| variant.label).collect();
    let shown = json::experiment(&scenario, &seeds, &Results { labels, runs });
    Ok(shown.to_string())
}

/// Runs something without the interpreter's lock, but not past Ctrl-C.
fn watched<T: Send>(py: Python<'_>, run: impl FnOnce(&mut Watch) -> T + Send) -> PyResult<T> {
    let mut watch = Watch {
        seen: 0,
        next_look: Instant::now() + LOOK_UP,
    };
    let outcome = py.detach(|| catch_unwind(AssertUnwindSafe(|| run(&mut watch))));
    outcome.or_else(|panic| match panic.downcast::<Interrupted>() {
        Ok(interrupted) => Err(interrupted.0),
        Err(panic) => resume_unwind(panic),
    })
}

/// How often a run looks whether somebody pressed Ctrl-C.
const LOOK_UP: Duration = Duration::from_millis(100);

/// Watches a run for Ctrl-C.
struct Watch {
    seen: u32,
    next_look: Instant,
}

/// Somebody wants out of a run.
struct Interrupted(PyErr);

impl Observer for Watch {
    #[inline]
    fn see(&mut self, _now: Nanos, _happening: &Happening) {
        self.seen = self.seen.wrapping_add(1);
        if self.seen.is_multiple_of(1024) && Instant::now() >= self.next_look {
            self.look();
        }
    }
}

impl Watch {
    #[cold]
    fn look(&mut self) {
        self.next_look = Instant::now() + LOOK_UP;
        if let Err(error) = Python::attach(|py| py.check_signals()) {
            // A run has no other way out: what it has on the stack is let go, and nothing is said.
            resume_unwind(Box::new(Interrupted(error)));
        }
    }
}

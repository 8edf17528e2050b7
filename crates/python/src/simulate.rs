//! The simulator: a scenario goes in, records come out as JSON.

use loxley_sim::experiment::{self, Results, Variant};
use loxley_sim::{Change, Scenario, json, library};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A scenario: a ready one by name, a file, or text.
fn find(what: &str, is_text: bool, workers: Option<u32>) -> PyResult<Scenario> {
    let scenario = if is_text {
        Scenario::parse("scenario", what)
    } else {
        Scenario::find(what, workers)
    };
    scenario.map_err(|error| PyValueError::new_err(error.to_string()))
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
    let mut all = changes
        .iter()
        .map(|change| Change::parse(change).map_err(mistake))
        .collect::<PyResult<Vec<_>>>()?;
    if let Some(policy) = policy {
        all.extend(Change::policy(policy).map_err(mistake)?);
    }
    let world = scenario.build(&all).map_err(mistake)?;
    py.detach(|| {
        let (statistics, timeline) = world.run_recorded(seed, &mut ());
        let results = Results {
            labels: vec![policy.unwrap_or("as written").to_owned()],
            runs: vec![vec![statistics]],
        };
        let shown = json::experiment(&scenario, &[seed], &results);
        let timeline = serde_json::to_string(&timeline).map_err(mistake)?;
        Ok((shown.to_string(), timeline))
    })
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
    let changes = changes
        .iter()
        .map(|change| Change::parse(change).map_err(mistake))
        .collect::<PyResult<Vec<_>>>()?;
    let variants: Vec<Variant> =
        experiment::variants(&scenario, &policies, None, &changes).map_err(mistake)?;
    let shown = py.detach(|| {
        let results = experiment::run(&variants, &seeds, &experiment::one_by_one, &|| {});
        json::experiment(&scenario, &seeds, &results)
    });
    Ok(shown.to_string())
}

//! The results as text for a terminal.

use std::fmt::Write as _;

use crate::experiment::Results;
use crate::scenario::Scenario;
use crate::statistics::{RunStatistics, WorkerTotals};
use crate::time::{human, nanos};

/// Workers that are listed one by one; beyond that the slowest and the fastest would not be seen
/// anyway.
const WORKERS_LISTED: usize = 16;

/// The heading: what the scenario shows and what to look for.
#[must_use]
pub fn heading(scenario: &Scenario) -> String {
    let mut text = String::new();
    line(
        &mut text,
        &format!("{}: {}", scenario.name(), scenario.about()),
    );
    line(&mut text, &format!("Look for: {}", scenario.look_for()));
    text
}

/// One run, in full.
#[must_use]
pub fn one_run(run: &RunStatistics) -> String {
    let mut text = String::new();
    let spawned = if run.spawned > 0 {
        format!(" ({} spawned by others)", run.spawned)
    } else {
        String::new()
    };
    line(
        &mut text,
        &format!("tasks         {} executed{spawned}", run.executed()),
    );
    if run.failed + run.repeated + run.deadline_misses > 0 {
        let counts = format!(
            "              {} failed, {} run more than once, {} deadlines missed",
            run.failed, run.repeated, run.deadline_misses
        );
        line(&mut text, &counts);
    }
    let searches = run.searches();
    let success = percent(run.successful_searches, searches);
    line(
        &mut text,
        &format!(
            "stolen        {} ({} of all), {searches} searches, {success} of them successful",
            run.stolen(),
            percent(run.stolen(), run.executed()),
        ),
    );
    line(
        &mut text,
        &format!(
            "makespan      {}   speedup {:.2}   efficiency {:.1} %",
            human(run.makespan),
            run.speedup(),
            run.efficiency() * 100.0
        ),
    );
    let bound = run.lower_bound();
    let why = if bound == run.critical_path {
        "longest chain"
    } else {
        "work ÷ workers"
    };
    line(
        &mut text,
        &format!(
            "lower bound   {} ({why})   ratio {:.3}",
            human(bound),
            run.ratio_to_bound()
        ),
    );
    line(&mut text, &format!("waiting       {}", waiting(run)));
    line(&mut text, "");
    line(&mut text, &run.balance().to_string());
    line(&mut text, "");
    workers(&mut text, run);
    text
}

fn waiting(run: &RunStatistics) -> String {
    let quantile = |rank| human(run.waits.quantile(rank).unwrap_or(0));
    format!(
        "mean {}   p50 {}   p99 {}   longest {}",
        human(nanos(run.mean_wait())),
        quantile(0.5),
        quantile(0.99),
        human(run.waits.max().unwrap_or(0))
    )
}

fn workers(text: &mut String, run: &RunStatistics) {
    line(
        text,
        "worker   speed    tasks   stolen   robbed  queue max  busy",
    );
    for (index, worker) in run.workers.iter().enumerate().take(WORKERS_LISTED) {
        worker_line(text, index, worker, run);
    }
    if run.workers.len() > WORKERS_LISTED {
        let more = run.workers.len() - WORKERS_LISTED;
        line(text, &format!("... and {more} more workers"));
    }
}

fn worker_line(text: &mut String, index: usize, worker: &WorkerTotals, run: &RunStatistics) {
    let room = run.makespan as f64 * f64::from(worker.slots.max(1));
    let share = if room > 0.0 {
        worker.busy as f64 / room
    } else {
        0.0
    };
    let filled = (share * 20.0).round() as usize;
    let bar: String = (0..20)
        .map(|cell| if cell < filled { '█' } else { '·' })
        .collect();
    line(
        text,
        &format!(
            "{index:>6}  {:>6.2}  {:>7}  {:>7}  {:>7}  {:>9}  {bar} {:>5.1} %",
            worker.speed,
            worker.executed,
            worker.stolen,
            worker.robbed,
            worker.queue_max,
            share * 100.0
        ),
    );
}

/// Several variants, or one with several seeds: means with their 95 % intervals.
#[must_use]
pub fn comparison(results: &Results) -> String {
    let mut text = String::new();
    let width = (results
        .labels
        .iter()
        .map(|label| label.chars().count())
        .max())
    .unwrap_or(0)
    .max(7);
    line(
        &mut text,
        &format!(
            "{:width$}  {:>22}  {:>9}  {:>11}  {:>9}  {:>10}",
            "", "makespan", "÷ bound", "utilization", "stolen", "mean wait"
        ),
    );
    for (variant, label) in results.labels.iter().enumerate() {
        let makespan = results.estimate(variant, RunStatistics::makespan_seconds);
        let spread = if makespan.half_width.is_finite() {
            format!(
                "{} ± {}",
                human(nanos(makespan.mean)),
                human(nanos(makespan.half_width))
            )
        } else {
            human(nanos(makespan.mean))
        };
        let ratio = results
            .estimate(variant, RunStatistics::ratio_to_bound)
            .mean;
        let used = results
            .estimate(variant, |run| {
                run.balance().utilization.value.unwrap_or(0.0)
            })
            .mean;
        let stolen = results.estimate(variant, RunStatistics::steal_rate).mean;
        let wait = results.estimate(variant, RunStatistics::mean_wait).mean;
        line(
            &mut text,
            &format!(
                "{label:width$}  {spread:>22}  {ratio:>9.3}  {:>9.1} %  {:>7.1} %  {:>10}",
                used * 100.0,
                stolen * 100.0,
                human(nanos(wait))
            ),
        );
    }
    text
}

/// Who wins, by how much, and whether that is more than noise.
#[must_use]
pub fn verdicts(results: &Results) -> String {
    let mut text = String::new();
    let runs = results.runs.first().map_or(0, Vec::len);
    for verdict in results.verdicts() {
        let (best, other) = (
            &results.labels[verdict.best],
            &results.labels[verdict.other],
        );
        let gain = verdict.gain.mean * 100.0;
        let sentence = if runs < 2 {
            format!(
                "{best} is {gain:.1} % shorter than {other}; one run each cannot tell that from noise (--seeds N)"
            )
        } else if verdict.gain.excludes_zero() {
            let half = verdict.gain.half_width * 100.0;
            format!(
                "{best} beats {other} by {gain:.1} % (95 % interval {:.1} to {:.1} %): more than noise",
                gain - half,
                gain + half
            )
        } else {
            let half = verdict.gain.half_width * 100.0;
            format!("{best} and {other} differ by {gain:.1} ± {half:.1} %: not more than noise")
        };
        line(&mut text, &sentence);
    }
    text
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "none".to_owned();
    }
    format!("{:.1} %", part as f64 / whole as f64 * 100.0)
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a string takes every line");
}

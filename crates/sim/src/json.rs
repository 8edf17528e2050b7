//! The results as JSON for programs.

use serde_json::{Value, json};

use crate::estimate::Estimate;
use crate::experiment::Results;
use crate::scenario::Scenario;
use crate::statistics::RunStatistics;
use crate::time::seconds;

/// Everything about one experiment.
#[must_use]
pub fn experiment(scenario: &Scenario, seeds: &[u64], results: &Results) -> Value {
    let variants: Vec<Value> = (0..results.labels.len())
        .map(|variant| {
            let runs: Vec<Value> = results.runs[variant].iter().zip(seeds).map(run).collect();
            json!({
                "label": results.labels[variant],
                "makespan_s": estimate(results.estimate(variant, RunStatistics::makespan_seconds)),
                "ratio_to_bound": estimate(results.estimate(variant, RunStatistics::ratio_to_bound)),
                "mean_wait_s": estimate(results.estimate(variant, RunStatistics::mean_wait)),
                "runs": runs,
            })
        })
        .collect();
    let verdicts: Vec<Value> = results
        .verdicts()
        .iter()
        .map(|verdict| {
            json!({
                "best": results.labels[verdict.best],
                "other": results.labels[verdict.other],
                "gain": estimate(verdict.gain),
                "more_than_noise": verdict.gain.excludes_zero(),
            })
        })
        .collect();
    json!({
        "scenario": scenario.name(),
        "about": scenario.about(),
        "look_for": scenario.look_for(),
        "seeds": seeds,
        "variants": variants,
        "verdicts": verdicts,
    })
}

fn estimate(estimate: Estimate) -> Value {
    // A single run has no interval, and JSON has no infinity.
    let half_width = estimate
        .half_width
        .is_finite()
        .then_some(estimate.half_width);
    json!({"mean": estimate.mean, "half_width_95": half_width})
}

fn run((run, seed): (&RunStatistics, &u64)) -> Value {
    let balance = run.balance();
    let quantile = |rank| seconds(run.waits.quantile(rank).unwrap_or(0));
    let workers: Vec<Value> = run
        .workers
        .iter()
        .map(|worker| {
            json!({
                "speed": worker.speed,
                "slots": worker.slots,
                "executed": worker.executed,
                "busy_s": seconds(worker.busy),
                "stolen": worker.stolen,
                "robbed": worker.robbed,
                "searches": worker.searches,
                "queue_max": worker.queue_max,
            })
        })
        .collect();
    json!({
        "seed": seed,
        "executed": run.executed(),
        "spawned": run.spawned,
        "failed": run.failed,
        "repeated": run.repeated,
        "deadline_misses": run.deadline_misses,
        "stolen": run.stolen(),
        "steal_rate": run.steal_rate(),
        "searches": run.searches(),
        "successful_searches": run.successful_searches,
        "makespan_s": run.makespan_seconds(),
        "lower_bound_s": seconds(run.lower_bound()),
        "ratio_to_bound": run.ratio_to_bound(),
        "speedup": run.speedup(),
        "efficiency": run.efficiency(),
        "wait_s": {
            "mean": run.mean_wait(),
            "p50": quantile(0.5),
            "p99": quantile(0.99),
            "max": seconds(run.waits.max().unwrap_or(0)),
        },
        "mean_response_s": run.mean_response(),
        "balance": {
            "load_imbalance": balance.load_imbalance.value,
            "straggler_ratio": balance.straggler_ratio.value,
            "utilization": balance.utilization.value,
            "queue_depth_variance": balance.queue_depth_variance.value,
        },
        "events": run.events,
        "workers": workers,
    })
}

//! The results, as text and as JSON.

use std::io::{self, Write};

use loxley::{BalanceReport, Metrics};
use loxley_balance::figures::{Figure, Target};
use serde_json::{Value, json};

use super::scenes::{SceneResult, Setting};

pub(super) fn opening(setting: &Setting, cores: usize, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{} agents on {cores} cores, seed {}: real work, five situations\n",
        setting.agents, setting.seed
    )?;
    out.flush()
}

pub(super) fn scene(number: usize, result: &SceneResult, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{number}. {}: {}", result.scene.title(), result.about)?;
    writeln!(
        out,
        "   {} tasks, {} agents, {:.2} s",
        result.tasks, result.agents, result.secs
    )?;
    for fact in &result.facts {
        writeln!(out, "   {fact}")?;
    }
    for (claim, held) in &result.claims {
        let verdict = if *held { "holds" } else { "DOES NOT HOLD" };
        writeln!(out, "   {verdict}: {claim}")?;
    }
    writeln!(out)
}

pub(super) fn closing(results: &[SceneResult], out: &mut dyn Write) -> io::Result<()> {
    let Some(last) = results.last() else {
        return Ok(());
    };
    writeln!(out, "Metrics of the last run")?;
    for (name, value) in published(&last.metrics) {
        writeln!(out, "   {name:<20} {}", plain(&value))?;
    }
    writeln!(out, "   waits, by bound in seconds:")?;
    for (bound, count) in &last.metrics.wait_histogram {
        writeln!(out, "      at most {bound:>4}: {count}")?;
    }
    match last.problems.is_empty() {
        true => writeln!(out, "   health: no problem")?,
        false => {
            for problem in &last.problems {
                writeln!(out, "   {}", problem.to_string().replace('\n', "\n   "))?;
            }
        }
    }
    writeln!(out, "\nBalance, run by run")?;
    writeln!(
        out,
        "   {:<26}{:>10}{:>11}{:>13}{:>10}",
        "", "imbalance", "straggler", "utilization", "variance"
    )?;
    for result in results {
        write!(out, "   {:<26}", result.scene.title())?;
        match &result.balance {
            Some(balance) => {
                let [imbalance, straggler, utilization, variance] = balance.figures().map(short);
                writeln!(
                    out,
                    "{imbalance:>10}{straggler:>11}{utilization:>13}{variance:>10}"
                )?;
            }
            None => writeln!(out, "   not comparable: agents came and went")?,
        }
    }
    writeln!(
        out,
        "   (* target missed; where all tasks begin on one queue, the queues are unequal by design)"
    )?;
    writeln!(out, "\nBalance of the last run")?;
    match &last.balance {
        Some(balance) => writeln!(out, "{balance}"),
        None => writeln!(out, "unknown"),
    }
}

fn short(figure: &Figure) -> String {
    let mark = if figure.met() == Some(true) { " " } else { "*" };
    match figure.value {
        None => "-".into(),
        Some(value) if figure.is_share => format!("{:.1} %{mark}", value * 100.0),
        Some(value) => format!("{value:.2}{mark}"),
    }
}

/// The figures under their published names.
fn published(metrics: &Metrics) -> Vec<(&'static str, Value)> {
    let rounded = |number: f64| json!((number * 1e4).round() / 1e4);
    vec![
        ("total_steals", json!(metrics.total_steals)),
        ("successful_steals", json!(metrics.successful_steals)),
        ("failed_steals", json!(metrics.failed_steals)),
        ("success_rate", rounded(metrics.success_rate)),
        ("tasks_migrated", json!(metrics.tasks_migrated)),
        ("rebalance_cycles", json!(metrics.rebalance_cycles)),
        ("avg_task_wait_time", rounded(metrics.avg_task_wait_time)),
        ("agent_count", json!(metrics.agent_count)),
        ("total_queued", json!(metrics.total_queued)),
        ("busy_agents", json!(metrics.busy_agents)),
        ("idle_agents", json!(metrics.idle_agents)),
        ("total_samples", json!(metrics.total_samples)),
        ("retries", json!(metrics.retries)),
        ("deadline_misses", json!(metrics.deadline_misses)),
        ("stale_answers", json!(metrics.stale_answers)),
    ]
}

fn plain(value: &Value) -> String {
    value.to_string()
}

pub(super) fn json(
    setting: &Setting,
    results: &[SceneResult],
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let scenes: Vec<Value> = results.iter().map(scene_value).collect();
    let value = json!({
        "agents": setting.agents,
        "seed": setting.seed,
        "scenes": scenes,
        "balance": results.last().and_then(|last| last.balance.as_ref()).map(balance_value),
        "claims_hold": results.iter().all(SceneResult::claims_hold),
    });
    serde_json::to_writer(&mut *out, &value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

fn scene_value(result: &SceneResult) -> Value {
    let claims: Vec<Value> = result
        .claims
        .iter()
        .map(|(claim, held)| json!({"claim": claim, "holds": held}))
        .collect();
    let metrics: serde_json::Map<String, Value> = published(&result.metrics)
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let problems: Vec<String> = result.problems.iter().map(ToString::to_string).collect();
    json!({
        "name": result.scene.title(),
        "about": result.about,
        "agents": result.agents,
        "tasks": result.tasks,
        "seconds": result.secs,
        "facts": result.facts,
        "claims": claims,
        "metrics": metrics,
        "problems": problems,
        "balance": result.balance.as_ref().map(balance_value),
    })
}

fn balance_value(balance: &BalanceReport) -> Value {
    balance
        .figures()
        .into_iter()
        .map(|figure| {
            let (side, target) = match figure.target {
                Target::Below(target) => ("below", target),
                Target::Above(target) => ("above", target),
            };
            let value = json!({
                "value": figure.value,
                "target": {(side): target},
                "met": figure.met(),
            });
            (figure.name.replace([' ', '-'], "_"), value)
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}

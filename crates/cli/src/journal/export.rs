//! `loxley journal export`: everything, one JSON object a line.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::Result;
use loxley_engine::facts_of;
use loxley_journal::{Ended, History, JobQuery, JobRow, Limit, Position, TaskQuery, TaskRow};
use loxley_model::{AgentId, Failure};
use serde_json::{Value, json};

use super::write_json;
use crate::exit::Exit;

/// Print everything in the journal as JSON, one object a line.
///
/// First the facts, in order, from the oldest that is kept, each with its group and its time; then the
/// history: agents, jobs (newest first) and finished tasks. Each object says its `kind`. Times are
/// nanoseconds since the moment in the first line, which counts from 1970.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley journal export > everything.jsonl\n  loxley journal export --history | jq 'select(.kind == \"task\" and .ended != \"succeeded\")'"
)]
pub(crate) struct Args {
    /// Begin with the group at this position.
    #[arg(long, value_name = "POSITION")]
    from: Option<u64>,
    /// Leave the facts out.
    #[arg(long, conflicts_with = "from")]
    history: bool,
    /// One JSON object a line, as always: other ways to print everything there are not.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, directory: &Path, out: &mut dyn Write) -> Result<Exit> {
    let history = History::open(directory)?;
    let (first, next) = history.positions()?;
    write_json(
        &json!({
            "kind": "journal",
            "epoch_unix_nanos": history.epoch_unix_nanos()?,
            "first_position": first.0,
            "next_position": next.0,
        }),
        out,
    )?;
    if !args.history {
        facts(&history, args.from.map_or(first, Position), next, out)?;
    }
    agents(&history, out)?;
    jobs(&history, out)?;
    tasks(&history, out)?;
    Ok(Exit::Done)
}

/// Facts up to `end`: what a running server adds meanwhile is for the next export.
fn facts(history: &History, from: Position, end: Position, out: &mut dyn Write) -> Result<()> {
    let names = super::agent_names(history)?;
    let mut position = from;
    while position < end {
        let groups = history.groups(position, Limit::default())?;
        let Some(last) = groups.last() else { break };
        position = last.position.next();
        for group in groups.iter().filter(|group| group.position < end) {
            for (time, fact) in facts_of(group.position, &group.facts)? {
                write_json(&line(group.position, time.0, fact, &names), out)?;
            }
        }
    }
    Ok(())
}

/// A fact with its place, and with the name of its agent.
fn line(position: Position, time: u64, fact: Value, names: &BTreeMap<AgentId, String>) -> Value {
    let mut line = json!({"kind": "fact", "position": position.0, "time": time});
    let name = fact["agent"]
        .as_u64()
        .and_then(|id| names.get(&AgentId(id)));
    if let (Value::Object(line), Value::Object(fact)) = (&mut line, fact) {
        line.extend(fact);
        if let Some(name) = name {
            line.insert("agent_name".to_owned(), name.as_str().into());
        }
    }
    line
}

fn agents(history: &History, out: &mut dyn Write) -> Result<()> {
    let mut after = None;
    loop {
        let page = history.agents(after, 1000)?;
        for row in &page.rows {
            write_json(
                &json!({"kind": "agent", "agent": row.agent.0, "name": row.name}),
                out,
            )?;
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

fn jobs(history: &History, out: &mut dyn Write) -> Result<()> {
    let mut query = JobQuery::default();
    loop {
        let page = history.jobs(&query)?;
        for row in &page.rows {
            write_json(&job(row), out)?;
        }
        query.before = page.next;
        if query.before.is_none() {
            return Ok(());
        }
    }
}

fn tasks(history: &History, out: &mut dyn Write) -> Result<()> {
    let mut query = TaskQuery {
        limit: 1000,
        ..TaskQuery::default()
    };
    loop {
        let page = history.tasks(&query)?;
        for row in &page.rows {
            write_json(&task(row), out)?;
        }
        query.after = page.next;
        if query.after.is_none() {
            return Ok(());
        }
    }
}

fn job(row: &JobRow) -> Value {
    json!({
        "kind": "job",
        "job": row.job.0,
        "name": row.name,
        "user": row.user,
        "first_task": row.first_task.0,
        "tasks": row.task_count,
        "state": row.state.name(),
        "created": row.created.0,
        "finished": row.finished.map(|time| time.0),
        "succeeded": row.succeeded,
        "failed": row.failed,
        "cancelled": row.cancelled,
    })
}

fn task(row: &TaskRow) -> Value {
    json!({
        "kind": "task",
        "task": row.task.0,
        "job": row.job.0,
        "entry": row.entry,
        "ended": ended(row.ended),
        "exit_code": row.exit_code,
        "signal": row.signal,
        "agent": row.agent.map(|agent| agent.0),
        "attempt": row.attempt,
        "created": row.created.0,
        "started": row.started.map(|time| time.0),
        "finished": row.finished.0,
        "usage": row.usage.map(|usage| json!({
            "duration": usage.duration.0,
            "user": usage.user.0,
            "system": usage.system.0,
            "memory_bytes": usage.memory_bytes,
        })),
    })
}

fn ended(ended: Ended) -> &'static str {
    match ended {
        Ended::Succeeded => "succeeded",
        Ended::FellBack => "fell_back",
        Ended::Failed(Failure::Error) => "failed",
        Ended::Failed(Failure::Permanent) => "failed_for_good",
        Ended::Failed(Failure::TimeLimit) => "time_limit",
        Ended::Failed(Failure::AgentLost) => "agent_lost",
        Ended::Failed(Failure::Unassignable) => "unassignable",
        Ended::Failed(Failure::Dependency) => "dependency_failed",
        Ended::Cancelled => "cancelled",
        Ended::Returned => "returned",
    }
}

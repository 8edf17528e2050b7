//! `loxley journal export`: everything, one JSON object a line.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use loxley_journal::{
    Ended, History, JobQuery, JobRow, JobState, Limit, Position, TaskQuery, TaskRow,
};
use loxley_model::Failure;
use serde_json::{Value, json};

use super::write_json;
use crate::exit::Exit;

/// Print everything in the journal as JSON, one object a line.
///
/// First the groups of facts, in order, from the oldest that is kept, their bytes in base64; then the
/// history: agents, jobs (newest first) and finished tasks. Each object says its `kind`. Times are
/// nanoseconds since the moment in the first line, which counts from 1970.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Begin with the group at this position.
    #[arg(long, value_name = "POSITION")]
    from: Option<u64>,
    /// Leave the groups out.
    #[arg(long, conflicts_with = "from")]
    history: bool,
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
        groups(&history, args.from.map_or(first, Position), next, out)?;
    }
    agents(&history, out)?;
    jobs(&history, out)?;
    tasks(&history, out)?;
    Ok(Exit::Done)
}

/// Groups up to `end`: what a running server adds meanwhile is for the next export.
fn groups(history: &History, from: Position, end: Position, out: &mut dyn Write) -> Result<()> {
    let mut position = from;
    while position < end {
        let groups = history.groups(position, Limit::default())?;
        let Some(last) = groups.last() else { break };
        position = last.position.next();
        for group in groups.iter().filter(|group| group.position < end) {
            let line = json!({
                "kind": "group",
                "position": group.position.0,
                "facts": group.fact_count,
                "bytes": STANDARD.encode(&group.facts),
            });
            write_json(&line, out)?;
        }
    }
    Ok(())
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
        "state": match row.state {
            JobState::Open => "open",
            JobState::Succeeded => "succeeded",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
        },
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

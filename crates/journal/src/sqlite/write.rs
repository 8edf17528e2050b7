//! Puts groups, snapshots and rows of history into an open transaction.

use loxley_model::Time;
use rusqlite::{Connection, ErrorCode, OptionalExtension, ToSql, params};

use super::damage::not_written;
use super::head::RowCounts;
use super::runs;
use super::seal::{self, Chain};
use crate::NotWritten;
use crate::group::{Group, Position};
use crate::rows::{AgentRow, JobRow, Rows, TaskOutput, limits, state_code};

pub(super) fn at_most(what: &'static str, size: u64, max: u64) -> Result<(), NotWritten> {
    if size > max {
        return Err(NotWritten::TooLarge { what, size, max });
    }
    Ok(())
}

pub(super) fn group(
    connection: &Connection,
    position: Position,
    group: &Group,
    chain: &Chain,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO groups (position, count, crc, chain, facts) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let crc = seal::group(position, group.fact_count, &group.facts);
    let row = params![position.0 as i64, group.fact_count, crc, chain, group.facts];
    statement.execute(row).map(|_| ())
}

/// Drops groups, and snapshots that would need them. Returns how many groups that is.
pub(super) fn drop_before(connection: &Connection, before: Position) -> rusqlite::Result<u64> {
    let before = [before.0 as i64];
    connection.execute("DELETE FROM snapshots WHERE position < ?1", before)?;
    let gone = connection.execute("DELETE FROM groups WHERE position < ?1", before)?;
    Ok(gone as u64)
}

pub(super) fn rows(
    connection: &Connection,
    rows: &Rows,
    counts: &mut RowCounts,
) -> Result<(), NotWritten> {
    let most = limits::ROWS_MAX as u64;
    for length in [
        rows.tasks.len(),
        rows.outputs.len(),
        rows.jobs.len(),
        rows.agents.len(),
    ] {
        at_most("a list of rows", length as u64, most)?;
    }
    counts.tasks += runs::write(connection, rows)?;
    for row in &rows.outputs {
        counts.outputs += u64::from(output(connection, row)?);
    }
    for row in &rows.jobs {
        counts.jobs += u64::from(job(connection, row)?);
    }
    for row in &rows.agents {
        counts.agents += u64::from(agent(connection, row)?);
    }
    Ok(())
}

/// True: the row is new.
fn output(connection: &Connection, row: &TaskOutput) -> Result<bool, NotWritten> {
    at_most(
        "an output",
        row.output.len() as u64,
        limits::OUTPUT_BYTES_MAX as u64,
    )?;
    at_most(
        "a result",
        row.result.len() as u64,
        limits::RESULT_BYTES_MAX as u64,
    )?;
    put(
        connection,
        "INSERT INTO outputs VALUES (?1, ?2, ?3, ?4)",
        "REPLACE INTO outputs VALUES (?1, ?2, ?3, ?4)",
        params![
            number("a task id", row.task.0)?,
            row.output,
            row.result,
            seal::output(row),
        ],
    )
}

fn job(connection: &Connection, row: &JobRow) -> Result<bool, NotWritten> {
    let described;
    let row = match row.detail.is_empty() {
        true => {
            described = with_known_detail(connection, row)?;
            &described
        }
        false => row,
    };
    let name_max = limits::NAME_BYTES_MAX as u64;
    at_most("the name of a job", row.name.len() as u64, name_max)?;
    at_most("the name of a user", row.user.len() as u64, name_max)?;
    at_most(
        "the description of a job",
        row.detail.len() as u64,
        limits::DETAIL_BYTES_MAX as u64,
    )?;
    let end = row.first_task.0.saturating_add(row.task_count);
    at_most("a task id", end, limits::TASK_MAX)?;
    put(
        connection,
        "INSERT INTO jobs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        "REPLACE INTO jobs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        params![
            number("a job id", row.job.0)?,
            row.name,
            row.user,
            number("a task id", row.first_task.0)?,
            number("a number of tasks", row.task_count)?,
            state_code(row.state),
            time(row.created)?,
            row.finished.map(time).transpose()?,
            number("a number of tasks", row.succeeded)?,
            number("a number of tasks", row.failed)?,
            number("a number of tasks", row.cancelled)?,
            row.detail,
            seal::job(row),
        ],
    )
}

/// A row that says nothing of what the job is keeps what was said before.
fn with_known_detail(connection: &Connection, row: &JobRow) -> Result<JobRow, NotWritten> {
    let job = number("a job id", row.job.0)?;
    let known = connection
        .prepare_cached("SELECT detail FROM jobs WHERE job = ?1")
        .and_then(|mut query| query.query_row([job], |row| row.get(0)).optional());
    Ok(JobRow {
        detail: known.map_err(not_written)?.unwrap_or_default(),
        ..row.clone()
    })
}

fn agent(connection: &Connection, row: &AgentRow) -> Result<bool, NotWritten> {
    at_most(
        "the name of an agent",
        row.name.len() as u64,
        limits::NAME_BYTES_MAX as u64,
    )?;
    put(
        connection,
        "INSERT INTO agents VALUES (?1, ?2, ?3)",
        "REPLACE INTO agents VALUES (?1, ?2, ?3)",
        params![
            number("an agent id", row.agent.0)?,
            row.name,
            seal::agent(row)
        ],
    )
}

/// Inserts a row; where one is already, replaces it. Told apart because the head counts rows.
fn put(
    connection: &Connection,
    insert: &str,
    replace: &str,
    row: &[&dyn ToSql],
) -> Result<bool, NotWritten> {
    let run = |text: &str| connection.prepare_cached(text)?.execute(row);
    match run(insert) {
        Ok(_) => Ok(true),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            run(replace).map(|_| false).map_err(not_written)
        }
        Err(error) => Err(not_written(error)),
    }
}

pub(super) fn number(what: &'static str, number: u64) -> Result<i64, NotWritten> {
    at_most(what, number, limits::NUMBER_MAX)?;
    Ok(number as i64)
}

fn time(time: Time) -> Result<i64, NotWritten> {
    number("a time", time.0)
}

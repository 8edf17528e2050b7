//! Forgetting: jobs that have been over for long, with all their tasks.

use std::ops::Range;

use loxley_model::{JobId, Time};
use rusqlite::{Connection, params};

use super::damage::not_written;
use super::engine::SqliteJournal;
use super::head::RowCounts;
use super::runs;
use crate::group::Journal;
use crate::rows::limits;
use crate::{AppendError, NotWritten};

/// What was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// So many jobs.
    pub jobs: u64,
    /// So many tasks.
    pub tasks: u64,
    /// So many groups of facts that the newest snapshot makes needless.
    pub groups: u64,
    /// Whether there is more to forget.
    pub more: bool,
}

/// Rows that one transaction of [`SqliteJournal::prune`] deletes.
const DELETED_AT_ONCE: u64 = 10_000;

impl SqliteJournal {
    /// Forgets jobs that ended before `older_than`, with their tasks, until about `rows_max` rows are
    /// gone, and all groups that nobody needs to go on: those before the newest snapshot. The room is used again; [`compact`](Self::compact) gives it back to the system.
    ///
    /// The row of a job goes last: as long as it is there, it says how its tasks ended as a whole.
    pub fn prune(&mut self, older_than: Time, rows_max: u64) -> Result<Pruned, AppendError> {
        let older_than = older_than.0.min(limits::NUMBER_MAX) as i64;
        let mut pruned = Pruned {
            more: true,
            ..Pruned::default()
        };
        while pruned.more && pruned.jobs + pruned.tasks < rows_max {
            let room = DELETED_AT_ONCE.min(rows_max - pruned.jobs - pruned.tasks);
            let step = self.commit(|connection, head| {
                prune_some(connection, &mut head.rows, older_than, room)
            })?;
            pruned.jobs += step.jobs;
            pruned.tasks += step.tasks;
            pruned.more = step.more;
        }
        pruned.groups = self.drop_covered()?;
        Ok(pruned)
    }

    /// Drops the groups before the newest snapshot, if that can be read. One that cannot is the reason to
    /// keep them.
    fn drop_covered(&mut self) -> Result<u64, AppendError> {
        match self.latest_snapshot() {
            Ok(Some(snapshot)) => self.truncate(snapshot.position),
            Ok(None) | Err(_) => Ok(0),
        }
    }

    /// Gives unused room back to the system, when more than a quarter of the file is unused. Writes
    /// the file anew: for a server that is not running, or has an hour off.
    pub fn compact(&mut self) -> Result<bool, AppendError> {
        let refused = |error| AppendError::NotWritten(not_written(error));
        let number = |pragma| {
            let value = self
                .connection()
                .pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
            value.map_err(refused)
        };
        if number("freelist_count")? * 4 <= number("page_count")? {
            return Ok(false);
        }
        let connection = self.connection();
        connection.execute_batch("VACUUM").map_err(refused)?;
        connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))
            .map_err(|error| AppendError::NotWritten(NotWritten::Storage(Box::new(error))))?;
        self.log().note_cut();
        Ok(true)
    }
}

fn prune_some(
    connection: &Connection,
    counts: &mut RowCounts,
    older_than: i64,
    room: u64,
) -> Result<Pruned, NotWritten> {
    let mut pruned = Pruned::default();
    let mut over = Vec::new();
    for (job, tasks) in jobs_before(connection, older_than, room).map_err(not_written)? {
        let left = room.saturating_sub(pruned.tasks + over.len() as u64);
        if left == 0 {
            pruned.more = true;
            break;
        }
        let deleted = delete_tasks(connection, counts, job, tasks, left)?;
        pruned.tasks += deleted;
        if deleted == left {
            pruned.more = true;
            break;
        }
        over.push(job);
    }
    for job in over {
        let deleted = delete_job(connection, job).map_err(not_written)?;
        pruned.jobs += deleted;
        counts.jobs = counts.jobs.saturating_sub(deleted);
    }
    Ok(pruned)
}

/// Jobs that ended before, and their tasks: one more than there is room for, so that it is seen when there
/// are more.
fn jobs_before(
    connection: &Connection,
    older_than: i64,
    room: u64,
) -> rusqlite::Result<Vec<(JobId, Range<u64>)>> {
    let mut statement = connection.prepare_cached(
        "SELECT job, first_task, task_count FROM jobs WHERE finished < ?1 ORDER BY job LIMIT ?2",
    )?;
    let jobs = statement.query_map(params![older_than, room as i64 + 1], |row| {
        let number = |column| row.get::<_, i64>(column).map(|number| number as u64);
        let first = number(1)?;
        Ok((JobId(number(0)?), first..first.saturating_add(number(2)?)))
    })?;
    jobs.collect()
}

fn delete_job(connection: &Connection, job: JobId) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached("DELETE FROM jobs WHERE job = ?1")?;
    Ok(statement.execute([job.0 as i64])? as u64)
}

/// Deletes at most `most` tasks of a job and what they left behind; says how many.
fn delete_tasks(
    connection: &Connection,
    counts: &mut RowCounts,
    job: JobId,
    tasks: Range<u64>,
    most: u64,
) -> Result<u64, NotWritten> {
    if tasks.is_empty() {
        return Ok(0);
    }
    let deleted = runs::delete(connection, job, tasks.start, tasks.end - 1, most)
        .map_err(|error| NotWritten::Storage(Box::new(error)))?;
    counts.tasks = counts.tasks.saturating_sub(deleted.entries);
    let mut statement = connection
        .prepare_cached("DELETE FROM outputs WHERE task >= ?1 AND task < ?2")
        .map_err(not_written)?;
    let outputs = statement
        .execute([tasks.start as i64, deleted.end as i64])
        .map_err(not_written)?;
    counts.outputs = counts.outputs.saturating_sub(outputs as u64);
    Ok(deleted.tasks)
}

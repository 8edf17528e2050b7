//! Forgetting: jobs that have been over for long, with all their tasks.

use loxley_model::Time;
use rusqlite::{Connection, params};

use super::damage::not_written;
use super::engine::SqliteJournal;
use super::head::RowCounts;
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
            let step = self.commit(0, |connection, head| {
                prune_some(connection, &mut head.rows, older_than, room).map_err(not_written)
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
        Ok(true)
    }
}

fn prune_some(
    connection: &Connection,
    counts: &mut RowCounts,
    older_than: i64,
    room: u64,
) -> rusqlite::Result<Pruned> {
    let mut pruned = Pruned::default();
    let mut candidates = connection.prepare_cached(
        "SELECT job, first_task, task_count FROM jobs WHERE finished < ?1 ORDER BY job",
    )?;
    let mut jobs = candidates.query([older_than])?;
    let mut over = Vec::new();
    while let Some(row) = jobs.next()? {
        let (job, first, count): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let left = room.saturating_sub(pruned.tasks + over.len() as u64);
        if left == 0 {
            pruned.more = true;
            break;
        }
        let last = first.saturating_add(count);
        let (tasks, outputs) = delete_tasks(connection, job, first, last, left)?;
        counts.tasks -= tasks;
        counts.outputs -= outputs;
        pruned.tasks += tasks;
        if tasks == left {
            pruned.more = true;
            break;
        }
        over.push(job);
    }
    drop(jobs);
    for job in over {
        let deleted = connection
            .prepare_cached("DELETE FROM jobs WHERE job = ?1")?
            .execute([job])?;
        pruned.jobs += deleted as u64;
        counts.jobs -= deleted as u64;
    }
    Ok(pruned)
}

/// Deletes at most `most` tasks of a job and what they left behind; says how many of each.
fn delete_tasks(
    connection: &Connection,
    job: i64,
    first: i64,
    last: i64,
    most: u64,
) -> rusqlite::Result<(u64, u64)> {
    let mut doomed = connection.prepare_cached(
        "SELECT task FROM tasks WHERE task BETWEEN ?1 AND ?2 AND job = ?3 LIMIT ?4",
    )?;
    let doomed: Vec<i64> = doomed
        .query_map(params![first, last, job, most as i64], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut tasks = 0;
    let mut outputs = 0;
    for task in doomed {
        let delete = |text| connection.prepare_cached(text)?.execute([task]);
        tasks += delete("DELETE FROM tasks WHERE task = ?1")? as u64;
        outputs += delete("DELETE FROM outputs WHERE task = ?1")? as u64;
    }
    Ok((tasks, outputs))
}

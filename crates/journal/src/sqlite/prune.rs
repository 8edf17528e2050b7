//! Forgetting: jobs that have been over for long, with all their tasks.

use std::ops::Range;

use loxley_model::{JobId, Time};
use rusqlite::{Connection, OptionalExtension, params};

use super::damage::not_written;
use super::engine::SqliteJournal;
use super::head::RowCounts;
use super::runs;
use crate::group::{Journal, Position, PruneStage, Pruned, Pruning, Retention, Room};
use crate::rows::limits;
use crate::{AppendError, NotWritten};

/// Rows that one transaction deletes.
const DELETED_AT_ONCE: u64 = 10_000;

/// Rows that one step of [`Journal::prune_some`] deletes: others wait for it.
const DELETED_IN_A_STEP: u64 = 1_000;

/// Pages that one step gives back.
const PAGES_IN_A_STEP: u64 = 256;

/// Jobs that go at once because the journal is too large, as a share of those that are over.
const SHARE_AT_ONCE: u64 = 16;

impl SqliteJournal {
    /// Forgets jobs that ended before `older_than`, with their tasks, until about `rows_max` rows are
    /// gone, and all groups that nobody needs to go on: those before the newest snapshot. The room is used again.
    ///
    /// The row of a job goes last: as long as it is there, it says how its tasks ended as a whole.
    pub fn prune(&mut self, older_than: Time, rows_max: u64) -> Result<Pruned, AppendError> {
        let mut pruned = Pruned {
            more: true,
            ..Pruned::default()
        };
        while pruned.more && pruned.jobs + pruned.tasks < rows_max {
            let room = DELETED_AT_ONCE.min(rows_max - pruned.jobs - pruned.tasks);
            let step = self.forget(older_than, room)?;
            pruned.jobs += step.jobs;
            pruned.tasks += step.tasks;
            pruned.more = step.more;
        }
        if let Some(to) = covered(self) {
            pruned.groups = self.truncate(to)?;
        }
        Ok(pruned)
    }

    /// All steps of [`Journal::prune_some`] at once. On a full disk the reserve is given up for it.
    pub fn prune_all(&mut self, retention: Retention) -> Result<Pruned, AppendError> {
        let mut pruning = Pruning::new(retention);
        loop {
            match self.prune_some(&mut pruning) {
                Ok(true) => {}
                Ok(false) => return Ok(pruning.pruned),
                Err(AppendError::NotWritten(NotWritten::DiskFull))
                    if self.give_up_reserve().is_some() => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn forget(&mut self, older_than: Time, rows_max: u64) -> Result<Pruned, AppendError> {
        let older_than = older_than.0.min(limits::NUMBER_MAX) as i64;
        self.commit(|connection, head| prune_some(connection, &mut head.rows, older_than, rows_max))
    }
}

/// The groups before this are not needed to go on: the newest snapshot can be read. One that cannot is the reason to
/// keep them.
fn covered(journal: &mut SqliteJournal) -> Option<Position> {
    let newest = journal.snapshots().ok()?.first().copied()?;
    if newest <= journal.first_position() {
        return None;
    }
    journal.snapshot(newest).ok().map(|kept| kept.position)
}

/// Takes the next step; false when that was the last.
pub(super) fn step(
    journal: &mut SqliteJournal,
    pruning: &mut Pruning,
) -> Result<bool, AppendError> {
    let refused = |error| AppendError::NotWritten(not_written(error));
    let pruned = &mut pruning.pruned;
    match pruning.stage {
        PruneStage::Begin => {
            if pruning.retention.spare_bytes == 0 {
                // Room is wanted: the log is the first to give some.
                journal.settle_log()?;
            }
            pruning.stage = match limit(journal, &pruning.retention).map_err(refused)? {
                Time::ZERO => PruneStage::Measure,
                before => PruneStage::Jobs(before),
            };
        }
        PruneStage::Jobs(before) => {
            let step = journal.forget(before, DELETED_IN_A_STEP)?;
            pruned.jobs += step.jobs;
            pruned.tasks += step.tasks;
            if !step.more {
                pruning.stage = PruneStage::Measure;
            }
        }
        PruneStage::Measure => {
            let Room { bytes, unused } = room(journal.connection()).map_err(refused)?;
            let bytes_max = pruning.retention.bytes_max.unwrap_or(u64::MAX);
            let too_large = bytes - unused > bytes_max;
            let forgot = pruned.jobs + pruned.tasks > 0;
            pruning.stage = if !pruning.groups_dropped && (too_large || forgot) {
                pruning.groups_dropped = true;
                let to = covered(journal);
                PruneStage::Groups(to.unwrap_or(journal.first_position()))
            } else if too_large && let Some(before) = oldest(journal).map_err(refused)? {
                PruneStage::Jobs(before)
            } else {
                PruneStage::Room
            };
        }
        PruneStage::Groups(before) => {
            if journal.first_position() < before {
                pruned.groups += journal.drop_some(before)?;
            } else {
                pruning.stage = PruneStage::Measure;
            }
        }
        PruneStage::Room => {
            let given = give_back(journal, PAGES_IN_A_STEP, pruning.retention.spare_bytes)?;
            pruned.bytes += given;
            if given == 0 {
                if pruned.bytes > 0 {
                    journal.settle_log()?;
                }
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// How much of the file is in use.
pub(super) fn room(connection: &Connection) -> rusqlite::Result<Room> {
    let number = |pragma| -> rusqlite::Result<u64> {
        let value = connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0))?;
        Ok(value as u64)
    };
    let page = number("page_size")?;
    Ok(Room {
        bytes: number("page_count")? * page,
        unused: number("freelist_count")? * page,
    })
}

/// Cuts some unused pages off the end of the file, after those in use have moved away from there; how many bytes that
/// was. The file itself becomes shorter when the log is moved into it.
fn give_back(journal: &mut SqliteJournal, pages: u64, spare: u64) -> Result<u64, AppendError> {
    let refused = |error| AppendError::NotWritten(not_written(error));
    let before = room(journal.connection()).map_err(refused)?;
    if before.unused <= spare {
        return Ok(0);
    }
    journal.commit(|connection, _| {
        let mut statement = connection
            .prepare(&format!("PRAGMA incremental_vacuum({pages})"))
            .map_err(not_written)?;
        let mut steps = statement.query(()).map_err(not_written)?;
        while steps.next().map_err(not_written)?.is_some() {}
        Ok(())
    })?;
    let after = room(journal.connection()).map_err(refused)?;
    Ok(before.bytes.saturating_sub(after.bytes))
}

/// Jobs that ended before this are to go, whatever room there is.
fn limit(journal: &SqliteJournal, retention: &Retention) -> rusqlite::Result<Time> {
    let by_count = match retention.jobs_max {
        Some(keep) => Some(end_of_nth(journal.connection(), keep)?),
        None => None,
    };
    let limits = [retention.older_than, by_count].into_iter().flatten();
    let limit = match retention.both {
        true => limits.min(),
        false => limits.max(),
    };
    Ok(limit.unwrap_or(Time::ZERO))
}

/// When the job ended that is the last to be kept, counted from the one that ended last; nothing is before the start
/// when there are fewer.
fn end_of_nth(connection: &Connection, keep: u64) -> rusqlite::Result<Time> {
    let ended = |skip: u64| {
        connection
            .query_row(
                "SELECT finished FROM jobs WHERE finished IS NOT NULL ORDER BY finished DESC \
                 LIMIT 1 OFFSET ?1",
                [skip.min(limits::NUMBER_MAX) as i64],
                |row| row.get::<_, i64>(0),
            )
            .optional()
    };
    Ok(match keep.checked_sub(1) {
        Some(nth) => ended(nth)?.map_or(Time::ZERO, |end| Time(end as u64)),
        None => ended(0)?.map_or(Time::ZERO, |end| Time(end as u64 + 1)),
    })
}

/// The moment before which the first of the jobs ended that are over: a share of them, at least one. None: no job is
/// over.
fn oldest(journal: &SqliteJournal) -> rusqlite::Result<Option<Time>> {
    let share = journal.head().rows.jobs / SHARE_AT_ONCE;
    let connection = journal.connection();
    let ended = |skip: u64| {
        connection
            .query_row(
                "SELECT finished FROM jobs WHERE finished IS NOT NULL ORDER BY finished \
                 LIMIT 1 OFFSET ?1",
                [skip as i64],
                |row| row.get::<_, i64>(0),
            )
            .optional()
    };
    let end = match ended(share)? {
        Some(end) => Some(end),
        None => ended(0)?,
    };
    Ok(end.map(|end| Time(end as u64 + 1)))
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

//! Questions about what is over, asked while the owner writes.
//!
//! Every answer is bounded and carries where to go on. Every row is held against its CRC.

use std::path::Path;

use loxley_model::{AgentId, JobId, TaskId, Time};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::damage::damaged;
use super::head::Head;
use super::runs::{self, Block};
use super::{open, read, seal, snapshots};
use crate::group::{Limit, Position, Snapshot, StoredGroup};
use crate::reader::BlockStamp;
use crate::rows::{
    AgentRow, Ended, JobRow, JobState, TaskOutput, TaskRow, limits, state_code, state_of,
};
use crate::{OpenError, ReadError};

/// A reader of a journal, with a connection of its own. It takes no lock and sees what was committed
/// when it asks. One per thread, or behind a mutex.
#[derive(Debug)]
pub struct History {
    connection: Connection,
}

/// Which tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskQuery {
    /// Of this job.
    pub job: Option<JobId>,
    /// That ended like this.
    pub filter: TaskFilter,
    /// After this task: the `next` of the page before.
    pub after: Option<TaskId>,
    /// At most so many; 0 is 100, and [`limits::PAGE_ROWS_MAX`] is the most.
    pub limit: usize,
}

/// How they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskFilter {
    /// All.
    #[default]
    Any,
    /// With success, or something stands in.
    Succeeded,
    /// Failed.
    Failed,
    /// Cancelled, skipped or returned.
    Cancelled,
    /// Everything but successes.
    Unsuccessful,
}

/// Which jobs, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobQuery {
    /// That stand like this.
    pub state: Option<JobState>,
    /// Of this user.
    pub user: Option<String>,
    /// Before this job: the `next` of the page before.
    pub before: Option<JobId>,
    /// At most so many; 0 is 100, and [`limits::PAGE_ROWS_MAX`] is the most.
    pub limit: usize,
}

/// Some rows, and where the next ones begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<RowType, Cursor> {
    /// The rows.
    pub rows: Vec<RowType>,
    /// What to ask for next; none at the end.
    pub next: Option<Cursor>,
}

impl TaskFilter {
    fn admits(self, ended: Ended) -> bool {
        match self {
            Self::Any => true,
            Self::Succeeded => ended.is_success(),
            Self::Failed => matches!(ended, Ended::Failed(_)),
            Self::Cancelled => matches!(ended, Ended::Cancelled | Ended::Returned),
            Self::Unsuccessful => !ended.is_success(),
        }
    }

    /// Whether a success is of no interest.
    fn is_unsuccessful(self) -> bool {
        matches!(self, Self::Failed | Self::Cancelled | Self::Unsuccessful)
    }
}

impl History {
    /// Opens the journal in `directory` to read it.
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let connection = open::connect_to_read(directory)?;
        open::load(directory, &connection)?;
        Ok(Self { connection })
    }

    /// A finished task.
    pub fn task(&self, task: TaskId) -> Result<Option<TaskRow>, ReadError> {
        let entry = runs::task(&self.connection, task)?;
        Ok(entry.map(|entry| entry.row))
    }

    /// The end of what a finished task printed.
    pub fn output(&self, task: TaskId) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(self.left_behind(task)?.map(|row| row.output))
    }

    /// What a finished task returned.
    pub fn result(&self, task: TaskId) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(self.left_behind(task)?.map(|row| row.result))
    }

    /// Finished tasks, in the order of their ids.
    pub fn tasks(&self, query: &TaskQuery) -> Result<Page<TaskRow, TaskId>, ReadError> {
        // One view of all blocks that the page is made of.
        let view = self.connection.unchecked_transaction()?;
        let limit = page_limit(query.limit);
        let (mut first, last) = match query.job.map(|job| self.job(job)).transpose()? {
            None => (0, limits::TASK_MAX),
            // The tasks of a job stand together, so a range of ids takes the place of an index.
            Some(Some(row)) if row.task_count > 0 => {
                let last = row.first_task.0.saturating_add(row.task_count - 1);
                (row.first_task.0, last)
            }
            Some(_) => return Ok(page(Vec::new(), limit, |row: &TaskRow| row.task)),
        };
        if let Some(after) = query.after {
            first = first.max(after.0.saturating_add(1));
        }
        let mut rows = Vec::new();
        let mut from = Block::of(TaskId(first));
        let filter = query.filter;
        while let Some(block) = runs::next_block(&view, from, filter.is_unsuccessful())? {
            if block > Block::of(TaskId(last)) || first > last || rows.len() > limit {
                break;
            }
            let found = runs::tasks(&view, block, first, last)?.into_iter();
            rows.extend(found.filter(|row| filter.admits(row.ended)));
            from = block.next();
        }
        // One row more than asked for tells that there are more.
        rows.truncate(limit + 1);
        Ok(page(rows, limit, |row| row.task))
    }

    /// The first block of neighbouring tasks, from the one of `from` on, that holds anything.
    pub fn next_block(&self, from: TaskId) -> Result<Option<BlockStamp>, ReadError> {
        let Some(block) = runs::next_block(&self.connection, Block::of(from), false)? else {
            return Ok(None);
        };
        Ok(Some(BlockStamp {
            first: block.first_task(),
            next: block.next().first_task(),
            stamp: runs::stamp(&self.connection, block)?,
        }))
    }

    /// The finished tasks of the block of a task, in the order of their ids.
    pub fn block(&self, task: TaskId) -> Result<Vec<TaskRow>, ReadError> {
        runs::tasks(&self.connection, Block::of(task), 0, limits::TASK_MAX)
    }

    /// A job.
    pub fn job(&self, job: JobId) -> Result<Option<JobRow>, ReadError> {
        self.one("SELECT * FROM jobs WHERE job = ?1", [job.0 as i64], job_row)
    }

    /// Jobs, newest first.
    pub fn jobs(&self, query: &JobQuery) -> Result<Page<JobRow, JobId>, ReadError> {
        let limit = page_limit(query.limit);
        let newest = query.before.map_or(i64::MAX, |job| job.0 as i64 - 1);
        let rows = self.many(
            "SELECT * FROM jobs WHERE job <= ?1 AND (?2 IS NULL OR state = ?2) \
             AND (?3 IS NULL OR user = ?3) ORDER BY job DESC LIMIT ?4",
            params![
                newest,
                query.state.map(state_code),
                query.user,
                limit as i64 + 1
            ],
            job_row,
        )?;
        Ok(page(rows, limit, |row| row.job))
    }

    /// The agents that ever got a number, in the order of their numbers, after `after`.
    pub fn agents(
        &self,
        after: Option<AgentId>,
        limit: usize,
    ) -> Result<Page<AgentRow, AgentId>, ReadError> {
        let limit = page_limit(limit);
        let rows = self.many(
            "SELECT * FROM agents WHERE agent > ?1 ORDER BY agent LIMIT ?2",
            params![
                after.map_or(i64::MIN, |agent| agent.0 as i64),
                limit as i64 + 1
            ],
            agent_row,
        )?;
        Ok(page(rows, limit, |row| row.agent))
    }

    /// What tasks left behind, in the order of their ids, after `after`.
    pub(super) fn outputs(
        &self,
        after: Option<TaskId>,
        limit: usize,
    ) -> Result<Page<TaskOutput, TaskId>, ReadError> {
        let rows = self.many(
            "SELECT * FROM outputs WHERE task > ?1 ORDER BY task LIMIT ?2",
            params![
                after.map_or(i64::MIN, |task| task.0 as i64),
                limit as i64 + 1
            ],
            output_row,
        )?;
        Ok(page(rows, limit, |row| row.task))
    }

    /// Which tasks from `first` to `last` left something behind, also when they ended before, and how many bytes.
    pub(crate) fn output_sizes(
        &self,
        first: TaskId,
        last: TaskId,
    ) -> Result<Vec<(TaskId, u64)>, ReadError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT task, length(output) + length(result) FROM outputs \
             WHERE task >= ?1 AND task <= ?2 ORDER BY task",
        )?;
        let range = params![
            first.0.min(limits::TASK_MAX) as i64,
            last.0.min(limits::TASK_MAX) as i64
        ];
        let rows =
            statement.query_map(range, |row| Ok((TaskId(number(row, 0)?), number(row, 1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The first group that is kept, and where the next one goes.
    pub fn positions(&self) -> Result<(Position, Position), ReadError> {
        let head = self.head()?;
        Ok((head.base, head.next))
    }

    /// When the journal was made, in nanoseconds since 1970. Times in its rows count from here.
    pub fn epoch_unix_nanos(&self) -> Result<u64, ReadError> {
        Ok(self.head()?.epoch)
    }

    /// Groups from `from` on, as [`Journal::read`](crate::Journal::read).
    pub fn groups(&self, from: Position, limit: Limit) -> Result<Vec<StoredGroup>, ReadError> {
        // One view of head and groups, also while the owner drops some.
        let view = self.connection.unchecked_transaction()?;
        read::groups(&view, &Head::load(&view)?, from, limit)
    }

    /// The newest snapshot.
    pub fn latest_snapshot(&self) -> Result<Option<Snapshot>, ReadError> {
        let view = self.connection.unchecked_transaction()?;
        let head = Head::load(&view)?;
        let newest = snapshots::list(&view, &head)?.first().copied();
        newest
            .map(|at| snapshots::read(&view, &head, at))
            .transpose()
    }

    /// Where the snapshots stand that are kept, newest first. Each is held against its CRC and its place in
    /// the chain.
    pub fn snapshots(&self) -> Result<Vec<Position>, ReadError> {
        let view = self.connection.unchecked_transaction()?;
        let head = Head::load(&view)?;
        let found = snapshots::list(&view, &head)?;
        for at in &found {
            snapshots::read(&view, &head, *at)?;
        }
        Ok(found)
    }

    /// The snapshot at one of these places.
    pub fn snapshot(&self, at: Position) -> Result<Snapshot, ReadError> {
        let view = self.connection.unchecked_transaction()?;
        snapshots::read(&view, &Head::load(&view)?, at)
    }

    pub(super) fn head(&self) -> Result<Head, ReadError> {
        Head::load(&self.connection)
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(super) fn over(connection: Connection) -> Self {
        Self { connection }
    }

    /// What the task left behind when it ended last: a row from an earlier end does not count.
    pub(crate) fn left_behind(&self, task: TaskId) -> Result<Option<TaskOutput>, ReadError> {
        let entry = runs::task(&self.connection, task)?;
        if !entry.is_some_and(|entry| entry.left_output) {
            return Ok(None);
        }
        self.one(
            "SELECT * FROM outputs WHERE task = ?1",
            [task.0 as i64],
            output_row,
        )
    }

    fn one<T>(
        &self,
        text: &str,
        params: impl Params,
        parse: impl FnOnce(&Row<'_>) -> rusqlite::Result<Parsed<T>>,
    ) -> Result<Option<T>, ReadError> {
        let mut statement = self.connection.prepare_cached(text)?;
        let found = statement.query_row(params, parse).optional()?;
        found.map(Parsed::verified).transpose()
    }

    fn many<T>(
        &self,
        text: &str,
        params: impl Params,
        parse: impl FnMut(&Row<'_>) -> rusqlite::Result<Parsed<T>>,
    ) -> Result<Vec<T>, ReadError> {
        let mut statement = self.connection.prepare_cached(text)?;
        let rows = statement.query_map(params, parse)?;
        rows.map(|row| row?.verified()).collect()
    }
}

/// A row as it was read; `name` says which, if it is not what was written.
struct Parsed<T> {
    row: Option<T>,
    name: String,
}

impl<T> Parsed<T> {
    fn verified(self) -> Result<T, ReadError> {
        self.row
            .ok_or_else(|| damaged(format!("the row of {}", self.name), "the CRC does not fit"))
    }
}

fn output_row(row: &Row<'_>) -> rusqlite::Result<Parsed<TaskOutput>> {
    let parsed = TaskOutput {
        task: TaskId(number(row, 0)?),
        output: row.get(1)?,
        result: row.get(2)?,
    };
    let crc: u32 = row.get(3)?;
    Ok(Parsed {
        name: format!("the output of {}", parsed.task),
        row: (seal::output(&parsed) == crc).then_some(parsed),
    })
}

fn job_row(row: &Row<'_>) -> rusqlite::Result<Parsed<JobRow>> {
    let job = JobId(number(row, 0)?);
    let parsed: Option<rusqlite::Result<JobRow>> = state_of(row.get(5)?).map(|state| {
        Ok(JobRow {
            job,
            name: row.get(1)?,
            user: row.get(2)?,
            first_task: TaskId(number(row, 3)?),
            task_count: number(row, 4)?,
            state,
            created: Time(number(row, 6)?),
            finished: maybe(row, 7)?.map(Time),
            succeeded: number(row, 8)?,
            failed: number(row, 9)?,
            cancelled: number(row, 10)?,
            detail: row.get(11)?,
        })
    });
    let crc: u32 = row.get(12)?;
    Ok(Parsed {
        row: parsed.transpose()?.filter(|row| seal::job(row) == crc),
        name: job.to_string(),
    })
}

fn agent_row(row: &Row<'_>) -> rusqlite::Result<Parsed<AgentRow>> {
    let parsed = AgentRow {
        agent: AgentId(number(row, 0)?),
        name: row.get(1)?,
    };
    let crc: u32 = row.get(2)?;
    Ok(Parsed {
        name: parsed.agent.to_string(),
        row: (seal::agent(&parsed) == crc).then_some(parsed),
    })
}

fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|number| number as u64)
}

fn maybe(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    let number = row.get::<_, Option<i64>>(column)?;
    Ok(number.map(|number| number as u64))
}

fn page_limit(asked: usize) -> usize {
    match asked {
        0 => 100,
        asked => asked.min(limits::PAGE_ROWS_MAX),
    }
}

/// One row more than asked for was fetched, to know whether there are more.
fn page<RowType, Cursor>(
    mut rows: Vec<RowType>,
    limit: usize,
    cursor: impl Fn(&RowType) -> Cursor,
) -> Page<RowType, Cursor> {
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = more.then(|| rows.last().map(cursor)).flatten();
    Page { rows, next }
}

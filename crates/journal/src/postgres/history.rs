//! Questions about what is over, over a connection of their own.

use std::cell::RefCell;

use loxley_model::{AgentId, JobId, Span, TaskId, Time};
use tokio::runtime::Runtime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::address::Address;
use super::journal::{damaged, runtime};
use super::link::{Link, says};
use crate::group::{Limit, Position, StoredGroup};
use crate::reader::{BLOCK_TASKS, BlockStamp, ReadHistory};
use crate::rows::{
    AgentRow, Ended, JobRow, TaskOutput, TaskRow, Usage, limits, state_code, state_of,
};
use crate::sqlite::seal;
use crate::sqlite::{JobQuery, Page, TaskFilter, TaskQuery};
use crate::{DatabaseError, OpenError, ReadError};

/// A reader of a journal in PostgreSQL. One per thread.
#[derive(Debug)]
pub struct PostgresHistory {
    runtime: Option<Runtime>,
    address: Address,
    shard: i32,
    link: RefCell<Option<Link>>,
}

impl PostgresHistory {
    /// Opens the journal of a shard at this address to read it.
    ///
    /// # Errors
    /// When the database cannot be used.
    pub fn open(address: &Address, shard: i32) -> Result<Self, OpenError> {
        let runtime = runtime().map_err(|error| DatabaseError::Other {
            place: address.place(),
            why: error.to_string(),
        })?;
        let link = runtime.block_on(Link::connect(address))?;
        Ok(Self {
            runtime: Some(runtime),
            address: address.clone(),
            shard,
            link: RefCell::new(Some(link)),
        })
    }

    /// Asks; once more when the connection turns out to be gone.
    fn query(&self, text: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, ReadError> {
        let runtime = self.runtime.as_ref().expect("it is there until the drop");
        let mut link = self.link.borrow_mut();
        for is_last in [false, true] {
            let usable = link.take().filter(|link| !link.is_closed());
            let usable = match usable {
                Some(usable) => usable,
                None => runtime
                    .block_on(Link::connect(&self.address))
                    .map_err(|error| ReadError::Storage(Box::new(error)))?,
            };
            let answer: Result<Vec<Row>, Error> =
                runtime.block_on(usable.client().query(text, parameters));
            match answer {
                Ok(rows) => {
                    *link = Some(usable);
                    return Ok(rows);
                }
                Err(error) if error.as_db_error().is_none() && !is_last => {}
                Err(error) => return Err(ReadError::Storage(says(&error).into())),
            }
        }
        Err(ReadError::Storage("the database does not answer".into()))
    }

    fn left_behind(&self, task: TaskId) -> Result<Option<TaskOutput>, ReadError> {
        let rows = self.query(
            "SELECT output, result FROM output WHERE shard = $1 AND task = $2",
            &[&self.shard, &(task.0 as i64)],
        )?;
        Ok(rows.first().map(|row| TaskOutput {
            task,
            output: row.get(0),
            result: row.get(1),
        }))
    }

    /// The first of these blocks that may hold such tasks.
    fn block_from(
        &self,
        first: i64,
        last: i64,
        filter: TaskFilter,
    ) -> Result<Option<i64>, ReadError> {
        let has_any = match filter {
            TaskFilter::Any | TaskFilter::Succeeded => "",
            TaskFilter::Failed | TaskFilter::Cancelled | TaskFilter::Unsuccessful => {
                "AND unsuccessful > 0"
            }
        };
        let rows = self.query(
            &format!(
                "SELECT block FROM task_run WHERE shard = $1 AND block >= $2 AND block <= $3 {has_any} \
                 ORDER BY block LIMIT 1"
            ),
            &[&self.shard, &first, &last],
        )?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    /// Such tasks of a block, from one id to another, in the order of their ids.
    fn tasks_of_block(
        &self,
        block: i64,
        first: i64,
        last: i64,
        filter: TaskFilter,
        limit: usize,
    ) -> Result<Vec<Row>, ReadError> {
        let filter = match filter {
            TaskFilter::Any => "",
            TaskFilter::Succeeded => "WHERE ended <= 1",
            TaskFilter::Failed => "WHERE ended > 1 AND ended < 20",
            TaskFilter::Cancelled => "WHERE ended >= 20",
            TaskFilter::Unsuccessful => "WHERE ended > 1",
        };
        // As the view `task`, but runs that are out of range are passed over unread.
        let statement = format!(
            "SELECT {TASK} FROM (SELECT DISTINCT ON (t.task) t.task, run.job, t.entry, \
             coalesce(t.ended, 0) AS ended, t.exit_code, t.signal, t.agent, coalesce(t.attempt, 1) AS attempt, \
             coalesce(t.created_each, run.created) AS created, t.started, t.finished, t.duration_ns, t.user_ns, \
             t.system_ns, t.memory_bytes FROM task_run AS run, unnest(run.task, run.entry, run.ended, \
             run.exit_code, run.signal, run.agent, run.attempt, run.created_each, run.started, run.finished, \
             run.duration_ns, run.user_ns, run.system_ns, run.memory_bytes) AS t (task, entry, ended, exit_code, \
             signal, agent, attempt, created_each, started, finished, duration_ns, user_ns, system_ns, memory_bytes) \
             WHERE run.shard = $1 AND run.block = $2 AND run.last >= $3 AND run.first <= $4 \
             AND t.task >= $3 AND t.task <= $4 ORDER BY t.task, run.pos DESC) AS newest {filter} \
             ORDER BY task LIMIT $5"
        );
        let limit = limit as i64;
        self.query(&statement, &[&self.shard, &block, &first, &last, &limit])
    }

    /// What tasks left behind, in the order of their ids, after `after`.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn outputs(
        &self,
        after: Option<TaskId>,
        limit: usize,
    ) -> Result<Page<TaskOutput, TaskId>, ReadError> {
        let limit = page_limit(limit);
        let after = after.map_or(i64::MIN, |task| task.0 as i64);
        let rows = self.query(
            "SELECT task, output, result FROM output WHERE shard = $1 AND task > $2 ORDER BY task LIMIT $3",
            &[&self.shard, &after, &(limit as i64 + 1)],
        )?;
        let rows = rows.iter().map(|row| TaskOutput {
            task: TaskId(number(row, 0)),
            output: row.get(1),
            result: row.get(2),
        });
        Ok(page(rows.collect(), limit, |row| row.task))
    }
}

impl Drop for PostgresHistory {
    fn drop(&mut self) {
        self.link.borrow_mut().take();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

const TASK: &str = "task, job, entry, ended, exit_code, signal, agent, attempt, created, started, finished, \
    duration_ns, user_ns, system_ns, memory_bytes";
const JOB: &str = "job, name, username, first_task, task_count, state, created, finished, succeeded, failed, cancelled, \
    detail";

impl ReadHistory for PostgresHistory {
    fn task(&self, task: TaskId) -> Result<Option<TaskRow>, ReadError> {
        let id = task.0 as i64;
        let rows = self.tasks_of_block(block_of(id), id, id, TaskFilter::Any, 1)?;
        rows.first().map(task_row).transpose()
    }

    fn output(&self, task: TaskId) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(self.left_behind(task)?.map(|row| row.output))
    }

    fn result(&self, task: TaskId) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(self.left_behind(task)?.map(|row| row.result))
    }

    fn output_sizes(&self, first: TaskId, last: TaskId) -> Result<Vec<(TaskId, u64)>, ReadError> {
        let (first, last) = (first.0 as i64, last.0 as i64);
        let rows = self.query(
            "SELECT task, octet_length(output)::bigint + octet_length(result) FROM output \
             WHERE shard = $1 AND task >= $2 AND task <= $3 ORDER BY task",
            &[&self.shard, &first, &last],
        )?;
        let sizes = rows
            .iter()
            .map(|row| (TaskId(number(row, 0)), number(row, 1)));
        Ok(sizes.collect())
    }

    fn outputs_of(&self, tasks: &[TaskId]) -> Result<Vec<TaskOutput>, ReadError> {
        let tasks: Vec<i64> = tasks.iter().map(|task| task.0 as i64).collect();
        let rows = self.query(
            "SELECT task, output, result FROM output WHERE shard = $1 AND task = ANY($2) ORDER BY task",
            &[&self.shard, &tasks],
        )?;
        let outputs = rows.iter().map(|row| TaskOutput {
            task: TaskId(number(row, 0)),
            output: row.get(1),
            result: row.get(2),
        });
        Ok(outputs.collect())
    }

    fn next_block(&self, from: TaskId) -> Result<Option<BlockStamp>, ReadError> {
        let Some(block) = self.block_from(block_of(from.0 as i64), i64::MAX, TaskFilter::Any)?
        else {
            return Ok(None);
        };
        // Whatever ends, or ends again, is in another run.
        let rows = self.query(
            "SELECT count(*), max(pos) FROM task_run WHERE shard = $1 AND block = $2",
            &[&self.shard, &block],
        )?;
        let stamp = rows.first().map_or(0, |row| {
            let newest = row.get::<_, Option<i64>>(1).unwrap_or(0) as u64;
            newest.rotate_left(16) ^ row.get::<_, i64>(0) as u64
        });
        Ok(Some(BlockStamp::of(
            TaskId(block as u64 * BLOCK_TASKS),
            stamp,
        )))
    }

    fn tasks(&self, query: &TaskQuery) -> Result<Page<TaskRow, TaskId>, ReadError> {
        let limit = page_limit(query.limit);
        let (mut first, mut last) = (0, limits::TASK_MAX as i64);
        if let Some(job) = query.job {
            let Some(row) = self.job(job)?.filter(|row| row.task_count > 0) else {
                return Ok(page(Vec::new(), limit, |row: &TaskRow| row.task));
            };
            first = row.first_task.0 as i64;
            last = first.saturating_add(row.task_count as i64 - 1);
        }
        if let Some(after) = query.after {
            first = first.max(after.0 as i64 + 1);
        }
        let mut found = Vec::new();
        // Blocks one by one: what is in one is put in order in no time, what is in all of them is not.
        while found.len() <= limit
            && first <= last
            && let Some(block) = self.block_from(block_of(first), block_of(last), query.filter)?
        {
            let left = limit + 1 - found.len();
            found.extend(self.tasks_of_block(block, first, last, query.filter, left)?);
            first = (block + 1) * BLOCK_TASKS as i64;
        }
        let rows = found.iter().map(task_row).collect::<Result<_, _>>()?;
        Ok(page(rows, limit, |row: &TaskRow| row.task))
    }

    fn job(&self, job: JobId) -> Result<Option<JobRow>, ReadError> {
        let rows = self.query(
            &format!("SELECT {JOB} FROM job WHERE shard = $1 AND job = $2"),
            &[&self.shard, &(job.0 as i64)],
        )?;
        rows.first().map(job_row).transpose()
    }

    fn jobs(&self, query: &JobQuery) -> Result<Page<JobRow, JobId>, ReadError> {
        let limit = page_limit(query.limit);
        let newest = query.before.map_or(i64::MAX, |job| job.0 as i64 - 1);
        let state = query.state.map(|state| state_code(state) as i32);
        let rows = self.query(
            &format!(
                "SELECT {JOB} FROM job WHERE shard = $1 AND job <= $2 AND ($3::int IS NULL OR state = $3) \
                 AND ($4::text IS NULL OR username = $4) ORDER BY job DESC LIMIT $5"
            ),
            &[&self.shard, &newest, &state, &query.user, &(limit as i64 + 1)],
        )?;
        let rows = rows.iter().map(job_row).collect::<Result<_, _>>()?;
        Ok(page(rows, limit, |row: &JobRow| row.job))
    }

    fn agents(
        &self,
        after: Option<AgentId>,
        limit: usize,
    ) -> Result<Page<AgentRow, AgentId>, ReadError> {
        let limit = page_limit(limit);
        let after = after.map_or(i64::MIN, |agent| agent.0 as i64);
        let rows = self.query(
            "SELECT agent, name FROM agent WHERE shard = $1 AND agent > $2 ORDER BY agent LIMIT $3",
            &[&self.shard, &after, &(limit as i64 + 1)],
        )?;
        let rows = rows.iter().map(|row| AgentRow {
            agent: AgentId(number(row, 0)),
            name: row.get(1),
        });
        Ok(page(rows.collect(), limit, |row| row.agent))
    }

    fn groups(&self, from: Position, limit: Limit) -> Result<Vec<StoredGroup>, ReadError> {
        let mut groups: Vec<StoredGroup> = Vec::new();
        let (mut next, mut bytes) = (from, 0);
        while groups.len() < limit.groups.max(1) && (groups.is_empty() || bytes < limit.bytes) {
            // A few at a time: facts may be large.
            let some = (limit.groups.max(1) - groups.len()).min(64) as i64;
            let rows = self.query(
                "SELECT pos, n, crc, facts FROM grp WHERE shard = $1 AND pos >= $2 ORDER BY pos LIMIT $3",
                &[&self.shard, &(next.0 as i64), &some],
            )?;
            if rows.is_empty() {
                break;
            }
            for row in rows {
                let position = Position(number(&row, 0));
                if position != next {
                    // What is gone from the beginning was dropped; nothing is ever dropped from the middle.
                    return match groups.is_empty() {
                        true => Err(ReadError::Dropped {
                            asked: from,
                            first: position,
                        }),
                        false => Err(damaged(next, "the group is missing")),
                    };
                }
                let fact_count = row.get::<_, i32>(1) as u32;
                let facts: Vec<u8> = row.get(3);
                if i64::from(seal::group(position, fact_count, &facts)) != row.get::<_, i64>(2) {
                    return Err(damaged(position, "the CRC does not fit"));
                }
                bytes += facts.len();
                next = position.next();
                groups.push(StoredGroup {
                    position,
                    facts,
                    fact_count,
                });
            }
        }
        Ok(groups)
    }

    fn epoch_unix_nanos(&self) -> Result<u64, ReadError> {
        let rows = self.query("SELECT origin_ns FROM meta WHERE one = 1", &[])?;
        let row = rows.first().ok_or_else(|| ReadError::Damaged {
            place: "its head".to_owned(),
            what: "the row is missing".to_owned(),
        })?;
        Ok(number(row, 0))
    }
}

fn block_of(task: i64) -> i64 {
    task / BLOCK_TASKS as i64
}

fn task_row(row: &Row) -> Result<TaskRow, ReadError> {
    let task = TaskId(number(row, 0));
    let ended = Ended::from_code(row.get::<_, i32>(3) as u64);
    let ended = ended.ok_or_else(|| ReadError::Damaged {
        place: format!("the row of {task}"),
        what: "it ended in no known way".to_owned(),
    })?;
    let usage = maybe(row, 11).map(|duration| Usage {
        duration: Span(duration),
        user: Span(maybe(row, 12).unwrap_or(0)),
        system: Span(maybe(row, 13).unwrap_or(0)),
        memory_bytes: maybe(row, 14).unwrap_or(0),
    });
    Ok(TaskRow {
        task,
        job: JobId(number(row, 1)),
        entry: maybe(row, 2),
        ended,
        exit_code: row.get(4),
        signal: row.get(5),
        agent: maybe(row, 6).map(AgentId),
        attempt: number(row, 7) as u32,
        created: Time(number(row, 8)),
        started: maybe(row, 9).map(Time),
        finished: Time(number(row, 10)),
        usage,
    })
}

fn job_row(row: &Row) -> Result<JobRow, ReadError> {
    let job = JobId(number(row, 0));
    let state = state_of(i64::from(row.get::<_, i32>(5)));
    let state = state.ok_or_else(|| ReadError::Damaged {
        place: format!("the row of {job}"),
        what: "it is in no known state".to_owned(),
    })?;
    Ok(JobRow {
        job,
        name: row.get(1),
        user: row.get(2),
        first_task: TaskId(number(row, 3)),
        task_count: number(row, 4),
        state,
        created: Time(number(row, 6)),
        finished: maybe(row, 7).map(Time),
        succeeded: number(row, 8),
        failed: number(row, 9),
        cancelled: number(row, 10),
        detail: row.get(11),
    })
}

fn number(row: &Row, column: usize) -> u64 {
    row.get::<_, i64>(column) as u64
}

fn maybe(row: &Row, column: usize) -> Option<u64> {
    row.get::<_, Option<i64>>(column)
        .map(|number| number as u64)
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

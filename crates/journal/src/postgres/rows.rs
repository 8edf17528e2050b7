//! Rows of history, as columns for one statement of each kind.
//!
//! Every statement writes nothing unless the group it belongs to is there: rows cannot be committed without their facts,
//! whatever became of the transaction.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use loxley_model::{Span, Time};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Statement};

use crate::NotWritten;
use crate::rows::{JobRow, Rows, limits, state_code};

/// Which group the rows belong to.
pub(super) struct Guard<'a> {
    pub(super) shard: i32,
    pub(super) pos: i64,
    pub(super) after: &'a [u8],
}

/// How statements look for the group.
const GROUP_IS_THERE: &str = "FROM grp WHERE shard = $1 AND pos = $2 AND chain = $3";

macro_rules! guarded {
    ($insert:literal, $select:literal, $rest:literal) => {
        concat!(
            $insert,
            " SELECT $1, * FROM unnest(",
            $select,
            ") WHERE EXISTS (SELECT 1 FROM grp WHERE shard = $1 AND pos = $2 AND chain = $3) ",
            $rest
        )
    };
}

const TASKS: &str = guarded!(
    "INSERT INTO task (shard, task, job, entry, ended, exit_code, signal, agent, attempt, created, started, finished, \
     duration_ns, user_ns, system_ns, memory_bytes)",
    "$4::bigint[], $5::bigint[], $6::bigint[], $7::int[], $8::int[], $9::int[], $10::bigint[], $11::bigint[], \
     $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[]",
    "ON CONFLICT (shard, task) DO UPDATE SET job = excluded.job, entry = excluded.entry, ended = excluded.ended, \
     exit_code = excluded.exit_code, signal = excluded.signal, agent = excluded.agent, attempt = excluded.attempt, \
     created = excluded.created, started = excluded.started, finished = excluded.finished, \
     duration_ns = excluded.duration_ns, user_ns = excluded.user_ns, system_ns = excluded.system_ns, \
     memory_bytes = excluded.memory_bytes"
);
/// What a task left behind when it ended before is forgotten.
const FORGET: &str = "DELETE FROM output WHERE shard = $1 AND task = ANY($4::bigint[]) \
    AND EXISTS (SELECT 1 FROM grp WHERE shard = $1 AND pos = $2 AND chain = $3)";
const OUTPUTS: &str = guarded!(
    "INSERT INTO output (shard, task, output, result)",
    "$4::bigint[], $5::bytea[], $6::bytea[]",
    "ON CONFLICT (shard, task) DO UPDATE SET output = excluded.output, result = excluded.result"
);
/// A row that says nothing of what the job is keeps what was said before.
const JOBS: &str = guarded!(
    "INSERT INTO job (shard, job, name, username, first_task, task_count, state, created, finished, succeeded, failed, \
     cancelled, detail)",
    "$4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::int[], $10::bigint[], $11::bigint[], \
     $12::bigint[], $13::bigint[], $14::bigint[], $15::bytea[]",
    "ON CONFLICT (shard, job) DO UPDATE SET name = excluded.name, username = excluded.username, \
     first_task = excluded.first_task, task_count = excluded.task_count, state = excluded.state, \
     created = excluded.created, finished = excluded.finished, succeeded = excluded.succeeded, \
     failed = excluded.failed, cancelled = excluded.cancelled, \
     detail = CASE WHEN excluded.detail = '' THEN job.detail ELSE excluded.detail END"
);
const AGENTS: &str = guarded!(
    "INSERT INTO agent (shard, agent, name)",
    "$4::bigint[], $5::text[]",
    "ON CONFLICT (shard, agent) DO UPDATE SET name = excluded.name"
);

const LETTERS: &str = guarded!(
    "INSERT INTO letter (src, dst, number, body)",
    "$4::int[], $5::bigint[], $6::bytea[]",
    "ON CONFLICT (src, dst, number) DO NOTHING"
);
const LETTERS_READ: &str = guarded!(
    "INSERT INTO letter_read (dst, src, number)",
    "$4::int[], $5::bigint[]",
    "ON CONFLICT (src, dst) DO UPDATE SET number = excluded.number"
);
const LETTERS_ARRIVED: &str = "DELETE FROM letter USING unnest($4::int[], $5::bigint[]) AS arrived (dst, number) \
    WHERE letter.src = $1 AND letter.dst = arrived.dst AND letter.number <= arrived.number \
    AND EXISTS (SELECT 1 FROM grp WHERE shard = $1 AND pos = $2 AND chain = $3)";

/// The statements, known to the database.
#[derive(Debug)]
pub(super) struct RowStatements {
    tasks: Statement,
    forget: Statement,
    outputs: Statement,
    jobs: Statement,
    agents: Statement,
    letters: Statement,
    letters_read: Statement,
    letters_arrived: Statement,
}

/// Rows as columns. No key stands twice in one statement: the last row of a key counts.
#[derive(Debug, Default)]
pub(super) struct PackedRows {
    tasks: TaskColumns,
    outputs: (Vec<i64>, Vec<Vec<u8>>, Vec<Vec<u8>>),
    jobs: JobColumns,
    agents: (Vec<i64>, Vec<String>),
    letters: (Vec<i32>, Vec<i64>, Vec<Vec<u8>>),
    letters_read: (Vec<i32>, Vec<i64>),
    letters_arrived: (Vec<i32>, Vec<i64>),
}

#[derive(Debug, Default)]
struct TaskColumns {
    task: Vec<i64>,
    job: Vec<i64>,
    entry: Vec<Option<i64>>,
    ended: Vec<i32>,
    exit_code: Vec<Option<i32>>,
    signal: Vec<Option<i32>>,
    agent: Vec<Option<i64>>,
    attempt: Vec<i64>,
    created: Vec<i64>,
    started: Vec<Option<i64>>,
    finished: Vec<i64>,
    usage: [Vec<Option<i64>>; 4],
}

#[derive(Debug, Default)]
struct JobColumns {
    job: Vec<i64>,
    name: Vec<String>,
    user: Vec<String>,
    first_task: Vec<i64>,
    task_count: Vec<i64>,
    state: Vec<i32>,
    created: Vec<i64>,
    finished: Vec<Option<i64>>,
    counts: [Vec<i64>; 3],
    detail: Vec<Vec<u8>>,
}

pub(super) fn at_most(what: &'static str, size: u64, max: u64) -> Result<(), NotWritten> {
    match size > max {
        true => Err(NotWritten::TooLarge { what, size, max }),
        false => Ok(()),
    }
}

fn number(what: &'static str, number: u64) -> Result<i64, NotWritten> {
    at_most(what, number, limits::NUMBER_MAX)?;
    Ok(number as i64)
}

fn maybe(what: &'static str, value: Option<u64>) -> Result<Option<i64>, NotWritten> {
    value.map(|value| number(what, value)).transpose()
}

fn time(time: Time) -> Result<i64, NotWritten> {
    number("a time", time.0)
}

/// PostgreSQL has no text with a zero in it.
fn text(what: &'static str, text: &str) -> Result<String, NotWritten> {
    at_most(what, text.len() as u64, limits::NAME_BYTES_MAX as u64)?;
    Ok(text.replace('\0', "\u{FFFD}"))
}

/// How far letters were read, once for each shard.
fn furthest(read: &[(u16, u64)]) -> Result<(Vec<i32>, Vec<i64>), NotWritten> {
    let mut last: BTreeMap<u16, u64> = BTreeMap::new();
    for (shard, number) in read {
        let known = last.entry(*shard).or_default();
        *known = (*known).max(*number);
    }
    let mut columns = (Vec::new(), Vec::new());
    for (shard, letter) in last {
        columns.0.push(shard.into());
        columns.1.push(number("the number of a letter", letter)?);
    }
    Ok(columns)
}

impl PackedRows {
    pub(super) fn new(rows: &Rows) -> Result<Self, NotWritten> {
        let lists = [
            rows.tasks.len(),
            rows.outputs.len(),
            rows.jobs.len(),
            rows.agents.len(),
        ];
        for length in lists {
            at_most("a list of rows", length as u64, limits::ROWS_MAX as u64)?;
        }
        let mut this = Self::default();
        this.pack_tasks(rows)?;
        let outputs: BTreeMap<u64, _> = rows.outputs.iter().map(|row| (row.task.0, row)).collect();
        for row in outputs.values() {
            let most = limits::OUTPUT_BYTES_MAX as u64;
            at_most("an output", row.output.len() as u64, most)?;
            let most = limits::RESULT_BYTES_MAX as u64;
            at_most("a result", row.result.len() as u64, most)?;
            this.outputs.0.push(number("a task id", row.task.0)?);
            this.outputs.1.push(row.output.clone());
            this.outputs.2.push(row.result.clone());
        }
        this.pack_jobs(rows)?;
        let agents: BTreeMap<u64, _> = rows.agents.iter().map(|row| (row.agent.0, row)).collect();
        for row in agents.values() {
            this.agents.0.push(number("an agent id", row.agent.0)?);
            this.agents.1.push(text("the name of an agent", &row.name)?);
        }
        for row in &rows.letters {
            let most = limits::FACTS_BYTES_MAX as u64;
            at_most("a letter", row.body.len() as u64, most)?;
            this.letters.0.push(row.to.into());
            this.letters
                .1
                .push(number("the number of a letter", row.number)?);
            this.letters.2.push(row.body.clone());
        }
        this.letters_read = furthest(&rows.letters_read)?;
        this.letters_arrived = furthest(&rows.letters_arrived)?;
        Ok(this)
    }

    fn pack_tasks(&mut self, rows: &Rows) -> Result<(), NotWritten> {
        let last: BTreeMap<u64, _> = rows.tasks.iter().map(|row| (row.task.0, row)).collect();
        let columns = &mut self.tasks;
        for row in last.values() {
            at_most("a task id", row.task.0, limits::TASK_MAX)?;
            columns.task.push(row.task.0 as i64);
            columns.job.push(number("a job id", row.job.0)?);
            columns.entry.push(maybe("an entry", row.entry)?);
            columns.ended.push(row.ended.code() as i32);
            columns.exit_code.push(row.exit_code);
            columns.signal.push(row.signal);
            let agent = row.agent.map(|agent| agent.0);
            columns.agent.push(maybe("an agent id", agent)?);
            columns.attempt.push(i64::from(row.attempt));
            columns.created.push(time(row.created)?);
            columns.started.push(row.started.map(time).transpose()?);
            columns.finished.push(time(row.finished)?);
            let span = |span: Span| number("a time", span.0);
            let usage = match row.usage {
                None => [None; 4],
                Some(usage) => [
                    Some(span(usage.duration)?),
                    Some(span(usage.user)?),
                    Some(span(usage.system)?),
                    Some(number("a number of bytes", usage.memory_bytes)?),
                ],
            };
            for (column, value) in columns.usage.iter_mut().zip(usage) {
                column.push(value);
            }
        }
        Ok(())
    }

    fn pack_jobs(&mut self, rows: &Rows) -> Result<(), NotWritten> {
        let mut last: BTreeMap<u64, (&JobRow, &[u8])> = BTreeMap::new();
        for row in &rows.jobs {
            let said = last.get(&row.job.0).map(|(_, detail)| *detail);
            let detail = match (row.detail.is_empty(), said) {
                (true, Some(said)) => said,
                _ => &row.detail,
            };
            last.insert(row.job.0, (row, detail));
        }
        let columns = &mut self.jobs;
        for (row, detail) in last.values() {
            let most = limits::DETAIL_BYTES_MAX as u64;
            at_most("the description of a job", detail.len() as u64, most)?;
            let end = row.first_task.0.saturating_add(row.task_count);
            at_most("a task id", end, limits::TASK_MAX)?;
            columns.job.push(number("a job id", row.job.0)?);
            columns.name.push(text("the name of a job", &row.name)?);
            columns.user.push(text("the name of a user", &row.user)?);
            columns.first_task.push(row.first_task.0 as i64);
            columns.task_count.push(row.task_count as i64);
            columns.state.push(state_code(row.state) as i32);
            columns.created.push(time(row.created)?);
            columns.finished.push(row.finished.map(time).transpose()?);
            let counts = [row.succeeded, row.failed, row.cancelled];
            for (column, count) in columns.counts.iter_mut().zip(counts) {
                column.push(number("a number of tasks", count)?);
            }
            columns.detail.push(detail.to_vec());
        }
        Ok(())
    }
}

impl RowStatements {
    pub(super) async fn prepare(client: &Client) -> Result<Self, Error> {
        Self::prepare_as(client, str::to_owned).await
    }

    /// For rows that belong to no group: they are written while the journal ends where the guard says.
    pub(super) async fn prepare_for_copies(client: &Client) -> Result<Self, Error> {
        let ends = "FROM shard WHERE id = $1 AND next = $2 AND chain = $3";
        Self::prepare_as(client, |text| text.replace(GROUP_IS_THERE, ends)).await
    }

    async fn prepare_as(client: &Client, text: impl Fn(&str) -> String) -> Result<Self, Error> {
        Ok(Self {
            tasks: client.prepare(&text(TASKS)).await?,
            forget: client.prepare(&text(FORGET)).await?,
            outputs: client.prepare(&text(OUTPUTS)).await?,
            jobs: client.prepare(&text(JOBS)).await?,
            agents: client.prepare(&text(AGENTS)).await?,
            letters: client.prepare(&text(LETTERS)).await?,
            letters_read: client.prepare(&text(LETTERS_READ)).await?,
            letters_arrived: client.prepare(&text(LETTERS_ARRIVED)).await?,
        })
    }

    /// The statements that write these rows, in order.
    pub(super) fn add<'a>(
        &'a self,
        client: &'a Client,
        guard: &'a Guard<'a>,
        rows: &'a PackedRows,
        steps: &mut Vec<BoxFuture<'a, Result<u64, Error>>>,
    ) {
        let mut step = |statement: &'a Statement, columns: Vec<&'a (dyn ToSql + Sync)>| {
            steps.push(Box::pin(async move {
                let key: [&(dyn ToSql + Sync); 3] = [&guard.shard, &guard.pos, &guard.after];
                let parameters = [&key[..], &columns].concat();
                client.execute(statement, &parameters).await
            }));
        };
        let tasks = &rows.tasks;
        if !tasks.task.is_empty() {
            let [duration, user, system, memory] = &tasks.usage;
            step(
                &self.tasks,
                vec![
                    &tasks.task,
                    &tasks.job,
                    &tasks.entry,
                    &tasks.ended,
                    &tasks.exit_code,
                    &tasks.signal,
                    &tasks.agent,
                    &tasks.attempt,
                    &tasks.created,
                    &tasks.started,
                    &tasks.finished,
                    duration,
                    user,
                    system,
                    memory,
                ],
            );
            step(&self.forget, vec![&tasks.task]);
        }
        let (task, output, result) = &rows.outputs;
        if !task.is_empty() {
            step(&self.outputs, vec![task, output, result]);
        }
        let jobs = &rows.jobs;
        if !jobs.job.is_empty() {
            let [succeeded, failed, cancelled] = &jobs.counts;
            step(
                &self.jobs,
                vec![
                    &jobs.job,
                    &jobs.name,
                    &jobs.user,
                    &jobs.first_task,
                    &jobs.task_count,
                    &jobs.state,
                    &jobs.created,
                    &jobs.finished,
                    succeeded,
                    failed,
                    cancelled,
                    &jobs.detail,
                ],
            );
        }
        let (agent, name) = &rows.agents;
        if !agent.is_empty() {
            step(&self.agents, vec![agent, name]);
        }
        let (to, number, body) = &rows.letters;
        if !to.is_empty() {
            step(&self.letters, vec![to, number, body]);
        }
        let (from, number) = &rows.letters_read;
        if !from.is_empty() {
            step(&self.letters_read, vec![from, number]);
        }
        let (by, number) = &rows.letters_arrived;
        if !by.is_empty() {
            step(&self.letters_arrived, vec![by, number]);
        }
    }
}

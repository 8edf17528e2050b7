//! Rows of history, as columns for one statement of each kind.
//!
//! Every statement writes nothing unless the group it belongs to is there: rows cannot be committed without their facts,
//! whatever became of the transaction.
//!
//! A row of a table and its place in an index cost the database about as much as all that a server does for a short task.
//! So finished tasks are kept in *runs*: what one group says of the tasks of one job in one block of ids is one row, with an
//! array for each column. A column in which every task of a statement has the usual value is left out. A task that ended
//! again is in two runs, and the one of the later group counts.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use loxley_model::Time;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Statement};

use crate::NotWritten;
use crate::reader::BLOCK_TASKS;
use crate::rows::{JobRow, Rows, TaskRow, Usage, limits, state_code};

/// Which group the rows belong to.
pub(super) struct Guard<'a> {
    pub(super) shard: i32,
    pub(super) pos: i64,
    pub(super) after: &'a [u8],
    /// The number of the runs, which says which of two counts: that of the group, or a negative one for what is copied.
    pub(super) run: i64,
}

/// A statement takes runs until they have so many tasks: to cut a piece out of an array with gaps, the database walks
/// there from its beginning.
const TASKS_IN_A_STATEMENT: usize = 1024;

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

/// Finished tasks, a row for each run of them: the columns of all runs one after the other, and where each run begins and
/// ends in them. A run that is there already was written by the same group.
const TASKS: &str = "INSERT INTO task_run (shard, pos, block, job, first, last, count, unsuccessful, created, task, entry, \
    ended, exit_code, signal, agent, attempt, created_each, started, finished, duration_ns, user_ns, system_ns, \
    memory_bytes) \
    SELECT $1, $4, block, job, ($10::bigint[])[lo], ($10::bigint[])[hi], hi - lo + 1, unsuccessful, created, \
    ($10::bigint[])[lo:hi], ($11::bigint[])[lo:hi], ($12::int[])[lo:hi], ($13::int[])[lo:hi], ($14::int[])[lo:hi], \
    ($15::bigint[])[lo:hi], ($16::bigint[])[lo:hi], ($17::bigint[])[lo:hi], ($18::bigint[])[lo:hi], \
    ($19::bigint[])[lo:hi], ($20::bigint[])[lo:hi], ($21::bigint[])[lo:hi], ($22::bigint[])[lo:hi], \
    ($23::bigint[])[lo:hi] \
    FROM unnest($5::bigint[], $6::bigint[], $7::int[], $8::int[], $9::bigint[], $24::int[]) \
    AS run (block, job, lo, hi, created, unsuccessful) \
    WHERE EXISTS (SELECT 1 FROM grp WHERE shard = $1 AND pos = $2 AND chain = $3) \
    ON CONFLICT (shard, block, job, pos) DO NOTHING";
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
    tasks: Vec<TaskColumns>,
    /// Tasks that may have left something behind when they ended before.
    ended_before: Vec<i64>,
    outputs: (Vec<i64>, Vec<Vec<u8>>, Vec<Vec<u8>>),
    jobs: JobColumns,
    agents: (Vec<i64>, Vec<String>),
    letters: (Vec<i32>, Vec<i64>, Vec<Vec<u8>>),
    letters_read: (Vec<i32>, Vec<i64>),
    letters_arrived: (Vec<i32>, Vec<i64>),
}

/// Runs, and the columns of their tasks one after the other. A column that is missing has its usual value in every task:
/// none, a success, the first attempt, the moment at which the first of its run was created.
#[derive(Debug, Default)]
struct TaskColumns {
    block: Vec<i64>,
    job: Vec<i64>,
    /// Where the run begins and ends in the columns, counted from 1.
    lo: Vec<i32>,
    hi: Vec<i32>,
    created: Vec<i64>,
    unsuccessful: Vec<i32>,
    task: Vec<i64>,
    entry: Option<Vec<Option<i64>>>,
    ended: Option<Vec<i32>>,
    exit_code: Option<Vec<Option<i32>>>,
    signal: Option<Vec<Option<i32>>>,
    agent: Option<Vec<Option<i64>>>,
    attempt: Option<Vec<i64>>,
    created_each: Option<Vec<i64>>,
    started: Option<Vec<Option<i64>>>,
    finished: Vec<i64>,
    usage: [Option<Vec<Option<i64>>>; 4],
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
    /// No task from `outputs_end` on has left anything behind so far.
    pub(super) fn new(rows: &Rows, outputs_end: i64) -> Result<Self, NotWritten> {
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
        this.pack_tasks(rows, outputs_end)?;
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

    fn pack_tasks(&mut self, rows: &Rows, outputs_end: i64) -> Result<(), NotWritten> {
        let mut tasks: Vec<&TaskRow> = rows.tasks.iter().collect();
        let run_of = |row: &TaskRow| (row.task.0 / BLOCK_TASKS, row.job.0);
        tasks.sort_by_key(|row| (run_of(row), row.task.0));
        // The last row of a task counts.
        tasks.reverse();
        tasks.dedup_by_key(|row| row.task.0);
        tasks.reverse();
        let mut runs: Vec<&[&TaskRow]> = Vec::new();
        let mut count = 0;
        for run in tasks.chunk_by(|one, next| run_of(one) == run_of(next)) {
            if count >= TASKS_IN_A_STATEMENT {
                self.tasks.push(TaskColumns::new(&runs)?);
                (runs, count) = (Vec::new(), 0);
            }
            runs.push(run);
            count += run.len();
        }
        if count > 0 {
            self.tasks.push(TaskColumns::new(&runs)?);
        }
        let ids = self.tasks.iter().flat_map(|columns| &columns.task);
        self.ended_before = ids.copied().filter(|task| *task < outputs_end).collect();
        Ok(())
    }

    /// After these rows, no task from here on has left anything behind.
    pub(super) fn outputs_end(&self) -> i64 {
        self.outputs.0.last().map_or(0, |last| last + 1)
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

impl TaskColumns {
    fn new(runs: &[&[&TaskRow]]) -> Result<Self, NotWritten> {
        let mut this = Self::default();
        let tasks: Vec<&TaskRow> = runs.concat();
        let mut end = 0;
        for run in runs {
            let first = run[0];
            this.block.push((first.task.0 / BLOCK_TASKS) as i64);
            this.job.push(number("a job id", first.job.0)?);
            this.lo.push(end + 1);
            end += run.len() as i32;
            this.hi.push(end);
            this.created.push(time(first.created)?);
            let unsuccessful = run.iter().filter(|row| !row.ended.is_success()).count();
            this.unsuccessful.push(unsuccessful as i32);
        }
        let is_like_first = |run: &&[&TaskRow]| run.iter().all(|row| row.created == run[0].created);
        if !runs.iter().all(is_like_first) {
            this.created_each = Some(column(&tasks, |row| time(row.created))?);
        }
        for row in &tasks {
            at_most("a task id", row.task.0, limits::TASK_MAX)?;
        }
        this.task = column(&tasks, |row| Ok(row.task.0 as i64))?;
        this.finished = column(&tasks, |row| time(row.finished))?;
        this.entry = unless(None, column(&tasks, |row| maybe("an entry", row.entry))?);
        this.ended = unless(0, column(&tasks, |row| Ok(row.ended.code() as i32))?);
        this.exit_code = unless(None, column(&tasks, |row| Ok(row.exit_code))?);
        this.signal = unless(None, column(&tasks, |row| Ok(row.signal))?);
        let agent = |row: &TaskRow| maybe("an agent id", row.agent.map(|agent| agent.0));
        this.agent = unless(None, column(&tasks, agent)?);
        this.attempt = unless(1, column(&tasks, |row| Ok(i64::from(row.attempt)))?);
        let started = |row: &TaskRow| row.started.map(time).transpose();
        this.started = unless(None, column(&tasks, started)?);
        let usage: [UsagePart; 4] = [
            |usage| ("a time", usage.duration.0),
            |usage| ("a time", usage.user.0),
            |usage| ("a time", usage.system.0),
            |usage| ("a number of bytes", usage.memory_bytes),
        ];
        for (target, part) in this.usage.iter_mut().zip(usage) {
            let part = |row: &TaskRow| {
                let part = row.usage.as_ref().map(part);
                part.map(|(what, value)| number(what, value)).transpose()
            };
            *target = unless(None, column(&tasks, part)?);
        }
        Ok(this)
    }
}

/// What one of the figures of a task's use of its machine is called, and the figure.
type UsagePart = fn(&Usage) -> (&'static str, u64);

fn column<T>(
    tasks: &[&TaskRow],
    value: impl Fn(&TaskRow) -> Result<T, NotWritten>,
) -> Result<Vec<T>, NotWritten> {
    tasks.iter().map(|row| value(row)).collect()
}

/// None, when all of the column is as usual.
fn unless<T: PartialEq>(usual: T, column: Vec<T>) -> Option<Vec<T>> {
    let is_usual = column.iter().all(|value| *value == usual);
    (!is_usual).then_some(column)
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
        for runs in &rows.tasks {
            let [duration, user, system, memory] = &runs.usage;
            step(
                &self.tasks,
                vec![
                    &guard.run,
                    &runs.block,
                    &runs.job,
                    &runs.lo,
                    &runs.hi,
                    &runs.created,
                    &runs.task,
                    &runs.entry,
                    &runs.ended,
                    &runs.exit_code,
                    &runs.signal,
                    &runs.agent,
                    &runs.attempt,
                    &runs.created_each,
                    &runs.started,
                    &runs.finished,
                    duration,
                    user,
                    system,
                    memory,
                    &runs.unsuccessful,
                ],
            );
        }
        if !rows.ended_before.is_empty() {
            step(&self.forget, vec![&rows.ended_before]);
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

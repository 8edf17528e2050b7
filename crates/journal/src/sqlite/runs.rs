//! Finished tasks: some hundred of them in one row of SQLite.
//!
//! Ids are cut into *blocks* of 4,096. What one group says of the tasks of a block is a *run*: one row, with
//! the entries [packed](super::pack). Runs of a block are numbered as they are written, and the number
//! of a run begins with that of its block, so they stand together, the newest last:
//!
//! ```text
//!   run          first last        block 3 is 12,288 to 16,383
//!   3 << 24      12288 12391       ended together
//!   3 << 24 | 1  12392 12510
//!   3 << 24 | 2  12300 12300       ended again: this one counts, and the entry above does not
//! ```
//!
//! So a group that ends a hundred tasks of an array costs one insert or two. Whoever asks for a task reads
//! the runs of its block; a page is made of blocks, one after the other, each merged in memory.
//!
//! What must stay true: a task is in the runs of its block and nowhere else; of several entries the one in the
//! run with the highest number counts; `count` summed up over all runs is what the head says.

use std::collections::BTreeSet;

use loxley_model::{JobId, TaskId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::damage::{damaged, not_written};
use super::pack::{Entry, Packer, Unpacker};
use super::seal::Seal;
use super::write::{at_most, number};
use crate::rows::{Rows, TaskRow, limits};
use crate::{NotWritten, ReadError};

/// Ids of a block: as many as fit in so many bits.
const BLOCK_BITS: u32 = crate::reader::BLOCK_TASKS.ilog2();
/// Runs of a block.
const NUMBER_BITS: u32 = 24;

/// A block of ids, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Block(i64);

impl Block {
    pub(super) fn of(task: TaskId) -> Self {
        Self((task.0.min(limits::TASK_MAX) >> BLOCK_BITS) as i64)
    }

    fn of_run(run: i64) -> Self {
        Self(run >> NUMBER_BITS)
    }

    fn first_run(self) -> i64 {
        self.0 << NUMBER_BITS
    }

    fn last_run(self) -> i64 {
        self.first_run() | ((1 << NUMBER_BITS) - 1)
    }

    pub(super) fn first_task(self) -> TaskId {
        TaskId((self.0 << BLOCK_BITS) as u64)
    }

    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// One row, as it is stored. Its content counts only when the CRC fits.
struct Run {
    run: i64,
    first: u64,
    last: u64,
    count: u64,
    unsuccessful: u64,
    packed: Vec<u8>,
}

impl Run {
    /// Of entries in the order of their ids; at least one.
    fn pack<'a>(run: i64, entries: impl Iterator<Item = (&'a TaskRow, bool)>) -> Self {
        let mut packer = Packer::new(Vec::with_capacity(1024));
        let mut this = Self {
            run,
            first: u64::MAX,
            last: 0,
            count: 0,
            unsuccessful: 0,
            packed: Vec::new(),
        };
        for (row, left_output) in entries {
            packer.push(row, left_output);
            this.first = this.first.min(row.task.0);
            this.last = row.task.0;
            this.count += 1;
            this.unsuccessful += u64::from(!row.ended.is_success());
        }
        this.packed = packer.finish();
        this
    }

    fn crc(&self) -> u32 {
        Seal::new("runs")
            .number(self.run as u64)
            .number(self.first)
            .number(self.last)
            .number(self.count)
            .number(self.unsuccessful)
            .bytes(&self.packed)
            .finish()
    }

    /// A row of `SELECT * FROM runs`, held against its CRC.
    fn read(row: &Row<'_>) -> Result<Self, ReadError> {
        let number = |column: usize| row.get::<_, i64>(column).map(|number| number as u64);
        let this = Self {
            run: row.get(0)?,
            first: number(1)?,
            last: number(2)?,
            count: number(3)?,
            unsuccessful: number(4)?,
            packed: row.get(5)?,
        };
        if row.get::<_, u32>(6)? != this.crc() {
            return Err(this.damaged("the CRC does not fit"));
        }
        Ok(this)
    }

    fn put(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement =
            connection.prepare_cached("REPLACE INTO runs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
        let row = params![
            self.run,
            self.first as i64,
            self.last as i64,
            self.count as i64,
            self.unsuccessful as i64,
            self.packed,
            self.crc(),
        ];
        statement.execute(row).map(|_| ())
    }

    fn delete(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached("DELETE FROM runs WHERE run = ?1")?;
        statement.execute([self.run]).map(|_| ())
    }

    /// The entries, in the order of their ids.
    fn entries(&self) -> impl Iterator<Item = Result<Entry, ReadError>> {
        let wrong = || self.damaged("it does not hold what it says");
        let ids = self.first..=self.last;
        Unpacker::new(&self.packed).map(move |entry| {
            entry
                .filter(|entry| ids.contains(&entry.row.task.0))
                .ok_or_else(wrong)
        })
    }

    fn damaged(&self, what: &str) -> ReadError {
        let (first, last) = (self.first, self.last);
        let place = format!(
            "the rows of tasks {first} to {last} (run {} of block {})",
            self.run - Block::of_run(self.run).first_run(),
            Block::of_run(self.run).0,
        );
        damaged(place, what)
    }
}

/// Writes what a group says of tasks. Returns how many entries that makes.
pub(super) fn write(connection: &Connection, rows: &Rows) -> Result<u64, NotWritten> {
    for row in &rows.tasks {
        verify_limits(row)?;
    }
    let mut tasks: Vec<&TaskRow> = rows.tasks.iter().collect();
    // The sort keeps the order of equals: of several ends in one group, the last one counts.
    tasks.sort_by_key(|row| row.task);
    let mut with_output: Vec<TaskId> = rows.outputs.iter().map(|row| row.task).collect();
    with_output.sort_unstable();
    let mut written = 0;
    for tasks in tasks.chunk_by(|one, other| Block::of(one.task) == Block::of(other.task)) {
        let block = Block::of(tasks[0].task);
        let ended_again = |index: usize| {
            let next = tasks.get(index + 1);
            next.is_some_and(|next| next.task == tasks[index].task)
        };
        let last_ends = (0..tasks.len()).filter(|index| !ended_again(*index));
        let entries = last_ends.map(|index| {
            let row = tasks[index];
            (row, with_output.binary_search(&row.task).is_ok())
        });
        let run = Run::pack(next_run(connection, block)?, entries);
        run.put(connection).map_err(not_written)?;
        written += run.count;
    }
    Ok(written)
}

fn verify_limits(row: &TaskRow) -> Result<(), NotWritten> {
    at_most("a task id", row.task.0, limits::TASK_MAX)?;
    number("a job id", row.job.0)?;
    number("an entry", row.entry.unwrap_or(0))?;
    number("an agent id", row.agent.map_or(0, |agent| agent.0))?;
    number("a time", row.created.0)?;
    number("a time", row.started.map_or(0, |time| time.0))?;
    number("a time", row.finished.0)?;
    Ok(())
}

fn next_run(connection: &Connection, block: Block) -> Result<i64, NotWritten> {
    let last = || {
        let mut statement =
            connection.prepare_cached("SELECT max(run) FROM runs WHERE run BETWEEN ?1 AND ?2")?;
        statement.query_row([block.first_run(), block.last_run()], |row| {
            row.get::<_, Option<i64>>(0)
        })
    };
    let next = match last().map_err(not_written)? {
        Some(last) => last + 1,
        None => block.first_run(),
    };
    let runs = (next - block.first_run()) as u64;
    at_most(
        "the number of runs of a block",
        runs,
        (1 << NUMBER_BITS) - 1,
    )?;
    Ok(next)
}

/// What counts of a task.
pub(super) fn task(connection: &Connection, task: TaskId) -> Result<Option<Entry>, ReadError> {
    let block = Block::of(task);
    let mut statement = connection
        .prepare_cached("SELECT * FROM runs WHERE run BETWEEN ?1 AND ?2 ORDER BY run DESC")?;
    let mut rows = statement.query([block.first_run(), block.last_run()])?;
    while let Some(row) = rows.next()? {
        let run = Run::read(row)?;
        if !(run.first..=run.last).contains(&task.0) {
            continue;
        }
        for entry in run.entries() {
            let entry = entry?;
            if entry.row.task == task {
                return Ok(Some(entry));
            }
        }
    }
    Ok(None)
}

/// The first block from `from` on that holds anything, or anything unsuccessful.
pub(super) fn next_block(
    connection: &Connection,
    from: Block,
    unsuccessful: bool,
) -> Result<Option<Block>, ReadError> {
    let mut statement = connection.prepare_cached(match unsuccessful {
        false => "SELECT run FROM runs WHERE run >= ?1 ORDER BY run LIMIT 1",
        true => {
            "SELECT run FROM runs INDEXED BY runs_unsuccessful WHERE unsuccessful > 0 AND run >= ?1 \
             ORDER BY run LIMIT 1"
        }
    })?;
    let run = statement.query_row([from.first_run()], |row| row.get(0));
    Ok(run.optional()?.map(Block::of_run))
}

/// The newest run of a block: as long as it is the same, no other task has ended.
pub(super) fn stamp(connection: &Connection, block: Block) -> Result<u64, ReadError> {
    let mut statement =
        connection.prepare_cached("SELECT max(run) FROM runs WHERE run BETWEEN ?1 AND ?2")?;
    let newest = statement.query_row([block.first_run(), block.last_run()], |row| {
        row.get::<_, Option<i64>>(0)
    });
    Ok(newest?.unwrap_or(0) as u64)
}

/// What counts of the tasks `first` to `last` of a block, in the order of their ids.
pub(super) fn tasks(
    connection: &Connection,
    block: Block,
    first: u64,
    last: u64,
) -> Result<Vec<TaskRow>, ReadError> {
    let mut found = Vec::new();
    for run in runs(connection, block)? {
        if run.last < first || run.first > last {
            continue;
        }
        for entry in run.entries() {
            let row = entry?.row;
            if (first..=last).contains(&row.task.0) {
                found.push(row);
            }
        }
    }
    // Newest first among equals, and of those only the first stays.
    found.reverse();
    found.sort_by_key(|row: &TaskRow| row.task);
    found.dedup_by_key(|row| row.task);
    Ok(found)
}

/// All runs of a block, oldest first.
fn runs(connection: &Connection, block: Block) -> Result<Vec<Run>, ReadError> {
    let mut statement =
        connection.prepare_cached("SELECT * FROM runs WHERE run BETWEEN ?1 AND ?2 ORDER BY run")?;
    let mut rows = statement.query([block.first_run(), block.last_run()])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(Run::read(row)?);
    }
    Ok(found)
}

/// What was deleted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Deleted {
    pub(super) tasks: u64,
    /// Of a task that ended more than once, there may be several.
    pub(super) entries: u64,
    /// What was deleted ends before this task.
    pub(super) end: u64,
}

/// Deletes at most `most` tasks of a job, the lowest ids first. Its tasks are `first` to `last`.
pub(super) fn delete(
    connection: &Connection,
    job: JobId,
    first: u64,
    last: u64,
    most: u64,
) -> Result<Deleted, ReadError> {
    let mut deleted = Deleted {
        end: first,
        ..Deleted::default()
    };
    let mut from = Block::of(TaskId(first));
    while let Some(block) = next_block(connection, from, false)? {
        if block > Block::of(TaskId(last)) || deleted.tasks == most {
            break;
        }
        delete_in_block(connection, block, &mut deleted, most, |row| {
            row.job == job && (first..=last).contains(&row.task.0)
        })?;
        from = block.next();
    }
    if deleted.tasks < most {
        deleted.end = last.saturating_add(1);
    }
    Ok(deleted)
}

fn delete_in_block(
    connection: &Connection,
    block: Block,
    deleted: &mut Deleted,
    most: u64,
    is_doomed: impl Fn(&TaskRow) -> bool,
) -> Result<(), ReadError> {
    let mut unpacked = Vec::new();
    for run in runs(connection, block)? {
        let entries: Vec<Entry> = run.entries().collect::<Result<_, _>>()?;
        unpacked.push((run, entries));
    }
    let all = unpacked.iter().flat_map(|(_, entries)| entries);
    let doomed = all.map(|entry| &entry.row).filter(|row| is_doomed(row));
    let doomed: BTreeSet<TaskId> = doomed.map(|row| row.task).collect();
    let doomed: BTreeSet<TaskId> = doomed
        .into_iter()
        .take((most - deleted.tasks) as usize)
        .collect();
    for (run, entries) in unpacked {
        let kept = entries
            .iter()
            .filter(|entry| !(is_doomed(&entry.row) && doomed.contains(&entry.row.task)));
        let rest = Run::pack(run.run, kept.map(|entry| (&entry.row, entry.left_output)));
        if rest.count == run.count {
            continue;
        }
        match rest.count {
            0 => run.delete(connection)?,
            _ => rest.put(connection)?,
        }
        deleted.entries += run.count - rest.count;
    }
    deleted.tasks += doomed.len() as u64;
    if let Some(highest) = doomed.last() {
        deleted.end = highest.0 + 1;
    }
    Ok(())
}

/// Entries in all runs, each held against what its run says of itself.
pub(super) fn count(connection: &Connection) -> Result<u64, ReadError> {
    let mut statement = connection.prepare("SELECT * FROM runs ORDER BY run")?;
    let mut rows = statement.query(())?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        let run = Run::read(row)?;
        let (mut entries, mut unsuccessful) = (0, 0);
        for entry in run.entries() {
            entries += 1;
            unsuccessful += u64::from(!entry?.row.ended.is_success());
        }
        if (entries, unsuccessful) != (run.count, run.unsuccessful) {
            return Err(run.damaged("it does not hold what it says"));
        }
        count += entries;
    }
    Ok(count)
}

//! A journal from one engine into another, with its history: the same groups at the same positions under the same chain
//! of hashes, the same snapshots, the same rows.
//!
//! ```text
//!   directory ──▶ schema of PostgreSQL      nobody may write to either; the target is empty
//!   groups, snapshots, rows                 and is no journal before all of it was read back
//! ```
//!
//! What must stay true: a copy that was cut short cannot be served from; one that counts has the digest of its original.

use std::fmt::{self, Write};
use std::path::{Path, PathBuf};

use loxley_model::TaskId;
use ring::digest::{Context, SHA256};

use crate::group::{Group, Journal, Limit, Position};
use crate::reader::ReadHistory;
use crate::rows::{Rows, TaskRow};
use crate::sqlite::seal::Chain;
use crate::sqlite::{self, JobQuery, TaskQuery};
use crate::{AppendError, OpenError, ReadError};

/// Where a journal is. Which places there are depends on how it was built, and that may be with more than whoever uses it
/// asked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "postgres",
    expect(clippy::large_enum_variant, reason = "a command makes two of them")
)]
pub enum Place {
    /// In a directory.
    Directory(PathBuf),
    /// In a schema of PostgreSQL.
    #[cfg(feature = "postgres")]
    Database(crate::postgres::Address),
}

/// What was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transferred {
    /// The first group that is kept.
    pub first: Position,
    /// Where the next group goes.
    pub next: Position,
    /// So many snapshots.
    pub snapshots: u64,
    /// So many jobs.
    pub jobs: u64,
    /// So many finished tasks.
    pub tasks: u64,
    /// So many tasks left something behind.
    pub outputs: u64,
    /// So many agents.
    pub agents: u64,
    /// Of all of it, the same for original and copy.
    pub digest: String,
}

/// Why a journal was not copied.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// One of the two cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The original cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The copy cannot be written.
    #[error("cannot write the copy")]
    Write(#[from] AppendError),
    /// A server serves from it.
    #[error("{place} is in use: {url} serves from it; stop its servers first")]
    InUse {
        /// Host, port and database.
        place: String,
        /// Who.
        url: String,
    },
    /// Something is there already.
    #[error(
        "there is a journal already in schema `{schema}` of {place}: nothing is overwritten; name another one with \
         `?schema=NAME`"
    )]
    Present {
        /// Host, port and database.
        place: String,
        /// Which schema.
        schema: String,
    },
    /// What was read back is not what was read.
    #[error("the copy is not what was copied: digest {found} instead of {expected}")]
    Differs {
        /// Of the original.
        expected: String,
        /// Of the copy.
        found: String,
    },
}

/// Where a journal begins: with the same origin, the same groups have the same chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) id: u64,
    pub(crate) epoch_unix_ns: u64,
    pub(crate) base: Position,
    pub(crate) base_chain: Chain,
}

/// A journal that can be copied, and copied into.
pub(crate) trait Copied: Journal {
    fn origin(&self) -> Origin;
    /// The chain before the next group.
    fn chain(&self) -> Chain;
    /// Writes rows of history without a group.
    fn put_rows(&mut self, rows: &Rows) -> Result<(), AppendError>;
    /// Says that it is still in use, to whoever might want it.
    fn keep(&mut self) -> Result<(), AppendError> {
        Ok(())
    }
    /// Leaves it to others again.
    fn finish(&mut self) -> Result<(), AppendError> {
        Ok(())
    }
}

/// A journal and its history.
pub(crate) struct Both {
    pub(crate) journal: Box<dyn Copied>,
    pub(crate) history: Box<dyn ReadHistory>,
}

/// Copies a journal to a place where there is none, with its history, and reads the copy back; all of them, where a database
/// has one for each of its shards. A directory takes one: several go into `shard-0`, `shard-1` and so on in it. Nobody may use
/// either place meanwhile.
///
/// # Errors
/// When one of them cannot be used, or the copy is not what was copied: then there is none.
pub fn transfer(from: &Place, to: &Place) -> Result<Vec<Transferred>, TransferError> {
    let mut originals = match from {
        Place::Directory(directory) => vec![sqlite::transfer::source(directory)?],
        #[cfg(feature = "postgres")]
        Place::Database(address) => crate::postgres::transfer::sources(address)?,
    };
    let copied = match to {
        Place::Directory(directory) => copy_to_directory(&mut originals, directory),
        #[cfg(feature = "postgres")]
        Place::Database(address) => {
            let origins: Vec<Origin> = originals.iter().map(|one| one.journal.origin()).collect();
            let letters = match from {
                Place::Database(from) if origins.len() > 1 => Some(from),
                _ => None,
            };
            let fill = |shard: usize, copy: &mut Both| fill(&mut originals[shard], copy);
            crate::postgres::transfer::target(address, &origins, letters, fill)
        }
    };
    for original in &mut originals {
        original.journal.finish()?;
    }
    copied
}

fn copy_to_directory(
    originals: &mut [Both],
    directory: &Path,
) -> Result<Vec<Transferred>, TransferError> {
    let has_one = originals.len() == 1;
    let copied = originals.iter_mut().enumerate().map(|(shard, original)| {
        let place = match has_one {
            true => directory.to_owned(),
            false => directory.join(format!("shard-{shard}")),
        };
        let origin = original.journal.origin();
        sqlite::transfer::target(&place, &origin, |copy| fill(original, copy))
    });
    copied.collect()
}

/// Writes everything, and reads it back.
fn fill(original: &mut Both, copy: &mut Both) -> Result<Transferred, TransferError> {
    copy_groups(original, copy)?;
    copy_rows(original, copy)?;
    let mut snapshots = original.journal.snapshots()?;
    // The newest last: each makes the ones beyond the second oldest needless.
    snapshots.reverse();
    for at in snapshots {
        let snapshot = original.journal.snapshot(at)?;
        copy.journal.save_snapshot(&snapshot)?;
    }
    let expected = sum_up(original)?;
    let found = sum_up(copy)?;
    copy.journal.finish()?;
    match expected == found {
        true => Ok(found),
        false => Err(TransferError::Differs {
            expected: expected.digest,
            found: found.digest,
        }),
    }
}

fn copy_groups(original: &mut Both, copy: &mut Both) -> Result<(), TransferError> {
    let mut from = original.journal.origin().base;
    loop {
        let groups = original.journal.read(from, Limit::default())?;
        let Some(last) = groups.last() else {
            return Ok(());
        };
        from = last.position.next();
        for group in groups {
            let at = group.position;
            let group = Group {
                facts: group.facts,
                fact_count: group.fact_count,
                rows: Rows::default(),
            };
            copy.journal.append(at, &group)?;
        }
        original.journal.keep()?;
    }
}

/// Rows that are read and written at once.
const PAGE: usize = 2_000;

fn copy_rows(original: &mut Both, copy: &mut Both) -> Result<(), TransferError> {
    let history = &*original.history;
    let mut after = None;
    loop {
        let page = history.agents(after, PAGE)?;
        let agents = Rows {
            agents: page.rows,
            ..Rows::default()
        };
        copy.journal.put_rows(&agents)?;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut before = None;
    loop {
        // A description may be large.
        let page = history.jobs(&JobQuery {
            before,
            limit: 16,
            ..JobQuery::default()
        })?;
        let jobs = Rows {
            jobs: page.rows,
            ..Rows::default()
        };
        copy.journal.put_rows(&jobs)?;
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    let mut after = None;
    loop {
        let page = history.tasks(&TaskQuery {
            after,
            limit: PAGE,
            ..TaskQuery::default()
        })?;
        copy_tasks(history, page.rows, &mut *copy.journal)?;
        original.journal.keep()?;
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// Writes tasks together with what they left behind, a bounded amount of that at a time.
fn copy_tasks(
    history: &dyn ReadHistory,
    tasks: Vec<TaskRow>,
    copy: &mut dyn Copied,
) -> Result<(), TransferError> {
    const BYTES: u64 = 16 << 20;
    let (Some(first), Some(last)) = (tasks.first(), tasks.last()) else {
        return Ok(());
    };
    let mut sizes = history.output_sizes(first.task, last.task)?.into_iter();
    let mut next = sizes.next();
    let (mut rows, mut wanted, mut bytes) = (Rows::default(), Vec::new(), 0);
    let mut put = |rows: &mut Rows, wanted: &mut Vec<TaskId>| -> Result<(), TransferError> {
        let mut rows = std::mem::take(rows);
        rows.outputs = history.outputs_of(&std::mem::take(wanted))?;
        Ok(copy.put_rows(&rows)?)
    };
    for task in tasks {
        let id = task.task;
        rows.tasks.push(task);
        while let Some((of, size)) = next.filter(|(of, _)| *of <= id) {
            if of == id {
                wanted.push(id);
                bytes += size;
            }
            next = sizes.next();
        }
        if bytes >= BYTES {
            put(&mut rows, &mut wanted)?;
            bytes = 0;
        }
    }
    put(&mut rows, &mut wanted)
}

/// Reads all of it, and makes a digest: of the chain, which stands for all groups, of the snapshots and of every row.
fn sum_up(both: &mut Both) -> Result<Transferred, TransferError> {
    let Both { journal, history } = both;
    let origin = journal.origin();
    let mut sum = Sum::default();
    let mut next = origin.base;
    // The chain is computed anew from what is stored.
    loop {
        let groups = journal.read(next, Limit::default())?;
        let Some(last) = groups.last() else { break };
        next = last.position.next();
        journal.keep()?;
    }
    sum.add(&(origin, next, journal.chain()));
    let snapshots = journal.snapshots()?;
    for at in &snapshots {
        let snapshot = journal.snapshot(*at)?;
        sum.bytes(&snapshot.state);
        sum.add(&snapshot.position);
    }
    let mut total = Transferred {
        first: origin.base,
        next,
        snapshots: snapshots.len() as u64,
        jobs: 0,
        tasks: 0,
        outputs: 0,
        agents: 0,
        digest: String::new(),
    };
    sum_up_rows(&**history, &mut sum, &mut total, &mut **journal)?;
    total.digest = sum.finish();
    Ok(total)
}

fn sum_up_rows(
    history: &dyn ReadHistory,
    sum: &mut Sum,
    total: &mut Transferred,
    journal: &mut dyn Copied,
) -> Result<(), TransferError> {
    let mut after = None;
    loop {
        let page = history.agents(after, PAGE)?;
        total.agents += page.rows.len() as u64;
        page.rows.iter().for_each(|row| sum.add(row));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut before = None;
    loop {
        let page = history.jobs(&JobQuery {
            before,
            limit: 16,
            ..JobQuery::default()
        })?;
        total.jobs += page.rows.len() as u64;
        for row in &page.rows {
            sum.bytes(&row.detail);
            sum.add(&(
                row.job,
                &row.name,
                &row.user,
                row.first_task,
                row.task_count,
            ));
            sum.add(&(row.state, row.created, row.finished));
            sum.add(&(row.succeeded, row.failed, row.cancelled));
        }
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    let mut after = None;
    loop {
        let page = history.tasks(&TaskQuery {
            after,
            limit: PAGE,
            ..TaskQuery::default()
        })?;
        total.tasks += page.rows.len() as u64;
        page.rows.iter().for_each(|row| sum.add(row));
        if let (Some(first), Some(last)) = (page.rows.first(), page.rows.last()) {
            for (task, _) in history.output_sizes(first.task, last.task)? {
                for row in history.outputs_of(&[task])? {
                    total.outputs += 1;
                    sum.add(&row.task);
                    sum.bytes(&row.output);
                    sum.bytes(&row.result);
                }
            }
        }
        journal.keep()?;
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// A digest of values, as this program prints them: both sides are summed up by the same program.
struct Sum(Context);

impl Default for Sum {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Sum {
    fn add(&mut self, value: &dyn fmt::Debug) {
        let _ = writeln!(Hashed(&mut self.0), "{value:?}");
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn finish(self) -> String {
        let digest = self.0.finish();
        let mut text = String::new();
        for byte in &digest.as_ref()[..16] {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

struct Hashed<'a>(&'a mut Context);

impl Write for Hashed<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

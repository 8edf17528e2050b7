//! The journal: what happened, in order, durable before anything leaves; and the history of what is
//! over, to be asked.
//!
//! A *group* is what one commit writes: some facts, packed by the driver into bytes that mean nothing
//! here, and the rows of history that those facts made. Both are durable together or not at all.
//! Groups stand at [`Position`]s 0, 1, 2, ...; whoever appends names the position it expects, so that
//! two writers can never both believe they are the one.
//!
//! ```text
//!   position     0       1       2       3       4          append(at 4, group)
//!             [facts] [facts] [facts] [facts]  ^ next       read(from 2, ...)
//!                             ^ snapshot: the state before group 2, so that 0 and 1 may go (truncate)
//! ```
//!
//! - [`Journal`] is the trait: [`append`](Journal::append), [`read`](Journal::read),
//!   [`save_snapshot`](Journal::save_snapshot), [`latest_snapshot`](Journal::latest_snapshot),
//!   [`truncate`](Journal::truncate). One thread owns it.
//! - [`SqliteJournal`] is the embedded engine: one directory, one file, no other service.
//!   [`MemoryJournal`] keeps everything in memory: for tests, and to measure what durability costs.
//! - `postgres::PostgresJournal` (feature `postgres`) keeps it in a PostgreSQL that several servers share, of which one
//!   at a time writes.
//! - [`ReadHistory`] is what every history can be asked; [`History`], that of the embedded engine, answers questions about what is over, from any thread and any process, while the
//!   owner writes: [`task`](History::task), [`tasks`](History::tasks), [`output`](History::output),
//!   [`result`](History::result), [`job`](History::job), [`jobs`](History::jobs).
//! - [`backup`] copies a journal, also one in use; [`transfer()`] copies one between engines.
//! - [`check`] reads a whole journal and names the first damage.
//! - [`failpoint`] lets a test end the process at a named place.
//!
//! What must stay true: an [`append`](Journal::append) that returned is never lost and never changed;
//! damage is told, not read over; nothing grows without a bound that is written down in [`limits`].
//!
//! # The typical loop
//!
//! ```
//! use loxley_journal::{Group, Journal, Limit, Options, Position, SqliteJournal};
//!
//! # let scratch = tempfile::tempdir()?;
//! # let directory = scratch.path();
//! // Start: read what is there, from the last snapshot on.
//! let opened = SqliteJournal::open(directory, &Options::default())?;
//! for notice in &opened.notices {
//!     println!("{notice}");
//! }
//! let mut journal = opened.journal;
//! let mut position = match journal.latest_snapshot()? {
//!     Some(snapshot) => snapshot.position, // and restore(snapshot.state)
//!     None => Position::START,
//! };
//! loop {
//!     let groups = journal.read(position, Limit::default())?;
//!     let Some(last) = groups.last() else { break };
//!     position = last.position.next();
//!     // and apply the facts of every group
//! }
//!
//! // Then: one append per batch of facts, effects after it.
//! let group = Group { facts: b"packed".to_vec(), fact_count: 1, ..Group::default() };
//! position = journal.append(position, &group)?;
//! assert_eq!(position, Position(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod database_error;
mod error;
pub mod failpoint;
mod group;
mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
mod reader;
mod rows;
mod sqlite;
mod transfer;
mod view;

pub use database_error::DatabaseError;

pub use error::{AppendError, NotWritten, OpenError, ReadError};
pub use group::{
    Group, Journal, Limit, Position, Pruned, Pruning, Retention, Room, Saving, Snapshot,
    StoredGroup,
};
pub use memory::MemoryJournal;
pub use reader::{BLOCK_TASKS, BlockStamp, ReadHistory};
pub use rows::{
    AgentRow, Ended, JobRow, JobState, LetterRow, Rows, TaskOutput, TaskRow, Usage, limits,
};
pub use sqlite::{
    Checked, Finding, History, JobQuery, Notice, Opened, Options, Page, SqliteJournal, TaskFilter,
    TaskQuery, backup, bytes_on_disk, check, copy, exists,
};
pub use transfer::{Place, TransferError, Transferred, transfer};
pub use view::View;

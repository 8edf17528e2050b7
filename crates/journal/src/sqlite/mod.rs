//! The embedded engine: SQLite in one directory.
//!
//! ```text
//! journal.db        groups, snapshots, history: one file that any SQLite tool can read
//! journal.db-wal    what was committed since the last checkpoint (SQLite's own log)
//! journal.mark      how many groups were acknowledged, so that a lost end is noticed
//! journal.lock      held by the one process that writes; names it
//! journal.reserve   room that is given up when the disk is full
//! ```
//!
//! SQLite makes a commit atomic and durable (WAL, `synchronous=FULL`). What it does not do is notice
//! damage: it reads a log up to the first bad frame and forgets the rest without a word, and a
//! flipped bit in a stored blob is simply another blob. So every row carries a CRC, groups are
//! chained by SHA-256, the one row of `head` says where the chain ends and how many rows there are,
//! the log is read by [`wal`] before SQLite sees it, and the [`mark`] tells a torn write (dropped,
//! with a notice) from a lost end (refused).

mod backup;
mod check;
mod copy;
mod damage;
mod engine;
mod head;
mod history;
mod lock;
mod log;
mod mark;
mod migrate;
mod open;
mod pack;
mod private;
mod prune;
mod read;
mod reserve;
mod runs;
mod schema;
pub(crate) mod seal;
mod snapshots;
pub(crate) mod transfer;
mod wal;
mod write;

pub use backup::backup;
pub use check::{Checked, Finding, check};
pub use copy::copy;
pub use engine::SqliteJournal;
pub use history::{History, JobQuery, Page, TaskFilter, TaskQuery};
pub use open::{Notice, Opened, Options, bytes_on_disk, exists};

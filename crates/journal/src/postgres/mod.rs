//! The journal in PostgreSQL: shared by several servers, written by one at a time.
//!
//! ```text
//!   BEGIN
//!   WITH own AS (UPDATE shard SET next, chain WHERE epoch, holder, next, chain are as I know them)
//!     INSERT INTO grp …              -- fails when `own` is empty: somebody else is the holder
//!   INSERT INTO task … job … WHERE EXISTS (the group)
//!   COMMIT                           -- all of it goes out at once: one round trip
//! ```
//!
//! The picture: `shard` has one row that says who may write and where the journal ends, and every append changes that row.
//! Two writers meet there, and the second one finds something else than it expected. The lease in the same row only says
//! when others may try to take the shard; that nothing is written twice does not depend on any clock.
//!
//! What must stay true: an append is acknowledged only when its commit was, without a warning; when the connection is lost
//! over a commit, the row is read again, locked (which waits for a commit that is still under way), before anybody decides
//! anything; a commit is never cancelled and never timed out by the database.

mod address;
mod claim;
mod history;
mod journal;
mod lease;
mod link;
mod prune;
mod rows;
pub mod schema;
mod snapshots;
mod tls;
pub(crate) mod transfer;

pub use address::Address;
pub use claim::{
    Announcement, Claim, Instance, Replica, Replication, ShardState, StoredLetter, Unanswered,
};
pub use history::PostgresHistory;
pub use journal::PostgresJournal;
pub use lease::Lease;
pub use link::Link;

/// The first shard: the only one where nobody asked for more.
pub const SHARD: i32 = 0;

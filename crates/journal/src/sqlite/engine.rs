//! The journal trait, over SQLite.

use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

use super::damage::not_written;
use super::head::Head;
use super::lock::Lock;
use super::log::Log;
use super::mark::Mark;
use super::open::BUSY_PATIENCE;
use super::reserve::Reserve;
use super::seal::{Chain, next_chain};
use super::{prune, read, snapshots, write};
use crate::failpoint;
use crate::group::{Group, Journal, Limit, Position, Pruning, Room, Saving, Snapshot, StoredGroup};
use crate::rows::limits;
use crate::{AppendError, NotWritten, ReadError};

/// The embedded journal. [Open](Self::open) it with a directory; it is let go when dropped.
#[derive(Debug)]
pub struct SqliteJournal {
    connection: Connection,
    /// As of the last commit.
    head: Head,
    mark: Mark,
    log: Log,
    reserve: Reserve,
    /// The log could not be moved into the file for lack of room.
    short_of_room: bool,
    /// A write ended in doubt: nothing more is taken.
    stopped: bool,
    /// Last, so that the connection is closed before another process may come in.
    _lock: Lock,
}

/// Groups that one transaction of [`truncate`](Journal::truncate) drops.
const DROPPED_AT_ONCE: u64 = 1024;

impl SqliteJournal {
    pub(super) fn new(
        connection: Connection,
        head: Head,
        mark: Mark,
        log: Log,
        reserve: Reserve,
        lock: Lock,
    ) -> Self {
        Self {
            connection,
            head,
            mark,
            log,
            reserve,
            short_of_room: false,
            stopped: false,
            _lock: lock,
        }
    }

    /// A number drawn when the journal was made.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.head.id
    }

    /// When the journal was made, in nanoseconds since 1970. Times in its rows count from here.
    #[must_use]
    pub fn epoch_unix_nanos(&self) -> u64 {
        self.head.epoch
    }

    /// The first group that is kept.
    #[must_use]
    pub fn first_position(&self) -> Position {
        self.head.base
    }

    /// Runs `change` in one transaction, with the head it leaves behind. Everything that writes goes
    /// through here: this is where an error is sorted by whether it can have been written.
    pub(super) fn commit<T>(
        &mut self,
        change: impl FnOnce(&Connection, &mut Head) -> Result<T, NotWritten>,
    ) -> Result<T, AppendError> {
        if self.stopped {
            return Err(AppendError::NotWritten(NotWritten::Stopped));
        }
        failpoint::pass(failpoint::BEFORE_WRITE);
        let before = self.head.next;
        let mut head = self.head.clone();
        let refused = |error| AppendError::NotWritten(not_written(error));
        // Dropped without a commit, a transaction rolls back.
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(refused)?;
        let value = change(&transaction, &mut head).map_err(AppendError::NotWritten)?;
        if !head.store(&transaction, before).map_err(refused)? {
            let found = Head::load(&transaction).map_or(before, |head| head.next);
            return Err(AppendError::Fenced {
                expected: before,
                found,
            });
        }
        failpoint::pass(failpoint::BEFORE_COMMIT);
        if let Err(error) = transaction.commit() {
            return Err(self.commit_failed(error));
        }
        failpoint::pass(failpoint::AFTER_COMMIT);
        self.head = head;
        self.mark
            .set(self.head.next)
            .map_err(|error| self.stop(error))?;
        self.move_log()?;
        self.log.make_room();
        Ok(value)
    }

    /// A full disk is met while writing frames, before the one that ends the commit: nothing counts.
    /// After any other error, a failed fsync above all, the group may be there or not.
    fn commit_failed(&mut self, error: rusqlite::Error) -> AppendError {
        match not_written(error) {
            NotWritten::Storage(error) => self.stop(error),
            full => AppendError::NotWritten(full),
        }
    }

    fn stop(&mut self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> AppendError {
        self.stopped = true;
        AppendError::Unknown(error.into())
    }

    /// Moves the log into the file, so that a file that became shorter is cut, and cuts the log to nothing: unless a
    /// reader is in the way, who is not waited for.
    pub(super) fn settle_log(&mut self) -> Result<(), AppendError> {
        let patience = |span| {
            let set = self.connection.busy_timeout(span);
            set.map_err(|error| AppendError::NotWritten(not_written(error)))
        };
        patience(Duration::from_millis(50))?;
        let moved = self
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0));
        patience(BUSY_PATIENCE)?;
        match moved {
            Ok(0) => {
                self.log.note_cut();
                self.short_of_room = false;
            }
            Ok(_) => {}
            Err(error) if is_disk_full(&error) => self.short_of_room = true,
            Err(error) => return Err(self.stop(error)),
        }
        Ok(())
    }

    /// Moves the log into the file when it is large. A failure here is as bad as one in a commit: what
    /// the system could not write once, it may have forgotten.
    fn move_log(&mut self) -> Result<(), AppendError> {
        if !self.log.is_large() {
            return Ok(());
        }
        self.log.note_moved();
        match self
            .connection
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(()))
        {
            Ok(()) => {
                self.short_of_room = false;
                Ok(())
            }
            // No room in the file for what is safe in the log: the log stays, and grows.
            Err(error) if is_disk_full(&error) => {
                self.short_of_room = true;
                Ok(())
            }
            Err(error) => Err(self.stop(error)),
        }
    }

    /// Drops some groups before `before`, which a snapshot makes needless, and says how many.
    pub(super) fn drop_some(&mut self, before: Position) -> Result<u64, AppendError> {
        let to = Position(before.0.min(self.head.base.0 + DROPPED_AT_ONCE));
        let chain = self.chain_before(to)?;
        self.commit(|connection, head| {
            head.base = to;
            head.base_chain = chain;
            write::drop_before(connection, to).map_err(not_written)
        })
    }

    pub(super) fn chain_before(&self, position: Position) -> Result<Chain, AppendError> {
        read::chain_before(&self.connection, &self.head, position).map_err(unreadable)
    }

    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }
}

fn is_disk_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
}

/// What must be read before it can be written.
fn unreadable(error: ReadError) -> AppendError {
    AppendError::NotWritten(NotWritten::Storage(Box::new(error)))
}

pub(super) fn too_large(what: &'static str, size: usize, max: usize) -> Result<(), AppendError> {
    write::at_most(what, size as u64, max as u64).map_err(AppendError::NotWritten)
}

impl Journal for SqliteJournal {
    fn next_position(&self) -> Position {
        self.head.next
    }

    fn append(&mut self, at: Position, group: &Group) -> Result<Position, AppendError> {
        if at != self.head.next {
            return Err(AppendError::Fenced {
                expected: at,
                found: self.head.next,
            });
        }
        too_large("a group", group.facts.len(), limits::FACTS_BYTES_MAX)?;
        self.commit(|connection, head| {
            head.chain = next_chain(&head.chain, at, group.fact_count, &group.facts);
            head.next = at.next();
            write::group(connection, at, group, &head.chain).map_err(not_written)?;
            write::rows(connection, &group.rows, &mut head.rows)
        })?;
        Ok(self.head.next)
    }

    fn read(&mut self, from: Position, limit: Limit) -> Result<Vec<StoredGroup>, ReadError> {
        read::groups(&self.connection, &self.head, from, limit)
    }

    fn save_piece(&mut self, saving: &mut Saving) -> Result<bool, AppendError> {
        snapshots::save_piece(self, saving)
    }

    fn snapshots(&mut self) -> Result<Vec<Position>, ReadError> {
        snapshots::list(&self.connection, &self.head)
    }

    fn snapshot(&mut self, at: Position) -> Result<Snapshot, ReadError> {
        snapshots::read(&self.connection, &self.head, at)
    }

    fn truncate(&mut self, before: Position) -> Result<u64, AppendError> {
        let snapshot = self.latest_snapshot().map_err(unreadable)?;
        if snapshot.is_none_or(|snapshot| snapshot.position < before) {
            return Err(AppendError::NotWritten(NotWritten::NoSnapshot(before)));
        }
        let mut dropped = 0;
        while self.head.base < before {
            dropped += self.drop_some(before)?;
        }
        Ok(dropped)
    }

    fn prune_some(&mut self, pruning: &mut Pruning) -> Result<bool, AppendError> {
        prune::step(self, pruning)
    }

    fn room(&mut self) -> Result<Room, ReadError> {
        Ok(prune::room(&self.connection)?)
    }

    fn is_short_of_room(&self) -> bool {
        self.short_of_room && self.reserve.is_held()
    }

    fn give_up_reserve(&mut self) -> Option<u64> {
        let given_up = self.reserve.give_up();
        if given_up.is_some() {
            self.log.keep_room(false);
        }
        given_up
    }

    fn renew_reserve(&mut self) -> bool {
        let renewed = self.reserve.renew();
        if renewed {
            self.log.keep_room(true);
        }
        renewed
    }
}

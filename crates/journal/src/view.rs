//! A journal that can be read and not written, also while its server runs.

use crate::group::{Group, Journal, Limit, Position, Saving, Snapshot, StoredGroup};
use crate::sqlite::History;
use crate::{AppendError, ReadError};

/// What an embedded journal has to be read.
#[derive(Debug)]
pub struct View(pub History);

impl View {
    /// Whoever only looks owns nothing to write to.
    fn fenced(&self, expected: Position) -> AppendError {
        let found = self.next_position();
        AppendError::Fenced { expected, found }
    }
}

impl Journal for View {
    fn next_position(&self) -> Position {
        self.0.positions().map_or(Position::START, |(_, next)| next)
    }

    fn append(&mut self, at: Position, _: &Group) -> Result<Position, AppendError> {
        Err(self.fenced(at))
    }

    fn read(&mut self, from: Position, limit: Limit) -> Result<Vec<StoredGroup>, ReadError> {
        self.0.groups(from, limit)
    }

    fn save_piece(&mut self, saving: &mut Saving) -> Result<bool, AppendError> {
        Err(self.fenced(saving.snapshot().position))
    }

    fn snapshots(&mut self) -> Result<Vec<Position>, ReadError> {
        self.0.snapshots()
    }

    fn snapshot(&mut self, at: Position) -> Result<Snapshot, ReadError> {
        self.0.snapshot(at)
    }

    fn truncate(&mut self, before: Position) -> Result<u64, AppendError> {
        Err(self.fenced(before))
    }
}

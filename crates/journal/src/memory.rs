//! A journal that forgets when it is dropped.

use std::collections::VecDeque;

use crate::group::{
    Group, Journal, Limit, Position, SNAPSHOTS_KEPT, Saving, Snapshot, StoredGroup,
};
use crate::{AppendError, NotWritten, ReadError};

/// Keeps groups in memory and drops rows of history: for tests, and to measure what durability costs.
#[derive(Debug, Default)]
pub struct MemoryJournal {
    first: Position,
    groups: VecDeque<StoredGroup>,
    /// Newest first.
    snapshots: Vec<Snapshot>,
}

impl MemoryJournal {
    /// An empty journal.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Journal for MemoryJournal {
    fn next_position(&self) -> Position {
        Position(self.first.0 + self.groups.len() as u64)
    }

    fn append(&mut self, at: Position, group: &Group) -> Result<Position, AppendError> {
        let found = self.next_position();
        if at != found {
            return Err(AppendError::Fenced {
                expected: at,
                found,
            });
        }
        self.groups.push_back(StoredGroup {
            position: at,
            facts: group.facts.clone(),
            fact_count: group.fact_count,
        });
        Ok(at.next())
    }

    fn read(&mut self, from: Position, limit: Limit) -> Result<Vec<StoredGroup>, ReadError> {
        if from < self.first {
            return Err(ReadError::Dropped {
                asked: from,
                first: self.first,
            });
        }
        let begin = (from.0 - self.first.0) as usize;
        let mut bytes = 0;
        let within = |group: &&StoredGroup| {
            let more = bytes < limit.bytes.max(1);
            bytes += group.facts.len();
            more
        };
        let groups = self.groups.iter().skip(begin).take(limit.groups.max(1));
        Ok(groups.take_while(within).cloned().collect())
    }

    fn save_piece(&mut self, saving: &mut Saving) -> Result<bool, AppendError> {
        let snapshot = saving.snapshot();
        let (first, next) = (self.first, self.next_position());
        if !(first..=next).contains(&snapshot.position) {
            return Err(AppendError::NotWritten(NotWritten::BadSnapshot {
                at: snapshot.position,
                first,
                next,
            }));
        }
        self.snapshots
            .retain(|kept| kept.position < snapshot.position);
        self.snapshots.insert(0, snapshot.clone());
        self.snapshots.truncate(SNAPSHOTS_KEPT);
        Ok(false)
    }

    fn snapshots(&mut self) -> Result<Vec<Position>, ReadError> {
        let kept = self.snapshots.iter();
        Ok(kept.map(|snapshot| snapshot.position).collect())
    }

    fn snapshot(&mut self, at: Position) -> Result<Snapshot, ReadError> {
        let found = self.snapshots.iter().find(|kept| kept.position == at);
        found.cloned().ok_or(ReadError::NoSnapshot(at))
    }

    fn truncate(&mut self, before: Position) -> Result<u64, AppendError> {
        let covered = self.snapshots.first().map(|snapshot| snapshot.position);
        if covered.is_none_or(|covered| covered < before) {
            return Err(AppendError::NotWritten(NotWritten::NoSnapshot(before)));
        }
        let dropped = before.0.saturating_sub(self.first.0);
        self.groups.drain(..dropped as usize);
        self.first = self.first.max(before);
        self.snapshots.retain(|kept| kept.position >= before);
        Ok(dropped)
    }
}

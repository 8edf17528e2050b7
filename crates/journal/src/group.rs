//! Groups of facts, and what every engine can do with them.

use std::fmt;

use loxley_model::Time;

use crate::rows::Rows;
use crate::{AppendError, ReadError};

/// The place of a group: the first one stands at 0, the next at 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// Where the first group of a new journal goes.
    pub const START: Self = Self(0);

    /// The place after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What one commit writes, whole or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The facts, packed by the driver. Bytes without meaning here.
    pub facts: Vec<u8>,
    /// How many facts that is, for figures.
    pub fact_count: u32,
    /// What the facts made of the history: written in the same transaction.
    pub rows: Rows,
}

/// A group as it is read back. Its rows are asked of the [`History`](crate::History).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredGroup {
    /// Where it stands.
    pub position: Position,
    /// The facts, as they were appended: checked against their CRC and the chain of hashes.
    pub facts: Vec<u8>,
    /// How many facts the writer said that is.
    pub fact_count: u32,
}

/// The state of the driver before the group at `position`: replay may begin there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The first group that is not part of the state.
    pub position: Position,
    /// The state, packed by the driver.
    pub state: Vec<u8>,
}

/// So many snapshots are kept: the newest, and one to go back to.
pub(crate) const SNAPSHOTS_KEPT: usize = 2;

/// A snapshot on its way into a journal, piece by piece. Groups may be appended between two pieces, so nobody
/// waits for more than one. It counts when it is whole; until then the one before it does.
#[derive(Debug)]
pub struct Saving {
    pub(crate) snapshot: Snapshot,
    pub(crate) stage: Stage,
}

#[derive(Debug)]
pub(crate) enum Stage {
    /// What an earlier one left behind goes first.
    Clearing,
    /// Pieces are written.
    Pieces {
        /// The number of the first.
        first: u64,
        /// The CRC of each that is written.
        crcs: Vec<u32>,
    },
    /// It counts; what it replaced goes.
    Replacing,
}

impl Saving {
    /// Nothing of it is written yet.
    #[must_use]
    pub fn new(snapshot: Snapshot) -> Self {
        Self {
            snapshot,
            stage: Stage::Clearing,
        }
    }

    /// What is saved.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
}

/// What of the past may be forgotten: every job that is over and is beyond one of these limits, with its tasks and what
/// they left. Nothing, when none is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Jobs that ended before this moment.
    pub older_than: Option<Time>,
    /// All jobs but so many that ended last.
    pub jobs_max: Option<u64>,
    /// The jobs that ended first, and facts that a snapshot makes needless, while more bytes than this are in use.
    pub bytes_max: Option<u64>,
    /// Only jobs that are beyond both the age and the number.
    pub both: bool,
    /// So many unused bytes are not given back to the system: they will be needed again.
    pub spare_bytes: u64,
}

/// What was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// So many jobs.
    pub jobs: u64,
    /// So many tasks.
    pub tasks: u64,
    /// So many groups of facts that the newest snapshot makes needless.
    pub groups: u64,
    /// So many bytes were given back to the system.
    pub bytes: u64,
    /// Whether there is more to forget.
    pub more: bool,
}

/// The past on its way to be forgotten, step by step. Groups may be appended between two steps.
#[derive(Debug)]
pub struct Pruning {
    pub(crate) retention: Retention,
    pub(crate) stage: PruneStage,
    pub(crate) pruned: Pruned,
    /// Groups that nobody needs were looked for.
    pub(crate) groups_dropped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PruneStage {
    /// Nothing was done.
    Begin,
    /// Jobs that ended before this go.
    Jobs(Time),
    /// Is it small enough?
    Measure,
    /// Groups before this go.
    Groups(Position),
    /// Unused room goes back to the system.
    Room,
}

impl Pruning {
    /// Nothing of it is done yet.
    #[must_use]
    pub fn new(retention: Retention) -> Self {
        Self {
            retention,
            stage: PruneStage::Begin,
            pruned: Pruned::default(),
            groups_dropped: false,
        }
    }

    /// What is gone so far.
    #[must_use]
    pub fn pruned(&self) -> Pruned {
        self.pruned
    }
}

/// How much room a journal takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// So many bytes has its file.
    pub bytes: u64,
    /// So many of them are not in use.
    pub unused: u64,
}

/// How much one [`read`](Journal::read) may return. It returns at least one group if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// At most so many groups.
    pub groups: usize,
    /// Stop after the group that reaches so many bytes of facts.
    pub bytes: usize,
}

impl Limit {
    /// One group.
    pub const ONE: Self = Self {
        groups: 1,
        bytes: 0,
    };
}

impl Default for Limit {
    fn default() -> Self {
        Self {
            groups: 1024,
            bytes: 8 << 20,
        }
    }
}

/// A journal, owned by the one thread that writes it.
///
/// After [`AppendError::Unknown`] an engine takes no more appends: nobody may go on as if the group
/// had been written, or as if it had not. Open it again and read the tail.
pub trait Journal: Send {
    /// Where the next group goes.
    fn next_position(&self) -> Position;

    /// Writes a group at the place where the caller believes the journal ends, and returns the
    /// place after it. When this returns, the group and its rows survive a power cut.
    fn append(&mut self, at: Position, group: &Group) -> Result<Position, AppendError>;

    /// Whether the writer may still speak for the journal without writing to it. A journal with several possible writers
    /// says no once another one may have taken over.
    fn may_answer(&self) -> bool {
        true
    }

    /// Groups from `from` on, in order, without a gap. Empty at the end.
    fn read(&mut self, from: Position, limit: Limit) -> Result<Vec<StoredGroup>, ReadError>;

    /// Takes the next step of saving a snapshot, a short one; false when that was the last. The newest
    /// snapshot before this one is kept as well, in case this one is damaged one day; older ones are dropped.
    fn save_piece(&mut self, saving: &mut Saving) -> Result<bool, AppendError>;

    /// Keeps the state before the group at `snapshot.position`: all steps at once.
    fn save_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), AppendError> {
        let mut saving = Saving::new(snapshot.clone());
        while self.save_piece(&mut saving)? {}
        Ok(())
    }

    /// Where the snapshots stand that are kept, newest first.
    fn snapshots(&mut self) -> Result<Vec<Position>, ReadError>;

    /// The snapshot at one of these places.
    fn snapshot(&mut self, at: Position) -> Result<Snapshot, ReadError>;

    /// The newest snapshot.
    fn latest_snapshot(&mut self) -> Result<Option<Snapshot>, ReadError> {
        let newest = self.snapshots()?.first().copied();
        newest.map(|at| self.snapshot(at)).transpose()
    }

    /// Drops groups before `before`, as far as a snapshot makes them needless, and returns how many.
    /// Rows of history stay.
    fn truncate(&mut self, before: Position) -> Result<u64, AppendError>;

    /// Takes the next step of forgetting, a short one; false when that was the last. An engine that keeps no history
    /// has nothing to forget.
    fn prune_some(&mut self, pruning: &mut Pruning) -> Result<bool, AppendError> {
        let _ = pruning;
        Ok(false)
    }

    /// How much room it takes.
    fn room(&mut self) -> Result<Room, ReadError> {
        Ok(Room::default())
    }

    /// Whether the disk is full although the last append went well, and there is a reserve to give up.
    fn is_short_of_room(&self) -> bool {
        false
    }

    /// Gives up the room that was kept for the day when the disk is full; how many bytes that was, if there was any.
    fn give_up_reserve(&mut self) -> Option<u64> {
        None
    }

    /// Keeps room for the day when the disk is full again. False: there is too little.
    fn renew_reserve(&mut self) -> bool {
        true
    }
}

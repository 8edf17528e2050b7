//! What can go wrong, told apart by what the caller must do about it.

use std::path::PathBuf;

use crate::{DatabaseError, Position};

/// Why an append failed.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Nothing was written. The same group may be appended again.
    #[error("nothing was written to the journal")]
    NotWritten(#[source] NotWritten),
    /// Somebody else wrote at this position: the caller is not the owner any more and must stop.
    #[error("another writer was here: expected to write at position {expected}, found {found}")]
    Fenced {
        /// Where the caller thought the journal ends.
        expected: Position,
        /// Where it ends.
        found: Position,
    },
    /// It may or may not have been written: stop, open the journal again and read its tail.
    #[error("it is not known whether the journal was written")]
    Unknown(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum NotWritten {
    /// The disk, or the room that the journal is allowed, is full.
    #[error("no room is left on the disk of the journal")]
    DiskFull,
    /// Something is larger than its limit.
    #[error("{what} of {size} is larger than the {max} that the journal takes")]
    TooLarge {
        /// What.
        what: &'static str,
        /// How large it is.
        size: u64,
        /// How large it may be.
        max: u64,
    },
    /// Groups may only be dropped when a snapshot holds what they did.
    #[error("no snapshot covers the groups before position {0}")]
    NoSnapshot(Position),
    /// A snapshot of a state that is not reached yet, or that was reached before the groups begin.
    #[error(
        "a snapshot at position {at} does not belong to a journal of positions {first} to {next}"
    )]
    BadSnapshot {
        /// The position of the snapshot.
        at: Position,
        /// The first group that is kept.
        first: Position,
        /// Where the next group goes.
        next: Position,
    },
    /// An earlier append ended in doubt.
    #[error("an earlier write ended in doubt; the journal must be opened again")]
    Stopped,
    /// The storage said no before anything was committed.
    #[error("the storage refused")]
    Storage(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// What is stored is not what was written.
    #[error("the journal is damaged at {place}: {what}")]
    Damaged {
        /// Where: "position 17", "the row of task-5".
        place: String,
        /// What is wrong there.
        what: String,
    },
    /// These groups were dropped.
    #[error("groups before position {first} were dropped; position {asked} was asked for")]
    Dropped {
        /// What was asked for.
        asked: Position,
        /// The first group that is kept.
        first: Position,
    },
    /// No snapshot stands there.
    #[error("there is no snapshot of position {0}")]
    NoSnapshot(Position),
    /// The storage could not be read.
    #[error("the journal cannot be read")]
    Storage(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Why a journal could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process owns it.
    #[error("the journal in {directory} is in use by {holder}", directory = directory.display())]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// Who: program, process id, host, since when.
        holder: String,
    },
    /// There is none.
    #[error("there is no journal in {directory}", directory = directory.display())]
    Missing {
        /// The directory.
        directory: PathBuf,
    },
    /// It was written by another version of Loxley.
    #[error(
        "the journal in {directory} has format {found}, that of {age} version of Loxley; this program reads formats \
         {oldest} to {known}: go on with the version that wrote it, or move its files away and begin a new one",
        directory = directory.display(),
        age = if found > known { "a newer" } else { "an older" }
    )]
    Format {
        /// The directory.
        directory: PathBuf,
        /// The format found.
        found: u32,
        /// The first format that this program reads.
        oldest: u32,
        /// The format of this program.
        known: u32,
    },
    /// It was written by an earlier version of Loxley and cannot be brought up to the present format.
    #[error(
        "the journal in {directory} has format {found} and cannot be brought up to format {known}; nothing was changed",
        directory = directory.display()
    )]
    Migration {
        /// The directory.
        directory: PathBuf,
        /// The format found.
        found: u32,
        /// The format of this program.
        known: u32,
        /// Why: too little room, most likely, since a copy is kept.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A journal is there already.
    #[error("there is a journal in {directory} already: it is not overwritten", directory = directory.display())]
    Present {
        /// The directory.
        directory: PathBuf,
    },
    /// It is damaged in a way that must not be read over.
    #[error("the journal in {directory} is damaged", directory = directory.display())]
    Damaged {
        /// The directory.
        directory: PathBuf,
        /// Where and how.
        #[source]
        damage: ReadError,
    },
    /// The journal is in a database, and that cannot be used.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// A file could not be made, opened or read.
    #[error("cannot open the journal in {directory}", directory = directory.display())]
    Io {
        /// The directory.
        directory: PathBuf,
        /// What the system said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

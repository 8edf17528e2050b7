//! What SQLite says, turned into what it means for us.

use rusqlite::ErrorCode;

use crate::{NotWritten, ReadError};

pub(super) fn damaged(place: impl Into<String>, what: impl Into<String>) -> ReadError {
    ReadError::Damaged {
        place: place.into(),
        what: what.into(),
    }
}

impl From<rusqlite::Error> for ReadError {
    /// A value of the wrong type is damage: we wrote it with the right one.
    fn from(error: rusqlite::Error) -> Self {
        let storage = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => false,
            Some(_) => true,
            None => false,
        };
        if storage {
            Self::Storage(Box::new(error))
        } else {
            damaged("its file", error.to_string())
        }
    }
}

/// An error before a commit: nothing was written.
pub(super) fn not_written(error: rusqlite::Error) -> NotWritten {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => NotWritten::DiskFull,
        _ => NotWritten::Storage(Box::new(error)),
    }
}

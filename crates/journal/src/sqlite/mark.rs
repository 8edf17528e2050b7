//! How many groups were acknowledged, kept outside of SQLite.
//!
//! The log of SQLite may lose its end to a bad disk, a bad copy or a wrong `rm`, and what is left is a
//! perfect, shorter journal. The mark is written after each commit, without an fsync of its own: it
//! is never ahead of what is durable, and after the death of a process (not of the machine) it is
//! exact. So a mark beyond the end always means that something acknowledged is gone; a mark behind it
//! is ordinary.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::group::Position;

const MAGIC: &[u8; 8] = b"LOXMARK1";
const LENGTH: usize = 28;

#[derive(Debug)]
pub(super) struct Mark {
    file: File,
    id: u64,
}

/// What a mark file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// There is no such file.
    Missing,
    /// It is not a mark, or a damaged one.
    Unreadable,
    /// So many groups of the journal `id` were acknowledged.
    Acknowledged { id: u64, next: Position },
}

impl Mark {
    pub(super) fn read(path: &Path) -> io::Result<Reading> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(parse(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Reading::Missing),
            Err(error) => Err(error),
        }
    }

    /// Opens the file to be written. Call [`set`](Self::set) next.
    pub(super) fn open(path: &Path, id: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        file.set_len(LENGTH as u64)?;
        Ok(Self { file, id })
    }

    pub(super) fn set(&self, next: Position) -> io::Result<()> {
        self.file.write_all_at(&bytes(self.id, next), 0)
    }
}

fn bytes(id: u64, next: Position) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&id.to_le_bytes());
    bytes[16..24].copy_from_slice(&next.0.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..24]);
    bytes[24..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn parse(found: &[u8]) -> Reading {
    let number = |at: usize| {
        let bytes = found.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    match (number(8), number(16)) {
        (Some(id), Some(next)) if found == bytes(id, Position(next)) => Reading::Acknowledged {
            id,
            next: Position(next),
        },
        _ => Reading::Unreadable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_and_every_flipped_bit_is_seen() {
        let whole = bytes(7, Position(9));
        let said = Reading::Acknowledged {
            id: 7,
            next: Position(9),
        };
        assert_eq!(parse(&whole), said);
        for bit in 0..LENGTH * 8 {
            let mut broken = whole;
            broken[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(&broken), Reading::Unreadable, "bit {bit}");
        }
        for length in 0..LENGTH {
            assert_eq!(parse(&whole[..length]), Reading::Unreadable);
        }
    }
}

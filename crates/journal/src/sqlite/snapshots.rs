//! Snapshots: written in pieces, each a commit of its own, so that groups can be written in between.
//!
//! ```text
//!   pieces      [7] [8] [9]          [10] [11]
//!   snapshots    position 40: 7, three of them
//! ```
//!
//! A row in `snapshots` names pieces that follow each other, and is written when all of them are durable: with
//! it the snapshot counts. Pieces that no row names (10 and 11 here) belong to one that is being written, or
//! never was: a crash leaves them, and the next snapshot clears them away. What a new snapshot replaces goes in
//! small steps as well, for to give many pages back takes as long as to fill them.

use rusqlite::{Connection, params};

use super::damage::{damaged, not_written};
use super::engine::{SqliteJournal, too_large};
use super::head::Head;
use super::read::chain_before;
use super::seal::{self, Chain};
use crate::failpoint;
use crate::group::{Position, SNAPSHOTS_KEPT, Saving, Snapshot, Stage};
use crate::rows::limits;
use crate::{AppendError, NotWritten, ReadError};

/// Bytes of a piece: its commit takes about as long as that of a large group.
const PIECE_BYTES: usize = 256 << 10;

/// Pieces that one commit drops.
const DROPPED_AT_ONCE: i64 = 4;

/// Takes the next step; false when that was the last.
pub(super) fn save_piece(
    journal: &mut SqliteJournal,
    saving: &mut Saving,
) -> Result<bool, AppendError> {
    let Saving { snapshot, stage } = saving;
    match stage {
        Stage::Clearing => {
            check(journal.head(), snapshot)?;
            if !drop_needless(journal)? {
                *stage = Stage::Pieces {
                    first: next_piece(journal.connection())
                        .map_err(|error| AppendError::NotWritten(not_written(error)))?,
                    crcs: Vec::new(),
                };
            }
        }
        Stage::Pieces { first, crcs } => {
            let rest = &snapshot.state[(crcs.len() * PIECE_BYTES).min(snapshot.state.len())..];
            if rest.is_empty() {
                failpoint::pass(failpoint::BEFORE_SNAPSHOT_COUNTS);
                let position = snapshot.position;
                let chain = journal.chain_before(position)?;
                journal.commit(|connection, _| {
                    insert(connection, position, &chain, *first, crcs).map_err(not_written)
                })?;
                failpoint::pass(failpoint::AFTER_SNAPSHOT);
                *stage = Stage::Replacing;
            } else {
                let data = &rest[..rest.len().min(PIECE_BYTES)];
                let piece = *first + crcs.len() as u64;
                let crc = seal::piece(piece, data);
                journal.commit(|connection, _| {
                    insert_piece(connection, piece, data, crc).map_err(not_written)?;
                    failpoint::pass(failpoint::IN_SNAPSHOT);
                    Ok(())
                })?;
                crcs.push(crc);
            }
        }
        Stage::Replacing => return drop_needless(journal),
    }
    Ok(true)
}

fn check(head: &Head, snapshot: &Snapshot) -> Result<(), AppendError> {
    let (at, first, next) = (snapshot.position, head.base, head.next);
    if !(first..=next).contains(&at) {
        let refused = NotWritten::BadSnapshot { at, first, next };
        return Err(AppendError::NotWritten(refused));
    }
    let bytes = snapshot.state.len();
    too_large("a snapshot", bytes, limits::SNAPSHOT_BYTES_MAX)
}

/// Drops some pieces that no snapshot names; false when there is none.
fn drop_needless(journal: &mut SqliteJournal) -> Result<bool, AppendError> {
    const NEEDLESS: &str = "SELECT piece FROM pieces WHERE NOT EXISTS (SELECT 1 FROM snapshots \
        WHERE piece >= first_piece AND piece < first_piece + piece_count) LIMIT ?1";
    let found = |connection: &Connection| -> rusqlite::Result<Vec<i64>> {
        let mut statement = connection.prepare_cached(NEEDLESS)?;
        let found = statement.query_map([DROPPED_AT_ONCE], |row| row.get(0))?;
        found.collect()
    };
    let needless =
        found(journal.connection()).map_err(|error| AppendError::NotWritten(not_written(error)))?;
    if needless.is_empty() {
        return Ok(false);
    }
    journal.commit(|connection, _| {
        for piece in needless {
            let mut statement = connection
                .prepare_cached("DELETE FROM pieces WHERE piece = ?1")
                .map_err(not_written)?;
            statement.execute([piece]).map_err(not_written)?;
        }
        Ok(true)
    })
}

fn next_piece(connection: &Connection) -> rusqlite::Result<u64> {
    let last = "SELECT coalesce(max(piece), 0) FROM pieces";
    let last: i64 = connection.query_row(last, (), |row| row.get(0))?;
    Ok(last as u64 + 1)
}

fn insert_piece(
    connection: &Connection,
    piece: u64,
    data: &[u8],
    crc: u32,
) -> rusqlite::Result<()> {
    let mut statement =
        connection.prepare_cached("INSERT INTO pieces (piece, data, crc) VALUES (?1, ?2, ?3)")?;
    statement
        .execute(params![piece as i64, data, crc])
        .map(|_| ())
}

/// Has a snapshot count whose pieces are there, beside those before it that are still wanted.
fn insert(
    connection: &Connection,
    position: Position,
    chain: &Chain,
    first: u64,
    crcs: &[u32],
) -> rusqlite::Result<()> {
    let at = position.0 as i64;
    connection.execute(
        "DELETE FROM snapshots WHERE position >= ?1 OR position NOT IN \
         (SELECT position FROM snapshots WHERE position < ?1 ORDER BY position DESC LIMIT ?2)",
        params![at, SNAPSHOTS_KEPT as i64 - 1],
    )?;
    let crc = seal::snapshot(position, chain, first, crcs);
    connection.execute(
        "INSERT INTO snapshots (position, chain, first_piece, piece_count, crc) \
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![at, chain, first as i64, crcs.len() as i64, crc],
    )?;
    Ok(())
}

/// Where snapshots stand, newest first.
pub(super) fn list(connection: &Connection, head: &Head) -> Result<Vec<Position>, ReadError> {
    let mut statement =
        connection.prepare_cached("SELECT position FROM snapshots ORDER BY position DESC")?;
    let found = statement.query_map((), |row| Ok(Position(row.get::<_, i64>(0)? as u64)))?;
    let found: Vec<Position> = found.collect::<rusqlite::Result<_>>()?;
    // A base beyond the start means that groups went because of a snapshot.
    if found.is_empty() && head.base != Position::START {
        let place = format!("the snapshot of position {}", head.base);
        return Err(damaged(place, "it is missing"));
    }
    Ok(found)
}

/// The snapshot at `position`, if it is whole and belongs to the groups that are there.
pub(super) fn read(
    connection: &Connection,
    head: &Head,
    position: Position,
) -> Result<Snapshot, ReadError> {
    let mut statement = connection.prepare_cached(
        "SELECT chain, first_piece, piece_count, crc FROM snapshots WHERE position = ?1",
    )?;
    let mut rows = statement.query([position.0 as i64])?;
    let Some(row) = rows.next()? else {
        return Err(ReadError::NoSnapshot(position));
    };
    let place = || format!("the snapshot of position {position}");
    let chain: Chain = row.get(0)?;
    let first = row.get::<_, i64>(1)? as u64;
    let (state, crcs) = read_pieces(connection, first, row.get(2)?)?;
    if row.get::<_, u32>(3)? != seal::snapshot(position, &chain, first, &crcs) {
        return Err(damaged(place(), "the CRC does not fit"));
    }
    let in_range = (head.base..=head.next).contains(&position);
    if !in_range || chain_before(connection, head, position)? != chain {
        return Err(damaged(place(), "it does not belong to these groups"));
    }
    Ok(Snapshot { position, state })
}

/// Pieces one after the other, and the CRC of each.
fn read_pieces(
    connection: &Connection,
    first: u64,
    count: i64,
) -> Result<(Vec<u8>, Vec<u32>), ReadError> {
    let mut statement = connection.prepare_cached(
        "SELECT piece, data, crc FROM pieces WHERE piece >= ?1 ORDER BY piece LIMIT ?2",
    )?;
    let mut rows = statement.query(params![first as i64, count.max(0)])?;
    let (mut state, mut crcs) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        let piece = first + crcs.len() as u64;
        let data = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        let crc = seal::piece(piece, data);
        if row.get::<_, i64>(0)? as u64 != piece || row.get::<_, u32>(2)? != crc {
            return Err(damaged(
                format!("piece {piece} of a snapshot"),
                "it is not what was written",
            ));
        }
        state.extend_from_slice(data);
        crcs.push(crc);
    }
    Ok((state, crcs))
}

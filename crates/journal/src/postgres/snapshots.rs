//! Snapshots, in pieces that are commits of their own. As in the embedded journal, a row of `snapshot` names pieces that
//! follow each other and is written last; pieces that no row names are cleared away by the next one.

use super::journal::{PostgresJournal, damaged};
use super::rows;
use crate::failpoint;
use crate::group::{Position, SNAPSHOTS_KEPT, Saving, Snapshot, Stage};
use crate::rows::limits;
use crate::sqlite::seal::{self, Chain};
use crate::{AppendError, NotWritten, ReadError};

/// Bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;

/// Pieces that one commit drops.
const DROPPED_AT_ONCE: i64 = 16;

pub(super) fn unreadable(error: ReadError) -> AppendError {
    AppendError::NotWritten(NotWritten::Storage(Box::new(error)))
}

/// Takes the next step; false when that was the last.
pub(super) fn save_piece(
    journal: &mut PostgresJournal,
    saving: &mut Saving,
) -> Result<bool, AppendError> {
    let Saving { snapshot, stage } = saving;
    match stage {
        Stage::Clearing => {
            check(journal, snapshot)?;
            if !drop_needless(journal)? {
                *stage = Stage::Pieces {
                    first: next_piece(journal).map_err(unreadable)?,
                    crcs: Vec::new(),
                };
            }
        }
        Stage::Pieces { first, crcs } => {
            let rest = &snapshot.state[(crcs.len() * PIECE_BYTES).min(snapshot.state.len())..];
            if rest.is_empty() {
                failpoint::pass(failpoint::BEFORE_SNAPSHOT_COUNTS);
                let chain = journal
                    .chain_before(snapshot.position)
                    .map_err(unreadable)?;
                insert(journal, snapshot.position, &chain, *first, crcs)?;
                failpoint::pass(failpoint::AFTER_SNAPSHOT);
                *stage = Stage::Replacing;
            } else {
                let data = &rest[..rest.len().min(PIECE_BYTES)];
                let piece = *first + crcs.len() as u64;
                let crc = seal::piece(piece, data);
                insert_piece(journal, piece, data, crc)?;
                crcs.push(crc);
            }
        }
        Stage::Replacing => return drop_needless(journal),
    }
    Ok(true)
}

fn check(journal: &PostgresJournal, snapshot: &Snapshot) -> Result<(), AppendError> {
    let (at, first, next) = (snapshot.position, journal.head.base, journal.head.next);
    if !(first..=next).contains(&at) {
        let refused = NotWritten::BadSnapshot { at, first, next };
        return Err(AppendError::NotWritten(refused));
    }
    let (bytes, most) = (snapshot.state.len(), limits::SNAPSHOT_BYTES_MAX);
    rows::at_most("a snapshot", bytes as u64, most as u64).map_err(AppendError::NotWritten)
}

/// Drops some pieces that no snapshot names; false when there is none.
fn drop_needless(journal: &mut PostgresJournal) -> Result<bool, AppendError> {
    let shard = journal.claim().shard;
    let gone = journal.commit(async |connected| {
        let statement = "DELETE FROM piece WHERE shard = $1 AND piece IN (SELECT piece FROM piece p \
            WHERE shard = $1 AND NOT EXISTS (SELECT 1 FROM snapshot s WHERE s.shard = $1 \
            AND p.piece >= s.first_piece AND p.piece < s.first_piece + s.piece_count) LIMIT $2)";
        let client = connected.link.client();
        client.execute(statement, &[&shard, &DROPPED_AT_ONCE]).await
    })?;
    Ok(gone > 0)
}

fn next_piece(journal: &mut PostgresJournal) -> Result<u64, ReadError> {
    let shard = journal.claim().shard;
    let row = journal.ask(async |connected| {
        let statement = "SELECT coalesce(max(piece), 0) + 1 FROM piece WHERE shard = $1";
        connected
            .link
            .client()
            .query_one(statement, &[&shard])
            .await
    })?;
    Ok(row.get::<_, i64>(0) as u64)
}

fn insert_piece(
    journal: &mut PostgresJournal,
    piece: u64,
    data: &[u8],
    crc: u32,
) -> Result<(), AppendError> {
    let (shard, piece, crc) = (journal.claim().shard, piece as i64, i64::from(crc));
    journal.commit(async |connected| {
        // Written again when nobody heard whether it was: then it is the same.
        let statement = "INSERT INTO piece (shard, piece, crc, data) VALUES ($1, $2, $3, $4) \
            ON CONFLICT (shard, piece) DO UPDATE SET crc = excluded.crc, data = excluded.data";
        let client = connected.link.client();
        client
            .execute(statement, &[&shard, &piece, &crc, &data])
            .await?;
        failpoint::pass(failpoint::IN_SNAPSHOT);
        Ok(())
    })
}

/// Has a snapshot count whose pieces are there, beside those before it that are still wanted.
fn insert(
    journal: &mut PostgresJournal,
    position: Position,
    chain: &Chain,
    first: u64,
    crcs: &[u32],
) -> Result<(), AppendError> {
    let (shard, at) = (journal.claim().shard, position.0 as i64);
    let (first_piece, count) = (first as i64, crcs.len() as i64);
    let crc = i64::from(seal::snapshot(position, chain, first, crcs));
    let kept = SNAPSHOTS_KEPT as i64 - 1;
    journal.commit(async |connected| {
        let client = connected.link.client();
        client
            .execute(
                "DELETE FROM snapshot WHERE shard = $1 AND (pos >= $2 OR pos NOT IN \
                 (SELECT pos FROM snapshot WHERE shard = $1 AND pos < $2 ORDER BY pos DESC LIMIT $3))",
                &[&shard, &at, &kept],
            )
            .await?;
        client
            .execute(
                "INSERT INTO snapshot (shard, pos, chain, first_piece, piece_count, crc) \
                 VALUES ($1, $2, $3, $4, $5, $6)",
                &[&shard, &at, &&chain[..], &first_piece, &count, &crc],
            )
            .await?;
        Ok(())
    })
}

/// Where snapshots stand, newest first.
pub(super) fn list(journal: &mut PostgresJournal) -> Result<Vec<Position>, ReadError> {
    let shard = journal.claim().shard;
    let rows = journal.ask(async |connected| {
        let statement = "SELECT pos FROM snapshot WHERE shard = $1 ORDER BY pos DESC";
        connected.link.client().query(statement, &[&shard]).await
    })?;
    if rows.is_empty() && journal.head.base != Position::START {
        return Err(damaged(journal.head.base, "its snapshot is missing"));
    }
    let positions = rows.iter().map(|row| Position(row.get::<_, i64>(0) as u64));
    Ok(positions.collect())
}

/// The snapshot at `position`, if it is whole and belongs to the groups that are there.
pub(super) fn read(
    journal: &mut PostgresJournal,
    position: Position,
) -> Result<Snapshot, ReadError> {
    let (shard, at) = (journal.claim().shard, position.0 as i64);
    let row = journal.ask(async |connected| {
        let statement = "SELECT chain, first_piece, piece_count, crc FROM snapshot \
            WHERE shard = $1 AND pos = $2";
        let client = connected.link.client();
        client.query_opt(statement, &[&shard, &at]).await
    })?;
    let row = row.ok_or(ReadError::NoSnapshot(position))?;
    let (first, count) = (row.get::<_, i64>(1), row.get::<_, i64>(2));
    let (mut state, mut crcs) = (Vec::new(), Vec::new());
    for piece in first..first + count {
        let found = journal.ask(async |connected| {
            let statement = "SELECT crc, data FROM piece WHERE shard = $1 AND piece = $2";
            let client = connected.link.client();
            client.query_opt(statement, &[&shard, &piece]).await
        })?;
        let found = found.ok_or_else(|| damaged(position, "a piece of its snapshot is missing"))?;
        let data: &[u8] = found.get(1);
        let crc = seal::piece(piece as u64, data);
        if i64::from(crc) != found.get::<_, i64>(0) {
            return Err(damaged(
                position,
                "a piece of its snapshot is not what was written",
            ));
        }
        state.extend_from_slice(data);
        crcs.push(crc);
    }
    let chain = Chain::try_from(row.get::<_, &[u8]>(0));
    let chain = chain.map_err(|_| damaged(position, "its snapshot has no chain"))?;
    if i64::from(seal::snapshot(position, &chain, first as u64, &crcs)) != row.get::<_, i64>(3) {
        return Err(damaged(position, "the CRC of its snapshot does not fit"));
    }
    let in_range = (journal.head.base..=journal.head.next).contains(&position);
    if !in_range || journal.chain_before(position)? != chain {
        return Err(damaged(
            position,
            "its snapshot does not belong to these groups",
        ));
    }
    Ok(Snapshot { position, state })
}

//! Reads groups and snapshots, and holds them against their checks.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::damage::damaged;
use super::head::Head;
use super::seal::{self, Chain, next_chain};
use crate::ReadError;
use crate::group::{Limit, Position, Snapshot, StoredGroup};

/// Groups from `from` on, each following from the one before it.
pub(super) fn groups(
    connection: &Connection,
    head: &Head,
    from: Position,
    limit: Limit,
) -> Result<Vec<StoredGroup>, ReadError> {
    if from < head.base {
        return Err(ReadError::Dropped {
            asked: from,
            first: head.base,
        });
    }
    if from >= head.next {
        return Ok(Vec::new());
    }
    let mut chain = chain_before(connection, head, from)?;
    let mut statement = connection.prepare_cached(
        "SELECT position, count, crc, chain, facts FROM groups WHERE position >= ?1 \
         ORDER BY position LIMIT ?2",
    )?;
    let most = i64::try_from(limit.groups.max(1)).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![from.0 as i64, most])?;
    let mut groups = Vec::new();
    let mut expected = from;
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let group = group(row, expected, &mut chain)?;
        bytes += group.facts.len();
        expected = expected.next();
        groups.push(group);
        if bytes >= limit.bytes {
            return Ok(groups);
        }
    }
    if groups.len() < limit.groups.max(1) && expected != head.next {
        return Err(damaged(
            format!("position {expected}"),
            "the group is missing",
        ));
    }
    Ok(groups)
}

/// One group, held against its place, its CRC and the chain, which moves on.
fn group(row: &Row<'_>, expected: Position, chain: &mut Chain) -> Result<StoredGroup, ReadError> {
    let position = Position(row.get::<_, i64>(0)? as u64);
    let place = || format!("position {expected}");
    if position != expected {
        return Err(damaged(
            place(),
            format!("found position {position} instead"),
        ));
    }
    let fact_count: u32 = row.get(1)?;
    let facts: Vec<u8> = row.get(4)?;
    if row.get::<_, u32>(2)? != seal::group(position, fact_count, &facts) {
        return Err(damaged(place(), "the CRC does not fit the facts"));
    }
    *chain = next_chain(chain, position, fact_count, &facts);
    if row.get::<_, Chain>(3)? != *chain {
        return Err(damaged(
            place(),
            "the group does not follow from the one before it",
        ));
    }
    Ok(StoredGroup {
        position,
        facts,
        fact_count,
    })
}

/// The chain before the group at `position`.
pub(super) fn chain_before(
    connection: &Connection,
    head: &Head,
    position: Position,
) -> Result<Chain, ReadError> {
    if position == head.base {
        return Ok(head.base_chain);
    }
    if position == head.next {
        return Ok(head.chain);
    }
    let before = position.0 as i64 - 1;
    let mut statement =
        connection.prepare_cached("SELECT chain FROM groups WHERE position = ?1")?;
    let chain = statement.query_row([before], |row| row.get(0)).optional()?;
    chain.ok_or_else(|| damaged(format!("position {before}"), "the group is missing"))
}

/// Where snapshots stand, newest first.
pub(super) fn snapshots(connection: &Connection, head: &Head) -> Result<Vec<Position>, ReadError> {
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
pub(super) fn snapshot(
    connection: &Connection,
    head: &Head,
    position: Position,
) -> Result<Snapshot, ReadError> {
    let mut statement =
        connection.prepare_cached("SELECT crc, chain, state FROM snapshots WHERE position = ?1")?;
    let mut rows = statement.query([position.0 as i64])?;
    let Some(row) = rows.next()? else {
        return Err(ReadError::NoSnapshot(position));
    };
    let place = || format!("the snapshot of position {position}");
    let chain: Chain = row.get(1)?;
    let state: Vec<u8> = row.get(2)?;
    if row.get::<_, u32>(0)? != seal::snapshot(position, &chain, &state) {
        return Err(damaged(place(), "the CRC does not fit"));
    }
    let in_range = (head.base..=head.next).contains(&position);
    if !in_range || chain_before(connection, head, position)? != chain {
        return Err(damaged(place(), "it does not belong to these groups"));
    }
    Ok(Snapshot { position, state })
}

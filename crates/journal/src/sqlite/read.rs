//! Reads groups, and holds them against their checks.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::damage::damaged;
use super::head::Head;
use super::seal::{self, Chain, next_chain};
use crate::ReadError;
use crate::group::{Limit, Position, StoredGroup};

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

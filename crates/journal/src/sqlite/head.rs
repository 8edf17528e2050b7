//! The one row that says where the journal ends and how much is in it.
//!
//! It is written in the same transaction as every change, so a table that lost rows, at its end or in
//! its middle, contradicts it.

use rusqlite::{Connection, Row, params};

use super::damage::damaged;
use super::seal::{Chain, Seal, first_chain};
use crate::ReadError;
use crate::group::Position;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// A number drawn when the journal was made.
    pub(super) id: u64,
    /// When it was made, in nanoseconds since 1970: the origin of its times.
    pub(super) epoch: u64,
    /// The first group that is kept, and the chain before it.
    pub(super) base: Position,
    pub(super) base_chain: Chain,
    /// Where the next group goes, and the chain before it.
    pub(super) next: Position,
    pub(super) chain: Chain,
    pub(super) rows: RowCounts,
}

/// How many rows of history there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowCounts {
    pub(super) tasks: u64,
    pub(super) outputs: u64,
    pub(super) jobs: u64,
    pub(super) agents: u64,
}

impl Head {
    pub(super) fn new(id: u64, epoch: u64) -> Self {
        let chain = first_chain(id, epoch);
        Self {
            id,
            epoch,
            base: Position::START,
            base_chain: chain,
            next: Position::START,
            chain,
            rows: RowCounts::default(),
        }
    }

    pub(super) fn load(connection: &Connection) -> Result<Self, ReadError> {
        let mut statement = connection.prepare_cached("SELECT * FROM head")?;
        let mut rows = statement.query(())?;
        let Some(row) = rows.next()? else {
            return Err(damaged("its head", "the row is missing"));
        };
        let head = Self::from_row(row)?;
        if row.get::<_, u32>("crc")? != head.crc() {
            return Err(damaged("its head", "the CRC does not fit"));
        }
        Ok(head)
    }

    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let number = |name: &str| row.get::<_, i64>(name).map(|number| number as u64);
        Ok(Self {
            id: number("id")?,
            epoch: number("epoch")?,
            base: Position(number("base")?),
            base_chain: row.get("base_chain")?,
            next: Position(number("next")?),
            chain: row.get("chain")?,
            rows: RowCounts {
                tasks: number("tasks")?,
                outputs: number("outputs")?,
                jobs: number("jobs")?,
                agents: number("agents")?,
            },
        })
    }

    /// Puts the first row in.
    pub(super) fn insert(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.execute(
            "INSERT INTO head (one, id, epoch) VALUES (1, ?1, ?2)",
            params![self.id as i64, self.epoch as i64],
        )?;
        self.replace(connection, None).map(|_| ())
    }

    /// Writes the row, if the journal ends where `before` says. False: somebody else was here.
    pub(super) fn store(
        &self,
        connection: &Connection,
        before: Position,
    ) -> rusqlite::Result<bool> {
        self.replace(connection, Some(before))
    }

    fn replace(&self, connection: &Connection, before: Option<Position>) -> rusqlite::Result<bool> {
        let mut statement = connection.prepare_cached(
            "UPDATE head SET base = ?1, base_chain = ?2, next = ?3, chain = ?4, tasks = ?5, \
             outputs = ?6, jobs = ?7, agents = ?8, crc = ?9 WHERE ?10 IS NULL OR next = ?10",
        )?;
        let changed = statement.execute(params![
            self.base.0 as i64,
            self.base_chain,
            self.next.0 as i64,
            self.chain,
            self.rows.tasks as i64,
            self.rows.outputs as i64,
            self.rows.jobs as i64,
            self.rows.agents as i64,
            self.crc(),
            before.map(|before| before.0 as i64),
        ])?;
        Ok(changed == 1)
    }

    fn crc(&self) -> u32 {
        Seal::new("head")
            .number(self.id)
            .number(self.epoch)
            .number(self.base.0)
            .bytes(&self.base_chain)
            .number(self.next.0)
            .bytes(&self.chain)
            .number(self.rows.tasks)
            .number(self.rows.outputs)
            .number(self.rows.jobs)
            .number(self.rows.agents)
            .finish()
    }
}

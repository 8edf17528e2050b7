//! Checks of content: a CRC for every row, a chain of hashes over the groups.

use ring::digest::{Context, SHA256};

use crate::group::Position;
use crate::rows::{AgentRow, JobRow, TaskOutput, state_code};

/// The hash of a group and of every group before it.
pub(crate) type Chain = [u8; 32];

/// The chain of a journal without groups. Journals differ by id, so their groups cannot be mixed up.
pub(crate) fn first_chain(id: u64, epoch: u64) -> Chain {
    let mut hash = Context::new(&SHA256);
    hash.update(b"loxley journal 1");
    hash.update(&id.to_le_bytes());
    hash.update(&epoch.to_le_bytes());
    chain(hash)
}

/// The chain after a group.
pub(crate) fn next_chain(before: &Chain, position: Position, count: u32, facts: &[u8]) -> Chain {
    let mut hash = Context::new(&SHA256);
    hash.update(before);
    hash.update(&position.0.to_le_bytes());
    hash.update(&count.to_le_bytes());
    hash.update(facts);
    chain(hash)
}

fn chain(hash: Context) -> Chain {
    let digest = hash.finish();
    digest.as_ref().try_into().expect("32 bytes")
}

/// A CRC over fields, each with its length or presence, so that no two rows look the same.
pub(super) struct Seal(crc32fast::Hasher);

impl Seal {
    /// `table` keeps a row from passing as one of another table.
    pub(super) fn new(table: &str) -> Self {
        Self(crc32fast::Hasher::new()).bytes(table.as_bytes())
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    pub(super) fn number(mut self, number: u64) -> Self {
        self.0.update(&number.to_le_bytes());
        self
    }

    pub(super) fn maybe(self, number: Option<u64>) -> Self {
        match number {
            Some(number) => self.number(1).number(number),
            None => self.number(0),
        }
    }

    pub(super) fn finish(self) -> u32 {
        self.0.finalize()
    }
}

pub(crate) fn group(position: Position, count: u32, facts: &[u8]) -> u32 {
    Seal::new("groups")
        .number(position.0)
        .number(u64::from(count))
        .bytes(facts)
        .finish()
}

/// Over the CRCs of its pieces: so it does not take longer for a large one.
pub(crate) fn snapshot(position: Position, chain: &Chain, first_piece: u64, crcs: &[u32]) -> u32 {
    let seal = Seal::new("snapshots")
        .number(position.0)
        .bytes(chain)
        .number(first_piece)
        .number(crcs.len() as u64);
    let add = |seal: Seal, crc: &u32| seal.number(u64::from(*crc));
    crcs.iter().fold(seal, add).finish()
}

pub(crate) fn piece(piece: u64, data: &[u8]) -> u32 {
    Seal::new("pieces").number(piece).bytes(data).finish()
}

pub(super) fn output(row: &TaskOutput) -> u32 {
    Seal::new("outputs")
        .number(row.task.0)
        .bytes(&row.output)
        .bytes(&row.result)
        .finish()
}

pub(super) fn job(row: &JobRow) -> u32 {
    Seal::new("jobs")
        .number(row.job.0)
        .bytes(row.name.as_bytes())
        .bytes(row.user.as_bytes())
        .number(row.first_task.0)
        .number(row.task_count)
        .number(state_code(row.state) as u64)
        .number(row.created.0)
        .maybe(row.finished.map(|time| time.0))
        .number(row.succeeded)
        .number(row.failed)
        .number(row.cancelled)
        .bytes(&row.detail)
        .finish()
}

pub(super) fn agent(row: &AgentRow) -> u32 {
    Seal::new("agents")
        .number(row.agent.0)
        .bytes(row.name.as_bytes())
        .finish()
}

//! A journal over HTTP: what there is of it, and groups of facts as bytes.

use serde::{Deserialize, Serialize};

/// What a journal holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JournalInfo {
    /// The position of the first group that is kept.
    pub first: u64,
    /// The position of the next group that will be written.
    pub next: u64,
    /// Where snapshots stand, the newest first.
    pub snapshots: Vec<u64>,
}

/// A group of facts on its way: its position, how many facts it has, how many bytes they are (8, 4 and 4 bytes, the lowest
/// first), and the facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalGroup {
    /// Where it stands.
    pub position: u64,
    /// How many facts it has.
    pub fact_count: u32,
    /// The facts, as they are in the journal.
    pub facts: Vec<u8>,
}

impl JournalGroup {
    /// What it is called as a content type.
    pub const CONTENT_TYPE: &str = "application/octet-stream";

    /// Writes it behind others.
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.position.to_le_bytes());
        to.extend(self.fact_count.to_le_bytes());
        let len = u32::try_from(self.facts.len()).expect("a group is smaller than 4 GiB");
        to.extend(len.to_le_bytes());
        to.extend(&self.facts);
    }

    /// Reads what was written; none when it ends too early.
    #[must_use]
    pub fn read_all(mut from: &[u8]) -> Option<Vec<Self>> {
        let mut groups = Vec::new();
        while !from.is_empty() {
            let position = u64::from_le_bytes(*take(&mut from)?);
            let fact_count = u32::from_le_bytes(*take(&mut from)?);
            let len = u32::from_le_bytes(*take(&mut from)?) as usize;
            let (facts, rest) = from.split_at_checked(len)?;
            from = rest;
            groups.push(Self {
                position,
                fact_count,
                facts: facts.to_vec(),
            });
        }
        Some(groups)
    }
}

fn take<'a, const N: usize>(from: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_as_they_were_written() {
        let group = |position, facts: &[u8]| JournalGroup {
            position,
            fact_count: 7,
            facts: facts.to_vec(),
        };
        let groups = vec![group(3, b"facts"), group(4, b"")];
        let mut bytes = Vec::new();
        groups.iter().for_each(|group| group.write(&mut bytes));
        assert_eq!(JournalGroup::read_all(&bytes), Some(groups));
        assert_eq!(JournalGroup::read_all(&[]), Some(Vec::new()));
        for len in 1..bytes.len() {
            let whole = len == 8 + 4 + 4 + 5;
            assert_eq!(JournalGroup::read_all(&bytes[..len]).is_some(), whole);
        }
    }
}

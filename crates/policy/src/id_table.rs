//! Which ids are in use, and how those that are over ended.
//!
//! Ids are handed out in order by the drivers, so they lie close together: the table is made of pages
//! of 1,024 ids. A page whose tasks are all over shrinks to one bit an id.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use loxley_model::TaskId;

use crate::refs::TaskRef;

const PAGE: usize = 1024;

/// What the table knows of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It was never used.
    Unused,
    /// It is a task that is not over.
    Live(TaskRef),
    /// It is over, with success or without.
    Over { succeeded: bool },
}

/// What is known of an id, in four bytes: a million tasks make a large table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Code(u32);

impl Code {
    const UNUSED: Self = Self(u32::MAX);
    const SUCCEEDED: Self = Self(u32::MAX - 1);
    const FAILED: Self = Self(u32::MAX - 2);

    fn is_over(self) -> bool {
        matches!(self, Self::SUCCEEDED | Self::FAILED)
    }
}

impl From<Known> for Code {
    fn from(known: Known) -> Self {
        match known {
            Known::Unused => Self::UNUSED,
            Known::Over { succeeded: true } => Self::SUCCEEDED,
            Known::Over { succeeded: false } => Self::FAILED,
            Known::Live(task) => Self(task.index() as u32),
        }
    }
}

impl From<Code> for Known {
    fn from(code: Code) -> Self {
        match code {
            Code::UNUSED => Self::Unused,
            Code::SUCCEEDED => Self::Over { succeeded: true },
            Code::FAILED => Self::Over { succeeded: false },
            Code(task) => Self::Live(TaskRef::new(task as usize)),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
enum Page {
    #[default]
    Absent,
    Open {
        #[cfg_attr(feature = "serde", serde(with = "array"))]
        entries: Box<[Code; PAGE]>,
        over: u16,
    },
    /// All are over; a set bit is a success.
    Closed(#[cfg_attr(feature = "serde", serde(with = "array"))] Box<[u64; PAGE / 64]>),
}

/// How far beyond its end the directory grows for a new page.
const REACH: u64 = 64;

#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct IdTable {
    /// The pages from the first on, without a gap to speak of.
    directory: Vec<Page>,
    /// Pages far off, if somebody numbers tasks in leaps.
    remote: BTreeMap<u64, Page>,
}

fn locate(id: TaskId) -> (u64, usize) {
    (id.0 / PAGE as u64, (id.0 % PAGE as u64) as usize)
}

impl IdTable {
    pub(crate) fn known(&self, id: TaskId) -> Known {
        let (number, index) = locate(id);
        let page = match self.directory.get(number as usize) {
            Some(page) => page,
            None => self.remote.get(&number).unwrap_or(&Page::Absent),
        };
        match page {
            Page::Absent => Known::Unused,
            Page::Open { entries, .. } => entries[index].into(),
            Page::Closed(bits) => Known::Over {
                succeeded: bits[index / 64] >> (index % 64) & 1 == 1,
            },
        }
    }

    pub(crate) fn live(&self, id: TaskId) -> Option<TaskRef> {
        match self.known(id) {
            Known::Live(task) => Some(task),
            _ => None,
        }
    }

    pub(crate) fn set(&mut self, id: TaskId, known: Known) {
        let (number, index) = locate(id);
        let page = self.page_mut(number);
        match page {
            Page::Absent => {
                *page = Page::Open {
                    entries: Box::new([Code::UNUSED; PAGE]),
                    over: 0,
                }
            }
            Page::Closed(bits) => {
                *page = Page::Open {
                    entries: reopen(bits),
                    over: PAGE as u16,
                }
            }
            Page::Open { .. } => {}
        }
        let Page::Open { entries, over } = page else {
            return;
        };
        let code = Code::from(known);
        *over = *over - u16::from(entries[index].is_over()) + u16::from(code.is_over());
        entries[index] = code;
        if *over as usize == PAGE {
            *page = Page::Closed(close(entries));
        }
    }

    /// Gives the memory back in which this id is, if none of its neighbours is known, either.
    pub(crate) fn drop_if_unused(&mut self, id: TaskId) {
        let (number, _) = locate(id);
        let is_unused = |page: &Page| match page {
            Page::Absent => true,
            Page::Open { entries, .. } => entries.iter().all(|code| *code == Code::UNUSED),
            Page::Closed(_) => false,
        };
        if self.remote.get(&number).is_some_and(is_unused) {
            self.remote.remove(&number);
        }
    }

    /// Whether what it knows of live tasks are these, and so many.
    pub(crate) fn agrees(&self, live: impl Fn(TaskId, TaskRef) -> bool, count: usize) -> bool {
        let near = (0..).zip(&self.directory);
        let remote = self.remote.iter().map(|(number, page)| (*number, page));
        let mut found = 0;
        for (number, page) in near.chain(remote) {
            match page {
                Page::Absent | Page::Closed(_) => {}
                Page::Open { entries, .. } => {
                    let first = u128::from(number) * PAGE as u128;
                    for (index, code) in entries.iter().enumerate() {
                        if let Known::Live(task) = (*code).into() {
                            let id = u64::try_from(first + index as u128);
                            if !id.is_ok_and(|id| live(TaskId(id), task)) {
                                return false;
                            }
                            found += 1;
                        }
                    }
                }
            }
        }
        found == count
    }

    fn page_mut(&mut self, number: u64) -> &mut Page {
        let end = self.directory.len() as u64;
        if number < end {
            return &mut self.directory[number as usize];
        }
        if number >= end + REACH {
            return self.remote.entry(number).or_default();
        }
        for next in end..=number {
            let page = self.remote.remove(&next).unwrap_or_default();
            self.directory.push(page);
        }
        &mut self.directory[number as usize]
    }
}

fn close(entries: &[Code; PAGE]) -> Box<[u64; PAGE / 64]> {
    let mut bits = Box::new([0; PAGE / 64]);
    for (index, code) in entries.iter().enumerate() {
        if *code == Code::SUCCEEDED {
            bits[index / 64] |= 1 << (index % 64);
        }
    }
    bits
}

fn reopen(bits: &[u64; PAGE / 64]) -> Box<[Code; PAGE]> {
    let mut entries = Box::new([Code::UNUSED; PAGE]);
    for (index, entry) in entries.iter_mut().enumerate() {
        let succeeded = bits[index / 64] >> (index % 64) & 1 == 1;
        *entry = Known::Over { succeeded }.into();
    }
    entries
}

/// A page as a list of its entries: serde knows no arrays of this length.
#[cfg(feature = "serde")]
mod array {
    use alloc::boxed::Box;
    use alloc::vec::Vec;

    use serde::de::{Deserialize, Deserializer, Error};
    use serde::{Serialize, Serializer};

    pub(super) fn serialize<S: Serializer, T: Serialize, const N: usize>(
        entries: &[T; N],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        entries.as_slice().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de>, const N: usize>(
        deserializer: D,
    ) -> Result<Box<[T; N]>, D::Error> {
        let entries = Vec::deserialize(deserializer)?.into_boxed_slice();
        let wrong = |entries: Box<[T]>| Error::invalid_length(entries.len(), &"a whole page");
        entries.try_into().map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_page_shrinks_and_still_knows_every_ending() {
        let mut table = IdTable::default();
        for id in 0..2 * PAGE as u64 {
            table.set(TaskId(id), Known::Live(TaskRef::new(id as usize)));
        }
        for id in 0..PAGE as u64 {
            table.set(
                TaskId(id),
                Known::Over {
                    succeeded: id % 3 == 0,
                },
            );
        }
        assert!(matches!(table.directory[0], Page::Closed(_)));
        assert_eq!(table.known(TaskId(9)), Known::Over { succeeded: true });
        assert_eq!(table.known(TaskId(10)), Known::Over { succeeded: false });
        assert_eq!(table.live(TaskId(1030)), Some(TaskRef::new(1030)));
        assert_eq!(table.known(TaskId(1 << 60)), Known::Unused);
        table.set(TaskId(10), Known::Live(TaskRef::new(5)));
        assert_eq!(table.live(TaskId(10)), Some(TaskRef::new(5)));
        assert_eq!(table.known(TaskId(9)), Known::Over { succeeded: true });
    }

    #[test]
    fn ids_far_off_are_kept_when_the_directory_reaches_them() {
        let mut table = IdTable::default();
        let far = TaskId(200 * PAGE as u64);
        table.set(far, Known::Live(TaskRef::new(1)));
        assert_eq!(table.directory.len(), 0);
        for page in 0..=200 {
            table.set(TaskId(page * PAGE as u64 + 1), Known::Live(TaskRef::new(2)));
        }
        assert_eq!(table.live(far), Some(TaskRef::new(1)));
        assert!(table.remote.is_empty());
    }
}

//! Which ids are in use, and how those that are over ended.
//!
//! Ids are handed out in order by the drivers, so they lie close together: the table is made of pages
//! of 1,024 ids. A page whose tasks are all over shrinks to one bit an id.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

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

#[derive(Debug)]
enum Page {
    Open {
        entries: Box<[Known; PAGE]>,
        over: u16,
    },
    /// All are over; a set bit is a success.
    Closed(Box<[u64; PAGE / 64]>),
}

#[derive(Debug, Default)]
pub(crate) struct IdTable {
    pages: BTreeMap<u64, Page>,
}

fn locate(id: TaskId) -> (u64, usize) {
    (id.0 / PAGE as u64, (id.0 % PAGE as u64) as usize)
}

impl IdTable {
    pub(crate) fn known(&self, id: TaskId) -> Known {
        let (page, index) = locate(id);
        match self.pages.get(&page) {
            None => Known::Unused,
            Some(Page::Open { entries, .. }) => entries[index],
            Some(Page::Closed(bits)) => Known::Over {
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
        let page = self.pages.entry(number).or_insert_with(|| Page::Open {
            entries: Box::new([Known::Unused; PAGE]),
            over: 0,
        });
        if let Page::Closed(bits) = page {
            *page = Page::Open {
                entries: reopen(bits),
                over: PAGE as u16,
            };
        }
        let Page::Open { entries, over } = page else {
            return;
        };
        let is_over = |known: Known| u16::from(matches!(known, Known::Over { .. }));
        *over = *over - is_over(entries[index]) + is_over(known);
        entries[index] = known;
        if *over as usize == PAGE {
            *page = Page::Closed(close(entries));
        }
    }
}

fn close(entries: &[Known; PAGE]) -> Box<[u64; PAGE / 64]> {
    let mut bits = Box::new([0; PAGE / 64]);
    for (index, known) in entries.iter().enumerate() {
        if *known == (Known::Over { succeeded: true }) {
            bits[index / 64] |= 1 << (index % 64);
        }
    }
    bits
}

fn reopen(bits: &[u64; PAGE / 64]) -> Box<[Known; PAGE]> {
    let mut entries = Box::new([Known::Unused; PAGE]);
    for (index, entry) in entries.iter_mut().enumerate() {
        *entry = Known::Over {
            succeeded: bits[index / 64] >> (index % 64) & 1 == 1,
        };
    }
    entries
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
        assert!(matches!(table.pages[&0], Page::Closed(_)));
        assert_eq!(table.known(TaskId(9)), Known::Over { succeeded: true });
        assert_eq!(table.known(TaskId(10)), Known::Over { succeeded: false });
        assert_eq!(table.live(TaskId(1030)), Some(TaskRef::new(1030)));
        assert_eq!(table.known(TaskId(1 << 60)), Known::Unused);
        table.set(TaskId(10), Known::Live(TaskRef::new(5)));
        assert_eq!(table.live(TaskId(10)), Some(TaskRef::new(5)));
        assert_eq!(table.known(TaskId(9)), Known::Over { succeeded: true });
    }
}

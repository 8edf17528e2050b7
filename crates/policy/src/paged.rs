//! A table from ids that lie close together to places in another table.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

const PAGE: usize = 256;

/// How far beyond its end the directory grows for a new page.
const REACH: u64 = 1024;

/// Ids are handed out in order by the drivers, so finding one is two steps, not a search. Ids that
/// come in leaps are found too, a little slower.
#[derive(Debug)]
pub(crate) struct Paged<V> {
    /// The pages from the first on, without a gap to speak of.
    directory: Vec<Option<Box<Page<V>>>>,
    remote: BTreeMap<u64, Box<Page<V>>>,
    len: usize,
}

#[derive(Debug)]
struct Page<V> {
    entries: [Option<V>; PAGE],
    used: usize,
}

impl<V: Copy> Default for Paged<V> {
    fn default() -> Self {
        Self {
            directory: Vec::new(),
            remote: BTreeMap::new(),
            len: 0,
        }
    }
}

fn locate(id: u64) -> (u64, usize) {
    (id / PAGE as u64, (id % PAGE as u64) as usize)
}

impl<V: Copy> Paged<V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, id: u64) -> Option<V> {
        let (number, index) = locate(id);
        let page = match self.directory.get(number as usize) {
            Some(page) => page.as_ref()?,
            None => self.remote.get(&number)?,
        };
        page.entries[index]
    }

    pub(crate) fn insert(&mut self, id: u64, value: V) {
        let (number, index) = locate(id);
        let page = self.page_mut(number);
        let old = page.entries[index].replace(value);
        page.used += usize::from(old.is_none());
        self.len += usize::from(old.is_none());
    }

    pub(crate) fn remove(&mut self, id: u64) {
        let (number, index) = locate(id);
        let near = (number as usize) < self.directory.len();
        let page = if near {
            self.directory[number as usize].as_mut()
        } else {
            self.remote.get_mut(&number)
        };
        let Some(page) = page else { return };
        if page.entries[index].take().is_none() {
            return;
        }
        self.len -= 1;
        page.used -= 1;
        if page.used == 0 {
            if near {
                self.directory[number as usize] = None;
            } else {
                self.remote.remove(&number);
            }
        }
    }

    /// All values, in the order of their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, V)> {
        let near = (0..)
            .zip(&self.directory)
            .filter_map(|(n, page)| Some((n, page.as_ref()?)));
        let remote = self.remote.iter().map(|(number, page)| (*number, page));
        near.chain(remote).flat_map(|(number, page)| {
            let first = number * PAGE as u64;
            let used = page.entries.iter().enumerate();
            used.filter_map(move |(index, value)| Some((first + index as u64, (*value)?)))
        })
    }

    fn page_mut(&mut self, number: u64) -> &mut Page<V> {
        let empty = || {
            Box::new(Page {
                entries: [None; PAGE],
                used: 0,
            })
        };
        let end = self.directory.len() as u64;
        if number >= end + REACH {
            return self.remote.entry(number).or_insert_with(empty);
        }
        for next in end..=number {
            let page = self.remote.remove(&next);
            self.directory.push(page);
        }
        self.directory[number as usize].get_or_insert_with(empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_and_far_ids_are_found_until_they_are_removed() {
        let mut table = Paged::default();
        let ids = [0, 1, 255, 256, 70_000, 1 << 40, u64::MAX];
        for id in ids {
            table.insert(id, id as u32);
        }
        assert_eq!(table.len(), ids.len());
        assert!(table.iter().map(|(id, _)| id).eq(ids));
        for id in ids {
            assert_eq!(table.get(id), Some(id as u32));
            let len = table.len();
            for _ in 0..2 {
                table.remove(id);
                assert_eq!((table.get(id), table.len()), (None, len - 1));
            }
        }
        assert_eq!(table.len(), 0);
    }
}

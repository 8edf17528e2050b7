//! Where items come from: lists on the command line, files, numbers, standard input.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use loxley_jobfile::Ranges;

/// The words of the command, and the lists that follow it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// The command, before the first `:::`.
    pub(super) command: Vec<OsString>,
    /// `::: item …` and `:::: file …`, in their order.
    pub(super) lists: Vec<List>,
}

/// One list of items.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum List {
    /// The items themselves.
    Given(Vec<OsString>),
    /// Files with an item on each line.
    Files(Vec<PathBuf>),
}

impl CommandLine {
    /// Divides what stands behind the options.
    pub(super) fn parse(words: Vec<OsString>) -> Result<Self> {
        let mut line = Self::default();
        for word in words {
            match word.to_str() {
                Some(":::") => line.lists.push(List::Given(Vec::new())),
                Some("::::") => line.lists.push(List::Files(Vec::new())),
                Some(":::+" | "::::+") => {
                    bail!("linked lists (:::+) are not known here; use --each-line and {{1}}")
                }
                _ => match line.lists.last_mut() {
                    None => line.command.push(word),
                    Some(List::Given(items)) => items.push(word),
                    Some(List::Files(files)) => files.push(word.into()),
                },
            }
        }
        Ok(line)
    }
}

/// The items of each task, one after the other: one item of each list.
pub(super) struct Items {
    /// How many lists there are.
    pub(super) lists: usize,
    /// How many tasks there will be, where that is known.
    pub(super) total: Option<u64>,
    /// Whether asking for the next may have to wait for somebody to write it.
    pub(super) waits: bool,
    source: Box<dyn Iterator<Item = io::Result<Vec<OsString>>> + Send>,
}

impl Items {
    /// Every combination of one item of each list; the last list changes fastest.
    pub(super) fn product(lists: Vec<List>, end: u8) -> Result<Self> {
        let lists: Vec<Vec<OsString>> = lists
            .into_iter()
            .map(|list| list.into_items(end))
            .collect::<Result<_>>()?;
        let count = lists.len();
        let total = lists
            .iter()
            .map(|list| list.len() as u64)
            .fold(1, u64::saturating_mul);
        let combination = move |number: u64| {
            let mut rest = number;
            let mut items: Vec<OsString> = Vec::with_capacity(lists.len());
            for list in lists.iter().rev() {
                let length = list.len() as u64;
                items.push(list[(rest % length) as usize].clone());
                rest /= length;
            }
            items.reverse();
            Ok(items)
        };
        Ok(Self {
            lists: count,
            total: Some(total),
            waits: false,
            source: Box::new((0..total).map(combination)),
        })
    }

    /// Numbers.
    pub(super) fn array(array: &Ranges) -> Self {
        Self {
            lists: 1,
            total: Some(array.count()),
            waits: false,
            source: Box::new(
                array
                    .iter()
                    .map(|number| Ok(vec![number.to_string().into()])),
            ),
        }
    }

    /// The lines of a reader, as they come; `end` is what ends a line.
    pub(super) fn lines(reader: impl BufRead + Send + 'static, end: u8) -> Self {
        Self {
            lists: 1,
            total: None,
            waits: true,
            source: Box::new(Lines { reader, end }.map(|line| Ok(vec![line?]))),
        }
    }

    /// The lines of a file.
    pub(super) fn file(path: &Path, end: u8) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::lines(BufReader::new(io::stdin()), end));
        }
        Ok(Self::lines(open(path)?, end))
    }
}

impl Iterator for Items {
    type Item = io::Result<Vec<OsString>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.source.next()
    }
}

impl List {
    fn into_items(self, end: u8) -> Result<Vec<OsString>> {
        let files = match self {
            Self::Given(items) => return Ok(items),
            Self::Files(files) => files,
        };
        let mut items = Vec::new();
        for path in files {
            let reader: Box<dyn BufRead> = if path == Path::new("-") {
                Box::new(BufReader::new(io::stdin()))
            } else {
                Box::new(open(&path)?)
            };
            for line in (Lines { reader, end }) {
                items.push(line.with_context(|| format!("cannot read {}", path.display()))?);
            }
        }
        Ok(items)
    }
}

fn open(path: &Path) -> Result<BufReader<File>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(BufReader::new(file))
}

struct Lines<R> {
    reader: R,
    end: u8,
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = io::Result<OsString>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = Vec::new();
        match self.reader.read_until(self.end, &mut line) {
            Ok(0) => None,
            Ok(_) => {
                if line.last() == Some(&self.end) {
                    line.pop();
                }
                Some(Ok(OsString::from_vec(line)))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn all(items: Items) -> Vec<String> {
        items
            .map(|items| {
                items
                    .unwrap()
                    .join(std::ffi::OsStr::new("+"))
                    .into_string()
                    .unwrap()
            })
            .collect()
    }

    #[test]
    fn lists_are_combined_the_last_one_fastest() {
        let line = CommandLine::parse(words("echo {} ::: a b ::: 1 2 3")).unwrap();
        assert_eq!(line.command, words("echo {}"));
        let items = Items::product(line.lists, b'\n').unwrap();
        assert_eq!(items.total, Some(6));
        assert_eq!(all(items), ["a+1", "a+2", "a+3", "b+1", "b+2", "b+3"]);
    }

    #[test]
    fn an_empty_list_gives_no_tasks() {
        let line = CommandLine::parse(words("echo :::")).unwrap();
        assert_eq!(all(Items::product(line.lists, b'\n').unwrap()).len(), 0);
    }

    #[test]
    fn numbers_come_in_ranges_and_steps() {
        let array = |text: &str| Items::array(&text.parse().unwrap());
        assert_eq!(array("1-1000").total, Some(1000));
        assert_eq!(all(array("1-9:4,20,7-8")), ["1", "5", "9", "20", "7", "8"]);
        let top = u64::MAX;
        assert_eq!(all(array(&format!("{top}-{top}"))), [top.to_string()]);
    }

    #[test]
    fn lines_are_items_also_empty_ones_and_odd_bytes() {
        let items = Items::lines(&b"a\n\nb c\nlast"[..], b'\n');
        assert_eq!(all(items), ["a", "", "b c", "last"]);
        let items = Items::lines(&b"a\nb\0c\0"[..], 0);
        assert_eq!(all(items), ["a\nb", "c"]);
        let mut items = Items::lines(&b"\xff\n"[..], b'\n');
        let item = items.next().unwrap().unwrap();
        assert_eq!(item, [OsString::from_vec(vec![0xff])]);
    }
}

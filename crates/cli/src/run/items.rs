//! Where items come from: lists on the command line, files, numbers, standard input.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::num::NonZero;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
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
pub(super) struct List {
    content: Content,
    /// Whether it goes along with the list before it, item by item (`:::+`).
    is_linked: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Content {
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
            let content = match word.to_str() {
                Some(":::" | ":::+") => Content::Given(Vec::new()),
                Some("::::" | "::::+") => Content::Files(Vec::new()),
                _ => {
                    match line.lists.last_mut().map(|list| &mut list.content) {
                        None => line.command.push(word),
                        Some(Content::Given(items)) => items.push(word),
                        Some(Content::Files(files)) => files.push(word.into()),
                    }
                    continue;
                }
            };
            let is_linked = word.as_encoded_bytes().ends_with(b"+");
            if is_linked && line.lists.is_empty() {
                bail!(
                    "`{}` goes along with the list before it, and there is none",
                    word.display()
                );
            }
            line.lists.push(List { content, is_linked });
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
    /// Every combination of one item of each list; the last list changes fastest. Linked lists go
    /// along with each other, as far as the shortest goes.
    pub(super) fn product(lists: Vec<List>, end: u8) -> Result<Self> {
        let count = lists.len();
        let mut groups: Vec<Vec<Vec<OsString>>> = Vec::new();
        for list in lists {
            let is_linked = list.is_linked;
            let items = list.into_items(end)?;
            match groups.last_mut() {
                Some(group) if is_linked => group.push(items),
                _ => groups.push(vec![items]),
            }
        }
        let length = |group: &[Vec<OsString>]| group.iter().map(Vec::len).min().unwrap_or(0) as u64;
        let total = groups
            .iter()
            .map(|group| length(group))
            .fold(1, u64::saturating_mul);
        let combination = move |number: u64| {
            let mut rest = number;
            let mut items: Vec<OsString> = Vec::with_capacity(count);
            for group in groups.iter().rev() {
                let length = length(group);
                let place = (rest % length) as usize;
                items.extend(group.iter().rev().map(|list| list[place].clone()));
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

    /// Several items for each task: `{1}` is the first of them, `{}` all. The last task may have
    /// fewer.
    pub(super) fn batched(self, size: NonZero<usize>) -> Result<Self> {
        if self.lists != 1 {
            bail!("--max-args takes its items from one list");
        }
        let mut source = self.source;
        let batch = move || {
            let mut batch = Vec::with_capacity(size.get());
            while batch.len() < size.get() {
                match source.next() {
                    Some(Ok(items)) => batch.extend(items),
                    Some(Err(error)) => return Some(Err(error)),
                    None => break,
                }
            }
            (!batch.is_empty()).then_some(Ok(batch))
        };
        Ok(Self {
            lists: size.get(),
            total: self.total.map(|total| total.div_ceil(size.get() as u64)),
            waits: self.waits,
            source: Box::new(std::iter::from_fn(batch)),
        })
    }

    /// Each item is a row of columns: `{1}` is the first.
    pub(super) fn columns(self, separator: OsString) -> Self {
        let split = move |items: io::Result<Vec<OsString>>| {
            let columns = |item: &OsString| -> Vec<OsString> {
                split(item.as_bytes(), separator.as_bytes())
                    .map(|column| OsStr::from_bytes(column).to_owned())
                    .collect()
            };
            Ok(items?.iter().flat_map(columns).collect())
        };
        Self {
            // Rows may differ: a column that is not there is empty.
            lists: usize::MAX,
            source: Box::new(self.source.map(split)),
            ..self
        }
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
        let files = match self.content {
            Content::Given(items) => return Ok(items),
            Content::Files(files) => files,
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

/// The pieces between the separators.
fn split<'t>(text: &'t [u8], separator: &'t [u8]) -> impl Iterator<Item = &'t [u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut places = text.windows(separator.len().max(1));
        match places.position(|place| place == separator) {
            Some(at) => {
                rest = Some(&text[at + separator.len()..]);
                Some(&text[..at])
            }
            None => rest.take(),
        }
    })
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
            .map(|items| items.unwrap().join(OsStr::new("+")).into_string().unwrap())
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
    fn linked_lists_go_along_with_each_other() {
        let line = "echo ::: a b c :::+ 1 2 3 ::: x y";
        let items = Items::product(CommandLine::parse(words(line)).unwrap().lists, b'\n').unwrap();
        assert_eq!((items.lists, items.total), (3, Some(6)));
        assert_eq!(
            all(items),
            ["a+1+x", "a+1+y", "b+2+x", "b+2+y", "c+3+x", "c+3+y"]
        );
        let shorter = CommandLine::parse(words("echo ::: a b c :::+ 1 2")).unwrap();
        assert_eq!(
            all(Items::product(shorter.lists, b'\n').unwrap()),
            ["a+1", "b+2"]
        );
        assert!(CommandLine::parse(words("echo :::+ 1 2")).is_err());
    }

    #[test]
    fn items_are_put_together_and_cut_into_columns() {
        let lines = |text: &'static str| Items::lines(text.as_bytes(), b'\n');
        let three = NonZero::new(3).unwrap();
        assert_eq!(
            all(lines("a\nb\nc\nd\n").batched(three).unwrap()),
            ["a+b+c", "d"]
        );
        let array = Items::array(&"1-7".parse().unwrap());
        assert_eq!(array.batched(three).unwrap().total, Some(3));
        let table = lines("a--b-c--\nd\n").columns("--".into());
        assert_eq!(all(table), ["a+b-c+", "d"]);
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

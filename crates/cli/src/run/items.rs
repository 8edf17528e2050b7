//! Where items come from: lists on the command line, files, numbers, standard input.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::num::NonZero;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use loxley_balance::Rng;
use loxley_jobfile::Ranges;
use regex_lite::Regex;

/// The words of the command, and the lists that follow it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// The command, before the first `:::`.
    pub(super) command: Vec<OsString>,
    /// `::: item …` and each file of `:::: file …`, in their order.
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
    /// A file with an item on each line.
    File(PathBuf),
}

impl List {
    /// The lines of a file.
    pub(super) fn of_file(path: PathBuf) -> Self {
        Self {
            content: Content::File(path),
            is_linked: false,
        }
    }
}

impl CommandLine {
    /// Divides what stands behind the options, at what stands before items and before files of them:
    /// `:::` and `::::`.
    pub(super) fn parse(words: Vec<OsString>, items: &str, files: &str) -> Result<Self> {
        let mut line = Self::default();
        // What stands before the files that follow, and whether it links them.
        let mut before_files: Option<(OsString, bool)> = None;
        for word in words {
            let bare = word
                .to_str()
                .map(|word| word.strip_suffix('+').unwrap_or(word));
            let is_linked = word.as_encoded_bytes().ends_with(b"+");
            match bare {
                Some(bare) if bare == items => {
                    let content = Content::Given(Vec::new());
                    line.lists.push(List { content, is_linked });
                    before_files = None;
                }
                Some(bare) if bare == files => before_files = Some((word, is_linked)),
                _ => match (&before_files, line.lists.last_mut()) {
                    (&Some((_, is_linked)), _) => {
                        let content = Content::File(word.into());
                        line.lists.push(List { content, is_linked });
                    }
                    (None, None) => line.command.push(word),
                    (None, Some(list)) => match &mut list.content {
                        Content::Given(items) => items.push(word),
                        Content::File(_) => unreachable!("files stand behind what says so"),
                    },
                },
            }
        }
        if let Some((word, _)) = before_files
            && !matches!(
                line.lists.last(),
                Some(List {
                    content: Content::File(_),
                    ..
                })
            )
        {
            bail!("no file follows `{}`", word.display());
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
    /// What the lists or columns are called, where they have names.
    pub(super) names: Vec<String>,
    source: Box<dyn Iterator<Item = io::Result<Vec<OsString>>> + Send>,
}

impl Items {
    /// Every combination of one item of each list; the last list changes fastest. Linked lists go
    /// along with each other, as far as the shortest goes. If the lists have names, their first items are those.
    pub(super) fn product(lists: Vec<List>, end: u8, have_names: bool) -> Result<Self> {
        let count = lists.len();
        let mut groups: Vec<Vec<Vec<OsString>>> = Vec::new();
        let mut names = Vec::new();
        for list in lists {
            let is_linked = list.is_linked;
            let mut items = list.into_items(end)?;
            if have_names && !items.is_empty() {
                names.push(items.remove(0).to_string_lossy().into_owned());
            }
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
            names,
            source: Box::new((0..total).map(combination)),
        })
    }

    /// The lists side by side, as far as the longest goes: shorter ones begin again.
    pub(super) fn linked(lists: Vec<List>, end: u8, have_names: bool) -> Result<Self> {
        let mut lists = lists
            .into_iter()
            .map(|list| list.into_items(end))
            .collect::<Result<Vec<_>>>()?;
        let mut names = Vec::new();
        for list in &mut lists {
            if have_names && !list.is_empty() {
                names.push(list.remove(0).to_string_lossy().into_owned());
            }
        }
        let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
        let longest = match lists.iter().any(Vec::is_empty) {
            true => 0,
            false => longest,
        };
        let count = lists.len();
        let row = move |number: usize| {
            let item = |list: &Vec<OsString>| list[number % list.len()].clone();
            Ok(lists.iter().map(item).collect())
        };
        Ok(Self {
            lists: count,
            total: Some(longest as u64),
            waits: false,
            names,
            source: Box::new((0..longest).map(row)),
        })
    }

    /// The first row says what the columns are called.
    pub(super) fn with_names(mut self) -> io::Result<Self> {
        if let Some(row) = self.source.next() {
            let name = |item: OsString| item.to_string_lossy().into_owned();
            self.names = row?.into_iter().map(name).collect();
            self.total = self.total.map(|total| total.saturating_sub(1));
        }
        Ok(self)
    }

    /// Without the first `count` of them.
    pub(super) fn without_first(self, count: usize) -> Self {
        Self {
            total: self.total.map(|total| total.saturating_sub(count as u64)),
            source: Box::new(self.source.skip(count)),
            ..self
        }
    }

    /// Up to an item that is exactly this.
    pub(super) fn up_to(self, end: OsString) -> Self {
        let goes_on = move |items: &io::Result<Vec<OsString>>| !matches!(items, Ok(items) if items.len() == 1 && items[0] == end);
        Self {
            total: None,
            source: Box::new(self.source.take_while(goes_on)),
            ..self
        }
    }

    /// Without those that are empty or blank.
    pub(super) fn without_blank(self) -> Self {
        let is_blank = |item: &OsString| item.as_bytes().trim_ascii().is_empty();
        let wanted = move |items: &io::Result<Vec<OsString>>| !matches!(items, Ok(items) if items.iter().all(is_blank));
        Self {
            total: None,
            source: Box::new(self.source.filter(wanted)),
            ..self
        }
    }

    /// Without blanks at their beginning, their end, or both.
    pub(super) fn trimmed(self, trim: Trim) -> Self {
        let trimmed = move |item: OsString| {
            let mut bytes = item.as_bytes();
            if trim.left {
                bytes = bytes.trim_ascii_start();
            }
            if trim.right {
                bytes = bytes.trim_ascii_end();
            }
            OsStr::from_bytes(bytes).to_owned()
        };
        let row =
            move |items: io::Result<Vec<OsString>>| Ok(items?.into_iter().map(&trimmed).collect());
        Self {
            source: Box::new(self.source.map(row)),
            ..self
        }
    }

    /// In an order that nobody can tell.
    pub(super) fn shuffled(self, seed: u64) -> io::Result<Self> {
        let mut all = self.source.collect::<io::Result<Vec<_>>>()?;
        let mut rng = Rng::new(seed);
        for place in (1..all.len()).rev() {
            let other = rng.below(place as u64 + 1) as usize;
            all.swap(place, other);
        }
        Ok(Self {
            total: Some(all.len() as u64),
            waits: false,
            source: Box::new(all.into_iter().map(Ok)),
            ..self
        })
    }

    /// As many items for each task as its line has room for. What is left at the end is shared out over
    /// `parts` tasks, so that no slot stands idle beside one with all of them.
    pub(super) fn packed(self, room: Room, parts: usize) -> Result<Self> {
        if self.lists != 1 {
            bail!("-m, -X and --xargs take their items from one list");
        }
        let mut pack = Pack {
            source: self.source,
            room,
            parts,
            waiting: VecDeque::new(),
            length: 0,
            is_over: false,
        };
        Ok(Self {
            lists: usize::MAX,
            total: None,
            waits: self.waits,
            names: self.names,
            source: Box::new(std::iter::from_fn(move || pack.next().transpose())),
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
            names: self.names,
            source: Box::new(std::iter::from_fn(batch)),
        })
    }

    /// Each item is a row of columns: `{1}` is the first.
    pub(super) fn columns(self, separator: Separator) -> Self {
        let split = move |items: io::Result<Vec<OsString>>| {
            Ok(items?
                .iter()
                .flat_map(|item| separator.split(item))
                .collect())
        };
        Self {
            // Rows may differ: a column that is not there is empty.
            lists: usize::MAX,
            source: Box::new(self.source.map(split)),
            ..self
        }
    }

    /// The records of a table with commas between its columns, as spreadsheets write them.
    pub(super) fn csv(reader: impl io::Read + Send + 'static, comma: u8) -> Self {
        let reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(comma)
            .from_reader(reader);
        let row = |record: csv::Result<csv::ByteRecord>| {
            let record = record.map_err(io::Error::from)?;
            Ok(record
                .iter()
                .map(|field| OsStr::from_bytes(field).to_owned())
                .collect())
        };
        Self {
            lists: usize::MAX,
            total: None,
            waits: true,
            names: Vec::new(),
            source: Box::new(reader.into_byte_records().map(row)),
        }
    }

    /// No items at all.
    pub(super) fn none() -> Self {
        Self {
            lists: 1,
            total: Some(0),
            waits: false,
            names: Vec::new(),
            source: Box::new(std::iter::empty()),
        }
    }

    /// Numbers.
    pub(super) fn array(array: &Ranges) -> Self {
        Self {
            lists: 1,
            total: Some(array.count()),
            waits: false,
            names: Vec::new(),
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
            names: Vec::new(),
            source: Box::new(Lines { reader, end }.map(|line| Ok(vec![line?]))),
        }
    }

    /// The lines of a file.
    pub(super) fn file(path: &Path, end: u8) -> Result<Self> {
        Ok(Self::lines(reader(path)?, end))
    }
}

/// A file, or standard input for `-`.
pub(super) fn reader(path: &Path) -> Result<Box<dyn BufRead + Send>> {
    Ok(match path == Path::new("-") {
        true => Box::new(BufReader::new(io::stdin())),
        false => Box::new(open(path)?),
    })
}

/// At which ends blanks go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trim {
    left: bool,
    right: bool,
}

impl Trim {
    pub(super) const BOTH: Self = Self {
        left: true,
        right: true,
    };
}

impl FromStr for Trim {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "n" | "l" | "r" | "lr" | "rl" => Ok(Self {
                left: text.contains('l'),
                right: text.contains('r'),
            }),
            _ => Err(format!("`{text}` is not n, l, r or lr")),
        }
    }
}

/// What stands between two columns.
#[derive(Clone, Debug)]
pub(super) enum Separator {
    Text(OsString),
    Pattern(Regex),
}

impl FromStr for Separator {
    type Err = String;

    /// As GNU parallel, it is a regular expression; a text without anything special in it means itself.
    fn from_str(text: &str) -> Result<Self, String> {
        let special = |letter: char| r"\.+*?()|[]{}^$".contains(letter);
        match text {
            "" => Err("a separator is not empty".to_owned()),
            "\\t" => Ok(Self::Text("\t".into())),
            text if !text.contains(special) => Ok(Self::Text(text.into())),
            text => Regex::new(text)
                .map(Self::Pattern)
                .map_err(|error| format!("`{text}` is not a regular expression: {error}")),
        }
    }
}

impl Separator {
    /// The columns of a row. A pattern is not looked for in bytes that are no text.
    fn split(&self, item: &OsString) -> Vec<OsString> {
        match (self, item.to_str()) {
            (Self::Text(text), _) => split(item.as_bytes(), text.as_bytes())
                .map(|column| OsStr::from_bytes(column).to_owned())
                .collect(),
            (Self::Pattern(pattern), Some(text)) => {
                pattern.split(text).map(OsString::from).collect()
            }
            (Self::Pattern(_), None) => vec![item.clone()],
        }
    }
}

/// How much fits into the line of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// How long a line may be, in bytes.
    pub(super) longest: usize,
    /// What of it is taken without any item.
    pub(super) fixed: usize,
    /// How often each item stands in it, and what is repeated with each.
    pub(super) times: usize,
    pub(super) around: usize,
    /// How many items at the most.
    pub(super) items_max: usize,
}

impl Room {
    fn length(&self, item: &OsStr) -> usize {
        (loxley_exec::quoted(item).len() + 1) * self.times + self.around
    }
}

/// Puts items together as long as there is room.
struct Pack {
    source: Box<dyn Iterator<Item = io::Result<Vec<OsString>>> + Send>,
    room: Room,
    parts: usize,
    waiting: VecDeque<OsString>,
    /// How long what waits is.
    length: usize,
    is_over: bool,
}

impl Pack {
    fn next(&mut self) -> io::Result<Option<Vec<OsString>>> {
        loop {
            if let Some(count) = self.full() {
                return Ok(Some(self.take(count)));
            }
            if self.is_over {
                let rest = self.take(self.waiting.len());
                return Ok((!rest.is_empty()).then_some(rest));
            }
            match self.source.next().transpose()? {
                Some(items) => {
                    for item in items {
                        self.length += self.room.length(&item);
                        self.waiting.push_back(item);
                    }
                }
                None => {
                    self.is_over = true;
                    // Of what is left nobody gets more than its share.
                    let share = self.waiting.len().div_ceil(self.parts.max(1)).max(1);
                    self.room.items_max = self.room.items_max.min(share);
                }
            }
        }
    }

    fn take(&mut self, count: usize) -> Vec<OsString> {
        let taken: Vec<OsString> = self.waiting.drain(..count).collect();
        let lengths = taken.iter().map(|item| self.room.length(item));
        self.length -= lengths.sum::<usize>();
        taken
    }

    /// How many items fill a line, if there are enough. The last one may be the one too many.
    fn full(&self) -> Option<usize> {
        let count = self.waiting.len();
        if count > self.room.items_max {
            return Some(self.room.items_max);
        }
        (self.room.fixed + self.length > self.room.longest && count > 1).then(|| count - 1)
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
        let path = match self.content {
            Content::Given(items) => return Ok(items),
            Content::File(path) => path,
        };
        let reader = reader(&path)?;
        let mut items = Vec::new();
        for line in (Lines { reader, end }) {
            items.push(line.with_context(|| format!("cannot read {}", path.display()))?);
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

    fn parse(line: &str) -> Result<CommandLine> {
        CommandLine::parse(words(line), ":::", "::::")
    }

    fn all(items: Items) -> Vec<String> {
        items
            .map(|items| items.unwrap().join(OsStr::new("+")).into_string().unwrap())
            .collect()
    }

    #[test]
    fn lists_are_combined_the_last_one_fastest() {
        let line = parse("echo {} ::: a b ::: 1 2 3").unwrap();
        assert_eq!(line.command, words("echo {}"));
        let items = Items::product(line.lists, b'\n', false).unwrap();
        assert_eq!(items.total, Some(6));
        assert_eq!(all(items), ["a+1", "a+2", "a+3", "b+1", "b+2", "b+3"]);
    }

    #[test]
    fn linked_lists_go_along_with_each_other() {
        let line = "echo ::: a b c :::+ 1 2 3 ::: x y";
        let items = Items::product(parse(line).unwrap().lists, b'\n', false).unwrap();
        assert_eq!((items.lists, items.total), (3, Some(6)));
        assert_eq!(
            all(items),
            ["a+1+x", "a+1+y", "b+2+x", "b+2+y", "c+3+x", "c+3+y"]
        );
        let shorter = parse("echo ::: a b c :::+ 1 2").unwrap();
        assert_eq!(
            all(Items::product(shorter.lists, b'\n', false).unwrap()),
            ["a+1", "b+2"]
        );
        let first = parse("echo :::+ 1 2").unwrap();
        assert_eq!(
            all(Items::product(first.lists, b'\n', false).unwrap()),
            ["1", "2"]
        );
    }

    #[test]
    fn every_file_is_a_list_of_its_own() {
        let line = parse("cat :::: a b ::: c d ::::+ e f").unwrap();
        let file = |path: &str, is_linked| List {
            content: Content::File(path.into()),
            is_linked,
        };
        let given = List {
            content: Content::Given(words("c d")),
            is_linked: false,
        };
        let expected = [
            file("a", false),
            file("b", false),
            given,
            file("e", true),
            file("f", true),
        ];
        assert_eq!(line.lists, expected);
        assert!(parse("cat ::::").is_err());
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
        let table = lines("a--b-c--\nd\n").columns("--".parse().unwrap());
        assert_eq!(all(table), ["a+b-c+", "d"]);
    }

    #[test]
    fn lists_side_by_side_begin_again() {
        let line = parse("echo ::: a b c ::: 1 2").unwrap();
        let items = Items::linked(line.lists, b'\n', false).unwrap();
        assert_eq!(all(items), ["a+1", "b+2", "c+1"]);
        let named = parse("echo ::: x a b ::: y 1").unwrap();
        let items = Items::linked(named.lists, b'\n', true).unwrap();
        assert_eq!(items.names, ["x", "y"]);
        assert_eq!(all(items), ["a+1", "b+1"]);
    }

    #[test]
    fn rows_have_names_patterns_and_quotes() {
        let lines = |text: &'static str| Items::lines(text.as_bytes(), b'\n');
        let table = lines("f;g\n1, 2\n").columns("[;,] *".parse().unwrap());
        let table = table.with_names().unwrap();
        assert_eq!(table.names, ["f", "g"]);
        assert_eq!(all(table), ["1+2"]);
        let csv = Items::csv(&b"\"x, y\",2\n\"q \"\"z\"\"\",3\n"[..], b',');
        assert_eq!(all(csv), ["x, y+2", "q \"z\"+3"]);
    }

    #[test]
    fn blank_ones_go_and_the_end_is_known() {
        let lines = |text: &'static str| Items::lines(text.as_bytes(), b'\n');
        assert_eq!(all(lines("a\n \n\nb\n").without_blank()), ["a", "b"]);
        assert_eq!(all(lines(" a \n").trimmed("l".parse().unwrap())), ["a "]);
        assert_eq!(all(lines("a\nb\nc\n").up_to("b".into())), ["a"]);
        assert_eq!(all(lines("a\nb\nc\n").without_first(1)), ["b", "c"]);
        let mut shuffled = all(lines("a\nb\nc\nd\n").shuffled(7).unwrap());
        shuffled.sort();
        assert_eq!(shuffled, ["a", "b", "c", "d"]);
    }

    #[test]
    fn items_are_packed_and_the_rest_is_shared_out() {
        let room = |longest| Room {
            longest,
            fixed: 5,
            times: 1,
            around: 0,
            items_max: usize::MAX,
        };
        let numbers = || Items::array(&"1-7".parse().unwrap());
        assert_eq!(
            all(numbers().packed(room(100), 2).unwrap()),
            ["1+2+3+4", "5+6+7"]
        );
        assert_eq!(all(numbers().packed(room(100), 1).unwrap()).len(), 1);
        assert_eq!(
            all(numbers().packed(room(11), 1).unwrap()),
            ["1+2+3", "4+5+6", "7"]
        );
        assert_eq!(
            all(numbers().packed(room(1), 1).unwrap()).len(),
            7,
            "one at least"
        );
    }

    #[test]
    fn an_empty_list_gives_no_tasks() {
        let line = parse("echo :::").unwrap();
        assert_eq!(
            all(Items::product(line.lists, b'\n', false).unwrap()).len(),
            0
        );
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

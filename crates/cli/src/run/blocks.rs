//! `--pipe`: one input, cut into blocks between its records. Each block is what one task reads.
//!
//! A block lies in a file without a name until its task is over, so that attempts and second copies read it from its
//! beginning, and a command that does not read to the end keeps nobody waiting.

use std::io::{self, Read, Write};
use std::num::NonZero;

use loxley_exec::Input;

/// Where blocks may end, and how large they are.
#[derive(Debug)]
pub(super) struct Cut {
    /// How much is read before a block is cut off, in bytes.
    pub(super) size: usize,
    /// What a record begins with; may be empty.
    pub(super) start: Vec<u8>,
    /// What a record ends with; may be empty.
    pub(super) end: Vec<u8>,
    pub(super) rule: Rule,
    /// Whether beginnings and ends of records are left out.
    pub(super) without_marks: bool,
    /// Whether blank lines are left out.
    pub(super) without_blank: bool,
    /// Whether the first line stands in front of each block.
    pub(super) header: bool,
    pub(super) skip_first_line: bool,
}

/// How many records are in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// As many whole ones as were read.
    Whole,
    /// So many.
    Records(NonZero<usize>),
    /// As many as were read, each of so many lines.
    Lines(NonZero<usize>),
}

/// The blocks of an input, as they come.
pub(super) struct Blocks {
    input: Box<dyn Read + Send>,
    cut: Cut,
    /// What was read and is in no block yet.
    rest: Vec<u8>,
    header: Vec<u8>,
    /// Whether the first lines were dealt with.
    has_begun: bool,
    /// Whether a block was cut off since something was last read.
    found: bool,
    is_over: bool,
}

impl Blocks {
    pub(super) fn new(input: Box<dyn Read + Send>, cut: Cut) -> Self {
        Self {
            input,
            cut,
            rest: Vec::new(),
            header: Vec::new(),
            has_begun: false,
            found: true,
            is_over: false,
        }
    }

    /// The next block, without its header.
    fn next_block(&mut self) -> io::Result<Option<Vec<u8>>> {
        if !self.has_begun {
            self.has_begun = true;
            self.begin()?;
        }
        loop {
            if let Some(end) = self.boundary() {
                self.found = true;
                let rest = self.rest.split_off(end);
                return Ok(Some(std::mem::replace(&mut self.rest, rest)));
            }
            if self.is_over {
                let last = std::mem::take(&mut self.rest);
                return Ok((!last.is_empty()).then_some(last));
            }
            if !self.found {
                // A record is longer than what is read at once: reading little more each time would take for ever.
                self.cut.size += self.cut.size * 3 / 10 + 1;
            }
            self.found = false;
            self.read_on()?;
        }
    }

    /// Takes off the lines that are no part of any block.
    fn begin(&mut self) -> io::Result<()> {
        if self.cut.skip_first_line {
            self.first_line()?;
        }
        if self.cut.header {
            self.header = self.first_line()?;
        }
        Ok(())
    }

    fn first_line(&mut self) -> io::Result<Vec<u8>> {
        let mut looked_at = 0;
        loop {
            let new = &self.rest[looked_at..];
            if let Some(end) = new.iter().position(|byte| *byte == b'\n') {
                let rest = self.rest.split_off(looked_at + end + 1);
                return Ok(std::mem::replace(&mut self.rest, rest));
            }
            if self.is_over {
                return Ok(std::mem::take(&mut self.rest));
            }
            looked_at = self.rest.len();
            self.read_on()?;
        }
    }

    /// Reads up to the next multiple of the size.
    fn read_on(&mut self) -> io::Result<()> {
        let size = self.cut.size;
        let missing = (size - self.rest.len() % size) as u64;
        let count = self
            .input
            .by_ref()
            .take(missing)
            .read_to_end(&mut self.rest)?;
        self.is_over = (count as u64) < missing;
        if self.cut.without_blank {
            self.rest = without_blank_lines(&self.rest);
        }
        Ok(())
    }

    /// Where the next block ends in what was read. Where one block takes everything that is whole, a second look
    /// before more was read finds nothing new.
    fn boundary(&self) -> Option<usize> {
        let mark = [&*self.cut.end, &*self.cut.start].concat();
        let at = match self.cut.rule {
            // What is left at the end is one block.
            Rule::Whole if self.is_over || self.found => return None,
            Rule::Whole => last(&self.rest, &mark)?,
            // What the input begins with is the beginning of the first record.
            Rule::Records(count) => {
                let from = usize::from(!self.cut.start.is_empty());
                nth(&self.rest, &mark, from, count.get())?
            }
            Rule::Lines(_) if self.found => return None,
            Rule::Lines(count) => {
                let ends = self.rest.iter().filter(|byte| **byte == b'\n').count();
                let whole = NonZero::new(ends - ends % count)?;
                return Some(nth(&self.rest, b"\n", 0, whole.get())? + 1);
            }
        };
        Some(at + self.cut.end.len()).filter(|end| *end > 0)
    }

    /// A block as its task reads it.
    fn filed(&self, block: &[u8]) -> io::Result<Input> {
        let mut file = tempfile::tempfile()?;
        file.write_all(&self.header)?;
        match self.cut.without_marks {
            true => file.write_all(&without_marks(block, &self.cut))?,
            false => file.write_all(block)?,
        }
        Ok(Input::new(file))
    }
}

impl Iterator for Blocks {
    type Item = io::Result<Input>;

    fn next(&mut self) -> Option<Self::Item> {
        let block = self.next_block().transpose()?;
        Some(block.and_then(|block| self.filed(&block)))
    }
}

/// `\n`, `\t`, `\r`, `\0`, `\\` and quotes as the bytes that they stand for.
pub(super) fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes().peekable();
    while let Some(byte) = rest.next() {
        let meant = match (byte, rest.peek().copied()) {
            (b'\\', Some(b'n')) => b'\n',
            (b'\\', Some(b't')) => b'\t',
            (b'\\', Some(b'r')) => b'\r',
            (b'\\', Some(b'0')) => 0,
            (b'\\', Some(other @ (b'\\' | b'\'' | b'"'))) => other,
            _ => {
                bytes.push(byte);
                continue;
            }
        };
        rest.next();
        bytes.push(meant);
    }
    bytes
}

/// The place of the last `mark`.
fn last(text: &[u8], mark: &[u8]) -> Option<usize> {
    if mark.is_empty() {
        return Some(text.len());
    }
    text.windows(mark.len()).rposition(|place| place == mark)
}

/// The place of the `count`th mark from here on, each behind the one before.
fn nth(text: &[u8], mark: &[u8], mut from: usize, count: usize) -> Option<usize> {
    if mark.is_empty() {
        return (text.len() >= count).then_some(count);
    }
    let mut found = None;
    for _ in 0..count {
        let place = text
            .get(from..)?
            .windows(mark.len())
            .position(|place| place == mark)?;
        found = Some(from + place);
        from += place + 1;
    }
    found
}

fn without_blank_lines(text: &[u8]) -> Vec<u8> {
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let is_blank = |line: &&[u8]| line.ends_with(b"\n") && line.trim_ascii().is_empty();
    lines
        .filter(|line| !is_blank(line))
        .flatten()
        .copied()
        .collect()
}

fn without_marks(block: &[u8], cut: &Cut) -> Vec<u8> {
    let mark = [&*cut.end, &*cut.start].concat();
    let block = block.strip_prefix(&*cut.start).unwrap_or(block);
    let block = block.strip_suffix(&*cut.end).unwrap_or(block);
    let mut kept = Vec::with_capacity(block.len());
    let mut rest = block;
    while let Some(at) = nth(rest, &mark, 0, 1).filter(|_| !mark.is_empty()) {
        kept.extend_from_slice(&rest[..at]);
        rest = &rest[at + mark.len()..];
    }
    kept.extend_from_slice(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(size: usize, rule: Rule) -> Cut {
        Cut {
            size,
            start: Vec::new(),
            end: b"\n".to_vec(),
            rule,
            without_marks: false,
            without_blank: false,
            header: false,
            skip_first_line: false,
        }
    }

    fn blocks(text: &[u8], cut: Cut) -> Vec<Vec<u8>> {
        let mut blocks = Blocks::new(Box::new(io::Cursor::new(text.to_vec())), cut);
        let next = || blocks.next_block().unwrap();
        std::iter::from_fn(next).collect()
    }

    proptest! {
        /// Nothing is lost or doubled, and every block but the last ends with a record.
        #[test]
        fn blocks_are_the_input_cut_between_records(
            text in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
            size in 1..50usize,
            count in 0..5usize,
        ) {
            let rule = NonZero::new(count).map_or(Rule::Whole, Rule::Records);
            let found = blocks(&text, cut(size, rule));
            prop_assert_eq!(found.concat(), text);
            for (place, block) in found.iter().enumerate() {
                prop_assert!(!block.is_empty());
                prop_assert!(place + 1 == found.len() || block.ends_with(b"\n"));
                let records = block.iter().filter(|byte| **byte == b'\n').count();
                prop_assert!(count == 0 || records <= count);
            }
        }
    }

    #[test]
    fn records_begin_where_they_are_said_to() {
        let cut = Cut {
            start: b">".to_vec(),
            end: Vec::new(),
            ..cut(4, Rule::Records(NonZero::<usize>::MIN))
        };
        let found = blocks(b">a\nbc\n>d\n>e", cut);
        assert_eq!(found, [&b">a\nbc\n"[..], b">d\n", b">e"]);
    }

    #[test]
    fn escapes_are_bytes() {
        assert_eq!(unescaped(r"a\n\t\\\x"), b"a\n\t\\\\x");
    }
}

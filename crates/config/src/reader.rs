//! Values out of nodes, with every mistake collected.
//!
//! A reader never stops at the first mistake: each method gives the value, or notes what is wrong
//! and gives `None`, and the caller goes on with the next key. At the end,
//! [`finish`](Reader::finish) gives the result or all mistakes together.
//!
//! ```
//! use loxley_config::{Limits, Node, Reader};
//!
//! let text = "name: nightly\nslots: 0\ncolour: red\n";
//! let node = Node::parse(text, &Limits::default()).unwrap();
//! let mut reader = Reader::new("fleet.yaml", text);
//! let mut fields = reader.mapping("the file", &node).unwrap();
//! let name = fields.take("name").and_then(|node| reader.text("name", node));
//! let slots = fields.take("slots").and_then(|node| reader.whole("slots", node, 1..=64));
//! fields.finish(&mut reader);
//! let mistakes = reader.finish((name, slots)).unwrap_err();
//! assert_eq!(
//!     mistakes.to_string(),
//!     "fleet.yaml:2:8: `slots` is out of range (allowed: a whole number from 1 to 64)\n\
//!      fleet.yaml:3:1: there is no key `colour` here (known here: name, slots)"
//! );
//! ```

use std::fmt;
use std::ops::{Range, RangeInclusive};

use crate::mistake::{Kind, Mistake, Mistakes};
use crate::tree::{Key, Node, Style, Value, shorten};

/// How many mistakes of one file are kept.
const MISTAKES_MAX: usize = 100;

/// Takes values out of nodes and collects what is wrong with them.
#[derive(Debug)]
pub struct Reader<'a> {
    name: &'a str,
    text: &'a str,
    mistakes: Vec<Mistake>,
}

impl<'a> Reader<'a> {
    /// A reader of `text`, which came from the file `name`.
    #[must_use]
    pub fn new(name: &'a str, text: &'a str) -> Self {
        Self {
            name,
            text,
            mistakes: Vec::new(),
        }
    }

    /// Notes a mistake. Beyond the first hundred nobody reads on.
    pub fn note(&mut self, mistake: Mistake) {
        if !self.is_full() {
            self.mistakes.push(mistake);
        }
    }

    /// Whether further mistakes are not kept: no need to word them.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.mistakes.len() >= MISTAKES_MAX
    }

    /// Whether a mistake was noted.
    #[must_use]
    pub fn has_mistakes(&self) -> bool {
        !self.mistakes.is_empty()
    }

    /// The result, unless there was a mistake.
    pub fn finish<T>(self, result: T) -> Result<T, Mistakes> {
        if self.mistakes.is_empty() {
            Ok(result)
        } else {
            Err(Mistakes::new(self.name, self.text, self.mistakes))
        }
    }

    /// The keys of a mapping. Nothing at all counts as a mapping without keys.
    pub fn mapping<'n>(&mut self, what: &str, node: &'n Node) -> Option<Fields<'n>> {
        match &node.value {
            Value::Mapping(entries) => Some(self.fields(entries, &node.span)),
            _ if node.is_null() => Some(self.fields(&[], &node.span)),
            _ => self.wrong_type(what, node, "a group of keys"),
        }
    }

    /// The items of a list of a length within `length`.
    pub fn list<'n>(
        &mut self,
        what: &str,
        node: &'n Node,
        length: RangeInclusive<usize>,
    ) -> Option<&'n [Node]> {
        let allowed = format!("a list of {} to {} values", length.start(), length.end());
        let Value::List(items) = &node.value else {
            return self.wrong_type(what, node, &allowed);
        };
        if !length.contains(&items.len()) {
            return self.out_of_range(what, node, &allowed);
        }
        Some(items)
    }

    /// `true` or `false`.
    pub fn flag(&mut self, what: &str, node: &Node) -> Option<bool> {
        match plain(node) {
            Some("true" | "True" | "TRUE") => Some(true),
            Some("false" | "False" | "FALSE") => Some(false),
            _ => self.wrong_type(what, node, "true or false"),
        }
    }

    /// A whole number within `range`.
    pub fn whole(&mut self, what: &str, node: &Node, range: RangeInclusive<u64>) -> Option<u64> {
        let allowed = format!("a whole number {}", bounds(range.start(), range.end()));
        // Wider than any bound, so that a number below zero is out of range and not no number.
        let Some(number) = plain(node).and_then(|text| text.parse::<i128>().ok()) else {
            return self.wrong_type(what, node, &allowed);
        };
        match u64::try_from(number) {
            Ok(number) if range.contains(&number) => Some(number),
            _ => self.out_of_range(what, node, &allowed),
        }
    }

    /// A number within `range`.
    pub fn number(&mut self, what: &str, node: &Node, range: RangeInclusive<f64>) -> Option<f64> {
        let allowed = format!("a number {}", bounds(range.start(), range.end()));
        let Some(number) = plain(node).and_then(decimal) else {
            return self.wrong_type(what, node, &allowed);
        };
        if !range.contains(&number) {
            return self.out_of_range(what, node, &allowed);
        }
        Some(number)
    }

    /// A text, in quotes or not; not nothing.
    pub fn text<'n>(&mut self, what: &str, node: &'n Node) -> Option<&'n str> {
        match &node.value {
            Value::Scalar(text, _) if !node.is_null() => Some(text),
            _ => self.wrong_type(what, node, "a text"),
        }
    }

    /// One of these words; gives its position.
    pub fn choice(&mut self, what: &str, node: &Node, words: &[&str]) -> Option<usize> {
        let allowed = format!("one of {}", words.join(", "));
        let text = match &node.value {
            Value::Scalar(text, _) if !node.is_null() => text,
            _ => return self.wrong_type(what, node, &allowed),
        };
        let position = words.iter().position(|word| word == text);
        if position.is_none() {
            let label = format!("{} is not known", node.describe());
            let help = suggestion(text, words.iter().copied()).map_or_else(
                || format!("allowed: {allowed}"),
                |word| format!("did you mean `{word}`? allowed: {allowed}"),
            );
            let message = format!("`{what}` is not one of the choices");
            self.note(
                Mistake::new(Kind::OutOfRange, node.span.clone(), message, label).with_help(help),
            );
        }
        position
    }

    /// Notes that a value is of another type than `allowed` says.
    pub fn wrong_type<T>(&mut self, what: &str, node: &Node, allowed: &str) -> Option<T> {
        let message = format!("`{what}` has the wrong type");
        let label = format!("this is {}", node.describe());
        let mut help = format!("allowed: {allowed}");
        if let Value::Scalar(text, Style::Quoted) = &node.value
            && !text.is_empty()
        {
            help += "; in quotes it is a text";
        }
        self.note(Mistake::new(Kind::WrongType, node.span.clone(), message, label).with_help(help));
        None
    }

    /// Notes that a value is not within what `allowed` says.
    pub fn out_of_range<T>(&mut self, what: &str, node: &Node, allowed: &str) -> Option<T> {
        let message = format!("`{what}` is out of range");
        let label = match &node.value {
            Value::List(items) => format!("these are {}", items.len()),
            _ => format!("{} is not allowed", node.describe()),
        };
        let help = format!("allowed: {allowed}");
        self.note(
            Mistake::new(Kind::OutOfRange, node.span.clone(), message, label).with_help(help),
        );
        None
    }

    /// Notes the keys that are there twice; the first of them counts.
    fn fields<'n>(&mut self, entries: &'n [(Key, Node)], span: &Range<usize>) -> Fields<'n> {
        let mut given: Vec<(&Key, &Node)> = Vec::with_capacity(entries.len());
        let mut first_of = std::collections::HashMap::with_capacity(entries.len());
        for (key, node) in entries {
            let first = *first_of.entry(key.name.as_str()).or_insert(&key.span);
            if *first == key.span {
                given.push((key, node));
            } else {
                let message = format!("the key `{}` is given twice", shorten(&key.name));
                let mistake = Mistake::new(Kind::DuplicateKey, key.span.clone(), message, "again");
                self.note(
                    mistake
                        .with_other(first.clone(), "first given here")
                        .with_help("keep one of them"),
                );
            }
        }
        Fields {
            given,
            known: Vec::new(),
            span: span.clone(),
        }
    }
}

/// The keys of one mapping, taken one by one. What nobody took is unknown.
#[derive(Debug)]
pub struct Fields<'n> {
    given: Vec<(&'n Key, &'n Node)>,
    known: Vec<&'static str>,
    span: Range<usize>,
}

impl<'n> Fields<'n> {
    /// The value of a key, if it was given.
    pub fn take(&mut self, name: &'static str) -> Option<&'n Node> {
        self.known.push(name);
        let position = self.given.iter().position(|(key, _)| key.name == name)?;
        Some(self.given.swap_remove(position).1)
    }

    /// The value of a key that must be there.
    pub fn require(&mut self, name: &'static str, reader: &mut Reader<'_>) -> Option<&'n Node> {
        let node = self.take(name);
        if node.is_none() {
            let at = self.span.start..self.span.start;
            let message = format!("the key `{name}` is missing");
            reader.note(Mistake::new(Kind::MissingKey, at, message, "in here"));
        }
        node
    }

    /// What was not taken, for a mapping whose keys are the writer's own words.
    pub fn into_rest(self) -> Vec<(&'n Key, &'n Node)> {
        self.given
    }

    /// Notes every key that was not taken, with the nearest known one.
    pub fn finish(self, reader: &mut Reader<'_>) {
        self.finish_with(reader, |_| None);
    }

    /// As [`finish`](Self::finish); `elsewhere` may know better what to say about a key.
    pub fn finish_with(self, reader: &mut Reader<'_>, elsewhere: impl Fn(&str) -> Option<String>) {
        for (key, _) in &self.given {
            let message = format!("there is no key `{}` here", shorten(&key.name));
            let help = elsewhere(&key.name)
                .or_else(|| {
                    suggestion(&key.name, self.known.iter().copied())
                        .map(|word| format!("did you mean `{word}`?"))
                })
                .unwrap_or_else(|| format!("known here: {}", self.known.join(", ")));
            reader.note(
                Mistake::new(Kind::UnknownKey, key.span.clone(), message, "unknown")
                    .with_help(help),
            );
        }
    }
}

/// The text of a scalar that stands without quotes.
fn plain(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar(text, Style::Plain) => Some(text),
        _ => None,
    }
}

/// A finite number in decimal; Rust alone would also take `inf` and `nan`.
pub(crate) fn decimal(text: &str) -> Option<f64> {
    let looks = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let number = text.parse::<f64>().ok().filter(|_| looks)?;
    number.is_finite().then_some(number)
}

/// `from 1 to 5`.
fn bounds<T: fmt::Display>(least: &T, most: &T) -> String {
    format!("from {least} to {most}")
}

/// The word that `given` was probably meant to be.
#[must_use]
pub fn suggestion<'w>(given: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    // Similarity costs the product of the lengths: no key is longer than this.
    if given.len() > 100 {
        return None;
    }
    words
        .map(|word| (strsim::jaro_winkler(given, word), word))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, word)| word)
}

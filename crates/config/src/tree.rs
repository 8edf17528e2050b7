//! A YAML document as a tree of nodes that know where they stand in the text.
//!
//! The tree is finite whatever the text says: aliases are copied in, and every copied node counts
//! against [`Limits::nodes`], so ten lines cannot become a billion nodes; nesting is bounded after
//! copying, so walking and dropping a tree never overflows the stack.

use std::collections::BTreeMap;
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, Span};

use crate::mistake::{Kind, Mistake};

/// How much a file may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest text, in bytes.
    pub bytes: usize,
    /// The most nodes, aliases counted as what they stand for.
    pub nodes: usize,
    /// The deepest nesting, aliases counted as what they stand for.
    pub depth: usize,
}

impl Default for Limits {
    /// Room for any file a person writes: 1 MiB, 100,000 nodes, 32 levels.
    fn default() -> Self {
        Self {
            bytes: 1 << 20,
            nodes: 100_000,
            depth: 32,
        }
    }
}

/// A value and the bytes it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Its bytes in the text; for a copied alias, those of the alias.
    pub span: Range<usize>,
}

/// What a node holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A scalar, as text: what it means depends on who reads it.
    Scalar(String, Style),
    /// A list.
    List(Vec<Node>),
    /// Keys and values in the order of the text; a key may be there twice.
    Mapping(Vec<(Key, Node)>),
}

/// Whether a scalar stood in quotes (or a block) and is text whatever it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `5`, `true`, `word`.
    Plain,
    /// `"5"`, `'true'`, `|` and `>` blocks.
    Quoted,
}

/// A key of a mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Its text.
    pub name: String,
    /// Its bytes in the text.
    pub span: Range<usize>,
}

impl Node {
    /// Nothing, or a plain `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(text, Style::Plain)
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// What a person would call it.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.value {
            _ if self.is_null() => "nothing".to_owned(),
            Value::Scalar(text, Style::Quoted) => format!("the text {:?}", shorten(text)),
            Value::Scalar(text, Style::Plain) => format!("`{}`", shorten(text)),
            Value::List(_) => "a list".to_owned(),
            Value::Mapping(_) => "a group of keys".to_owned(),
        }
    }

    /// The tree of the one document in `text`; an empty text is an empty mapping.
    pub fn parse(text: &str, limits: &Limits) -> Result<Self, Mistake> {
        if text.len() > limits.bytes {
            let message = format!(
                "the file has {} bytes, at most {} are read",
                text.len(),
                limits.bytes
            );
            return Err(Mistake::new(Kind::TooLarge, 0..0, message, "too long"));
        }
        let options = granit_parser::options! {
            emit_comments: false,
            flow_nesting_limit: limits.depth,
            block_nesting_limit: limits.depth,
        };
        let mut builder = Builder::new(text, limits);
        for event in Parser::new_from_str_with_options(text, options) {
            let (event, span) = event.map_err(|error| syntax(text, &error))?;
            builder.take(event, &span)?;
        }
        Ok(builder.root.unwrap_or(Self {
            value: Value::Mapping(Vec::new()),
            span: 0..0,
        }))
    }
}

/// At most 40 characters of a text, for messages.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// A finished node with what an alias of it costs.
#[derive(Clone)]
struct Finished {
    node: Node,
    nodes: usize,
    height: usize,
}

/// A list or mapping whose end has not come yet.
struct Open {
    value: Value,
    /// The key that waits for its value, in a mapping.
    key: Option<Key>,
    span: Range<usize>,
    anchor: usize,
    nodes: usize,
    height: usize,
}

struct Builder<'a> {
    text: &'a str,
    limits: &'a Limits,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Finished>,
    root: Option<Node>,
    documents: usize,
    nodes: usize,
}

impl<'a> Builder<'a> {
    fn new(text: &'a str, limits: &'a Limits) -> Self {
        Self {
            text,
            limits,
            open: Vec::new(),
            anchors: BTreeMap::new(),
            root: None,
            documents: 0,
            nodes: 0,
        }
    }

    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), Mistake> {
        let at = bytes(self.text, span);
        if let Some(tag) = event.tag() {
            let message = format!("the tag `{}` means nothing here", shorten(&tag.original()));
            return Err(
                Mistake::new(Kind::Syntax, at, message, "has a tag").with_help("leave the tag out")
            );
        }
        match event {
            Event::DocumentStart(..) => self.start_document(at),
            Event::Scalar(text, style, anchor, _) => {
                let style = match style {
                    ScalarStyle::Plain => Style::Plain,
                    _ => Style::Quoted,
                };
                let value = Value::Scalar(text.into_owned(), style);
                self.finish(Node { value, span: at }, anchor, 1, 0)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.begin(Value::List(Vec::new()), at, anchor);
                Ok(())
            }
            Event::MappingStart(_, anchor, _) => {
                self.begin(Value::Mapping(Vec::new()), at, anchor);
                Ok(())
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(at.end),
            Event::Alias(anchor) => self.copy(anchor, at),
            _ => Ok(()),
        }
    }

    fn start_document(&mut self, at: Range<usize>) -> Result<(), Mistake> {
        self.documents += 1;
        if self.documents == 1 {
            return Ok(());
        }
        let message = "there is more than one document in the file";
        Err(
            Mistake::new(Kind::Syntax, at, message, "the second starts here")
                .with_help("keep one; remove the line `---` between them"),
        )
    }

    fn begin(&mut self, value: Value, span: Range<usize>, anchor: usize) {
        self.open.push(Open {
            value,
            key: None,
            span,
            anchor,
            nodes: 1,
            height: 0,
        });
    }

    fn end(&mut self, end: usize) -> Result<(), Mistake> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let span = open.span.start..trimmed(self.text, open.span.start, end);
        let node = Node {
            value: open.value,
            span,
        };
        self.finish(node, open.anchor, open.nodes, open.height)
    }

    fn copy(&mut self, anchor: usize, at: Range<usize>) -> Result<(), Mistake> {
        let Some(known) = self.anchors.get(&anchor) else {
            let message = "an alias stands inside what it refers to";
            return Err(Mistake::new(Kind::Syntax, at, message, "refers to itself"));
        };
        // Before copying: the copy is what costs.
        let (nodes, height) = (known.nodes, known.height);
        self.check_room(nodes, height, &at)?;
        let mut node = known.node.clone();
        node.span = at;
        self.finish(node, 0, nodes, height)
    }

    /// Puts a whole node where it belongs: into the open list or mapping, or at the root.
    fn finish(
        &mut self,
        node: Node,
        anchor: usize,
        nodes: usize,
        height: usize,
    ) -> Result<(), Mistake> {
        self.check_room(nodes, height, &node.span)?;
        if anchor != 0 {
            // The original stays counted once more: it is kept for aliases to come.
            let node = node.clone();
            self.nodes += nodes;
            self.anchors.insert(
                anchor,
                Finished {
                    node,
                    nodes,
                    height,
                },
            );
        }
        let Some(parent) = self.open.last_mut() else {
            self.nodes += nodes;
            self.root = Some(node);
            return Ok(());
        };
        parent.nodes += nodes;
        parent.height = parent.height.max(height + 1);
        match (&mut parent.value, parent.key.take()) {
            (Value::List(items), _) => items.push(node),
            (Value::Mapping(entries), Some(key)) => entries.push((key, node)),
            (Value::Mapping(_), None) => parent.key = Some(as_key(node)?),
            (Value::Scalar(..), _) => unreachable!("a scalar is never open"),
        }
        Ok(())
    }

    fn check_room(&self, nodes: usize, height: usize, at: &Range<usize>) -> Result<(), Mistake> {
        let held: usize = self.open.iter().map(|open| open.nodes).sum();
        let (what, most) = if self.nodes + held + nodes > self.limits.nodes {
            ("has more values than are read", self.limits.nodes)
        } else if self.open.len() + height >= self.limits.depth {
            ("is nested more deeply than is read", self.limits.depth)
        } else {
            return Ok(());
        };
        let message = format!("the file {what}: at most {most}, aliases counted in full");
        Err(Mistake::new(
            Kind::TooLarge,
            at.clone(),
            message,
            "too much from here on",
        ))
    }
}

fn as_key(node: Node) -> Result<Key, Mistake> {
    match node.value {
        Value::Scalar(name, _) => Ok(Key {
            name,
            span: node.span,
        }),
        _ => Err(Mistake::new(
            Kind::Syntax,
            node.span.clone(),
            format!("a key must be a word, found {}", node.describe()),
            "not a key",
        )),
    }
}

/// The bytes of a span. The parser counts bytes for text input; characters are the way back.
fn bytes(text: &str, span: &Span) -> Range<usize> {
    span.byte_range()
        .unwrap_or_else(|| offset(text, span.start.index())..offset(text, span.end.index()))
}

fn offset(text: &str, characters: usize) -> usize {
    text.char_indices()
        .nth(characters)
        .map_or(text.len(), |(at, _)| at)
}

/// The end of a block without the blank lines after it, which the parser counts in.
fn trimmed(text: &str, start: usize, end: usize) -> usize {
    text.get(start..end)
        .map_or(end, |block| start + block.trim_end().len())
}

fn syntax(text: &str, error: &granit_parser::ScanError) -> Mistake {
    let marker = error.marker();
    let at = marker
        .byte_offset()
        .unwrap_or_else(|| offset(text, marker.index()))
        .min(text.len());
    Mistake::new(
        Kind::Syntax,
        at..at,
        format!("this is not YAML: {}", error.info()),
        "here",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Node, Mistake> {
        Node::parse(text, &Limits::default())
    }

    #[test]
    fn a_node_knows_its_bytes() {
        let text = "a: 1\nb:\n  - twö\n  - [x, y]\n";
        let Value::Mapping(entries) = parse(text).unwrap().value else {
            panic!("not a mapping");
        };
        assert_eq!(&text[entries[0].1.span.clone()], "1");
        assert_eq!(&text[entries[1].0.span.clone()], "b");
        let Value::List(items) = &entries[1].1.value else {
            panic!("not a list");
        };
        assert_eq!(&text[items[0].span.clone()], "twö");
        assert_eq!(&text[items[1].span.clone()], "[x, y]");
    }

    #[test]
    fn an_alias_is_a_copy_that_stands_where_it_was_used() {
        let text = "a: &x [1, 2]\nb: *x\n";
        let Value::Mapping(entries) = parse(text).unwrap().value else {
            panic!("not a mapping");
        };
        assert_eq!(&text[entries[1].1.span.clone()], "*x");
        assert_eq!(entries[0].1.value, entries[1].1.value);
    }

    #[test]
    fn a_billion_laughs_are_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..20 {
            let before = format!("*a{}, ", level - 1).repeat(9);
            text += &format!("a{level}: &a{level} [{before}]\n");
        }
        assert_eq!(parse(&text).unwrap_err().kind, Kind::TooLarge);
    }

    #[test]
    fn nesting_is_bounded_also_through_aliases() {
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        assert!(parse(&deep).is_err());
        let mut text = "a0: &a0 [x]\n".to_owned();
        for level in 1..1_000 {
            text += &format!("a{level}: &a{level} [*a{}]\n", level - 1);
        }
        assert_eq!(parse(&text).unwrap_err().kind, Kind::TooLarge);
    }

    #[test]
    fn an_alias_of_itself_is_refused() {
        assert_eq!(parse("a: &a [*a]").unwrap_err().kind, Kind::Syntax);
    }

    #[test]
    fn one_document_without_tags() {
        assert_eq!(parse("a: 1\n---\nb: 2\n").unwrap_err().kind, Kind::Syntax);
        assert_eq!(parse("a: !!int 1\n").unwrap_err().kind, Kind::Syntax);
        assert_eq!(parse("[a, b]: 1\n").unwrap_err().kind, Kind::Syntax);
    }
}

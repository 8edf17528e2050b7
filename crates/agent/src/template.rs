//! The command with its placeholders, and what becomes of it for each item.
//!
//! | placeholder | stands for | `dir/song.tar.gz` |
//! |---|---|---|
//! | `{}` | the item | `dir/song.tar.gz` |
//! | `{.}` | without its extension | `dir/song.tar` |
//! | `{/}` | without its directory | `song.tar.gz` |
//! | `{//}` | its directory | `dir` |
//! | `{/.}` | neither directory nor extension | `song.tar` |
//! | `{#}` | the number of the task, from 1 | |
//! | `{%}` | the number of the slot, from 1 | |
//!
//! With several lists of items, `{1}` `{2.}` `{1/}` … mean one of them and `{}` all of them.
//!
//! What must stay true: an item arrives in the command as exactly its own bytes, wherever the
//! placeholder stands, and never as shell syntax. So a template is read the way a shell reads it,
//! and each value is quoted for the place it goes to: bare, in `'…'` or in `"…"`. Where the whole
//! template is plain words, no shell is needed: the words are the arguments.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use crate::command::Command;
use crate::quote::{self, Quotes};

/// A command with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
    /// The same as words, where no shell is needed to run it.
    words: Option<Vec<Vec<Piece>>>,
    shell: OsString,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(Vec<u8>),
    Place(Place, Quotes),
}

/// A placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// An item: that of the list with this number (from 1), or of all lists.
    Item(Option<usize>, Form),
    Sequence,
    Slot,
}

/// Which part of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Whole,
    NoExtension,
    Name,
    Directory,
    NameNoExtension,
}

/// What a template is filled with.
#[derive(Clone, Copy, Debug)]
pub struct Filling<'a> {
    /// One item of each list.
    pub items: &'a [OsString],
    /// The number of the task, from 1.
    pub sequence: u64,
    /// The number of the slot, from 1.
    pub slot: usize,
}

/// What is wrong with a template.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A placeholder stands where no quoting is safe.
    #[error(
        "a placeholder cannot be quoted in `…`, ${{…}}, a comment or a here-document, nor right \
         behind $: use $(…), or put the item into a variable first (x={{}}; … \"$x\")"
    )]
    Unquotable,
    /// `{3}` with two lists.
    #[error("{{{0}}} asks for list {0} of items, there are {1}")]
    NoSuchList(usize, usize),
    /// A quotation that never ends.
    #[error("the command ends inside a quotation")]
    OpenQuotation,
}

impl Template {
    /// Reads a template from the words of the command line, joined by spaces as GNU parallel does:
    /// the words may contain shell syntax. Without any placeholder, the item comes last if it
    /// `comes_last`. Without any words, each item is a command of its own.
    pub fn parse(
        words: &[OsString],
        lists: usize,
        comes_last: bool,
        shell: &OsStr,
    ) -> Result<Self, TemplateError> {
        let line = words
            .iter()
            .map(|word| word.as_bytes())
            .collect::<Vec<_>>()
            .join(&b' ');
        let mut pieces = if words.is_empty() {
            // The item is a line for the shell, not a word in one.
            vec![Piece::Place(Place::Item(None, Form::Whole), Quotes::Syntax)]
        } else {
            pieces(&line)?
        };
        if comes_last && !pieces.iter().any(|piece| matches!(piece, Piece::Place(..))) {
            pieces.push(Piece::Literal(b" ".to_vec()));
            pieces.push(Piece::Place(Place::Item(None, Form::Whole), Quotes::Bare));
        }
        check_lists(&pieces, lists)?;
        Ok(Self {
            words: plain_words(&pieces),
            pieces,
            shell: shell.to_owned(),
        })
    }

    /// Reads a template in which each word is one argument, as it is: no shell, no syntax.
    pub fn parse_words(
        words: &[OsString],
        lists: usize,
        comes_last: bool,
    ) -> Result<Self, TemplateError> {
        let mut words: Vec<Vec<Piece>> = words
            .iter()
            .map(|word| split_places(word.as_bytes(), Quotes::Bare))
            .collect();
        let has_place = |word: &Vec<Piece>| word.iter().any(|p| matches!(p, Piece::Place(..)));
        if comes_last && !words.iter().any(has_place) {
            words.push(vec![Piece::Place(
                Place::Item(None, Form::Whole),
                Quotes::Bare,
            )]);
        }
        let pieces = shown(&words);
        check_lists(&pieces, lists)?;
        Ok(Self {
            pieces,
            words: Some(words),
            shell: OsString::new(),
        })
    }

    /// A line for the shell without placeholders: braces mean themselves.
    #[must_use]
    pub fn plain_line(line: &OsStr, shell: &OsStr) -> Self {
        let pieces = vec![Piece::Literal(line.as_bytes().to_vec())];
        Self {
            words: plain_words(&pieces),
            pieces,
            shell: shell.to_owned(),
        }
    }

    /// A program and its arguments without placeholders.
    #[must_use]
    pub fn plain_words(words: &[OsString]) -> Self {
        let words: Vec<Vec<Piece>> = words
            .iter()
            .map(|word| vec![Piece::Literal(word.as_bytes().to_vec())])
            .collect();
        Self {
            pieces: shown(&words),
            words: Some(words),
            shell: OsString::new(),
        }
    }

    /// The line as a shell would read it: what people see in logs and dry runs.
    #[must_use]
    pub fn line(&self, filling: &Filling<'_>) -> OsString {
        let mut line = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => line.extend_from_slice(text),
                Piece::Place(place, quotes) => {
                    for (index, value) in place.values(filling).enumerate() {
                        if index > 0 {
                            line.push(b' ');
                        }
                        quote::push(&mut line, &value, *quotes);
                    }
                }
            }
        }
        OsString::from_vec(line.trim_ascii_end().to_vec())
    }

    /// What to start.
    #[must_use]
    pub fn command(&self, filling: &Filling<'_>) -> Command {
        let Some(words) = &self.words else {
            return Command::new(&self.shell).arg("-c").arg(self.line(filling));
        };
        let mut arguments = words.iter().flat_map(|word| fill_word(word, filling));
        let program = arguments.next().unwrap_or_default();
        let mut command = Command::new(program);
        command.arguments = arguments.collect();
        command
    }
}

/// Words as a line for people: literal text quoted, a blank after each word.
fn shown(words: &[Vec<Piece>]) -> Vec<Piece> {
    let quoted = |piece: &Piece| match piece {
        Piece::Literal(text) => {
            let mut quoted = Vec::new();
            quote::push(&mut quoted, text, Quotes::Bare);
            Piece::Literal(quoted)
        }
        Piece::Place(..) => piece.clone(),
    };
    let blank = || Piece::Literal(b" ".to_vec());
    words
        .iter()
        .flat_map(|word| word.iter().map(quoted).chain([blank()]).collect::<Vec<_>>())
        .collect()
}

fn check_lists(pieces: &[Piece], lists: usize) -> Result<(), TemplateError> {
    for piece in pieces {
        if let Piece::Place(Place::Item(Some(number), _), _) = piece
            && *number > lists
        {
            return Err(TemplateError::NoSuchList(*number, lists));
        }
    }
    Ok(())
}

/// One word of the template as arguments: `{}` alone gives one for each list.
fn fill_word(word: &[Piece], filling: &Filling<'_>) -> Vec<OsString> {
    let mut arguments = vec![Vec::new()];
    for piece in word {
        let last = arguments.last_mut().expect("there is always one");
        match piece {
            Piece::Literal(text) => last.extend_from_slice(text),
            Piece::Place(place, quotes) => {
                for (index, value) in place.values(filling).enumerate() {
                    if index > 0 && *quotes == Quotes::Bare {
                        arguments.push(Vec::new());
                    } else if index > 0 {
                        arguments.last_mut().expect("there is one").push(b' ');
                    }
                    arguments
                        .last_mut()
                        .expect("there is one")
                        .extend_from_slice(&value);
                }
            }
        }
    }
    arguments.into_iter().map(OsString::from_vec).collect()
}

impl Place {
    fn values<'f>(self, filling: &'f Filling<'_>) -> impl Iterator<Item = Vec<u8>> + use<'f> {
        let (items, form, number) = match self {
            Self::Item(None, form) => (filling.items, form, None),
            Self::Item(Some(list), form) => (
                filling.items.get(list - 1..list).unwrap_or_default(),
                form,
                None,
            ),
            Self::Sequence => (&[][..], Form::Whole, Some(filling.sequence.to_string())),
            Self::Slot => (&[][..], Form::Whole, Some(filling.slot.to_string())),
        };
        let values = items.iter().map(move |item| form.of(item).to_vec());
        values.chain(number.map(String::into_bytes))
    }
}

impl Form {
    fn of(self, item: &OsStr) -> &[u8] {
        let path = Path::new(item);
        match self {
            Self::Whole => item.as_bytes(),
            Self::NoExtension => without_extension(item.as_bytes()),
            Self::Name => name(item.as_bytes()),
            Self::NameNoExtension => without_extension(name(item.as_bytes())),
            Self::Directory => match path.parent() {
                Some(parent) if parent == Path::new("") => b".",
                Some(parent) => parent.as_os_str().as_bytes(),
                None => item.as_bytes(),
            },
        }
    }
}

fn name(item: &[u8]) -> &[u8] {
    let start = item.iter().rposition(|byte| *byte == b'/');
    start.map_or(item, |slash| &item[slash + 1..])
}

/// Without the last `.` and what follows it, if it is in the last name of the path and not its
/// first character.
fn without_extension(item: &[u8]) -> &[u8] {
    let start = item.len() - name(item).len();
    match item[start..].iter().rposition(|byte| *byte == b'.') {
        Some(dot) if dot > 0 => &item[..start + dot],
        _ => item,
    }
}

/// Cuts a template at its placeholders and notes in which quotation each stands.
fn pieces(line: &[u8]) -> Result<Vec<Piece>, TemplateError> {
    let mut found = Vec::new();
    let mut literal = Vec::new();
    let mut reader = quote::Reader::default();
    let mut rest = line;
    while let Some(&byte) = rest.first() {
        if !reader.is_escaped()
            && let Some((place, length)) = placeholder(rest)
        {
            let quotes = reader.quotes().ok_or(TemplateError::Unquotable)?;
            if !literal.is_empty() {
                found.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            found.push(Piece::Place(place, quotes));
            reader.skip_value();
            rest = &rest[length..];
            continue;
        }
        reader.read(byte, rest.get(1).copied());
        literal.push(byte);
        rest = &rest[1..];
    }
    if reader.is_open() {
        return Err(TemplateError::OpenQuotation);
    }
    if !literal.is_empty() {
        found.push(Piece::Literal(literal));
    }
    Ok(found)
}

/// Cuts a word without syntax at its placeholders.
fn split_places(word: &[u8], quotes: Quotes) -> Vec<Piece> {
    let mut found = Vec::new();
    let mut literal = Vec::new();
    let mut rest = word;
    while let Some(&byte) = rest.first() {
        if let Some((place, length)) = placeholder(rest) {
            if !literal.is_empty() {
                found.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            found.push(Piece::Place(place, quotes));
            rest = &rest[length..];
        } else {
            literal.push(byte);
            rest = &rest[1..];
        }
    }
    if !literal.is_empty() || found.is_empty() {
        found.push(Piece::Literal(literal));
    }
    found
}

/// The placeholder that a text begins with, and its length.
fn placeholder(text: &[u8]) -> Option<(Place, usize)> {
    let inner = text.strip_prefix(b"{")?;
    let end = inner.iter().take(12).position(|byte| *byte == b'}')?;
    let length = end + 2;
    let inner = &inner[..end];
    let digits = inner
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let list = match digits {
        0 => None,
        _ => Some(str::from_utf8(&inner[..digits]).ok()?.parse().ok()?),
    };
    let form = match &inner[digits..] {
        b"" => Form::Whole,
        b"." => Form::NoExtension,
        b"/" => Form::Name,
        b"//" => Form::Directory,
        b"/." => Form::NameNoExtension,
        b"#" if list.is_none() => return Some((Place::Sequence, length)),
        b"%" if list.is_none() => return Some((Place::Slot, length)),
        _ => return None,
    };
    (list != Some(0)).then_some((Place::Item(list, form), length))
}

/// The words of a template that needs no shell: no syntax but blanks and simple quotations, and a
/// program that is not the shell's own.
fn plain_words(pieces: &[Piece]) -> Option<Vec<Vec<Piece>>> {
    let mut words: Vec<Vec<Piece>> = Vec::new();
    let mut splitter = quote::Splitter::default();
    for piece in pieces {
        match piece {
            Piece::Literal(text) => {
                for &byte in text {
                    match splitter.read(byte)? {
                        quote::Step::Byte(byte) => push_byte(splitter.word(&mut words), byte),
                        quote::Step::Edge => _ = splitter.word(&mut words),
                        quote::Step::Blank => {}
                    }
                }
            }
            Piece::Place(_, Quotes::Syntax) => return None,
            Piece::Place(..) => splitter.word(&mut words).push(piece.clone()),
        }
    }
    let [Piece::Literal(program)] = words.first()?.as_slice() else {
        return None;
    };
    (!quote::is_shell_word(program)).then_some(words)
}

fn push_byte(word: &mut Vec<Piece>, byte: u8) {
    match word.last_mut() {
        Some(Piece::Literal(text)) => text.push(byte),
        _ => word.push(Piece::Literal(vec![byte])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Slot, Tail};
    use proptest::prelude::*;

    fn words(line: &str) -> Vec<OsString> {
        vec![line.into()]
    }

    fn template(line: &str) -> Template {
        Template::parse(&words(line), 2, true, OsStr::new("/bin/sh")).unwrap()
    }

    fn filled(line: &str, items: &[&str]) -> String {
        let items: Vec<OsString> = items.iter().map(OsString::from).collect();
        let filling = Filling {
            items: &items,
            sequence: 7,
            slot: 2,
        };
        template(line).line(&filling).into_string().unwrap()
    }

    #[test]
    fn each_placeholder_is_its_part_of_the_item() {
        for (place, expected) in [
            ("{}", "dir/song.tar.gz"),
            ("{.}", "dir/song.tar"),
            ("{/}", "song.tar.gz"),
            ("{//}", "dir"),
            ("{/.}", "song.tar"),
            ("{#}", "7"),
            ("{%}", "2"),
            ("{1/}", "song.tar.gz"),
        ] {
            assert_eq!(filled(place, &["dir/song.tar.gz"]), expected, "{place}");
        }
        for (place, item, expected) in [
            ("{.}", "no-extension", "no-extension"),
            ("{.}", "dir.d/name", "dir.d/name"),
            ("{.}", "dir/.hidden", "dir/.hidden"),
            ("{//}", "name", "."),
            ("{//}", "/name", "/"),
            ("{//}", "/", "/"),
            ("{/}", "dir/", "''"),
        ] {
            assert_eq!(filled(place, &[item]), expected, "{place} of {item}");
        }
    }

    #[test]
    fn several_lists_are_named_by_number_or_all_at_once() {
        assert_eq!(filled("echo {2}-{1}", &["a", "b"]), "echo b-a");
        assert_eq!(filled("echo {}", &["a b", "c"]), "echo 'a b' c");
        assert_eq!(filled("echo", &["a", "b"]), "echo a b");
        let error = Template::parse(&words("echo {3}"), 2, true, OsStr::new("sh"));
        assert_eq!(error, Err(TemplateError::NoSuchList(3, 2)));
    }

    #[test]
    fn what_is_no_placeholder_stays() {
        assert_eq!(filled("awk '{print $1}' {}", &["f"]), "awk '{print $1}' f");
        assert_eq!(
            filled("echo {0} {x} {a.} {", &["f"]),
            "echo {0} {x} {a.} { f"
        );
        assert_eq!(filled(r"echo \{} {}", &["f"]), r"echo \{} f");
    }

    #[test]
    fn a_placeholder_that_cannot_be_quoted_is_refused() {
        for line in [
            "echo `cat {}`",
            "echo ${x:-{}}",
            "echo \"${x:-{}}\"",
            "echo ${}",
            "echo \"${}\"",
            "echo $'{}",
            "echo hi # {}",
            "cat <<END\n{}\nEND",
            "echo \"$(case x in x) echo {};; esac)\"",
        ] {
            let read = Template::parse(&words(line), 1, true, OsStr::new("sh"));
            assert!(read.is_err(), "{line}: {read:?}");
        }
        assert!(Template::parse(&words("echo '{}"), 1, true, OsStr::new("sh")).is_err());
    }

    #[test]
    fn plain_words_need_no_shell() {
        for line in [
            "gzip -k {}",
            "cp {} 'a b'/{/}",
            "true",
            "convert \"{}\" x={.}.png",
        ] {
            assert!(template(line).words.is_some(), "{line}");
        }
        for line in [
            "echo {}",
            "gzip {} | wc",
            "{}",
            "A=1 env {}",
            "ls ~/{}",
            "ls *.{}",
            "cat < {}",
            "cd {}",
            "if {}",
            "gzip {} && rm {}",
            "gzip \"$HOME\" {}",
            "x {a,b} {}",
        ] {
            assert!(template(line).words.is_none(), "{line}");
        }
    }

    #[test]
    fn exact_words_are_taken_as_they_are() {
        let words: Vec<OsString> = ["printf", "%s|", "$x *", "", "a{}b"]
            .map(OsString::from)
            .into();
        let template = Template::parse_words(&words, 1, true).unwrap();
        let items = [OsString::from("i j")];
        let filling = Filling {
            items: &items,
            sequence: 1,
            slot: 1,
        };
        assert_eq!(template.line(&filling), "printf '%s|' '$x *' '' a'i j'b");
        assert_eq!(
            output(&template, &items),
            b"%s|$x *||ai jb|".strip_prefix(b"%s|").unwrap()
        );
    }

    fn output(template: &Template, items: &[OsString]) -> Vec<u8> {
        let filling = Filling {
            items,
            sequence: 1,
            slot: 1,
        };
        let (mut slot, _killer) = Slot::new().unwrap();
        let mut tail = Tail::default();
        slot.run(1, &template.command(&filling), &mut tail).unwrap();
        tail.stdout().to_vec()
    }

    fn item() -> impl Strategy<Value = OsString> {
        let odd = prop::sample::select(b"'\"\\$`*?[]{}()<>|&;#~=!% \t\n-aZ09\xff\xc3\xb6".to_vec());
        prop::collection::vec(prop_oneof![odd, 1..=255u8], 0..20).prop_map(OsString::from_vec)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        /// With a real shell: whatever the item is, and wherever it stands, it arrives as it is.
        #[test]
        fn an_item_arrives_as_its_own_bytes(item in item()) {
            let bytes = item.as_bytes().to_vec();
            for line in [
                "/usr/bin/printf %s {}",
                "printf %s {}",
                "printf %s \"{}\"",
                "printf %s '{}'",
                "printf %s a'b'\"c\"{}",
                "printf %s \"$(printf %s {}; printf x)\"",
                "printf %s \"$(printf %s '{}' \"(\"; printf x)\"",
                "x={}; printf %s \"$x\"",
            ] {
                let found = output(&template(line), std::slice::from_ref(&item));
                let expected: Vec<u8> = match line {
                    line if line.contains("'b'") => [b"abc", &bytes[..]].concat(),
                    line if line.contains("\"(\"") => [&bytes[..], b"(x"].concat(),
                    line if line.contains("printf x") => [&bytes[..], b"x"].concat(),
                    _ => bytes.clone(),
                };
                prop_assert_eq!(&found, &expected, "{}", line);
            }
        }
    }
}

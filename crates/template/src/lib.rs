//! The one template language: a command with placeholders, and what becomes of it for each item.
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
//! With several lists of items, `{1}` `{2.}` `{1/}` … mean one of them, `{-1}` the last, and `{}` all of them.
//! A [`Vocabulary`] adds more.
//!
//! What must stay true: an item arrives in the command as exactly its own bytes, wherever the
//! placeholder stands, and never as shell syntax. So a template is read the way a shell reads it,
//! and each value is quoted for the place it goes to: bare, in `'…'` or in `"…"`. Where the whole
//! template is plain words, no shell is needed: the words are the arguments.
//!
//! ```
//! use loxley_template::{Filling, Template};
//!
//! let template = Template::of_task(&["wc", "-w", "part-{}"], None, true)?;
//! let filling = Filling { items: &["a b".into()], sequence: 1, slot: Some(1) };
//! assert_eq!(template.words(&filling), ["wc", "-w", "part-a b"]);
//! # Ok::<(), loxley_template::TemplateError>(())
//! ```

mod quote;
pub mod raw_bytes;
mod vocabulary;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::quote::Quotes;
use crate::vocabulary::{List, Placeholder};

pub use crate::vocabulary::{Replacement, ReplacementError, Vocabulary};

/// A command with placeholders.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    pieces: Vec<Piece>,
    /// The same as words, where no shell is needed to run it.
    plain: Option<Vec<Vec<Piece>>>,
    shell: OsString,
    /// Whether a word with `{}` is repeated for each of several items, instead of `{}` alone.
    repeats_words: bool,
    /// What starts the command: `nice -n 10`.
    prefix: Vec<OsString>,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Literal(Vec<u8>),
    Placeholder(Placeholder, Quotes),
}

/// What a template is filled with.
#[derive(Clone, Copy, Debug)]
pub struct Filling<'a> {
    /// One item of each list.
    pub items: &'a [OsString],
    /// The number of the task, from 1.
    pub sequence: u64,
    /// The number of the slot, from 1; none where it is not known yet: then `{%}` stays as it is.
    pub slot: Option<usize>,
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
    /// `{= … =}`
    #[error(
        "Perl expressions ({{= … =}}) are not there: let the shell do it (x={{}}; echo \"${{x%.jpg}}\"), or name a \
         replacement of your own (--rpl '{{o}} s/\\.jpg$/.png/')"
    )]
    Perl,
    /// A placeholder of `--plus` that is not there.
    #[error(
        "`{0}` of --plus is not there: let the shell do it (x={{}}; echo \"${{x#prefix}}\"; and to leave out \
         combinations: [ {{1}} \\< {{2}} ] || exit 0)"
    )]
    NotOfPlus(String),
}

impl Template {
    /// The command of a task, as requests and job files say it: words, or with a shell a line for it
    /// ([bytes that are no text](raw_bytes) included). The
    /// entry is the only list of items of an array; in any other task braces mean themselves.
    pub fn of_task<W: AsRef<OsStr>>(
        words: &[W],
        shell: Option<&str>,
        is_array: bool,
    ) -> Result<Self, TemplateError> {
        let bytes = |word: &W| raw_bytes::from_text(word.as_ref().as_bytes()).into_owned();
        let words: Vec<OsString> = words
            .iter()
            .map(|word| OsString::from_vec(bytes(word)))
            .collect();
        match (shell, is_array) {
            (Some(shell), true) => Self::parse(&words, 1, false, OsStr::new(shell)),
            (Some(shell), false) => Ok(Self::plain_line(&joined(&words), OsStr::new(shell))),
            (None, true) => Self::parse_words(&words, 1, false),
            (None, false) => Ok(Self::plain_words(&words)),
        }
    }

    /// Reads a template from the words of the command line, joined by spaces as GNU parallel does:
    /// the words may contain shell syntax. Without any placeholder, the item comes last if it
    /// `comes_last`. Without any words, each item is a command of its own.
    pub fn parse(
        words: &[OsString],
        lists: usize,
        comes_last: bool,
        shell: &OsStr,
    ) -> Result<Self, TemplateError> {
        Self::parse_as(words, lists, comes_last, shell, &Vocabulary::default())
    }

    /// The same, with more placeholders.
    pub fn parse_as(
        words: &[OsString],
        lists: usize,
        comes_last: bool,
        shell: &OsStr,
        vocabulary: &Vocabulary,
    ) -> Result<Self, TemplateError> {
        let mut pieces = if words.is_empty() {
            // The item is a line for the shell, not a word in one.
            vec![Piece::Placeholder(Placeholder::WHOLE, Quotes::Syntax)]
        } else {
            pieces(joined(words).as_bytes(), vocabulary)?
        };
        if comes_last && !pieces.iter().any(Piece::is_placeholder) {
            pieces.push(Piece::Literal(b" ".to_vec()));
            pieces.push(Piece::Placeholder(Placeholder::WHOLE, Quotes::Bare));
        }
        check_lists(&pieces, lists)?;
        Ok(Self {
            plain: plain_words(&pieces),
            shell: shell.to_owned(),
            ..Self::of(pieces)
        })
    }

    /// Reads a template in which each word is one argument, as it is: no shell, no syntax.
    pub fn parse_words(
        words: &[OsString],
        lists: usize,
        comes_last: bool,
    ) -> Result<Self, TemplateError> {
        Self::parse_words_as(words, lists, comes_last, &Vocabulary::default())
    }

    /// The same, with more placeholders.
    pub fn parse_words_as(
        words: &[OsString],
        lists: usize,
        comes_last: bool,
        vocabulary: &Vocabulary,
    ) -> Result<Self, TemplateError> {
        let mut words: Vec<Vec<Piece>> = words
            .iter()
            .map(|word| split_placeholders(word.as_bytes(), Quotes::Bare, vocabulary))
            .collect::<Result<_, _>>()?;
        let has_placeholder = |word: &Vec<Piece>| word.iter().any(Piece::is_placeholder);
        if comes_last && !words.iter().any(has_placeholder) {
            words.push(vec![Piece::Placeholder(Placeholder::WHOLE, Quotes::Bare)]);
        }
        let pieces = shown(&words);
        check_lists(&pieces, lists)?;
        Ok(Self {
            plain: Some(words),
            ..Self::of(pieces)
        })
    }

    /// A template of these pieces, with nothing special.
    fn of(pieces: Vec<Piece>) -> Self {
        Self {
            pieces,
            plain: None,
            shell: OsString::new(),
            repeats_words: false,
            prefix: Vec::new(),
        }
    }

    /// The same, but always run by the shell: the program may be a function of it.
    #[must_use]
    pub fn in_shell(self) -> Self {
        Self {
            plain: None,
            ..self
        }
    }

    /// The same, but with several items a whole word with `{}` in it is repeated: `x{}.c` is `xa.c xb.c`.
    #[must_use]
    pub fn repeating_words(self) -> Self {
        Self {
            repeats_words: true,
            ..self
        }
    }

    /// The same, started by another program: `nice -n 10`.
    #[must_use]
    pub fn behind(self, prefix: Vec<OsString>) -> Self {
        Self { prefix, ..self }
    }

    /// How long the line is without its items: what is left of a limit is for them.
    #[must_use]
    pub fn fixed_length(&self) -> usize {
        let literal = |piece: &Piece| match piece {
            Piece::Literal(text) => text.len(),
            Piece::Placeholder(..) => 0,
        };
        self.pieces.iter().map(literal).sum()
    }

    /// How long the words are that are repeated with each item, without the items.
    #[must_use]
    pub fn repeated_length(&self) -> usize {
        let has_item = |word: &&Vec<Piece>| word.iter().any(Piece::is_placeholder);
        let words = words_of(&self.pieces);
        let repeated = words.iter().filter(has_item).flatten();
        let literal = |piece: &Piece| match piece {
            Piece::Literal(text) => text.len(),
            Piece::Placeholder(..) => 0,
        };
        repeated.map(literal).sum()
    }

    /// How often an item stands in the line.
    #[must_use]
    pub fn uses_of_items(&self) -> usize {
        let is_item =
            |piece: &&Piece| matches!(piece, Piece::Placeholder(Placeholder::Item(..), _));
        self.pieces.iter().filter(is_item).count()
    }

    /// A line for the shell without placeholders: braces mean themselves.
    fn plain_line(line: &OsStr, shell: &OsStr) -> Self {
        let pieces = vec![Piece::Literal(line.as_bytes().to_vec())];
        Self {
            plain: plain_words(&pieces),
            shell: shell.to_owned(),
            ..Self::of(pieces)
        }
    }

    /// A program and its arguments without placeholders.
    fn plain_words(words: &[OsString]) -> Self {
        let words: Vec<Vec<Piece>> = words
            .iter()
            .map(|word| vec![Piece::Literal(word.as_bytes().to_vec())])
            .collect();
        Self {
            pieces: shown(&words),
            plain: Some(words),
            ..Self::of(Vec::new())
        }
    }

    /// The line as a shell would read it: what people see in logs and dry runs.
    #[must_use]
    pub fn line(&self, filling: &Filling<'_>) -> OsString {
        let mut line = Vec::new();
        if self.repeats_words && filling.items.len() > 1 {
            for word in words_of(&self.pieces) {
                repeat(&word, filling, |filling| {
                    fill_line(&mut line, &word, filling);
                });
            }
        } else {
            fill_line(&mut line, &self.pieces, filling);
        }
        OsString::from_vec(line.trim_ascii_end().to_vec())
    }

    /// What to start: the program and its arguments.
    #[must_use]
    pub fn words(&self, filling: &Filling<'_>) -> Vec<OsString> {
        let mut all = self.prefix.clone();
        match &self.plain {
            Some(words) => {
                for word in words {
                    let mut fill = |filling: &Filling<'_>| all.extend(fill_word(word, filling));
                    match self.repeats_words {
                        true => repeat(word, filling, fill),
                        false => fill(filling),
                    }
                }
            }
            None => all.extend([self.shell.clone(), "-c".into(), self.line(filling)]),
        }
        all
    }
}

impl Piece {
    fn is_placeholder(&self) -> bool {
        matches!(self, Self::Placeholder(..))
    }
}

/// The words of a line that has no syntax but blanks and quotations; none of any other line.
#[must_use]
pub fn split_words(line: &OsStr) -> Option<Vec<OsString>> {
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut splitter = quote::Splitter::default();
    for &byte in line.as_bytes() {
        match splitter.read(byte)? {
            quote::Step::Byte(byte) => splitter.word(&mut words).push(byte),
            quote::Step::Edge => _ = splitter.word(&mut words),
            quote::Step::Blank => {}
        }
    }
    Some(words.into_iter().map(OsString::from_vec).collect())
}

/// An item as a word of a line for the shell.
#[must_use]
pub fn quoted(item: &OsStr) -> OsString {
    let mut line = Vec::new();
    quote::push(&mut line, item.as_bytes(), Quotes::Bare);
    OsString::from_vec(line)
}

fn fill_line(line: &mut Vec<u8>, pieces: &[Piece], filling: &Filling<'_>) {
    for piece in pieces {
        match piece {
            Piece::Literal(text) => line.extend_from_slice(text),
            Piece::Placeholder(place, quotes) => {
                for (index, value) in place.values(filling).into_iter().enumerate() {
                    if index > 0 {
                        line.push(b' ');
                    }
                    quote::push(line, &value, *quotes);
                }
            }
        }
    }
}

/// Fills a word once, or once for each item if it holds all of them.
fn repeat(word: &[Piece], filling: &Filling<'_>, mut fill: impl FnMut(&Filling<'_>)) {
    let all = |piece: &Piece| {
        matches!(
            piece,
            Piece::Placeholder(Placeholder::Item(List::All, _), _)
        )
    };
    if !word.iter().any(all) {
        return fill(filling);
    }
    for item in filling.items {
        fill(&Filling {
            items: std::slice::from_ref(item),
            ..*filling
        });
    }
}

/// The pieces of a line, word by word, each with the blanks behind it.
fn words_of(pieces: &[Piece]) -> Vec<Vec<Piece>> {
    let mut words = vec![Vec::new()];
    for piece in pieces {
        let Piece::Literal(text) = piece else {
            words
                .last_mut()
                .expect("there is always one")
                .push(piece.clone());
            continue;
        };
        let mut rest = text.as_slice();
        while let Some(blank) = rest.iter().position(u8::is_ascii_whitespace) {
            let (word, behind) = rest.split_at(blank + 1);
            let last = words.last_mut().expect("there is always one");
            last.push(Piece::Literal(word.to_vec()));
            words.push(Vec::new());
            rest = behind;
        }
        if !rest.is_empty() {
            let last = words.last_mut().expect("there is always one");
            last.push(Piece::Literal(rest.to_vec()));
        }
    }
    // The last word has no blank behind it, and may be repeated all the same.
    if let Some(last) = words.last_mut()
        && last.iter().any(Piece::is_placeholder)
    {
        last.push(Piece::Literal(b" ".to_vec()));
    }
    words
}

/// Words as one line, with a blank between two.
fn joined(words: &[OsString]) -> OsString {
    words.join(OsStr::new(" "))
}

/// Words as a line for people: literal text quoted, a blank after each word.
fn shown(words: &[Vec<Piece>]) -> Vec<Piece> {
    let quoted = |piece: &Piece| match piece {
        Piece::Literal(text) => {
            let mut quoted = Vec::new();
            quote::push(&mut quoted, text, Quotes::Bare);
            Piece::Literal(quoted)
        }
        Piece::Placeholder(..) => piece.clone(),
    };
    let blank = || Piece::Literal(b" ".to_vec());
    words
        .iter()
        .flat_map(|word| word.iter().map(quoted).chain([blank()]).collect::<Vec<_>>())
        .collect()
}

fn check_lists(pieces: &[Piece], lists: usize) -> Result<(), TemplateError> {
    for piece in pieces {
        if let Piece::Placeholder(
            Placeholder::Item(List::Number(number) | List::FromEnd(number), _),
            _,
        ) = piece
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
            Piece::Placeholder(place, quotes) => {
                for (index, value) in place.values(filling).into_iter().enumerate() {
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

/// Cuts a template at its placeholders and notes in which quotation each stands.
fn pieces(line: &[u8], vocabulary: &Vocabulary) -> Result<Vec<Piece>, TemplateError> {
    let mut found = Vec::new();
    let mut literal = Vec::new();
    let mut reader = quote::Reader::default();
    let mut rest = line;
    while let Some(&byte) = rest.first() {
        if !reader.is_escaped()
            && let Some((place, length)) = vocabulary.placeholder(rest)?
        {
            let quotes = reader.quotes().ok_or(TemplateError::Unquotable)?;
            if !literal.is_empty() {
                found.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            found.push(Piece::Placeholder(place, quotes));
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
fn split_placeholders(
    word: &[u8],
    quotes: Quotes,
    vocabulary: &Vocabulary,
) -> Result<Vec<Piece>, TemplateError> {
    let mut found = Vec::new();
    let mut literal = Vec::new();
    let mut rest = word;
    while let Some(&byte) = rest.first() {
        if let Some((place, length)) = vocabulary.placeholder(rest)? {
            if !literal.is_empty() {
                found.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            found.push(Piece::Placeholder(place, quotes));
            rest = &rest[length..];
        } else {
            literal.push(byte);
            rest = &rest[1..];
        }
    }
    if !literal.is_empty() || found.is_empty() {
        found.push(Piece::Literal(literal));
    }
    Ok(found)
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
            Piece::Placeholder(_, Quotes::Syntax) => return None,
            Piece::Placeholder(..) => splitter.word(&mut words).push(piece.clone()),
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
    use proptest::prelude::*;
    use std::process::Command;

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
            slot: Some(2),
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
            assert!(template(line).plain.is_some(), "{line}");
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
            assert!(template(line).plain.is_none(), "{line}");
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
            slot: Some(1),
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
            slot: Some(1),
        };
        let words = template.words(&filling);
        let output = Command::new(&words[0]).args(&words[1..]).output();
        output.unwrap().stdout
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

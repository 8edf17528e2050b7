//! Which placeholders there are, and what each stands for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;
use std::sync::Arc;

use regex_lite::Regex;

use crate::{Filling, TemplateError};

/// Placeholders beside those that are always there.
#[derive(Clone, Debug, Default)]
pub struct Vocabulary {
    /// What stands for the item instead of `{}`.
    pub item: Option<String>,
    /// Whether `{+/}` `{+.}` `{..}` `{/..}` … are there, as GNU parallel has them with `--plus`.
    pub plus: bool,
    /// Names of the lists, from the first on: `{name}`, `{name.}`, `{name/}`.
    pub lists: Vec<String>,
    /// Placeholders of one's own.
    pub own: Vec<Replacement>,
}

/// A placeholder of one's own, and what it does to an item: `{o} s/\.jpg$/.png/`.
#[derive(Clone, Debug)]
pub struct Replacement {
    name: String,
    steps: Arc<[Step]>,
}

/// One `s/…/…/`.
#[derive(Debug)]
struct Step {
    pattern: Regex,
    by: String,
    everywhere: bool,
}

/// What is wrong with a replacement.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplacementError {
    /// It is not of the form that we know.
    #[error(
        "`{0}` is not like '{{o}} s/\\.jpg$/.png/': a name and one or more replacements s/PATTERN/TEXT/ (with g: \
         everywhere); other Perl is not there"
    )]
    Form(String),
    /// Its name is a pattern with parts that the replacement uses.
    #[error(
        "`{0}` takes a part of its own name; that is not there: write a replacement for each, like '{{o}} s/\\.tar\\.gz$//'"
    )]
    Parameter(String),
    /// The pattern is none.
    #[error("`{0}` is not a regular expression: {1}")]
    Pattern(String, String),
}

/// What a placeholder stands for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Placeholder {
    /// An item, or a part of it.
    Item(List, Form),
    Sequence,
    Slot,
}

/// Of which list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    All,
    /// The list with this number, from 1.
    Number(usize),
    /// Counted from the last one, which is 1.
    FromEnd(usize),
}

/// Which part of an item.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    Part(Section, Extension),
    Own(Replacement),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Whole,
    Name,
    Directory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extension {
    Kept,
    /// Without so many of them.
    Without(usize),
    /// So many of them alone.
    Only(usize),
}

impl PartialEq for Form {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Part(..), Self::Own(_)) | (Self::Own(_), Self::Part(..)) => false,
            (Self::Part(left, a), Self::Part(right, b)) => (left, a) == (right, b),
            (Self::Own(left), Self::Own(right)) => Arc::ptr_eq(&left.steps, &right.steps),
        }
    }
}

/// What stands between the braces, after the number or the name of a list.
const FORMS: &[(&str, Section, Extension)] = &[
    ("", Section::Whole, Extension::Kept),
    (".", Section::Whole, Extension::Without(1)),
    ("/", Section::Name, Extension::Kept),
    ("//", Section::Directory, Extension::Kept),
    ("/.", Section::Name, Extension::Without(1)),
];

/// The same for `--plus`.
const PLUS_FORMS: &[(&str, Section, Extension)] = &[
    ("..", Section::Whole, Extension::Without(2)),
    ("...", Section::Whole, Extension::Without(3)),
    ("/..", Section::Name, Extension::Without(2)),
    ("/...", Section::Name, Extension::Without(3)),
    ("+/", Section::Directory, Extension::Kept),
    ("+.", Section::Whole, Extension::Only(1)),
    ("+..", Section::Whole, Extension::Only(2)),
    ("+...", Section::Whole, Extension::Only(3)),
];

/// Nobody calls a column longer than this.
const NAME_MAX: usize = 80;

impl Vocabulary {
    /// The placeholder that a text begins with, and its length.
    pub(crate) fn placeholder(
        &self,
        text: &[u8],
    ) -> Result<Option<(Placeholder, usize)>, TemplateError> {
        if let Some(item) = self.item.as_deref().filter(|item| !item.is_empty())
            && text.starts_with(item.as_bytes())
        {
            return Ok(Some((Placeholder::WHOLE, item.len())));
        }
        for own in &self.own {
            if text.starts_with(own.name.as_bytes()) {
                let place = Placeholder::Item(List::All, Form::Own(own.clone()));
                return Ok(Some((place, own.name.len())));
            }
        }
        let Some(inner) = text.strip_prefix(b"{") else {
            return Ok(None);
        };
        if inner.starts_with(b"=") && inner.windows(2).any(|end| end == b"=}") {
            return Err(TemplateError::Perl);
        }
        let end = inner.iter().take(NAME_MAX).position(|byte| *byte == b'}');
        let Some((end, inner)) =
            end.and_then(|end| Some((end, str::from_utf8(&inner[..end]).ok()?)))
        else {
            return Ok(None);
        };
        Ok(self.named(inner)?.map(|place| (place, end + 2)))
    }

    /// What stands between two braces.
    fn named(&self, inner: &str) -> Result<Option<Placeholder>, TemplateError> {
        match inner {
            "#" => return Ok(Some(Placeholder::Sequence)),
            "%" => return Ok(Some(Placeholder::Slot)),
            "" if self.item.is_some() => return Ok(None),
            _ => {}
        }
        if self.plus && is_other_plus(inner) {
            return Err(TemplateError::NotOfPlus(format!("{{{inner}}}")));
        }
        let Some((list, form)) = self.list(inner) else {
            return Ok(None);
        };
        // `{2o}` is what `{o}` makes of the second list.
        if let Some(own) = self.own.iter().find(|own| own.inner() == Some(form)) {
            return Ok(Some(Placeholder::Item(list, Form::Own(own.clone()))));
        }
        let forms = FORMS.iter().chain(if self.plus { PLUS_FORMS } else { &[] });
        let mut forms = forms.filter(|(name, ..)| *name == form);
        let found = forms.next().map(|(_, section, extension)| {
            Placeholder::Item(list, Form::Part(*section, *extension))
        });
        Ok(found)
    }

    /// The list that it speaks of, and the rest.
    fn list<'t>(&self, inner: &'t str) -> Option<(List, &'t str)> {
        let mut by_length: Vec<(usize, &String)> = (1..).zip(&self.lists).collect();
        by_length.sort_by_key(|(_, name)| std::cmp::Reverse(name.len()));
        for (number, name) in by_length {
            if let Some(form) = inner.strip_prefix(name.as_str())
                && !name.is_empty()
            {
                return Some((List::Number(number), form));
            }
        }
        let from_end = inner.strip_prefix('-');
        let digits = from_end.unwrap_or(inner);
        let form = digits.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let digits = &digits[..digits.len() - form.len()];
        if digits.is_empty() {
            return from_end.is_none().then_some((List::All, form));
        }
        let number = digits.parse().ok().filter(|number| *number > 0)?;
        let list = match from_end {
            Some(_) => List::FromEnd(number),
            None => List::Number(number),
        };
        Some((list, form))
    }
}

/// What newer versions of GNU parallel have besides with `--plus`: parts of strings as in bash, and more.
fn is_other_plus(inner: &str) -> bool {
    let numbers = inner.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let starts = [":", "#", "%", "^", ",", "/", "uniq", "0#", "0%", "choose_k"];
    starts.iter().any(|start| numbers.starts_with(start))
        && !FORMS
            .iter()
            .chain(PLUS_FORMS)
            .any(|(name, ..)| *name == numbers)
}

impl Placeholder {
    /// All items, as they are.
    pub(crate) const WHOLE: Self =
        Self::Item(List::All, Form::Part(Section::Whole, Extension::Kept));

    /// What it stands for: several values where there are several lists.
    pub(crate) fn values(&self, filling: &Filling<'_>) -> Vec<Vec<u8>> {
        let items = filling.items;
        let (list, form) = match self {
            Self::Item(list, form) => (*list, form),
            Self::Sequence => return vec![filling.sequence.to_string().into_bytes()],
            Self::Slot => {
                let slot = filling.slot.map(|slot| slot.to_string());
                return vec![slot.unwrap_or_else(|| "{%}".to_owned()).into_bytes()];
            }
        };
        let items = match list {
            List::All => items,
            List::Number(number) => items.get(number - 1..number).unwrap_or_default(),
            List::FromEnd(number) => {
                let index = items.len().checked_sub(number);
                index.map_or(&[][..], |index| &items[index..=index])
            }
        };
        items.iter().map(|item| form.of(item)).collect()
    }
}

impl Form {
    fn of(&self, item: &OsStr) -> Vec<u8> {
        let (section, extension) = match self {
            Self::Part(section, extension) => (section, extension),
            Self::Own(own) => return own.of(item.as_bytes()),
        };
        let part = match section {
            Section::Whole => item.as_bytes(),
            Section::Name => name(item.as_bytes()),
            Section::Directory => directory(item.as_bytes()),
        };
        match extension {
            Extension::Kept => part,
            Extension::Without(count) => without_extensions(part, *count),
            Extension::Only(count) => {
                let rest = without_extensions(part, *count);
                part.get(rest.len() + 1..).unwrap_or_default()
            }
        }
        .to_vec()
    }
}

fn name(item: &[u8]) -> &[u8] {
    let start = item.iter().rposition(|byte| *byte == b'/');
    start.map_or(item, |slash| &item[slash + 1..])
}

fn directory(item: &[u8]) -> &[u8] {
    match std::path::Path::new(OsStr::from_bytes(item)).parent() {
        Some(parent) if parent == std::path::Path::new("") => b".",
        Some(parent) => parent.as_os_str().as_bytes(),
        None => item,
    }
}

fn without_extensions(item: &[u8], count: usize) -> &[u8] {
    (0..count).fold(item, |item, _| without_extension(item))
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

impl Replacement {
    /// What stands between the braces of its name, if it has some.
    fn inner(&self) -> Option<&str> {
        self.name.strip_prefix('{')?.strip_suffix('}')
    }

    /// What it makes of an item. Bytes that are no text are left alone.
    fn of(&self, item: &[u8]) -> Vec<u8> {
        let Ok(text) = str::from_utf8(item) else {
            return item.to_vec();
        };
        let mut text = text.to_owned();
        for step in self.steps.iter() {
            text = match step.everywhere {
                true => step
                    .pattern
                    .replace_all(&text, step.by.as_str())
                    .into_owned(),
                false => step.pattern.replace(&text, step.by.as_str()).into_owned(),
            };
        }
        text.into_bytes()
    }
}

impl FromStr for Replacement {
    type Err = ReplacementError;

    fn from_str(text: &str) -> Result<Self, ReplacementError> {
        let wrong = || ReplacementError::Form(text.to_owned());
        let (name, expression) = text.split_once(' ').ok_or_else(wrong)?;
        if name.contains('(') || expression.contains("$$") {
            return Err(ReplacementError::Parameter(name.to_owned()));
        }
        let mut steps = Vec::new();
        let mut rest = expression.trim();
        while !rest.is_empty() {
            let (step, behind) = step(rest).ok_or_else(wrong)?;
            steps.push(step?);
            rest = behind.trim_start_matches([';', ' ']);
        }
        if steps.is_empty() || name.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            name: name.to_owned(),
            steps: steps.into(),
        })
    }
}

/// `s/PATTERN/TEXT/g` at the beginning of a text, with any mark between, and what follows it.
fn step(text: &str) -> Option<(Result<Step, ReplacementError>, &str)> {
    let rest = text.strip_prefix('s')?;
    let mark = rest.chars().next().filter(char::is_ascii_punctuation)?;
    let (pattern, rest) = up_to(&rest[1..], mark)?;
    let (by, rest) = up_to(rest, mark)?;
    let everywhere = rest.starts_with('g');
    let rest = rest.strip_prefix('g').unwrap_or(rest);
    if !(rest.is_empty() || rest.starts_with([';', ' '])) {
        return None;
    }
    // Perl says \1, we say ${1}.
    let mut expansion = String::new();
    let mut letters = by.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek().is_some_and(char::is_ascii_digit) => {
                let digit = letters.next().unwrap_or('0');
                expansion.push_str(&format!("${{{digit}}}"));
            }
            '\\' => expansion.extend(letters.next()),
            letter => expansion.push(letter),
        }
    }
    let step = match Regex::new(&pattern) {
        Ok(pattern) => Ok(Step {
            pattern,
            by: expansion,
            everywhere,
        }),
        Err(error) => Err(ReplacementError::Pattern(pattern, error.to_string())),
    };
    Some((step, rest))
}

/// What stands in front of a mark that no backslash protects, and what stands behind it.
fn up_to(text: &str, mark: char) -> Option<(String, &str)> {
    let mut before = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            letter if letter == mark => return Some((before, &text[at + mark.len_utf8()..])),
            '\\' => match letters.next()? {
                (_, letter) if letter == mark => before.push(letter),
                (_, letter) => before.extend(['\\', letter]),
            },
            letter => before.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Template;
    use std::ffi::OsString;

    fn filled(line: &str, items: &[&str], vocabulary: &Vocabulary) -> String {
        let items: Vec<OsString> = items.iter().map(OsString::from).collect();
        let filling = Filling {
            items: &items,
            sequence: 1,
            slot: Some(1),
        };
        let words = [OsString::from(line)];
        let template = Template::parse_as(&words, 9, true, OsStr::new("sh"), vocabulary);
        template.unwrap().line(&filling).into_string().unwrap()
    }

    #[test]
    fn plus_adds_the_opposites() {
        let plus = Vocabulary {
            plus: true,
            ..Vocabulary::default()
        };
        for (place, expected) in [
            ("{..}", "dir/song"),
            ("{...}", "dir/song"),
            ("{/..}", "song"),
            ("{+/}", "dir"),
            ("{+.}", "gz"),
            ("{+..}", "tar.gz"),
            ("{+/}/{/..}.{+..}", "dir/song.tar.gz"),
            ("{1..}", "dir/song"),
        ] {
            assert_eq!(
                filled(place, &["dir/song.tar.gz"], &plus),
                expected,
                "{place}"
            );
        }
        assert_eq!(filled("{+.}x", &["name"], &plus), "''x");
        let none = Vocabulary::default();
        assert_eq!(filled("echo {+.} {}", &["a.b"], &none), "echo {+.} a.b");
        let words = [OsString::from("echo {:2}")];
        let refused = Template::parse_as(&words, 1, true, OsStr::new("sh"), &plus);
        assert_eq!(refused, Err(TemplateError::NotOfPlus("{:2}".to_owned())));
    }

    #[test]
    fn positions_count_from_the_end_too() {
        let none = Vocabulary::default();
        assert_eq!(filled("echo {-1} {-2.}", &["a.x", "b"], &none), "echo b a");
        assert_eq!(filled("echo {-3}", &["a", "b"], &none), "echo");
    }

    #[test]
    fn lists_have_names() {
        let named = Vocabulary {
            lists: vec!["file".to_owned(), "file2".to_owned()],
            ..Vocabulary::default()
        };
        assert_eq!(
            filled("mv {file} {file2.}", &["a", "b.c"], &named),
            "mv a b"
        );
    }

    #[test]
    fn another_text_stands_for_the_item() {
        let own = Vocabulary {
            item: Some(",,".to_owned()),
            ..Vocabulary::default()
        };
        assert_eq!(filled("echo ,, {} {.}", &["a.b"], &own), "echo a.b {} a");
    }

    #[test]
    fn replacements_of_ones_own() {
        let own = |text: &str| Vocabulary {
            own: vec![text.parse().unwrap()],
            ..Vocabulary::default()
        };
        assert_eq!(
            filled("{o}", &["a.jpg"], &own("{o} s/\\.jpg$/.png/")),
            "a.png"
        );
        assert_eq!(filled("{o}", &["a-b-c"], &own("{o} s:-:_:g")), "a_b_c");
        assert_eq!(filled("{2o}", &["a", "ca"], &own("{o} s/a/b/")), "cb");
        assert_eq!(
            filled("{o}", &["k=v"], &own("{o} s/(.*)=(.*)/\\2:\\1/; s/v/w/")),
            "w:k"
        );
        for wrong in ["{o}", "{o} $_=uc", "{o} s/a/b", "{o} s/(/b/", "{o} s/a/b/e"] {
            assert!(wrong.parse::<Replacement>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn perl_is_refused_with_advice() {
        let words = [OsString::from("echo '{= s/a/b/ =}'")];
        let refused = Template::parse(&words, 1, true, OsStr::new("sh"));
        assert_eq!(refused, Err(TemplateError::Perl));
        let awk = [OsString::from("awk '{x==1}' {}")];
        assert!(Template::parse(&awk, 1, true, OsStr::new("sh")).is_ok());
    }
}

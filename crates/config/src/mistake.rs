//! What is wrong with a file, where, and what would be right.

use std::fmt;
use std::ops::Range;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};

/// What sort of mistake it is. Its [`name`](Kind::name) is stable, for programs that read reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The text is not YAML, or not one document.
    Syntax,
    /// The file is larger, deeper or more repetitive than the limits allow.
    TooLarge,
    /// Nobody knows this key here.
    UnknownKey,
    /// The key was already given.
    DuplicateKey,
    /// A key that must be there is not.
    MissingKey,
    /// The value is of another type.
    WrongType,
    /// The type is right, the value is not allowed.
    OutOfRange,
    /// Two values that contradict each other.
    Contradiction,
}

impl Kind {
    /// The stable name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::TooLarge => "too_large",
            Self::UnknownKey => "unknown_key",
            Self::DuplicateKey => "duplicate_key",
            Self::MissingKey => "missing_key",
            Self::WrongType => "wrong_type",
            Self::OutOfRange => "out_of_range",
            Self::Contradiction => "contradiction",
        }
    }
}

/// One mistake: where it is, what it is, what is allowed.
#[derive(Clone, Debug)]
pub struct Mistake {
    /// What sort it is.
    pub kind: Kind,
    /// What is wrong, in one sentence.
    pub message: String,
    /// What would be right.
    pub help: Option<String>,
    /// The bytes of the text that are wrong.
    pub span: Range<usize>,
    /// What to write under them.
    pub label: String,
    /// A second place that belongs to it, such as the first of two equal keys.
    pub other: Option<Box<(Range<usize>, String)>>,
}

impl Mistake {
    /// A mistake at `span`. The label stands under the marked text.
    #[must_use]
    pub fn new(
        kind: Kind,
        span: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            message: message.into(),
            help: None,
            span,
            label: label.into(),
            other: None,
        }
    }

    /// Says what would be right.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Marks a second place.
    #[must_use]
    pub fn with_other(mut self, span: Range<usize>, label: impl Into<String>) -> Self {
        self.other = Some(Box::new((span, label.into())));
        self
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

impl Diagnostic for Mistake {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help
            .as_ref()
            .map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let main = LabeledSpan::new_primary_with_span(Some(self.label.clone()), self.span.clone());
        let other = self
            .other
            .iter()
            .map(|other| LabeledSpan::new_with_span(Some(other.1.clone()), other.0.clone()));
        Some(Box::new(std::iter::once(main).chain(other)))
    }
}

/// Everything that is wrong with one file, in the order of the text; never empty.
///
/// Its [`report`](Self::report) shows each mistake under its line. Displayed, it is one line for
/// each, `file:line:column: message (help)`.
#[derive(Debug)]
pub struct Mistakes {
    name: String,
    source: NamedSource<String>,
    mistakes: Vec<Mistake>,
}

impl Mistakes {
    pub(crate) fn new(name: &str, text: &str, mut mistakes: Vec<Mistake>) -> Self {
        assert!(!mistakes.is_empty(), "a report of no mistakes");
        mistakes.sort_by_key(|mistake| mistake.span.start);
        Self {
            name: name.to_owned(),
            source: NamedSource::new(name, text.to_owned()).with_language("yaml"),
            mistakes,
        }
    }

    /// The mistakes, in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.mistakes.iter()
    }

    /// The name of the file, as it was given.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.name
    }

    /// Line and column of a mistake's first character, both counted from 1.
    #[must_use]
    pub fn position(&self, mistake: &Mistake) -> (usize, usize) {
        let text = self.source.inner();
        let end = mistake.span.start.min(text.len());
        let before = text.get(..end).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (line, before[start..].chars().count() + 1)
    }

    /// The same mistakes, in a file of this name.
    #[must_use]
    pub fn in_file(self, name: &str) -> Self {
        Self::new(name, self.source.inner(), self.mistakes)
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.mistakes.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            let (line, column) = self.position(mistake);
            write!(f, "{}:{line}:{column}: {mistake}", self.name)?;
            if let Some(help) = &mistake.help {
                write!(f, " ({help})")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// The heading above the mistakes when they are shown one by one.
#[derive(Debug, thiserror::Error)]
#[error("{}: {count} mistake{}", .mistakes.name, if *.count == 1 { "" } else { "s" })]
struct Heading<'a> {
    mistakes: &'a Mistakes,
    count: usize,
}

impl Diagnostic for Heading<'_> {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.mistakes.source)
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        let each = self.mistakes.mistakes.iter();
        Some(Box::new(each.map(|mistake| mistake as &dyn Diagnostic)))
    }
}

impl Mistakes {
    /// The report for a person: a heading, then each mistake under its line of the file.
    #[must_use]
    pub fn report(&self) -> impl Diagnostic + '_ {
        Heading {
            mistakes: self,
            count: self.mistakes.len(),
        }
    }
}

//! How a shell reads a line, as far as it takes to put values into one safely.
//!
//! Values go where we know how to quote them: bare, in `'…'`, in `"…"`, also inside `$(…)`. Elsewhere
//! (backticks, `${…}`, right behind `$`, comments, here-documents) quoting means something else, and
//! the placeholder is refused.

/// In which quotation a value stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quotes {
    /// In none.
    Bare,
    /// Between `'` and `'`.
    Single,
    /// Between `"` and `"`.
    Double,
    /// The value is itself a line for the shell.
    Syntax,
}

/// Appends a value so that the shell takes it as exactly these bytes.
pub(crate) fn push(line: &mut Vec<u8>, value: &[u8], quotes: Quotes) {
    match quotes {
        Quotes::Syntax => line.extend_from_slice(value),
        Quotes::Bare if needs_no_quotes(value) => line.extend_from_slice(value),
        Quotes::Bare => {
            line.push(b'\'');
            push_single(line, value);
            line.push(b'\'');
        }
        Quotes::Single => push_single(line, value),
        Quotes::Double => {
            for &byte in value {
                if b"\\\"$`".contains(&byte) {
                    line.push(b'\\');
                }
                line.push(byte);
            }
        }
    }
}

fn push_single(line: &mut Vec<u8>, value: &[u8]) {
    for &byte in value {
        match byte {
            b'\'' => line.extend_from_slice(b"'\\''"),
            _ => line.push(byte),
        }
    }
}

fn needs_no_quotes(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().copied().all(is_plain) && !RESERVED.contains(&value)
}

/// A byte that means itself wherever it stands in a word.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_./:@%+,-".contains(&byte) || byte >= 0x80
}

/// Words that are syntax when they stand first.
const RESERVED: &[&[u8]] = &[
    b"case",
    b"coproc",
    b"do",
    b"done",
    b"elif",
    b"else",
    b"esac",
    b"fi",
    b"for",
    b"function",
    b"if",
    b"in",
    b"select",
    b"then",
    b"time",
    b"until",
    b"while",
];

/// What the shell does itself, or does otherwise than the program of that name. (`true` and `false`
/// are the same either way.)
const BUILTINS: &[&[u8]] = &[
    b".",
    b":",
    b"alias",
    b"bg",
    b"break",
    b"builtin",
    b"caller",
    b"cd",
    b"command",
    b"compgen",
    b"complete",
    b"continue",
    b"declare",
    b"dirs",
    b"disown",
    b"echo",
    b"enable",
    b"eval",
    b"exec",
    b"exit",
    b"export",
    b"fc",
    b"fg",
    b"getopts",
    b"hash",
    b"help",
    b"history",
    b"jobs",
    b"kill",
    b"let",
    b"local",
    b"logout",
    b"mapfile",
    b"popd",
    b"printf",
    b"pushd",
    b"pwd",
    b"read",
    b"readarray",
    b"readonly",
    b"return",
    b"set",
    b"shift",
    b"shopt",
    b"source",
    b"suspend",
    b"test",
    b"times",
    b"trap",
    b"type",
    b"typeset",
    b"ulimit",
    b"umask",
    b"unalias",
    b"unset",
    b"wait",
];

/// Whether a command of this name is for the shell.
pub(crate) fn is_shell_word(name: &[u8]) -> bool {
    name.is_empty() || name.contains(&b'=') || RESERVED.contains(&name) || BUILTINS.contains(&name)
}

/// Follows a line and knows in which quotation the next byte stands.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    nesting: Vec<Inside>,
    escaped: bool,
    previous: Option<u8>,
    /// From here on, nothing can be quoted: after `<<`, or after a `case` in `$(…)`, whose
    /// parentheses do not pair.
    lost: bool,
    /// The last letters, to notice a `case`.
    letters: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    Single,
    Double,
    /// `$(…)`, with so many `(` open within.
    Command(usize),
    Backticks,
    /// `${…}`
    Expansion,
    Comment,
}

impl Reader {
    /// Whether the byte before was a backslash that counts.
    pub(crate) fn is_escaped(&self) -> bool {
        self.escaped
    }

    /// Whether the line cannot end here.
    pub(crate) fn is_open(&self) -> bool {
        self.escaped || !matches!(self.nesting.last(), None | Some(Inside::Comment))
    }

    /// How a value that stands here must be quoted; none where that is not possible.
    pub(crate) fn quotes(&self) -> Option<Quotes> {
        if self.lost || self.previous == Some(b'$') {
            return None;
        }
        match self.nesting.last() {
            None | Some(Inside::Command(_)) => Some(Quotes::Bare),
            Some(Inside::Single) => Some(Quotes::Single),
            Some(Inside::Double) => Some(Quotes::Double),
            Some(Inside::Backticks | Inside::Expansion | Inside::Comment) => None,
        }
    }

    /// A value was put here.
    pub(crate) fn skip_value(&mut self) {
        self.previous = Some(b'x');
        self.letters.clear();
    }

    /// The next byte of the line, and the one after it.
    pub(crate) fn read(&mut self, byte: u8, next: Option<u8>) {
        if std::mem::take(&mut self.escaped) {
            self.previous = Some(b'x');
            return;
        }
        match self.nesting.last().copied() {
            Some(Inside::Single) => self.close_on(byte, b'\''),
            Some(Inside::Comment) => self.close_on(byte, b'\n'),
            Some(Inside::Double) => self.read_double(byte, next),
            Some(Inside::Backticks) => match byte {
                b'\\' => self.escaped = true,
                _ => self.close_on(byte, b'`'),
            },
            Some(Inside::Expansion) => match byte {
                b'\\' => self.escaped = true,
                _ => self.close_on(byte, b'}'),
            },
            None | Some(Inside::Command(_)) => self.read_bare(byte, next),
        }
        self.previous = Some(byte);
    }

    fn close_on(&mut self, byte: u8, end: u8) {
        if byte == end {
            self.nesting.pop();
        }
    }

    fn read_double(&mut self, byte: u8, next: Option<u8>) {
        match byte {
            b'"' => _ = self.nesting.pop(),
            b'\\' => self.escaped = true,
            b'`' => self.nesting.push(Inside::Backticks),
            b'(' if self.previous == Some(b'$') => self.nesting.push(Inside::Command(0)),
            b'{' if self.previous == Some(b'$') => self.nesting.push(Inside::Expansion),
            _ => _ = next,
        }
    }

    fn read_bare(&mut self, byte: u8, next: Option<u8>) {
        self.notice_case(byte);
        match byte {
            b'\'' => self.nesting.push(Inside::Single),
            b'"' => self.nesting.push(Inside::Double),
            b'\\' => self.escaped = true,
            b'`' => self.nesting.push(Inside::Backticks),
            b'#' if self
                .previous
                .is_none_or(|before| b" \t\n;&|()".contains(&before)) =>
            {
                self.nesting.push(Inside::Comment);
            }
            b'<' if self.previous == Some(b'<') && next != Some(b'<') => self.lost = true,
            b'(' if self.previous == Some(b'$') => self.nesting.push(Inside::Command(0)),
            b'{' if self.previous == Some(b'$') => self.nesting.push(Inside::Expansion),
            b'(' => self.nest(1),
            b')' => self.nest(-1),
            _ => {}
        }
    }

    fn nest(&mut self, by: isize) {
        if let Some(Inside::Command(depth)) = self.nesting.last_mut() {
            match depth.checked_add_signed(by) {
                Some(now) => *depth = now,
                None => _ = self.nesting.pop(),
            }
        }
    }

    fn notice_case(&mut self, byte: u8) {
        if byte.is_ascii_alphabetic() {
            self.letters.push(byte);
        } else {
            self.letters.clear();
        }
        if self.letters == b"case" && !self.nesting.is_empty() {
            self.lost = true;
        }
    }
}

/// Splits a line into words, if it has no syntax but blanks and simple quotations.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    quotation: Option<u8>,
    in_word: bool,
}

/// What a byte of the line is.
pub(crate) enum Step {
    /// Part of a word.
    Byte(u8),
    /// The edge of a quotation: there is a word, if only an empty one.
    Edge,
    /// A blank between words.
    Blank,
}

impl Splitter {
    /// The next byte; none when this needs a shell.
    pub(crate) fn read(&mut self, byte: u8) -> Option<Step> {
        match self.quotation {
            Some(quote) if byte == quote => {
                self.quotation = None;
                Some(Step::Edge)
            }
            Some(b'"') if b"\\$`".contains(&byte) => None,
            Some(_) => Some(Step::Byte(byte)),
            None => match byte {
                b'\'' | b'"' => {
                    self.quotation = Some(byte);
                    Some(Step::Edge)
                }
                b' ' | b'\t' => {
                    self.in_word = false;
                    Some(Step::Blank)
                }
                _ if is_plain(byte) || b"=^".contains(&byte) => Some(Step::Byte(byte)),
                _ => None,
            },
        }
    }

    /// The word that the next piece belongs to.
    pub(crate) fn word<'w, T>(&mut self, words: &'w mut Vec<Vec<T>>) -> &'w mut Vec<T> {
        if !self.in_word {
            words.push(Vec::new());
            self.in_word = true;
        }
        words.last_mut().expect("a word was begun")
    }
}

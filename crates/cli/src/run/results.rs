//! Where results are kept: a directory laid out as GNU parallel does (`DIR/1/ITEM/stdout`, with a level for the
//! number and the item of each list), files with names of one's own (`out/{1}.txt`), or a table (`FILE.csv`).

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use loxley_exec::{Filling, Spool, Stream, Template, Vocabulary};

/// The names of files are at most this long.
const NAME_MAX: usize = 255;

/// Where results are kept.
#[derive(Debug)]
pub(super) enum Results {
    Directory {
        root: PathBuf,
        /// What the lists are called, where they have names.
        names: Vec<String>,
    },
    Files(Template),
    Table(Box<Table>),
}

/// A table with a row for each task.
#[derive(Debug)]
pub(super) struct Table {
    path: PathBuf,
    writer: csv::Writer<File>,
    names: Vec<String>,
    has_heading: bool,
}

/// What is known of a task that is over.
#[derive(Debug)]
pub(super) struct Row<'a> {
    /// What names its directory, level by level.
    pub(super) items: &'a [OsString],
    pub(super) filling: Filling<'a>,
    pub(super) started: SystemTime,
    pub(super) duration: Duration,
    pub(super) exit: (i32, i32),
    pub(super) command: &'a OsStr,
}

impl Results {
    /// What the command line names: a table by its extension, files by the placeholders in it.
    pub(super) fn new(path: &Path, vocabulary: &Vocabulary) -> Result<Self> {
        let separator = match path.extension().and_then(OsStr::to_str) {
            Some("csv") => Some(b','),
            Some("tsv") => Some(b'\t'),
            _ => None,
        };
        if let Some(separator) = separator {
            let writer = csv::WriterBuilder::new()
                .delimiter(separator)
                .flexible(true)
                .from_path(path)
                .with_context(|| cannot(path))?;
            let path = path.to_owned();
            return Ok(Self::Table(Box::new(Table {
                path,
                writer,
                names: vocabulary.lists.clone(),
                has_heading: false,
            })));
        }
        let words = [path.as_os_str().to_owned()];
        let template = Template::parse_words_as(&words, usize::MAX, false, vocabulary)?;
        Ok(match template.uses_of_items() {
            0 => Self::Directory {
                root: path.to_owned(),
                names: vocabulary.lists.clone(),
            },
            _ => Self::Files(template),
        })
    }

    /// Keeps what a task wrote.
    pub(super) fn write(&mut self, row: &Row<'_>, output: &mut Spool) -> Result<()> {
        match self {
            Self::Directory { root, names } => {
                let directory = place(root, names, row.items, row.filling.sequence);
                let files = prepare(&directory, row.filling.sequence);
                let written = files.and_then(|(stdout, stderr)| copy(output, &stdout, &stderr));
                written.with_context(|| cannot(root))
            }
            Self::Files(template) => {
                let words = template.words(&row.filling);
                let path = PathBuf::from(words.join(OsStr::new(" ")));
                let written = match path.as_os_str().as_bytes().ends_with(b"/") {
                    true => prepare(&path, row.filling.sequence)
                        .and_then(|(stdout, stderr)| copy(output, &stdout, &stderr)),
                    false => write_files(&path, row, output),
                };
                written.with_context(|| cannot(&path))
            }
            Self::Table(table) => {
                let written = table.write(row, output);
                written.with_context(|| cannot(&table.path))
            }
        }
    }
}

fn cannot(path: &Path) -> String {
    format!("cannot write results to {}", path.display())
}

fn copy(output: &mut Spool, stdout: &Path, stderr: &Path) -> io::Result<()> {
    output.copy(Stream::Stdout, &mut File::create(stdout)?)?;
    output.copy(Stream::Stderr, &mut File::create(stderr)?)
}

/// `NAME`, `NAME.err` and `NAME.seq`.
fn write_files(path: &Path, row: &Row<'_>, output: &mut Spool) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let beside = |extension: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(extension);
        PathBuf::from(name)
    };
    copy(output, path, &beside(".err"))?;
    fs::write(beside(".seq"), row.filling.sequence.to_string())
}

impl Table {
    fn write(&mut self, row: &Row<'_>, output: &mut Spool) -> io::Result<()> {
        if !self.has_heading {
            self.has_heading = true;
            let fixed = [
                "Seq",
                "Host",
                "Starttime",
                "JobRuntime",
                "Send",
                "Receive",
                "Exitval",
                "Signal",
                "Command",
            ];
            let column = |number| {
                let name = self.names.get(number).cloned();
                name.unwrap_or_else(|| format!("V{}", number + 1))
            };
            let columns = (0..row.items.len()).map(column);
            let heading = fixed.map(str::to_owned).into_iter().chain(columns);
            let heading = heading.chain(["Stdout".to_owned(), "Stderr".to_owned()]);
            self.writer.write_record(heading).map_err(io::Error::from)?;
        }
        let mut texts = [Vec::new(), Vec::new()];
        output.copy(Stream::Stdout, &mut texts[0])?;
        output.copy(Stream::Stderr, &mut texts[1])?;
        let started = row.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let numbers = [
            row.filling.sequence.to_string(),
            ":".to_owned(),
            format!("{:.3}", started.as_secs_f64()),
            format!("{:.3}", row.duration.as_secs_f64()),
            "0".to_owned(),
            texts[0].len().to_string(),
            row.exit.0.to_string(),
            row.exit.1.to_string(),
        ];
        let fields = numbers.iter().map(String::as_bytes);
        let fields = fields.chain([row.command.as_bytes()]);
        let fields = fields.chain(row.items.iter().map(|item| item.as_bytes()));
        let fields = fields.chain(texts.iter().map(Vec::as_slice));
        self.writer.write_record(fields).map_err(io::Error::from)?;
        self.writer.flush()
    }
}

/// Makes the directory for a task and writes its number into it; gives the paths of its outputs.
fn prepare(directory: &Path, sequence: u64) -> io::Result<(PathBuf, PathBuf)> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join("seq"), sequence.to_string())?;
    Ok((directory.join("stdout"), directory.join("stderr")))
}

/// A level for the number of each list and one for its item; lists with names stand in the order of those.
fn place(root: &Path, names: &[String], items: &[OsString], sequence: u64) -> PathBuf {
    let mut levels: Vec<(OsString, &OsString)> = (0..)
        .zip(items)
        .map(|(number, item)| match names.get(number) {
            Some(name) => (file_name(OsStr::new(name), sequence), item),
            None => ((number + 1).to_string().into(), item),
        })
        .collect();
    if !names.is_empty() {
        levels.sort();
    }
    let mut path = root.to_owned();
    for (list, item) in levels {
        path.push(list);
        path.push(file_name(item, sequence));
    }
    path
}

/// An item as the name of a file: no slash, not `.` or `..`, not empty, not too long. Different
/// items have different names: what is replaced begins with a backslash, and a backslash is doubled.
fn file_name(item: &OsStr, sequence: u64) -> OsString {
    let mut name = Vec::new();
    for &byte in item.as_bytes() {
        match byte {
            b'\\' => name.extend_from_slice(b"\\\\"),
            b'/' => name.extend_from_slice(b"\\_"),
            b'\t' => name.extend_from_slice(b"\\t"),
            b'\n' => name.extend_from_slice(b"\\n"),
            _ => name.push(byte),
        }
    }
    match name.as_slice() {
        b"" => name = b"\\e".to_vec(),
        b"." | b".." => name.insert(0, b'\\'),
        _ => {}
    }
    if name.len() > NAME_MAX {
        // The number of the task tells apart what the cut makes equal.
        let mark = format!("\\…{sequence}").into_bytes();
        name.truncate(NAME_MAX - mark.len());
        name.extend_from_slice(&mark);
    }
    OsString::from_vec(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn results_stand_where_gnu_parallel_puts_them() {
        let items = [OsString::from("a/b"), OsString::from("x y")];
        let path = place(Path::new("out"), &[], &items, 1);
        assert_eq!(path, Path::new("out/1/a\\_b/2/x y"));
        let names = ["second", "first"].map(str::to_owned);
        let path = place(Path::new("out"), &names, &items, 1);
        assert_eq!(path, Path::new("out/first/x y/second/a\\_b"));
    }

    proptest! {
        #[test]
        fn an_item_never_leaves_its_directory(bytes in prop::collection::vec(1..=255u8, 0..600)) {
            let name = file_name(OsStr::from_bytes(&bytes), 7);
            prop_assert!(!name.as_bytes().contains(&b'/'));
            prop_assert!(name != "." && name != ".." && !name.is_empty());
            prop_assert!(name.len() <= NAME_MAX);
        }

        #[test]
        fn different_items_have_different_names(
            left in "[./\\\\_e\t\nt]{0,6}", right in "[./\\\\_e\t\nt]{0,6}"
        ) {
            let names = [&left, &right].map(|item| file_name(OsStr::new(item), 7));
            prop_assert_eq!(left == right, names[0] == names[1]);
        }
    }
}

//! Readers of real workloads [X5]: one file per format, each giving a
//! [`Workload`](crate::workload::Workload).
//!
//! | format | file | what it holds |
//! |---|---|---|
//! | WfCommons (WfFormat 1.5) | `.json` | executed scientific workflows |
//! | Standard Task Graph | `.stg` | task graphs with known optima |
//! | Standard Workload Format | `.swf`, `.swf.gz` | logs of parallel machines |
//! | CSV | `.csv` | anything else |
//!
//! A file that is wrong is refused with its line and the reason; nothing is guessed.

pub mod csv;
pub mod stg;
pub mod swf;
pub mod wfcommons;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::workload::{Workload, WorkloadError};

/// A file that could not be read as a workload.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file itself could not be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its ending tells no format.
    #[error("{}: not a workload: expected .json (WfCommons), .stg, .swf, .swf.gz or .csv", .0.display())]
    UnknownFormat(PathBuf),
    /// Its content is wrong.
    #[error("{}:{problem}", path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// Where and why.
        problem: Malformed,
    },
}

/// What is wrong with the text of a workload file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{line}: {reason}")]
pub struct Malformed {
    /// Line number, counted from 1.
    pub line: u64,
    /// What is wrong there.
    pub reason: String,
}

impl Malformed {
    pub(crate) fn new(line: u64, reason: impl Into<String>) -> Self {
        Self {
            line,
            reason: reason.into(),
        }
    }

    /// An error of the whole graph, reported at the line where the file ends or the task stands.
    pub(crate) fn of_graph(error: &WorkloadError, line: u64) -> Self {
        Self::new(line, error.to_string())
    }
}

/// Reads a workload file; the format follows from the name.
pub fn read(path: &Path) -> Result<Workload, ReadError> {
    let Some(format) = Format::of(path) else {
        return Err(ReadError::UnknownFormat(path.to_owned()));
    };
    let text = read_text(path).map_err(|source| ReadError::File {
        path: path.to_owned(),
        source,
    })?;
    let workload = match format {
        Format::WfCommons => wfcommons::parse(&text),
        Format::Stg => stg::parse(&text),
        Format::Swf => swf::parse(&text),
        Format::Csv => csv::parse(&text),
    };
    workload.map_err(|problem| ReadError::Content {
        path: path.to_owned(),
        problem,
    })
}

/// Whether the name of a file says that it is a workload rather than a scenario.
#[must_use]
pub fn is_workload(path: &Path) -> bool {
    Format::of(path).is_some()
}

#[derive(Debug, Clone, Copy)]
enum Format {
    WfCommons,
    Stg,
    Swf,
    Csv,
}

impl Format {
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        match name.rsplit_once('.')?.1 {
            "json" => Some(Self::WfCommons),
            "stg" => Some(Self::Stg),
            "swf" => Some(Self::Swf),
            "csv" => Some(Self::Csv),
            _ => None,
        }
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut file = BufReader::new(File::open(path)?);
    let mut text = String::new();
    if path.extension().is_some_and(|extension| extension == "gz") {
        flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text)?;
    } else {
        file.read_to_string(&mut text)?;
    }
    Ok(text)
}

/// The words of a line as numbers, with a message that says which word was none.
pub(crate) fn number<T: std::str::FromStr>(
    word: Option<&str>,
    what: &str,
    line: u64,
) -> Result<T, Malformed> {
    let Some(word) = word else {
        return Err(Malformed::new(line, format!("{what} is missing")));
    };
    word.parse()
        .map_err(|_| Malformed::new(line, format!("{what} is not a number: `{word}`")))
}

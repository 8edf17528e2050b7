//! One end of a [transfer](crate::transfer()), in a directory.

use std::fs;
use std::path::Path;

use super::backup::backup;
use super::engine::SqliteJournal;
use super::history::History;
use super::open::{Fail, Options, exists};
use super::write;
use crate::rows::Rows;
use crate::sqlite::seal::Chain;
use crate::transfer::{Both, Copied, Origin, TransferError, Transferred};
use crate::{AppendError, OpenError};

/// Where a copy is made before it is moved to its place.
const UNFINISHED: &str = "copy.unfinished";

pub(crate) fn source(directory: &Path) -> Result<Both, TransferError> {
    let options = Options {
        holder: "loxley journal copy".to_owned(),
        create: false,
        ..Options::default()
    };
    let opened = SqliteJournal::open(directory, &options)?;
    Ok(Both {
        journal: Box::new(opened.journal),
        history: Box::new(History::open(directory)?),
    })
}

/// Has a new journal filled beside its place, and moves it there when it is whole.
pub(crate) fn target(
    directory: &Path,
    origin: &Origin,
    fill: impl FnOnce(&mut Both) -> Result<Transferred, TransferError>,
) -> Result<Transferred, TransferError> {
    if exists(directory) {
        let directory = directory.to_owned();
        return Err(OpenError::Present { directory }.into());
    }
    let fail = Fail(directory);
    super::private::make(directory).map_err(|error| fail.io(error))?;
    let unfinished = directory.join(UNFINISHED);
    let clear = || match fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(fail.io(error)),
        _ => Ok(()),
    };
    // What an earlier one left behind.
    clear()?;
    let filled = fill_new(&unfinished, origin, fill);
    let moved = filled.and_then(|done| {
        let checked = backup(&unfinished, directory)?;
        match checked.findings.first() {
            None => Ok(done),
            Some(finding) => Err(fail.io(finding.to_string()).into()),
        }
    });
    clear()?;
    moved
}

fn fill_new(
    directory: &Path,
    origin: &Origin,
    fill: impl FnOnce(&mut Both) -> Result<Transferred, TransferError>,
) -> Result<Transferred, TransferError> {
    let options = Options {
        holder: "loxley journal copy".to_owned(),
        ..Options::default()
    };
    let opened = SqliteJournal::create_from(directory, &options, origin)?;
    fill(&mut Both {
        journal: Box::new(opened.journal),
        history: Box::new(History::open(directory)?),
    })
}

impl Copied for SqliteJournal {
    fn origin(&self) -> Origin {
        let head = self.head();
        Origin {
            id: head.id,
            epoch_unix_ns: head.epoch,
            base: head.base,
            base_chain: head.base_chain,
        }
    }

    fn chain(&self) -> Chain {
        self.head().chain
    }

    fn put_rows(&mut self, rows: &Rows) -> Result<(), AppendError> {
        self.commit(|connection, head| write::rows(connection, rows, &mut head.rows))
    }
}

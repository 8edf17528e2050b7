//! A copy of a journal, also of one that is in use.
//!
//! SQLite reads one state of the file, whatever is written meanwhile, and writes it into a new one (`VACUUM INTO`): so the
//! copy is whole, as small as can be, and has no log. It is read from end to end before it counts.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rusqlite::Connection;

use super::check::{Checked, check};
use super::mark::Mark;
use super::open::{self, DATABASE, FILES, Fail, MARK};
use super::private;
use crate::OpenError;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Copies the journal in `from` to the directory `to`, which is made if need be and must not hold one, and checks the
/// copy: what is damaged in it is in the findings, and then it is no backup.
///
/// # Errors
/// When there is no journal, it cannot be read, the copy cannot be written, or something is there already.
pub fn backup(from: &Path, to: &Path) -> Result<Checked, OpenError> {
    let connection = open::connect_to_read(from)?;
    open::load(from, &connection)?;
    if open::exists(to) {
        return Err(OpenError::Present {
            directory: to.to_owned(),
        });
    }
    let copied = copy(&connection, to).map_err(|error| Fail(to).io(error));
    let checked = copied.and_then(|()| check(to));
    if checked.is_err() {
        for file in FILES {
            let _ = fs::remove_file(to.join(file));
        }
    }
    checked
}

fn copy(connection: &Connection, to: &Path) -> Result<(), Failure> {
    DirBuilder::new().recursive(true).mode(0o700).create(to)?;
    let unfinished = to.join("journal.db.unfinished");
    private::create_anew(&unfinished)?;
    copy_into(connection, &unfinished)?;
    let copy = Connection::open(&unfinished)?;
    // As `open` expects it.
    copy.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0))?;
    let head = super::head::Head::load(&copy)?;
    copy.close().map_err(|(_, error)| error)?;
    let mark = Mark::open(&to.join(MARK), head.id)?;
    mark.set(head.next)?;
    File::open(&unfinished)?.sync_all()?;
    fs::rename(&unfinished, to.join(DATABASE))?;
    File::open(to)?.sync_all()?;
    Ok(())
}

/// The state of a connection's file, as a file of its own: an empty one, which is there already so that nobody else may
/// read it.
pub(super) fn copy_into(connection: &Connection, path: &Path) -> Result<(), Failure> {
    let name = path
        .to_str()
        .ok_or_else(|| io::Error::other("SQLite wants a path that is UTF-8"))?;
    connection.execute("VACUUM INTO ?1", [name])?;
    File::open(path)?.sync_all()?;
    Ok(())
}

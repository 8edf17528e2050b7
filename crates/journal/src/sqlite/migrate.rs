//! From the format of an earlier version to the present one.
//!
//! A journal of an earlier format can be read as it is. When it is opened to be written, it is copied first, and the copy
//! stays; then it is changed in place, by commits that a crash between them does not harm: as long as the number is the
//! old one, the next start does everything again.

use std::path::Path;

use rusqlite::Connection;

use super::open::{DATABASE, Notice};
use super::{backup, private, schema};
use crate::OpenError;

/// `PRAGMA auto_vacuum`: pages that are not in use are given back when somebody asks for it.
pub(super) const INCREMENTAL: u32 = 2;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Brings a journal up to the present format, if it has an earlier one.
pub(super) fn up_to_date(
    directory: &Path,
    connection: &Connection,
) -> Result<Option<Notice>, OpenError> {
    let found = schema::format(connection).ok().flatten();
    let from = match found {
        Some(found) if found < schema::FORMAT => found,
        _ => return Ok(None),
    };
    let migrated = migrate(directory, connection, from);
    migrated.map(Some).map_err(|source| OpenError::Migration {
        directory: directory.to_owned(),
        found: from,
        known: schema::FORMAT,
        source,
    })
}

fn migrate(directory: &Path, connection: &Connection, from: u32) -> Result<Notice, Failure> {
    let copy = directory.join(format!("{DATABASE}.format-{from}"));
    // One that is there was made before a crash, or is somebody's: it has the older state, and stays.
    if !copy.exists() {
        let unfinished = copy.with_extension("unfinished");
        private::create_anew(&unfinished)?;
        backup::copy_into(connection, &unfinished)?;
        std::fs::rename(&unfinished, &copy)?;
    }
    // Format 3 to 4: pages can be given back.
    connection.pragma_update(None, "auto_vacuum", INCREMENTAL)?;
    connection.execute_batch("VACUUM")?;
    connection.pragma_update(None, "user_version", schema::FORMAT)?;
    Ok(Notice::Migrated { from, copy })
}

//! Where recorded work is: in a directory, in a database, or beside the access file of a server.

use std::path::Path;

use anyhow::{Result, bail};
use loxley_api::Access;
use loxley_journal::{History, Journal};

use crate::journal::view::View;

/// Whether a name is that of recorded work, as far as its looks tell.
pub(crate) fn is_meant(name: &Path) -> bool {
    name.is_dir() || is_database(name) || is_access_file(name)
}

/// Opens recorded work to read it; a server may be writing it.
pub(crate) fn open(name: &Path) -> Result<Box<dyn Journal>> {
    if is_database(name) {
        return database(name);
    }
    if is_access_file(name) {
        return beside(name);
    }
    Ok(Box::new(View(History::open(name)?)))
}

fn is_database(name: &Path) -> bool {
    let text = name.to_str().unwrap_or_default();
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

fn is_access_file(name: &Path) -> bool {
    name.is_file() && Access::read(name).is_ok()
}

#[cfg(feature = "postgres")]
fn database(name: &Path) -> Result<Box<dyn Journal>> {
    use loxley_journal::postgres::{Address, PostgresJournal};
    let address = Address::parse(name.to_str().unwrap_or_default(), None)?;
    Ok(Box::new(PostgresJournal::observe(&address)?))
}

#[cfg(not(feature = "postgres"))]
fn database(_: &Path) -> Result<Box<dyn Journal>> {
    Err(loxley_journal::DatabaseError::NotBuiltIn.into())
}

/// The journal of the server whose access file this is: it lies in the same directory, if the server is on this machine.
fn beside(name: &Path) -> Result<Box<dyn Journal>> {
    let directory = match name.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if !loxley_journal::exists(directory) {
        let url = Access::read(name)?.url;
        bail!(
            "{} is for the server at {url}, and there is no journal beside it: name the directory of the server, the \
             postgres:// address of its journal, or a copy (`loxley journal backup`)",
            name.display()
        );
    }
    Ok(Box::new(View(History::open(directory)?)))
}

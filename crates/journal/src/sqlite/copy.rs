//! A second journal with the same content.

use std::fs;
use std::io;
use std::path::Path;

use super::open::{DATABASE, Fail, LOG, MARK, exists, take_lock};
use super::private;
use crate::OpenError;

/// Copies the journal in `from`, to which nobody may be writing, into the directory `to`, which must not have one.
///
/// Nothing of the original is changed, and nothing is looked at: whoever opens the copy finds the damage that the
/// original has.
pub fn copy(from: &Path, to: &Path) -> Result<(), OpenError> {
    if !exists(from) {
        return Err(OpenError::Missing {
            directory: from.to_owned(),
        });
    }
    let _lock = take_lock(from, "copying a journal")?;
    let fail = Fail(to);
    if exists(to) {
        return Err(fail.io("there is a journal already"));
    }
    private::make(to).map_err(|error| fail.io(error))?;
    for file in [DATABASE, LOG, MARK] {
        match fs::copy(from.join(file), to.join(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => drop(copied.map_err(|error| fail.io(error))?),
        }
    }
    Ok(())
}

//! A journal is its owner's alone: it holds what everybody's tasks were told and printed.

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::open::{FILES, Notice};

const OTHERS: u32 = 0o077;
/// Everybody may put things there: nobody's directory.
const SHARED: u32 = 0o1002;

/// Makes the directory; closes it, and the files of a journal in it, to others, and says so.
pub(super) fn make(directory: &Path) -> io::Result<Option<Notice>> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let mut found = 0;
    let mode = fs::metadata(directory)?.mode() & 0o7777;
    if mode & SHARED != 0 {
        return Err(io::Error::other(format!(
            "others may write there (mode {mode:o}): a journal wants a directory of its own"
        )));
    }
    if mode & OTHERS != 0 {
        found = mode & 0o777;
        fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    }
    for file in FILES.map(|file| directory.join(file)) {
        // SQLite gives its log the mode of the file.
        let Ok(mode) = fs::symlink_metadata(&file).map(|file| file.mode() & 0o777) else {
            continue;
        };
        if mode & OTHERS != 0 {
            found = mode;
            fs::set_permissions(&file, Permissions::from_mode(0o600))?;
        }
    }
    Ok((found != 0).then_some(Notice::MadePrivate { mode: found }))
}

/// As [`create`]; what a crash left there goes first.
pub(super) fn create_anew(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => create(path),
    }
}

/// An empty file that only its owner may read.
pub(super) fn create(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path).map(|_| ())
}

//! Where programs are. A name is looked up in `PATH` once, not once for each process: the system
//! would otherwise try every directory in turn, in the child, for each start.

use std::collections::HashMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Remembers where programs were found.
#[derive(Debug, Default)]
pub struct ProgramCache {
    found: HashMap<OsString, PathBuf>,
}

impl ProgramCache {
    /// The path of a program; as given when it has a slash, else the first in `PATH` that can be
    /// executed. A program that is not found is looked for again the next time.
    pub fn find(&mut self, program: &OsStr) -> Option<&Path> {
        if !self.found.contains_key(program) {
            let path = locate(program)?;
            self.found.insert(program.to_owned(), path);
        }
        self.found.get(program).map(PathBuf::as_path)
    }
}

fn locate(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let directories = env::var_os("PATH")?;
    env::split_paths(&directories)
        .map(|directory| directory.join(program))
        .find(|path| can_execute(path))
}

fn can_execute(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

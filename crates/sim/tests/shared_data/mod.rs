//! The folder of real workloads that lies beside the repository where there is one.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The folder. Where there is none, says so past the test runner, which keeps the output of tests that pass.
pub(crate) fn folder(test: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let candidates = [root.join("../shared/data"), root.join("../../shared/data")];
    let found = candidates.into_iter().find(|folder| folder.is_dir());
    if found.is_none() {
        let warning = format!("NOT RUN: {test}: no folder ../shared/data beside the repository\n");
        let _ = io::stderr().write_all(warning.as_bytes());
    }
    found
}

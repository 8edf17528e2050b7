//! Files named on the command line, where `-` is standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Nothing that a person wrote, and no list of costs that fits a report, is larger.
const BYTES_MAX: u64 = 1 << 30;

/// The whole content of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?
        .take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {}", name(path)))?;
    if bytes.len() as u64 > BYTES_MAX {
        bail!("{} has more than {BYTES_MAX} bytes", name(path));
    }
    Ok(bytes)
}

/// What messages call a file.
pub(crate) fn name(path: &Path) -> String {
    if is_standard_input(path) {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

fn open(path: &Path) -> Result<Box<dyn Read>> {
    if is_standard_input(path) {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path).with_context(|| format!("cannot open {}", name(path)))?;
    Ok(Box::new(file))
}

fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

//! Where a server keeps its things, and where its clients look for them.

use std::env;
use std::path::PathBuf;

/// There is nowhere to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no directory: set LOXLEY_DIR or HOME")]
pub struct DirectoryError;

/// `LOXLEY_DIR`, else `loxley` in `XDG_DATA_HOME`, else `~/.local/share/loxley`.
pub fn data_directory() -> Result<PathBuf, DirectoryError> {
    choose(|name| env::var_os(name).map(PathBuf::from))
}

fn choose(variable: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf, DirectoryError> {
    let set = |name: &str| variable(name).filter(|path| !path.as_os_str().is_empty());
    if let Some(directory) = set("LOXLEY_DIR") {
        return Ok(directory);
    }
    // A relative path there is to be passed over, says the XDG base directory specification.
    if let Some(data) = set("XDG_DATA_HOME").filter(|path| path.is_absolute()) {
        return Ok(data.join("loxley"));
    }
    let home = set("HOME").ok_or(DirectoryError)?;
    Ok(home.join(".local/share/loxley"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_variable_wins() {
        let with = |pairs: &'static [(&str, &str)]| {
            choose(move |name| {
                let pair = pairs.iter().find(|(key, _)| *key == name);
                pair.map(|(_, value)| PathBuf::from(value))
            })
        };
        assert_eq!(with(&[]), Err(DirectoryError));
        assert_eq!(
            with(&[("HOME", "/h")]),
            Ok(PathBuf::from("/h/.local/share/loxley"))
        );
        assert_eq!(
            with(&[("HOME", "/h"), ("XDG_DATA_HOME", "/x")]),
            Ok(PathBuf::from("/x/loxley"))
        );
        assert_eq!(
            with(&[("HOME", "/h"), ("XDG_DATA_HOME", "x")]),
            Ok(PathBuf::from("/h/.local/share/loxley"))
        );
        assert_eq!(
            with(&[("HOME", "/h"), ("LOXLEY_DIR", "d")]),
            Ok(PathBuf::from("d"))
        );
    }
}

//! `--limit group=N`: at most N tasks of a group at once on this machine, over all runs of one user.

use std::path::PathBuf;
use std::str::FromStr;

/// `group=N` as it stands on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupLimit {
    pub(super) group: String,
    pub(super) limit: u32,
}

impl FromStr for GroupLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a group and how many of it may run, like disk=2");
        let (group, limit) = text.rsplit_once('=').ok_or_else(wrong)?;
        // The name becomes that of a directory.
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
        let fits = !group.is_empty() && group.len() <= 100 && !group.starts_with('.');
        let limit = limit
            .parse()
            .ok()
            .filter(|limit| (1..=4096).contains(limit));
        match limit {
            Some(limit) if fits && group.chars().all(is_plain) => Ok(Self {
                group: group.to_owned(),
                limit,
            }),
            _ => Err(wrong()),
        }
    }
}

/// Where the seats are.
pub(super) fn root() -> PathBuf {
    crate::runtime_directory::root().join("limits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_a_plain_name() {
        assert_eq!("a.b-c=3".parse::<GroupLimit>().unwrap().limit, 3);
        for wrong in [
            "", "x", "x=0", "=1", "../x=1", ".x=1", "a/b=1", "x=99999", "x=y",
        ] {
            assert!(wrong.parse::<GroupLimit>().is_err(), "{wrong}");
        }
    }
}

//! A directory of results, laid out as GNU parallel does: `DIR/1/ITEM/stdout`, with a level for the
//! number and the item of each list.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The names of files are at most this long.
const NAME_MAX: usize = 255;

/// Makes the directory for a task and writes its number into it; gives the paths of its outputs.
pub(super) fn prepare(
    root: &Path,
    items: &[OsString],
    sequence: u64,
) -> io::Result<(PathBuf, PathBuf)> {
    let directory = place(root, items, sequence);
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("seq"), sequence.to_string())?;
    Ok((directory.join("stdout"), directory.join("stderr")))
}

fn place(root: &Path, items: &[OsString], sequence: u64) -> PathBuf {
    let mut path = root.to_owned();
    for (number, item) in (1..).zip(items) {
        path.push(number.to_string());
        path.push(file_name(item, sequence));
    }
    path
}

/// An item as the name of a file: no slash, not `.` or `..`, not empty, not too long. Different
/// items have different names: what is replaced begins with a backslash, and a backslash is doubled.
fn file_name(item: &OsStr, sequence: u64) -> OsString {
    let mut name = Vec::new();
    for &byte in item.as_bytes() {
        match byte {
            b'\\' => name.extend_from_slice(b"\\\\"),
            b'/' => name.extend_from_slice(b"\\_"),
            b'\t' => name.extend_from_slice(b"\\t"),
            b'\n' => name.extend_from_slice(b"\\n"),
            _ => name.push(byte),
        }
    }
    match name.as_slice() {
        b"" => name = b"\\e".to_vec(),
        b"." | b".." => name.insert(0, b'\\'),
        _ => {}
    }
    if name.len() > NAME_MAX {
        // The number of the task tells apart what the cut makes equal.
        let mark = format!("\\…{sequence}").into_bytes();
        name.truncate(NAME_MAX - mark.len());
        name.extend_from_slice(&mark);
    }
    OsString::from_vec(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn results_stand_where_gnu_parallel_puts_them() {
        let items = [OsString::from("a/b"), OsString::from("x y")];
        let path = place(Path::new("out"), &items, 1);
        assert_eq!(path, Path::new("out/1/a\\_b/2/x y"));
    }

    proptest! {
        #[test]
        fn an_item_never_leaves_its_directory(bytes in prop::collection::vec(1..=255u8, 0..600)) {
            let name = file_name(OsStr::from_bytes(&bytes), 7);
            prop_assert!(!name.as_bytes().contains(&b'/'));
            prop_assert!(name != "." && name != ".." && !name.is_empty());
            prop_assert!(name.len() <= NAME_MAX);
        }

        #[test]
        fn different_items_have_different_names(
            left in "[./\\\\_e\t\nt]{0,6}", right in "[./\\\\_e\t\nt]{0,6}"
        ) {
            let names = [&left, &right].map(|item| file_name(OsStr::new(item), 7));
            prop_assert_eq!(left == right, names[0] == names[1]);
        }
    }
}

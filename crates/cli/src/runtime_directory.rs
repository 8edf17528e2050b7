//! Where runs of one user on one machine find each other.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The user's own directory for such things, or one beside the temporary files that carries the user's number.
pub(crate) fn root() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()) {
        Some(directory) => Path::new(&directory).join("loxley"),
        None => {
            let user = rustix::process::getuid().as_raw();
            std::env::temp_dir().join(format!("loxley-{user}"))
        }
    }
}

/// A directory below that nobody else can look into. Where everybody may make directories, somebody else may have made
/// it first: then it is refused.
///
/// # Errors
/// When it cannot be made, or is not ours alone.
pub(crate) fn private(name: &str) -> io::Result<PathBuf> {
    let root = root();
    let directory = root.join(name);
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(&directory)?;
    // Whoever can write to the one above could put another in its place.
    for (path, closed) in [(&root, 0o022), (&directory, 0o077)] {
        let found = std::fs::symlink_metadata(path)?;
        let is_ours = found.is_dir() && found.uid() == rustix::process::getuid().as_raw();
        if !is_ours || found.mode() & closed != 0 {
            let message = format!(
                "{} must be a directory of yours that nobody else can use",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        // Whatever the root is on this machine: below it there is a directory of ours.
        let name = format!("test-{}", std::process::id());
        let Ok(directory) = super::private(&name) else {
            // Somebody else's root: refused, as it should be.
            return;
        };
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&directory, open).expect("it is ours");
        let refused = super::private(&name).expect_err("others can enter");
        std::fs::remove_dir(&directory).expect("it is empty");
        assert!(refused.to_string().contains(&name), "{refused}");
    }
}

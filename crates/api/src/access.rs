//! The access file: where the server is, which certificate it has, and our token.
//!
//! The server writes `access.json` (role `admin`) and `agent.json` (role `agent`, for agents on its machine) into
//! its directory at its first start; more are made by `loxley server token create`. Whoever can read the file can do what its role may, so it
//! has mode 0600, and a file that others can read is refused, as `ssh` refuses a key.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Fingerprint, Role, Token};

/// What a client or an agent needs to know of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Access {
    /// Where the server listens: `https://127.0.0.1:7420`.
    pub url: String,
    /// Where its other instances listen, where there are several: one of them answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// The SHA-256 of its certificate. No other is accepted, whoever signed it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub certificate_sha256: Fingerprint,
    /// Our secret.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub token: Token,
    /// What it allows; the server has the last word.
    pub role: Role,
    /// What the token is called, for `loxley server token list`.
    pub name: String,
}

/// An access file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// There is none.
    #[error(
        "no access file {0}: is a server running there, or should LOXLEY_DIR or --access be set?"
    )]
    Missing(PathBuf),
    /// It cannot be read or written.
    #[error("{path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Others can read it.
    #[error(
        "{path} can be read by others (mode {mode:o}): it holds a secret; run chmod 600 {path}"
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is not an access file.
    #[error("{path} is not an access file: {source}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
}

/// The header with which an instance that stands by names the one that answers.
pub const HOLDER_HEADER: &str = "loxley-holder";
/// The header in which it says, to an agent, for which shard that one is wanted.
pub const SHARD_HEADER: &str = "loxley-shard";

impl Access {
    /// All addresses, the one to begin with first.
    pub fn urls(&self) -> Vec<String> {
        let mut urls = vec![self.url.clone()];
        for other in &self.others {
            if !urls.contains(other) {
                urls.push(other.clone());
            }
        }
        urls
    }

    /// The name of the admin's access file in the server's directory.
    pub const FILE: &'static str = "access.json";
    /// The name of the access file for agents on the server's machine.
    pub const AGENT_FILE: &'static str = "agent.json";
    /// An access file has a few hundred bytes.
    const BYTES_MAX: u64 = 1 << 16;

    /// Reads an access file.
    pub fn read(path: &Path) -> Result<Self, AccessError> {
        let io = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => AccessError::Missing(path.to_owned()),
            _ => AccessError::Io {
                path: path.to_owned(),
                source,
            },
        };
        let file = File::open(path).map_err(io)?;
        // Of the file that is open, not of whatever has its name by now.
        let mode = file.metadata().map_err(io)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            let path = path.to_owned();
            return Err(AccessError::Open { path, mode });
        }
        let mut text = Vec::new();
        file.take(Self::BYTES_MAX)
            .read_to_end(&mut text)
            .map_err(io)?;
        serde_json::from_slice(&text).map_err(|source| AccessError::Malformed {
            path: path.to_owned(),
            source,
        })
    }

    /// Writes the file with mode 0600, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), AccessError> {
        let io = |source: io::Error| AccessError::Io {
            path: path.to_owned(),
            source,
        };
        let temporary = path.with_extension(format!("{}.new", std::process::id()));
        // What an earlier process of our number left behind could have another mode.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(io)?;
        let mut text = serde_json::to_vec_pretty(self).expect("an access file can be written");
        text.push(b'\n');
        let written = file
            .write_all(&text)
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&temporary, path));
        written.map_err(io)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn access() -> Access {
        Access {
            url: "https://127.0.0.1:7420".to_owned(),
            others: vec!["https://127.0.0.2:7420".to_owned()],
            certificate_sha256: Fingerprint::of(b"certificate"),
            token: Token::random(),
            role: Role::Admin,
            name: "admin".to_owned(),
        }
    }

    #[test]
    fn what_is_written_is_read_and_nobody_else_can() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(Access::FILE);
        let access = access();
        access.write(&path).unwrap();
        access.write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Access::read(&path).unwrap(), access);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(Access::FILE);
        access().write(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let refusal = Access::read(&path).unwrap_err().to_string();
        assert!(refusal.contains("chmod 600"), "{refusal}");
    }

    #[test]
    fn a_missing_or_broken_file_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(Access::FILE);
        assert!(matches!(Access::read(&path), Err(AccessError::Missing(_))));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .unwrap();
        file.write_all(b"{\"url\": 3}").unwrap();
        assert!(matches!(
            Access::read(&path),
            Err(AccessError::Malformed { .. })
        ));
    }
}

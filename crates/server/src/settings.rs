//! What a server keeps to, beside how it balances load: said at its start or by a reload, and kept in a file, so that it
//! counts after the next start, too.

use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use loxley_config::ServerSettings;
use loxley_policy::Config;
use tokio::sync::Notify;

use crate::auth::{GateError, write_secret};

const FILE: &str = "settings.yaml";

#[derive(Debug)]
pub(crate) struct Settings {
    path: PathBuf,
    current: RwLock<ServerSettings>,
    changed: Notify,
}

impl Settings {
    /// Those that are given; else those that were in force when the server ended.
    pub(crate) fn read(
        directory: &Path,
        given: Option<ServerSettings>,
    ) -> Result<ServerSettings, GateError> {
        let path = directory.join(FILE);
        let kept = || match std::fs::read(&path) {
            Ok(text) => match loxley_config::parse_server_bytes(&text) {
                Ok((_, settings)) => Ok(settings),
                Err(mistakes) => Err(GateError::Damaged {
                    path: path.clone(),
                    what: mistakes.to_string(),
                }),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(ServerSettings::default())
            }
            Err(source) => Err(GateError::Io {
                path: path.clone(),
                source,
            }),
        };
        given.map_or_else(kept, Ok)
    }

    /// As [`read`](Self::read); what is given is written down.
    pub(crate) fn open(directory: &Path, given: Option<ServerSettings>) -> Result<Self, GateError> {
        let settings = Self::read(directory, given)?;
        let this = Self {
            path: directory.join(FILE),
            current: RwLock::new(settings),
            changed: Notify::new(),
        };
        if given.is_some() {
            this.set(settings)?;
        }
        Ok(this)
    }

    /// Returns when they were set since somebody last waited.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(crate) fn get(&self) -> ServerSettings {
        *self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, settings: ServerSettings) -> Result<(), GateError> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if *current != settings || !self.path.exists() {
            let text = loxley_config::server_yaml(&Config::default(), &settings);
            write_secret(&self.path, text.as_bytes())?;
        }
        *current = settings;
        self.changed.notify_one();
        Ok(())
    }
}

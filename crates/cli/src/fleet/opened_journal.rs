//! A journal whose server is gone, asked as if it were there.

use std::path::Path;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use loxley_api::{Access, Role, TokenRequest};
use loxley_config::ServerSettings;
use loxley_server::{Context, Server, ServerOptions, api};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A server in this process, on a copy of a journal, that answers and changes nothing: its only visitor may look.
/// Whatever can be asked of a server can so be asked of what it left behind, in the same words.
#[derive(Debug)]
pub(super) struct OpenedJournal {
    access: Access,
    context: Context,
    serving: Option<JoinHandle<()>>,
    _copy: TempDir,
}

impl OpenedJournal {
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let copy = tempfile::tempdir().context("no place for a copy of the journal")?;
        loxley_journal::copy(directory, copy.path())?;
        let runtime = Runtime::new().context("cannot start threads")?;
        let options = ServerOptions {
            // A copy that goes with us needs no room kept for it.
            settings: Some(ServerSettings {
                disk_reserve_mb: 0,
                ..ServerSettings::default()
            }),
            ..ServerOptions::new(copy.path().to_owned())
        };
        let server = runtime
            .block_on(Server::start(options, api::router))
            .with_context(|| format!("cannot open the journal in {}", directory.display()))?;
        let context = server.context().clone();
        let reader = TokenRequest::new("reader", Role::Read);
        let access = Access {
            token: context.gate.create(&reader)?,
            role: reader.role,
            name: reader.name,
            ..server.access().clone()
        };
        let serving = std::thread::spawn(move || {
            if let Err(error) = runtime.block_on(server.run()) {
                tracing::error!(%error, "the copy of the journal cannot be read");
            }
        });
        Ok(Self {
            access,
            context,
            serving: Some(serving),
            _copy: copy,
        })
    }

    pub(super) fn access(&self) -> &Access {
        &self.access
    }
}

impl Drop for OpenedJournal {
    fn drop(&mut self) {
        self.context.stop();
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

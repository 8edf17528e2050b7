//! Finding the server, and saying things in two ways.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Result, bail};
use loxley_api::data_directory;
use loxley_client::blocking::Client;
use loxley_client::{Access, ClientError, access_path};
use serde::Serialize;

use super::opened_journal::OpenedJournal;
use crate::run::watched;

/// Where the server is, and who we are to it.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Connect {
    /// The server's directory, where its access file is [default: LOXLEY_DIR, else
    /// ~/.local/share/loxley].
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
    /// The access file [default: LOXLEY_ACCESS, else access.json in the directory].
    #[arg(long, value_name = "FILE")]
    pub(super) access: Option<PathBuf>,
    /// Reach the server at another address than the access file says: https://host:7420.
    #[arg(long, value_name = "URL")]
    pub(super) server: Option<String>,
    /// Answer from a journal instead of a server: that of `loxley run --journal DIR`, or of a server that is stopped.
    /// Nothing in it is changed.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["dir", "access", "server"])]
    journal: Option<PathBuf>,
    /// Ask a `loxley run` of yours on this machine: the one with this process number, or the only one there is.
    #[arg(
        long,
        value_name = "PID",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0",
        conflicts_with_all = ["dir", "access", "server", "journal"]
    )]
    run: Option<u32>,
    #[arg(skip)]
    opened: Arc<OnceLock<OpenedJournal>>,
}

impl Connect {
    /// The access file, read.
    pub(super) fn access(&self) -> Result<Access> {
        if self.database().is_some() {
            anyhow::bail!(
                "--journal takes the directory of a journal here: copy it out of the database first, with `loxley \
                 journal copy postgres://… DIR`"
            );
        }
        if let Some(directory) = &self.journal {
            if self.opened.get().is_none() {
                // Whoever comes second finds the first one's; a command connects from one thread.
                let _ = self.opened.set(OpenedJournal::open(directory)?);
            }
            return Ok(self.opened.wait().access().clone());
        }
        if let Some(process) = self.run {
            return access_of_run(process);
        }
        let path = match (&self.access, &self.dir) {
            (Some(file), _) => file.clone(),
            (None, Some(dir)) => dir.join(Access::FILE),
            (None, None) => access_path()?,
        };
        self.read(&path)
    }

    /// The database that was named in place of a journal's directory.
    pub(super) fn database(&self) -> Option<&str> {
        let named = self.journal.as_ref()?.to_str()?;
        let is_database = |scheme| named.starts_with(scheme);
        ["postgres://", "postgresql://"]
            .into_iter()
            .any(is_database)
            .then_some(named)
    }

    /// An access file, with the address that was given instead of its own.
    pub(super) fn read(&self, path: &Path) -> Result<Access> {
        let mut access = Access::read(path)?;
        if let Some(server) = &self.server {
            access.url.clone_from(server);
        }
        Ok(access)
    }

    /// The access file for an agent: what it runs should find no token that can do more than run tasks.
    pub(super) fn agent_access_path(&self) -> Result<PathBuf> {
        if self.run.is_some() || self.journal.is_some() {
            bail!("an agent joins a server: neither a run nor a journal has work for it");
        }
        let named = std::env::var_os("LOXLEY_ACCESS").filter(|file| !file.is_empty());
        Ok(match (&self.access, &self.dir, named) {
            (Some(file), ..) => file.clone(),
            (None, Some(dir), _) => dir.join(Access::AGENT_FILE),
            (None, None, Some(file)) => file.into(),
            (None, None, None) => data_directory()?.join(Access::AGENT_FILE),
        })
    }

    /// A client of the server. Nothing is sent yet.
    pub(super) fn client(&self) -> Result<Client> {
        Ok(Client::new(&self.access()?)?)
    }
}

/// How to get into a run: the one with this process number, or with 0 the only one.
fn access_of_run(process: u32) -> Result<Access> {
    if process != 0 {
        return watched::access_of(process);
    }
    match watched::runs()?.as_slice() {
        [] => bail!("--run: no `loxley run` of yours is under way on this machine"),
        [process] => watched::access_of(*process),
        several => {
            let numbers: Vec<String> = several.iter().map(u32::to_string).collect();
            let numbers = numbers.join(", ");
            bail!("--run: several runs are under way; say which one, like --run=PID: {numbers}")
        }
    }
}

/// Prints one JSON object on a line of its own.
pub(super) fn print_json(out: &mut dyn Write, value: &impl Serialize) -> Result<()> {
    serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// How a command ends that failed with this.
pub(crate) fn exit_of(error: &anyhow::Error) -> Option<crate::exit::Exit> {
    use crate::exit::Exit;
    use loxley_api::ErrorCode;
    let error = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<ClientError>())?;
    Some(match error {
        ClientError::Refused(refusal) => match refusal.code {
            ErrorCode::NotFound | ErrorCode::Gone => Exit::NotFound,
            ErrorCode::Invalid | ErrorCode::TooLarge => Exit::Mistakes,
            _ => Exit::Refused,
        },
        ClientError::Unreachable { .. }
        | ClientError::Broken { .. }
        | ClientError::Timeout { .. }
        | ClientError::Unintelligible { .. } => Exit::Unreachable,
        ClientError::Uncertain { .. } => Exit::Uncertain,
        ClientError::Address(_) => Exit::Failed,
    })
}

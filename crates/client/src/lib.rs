//! Talks to a Loxley server.
//!
//! A [`Client`] is made from an access file, which says where the server is, which certificate it
//! has, and who we are to it. It keeps its connections open and may be cloned and shared. Whoever
//! has no runtime takes a [`blocking::Client`].
//!
//! ```no_run
//! use loxley_client::{Access, blocking::Client, command};
//!
//! let access = Access::read(&loxley_client::access_path()?)?;
//! let client = Client::new(&access)?;
//! let job = client.submit(&command(["gzip", "-k", "big.log"]))?;
//! let job = client.wait_job(job.id)?;
//! assert_eq!(job.tasks.failed, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What must stay true: a request that changes something is sent again only when that does no harm
//! (a job has a key; cancelling twice is cancelling once); a wait ends when its subject is over, not
//! when the server is away for a while.

pub mod blocking;
mod client;
mod error;
mod events;
mod patience;
mod transport;
mod tunnel;

pub use client::Client;
pub use error::ClientError;
pub use events::Events;
pub use loxley_api::Access;
pub use patience::{Patience, Waiting};
pub use tunnel::Tunnel;

use std::path::PathBuf;

use loxley_api::{CommandRequest, DirectoryError, JobRequest, TaskRequest, Work, data_directory};

/// Where the access file is when nobody says otherwise: `LOXLEY_ACCESS`, or `access.json` in the
/// [data directory](data_directory).
pub fn access_path() -> Result<PathBuf, DirectoryError> {
    match std::env::var_os("LOXLEY_ACCESS").filter(|path| !path.is_empty()) {
        Some(path) => Ok(PathBuf::from(path)),
        None => Ok(data_directory()?.join(Access::FILE)),
    }
}

/// A job of one command.
pub fn command(words: impl IntoIterator<Item = impl Into<String>>) -> JobRequest {
    let command = CommandRequest {
        words: words.into_iter().map(Into::into).collect(),
        ..CommandRequest::default()
    };
    JobRequest {
        tasks: vec![TaskRequest::new(Work::Command(command))],
        ..JobRequest::default()
    }
}

//! One process of a name at a time on a machine.
//!
//! A supervisor starts an agent again as soon as it was killed. The server then gives it tasks at once, and some may
//! be those of the old process, which the guardian of that one is about to end. So a name is held by a socket
//! without a file, by the agent and by its guardian: the system frees it when both are gone.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::{Duration, Instant};

use loxley_api::Access;

/// How long the guardian of a killed agent may take to end what belonged to it.
const PATIENCE: Duration = Duration::from_secs(15);

/// Waits until nobody else of this name has anything left on this machine; not for ever, because a second agent of
/// the name may run, and that is for the server to refuse.
pub(crate) async fn claim(access: &Access, name: &str) -> Option<OwnedFd> {
    let mut hasher = DefaultHasher::new();
    (access.certificate_sha256, name).hash(&mut hasher);
    let user = rustix::process::getuid().as_raw();
    let address = format!("loxley-agent-{user}-{:016x}", hasher.finish());
    let address = SocketAddr::from_abstract_name(address).ok()?;
    let begun = Instant::now();
    loop {
        match UnixListener::bind_addr(&address) {
            Ok(held) => return Some(held.into()),
            Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => return None,
            Err(_) if begun.elapsed() > PATIENCE => {
                tracing::warn!(name, "another agent of this name runs on this machine");
                return None;
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

//! A run that can be looked at while it runs: with `--run` by every command that asks a server, and in a browser.
//!
//! Nothing is served before somebody wants to look. Until then a socket waits, in a directory that only this user can
//! enter; whoever connects is told how to get in, and only then a server begins to answer, on this machine alone.
//!
//! ```text
//!  loxley top --run ──socket──▶ Watched ──starts──▶ server ──questions, as events──▶ runner, which owns the engine
//! ```

use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use loxley_api::{Access, LinkRequest, Role, TokenRequest};
use loxley_client::{Client, Tunnel};
use loxley_config::ServerSettings;
use loxley_server::decider::HistorySource;
use loxley_server::{Context, Server, ServerOptions, api};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::runner::Event;
use crate::runtime_directory;

/// Where the sockets of runs are.
const SOCKETS: &str = "runs";

/// What a run says to whoever connects to its socket.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Greeting {
    /// This is how you get in.
    Access(Box<Access>),
    /// It cannot be looked at, for this reason.
    Refused(String),
}

/// A run that waits for somebody to look. Nobody can any more when this is gone.
#[derive(Debug)]
pub(super) struct Watched {
    service: Arc<Mutex<Service>>,
    socket: Option<PathBuf>,
}

#[derive(Debug)]
struct Service {
    events: Sender<Event>,
    /// Where what is over can be read, if it is written down.
    journal: Option<PathBuf>,
    epoch_unix_ns: u64,
    serving: Option<Serving>,
}

/// What answers, once somebody wanted to look.
#[derive(Debug)]
struct Serving {
    runtime: Runtime,
    context: Context,
    access: Access,
    _directory: TempDir,
}

impl Watched {
    /// Waits for somebody to look. A run that nobody can look at is as good a run, so nothing is wrong when there is
    /// no place for a socket.
    pub(super) fn start(events: Sender<Event>, journal: Option<&Path>, epoch_unix_ns: u64) -> Self {
        let service = Arc::new(Mutex::new(Service {
            events,
            journal: journal.map(Path::to_owned),
            epoch_unix_ns,
            serving: None,
        }));
        let socket = listen(&service);
        if let Err(error) = &socket {
            tracing::debug!(%error, "nobody can look at this run");
        }
        Self {
            service,
            socket: socket.ok(),
        }
    }

    /// Holds a door open for browsers on this machine, and says which link leads in, once.
    pub(super) fn open_dashboard(&self) -> Result<()> {
        let mut service = lock(&self.service);
        let access = service.access()?;
        let serving = service.serving.as_ref().context("nobody answers")?;
        let (link, tunnel) = serving.runtime.block_on(async {
            let client = Client::new(&access)?;
            let link = client.dashboard_link(&LinkRequest { read_only: false });
            let link = link.await?;
            let tunnel = Tunnel::open(&access, 0).await;
            anyhow::Ok((link, tunnel.context("cannot listen on 127.0.0.1")?))
        })?;
        writeln!(
            io::stderr(),
            "dashboard: http://{}{}\nThe link works once, for {} s; `loxley dashboard --run={}` makes another.",
            tunnel.address(),
            link.path,
            link.lifetime_sec,
            std::process::id(),
        )?;
        serving.runtime.spawn(tunnel.run());
        Ok(())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
        if let Some(Serving {
            runtime, context, ..
        }) = lock(&self.service).serving.take()
        {
            context.stop();
            // Whoever looks sees a connection that ends; nobody waits for them.
            runtime.shutdown_background();
        }
    }
}

impl Service {
    /// How to get in. The first who asks has the server started.
    fn access(&mut self) -> Result<Access> {
        if let Some(serving) = &self.serving {
            return Ok(serving.access.clone());
        }
        let directory = tempfile::tempdir().context("no place for the keys of a server")?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("watch")
            .enable_all()
            .build()
            .context("cannot start threads")?;
        let history = match &self.journal {
            Some(journal) => {
                let history = HistorySource::open(journal.clone());
                let history = history.map_err(|error| anyhow::Error::msg(error.message))?;
                history.counting_from(self.epoch_unix_ns)
            }
            None => HistorySource::none(self.epoch_unix_ns),
        };
        let options = ServerOptions {
            settings: Some(ServerSettings {
                disk_reserve_mb: 0,
                ..ServerSettings::default()
            }),
            ..ServerOptions::new(directory.path().to_owned())
        };
        let events = self.events.clone();
        let deliver = move |question| events.send(Event::Asked(Box::new(question))).is_ok();
        let observed = Server::observe(options, history, deliver, api::router);
        let (server, observer) = runtime.block_on(observed)?;
        let observer = Event::Observed(Box::new(observer));
        if self.events.send(observer).is_err() {
            anyhow::bail!("the run is over");
        }
        let context = server.context().clone();
        // May look and cancel. There is nothing to be administered.
        let visitor = TokenRequest::new("run", Role::Submit);
        let access = Access {
            token: context.gate.create(&visitor)?,
            role: visitor.role,
            name: visitor.name,
            ..server.access().clone()
        };
        runtime.spawn(server.run());
        let serving = self.serving.insert(Serving {
            runtime,
            context,
            access,
            _directory: directory,
        });
        Ok(serving.access.clone())
    }
}

fn lock(service: &Mutex<Service>) -> std::sync::MutexGuard<'_, Service> {
    service.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Listens for whoever wants to look, until the process ends.
fn listen(service: &Arc<Mutex<Service>>) -> io::Result<PathBuf> {
    let path = runtime_directory::private(SOCKETS)?.join(std::process::id().to_string());
    // A run that was killed left it, and its number has come round.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    let service = Arc::downgrade(service);
    std::thread::Builder::new()
        .name("watch".to_owned())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(service) = service.upgrade() else {
                    return;
                };
                let greeting = match lock(&service).access() {
                    Ok(access) => Greeting::Access(Box::new(access)),
                    Err(error) => Greeting::Refused(format!("{error:#}")),
                };
                // Whoever asked may have gone.
                let _ = greet(&stream, &greeting);
            }
        })?;
    Ok(path)
}

fn greet(mut stream: &UnixStream, greeting: &Greeting) -> io::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(5);
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&serde_json::to_vec(greeting)?)
}

/// The runs of this user on this machine that can be looked at, by their process numbers.
pub(crate) fn runs() -> Result<Vec<u32>> {
    let directory = runtime_directory::private(SOCKETS).context("cannot look for runs")?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(process) = name.and_then(|name| name.parse().ok()) else {
            continue;
        };
        let is_there = rustix::process::Pid::from_raw(process)
            .is_some_and(|process| rustix::process::test_kill_process(process).is_ok());
        match is_there {
            true => found.push(process.unsigned_abs()),
            // It was killed.
            false => _ = std::fs::remove_file(&path),
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// How to get into a run.
pub(crate) fn access_of(process: u32) -> Result<Access> {
    /// A run answers between two events, and makes a certificate first.
    const PATIENCE: Duration = Duration::from_secs(30);
    let path = runtime_directory::private(SOCKETS)?.join(process.to_string());
    let stream = UnixStream::connect(&path);
    let stream = stream.with_context(|| {
        format!("no `loxley run` of yours with process number {process} can be looked at")
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let greeting: Greeting = serde_json::from_reader(stream).context("the run does not answer")?;
    match greeting {
        Greeting::Access(access) => Ok(*access),
        Greeting::Refused(reason) => anyhow::bail!("the run cannot be looked at: {reason}"),
    }
}

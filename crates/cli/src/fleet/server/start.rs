//! `loxley server start`: decides for a fleet until it is told to end.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use loxley_api::{Access, data_directory};
use loxley_journal::{AppendError, NotWritten};
use loxley_policy::Config;
use loxley_server::{Server, ServerError, ServerOptions, api};
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::super::connect::print_json;
use super::super::logs::LogArgs;
use super::otlp::Telemetry;
use crate::exit::Exit;
use crate::input;

/// Run a server, until it is told to end.
///
/// At its first start it makes a certificate, a token and an access file in its directory. Everything
/// it accepts is on disk before it says so: it may be killed at any moment and started again.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// Where to listen; port 0 takes any free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7420")]
    listen: SocketAddr,
    /// The name or address under which others reach it, for the access files [default: where it
    /// listens].
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Where it keeps its things [default: LOXLEY_DIR, else ~/.local/share/loxley].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Keep the journal in this PostgreSQL, which several servers may share: they take over from each other. postgres://user@host/database?sslmode=verify-full&sslrootcert=FILE&schema=loxley. No password in it: see
    /// --journal-password-file.
    #[arg(
        long,
        value_name = "URL",
        env = "LOXLEY_JOURNAL",
        hide_env_values = true
    )]
    pub(super) journal: Option<String>,
    /// A file with the password for the database, which nobody else can read [default: PGPASSWORD, else the file that
    /// PGPASSFILE names, else ~/.pgpass].
    #[arg(long, value_name = "FILE", requires = "journal")]
    pub(super) journal_password_file: Option<PathBuf>,
    /// What this one of several servers is called [default: its machine and port].
    #[arg(long, value_name = "NAME", requires = "journal")]
    pub(super) instance: Option<String>,
    /// Divide jobs and agents into so many shards, which different servers serve at the same time. Said by the first
    /// server on a database, and the same ever after [default: as many as there are; 1 at the first start].
    #[arg(
        long,
        value_name = "N",
        requires = "journal",
        value_parser = clap::value_parser!(u16).range(1..=256)
    )]
    pub(super) shards: Option<u16>,
    /// Begin with a new journal in a directory whose journal is gone; its tokens stay.
    #[arg(long)]
    new: bool,
    /// How it decides; see `loxley config default`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Tell a collector of OpenTelemetry what happens, over gRPC: http://127.0.0.1:4317, or https:// for TLS. The path
    /// of every task is spans, the fleet is metrics. `loxley server trace` changes it while the server runs.
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// The certificate of an https collector, or of the authority behind it, in PEM [default: those that the system
    /// knows].
    #[arg(long, value_name = "FILE", env = "OTEL_EXPORTER_OTLP_CERTIFICATE")]
    otlp_ca: Option<PathBuf>,
    /// Print where it is as one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    logs: LogArgs,
}

const HELP: &str = "\
Examples:
  loxley server start
  loxley server start --listen 0.0.0.0:7420 --host fleet.example.org
  loxley server start --dir ./fleet --config loxley.yaml --log debug --log-format json
  loxley server start --journal postgres://loxley@db.example.org/fleet --host a.example.org
  loxley server start --otlp http://127.0.0.1:4317

Agents on this machine find it by themselves; for others see `loxley server token create --help`.
Ctrl-C or TERM ends it; everything accepted goes on at its next start.

Exit codes: 0 it was told to end; 1 it could not start, or a write to its journal failed; 3 the
configuration has mistakes.";

/// What `--json` prints.
#[derive(Serialize)]
struct Started<'a> {
    url: &'a str,
    pid: u32,
    directory: String,
    access: String,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let directory = match &args.dir {
        Some(directory) => directory.clone(),
        None => data_directory()?,
    };
    let (config, settings) = match &args.config {
        None => (Config::served(), None),
        Some(file) => match loxley_config::parse_server_bytes(&input::read(file)?) {
            Ok((config, settings)) => (config, Some(settings)),
            Err(mistakes) => {
                crate::config::show(&mistakes.in_file(&input::name(file)))?;
                return Ok(Exit::Mistakes);
            }
        },
    };
    let log = args.logs.start()?;
    let options = ServerOptions {
        url: args.host.as_deref().map(|host| url(host, args.listen)),
        listen: args.listen,
        config,
        settings,
        new_journal: args.new,
        log: Some(log),
        ..ServerOptions::new(directory)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    runtime.block_on(serve(args, options, out))?;
    Ok(Exit::Done)
}

/// `host` and the port where we listen, unless it names a port itself.
fn url(host: &str, listen: SocketAddr) -> String {
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(name, port)| port.parse::<u16>().is_ok() && !name.ends_with(':'));
    match has_port {
        true => format!("https://{host}"),
        false => format!("https://{host}:{}", listen.port()),
    }
}

async fn serve(args: &Args, options: ServerOptions, out: &mut dyn Write) -> Result<()> {
    let telemetry = Telemetry::start(args.otlp.as_deref(), args.otlp_ca.clone())?;
    let options = ServerOptions {
        traces: Some(Arc::<Telemetry>::clone(&telemetry)),
        ..options
    };
    let served = match &args.journal {
        Some(journal) => super::cluster::serve(args, journal, options, out).await,
        None => serve_alone(args, options, out).await,
    };
    telemetry.finish().await;
    served
}

async fn serve_alone(args: &Args, options: ServerOptions, out: &mut dyn Write) -> Result<()> {
    let directory = options.directory.clone();
    let place = directory.display().to_string();
    let mut signals = EndSignals::watch()?;
    let server = tokio::select! {
        server = Server::start(options, api::router) => server?,
        // Nobody was answered yet, and a journal bears to be left at any moment.
        () = signals.come() => return Ok(()),
    };
    let context = server.context().clone();
    signals.then(move || context.stop());
    for notice in server.notices() {
        tracing::warn!("{notice}");
    }
    say_started(args, &server.access().url, &directory, out)?;
    match server.run().await {
        Err(ServerError::Write(AppendError::NotWritten(NotWritten::DiskFull))) => {
            let help = format!(
                "no room is left on the disk of the journal, and its reserve is used up: the server has ended, and everything \
                 that it accepted is there. Remove other files from that disk, or forget old jobs: `loxley journal prune \
                 --older-than 7d --dir {place}`; then start it again"
            );
            Err(anyhow::Error::msg(help))
        }
        ended => Ok(ended?),
    }
}

/// Says where the server is.
pub(super) fn say_started(
    args: &Args,
    url: &str,
    directory: &Path,
    out: &mut dyn Write,
) -> Result<()> {
    let access = directory.join(Access::FILE);
    if args.json {
        let started = Started {
            url,
            pid: std::process::id(),
            directory: directory.display().to_string(),
            access: access.display().to_string(),
        };
        print_json(out, &started)?;
    } else {
        writeln!(
            out,
            "loxley server at {url}, access file {}",
            access.display()
        )?;
    }
    // Whoever started us in a pipe wants to know now.
    Ok(out.flush()?)
}

/// INT and TERM, from when this is made: before the server listens, since whoever reaches it may end it at once. Also
/// where whoever started it ignores them, as shells do for what they start in the background.
pub(super) struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl EndSignals {
    pub(super) fn watch() -> Result<Self> {
        let watch = |kind| signal(kind).context("cannot watch for signals");
        Ok(Self {
            interrupt: watch(SignalKind::interrupt())?,
            terminate: watch(SignalKind::terminate())?,
        })
    }

    /// Returns at the first of them.
    pub(super) async fn come(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        tracing::info!("told to end by a signal");
    }

    /// Calls `end` at the first of them.
    pub(super) fn then(mut self, end: impl FnOnce() + Send + 'static) {
        tokio::spawn(async move {
            self.come().await;
            end();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_a_port_gets_ours() {
        let listen: SocketAddr = "0.0.0.0:7420".parse().unwrap();
        assert_eq!(
            url("fleet.example.org", listen),
            "https://fleet.example.org:7420"
        );
        assert_eq!(
            url("fleet.example.org:443", listen),
            "https://fleet.example.org:443"
        );
        assert_eq!(url("[::1]", listen), "https://[::1]:7420");
        assert_eq!(url("[::1]:443", listen), "https://[::1]:443");
    }
}

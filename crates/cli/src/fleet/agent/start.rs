//! `loxley agent start`: runs tasks for a server until it is told to end.

use std::ffi::OsString;
use std::io::Write;
use std::num::NonZero;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use loxley_agent::{Agent, AgentError, AgentOptions, Functions, Stopper};
use loxley_api::Access;
use loxley_jobfile::amount::bytes;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::super::connect::{Connect, print_json};
use super::super::logs::LogArgs;
use super::super::submit::amount;
use crate::exit::Exit;

/// Run tasks for a server, on this machine, until told to end.
///
/// The agent dials the server and comes back by itself when the server restarts; what it runs goes on
/// meanwhile. Ctrl-C once: it gets nothing new, and ends when what it runs is done. Twice: it kills
/// what it runs, as TERM does; the server gives that to others.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// What it can do: python,gpu.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    skills: Vec<String>,
    /// How many tasks it runs at once [default: as many as there are cores].
    #[arg(long, value_name = "N")]
    slots: Option<NonZero<u32>>,
    /// Its name; each name once in a fleet [default: the name of the machine and the process].
    #[arg(long)]
    name: Option<String>,
    /// A named resource that it has: gpu=2; may be given more than once.
    #[arg(long, value_name = "NAME=N", value_parser = amount)]
    resource: Vec<(String, u64)>,
    /// Processors that tasks may ask for [default: not counted].
    #[arg(long, value_name = "N")]
    cpus: Option<f64>,
    /// Memory that tasks may ask for: 8G [default: not counted].
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory: Option<u64>,
    /// Where it stands: agents of one zone are near each other.
    #[arg(long)]
    zone: Option<String>,
    /// Its speed, as a start; what is learned replaces it.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    speed: f64,
    /// Data that it holds: tasks that want to be near it come here first.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    holds: Vec<String>,
    /// Where tasks run that name no directory [default: the present directory].
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Print what it is as one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    logs: LogArgs,
}

const HELP: &str = "\
Examples:
  loxley agent start
  loxley agent start --skills python,gpu --slots 4 --resource gpu=2 --memory 8G --zone rack1
  loxley agent start --access agent.json --server https://fleet.example.org:7420

On another machine, make an access file for it first: `loxley server token create rack1 --role agent
--out agent.json` on the server, and copy the file.

Exit codes: 0 it was told to end, and did; 1 something went wrong; 6 the server cannot be reached
with what the access file says; 7 the server refused; 130 Ctrl-C twice.";

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let path = args.connect.agent_access_path()?;
    hide_our_variables(args, &path)?;
    let access = args.connect.read(&path)?;
    // Whoever says where the server is does not want to be sent elsewhere.
    let path = match args.connect.server {
        Some(_) => None,
        None => Some(std::path::absolute(&path)?),
    };
    if let Some(directory) = &args.cwd {
        std::env::set_current_dir(directory)
            .with_context(|| format!("cannot go to {}", directory.display()))?;
    }
    args.logs.start()?;
    let options = args.options(access, path)?;
    if args.json {
        let started = Started {
            name: &options.name,
            pid: std::process::id(),
            slots: options.slots,
            server: &options.access.url,
        };
        print_json(out, &started)?;
    } else {
        let (name, slots, url) = (&options.name, options.slots, &options.access.url);
        writeln!(
            out,
            "loxley agent {name} with {slots} slots, for the server at {url}"
        )?;
    }
    // Whoever started us in a pipe wants to know now.
    out.flush()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the agent")?;
    runtime.block_on(work(options))
}

/// What `--json` prints.
#[derive(Serialize)]
struct Started<'a> {
    name: &'a str,
    pid: u32,
    slots: u32,
    server: &'a str,
}

/// Begins anew without our own variables, if there are any: what an agent runs inherits its environment, and can read
/// it in `/proc` besides. What they say is said on the command line instead, but for what is a secret: that is in
/// files.
fn hide_our_variables(args: &Args, access: &Path) -> Result<()> {
    let ours = |name: &OsString| name.as_encoded_bytes().starts_with(b"LOXLEY_");
    let names: Vec<OsString> = std::env::vars_os()
        .map(|(name, _)| name)
        .filter(ours)
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    let mut command = Command::new(std::env::current_exe().context("where is this program?")?);
    command.args(std::env::args_os().skip(1));
    if args.connect.access.is_none() {
        command.arg("--access").arg(std::path::absolute(access)?);
    }
    command.args(args.logs.as_arguments());
    for name in names {
        command.env_remove(name);
    }
    Err(command.exec()).context("cannot start without our variables in the environment")
}

impl Args {
    fn options(&self, access: Access, access_file: Option<PathBuf>) -> Result<AgentOptions> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let cpus = self.cpus.unwrap_or(0.0);
        if !(0.0..=1e6).contains(&cpus) {
            bail!("--cpus {cpus}: not a number of processors");
        }
        if !(self.speed.is_finite() && self.speed > 0.0) {
            bail!("--speed {}: not a speed", self.speed);
        }
        Ok(AgentOptions {
            name: self.name.clone().unwrap_or_else(default_name),
            skills: self.skills.clone(),
            slots: self.slots.map_or(cores as u32, NonZero::get),
            speed: self.speed,
            cpu_milli: (cpus * 1000.0) as u64,
            memory_bytes: self.memory.unwrap_or(0),
            resources: self.resource.clone(),
            zone: self.zone.clone(),
            holds: self.holds.clone(),
            functions: Functions::default(),
            guardian: Some(crate::guardian_program()),
            access,
            access_file,
        })
    }
}

/// The machine and the process.
fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.unwrap_or_else(|_| "agent".to_owned());
    format!("{}-{}", host.trim(), std::process::id())
}

async fn work(options: AgentOptions) -> Result<Exit> {
    let agent = Agent::new(options);
    let killed = watch_signals(agent.stopper())?;
    match agent.run().await {
        Ok(()) if killed.load(Ordering::Relaxed) => Ok(Exit::Interrupted),
        Ok(()) => Ok(Exit::Done),
        Err(AgentError::Refused(reason)) => {
            crate::complain(&anyhow!("the server refuses this agent: {reason}"));
            Ok(Exit::Refused)
        }
        Err(error) => Err(error.into()),
    }
}

/// Ctrl-C once: finish; twice, or TERM: end now.
fn watch_signals(stopper: Stopper) -> Result<Arc<AtomicBool>> {
    let killed = Arc::new(AtomicBool::new(false));
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for signals")?;
    let flag = Arc::clone(&killed);
    tokio::spawn(async move {
        let mut interrupts = 0;
        loop {
            tokio::select! {
                _ = interrupt.recv() => interrupts += 1,
                _ = terminate.recv() => break,
            }
            if interrupts > 1 {
                flag.store(true, Ordering::Relaxed);
                break;
            }
            tracing::info!("finishing what runs; Ctrl-C again to kill it");
            stopper.drain();
        }
        stopper.stop();
    });
    Ok(killed)
}

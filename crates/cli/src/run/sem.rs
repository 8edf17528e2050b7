//! `loxley sem`: a command, when fewer than so many like it run on this machine. What GNU parallel calls `sem`.
//!
//! The seats are those of `loxley run --limit`: files with locks. The command inherits the lock of its seat, so the
//! seat is free when the command has ended, whatever becomes of us.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use loxley_exec::{SharedLimit, Template, Vocabulary};

use super::amounts::Slots;
use super::group_limit;
use crate::exit::Exit;

/// Run a command when fewer than N like it run on this machine, in the background.
///
/// What runs under one name shares its seats, over all terminals and scripts of yours; `loxley run --limit NAME=N`
/// shares them, too.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The command: words, or one line for the shell.
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    words: Vec<OsString>,
    /// How many may run at once: 4, 50% of the cores, +1 or -1.
    #[arg(
        short,
        long,
        value_name = "N",
        default_value = "1",
        allow_hyphen_values = true
    )]
    jobs: Slots,
    /// The name that those who share seats have in common.
    #[arg(long, visible_alias = "semaphore-name", alias = "semaphorename", value_name = "NAME", default_value = "default", value_parser = name)]
    id: String,
    /// Stay until the command has ended, and end as it did.
    #[arg(long, conflicts_with = "bg")]
    fg: bool,
    /// Return as soon as the command has started: what happens anyway.
    #[arg(long, hide = true)]
    bg: bool,
    /// Wait until nothing runs under this name any more.
    #[arg(long, conflicts_with = "words")]
    wait: bool,
    /// How long to wait for a seat, in seconds: then it runs all the same, or, with a number below 0, not at all.
    #[arg(
        long,
        visible_alias = "st",
        alias = "semaphoretimeout",
        value_name = "SECONDS",
        allow_hyphen_values = true
    )]
    semaphore_timeout: Option<f64>,
    /// Take each word of the command as one argument, as it is: no shell.
    #[arg(short, long)]
    quote: bool,
    /// Print one JSON object on what became of the command.
    #[arg(long)]
    json: bool,
    /// Nobody asks for it here.
    #[arg(long, hide = true, alias = "no-notice")]
    will_cite: bool,
    /// Output is never kept back here.
    #[arg(short, long, hide = true)]
    ungroup: bool,
}

const HELP: &str = "\
Examples:
  for i in *.log; do loxley sem -j4 gzip \"$i\"; done; loxley sem --wait
  loxley sem --fg --id database './migrate && ./check'      one at a time, from every script
  loxley sem --id disk -j2 --st -60 ./copy                  gives up after a minute

Exit codes: 0 it was started; with --fg that of the command, 128 and its number after a signal; 1 no seat was free in
time; 255 it could not be started.";

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    match perform(args, out) {
        Ok(exit) => Ok(exit),
        Err(error) => {
            crate::complain(&error);
            Ok(Exit::RunFailed)
        }
    }
}

fn perform(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let root = group_limit::root();
    let patience = args.semaphore_timeout.map(f64::abs);
    let patience = patience.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let end = patience.and_then(|patience| Instant::now().checked_add(patience));
    let is_over = || end.is_some_and(|end| end <= Instant::now());
    if args.wait {
        let is_empty = SharedLimit::wait_until_empty(&root, &args.id, &is_over)?;
        tell(
            args,
            out,
            serde_json::json!({"id": args.id, "empty": is_empty}),
        )?;
        return Ok(if is_empty { Exit::Done } else { Exit::Failed });
    }
    if args.words.is_empty() {
        bail!("say which command is to run, or --wait for those that do");
    }
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let limit = SharedLimit::new(&root, &args.id, args.jobs.on(cores))?;
    let seat = limit.wait_for_seat(&is_over);
    match &seat {
        Some(seat) => seat.leave_to_children().context("cannot keep the seat")?,
        None if is_over() && args.semaphore_timeout.is_some_and(|time| time > 0.0) => {}
        None if is_over() => {
            tell(
                args,
                out,
                serde_json::json!({"id": args.id, "started": false}),
            )?;
            return Ok(Exit::Failed);
        }
        None => bail!(
            "the files of the seats in {} cannot be used",
            root.display()
        ),
    }
    start(args, out)
}

fn start(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let words = words(args)?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    // In the background it would take from a terminal what is typed for the shell.
    if !args.fg && io::stdin().is_terminal() {
        command.stdin(Stdio::null());
    }
    let shown = words[0].to_string_lossy().into_owned();
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !args.fg {
        let process = child.id();
        tell(
            args,
            out,
            serde_json::json!({"id": args.id, "started": true, "process": process}),
        )?;
        return Ok(Exit::Done);
    }
    let status = child.wait().context("lost hold of the command")?;
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(255),
        (None, signal) => u8::try_from(128 + signal.unwrap_or(0)).unwrap_or(255),
    };
    tell(
        args,
        out,
        serde_json::json!({"id": args.id, "started": true, "exit": code}),
    )?;
    Ok(Exit::OfCommand(code))
}

/// As `loxley run` takes a command: a shell only where one is needed.
fn words(args: &Args) -> Result<Vec<OsString>> {
    if args.quote || super::command::is_script_of_a_shell(&args.words) {
        return Ok(args.words.clone());
    }
    let shell = super::command::shell(None);
    let template = Template::parse_as(&args.words, 0, false, &shell, &Vocabulary::default())?;
    Ok(template.words(&loxley_exec::Filling {
        items: &[],
        sequence: 1,
        slot: None,
    }))
}

fn tell(args: &Args, out: &mut dyn Write, row: serde_json::Value) -> Result<()> {
    if args.json {
        writeln!(out, "{row}")?;
    }
    Ok(())
}

/// A name becomes that of a directory.
fn name(text: &str) -> Result<String, String> {
    let wrong = format!("`{text}` is not a name of letters, digits and _-.");
    format!("{text}=1")
        .parse()
        .map(|limit: group_limit::GroupLimit| limit.group)
        .map_err(|_| wrong)
}

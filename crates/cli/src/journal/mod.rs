//! `loxley journal`: what a server wrote down, looked at without it.

mod accept_loss;
mod backup;
mod check;
mod copy;
mod cut;
mod export;
mod prune;
mod report;
mod schema;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Subcommand;
use loxley_journal::{History, OpenError};
use loxley_model::AgentId;

use crate::exit::Exit;

/// Look at what a server wrote down: check it, export it, draw it, copy it, cut a part out, forget the old.
///
/// The journal is in the server's directory. All of it works while a server runs, but for `restore` and `copy`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    /// The server's directory [default: LOXLEY_DIR, or where servers keep their things]
    #[arg(long, global = true, value_name = "DIR")]
    dir: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  loxley journal check                              is it whole, and are its decisions ours?
  loxley journal export > facts.jsonl               everything that happened, one JSON object a line
  loxley journal report --output last.html          who ran what when, and was it balanced?
  loxley journal cut --to 10m --anonymous --output small   a part to show to others
  loxley journal prune --older-than 30d             forget jobs that ended long ago
  loxley journal schema | psql fleet                make the tables for a journal in PostgreSQL
  loxley journal backup /backup/today               a copy, checked
  loxley journal copy /srv/loxley postgres://loxley@db/fleet   from one server to several, with the history

Exit codes: 0 done, 1 the journal could not be read or written, 3 it is damaged.";

#[derive(Debug, Subcommand)]
enum Command {
    AcceptLoss(accept_loss::Args),
    Backup(backup::BackupArgs),
    Check(check::Args),
    Copy(copy::Args),
    Cut(cut::Args),
    Export(export::Args),
    Prune(prune::Args),
    Report(report::Args),
    Restore(backup::RestoreArgs),
    Schema(schema::Args),
}

pub(crate) fn run(args: Args, out: &mut dyn Write) -> Result<Exit> {
    if args.dir.is_some() && matches!(args.command, Command::Copy(_)) {
        anyhow::bail!("`copy` names both places itself: leave out --dir");
    }
    let directory = match args.dir {
        Some(directory) => directory,
        None => loxley_api::data_directory()?,
    };
    let result = match args.command {
        Command::AcceptLoss(args) => accept_loss::run(&args, out),
        Command::Backup(args) => backup::backup(&args, &directory, out),
        Command::Check(args) => check::run(&args, &directory, out),
        Command::Copy(args) => copy::run(&args, out),
        Command::Cut(args) => cut::run(&args, &directory, out),
        Command::Export(args) => export::run(&args, &directory, out),
        Command::Prune(args) => prune::run(&args, &directory, out),
        Command::Report(args) => report::run(&args, &directory, out),
        Command::Restore(args) => backup::restore(&args, &directory, out),
        Command::Schema(args) => schema::run(&args, out),
    };
    match result {
        Err(error) if is_damage(&error) => {
            writeln!(io::stderr(), "loxley journal: {error:#}")?;
            Ok(Exit::Mistakes)
        }
        result => result,
    }
}

/// Whether what went wrong is in the journal, not in the way to it.
pub(crate) fn is_damage(error: &anyhow::Error) -> bool {
    use loxley_journal::ReadError;
    error.chain().any(|cause| {
        matches!(
            cause.downcast_ref(),
            Some(OpenError::Damaged { .. } | OpenError::Format { .. })
        ) || matches!(cause.downcast_ref(), Some(ReadError::Damaged { .. }))
    })
}

/// One JSON value and the end of its line.
fn write_json(value: &impl serde::Serialize, out: &mut dyn Write) -> Result<()> {
    serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out).context("cannot write")
}

/// What agents are called.
fn agent_names(history: &History) -> Result<BTreeMap<AgentId, String>> {
    let mut names = BTreeMap::new();
    let mut after = None;
    loop {
        let page = history.agents(after, 10_000)?;
        names.extend(page.rows.into_iter().map(|row| (row.agent, row.name)));
        after = page.next;
        if after.is_none() {
            return Ok(names);
        }
    }
}

//! `loxley journal accept-loss`: go on without what a database has lost.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;

use crate::exit::Exit;

/// Have a fleet go on without what its database has lost.
///
/// When PostgreSQL fails over to a copy that lags behind, or an older copy is put in its place, what was acknowledged last is gone.
/// Servers hear of it from agents that saw it, and serve no more (`loxley server health` says `lost_commits`). Bring back
/// the database that has everything; or, where there is none, say with this command that the fleet is to go on: jobs and
/// results that were lost have to be submitted again, and agents begin anew with what they are given.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley journal accept-loss postgres://loxley@db/fleet\n\n\
                  Exit codes: 0 done, also when nothing is known to be lost; 1 the database cannot be used."
)]
pub(super) struct Args {
    /// The database: postgres://user@host/database.
    #[arg(value_name = "URL")]
    journal: String,
    /// A file with the password for the database.
    #[arg(long, value_name = "FILE")]
    journal_password_file: Option<PathBuf>,
    /// Print one JSON object for each shard that lost something.
    #[arg(long)]
    json: bool,
}

#[cfg(feature = "postgres")]
pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    use anyhow::Context as _;
    use loxley_journal::postgres::Address;
    let address = Address::parse(&args.journal, args.journal_password_file.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let accepted = runtime.block_on(loxley_server::cluster::accept_loss(&address))?;
    if accepted.is_empty() && !args.json {
        writeln!(out, "nothing is known to be lost")?;
    }
    for (shard, lost) in accepted {
        match args.json {
            true => super::write_json(&serde_json::json!({ "shard": shard, "lost": lost }), out)?,
            false => writeln!(out, "shard {shard} goes on: {lost}")?,
        }
    }
    Ok(Exit::Done)
}

#[cfg(not(feature = "postgres"))]
pub(super) fn run(args: &Args, _: &mut dyn Write) -> Result<Exit> {
    let Args {
        journal: _,
        journal_password_file: _,
        json: _,
    } = args;
    Err(loxley_journal::DatabaseError::NotBuiltIn.into())
}

//! `loxley journal prune`: forget the old.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use loxley_api::{Access, PruneReport, PruneRequest};
use loxley_client::blocking::Client;
use loxley_journal::{Journal, OpenError, Options, Retention, SqliteJournal};
use loxley_model::Time;

use super::write_json;
use crate::exit::Exit;

/// Forget jobs that ended long ago, with their tasks, outputs and results, and give their room back.
///
/// Jobs that are not over stay whatever their age. While a server runs, it is asked to do it (with the access file in its
/// directory), also where the journal is in PostgreSQL: the room is used again there, not given back. A server does it by itself, too: see `journal:` in `loxley config default`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley journal prune --older-than 30d\n  loxley journal prune --keep 1000\n\n\
                  On a full disk the reserve of the journal is given up for it, so it works there, too."
)]
pub(crate) struct Args {
    /// Forget jobs that ended longer ago than this: 30d, 12h, 90m.
    #[arg(long, value_name = "DURATION", value_parser = loxley_jobfile::amount::duration)]
    older_than: Option<Duration>,
    /// Keep so many of the jobs that ended last, and forget the rest; with --older-than, only what is both.
    #[arg(long, value_name = "N", required_unless_present = "older_than")]
    keep: Option<u64>,
    /// Print what was forgotten as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, directory: &Path, out: &mut dyn Write) -> Result<Exit> {
    let options = Options {
        holder: "loxley journal prune".to_owned(),
        create: false,
        ..Options::default()
    };
    let report = match SqliteJournal::open(directory, &options) {
        Ok(opened) => {
            for notice in &opened.notices {
                writeln!(io::stderr(), "loxley journal: {notice}")?;
            }
            prune_file(args, opened.journal)?
        }
        Err(error @ OpenError::InUse { .. }) => ask_server(args, directory).context(error)?,
        // The directory of one of several servers: the journal is in their database.
        Err(OpenError::Missing { .. }) if directory.join(CLUSTER).exists() => {
            ask_server(args, directory)?
        }
        Err(error) => return Err(error.into()),
    };
    match args.json {
        true => write_json(&report, out)?,
        false => {
            let room = match report.bytes {
                0 => String::new(),
                bytes => format!("; gave {bytes} bytes back"),
            };
            writeln!(
                out,
                "forgot {} jobs with {} tasks{room}",
                report.jobs, report.tasks
            )?;
        }
    }
    Ok(Exit::Done)
}

/// The file that says that a directory belongs to one of several servers.
const CLUSTER: &str = "cluster";

/// The server has the journal: it does it.
fn ask_server(args: &Args, directory: &Path) -> Result<PruneReport> {
    let client = Client::new(&Access::read(&directory.join(Access::FILE))?)?;
    let request = PruneRequest {
        older_than_sec: args.older_than.map(|age| age.as_secs_f64()),
        keep_jobs: args.keep,
    };
    Ok(client.call(async |client| client.prune(&request).await)?)
}

fn prune_file(args: &Args, mut journal: SqliteJournal) -> Result<PruneReport> {
    let older_than = args.older_than.map(|age| moment(&journal, age));
    let retention = Retention {
        older_than: older_than.transpose()?,
        jobs_max: args.keep,
        both: true,
        ..Retention::default()
    };
    let pruned = journal.prune_all(retention).context("cannot prune")?;
    journal.renew_reserve();
    Ok(PruneReport {
        jobs: pruned.jobs,
        tasks: pruned.tasks,
        groups: pruned.groups,
        bytes: pruned.bytes,
        more: pruned.more,
    })
}

/// The moment so long ago, in the time of the journal.
fn moment(journal: &SqliteJournal, ago: Duration) -> Result<Time> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the clock stands before 1970")?;
    let then = now.saturating_sub(ago).as_nanos();
    let then = then.saturating_sub(u128::from(journal.epoch_unix_nanos()));
    Ok(Time(u64::try_from(then).unwrap_or(u64::MAX)))
}

//! `loxley journal prune`: forget the old.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use loxley_journal::{History, JobQuery, Options, SqliteJournal};
use loxley_model::Time;
use serde_json::json;

use super::write_json;
use crate::exit::Exit;

/// Forget jobs that ended long ago, with their tasks, outputs and results.
///
/// Jobs that are not over stay whatever their age. The server must be stopped.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley journal prune --older-than 30d\n  loxley journal prune --keep 1000"
)]
pub(crate) struct Args {
    /// Forget jobs that ended longer ago than this: 30d, 12h, 90m.
    #[arg(long, value_name = "DURATION", value_parser = loxley_jobfile::amount::duration)]
    older_than: Option<Duration>,
    /// Keep so many of the jobs that ended last, and forget the rest; with --older-than, only what is both.
    #[arg(long, value_name = "N", required_unless_present = "older_than")]
    keep: Option<usize>,
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
    let opened = SqliteJournal::open(directory, &options)?;
    for notice in &opened.notices {
        writeln!(io::stderr(), "loxley journal: {notice}")?;
    }
    let mut journal = opened.journal;
    let by_age = args.older_than.map(|age| moment(&journal, age));
    let by_count = args.keep.map(|keep| end_of_nth(directory, keep));
    let limits = [by_age.transpose()?, by_count.transpose()?];
    let limit = limits.into_iter().flatten().min().unwrap_or(Time::ZERO);
    let pruned = journal.prune(limit, u64::MAX).context("cannot prune")?;
    let compacted = journal.compact().context("cannot give room back")?;
    if args.json {
        let (jobs, tasks) = (pruned.jobs, pruned.tasks);
        write_json(
            &json!({"jobs": jobs, "tasks": tasks, "compacted": compacted}),
            out,
        )?;
    } else {
        writeln!(
            out,
            "forgot {} jobs with {} tasks",
            pruned.jobs, pruned.tasks
        )?;
    }
    Ok(Exit::Done)
}

/// When the job ended that is the last to be kept, counted from the one that ended last.
fn end_of_nth(directory: &Path, keep: usize) -> Result<Time> {
    let history = History::open(directory)?;
    let mut ends = Vec::new();
    let mut query = JobQuery::default();
    loop {
        let page = history.jobs(&query)?;
        ends.extend(page.rows.iter().filter_map(|row| row.finished));
        query.before = page.next;
        if query.before.is_none() {
            break;
        }
    }
    ends.sort_unstable_by(|one, other| other.cmp(one));
    Ok(match keep.checked_sub(1) {
        // Fewer than that: all of them stay.
        Some(nth) => ends.get(nth).copied().unwrap_or(Time::ZERO),
        None => ends.first().map_or(Time::ZERO, |last| Time(last.0 + 1)),
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

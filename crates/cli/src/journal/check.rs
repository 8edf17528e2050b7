//! `loxley journal check`: is it whole?

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use loxley_engine::{RecoverError, Replayed, replay};
use loxley_journal::{Checked, History, View};
use serde_json::json;

use super::write_json;
use crate::exit::Exit;

/// Read the whole journal and say what is damaged.
///
/// Every group is held against its checksum and the chain of hashes, every row of history against its
/// own checksum and against the number of rows there should be, and the file against the structure that
/// SQLite expects. Then everything is replayed, and every decision held against the one that was made.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley journal check\n  loxley journal check --dir /srv/loxley --json"
)]
pub(crate) struct Args {
    /// Print the findings as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, directory: &Path, out: &mut dyn Write) -> Result<Exit> {
    let checked = loxley_journal::check(directory)?;
    // What is damaged cannot be replayed, and was said.
    let replayed = match checked.findings.is_empty() {
        true => Some(replay(&mut View(History::open(directory)?))),
        false => None,
    };
    if args.json {
        print_json(&checked, replayed.as_ref(), out)?;
    } else {
        print(&checked, replayed.as_ref(), out)?;
    }
    Ok(match replayed {
        Some(Ok(_)) => Exit::Done,
        Some(Err(_)) | None => Exit::Mistakes,
    })
}

/// What a replay came to; none when there was none.
type Outcome<'a> = Option<&'a Result<Replayed, RecoverError>>;

fn print(checked: &Checked, replayed: Outcome<'_>, out: &mut dyn Write) -> Result<()> {
    let groups = checked.next.0.saturating_sub(checked.first.0);
    writeln!(
        out,
        "groups    {groups} (positions {} to {}), {} facts in {} bytes",
        checked.first, checked.next, checked.facts, checked.bytes
    )?;
    match checked.snapshot {
        Some(position) => writeln!(out, "snapshot  at position {position}")?,
        None => writeln!(out, "snapshot  none")?,
    }
    writeln!(
        out,
        "history   {} tasks in {} jobs",
        checked.tasks, checked.jobs
    )?;
    if let Some(holder) = &checked.in_use_by {
        writeln!(
            out,
            "in use    by {holder}: the files themselves were not looked at"
        )?;
    }
    for notice in &checked.notices {
        writeln!(out, "notice    {notice}")?;
    }
    for finding in &checked.findings {
        writeln!(out, "damaged   {finding}")?;
    }
    match replayed {
        Some(Ok(replayed)) => {
            let (groups, facts, digest) = (replayed.groups, replayed.facts, replayed.digest);
            writeln!(
                out,
                "replayed  {groups} groups with {facts} facts: the same decisions (digest {digest:016x})"
            )?;
            writeln!(out, "whole: nothing is damaged")?;
        }
        Some(Err(error)) => writeln!(out, "differs   {}", with_causes(error))?,
        None => {}
    }
    Ok(())
}

fn with_causes(error: &RecoverError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn print_json(checked: &Checked, replayed: Outcome<'_>, out: &mut dyn Write) -> Result<()> {
    let texts = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>();
    write_json(
        &json!({
            "whole": matches!(replayed, Some(Ok(_))),
            "first_position": checked.first.0,
            "next_position": checked.next.0,
            "facts": checked.facts,
            "fact_bytes": checked.bytes,
            "snapshot_position": checked.snapshot.map(|position| position.0),
            "tasks": checked.tasks,
            "jobs": checked.jobs,
            "in_use_by": checked.in_use_by,
            "notices": texts(&mut checked.notices.iter().map(ToString::to_string)),
            "replayed": replayed.map(|replayed| match replayed {
                Ok(replayed) => json!({
                    "groups": replayed.groups,
                    "facts": replayed.facts,
                    "digest": format!("{:016x}", replayed.digest),
                }),
                Err(error) => json!({"error": with_causes(error)}),
            }),
            "findings": texts(&mut checked.findings.iter().map(ToString::to_string)),
        }),
        out,
    )
}

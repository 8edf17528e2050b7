//! `loxley journal check`: is it whole?

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use loxley_journal::Checked;
use serde_json::json;

use super::write_json;
use crate::exit::Exit;

/// Read the whole journal and say what is damaged.
///
/// Every group is held against its checksum and the chain of hashes, every row of history against its
/// own checksum and against the number of rows there should be, and the file against the structure that
/// SQLite expects.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the findings as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, directory: &Path, out: &mut dyn Write) -> Result<Exit> {
    let checked = loxley_journal::check(directory)?;
    if args.json {
        print_json(&checked, out)?;
    } else {
        print(&checked, out)?;
    }
    Ok(if checked.findings.is_empty() {
        Exit::Done
    } else {
        Exit::Mistakes
    })
}

fn print(checked: &Checked, out: &mut dyn Write) -> Result<()> {
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
    if checked.findings.is_empty() {
        writeln!(out, "whole: nothing is damaged")?;
    }
    Ok(())
}

fn print_json(checked: &Checked, out: &mut dyn Write) -> Result<()> {
    let texts = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>();
    write_json(
        &json!({
            "whole": checked.findings.is_empty(),
            "first_position": checked.first.0,
            "next_position": checked.next.0,
            "facts": checked.facts,
            "fact_bytes": checked.bytes,
            "snapshot_position": checked.snapshot.map(|position| position.0),
            "tasks": checked.tasks,
            "jobs": checked.jobs,
            "in_use_by": checked.in_use_by,
            "notices": texts(&mut checked.notices.iter().map(ToString::to_string)),
            "findings": texts(&mut checked.findings.iter().map(ToString::to_string)),
        }),
        out,
    )
}

//! `loxley journal cut`: a small journal out of a large one.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use loxley_jobfile::amount;
use loxley_journal::{History, Options, SqliteJournal, View};
use loxley_model::Time;
use serde_json::json;

use super::write_json;
use crate::exit::Exit;

/// Make a small journal out of a part of this one, to replay it or to show it to others.
///
/// Times count from the first fact. What came before the part is kept as its snapshot, so it is replayed exactly.
/// Outputs are never carried along. With `--anonymous` all names (agents, users, jobs, skills, groups, data), commands,
/// entries and inputs are replaced; times, numbers and decisions stay.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley journal cut --to 10m --output small\n  loxley journal cut --dir /srv/loxley --from 2h --to 2h30m --anonymous --output for-a-report"
)]
pub(crate) struct Args {
    /// From this long after the first fact.
    #[arg(long, value_name = "DURATION")]
    from: Option<String>,
    /// Until this long after the first fact.
    #[arg(long, value_name = "DURATION")]
    to: Option<String>,
    /// Replace names, commands, entries and inputs.
    #[arg(long)]
    anonymous: bool,
    /// The new directory.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Print what was cut out as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, directory: &Path, out: &mut dyn Write) -> Result<Exit> {
    let history = History::open(directory)?;
    if loxley_journal::exists(&args.output) {
        bail!(
            "--output: there is a journal in {} already; name a new directory",
            args.output.display()
        );
    }
    let first = first_fact(&history)?;
    let after = |text: &Option<String>, option: &str| -> Result<Option<Time>> {
        let Some(text) = text else { return Ok(None) };
        let span = amount::duration(text)
            .map_err(|problem| anyhow::anyhow!("{option} {text}: {problem}"))?;
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Ok(Some(Time(first.0.saturating_add(nanos))))
    };
    let from = after(&args.from, "--from")?.unwrap_or(Time::ZERO);
    let to = after(&args.to, "--to")?.unwrap_or(Time::MAX);
    if to < from {
        bail!("--to must not be before --from");
    }
    let was_there = args.output.exists();
    let options = Options {
        create: true,
        ..Options::default()
    };
    let mut target = SqliteJournal::open(&args.output, &options)
        .with_context(|| format!("cannot make {}", args.output.display()))?
        .journal;
    let done = loxley_engine::cut(&mut View(history), &mut target, from, to, args.anonymous);
    let cut = match done {
        Ok(cut) => cut,
        Err(error) => {
            drop(target);
            if !was_there {
                // Nothing that looks like a journal stays behind.
                let _ = std::fs::remove_dir_all(&args.output);
            }
            return Err(error.into());
        }
    };
    if args.json {
        write_json(
            &json!({
                "facts": cut.facts,
                "facts_before": cut.before,
                "facts_after": cut.after,
                "anonymous": args.anonymous,
                "same_decisions": cut.same_decisions,
            }),
            out,
        )?;
    } else {
        let (facts, before, behind) = (cut.facts, cut.before, cut.after);
        writeln!(
            out,
            "{facts} facts are in {}; {before} came before, {behind} after",
            args.output.display()
        )?;
        if !cut.same_decisions {
            writeln!(
                out,
                "note: with other names some decisions come out otherwise; it is a workload, but no exact copy"
            )?;
        }
    }
    Ok(Exit::Done)
}

fn first_fact(history: &History) -> Result<Time> {
    let (first, _) = history.positions()?;
    let groups = history.groups(first, loxley_journal::Limit::ONE)?;
    let Some(group) = groups.first() else {
        bail!("the journal is empty");
    };
    let facts = loxley_engine::facts_of(group.position, &group.facts)?;
    Ok(facts.first().map_or(Time::ZERO, |(now, _)| *now))
}

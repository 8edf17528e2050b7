//! `loxley replay`: a recorded run again, and what would have been different.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use loxley_pool::Pool;
use loxley_replay::{
    Comparison, Figure, Figures, Recording, WhatIf, compare, drawn_together, parting, simulate,
};
use loxley_sim::report::{self, DrawnRun, Report};
use loxley_sim::time::{human, nanos};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::recorded;
use crate::sim::progress_bar;

/// Run what a journal recorded again in virtual time: how near that is, and what would have been different.
///
/// JOURNAL is a server's directory or the access file in it, that of `loxley run --journal`, a copy of one, or a
/// database (postgres://user@host/database; with several shards one of their journals, postgres://user@host/database#1); a
/// server may be running. First its work runs as it was: the recorded configuration on the recorded fleet, by the real scheduler, and how far
/// that is from what happened is said. Then comes what you ask: each of `--config`, `--set`, `--agents`, `--without`
/// and `--load` is a variant of its own, side by side, or all of them one with `--together`. Variants are compared
/// with the recorded configuration in pairs of equal seeds, and a sentence says whether a difference is more than
/// noise.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The directory of a journal, the access file of a server, or postgres://…
    #[arg(value_name = "JOURNAL")]
    journal: PathBuf,
    /// Another configuration, from a YAML file.
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// Another value of one key: strategy=pull.
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// More agents, like those that were there: +2.
    #[arg(long, value_name = "+N", allow_hyphen_values = true)]
    agents: Vec<String>,
    /// Without the agents of this name, zone or skill.
    #[arg(long, value_name = "NAME")]
    without: Vec<String>,
    /// Each job comes so many times: x2.
    #[arg(long, value_name = "xN")]
    load: Vec<String>,
    /// Everything that is asked for is one variant.
    #[arg(long)]
    together: bool,
    /// How many seeds to run: each shares out the durations anew among tasks of one kind.
    #[arg(long, value_name = "N", default_value_t = 20)]
    seeds: u32,
    /// Drive the very inputs again instead, compare every decision, and name the first that differs.
    #[arg(long, conflicts_with_all = ["config", "set", "agents", "without", "load", "report"])]
    exact: bool,
    /// Write a report to this HTML file: the timelines one above the other, and where they part.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print the results as one JSON object.
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  loxley run --journal j gzip -k ::: *.log       a run that writes a journal
  loxley replay j                                how near is the simulator to what happened?
  loxley replay j --agents +2 --without slow     two variants side by side
  loxley replay j --set strategy=pull --load x2 --together
  loxley replay j --config other.yaml --report what-if.html
  loxley replay j --exact                        does this version decide as the one that wrote it?

Exit codes: 0 done, 1 a file could not be read or written, 3 the journal is damaged or empty, a decision
differs, a key does not exist, or a fleet cannot do the work.";

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let done = match args.exact {
        true => exact(args, out),
        false => what_if(args, out),
    };
    match done {
        Err(error) if is_mistake(&error) => {
            writeln!(io::stderr(), "loxley replay: {error:#}")?;
            Ok(Exit::Mistakes)
        }
        done => done,
    }
}

/// Whether what went wrong is in what we were given, not in the way to it.
pub(crate) fn is_mistake(error: &anyhow::Error) -> bool {
    crate::journal::is_damage(error)
        || error.chain().any(|cause| {
            cause.is::<loxley_replay::ReadError>()
                || cause.is::<loxley_replay::WhatIfError>()
                || cause.is::<loxley_replay::Impossible>()
        })
}

/// The work of a journal.
pub(crate) fn read(directory: &Path) -> Result<Recording> {
    let mut journal = recorded::open(directory)?;
    let recording = Recording::read(&mut *journal);
    recording.with_context(|| format!("{}", directory.display()))
}

fn exact(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let mut journal = recorded::open(&args.journal)?;
    let outcome = loxley_engine::replay_exactly(&mut *journal)?;
    let first = outcome.differs.as_ref();
    if args.json {
        let value = json!({
            "groups": outcome.groups,
            "facts": outcome.facts,
            "decisions": outcome.decisions,
            "same": first.is_none(),
            "first_difference": first.map(|one| json!({
                "group": one.position.0,
                "at_seconds": one.at.0 as f64 / 1e9,
                "decision": one.decision.as_ref().map(|decision| json!({
                    "number": decision.number,
                    "here": decision.here,
                    "then": decision.then,
                    "certain": decision.is_certain,
                })),
                "decisions_here": one.decisions,
                "contradicted_by": one.contradiction,
            })),
        });
        serde_json::to_writer(&mut *out, &value).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        let (groups, facts, decisions) = (outcome.groups, outcome.facts, outcome.decisions);
        writeln!(
            out,
            "replayed  {groups} groups with {facts} facts, {decisions} decisions"
        )?;
        match first {
            None => writeln!(out, "the same decisions, all of them")?,
            Some(one) => {
                let at = human(one.at.0);
                let position = one.position;
                writeln!(
                    out,
                    "differs   in group {position}, {at} after the beginning"
                )?;
                if let Some(decision) = &one.decision {
                    let number = decision.number;
                    writeln!(out, "decision  {number} of the group: {}", decision.here)?;
                    writeln!(out, "then      {}", decision.then)?;
                    let grounds = match decision.is_certain {
                        true => "certain: with that alone the digest is the one that was written",
                        false => {
                            "by what agents said later; one before it that nobody spoke of may differ too"
                        }
                    };
                    writeln!(out, "grounds   {grounds}")?;
                }
                writeln!(out, "what this version decides there:")?;
                for decision in &one.decisions {
                    writeln!(out, "  {decision}")?;
                }
                if let Some(fact) = &one.contradiction {
                    writeln!(
                        out,
                        "the first fact that speaks of another decision: {fact}"
                    )?;
                }
            }
        }
    }
    Ok(match first {
        None => Exit::Done,
        Some(_) => Exit::Mistakes,
    })
}

fn variants(args: &Args) -> Result<Vec<WhatIf>> {
    let mut asked = Vec::new();
    for path in &args.config {
        asked.push(WhatIf {
            label: path.display().to_string(),
            config: Some(config_file(path)?),
            ..WhatIf::default()
        });
    }
    for text in &args.set {
        asked.push(WhatIf::set(text)?);
    }
    for text in &args.agents {
        asked.push(WhatIf::agents(text)?);
    }
    asked.extend(args.without.iter().map(|text| WhatIf::without(text)));
    for text in &args.load {
        asked.push(WhatIf::load(text)?);
    }
    if args.together {
        let all = asked.into_iter().reduce(WhatIf::and);
        let Some(all) = all else {
            bail!("--together: of what? Ask for --config, --set, --agents, --without or --load");
        };
        asked = vec![all];
    }
    Ok(asked)
}

/// A configuration, or everything that is wrong with it.
pub(crate) fn config_file(path: &Path) -> Result<loxley_policy::Config> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let config = loxley_config::parse_bytes_over(&bytes, loxley_policy::Config::served());
    config.map_err(|mistakes| {
        let text = mistakes.in_file(&path.display().to_string()).to_string();
        loxley_replay::WhatIfError::Form(text).into()
    })
}

fn what_if(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    if args.seeds < 2 {
        let problem = "--seeds: at least 2, or nothing can be told from noise".to_owned();
        return Err(loxley_replay::WhatIfError::Form(problem).into());
    }
    let mut all = vec![WhatIf::as_recorded()];
    all.extend(variants(args)?);
    let recording = read(&args.journal)?;
    let again = simulate(&recording, &all[0], 0)?;
    let real = recording.figures();
    let comparison = match all.len() {
        1 => None,
        _ => Some(side_by_side(&recording, &all, args.seeds)?),
    };
    if args.json {
        let value = as_json(&recording, &real, &again.figures, comparison.as_ref());
        serde_json::to_writer(&mut *out, &value).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print_again(&recording, &real, &again.figures, out)?;
        if let Some(comparison) = &comparison {
            print_comparison(comparison, args.seeds, out)?;
        }
    }
    if let Some(path) = &args.report {
        let page = page(args, &recording, &all, comparison.as_ref())?;
        std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(Exit::Done)
}

fn side_by_side(recording: &Recording, all: &[WhatIf], seeds: u32) -> Result<Comparison> {
    // Mistakes before anything takes its time.
    for one in all {
        loxley_replay::fleet_setup(recording, one)?;
    }
    let seeds: Vec<u64> = (1..=u64::from(seeds)).collect();
    let runs = (all.len() * seeds.len()) as u64;
    let progress = progress_bar(runs * recording.task_count() as u64 > 100_000, runs, "runs");
    let pool = Pool::new().context("cannot start the pool")?;
    let spread = |count: usize, body: &(dyn Fn(usize) + Sync)| pool.par_for(0..count, body);
    let comparison = compare(recording, all, &seeds, &spread, &|| progress.inc(1));
    progress.finish_and_clear();
    Ok(comparison?)
}

fn print_again(
    recording: &Recording,
    real: &Figures,
    again: &Figures,
    out: &mut dyn Write,
) -> Result<()> {
    writeln!(
        out,
        "{} tasks, {} agents; the recorded configuration on the recorded fleet:\n",
        recording.task_count(),
        recording.agent_count()
    )?;
    writeln!(
        out,
        "{:14}{:>12}{:>12}{:>10}",
        "", "happened", "simulated", "error"
    )?;
    for figure in Figure::COMPARED {
        let (was, is) = (real.get(figure), again.get(figure));
        let error = match (figure, figure.error(was, is)) {
            (_, None) => String::new(),
            (Figure::Utilization, Some(error)) => format!("{:+.1} pts", error * 100.0),
            (_, Some(error)) => format!("{:+.1} %", error * 100.0),
        };
        writeln!(
            out,
            "{:14}{:>12}{:>12}{error:>10}",
            figure.title(),
            figure.shown(was),
            figure.shown(is)
        )?;
    }
    for note in recording.notes() {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}

fn print_comparison(comparison: &Comparison, seeds: u32, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "\nwhat if, means of {seeds} runs in pairs:\n")?;
    let width = comparison.labels.iter().map(|one| one.chars().count());
    let width = width.max().unwrap_or(0).max(11);
    let mut head = format!("{:width$}", "");
    for figure in Figure::ALL {
        write!(head, "  {:>16}", figure.title())?;
    }
    writeln!(out, "{}", head.trim_end())?;
    for (variant, label) in comparison.labels.iter().enumerate() {
        let mut line = format!("{label:width$}");
        for figure in Figure::ALL {
            let mean = comparison.estimate(variant, figure).mean;
            write!(line, "  {:>16}", figure.shown(mean))?;
        }
        writeln!(out, "{line}")?;
    }
    for variant in 1..comparison.labels.len() {
        writeln!(out, "\n{}:", comparison.labels[variant])?;
        for figure in Figure::ALL {
            if let Some(sentence) = comparison.verdict(variant, figure) {
                writeln!(out, "  {sentence}")?;
            }
        }
        print_parts(comparison, variant, out)?;
    }
    Ok(())
}

/// Waits by priority, user and job, where there are several; the largest changes.
fn print_parts(comparison: &Comparison, variant: usize, out: &mut dyn Write) -> Result<()> {
    for (what, changes) in parts(comparison, variant) {
        if changes.len() < 2 {
            continue;
        }
        writeln!(out, "  mean wait by {what}:")?;
        for (name, before, after) in changes.iter().take(5) {
            let wait = |value: &f64| Figure::MeanWait.shown(*value);
            let (before, after) = (wait(before), wait(after));
            writeln!(out, "    {name}: {before} before, {after} now")?;
        }
    }
    Ok(())
}

type Part = (String, f64, f64);

/// Mean waits of the first variant and of another, the largest change first.
fn parts(comparison: &Comparison, variant: usize) -> [(&'static str, Vec<Part>); 3] {
    let of = |pick: &dyn Fn(&Figures) -> Vec<(String, f64)>| {
        let means = |runs: &[Figures]| {
            let mut sums = std::collections::BTreeMap::<String, (f64, f64)>::new();
            for (name, wait) in runs.iter().flat_map(pick) {
                let sum = sums.entry(name).or_default();
                *sum = (sum.0 + wait, sum.1 + 1.0);
            }
            sums
        };
        let before = means(&comparison.runs[0]);
        let after = means(&comparison.runs[variant]);
        let mean = |sum: &(f64, f64)| sum.0 / sum.1;
        let mut all: Vec<Part> = before
            .iter()
            .filter_map(|(name, was)| Some((name.clone(), mean(was), mean(after.get(name)?))))
            .collect();
        all.sort_by(|a, b| (b.2 - b.1).abs().total_cmp(&(a.2 - a.1).abs()));
        all
    };
    let named = |name: String, wait: &f64| (name, *wait);
    [
        (
            "priority",
            of(&|run| {
                let waits = run.waits.priority.iter();
                waits
                    .map(|(level, wait)| named(level.to_string(), wait))
                    .collect()
            }),
        ),
        (
            "user",
            of(&|run| {
                let waits = run.waits.user.iter();
                waits
                    .map(|(user, wait)| named(user.clone(), wait))
                    .collect()
            }),
        ),
        (
            "job",
            of(&|run| {
                let waits = run.waits.job.iter();
                waits
                    .map(|(job, wait)| named(job.to_string(), wait))
                    .collect()
            }),
        ),
    ]
}

fn figures_json(figures: &Figures) -> Value {
    let all = Figure::ALL.map(|figure| (figure.name().to_owned(), json!(figures.get(figure))));
    Value::Object(all.into_iter().collect())
}

fn as_json(
    recording: &Recording,
    real: &Figures,
    again: &Figures,
    comparison: Option<&Comparison>,
) -> Value {
    let errors = Figure::COMPARED.map(|figure| {
        let error = figure.error(real.get(figure), again.get(figure));
        (figure.name().to_owned(), json!(error))
    });
    let variants = comparison.map(|comparison| {
        let all = (0..comparison.labels.len()).map(|variant| {
            let figures = Figure::ALL.map(|figure| {
                let difference = comparison.difference(variant, figure);
                let value = json!({
                    "mean": difference.after,
                    "change": difference.change.mean,
                    "change_half_width": difference.change.half_width,
                    "more_than_noise": variant > 0 && difference.is_real(),
                });
                (figure.name().to_owned(), value)
            });
            let waits = parts(comparison, variant).map(|(what, changes)| {
                let changes = changes.into_iter();
                let changes = changes.map(
                    |(name, before, after)| json!({"name": name, "before": before, "after": after}),
                );
                (what.to_owned(), Value::Array(changes.collect()))
            });
            json!({
                "label": comparison.labels[variant],
                "figures": Value::Object(figures.into_iter().collect()),
                "mean_waits": Value::Object(waits.into_iter().collect()),
            })
        });
        all.collect::<Vec<_>>()
    });
    json!({
        "tasks": recording.task_count(),
        "agents": recording.agent_count(),
        "notes": recording.notes(),
        "happened": figures_json(real),
        "simulated": figures_json(again),
        "errors": Value::Object(errors.into_iter().collect()),
        "variants": variants,
    })
}

fn page(
    args: &Args,
    recording: &Recording,
    all: &[WhatIf],
    comparison: Option<&Comparison>,
) -> Result<String> {
    let mut notes = recording.notes().to_vec();
    let base = simulate(recording, &all[0], 0)?;
    let mut drawn = vec![DrawnRun {
        label: "real above, simulated below".to_owned(),
        timeline: drawn_together(recording, None, &all[0])?,
        tiles: tiles(&base.figures),
        balance: base.balance,
    }];
    let makespan = base.figures.get(Figure::Makespan);
    for (variant, what_if) in all.iter().enumerate().skip(1) {
        let run = simulate(recording, what_if, 0)?;
        if run.trace.tasks.len() == base.trace.tasks.len() {
            notes.push(match parting(&base.trace, &run.trace, nanos(makespan / 1000.0)) {
                Some(parting) => format!(
                    "{} parts from the recorded configuration at {}: task {} is the first that starts elsewhere or at another time",
                    what_if.label,
                    human(parting.at),
                    parting.task + 1
                ),
                None => format!("{} starts everything as the recorded configuration does", what_if.label),
            });
        }
        if let Some(comparison) = comparison {
            let sentences = Figure::ALL.into_iter();
            let sentences = sentences.filter_map(|figure| comparison.verdict(variant, figure));
            notes.extend(sentences.map(|sentence| format!("{}: {sentence}", what_if.label)));
        }
        drawn.push(DrawnRun {
            label: format!("as recorded above, {} below", what_if.label),
            timeline: drawn_together(recording, Some(&all[0]), what_if)?,
            tiles: tiles(&run.figures),
            balance: run.balance,
        });
    }
    let title = format!("Replay of {}", args.journal.display());
    Ok(report::html(&Report {
        title: &title,
        about: "A recorded run, again in virtual time with the real scheduler.",
        look_for: "where the lanes below begin to differ from those above.",
        notes: &notes,
        runs: &drawn,
        results: None,
        command: "loxley replay",
    }))
}

fn tiles(figures: &Figures) -> Vec<(String, String)> {
    let all = Figure::ALL.into_iter();
    all.map(|figure| (figure.title().to_owned(), figure.shown(figures.get(figure))))
        .collect()
}

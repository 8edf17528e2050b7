//! `loxley advise`: which way of dividing work fits, from a list of costs or from a journal.

use std::io::{self, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use loxley_balance::advice::workers::WorkersAdvice;
use loxley_balance::advice::{self, Advice, Hints};
use loxley_replay::Known;
use serde_json::json;

use crate::exit::Exit;
use crate::{input, replay};

/// Say which way of dividing work fits, and why.
///
/// Reads what items of work cost (seconds, bytes, rows: any unit), tries every strategy on exactly
/// these costs, and names the one that fits, with the evidence and what each alternative would have
/// come to.
///
/// FILE may also be a journal: the directory of a server or the access file in it, that of `loxley run --journal`, a copy
/// of one, or a database (postgres://user@host/database). Then the
/// costs are what its tasks took, the workers are its agents with their speeds, their memory and the data they hold,
/// and whether tasks came as a stream, whether their costs could have been known, and what handing out took is read
/// from it too, unless an option says otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// One cost per line, or CSV with --column; - for standard input; or a journal.
    #[arg(value_name = "FILE", required_unless_present = "checklist")]
    file: Option<PathBuf>,
    /// Print what to check before one calls parallel code balanced.
    #[arg(long, conflicts_with_all = ["file", "column", "parts", "streaming", "ordered", "predictable"])]
    checklist: bool,
    /// The file is CSV with a heading; take the costs from the column of this name.
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// How many workers share the work [default: as many as this machine has cores; of a journal, as many as its
    /// agents have slots].
    #[arg(long, value_name = "N")]
    parts: Option<NonZero<usize>>,
    /// Items arrive one by one, and nobody knows how many there will be.
    #[arg(long)]
    streaming: bool,
    /// Neighbouring items should stay together and in order.
    #[arg(long)]
    ordered: bool,
    /// Whether the cost of an item is known before it runs [default: judge from the costs].
    #[arg(long, value_name = "WHETHER")]
    predictable: Option<Whether>,
    /// What handing out one item costs, in the unit of the costs; of a journal, in seconds [default: 0; of a journal,
    /// what it took].
    #[arg(long, value_name = "COST")]
    overhead: Option<f64>,
    /// Print the advice as one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Whether {
    Yes,
    No,
}

const HELP: &str = "\
Examples:
  du -b *.log | cut -f1 | loxley advise - --parts 8
  loxley advise jobs.csv --column seconds --parts 16
  loxley advise costs.txt --streaming --json
  loxley advise ./journal                 what a server or `loxley run --journal` wrote down
  loxley advise --checklist

Empty lines and lines that begin with # do not count.
Exit codes: 0 advised, 1 the file could not be read, 3 a cost is not a number of at least 0, or the journal
is damaged or empty.";

/// What to check before one calls parallel code balanced; the targets are those of `loxley_balance`.
const CHECKLIST: &[&str] = &[
    "load imbalance below 1.2: the busiest worker beside the mean one (`loxley run --summary always`)",
    "straggler ratio below 2.0: the longest task beside the median one of its kind",
    "worker utilization above 90 %",
    "queue-depth variance below 1, or below the mean depth",
    "eight or more pieces for each worker, none below 5 ms (`loxley advise COSTS --parts N`)",
    "measured with real, uneven costs, with as many workers as you will use, and more than once",
    "what is long starts first, or can be split (`--weights`, `cost:`)",
    "a worker that dies or stalls loses nothing (`kill -9` one and see; `speculate:`, `time_limit:`)",
    "nobody waits for a skill, a group or a lock that one worker has (`loxley server health`)",
    "no task is cheaper than handing it out (`--overhead`)",
];

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let Some(file) = &args.file else {
        show_checklist(args.json, out)?;
        return Ok(Exit::Done);
    };
    if crate::recorded::is_meant(file) {
        return of_journal(args, file, out);
    }
    let bytes = input::read(file)?;
    let read = match &args.column {
        None => lines(&bytes),
        Some(column) => table(&bytes, column)?,
    };
    if !read.mistakes.is_empty() {
        show(&read.mistakes, file)?;
        return Ok(Exit::Mistakes);
    }
    let parts = args.parts.map_or_else(cores, NonZero::get);
    let hints = Hints {
        streaming: args.streaming,
        order_matters: args.ordered,
        predictable: args.predictable.map(|known| known == Whether::Yes),
        overhead: args.overhead.unwrap_or(0.0),
    };
    let advice = advice::advise(&read.costs, parts, &hints)
        .with_context(|| format!("no advice from {}", input::name(file)))?;
    if args.json {
        serde_json::to_writer(&mut *out, &as_json(&advice)).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        writeln!(out, "{advice}")?;
    }
    Ok(Exit::Done)
}

/// From what was recorded, and what is known of the workers.
fn of_journal(args: &Args, directory: &Path, out: &mut dyn Write) -> Result<Exit> {
    if args.column.is_some() {
        bail!(
            "--column: {} is a journal, not a table",
            directory.display()
        );
    }
    let known = Known {
        parts: args.parts.map(NonZero::get),
        streaming: args.streaming.then_some(true),
        order_matters: args.ordered,
        predictable: args.predictable.map(|known| known == Whether::Yes),
        overhead: args.overhead,
    };
    let advice = match replay::read(directory) {
        Ok(recording) => loxley_replay::advise(&recording, &known)
            .with_context(|| format!("no advice from {}", directory.display()))?,
        Err(error) if replay::is_mistake(&error) => {
            writeln!(io::stderr(), "loxley advise: {error:#}")?;
            return Ok(Exit::Mistakes);
        }
        Err(error) => return Err(error),
    };
    if args.json {
        let mut value = as_json(&advice.division);
        value["unit"] = json!("seconds");
        value["notes"] = json!(advice.notes);
        value["workers"] = json!(advice.workers.as_ref().map(workers_as_json));
        serde_json::to_writer(&mut *out, &value).map_err(io::Error::from)?;
        writeln!(out)?;
        return Ok(Exit::Done);
    }
    writeln!(out, "{}", advice.division)?;
    if let Some(workers) = &advice.workers {
        writeln!(out, "\n{workers}")?;
    }
    if !advice.notes.is_empty() {
        writeln!(out)?;
    }
    for note in &advice.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(Exit::Done)
}

fn workers_as_json(advice: &WorkersAdvice) -> serde_json::Value {
    let trials = advice.trials.iter().map(|trial| {
        json!({
            "aware_of": trial.aware_of.ids(),
            "makespan": trial.makespan,
            "transfers": trial.transfers,
        })
    });
    json!({
        "aware_of": advice.aware_of.ids(),
        "why": advice.reasons,
        "bound": advice.bound,
        "trials": trials.collect::<Vec<_>>(),
    })
}

fn show_checklist(as_json: bool, out: &mut dyn Write) -> Result<()> {
    if as_json {
        writeln!(out, "{}", json!({"checklist": CHECKLIST}))?;
        return Ok(());
    }
    writeln!(out, "Before you call it balanced:")?;
    for line in CHECKLIST {
        writeln!(out, "  [ ] {line}")?;
    }
    Ok(())
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Costs in the order of the file, and what is wrong with the others.
#[derive(Default)]
struct Costs {
    costs: Vec<f64>,
    mistakes: Vec<Mistake>,
}

/// A value that is not a cost.
struct Mistake {
    line: u64,
    found: String,
}

impl Costs {
    fn take(&mut self, line: u64, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let text = text.trim();
        match text.parse::<f64>() {
            Ok(cost) if cost.is_finite() && cost >= 0.0 => self.costs.push(cost),
            _ => self.mistakes.push(Mistake {
                line,
                found: text.chars().take(40).collect(),
            }),
        }
    }
}

fn lines(bytes: &[u8]) -> Costs {
    let mut costs = Costs::default();
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let line = line.trim_ascii();
        if !line.is_empty() && !line.starts_with(b"#") {
            costs.take(number, line);
        }
    }
    costs
}

fn table(bytes: &[u8], column: &str) -> Result<Costs> {
    let mut reader = csv::ReaderBuilder::new()
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .flexible(true)
        .from_reader(bytes);
    let heading = reader.byte_headers().context("cannot read the heading")?;
    let Some(position) = heading.iter().position(|name| name == column.as_bytes()) else {
        let names: Vec<_> = heading.iter().map(String::from_utf8_lossy).collect();
        bail!(
            "there is no column `{column}`; there are: {}",
            names.join(", ")
        );
    };
    let mut costs = Costs::default();
    for record in reader.byte_records() {
        let record = record.context("cannot read the table")?;
        let line = record.position().map_or(0, csv::Position::line);
        costs.take(line, record.get(position).unwrap_or_default());
    }
    Ok(costs)
}

/// Every mistake is worth a line, but not a million of them.
const SHOWN_MAX: usize = 20;

fn show(mistakes: &[Mistake], file: &Path) -> io::Result<()> {
    let name = input::name(file);
    let mut err = io::stderr().lock();
    for Mistake { line, found } in mistakes.iter().take(SHOWN_MAX) {
        writeln!(
            err,
            "{name}:{line}: `{found}` is not a number of at least 0"
        )?;
    }
    if mistakes.len() > SHOWN_MAX {
        writeln!(err, "{name}: and {} more", mistakes.len() - SHOWN_MAX)?;
    }
    Ok(())
}

fn as_json(advice: &Advice) -> serde_json::Value {
    let evidence = &advice.evidence;
    let trials: Vec<_> = advice
        .trials
        .iter()
        .map(|trial| {
            json!({
                "strategy": trial.strategy.id(),
                "imbalance": trial.imbalance,
                "makespan": trial.makespan,
                "handed_out": trial.handed_out,
                "needs_costs": trial.strategy.needs_costs(),
            })
        })
        .collect();
    json!({
        "strategy": advice.strategy.id(),
        "why": advice.explanation(),
        "time_limit": advice.time_limit,
        "evidence": {
            "count": evidence.count,
            "parts": evidence.parts,
            "mean": evidence.mean,
            "median": evidence.median,
            "percentile_95": evidence.percentile_95,
            "percentile_99": evidence.percentile_99,
            "largest": evidence.largest,
            "variation": evidence.variation,
            "largest_ratio": evidence.largest_ratio,
            "largest_share": evidence.largest_share,
            "tail_share": evidence.tail_share,
            "tail_ratio": evidence.tail_ratio,
            "trend": evidence.trend,
            "autocorrelation": evidence.autocorrelation,
        },
        "trials": trials,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_come_from_lines_or_a_column() {
        assert_eq!(lines(b"1\n\n# two\n 2.5 \r\n3e1").costs, [1.0, 2.5, 30.0]);
        let csv = b"name,seconds\na,1\n\"b, c\",2\n";
        assert_eq!(table(csv, "seconds").unwrap().costs, [1.0, 2.0]);
        assert!(table(csv, "minutes").is_err());
    }

    #[test]
    fn every_value_that_is_no_cost_is_named_with_its_line() {
        let read = lines(b"1\n-1\nNaN\ninf\nx\n");
        let found: Vec<_> = read
            .mistakes
            .iter()
            .map(|m| (m.line, m.found.as_str()))
            .collect();
        assert_eq!(found, [(2, "-1"), (3, "NaN"), (4, "inf"), (5, "x")]);
        let read = table(b"name,seconds\na\nb,2\n", "seconds").unwrap();
        assert_eq!(read.mistakes[0].line, 2);
    }
}

//! `loxley bench`: how fast Loxley is on this machine, each figure beside the plain way in the same run.
//!
//! `cases` says what is measured; here the ways of a case are taken in turns, and the middle of the rounds counts:
//! whatever else the machine does meets all of them alike.

mod cases;

use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;

use anyhow::{Context, Result};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::exit::Exit;
use crate::fleet::table::Table;

/// Measure how fast Loxley is on this machine, beside the plain way of doing the same.
///
/// Each case runs Loxley and the plain way in turns, several rounds of each, and prints the median and the ratio:
/// below 1 Loxley is faster. Absolute times depend on the machine and on what else it does; ratios hardly do. Takes
/// about half a minute, uses all cores, and writes to the disk for `journal` alone.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// What to measure [default: everything].
    #[arg(value_name = "CASE")]
    cases: Vec<Case>,
    /// How often each way is taken.
    #[arg(long, value_name = "N", default_value = "5")]
    rounds: NonZero<u16>,
    /// A tenth of the work, for a first look.
    #[arg(long)]
    quick: bool,
    /// Where `journal` writes: the disk that a server would keep its journal on [default: the directory for
    /// temporary files].
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Print the results as one JSON object.
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  loxley bench
  loxley bench pool join --rounds 15
  loxley bench journal --directory /var/lib/loxley
  loxley bench --json | jq '.cases[] | {case, ratio: .beside[].ratio}'

Exit codes: 0 measured, 1 something could not be measured, 130 interrupted.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Case {
    /// A loop over items of uneven cost, beside equal chunks on threads.
    Pool,
    /// A join at every call of a recursion, beside plain calls.
    Join,
    /// A task's whole life in the scheduler, with ten agents and with a thousand.
    Scheduler,
    /// `true` for each of many items with `loxley run`, beside a loop that only starts processes.
    Processes,
    /// Groups of facts made durable, beside bare writes to the same disk.
    Journal,
    /// Simulated events.
    Simulator,
}

/// What every case is told.
#[derive(Debug)]
struct Setting {
    cores: usize,
    quick: bool,
    directory: PathBuf,
}

impl Setting {
    /// So many, or a tenth of it for a first look.
    fn size(&self, full: usize) -> usize {
        if self.quick { full / 10 } else { full }
    }
}

/// One way of doing something, and what it takes each time, in the unit of its case.
struct Way {
    name: &'static str,
    take: Box<dyn FnMut() -> Result<f64>>,
    took: Vec<f64>,
}

impl Way {
    fn new(name: &'static str, take: impl FnMut() -> Result<f64> + 'static) -> Self {
        Self {
            name,
            take: Box::new(take),
            took: Vec::new(),
        }
    }

    fn median(&self) -> f64 {
        let mut took = self.took.clone();
        took.sort_by(f64::total_cmp);
        took.get(took.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn fastest(&self) -> f64 {
        self.took.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// What is measured: ours first, then what stands beside it.
struct Measured {
    case: Case,
    about: String,
    unit: &'static str,
    ways: Vec<Way>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .context("cannot listen for signals")?;
    }
    let setting = Setting {
        cores: available_parallelism().map_or(1, NonZero::get),
        quick: args.quick,
        directory: args.directory.clone().unwrap_or_else(std::env::temp_dir),
    };
    let wanted: Vec<Case> = Case::value_variants()
        .iter()
        .copied()
        .filter(|case| args.cases.is_empty() || args.cases.contains(case))
        .collect();
    let progress = progress(wanted.len() as u64 * u64::from(args.rounds.get()));
    let mut results = Vec::new();
    for case in wanted {
        progress.set_message(name_of(case));
        let mut measured = cases::prepare(case, &setting)?;
        for _ in 0..args.rounds.get() {
            for way in &mut measured.ways {
                if interrupted.load(Ordering::Relaxed) {
                    progress.finish_and_clear();
                    return Ok(Exit::Interrupted);
                }
                let took =
                    (way.take)().with_context(|| format!("{} of {}", way.name, name_of(case)))?;
                way.took.push(took);
            }
            progress.inc(1);
        }
        results.push(measured);
    }
    progress.finish_and_clear();
    if args.json {
        writeln!(out, "{:#}", as_json(&setting, &results))?;
    } else {
        print(&setting, &results, out)?;
    }
    Ok(Exit::Done)
}

fn progress(rounds: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {msg}");
    ProgressBar::new(rounds).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn name_of(case: Case) -> String {
    let value = case.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

fn print(setting: &Setting, results: &[Measured], out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(["what", "Loxley", "beside", "", "ratio"]);
    for measured in results {
        let Some((ours, others)) = measured.ways.split_first() else {
            continue;
        };
        let figure = |way: &Way| format!("{} {}", short(way.median()), measured.unit);
        let mut cells = (measured.about.clone(), figure(ours));
        if others.is_empty() {
            table.row([cells.0, cells.1, "-".into(), String::new(), String::new()]);
            continue;
        }
        for other in others {
            let ratio = format!("{:.2}", ours.median() / other.median());
            let (about, ours) = std::mem::take(&mut cells);
            table.row([about, ours, other.name.into(), figure(other), ratio]);
        }
    }
    table.print(out)?;
    writeln!(
        out,
        "medians of rounds taken in turns, {} cores; below 1 Loxley is faster",
        setting.cores
    )?;
    if cfg!(debug_assertions) {
        writeln!(out, "this is an unoptimized build: its figures say little")?;
    }
    Ok(())
}

/// Three digits that count.
fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn as_json(setting: &Setting, results: &[Measured]) -> Value {
    let figures = |way: &Way| {
        json!({
            "name": way.name,
            "median": way.median(),
            "fastest": way.fastest(),
            "rounds": way.took,
        })
    };
    let cases = results.iter().filter_map(|measured| {
        let (ours, others) = measured.ways.split_first()?;
        let beside = others.iter().map(|other| {
            let mut row = figures(other);
            row["ratio"] = json!(ours.median() / other.median());
            row
        });
        Some(json!({
            "case": name_of(measured.case),
            "about": measured.about,
            "unit": measured.unit,
            "loxley": figures(ours),
            "beside": beside.collect::<Vec<_>>(),
        }))
    });
    json!({
        "cores": setting.cores,
        "quick": setting.quick,
        "optimized": !cfg!(debug_assertions),
        "cases": cases.collect::<Vec<_>>(),
    })
}

//! `loxley sim`: scenarios and real workloads in virtual time.

mod job;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use loxley_pool::Pool;
use loxley_sim::experiment::{self, Results, Variant};
use loxley_sim::report::{self, DrawnRun, Report};
use loxley_sim::{Change, Costs, EventLog, Scenario, json, library, storm, text};

use crate::exit::Exit;

/// Simulate a scenario or a real workload in virtual time.
///
/// SCENARIO is the name of a ready one (`loxley sim list`), a scenario file (YAML), a job file as `loxley run` takes
/// it (with `--takes` and `--fails` for what its commands do), a journal (the directory of a server or the access
/// file in it, that of `loxley run --journal`, or postgres://…: its work on its fleet, with the durations there were), or
/// a workload file: WfCommons (.json), Standard Task Graph (.stg), Standard Workload Format (.swf, .swf.gz) or
/// a table (.csv). A workload file runs with the real scheduler, as the server and `loxley run` dispatch; policies that
/// speak of stealing (`random`, `half`) run it on workers with deques. The same seed gives the same run, to the last byte of the event log.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// A ready scenario, a scenario file, a job file, a journal, a workload file, `list`, `show`, or `storm`.
    #[arg(value_name = "SCENARIO")]
    scenario: String,
    /// With `show`: the scenario to print.
    #[arg(value_name = "NAME")]
    shown: Option<String>,
    /// How many workers or agents (short for --set workers=N).
    #[arg(long, value_name = "N")]
    workers: Option<u32>,
    /// The first seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many seeds to run; means are printed with their 95 % intervals.
    #[arg(long, value_name = "N")]
    seeds: Option<u32>,
    /// A policy, as words joined by `+`; several are compared side by side.
    #[arg(long, value_name = "POLICY")]
    policy: Vec<String>,
    /// Values to try side by side: granularity=0.1,0.5,2.0.
    #[arg(long, value_name = "PATH=V,V")]
    sweep: Option<String>,
    /// Change a value of the scenario: workers=8, stealing.probe_cost=0.001.
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// What the scheduler is told of how long tasks take: `exact`, `none`, or `x5` (each wrong by a factor of up
    /// to 5).
    #[arg(long, value_name = "COSTS")]
    costs: Option<Costs>,
    /// With a job file: how long a task or an array takes, where its `cost` is left out or wrong; without either a
    /// second is assumed. `NAME=30s`, or `NAME ENTRY=30s` for one entry.
    #[arg(long, value_name = "NAME=DURATION")]
    takes: Vec<String>,
    /// With a job file: how many attempts of a task fail. `NAME=1`, or `NAME ENTRY=1`.
    #[arg(long, value_name = "NAME=N")]
    fails: Vec<String>,
    /// Stop after so many simulated seconds.
    #[arg(long, value_name = "SECONDS")]
    until: Option<f64>,
    /// Print the results as one JSON object.
    #[arg(long)]
    json: bool,
    /// Write a report to this HTML file.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write every event of the first run to this file, one JSON object per line.
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  loxley sim list
  loxley sim adaptive --report adaptive.html
  loxley sim hot_spot --policy most_loaded --policy random --seeds 50
  loxley sim granularity --sweep granularity=0.05,0.1,0.5,2.0
  loxley sim show basic > mine.yaml       a scenario to change
  loxley sim graph.stg --workers 8 --policy best_fit --policy earliest_finish --policy random
  loxley sim job.yaml --workers 8 --takes sort=30s     a job file, before it is run
  loxley sim ./journal                    what a server or `loxley run --journal` wrote down
  loxley sim graph.stg --costs x5         the scheduler is told costs that are wrong by up to 5
  loxley sim basic --set workers=5 --events events.jsonl
  loxley sim storm --seed 1 --seeds 1000    test the scheduler itself: faults picked by the seed

Exit codes: 0 done, 1 a file could not be read or written, 3 the scenario has a mistake or a storm\nbroke a claim.";

/// Seeds that a comparison runs when nobody says how many: enough to tell a difference from noise.
const COMPARED_SEEDS: u32 = 20;
/// Runs of more tasks than this, all together, show a progress bar.
const LONG: u64 = 2_000_000;
/// So do this many storms.
const LONG_STORMS: u32 = 2_000;

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    if args.scenario == "show" {
        return show(args, out);
    }
    if let Some(word) = &args.shown {
        let scenario = &args.scenario;
        writeln!(
            io::stderr(),
            "loxley sim: `{word}` after `{scenario}`: only `show` takes another name"
        )?;
        return Ok(Exit::Mistakes);
    }
    if args.scenario == "list" {
        return list(args.json, out);
    }
    if args.scenario == "storm" {
        return storms(args, out);
    }
    let prepared = match Prepared::new(args) {
        Ok(prepared) => prepared,
        Err(mistake) => {
            writeln!(io::stderr(), "loxley sim: {mistake}")?;
            return Ok(Exit::Mistakes);
        }
    };
    let results = prepared.run()?;
    if args.json {
        let value = json::experiment(&prepared.scenario, &prepared.seeds, &results);
        serde_json::to_writer(&mut *out, &value).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&prepared, &results, out)?;
    }
    if args.report.is_some() || args.events.is_some() {
        record(args, &prepared, &results)?;
    }
    Ok(Exit::Done)
}

fn list(json: bool, out: &mut dyn Write) -> Result<Exit> {
    if json {
        let all: Vec<_> = library::all()
            .map(|scenario| {
                serde_json::json!({
                    "name": scenario.name(),
                    "about": scenario.about(),
                    "look_for": scenario.look_for(),
                })
            })
            .collect();
        serde_json::to_writer(&mut *out, &all).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        for scenario in library::all() {
            writeln!(out, "{}\n    {}", scenario.name(), scenario.about())?;
            writeln!(out, "    Look for: {}", scenario.look_for())?;
        }
    }
    Ok(Exit::Done)
}

/// Prints a scenario as it can be written to a file, changed and run.
fn show(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let found = match &args.shown {
        Some(name) => Scenario::find(name, args.workers).map_err(|mistake| mistake.to_string()),
        None => Err("which one? `loxley sim list` shows the ready ones".to_owned()),
    };
    match found {
        Ok(scenario) => {
            write!(out, "{}", scenario.text())?;
            Ok(Exit::Done)
        }
        Err(mistake) => {
            writeln!(io::stderr(), "loxley sim show: {mistake}")?;
            Ok(Exit::Mistakes)
        }
    }
}

/// Seeded storms over the real scheduler: each seed picks a fleet, its tasks and its troubles. The
/// seeds are spread over the pool; failures are told in their order.
fn storms(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let count = args.seeds.unwrap_or(1);
    if let Some(path) = &args.events {
        let mut log = EventLog::new(create(path)?);
        // What it finds is found again below, and told there.
        let _ = storm::run(args.seed, &mut log);
        finish(log, path)?;
    }
    let failures = Mutex::new(BTreeMap::new());
    let progress = progress_bar(count >= LONG_STORMS, u64::from(count), "storms");
    Pool::new()
        .context("cannot start the pool")?
        .par_for(0..count as usize, |index| {
            let seed = args.seed.saturating_add(index as u64);
            if let Err(failure) = storm::run(seed, &mut ()) {
                let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                failures.insert(seed, failure.to_string());
            }
            progress.inc(1);
        });
    progress.finish_and_clear();
    let failures = failures
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    for failure in failures.values() {
        writeln!(out, "{failure}")?;
    }
    let noun = if count == 1 { "storm" } else { "storms" };
    let broke = failures.len();
    writeln!(out, "{count} {noun}, {broke} of them broke a claim")?;
    Ok(if failures.is_empty() {
        Exit::Done
    } else {
        Exit::Mistakes
    })
}

/// A command line that was understood.
struct Prepared {
    scenario: Scenario,
    variants: Vec<Variant>,
    seeds: Vec<u64>,
    /// Nobody asked for a comparison: the scenario brings its own, after its first run in full.
    own_comparison: bool,
}

impl Prepared {
    fn new(args: &Args) -> Result<Self> {
        let job = job::scenario(args)?;
        let is_job = job.is_some();
        let says_what_commands_do = !args.takes.is_empty() || !args.fails.is_empty();
        if says_what_commands_do && !is_job {
            bail!("--takes and --fails are for job files");
        }
        let journal = match job {
            None => recorded(&args.scenario)?,
            Some(_) => None,
        };
        let scenario = match job.or(journal) {
            Some(scenario) => scenario,
            None => Scenario::find(&args.scenario, args.workers)?,
        };
        let mut changes = Vec::new();
        // A job file names its agents, or has as many as this made up for it.
        if let Some(workers) = args.workers.filter(|_| !is_job) {
            changes.push(Change::parse(&format!("workers={workers}"))?);
        }
        if let Some(until) = args.until {
            changes.push(Change::parse(&format!("until={until}"))?);
        }
        if let Some(costs) = args.costs {
            changes.push(Change::parse(&format!("costs={costs}"))?);
        }
        for change in &args.set {
            changes.push(Change::parse(change)?);
        }
        let own_comparison = args.policy.is_empty() && args.sweep.is_none();
        let (policies, sweep) = if own_comparison {
            (scenario.compare(), scenario.sweep())
        } else {
            (args.policy.as_slice(), args.sweep.as_deref())
        };
        let variants = experiment::variants(&scenario, policies, sweep, &changes)?;
        let count = args.seeds.unwrap_or(if variants.len() > 1 {
            COMPARED_SEEDS
        } else {
            1
        });
        if count == 0 {
            bail!("--seeds must be at least 1");
        }
        Ok(Self {
            scenario,
            variants,
            seeds: (args.seed..).take(count as usize).collect(),
            own_comparison,
        })
    }

    fn run(&self) -> Result<Results> {
        let tasks: u64 = self.variants.iter().map(|v| v.world.task_count()).sum();
        let runs = (self.variants.len() * self.seeds.len()) as u64;
        let long = tasks.saturating_mul(self.seeds.len() as u64) > LONG;
        let progress = progress_bar(long, runs, "runs");
        let pool = Pool::new().context("cannot start the pool")?;
        let spread = |count: usize, body: &(dyn Fn(usize) + Sync)| pool.par_for(0..count, body);
        let results = experiment::run(&self.variants, &self.seeds, &spread, &|| progress.inc(1));
        progress.finish_and_clear();
        Ok(results)
    }
}

/// The work and the fleet of a journal, if the name is that of one.
fn recorded(name: &str) -> Result<Option<Scenario>> {
    let directory = Path::new(name);
    if !crate::recorded::is_meant(directory) {
        return Ok(None);
    }
    let recording = crate::replay::read(directory)?;
    for note in recording.notes() {
        writeln!(io::stderr(), "note: {note}")?;
    }
    let setup = loxley_replay::fleet_setup(&recording, &loxley_replay::WhatIf::as_recorded())?;
    let about = format!(
        "What {} recorded: {} tasks, {} agents",
        directory.display(),
        recording.task_count(),
        recording.agent_count()
    );
    let look_for = "how near it is to the real run: `loxley replay` compares the two";
    Ok(Some(Scenario::of_fleet(name, &about, look_for, setup)))
}

/// A bar for people who wait: only for something long, and only on a terminal.
pub(crate) fn progress_bar(long: bool, count: u64, what: &str) -> ProgressBar {
    if !long || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = format!("{{bar:40}} {{pos}}/{{len}} {what}, {{eta}} left");
    let bar = ProgressBar::new(count);
    ProgressStyle::with_template(&template).map_or(bar.clone(), |style| bar.with_style(style))
}

fn print(prepared: &Prepared, results: &Results, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{}", text::heading(&prepared.scenario))?;
    let (first, count) = (prepared.seeds[0], prepared.seeds.len());
    let several = results.labels.len() > 1;
    if !several && count == 1 || several && prepared.own_comparison {
        if several {
            writeln!(out, "{}, seed {first}:", results.labels[0])?;
        }
        write!(out, "{}", text::one_run(&results.runs[0][0]))?;
    }
    if !several && count == 1 {
        return Ok(());
    }
    let last = prepared.seeds[count - 1];
    writeln!(
        out,
        "\nmeans of {count} runs each, seeds {first} to {last}:"
    )?;
    writeln!(out, "{}", text::comparison(results))?;
    write!(out, "{}", text::verdicts(results))?;
    Ok(())
}

/// Runs the first seed again, watched: what the report draws and what the event log holds.
fn record(args: &Args, prepared: &Prepared, results: &Results) -> Result<()> {
    let seed = prepared.seeds[0];
    let mut drawn = Vec::new();
    for (index, variant) in prepared.variants.iter().enumerate() {
        let mut log = match &args.events {
            Some(path) if index == 0 => Some(EventLog::new(create(path)?)),
            _ => None,
        };
        let (statistics, timeline) = variant.world.run_recorded(seed, &mut log);
        if let (Some(log), Some(path)) = (log, &args.events) {
            finish(log, path)?;
        }
        drawn.push(DrawnRun::new(&variant.label, &statistics, timeline));
    }
    let Some(path) = &args.report else {
        return Ok(());
    };
    let several = prepared.variants.len() > 1 || prepared.seeds.len() > 1;
    let page = report::html(&Report {
        title: prepared.scenario.name(),
        about: prepared.scenario.about(),
        look_for: prepared.scenario.look_for(),
        notes: &[],
        runs: &drawn,
        results: several.then_some(results),
        command: &match prepared.seeds.len() {
            1 => format!("Drawn from seed {seed}."),
            count => format!("Drawn from seed {seed}; {count} seeds in all."),
        },
    });
    let mut file = create(path)?;
    file.write_all(page.as_bytes())
        .and_then(|()| file.flush())
        .with_context(|| format!("cannot write {}", path.display()))
}

fn finish(log: EventLog<BufWriter<File>>, path: &Path) -> Result<()> {
    log.finish()
        .map(drop)
        .with_context(|| format!("cannot write {}", path.display()))
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(BufWriter::new(file))
}

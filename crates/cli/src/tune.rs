//! `loxley tune`: a better configuration, found in what was recorded.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use loxley_pool::Pool;
use loxley_replay::Recording;
use loxley_replay::tune::{Measured, Objective, Search, TuneError, Tuned, tune};
use loxley_sim::estimate::Estimate;
use serde_json::{Value, json};

use crate::exit::Exit;

/// Search for a better configuration in what was recorded.
///
/// Configurations are drawn at random and run in virtual time, by the real scheduler, on the earlier part of each
/// journal: all of them on a little of it, the better ones on more. What is best is then measured on the later part,
/// which the search did not see. Printed are the keys that differ, by how much the objective is less there, and how
/// much each key has to do with it; when nothing is better than noise, that is what is said. Ctrl-C ends the search
/// and prints the best so far; with `--state` the same command goes on later.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Journals: directories, access files of servers on this machine, or postgres://…
    #[arg(value_name = "JOURNAL", required = true)]
    journals: Vec<PathBuf>,
    /// What is to become less: makespan, mean_wait, p99_wait, misses, cost (agent hours), or a weighted sum such as
    /// 0.7*makespan+0.3*p99_wait.
    #[arg(long, value_name = "WHAT", default_value = "makespan")]
    objective: String,
    /// How many configurations are drawn.
    #[arg(long, value_name = "N", default_value_t = 128)]
    candidates: usize,
    /// How many seeds measure the gain.
    #[arg(long, value_name = "N", default_value_t = 20)]
    seeds: u32,
    /// Where chance begins: the same seed draws the same configurations.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Keep what was measured in this file, and go on from what is in it.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  loxley tune ./journal
  loxley tune ./journal --objective p99_wait > better.yaml && loxley config reload better.yaml
  loxley tune monday tuesday --objective 0.7*makespan+0.3*misses --candidates 500 --state search.json

Exit codes: 0 done, also when nothing is better; 1 a file could not be read or written; 3 a journal is damaged, empty
or too short; 130 interrupted: the best so far was printed.";

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    match search(args, out) {
        Err(error)
            if crate::replay::is_mistake(&error)
                || error.chain().any(|cause| {
                    cause.is::<TuneError>() || cause.is::<loxley_replay::tune::BadObjective>()
                }) =>
        {
            writeln!(io::stderr(), "loxley tune: {error:#}")?;
            Ok(Exit::Mistakes)
        }
        done => done,
    }
}

fn search(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let search = Search {
        objective: Objective::parse(&args.objective)?,
        candidates: args.candidates.max(1),
        seed: args.seed,
        seeds: args.seeds,
    };
    let recordings = args.journals.iter();
    let recordings: Vec<Recording> = recordings
        .map(|directory| crate::replay::read(directory))
        .collect::<Result<_>>()?;
    let about = about(args, &recordings);
    let mut measured = match &args.state {
        Some(path) => load(path, &about)?,
        None => Measured::new(),
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // Whoever presses twice does not want the best so far.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let pool = Pool::new().context("cannot start the pool")?;
    let spread = |count: usize, body: &(dyn Fn(usize) + Sync)| pool.par_for(0..count, body);
    let is_watched = io::stderr().is_terminal();
    let show = |rung: usize, done: usize, best: f64| {
        if is_watched {
            let round = rung + 1;
            // Nobody is helped by an error about a line that is written over.
            let _ = write!(
                io::stderr(),
                "\rround {round} of 3: {done} measured, the best so far {:.1} % of what was recorded   ",
                best * 100.0
            );
        }
    };
    let tuned = tune(&recordings, &search, &mut measured, &spread, &stop, &show);
    if is_watched {
        writeln!(io::stderr())?;
    }
    if let Some(path) = &args.state {
        save(path, &about, &measured)?;
    }
    let tuned = tuned?;
    match args.json {
        true => {
            serde_json::to_writer(&mut *out, &as_json(args, &tuned)).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        false => print(args, &tuned, out)?,
    }
    Ok(match tuned.is_complete {
        true => Exit::Done,
        false => Exit::Interrupted,
    })
}

/// What a state belongs to: another search cannot go on from it.
fn about(args: &Args, recordings: &[Recording]) -> Value {
    let counts: Vec<usize> = recordings.iter().map(Recording::task_count).collect();
    json!({
        "objective": args.objective,
        "candidates": args.candidates,
        "seed": args.seed,
        "tasks": counts,
        "version": env!("CARGO_PKG_VERSION"),
    })
}

fn load(path: &Path, about: &Value) -> Result<Measured> {
    if !path.exists() {
        return Ok(Measured::new());
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let state: Value = serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is no state of a search", path.display()))?;
    anyhow::ensure!(
        state.get("about") == Some(about),
        "{} is the state of another search (other journals, objective, candidates or seed): name another file",
        path.display()
    );
    let measured = state.get("measured").and_then(Value::as_object);
    let measured = measured.into_iter().flatten();
    // What could not run is not a number in JSON.
    Ok(measured
        .map(|(place, score)| (place.clone(), score.as_f64().unwrap_or(f64::INFINITY)))
        .collect())
}

fn save(path: &Path, about: &Value, measured: &Measured) -> Result<()> {
    let text = serde_json::to_vec(&json!({"about": about, "measured": measured}))?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn percent(estimate: &Estimate) -> String {
    let half = estimate.half_width * 100.0;
    format!("{:.1} ± {half:.1} %", estimate.mean * 100.0)
}

/// The configuration with only what differs; everything else is a comment, so that all of it is a file.
fn print(args: &Args, tuned: &Tuned, out: &mut dyn Write) -> Result<()> {
    let objective = &args.objective;
    if !tuned.is_complete {
        writeln!(out, "# interrupted: the best so far")?;
    }
    if !tuned.is_better() {
        writeln!(
            out,
            "# Nothing is better than what was recorded by more than noise ({objective}, {} runs).",
            tuned.runs
        )?;
        if !tuned.keys.is_empty() {
            let keys: Vec<String> = tuned.keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
            writeln!(
                out,
                "# The best of the search, {}, gains {} on the part that it did not see.",
                keys.join(" "),
                percent(&tuned.gain)
            )?;
        }
        return Ok(());
    }
    write!(out, "{}", yaml(&tuned.keys))?;
    writeln!(
        out,
        "\n# {objective}: {} less on the later part of the journal, which the search did not see",
        percent(&tuned.gain)
    )?;
    writeln!(out, "# of which is lost without:")?;
    for (key, lost) in &tuned.sensitivity {
        writeln!(out, "#   {key}: {}", percent(lost))?;
    }
    writeln!(out, "# to put it in force: loxley config reload FILE")?;
    Ok(())
}

/// Keys with their sections, as a file has them.
fn yaml(keys: &[(String, String)]) -> String {
    let mut sections: std::collections::BTreeMap<&str, Vec<(&str, &str)>> = Default::default();
    for (path, value) in keys {
        let (section, key) = path.split_once('.').unwrap_or(("", path));
        sections.entry(section).or_default().push((key, value));
    }
    let mut text = String::from("load_balancing:\n");
    for (section, keys) in sections {
        let indent = match section {
            "" => "  ",
            section => {
                text.push_str(&format!("  {section}:\n"));
                "    "
            }
        };
        for (key, value) in keys {
            text.push_str(&format!("{indent}{key}: {value}\n"));
        }
    }
    text
}

fn as_json(args: &Args, tuned: &Tuned) -> Value {
    let estimate = |one: &Estimate| json!({"mean": one.mean, "half_width": one.half_width});
    let keys = tuned.keys.iter().map(|(k, v)| (k.clone(), json!(v)));
    let lost = tuned.sensitivity.iter();
    let lost = lost.map(|(key, lost)| (key.clone(), estimate(lost)));
    json!({
        "objective": args.objective,
        "better": tuned.is_better(),
        "complete": tuned.is_complete,
        "runs": tuned.runs,
        "keys": Value::Object(keys.collect()),
        "gain": estimate(&tuned.gain),
        "sensitivity": Value::Object(lost.collect()),
        "yaml": tuned.is_better().then(|| yaml(&tuned.keys)),
    })
}

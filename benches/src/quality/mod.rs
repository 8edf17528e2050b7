//! How good the decisions are, on the path that users take.
//!
//! Makespans are simulated with the real scheduler, agents kept full as `loxley run` and the server keep them,
//! beside references that know the whole graph and decide in no time: list scheduling by bottom level, HEFT,
//! longest first, first come first served, and random stealing. Everybody is told the same costs. Graphs are
//! those of `../shared/data`, where that folder lies beside the repository, and graphs that a generator makes
//! anew in every run: `--seed` repeats one. Some of them also go through a real server.

mod deadlines;
mod graphs;
mod real;
mod urgent;

use anyhow::Result;
use loxley_balance::Rng;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::Options;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The seed of all that is drawn [default: a fresh one].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

pub(crate) fn run(options: &Options, arguments: &Arguments) -> Result<()> {
    let seed = arguments.seed.unwrap_or_else(fresh_seed);
    let mut table = Table::new(options.json, seed);
    graphs::run(options, seed, &mut table)?;
    urgent::run(options, seed, &mut table);
    deadlines::run(options, seed, &mut table);
    real::run(options, seed, &mut table)?;
    table.finish();
    Ok(())
}

fn fresh_seed() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    Rng::new(since.as_nanos() as u64).below(1_000_000_000)
}

/// One line of the table.
#[derive(Serialize)]
pub(crate) struct Row {
    case: String,
    /// How many processors.
    processors: usize,
    /// Of how many workloads.
    count: usize,
    unit: &'static str,
    loxley: f64,
    /// The other figures, in the order in which they are shown.
    #[serde(flatten)]
    others: Map<String, Value>,
    goal: Option<String>,
    met: Option<bool>,
}

impl Row {
    fn new(case: impl Into<String>, processors: usize, count: usize, unit: &'static str) -> Self {
        Self {
            case: case.into(),
            processors,
            count,
            unit,
            loxley: f64::NAN,
            others: Map::new(),
            goal: None,
            met: None,
        }
    }

    fn with(mut self, name: &str, value: f64) -> Self {
        let value = (value * 10_000.0).round() / 10_000.0;
        self.others.insert(name.to_owned(), Value::from(value));
        self
    }

    fn loxley(mut self, value: f64) -> Self {
        self.loxley = (value * 10_000.0).round() / 10_000.0;
        self
    }

    fn goal(mut self, goal: impl Into<String>, met: bool) -> Self {
        self.goal = Some(goal.into());
        self.met = Some(met);
        self
    }
}

/// Prints rows as they come.
pub(crate) struct Table {
    json: bool,
    seed: u64,
    met: usize,
    missed: Vec<String>,
}

impl Table {
    fn new(json: bool, seed: u64) -> Self {
        if !json {
            println!("seed {seed}");
        }
        Self {
            json,
            seed,
            met: 0,
            missed: Vec::new(),
        }
    }

    fn row(&mut self, row: &Row) {
        match row.met {
            Some(true) => self.met += 1,
            Some(false) => self
                .missed
                .push(format!("{}, P = {}", row.case, row.processors)),
            None => {}
        }
        if self.json {
            let mut value = serde_json::to_value(row).expect("numbers and names are always JSON");
            value["seed"] = Value::from(self.seed);
            println!("{value}");
            return;
        }
        let met = match row.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        println!(
            "{:<34} P = {:<3} {:>4} × {:<10} loxley {:.4}  {} {met}",
            row.case,
            row.processors,
            row.count,
            row.unit,
            row.loxley,
            row.goal.as_deref().unwrap_or(""),
        );
        let others: Vec<String> = row
            .others
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        println!("    {}", others.join("   "));
    }

    fn finish(self) {
        if self.json {
            return;
        }
        println!("{} goals met, {} missed", self.met, self.missed.len());
        for missed in self.missed {
            println!("    missed: {missed}");
        }
        println!("again: loxley-bench quality --seed {}", self.seed);
    }
}

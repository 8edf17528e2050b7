//! Benchmarks of Loxley beside its peers.
//!
//! One subcommand measures one part of Loxley, and every case runs subject and peers in turns
//! ([`measure`]) so that a noisy machine disturbs all of them alike: read the ratios, not the
//! absolute figures. Goals are those of the design; the report says for each whether it is met.
//! Nothing here runs in the test suite.
#![expect(
    clippy::print_stdout,
    reason = "the report of a benchmark goes to standard output"
)]

#[cfg(feature = "system")]
mod cluster;
#[cfg(feature = "system")]
mod journal;
mod measure;
#[cfg(feature = "system")]
mod policy;
mod pool;
#[cfg(feature = "system")]
mod predict;
#[cfg(feature = "system")]
mod python;
#[cfg(feature = "system")]
mod quality;
#[cfg(feature = "system")]
mod replay;
mod report;
#[cfg(feature = "system")]
mod run;
#[cfg(feature = "system")]
mod server;
#[cfg(feature = "system")]
mod sim;

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use measure::Effort;
use report::Report;

/// Measure Loxley beside its peers.
#[derive(Parser)]
#[command(name = "loxley-bench", version)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    part: Part,
}

/// What every part understands.
#[derive(Args)]
struct Options {
    /// Print one JSON object per line instead of a table.
    #[arg(long, global = true)]
    json: bool,
    /// Smaller workloads and fewer rounds: a look, not a result.
    #[arg(long, global = true)]
    quick: bool,
    /// Only the cases whose name contains this, or one of these, separated by commas.
    #[arg(long, global = true, value_name = "TEXT", value_delimiter = ',')]
    filter: Vec<String>,
    /// Only these contenders, by name and comma-separated; for a closer look with a profiler.
    #[arg(long, global = true, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Least rounds per case; each runs every contender once [default: 9, or 3 with --quick].
    #[arg(long, global = true, value_name = "N")]
    rounds: Option<usize>,
}

impl Options {
    /// Whether the case of this name is wanted.
    fn wants(&self, case: &str) -> bool {
        self.filter.is_empty() || self.filter.iter().any(|text| case.contains(text))
    }

    /// Whether the contender of this name takes part.
    fn admits(&self, contender: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == contender)
    }

    fn effort(&self) -> Effort {
        Effort {
            rounds: self.rounds.unwrap_or(if self.quick { 3 } else { 9 }).max(1),
            time: Duration::from_secs(if self.quick { 0 } else { 3 }),
        }
    }
}

#[derive(Subcommand)]
enum Part {
    /// The work-stealing pool beside rayon, chili, forte, tokio and a plain crossbeam pool.
    Pool(pool::Arguments),
    #[cfg(feature = "system")]
    #[command(flatten)]
    System(System),
}

/// Everything but the pool.
#[cfg(feature = "system")]
#[derive(Subcommand)]
enum System {
    /// `loxley run` beside a bare process loop, xargs and a shell.
    Run(run::Arguments),
    /// The simulator beside SimPy, asimpy and a bare heap.
    Sim(sim::Arguments),
    /// Real runs of the pool, predicted by the simulator after calibration; real runs of job files by `loxley run` and by a
    /// server, predicted by the simulator with its defaults.
    Predict(predict::Arguments),
    /// Real runs of `loxley run` and of a server, predicted from their journals alone.
    Replay(replay::Arguments),
    /// The Python package beside ProcessPoolExecutor, multiprocessing, joblib, Dask and pure Python.
    Python(python::Arguments),
    /// The journal beside a plain file that is synced after every group.
    Journal,
    /// The deciding core: a task's whole life, steals, rebalancing, memory, large graphs.
    Policy,
    /// How good the decisions are: schedules of graphs, unequal agents, wrong costs, urgent tasks, deadlines.
    Quality(quality::Arguments),
    /// The server, durable, with agents in processes of their own, beside the system itself.
    Server,
    /// A server on PostgreSQL, beside the embedded journal and a plain table of jobs on the same database.
    Cluster(cluster::Arguments),
    /// Agents for `server`.
    #[command(hide = true)]
    ServerAgents(server::AgentArguments),
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut report = Report::new(arguments.options.json);
    match arguments.part {
        Part::Pool(pool) => pool::run(&arguments.options, &pool, &mut report),
        #[cfg(feature = "system")]
        Part::System(system) => run_system(system, &arguments.options, &mut report),
    }
}

#[cfg(feature = "system")]
fn run_system(part: System, options: &Options, report: &mut Report) -> Result<()> {
    match part {
        System::Cluster(cluster) => cluster::run(options, &cluster, report),
        System::Run(run) => run::run(options, &run, report),
        System::Sim(sim) => sim::run(&sim, options, report),
        System::Predict(predict) => predict::run(options, &predict),
        System::Replay(replay) => replay::run(options, &replay),
        System::Python(python) => python::run(&python, options),
        System::Journal => journal::run(options, report),
        System::Policy => policy::run(options, report),
        System::Quality(quality) => quality::run(options, &quality),
        System::Server => server::run(options, report),
        System::ServerAgents(agents) => server::agents(&agents),
    }
}

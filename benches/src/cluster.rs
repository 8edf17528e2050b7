//! A journal in PostgreSQL beside the embedded one, two shards beside one, what people do without a scheduler (a table of
//! jobs on the same database, from which workers take with `FOR UPDATE SKIP LOCKED`; a queue from a registry that does
//! that), and how long nobody is served when a server is killed.
//!
//! All of it runs on this machine; read ratios. The queues do less (no placement, no leases, no history of attempts).

mod database;
mod failover;
mod queues;

use anyhow::Result;
use loxley_api::{JobRequest, TaskRequest};

use crate::Options;
use crate::measure::{Contender, Role, Samples, interleaved, quantile};
use crate::report::{Goal, Report};
use crate::server::{Fleet, array, function};
use database::Database;

/// Agents, and workers that take from the queues.
const WORKERS: usize = 2;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The PostgreSQL to measure on: postgres://user@host/database. Schemas whose names begin with loxley_bench, and
    /// graphile_worker, are dropped in it. Without it, one is started for the time of the measurement.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

pub(crate) fn run(options: &Options, arguments: &Arguments, report: &mut Report) -> Result<()> {
    let database = Database::new(arguments.database.as_deref())?;
    let cases: [(&str, Case); 4] = [
        ("no-op functions", no_op_functions),
        ("two shards", two_shards),
        ("round trip", round_trips),
        ("failover", failover::stall),
    ];
    for (name, case) in cases {
        if options.wants(name) {
            case(options, &database, report)?;
        }
    }
    Ok(())
}

type Case = fn(&Options, &Database, &mut Report) -> Result<()>;

/// So many tasks are enough to measure a rate.
fn task_count(options: &Options) -> usize {
    if options.quick { 50_000 } else { 200_000 }
}

fn per_task(seconds: f64, count: usize) -> f64 {
    seconds * 1e6 / count as f64
}

/// Functions that do nothing, on two agents; as many or fewer jobs in queues, taken by two workers.
fn no_op_functions(options: &Options, database: &Database, report: &mut Report) -> Result<()> {
    let count = task_count(options);
    // One commit a job or two: all of them would take minutes.
    let few = count / 20;
    let job = array(function("no-op"), count);
    let shared = database.fleet("one", 1)?;
    let embedded = Fleet::start(true, WORKERS as u32, 1, 1)?;
    let graphile = queues::Graphile::install()?;
    let mut contenders = vec![
        Contender::new("loxley on PostgreSQL", Role::Subject, || {
            per_task(shared.time(&job), count)
        }),
        Contender::new("embedded journal", Role::Floor, || {
            per_task(embedded.time(&job), count)
        }),
        Contender::new("job table by ones", Role::Peer, || {
            per_task(queues::job_table(database, few, 1), few)
        }),
        Contender::new("job table by hundreds", Role::Peer, || {
            per_task(queues::job_table(database, count, 100), count)
        }),
        Contender::new("graphile-worker", Role::Peer, || {
            per_task(graphile.time(database, few), few)
        }),
    ];
    contenders.retain(|contender| options.admits(contender.name()));
    let samples = interleaved(options.effort(), &mut contenders);
    // 150,000 tasks a second.
    let goal = Goal::AtMost(1e6 / 150_000.0);
    report.case("no-op functions", "µs/task", Some(goal), &samples);
    Ok(())
}

/// The same tasks in one shard and in two, half in each, with two agents in all.
fn two_shards(options: &Options, database: &Database, report: &mut Report) -> Result<()> {
    let count = task_count(options);
    let whole = array(function("no-op"), count);
    let half = array(function("no-op"), count / 2);
    let one = database.fleet("one", 1)?;
    let two = database.fleet("two", 2)?;
    two.share_out_agents()?;
    let mut contenders = vec![
        Contender::new("two shards", Role::Subject, || {
            per_task(two.time_in_all_shards(&half), count)
        }),
        Contender::new("one shard", Role::Floor, || {
            per_task(one.time(&whole), count)
        }),
    ];
    contenders.retain(|contender| options.admits(contender.name()));
    let samples = interleaved(options.effort(), &mut contenders);
    let goal = Goal::Times(1.0, "one shard");
    report.case("two shards", "µs/task", Some(goal), &samples);
    Ok(())
}

/// One task, from its submission to its end, again and again.
fn round_trips(options: &Options, database: &Database, report: &mut Report) -> Result<()> {
    let rounds = if options.quick { 200 } else { 2_000 };
    let job = JobRequest {
        tasks: vec![TaskRequest::new(function("no-op"))],
        ..JobRequest::default()
    };
    let shared = database.fleet("one", 1)?;
    let embedded = Fleet::start(true, WORKERS as u32, 1, 1)?;
    let (mut on_postgres, mut on_disk) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        on_postgres.push(shared.time(&job) * 1e3);
        on_disk.push(embedded.time(&job) * 1e3);
    }
    for (name, share) in [("round trip, p50", 0.5), ("round trip, p99", 0.99)] {
        let samples = [
            Samples::single(
                "loxley on PostgreSQL",
                Role::Subject,
                quantile(&on_postgres, share),
            ),
            Samples::single("embedded", Role::Floor, quantile(&on_disk, share)),
        ];
        report.case(name, "ms", Some(Goal::Times(2.0, "embedded")), &samples);
    }
    Ok(())
}

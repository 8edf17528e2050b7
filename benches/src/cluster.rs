//! A journal in PostgreSQL beside the embedded one, and beside what people do without a scheduler: a table of jobs on the
//! same database, from which workers take with `FOR UPDATE SKIP LOCKED`.
//!
//! All of it runs on this machine; read ratios. The table does less (no placement, no leases, no history of attempts), and
//! a worker that dies in it leaves its row to the others.

use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context as _, Result};
use loxley_api::{JobRequest, TaskRequest};
use loxley_journal::postgres::Address;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, Config, NoTls};

use crate::Options;
use crate::measure::{Contender, Role, Samples, interleaved, quantile};
use crate::report::{Goal, Report};
use crate::server::{Fleet, array, function};

/// The schema of ours that is made and dropped.
const SCHEMA: &str = "loxley_bench";
/// That of the plain table.
const TABLE_SCHEMA: &str = "loxley_bench_table";
/// Workers that take from the table, and agents.
const WORKERS: usize = 2;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The PostgreSQL to measure on: postgres://user@host/database. The schemas loxley_bench and loxley_bench_table in it
    /// are dropped.
    #[arg(long, value_name = "URL")]
    database: String,
}

pub(crate) fn run(options: &Options, arguments: &Arguments, report: &mut Report) -> Result<()> {
    let database = Database::new(&arguments.database)?;
    if options.wants("no-op functions") {
        no_op_functions(options, &database, report)?;
    }
    if options.wants("round trip") {
        round_trips(options, &database, report)?;
    }
    Ok(())
}

/// The database, empty of ours at both ends.
struct Database {
    runtime: Runtime,
    config: Config,
    address: Address,
}

impl Database {
    fn new(url: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let config = Config::from_str(url).context("--database")?;
        let mark = if url.contains('?') { '&' } else { '?' };
        let address = Address::parse(&format!("{url}{mark}schema={SCHEMA}"), None)?;
        let this = Self {
            runtime,
            config,
            address,
        };
        this.clear()?;
        Ok(this)
    }

    fn clear(&self) -> Result<()> {
        self.runtime.block_on(async {
            let client = self.connect().await?;
            let drop = format!(
                "DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; DROP SCHEMA IF EXISTS {TABLE_SCHEMA} CASCADE"
            );
            Ok(client.batch_execute(&drop).await?)
        })
    }

    async fn connect(&self) -> Result<Client> {
        let (client, connection) = self.config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    fn fleet(&self) -> Result<Fleet> {
        Fleet::start_on(self.address.clone(), WORKERS as u32, 1, 1)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = self.clear();
    }
}

/// Functions that do nothing, on two agents; the same number of rows, taken by two workers.
fn no_op_functions(options: &Options, database: &Database, report: &mut Report) -> Result<()> {
    let count = if options.quick { 20_000 } else { 200_000 };
    // One commit a task or two: it would take minutes.
    let rows = count / 20;
    let job = array(function("no-op"), count);
    let per_task = |seconds: f64, count: usize| seconds * 1e6 / count as f64;
    let shared = database.fleet()?;
    let embedded = Fleet::start(true, WORKERS as u32, 1, 1)?;
    let mut contenders = vec![
        Contender::new("loxley on PostgreSQL", Role::Subject, || {
            per_task(shared.time(&job), count)
        }),
        Contender::new("loxley, embedded journal", Role::Floor, || {
            per_task(embedded.time(&job), count)
        }),
        Contender::new("job table, one at a time", Role::Peer, || {
            per_task(job_table(database, rows, 1), rows)
        }),
        Contender::new("job table, 100 at a time", Role::Peer, || {
            per_task(job_table(database, count, 100), count)
        }),
    ];
    contenders.retain(|contender| options.admits(contender.name()));
    let samples = interleaved(options.effort(), &mut contenders);
    // 150,000 tasks a second.
    let goal = Goal::AtMost(1e6 / 150_000.0);
    report.case("no-op functions", "µs/task", Some(goal), &samples);
    Ok(())
}

/// One task, from its submission to its end, again and again.
fn round_trips(options: &Options, database: &Database, report: &mut Report) -> Result<()> {
    let rounds = if options.quick { 200 } else { 2_000 };
    let job = JobRequest {
        tasks: vec![TaskRequest::new(function("no-op"))],
        ..JobRequest::default()
    };
    let shared = database.fleet()?;
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

/// Seconds until workers have taken and finished so many rows, `batch` at a time: one transaction takes rows, does
/// nothing, and says that they are done.
fn job_table(database: &Database, rows: usize, batch: i64) -> f64 {
    let took = database.runtime.block_on(async {
        let client = database.connect().await?;
        client
            .batch_execute(&format!(
                "DROP SCHEMA IF EXISTS {TABLE_SCHEMA} CASCADE; CREATE SCHEMA {TABLE_SCHEMA}; \
                 CREATE TABLE {TABLE_SCHEMA}.job (id bigint PRIMARY KEY, done timestamptz); \
                 CREATE INDEX job_open ON {TABLE_SCHEMA}.job (id) WHERE done IS NULL"
            ))
            .await?;
        let mut clients = Vec::new();
        for _ in 0..WORKERS {
            clients.push(database.connect().await?);
        }
        let begun = Instant::now();
        client
            .execute(
                &format!("INSERT INTO {TABLE_SCHEMA}.job (id) SELECT generate_series(1, $1::bigint)"),
                &[&(rows as i64)],
            )
            .await?;
        let mut workers = tokio::task::JoinSet::new();
        for client in clients {
            workers.spawn(async move {
                let take = client
                    .prepare(&format!(
                        "UPDATE {TABLE_SCHEMA}.job SET done = clock_timestamp() WHERE id IN (SELECT id \
                         FROM {TABLE_SCHEMA}.job WHERE done IS NULL ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)"
                    ))
                    .await?;
                let mut taken = 0;
                loop {
                    match client.execute(&take, &[&batch]).await? {
                        0 => return Ok::<u64, tokio_postgres::Error>(taken),
                        some => taken += some,
                    }
                }
            });
        }
        let mut taken = 0;
        while let Some(worker) = workers.join_next().await {
            taken += worker??;
        }
        anyhow::ensure!(taken == rows as u64, "{taken} of {rows} rows were taken");
        Ok::<f64, anyhow::Error>(begun.elapsed().as_secs_f64())
    });
    took.expect("the database answers")
}

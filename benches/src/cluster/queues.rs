//! Queues in PostgreSQL: a plain table, and one that people use.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::WORKERS;
use super::database::{Database, schema_of};

/// Seconds until workers have taken and finished so many rows, `batch` at a time: one transaction takes rows, does
/// nothing, and says that they are done.
pub(super) fn job_table(database: &Database, rows: usize, batch: i64) -> f64 {
    let schema = schema_of("table");
    let took = database.runtime.block_on(async {
        let client = database.connect().await?;
        client
            .batch_execute(&format!(
                "DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}; \
                 CREATE TABLE {schema}.job (id bigint PRIMARY KEY, done timestamptz); \
                 CREATE INDEX job_open ON {schema}.job (id) WHERE done IS NULL"
            ))
            .await?;
        let mut clients = Vec::new();
        for _ in 0..WORKERS {
            clients.push(database.connect().await?);
        }
        let begun = Instant::now();
        client
            .execute(
                &format!("INSERT INTO {schema}.job (id) SELECT generate_series(1, $1::bigint)"),
                &[&(rows as i64)],
            )
            .await?;
        let mut workers = tokio::task::JoinSet::new();
        for client in clients {
            let schema = schema.clone();
            workers.spawn(async move {
                let take = client
                    .prepare(&format!(
                        "UPDATE {schema}.job SET done = clock_timestamp() WHERE id IN (SELECT id \
                         FROM {schema}.job WHERE done IS NULL ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)"
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

/// [graphile-worker](https://worker.graphile.org), from the registry of Node's packages: `FOR UPDATE SKIP LOCKED` with
/// retries, priorities and queues in order.
pub(super) struct Graphile {
    folder: PathBuf,
}

/// What is installed.
const GRAPHILE: &str = "graphile-worker@0.16.6";

impl Graphile {
    /// Installs it under `target/`, once.
    pub(super) fn install() -> Result<Self> {
        let folder = root()?.join("target/queue-peers");
        if !folder.join("node_modules/graphile-worker").exists() {
            std::fs::create_dir_all(&folder)?;
            let installed = Command::new("npm")
                .args(["install", "--no-audit", "--no-fund", "--prefix"])
                .arg(&folder)
                .arg(GRAPHILE)
                .output()
                .context("npm is needed for graphile-worker")?;
            let said = String::from_utf8_lossy(&installed.stderr);
            ensure!(installed.status.success(), "npm install {GRAPHILE}: {said}");
        }
        Ok(Self { folder })
    }

    /// Seconds until its workers have done so many jobs that do nothing, from when they are added.
    pub(super) fn time(&self, database: &Database, jobs: usize) -> f64 {
        self.try_time(database, jobs)
            .expect("graphile-worker does the jobs")
    }

    fn try_time(&self, database: &Database, jobs: usize) -> Result<f64> {
        database.drop_schema("graphile_worker")?;
        let mut command = Command::new("node");
        command
            .arg(root()?.join("benches/peers/graphile_worker.cjs"))
            .args([jobs.to_string(), WORKERS.to_string()])
            .env("NODE_PATH", self.folder.join("node_modules"));
        let output = database.tell(&mut command).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{said}");
        let printed = String::from_utf8(output.stdout)?;
        let seconds = printed.lines().last().context("it prints seconds")?;
        Ok(seconds.trim().parse()?)
    }
}

fn root() -> Result<&'static Path> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().context("benches has a parent folder")
}

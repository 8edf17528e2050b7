//! `server start --journal postgres://…`: one of several servers on one database.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use loxley_api::ClusterInfo;
use loxley_journal::postgres::Address;
use loxley_server::cluster::{self, Cluster, ClusterOptions};
use loxley_server::{ServerOptions, api};
use tokio::signal::unix::{SignalKind, signal};

use super::start::{Args, say_started};

pub(super) async fn serve(
    args: &Args,
    journal: &str,
    options: ServerOptions,
    out: &mut dyn Write,
) -> Result<()> {
    if args.has_otlp() {
        bail!("--otlp goes with one server; it does not follow from one of several to the next");
    }
    let address = Address::parse(journal, args.journal_password_file.as_deref())?;
    let cluster = ClusterOptions {
        address,
        name: args.instance.clone(),
    };
    let directory = options.directory.clone();
    let cluster = Cluster::start(options, cluster).await?;
    say_started(args, &cluster.access().url, &directory, out)?;
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let mut signals = signal(kind).context("cannot watch for signals")?;
        let stopper = cluster.stopper();
        tokio::spawn(async move {
            if signals.recv().await.is_some() {
                tracing::info!("told to end by a signal");
                stopper.send_replace(true);
            }
        });
    }
    Ok(cluster.run(api::router).await?)
}

/// Asks a database who shares it.
pub(super) fn look(database: &str, password_file: Option<&Path>) -> Result<ClusterInfo> {
    let address = Address::parse(database, password_file)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    Ok(runtime.block_on(cluster::look(&address))?)
}

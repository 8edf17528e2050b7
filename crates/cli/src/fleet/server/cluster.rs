//! `server start --journal postgres://…`: one of several servers on one database.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result};
use loxley_api::ClusterInfo;
use loxley_journal::postgres::Address;
use loxley_server::cluster::{self, Cluster, ClusterOptions};
use loxley_server::{ServerOptions, api};

use super::start::{Args, EndSignals, say_started};

pub(super) async fn serve(
    args: &Args,
    journal: &str,
    options: ServerOptions,
    out: &mut dyn Write,
) -> Result<()> {
    let address = Address::parse(journal, args.journal_password_file.as_deref())?;
    let cluster = ClusterOptions {
        address,
        name: args.instance.clone(),
        shards: args.shards,
    };
    let directory = options.directory.clone();
    let mut signals = EndSignals::watch()?;
    let cluster = tokio::select! {
        cluster = Cluster::start(options, cluster) => cluster?,
        () = signals.come() => return Ok(()),
    };
    let stopper = cluster.stopper();
    signals.then(move || {
        stopper.send_replace(true);
    });
    say_started(args, &cluster.access().url, &directory, out)?;
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

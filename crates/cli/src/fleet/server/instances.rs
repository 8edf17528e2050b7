//! `loxley server list` and `handover`: several servers on one database.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use loxley_api::{ClusterInfo, ShardInfo};
use loxley_client::blocking::Client;

use super::super::connect::{Connect, print_json};
use super::super::show::span;
use super::super::table::Table;
use super::cluster;
use crate::exit::Exit;

/// List the servers that share a database, who of them serves, and how far each is.
///
/// A shard's epoch grows with each takeover. Its lag is what a standby would have to read before it could serve: groups
/// after the newest snapshot. With `--journal postgres://…` the database is asked, also when no server answers.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley server list\n  loxley server list --journal postgres://loxley@db/fleet --json"
)]
pub(super) struct ListArgs {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// A file with the password for the database.
    #[arg(long, value_name = "FILE", requires = "journal")]
    journal_password_file: Option<PathBuf>,
    #[command(flatten)]
    connect: Connect,
}

/// Have others of several servers serve what one of them holds, before its machine is worked on.
///
/// It is the server that answers first: with one shard the one that serves, with several the first of the access file that
/// can be reached. Returns when others serve all of it. The one that gave away stands by, and takes nothing back for half a
/// minute unless another is lost; running tasks go on running.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley server handover && systemctl restart loxley\n\n\
                  Exit codes: 0 others serve; 1 they did not within --timeout; 6 no server can be reached; 7 there is \
                  nobody to take over."
)]
pub(super) struct HandoverArgs {
    /// How long to wait until others serve: 60s, 2m.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = loxley_jobfile::amount::duration)]
    timeout: Duration,
    /// Print the servers as one JSON object when another one serves.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

pub(super) fn list(args: &ListArgs, out: &mut dyn Write) -> Result<Exit> {
    let cluster = match args.connect.database() {
        Some(database) => cluster::look(database, args.journal_password_file.as_deref())?,
        None => {
            let client = args.connect.client()?;
            client.call(async |client| client.cluster().await)?
        }
    };
    match args.json {
        true => print_json(out, &cluster)?,
        false => print(&cluster, out)?,
    }
    Ok(Exit::Done)
}

fn print(cluster: &ClusterInfo, out: &mut dyn Write) -> Result<()> {
    let mut table = Table::new(["instance", "state", "url", "version", "heard", "clock"]);
    for one in &cluster.instances {
        table.row([
            one.name.clone(),
            one.state.name().to_owned(),
            one.url.clone(),
            one.version.clone(),
            format!("{} ago", span(one.silent_sec)),
            format!("{:+.3} s", one.clock_ahead_sec),
        ]);
    }
    table.print(out)?;
    writeln!(out)?;
    let mut table = Table::new([
        "shard", "epoch", "holder", "lease", "position", "lag", "commit", "agents", "away",
        "guests",
    ]);
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for one in &cluster.shards {
        table.row([
            one.shard.to_string(),
            one.epoch.to_string(),
            or_unknown(one.holder.clone()),
            or_unknown(one.lease_left_sec.map(span)),
            one.journal_position.to_string(),
            or_unknown(one.lag_groups.map(|groups| groups.to_string())),
            or_unknown(one.commit_sec.map(span)),
            or_unknown(one.agents.map(|agents| agents.to_string())),
            or_unknown(one.away.map(|tasks| tasks.to_string())),
            or_unknown(one.guests.map(|tasks| tasks.to_string())),
        ]);
    }
    table.print(out)?;
    for one in &cluster.shards {
        if let Some(lost) = &one.lost {
            writeln!(out, "\nshard {} is not served: {lost}", one.shard)?;
        }
    }
    if let Some(replication) = cluster.replication {
        writeln!(out, "\nreplication of the database: {}", replication.name())?;
    }
    for one in &cluster.replicas {
        let waits = one.sync_state.as_deref().unwrap_or("not told");
        let lag = one.lag_bytes.map_or_else(
            || "lag not told".to_owned(),
            |bytes| format!("{bytes} bytes behind"),
        );
        writeln!(out, "  {}: {waits}, {lag}", one.name)?;
    }
    Ok(())
}

pub(super) fn hand_over(args: &HandoverArgs, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let before = client.call(async |client| client.hand_over().await)?;
    let begun = Instant::now();
    let after = wait_for_others(&client, &before, begun + args.timeout)?;
    let Some(after) = after else {
        bail!(
            "others do not serve all of it after {}: look at `loxley server list --journal postgres://…` and at their logs",
            span(args.timeout.as_secs_f64())
        );
    };
    match args.json {
        true => print_json(out, &after)?,
        false => {
            let mut names: Vec<&str> = after.shards.iter().filter_map(holder).collect();
            names.sort_unstable();
            names.dedup();
            let names = names.join(", ");
            let took = span(begun.elapsed().as_secs_f64());
            let verb = if names.contains(',') {
                "serve"
            } else {
                "serves"
            };
            writeln!(io::stderr(), "{names} {verb}, after {took}")?;
        }
    }
    Ok(Exit::Done)
}

fn holder(shard: &ShardInfo) -> Option<&str> {
    shard.holder.as_deref()
}

/// Asks whoever answers, until every shard has a holder, and those that the first of `before` held have another, of a later
/// epoch.
fn wait_for_others(
    client: &Client,
    before: &ClusterInfo,
    until: Instant,
) -> Result<Option<ClusterInfo>> {
    let giver = before.instances.first().map(|one| one.name.as_str());
    let is_taken = |now: &ShardInfo| {
        let was = before.shards.iter().find(|was| was.shard == now.shard);
        let was = was.filter(|was| holder(was) == giver);
        now.holder.is_some() && was.is_none_or(|was| now.epoch > was.epoch)
    };
    while Instant::now() < until {
        match client.call(async |client| client.cluster().await) {
            Ok(cluster) if cluster.shards.iter().all(is_taken) => return Ok(Some(cluster)),
            Ok(_) => {}
            Err(error) if error.is_passing() => {}
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(None)
}

//! `loxley agent`: run one, look at all of them.

use std::io::Write;

use anyhow::Result;
use loxley_api::AgentInfo;
use loxley_client::{Client, ClientError};

use super::connect::Connect;
use super::print::{each, print_details, print_rows};
use super::select::AgentSelector;
use crate::exit::Exit;

mod start;

/// Run an agent, look at agents, send them away.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "\
Examples:
  loxley agent start --skills python,gpu --slots 4 --resource gpu=2
  loxley agent list
  loxley agent info rack1-a
  loxley agent drain 3,5-8          finish what they have, then end

Exit codes: 0 done; 5 there is no such agent; 6 the server cannot be reached; 7 the server refused.";

#[derive(Debug, clap::Subcommand)]
enum Command {
    Start(Box<start::Args>),
    List(ListArgs),
    #[command(
        after_help = "Examples:\n  loxley agent info rack1-a\n  loxley agent info all --json"
    )]
    Info(OneArgs),
    Drain(DrainArgs),
    Stop(StopArgs),
    Forget(ForgetArgs),
    Revoke(RevokeArgs),
}

/// List all agents.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  loxley agent list\n  loxley agent list --json | jq .name")]
struct ListArgs {
    /// Print a JSON object for each, one per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Show everything about agents.
#[derive(Debug, clap::Args)]
struct OneArgs {
    /// Which agents: all, or names and numbers like rack1-a,3,5-8.
    #[arg(value_name = "AGENTS")]
    agents: AgentSelector,
    /// Print a JSON object for each, one per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Let agents finish what they run and end; they get nothing new.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  loxley agent drain rack1-a\n  loxley agent drain 3,5-8")]
struct DrainArgs {
    #[command(flatten)]
    which: OneArgs,
}

/// End agents now. What they ran is killed, and goes to other agents.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  loxley agent stop rack1-a")]
struct StopArgs {
    #[command(flatten)]
    which: OneArgs,
}

/// Have the names of agents that are gone be anybody's again.
///
/// The name of an agent belongs to the token with which it first came: no other token gets in under it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  loxley agent forget rack1-a")]
struct ForgetArgs {
    #[command(flatten)]
    which: OneArgs,
}

/// Take a skill back that agents earned.
///
/// An agent that keeps succeeding at tasks which need a skill that it did not declare has that skill from then on
/// (`learning.earn_skills` in the configuration). Once taken back, it is not earned again before the agent registers anew.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  loxley agent revoke rack1-a gpu")]
struct RevokeArgs {
    /// Which agents: all, or names and numbers like rack1-a,3,5-8.
    #[arg(value_name = "AGENTS")]
    agents: AgentSelector,
    /// Which skill.
    #[arg(value_name = "SKILL")]
    skill: String,
    /// Print a JSON object for each, one per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) fn run(args: Args, out: &mut dyn Write) -> Result<Exit> {
    match args.command {
        Command::Start(args) => start::run(&args, out),
        Command::List(args) => list(&args, out),
        Command::Info(args) => info(&args, out),
        Command::Drain(args) => args.which.each(out, async |client, agent| {
            client.drain_agent(agent.id).await
        }),
        Command::Stop(args) => args
            .which
            .each(out, async |client, agent| client.stop_agent(agent.id).await),
        Command::Forget(args) => args.which.each(out, async |client, agent| {
            client.forget_agent(agent.id).await
        }),
        Command::Revoke(args) => {
            let RevokeArgs {
                agents,
                skill,
                json,
                connect,
            } = args;
            let which = OneArgs {
                agents,
                json,
                connect,
            };
            which.each(out, async |client, agent| {
                client.revoke_skill(agent.id, &skill).await
            })
        }
    }
}

fn list(args: &ListArgs, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let agents = client.call(async |client| client.agents().await)?;
    print_rows(&agents, args.json, out)
}

fn info(args: &OneArgs, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let agents = client.call(async |client| args.agents.agents(client).await)?;
    print_details(&agents, args.json, out)
}

impl OneArgs {
    fn each(
        &self,
        out: &mut dyn Write,
        act: impl AsyncFn(&Client, &AgentInfo) -> Result<AgentInfo, ClientError>,
    ) -> Result<Exit> {
        let client = self.connect.client()?;
        let agents = client.call(async |client| {
            let agents = self.agents.agents(client).await?;
            each(&agents, async |agent| act(client, agent).await).await
        })?;
        print_rows(&agents, self.json, out)
    }
}

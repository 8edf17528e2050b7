//! `loxley user`: who has how much of the fleet, and who may have how much.

use std::io::{self, Write};

use anyhow::Result;
use loxley_api::UserInfo;

use super::connect::Connect;
use super::print::{Thing, print_rows};
use super::table::Table;
use crate::exit::Exit;

/// Look at users, give them weights.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "\
While tasks of several users wait, each user may have its share of the slots: its weight, as a part
of the weights of all users with tasks. Who waits alone may have everything.

Examples:
  loxley user list
  loxley user weight ada 3          three times the share of somebody with weight 1

Exit codes: 0 done; 6 the server cannot be reached; 7 the server refused.";

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(ListArgs),
    Weight(WeightArgs),
}

/// List users with their weights and what they have now.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  loxley user list\n  loxley user list --json | jq .weight")]
struct ListArgs {
    /// Print a JSON object for each, one per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Give a user another weight. Counts from now on, and after a restart.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley user weight ada 3\n  loxley user weight ada 1     as everybody else"
)]
struct WeightArgs {
    /// Whose: the name of a token, or what `--user` or a job file said.
    #[arg(value_name = "USER")]
    user: String,
    /// How much: from 1 to 1000000. Twice the weight is twice the share.
    #[arg(value_name = "WEIGHT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    weight: u32,
    /// Print the user as a JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) fn run(args: Args, out: &mut dyn Write) -> Result<Exit> {
    match args.command {
        Command::List(args) => {
            let client = args.connect.client()?;
            let users = client.call(async |client| client.users().await)?;
            print_rows(&users, args.json, out)
        }
        Command::Weight(args) => {
            let client = args.connect.client()?;
            let set = async |client: &loxley_client::Client| {
                client.set_user_weight(&args.user, args.weight).await
            };
            let user = client.call(set)?;
            print_rows(&[user], args.json, out)
        }
    }
}

impl Thing for UserInfo {
    fn rows(things: &[Self], out: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::new(["USER", "WEIGHT", "TASKS", "QUEUED", "RUNNING", "SHARE"]);
        for user in things {
            let share = match user.share_slots {
                0 => String::new(),
                1 => "1 slot".to_owned(),
                many => format!("{many} slots"),
            };
            table.row([
                user.user.clone(),
                user.weight.to_string(),
                user.tasks.to_string(),
                user.queued.to_string(),
                user.running.to_string(),
                share,
            ]);
        }
        table.print(out)
    }

    fn details(&self, out: &mut dyn Write) -> io::Result<()> {
        Self::rows(std::slice::from_ref(self), out)
    }

    fn line(&self) -> String {
        format!("user {} has weight {}", self.user, self.weight)
    }
}

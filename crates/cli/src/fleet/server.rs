//! `loxley server`: run one, look at it, end it, and say who may use it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use loxley_api::{Role, ServerInfo, TokenInfo, TokenRequest};
use serde::Serialize;

use super::connect::{Connect, print_json};
use super::show;
use super::table::Table;
use crate::exit::Exit;

#[cfg_attr(not(feature = "postgres"), path = "server/no_cluster.rs")]
mod cluster;
mod forecast;
mod instances;
#[cfg_attr(not(feature = "otlp"), path = "server/no_otlp.rs")]
mod otlp;
mod start;
mod trace;
mod tuning;

/// Run a server, look at it, end it, and say who may use it.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "\
Examples:
  loxley server start                       on 127.0.0.1:7420
  loxley server start --listen 0.0.0.0:7420 --host fleet.example.org
  loxley server start --journal postgres://loxley@db/fleet    one of several, on a database
  loxley server info
  loxley server health                      what is wrong, and what to do about it
  loxley server tuning                      which settings it changed by itself, and why
  loxley server forecast                    what it expects to come, and keeps room for
  loxley server list                        the servers on one database, and who of them serves
  loxley server handover                    have another one of them serve, before maintenance
  loxley server log debug                   say more in its log, until its next start
  loxley server trace http://127.0.0.1:4317 send the path of every task to OpenTelemetry
  loxley server token create ci --role submit --out ci.json
  loxley server drain                       take nothing new, finish what there is, then end

Exit codes: 0 done; 1 something went wrong; 4 `health` found something critical; 6 the server cannot
be reached; 7 the server refused.";

#[derive(Debug, clap::Subcommand)]
enum Command {
    Start(start::Args),
    #[command(
        after_help = "Examples:\n  loxley server info\n  loxley server info --json | jq .fleet"
    )]
    Info(PlainArgs),
    Health(HealthArgs),
    Tuning(tuning::Args),
    Forecast(forecast::Args),
    List(instances::ListArgs),
    Handover(instances::HandoverArgs),
    Drain(DrainArgs),
    Stop(StopArgs),
    Log(LogArgs),
    Trace(trace::Args),
    Token(TokenArgs),
}

/// Show what the server is and how it fares.
#[derive(Debug, clap::Args)]
struct PlainArgs {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Say what is wrong with the fleet, and what to do about it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  loxley server health || echo 'look at the fleet'")]
struct HealthArgs {
    #[command(flatten)]
    plain: PlainArgs,
}

/// Have the server take no more jobs, finish those it has, and end.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  loxley server drain && loxley job wait all")]
struct DrainArgs {
    #[command(flatten)]
    plain: PlainArgs,
}

/// End the server now. Everything accepted is on disk and goes on at its next start; agents go on
/// with what they run and come back by themselves.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  loxley server stop && loxley server start")]
struct StopArgs {
    #[command(flatten)]
    plain: PlainArgs,
}

/// Have the server log more, or less, until its next start.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley server log debug\n  loxley server log info,loxley_server=trace\n  loxley server log info"
)]
struct LogArgs {
    /// How much: error, warn, info, debug, trace; or for parts, as in info,loxley_server=debug.
    #[arg(value_name = "LEVEL")]
    level: String,
    #[command(flatten)]
    plain: PlainArgs,
}

/// Make, list and revoke tokens.
#[derive(Debug, clap::Args)]
struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TokenCommand {
    Create(CreateArgs),
    /// List all tokens, without their secrets.
    #[command(after_help = "Examples:\n  loxley server token list")]
    List(PlainArgs),
    Revoke(RevokeArgs),
}

/// Make a token and write its access file.
///
/// Whoever has the file has its role: admin may do everything; submit may submit, cancel and look;
/// agent may run tasks and nothing else; read may look.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley server token create rack1 --role agent --out agent.json\n  loxley server token create laptop --role submit --user ada --out ada.json"
)]
struct CreateArgs {
    /// What it is called: whose it is, or what for.
    name: String,
    /// What it allows: admin, submit, agent, read.
    #[arg(long)]
    role: Role,
    /// For whom its jobs count, where users have shares [default: its name].
    #[arg(long)]
    user: Option<String>,
    /// Where to write the access file, with mode 0600 [default: standard output].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON object also where the access file goes elsewhere: what it allows, without its secret.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Make a token worthless, at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  loxley server token revoke rack1")]
struct RevokeArgs {
    /// What it is called.
    name: String,
    #[command(flatten)]
    plain: PlainArgs,
}

pub(crate) fn run(args: Args, out: &mut dyn Write) -> Result<Exit> {
    match args.command {
        Command::Start(args) => start::run(&args, out),
        Command::Info(args) => {
            let client = args.connect.client()?;
            let info = client.call(async |client| client.server().await)?;
            match args.json {
                true => print_json(out, &info)?,
                false => show::server(out, &info)?,
            }
            Ok(Exit::Done)
        }
        Command::Health(args) => health(&args.plain, out),
        Command::Tuning(args) => tuning::run(&args, out),
        Command::Forecast(args) => forecast::run(&args, out),
        Command::List(args) => instances::list(&args, out),
        Command::Handover(args) => instances::hand_over(&args, out),
        Command::Drain(args) => {
            let client = args.plain.connect.client()?;
            let info = client.call(async |client| client.drain_server().await)?;
            let open = info.jobs_open;
            let message = format!("the server takes no more jobs, and ends after {open} open ones");
            told(&info, &args.plain, &message, out)
        }
        Command::Stop(args) => {
            let client = args.plain.connect.client()?;
            let info = client.call(async |client| client.stop_server().await)?;
            let message = "the server ends; everything accepted goes on at its next start";
            told(&info, &args.plain, message, out)
        }
        Command::Log(args) => {
            let client = args.plain.connect.client()?;
            let set = client.call(async |client| client.set_log(&args.level).await)?;
            match args.plain.json {
                true => print_json(out, &set)?,
                false => writeln!(io::stderr(), "the server logs `{}` from now on", set.log)?,
            }
            Ok(Exit::Done)
        }
        Command::Trace(args) => trace::run(&args, out),
        Command::Token(args) => token(args, out),
    }
}

fn told(info: &ServerInfo, args: &PlainArgs, message: &str, out: &mut dyn Write) -> Result<Exit> {
    match args.json {
        true => print_json(out, info)?,
        false => writeln!(io::stderr(), "{message}")?,
    }
    Ok(Exit::Done)
}

fn health(args: &PlainArgs, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let health = client.call(async |client| client.health().await)?;
    match args.json {
        true => print_json(out, &health)?,
        false => show::health(out, &health)?,
    }
    Ok(match health.ok {
        true => Exit::Done,
        false => Exit::Unsuccessful,
    })
}

fn token(args: TokenArgs, out: &mut dyn Write) -> Result<Exit> {
    match args.command {
        TokenCommand::Create(args) => create(&args, out),
        TokenCommand::List(args) => {
            let client = args.connect.client()?;
            let tokens = client.call(async |client| client.tokens().await)?;
            print_tokens(&tokens, args.json, out)
        }
        TokenCommand::Revoke(args) => {
            let client = args.plain.connect.client()?;
            let token = client.call(async |client| client.revoke_token(&args.name).await)?;
            match args.plain.json {
                true => print_json(out, &token)?,
                false => writeln!(io::stderr(), "`{}` is worthless now", args.name)?,
            }
            Ok(Exit::Done)
        }
    }
}

fn create(args: &CreateArgs, out: &mut dyn Write) -> Result<Exit> {
    let request = TokenRequest {
        name: args.name.clone(),
        role: args.role,
        user: args.user.clone(),
    };
    let client = args.connect.client()?;
    let access = client.call(async |client| client.create_token(&request).await)?;
    match &args.out {
        Some(path) => {
            access.write(path)?;
            match args.json {
                true => print_json(
                    out,
                    &Written {
                        path,
                        request: &request,
                    },
                )?,
                false => writeln!(io::stderr(), "wrote {}", path.display())?,
            }
        }
        None => print_json(out, &access)?,
    }
    Ok(Exit::Done)
}

/// What `token create --out --json` prints.
#[derive(Serialize)]
struct Written<'a> {
    path: &'a Path,
    #[serde(flatten)]
    request: &'a TokenRequest,
}

fn print_tokens(tokens: &[TokenInfo], json: bool, out: &mut dyn Write) -> Result<Exit> {
    if json {
        tokens.iter().try_for_each(|token| print_json(out, token))?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(["name", "role", "user"]);
    for token in tokens {
        let (name, user) = (token.name.clone(), token.user.clone());
        table.row([name, token.role.to_string(), user]);
    }
    table.print(out)?;
    Ok(Exit::Done)
}

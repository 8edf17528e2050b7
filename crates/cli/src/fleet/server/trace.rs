//! `loxley server trace`: where a server sends the path of every task.

use std::io::{self, Write};

use anyhow::Result;

use crate::exit::Exit;
use crate::fleet::connect::print_json;

use super::PlainArgs;

/// Have the server send the path of every task to a collector of OpenTelemetry, or end that, until its next start.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// Where to, over gRPC: http://127.0.0.1:4317, or https:// for TLS; `off` for nowhere. Without it: says where.
    #[arg(value_name = "URL|off")]
    collector: Option<String>,
    #[command(flatten)]
    plain: PlainArgs,
}

const HELP: &str = "\
Jobs that were accepted before have no span of their own: their tasks have, from then on. Off, nothing is
made for anybody, and nothing is lost but spans. `loxley server start --otlp` begins with it, and its
--otlp-ca says how an https collector is known.

Examples:
  loxley server trace http://127.0.0.1:4317
  loxley server trace https://collector.example.org:4317
  loxley server trace off
  loxley server trace --json";

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let client = args.plain.connect.client()?;
    let asked = args.collector.as_deref();
    let set = client.call(async |client| match asked {
        None => client.traces().await,
        Some("off") => client.set_traces(None).await,
        Some(collector) => client.set_traces(Some(collector)).await,
    })?;
    if args.plain.json {
        print_json(out, &set)?;
        return Ok(Exit::Done);
    }
    match &set.collector {
        Some(collector) => writeln!(io::stderr(), "the server sends traces to {collector}")?,
        None => writeln!(io::stderr(), "the server sends no traces")?,
    }
    Ok(Exit::Done)
}

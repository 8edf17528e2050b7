//! `loxley config reload`: another configuration for a running server.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;

use super::connect::{Connect, print_json};
use crate::exit::Exit;
use crate::input;

/// Put another configuration in force on a running server. No task is lost or reordered.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The file, or - for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print the configuration now in force as a JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

const HELP: &str = "\
Examples:
  loxley config default > loxley.yaml
  loxley config reload loxley.yaml

Exit codes: 0 in force; 3 mistakes, which are shown, and nothing changed; 6 the server cannot be
reached; 7 the server refused.";

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let bytes = input::read(&args.file)?;
    // Mistakes are shown here, under their lines, before anybody is bothered with them.
    if let Err(mistakes) = loxley_config::parse_bytes(&bytes) {
        crate::config::show(&mistakes.in_file(&input::name(&args.file)))?;
        return Ok(Exit::Mistakes);
    }
    let text = String::from_utf8(bytes)?;
    let client = args.connect.client()?;
    let config = client.call(async |client| client.reload_config(&text).await)?;
    match args.json {
        true => print_json(out, &config)?,
        false => writeln!(io::stderr(), "the server has a new configuration")?,
    }
    Ok(Exit::Done)
}

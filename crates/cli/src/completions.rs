//! `loxley completions`: a script that teaches the shell our words.

use std::io::Write;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::Cli;
use crate::exit::Exit;

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The shell.
    shell: Shell,
    /// Print one JSON object with the script in it.
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  loxley completions bash > ~/.local/share/bash-completion/completions/loxley
  loxley completions zsh > ~/.zfunc/_loxley
  loxley completions fish > ~/.config/fish/completions/loxley.fish";

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    // Into memory first: the generator panics where its writer fails, and a pipe may be closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "loxley", &mut script);
    if args.json {
        let (shell, script) = (args.shell.to_string(), String::from_utf8_lossy(&script));
        writeln!(
            out,
            "{}",
            serde_json::json!({"shell": shell, "script": script})
        )?;
    } else {
        out.write_all(&script)?;
    }
    Ok(Exit::Done)
}

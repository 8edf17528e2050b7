//! `loxley man`: manual pages, one for each command, made from what `--help` is made from.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::Cli;
use crate::exit::Exit;

/// Write the manual pages into a directory: loxley.1, loxley-run.1 and so on.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Where to; it is made if it is not there.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Print the names of the files as one JSON list.
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  loxley man ~/.local/share/man/man1       then: man loxley-run
  loxley man /tmp/pages && man /tmp/pages/loxley-submit.1";

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let mut command = Cli::command();
    command.build();
    let mut pages = Vec::new();
    collect(&command, &mut pages)?;
    let directory = &args.directory;
    let failed = || format!("cannot write to {}", directory.display());
    fs::create_dir_all(directory).with_context(failed)?;
    let mut names = Vec::new();
    for (name, page) in pages {
        let path = directory.join(&name);
        fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
        names.push(name);
    }
    match args.json {
        true => writeln!(out, "{}", serde_json::json!(names))?,
        false => writeln!(out, "{} pages in {}", names.len(), directory.display())?,
    }
    Ok(Exit::Done)
}

/// The pages of a command and of all below it.
fn collect(command: &clap::Command, pages: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let man = clap_mangen::Man::new(command.clone());
    let mut page = Vec::new();
    man.render(&mut page)?;
    pages.push((man.get_filename(), page));
    let below = command.get_subcommands();
    for below in below.filter(|below| below.get_name() != "help" && !below.is_hide_set()) {
        collect(below, pages)?;
    }
    Ok(())
}

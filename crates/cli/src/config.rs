//! `loxley config`: a configuration to start from, the mistakes in one, and another one for a server.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use loxley_config::{KeyInfo, Mistakes};
use miette::MietteHandlerOpts;
use serde::Serialize;

use crate::exit::Exit;
use crate::input;

/// Check a configuration, print the default one, give a server another one.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Check(CheckArgs),
    Default(DefaultArgs),
    Reload(crate::fleet::reload::Args),
}

/// Find every mistake in a configuration file.
///
/// All mistakes are reported at once, each with its line, its column and what is allowed: unknown
/// keys, wrong types, values out of range, keys given twice, values that contradict each other.
#[derive(Debug, clap::Args)]
#[command(after_help = CHECK_HELP)]
struct CheckArgs {
    /// The file, or - for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
}

const CHECK_HELP: &str = "\
Examples:
  loxley config check loxley.yaml && echo fine
  loxley config default | loxley config check -
  loxley config check --json loxley.yaml

Exit codes: 0 no mistakes, 1 the file could not be read, 3 mistakes.";

/// Print the default configuration as a file in which every key is explained.
#[derive(Debug, clap::Args)]
#[command(after_help = DEFAULT_HELP)]
struct DefaultArgs {
    /// Print every key with its meaning, what it allows and its default, as a JSON array.
    #[arg(long)]
    json: bool,
}

const DEFAULT_HELP: &str = "\
Examples:
  loxley config default > loxley.yaml
  loxley config default --json";

pub(crate) fn run(args: Args, out: &mut dyn Write) -> Result<Exit> {
    match args.command {
        Command::Check(args) => check(&args, out),
        Command::Default(args) => default(&args, out),
        Command::Reload(args) => crate::fleet::reload::run(&args, out),
    }
}

fn check(args: &CheckArgs, out: &mut dyn Write) -> Result<Exit> {
    let mistakes = loxley_config::parse_bytes(&input::read(&args.file)?)
        .err()
        .map(|mistakes| mistakes.in_file(&input::name(&args.file)));
    if args.json {
        let verdict = Verdict::new(&args.file, mistakes.as_ref());
        serde_json::to_writer(&mut *out, &verdict).map_err(io::Error::from)?;
        writeln!(out)?;
    } else if let Some(mistakes) = &mistakes {
        show(mistakes)?;
    } else {
        writeln!(io::stderr(), "{}: no mistakes", input::name(&args.file))?;
    }
    Ok(mistakes.map_or(Exit::Done, |_| Exit::Mistakes))
}

/// Shows each mistake under its line, on standard error.
pub(crate) fn show(mistakes: &Mistakes) -> io::Result<()> {
    let report = mistakes.report();
    let handler = MietteHandlerOpts::new().build();
    write!(io::stderr(), "{}", Shown { report, handler })
}

/// A report and who knows how to draw it: in colour on a terminal, plain elsewhere.
struct Shown<D> {
    report: D,
    handler: miette::MietteHandler,
}

impl<D: miette::Diagnostic> std::fmt::Display for Shown<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        miette::ReportHandler::debug(&self.handler, &self.report, f)
    }
}

/// What `config check --json` prints.
#[derive(Serialize)]
struct Verdict<'a> {
    file: String,
    ok: bool,
    mistakes: Vec<MistakeRow<'a>>,
}

#[derive(Serialize)]
struct MistakeRow<'a> {
    kind: &'static str,
    line: usize,
    column: usize,
    message: &'a str,
    help: Option<&'a str>,
}

impl<'a> Verdict<'a> {
    fn new(file: &Path, mistakes: Option<&'a Mistakes>) -> Self {
        let row = |all: &'a Mistakes, mistake: &'a loxley_config::Mistake| {
            let (line, column) = all.position(mistake);
            MistakeRow {
                kind: mistake.kind.name(),
                line,
                column,
                message: &mistake.message,
                help: mistake.help.as_deref(),
            }
        };
        Self {
            file: input::name(file),
            ok: mistakes.is_none(),
            mistakes: mistakes
                .into_iter()
                .flat_map(|all| all.iter().map(move |mistake| row(all, mistake)))
                .collect(),
        }
    }
}

fn default(args: &DefaultArgs, out: &mut dyn Write) -> Result<Exit> {
    if args.json {
        let keys = loxley_config::keys();
        let rows: Vec<KeyRow<'_>> = keys.iter().map(KeyRow::new).collect();
        serde_json::to_writer_pretty(&mut *out, &rows).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        out.write_all(loxley_config::default_yaml().as_bytes())?;
    }
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct KeyRow<'a> {
    key: &'a str,
    about: &'a str,
    allowed: &'a str,
    default: &'a str,
}

impl<'a> KeyRow<'a> {
    fn new(info: &'a KeyInfo) -> Self {
        Self {
            key: &info.path,
            about: info.about,
            allowed: &info.allowed,
            default: &info.default,
        }
    }
}

//! The `loxley` command.
//!
//! One module for each subcommand, with its `Args` (what clap reads, and the help that teaches it)
//! and its `run`. To add one: a `mod` line, a variant of `Command`, an arm of `Command::run`.
//!
//! What must stay true: data goes to the writer that `run` gets (standard output), everything else
//! to standard error; a reader that goes away early (`loxley … | head`) is no failure; how a command
//! ends is an `Exit`.
//!
//! It is a library because cargo compiles one while those that it needs are still being optimized; a program waits for
//! them, and everybody for it, at the end of a first build.

mod advise;
mod bench;
mod completions;
mod config;
mod demo;
mod exit;
mod fleet;
mod input;
mod journal;
mod man;
mod recorded;
#[cfg(test)]
mod reference;
mod replay;
mod run;
mod runtime_directory;
mod sim;
mod tune;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use crate::exit::Exit;

/// Takes work from the busy and gives it to the idle.
#[derive(Debug, Parser)]
#[command(name = "loxley", version, after_help = HELP, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "\
Examples:
  loxley demo                            a real fleet at work, in five situations
  loxley run gzip -k ::: *.log           a command for each item, on all cores
  loxley advise costs.txt --parts 8      which way of dividing this work fits, and why
  loxley config default > loxley.yaml    start from a configuration in which every key is explained
  loxley config check loxley.yaml        find every mistake in it
  loxley sim adaptive                    watch work stealing in virtual time
  loxley replay ./journal --agents +2    what a recorded run would have been with two more agents
  loxley bench                           how fast it is on this machine, beside the plain way
  loxley server start                    a server; then `loxley agent start`, on as many machines
  loxley submit --wait -- ./work         a command, for whichever agent can do it
  loxley dashboard                       see it all in a browser; `loxley top` in a terminal

Exit codes:
  0  done
  1  failed: a file could not be read or written, or something else went wrong on the way
  2  the command line was not understood
  3  the input has mistakes, which were reported
  4  what was waited for did not succeed
  5  there is no such job, task or agent
  6  the server cannot be reached
  7  the server refused
  8  the time given for waiting is over
  130  interrupted
`loxley run` counts failures instead, and `loxley sem` ends as its command did: see their help.

Colour is used on terminals, never where NO_COLOR is set. `loxley help COMMAND` says more.";

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::Args>),
    Sem(run::sem::Args),
    Submit(Box<fleet::submit::Args>),
    Job(fleet::job::Args),
    Task(fleet::task::Args),
    Agent(fleet::agent::Args),
    User(fleet::user::Args),
    Server(fleet::server::Args),
    Dashboard(fleet::dashboard::Args),
    Top(fleet::top::Args),
    Advise(advise::Args),
    Demo(demo::Args),
    Config(config::Args),
    Sim(sim::Args),
    Replay(replay::Args),
    Tune(tune::Args),
    Bench(bench::Args),
    Journal(journal::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// The same with one command: to describe the others to the parser takes longer than it takes to run `true`.
#[derive(Debug, Parser)]
#[command(name = "loxley", version, max_term_width = 100)]
struct OnlyRun {
    #[command(subcommand)]
    command: RunCommand,
}

#[derive(Debug, Subcommand)]
enum RunCommand {
    Run(Box<run::Args>),
}

/// What the command line says.
fn parse(arguments: Vec<OsString>) -> clap::error::Result<Command> {
    if arguments.get(1).is_some_and(|word| word == "run")
        && let Ok(OnlyRun { command }) = OnlyRun::try_parse_from(&arguments)
    {
        let RunCommand::Run(args) = command;
        return Ok(Command::Run(args));
    }
    // Also whoever is not understood, or asks for help, is answered by the whole.
    Cli::try_parse_from(arguments).map(|cli| cli.command)
}

impl Command {
    fn run(self, out: &mut dyn Write) -> Result<Exit> {
        match self {
            Self::Run(args) => run::run(*args, out),
            Self::Sem(args) => run::sem::run(&args, out),
            Self::Submit(args) => fleet::submit::run(*args, out),
            Self::Job(args) => fleet::job::run(args, out),
            Self::Task(args) => fleet::task::run(args, out),
            Self::Agent(args) => fleet::agent::run(args, out),
            Self::User(args) => fleet::user::run(args, out),
            Self::Server(args) => fleet::server::run(args, out),
            Self::Dashboard(args) => fleet::dashboard::run(&args, out),
            Self::Top(args) => fleet::top::run(&args, out),
            Self::Advise(args) => advise::run(&args, out),
            Self::Demo(args) => demo::run(&args, out),
            Self::Config(args) => config::run(args, out),
            Self::Sim(args) => sim::run(&args, out),
            Self::Replay(args) => replay::run(&args, out),
            Self::Tune(args) => tune::run(&args, out),
            Self::Bench(args) => bench::run(&args, out),
            Self::Journal(args) => journal::run(args, out),
            Self::Completions(args) => completions::run(&args, out),
            Self::Man(args) => man::run(&args, out),
        }
    }
}

/// The word that makes this program a guardian. Nobody but we ourselves starts one.
const GUARDIAN: &str = "guardian";

/// How tasks are ended if this process is killed: by itself, as another process.
fn guardian_program() -> loxley_exec::GuardianProgram {
    loxley_exec::GuardianProgram {
        // Also when the file has been replaced meanwhile.
        program: "/proc/self/exe".into(),
        arguments: vec![GUARDIAN.into()],
    }
}

/// Does what the command line of this process says.
pub fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == GUARDIAN) {
        let words: Vec<_> = words.collect();
        let stood = loxley_exec::stand_guard(&words);
        return stood.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            complain(&error);
            return Exit::RunFailed.into();
        }
    };
    let command = match parse(arguments) {
        Ok(command) => command,
        Err(refusal) => return refuse(&refusal),
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = command.run(&mut out).and_then(|exit| {
        out.flush()?;
        Ok(exit)
    });
    match result {
        Ok(exit) => exit.into(),
        Err(error) if is_closed_pipe(&error) => Exit::Done.into(),
        Err(error) => {
            complain(&error);
            fleet::exit_of(&error).unwrap_or(Exit::Failed).into()
        }
    }
}

/// The command line. As with GNU parallel, `$PARALLEL` holds options that `run` always has.
fn arguments() -> Result<Vec<OsString>> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let options = std::env::var_os("PARALLEL").filter(|options| !options.is_empty());
    if let Some(options) = options
        && arguments.get(1).is_some_and(|command| command == "run")
    {
        let words = loxley_exec::split_words(&options).with_context(|| {
            let options = options.display();
            format!("PARALLEL is `{options}`: options and quotations alone can be in it; `unset PARALLEL` does without")
        })?;
        arguments.splice(2..2, words);
    }
    // `parallel --semaphore` is `sem`.
    if let [_, command, option, ..] = &arguments[..]
        && command == "run"
        && option == "--semaphore"
    {
        arguments.splice(1..3, ["sem".into()]);
    }
    Ok(arguments)
}

/// Help and version are answers, on standard output; the rest is a complaint, on standard error.
fn refuse(refusal: &clap::Error) -> ExitCode {
    let is_run = std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "run" || word == "sem");
    let is_submit = std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "submit");
    let advice = match is_run {
        true => advice(refusal),
        false => is_submit.then(|| missing_dashes(refusal)).flatten(),
    };
    match advice {
        Some(advice) => complain(&anyhow::Error::msg(advice)),
        // Whoever closed the stream does not want to know.
        None => _ = refusal.print(),
    }
    match refusal.use_stderr() {
        false => Exit::Done.into(),
        true if is_run => Exit::RunFailed.into(),
        true => Exit::Usage.into(),
    }
}

/// What to say of an option of GNU parallel or xargs that `run` does not have.
fn advice(refusal: &clap::Error) -> Option<String> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    if refusal.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let ContextValue::String(option) = refusal.get(ContextKind::InvalidArg)? else {
        return None;
    };
    let advice = run::other_options::advice(option)?;
    Some(format!("{option} is not there: {advice}"))
}

/// What to say of `loxley submit echo hi`.
fn missing_dashes(refusal: &clap::Error) -> Option<String> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    if refusal.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let ContextValue::String(word) = refusal.get(ContextKind::InvalidArg)? else {
        return None;
    };
    let words: Vec<String> = std::env::args().skip(2).collect();
    let first = words.iter().position(|word| !word.starts_with('-'))?;
    // An option that is not ours, in front of everything else, is a mistake of its own.
    let refused = words.iter().position(|found| found == word)?;
    (first < refused).then(|| {
        let (options, command) = words.split_at(first);
        let options: String = options.iter().map(|option| format!("{option} ")).collect();
        let command = command.join(" ");
        format!("`{word}` is not understood here; a command comes after `--`: `loxley submit {options}-- {command}`")
    })
}

fn complain(error: &anyhow::Error) {
    // With nowhere left to complain, the exit code has to do.
    let _ = writeln!(io::stderr(), "loxley: {error:#}");
}

/// Whether the reader of our output went away, as `head` does when it has enough.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }

    /// Every command that does something, by its words.
    fn leaves(command: &clap::Command, words: &str) -> Vec<(String, clap::Command)> {
        let words = format!("{words} {}", command.get_name());
        let below: Vec<_> = command
            .get_subcommands()
            .filter(|below| below.get_name() != "help")
            .flat_map(|below| leaves(below, &words))
            .collect();
        match below.is_empty() {
            true => vec![(words, command.clone())],
            false => below,
        }
    }

    #[test]
    fn every_command_takes_json_and_teaches_with_examples() {
        let mut command = super::Cli::command();
        command.build();
        let leaves = leaves(&command, "");
        assert!(leaves.len() > 30, "all of them: {}", leaves.len());
        for (words, mut leaf) in leaves {
            let json = leaf
                .get_arguments()
                .any(|arg| arg.get_long() == Some("json"));
            assert!(json, "{words} has no --json");
            let help = leaf.render_long_help().to_string();
            assert!(help.contains("Examples:"), "{words} shows no example");
            assert!(
                leaf.get_about().is_some(),
                "{words} does not say what it is for"
            );
        }
    }
}

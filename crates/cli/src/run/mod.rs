//! `loxley run`: a command for each item, or a job file, on all cores, with no server.
//!
//! ```text
//! items, feed ─┐
//!              ├▶ source ──▶ engine (owns the Scheduler) ──▶ slots (a thread and a process each)
//! job file ────┘               ▲   │                            │
//!                              │   ▼ delivery: output, log      │
//!                              │     chronicle: the story of a job
//!                              └────────────── events ◀─────────┘
//! ```

mod amounts;
mod chronicle;
mod delivery;
mod engine;
mod feed;
mod gate;
mod halt;
mod items;
mod job;
mod joblog;
mod limit;
mod progress;
mod results;
mod slots;
mod source;
mod summary;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use clap::ValueEnum;
use loxley_agent::{Filling, Limits, Streams, Template};
use loxley_jobfile::Ranges;
use loxley_jobfile::amount::{bytes, duration};
use loxley_model::{AgentId, AgentSpec, Dispatch, RetryRule, SkillSet, TaskKind};
use loxley_policy::Config;

use self::amounts::{Slots, TimeLimit};
use self::delivery::Delivery;
use self::engine::{Engine, Event, Parts};
use self::feed::{Feed, Next};
use self::gate::Gate;
use self::halt::Halt;
use self::items::{CommandLine, Items};
use self::joblog::{Earlier, JobLog};
use self::limit::{GroupLimit, SharedLimit};
use self::progress::Progress;
use self::slots::{House, Recipe};
use self::source::{ItemSource, Source};
use self::summary::Summary;
use crate::exit::Exit;

/// Run a command for each item, or a job file, on all cores.
///
/// Items are what follows `:::`, the lines of a file or of standard input, or numbers. The output of
/// each task is shown whole when it ends. A single word that ends in .yaml or .yml is a job file:
/// tasks with skills, priorities, dependencies and limits, and the agents to run them.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The command with its placeholders, then `:::` and items (or `::::` and files), once or more
    /// often: every combination is a task. Without a command, each item is one.
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    words: Vec<OsString>,

    /// How many tasks run at once: 8, 50% of the cores, +1 or -1 [default: as many as cores].
    #[arg(short, long, value_name = "N", allow_hyphen_values = true)]
    jobs: Option<Slots>,

    /// Take the items from the lines of a file; - for standard input.
    #[arg(
        short = 'a',
        long,
        value_name = "FILE",
        conflicts_with = "array",
        alias = "arg-file"
    )]
    each_line: Option<PathBuf>,
    /// Take numbers as items: 1-1000, 1-9:2, 1,3,5-8.
    #[arg(long, value_name = "RANGE")]
    array: Option<Ranges>,
    /// Items end with a zero byte instead of a line break.
    #[arg(short = '0', long)]
    null: bool,
    /// Items end with this byte instead of a line break: a letter, \\t, \\n or \\0.
    #[arg(short, long, value_name = "BYTE", conflicts_with = "null", value_parser = delimiter)]
    delimiter: Option<u8>,
    /// So many items for each command: {1} is the first of them, {} all; 0 is --no-item.
    #[arg(short = 'n', short_alias = 'N', long, value_name = "N")]
    max_args: Option<usize>,
    /// Cut each item into columns at this text (\\t is a tab): {1} is the first column.
    #[arg(short = 'C', long, value_name = "TEXT", value_parser = separator)]
    colsep: Option<OsString>,
    /// Expected costs of the tasks in seconds, one per line; the heaviest start first.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,

    /// Do not put the item last where the command has no placeholder: run it as it is, once for each.
    #[arg(long)]
    no_item: bool,
    /// Take each word of the command as one argument, as it is: no shell.
    #[arg(short, long)]
    quote: bool,
    /// The shell for commands that need one.
    #[arg(long, value_name = "PATH", default_value = "/bin/sh")]
    shell: OsString,
    /// Print the commands and run nothing.
    #[arg(long)]
    dry_run: bool,

    /// Show output in the order of the items.
    #[arg(short, long, conflicts_with = "ungroup")]
    keep_order: bool,
    /// Put the item in front of each line of output.
    #[arg(long, conflicts_with = "ungroup")]
    tag: bool,
    /// Show output as it comes, mixed.
    #[arg(short, long, conflicts_with_all = ["results", "json"])]
    ungroup: bool,
    /// Print each task, with its output, and the summary as one JSON object per line.
    #[arg(long, conflicts_with = "tag")]
    json: bool,
    /// Print each command to standard error when its output is shown.
    #[arg(short = 't', long)]
    verbose: bool,
    /// Show how far it is [default: where standard error is a terminal].
    #[arg(long, visible_alias = "progress", alias = "eta")]
    bar: bool,
    /// Say at the end how well the work was balanced; auto means on terminals, and for job files.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    summary: When,
    /// Draw the timeline of a job file to this HTML file [default: NAME-report.html].
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Draw nothing.
    #[arg(long, conflicts_with = "report")]
    no_report: bool,

    /// How long a task may run: 10s, or 200% of the median. Then TERM, and KILL two seconds later.
    #[arg(long, value_name = "TIME")]
    timeout: Option<TimeLimit>,
    /// How often a task that failed is tried again, after a pause that doubles.
    #[arg(long, value_name = "N", default_value_t = 0)]
    retries: u32,
    /// Stop early: now,fail=1 kills what runs, soon,fail=10% lets it finish; also success, done.
    #[arg(long, value_name = "RULE")]
    halt: Option<Halt>,
    /// Start a second copy of a task that takes twice as long as the others; the first to end counts.
    /// Only for commands that do no harm when they run twice.
    #[arg(long)]
    speculate: bool,

    /// Write a line for each task, in the columns of GNU parallel.
    #[arg(long, value_name = "FILE")]
    joblog: Option<PathBuf>,
    /// Leave out the tasks that are in the job log.
    #[arg(long, requires = "joblog")]
    resume: bool,
    /// Leave out the tasks that succeeded according to the job log.
    #[arg(long, requires = "joblog")]
    resume_failed: bool,
    /// Keep the output of each task in files: DIR/1/ITEM/stdout and stderr.
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,

    /// Keep the checkpoints of a job file here, for later runs too [default: gone after the run].
    #[arg(long, value_name = "DIR")]
    checkpoints: Option<PathBuf>,

    /// At most N tasks of a group at once, over all runs of yours on this machine; of a job file, the
    /// limit of one of its groups.
    #[arg(long, value_name = "GROUP=N")]
    limit: Vec<GroupLimit>,
    /// Wait so long between two starts.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    delay: Option<Duration>,
    /// Start a task only while so much memory is free.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memfree: Option<u64>,
    /// Start a task only while the load is at most this; 100% is one for each core.
    #[arg(long, value_name = "LOAD", value_parser = load)]
    load: Option<Load>,
    /// How much memory each process of a task may map.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory: Option<u64>,
    /// How the scheduler decides; see `loxley config default`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

const HELP: &str = "\
Placeholders:
  {}    the item            {#}  the number of the task, from 1
  {.}   without extension   {%}  the number of the slot, from 1
  {/}   without directory   {/.} without both
  {//}  its directory       {1} {2.} {1/} … with several lists, that of one of them
Items arrive as exactly their own bytes, wherever the placeholder stands. Without any placeholder
the item is put last.

Examples:
  loxley run gzip -k ::: *.log
  loxley run 'convert {} {.}.png' ::: *.jpg
  loxley run -j4 --tag 'ping -c1 {}' < hosts.txt
  loxley run 'train --rate {1} --depth {2}' ::: 0.1 0.01 ::: 3 5 7
  loxley run 'mv {1} {2}' ::: old1 old2 :::+ new1 new2
  loxley run --array 1-1000 --retries 3 --timeout 200% --joblog log --resume './step {}'
  find . -name '*.c' -print0 | loxley run -0 --halt now,fail=1 'cc -c {} -o {.}.o'

Job files:
  loxley run examples/quickstart.yaml                  shows progress, then the balance report
  loxley run nightly.yaml --report nightly.html --joblog log --resume
  The guide docs/guide/job-files.md explains every key. Mistakes are shown with their line.

Each task finds LOXLEY_JOB_ID, LOXLEY_TASK_ID, LOXLEY_ENTRY (its items), LOXLEY_ATTEMPT and
LOXLEY_SLOT in its environment; in a job file, with `checkpoint: true`, also LOXLEY_CHECKPOINT.

Interrupt (^C) once: what runs is finished, nothing more is started. Twice: it is killed.

Exit codes: 0 every task succeeded, or enough for --halt success; 1 to 100 so many failed, 101 more
failed, 130 it was interrupted, 255 something else went wrong.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    Auto,
    Always,
    Never,
}

/// A load average: absolute, or for each core.
#[derive(Clone, Copy, Debug)]
struct Load {
    value: f64,
    per_core: bool,
}

fn load(text: &str) -> Result<Load, String> {
    let (number, per_core) = match text.strip_suffix('%') {
        Some(number) => (number, true),
        None => (text, false),
    };
    let value = number.parse::<f64>().ok().filter(|value| *value > 0.0);
    let value = value.ok_or_else(|| format!("`{text}` is not a load like 4 or 100%"))?;
    Ok(Load {
        value: if per_core { value / 100.0 } else { value },
        per_core,
    })
}

pub(crate) fn run(args: Args, out: &mut dyn Write) -> Result<Exit> {
    match perform(args, out) {
        // Whoever read our output has enough; the tasks were stopped.
        Err(error) if crate::is_closed_pipe(&error) => Ok(Exit::Done),
        Err(error) => {
            crate::complain(&error);
            Ok(Exit::RunFailed)
        }
        Ok(exit) => Ok(exit),
    }
}

fn perform(mut args: Args, out: &mut dyn Write) -> Result<Exit> {
    if job::is_job_file(&args.words) {
        return match with_options_behind_the_file(args)? {
            Ok((args, file)) => job::run(args, &file, out),
            Err(refusal) => {
                // Whoever closed the stream does not want to know.
                let _ = refusal.print();
                Ok(match refusal.use_stderr() {
                    true => Exit::RunFailed,
                    false => Exit::Done,
                })
            }
        };
    }
    if args.report.is_some() || args.checkpoints.is_some() {
        bail!("--report and --checkpoints are for job files");
    }
    let line = CommandLine::parse(std::mem::take(&mut args.words))?;
    args.no_item |= args.max_args == Some(0);
    let items = shaped(items(&args, line.lists)?, &args)?;
    let template = if args.quote && !line.command.is_empty() {
        Template::parse_words(&line.command, items.lists, !args.no_item)?
    } else {
        Template::parse(&line.command, items.lists, !args.no_item, &args.shell)?
    };
    let (sender, receiver) = channel();
    let mut feed = match &args.weights {
        None => Feed::in_order(items, &sender)?,
        Some(file) => Feed::heaviest_first(items, &weights(file)?)?,
    };
    let (log, earlier) = joblog(&args)?;
    feed.resume(earlier, args.resume_failed);
    if args.dry_run {
        return dry_run(feed, &receiver, &template, out);
    }
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let mut delivery = Delivery::new(args.keep_order, args.tag, args.json);
    delivery.verbose = args.verbose;
    delivery.log = log;
    delivery.results = args.results.take();
    watch_interrupts(sender.clone())?;
    let terminal = io::stderr().is_terminal();
    let slots = args.jobs.map_or(cores as u32, |jobs| jobs.on(cores));
    let mut gate = gate(&args, cores);
    let root = limit::root();
    for limit in &args.limit {
        gate.limits.push(SharedLimit::new(&root, limit)?);
    }
    let engine = Engine::new(Parts {
        config: config(&args)?,
        house: Arc::new(House {
            gate,
            job: std::process::id(),
            hold: slots::HOLD,
        }),
        agents: (0..slots).map(slot_agent).collect(),
        limits: Vec::new(),
        source: Source::Items(ItemSource {
            feed,
            recipe: Arc::new(recipe(&args, template)),
            kind: Arc::new(kind(&args)),
            jobs: 0,
        }),
        delivery,
        progress: Progress::new(args.bar || terminal),
        chronicle: None,
        halt: args.halt,
        median_limit: match args.timeout {
            Some(TimeLimit::OfMedian(ratio)) => Some(ratio),
            _ => None,
        },
        events: (sender, receiver),
    })?;
    let (summary, _) = engine.run(out)?;
    if args.json {
        summary.show_json(out)?;
    }
    if args.summary == When::Always || (args.summary == When::Auto && terminal) {
        summary.show(&mut io::stderr())?;
    }
    Ok(exit_of(&summary))
}

/// Prints what would run.
fn dry_run(
    mut feed: Feed,
    events: &std::sync::mpsc::Receiver<Event>,
    template: &Template,
    out: &mut dyn Write,
) -> Result<Exit> {
    use std::os::unix::ffi::OsStrExt;
    loop {
        match feed.next()? {
            Next::Item(item) => {
                let filling = Filling {
                    items: &item.items,
                    sequence: item.sequence,
                    slot: 1,
                };
                out.write_all(template.line(&filling).as_bytes())?;
                writeln!(out)?;
            }
            Next::Skipped(_) => {}
            Next::Nothing => {
                out.flush()?;
                events.recv().context("the items never end")?;
            }
            Next::End => return Ok(Exit::Done),
        }
    }
}

/// The items, cut into columns or put together as the command line says.
fn shaped(mut items: Items, args: &Args) -> Result<Items> {
    if let Some(separator) = &args.colsep {
        items = items.columns(separator.clone());
    }
    match args.max_args.and_then(NonZero::new) {
        Some(size) => items.batched(size),
        None => Ok(items),
    }
}

/// One byte; some are hard to type.
fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] => Ok(*byte),
        b"\\t" => Ok(b'\t'),
        b"\\n" => Ok(b'\n'),
        b"\\0" => Ok(0),
        _ => Err(format!("`{text}` is not one byte")),
    }
}

/// A text that is not empty; `\t` is a tab, which is hard to type.
fn separator(text: &str) -> Result<OsString, String> {
    match text {
        "" => Err("a separator is not empty".to_owned()),
        "\\t" => Ok("\t".into()),
        text => Ok(text.into()),
    }
}

fn items(args: &Args, lists: Vec<items::List>) -> Result<Items> {
    let end = args.delimiter.unwrap_or(if args.null { 0 } else { b'\n' });
    let sources = usize::from(!lists.is_empty())
        + usize::from(args.each_line.is_some())
        + usize::from(args.array.is_some());
    if sources > 1 {
        bail!("items come from one place: `:::`, --each-line or --array");
    }
    if let Some(array) = &args.array {
        return Ok(Items::array(array));
    }
    if !lists.is_empty() {
        return Items::product(lists, end);
    }
    let file = args.each_line.as_deref().unwrap_or(Path::new("-"));
    if file == Path::new("-") && io::stdin().is_terminal() {
        writeln!(
            io::stderr(),
            "loxley: reading items from the terminal, one per line; end with ^D"
        )?;
    }
    Items::file(file, end)
}

fn weights(file: &Path) -> Result<Vec<f64>> {
    let bytes = crate::input::read(file)?;
    let text = String::from_utf8_lossy(&bytes);
    (1..)
        .zip(text.lines())
        .map(|(number, line)| {
            let weight = line.trim().parse::<f64>().ok();
            weight
                .filter(|weight| weight.is_finite() && *weight >= 0.0)
                .with_context(|| format!("{}:{number}: not a weight", file.display()))
        })
        .collect()
}

fn joblog(args: &Args) -> Result<(Option<JobLog>, Earlier)> {
    Ok(match &args.joblog {
        None => (None, Earlier::new()),
        Some(path) if args.resume || args.resume_failed => {
            let (log, earlier) = JobLog::resume(path)?;
            (Some(log), earlier)
        }
        // A dry run changes nothing.
        Some(_) if args.dry_run => (None, Earlier::new()),
        Some(path) => (Some(JobLog::create(path)?), Earlier::new()),
    })
}

/// What follows the first word of a command belongs to the command; what follows a job file are
/// options of ours, so they are read again, in front of it.
fn with_options_behind_the_file(mut args: Args) -> Result<Result<(Args, PathBuf), clap::Error>> {
    let words = std::mem::take(&mut args.words);
    let file = words[0].clone();
    if words.len() > 1 {
        let mut line: Vec<OsString> = std::env::args_os().collect();
        line.truncate(line.len().saturating_sub(words.len()));
        line.extend(words.into_iter().skip(1));
        match crate::Cli::try_parse_from(line).map(|cli| cli.command) {
            Ok(crate::Command::Run(again)) => args = *again,
            Ok(_) => bail!("what follows {} is not understood", file.display()),
            Err(refusal) => return Ok(Err(refusal)),
        }
        if let Some(word) = args.words.first() {
            bail!("`{}` is too much: a job file stands alone", word.display());
        }
    }
    Ok(Ok((args, file.into())))
}

/// A slot as an agent of its own: work is stolen between agents.
fn slot_agent(number: u32) -> AgentSpec {
    AgentSpec {
        dispatch: Dispatch::KeepFull,
        ..AgentSpec::new(AgentId(number.into()), SkillSet::none())
    }
}

fn streams(args: &Args) -> Streams {
    match args.ungroup {
        true => Streams::Inherited,
        false => Streams::Captured,
    }
}

fn recipe(args: &Args, template: Template) -> Recipe {
    Recipe {
        template,
        streams: streams(args),
        limits: Limits {
            time: match args.timeout {
                Some(TimeLimit::Fixed(time)) => Some(time),
                _ => None,
            },
            memory: args.memory,
            ..Limits::default()
        },
        environment: Vec::new(),
        directory: None,
    }
}

fn gate(args: &Args, cores: usize) -> Gate {
    Gate {
        delay: args.delay.unwrap_or_default(),
        memory_free: args.memfree,
        load_max: args.load.map(|load| match load.per_core {
            true => load.value * cores as f64,
            false => load.value,
        }),
        ..Gate::default()
    }
}

fn kind(args: &Args) -> TaskKind {
    TaskKind {
        retry: RetryRule {
            retries: args.retries,
            ..RetryRule::default()
        },
        speculate: args.speculate,
        ..TaskKind::default()
    }
}

fn config(args: &Args) -> Result<Config> {
    let config = match &args.config {
        Some(file) => loxley_config::parse_bytes(&crate::input::read(file)?)
            .map_err(|mistakes| anyhow::Error::msg(mistakes.in_file(&crate::input::name(file))))?,
        None => {
            let mut config = Config::default();
            // Items should start in their order: whoever steals takes the oldest.
            config.work_stealing.prefer_recent_tasks = false;
            config
        }
    };
    Ok(with_halt(config, args))
}

fn with_halt(mut config: Config, args: &Args) -> Config {
    if args.halt.is_some() {
        // After the failure that ends it all, no slot may find another task on its desk.
        config.prefetch.max_depth = 0;
    }
    config
}

/// Turns signals into events, for as long as the process lives.
fn watch_interrupts(events: Sender<Event>) -> Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])
        .context("cannot watch for interrupts")?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for _ in signals.forever() {
                if events.send(Event::Interrupted).is_err() {
                    return;
                }
            }
        })?;
    Ok(())
}

fn exit_of(summary: &Summary) -> Exit {
    match summary.tally.failed {
        _ if summary.interrupted => Exit::Interrupted,
        _ if summary.is_enough => Exit::Done,
        0 => Exit::Done,
        failed => Exit::TasksFailed(failed.min(101) as u8),
    }
}

//! `loxley run`: a command for each item, on all cores, with no server.
//!
//! ```text
//! items, feed ──▶ engine (owns the Scheduler) ──▶ slots (a thread and a process each)
//!                   ▲   │                            │
//!                   │   ▼ delivery: output, log      │
//!                   └────────────── events ◀─────────┘
//! ```

mod amounts;
mod delivery;
mod engine;
mod feed;
mod gate;
mod halt;
mod items;
mod joblog;
mod progress;
mod results;
mod slots;
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
use clap::ValueEnum;
use loxley_agent::{Filling, Limits, Streams, Template};
use loxley_jobfile::Ranges;
use loxley_jobfile::amount::{bytes, duration};
use loxley_model::{RetryRule, TaskKind};
use loxley_policy::Config;

use self::amounts::{Slots, TimeLimit};
use self::delivery::Delivery;
use self::engine::{Engine, Event, Parts, Summary};
use self::feed::{Feed, Next};
use self::gate::Gate;
use self::halt::Halt;
use self::items::{CommandLine, Items};
use self::joblog::{Earlier, JobLog};
use self::progress::Progress;
use self::slots::Setup;
use crate::exit::Exit;

/// Run a command for each item, on all cores.
///
/// Items are what follows `:::`, the lines of a file or of standard input, or numbers. The output of
/// each task is shown whole when it ends.
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
    #[arg(short = 'a', long, value_name = "FILE", conflicts_with = "array")]
    each_line: Option<PathBuf>,
    /// Take numbers as items: 1-1000, 1-9:2, 1,3,5-8.
    #[arg(long, value_name = "RANGE")]
    array: Option<Ranges>,
    /// Items end with a zero byte instead of a line break.
    #[arg(short = '0', long)]
    null: bool,
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
    /// Show how far it is [default: where standard error is a terminal].
    #[arg(long, visible_alias = "progress")]
    bar: bool,
    /// Say at the end how well the work was balanced.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    report: When,

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
  loxley run --array 1-1000 --retries 3 --timeout 200% --joblog log --resume './step {}'
  find . -name '*.c' -print0 | loxley run -0 --halt now,fail=1 'cc -c {} -o {.}.o'

Interrupt (^C) once: what runs is finished, nothing more is started. Twice: it is killed.

Exit codes: 0 every task succeeded, 1 to 100 so many failed, 101 more failed, 130 it was
interrupted, 255 something else went wrong.";

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
    let line = CommandLine::parse(std::mem::take(&mut args.words))?;
    let items = items(&args, line.lists)?;
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
    delivery.log = log;
    delivery.results = args.results.take();
    watch_interrupts(sender.clone())?;
    let terminal = io::stderr().is_terminal();
    let engine = Engine::new(Parts {
        config: config(&args)?,
        setup: Arc::new(setup(&args, template, cores)),
        slots: args.jobs.map_or(cores as u32, |jobs| jobs.on(cores)),
        kind: kind(&args),
        feed,
        delivery,
        progress: Progress::new(args.bar || terminal),
        halt: args.halt,
        median_limit: match args.timeout {
            Some(TimeLimit::OfMedian(ratio)) => Some(ratio),
            _ => None,
        },
        events: (sender, receiver),
    })?;
    let summary = engine.run(out)?;
    if args.json {
        summary.show_json(out)?;
    }
    if args.report == When::Always || (args.report == When::Auto && terminal) {
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

fn items(args: &Args, lists: Vec<items::List>) -> Result<Items> {
    let end = if args.null { 0 } else { b'\n' };
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

fn setup(args: &Args, template: Template, cores: usize) -> Setup {
    let load_max = args.load.map(|load| match load.per_core {
        true => load.value * cores as f64,
        false => load.value,
    });
    Setup {
        template,
        streams: if args.ungroup {
            Streams::Inherited
        } else {
            Streams::Captured
        },
        limits: Limits {
            time: match args.timeout {
                Some(TimeLimit::Fixed(time)) => Some(time),
                _ => None,
            },
            memory: args.memory,
            ..Limits::default()
        },
        gate: Gate {
            delay: args.delay.unwrap_or_default(),
            memory_free: args.memfree,
            load_max,
            ..Gate::default()
        },
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
    let mut config = match &args.config {
        Some(file) => loxley_config::parse_bytes(&crate::input::read(file)?)
            .map_err(|mistakes| anyhow::Error::msg(mistakes.in_file(&crate::input::name(file))))?,
        None => {
            let mut config = Config::default();
            // Items should start in their order: whoever steals takes the oldest.
            config.work_stealing.prefer_recent_tasks = false;
            config
        }
    };
    if args.halt.is_some() {
        // After the failure that ends it all, no slot may find another task on its desk.
        config.prefetch.max_depth = 0;
    }
    Ok(config)
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
        0 => Exit::Done,
        failed => Exit::TasksFailed(failed.min(101) as u8),
    }
}

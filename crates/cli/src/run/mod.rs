//! `loxley run`: a command for each item, or a job file, on all cores, with no server.
//!
//! ```text
//! items, feed ─┐
//!              ├▶ source ──▶ runner (owns the engine) ─────▶ slots (a thread and a process each)
//! job file ────┘               ▲   │                            │
//!                              │   ▼ delivery: output, log      │
//!                              │     run_trace: the story of a job
//!                              └────────────── events ◀─────────┘
//! ```

mod amounts;
mod blocks;
mod delivery;
mod feed;
mod group_limit;
mod halt;
mod items;
pub(crate) mod job;
mod joblog;
mod lines;
pub(crate) mod other_options;
mod progress;
mod results;
mod run_trace;
mod runner;
pub(crate) mod sem;
mod source;
mod summary;
pub(crate) mod watched;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Parser, ValueEnum};
use loxley_api::{CommandRequest, Entries, RetryRequest, TaskRequest};
use loxley_engine::AgentRecord;
use loxley_exec::{
    Filling, Guardian, Keep, Limits, LineWriter, OutputRule, Recipe, Replacement, SharedLimit,
    SlotSettings, StartGate, Streams, Template, Vocabulary, Work,
};
use loxley_jobfile::Ranges;
use loxley_jobfile::amount::{bytes, duration};
use loxley_journal::{Journal, SqliteJournal};
use loxley_policy::Config;

use self::amounts::{BlockSize, Slots, TimeLimit};
use self::blocks::{Blocks, Cut, Rule};
use self::delivery::Delivery;
use self::feed::{Feed, Next};
use self::group_limit::GroupLimit;
use self::halt::Halt;
use self::items::{CommandLine, Items, List, Room, Separator, Trim};
use self::joblog::{Earlier, JobLog};
use self::lines::Lines;
use self::progress::Progress;
use self::results::Results;
use self::runner::{Afterwards, Event, Parts, Runner};
use self::source::{ItemSource, Source};
use self::summary::Summary;
use self::watched::Watched;
use crate::exit::Exit;

/// Run a command for each item, or a job file, on all cores.
///
/// Items are what follows `:::`, the lines of a file or of standard input, or numbers. The output of
/// each task is shown whole when it ends. A single word that ends in .yaml or .yml is a job file:
/// tasks with skills, priorities, dependencies and limits, and the agents to run them.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP, args_override_self = true)]
#[command(group(ArgGroup::new("blocks").args(["pipe", "pipe_part"]).multiple(true).conflicts_with_all([
    "array", "many", "many_words", "xargs", "colsep", "csv", "link", "trim", "shuf", "weights", "retry_failed", "null",
    "delimiter", "end",
])))]
pub(crate) struct Args {
    /// The command with its placeholders, then `:::` and items (or `::::` and files), once or more
    /// often: every combination is a task. Without a command, each item is one.
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    words: Vec<OsString>,

    /// How many tasks run at once: 8, 50% of the cores, +1 or -1, 0 for all of them (at most 252)
    /// [default: as many as cores].
    #[arg(
        short,
        short_alias = 'P',
        long,
        alias = "max-procs",
        value_name = "N",
        allow_hyphen_values = true
    )]
    jobs: Option<Slots>,

    /// Take the items from the lines of a file; - for standard input. Several files are several lists, like what
    /// follows `:::`.
    #[arg(
        short = 'a',
        long,
        value_name = "FILE",
        conflicts_with = "array",
        alias = "arg-file"
    )]
    each_line: Vec<PathBuf>,
    /// Take numbers as items: 1-1000, 1-9:2, 1,3,5-8.
    #[arg(long, value_name = "RANGE")]
    array: Option<Ranges>,
    /// Items end with a zero byte instead of a line break.
    #[arg(short = '0', long)]
    null: bool,
    /// Items end with this byte instead of a line break: a letter, \\t, \\n or \\0.
    #[arg(short, long, value_name = "BYTE", conflicts_with = "null", value_parser = delimiter)]
    delimiter: Option<u8>,
    /// Cut standard input (or the file of -a) into blocks between its records: each is what one task reads.
    #[arg(long, alias = "spreadstdin")]
    pipe: bool,
    /// The same as --pipe, of the file of -a.
    #[arg(long, alias = "pipepart", requires = "each_line")]
    pipe_part: bool,
    /// How much is read before a block is cut off [default: 1M]; -2 for two blocks of a file for each slot.
    #[arg(
        long,
        value_name = "SIZE",
        alias = "block-size",
        allow_hyphen_values = true,
        requires = "blocks"
    )]
    block: Option<BlockSize>,
    /// What a record begins with; \\n is a line break.
    #[arg(long, value_name = "TEXT", requires = "blocks")]
    recstart: Option<String>,
    /// What a record ends with [default: a line break, or nothing with --recstart].
    #[arg(
        long,
        value_name = "TEXT",
        requires = "blocks",
        allow_hyphen_values = true
    )]
    recend: Option<String>,
    /// Leave out the beginnings and ends of records.
    #[arg(long, aliases = ["rrs", "removerecsep"], requires = "blocks")]
    remove_rec_sep: bool,
    /// So many lines for each command; with --pipe, records of so many lines.
    #[arg(short = 'L', value_name = "N", conflicts_with = "max_args")]
    max_lines: Option<usize>,
    /// So many items for each command: {1} is the first of them, {} all; 0 is --no-item. With --pipe, so many
    /// records in each block.
    #[arg(short = 'n', short_aliases = ['N'], long, alias = "max-replace-args", value_name = "N")]
    max_args: Option<usize>,
    /// As many items for each command as its line has room for, at most those of -n; the last ones are shared out over the slots.
    #[arg(short = 'm', conflicts_with = "no_item")]
    many: bool,
    /// The same, but a whole word with {} in it is repeated for each: x{}.c is xa.c xb.c.
    #[arg(short = 'X', conflicts_with_all = ["many", "no_item"])]
    many_words: bool,
    /// The same as -m, but each command gets all it has room for, as xargs does it.
    #[arg(long, conflicts_with_all = ["many", "many_words", "no_item"])]
    xargs: bool,
    /// How long a command line may get with -m, -X and --xargs, in bytes.
    #[arg(short = 's', long, value_name = "N", default_value_t = LINE_MAX)]
    max_chars: usize,
    /// Cut each item into columns at this text or regular expression (\\t is a tab): {1} is the first column.
    #[arg(short = 'C', long, value_name = "PATTERN")]
    colsep: Option<Separator>,
    /// Lines are rows of a table as spreadsheets write them: columns between commas (or --colsep), quotes around
    /// what needs them.
    #[arg(long, conflicts_with = "array")]
    csv: bool,
    /// The first row, or the first item of each list, says what the columns are called: {name}.
    #[arg(long, value_name = ":", value_parser = header)]
    header: Option<()>,
    /// Leave out the first line.
    #[arg(long)]
    skip_first_line: bool,
    /// Take items up to one that is exactly this.
    #[arg(short = 'E', value_name = "TEXT")]
    end: Option<OsString>,
    /// Take lists side by side instead of every combination; shorter ones begin again.
    #[arg(long, alias = "xapply")]
    link: bool,
    /// Leave out items that are empty or blank.
    #[arg(short = 'r', long)]
    no_run_if_empty: bool,
    /// Take blanks from the left of items, from their right, or both: l, r, lr [default: n, none; lr with --colsep].
    #[arg(long, value_name = "WHERE")]
    trim: Option<Trim>,
    /// Take the items in a random order.
    #[arg(long)]
    shuf: bool,
    /// What stands before items instead of `:::`.
    #[arg(long, value_name = "TEXT", default_value = ":::", hide = true)]
    arg_sep: String,
    /// What stands before files of items instead of `::::`.
    #[arg(long, value_name = "TEXT", default_value = "::::", hide = true)]
    arg_file_sep: String,
    /// Expected costs of the tasks in seconds, one per line; the heaviest start first.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,

    /// Do not put the item last where the command has no placeholder: run it as it is, once for each.
    #[arg(long)]
    no_item: bool,
    /// What stands for the item instead of {}.
    #[arg(short = 'I', value_name = "TEXT")]
    item_name: Option<String>,
    /// More placeholders: {..} {/..} without two extensions, {+/} the directory, {+.} {+..} the extensions.
    #[arg(long)]
    plus: bool,
    /// A placeholder of your own and what it does to the item: '{o} s/\\.jpg$/.png/'; may be given more than once.
    #[arg(long, value_name = "REPLACEMENT")]
    rpl: Vec<Replacement>,
    /// Take each word of the command as one argument, as it is: no shell.
    #[arg(short, long)]
    quote: bool,
    /// The shell for commands that need one [default: PARALLEL_SHELL or SHELL, if it is one like sh, else /bin/sh].
    #[arg(long, value_name = "PATH")]
    shell: Option<OsString>,
    /// Where the tasks run [default: here].
    #[arg(long, visible_alias = "wd", value_name = "DIR")]
    workdir: Option<PathBuf>,
    /// How nice the tasks are to others: 10, as nice(1) takes it.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    nice: Option<i8>,
    /// Where output is kept until it is shown [default: TMPDIR, else /tmp].
    #[arg(long, value_name = "DIR")]
    tmpdir: Option<PathBuf>,
    /// A variable that the tasks need: it must be there. Tasks see the whole environment anyway, exported functions
    /// of the shell too.
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// Print the commands and run nothing.
    #[arg(long, alias = "dryrun")]
    dry_run: bool,

    /// Show output in the order of the items.
    #[arg(short, long, conflicts_with = "ungroup")]
    keep_order: bool,
    /// Put the item in front of each line of output.
    #[arg(long, conflicts_with = "ungroup")]
    tag: bool,
    /// Put this in front of each line of output; it may have placeholders.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["ungroup", "json"])]
    tagstring: Option<OsString>,
    /// Show output as it comes, mixed.
    #[arg(short, long, conflicts_with_all = ["results", "json"])]
    ungroup: bool,
    /// Show whole lines as they come, not mixed within a line; with --keep-order, of one task after the other.
    #[arg(
        long,
        visible_alias = "lb",
        alias = "linebuffer",
        conflicts_with_all = ["ungroup", "results", "json", "show_commands", "verbose"]
    )]
    line_buffer: bool,
    /// Print each task, with its output, and the summary as one JSON object per line.
    #[arg(long, conflicts_with = "tag")]
    json: bool,
    /// Print each command to standard error when its output is shown.
    #[arg(short = 't', long)]
    verbose: bool,
    /// Print each command to standard output, in front of its output.
    #[arg(short = 'v', conflicts_with = "json")]
    show_commands: bool,
    /// What GNU parallel does by default, and so do we.
    #[arg(long, hide = true, conflicts_with = "ungroup")]
    group: bool,
    /// Nobody asks for it here.
    #[arg(long, hide = true, alias = "no-notice")]
    will_cite: bool,
    /// Show how far it is: a bar on a terminal, elsewhere a line now and then [default: on terminals].
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
    #[arg(
        long,
        visible_alias = "halt-on-error",
        value_name = "RULE",
        allow_hyphen_values = true
    )]
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
    /// Run again the tasks that failed according to the job log, with the commands that are in it.
    #[arg(long, requires = "joblog", conflicts_with_all = ["resume", "resume_failed", "weights"])]
    retry_failed: bool,
    /// Keep the output of each task in files: DIR/1/ITEM/stdout and stderr; in files of your own names where there
    /// are placeholders (out/{1}.txt); or all in one table (FILE.csv, FILE.tsv).
    #[arg(long, value_name = "WHERE", alias = "res")]
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
    /// How much memory a task may use: all its processes together where the system lets us have control
    /// groups, else what each of them may map.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory: Option<u64>,
    /// Write everything down in this new directory, as a server does: `loxley journal report`, `check` and
    /// `export` read it.
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
    /// Serve the dashboard of this run on 127.0.0.1 and print a link that signs one browser in; until the run ends, or
    /// with =stay until Ctrl-C. What ran is kept meanwhile (in --journal DIR, or for as long as the dashboard is there).
    #[arg(
        long,
        value_name = "UNTIL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "end"
    )]
    dashboard: Option<Until>,
    /// How the scheduler decides; see `loxley config default`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// How long a dashboard is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Until {
    /// Until the run ends.
    End,
    /// Until somebody interrupts.
    Stay,
}

const HELP: &str = "\
Placeholders:
  {}    the item            {#}  the number of the task, from 1
  {.}   without extension   {%}  the number of the slot, from 1
  {/}   without directory   {/.} without both
  {//}  its directory       {1} {2.} {-1} … with several lists, that of one of them
Items arrive as exactly their own bytes, wherever the placeholder stands. Without any placeholder
the item is put last.

Examples:
  loxley run gzip -k ::: *.log
  loxley run 'convert {} {.}.png' ::: *.jpg
  loxley run -j4 --tag 'ping -c1 {}' < hosts.txt
  loxley run 'train --rate {1} --depth {2}' ::: 0.1 0.01 ::: 3 5 7
  loxley run 'mv {1} {2}' ::: old1 old2 :::+ new1 new2
  loxley run --pipe --block 10M wc -l < large.txt
  loxley run --array 1-1000 --retries 3 --timeout 200% --joblog log --resume './step {}'
  find . -name '*.c' -print0 | loxley run -0 --halt now,fail=1 'cc -c {} -o {.}.o'

Job files:
  loxley run examples/quickstart.yaml                  shows progress, then the balance report
  loxley run nightly.yaml --report nightly.html --joblog log --resume
  The guide docs/guide/job-files.md explains every key. Mistakes are shown with their line.

Each task finds LOXLEY_JOB_ID, LOXLEY_TASK_ID, LOXLEY_ENTRY (its items), LOXLEY_ATTEMPT and
LOXLEY_SLOT in its environment, and PARALLEL_SEQ and PARALLEL_JOBSLOT as with GNU parallel; in a job
file, with `checkpoint: true`, also LOXLEY_CHECKPOINT.

While it runs, `loxley top --run` shows it in another terminal, and `loxley dashboard --run` in a browser.
Interrupt (^C) once: what runs is finished, nothing more is started. Twice: it is killed, as with TERM,
HUP and QUIT: TERM to everything that a task started, KILL after a grace. If this process is itself
killed (-9), its tasks end with it; `LOXLEY_MARK` in their environment is how they are found.

Exit codes: 0 every task succeeded, or enough for --halt success; 1 to 100 so many failed, 101 more
failed, with --halt and a number of failures that of the last one that counted, with a share of
failures (10%) how many percent failed; 130 it was interrupted,
255 something else went wrong.";

impl Args {
    /// Whether each command gets as many items as its line has room for.
    fn fills_lines(&self) -> bool {
        self.many || self.many_words || self.xargs
    }
}

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

/// How late the ends of short tasks may be told of when no other task waits for them.
const HOLD: Duration = Duration::from_millis(4);

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
    check_surroundings(&args)?;
    let words = std::mem::take(&mut args.words);
    let line = CommandLine::parse(words, &args.arg_sep, &args.arg_file_sep)?;
    if args.pipe || args.pipe_part {
        return run_blocks(args, line, out);
    }
    args.max_args = args.max_args.or(args.max_lines);
    args.no_item |= args.max_args == Some(0);
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let slots = args.jobs.map_or(cores as u32, |jobs| jobs.on(cores));
    let items = shaped(items(&args, line.lists)?, &args)?;
    // A slot that nothing is left for would only count as idle.
    let slots = match (args.jobs, items.total) {
        (Some(Slots::All), Some(total)) => {
            slots.min(u32::try_from(total).unwrap_or(u32::MAX).max(1))
        }
        _ => slots,
    };
    let vocabulary = vocabulary(&args, &items);
    let template = template(&args, &line.command, &items, &vocabulary)?;
    let items = packed(items, &args, &template, slots)?;
    let (sender, receiver) = channel();
    let feed = match &args.weights {
        _ if args.retry_failed => Feed::again(failed(&args)?),
        None => Feed::in_order(items, &sender)?,
        Some(file) => Feed::heaviest_first(items, &weights(file)?)?,
    };
    let prepared = Prepared {
        feed,
        template,
        vocabulary,
        slots,
        ahead: AHEAD,
        events: (sender, receiver),
    };
    run_prepared(args, prepared, out)
}

/// How many tasks are submitted ahead, for each slot: more than it finishes before it tells of them.
const AHEAD: u64 = 32;

/// The same where each may be large.
const BLOCKS_AHEAD: u64 = 2;

/// `--pipe`: a task for each block of the input.
fn run_blocks(mut args: Args, line: CommandLine, out: &mut dyn Write) -> Result<Exit> {
    if line.command.is_empty() {
        bail!("--pipe: say which command reads the blocks, like `loxley run --pipe wc -l`");
    }
    if !line.lists.is_empty() {
        bail!(
            "--pipe: a command reads a block of the input; there are no items to put behind `:::`"
        );
    }
    args.no_item = true;
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let slots = args.jobs.map_or(cores as u32, |jobs| jobs.on(cores));
    let items = Items::none();
    let vocabulary = vocabulary(&args, &items);
    let template = template(&args, &line.command, &items, &vocabulary)?;
    let file = match args.each_line.as_slice() {
        [] => Path::new("-"),
        [file] => file,
        _ => bail!("--pipe: the blocks are of one file; `cat` puts several together"),
    };
    let input = items::reader(file)?;
    let (sender, receiver) = channel();
    let prepared = Prepared {
        feed: Feed::in_blocks(
            Blocks::new(Box::new(input), cut(&args, file, slots)?),
            &sender,
        )?,
        template,
        vocabulary,
        slots,
        ahead: BLOCKS_AHEAD,
        events: (sender, receiver),
    };
    run_prepared(args, prepared, out)
}

/// Where blocks of the input end.
fn cut(args: &Args, file: &Path, slots: u32) -> Result<Cut> {
    let size = match args.block {
        None => 1 << 20,
        Some(BlockSize::Bytes(size)) => size,
        Some(BlockSize::ForEachSlot(blocks)) => {
            let known = fs::metadata(file).ok().filter(fs::Metadata::is_file);
            let Some(known) = known else {
                bail!(
                    "--block: how large a block is follows from the size of a file: name it by -a"
                );
            };
            let blocks = u64::from(blocks.get()) * u64::from(slots);
            known.len().div_ceil(blocks).max(1)
        }
    };
    let Some(size) = usize::try_from(size).ok().filter(|size| *size > 0) else {
        bail!("--block: a block has at least one byte");
    };
    let records = args.max_args.map(NonZero::new);
    let lines = args.max_lines.map(NonZero::new);
    let rule = match (records, lines) {
        (None, None) => Rule::Whole,
        (Some(Some(count)), _) => Rule::Records(count),
        (_, Some(Some(count))) => Rule::Lines(count),
        _ => bail!("--pipe: a block has at least one record"),
    };
    let end = match (&args.recend, &args.recstart) {
        (Some(end), _) => blocks::unescaped(end),
        (None, Some(_)) => Vec::new(),
        (None, None) => vec![b'\n'],
    };
    let start = args.recstart.as_deref().map(blocks::unescaped);
    Ok(Cut {
        size,
        start: start.unwrap_or_default(),
        end,
        rule,
        without_marks: args.remove_rec_sep,
        without_blank: args.no_run_if_empty,
        header: args.header.is_some(),
        skip_first_line: args.skip_first_line,
    })
}

/// What is to run, when it is known where it comes from.
struct Prepared {
    feed: Feed,
    template: Template,
    vocabulary: Vocabulary,
    slots: u32,
    ahead: u64,
    events: (Sender<Event>, Receiver<Event>),
}

fn run_prepared(mut args: Args, prepared: Prepared, out: &mut dyn Write) -> Result<Exit> {
    let Prepared {
        mut feed,
        template,
        vocabulary,
        slots,
        ahead,
        events: (sender, receiver),
    } = prepared;
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let (log, earlier) = joblog(&args)?;
    feed.resume(earlier, args.resume_failed);
    if args.dry_run {
        return dry_run(feed, &receiver, &template, out);
    }
    let mut delivery = Delivery::new(args.keep_order, args.tag, args.json);
    delivery.verbose = args.verbose;
    delivery.show_commands = args.show_commands;
    delivery.tag_text = tag_text(&args, &vocabulary)?;
    delivery.log = log;
    delivery.results = match args.results.take() {
        Some(results) => Some(Results::new(&results, &vocabulary)?),
        None => None,
    };
    if args.line_buffer {
        let tag_text = tag_text(&args, &vocabulary)?;
        let lines = Lines::new(args.keep_order, args.tag, tag_text, sender.clone())?;
        delivery.lines = Some(Arc::new(lines));
    }
    let lines = delivery.lines.clone();
    let mut source = ItemSource {
        feed,
        request: Box::new(request(&args, &template)),
        recipe: Arc::new(recipe(&args, template, lines)),
    };
    source.check_log()?;
    watch_interrupts(sender.clone())?;
    let terminal = io::stderr().is_terminal();
    let mut gate = start_gate(&args, cores);
    let root = group_limit::root();
    for GroupLimit { group, limit } in &args.limit {
        gate = gate.with_limit(SharedLimit::new(&root, group, *limit)?);
    }
    let mut kept = journal(&args)?;
    let runner = Runner::new(Parts {
        config: config(&args)?,
        settings: slot_settings(&args, gate, args.memory.is_some()),
        hold: HOLD,
        checkpoints: None,
        agents: (1..=slots).map(slot_agent).collect(),
        journal: kept.journal.take(),
        source: Source::Items(source),
        ahead,
        delivery,
        progress: progress(&args, terminal),
        trace: None,
        halt: args.halt,
        median_limit: match args.timeout {
            Some(TimeLimit::OfMedian(ratio)) => Some(ratio),
            _ => None,
        },
        events: (sender.clone(), receiver),
    })?;
    let _watched = watched(&args, sender, &kept, &runner)?;
    let (summary, _, afterwards) = runner.run(out)?;
    if args.json {
        summary.show_json(out)?;
    }
    if args.summary == When::Always || (args.summary == When::Auto && terminal) {
        summary.show(&mut io::stderr())?;
    }
    out.flush()?;
    stay(&args, &summary, afterwards)?;
    Ok(exit_of(&summary))
}

/// Prints what would run.
fn dry_run(
    mut feed: Feed,
    events: &Receiver<Event>,
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
                    slot: None,
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
    if args.skip_first_line {
        items = items.without_first(1);
    }
    if let Some(end) = &args.end {
        items = items.up_to(end.clone());
    }
    if let Some(separator) = args.colsep.as_ref().filter(|_| !args.csv) {
        items = items.columns(separator.clone());
    }
    if args.header.is_some() && items.names.is_empty() {
        items = items.with_names().context("cannot read the items")?;
    }
    // As in GNU parallel, blanks around columns belong to nobody.
    let of_columns = args.colsep.as_ref().filter(|_| !args.csv);
    if let Some(trim) = args.trim.or(of_columns.map(|_| Trim::BOTH)) {
        items = items.trimmed(trim);
    }
    if args.no_run_if_empty {
        items = items.without_blank();
    }
    if args.shuf {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let seed = now.as_nanos() as u64 ^ u64::from(std::process::id());
        items = items.shuffled(seed).context("cannot read the items")?;
    }
    match args.max_args.and_then(NonZero::new) {
        Some(size) if !args.fills_lines() => items.batched(size),
        _ => Ok(items),
    }
}

/// How long a line may get at the most: what the system takes as one argument of a shell.
const LINE_MAX: usize = 131_071;

/// Puts as many items into each command as it has room for, if that is asked for.
fn packed(items: Items, args: &Args, template: &Template, slots: u32) -> Result<Items> {
    if !args.fills_lines() {
        return Ok(items);
    }
    let fixed = template.fixed_length();
    let times = template.uses_of_items().max(1);
    let room = Room {
        longest: args.max_chars,
        fixed,
        times,
        // A repeated word is at the most the whole line.
        around: if args.many_words && times > 0 {
            template.repeated_length()
        } else {
            0
        },
        items_max: args.max_args.unwrap_or(usize::MAX),
    };
    items.packed(room, if args.xargs { 1 } else { slots as usize })
}

/// Which placeholders there are.
fn vocabulary(args: &Args, items: &Items) -> Vocabulary {
    Vocabulary {
        item: args.item_name.clone(),
        plus: args.plus,
        lists: items.names.clone(),
        own: args.rpl.clone(),
    }
}

fn template(
    args: &Args,
    command: &[OsString],
    items: &Items,
    vocabulary: &Vocabulary,
) -> Result<Template> {
    let shell = shell(args.shell.as_ref());
    let lists = if args.fills_lines() {
        usize::MAX
    } else {
        items.lists
    };
    let last = !args.no_item;
    let keeps_words = !command.is_empty() && (args.quote || is_script_of_a_shell(command));
    let mut template = if args.retry_failed {
        Template::parse(&[], 1, false, &shell)?
    } else if keeps_words {
        Template::parse_words_as(command, lists, last, vocabulary)?
    } else {
        Template::parse_as(command, lists, last, &shell, vocabulary)?
    };
    if !keeps_words
        && command
            .first()
            .is_some_and(|program| is_exported_function(program))
    {
        template = template.in_shell();
    }
    if args.many_words {
        template = template.repeating_words();
    }
    if let Some(niceness) = args.nice {
        let words = ["nice", "-n"].map(OsString::from).into_iter();
        template = template.behind(words.chain([niceness.to_string().into()]).collect());
    }
    Ok(template)
}

/// Shells whose quoting is the one we know.
const SHELLS: &[&str] = &["ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"];

fn is_shell(path: &OsStr) -> bool {
    let name = Path::new(path).file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| SHELLS.contains(&name))
}

/// The shell for commands that need one: whose functions and syntax people are used to.
fn shell(given: Option<&OsString>) -> OsString {
    let named = ["PARALLEL_SHELL", "SHELL"]
        .into_iter()
        .filter_map(std::env::var_os);
    let named = given
        .cloned()
        .or_else(|| named.into_iter().find(|shell| is_shell(shell)));
    named.unwrap_or_else(|| "/bin/sh".into())
}

/// `sh -c 'echo $0' …`: joined to a line, the shell would take the script for several words.
fn is_script_of_a_shell(command: &[OsString]) -> bool {
    let is_script = |word: &OsString| word.as_encoded_bytes().iter().any(u8::is_ascii_whitespace);
    matches!(command, [shell, flag, script, ..] if is_shell(shell) && flag == "-c" && is_script(script))
}

/// Whether bash has exported a function of this name to us.
fn is_exported_function(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let name = name.split_ascii_whitespace().next().unwrap_or_default();
    !name.is_empty() && std::env::var_os(format!("BASH_FUNC_{name}%%")).is_some()
}

/// What the command line says of the surroundings of tasks must be there.
fn check_surroundings(args: &Args) -> Result<()> {
    for name in &args.env {
        let is_there = name == "_"
            || std::env::var_os(name).is_some()
            || is_exported_function(OsStr::new(name));
        if !is_there {
            bail!(
                "--env {name}: there is no such variable; `export {name}` first (`export -f` for a function)"
            );
        }
    }
    for (option, directory) in [("--workdir", &args.workdir), ("--tmpdir", &args.tmpdir)] {
        if let Some(directory) = directory
            && !directory.is_dir()
        {
            bail!("{option}: there is no directory {}", directory.display());
        }
    }
    if let Some(directory) = &args.tmpdir {
        // Fails only when somebody set it before.
        let _ = tempfile::env::override_temp_dir(directory);
    }
    Ok(())
}

/// What stands in front of each line of output.
fn tag_text(args: &Args, vocabulary: &Vocabulary) -> Result<Option<Template>> {
    let Some(text) = &args.tagstring else {
        return Ok(None);
    };
    let words = [text.clone()];
    Ok(Some(Template::parse_words_as(
        &words,
        usize::MAX,
        false,
        vocabulary,
    )?))
}

/// Names come from the first row; nothing else is known.
fn header(text: &str) -> Result<(), String> {
    match text {
        ":" => Ok(()),
        _ => Err(format!(
            "`{text}` is not `:`, the first line; headers of several lines are not there"
        )),
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

fn items(args: &Args, lists: Vec<List>) -> Result<Items> {
    let end = args.delimiter.unwrap_or(if args.null { 0 } else { b'\n' });
    if let Some(array) = &args.array {
        if !lists.is_empty() {
            bail!("items come from one place: `:::` or --array");
        }
        return Ok(Items::array(array));
    }
    let alone = match args.each_line.as_slice() {
        [] => Some(Path::new("-")),
        [file] => Some(file.as_path()),
        _ => None,
    };
    let alone = alone.filter(|_| lists.is_empty());
    let files = args.each_line.iter().cloned().map(List::of_file);
    let lists: Vec<List> = files.chain(lists).collect();
    let Some(file) = alone else {
        let have_names = args.header.is_some() && args.colsep.is_none();
        return match args.link {
            true => Items::linked(lists, end, have_names),
            false => Items::product(lists, end, have_names),
        };
    };
    if args.retry_failed {
        return Ok(Items::none());
    }
    if file == Path::new("-") && io::stdin().is_terminal() {
        writeln!(
            io::stderr(),
            "loxley: reading items from the terminal, one per line; end with ^D"
        )?;
    }
    if args.csv {
        let comma = match &args.colsep {
            None => b',',
            Some(Separator::Text(text)) if text.len() == 1 => text.as_encoded_bytes()[0],
            Some(_) => bail!("--csv: what stands between two columns is one byte"),
        };
        return Ok(Items::csv(items::reader(file)?, comma));
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

/// Where a run is written down.
#[derive(Debug)]
struct RunJournal {
    journal: Option<SqliteJournal>,
    directory: Option<PathBuf>,
    /// Goes with the run: nobody asked for a journal, but a dashboard shows what is over.
    _temporary: Option<tempfile::TempDir>,
}

/// The journal that the command line asks for. One that has been written to tells of other tasks with the same
/// numbers.
fn journal(args: &Args) -> Result<RunJournal> {
    let temporary = match args.dashboard {
        Some(_) if args.journal.is_none() => {
            Some(tempfile::tempdir().context("--dashboard: no place for a journal")?)
        }
        _ => None,
    };
    let of_temporary = temporary.as_ref().map(|directory| directory.path());
    let directory = args.journal.as_deref().or(of_temporary).map(Path::to_owned);
    let Some(directory) = directory else {
        return Ok(RunJournal {
            journal: None,
            directory: None,
            _temporary: None,
        });
    };
    let options = loxley_journal::Options {
        holder: "loxley run".to_owned(),
        ..loxley_journal::Options::default()
    };
    let opened = SqliteJournal::open(&directory, &options)?;
    if opened.journal.next_position() != loxley_journal::Position::START {
        bail!(
            "--journal: there is one in {} already; name a new directory for each run",
            directory.display()
        );
    }
    Ok(RunJournal {
        journal: Some(opened.journal),
        directory: Some(directory),
        _temporary: temporary,
    })
}

/// Has a run be looked at by whoever wants to.
fn watched(
    args: &Args,
    events: Sender<Event>,
    journal: &RunJournal,
    runner: &Runner,
) -> Result<Watched> {
    let epoch = runner.epoch_unix_ns();
    let watched = Watched::start(events, journal.directory.as_deref(), epoch);
    if args.dashboard.is_some() {
        let opened = watched.open_dashboard();
        opened.context("--dashboard")?;
    }
    Ok(watched)
}

/// Keeps a run that is over to be looked at, if that is asked for.
fn stay(args: &Args, summary: &Summary, afterwards: Afterwards) -> Result<()> {
    if args.dashboard == Some(Until::Stay) && !summary.interrupted {
        writeln!(
            io::stderr(),
            "The run is over; its dashboard stays until Ctrl-C."
        )?;
        afterwards.until_interrupted();
    }
    Ok(())
}

/// What failed according to the job log.
fn failed(args: &Args) -> Result<Vec<joblog::Failed>> {
    match &args.joblog {
        Some(path) => joblog::failed(path),
        None => Ok(Vec::new()),
    }
}

fn joblog(args: &Args) -> Result<(Option<JobLog>, Earlier)> {
    Ok(match &args.joblog {
        None => (None, Earlier::new()),
        Some(path) if args.retry_failed => (Some(JobLog::resume(path)?.0), Earlier::new()),
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
fn slot_agent(number: u32) -> AgentRecord {
    agent_record(format!("slot {number}"))
}

/// An agent with one slot and nothing special.
fn agent_record(name: String) -> AgentRecord {
    AgentRecord {
        name,
        owner: String::new(),
        process: std::process::id().into(),
        skills: Vec::new(),
        slots: 1,
        speed: 1.0,
        cpu_milli: 0,
        memory_bytes: 0,
        resources: Vec::new(),
        zone: None,
        holds: Vec::new(),
    }
}

fn streams(args: &Args) -> Streams {
    match args.ungroup {
        true => Streams::Inherited,
        false => Streams::Captured,
    }
}

fn recipe(args: &Args, template: Template, lines: Option<Arc<Lines>>) -> Recipe {
    Recipe {
        job: std::process::id().into(),
        work: Work::Command {
            template,
            streams: streams(args),
        },
        limits: Limits {
            time: match args.timeout {
                Some(TimeLimit::Fixed(time)) => Some(time),
                _ => None,
            },
            memory: args.memory,
            ..Limits::default()
        },
        environment: Vec::new(),
        directory: args.workdir.clone(),
        checkpoints: false,
        as_in_parallel: true,
        output: OutputRule {
            lines: lines.map(|lines| lines as Arc<dyn LineWriter>),
            ..whole_output()
        },
        hold: HOLD,
        priority: loxley_model::Priority::default(),
    }
}

/// What is shown of how far it is. Lines that come by themselves would run through a bar.
fn progress(args: &Args, terminal: bool) -> Progress {
    match (args.bar, terminal && !args.line_buffer) {
        (_, true) => Progress::bar(),
        (true, false) => Progress::lines(),
        (false, false) => Progress::none(),
    }
}

/// All output is kept until it is shown, in one piece.
fn whole_output() -> OutputRule {
    OutputRule {
        keep: Keep::Whole,
        directory: None,
        live: false,
        lines: None,
    }
}

/// What all slots have in common. Where memory is limited, it is found out how before anything runs.
fn slot_settings(args: &Args, gate: StartGate, limits_memory: bool) -> Arc<SlotSettings> {
    let memory_groups = match limits_memory {
        true => loxley_exec::memory_groups().0,
        false => None,
    };
    Arc::new(SlotSettings {
        gate,
        memory_groups,
        tells_starts: true,
        guardian: Some(Arc::new(Guardian::new(crate::guardian_program()))),
        watched: AtomicBool::new(args.dashboard.is_some()),
        ..SlotSettings::default()
    })
}

fn start_gate(args: &Args, cores: usize) -> StartGate {
    let mut gate = StartGate::default().with_delay(args.delay.unwrap_or_default());
    if let Some(bytes) = args.memfree {
        gate = gate.with_memory_free(bytes);
    }
    if let Some(load) = args.load {
        let cores = if load.per_core { cores as f64 } else { 1.0 };
        gate = gate.with_load_max(load.value * cores);
    }
    gate
}

/// The number of no task: where it shows up in a command, the number of the task goes.
const UNLIKELY: u64 = 8_734_129_065_177_203_417;

/// What the scheduler is to know of the tasks. The time limit is for the slots alone.
fn request(args: &Args, template: &Template) -> TaskRequest {
    let line = line_for_readers(template);
    let command = CommandRequest {
        words: vec![if line.is_empty() {
            "-".to_owned()
        } else {
            line
        }],
        ..CommandRequest::default()
    };
    TaskRequest {
        entries: Some(Entries::Lines(Vec::new())),
        retry: RetryRequest {
            retries: args.retries,
            ..RetryRequest::default()
        },
        speculate: args.speculate,
        ..TaskRequest::new(loxley_api::Work::Command(command))
    }
}

/// The command as people who look at a journal see it, with their items filled in where that can be exact. The entry
/// of a task is all its items as one text: parts of it stand in round brackets, since nothing would fill them.
fn line_for_readers(template: &Template) -> String {
    let line = |items: &[&str]| {
        let items: Vec<OsString> = items.iter().map(Into::into).collect();
        let filling = Filling {
            items: &items,
            sequence: UNLIKELY,
            slot: None,
        };
        let line = template.line(&filling);
        let line = line.to_string_lossy().into_owned();
        line.replace(&UNLIKELY.to_string(), "{#}")
    };
    // A word that no shell needs quotes for.
    let item = format!("item{UNLIKELY}");
    let whole = line(&[&item]).replace("item{#}", "{}");
    let filled = |items: &[&str]| whole.replace("{}", &items.join(" ")) == line(items);
    if filled(&["a/b.c"]) && filled(&["d", "e"]) {
        return whole;
    }
    let part = line(&[&item]).replace("item{#}", "(item)");
    part.replace('{', "(").replace('}', ")")
}

fn config(args: &Args) -> Result<Config> {
    let config = match &args.config {
        Some(file) => loxley_config::parse_bytes_over(&crate::input::read(file)?, Config::served())
            .map_err(|mistakes| anyhow::Error::msg(mistakes.in_file(&crate::input::name(file))))?,
        None => {
            let mut config = Config::served();
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
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    // Whoever started us may want us to outlive a terminal (`nohup`).
    let unless_ignored = [SIGHUP, SIGQUIT].into_iter();
    let unless_ignored = unless_ignored.filter(|signal| !loxley_exec::is_ignored(*signal));
    let watched = [SIGINT, SIGTERM].into_iter().chain(unless_ignored);
    let mut signals =
        signal_hook::iterator::Signals::new(watched).context("cannot watch for interrupts")?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                let event = match signal {
                    SIGINT => Event::Interrupted,
                    _ => Event::Terminated,
                };
                if events.send(event).is_err() {
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
        _ if let Some(code) = summary.halted_by => Exit::TasksFailed(code),
        0 => Exit::Done,
        failed => Exit::TasksFailed(failed.min(101) as u8),
    }
}

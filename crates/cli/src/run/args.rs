//! What `loxley run` takes on its command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, ValueEnum};
use loxley_exec::Replacement;
use loxley_jobfile::Ranges;
use loxley_jobfile::amount::{bytes, duration};

use super::amounts::{BlockSize, Slots, TimeLimit};
use super::group_limit::GroupLimit;
use super::halt::Halt;
use super::items::{Separator, Trim};
use super::shape::LINE_MAX;

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
    pub(super) words: Vec<OsString>,

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
    pub(super) jobs: Option<Slots>,

    /// Take the items from the lines of a file; - for standard input. Several files are several lists, like what
    /// follows `:::`.
    #[arg(
        short = 'a',
        long,
        value_name = "FILE",
        conflicts_with = "array",
        alias = "arg-file"
    )]
    pub(super) each_line: Vec<PathBuf>,
    /// Take numbers as items: 1-1000, 1-9:2, 1,3,5-8.
    #[arg(long, value_name = "RANGE")]
    pub(super) array: Option<Ranges>,
    /// Items end with a zero byte instead of a line break.
    #[arg(short = '0', long)]
    pub(super) null: bool,
    /// Items end with this byte instead of a line break: a letter, \\t, \\n or \\0.
    #[arg(short, long, value_name = "BYTE", conflicts_with = "null", value_parser = delimiter)]
    pub(super) delimiter: Option<u8>,
    /// Cut standard input (or the file of -a) into blocks between its records: each is what one task reads.
    #[arg(long, alias = "spreadstdin")]
    pub(super) pipe: bool,
    /// The same as --pipe, of the file of -a.
    #[arg(long, alias = "pipepart", requires = "each_line")]
    pub(super) pipe_part: bool,
    /// How much is read before a block is cut off [default: 1M]; -2 for two blocks of a file for each slot.
    #[arg(
        long,
        value_name = "SIZE",
        alias = "block-size",
        allow_hyphen_values = true,
        requires = "blocks"
    )]
    pub(super) block: Option<BlockSize>,
    /// What a record begins with; \\n is a line break.
    #[arg(long, value_name = "TEXT", requires = "blocks")]
    pub(super) recstart: Option<String>,
    /// What a record ends with [default: a line break, or nothing with --recstart].
    #[arg(
        long,
        value_name = "TEXT",
        requires = "blocks",
        allow_hyphen_values = true
    )]
    pub(super) recend: Option<String>,
    /// Leave out the beginnings and ends of records.
    #[arg(long, aliases = ["rrs", "removerecsep"], requires = "blocks")]
    pub(super) remove_rec_sep: bool,
    /// So many lines for each command; with --pipe, records of so many lines.
    #[arg(short = 'L', value_name = "N", conflicts_with = "max_args")]
    pub(super) max_lines: Option<usize>,
    /// So many items for each command: {1} is the first of them, {} all; 0 is --no-item. With --pipe, so many
    /// records in each block.
    #[arg(short = 'n', short_aliases = ['N'], long, alias = "max-replace-args", value_name = "N")]
    pub(super) max_args: Option<usize>,
    /// As many items for each command as its line has room for, at most those of -n; the last ones are shared out over the slots.
    #[arg(short = 'm', conflicts_with = "no_item")]
    pub(super) many: bool,
    /// The same, but a whole word with {} in it is repeated for each: x{}.c is xa.c xb.c.
    #[arg(short = 'X', conflicts_with_all = ["many", "no_item"])]
    pub(super) many_words: bool,
    /// The same as -m, but each command gets all it has room for, as xargs does it.
    #[arg(long, conflicts_with_all = ["many", "many_words", "no_item"])]
    pub(super) xargs: bool,
    /// How long a command line may get with -m, -X and --xargs, in bytes.
    #[arg(short = 's', long, value_name = "N", default_value_t = LINE_MAX)]
    pub(super) max_chars: usize,
    /// Cut each item into columns at this text or regular expression (\\t is a tab): {1} is the first column.
    #[arg(short = 'C', long, value_name = "PATTERN")]
    pub(super) colsep: Option<Separator>,
    /// Lines are rows of a table as spreadsheets write them: columns between commas (or --colsep), quotes around
    /// what needs them.
    #[arg(long, conflicts_with = "array")]
    pub(super) csv: bool,
    /// The first row, or the first item of each list, says what the columns are called: {name}.
    #[arg(long, value_name = ":", value_parser = header)]
    pub(super) header: Option<()>,
    /// Leave out the first line.
    #[arg(long)]
    pub(super) skip_first_line: bool,
    /// Take items up to one that is exactly this.
    #[arg(short = 'E', value_name = "TEXT")]
    pub(super) end: Option<OsString>,
    /// Take lists side by side instead of every combination; shorter ones begin again.
    #[arg(long, alias = "xapply")]
    pub(super) link: bool,
    /// Leave out items that are empty or blank.
    #[arg(short = 'r', long)]
    pub(super) no_run_if_empty: bool,
    /// Take blanks from the left of items, from their right, or both: l, r, lr [default: n, none; lr with --colsep].
    #[arg(long, value_name = "WHERE")]
    pub(super) trim: Option<Trim>,
    /// Take the items in a random order.
    #[arg(long)]
    pub(super) shuf: bool,
    /// What stands before items instead of `:::`.
    #[arg(long, value_name = "TEXT", default_value = ":::", hide = true)]
    pub(super) arg_sep: String,
    /// What stands before files of items instead of `::::`.
    #[arg(long, value_name = "TEXT", default_value = "::::", hide = true)]
    pub(super) arg_file_sep: String,
    /// Expected costs of the tasks in seconds, one per line; the heaviest start first.
    #[arg(long, value_name = "FILE")]
    pub(super) weights: Option<PathBuf>,

    /// Do not put the item last where the command has no placeholder: run it as it is, once for each.
    #[arg(long)]
    pub(super) no_item: bool,
    /// What stands for the item instead of {}.
    #[arg(short = 'I', value_name = "TEXT")]
    pub(super) item_name: Option<String>,
    /// More placeholders: {..} {/..} without two extensions, {+/} the directory, {+.} {+..} the extensions.
    #[arg(long)]
    pub(super) plus: bool,
    /// A placeholder of your own and what it does to the item: '{o} s/\\.jpg$/.png/'; may be given more than once.
    #[arg(long, value_name = "REPLACEMENT")]
    pub(super) rpl: Vec<Replacement>,
    /// Take each word of the command as one argument, as it is: no shell.
    #[arg(short, long)]
    pub(super) quote: bool,
    /// The shell for commands that need one [default: PARALLEL_SHELL or SHELL, if it is one like sh, else /bin/sh].
    #[arg(long, value_name = "PATH")]
    pub(super) shell: Option<OsString>,
    /// Where the tasks run [default: here].
    #[arg(long, visible_alias = "wd", value_name = "DIR")]
    pub(super) workdir: Option<PathBuf>,
    /// How nice the tasks are to others: 10, as nice(1) takes it.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(super) nice: Option<i8>,
    /// Where output is kept until it is shown [default: TMPDIR, else /tmp].
    #[arg(long, value_name = "DIR")]
    pub(super) tmpdir: Option<PathBuf>,
    /// A variable that the tasks need: it must be there. Tasks see the whole environment anyway, exported functions
    /// of the shell too.
    #[arg(long, value_name = "NAME")]
    pub(super) env: Vec<String>,
    /// Print the commands and run nothing.
    #[arg(long, alias = "dryrun")]
    pub(super) dry_run: bool,

    /// Show output in the order of the items.
    #[arg(short, long, conflicts_with = "ungroup")]
    pub(super) keep_order: bool,
    /// Put the item in front of each line of output.
    #[arg(long, conflicts_with = "ungroup")]
    pub(super) tag: bool,
    /// Put this in front of each line of output; it may have placeholders.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["ungroup", "json"])]
    pub(super) tagstring: Option<OsString>,
    /// Show output as it comes, mixed.
    #[arg(short, long, conflicts_with_all = ["results", "json"])]
    pub(super) ungroup: bool,
    /// Show whole lines as they come, not mixed within a line; with --keep-order, of one task after the other.
    #[arg(
        long,
        visible_alias = "lb",
        alias = "linebuffer",
        conflicts_with_all = ["ungroup", "results", "json", "show_commands", "verbose"]
    )]
    pub(super) line_buffer: bool,
    /// Print each task, with its output, and the summary as one JSON object per line.
    #[arg(long, conflicts_with = "tag")]
    pub(super) json: bool,
    /// Print each command to standard error when its output is shown.
    #[arg(short = 't', long)]
    pub(super) verbose: bool,
    /// Print each command to standard output, in front of its output.
    #[arg(short = 'v', conflicts_with = "json")]
    pub(super) show_commands: bool,
    /// What GNU parallel does by default, and so do we.
    #[arg(long, hide = true, conflicts_with = "ungroup")]
    pub(super) group: bool,
    /// Nobody asks for it here.
    #[arg(long, hide = true, alias = "no-notice")]
    pub(super) will_cite: bool,
    /// Show how far it is: a bar on a terminal, elsewhere a line now and then [default: on terminals].
    #[arg(long, visible_alias = "progress", alias = "eta")]
    pub(super) bar: bool,
    /// Say at the end how well the work was balanced; auto means on terminals, and for job files.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(super) summary: When,
    /// Draw the timeline of a job file to this HTML file [default: NAME-report.html].
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// Draw nothing.
    #[arg(long, conflicts_with = "report")]
    pub(super) no_report: bool,

    /// How long a task may run: 10s, or 200% of the median. Then TERM, and KILL two seconds later.
    #[arg(long, value_name = "TIME")]
    pub(super) timeout: Option<TimeLimit>,
    /// How often a task that failed is tried again, after a pause that doubles.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) retries: u32,
    /// Stop early: now,fail=1 kills what runs, soon,fail=10% lets it finish; also success, done.
    #[arg(
        long,
        visible_alias = "halt-on-error",
        value_name = "RULE",
        allow_hyphen_values = true
    )]
    pub(super) halt: Option<Halt>,
    /// Start a second copy of a task that takes twice as long as the others; the first to end counts.
    /// Only for commands that do no harm when they run twice.
    #[arg(long)]
    pub(super) speculate: bool,

    /// Write a line for each task, in the columns of GNU parallel.
    #[arg(long, value_name = "FILE")]
    pub(super) joblog: Option<PathBuf>,
    /// Leave out the tasks that are in the job log.
    #[arg(long, requires = "joblog")]
    pub(super) resume: bool,
    /// Leave out the tasks that succeeded according to the job log.
    #[arg(long, requires = "joblog")]
    pub(super) resume_failed: bool,
    /// Run again the tasks that failed according to the job log, with the commands that are in it.
    #[arg(long, requires = "joblog", conflicts_with_all = ["resume", "resume_failed", "weights"])]
    pub(super) retry_failed: bool,
    /// Keep the output of each task in files: DIR/1/ITEM/stdout and stderr; in files of your own names where there
    /// are placeholders (out/{1}.txt); or all in one table (FILE.csv, FILE.tsv).
    #[arg(long, value_name = "WHERE", alias = "res")]
    pub(super) results: Option<PathBuf>,

    /// Keep the checkpoints of a job file here, for later runs too [default: gone after the run].
    #[arg(long, value_name = "DIR")]
    pub(super) checkpoints: Option<PathBuf>,

    /// At most N tasks of a group at once, over all runs of yours on this machine; of a job file, the
    /// limit of one of its groups.
    #[arg(long, value_name = "GROUP=N")]
    pub(super) limit: Vec<GroupLimit>,
    /// Wait so long between two starts.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) delay: Option<Duration>,
    /// Start a task only while so much memory is free.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(super) memfree: Option<u64>,
    /// Start a task only while the load is at most this; 100% is one for each core.
    #[arg(long, value_name = "LOAD", value_parser = load)]
    pub(super) load: Option<Load>,
    /// How much memory a task may use: all its processes together where the system lets us have control
    /// groups, else what each of them may map.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(super) memory: Option<u64>,
    /// Write everything down in this new directory, as a server does: `loxley journal report`, `check` and
    /// `export` read it.
    #[arg(long, value_name = "DIR")]
    pub(super) journal: Option<PathBuf>,
    /// Serve the dashboard of this run on 127.0.0.1 and print a link that signs one browser in; until the run ends, or
    /// with =stay until Ctrl-C. What ran is kept meanwhile (in --journal DIR, or for as long as the dashboard is there).
    #[arg(
        long,
        value_name = "UNTIL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "end"
    )]
    pub(super) dashboard: Option<Until>,
    /// How the scheduler decides; see `loxley config default`.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
}

/// How long a dashboard is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Until {
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
    pub(super) fn fills_lines(&self) -> bool {
        self.many || self.many_words || self.xargs
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum When {
    Auto,
    Always,
    Never,
}

/// A load average: absolute, or for each core.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) value: f64,
    pub(super) per_core: bool,
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

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
mod args;
mod blocks;
mod command;
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
mod shape;
mod source;
mod summary;
pub(crate) mod watched;

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use loxley_api::{CommandRequest, Entries, RetryRequest, TaskRequest};
use loxley_engine::AgentRecord;
use loxley_exec::{
    Filling, Guardian, Keep, Limits, LineWriter, OutputRule, Recipe, SharedLimit, SlotSettings,
    StartGate, Streams, Template, Vocabulary, Work,
};
use loxley_journal::{Journal, SqliteJournal};
use loxley_policy::Config;

use self::amounts::{BlockSize, Slots, TimeLimit};
pub(crate) use self::args::Args;
use self::args::{Until, When};
use self::blocks::{Blocks, Cut, Rule};
use self::command::{check_surroundings, line_for_readers, tag_text, template, vocabulary};
use self::delivery::Delivery;
use self::feed::{Feed, Next};
use self::group_limit::GroupLimit;
use self::items::{CommandLine, Items};
use self::joblog::{Earlier, JobLog};
use self::lines::Lines;
use self::progress::Progress;
use self::results::Results;
use self::runner::{Afterwards, Event, Parts, Runner};
use self::shape::{items, packed, shaped, weights};
use self::source::{ItemSource, Source};
use self::summary::Summary;
use self::watched::Watched;
use crate::exit::Exit;

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

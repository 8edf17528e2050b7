//! `loxley run FILE.yaml`: the tasks of a job file, on agents of this machine.

use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use loxley_api::{FallbackRequest, Needs, TaskRequest};
use loxley_engine::AgentRecord;
use loxley_exec::{Limits, Recipe, Vocabulary, Work};
use loxley_jobfile::{AgentDef, JobFile, Plan};
use loxley_model::{TaskId, Time};
use loxley_policy::Config;
use loxley_sim::report::{self, DrawnRun, Report};

use super::delivery::Delivery;
use super::group_limit::GroupLimit;
use super::results::Results;
use super::run_trace::RunTrace;
use super::runner::{Parts, Runner};
use super::source::{JobSource, Source};
use super::summary::Summary;
use super::{Args, When};
use crate::exit::Exit;

/// A job file with its tasks numbered: what all parts of a run look up.
#[derive(Debug)]
pub(super) struct JobBook {
    pub(super) file: JobFile,
    pub(super) plan: Plan,
    /// Who runs it: those of the file, or made up for it.
    pub(super) agents: Vec<AgentDef>,
    urgent_from: loxley_model::Priority,
}

impl JobBook {
    fn new(file: JobFile, slots: u32, config: &Config) -> Self {
        let agents = agents_of(&file, slots);
        Self {
            plan: Plan::new(&file.request, TaskId(1)),
            agents,
            file,
            urgent_from: config.priority.high_priority_threshold,
        }
    }

    /// The agents as they introduce themselves.
    fn records(&self) -> Vec<AgentRecord> {
        let record = |agent: &AgentDef| AgentRecord {
            slots: agent.slots,
            speed: agent.speed,
            skills: agent.skills.clone(),
            cpu_milli: (agent.has.cpus * 1000.0).round() as u64,
            memory_bytes: agent.has.memory_bytes,
            resources: agent.has.named.clone().into_iter().collect(),
            ..super::agent_record(agent.name.clone())
        };
        self.agents.iter().map(record).collect()
    }

    /// What people call a task.
    pub(super) fn title(&self, task: TaskId) -> String {
        match self.plan.find(task) {
            Some(planned) => self.file.title(planned),
            None => format!("task {task}"),
        }
    }

    /// Whether a task is protected as urgent.
    pub(super) fn is_urgent(&self, task: TaskId) -> bool {
        let planned = self.plan.find(task);
        planned
            .is_some_and(|planned| self.definition(planned.definition).priority >= self.urgent_from)
    }

    /// The name of a task, and the value that stands in for it.
    pub(super) fn name_and_value(&self, task: TaskId) -> (String, Option<String>) {
        let Some(planned) = self.plan.find(task) else {
            return (String::new(), None);
        };
        let definition = self.definition(planned.definition);
        let value = match &definition.fallback {
            Some(FallbackRequest::Value(value)) => {
                Some(String::from_utf8_lossy(&value.0).into_owned())
            }
            _ => None,
        };
        (definition.name.clone().unwrap_or_default(), value)
    }

    /// A task or an array of the file.
    pub(super) fn definition(&self, number: usize) -> &TaskRequest {
        &self.file.request.tasks[number]
    }

    /// How wide the names of tasks are.
    pub(super) fn name_width(&self) -> usize {
        let names = self
            .file
            .request
            .tasks
            .iter()
            .filter_map(|task| task.name.as_ref());
        let widths = names.map(|name| name.chars().count());
        widths.max().unwrap_or(0).min(30)
    }

    /// The limits of groups that the command line says instead of the file.
    fn set_limits(&mut self, overridden: &[GroupLimit]) -> Result<()> {
        for GroupLimit { group, limit } in overridden {
            let known = self.file.request.limits.get_mut(group);
            *known.with_context(|| format!("--limit: the file has no limit for `{group}`"))? =
                *limit;
        }
        Ok(())
    }
}

/// Who runs a job file on a machine with so many slots.
pub(crate) fn agents_of(file: &JobFile, slots: u32) -> Vec<AgentDef> {
    match file.agents.is_empty() {
        true => made_up_agents(file, slots),
        false => file.agents.clone(),
    }
}

/// Agents for a file that describes none: they can do everything. Work is stolen between agents, so
/// each slot is one; where tasks ask for processors or memory, one agent has all of the machine's.
fn made_up_agents(file: &JobFile, slots: u32) -> Vec<AgentDef> {
    let tasks = &file.request.tasks;
    let mut skills: Vec<String> = tasks
        .iter()
        .flat_map(|task| task.skills.iter().cloned())
        .collect();
    skills.sort_unstable();
    skills.dedup();
    let asks = |needs: &Needs| needs.cpus > 0.0 || needs.memory_bytes > 0;
    let agent = |name: String, slots: u32, has: Needs| AgentDef {
        name,
        skills: skills.clone(),
        slots,
        speed: 1.0,
        has,
    };
    if tasks.iter().any(|task| asks(&task.needs)) {
        let has = Needs {
            cpus: cores() as f64,
            memory_bytes: loxley_exec::machine::memory_total().unwrap_or(0),
            ..Needs::default()
        };
        return vec![agent("local".to_owned(), slots, has)];
    }
    (1..=slots)
        .map(|number| agent(format!("slot {number}"), 1, Needs::default()))
        .collect()
}

pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Whether the words of a command line are a job file and nothing else.
pub(super) fn is_job_file(words: &[std::ffi::OsString]) -> bool {
    let ends = |word: &std::ffi::OsString| {
        let extension = Path::new(word).extension();
        extension.is_some_and(|extension| extension == "yaml" || extension == "yml")
    };
    words.first().is_some_and(ends) && !words.iter().any(|word| word == ":::" || word == "::::")
}

/// Runs a job file.
pub(super) fn run(mut args: Args, path: &Path, out: &mut dyn Write) -> Result<Exit> {
    refuse_what_the_file_says(&args)?;
    let read = loxley_jobfile::read(path);
    let file = match read.with_context(|| format!("cannot read {}", path.display()))? {
        Ok(file) => file,
        Err(mistakes) => {
            crate::config::show(&mistakes)?;
            return Ok(Exit::RunFailed);
        }
    };
    check_against(&args, &file)?;
    let config = match (&args.config, &file.config) {
        (None, Some(config)) => super::with_halt(config.clone(), &args),
        _ => super::config(&args)?,
    };
    let slots = args.jobs.map_or(cores() as u32, |jobs| jobs.on(cores()));
    let mut book = JobBook::new(file, slots, &config);
    book.set_limits(&args.limit)?;
    let book = Arc::new(book);
    let (log, earlier) = super::joblog(&args)?;
    let kept = Checkpoints::new(&args, &book.file)?;
    let source = JobSource {
        recipes: recipes(&args, &book.file)?,
        book: Arc::clone(&book),
        earlier,
        again: args.resume_failed,
        given: false,
        total: book.file.count(),
    };
    source.check_log()?;
    if args.dry_run {
        return dry_run(&book, &source, out);
    }
    let limits_memory = source
        .recipes
        .iter()
        .any(|recipe| recipe.limits.memory.is_some());
    let mut delivery = Delivery::new(args.keep_order, args.tag, args.json);
    delivery.verbose = args.verbose;
    delivery.log = log;
    delivery.results = match args.results.take() {
        Some(results) => Some(Results::new(&results, &Vocabulary::default())?),
        None => None,
    };
    let (sender, receiver) = channel();
    super::watch_interrupts(sender.clone())?;
    let names: Vec<&str> = book
        .agents
        .iter()
        .map(|agent| agent.name.as_str())
        .collect();
    let mut written = super::journal(&args)?;
    let runner = Runner::new(Parts {
        config,
        settings: super::slot_settings(&args, super::start_gate(&args, cores()), limits_memory),
        // Other tasks wait for an end.
        hold: Duration::ZERO,
        checkpoints: kept.directory(),
        agents: book.records(),
        journal: written.journal.take(),
        source: Source::Job(source),
        delivery,
        ahead: super::AHEAD,
        progress: super::progress(&args, io::stderr().is_terminal()).with_agents(&names),
        trace: Some(RunTrace::new(
            Arc::clone(&book),
            args.summary != When::Never,
        )),
        halt: args.halt,
        median_limit: None,
        events: (sender.clone(), receiver),
    })?;
    let _watched = super::watched(&args, sender, &written, &runner)?;
    let (summary, trace, afterwards) = runner.run(out)?;
    let trace = trace.expect("a job has a trace");
    finish(&args, path, &book, &summary, trace, out)?;
    out.flush()?;
    super::stay(&args, &summary, afterwards)?;
    Ok(super::exit_of(&summary))
}

/// Says how it went, and draws it.
fn finish(
    args: &Args,
    path: &Path,
    book: &JobBook,
    summary: &Summary,
    trace: RunTrace,
    out: &mut dyn Write,
) -> Result<()> {
    let account = trace.account();
    if args.json {
        summary.show_json(out)?;
        out.flush()?;
    }
    if args.summary != When::Never {
        let mut to = io::stderr().lock();
        writeln!(to)?;
        summary.show(&mut to)?;
        if !account.is_empty() {
            writeln!(to, "what moved, and why:")?;
        }
        for sentence in &account {
            writeln!(to, "  {sentence}")?;
        }
    }
    if args.no_report {
        return Ok(());
    }
    let to = args.report.clone().unwrap_or_else(|| default_report(path));
    let page = draw(path, book, summary, &account, trace);
    std::fs::write(&to, page).with_context(|| format!("cannot write {}", to.display()))?;
    if args.summary != When::Never {
        writeln!(io::stderr(), "timeline: {}", to.display())?;
    }
    Ok(())
}

/// `quickstart-report.html` for `examples/quickstart.yaml`, where the command was given.
fn default_report(path: &Path) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push("-report.html");
    name.into()
}

fn draw(
    path: &Path,
    book: &JobBook,
    summary: &Summary,
    account: &[String],
    trace: RunTrace,
) -> String {
    let wall = u64::try_from(summary.wall.as_nanos()).unwrap_or(u64::MAX);
    let slots = summary.busy_ns.len().max(1) as u64;
    let bound = (trace.work() / slots).max(trace.critical_path()).max(1);
    let tiles = [
        ("wall time", format!("{:.2} s", summary.wall.as_secs_f64())),
        (
            "÷ lower bound",
            format!("{:.3}", wall as f64 / bound as f64),
        ),
        ("tasks succeeded", summary.tally.succeeded.to_string()),
        ("failed", summary.tally.failed.to_string()),
        ("changed hands", summary.stolen.to_string()),
        (
            "second copies, won",
            format!("{}, {}", summary.copies, summary.copies_won),
        ),
        ("mean wait", format!("{:.3} s", trace.mean_wait())),
    ];
    let title = book.file.request.name.clone();
    let title = title.unwrap_or_else(|| path.display().to_string());
    let run = DrawnRun {
        label: title.clone(),
        timeline: trace.into_timeline(Time(wall)),
        tiles: tiles.map(|(name, value)| (name.to_owned(), value)).into(),
        balance: summary.balance(),
    };
    report::html(&Report {
        title: &title,
        about: &format!(
            "A real run of {}: {} tasks on {} agents with {slots} slots.",
            path.display(),
            book.file.count(),
            book.agents.len(),
        ),
        look_for: "amber bars: tasks that an idle agent took from a busy one; grey bars: copies that \
                   were stopped because the other was first.",
        notes: account,
        runs: &[run],
        results: None,
        command: &format!("loxley run {}", path.display()),
    })
}

fn recipes(args: &Args, file: &JobFile) -> Result<Vec<Arc<Recipe>>> {
    let recipe = |task: &TaskRequest| -> Result<Arc<Recipe>> {
        let loxley_api::Work::Command(command) = &task.run else {
            bail!("a job file has commands alone");
        };
        let memory = Some(task.needs.memory_bytes);
        Ok(Arc::new(Recipe {
            job: std::process::id().into(),
            work: Work::Command {
                template: command.template(task.entries.is_some())?,
                streams: super::streams(args),
            },
            limits: Limits {
                time: task.time_limit_sec.map(Duration::from_secs_f64),
                memory: memory.filter(|bytes| *bytes > 0),
                ..Limits::default()
            },
            checkpoints: task.checkpoints,
            as_in_parallel: false,
            output: super::whole_output(),
            hold: Duration::ZERO,
            priority: task.priority,
            environment: command
                .environment
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            // Whole, as in `loxley submit`: who reads that it is not there wants to know where it was looked for.
            directory: Some(std::path::absolute(
                command.directory.as_deref().unwrap_or("."),
            )?),
        }))
    };
    file.request.tasks.iter().map(recipe).collect()
}

/// Prints what would run, in the order of the file.
fn dry_run(book: &JobBook, source: &JobSource, out: &mut dyn Write) -> Result<Exit> {
    use std::os::unix::ffi::OsStrExt;
    for (id, command) in source.each() {
        write!(out, "{}\t", book.title(id))?;
        out.write_all(command.line(None).as_bytes())?;
        writeln!(out)?;
    }
    Ok(Exit::Done)
}

/// Where tasks keep their state between attempts: a directory that is kept, or one for this run.
struct Checkpoints {
    kept: Option<PathBuf>,
    temporary: Option<tempfile::TempDir>,
}

impl Checkpoints {
    fn new(args: &Args, file: &JobFile) -> Result<Self> {
        let wanted = file.request.tasks.iter().any(|task| task.checkpoints) && !args.dry_run;
        let (mut kept, mut temporary) = (None, None);
        match &args.checkpoints {
            _ if !wanted => {}
            None => temporary = Some(tempfile::tempdir()?),
            Some(directory) => {
                let cannot = || format!("cannot keep checkpoints in {}", directory.display());
                std::fs::create_dir_all(directory).with_context(cannot)?;
                // Tasks may run in other directories.
                kept = Some(std::path::absolute(directory).with_context(cannot)?);
            }
        }
        Ok(Self { kept, temporary })
    }

    fn directory(&self) -> Option<PathBuf> {
        let temporary = self.temporary.as_ref().map(tempfile::TempDir::path);
        self.kept.as_deref().or(temporary).map(Path::to_owned)
    }
}

/// What each task says for itself in the file cannot be said for all on the command line.
fn refuse_what_the_file_says(args: &Args) -> Result<()> {
    for (given, option, key) in [
        (!args.each_line.is_empty(), "--each-line", "each_line"),
        (args.array.is_some(), "--array", "array"),
        (args.weights.is_some(), "--weights", "cost"),
        (args.timeout.is_some(), "--timeout", "time_limit"),
        (args.retries > 0, "--retries", "retries"),
        (args.speculate, "--speculate", "speculate"),
        (args.memory.is_some(), "--memory", "memory"),
        (args.quote, "--quote", "command: [program, argument]"),
        (args.shell.is_some(), "--shell", "shell"),
        (args.no_item, "--no-item", "command"),
        (args.null, "--null", "each"),
        (args.delimiter.is_some(), "--delimiter", "each"),
        (args.max_args.is_some(), "--max-args", "each"),
        (args.max_lines.is_some(), "-L", "each"),
        (args.pipe, "--pipe", "each"),
        (args.line_buffer, "--line-buffer", "command"),
        (args.colsep.is_some(), "--colsep", "each"),
        (
            args.many || args.many_words || args.xargs,
            "-m, -X or --xargs",
            "each",
        ),
        (args.csv, "--csv", "each"),
        (args.header.is_some(), "--header", "each"),
        (args.skip_first_line, "--skip-first-line", "each"),
        (args.end.is_some(), "-E", "each"),
        (args.link, "--link", "each"),
        (args.no_run_if_empty, "--no-run-if-empty", "each"),
        (args.trim.is_some(), "--trim", "each"),
        (args.shuf, "--shuf", "each"),
        (args.item_name.is_some(), "-I", "command"),
        (
            args.plus || !args.rpl.is_empty(),
            "--plus or --rpl",
            "command",
        ),
        (args.workdir.is_some(), "--workdir", "directory"),
        (args.nice.is_some(), "--nice", "command: nice …"),
        (args.tagstring.is_some(), "--tagstring", "name"),
        (args.retry_failed, "--retry-failed", "retries"),
    ] {
        if given {
            bail!("{option} is for commands with items; in a job file write `{key}`");
        }
    }
    Ok(())
}

fn check_against(args: &Args, file: &JobFile) -> Result<()> {
    if args.jobs.is_some() && !file.agents.is_empty() {
        bail!("--jobs: the file describes its agents and their slots");
    }
    if file.agents.is_empty()
        && let Some((task, resource)) = file.request.tasks.iter().find_map(|task| {
            let resource = task.needs.named.keys().next()?;
            Some((task.name.as_deref().unwrap_or_default(), resource))
        })
    {
        bail!("`{task}` needs `{resource}`: say under `agents` who has it");
    }
    Ok(())
}

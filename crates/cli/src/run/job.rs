//! `loxley run FILE.yaml`: the tasks of a job file, on agents of this machine.

use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use loxley_agent::Limits;
use loxley_jobfile::{AgentDef, FallbackDef, JobFile, NameTable, Needs, Plan};
use loxley_model::{AgentSpec, GroupId, TaskId, TaskSpec, Time};
use loxley_policy::Config;
use loxley_sim::report::{self, DrawnRun, Report};

use super::chronicle::Chronicle;
use super::delivery::Delivery;
use super::engine::{Engine, Parts};
use super::limit::GroupLimit;
use super::progress::Progress;
use super::slots::{House, Recipe};
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
    names: NameTable,
    urgent_from: loxley_model::Priority,
}

impl JobBook {
    /// The book, and the agents as they register.
    fn new(mut file: JobFile, slots: u32, config: &Config) -> (Self, Vec<AgentSpec>) {
        if file.agents.is_empty() {
            file.agents = made_up_agents(&file, slots);
        }
        let mut names = NameTable::default();
        let specs = file.agent_specs(&mut names);
        let plan = Plan::new(&file, TaskId(1));
        let book = Self {
            plan,
            agents: file.agents.clone(),
            file,
            names,
            urgent_from: config.priority.high_priority_threshold,
        };
        (book, specs)
    }

    /// What people call a task.
    pub(super) fn title(&self, task: TaskId) -> String {
        match self.plan.find(task) {
            Some(planned) => self.file.title(planned),
            None => format!("task {task}"),
        }
    }

    /// All tasks for a submission at `now`.
    pub(super) fn specs(&self, now: Time) -> Vec<TaskSpec> {
        self.plan.specs(&self.file, now, &mut self.names.clone())
    }

    /// Whether a task is protected as urgent.
    pub(super) fn is_urgent(&self, task: TaskId) -> bool {
        let planned = self.plan.find(task);
        planned.is_some_and(|planned| {
            self.file.tasks[planned.definition].traits.priority >= self.urgent_from
        })
    }

    /// The name of a task, and the value that stands in for it.
    pub(super) fn name_and_value(&self, task: TaskId) -> (String, Option<String>) {
        let Some(planned) = self.plan.find(task) else {
            return (String::new(), None);
        };
        let definition = &self.file.tasks[planned.definition];
        let value = match &definition.fallback {
            Some(FallbackDef::Value(value)) => Some(value.clone()),
            _ => None,
        };
        (definition.name.clone(), value)
    }

    /// How wide the names of tasks are.
    pub(super) fn name_width(&self) -> usize {
        let widths = self.file.tasks.iter().map(|task| task.name.chars().count());
        widths.max().unwrap_or(0).min(30)
    }

    /// The limits of groups, with those that the command line says instead.
    fn limits(&mut self, overridden: &[GroupLimit]) -> Result<Vec<(GroupId, u32)>> {
        for GroupLimit { group, limit } in overridden {
            let known = self.file.limits.get_mut(group);
            *known.with_context(|| format!("--limit: the file has no limit for `{group}`"))? =
                *limit;
        }
        let names = &mut self.names;
        let limits = self.file.limits.iter();
        Ok(limits
            .map(|(group, limit)| (names.group(group), *limit))
            .collect())
    }
}

/// Agents for a file that describes none: they can do everything. Work is stolen between agents, so
/// each slot is one; where tasks ask for processors or memory, one agent has all of the machine's.
fn made_up_agents(file: &JobFile, slots: u32) -> Vec<AgentDef> {
    let mut skills: Vec<String> = file
        .tasks
        .iter()
        .flat_map(|task| task.traits.skills.iter().cloned())
        .collect();
    skills.sort_unstable();
    skills.dedup();
    let asks = |needs: &Needs| needs.cpu_milli > 0 || needs.memory_bytes > 0;
    let agent = |name: String, slots: u32, has: Needs| AgentDef {
        name,
        skills: skills.clone(),
        slots,
        speed: 1.0,
        has,
    };
    if file.tasks.iter().any(|task| asks(&task.traits.needs)) {
        let has = Needs {
            cpu_milli: cores() as u64 * 1000,
            memory_bytes: super::gate::memory_total().unwrap_or(0),
            ..Needs::default()
        };
        return vec![agent("local".to_owned(), slots, has)];
    }
    (1..=slots)
        .map(|number| agent(format!("slot {number}"), 1, Needs::default()))
        .collect()
}

fn cores() -> usize {
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
    let (mut book, agents) = JobBook::new(file, slots, &config);
    let limits = book.limits(&args.limit)?;
    let book = Arc::new(book);
    let (log, earlier) = super::joblog(&args)?;
    let kept = Checkpoints::new(&args, &book.file)?;
    let source = JobSource {
        recipes: recipes(&args, &book.file)?,
        book: Arc::clone(&book),
        checkpoints: kept.directory(),
        earlier,
        again: args.resume_failed,
        given: false,
        total: book.file.count(),
    };
    if args.dry_run {
        return dry_run(&source, out);
    }
    let mut delivery = Delivery::new(args.keep_order, args.tag, args.json);
    delivery.verbose = args.verbose;
    delivery.log = log;
    delivery.results = args.results.take();
    let (sender, receiver) = channel();
    super::watch_interrupts(sender.clone())?;
    let names: Vec<&str> = book
        .agents
        .iter()
        .map(|agent| agent.name.as_str())
        .collect();
    let engine = Engine::new(Parts {
        config,
        house: Arc::new(House {
            gate: super::gate(&args, cores()),
            job: std::process::id(),
            hold: Duration::ZERO,
        }),
        agents,
        limits,
        source: Source::Job(source),
        delivery,
        progress: Progress::new(args.bar || io::stderr().is_terminal()).with_agents(&names),
        chronicle: Some(Chronicle::new(
            Arc::clone(&book),
            args.summary != When::Never,
        )),
        halt: args.halt,
        median_limit: None,
        events: (sender, receiver),
    })?;
    let (summary, chronicle) = engine.run(out)?;
    let chronicle = chronicle.expect("a job has a chronicle");
    finish(&args, path, &book, &summary, chronicle, out)?;
    Ok(super::exit_of(&summary))
}

/// Says how it went, and draws it.
fn finish(
    args: &Args,
    path: &Path,
    book: &JobBook,
    summary: &Summary,
    chronicle: Chronicle,
    out: &mut dyn Write,
) -> Result<()> {
    let account = chronicle.account();
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
    let page = draw(path, book, summary, &account, chronicle);
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
    chronicle: Chronicle,
) -> String {
    let wall = u64::try_from(summary.wall.as_nanos()).unwrap_or(u64::MAX);
    let slots = summary.busy_ns.len().max(1) as u64;
    let bound = (chronicle.work() / slots)
        .max(chronicle.critical_path())
        .max(1);
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
        ("mean wait", format!("{:.3} s", chronicle.mean_wait())),
    ];
    let title = book.file.name.clone();
    let title = title.unwrap_or_else(|| path.display().to_string());
    let run = DrawnRun {
        label: title.clone(),
        timeline: chronicle.into_timeline(Time(wall)),
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
    let recipe = |task: &loxley_jobfile::TaskDef| -> Result<Arc<Recipe>> {
        Ok(Arc::new(Recipe {
            template: task.template()?,
            streams: super::streams(args),
            limits: Limits::default(),
            environment: task
                .traits
                .environment
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            directory: task.traits.directory.clone(),
        }))
    };
    file.tasks.iter().map(recipe).collect()
}

/// Prints what would run, in the order of the file.
fn dry_run(source: &JobSource, out: &mut dyn Write) -> Result<Exit> {
    use std::os::unix::ffi::OsStrExt;
    for (title, what) in source.each() {
        write!(out, "{title}\t")?;
        out.write_all(what.line(0).as_bytes())?;
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
        let wanted = file.tasks.iter().any(|task| task.traits.checkpoint) && !args.dry_run;
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
        (args.each_line.is_some(), "--each-line", "each_line"),
        (args.array.is_some(), "--array", "array"),
        (args.weights.is_some(), "--weights", "cost"),
        (args.timeout.is_some(), "--timeout", "time_limit"),
        (args.retries > 0, "--retries", "retries"),
        (args.speculate, "--speculate", "speculate"),
        (args.memory.is_some(), "--memory", "memory"),
        (args.quote, "--quote", "command: [program, argument]"),
        (args.shell != "/bin/sh", "--shell", "shell"),
        (args.no_item, "--no-item", "command"),
        (args.null, "--null", "each"),
        (args.delimiter.is_some(), "--delimiter", "each"),
        (args.max_args.is_some(), "--max-args", "each"),
        (args.colsep.is_some(), "--colsep", "each"),
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
        && let Some((task, resource)) = file.tasks.iter().find_map(|task| {
            let resource = task.traits.needs.named.keys().next()?;
            Some((&task.name, resource))
        })
    {
        bail!("`{task}` needs `{resource}`: say under `agents` who has it");
    }
    Ok(())
}

//! `loxley submit`: work for the fleet.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use loxley_api::{
    AgentInfo, Blob, CommandRequest, DependencyFailure, ENTRIES_MAX, Entries, FunctionRequest,
    JobInfo, JobRequest, Needs, RetryRequest, TaskRequest, Unplaceable, Work,
};
use loxley_exec::raw_bytes;
use loxley_jobfile::Ranges;
use loxley_jobfile::amount::{bytes, duration, priority};
use loxley_model::{Priority, Rerun};

use super::connect::{Connect, print_json};
use super::job::finish_waiting;
use super::select::Selector;
use super::wait::Manner;
use crate::exit::Exit;
use crate::input;

/// Submit work to a server: a command, an array of commands, or a job file.
///
/// When this returns, the job is on disk and survives a crash of the server. A command is a program
/// and its arguments, as they are: no shell is involved unless you name one. It runs in the present
/// directory, on whichever agent has the skills and the room.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// A job file (.yaml, .yml), instead of a command.
    #[arg(value_name = "FILE", conflicts_with = "words")]
    file: Option<PathBuf>,
    /// The command, after `--`. In an array, {} stands for the entry, {#} for its number from 1 and {%} for
    /// the slot of the agent that runs it; {.}, {/}, {//} and {/.} are parts of the entry. The entry is also
    /// in LOXLEY_ENTRY.
    #[arg(value_name = "COMMAND", last = true)]
    words: Vec<OsString>,

    /// A task for each of these numbers: 1-1000, 1-9:2, 1,3,5-8.
    #[arg(long, value_name = "RANGE", conflicts_with = "each_line")]
    array: Option<Ranges>,
    /// A task for each line of a file; - for standard input.
    #[arg(long, value_name = "FILE")]
    each_line: Option<PathBuf>,
    /// Take more entries later (`job extend`), until `job close`: for items that come in over time. The array may
    /// begin without any.
    #[arg(long)]
    open: bool,
    /// Call a function that agents registered under this name, instead of starting a command.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["words", "file"])]
    function: Option<String>,
    /// What the function gets: the bytes of a file; - for standard input.
    #[arg(long, value_name = "FILE", requires = "function")]
    input: Option<PathBuf>,

    /// Yours for this job and no other: whoever submits the same with the same key, however often, gets the one
    /// job [default: drawn at random, so that this command can send it again].
    #[arg(long, allow_hyphen_values = true)]
    key: Option<String>,
    /// How long to send it again when no answer comes.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1m")]
    patience: Duration,
    /// What people call the job.
    #[arg(long)]
    name: Option<String>,
    /// For whom it counts where users have shares; only an admin may name somebody else [default: the
    /// user of the token].
    #[arg(long)]
    user: Option<String>,

    #[command(flatten)]
    wants: Wants,
    #[command(flatten)]
    limits: TaskLimits,

    /// Start when these jobs have succeeded: last, or numbers like 1,3,5-8.
    #[arg(long, value_name = "SELECTOR", help_heading = "Order")]
    after: Option<Selector>,
    /// Skip the job instead of failing it when a job of --after fails.
    #[arg(long, help_heading = "Order")]
    skip_after_failure: bool,

    /// Set a variable of the environment; may be given more than once.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, help_heading = "Surroundings")]
    env: Vec<(String, String)>,
    /// Where it runs, on the agent [default: the present directory].
    // As the API and GNU parallel call it; clap would suggest `--dir`, which is the server's.
    #[arg(
        long,
        aliases = ["directory", "workdir"],
        value_name = "DIR",
        help_heading = "Surroundings"
    )]
    cwd: Option<PathBuf>,
    /// Have the agent write the whole output to TASK.out and TASK.err in this directory, too.
    #[arg(long, value_name = "DIR", help_heading = "Surroundings")]
    output: Option<PathBuf>,

    /// Wait until the job is over.
    #[arg(long, help_heading = "Waiting")]
    wait: bool,
    /// Wait, and say how far it is also where standard error is no terminal.
    #[arg(long, help_heading = "Waiting")]
    progress: bool,
    /// Print only the number of the job.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Print the job as one JSON object.
    #[arg(long)]
    json: bool,
    /// Print the request as JSON and submit nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connect: Connect,
}

/// What the tasks ask for.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What the tasks ask for")]
struct Wants {
    /// What kind of work it is: how long it takes is learned of each kind [default: the command].
    #[arg(long, value_name = "NAME")]
    kind: Option<String>,
    /// Skills that an agent must have: python,gpu.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    skills: Vec<String>,
    /// 1 to 5, or low, normal, high, urgent; 5 is the most urgent.
    #[arg(long, value_parser = priority, default_value = "normal")]
    priority: Priority,
    /// Processors; parts like 0.5 are fine.
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    cpus: f64,
    /// Memory: 512M, 8G. Enforced where the agent's system allows.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    mem: Option<u64>,
    /// A named resource: gpu=1; may be given more than once.
    #[arg(long, value_name = "NAME=N", value_parser = amount)]
    resource: Vec<(String, u64)>,
    /// The group whose limit the tasks count against.
    #[arg(long)]
    group: Option<String>,
    /// How many tasks of a group may run at once in the whole fleet: disk=2. Stays after the job.
    #[arg(long, value_name = "GROUP=N", value_parser = amount)]
    limit: Vec<(String, u64)>,
    /// How long a task is expected to run: helps to place it.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    cost: Option<Duration>,
    /// When the tasks should be done, from now: 10m.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    deadline: Option<Duration>,
}

/// What the tasks may do.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits and failures")]
struct TaskLimits {
    /// How long one attempt may run. Then TERM to its process group, and KILL after a grace.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time_limit: Option<Duration>,
    /// How long a task may wait for an agent that can do it [default: for ever].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    hold_limit: Option<Duration>,
    /// How often a task that failed is tried again, after a pause that doubles.
    #[arg(long, value_name = "N", default_value_t = 0)]
    retries: u32,
    /// Refuse the job when no agent that is there now can do it, instead of holding it.
    #[arg(long)]
    refuse_unplaceable: bool,
    /// Start a second copy elsewhere when a task takes much longer than its like. Only for commands
    /// that do no harm when they run twice.
    #[arg(long)]
    speculate: bool,
    /// The command must not run twice: if its agent is lost, it fails, and runs on no other.
    #[arg(long, conflicts_with_all = ["retries", "speculate"])]
    no_rerun: bool,
    /// The command keeps its state in the file LOXLEY_CHECKPOINT and can go on from there.
    #[arg(long)]
    checkpoint: bool,
}

const HELP: &str = "\
Examples:
  loxley submit -- gzip -k big.log
  loxley submit --array 1-1000 --skills python --retries 3 -- python step.py {}
  ls *.jpg | loxley submit --each-line - --name thumbs -- convert {} thumbs/{}
  loxley submit --wait --time-limit 10m --mem 8G --priority high -- ./solve case7
  loxley submit --open --name mail -- ./sort {}    then: loxley job extend last a.eml b.eml
  loxley submit --after last -- sh -c 'cat results/* > all'
  loxley submit nightly.yaml --wait

A {} is one argument wherever it stands, whatever is in it. For a shell, write
`sh -c 'gzip \"$LOXLEY_ENTRY\"'`, not `sh -c 'gzip {}'`: the shell would read what is in the entry.

Ctrl-C while waiting ends the waiting, not the job.

Exit codes: 0 accepted, and with --wait every task succeeded; 1 something went wrong here; 3 the job
has mistakes; 4 with --wait: a task failed or was cancelled; 6 the server cannot be reached; 7 the
server refused; 9 no answer came: the job may have been accepted (submit it again with its --key to
know); 130 Ctrl-C.";

pub(crate) fn run(args: Args, out: &mut dyn Write) -> Result<Exit> {
    let mut job = match &args.file {
        Some(path) if !is_job_file(path) => bail!(
            "{0}: not a job file (.yaml, .yml); a command comes after `--`: `loxley submit -- {0}`",
            path.display()
        ),
        Some(path) => match loxley_jobfile::read(path)
            .with_context(|| format!("cannot read {}", path.display()))?
        {
            Ok(file) => args.of_file(file)?,
            Err(mistakes) => {
                crate::config::show(&mistakes)?;
                return Ok(Exit::Mistakes);
            }
        },
        None => args.of_command()?,
    };
    if args.dry_run {
        print_json(out, &job)?;
        return Ok(Exit::Done);
    }
    job.key.clone_from(&args.key);
    let client = args.connect.client()?.with_patience(args.patience);
    if let Some(after) = &args.after {
        let jobs = client.call(async |client| after.jobs(client, |_| true).await)?;
        job.after = jobs.iter().map(|job| job.id).collect();
    }
    let waits = args.wait || args.progress;
    // The end of a short job comes back with the answer.
    let wait = Duration::from_millis(if waits { 100 } else { 0 });
    let accepted = client.call(async |client| client.submit_and_wait(&job, wait).await);
    let accepted = match accepted {
        Err(error) if job.when_unplaceable == Unplaceable::Refuse => {
            let agents = client.call(async |client| client.agents().await);
            let hint = agents.ok().and_then(|agents| who_lacks_what(&job, &agents));
            return match hint {
                Some(hint) => Err(anyhow::Error::from(error).context(hint)),
                None => Err(error.into()),
            };
        }
        accepted => accepted?,
    };
    args.announce(&accepted, out)?;
    if !waits {
        return Ok(Exit::Done);
    }
    out.flush()?;
    let manner = Manner {
        progress: args.progress,
        limit: None,
    };
    finish_waiting(&client, &[accepted], manner, args.json, out)
}

/// Which agent comes nearest to what the job asks for, and what it lacks; none when skills are not the cause.
fn who_lacks_what(job: &JobRequest, agents: &[AgentInfo]) -> Option<String> {
    if agents.is_empty() {
        return Some("no agent is registered (`loxley agent start`)".to_owned());
    }
    let missing = |task: &TaskRequest, agent: &AgentInfo| -> Vec<String> {
        let skills = task.skills.iter();
        let lacks = skills.filter(|skill| !agent.capabilities.contains(skill));
        lacks.cloned().collect()
    };
    let nearest = |task: &TaskRequest| {
        let lacking = agents.iter().map(|agent| (agent, missing(task, agent)));
        lacking.min_by_key(|(_, missing)| missing.len())
    };
    let mut all = job.tasks.iter().filter_map(nearest);
    let (agent, missing) = all.find(|(_, missing)| !missing.is_empty())?;
    let name = &agent.name;
    let skills = missing.join(",");
    Some(format!(
        "the nearest agent, `{name}`, lacks `{skills}` (`loxley agent start --skills {skills}`)"
    ))
}

fn is_job_file(path: &Path) -> bool {
    path.extension()
        .is_some_and(|end| end == "yaml" || end == "yml")
}

impl Args {
    fn announce(&self, job: &JobInfo, out: &mut dyn Write) -> Result<()> {
        let waits = self.wait || self.progress;
        let (id, total) = (job.id.0, job.tasks.total);
        match total {
            // Whoever waits with --json gets the job once, as it is at its end.
            _ if self.json && waits => {}
            _ if self.json => print_json(out, job)?,
            _ if self.quiet => writeln!(out, "{id}")?,
            1 => writeln!(out, "job {id}: 1 task")?,
            _ => writeln!(out, "job {id}: {total} tasks")?,
        }
        Ok(())
    }

    /// The agents and the configuration in the file are for local runs; a server has its own.
    fn of_file(&self, file: loxley_jobfile::JobFile) -> Result<JobRequest> {
        let elsewhere = [
            (self.array.is_some(), "--array"),
            (self.each_line.is_some(), "--each-line"),
            (self.cwd.is_some(), "--cwd"),
            (!self.env.is_empty(), "--env"),
            (self.output.is_some(), "--output"),
            (self.wants.is_given(), "what tasks ask for"),
            (self.limits.is_given(), "limits of tasks"),
        ];
        if let Some((_, option)) = elsewhere.iter().find(|(given, _)| *given) {
            bail!("{option}: in a job file, that is said in the file");
        }
        let mut job = file.request;
        job.open = self.open;
        if job.tasks.is_empty() {
            bail!("there is nothing to do: no array of the file has an entry");
        }
        for task in &mut job.tasks {
            if let Work::Command(command) = &mut task.run {
                let directory = std::path::absolute(command.directory.as_deref().unwrap_or("."))?;
                command.directory = Some(text(directory.into())?);
            }
        }
        if self.name.is_some() {
            job.name.clone_from(&self.name);
        }
        job.user.clone_from(&self.user);
        Ok(job)
    }

    fn of_command(&self) -> Result<JobRequest> {
        let work = match &self.function {
            Some(name) => Work::Function(FunctionRequest {
                name: name.clone(),
                input: match &self.input {
                    Some(file) => Blob(input::read(file)?),
                    None => Blob::default(),
                },
            }),
            None => Work::Command(self.command()?),
        };
        let mut task = TaskRequest::new(work);
        task.entries = self.entries()?;
        self.wants.apply(&mut task);
        self.limits.apply(&mut task);
        if let Some(directory) = &self.output {
            task.output.directory = Some(text(std::path::absolute(directory)?.into())?);
        }
        Ok(JobRequest {
            name: self.name.clone(),
            user: self.user.clone(),
            on_dependency_failure: match self.skip_after_failure {
                true => DependencyFailure::Skip,
                false => DependencyFailure::Fail,
            },
            when_unplaceable: match self.limits.refuse_unplaceable {
                true => Unplaceable::Refuse,
                false => Unplaceable::Hold,
            },
            limits: self.wants.group_limits()?,
            open: self.open,
            tasks: vec![task],
            ..JobRequest::default()
        })
    }

    fn command(&self) -> Result<CommandRequest> {
        if self.words.is_empty() {
            bail!("nothing to do: name a command after `--`, or a job file");
        }
        let directory = match &self.cwd {
            // As it is on the agent, where it may be another one than here.
            Some(directory) => directory.clone(),
            None => std::env::current_dir().context("the present directory is gone")?,
        };
        let words = self.words.iter();
        let words = words.map(|word| raw_bytes::to_text(word.as_bytes()));
        Ok(CommandRequest {
            words: words.collect(),
            environment: self.env.iter().cloned().collect(),
            directory: Some(text(directory.into())?),
            shell: None,
        })
    }

    fn entries(&self) -> Result<Option<Entries>> {
        let given = entries(self.array.as_ref(), self.each_line.as_deref())?;
        Ok(match given {
            None if self.open => Some(Entries::Lines(Vec::new())),
            given => given,
        })
    }
}

impl Wants {
    fn is_given(&self) -> bool {
        self.kind.is_some()
            || !self.skills.is_empty()
            || self.priority != Priority::NORMAL
            || self.cpus != 0.0
            || self.mem.is_some()
            || !self.resource.is_empty()
            || self.group.is_some()
            || !self.limit.is_empty()
            || self.cost.is_some()
            || self.deadline.is_some()
    }

    fn apply(&self, task: &mut TaskRequest) {
        task.kind.clone_from(&self.kind);
        task.skills.clone_from(&self.skills);
        task.priority = self.priority;
        task.needs = Needs {
            cpus: self.cpus,
            memory_bytes: self.mem.unwrap_or(0),
            named: self.resource.iter().cloned().collect(),
        };
        task.group.clone_from(&self.group);
        task.cost_sec = self.cost.map(|cost| cost.as_secs_f64());
        task.deadline_sec = self.deadline.map(|deadline| deadline.as_secs_f64());
    }

    fn group_limits(&self) -> Result<BTreeMap<String, u32>> {
        let limits = self.limit.iter().map(|(group, limit)| {
            let limit = u32::try_from(*limit);
            let limit = limit.with_context(|| format!("--limit {group}: too large"))?;
            Ok((group.clone(), limit))
        });
        limits.collect()
    }
}

impl TaskLimits {
    fn is_given(&self) -> bool {
        self.time_limit.is_some()
            || self.hold_limit.is_some()
            || self.retries > 0
            || self.refuse_unplaceable
            || self.speculate
            || self.no_rerun
            || self.checkpoint
    }

    fn apply(&self, task: &mut TaskRequest) {
        task.time_limit_sec = self.time_limit.map(|limit| limit.as_secs_f64());
        task.hold_limit_sec = self.hold_limit.map(|limit| limit.as_secs_f64());
        task.retry = RetryRequest {
            retries: self.retries,
            ..RetryRequest::default()
        };
        task.speculate = self.speculate;
        task.rerun = match self.no_rerun {
            true => Rerun::Never,
            false => Rerun::OnLoss,
        };
        task.checkpoints = self.checkpoint;
    }
}

/// The entries that --array or --each-line name.
pub(super) fn entries(array: Option<&Ranges>, each_line: Option<&Path>) -> Result<Option<Entries>> {
    if let Some(ranges) = array {
        if ranges.count() > ENTRIES_MAX {
            bail!("--array: more than {ENTRIES_MAX} entries");
        }
        return Ok(Some(ranges.into()));
    }
    let Some(path) = each_line else {
        return Ok(None);
    };
    let bytes = input::read(path)?;
    let lines: Vec<String> = lines(&bytes).map(raw_bytes::to_text).collect();
    if lines.is_empty() {
        bail!("{} has no lines", input::name(path));
    }
    Ok(Some(Entries::Lines(lines)))
}

/// Without what ends them: a line feed, with or without a carriage return before it.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines.map(|line| match line.strip_suffix(b"\n") {
        Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
        None => line,
    })
}

/// A path in JSON is UTF-8: agents make it, and look at it.
fn text(word: OsString) -> Result<String> {
    word.into_string()
        .map_err(|word| anyhow!("{} is not UTF-8, and cannot be sent", word.display()))
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| format!("`{text}` is not NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(super) fn amount(text: &str) -> Result<(String, u64), String> {
    let wrong = || format!("`{text}` is not NAME=NUMBER");
    let (name, amount) = pair(text).map_err(|_| wrong())?;
    Ok((name, amount.parse().map_err(|_| wrong())?))
}

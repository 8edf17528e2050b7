//! `loxley job`: look at jobs, wait for them, add to them, cancel them, try them again.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use loxley_api::{
    Entries, ExtendRequest, JobFilter, JobInfo, JobState, TaskFilter, TaskInfo, TaskState,
};
use loxley_client::ClientError;
use loxley_client::blocking::Client;
use loxley_jobfile::Ranges;
use loxley_jobfile::amount::duration;
use loxley_model::TaskId;

use super::connect::Connect;
use super::output::OutputArgs;
use super::print::{Which, each, print_changes, print_details, print_rows};
use super::select::{SELECTORS, Selector, jobs_of, tasks_of};
use super::submit;
use super::wait;
use super::wait::{Manner, Waited};
use super::watch;
use super::{figures, show};
use crate::exit::Exit;

/// Look at jobs, wait for them, cancel them, try them again.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{SELECTORS}\n\n{HELP}"))]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "\
Examples:
  loxley job list                      the newest jobs
  loxley job info last
  loxley job wait 3,5-8 --progress
  loxley job watch last                where its tasks are, until it is over
  loxley job logs last --state failed  the output of what failed
  loxley job logs last --follow --tag  the output as it comes, until the job is over
  loxley job extend last a.eml b.eml   more entries for a job of `submit --open`
  loxley job close last
  loxley job cancel all

Exit codes: 0 done; 4 `wait` saw a task that failed or was cancelled; 5 there is no such job;
6 the server cannot be reached; 7 the server refused; 8 `wait --timeout` gave up; 130 Ctrl-C.";

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(ListArgs),
    /// Show everything about jobs, with how balanced they were (the targets are those of every run).
    #[command(after_help = "Examples:\n  loxley job info last\n  loxley job info 3,5-8 --json")]
    Info(Which),
    Wait(WaitArgs),
    Watch(watch::Args),
    Logs(LogsArgs),
    /// End jobs: TERM to what runs, KILL after a grace; what waits never starts.
    #[command(after_help = "Examples:\n  loxley job cancel last\n  loxley job cancel all")]
    Cancel(Which),
    Extend(ExtendArgs),
    /// Add nothing more to open jobs: each is over when its last task is.
    #[command(after_help = "Examples:\n  loxley job close last")]
    Close(Which),
    /// Give the failed tasks of jobs another chance.
    #[command(after_help = "Examples:\n  loxley job retry 7")]
    Retry(Which),
}

/// List jobs, the newest first.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley job list\n  loxley job list --state failed --user ada --limit 100\n  loxley job list --json | jq .name"
)]
struct ListArgs {
    /// Only jobs in this state: waiting, open, succeeded, failed, cancelled.
    #[arg(long, value_name = "STATE", value_parser = job_state)]
    state: Option<JobState>,
    /// Only jobs with this name.
    #[arg(long)]
    name: Option<String>,
    /// Only jobs of this user.
    #[arg(long)]
    user: Option<String>,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u64,
    /// Print a JSON object for each, one per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Wait until jobs are over, also while the server restarts.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley job wait last\n  loxley job wait 3,5-8 --progress --timeout 1h && echo fine"
)]
struct WaitArgs {
    /// Which jobs: last, all (that are not over), or numbers like 1,3,5-8.
    #[arg(value_name = "SELECTOR")]
    jobs: Selector,
    /// Say how far they are also where standard error is no terminal.
    #[arg(long)]
    progress: bool,
    /// Give up after so long; the jobs go on.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    /// Print a JSON object for each job, one per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Add entries to an array of a job that was submitted with --open.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley job extend last a.eml b.eml\n  find new | loxley job extend 7 --each-line -\n  loxley job extend 7 --array 101-200 --task step"
)]
struct ExtendArgs {
    /// Which job: last, or its number.
    #[arg(value_name = "SELECTOR")]
    job: Selector,
    /// The entries.
    #[arg(value_name = "ENTRY", conflicts_with_all = ["array", "each_line"])]
    entries: Vec<String>,
    /// Entries for each of these numbers: 1-1000, 1-9:2, 1,3,5-8.
    #[arg(long, value_name = "RANGE", conflicts_with = "each_line")]
    array: Option<Ranges>,
    /// An entry for each line of a file; - for standard input.
    #[arg(long, value_name = "FILE")]
    each_line: Option<PathBuf>,
    /// The name of the array, in a job with several [default: the first].
    #[arg(long, value_name = "NAME")]
    task: Option<String>,
    /// How long each is expected to run.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    cost: Option<Duration>,
    /// Print the job as one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Print the output of a job's tasks: the end of it, as the server keeps it, or all that comes.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley job logs last\n  loxley job logs last --state failed --tag\n  loxley job logs last --follow --tag"
)]
struct LogsArgs {
    /// Which jobs: last, all, or numbers like 1,3,5-8.
    #[arg(value_name = "SELECTOR")]
    jobs: Selector,
    /// Only tasks in this state, such as failed.
    #[arg(long, value_name = "STATE", value_parser = task_state, conflicts_with = "follow")]
    state: Option<TaskState>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: Args, out: &mut dyn Write) -> Result<Exit> {
    match args.command {
        Command::List(args) => list(&args, out),
        Command::Info(args) => info(&args, out),
        Command::Wait(args) => wait_for(&args, out),
        Command::Watch(args) => watch::run(&args, out),
        Command::Logs(args) => logs(&args, out),
        Command::Cancel(args) => cancel(&args, out),
        Command::Retry(args) => retry(&args, out),
        Command::Extend(args) => extend(args, out),
        Command::Close(args) => close(&args, out),
    }
}

fn list(args: &ListArgs, out: &mut dyn Write) -> Result<Exit> {
    let filter = JobFilter {
        state: args.state,
        name: args.name.clone(),
        user: args.user.clone(),
        ..JobFilter::default()
    };
    let client = args.connect.client()?;
    let jobs = client.call(async |client| jobs_of(client, filter, args.limit).await)?;
    print_rows(&jobs, args.json, out)
}

fn info(args: &Which, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let jobs = client.call(async |client| args.which.jobs(client, |_| true).await)?;
    if args.json {
        return print_details(&jobs, true, out);
    }
    for (number, job) in jobs.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        show::job(out, job)?;
        print_what_it_waits_for(&client, job, out)?;
        print_figures(&client, job, false, out)?;
    }
    Ok(Exit::Done)
}

/// Why nothing happens, where that is so: tasks that no agent can do, or other jobs that come first.
fn print_what_it_waits_for(client: &Client, job: &JobInfo, out: &mut dyn Write) -> Result<()> {
    let asked = client.call(async |client| {
        let task = wait::stuck_task(client, job).await;
        match task {
            Some(task) => client.explain(task).await.map(Some),
            None => Ok(None),
        }
    })?;
    if let Some(explanation) = asked {
        show::explanation(out, &explanation)?;
    }
    Ok(())
}

/// How balanced a job was, as far as it is over. One task alone cannot be out of balance; whoever did not ask hears
/// of figures only where there is enough to judge.
fn print_figures(client: &Client, job: &JobInfo, unasked: bool, out: &mut dyn Write) -> Result<()> {
    if job.tasks.total < 2 || job.tasks.over() == 0 {
        return Ok(());
    }
    let asked = client.call(async |client| client.job_figures(job.id).await);
    match asked {
        Ok(figures) if unasked && !figures::say_something(&figures) => {}
        Ok(figures) => figures::print(out, &figures)?,
        // What was asked for is known: that this is not is no failure.
        Err(error) => writeln!(std::io::stderr(), "loxley: no figures: {error}")?,
    }
    Ok(())
}

fn wait_for(args: &WaitArgs, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let is_open = |job: &JobInfo| !job.state.is_over();
    let jobs = client.call(async |client| args.jobs.jobs(client, is_open).await)?;
    let manner = Manner {
        progress: args.progress,
        limit: args.timeout,
    };
    finish_waiting(&client, &jobs, manner, args.json, out)
}

/// Waits for jobs and says how they ended: the common end of `job wait` and `submit --wait`.
pub(super) fn finish_waiting(
    client: &Client,
    jobs: &[JobInfo],
    manner: Manner,
    json: bool,
    out: &mut dyn Write,
) -> Result<Exit> {
    match wait::for_jobs(client, jobs, manner)? {
        Waited::Over(jobs) => {
            print_changes(&jobs, json, out)?;
            if !json {
                out.flush()?;
                for job in jobs.iter().filter(|job| job.tasks.failed > 0) {
                    say_first_cause(client, job)?;
                }
                for job in &jobs {
                    print_figures(client, job, true, &mut std::io::stderr())?;
                }
            }
            Ok(wait::exit_of(&jobs))
        }
        broken_off => Ok(wait::broken_off(&broken_off, jobs)?),
    }
}

/// Of a job that failed, what kept its first tasks from starting: nobody finds that in what they wrote.
fn say_first_cause(client: &Client, job: &JobInfo) -> Result<()> {
    const LOOKED_AT: u64 = 3;
    let filter = TaskFilter {
        state: Some(TaskState::Failed),
        ..TaskFilter::default()
    };
    let tasks = client.call(async |client| tasks_of(client, job.id, &filter, LOOKED_AT).await);
    match tasks {
        Ok(tasks) => say_what_never_started(client, &tasks),
        // How the job ended is known: that this is not is no failure.
        Err(error) => Ok(writeln!(std::io::stderr(), "loxley: no cause: {error}")?),
    }
}

/// Says of tasks that could not be started why, of the first few.
fn say_what_never_started(client: &Client, tasks: &[TaskInfo]) -> Result<()> {
    const SAID: usize = 3;
    let never_ran = |task: &&TaskInfo| {
        let last = task.last.as_ref();
        last.is_some_and(|last| {
            last.failure.is_some() && last.exit_code.is_none() && last.signal.is_none()
        })
    };
    for task in tasks.iter().filter(never_ran).take(SAID) {
        // Lists leave the words out.
        let task = client.call(async |client| client.task(task.id).await)?;
        if let Some(message) = task.last.and_then(|last| last.message) {
            writeln!(std::io::stderr(), "loxley: task {}: {message}", task.id.0)?;
        }
    }
    Ok(())
}

fn logs(args: &LogsArgs, out: &mut dyn Write) -> Result<Exit> {
    let client = args.output.connect.client()?;
    let filter = TaskFilter {
        state: args.state,
        ..TaskFilter::default()
    };
    let tasks = client.call(async |client| {
        let mut tasks = Vec::new();
        for job in args.jobs.jobs(client, |_| true).await? {
            tasks.extend(tasks_of(client, job.id, &filter, u64::MAX).await?);
        }
        Ok::<_, ClientError>(tasks)
    })?;
    if args.output.follow {
        return args.output.follow(&client, &tasks, out);
    }
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    args.output.print(&client, &ids, out)?;
    out.flush()?;
    say_what_never_started(&client, &tasks)?;
    Ok(Exit::Done)
}

fn cancel(args: &Which, out: &mut dyn Write) -> Result<Exit> {
    let is_open = |job: &JobInfo| !job.state.is_over();
    change(args, is_open, out, async |client, job| {
        client.cancel_job(job.id).await
    })
}

fn extend(args: ExtendArgs, out: &mut dyn Write) -> Result<Exit> {
    let named = submit::entries(args.array.as_ref(), args.each_line.as_deref())?;
    let entries = match named {
        Some(entries) => entries,
        None if args.entries.is_empty() => {
            bail!("nothing to add: name entries, or --array, or --each-line")
        }
        None => Entries::Lines(args.entries),
    };
    let more = ExtendRequest {
        task: args.task,
        entries,
        cost_sec: args.cost.map(|cost| cost.as_secs_f64()),
    };
    let client = args.connect.client()?;
    let jobs = client.call(async |client| args.job.jobs(client, |job| job.open).await)?;
    let [job] = &jobs[..] else {
        bail!("entries are added to one job; {} are meant", jobs.len());
    };
    let job = client.call(async |client| client.extend_job(job.id, &more).await)?;
    print_changes(&[job], args.json, out)
}

fn close(args: &Which, out: &mut dyn Write) -> Result<Exit> {
    let is_open = |job: &JobInfo| job.open;
    change(args, is_open, out, async |client, job| {
        client.close_job(job.id).await
    })
}

fn retry(args: &Which, out: &mut dyn Write) -> Result<Exit> {
    let has_failed = |job: &JobInfo| job.tasks.failed > 0;
    change(args, has_failed, out, async |client, job| {
        client.retry_job(job.id).await
    })
}

/// Does something with the jobs that are meant, and says how they are then.
fn change(
    args: &Which,
    fits: impl Fn(&JobInfo) -> bool,
    out: &mut dyn Write,
    act: impl AsyncFn(&loxley_client::Client, &JobInfo) -> Result<JobInfo, ClientError>,
) -> Result<Exit> {
    let client = args.connect.client()?;
    let changed = client.call(async |client| {
        let jobs = args.which.jobs(client, fits).await?;
        each(&jobs, async |job| act(client, job).await).await
    })?;
    print_changes(&changed, args.json, out)
}

fn job_state(text: &str) -> Result<JobState, String> {
    let states = [
        JobState::Waiting,
        JobState::Open,
        JobState::Succeeded,
        JobState::Failed,
        JobState::Cancelled,
    ];
    one_of(text, &states, JobState::name)
}

pub(super) fn task_state(text: &str) -> Result<TaskState, String> {
    let states = [
        TaskState::Pending,
        TaskState::Waiting,
        TaskState::Backoff,
        TaskState::Held,
        TaskState::Queued,
        TaskState::Assigned,
        TaskState::Running,
        TaskState::Standby,
        TaskState::Delegated,
        TaskState::Succeeded,
        TaskState::Failed,
        TaskState::Cancelled,
    ];
    one_of(text, &states, TaskState::name)
}

fn one_of<T: Copy>(text: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T, String> {
    let found = all.iter().copied().find(|one| name(*one) == text);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|one| name(*one)).collect();
        format!("`{text}` is not a state: {}", names.join(", "))
    })
}

//! `loxley job`: look at jobs, wait for them, cancel them, try them again.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Result;
use loxley_api::{JobFilter, JobInfo, JobState, TaskFilter, TaskState};
use loxley_client::blocking::Client;
use loxley_jobfile::amount::duration;

use super::connect::{Connect, print_json};
use super::select::{SELECTORS, Selector, jobs_of, tasks_of};
use super::wait::{Manner, Waited};
use super::{show, task, wait};
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
  loxley job logs last --state failed  the output of what failed
  loxley job cancel all

Exit codes: 0 done; 4 `wait` saw a task that failed or was cancelled; 5 there is no such job;
6 the server cannot be reached; 7 the server refused; 8 `wait --timeout` gave up; 130 Ctrl-C.";

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(ListArgs),
    Info(OneArgs),
    Wait(WaitArgs),
    Logs(LogsArgs),
    Cancel(OneArgs),
    Retry(OneArgs),
}

/// List jobs, the newest first.
#[derive(Debug, clap::Args)]
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

/// Arguments of commands that need only to know which.
#[derive(Debug, clap::Args)]
struct OneArgs {
    /// Which jobs: last, all, or numbers like 1,3,5-8.
    #[arg(value_name = "SELECTOR")]
    jobs: Selector,
    /// Print a JSON object for each, one per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Wait until jobs are over, also while the server restarts.
#[derive(Debug, clap::Args)]
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

/// Print the output of a job's tasks: the end of it, as the server keeps it.
#[derive(Debug, clap::Args)]
struct LogsArgs {
    /// Which jobs: last, all, or numbers like 1,3,5-8.
    #[arg(value_name = "SELECTOR")]
    jobs: Selector,
    /// Only tasks in this state, such as failed.
    #[arg(long, value_name = "STATE", value_parser = task_state)]
    state: Option<TaskState>,
    /// Put the number of the task in front of each line.
    #[arg(long)]
    tag: bool,
    /// Print a JSON object for each task, one per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) fn run(args: Args, out: &mut dyn Write) -> Result<Exit> {
    match args.command {
        Command::List(args) => list(&args, out),
        Command::Info(args) => info(&args, out),
        Command::Wait(args) => wait_for(&args, out),
        Command::Logs(args) => logs(&args, out),
        Command::Cancel(args) => cancel(&args, out),
        Command::Retry(args) => retry(&args, out),
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
    if args.json {
        jobs.iter().try_for_each(|job| print_json(out, job))?;
    } else {
        show::jobs(out, &jobs)?;
    }
    Ok(Exit::Done)
}

fn info(args: &OneArgs, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let jobs = client.call(async |client| args.jobs.jobs(client, |_| true).await)?;
    print_all(&jobs, args.json, out)
}

fn print_all(jobs: &[JobInfo], json: bool, out: &mut dyn Write) -> Result<Exit> {
    for (number, job) in jobs.iter().enumerate() {
        match json {
            true => print_json(out, job)?,
            false => {
                if number > 0 {
                    writeln!(out)?;
                }
                show::job(out, job)?;
            }
        }
    }
    Ok(Exit::Done)
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
            match json {
                true => jobs.iter().try_for_each(|job| print_json(out, job))?,
                false => wait::summarize(&jobs)?,
            }
            Ok(wait::exit_of(&jobs))
        }
        broken_off => Ok(wait::broken_off(&broken_off, jobs)?),
    }
}

fn logs(args: &LogsArgs, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let jobs = client.call(async |client| args.jobs.jobs(client, |_| true).await)?;
    let filter = TaskFilter {
        state: args.state,
        ..TaskFilter::default()
    };
    for job in jobs {
        let tasks = client.call(async |client| {
            let found = tasks_of(client, job.id, &filter, u64::MAX).await;
            found.map(|tasks| tasks.into_iter().map(|task| task.id).collect::<Vec<_>>())
        })?;
        task::print_outputs(&client, &tasks, args.tag, args.json, out)?;
    }
    Ok(Exit::Done)
}

fn cancel(args: &OneArgs, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let is_open = |job: &JobInfo| !job.state.is_over();
    let jobs = client.call(async |client| {
        let mut cancelled = Vec::new();
        for job in args.jobs.jobs(client, is_open).await? {
            cancelled.push(client.cancel_job(job.id).await?);
        }
        Ok::<_, anyhow::Error>(cancelled)
    })?;
    changed(&jobs, args.json, out)
}

fn retry(args: &OneArgs, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let has_failed = |job: &JobInfo| job.tasks.failed > 0;
    let jobs = client.call(async |client| {
        let mut retried = Vec::new();
        for job in args.jobs.jobs(client, has_failed).await? {
            retried.push(client.retry_job(job.id).await?);
        }
        Ok::<_, anyhow::Error>(retried)
    })?;
    changed(&jobs, args.json, out)
}

fn changed(jobs: &[JobInfo], json: bool, out: &mut dyn Write) -> Result<Exit> {
    match json {
        true => jobs.iter().try_for_each(|job| print_json(out, job))?,
        false => wait::summarize(jobs)?,
    }
    if jobs.is_empty() && !json {
        writeln!(io::stderr(), "there is no job for which that makes sense")?;
    }
    Ok(Exit::Done)
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

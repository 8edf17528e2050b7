//! `loxley task`: look at single tasks, and ask why one does not run.

use std::io::{self, Write};

use anyhow::Result;
use loxley_api::{JobInfo, OutputTail, TaskFilter, TaskInfo, TaskState};
use loxley_client::blocking::Client;
use loxley_model::TaskId;
use serde::Serialize;

use super::connect::{Connect, print_json};
use super::job::task_state;
use super::select::{SELECTORS, Selector, tasks_of};
use super::show;
use super::wait::{Waited, until_interrupted};
use crate::exit::Exit;

/// Look at tasks, wait for them, cancel them, ask why one does not run.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{SELECTORS}\n\n{HELP}"))]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "\
Tasks have numbers of their own, without gaps within a job; `loxley job info` shows which.

Examples:
  loxley task list                   the tasks of the newest job
  loxley task list 3,5-8 --state failed
  loxley task explain 17             why does it not run, and what would help
  loxley task logs 17
  loxley task retry 17

Exit codes: 0 done; 4 `wait` saw a task that failed or was cancelled; 5 there is no such task;
6 the server cannot be reached; 7 the server refused; 130 Ctrl-C.";

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(ListArgs),
    Info(OneArgs),
    Wait(OneArgs),
    Logs(LogsArgs),
    Explain(OneArgs),
    Cancel(OneArgs),
    Retry(OneArgs),
}

/// List the tasks of jobs.
#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Which jobs: last, all, or numbers like 1,3,5-8.
    #[arg(value_name = "JOBS", default_value = "last")]
    jobs: Selector,
    /// Only tasks in this state: pending, waiting, backoff, held, queued, assigned, running, standby,
    /// delegated, succeeded, failed, cancelled.
    #[arg(long, value_name = "STATE", value_parser = task_state)]
    state: Option<TaskState>,
    /// At most so many of each job.
    #[arg(long, value_name = "N", default_value_t = 1000)]
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
    /// Which tasks: last, all, or numbers like 1,3,5-8.
    #[arg(value_name = "SELECTOR")]
    tasks: Selector,
    /// Print a JSON object for each, one per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Print the output of tasks: the end of it, as the server keeps it.
#[derive(Debug, clap::Args)]
struct LogsArgs {
    /// Which tasks: last, all, or numbers like 1,3,5-8.
    #[arg(value_name = "SELECTOR")]
    tasks: Selector,
    /// Put the number of the task in front of each line.
    #[arg(long)]
    tag: bool,
    /// Print a JSON object for each, one per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) fn run(args: Args, out: &mut dyn Write) -> Result<Exit> {
    match args.command {
        Command::List(args) => list(&args, out),
        Command::Info(args) => info(&args, out),
        Command::Wait(args) => wait(&args, out),
        Command::Logs(args) => logs(&args, out),
        Command::Explain(args) => explain(&args, out),
        Command::Cancel(args) => cancel(&args, out),
        Command::Retry(args) => retry(&args, out),
    }
}

fn list(args: &ListArgs, out: &mut dyn Write) -> Result<Exit> {
    let filter = TaskFilter {
        state: args.state,
        ..TaskFilter::default()
    };
    let client = args.connect.client()?;
    let tasks = client.call(async |client| {
        let mut tasks = Vec::new();
        for job in args.jobs.jobs(client, |_| true).await? {
            tasks.extend(tasks_of(client, job.id, &filter, args.limit).await?);
        }
        Ok::<_, anyhow::Error>(tasks)
    })?;
    if args.json {
        tasks.iter().try_for_each(|task| print_json(out, task))?;
    } else {
        show::tasks(out, &tasks)?;
    }
    Ok(Exit::Done)
}

fn info(args: &OneArgs, out: &mut dyn Write) -> Result<Exit> {
    let tasks = args.select(&args.connect.client()?, |_| true, |_| true)?;
    for (number, task) in tasks.iter().enumerate() {
        if args.json {
            print_json(out, task)?;
            continue;
        }
        if number > 0 {
            writeln!(out)?;
        }
        show::task(out, task)?;
    }
    Ok(Exit::Done)
}

fn wait(args: &OneArgs, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let tasks = args.select(&client, is_open, |task| !task.state.is_over())?;
    let waited = client.call(async |client| {
        let all = async {
            let mut over = Vec::new();
            for task in &tasks {
                over.push(client.wait_task(task.id).await?);
            }
            Ok(over)
        };
        until_interrupted(all, None).await
    })?;
    let Waited::Over(tasks) = waited else {
        let message = "loxley: stopped waiting; the tasks go on";
        writeln!(io::stderr(), "{message}")?;
        return Ok(Exit::Interrupted);
    };
    changed(&tasks, args.json, out)?;
    let good = |task: &TaskInfo| task.state == TaskState::Succeeded;
    Ok(match tasks.iter().all(good) {
        true => Exit::Done,
        false => Exit::Unsuccessful,
    })
}

fn logs(args: &LogsArgs, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let tasks: Vec<TaskId> = match &args.tasks {
        // What is not there is said when its output is asked for.
        Selector::Numbers(ranges) => ranges.iter().cloned().flatten().map(TaskId).collect(),
        other => client.call(async |client| {
            let tasks = other.tasks(client, |_| true, |_| true).await;
            tasks.map(|tasks| tasks.iter().map(|task| task.id).collect())
        })?,
    };
    print_outputs(&client, &tasks, args.tag, args.json, out)?;
    Ok(Exit::Done)
}

/// What `logs --json` prints for a task.
#[derive(Serialize)]
struct OutputRow<'a> {
    task: TaskId,
    #[serde(flatten)]
    output: &'a OutputTail,
}

/// Prints what tasks wrote: standard output to ours, standard error to ours.
pub(super) fn print_outputs(
    client: &Client,
    tasks: &[TaskId],
    tag: bool,
    json: bool,
    out: &mut dyn Write,
) -> Result<()> {
    for task in tasks {
        let output = client.call(async |client| client.output(*task).await)?;
        if json {
            let task = *task;
            let row = OutputRow {
                task,
                output: &output,
            };
            print_json(out, &row)?;
            continue;
        }
        let tag = if tag {
            format!("{}\t", task.0)
        } else {
            String::new()
        };
        let (stdout, stderr) = (&output.stdout, &output.stderr);
        print_tail(out, &tag, stdout, output.stdout_dropped_bytes)?;
        out.flush()?;
        print_tail(&mut io::stderr(), &tag, stderr, output.stderr_dropped_bytes)?;
    }
    Ok(())
}

fn print_tail(out: &mut dyn Write, tag: &str, text: &str, dropped: u64) -> io::Result<()> {
    if dropped > 0 {
        writeln!(
            io::stderr(),
            "loxley: {dropped} earlier bytes were not kept"
        )?;
    }
    if tag.is_empty() {
        return out.write_all(text.as_bytes());
    }
    text.lines()
        .try_for_each(|line| writeln!(out, "{tag}{line}"))
}

fn explain(args: &OneArgs, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let tasks = args.select(&client, is_open, |task| !task.state.is_over())?;
    for task in tasks {
        let explanation = client.call(async |client| client.explain(task.id).await)?;
        match args.json {
            true => print_json(out, &explanation)?,
            false => show::explanation(out, &explanation)?,
        }
    }
    Ok(Exit::Done)
}

fn cancel(args: &OneArgs, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let tasks = args.select(&client, is_open, |task| !task.state.is_over())?;
    let cancelled = client.call(async |client| {
        let mut cancelled = Vec::new();
        for task in &tasks {
            cancelled.push(client.cancel_task(task.id).await?);
        }
        Ok::<_, anyhow::Error>(cancelled)
    })?;
    changed(&cancelled, args.json, out)
}

fn retry(args: &OneArgs, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let has_failed = |job: &JobInfo| job.tasks.failed > 0;
    let tasks = args.select(&client, has_failed, |task| task.state == TaskState::Failed)?;
    let retried = client.call(async |client| {
        let mut retried = Vec::new();
        for task in &tasks {
            retried.push(client.retry_task(task.id).await?);
        }
        Ok::<_, anyhow::Error>(retried)
    })?;
    changed(&retried, args.json, out)
}

impl OneArgs {
    fn select(
        &self,
        client: &Client,
        job_fits: impl Fn(&JobInfo) -> bool,
        fits: impl Fn(&TaskInfo) -> bool,
    ) -> Result<Vec<TaskInfo>> {
        Ok(client.call(async |client| self.tasks.tasks(client, job_fits, fits).await)?)
    }
}

fn is_open(job: &JobInfo) -> bool {
    !job.state.is_over()
}

fn changed(tasks: &[TaskInfo], json: bool, out: &mut dyn Write) -> Result<Exit> {
    for task in tasks {
        match json {
            true => print_json(out, task)?,
            false => writeln!(io::stderr(), "task {} {}", task.id.0, task.state.name())?,
        }
    }
    Ok(Exit::Done)
}

//! `loxley task`: look at single tasks, and ask why one does not run.

use std::io::{self, Write};

use anyhow::Result;
use loxley_api::{JobInfo, TaskFilter, TaskInfo, TaskState};
use loxley_client::ClientError;
use loxley_client::blocking::Client;
use loxley_model::{JobId, TaskId};

use super::connect::{Connect, print_json};
use super::job::task_state;
use super::output::OutputArgs;
use super::print::{Which, each, print_changes, print_details, print_rows};
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
  loxley task logs 17 --follow       as it comes, until the task is over
  loxley task retry 17

Exit codes: 0 done; 4 `wait` saw a task that failed or was cancelled; 5 there is no such task;
6 the server cannot be reached; 7 the server refused; 130 Ctrl-C.";

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(ListArgs),
    /// Show everything about tasks.
    #[command(after_help = "Examples:\n  loxley task info 17\n  loxley task info 17-20 --json")]
    Info(Which),
    /// Wait until tasks are over, also while the server restarts.
    #[command(after_help = "Examples:\n  loxley task wait 17 && echo fine")]
    Wait(Which),
    Logs(LogsArgs),
    /// Say why tasks are where they are, why they do not run, and what would help.
    #[command(
        after_help = "Examples:\n  loxley task explain 17\n  loxley task explain all       each that is not over"
    )]
    Explain(Which),
    /// End tasks: TERM to what runs, KILL after a grace; what waits never starts.
    #[command(after_help = "Examples:\n  loxley task cancel 17,20-29")]
    Cancel(Which),
    /// Give failed tasks another chance.
    #[command(
        after_help = "Examples:\n  loxley task retry 17\n  loxley task retry all         each that failed"
    )]
    Retry(Which),
}

/// List the tasks of jobs.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley task list\n  loxley task list 3,5-8 --state failed\n  loxley task list last --json | jq .agent"
)]
struct ListArgs {
    /// Which jobs: last, all, or numbers like 1,3,5-8.
    #[arg(value_name = "JOBS", default_value = "last")]
    jobs: Selector,
    /// Only tasks in this state: pending, waiting, backoff, held, queued, assigned, running, standby,
    /// delegated, succeeded, failed, cancelled.
    #[arg(long, value_name = "STATE", value_parser = task_state)]
    state: Option<TaskState>,
    /// At most so many of each job [default: 1000 for people, who are told of the rest; all with --json].
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print a JSON object for each, one per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Print the output of tasks: the end of it, as the server keeps it, or all that comes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  loxley task logs 17\n  loxley task logs 17 --follow")]
struct LogsArgs {
    /// Which tasks: last, all, or numbers like 1,3,5-8.
    #[arg(value_name = "SELECTOR")]
    tasks: Selector,
    #[command(flatten)]
    output: OutputArgs,
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
    // For people, a table that is longer is rarely what they want; a program gets all.
    const ROWS: u64 = 1000;
    let most = args
        .limit
        .unwrap_or(if args.json { u64::MAX } else { ROWS });
    let client = args.connect.client()?;
    let jobs = client.call(async |client| args.jobs.jobs(client, |_| true).await)?;
    let mut tasks = Vec::new();
    let mut unlisted = false;
    for job in &jobs {
        let listed = match args.json {
            true => print_each(&client, job.id, &filter, most, out)?,
            // One more than are shown, to know whether there are more.
            false => client.call(async |client| {
                let found = tasks_of(client, job.id, &filter, most.saturating_add(1)).await?;
                let more = found.len() as u64 > most;
                tasks.extend(
                    found
                        .into_iter()
                        .take(usize::try_from(most).unwrap_or(usize::MAX)),
                );
                Ok::<_, ClientError>(more)
            })?,
        };
        unlisted |= listed;
    }
    if !args.json {
        print_rows(&tasks, false, out)?;
    }
    if unlisted && args.limit.is_none() {
        out.flush()?;
        let message = format!(
            "loxley: there are more tasks; these are the first {ROWS} of each job (--limit, --json)"
        );
        writeln!(io::stderr(), "{message}")?;
    }
    Ok(Exit::Done)
}

/// Prints the tasks of a job page by page, so that a million of them need no more memory than one page. Whether
/// there are more than that.
fn print_each(
    client: &Client,
    job: JobId,
    filter: &TaskFilter,
    most: u64,
    out: &mut dyn Write,
) -> Result<bool> {
    let mut filter = filter.clone();
    let mut left = most;
    while left > 0 {
        filter.limit = Some(left.min(1000) as u32);
        let page = client.call(async |client| client.tasks(job, &filter).await)?;
        left -= page.items.len() as u64;
        page.items
            .iter()
            .try_for_each(|task| print_json(out, task))?;
        filter.from = page.next;
        if page.next.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn info(args: &Which, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let tasks = select(args, &client, |_| true, |_| true)?;
    print_details(&tasks, args.json, out)?;
    // Whoever looks at one task wants to know why it does not run.
    if let ([task], false) = (&tasks[..], args.json)
        && task.state == TaskState::Held
    {
        let explanation = client.call(async |client| client.explain(task.id).await)?;
        show::explanation(out, &explanation)?;
    }
    Ok(Exit::Done)
}

fn wait(args: &Which, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let tasks = select(args, &client, is_open, |task| !task.state.is_over())?;
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
    print_changes(&tasks, args.json, out)?;
    let good = |task: &TaskInfo| task.state == TaskState::Succeeded;
    Ok(match tasks.iter().all(good) {
        true => Exit::Done,
        false => Exit::Unsuccessful,
    })
}

fn logs(args: &LogsArgs, out: &mut dyn Write) -> Result<Exit> {
    let client = args.output.connect.client()?;
    let select = async |client: &_| args.tasks.tasks(client, |_| true, |_| true).await;
    if args.output.follow {
        let tasks = client.call(select)?;
        return args.output.follow(&client, &tasks, out);
    }
    let tasks: Vec<TaskId> = match &args.tasks {
        // What is not there is said when its output is asked for.
        Selector::Numbers(ranges) => ranges.iter().cloned().flatten().map(TaskId).collect(),
        _ => client.call(select)?.iter().map(|task| task.id).collect(),
    };
    args.output.print(&client, &tasks, out)?;
    Ok(Exit::Done)
}

fn explain(args: &Which, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let tasks = select(args, &client, is_open, |task| !task.state.is_over())?;
    for task in tasks {
        let explanation = client.call(async |client| client.explain(task.id).await)?;
        match args.json {
            true => print_json(out, &explanation)?,
            false => show::explanation(out, &explanation)?,
        }
    }
    Ok(Exit::Done)
}

fn cancel(args: &Which, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let tasks = select(args, &client, is_open, |task| !task.state.is_over())?;
    let cancelled = client
        .call(async |client| each(&tasks, async |task| client.cancel_task(task.id).await).await)?;
    print_changes(&cancelled, args.json, out)
}

fn retry(args: &Which, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let has_failed = |job: &JobInfo| job.tasks.failed > 0;
    let failed = |task: &TaskInfo| task.state == TaskState::Failed;
    let tasks = select(args, &client, has_failed, failed)?;
    let retried = client
        .call(async |client| each(&tasks, async |task| client.retry_task(task.id).await).await)?;
    print_changes(&retried, args.json, out)
}

/// The tasks that are meant.
fn select(
    args: &Which,
    client: &Client,
    job_fits: impl Fn(&JobInfo) -> bool,
    fits: impl Fn(&TaskInfo) -> bool,
) -> Result<Vec<TaskInfo>, ClientError> {
    client.call(async |client| args.which.tasks(client, job_fits, fits).await)
}

fn is_open(job: &JobInfo) -> bool {
    !job.state.is_over()
}

//! `loxley job watch`: one job, redrawn until it is over.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anyhow::{Result, bail};
use loxley_api::{Explanation, JobInfo, TaskFilter, TaskInfo, TaskState};
use loxley_client::{Client, ClientError};

use super::connect::{Connect, print_json};
use super::select::Selector;
use super::table::printable;
use super::wait::{self, Waited};
use crate::exit::Exit;

/// Watch a job until it is over: where its tasks are, what runs, what failed, what keeps it.
///
/// On a terminal the picture is drawn again every second; elsewhere there is a line whenever something has changed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley job watch last\n  loxley job watch 7 | tee progress.txt\n  loxley job watch 7 --json | jq .tasks\n\nExit codes: 0 it succeeded; 4 it did not; 5 there is no such job; 130 Ctrl-C (the job goes on)."
)]
pub(super) struct Args {
    /// Which job: last, or its number.
    #[arg(value_name = "SELECTOR")]
    job: Selector,
    /// Print the job as a JSON object whenever it has changed, one per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// How often the job is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// So many running and failed tasks are named.
const NAMED_MAX: u32 = 8;

/// What is seen of the job.
struct Look {
    job: JobInfo,
    running: Vec<TaskInfo>,
    failed: Vec<TaskInfo>,
    keeps_it: Option<Explanation>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    let jobs = client.call(async |client| args.job.jobs(client, |_| true).await)?;
    let [job] = &jobs[..] else {
        bail!("one job is watched; {} are meant", jobs.len());
    };
    let redraws = io::stdout().is_terminal() && !args.json;
    let mut drawn = 0;
    let mut said = None;
    let mut failure = None;
    let watched = client.call(async |client| {
        let watching = async {
            loop {
                let seen = look(client, job).await?;
                let shown = match (args.json, redraws) {
                    (true, _) => print_if_new(&mut said, &seen.job, out),
                    (_, true) => redraw(&seen, &mut drawn, out).map_err(Into::into),
                    (..) => say_if_new(&mut said, &seen.job, out),
                };
                if let Err(error) = shown {
                    failure = Some(error);
                    return Ok(seen.job);
                }
                if seen.job.state.is_over() {
                    return Ok(seen.job);
                }
                tokio::time::sleep(EVERY).await;
            }
        };
        wait::until_interrupted(watching, None).await
    })?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    match watched {
        Waited::Over(job) => Ok(wait::exit_of(&[job])),
        broken_off => Ok(wait::broken_off(&broken_off, &jobs)?),
    }
}

/// Looks, also through a restart of the server.
async fn look(client: &Client, job: &JobInfo) -> Result<Look, ClientError> {
    loop {
        match look_once(client, job).await {
            Err(
                ClientError::Unreachable { .. }
                | ClientError::Broken { .. }
                | ClientError::Timeout { .. },
            ) => tokio::time::sleep(EVERY).await,
            seen => return seen,
        }
    }
}

async fn look_once(client: &Client, job: &JobInfo) -> Result<Look, ClientError> {
    let job = client.job(job.id).await?;
    let some = async |state: TaskState| {
        let filter = TaskFilter {
            state: Some(state),
            limit: Some(NAMED_MAX),
            ..TaskFilter::default()
        };
        client.tasks(job.id, &filter).await.map(|page| page.items)
    };
    let running = match job.tasks.started > 0 {
        true => some(TaskState::Running).await?,
        false => Vec::new(),
    };
    let failed = match job.tasks.failed > 0 {
        true => some(TaskState::Failed).await?,
        false => Vec::new(),
    };
    let keeps_it = match wait::stuck_task(client, &job).await {
        Some(task) => client.explain(task).await.ok(),
        None => None,
    };
    Ok(Look {
        job,
        running,
        failed,
        keeps_it,
    })
}

fn print_if_new(said: &mut Option<String>, job: &JobInfo, out: &mut dyn Write) -> Result<()> {
    let text = serde_json::to_string(job)?;
    if said.as_deref() != Some(&text) {
        print_json(out, job)?;
        out.flush()?;
        *said = Some(text);
    }
    Ok(())
}

fn say_if_new(said: &mut Option<String>, job: &JobInfo, out: &mut dyn Write) -> Result<()> {
    let text = line(job);
    if said.as_deref() != Some(&text) {
        writeln!(out, "{text}")?;
        out.flush()?;
        *said = Some(text);
    }
    Ok(())
}

/// Where the tasks of a job are, in one line.
fn line(job: &JobInfo) -> String {
    let tasks = &job.tasks;
    let mut parts = vec![
        format!("job {} {}", job.id.0, job.state.name()),
        format!("{}/{} over", tasks.over(), tasks.total),
    ];
    for (count, word) in [
        (tasks.started, "running"),
        (tasks.not_started(), "queued"),
        (tasks.waiting + tasks.pending, "waiting"),
        (tasks.held, "held"),
        (tasks.failed, "failed"),
        (tasks.cancelled, "cancelled"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {word}"));
        }
    }
    parts.join(", ")
}

/// Draws the picture in the place of the one before.
fn redraw(seen: &Look, drawn: &mut usize, out: &mut dyn Write) -> io::Result<()> {
    const WIDTH: usize = 78;
    let mut lines = vec![line(&seen.job), bar(&seen.job, WIDTH)];
    for (word, tasks) in [("running", &seen.running), ("failed", &seen.failed)] {
        for task in tasks {
            let agent = task.agent.as_deref().unwrap_or("-");
            let does = task.does.join(" ");
            lines.push(format!("  {word} {} on {agent}: {does}", task.id.0));
        }
    }
    if let Some(explained) = &seen.keeps_it {
        lines.push(format!("  task {} {}", explained.task.0, explained.place));
        let more = explained.obstacles.iter().chain(&explained.remedies);
        lines.extend(more.map(|line| format!("    {line}")));
    }
    if *drawn > 0 {
        write!(out, "\x1b[{drawn}A\x1b[J")?;
    }
    for line in &lines {
        let line: String = printable(line).chars().take(WIDTH).collect();
        writeln!(out, "{line}")?;
    }
    *drawn = lines.len();
    out.flush()
}

/// `#` is over, `>` runs, `.` is to come.
fn bar(job: &JobInfo, width: usize) -> String {
    let tasks = &job.tasks;
    let cells = |count: u64| (count as f64 / tasks.total.max(1) as f64 * width as f64) as usize;
    let over = cells(tasks.over()).min(width);
    let both = cells(tasks.over() + tasks.started).clamp(over, width);
    "#".repeat(over) + &">".repeat(both - over) + &".".repeat(width - both)
}

#[cfg(test)]
mod tests {
    use super::*;
    use loxley_api::TaskCounts;
    use loxley_model::{JobId, JobState, TaskId};

    fn job(tasks: TaskCounts) -> JobInfo {
        JobInfo {
            id: JobId(7),
            name: None,
            user: "ada".to_owned(),
            state: JobState::Open,
            tasks,
            first_task: TaskId(1),
            last_task: TaskId(10),
            open: false,
            after: Vec::new(),
            created_unix_ms: 0,
            ended_unix_ms: None,
        }
    }

    #[test]
    fn a_picture_takes_the_place_of_the_one_before_and_moves_no_cursor_of_its_own() {
        let counts = TaskCounts {
            total: 10,
            // A third one is with its agent, and has not begun.
            running: 3,
            started: 2,
            queued: 2,
            succeeded: 4,
            failed: 1,
            ..TaskCounts::default()
        };
        let look = Look {
            job: job(counts),
            running: Vec::new(),
            failed: Vec::new(),
            keeps_it: Some(Explanation {
                task: TaskId(9),
                state: TaskState::Held,
                place: "is held \x1b[2J".to_owned(),
                obstacles: Vec::new(),
                remedies: Vec::new(),
            }),
        };
        let (mut out, mut drawn) = (Vec::new(), 0);
        redraw(&look, &mut drawn, &mut out).expect("memory takes it");
        redraw(&look, &mut drawn, &mut out).expect("memory takes it");
        let text = String::from_utf8(out).expect("it is text");
        assert!(text.starts_with("job 7 open, 5/10 over, 2 running, 3 queued, 1 failed\n"));
        // The only thing that moves the cursor is ours.
        assert_eq!(text.matches('\x1b').count(), 2);
        assert!(text.contains("\x1b[3A\x1b[J"));
        assert_eq!(bar(&look.job, 10), "#####>>...");
    }
}

//! Waiting for jobs and tasks: with a bar, through restarts of the server, until Ctrl-C.

use std::cell::Cell;
use std::convert::Infallible;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use loxley_api::{Explanation, JobInfo, JobState, TaskFilter, TaskState};
use loxley_client::blocking::Client;
use loxley_client::{ClientError, Waiting};
use loxley_model::{JobId, TaskId};

use super::table::printable;
use crate::exit::Exit;

/// How often a bar moves.
const BAR_EVERY: Duration = Duration::from_millis(250);
/// How often the server is asked when nobody watches.
const QUIET_EVERY: Duration = Duration::from_secs(25);

/// How to wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manner {
    /// Say how far it is also where standard error is no terminal.
    pub(super) progress: bool,
    /// Give up after this long.
    pub(super) limit: Option<Duration>,
}

/// How a wait ended.
#[derive(Debug)]
pub(super) enum Waited<T> {
    /// With this.
    Over(T),
    /// Somebody pressed Ctrl-C.
    Interrupted,
    /// The time that was given is over.
    TimeUp,
}

/// Waits until all jobs are over; gives them as they are then.
pub(super) fn for_jobs(
    client: &Client,
    jobs: &[JobInfo],
    manner: Manner,
) -> Result<Waited<Vec<JobInfo>>> {
    let total = jobs.iter().map(|job| job.tasks.total).sum();
    let meter = Meter::new(total, manner.progress);
    let every = if meter.is_watched() {
        BAR_EVERY
    } else {
        QUIET_EVERY
    };
    let waited = client.call(async |client| {
        let all = async {
            let mut over = Vec::new();
            let mut done_before = 0;
            for job in jobs {
                let tell = |waiting: Waiting<'_, JobInfo>| meter.tell(done_before, waiting);
                let job = match job.state.is_over() {
                    true => job.clone(),
                    false => tokio::select! {
                        job = client.watch_job(job.id, every, tell) => job?,
                        never = say_what_it_waits_for(client, job.id, &meter) => match never {},
                    },
                };
                done_before += job.tasks.total;
                meter.tell(done_before - job.tasks.total, Waiting::Now(&job));
                over.push(job);
            }
            Ok::<_, ClientError>(over)
        };
        until_interrupted(all, manner.limit).await
    });
    meter.finish();
    waited
}

/// Says at once why nothing happens: tasks that no agent can do, or other jobs that come first. Goes on until it is
/// dropped.
async fn say_what_it_waits_for(
    client: &loxley_client::Client,
    id: JobId,
    meter: &Meter,
) -> Infallible {
    let mut pause = Duration::from_millis(200);
    let mut said = None;
    loop {
        // Whoever waits for the job says when the server is away.
        if let Ok(job) = client.job(id).await
            && let Some(task) = stuck_task(client, &job).await
            && said != Some(task)
            && let Ok(explanation) = client.explain(task).await
        {
            said = Some(task);
            meter.say(&explained(&explanation));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(QUIET_EVERY);
    }
}

/// A task that stands for all that cannot begin.
pub(super) async fn stuck_task(client: &loxley_client::Client, job: &JobInfo) -> Option<TaskId> {
    if job.state == JobState::Waiting {
        return Some(job.first_task);
    }
    if job.tasks.held == 0 {
        return None;
    }
    let filter = TaskFilter {
        state: Some(TaskState::Held),
        limit: Some(1),
        ..TaskFilter::default()
    };
    let page = client.tasks(job.id, &filter).await.ok()?;
    page.items.first().map(|task| task.id)
}

/// An explanation in a line or two.
fn explained(explanation: &Explanation) -> String {
    let mut text = format!("task {} {}", explanation.task.0, explanation.place);
    if let Some(why) = explanation.obstacles.first() {
        text += &format!(": {why}");
    }
    if let Some(help) = explanation.remedies.first() {
        text += &format!("\n  {help}");
    }
    text.split('\n')
        .map(printable)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Runs something until it ends, Ctrl-C is pressed or its time is over.
pub(super) async fn until_interrupted<T>(
    work: impl Future<Output = Result<T, ClientError>>,
    limit: Option<Duration>,
) -> Result<Waited<T>> {
    let time_up = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        result = work => Ok(Waited::Over(result?)),
        signal = tokio::signal::ctrl_c() => {
            signal?;
            Ok(Waited::Interrupted)
        }
        () = time_up => Ok(Waited::TimeUp),
    }
}

/// Says what goes on after a wait that was broken off, and how it ends the command.
pub(super) fn broken_off<T>(waited: &Waited<T>, jobs: &[JobInfo]) -> io::Result<Exit> {
    let ids: Vec<String> = jobs.iter().map(|job| job.id.0.to_string()).collect();
    let ids = ids.join(",");
    let noun = if jobs.len() == 1 { "job" } else { "jobs" };
    let verb = if jobs.len() == 1 { "goes" } else { "go" };
    writeln!(
        io::stderr(),
        "loxley: stopped waiting; {noun} {ids} {verb} on. Wait again: loxley job wait {ids}; \
         end it: loxley job cancel {ids}"
    )?;
    Ok(match waited {
        Waited::Interrupted => Exit::Interrupted,
        Waited::Over(_) | Waited::TimeUp => Exit::TimeUp,
    })
}

/// How a command ends that waited for these jobs.
pub(super) fn exit_of(jobs: &[JobInfo]) -> Exit {
    match jobs.iter().all(|job| job.state == JobState::Succeeded) {
        true => Exit::Done,
        false => Exit::Unsuccessful,
    }
}

/// How far it is: a bar on a terminal, lines elsewhere if they were asked for.
#[derive(Debug)]
struct Meter {
    bar: ProgressBar,
    lines: bool,
    shown: Cell<Option<u64>>,
    away: Cell<bool>,
}

/// How a bar looks. How much time is left nobody knows before something has ended.
fn style(left: &str) -> ProgressStyle {
    let template = format!("{{bar:30}} {{pos}}/{{len}} tasks, {{elapsed}} gone{left}{{msg}}");
    ProgressStyle::with_template(&template).expect("the template is well-formed")
}

impl Meter {
    fn new(total: u64, wanted: bool) -> Self {
        let terminal = io::stderr().is_terminal();
        let target = match terminal {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        bar.set_style(style(""));
        Self {
            bar,
            lines: wanted && !terminal,
            shown: Cell::new(None),
            away: Cell::new(false),
        }
    }

    fn is_watched(&self) -> bool {
        self.lines || !self.bar.is_hidden()
    }

    fn tell(&self, done_before: u64, waiting: Waiting<'_, JobInfo>) {
        match waiting {
            Waiting::Now(job) => {
                self.away.set(false);
                let mut notes = String::new();
                for (count, word) in [(job.tasks.failed, "failed"), (job.tasks.held, "held")] {
                    if count > 0 {
                        notes += &format!(", {count} {word}");
                    }
                }
                self.show(done_before + job.tasks.over(), &notes);
            }
            Waiting::Away(error, _) => {
                if !self.away.replace(true) {
                    self.say(&format!("loxley: {error}; waiting for it to come back"));
                }
            }
        }
    }

    fn show(&self, done: u64, notes: &str) {
        self.bar.set_position(done);
        self.bar.set_message(notes.to_owned());
        let shown = self.shown.replace(Some(done));
        if done > 0 && shown.unwrap_or(0) == 0 {
            self.bar.set_style(style(", {eta} left"));
        }
        if self.lines && shown != Some(done) {
            let total = self.bar.length().unwrap_or(0);
            self.say(&format!("{done}/{total} tasks{notes}"));
        }
    }

    /// A line above the bar, or in its place where there is none.
    fn say(&self, text: &str) {
        match self.bar.is_hidden() {
            false => self.bar.println(text),
            // With nowhere left to say it, the exit code has to do.
            true => drop(writeln!(io::stderr(), "{text}")),
        }
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

//! Waiting for jobs and tasks: with a bar, through restarts of the server, until Ctrl-C.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use loxley_api::{JobInfo, JobState};
use loxley_client::blocking::Client;
use loxley_client::{ClientError, Waiting};

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
                    false => client.watch_job(job.id, every, tell).await?,
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

impl Meter {
    fn new(total: u64, wanted: bool) -> Self {
        let terminal = io::stderr().is_terminal();
        let target = match terminal {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        let style = ProgressStyle::with_template(
            "{bar:30} {pos}/{len} tasks, {elapsed} gone, {eta} left{msg}",
        );
        bar.set_style(style.expect("the template is well-formed"));
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
                let failed = job.tasks.failed;
                let failed = (failed > 0).then(|| format!(", {failed} failed"));
                self.show(done_before + job.tasks.over(), &failed.unwrap_or_default());
            }
            Waiting::Away(error, _) => {
                if !self.away.replace(true) {
                    self.say(&format!("loxley: {error}; waiting for it to come back"));
                }
            }
        }
    }

    fn show(&self, done: u64, failed: &str) {
        self.bar.set_position(done);
        self.bar.set_message(failed.to_owned());
        if self.lines && self.shown.replace(Some(done)) != Some(done) {
            let total = self.bar.length().unwrap_or(0);
            self.say(&format!("{done}/{total} tasks{failed}"));
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

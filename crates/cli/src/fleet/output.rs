//! What tasks write: the end of it when they are over, or as it comes (`--follow`).
//!
//! The server keeps the end of each stream and says how much came before it, so a reader who remembers how
//! far it is can ask again and print what is new. Events say which tasks start and end; a look at all of
//! them, once in the beginning and whenever events were missed, finds those that events did not tell of.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Duration;

use anyhow::Result;
use loxley_api::{EventKind, OutputTail, TaskFilter, TaskInfo, TaskState};
use loxley_client::{Client, ClientError, blocking};
use loxley_model::{JobId, TaskId};
use serde::Serialize;

use super::connect::{Connect, print_json};
use super::select::tasks_of;
use crate::exit::Exit;

/// How output is printed.
#[derive(Debug, clap::Args)]
pub(super) struct OutputArgs {
    /// Print what comes, as it comes, until all of them are over. Ctrl-C leaves, and they go on.
    #[arg(long, short)]
    pub(super) follow: bool,
    /// Put the number of the task in front of each line.
    #[arg(long)]
    tag: bool,
    /// Print a JSON object for each, one per line; with --follow, for each piece.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) connect: Connect,
}

/// What `logs --json` prints for a task.
#[derive(Serialize)]
struct OutputRow<'a> {
    task: TaskId,
    #[serde(flatten)]
    output: &'a OutputTail,
}

/// What `logs --follow --json` prints for a piece.
#[derive(Serialize)]
struct Piece<'a> {
    task: TaskId,
    stream: &'static str,
    text: &'a str,
}

impl OutputArgs {
    /// Prints what tasks wrote: standard output to ours, standard error to ours.
    pub(super) fn print(
        &self,
        client: &blocking::Client,
        tasks: &[TaskId],
        out: &mut dyn Write,
    ) -> Result<()> {
        for task in tasks {
            let output = client.call(async |client| client.output(*task).await)?;
            if self.json {
                let (task, output) = (*task, &output);
                print_json(out, &OutputRow { task, output })?;
                continue;
            }
            for dropped in [output.stdout_dropped_bytes, output.stderr_dropped_bytes] {
                if dropped > 0 {
                    say_dropped(dropped)?;
                }
            }
            let tag = self.tag_of(*task);
            print_text(out, &tag, &output.stdout)?;
            out.flush()?;
            print_text(&mut io::stderr(), &tag, &output.stderr)?;
        }
        Ok(())
    }

    fn tag_of(&self, task: TaskId) -> String {
        match self.tag {
            true => format!("{}\t", task.0),
            false => String::new(),
        }
    }

    /// Prints what tasks write until all of them are over.
    pub(super) fn follow(
        &self,
        client: &blocking::Client,
        tasks: &[TaskInfo],
        out: &mut dyn Write,
    ) -> Result<Exit> {
        let mut follower = Follower {
            args: self,
            whole_lines: self.tag || tasks.len() > 1,
            open: tasks
                .iter()
                .map(|task| (task.id, Shown::default()))
                .collect(),
            jobs: tasks.iter().map(|task| task.job).collect(),
            live: BTreeSet::new(),
            out,
        };
        client.call(async |client| {
            tokio::select! {
                followed = follower.run(client, tasks) => followed.map(|()| Exit::Done),
                signal = tokio::signal::ctrl_c() => {
                    signal?;
                    Ok(Exit::Interrupted)
                }
            }
        })
    }
}

fn say_dropped(bytes: u64) -> io::Result<()> {
    writeln!(io::stderr(), "loxley: {bytes} earlier bytes were not kept")
}

fn print_text(out: &mut dyn Write, tag: &str, text: &str) -> io::Result<()> {
    if tag.is_empty() {
        return out.write_all(text.as_bytes());
    }
    text.lines()
        .try_for_each(|line| writeln!(out, "{tag}{line}"))
}

/// How far a reader is with the two streams of a task, in bytes from their beginning.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    stdout: u64,
    stderr: u64,
}

/// Somebody who reads along.
struct Follower<'a> {
    args: &'a OutputArgs,
    /// Whether lines are printed whole: those of several tasks must not run into each other.
    whole_lines: bool,
    /// Tasks that are not over, and how far we are with each.
    open: BTreeMap<TaskId, Shown>,
    /// Those of them that run.
    live: BTreeSet<TaskId>,
    jobs: BTreeSet<JobId>,
    out: &'a mut dyn Write,
}

/// How often the output of running tasks is asked for.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// After so many of those, everything is looked at, once: by then the events have begun to come.
const SWEEP_AFTER: u32 = 5;

impl Follower<'_> {
    async fn run(&mut self, client: &Client, tasks: &[TaskInfo]) -> Result<()> {
        let mut events = client.events(None);
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        let mut looks = 0;
        for task in tasks {
            self.meet(client, task).await?;
        }
        while !self.open.is_empty() {
            tokio::select! {
                event = events.next() => self.hear(client, &event?.kind).await?,
                _ = ticks.tick() => {
                    looks += 1;
                    if looks == SWEEP_AFTER {
                        self.sweep(client).await?;
                    }
                    self.look(client).await?;
                }
            }
        }
        Ok(())
    }

    async fn hear(&mut self, client: &Client, event: &EventKind) -> Result<()> {
        match event {
            EventKind::TaskStarted { task, attempt, .. } => {
                if let Some(shown) = self.open.get_mut(task) {
                    if *attempt > 1 {
                        *shown = Shown::default();
                    }
                    self.live.insert(*task);
                }
            }
            EventKind::TaskEnded { task, .. } => self.finish(client, *task).await?,
            // The end of a job ends tasks that nobody ever started, without a word on each.
            EventKind::JobEnded { job, .. } if self.jobs.contains(job) => {
                self.sweep(client).await?;
            }
            EventKind::Missed { .. } => self.sweep(client).await?,
            _ => {}
        }
        Ok(())
    }

    /// Looks at every task that is not known to be over.
    async fn sweep(&mut self, client: &Client) -> Result<()> {
        let Some(first) = self.open.keys().next().copied() else {
            return Ok(());
        };
        let filter = TaskFilter {
            from: Some(first.0),
            ..TaskFilter::default()
        };
        for job in self.jobs.clone() {
            for task in tasks_of(client, job, &filter, u64::MAX).await? {
                self.meet(client, &task).await?;
            }
        }
        Ok(())
    }

    async fn meet(&mut self, client: &Client, task: &TaskInfo) -> Result<()> {
        if !self.open.contains_key(&task.id) {
            return Ok(());
        }
        if task.state.is_over() {
            return self.finish(client, task.id).await;
        }
        if task.state == TaskState::Running {
            self.live.insert(task.id);
        }
        Ok(())
    }

    /// Prints what the running tasks wrote since the last look.
    async fn look(&mut self, client: &Client) -> Result<()> {
        for task in self.live.clone() {
            match client.output(task).await {
                Ok(output) => self.print_new(task, &output, false)?,
                // The server is away; the events wait for it.
                Err(error) if error.is_passing() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Prints the rest of a task that is over.
    async fn finish(&mut self, client: &Client, task: TaskId) -> Result<()> {
        if self.open.contains_key(&task) {
            let output: Result<OutputTail, ClientError> = client.output(task).await;
            self.print_new(task, &output?, true)?;
            self.open.remove(&task);
            self.live.remove(&task);
        }
        Ok(())
    }

    fn print_new(&mut self, task: TaskId, output: &OutputTail, over: bool) -> Result<()> {
        let Some(mut shown) = self.open.get(&task).copied() else {
            return Ok(());
        };
        let (stdout, stderr) = (&output.stdout, &output.stderr);
        let whole_lines = self.whole_lines && !over;
        let new = news(
            &mut shown.stdout,
            output.stdout_dropped_bytes,
            stdout,
            whole_lines,
        )?;
        let errors = news(
            &mut shown.stderr,
            output.stderr_dropped_bytes,
            stderr,
            whole_lines,
        )?;
        self.open.insert(task, shown);
        let tag = self.args.tag_of(task);
        for (stream, text) in [("stdout", new), ("stderr", errors)] {
            match (self.args.json, stream) {
                _ if text.is_empty() => {}
                (true, stream) => print_json(self.out, &Piece { task, stream, text })?,
                (false, "stdout") => print_text(self.out, &tag, text)?,
                (false, _) => print_text(&mut io::stderr(), &tag, text)?,
            }
        }
        Ok(self.out.flush()?)
    }
}

/// What stands in a tail beyond the place where a reader is, and moves the reader there.
fn news<'a>(
    shown: &mut u64,
    dropped: u64,
    text: &'a str,
    whole_lines: bool,
) -> io::Result<&'a str> {
    if *shown < dropped {
        say_dropped(dropped - *shown)?;
        *shown = dropped;
    }
    // Nothing is there for a moment when a task ends, before its output is kept: that is no beginning.
    if text.is_empty() {
        return Ok("");
    }
    let from = usize::try_from(*shown - dropped).unwrap_or(usize::MAX);
    // Another attempt, or a server that started again: what is there now is new.
    let from = if from > text.len() { 0 } else { from };
    let from = text.ceil_char_boundary(from);
    let rest = &text[from..];
    let end = match whole_lines {
        true => rest.rfind('\n').map_or(0, |at| at + 1),
        // A character that is not all there yet looks like one that makes no sense.
        false => rest.trim_end_matches('\u{fffd}').len(),
    };
    *shown = dropped + (from + end) as u64;
    Ok(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_is_printed() {
        let mut shown = 0;
        assert_eq!(news(&mut shown, 0, "one\ntw", false).unwrap(), "one\ntw");
        assert_eq!(news(&mut shown, 0, "one\ntwo\n", false).unwrap(), "o\n");
        assert_eq!(news(&mut shown, 0, "one\ntwo\n", false).unwrap(), "");
        // The beginning is gone, and we have seen it.
        assert_eq!(news(&mut shown, 4, "two\nthree", false).unwrap(), "three");
        // More is gone than we have seen.
        assert_eq!(news(&mut shown, 20, "late", false).unwrap(), "late");
        // Another attempt begins anew, and an end does not.
        assert_eq!(news(&mut shown, 0, "again", false).unwrap(), "again");
        assert_eq!(news(&mut shown, 0, "", false).unwrap(), "");
        assert_eq!(news(&mut shown, 0, "again\n", false).unwrap(), "\n");
    }

    #[test]
    fn lines_of_several_tasks_stay_whole_and_characters_too() {
        let mut shown = 0;
        assert_eq!(news(&mut shown, 0, "one\ntw", true).unwrap(), "one\n");
        assert_eq!(news(&mut shown, 0, "one\ntwo\n", true).unwrap(), "two\n");
        let mut shown = 0;
        assert_eq!(news(&mut shown, 0, "a\u{fffd}", false).unwrap(), "a");
        assert_eq!(news(&mut shown, 0, "aö", false).unwrap(), "ö");
    }
}

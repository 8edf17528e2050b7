//! Jobs, tasks and agents in the three ways in which commands print them: rows, all there is to know, and
//! what became of them. With `--json` each is one object a line.

use std::io::{self, Write};

use anyhow::Result;
use loxley_api::{AgentInfo, JobInfo, TaskInfo};
use loxley_client::ClientError;
use serde::Serialize;

use super::connect::{Connect, print_json};
use super::select::Selector;
use super::show;
use crate::exit::Exit;

/// Which jobs or tasks, for commands that need to know no more.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// Which ones: last, all, or numbers like 1,3,5-8.
    #[arg(value_name = "SELECTOR")]
    pub(super) which: Selector,
    /// Print a JSON object for each, one per line.
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) connect: Connect,
}

/// What commands print.
pub(super) trait Thing: Serialize + Sized {
    /// A table with a row for each.
    fn rows(things: &[Self], out: &mut dyn Write) -> io::Result<()>;
    /// All there is to know of one.
    fn details(&self, out: &mut dyn Write) -> io::Result<()>;
    /// One line that says how it is now.
    fn line(&self) -> String;
}

impl Thing for JobInfo {
    fn rows(things: &[Self], out: &mut dyn Write) -> io::Result<()> {
        show::jobs(out, things)
    }

    fn details(&self, out: &mut dyn Write) -> io::Result<()> {
        show::job(out, self)
    }

    fn line(&self) -> String {
        let (id, state, tasks) = (self.id.0, self.state.name(), &self.tasks);
        let noun = if tasks.total == 1 { "task" } else { "tasks" };
        if tasks.succeeded == tasks.total {
            return format!("job {id} {state}: {} {noun}", tasks.total);
        }
        let parts = show::parts(tasks);
        let hint = match tasks.failed {
            0 => String::new(),
            _ => format!("; `loxley job logs {id} --state failed` shows what they wrote"),
        };
        format!("job {id} {state}: {parts} of {} {noun}{hint}", tasks.total)
    }
}

impl Thing for TaskInfo {
    fn rows(things: &[Self], out: &mut dyn Write) -> io::Result<()> {
        show::tasks(out, things)
    }

    fn details(&self, out: &mut dyn Write) -> io::Result<()> {
        show::task(out, self)
    }

    fn line(&self) -> String {
        format!("task {} {}", self.id.0, self.state.name())
    }
}

impl Thing for AgentInfo {
    fn rows(things: &[Self], out: &mut dyn Write) -> io::Result<()> {
        show::agents(out, things)
    }

    fn details(&self, out: &mut dyn Write) -> io::Result<()> {
        show::agent(out, self)
    }

    fn line(&self) -> String {
        format!("agent {} {}", self.id.0, self.state.name())
    }
}

/// A table, for people who look for one of many.
pub(super) fn print_rows<T: Thing>(things: &[T], json: bool, out: &mut dyn Write) -> Result<Exit> {
    match json {
        true => print_objects(things, out)?,
        false => T::rows(things, out)?,
    }
    Ok(Exit::Done)
}

/// Everything about each.
pub(super) fn print_details<T: Thing>(
    things: &[T],
    json: bool,
    out: &mut dyn Write,
) -> Result<Exit> {
    if json {
        print_objects(things, out)?;
        return Ok(Exit::Done);
    }
    for (number, thing) in things.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        thing.details(out)?;
    }
    Ok(Exit::Done)
}

/// What became of each, on standard error: nobody asked for it, but it is good to know.
pub(super) fn print_changes<T: Thing>(
    things: &[T],
    json: bool,
    out: &mut dyn Write,
) -> Result<Exit> {
    if json {
        print_objects(things, out)?;
        return Ok(Exit::Done);
    }
    if things.is_empty() {
        writeln!(io::stderr(), "there is none for which that makes sense")?;
    }
    for thing in things {
        writeln!(io::stderr(), "{}", thing.line())?;
    }
    Ok(Exit::Done)
}

fn print_objects<T: Serialize>(things: &[T], out: &mut dyn Write) -> Result<()> {
    things.iter().try_for_each(|thing| print_json(out, thing))
}

/// Does something with each, one after the other.
pub(super) async fn each<T, U>(
    things: &[T],
    act: impl AsyncFn(&T) -> Result<U, ClientError>,
) -> Result<Vec<U>, ClientError> {
    let mut done = Vec::with_capacity(things.len());
    for thing in things {
        done.push(act(thing).await?);
    }
    Ok(done)
}

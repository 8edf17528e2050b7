//! `loxley journal copy`: from a directory into PostgreSQL, and back.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use loxley_journal::{Place, Transferred, transfer};
use serde_json::{Value, json};

use super::backup::copy_results;
use super::backup::large_results;
use super::write_json;
use crate::exit::Exit;

/// Copy a journal with its history from a directory into PostgreSQL, back, or between databases.
///
/// No server may use either of them meanwhile. The copy has the same groups, snapshots and history; all of it is read
/// back, and counts only when it has the digest of the original. Nothing is overwritten, nothing of the original is
/// changed. Certificate and tokens are files of the server's directory: start the first server of a new cluster with
/// that directory (`server start --dir DIR --journal …`), and clients and agents go on with their access files.
///
/// A database with several shards has as many journals: another database gets all of them, a directory gets each in a
/// directory of its own (`shard-0` and so on), to be looked at.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley journal copy /srv/loxley postgres://loxley@db/fleet\n  \
                  loxley journal copy postgres://loxley@db/fleet ./fleet\n\n\
                  Exit codes: 0 the copy is whole, 1 it could not be made, 3 the journal is damaged."
)]
pub(super) struct Args {
    /// The directory of a journal, or postgres://user@host/database?schema=loxley.
    from: String,
    /// The same, where there is no journal yet.
    to: String,
    /// A file with the password for the database, which nobody else can read [default: PGPASSWORD, else the file that
    /// PGPASSFILE names, else ~/.pgpass].
    #[arg(long, value_name = "FILE")]
    journal_password_file: Option<PathBuf>,
    /// Print what was copied as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let (from, to) = (args.place(&args.from)?, args.place(&args.to)?);
    let copied = transfer(&from, &to)?;
    // A database has no place for them; there they stay in the directory, and a server that starts with it has them.
    let large = match (&from, &to) {
        (Place::Directory(from), Place::Directory(to)) => LargeResults {
            copied: copy_results(from, to).context("cannot copy the large results")?,
            left: 0,
        },
        (Place::Directory(from), _) => LargeResults {
            copied: 0,
            left: large_results(from)?.count() as u64,
        },
        _ => LargeResults::default(),
    };
    match (&copied[..], args.json) {
        ([one], true) => {
            let mut said = as_json(one);
            said["results"] = large.copied.into();
            said["results_left"] = large.left.into();
            write_json(&said, out)?;
        }
        (shards, true) => {
            let shards: Vec<Value> = shards.iter().map(as_json).collect();
            write_json(&json!({ "shards": shards }), out)?;
        }
        ([one], false) => {
            say(one, out)?;
            large.say(&args.from, out)?;
        }
        (shards, false) => {
            for (number, one) in shards.iter().enumerate() {
                write!(out, "shard {number}: ")?;
                say(one, out)?;
            }
        }
    }
    Ok(Exit::Done)
}

/// What is kept as files beside a journal, because it is too large for its rows.
#[derive(Default)]
struct LargeResults {
    copied: u64,
    left: u64,
}

impl LargeResults {
    fn say(&self, from: &str, out: &mut dyn Write) -> std::io::Result<()> {
        let Self { copied, left } = self;
        if *copied > 0 {
            writeln!(
                out,
                "{copied} large results, which are files, were copied too"
            )?;
        }
        if *left > 0 {
            writeln!(
                out,
                "{left} large results are files and stay in {from}/results: start the first server with --dir {from}"
            )?;
        }
        Ok(())
    }
}

fn as_json(copied: &Transferred) -> Value {
    json!({
        "first_position": copied.first.0,
        "next_position": copied.next.0,
        "snapshots": copied.snapshots,
        "jobs": copied.jobs,
        "tasks": copied.tasks,
        "outputs": copied.outputs,
        "agents": copied.agents,
        "digest": copied.digest,
    })
}

fn say(copied: &Transferred, out: &mut dyn Write) -> std::io::Result<()> {
    let Transferred {
        first,
        next,
        snapshots,
        jobs,
        tasks,
        outputs,
        agents,
        digest,
    } = copied;
    writeln!(
        out,
        "copied positions {first} to {next}, {snapshots} snapshots, {tasks} tasks in {jobs} jobs, {outputs} outputs, \
         {agents} agents\nthe same on both sides: digest {digest}"
    )
}

impl Args {
    #[cfg(feature = "postgres")]
    fn place(&self, text: &str) -> Result<Place> {
        use loxley_journal::postgres::Address;
        Ok(match Address::is_meant(text) {
            true => {
                let file = self.journal_password_file.as_deref();
                Place::Database(Address::parse(text, file)?)
            }
            false => Place::Directory(text.into()),
        })
    }

    #[cfg(not(feature = "postgres"))]
    fn place(&self, text: &str) -> Result<Place> {
        let _ = &self.journal_password_file;
        match text.starts_with("postgres") && text.contains("://") {
            true => Err(loxley_journal::DatabaseError::NotBuiltIn.into()),
            false => Ok(Place::Directory(text.into())),
        }
    }
}

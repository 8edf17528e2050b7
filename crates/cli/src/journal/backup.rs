//! `loxley journal backup` and `restore`: a copy, and the way back.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use loxley_journal::Checked;
use serde_json::json;

use super::write_json;
use crate::exit::Exit;

/// Copy the journal, also while a server runs, and check the copy.
///
/// The copy is one state of the journal: everything that was acknowledged before the copy began is in it. Large results,
/// which are files of their own, are copied with it; tokens, the certificate and settings are not: they are small files
/// beside the journal that seldom change (tokens.json, certificate.pem, key.pem, settings.yaml).
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley journal backup /backup/loxley-$(date +%F)\n  loxley journal backup --dir /srv/loxley /backup/now --json\n\n\
                  Exit codes: 0 the copy is whole, 1 it could not be made, 3 the journal is damaged."
)]
pub(crate) struct BackupArgs {
    /// A directory that holds no journal; it is made.
    to: PathBuf,
    /// Print what was copied as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Put a backup where a server finds it, and check it.
///
/// Nothing is overwritten: a journal that is there must be moved away first. A restored server knows what it knew when the
/// backup was made: jobs that came later are unknown, and tasks that ended later run again.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley journal restore /backup/loxley-2026-11-01 --dir /srv/loxley\n\n\
                  Exit codes: 0 it is in its place, 1 it could not be put there, 3 the backup is damaged."
)]
pub(crate) struct RestoreArgs {
    /// The backup.
    from: PathBuf,
    /// Print what was copied as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Where a server keeps results that are too large for its journal.
const RESULTS: &str = "results";

pub(crate) fn backup(args: &BackupArgs, directory: &Path, out: &mut dyn Write) -> Result<Exit> {
    copy(directory, &args.to, args.json, out)
}

pub(crate) fn restore(args: &RestoreArgs, directory: &Path, out: &mut dyn Write) -> Result<Exit> {
    copy(&args.from, directory, args.json, out)
}

fn copy(from: &Path, to: &Path, json: bool, out: &mut dyn Write) -> Result<Exit> {
    if to.join(RESULTS).exists() {
        let results = to.join(RESULTS);
        bail!(
            "{} is there already: it is not overwritten",
            results.display()
        );
    }
    let checked = loxley_journal::backup(from, to)?;
    // After the journal: a result is whole before its task is over, so each that the copy speaks of is there.
    let results = copy_results(from, to).context("cannot copy the large results")?;
    match json {
        true => write_json(
            &json!({
                "whole": checked.findings.is_empty(),
                "directory": to.display().to_string(),
                "next_position": checked.next.0,
                "tasks": checked.tasks,
                "jobs": checked.jobs,
                "results": results,
                "findings": checked.findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
            }),
            out,
        )?,
        false => print(&checked, to, results, out)?,
    }
    Ok(match checked.findings.is_empty() {
        true => Exit::Done,
        false => Exit::Mistakes,
    })
}

fn print(checked: &Checked, to: &Path, results: u64, out: &mut dyn Write) -> Result<()> {
    for finding in &checked.findings {
        writeln!(out, "damaged   {finding}")?;
    }
    let (tasks, jobs, next) = (checked.tasks, checked.jobs, checked.next);
    writeln!(
        out,
        "copied to {}: position {next}, {tasks} tasks in {jobs} jobs, {results} large results",
        to.display()
    )?;
    if checked.findings.is_empty() {
        writeln!(out, "whole: nothing is damaged")?;
    }
    Ok(())
}

/// The large results in the directory of a server that are whole.
pub(super) fn large_results(directory: &Path) -> Result<impl Iterator<Item = PathBuf>> {
    let found = match fs::read_dir(directory.join(RESULTS)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        found => Some(found?),
    };
    let files = found.into_iter().flatten().collect::<Result<Vec<_>, _>>()?;
    let paths = files.into_iter().map(|file| file.path());
    Ok(paths.filter(|path| path.extension().is_none_or(|end| end != "part")))
}

/// Copies what is whole; how many files that was.
pub(super) fn copy_results(from: &Path, to: &Path) -> Result<u64> {
    let mut found = large_results(from)?.peekable();
    if found.peek().is_none() {
        return Ok(0);
    }
    let place = to.join(RESULTS);
    fs::DirBuilder::new().mode(0o700).create(&place)?;
    let mut copied = 0;
    for path in found {
        let mut source = match fs::File::open(&path) {
            // Forgotten meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            source => source?,
        };
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let name = path.file_name().context("a file has a name")?;
        let mut copy = options.open(place.join(name))?;
        std::io::copy(&mut source, &mut copy)?;
        copy.sync_all()?;
        copied += 1;
    }
    fs::File::open(&place)?.sync_all()?;
    Ok(copied)
}

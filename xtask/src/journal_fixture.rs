//! `cargo xtask journal-fixture`: a small journal of the present format, for the tests of later versions.
//!
//! Run it once before a release that has a new format, and commit what it made. Later versions must read it: so it is
//! never made anew for a format that was released.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::{Suite, finish};

/// A process that ends with us.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn make(suite: &Suite) -> Result<()> {
    let mut build = suite.command("cargo");
    build.args(["build", "--quiet", "--package", "loxley-cli"]);
    finish(build)?;
    let program = suite.root.join("target/debug/loxley");
    let directory = suite.root.join("target/journal-fixture");
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    let loxley = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).env("LOXLEY_DIR", &directory);
        // Tasks run where they were submitted: a directory that every machine has.
        command.current_dir("/");
        command.env_remove("LOXLEY_ACCESS");
        command
    };
    let mut server = loxley(&["server", "start", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .map(Ended)?;
    let said = server.0.stdout.take().context("it has an output")?;
    BufReader::new(said).read_line(&mut String::new())?;
    let agent = loxley(&["agent", "start", "--name", "ada", "--slots", "2"]).spawn();
    let mut agent = agent.map(Ended)?;
    write_history(&loxley)?;
    finish(loxley(&["agent", "stop", "ada"]))?;
    agent.0.wait()?;
    finish(loxley(&["server", "stop"]))?;
    server.0.wait()?;
    keep(suite, &directory, &loxley)
}

/// What `crates/cli/tests/formats.rs` expects to find.
fn write_history(loxley: &impl Fn(&[&str]) -> Command) -> Result<()> {
    let words = "echo entry $LOXLEY_ENTRY";
    finish(loxley(&[
        "submit", "--wait", "-q", "--name", "words", "--array", "1-12", "--", "sh", "-c", words,
    ]))?;
    let fails = "echo it fails; exit 3";
    let failed = loxley(&[
        "submit", "--wait", "-q", "--name", "fails", "--", "sh", "-c", fails,
    ])
    .status()?;
    ensure!(!failed.success(), "job 2 is to fail");
    for name in ["waits", "dropped"] {
        finish(loxley(&[
            "submit",
            "-q",
            "--name",
            name,
            "--skills",
            "nobody-has-it",
            "--",
            "true",
        ]))?;
    }
    let _ = loxley(&["job", "cancel", "4"]).status()?;
    // The last fact is in the journal when nothing is left to be told.
    thread::sleep(Duration::from_millis(200));
    Ok(())
}

fn keep(suite: &Suite, directory: &Path, loxley: &impl Fn(&[&str]) -> Command) -> Result<()> {
    let header = fs::read(directory.join("journal.db"))?;
    // `PRAGMA user_version`, in the header of the file.
    let format = header.get(60..64).context("the file has a header")?;
    let format = u32::from_be_bytes(format.try_into()?);
    let place = suite
        .root
        .join(format!("crates/cli/tests/journals/format-{format}"));
    if place.exists() {
        bail!(
            "{} is there: remove it, if no version with that format was released",
            place.display()
        );
    }
    let to = place.to_str().context("the path is text")?;
    finish(loxley(&["journal", "backup", to]))?;
    let checked = loxley(&["journal", "check", "--json"]).output()?;
    let text = String::from_utf8(checked.stdout)?;
    let field = |name: &str| {
        let value = text.split(&format!("\"{name}\":")).nth(1);
        value.and_then(|rest| rest.split([',', '}']).next())
    };
    let [digest, next] = ["digest", "next_position"].map(field);
    let (digest, next) = (digest.context("a digest")?, next.context("a position")?);
    let expected = format!("{{\"next_position\": {next}, \"digest\": {digest}}}\n");
    fs::write(place.join("expected.json"), expected)?;
    for needless in ["journal.lock", "journal.db-shm", "journal.db-wal"] {
        let _ = fs::remove_file(place.join(needless));
    }
    eprintln!("made {}", place.display());
    Ok(())
}

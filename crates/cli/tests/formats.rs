//! Journals that released versions wrote are read by this one.
//!
//! `tests/journals/format-N` was written by the last build of format N: `cargo xtask journal-fixture` makes one for the
//! present format, and then it stays as it is for ever. In each: job 1, an array of twelve that succeeded; job 2, which
//! failed; job 3, which waits for a skill that nobody has; job 4, which was cancelled.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

#[expect(dead_code, reason = "no test needs all of it")]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use support::{Fleet, LOXLEY, until};

fn journals() -> Vec<PathBuf> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journals");
    let found = fs::read_dir(place).unwrap();
    let mut journals: Vec<PathBuf> = found.map(|entry| entry.unwrap().path()).collect();
    journals.sort();
    journals
}

fn format(journal: &Path) -> u32 {
    let name = journal.file_name().unwrap().to_str().unwrap();
    name.strip_prefix("format-").unwrap().parse().unwrap()
}

fn copy(journal: &Path, to: &Path) {
    for file in ["journal.db", "journal.mark"] {
        fs::copy(journal.join(file), to.join(file)).unwrap();
    }
}

fn loxley(directory: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(LOXLEY);
    command.args(words).env("LOXLEY_DIR", directory);
    command.env_remove("LOXLEY_ACCESS").output().unwrap()
}

fn object(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn journals_of_every_released_format_are_gone_on_with() {
    let journals = journals();
    assert!(journals.len() >= 2, "{journals:?}");
    let newest = journals
        .iter()
        .map(|journal| format(journal))
        .max()
        .unwrap();
    for journal in &journals {
        let format = format(journal);
        println!("format {format}");
        let expected = fs::read(journal.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        let mut fleet = Fleet::over(|directory| copy(journal, directory));
        let kept = fleet.path().join(format!("journal.db.format-{format}"));
        assert_eq!(
            kept.exists(),
            format < newest,
            "a copy is kept of what was changed"
        );

        // History, as it was.
        let jobs = fleet.json(&["job", "list", "--json"]);
        let states = jobs.iter().rev().map(|job| job["state"].as_str().unwrap());
        let states: Vec<&str> = states.collect();
        assert_eq!(states, ["succeeded", "failed", "open", "cancelled"]);
        let tasks = fleet.json(&["task", "list", "1", "--json"]);
        assert_eq!(tasks.len(), 12);
        assert!(tasks.iter().all(|task| task["state"] == "succeeded"));
        assert_eq!(fleet.ok(&["task", "logs", "7"]), "entry 7\n");
        let failed = &fleet.json(&["task", "info", "13", "--json"])[0];
        assert_eq!(failed["last"]["exit_code"], 3, "{failed}");

        // The state, as it was: what waited goes on.
        fleet.agent(&["--name", "bob", "--slots", "1", "--skills", "nobody-has-it"]);
        let state = || fleet.json(&["job", "info", "3", "--json"])[0]["state"].clone();
        until("the waiting job is done", || state() != "open");
        assert_eq!(
            state(),
            "succeeded",
            "{}",
            fleet.ok(&["task", "explain", "14"])
        );
        let stopped = fleet.ok(&["server", "stop", "--json"]);
        assert!(stopped.contains("journal_position"), "{stopped}");
        fleet.server.wait().unwrap();
        let checked = object(&loxley(fleet.path(), &["journal", "check", "--json"]));
        assert_eq!(checked["findings"], Value::Array(Vec::new()), "{checked}");
        assert!(checked["next_position"].as_u64() > expected["next_position"].as_u64());
    }
}

#[test]
fn the_state_in_a_kept_journal_is_the_one_that_was_written() {
    for journal in journals() {
        let expected = fs::read(journal.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        let directory = tempfile::tempdir().unwrap();
        copy(&journal, directory.path());
        let options = loxley_journal::Options {
            create: false,
            ..loxley_journal::Options::default()
        };
        let opened = loxley_journal::SqliteJournal::open(directory.path(), &options).unwrap();
        let mut kept = opened.journal;
        let state = loxley_engine::replay_from_snapshot(&mut kept).unwrap();
        let digest = format!("{:016x}", state.digest);
        assert_eq!(expected["digest"], digest.as_str(), "{}", journal.display());
        assert_eq!(state.groups, 0, "it ended with a snapshot");
    }
}

#[test]
fn a_journal_of_a_newer_format_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    copy(journals().last().unwrap(), directory.path());
    // The format is a number in the header of the file; byte 63 is its last.
    let file = directory.path().join("journal.db");
    let mut bytes = fs::read(&file).unwrap();
    bytes[63] += 1;
    fs::write(&file, bytes).unwrap();
    let words = ["server", "start", "--new", "--listen", "127.0.0.1:0"];
    let output = loxley(directory.path(), &words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("that of a newer version of Loxley"), "{said}");
}

#[test]
fn a_backup_of_a_running_server_is_restored() {
    let mut fleet = Fleet::new(None);
    fleet.agent(&["--name", "ada", "--slots", "2"]);
    fleet.ok(&[
        "submit", "--wait", "-q", "--array", "1-20", "--", "echo", "{}",
    ]);
    fleet.ok(&["submit", "-q", "--skills", "nobody-has-it", "--", "true"]);
    let place = tempfile::tempdir().unwrap();
    let backup = place.path().join("backup");
    let to = backup.to_str().unwrap();
    let copied = &fleet.json(&["journal", "backup", to, "--json"])[0];
    assert_eq!(
        (&copied["whole"], &copied["tasks"]),
        (&Value::Bool(true), &20.into())
    );
    fleet.ok(&["submit", "--wait", "-q", "--", "true"]);
    let again = fleet.run(&["journal", "backup", to]);
    let said = String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(1), "{said}");
    assert!(said.contains("it is not overwritten"), "{said}");

    let elsewhere = tempfile::tempdir().unwrap();
    let restored = elsewhere.path().join("server");
    let output = loxley(&restored, &["journal", "restore", to, "--json"]);
    assert_eq!(object(&output)["whole"], true);
    let again = loxley(&restored, &["journal", "restore", to]);
    assert_eq!(again.status.code(), Some(1));
    let checked = object(&loxley(&restored, &["journal", "check", "--json"]));
    assert_eq!(
        (&checked["whole"], &checked["jobs"]),
        (&Value::Bool(true), &2.into())
    );
    let second = Fleet::over(|directory| {
        let output = loxley(directory, &["journal", "restore", to]);
        assert!(output.status.success());
    });
    let jobs = second.json(&["job", "list", "--json"]);
    assert_eq!(jobs.len(), 2, "as it was when the copy was made");
    assert_eq!(second.ok(&["task", "logs", "7"]), "7\n");
}

#[test]
fn a_server_forgets_by_itself_what_its_configuration_does_not_keep() {
    let mut fleet = Fleet::new(None);
    fleet.agent(&["--name", "ada", "--slots", "1"]);
    for _ in 0..4 {
        fleet.ok(&["submit", "--wait", "-q", "--", "echo", "something"]);
    }
    assert_eq!(fleet.json(&["job", "list", "--json"]).len(), 4);
    let config = fleet.path().join("kept.yaml");
    fs::write(&config, "journal: {keep_jobs: 1}\n").unwrap();
    fleet.ok(&["config", "reload", config.to_str().unwrap()]);
    until("three are forgotten", || {
        fleet.json(&["job", "list", "--json"]).len() == 1
    });
    assert_eq!(fleet.json(&["job", "list", "--json"])[0]["id"], 4);
    let gone = fleet.run(&["task", "logs", "1"]);
    assert!(!gone.status.success());
    // By hand, too, and what is not over stays.
    fleet.ok(&["submit", "-q", "--skills", "nobody-has-it", "--", "true"]);
    let report = &fleet.json(&["journal", "prune", "--keep", "0", "--json"])[0];
    assert_eq!(report["jobs"], 1, "{report}");
    assert_eq!(fleet.json(&["job", "list", "--json"])[0]["id"], 5);
    fleet.ok(&["server", "stop"]);
    fleet.server.wait().unwrap();
    fleet.ok(&["journal", "check"]);
}

//! A writer is killed at every place of the path of a commit; what it acknowledged is there.
#![expect(clippy::unwrap_used, reason = "a failure in a test is the message")]

mod sample;

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use loxley_journal::{
    History, Journal, Limit, Options, Position, Saving, Snapshot, SqliteJournal, check, failpoint,
};
use loxley_model::JobId;

const DIRECTORY: &str = "LOXLEY_TEST_DIRECTORY";

/// Not a test of its own: the process that is killed. It writes down what was acknowledged.
#[test]
#[ignore = "run by the other tests as a process of its own"]
fn writer() {
    let directory = std::env::var_os(DIRECTORY).unwrap();
    let directory = Path::new(&directory);
    let mut told = std::fs::File::create(directory.join("told")).unwrap();
    let options = Options {
        // Small, so that the log is moved into the file again and again.
        checkpoint_bytes: 64 << 10,
        ..Options::default()
    };
    let mut journal = SqliteJournal::open(directory, &options).unwrap().journal;
    let mut saving = None;
    loop {
        let at = journal.next_position();
        let next = journal.append(at, &sample::full(at.0 % 200)).unwrap();
        told.write_all(&next.0.to_le_bytes()).unwrap();
        if next.0.is_multiple_of(50) {
            saving = Some(Saving::new(snapshot(next)));
        }
        // A piece between two groups.
        if let Some(underway) = &mut saving
            && !journal.save_piece(underway).unwrap()
        {
            let covered = underway.snapshot().position;
            journal.truncate(Position(covered.0 - 10)).unwrap();
            saving = None;
        }
    }
}

/// One of several pieces.
fn snapshot(position: Position) -> Snapshot {
    Snapshot {
        position,
        state: vec![position.0 as u8; 700_000],
    }
}

fn start_writer(directory: &Path, failpoint: Option<String>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "writer", "--ignored", "--nocapture"]);
    command.env(DIRECTORY, directory);
    if let Some(place) = failpoint {
        command.env(failpoint::VARIABLE, place);
    }
    command.stdout(std::process::Stdio::null()).spawn().unwrap()
}

/// The position after the last group that was acknowledged.
fn acknowledged(directory: &Path) -> u64 {
    let told = std::fs::read(directory.join("told")).unwrap_or_default();
    let whole = told.chunks_exact(8).next_back();
    whole.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
}

/// What must hold after the writer died: everything acknowledged, at most one group more, no damage.
fn inspect(directory: &Path) -> u64 {
    let told = acknowledged(directory);
    let checked = check(directory).unwrap();
    assert_eq!(checked.findings, []);
    let options = Options::default();
    let mut journal = SqliteJournal::open(directory, &options).unwrap().journal;
    let next = journal.next_position().0;
    assert!(
        next == told || next == told + 1,
        "told of {told}, found {next}"
    );
    let history = History::open(directory).unwrap();
    let mut position = journal.first_position();
    loop {
        let groups = journal.read(position, Limit::default()).unwrap();
        let Some(last) = groups.last() else { break };
        for group in &groups {
            let number = group.position.0 % 200;
            assert_eq!(group.facts, sample::full(number).facts);
            assert!(
                history.job(JobId(number)).unwrap().is_some(),
                "a group without its rows"
            );
        }
        position = last.position.next();
    }
    assert_eq!(position.0, next);
    for at in journal.snapshots().unwrap() {
        assert!(
            journal.snapshot(at).unwrap() == snapshot(at),
            "a part of it"
        );
    }
    next
}

/// How many pieces of snapshots there are, whole or not.
fn pieces(directory: &Path) -> i64 {
    let file = rusqlite::Connection::open(directory.join("journal.db")).unwrap();
    let count = "SELECT count(*) FROM pieces";
    file.query_row(count, (), |row| row.get(0)).unwrap()
}

#[test]
fn killed_amid_a_snapshot_the_one_before_it_counts_and_nothing_is_left_behind() {
    // Where the writer dies, how many pieces are there then, and which snapshots count.
    let places = [
        (failpoint::IN_SNAPSHOT, 1, 3, [50].as_slice()),
        (failpoint::IN_SNAPSHOT, 3, 5, &[50]),
        (failpoint::BEFORE_SNAPSHOT_COUNTS, 1, 6, &[50]),
        (failpoint::AFTER_SNAPSHOT, 1, 6, &[100, 50]),
    ];
    for (place, pass, left, counting) in places {
        let directory = tempfile::tempdir().unwrap();
        let first = write_up_to(directory.path(), 99);
        assert!(first < 100, "the second snapshot had not begun");
        assert_eq!(pieces(directory.path()), 3, "700,000 bytes");
        let mut writer = start_writer(directory.path(), Some(format!("{place}@{pass}")));
        assert_eq!(writer.wait().unwrap().signal(), Some(9), "{place}");
        inspect(directory.path());
        assert_eq!(pieces(directory.path()), left, "{place}@{pass}");
        let mut journal = open(directory.path());
        let positions: Vec<u64> = journal.snapshots().unwrap().iter().map(|at| at.0).collect();
        assert_eq!(positions, counting, "{place}@{pass}");
        let next = journal.next_position();
        journal.save_snapshot(&snapshot(next)).unwrap();
        assert_eq!(pieces(directory.path()), 6, "two snapshots, and no more");
    }
}

fn open(directory: &Path) -> SqliteJournal {
    let options = Options::default();
    SqliteJournal::open(directory, &options).unwrap().journal
}

/// Has a journal written up to one snapshot, at 50, and some groups more, but no second.
fn write_up_to(directory: &Path, last: u64) -> u64 {
    let mut journal = open(directory);
    while journal.next_position().0 < last {
        let at = journal.next_position();
        journal.append(at, &sample::full(at.0 % 200)).unwrap();
        if at.next().0 == 50 {
            journal.save_snapshot(&snapshot(at.next())).unwrap();
        }
    }
    journal.next_position().0
}

#[test]
fn killed_at_every_failpoint_nothing_acknowledged_is_lost() {
    let places = [
        (failpoint::BEFORE_WRITE, 0),
        (failpoint::BEFORE_COMMIT, 0),
        (failpoint::AFTER_COMMIT, 1),
    ];
    for (place, unheard) in places {
        let directory = tempfile::tempdir().unwrap();
        let mut expected = 0;
        // The same directory again and again: every start is a recovery.
        for pass in [1, 2, 7, 40] {
            let mut writer = start_writer(directory.path(), Some(format!("{place}@{pass}")));
            assert_eq!(writer.wait().unwrap().signal(), Some(9), "{place}");
            // Nothing but groups is written in so few passes, until the first snapshot at 50.
            expected += pass - 1 + unheard;
            if expected < 50 {
                assert_eq!(inspect(directory.path()), expected, "{place}@{pass}");
            } else {
                inspect(directory.path());
            }
        }
    }
}

#[test]
fn killed_at_any_moment_nothing_acknowledged_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let mut reached = 0;
    for round in 0..8 {
        let mut writer = start_writer(directory.path(), None);
        while acknowledged(directory.path()) <= reached {
            std::thread::sleep(Duration::from_millis(1));
            assert_eq!(
                writer.try_wait().unwrap(),
                None,
                "the writer ended by itself"
            );
        }
        std::thread::sleep(Duration::from_millis(19 * round));
        writer.kill().unwrap();
        writer.wait().unwrap();
        let next = inspect(directory.path());
        assert!(next >= reached, "went back from {reached} to {next}");
        reached = next;
    }
}

//! A full disk is said plainly, harms nothing, and is over when there is room again.
#![expect(clippy::unwrap_used, reason = "a failure in a test is the message")]

mod sample;

use std::path::Path;
use std::process::Command;

use loxley_journal::{AppendError, Journal, NotWritten, Options, Position, SqliteJournal, check};

const DISK: &str = "LOXLEY_TEST_DISK";

fn open(directory: &Path, bytes_max: Option<u64>) -> SqliteJournal {
    let options = Options {
        bytes_max,
        ..Options::default()
    };
    SqliteJournal::open(directory, &options).unwrap().journal
}

/// Appends large groups until there is no room, and says how many fit.
fn fill(journal: &mut SqliteJournal) -> u64 {
    for number in 0..10_000 {
        let mut group = sample::full(number % 200);
        group.facts = vec![number as u8; 20_000];
        match journal.append(Position(number), &group) {
            Ok(_) => {}
            Err(AppendError::NotWritten(reason @ NotWritten::DiskFull)) => {
                let said = reason.to_string();
                assert_eq!(said, "no room is left on the disk of the journal");
                return number;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("the disk was never full")
}

#[test]
fn a_journal_that_may_grow_no_more_says_so_and_stays_whole() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = open(directory.path(), Some(1 << 20));
    let fitted = fill(&mut journal);
    assert!(
        (20..60).contains(&fitted),
        "{fitted} groups of 20 kB in 1 MiB"
    );
    assert_eq!(journal.next_position(), Position(fitted));
    drop(journal);
    assert_eq!(check(directory.path()).unwrap().findings, []);
    let mut journal = open(directory.path(), None);
    assert_eq!(journal.next_position(), Position(fitted));
    journal.append(Position(fitted), &sample::full(1)).unwrap();
}

/// Not a test of its own: runs where a small disk is mounted.
#[test]
#[ignore = "run by the test below, with a disk of its own"]
fn on_a_small_disk() {
    let disk = std::env::var_os(DISK).unwrap();
    let disk = Path::new(&disk);
    let ballast = disk.join("ballast");
    std::fs::write(&ballast, vec![0; 200_000]).unwrap();
    let directory = disk.join("journal");
    let mut journal = open(&directory, None);
    let fitted = fill(&mut journal);
    // The same group again, when there is room: it was definitely not written.
    std::fs::remove_file(&ballast).unwrap();
    let next = journal.append(Position(fitted), &sample::full(1)).unwrap();
    assert_eq!(next, Position(fitted + 1));
    drop(journal);
    let checked = check(&directory).unwrap();
    assert_eq!((checked.findings.len(), checked.next), (0, next));
}

/// A file system of its own needs a name space of its own; where that is not allowed, the test above
/// with a limit on the file is all there is, and this one says so.
#[test]
fn a_full_disk_is_said_and_passes() {
    let mount_point = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=2m tmpfs \"$1\" || exit 77; shift; exec \"$@\"";
    let status = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            mount,
            "sh",
        ])
        .arg(mount_point.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "on_a_small_disk", "--ignored", "--nocapture"])
        .env(DISK, mount_point.path())
        .status();
    match status.ok().and_then(|status| status.code()) {
        Some(0) => {}
        Some(1 | 77) if !may_mount() => println!("no small disk can be mounted here: not tried"),
        None => println!("there is no `unshare` here: not tried"),
        code => panic!("ended with {code:?}"),
    }
}

fn may_mount() -> bool {
    let args = [
        "--user",
        "--map-root-user",
        "--mount",
        "mount",
        "-t",
        "tmpfs",
        "none",
        "/mnt",
    ];
    let status = Command::new("unshare").args(args).status();
    status.is_ok_and(|status| status.success())
}

//! Journals: the file itself, and the facts inside a group.

use std::sync::OnceLock;

use loxley_api::{CommandRequest, JobRequest, TaskRequest, Work};
use loxley_engine::replay;
use loxley_journal::{Group, Journal, MemoryJournal, Options, Position, SqliteJournal, check};
use loxley_server::decider::{self, EngineOptions, HistorySource};

/// The name of the file that holds everything.
const FILE: &str = "journal.db";

/// A file in place of a journal: it is refused, or read to its end.
pub(crate) fn file(bytes: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(FILE), bytes).unwrap();
    let _ = check(directory.path());
    let Ok(mut opened) = SqliteJournal::open(directory.path(), &Options::default()) else {
        return;
    };
    let _ = replay(&mut opened.journal);
}

/// Facts as a group holds them: refused, or applied.
pub(crate) fn group(bytes: &[u8]) {
    let mut journal = MemoryJournal::new();
    let group = Group {
        facts: bytes.to_vec(),
        fact_count: 1,
        ..Group::default()
    };
    if journal.append(Position::START, &group).is_ok() {
        let _ = replay(&mut journal);
    }
}

/// A journal of a server that did a little, as its file and as its groups.
struct Sample {
    file: Vec<u8>,
    groups: Vec<Vec<u8>>,
}

fn sample() -> &'static Sample {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let journal = SqliteJournal::open(directory.path(), &Options::default());
        let history = HistorySource::open(directory.path().to_owned()).unwrap();
        let options = EngineOptions::default();
        let started = decider::start(Box::new(journal.unwrap().journal), history, &options);
        let (handle, running) = started.unwrap();
        crate::block_on(async {
            for words in [["true", "x"], ["echo", "{}"]] {
                let words = words.map(str::to_owned).to_vec();
                let command = CommandRequest {
                    words,
                    ..CommandRequest::default()
                };
                let request = JobRequest {
                    tasks: vec![TaskRequest::new(Work::Command(command))],
                    ..JobRequest::default()
                };
                let job = handle.submit(&request, "somebody").await.unwrap();
                let _ = handle.cancel(loxley_policy::Selection::Job(job.id)).await;
            }
            running.stop().await.unwrap();
        });
        drop(handle);
        let opened = SqliteJournal::open(directory.path(), &Options::default());
        let mut journal = opened.unwrap().journal;
        let groups = journal.read(Position::START, loxley_journal::Limit::default());
        let groups = groups
            .unwrap()
            .into_iter()
            .map(|group| group.facts)
            .collect();
        drop(journal);
        let file = std::fs::read(directory.path().join(FILE)).unwrap();
        Sample { file, groups }
    })
}

pub(crate) fn file_seeds() -> Vec<Vec<u8>> {
    vec![sample().file.clone(), b"SQLite format 3\0".to_vec()]
}

pub(crate) fn group_seeds() -> Vec<Vec<u8>> {
    sample().groups.clone()
}

//! Journals to be damaged, and how a damaged one is met.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use loxley_journal::{
    AgentRow, History, JobQuery, JobRow, Journal, Limit, OpenError, Options, Position, Snapshot,
    SqliteJournal, StoredGroup, TaskQuery, TaskRow, check,
};
use loxley_model::TaskId;
use tempfile::TempDir;

use crate::sample;

pub(crate) const FILES: [&str; 3] = ["journal.db", "journal.db-wal", "journal.mark"];

/// The files of a journal; none where there is no such file.
pub(crate) type Image = [Option<Vec<u8>>; 3];

/// Everything that was written.
#[derive(Debug, PartialEq)]
pub(crate) struct Content {
    pub(crate) groups: Vec<StoredGroup>,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) tasks: Vec<TaskRow>,
    pub(crate) outputs: Vec<(TaskId, Vec<u8>, Vec<u8>)>,
    pub(crate) jobs: Vec<JobRow>,
    pub(crate) agents: Vec<AgentRow>,
}

pub(crate) fn options() -> Options {
    Options {
        page_bytes: 512,
        room_bytes: 0,
        ..Options::default()
    }
}

/// Thousands of journals are opened: in memory, where the system has such a place.
fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let scratch = match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    };
    std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o700)).unwrap();
    scratch
}

fn image(directory: &Path) -> Image {
    FILES.map(|file| std::fs::read(directory.join(file)).ok())
}

pub(crate) fn restore(image: &Image) -> TempDir {
    let directory = scratch();
    for (file, bytes) in FILES.iter().zip(image) {
        if let Some(bytes) = bytes {
            let path = directory.path().join(file);
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        }
    }
    directory
}

fn write(journal: &mut SqliteJournal, from: u64, count: u64) {
    for number in from..from + count {
        journal
            .append(Position(number), &sample::full(number))
            .unwrap();
    }
}

/// A journal that was closed in order: everything is in the file.
pub(crate) fn closed() -> (Image, Content) {
    let directory = scratch();
    let mut journal = SqliteJournal::open(directory.path(), &options())
        .unwrap()
        .journal;
    write(&mut journal, 0, 4);
    let snapshot = Snapshot {
        position: Position(2),
        state: b"the state before the third group".to_vec(),
    };
    journal.save_snapshot(&snapshot).unwrap();
    drop(journal);
    let content = content(directory.path()).unwrap();
    (image(directory.path()), content)
}

/// The same after two more groups, as a process leaves it that is killed: they are in the log.
pub(crate) fn crashed() -> (Image, Content) {
    crashed_after(&closed().0)
}

pub(crate) fn crashed_after(before: &Image) -> (Image, Content) {
    crashed_with(before, &options())
}

/// The same with room written ahead of the log.
pub(crate) fn crashed_with_room(before: &Image) -> (Image, Content) {
    let options = Options {
        room_bytes: 700,
        ..options()
    };
    crashed_with(before, &options)
}

fn crashed_with(before: &Image, options: &Options) -> (Image, Content) {
    let directory = restore(before);
    let mut journal = SqliteJournal::open(directory.path(), options)
        .unwrap()
        .journal;
    write(&mut journal, 4, 2);
    let content = content(directory.path()).unwrap();
    let image = image(directory.path());
    assert!(image[1].as_ref().unwrap().len() > 4096);
    (image, content)
}

fn content(directory: &Path) -> Result<Content, Box<dyn std::error::Error>> {
    let history = History::open(directory)?;
    let (first, _) = history.positions()?;
    let tasks = history.tasks(&TaskQuery::default())?.rows;
    let mut outputs = Vec::new();
    for row in &tasks {
        if let Some(output) = history.output(row.task)? {
            outputs.push((
                row.task,
                output,
                history.result(row.task)?.unwrap_or_default(),
            ));
        }
    }
    Ok(Content {
        groups: history.groups(first, Limit::default())?,
        snapshot: history.latest_snapshot()?,
        tasks,
        outputs,
        jobs: history.jobs(&JobQuery::default())?.rows,
        agents: history.agents(None, 0)?.rows,
    })
}

/// How a damaged journal was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    Refused,
    Noticed,
    Found,
    Harmless,
}

/// Opens, reads and checks a damaged journal, and holds what is read against what was written.
pub(crate) fn meet(image: &Image, written: &Content, damage: &str) -> Met {
    let directory = restore(image);
    let checked = match check(directory.path()) {
        Ok(checked) => checked,
        Err(OpenError::Missing { .. }) => panic!("{damage}: taken for no journal at all"),
        Err(_) => return Met::Refused,
    };
    let opened = SqliteJournal::open(directory.path(), &options());
    let Ok(opened) = opened else {
        let said = !checked.findings.is_empty();
        assert!(said, "{damage}: refused, but the check finds nothing");
        return Met::Refused;
    };
    let mut journal = opened.journal;
    let from = journal.first_position();
    if let Ok(groups) = journal.read(from, Limit::default()) {
        assert!(
            written.groups.starts_with(&groups),
            "{damage}: read what was never written"
        );
    }
    if !checked.findings.is_empty() {
        return Met::Found;
    }
    if !opened.notices.is_empty() {
        assert_eq!(checked.notices, opened.notices, "{damage}");
        return Met::Noticed;
    }
    let read = content(directory.path());
    let read = read.unwrap_or_else(|error| panic!("{damage}: the check is silent, but {error}"));
    assert_eq!(&read, written, "{damage}: silently something else");
    Met::Harmless
}

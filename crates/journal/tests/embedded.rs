//! The embedded journal does what the trait says, and its history answers.

#![expect(clippy::unwrap_used, reason = "a failure in a test is the message")]

mod sample;

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use loxley_journal::{
    AppendError, Ended, Group, History, JobQuery, JobState, Journal, Limit, MemoryJournal,
    NotWritten, Notice, OpenError, Options, Position, ReadError, Retention, Rows, Snapshot,
    SqliteJournal, TaskFilter, TaskOutput, TaskQuery, backup, check, limits,
};
use loxley_model::{Failure, JobId, TaskId, Time};

fn open(directory: &Path) -> SqliteJournal {
    let opened = SqliteJournal::open(directory, &Options::default()).unwrap();
    // A directory for tests is open to others, as the system makes it.
    let mended = |notice: &Notice| matches!(notice, Notice::MadePrivate { .. });
    assert!(opened.notices.iter().all(mended), "{:?}", opened.notices);
    opened.journal
}

#[test]
fn a_journal_is_its_owners_alone_also_where_it_was_not() {
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    let set = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode));
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("journal");
    let mut journal = open(&directory);
    fill(&mut journal, 3);
    let files = || {
        std::fs::read_dir(&directory)
            .unwrap()
            .map(|file| file.unwrap().path())
    };
    assert!(files().count() >= 4, "the log is there as well");
    assert_eq!(mode(&directory), 0o700);
    assert!(files().all(|file| mode(&file) == 0o600));
    drop(journal);
    // As versions before made it.
    set(&directory, 0o755).unwrap();
    files().for_each(|file| set(&file, 0o644).unwrap());
    let opened = SqliteJournal::open(&directory, &Options::default()).unwrap();
    assert!(
        matches!(opened.notices[..], [Notice::MadePrivate { .. }]),
        "{:?}",
        opened.notices
    );
    assert_eq!(mode(&directory), 0o700);
    assert!(files().all(|file| mode(&file) == 0o600));
    drop(opened);
    // Nobody's directory is not made ours.
    set(&directory, 0o1777).unwrap();
    let refused = SqliteJournal::open(&directory, &Options::default()).unwrap_err();
    let OpenError::Io { source, .. } = refused else {
        panic!("{refused}");
    };
    assert!(
        source.to_string().contains("a directory of its own"),
        "{source}"
    );
}

fn facts(text: &str) -> Group {
    Group {
        facts: text.as_bytes().to_vec(),
        fact_count: 1,
        rows: Rows::default(),
    }
}

/// Both engines are held to the same claims.
fn both(claim: impl Fn(&mut dyn Journal)) {
    claim(&mut MemoryJournal::new());
    let directory = tempfile::tempdir().unwrap();
    claim(&mut open(directory.path()));
}

fn fill(journal: &mut dyn Journal, count: u64) {
    for number in 0..count {
        let at = journal.next_position();
        let group = facts(&format!("fact {number}"));
        assert_eq!(journal.append(at, &group).unwrap(), at.next());
    }
}

fn texts(journal: &mut dyn Journal, from: u64) -> Vec<String> {
    let groups = journal.read(Position(from), Limit::default()).unwrap();
    let places: Vec<u64> = groups.iter().map(|group| group.position.0).collect();
    let expected: Vec<u64> = (from..journal.next_position().0).collect();
    assert_eq!(places, expected);
    let text = |facts| String::from_utf8(facts).unwrap();
    groups.into_iter().map(|group| text(group.facts)).collect()
}

#[test]
fn what_was_appended_is_read_back_in_order() {
    both(|journal| {
        fill(journal, 3);
        assert_eq!(texts(journal, 0), ["fact 0", "fact 1", "fact 2"]);
        assert_eq!(texts(journal, 2), ["fact 2"]);
        assert!(
            journal
                .read(Position(3), Limit::default())
                .unwrap()
                .is_empty()
        );
    });
}

#[test]
fn a_read_is_bounded_but_never_empty_before_the_end() {
    both(|journal| {
        fill(journal, 5);
        let read = |journal: &mut dyn Journal, groups, bytes| {
            let limit = Limit { groups, bytes };
            journal.read(Position(1), limit).unwrap().len()
        };
        assert_eq!(read(journal, 2, 1000), 2);
        assert_eq!(read(journal, 100, 7), 2);
        assert_eq!(read(journal, 0, 0), 1);
        assert_eq!(read(journal, 100, 1000), 4);
    });
}

#[test]
fn a_writer_at_the_wrong_place_is_fenced() {
    both(|journal| {
        fill(journal, 2);
        for wrong in [0, 1, 3] {
            let error = journal.append(Position(wrong), &facts("x")).unwrap_err();
            let AppendError::Fenced { expected, found } = error else {
                panic!("{error:?}")
            };
            assert_eq!((expected, found), (Position(wrong), Position(2)));
        }
        assert_eq!(texts(journal, 0).len(), 2);
    });
}

#[test]
fn groups_go_only_when_a_snapshot_holds_them() {
    both(|journal| {
        fill(journal, 6);
        assert!(journal.truncate(Position(2)).is_err());
        let at = |position| Snapshot {
            position: Position(position),
            state: vec![7; 100],
        };
        assert!(journal.save_snapshot(&at(7)).is_err());
        journal.save_snapshot(&at(4)).unwrap();
        assert!(journal.truncate(Position(5)).is_err());
        assert_eq!(journal.truncate(Position(4)).unwrap(), 4);
        assert_eq!(texts(journal, 4), ["fact 4", "fact 5"]);
        let gone = journal.read(Position(3), Limit::default()).unwrap_err();
        assert!(matches!(
            gone,
            ReadError::Dropped {
                first: Position(4),
                ..
            }
        ));
        assert_eq!(journal.latest_snapshot().unwrap(), Some(at(4)));
        fill(journal, 1);
        journal.save_snapshot(&at(7)).unwrap();
        assert_eq!(journal.truncate(Position(7)).unwrap(), 3);
        fill(journal, 1);
        assert_eq!(texts(journal, 7), ["fact 0"]);
    });
}

#[test]
fn the_newest_snapshot_and_one_before_it_are_kept() {
    both(|journal| {
        fill(journal, 6);
        let at = |position| Snapshot {
            position: Position(position),
            state: vec![position as u8; 100],
        };
        for position in [1, 3, 5] {
            journal.save_snapshot(&at(position)).unwrap();
        }
        assert_eq!(journal.snapshots().unwrap(), [5, 3].map(Position));
        assert_eq!(journal.snapshot(Position(3)).unwrap(), at(3));
        let gone = journal.snapshot(Position(1)).unwrap_err();
        assert!(matches!(gone, ReadError::NoSnapshot(Position(1))));
        // One that needs groups that are gone is gone with them.
        journal.truncate(Position(4)).unwrap();
        assert_eq!(journal.snapshots().unwrap(), [Position(5)]);
    });
}

#[test]
fn pruning_drops_groups_that_a_snapshot_makes_needless() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = open(directory.path());
    fill(&mut journal, 6);
    assert_eq!(journal.prune(Time::ZERO, u64::MAX).unwrap().groups, 0);
    journal
        .save_snapshot(&Snapshot {
            position: Position(4),
            state: b"state".to_vec(),
        })
        .unwrap();
    assert_eq!(journal.prune(Time::ZERO, u64::MAX).unwrap().groups, 4);
    assert_eq!(journal.first_position(), Position(4));
    assert_eq!(texts(&mut journal, 4), ["fact 4", "fact 5"]);
}

#[test]
fn everything_is_there_after_the_owner_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = open(directory.path());
    fill(&mut journal, 3);
    let snapshot = Snapshot {
        position: Position(2),
        state: b"state".to_vec(),
    };
    journal.save_snapshot(&snapshot).unwrap();
    let (id, epoch) = (journal.id(), journal.epoch_unix_nanos());
    drop(journal);
    let mut journal = open(directory.path());
    assert_eq!((journal.id(), journal.epoch_unix_nanos()), (id, epoch));
    assert_eq!(texts(&mut journal, 0).len(), 3);
    assert_eq!(journal.latest_snapshot().unwrap(), Some(snapshot));
    fill(&mut journal, 1);
    assert_eq!(journal.next_position(), Position(4));
}

#[test]
fn the_second_owner_is_told_who_the_first_is() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        holder: "loxley server".to_owned(),
        ..Options::default()
    };
    let first = SqliteJournal::open(directory.path(), &options).unwrap();
    let error = SqliteJournal::open(directory.path(), &options).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }));
    let message = error.to_string();
    let holder = format!("in use by loxley server, process {}", std::process::id());
    assert!(message.contains(&holder), "{message}");
    // A check reads along, and says so.
    let checked = check(directory.path()).unwrap();
    assert!(checked.in_use_by.is_some() && checked.findings.is_empty());
    drop(first);
    assert!(SqliteJournal::open(directory.path(), &options).is_ok());
}

#[test]
fn nothing_is_made_where_nothing_was_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        create: false,
        ..Options::default()
    };
    let place = directory.path().join("none");
    let error = SqliteJournal::open(&place, &options).unwrap_err();
    assert!(matches!(error, OpenError::Missing { .. }));
    assert!(matches!(
        History::open(&place),
        Err(OpenError::Missing { .. })
    ));
    assert!(matches!(check(&place), Err(OpenError::Missing { .. })));
    assert!(!place.exists());
}

#[test]
fn what_is_too_large_is_refused_and_nothing_of_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = open(directory.path());
    let mut group = sample::full(1);
    group.rows.outputs.push(TaskOutput {
        task: TaskId(11),
        output: vec![0; limits::OUTPUT_BYTES_MAX + 1],
        result: Vec::new(),
    });
    let error = journal.append(Position(0), &group).unwrap_err();
    let AppendError::NotWritten(reason @ NotWritten::TooLarge { .. }) = error else {
        panic!("{error:?}")
    };
    assert!(
        reason.to_string().starts_with("an output of 1048577"),
        "{reason}"
    );
    let history = History::open(directory.path()).unwrap();
    assert_eq!(history.task(TaskId(10)).unwrap(), None);
    assert_eq!(
        journal.append(Position(0), &sample::full(1)).unwrap(),
        Position(1)
    );
    assert!(history.task(TaskId(10)).unwrap().is_some());
}

#[test]
fn rows_are_read_while_the_owner_writes() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = open(directory.path());
    let history = History::open(directory.path()).unwrap();
    let group = sample::full(1);
    journal.append(Position(0), &group).unwrap();
    assert_eq!(
        history.task(TaskId(10)).unwrap().as_ref(),
        Some(&group.rows.tasks[0])
    );
    assert_eq!(history.output(TaskId(10)).unwrap().unwrap(), b"printed");
    assert_eq!(history.result(TaskId(10)).unwrap().unwrap(), b"returned");
    assert_eq!(history.output(TaskId(11)).unwrap(), None);
    assert_eq!(
        history.job(JobId(1)).unwrap().as_ref(),
        Some(&group.rows.jobs[0])
    );
    assert_eq!(history.agents(None, 10).unwrap().rows, group.rows.agents);
    let groups = history.groups(Position(0), Limit::default()).unwrap();
    assert_eq!(groups[0].facts, group.facts);
    assert_eq!(history.positions().unwrap(), (Position(0), Position(1)));
}

#[test]
fn lists_come_in_pages_and_by_job_and_ending() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = open(directory.path());
    let ended = |task: u64| match task % 5 {
        0 => Ended::Failed(Failure::Error),
        1 => Ended::Cancelled,
        _ => Ended::Succeeded,
    };
    let job_of = |task: u64| u64::from(task > 50);
    let rows = Rows {
        tasks: (1..=100)
            .map(|task| sample::task(task, job_of(task), ended(task)))
            .collect(),
        jobs: vec![sample::job(0, 1, 50, Some(9)), sample::job(1, 51, 50, None)],
        ..Rows::default()
    };
    let group = Group { rows, ..facts("x") };
    journal.append(Position(0), &group).unwrap();
    let history = History::open(directory.path()).unwrap();
    let filters = [
        (TaskFilter::Any, 100, 50),
        (TaskFilter::Succeeded, 60, 30),
        (TaskFilter::Failed, 20, 10),
        (TaskFilter::Cancelled, 20, 10),
        (TaskFilter::Unsuccessful, 40, 20),
    ];
    for (filter, in_all, in_one) in filters {
        for (job, expected) in [
            (None, in_all),
            (Some(JobId(1)), in_one),
            (Some(JobId(9)), 0),
        ] {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let query = TaskQuery {
                    job,
                    filter,
                    after,
                    limit: 7,
                };
                let page = history.tasks(&query).unwrap();
                assert!(page.rows.len() <= 7);
                found.extend(page.rows.iter().map(|row| row.task));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found.len(), expected, "{filter:?} {job:?}");
            assert!(found.is_sorted());
        }
    }
    let open_jobs = JobQuery {
        state: Some(JobState::Open),
        ..JobQuery::default()
    };
    assert_eq!(
        history.jobs(&open_jobs).unwrap().rows,
        [sample::job(1, 51, 50, None)]
    );
    let one = JobQuery {
        limit: 1,
        user: Some("robin".to_owned()),
        ..JobQuery::default()
    };
    let newest = history.jobs(&one).unwrap();
    assert_eq!(
        (newest.rows[0].job, newest.next),
        (JobId(1), Some(JobId(1)))
    );
    let before = JobQuery {
        before: newest.next,
        ..one
    };
    let oldest = history.jobs(&before).unwrap();
    assert_eq!((oldest.rows[0].job, oldest.next), (JobId(0), None));
}

#[test]
fn a_task_that_ends_again_replaces_its_row() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = open(directory.path());
    let mut group = sample::full(1);
    journal.append(Position(0), &group).unwrap();
    group.rows.tasks[1].ended = Ended::Succeeded;
    group.rows.tasks[1].attempt = 2;
    journal.append(Position(1), &group).unwrap();
    let history = History::open(directory.path()).unwrap();
    assert_eq!(
        history.task(TaskId(11)).unwrap().as_ref(),
        Some(&group.rows.tasks[1])
    );
    let failed = TaskQuery {
        job: Some(JobId(1)),
        filter: TaskFilter::Failed,
        ..TaskQuery::default()
    };
    assert_eq!(history.tasks(&failed).unwrap().rows, []);
    let checked = check(directory.path()).unwrap();
    assert_eq!((checked.tasks, checked.jobs), (2, 1));
    assert_eq!(checked.findings, []);
}

#[test]
fn old_jobs_are_forgotten_whole_and_young_ones_stay() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = open(directory.path());
    for number in 1..=4 {
        let mut group = sample::full(number);
        group.rows.jobs[0].finished = (number < 4).then_some(Time(number * 100));
        journal.append(Position(number - 1), &group).unwrap();
    }
    // Rows are counted in small steps here; a job whose tasks are not all gone stays visible.
    let step = journal.prune(Time(300), 1).unwrap();
    assert_eq!((step.jobs, step.tasks, step.more), (0, 1, true));
    let rest = journal.prune(Time(300), 1000).unwrap();
    assert_eq!((rest.jobs, rest.tasks, rest.more), (2, 3, false));
    let history = History::open(directory.path()).unwrap();
    let left: Vec<u64> = history
        .jobs(&JobQuery::default())
        .unwrap()
        .rows
        .iter()
        .map(|row| row.job.0)
        .collect();
    assert_eq!(left, [4, 3]);
    assert_eq!(history.task(TaskId(10)).unwrap(), None);
    assert_eq!(history.output(TaskId(10)).unwrap(), None);
    assert!(history.task(TaskId(30)).unwrap().is_some());
    assert_eq!(check(directory.path()).unwrap().findings, []);
    assert_eq!(texts(&mut journal, 0).len(), 4, "groups are not history");
}

#[test]
fn forgetting_gives_room_back_when_asked() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = open(directory.path());
    let mut group = sample::full(1);
    group.rows.outputs[0].output = vec![1; 1 << 20];
    journal.append(Position(0), &group).unwrap();
    drop(journal);
    let size = || {
        std::fs::metadata(directory.path().join("journal.db"))
            .unwrap()
            .len()
    };
    assert!(size() > 1 << 20);
    let mut journal = open(directory.path());
    let reader = History::open(directory.path()).unwrap();
    let pruned = journal
        .prune_all(Retention {
            older_than: Some(Time(1000)),
            ..Retention::default()
        })
        .unwrap();
    assert!(pruned.bytes >= 1 << 20, "{pruned:?}");
    // While it is open, with a reader beside it.
    assert!(size() < 1 << 18, "{} bytes", size());
    let room = journal.room().unwrap();
    assert_eq!((room.bytes, room.unused), (size(), 0));
    assert_eq!(reader.jobs(&JobQuery::default()).unwrap().rows, []);
    journal.append(Position(1), &sample::full(2)).unwrap();
    drop(journal);
    assert_eq!(check(directory.path()).unwrap().findings, []);
}

/// A job in each group, with an output of 50,000 bytes; job `n` ends at `n`.
fn history_of(jobs: u64, directory: &Path) -> SqliteJournal {
    let mut journal = open(directory);
    for number in 1..=jobs {
        let mut group = sample::full(number);
        group.rows.jobs[0].finished = Some(Time(number));
        group.rows.outputs[0].output = vec![number as u8; 50_000];
        journal.append(Position(number - 1), &group).unwrap();
    }
    journal
}

fn jobs_left(directory: &Path) -> Vec<u64> {
    let history = History::open(directory).unwrap();
    let jobs = history.jobs(&JobQuery::default()).unwrap().rows;
    jobs.iter().map(|row| row.job.0).collect()
}

#[test]
fn the_past_is_kept_by_age_number_and_size() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = history_of(20, directory.path());
    let mut keep = |retention| journal.prune_all(retention).unwrap().jobs;
    assert_eq!(keep(Retention::default()), 0, "no limit, no loss");
    let age = |older_than| Retention {
        older_than: Some(Time(older_than)),
        ..Retention::default()
    };
    assert_eq!(keep(age(4)), 3);
    let both = Retention {
        jobs_max: Some(5),
        both: true,
        ..age(6)
    };
    assert_eq!(keep(both), 2, "those that are beyond both limits");
    let number = Retention {
        jobs_max: Some(10),
        ..age(8)
    };
    assert_eq!(keep(number), 5, "those that are beyond one of them");
    assert_eq!(jobs_left(directory.path()).last(), Some(&11));
    let size = Retention {
        bytes_max: Some(300_000),
        ..Retention::default()
    };
    let gone = keep(size);
    assert!((3..=8).contains(&gone), "{gone} of ten, the oldest first");
    let left = jobs_left(directory.path());
    assert_eq!(left, (11 + gone..=20).rev().collect::<Vec<_>>());
    let room = journal.room().unwrap();
    assert!(room.bytes <= 300_000, "{room:?}");
    assert_eq!(check(directory.path()).unwrap().findings, []);
}

#[test]
fn a_backup_of_a_journal_in_use_is_whole_and_overwrites_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("backup");
    let mut journal = history_of(5, directory.path());
    let checked = backup(directory.path(), &to).unwrap();
    assert_eq!(
        (checked.findings.as_slice(), checked.next),
        (&[][..], Position(5))
    );
    journal.append(Position(5), &sample::full(6)).unwrap();
    let refused = backup(directory.path(), &to).unwrap_err().to_string();
    assert!(
        refused.ends_with("already: it is not overwritten"),
        "{refused}"
    );
    assert_eq!(check(&to).unwrap().next, Position(5));
    assert_eq!(jobs_left(&to), [5, 4, 3, 2, 1]);
    // And it can be gone on with.
    let mut copy = open(&to);
    copy.append(Position(5), &sample::full(7)).unwrap();
}

#[test]
fn what_keeps_room_for_a_full_disk_goes_and_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let with = |reserve_bytes| {
        let options = Options {
            reserve_bytes,
            ..Options::default()
        };
        SqliteJournal::open(directory.path(), &options)
            .unwrap()
            .journal
    };
    let size =
        || std::fs::metadata(directory.path().join("journal.reserve")).map_or(0, |file| file.len());
    let mut journal = with(Some(300_000));
    assert_eq!(size(), 300_000);
    assert_eq!(journal.give_up_reserve(), Some(300_000));
    assert_eq!((size(), journal.give_up_reserve()), (0, None));
    assert!(journal.renew_reserve());
    drop(journal);
    assert_eq!(size(), 300_000);
    drop(with(None));
    assert_eq!(size(), 300_000, "whoever does not ask leaves it alone");
    drop(with(Some(0)));
    assert_eq!(size(), 0);
}

//! What every journal keeps, whatever it is made of: the same cases for memory, SQLite and PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a failure in a test is the message")]

#[cfg(feature = "postgres")]
mod postgres_server;
mod sample;

use std::path::Path;

use loxley_journal::{
    AppendError, Ended, Group, History, JobQuery, JobRow, Journal, Limit, MemoryJournal,
    NotWritten, Options, Position, Pruning, ReadError, ReadHistory, Retention, Rows, Saving,
    Snapshot, SqliteJournal, TaskFilter, TaskQuery, limits,
};
use loxley_model::{AgentId, Failure, JobId, TaskId, Time};

/// Something that journals can be opened in.
trait Place {
    /// Opens the journal of this name to write it, also again. The one that was opened before is closed.
    fn open(&self, name: &str) -> Box<dyn Journal>;
    /// Its history.
    fn history(&self, name: &str) -> Box<dyn ReadHistory>;
}

struct Directory<'a>(&'a Path);

impl Place for Directory<'_> {
    fn open(&self, name: &str) -> Box<dyn Journal> {
        let opened = SqliteJournal::open(&self.0.join(name), &Options::default()).unwrap();
        Box::new(opened.journal)
    }

    fn history(&self, name: &str) -> Box<dyn ReadHistory> {
        Box::new(History::open(&self.0.join(name)).unwrap())
    }
}

#[test]
fn memory_keeps_what_every_journal_keeps() {
    groups_are_read_as_they_were_written(&mut MemoryJournal::new());
    a_wrong_position_is_fenced(&mut MemoryJournal::new());
    snapshots_stand_between_groups(&mut MemoryJournal::new());
}

#[test]
fn sqlite_keeps_what_every_journal_keeps() {
    let scratch = tempfile::tempdir().unwrap();
    all(&Directory(scratch.path()));
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_keeps_what_every_journal_keeps() {
    if let Some(server) = postgres_server::Postgres::start() {
        // Two shards of one cluster, one after the other in the same tables: neither sees anything of the other.
        for shard in [0, 2] {
            let server = &server;
            all(&Database { server, shard });
        }
    }
}

#[cfg(feature = "postgres")]
struct Database<'a> {
    server: &'a postgres_server::Postgres,
    shard: i32,
}

#[cfg(feature = "postgres")]
impl Place for Database<'_> {
    fn open(&self, name: &str) -> Box<dyn Journal> {
        use loxley_journal::postgres::{Address, Lease, Link, PostgresJournal};
        let shard = self.shard;
        let address = Address::parse(&self.server.url(name), None).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let claim = runtime.block_on(async {
            let link = Link::open(&address).await.unwrap();
            assert_eq!(link.settle_shards(&address, Some(3)).await.unwrap(), 3);
            let epoch = link.shard(shard).await.unwrap().epoch;
            let lease = std::time::Duration::ZERO;
            link.take(shard, epoch, 7, "", lease).await.unwrap()
        });
        let claim = claim.expect("nobody else wants it");
        Box::new(PostgresJournal::open(&address, claim, Lease::forever()).unwrap())
    }

    fn history(&self, name: &str) -> Box<dyn ReadHistory> {
        use loxley_journal::postgres::{Address, PostgresHistory};
        let address = Address::parse(&self.server.url(name), None).unwrap();
        Box::new(PostgresHistory::open(&address, self.shard).unwrap())
    }
}

fn all(place: &dyn Place) {
    groups_are_read_as_they_were_written(&mut *place.open("groups"));
    a_wrong_position_is_fenced(&mut *place.open("fenced"));
    snapshots_stand_between_groups(&mut *place.open("snapshots"));
    what_was_written_is_there_after_opening_again(place);
    what_is_too_large_is_refused_and_changes_nothing(place);
    rows_come_back_as_they_were_written(place);
    a_task_that_ends_again_gets_a_new_row_and_loses_its_output(place);
    a_job_keeps_its_description(place);
    tasks_and_jobs_come_in_pages(place);
    tasks_come_in_blocks_that_say_when_they_change(place);
    the_past_is_forgotten(place);
}

/// Jobs that ended at 100, 200 and so on, each with two tasks and one output, and one that goes on.
fn the_past_is_forgotten(place: &dyn Place) {
    let mut journal = place.open("forgotten");
    for number in 1..=10 {
        let mut group = sample::full(number);
        group.rows.jobs = vec![sample::job(number, number * 10, 2, Some(number * 100))];
        journal.append(journal.next_position(), &group).unwrap();
    }
    let mut open = sample::full(11);
    open.rows.jobs = vec![sample::job(11, 110, 2, None)];
    journal.append(Position(10), &open).unwrap();
    let history = place.history("forgotten");
    let left = |history: &dyn ReadHistory| -> Vec<u64> {
        let jobs = history.jobs(&JobQuery::default()).unwrap().rows;
        jobs.iter().map(|row| row.job.0).collect()
    };
    let mut forget = |retention: Retention| {
        let mut pruning = Pruning::new(retention);
        while journal.prune_some(&mut pruning).unwrap() {}
        pruning.pruned()
    };
    let nothing = forget(Retention::default());
    assert_eq!((nothing.jobs, nothing.tasks, nothing.groups), (0, 0, 0));
    // Older than, and not equal.
    let old = forget(Retention {
        older_than: Some(Time(300)),
        ..Retention::default()
    });
    assert_eq!((old.jobs, old.tasks, old.groups), (2, 4, 0));
    assert_eq!(left(&*history), [11, 10, 9, 8, 7, 6, 5, 4, 3]);
    assert!(history.task(TaskId(20)).unwrap().is_none());
    assert!(history.output(TaskId(20)).unwrap().is_none());
    assert!(history.output(TaskId(30)).unwrap().is_some());
    // Beyond both limits.
    let both = Retention {
        older_than: Some(Time(600)),
        jobs_max: Some(6),
        both: true,
        ..Retention::default()
    };
    assert_eq!(forget(both).jobs, 2);
    assert_eq!(left(&*history), [11, 10, 9, 8, 7, 6, 5]);
    // So many that ended last; what goes on is not counted and stays.
    let few = Retention {
        jobs_max: Some(3),
        ..Retention::default()
    };
    assert_eq!(forget(few).jobs, 3);
    assert_eq!(left(&*history), [11, 10, 9, 8]);
    // With a snapshot, groups go along.
    journal
        .save_snapshot(&Snapshot {
            position: Position(8),
            state: vec![1; 100],
        })
        .unwrap();
    let mut pruning = Pruning::new(Retention {
        jobs_max: Some(0),
        ..Retention::default()
    });
    while journal.prune_some(&mut pruning).unwrap() {}
    let all = pruning.pruned();
    assert_eq!((all.jobs, all.tasks, all.groups), (3, 6, 8));
    assert_eq!(left(&*history), [11]);
    assert!(history.task(TaskId(110)).unwrap().is_some());
    journal.append(Position(11), &facts(1)).unwrap();
    assert_eq!(
        journal.read(Position(8), Limit::default()).unwrap().len(),
        4
    );
    assert!(journal.room().unwrap().bytes > 0);
    the_first_to_end_go_while_it_is_too_large(place);
}

fn the_first_to_end_go_while_it_is_too_large(place: &dyn Place) {
    let mut journal = place.open("large");
    for number in 1..=40 {
        let mut group = sample::full(number);
        group.rows.jobs = vec![sample::job(number, number * 10, 2, Some(number * 100))];
        // Nothing that a database could pack.
        let mut noise = number;
        let output = &mut group.rows.outputs[0].output;
        output.resize_with(40_000, || {
            noise = noise.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(11);
            (noise >> 33) as u8
        });
        journal.append(journal.next_position(), &group).unwrap();
    }
    let mut pruning = Pruning::new(Retention {
        bytes_max: Some(1 << 20),
        ..Retention::default()
    });
    while journal.prune_some(&mut pruning).unwrap() {}
    let kept = place
        .history("large")
        .jobs(&JobQuery::default())
        .unwrap()
        .rows;
    // Some went, the first of them first, and not all: 26 outputs fit.
    assert!((10..=30).contains(&kept.len()), "{}", kept.len());
    assert!(kept.iter().all(|row| row.job.0 > 40 - kept.len() as u64));
    assert_eq!(pruning.pruned().jobs, 40 - kept.len() as u64);
}

fn facts(number: u8) -> Group {
    Group {
        facts: vec![number; 100],
        fact_count: u32::from(number),
        rows: Rows::default(),
    }
}

fn groups_are_read_as_they_were_written(journal: &mut dyn Journal) {
    assert_eq!(journal.next_position(), Position::START);
    assert!(journal.may_answer());
    for number in 0..150_u8 {
        let at = journal.next_position();
        assert_eq!(journal.append(at, &facts(number)).unwrap(), at.next());
    }
    let all = journal.read(Position::START, Limit::default()).unwrap();
    assert_eq!(all.len(), 150);
    for (number, group) in all.iter().enumerate() {
        assert_eq!(group.position, Position(number as u64));
        assert_eq!(group.facts, facts(number as u8).facts);
        assert_eq!(group.fact_count, number as u32);
    }
    let some = |groups, bytes| Limit { groups, bytes };
    let read = |journal: &mut dyn Journal, limit| journal.read(Position(140), limit).unwrap().len();
    assert_eq!(read(journal, Limit::ONE), 1);
    assert_eq!(read(journal, some(5, 1 << 20)), 5);
    assert_eq!(read(journal, some(100, 250)), 3);
    assert_eq!(read(journal, Limit::default()), 10);
    assert!(
        journal
            .read(Position(150), Limit::default())
            .unwrap()
            .is_empty()
    );
}

fn a_wrong_position_is_fenced(journal: &mut dyn Journal) {
    journal.append(Position(0), &facts(1)).unwrap();
    for wrong in [0, 2, 99] {
        let error = journal.append(Position(wrong), &facts(2)).unwrap_err();
        let AppendError::Fenced { expected, found } = error else {
            panic!("{error}");
        };
        assert_eq!((expected, found), (Position(wrong), Position(1)));
    }
    assert_eq!(journal.append(Position(1), &facts(2)).unwrap(), Position(2));
}

fn snapshots_stand_between_groups(journal: &mut dyn Journal) {
    let state = |position: u64, size| Snapshot {
        position: Position(position),
        state: (0..size).map(|index| (index % 251) as u8).collect(),
    };
    assert!(journal.latest_snapshot().unwrap().is_none());
    assert!(journal.truncate(Position(1)).is_err());
    for number in 0..10 {
        journal
            .append(journal.next_position(), &facts(number))
            .unwrap();
    }
    journal.save_snapshot(&state(3, 10)).unwrap();
    journal.save_snapshot(&state(5, 0)).unwrap();
    // Groups come in between two pieces.
    let mut saving = Saving::new(state(8, 700_000));
    while journal.save_piece(&mut saving).unwrap() {
        journal.append(journal.next_position(), &facts(0)).unwrap();
    }
    assert_eq!(journal.snapshots().unwrap(), [Position(8), Position(5)]);
    assert_eq!(
        journal.latest_snapshot().unwrap().unwrap(),
        state(8, 700_000)
    );
    assert_eq!(journal.snapshot(Position(5)).unwrap(), state(5, 0));
    let missing = journal.snapshot(Position(3)).unwrap_err();
    assert!(
        matches!(missing, ReadError::NoSnapshot(Position(3))),
        "{missing}"
    );
    let next = journal.next_position();
    let beyond = journal.save_snapshot(&state(next.0 + 1, 1)).unwrap_err();
    let is_refused = matches!(
        beyond,
        AppendError::NotWritten(NotWritten::BadSnapshot { .. })
    );
    assert!(is_refused, "{beyond}");
    assert_eq!(journal.truncate(Position(5)).unwrap(), 5);
    assert_eq!(journal.truncate(Position(7)).unwrap(), 2);
    assert_eq!(journal.snapshots().unwrap(), [Position(8)]);
    let gone = journal.read(Position(6), Limit::ONE).unwrap_err();
    assert!(
        matches!(
            gone,
            ReadError::Dropped {
                asked: Position(6),
                first: Position(7)
            }
        ),
        "{gone}"
    );
    assert_eq!(
        journal.read(Position(7), Limit::ONE).unwrap()[0].facts,
        facts(7).facts
    );
    assert!(journal.truncate(Position(9)).is_err());
}

fn what_was_written_is_there_after_opening_again(place: &dyn Place) {
    let mut journal = place.open("again");
    for number in 0..5 {
        journal
            .append(Position(number), &sample::full(number))
            .unwrap();
    }
    let snapshot = Snapshot {
        position: Position(4),
        state: b"state".to_vec(),
    };
    journal.save_snapshot(&snapshot).unwrap();
    journal.truncate(Position(2)).unwrap();
    drop(journal);
    let mut journal = place.open("again");
    assert_eq!(journal.next_position(), Position(5));
    assert_eq!(journal.latest_snapshot().unwrap(), Some(snapshot));
    let groups = journal.read(Position(2), Limit::default()).unwrap();
    let read: Vec<u64> = groups.iter().map(|group| group.position.0).collect();
    assert_eq!(read, [2, 3, 4]);
    assert_eq!(journal.append(Position(5), &facts(5)).unwrap(), Position(6));
}

fn what_is_too_large_is_refused_and_changes_nothing(place: &dyn Place) {
    let mut journal = place.open("large");
    let mut group = sample::full(1);
    group.rows.tasks[0].task = TaskId(limits::TASK_MAX + 1);
    let mut long_name = sample::full(1);
    long_name.rows.jobs[0].name = "n".repeat(limits::NAME_BYTES_MAX + 1);
    for group in [group, long_name] {
        let error = journal.append(Position(0), &group).unwrap_err();
        let is_refused = matches!(error, AppendError::NotWritten(NotWritten::TooLarge { .. }));
        assert!(is_refused, "{error}");
    }
    assert_eq!(
        journal.append(Position(0), &sample::full(1)).unwrap(),
        Position(1)
    );
    drop(journal);
    let tasks = place.history("large").tasks(&TaskQuery::default()).unwrap();
    assert_eq!(tasks.rows.len(), 2);
}

fn rows_come_back_as_they_were_written(place: &dyn Place) {
    let mut journal = place.open("rows");
    let group = sample::full(3);
    journal.append(Position(0), &group).unwrap();
    let mut bare = sample::task(35, 3, Ended::Cancelled);
    (bare.entry, bare.exit_code, bare.signal) = (None, None, Some(9));
    (bare.agent, bare.started, bare.usage) = (None, None, None);
    let rows = Rows {
        tasks: vec![bare.clone()],
        ..Rows::default()
    };
    journal
        .append(Position(1), &Group { rows, ..facts(1) })
        .unwrap();
    drop(journal);
    let history = place.history("rows");
    for row in group.rows.tasks.iter().chain([&bare]) {
        assert_eq!(history.task(row.task).unwrap().as_ref(), Some(row));
    }
    assert_eq!(history.task(TaskId(99)).unwrap(), None);
    assert_eq!(history.output(TaskId(30)).unwrap().unwrap(), b"printed");
    assert_eq!(history.result(TaskId(30)).unwrap().unwrap(), b"returned");
    assert_eq!(history.output(TaskId(31)).unwrap(), None);
    assert_eq!(
        history.job(JobId(3)).unwrap().as_ref(),
        group.rows.jobs.first()
    );
    assert_eq!(history.agents(None, 0).unwrap().rows, group.rows.agents);
    assert!(history.agents(Some(AgentId(3)), 0).unwrap().rows.is_empty());
    assert!(history.epoch_unix_nanos().unwrap() > 1_600_000_000_000_000_000);
}

fn a_task_that_ends_again_gets_a_new_row_and_loses_its_output(place: &dyn Place) {
    let mut journal = place.open("ends_again");
    journal.append(Position(0), &sample::full(1)).unwrap();
    let again = sample::task(10, 1, Ended::Failed(Failure::Error));
    let rows = Rows {
        // Twice in one group, too.
        tasks: vec![sample::task(10, 1, Ended::Succeeded), again.clone()],
        ..Rows::default()
    };
    journal
        .append(Position(1), &Group { rows, ..facts(1) })
        .unwrap();
    drop(journal);
    let history = place.history("ends_again");
    assert_eq!(history.task(TaskId(10)).unwrap(), Some(again));
    assert_eq!(history.output(TaskId(10)).unwrap(), None);
}

fn tasks_come_in_blocks_that_say_when_they_change(place: &dyn Place) {
    let mut journal = place.open("blocks");
    let ended = |tasks: &[u64], facts_of: u8| Group {
        rows: Rows {
            tasks: tasks
                .iter()
                .map(|task| sample::task(*task, 1, Ended::Succeeded))
                .collect(),
            ..Rows::default()
        },
        ..facts(facts_of)
    };
    let walk = || {
        let history = place.history("blocks");
        let (mut from, mut found) = (TaskId(0), Vec::new());
        while let Some(block) = history.next_block(from).unwrap() {
            let rows = history.block(block.first).unwrap();
            let tasks: Vec<u64> = rows.iter().map(|row| row.task.0).collect();
            found.push((block.first.0, tasks, block.stamp));
            from = block.next;
        }
        found
    };
    assert_eq!(walk(), []);
    let group = ended(&[5, 4095, 4096, 20_000], 1);
    journal.append(Position(0), &group).unwrap();
    let before = walk();
    let shape = |walked: &[(u64, Vec<u64>, u64)]| -> Vec<(u64, Vec<u64>)> {
        let blocks = walked.iter();
        blocks
            .map(|(first, tasks, _)| (*first, tasks.clone()))
            .collect()
    };
    let expected = [
        (0, vec![5, 4095]),
        (4096, vec![4096]),
        (16_384, vec![20_000]),
    ];
    assert_eq!(shape(&before), expected);
    journal.append(Position(1), &ended(&[6], 1)).unwrap();
    let after = walk();
    assert_eq!(after[0].1, [5, 6, 4095]);
    assert_ne!(before[0].2, after[0].2);
    assert_eq!(before[1..], after[1..]);
}

fn a_job_keeps_its_description(place: &dyn Place) {
    let mut journal = place.open("description");
    let described = sample::job(5, 50, 2, None);
    let later = JobRow {
        detail: Vec::new(),
        ..sample::job(5, 50, 2, Some(70))
    };
    let jobs = |jobs: Vec<JobRow>| Group {
        rows: Rows {
            jobs,
            ..Rows::default()
        },
        ..facts(1)
    };
    journal.append(Position(0), &jobs(vec![described])).unwrap();
    journal
        .append(Position(1), &jobs(vec![later.clone()]))
        .unwrap();
    // Both in one group.
    let (first, second) = (
        sample::job(6, 60, 1, None),
        JobRow {
            job: JobId(6),
            ..later
        },
    );
    journal
        .append(Position(2), &jobs(vec![first, second]))
        .unwrap();
    drop(journal);
    let history = place.history("description");
    for job in [5, 6] {
        let row = history.job(JobId(job)).unwrap().unwrap();
        assert_eq!(row.detail, b"sleep {}");
        assert!(row.finished.is_some());
    }
}

fn tasks_and_jobs_come_in_pages(place: &dyn Place) {
    let mut journal = place.open("pages");
    for number in 0..20 {
        journal
            .append(Position(number), &sample::full(number))
            .unwrap();
    }
    drop(journal);
    let history = place.history("pages");
    let count = |query: TaskQuery| {
        let (mut query, mut found) = (query, Vec::new());
        query.limit = 7;
        loop {
            let page = history.tasks(&query).unwrap();
            assert!(page.rows.len() <= 7);
            found.extend(page.rows.iter().map(|row| row.task.0));
            query.after = page.next;
            if query.after.is_none() {
                assert!(found.is_sorted(), "{found:?}");
                return found.len();
            }
        }
    };
    let filtered = |filter| TaskQuery {
        filter,
        ..TaskQuery::default()
    };
    assert_eq!(count(TaskQuery::default()), 40);
    assert_eq!(count(filtered(TaskFilter::Failed)), 20);
    assert_eq!(count(filtered(TaskFilter::Succeeded)), 20);
    assert_eq!(count(filtered(TaskFilter::Unsuccessful)), 20);
    assert_eq!(count(filtered(TaskFilter::Cancelled)), 0);
    let of_job = |job| TaskQuery {
        job: Some(JobId(job)),
        ..TaskQuery::default()
    };
    assert_eq!((count(of_job(4)), count(of_job(99))), (2, 0));
    let query = |before, user: &str| JobQuery {
        before,
        user: Some(user.to_owned()),
        limit: 15,
        ..JobQuery::default()
    };
    let first = history.jobs(&query(None, "robin")).unwrap();
    assert_eq!((first.rows[0].job, first.rows.len()), (JobId(19), 15));
    let second = history.jobs(&query(first.next, "robin")).unwrap();
    assert_eq!((second.rows[0].job, second.rows.len()), (JobId(4), 5));
    assert_eq!(second.next, None);
    assert!(
        history
            .jobs(&query(None, "nobody"))
            .unwrap()
            .rows
            .is_empty()
    );
}

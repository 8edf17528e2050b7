//! The history answers as if every task had one row, however its ends were packed.
//!
//! Random groups of ends, some of tasks that ended before, over the borders of blocks; between them jobs are
//! forgotten. A map from task to row says what every question must answer.
#![expect(clippy::unwrap_used, reason = "a failure in a test is the message")]

mod sample;

use std::collections::{BTreeMap, BTreeSet};

use loxley_journal::{
    Ended, Group, History, Journal, Notice, OpenError, Options, Rows, SqliteJournal, TaskFilter,
    TaskOutput, TaskQuery, TaskRow, check,
};
use loxley_model::{Failure, JobId, TaskId, Time};
use proptest::prelude::*;

/// Tasks of a job: several fit in a block, and some lie across the border of two.
const JOB_TASKS: u64 = 3_000;
const JOBS: u64 = 6;

/// What was written, without any packing.
#[derive(Default)]
struct Model {
    tasks: BTreeMap<TaskId, TaskRow>,
    outputs: BTreeMap<TaskId, Vec<u8>>,
}

#[derive(Clone, Debug)]
enum Step {
    /// These tasks end.
    End(Vec<End>),
    /// A job is over, and about so many of its tasks are forgotten.
    Forget { job: u64, most: u64 },
    /// The journal is closed and opened.
    Reopen,
}

#[derive(Clone, Debug)]
struct End {
    task: u64,
    ended: Ended,
    attempt: u32,
    output: Option<u8>,
}

fn end() -> impl Strategy<Value = End> {
    let ended = prop_oneof![
        6 => Just(Ended::Succeeded),
        1 => Just(Ended::FellBack),
        1 => Just(Ended::Failed(Failure::TimeLimit)),
        1 => Just(Ended::Cancelled),
    ];
    // Often near the border of blocks, often the same again.
    let task = prop_oneof![0..JOB_TASKS * JOBS, 4_080..4_110_u64, 100..110_u64];
    (
        task,
        ended,
        1..4_u32,
        prop::option::weighted(0.1, any::<u8>()),
    )
        .prop_map(|(task, ended, attempt, output)| End {
            task,
            ended,
            attempt,
            output,
        })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => prop::collection::vec(end(), 1..60).prop_map(Step::End),
        // An array: all of a stretch.
        4 => (0..JOB_TASKS * JOBS - 500, 1..500_u64).prop_map(|(first, count)| {
            let task = |task| End { task, ended: Ended::Succeeded, attempt: 1, output: None };
            Step::End((first..first + count).map(task).collect())
        }),
        2 => (0..JOBS, prop_oneof![1..50_u64, Just(u64::MAX)])
            .prop_map(|(job, most)| Step::Forget { job, most }),
        1 => Just(Step::Reopen),
    ]
}

fn row(end: &End, now: u64) -> TaskRow {
    let mut row = sample::task(end.task, end.task / JOB_TASKS, end.ended);
    row.attempt = end.attempt;
    row.finished = Time(1_000 + now);
    row
}

fn open(directory: &std::path::Path) -> SqliteJournal {
    let opened = SqliteJournal::open(directory, &Options::default()).unwrap();
    // A directory for tests is open to others, as the system makes it.
    let mended = |notice: &Notice| matches!(notice, Notice::MadePrivate { .. });
    assert!(opened.notices.iter().all(mended), "{:?}", opened.notices);
    opened.journal
}

fn append(journal: &mut SqliteJournal, rows: Rows) {
    let at = journal.next_position();
    let group = Group {
        facts: vec![1, 2, 3],
        fact_count: 1,
        rows,
    };
    journal.append(at, &group).unwrap();
}

fn job_rows(finished: impl Fn(u64) -> Option<u64>) -> Vec<loxley_journal::JobRow> {
    (0..JOBS)
        .map(|job| sample::job(job, job * JOB_TASKS, JOB_TASKS, finished(job)))
        .collect()
}

fn tasks_end(journal: &mut SqliteJournal, model: &mut Model, ends: &[End], now: u64) {
    let mut rows = Rows::default();
    for end in ends {
        let row = row(end, now);
        rows.outputs.retain(|output| output.task != row.task);
        model.outputs.remove(&row.task);
        if let Some(byte) = end.output {
            rows.outputs.push(TaskOutput {
                task: row.task,
                output: vec![byte; 10],
                result: Vec::new(),
            });
            model.outputs.insert(row.task, vec![byte; 10]);
        }
        model.tasks.insert(row.task, row.clone());
        rows.tasks.push(row);
    }
    append(journal, rows);
}

fn forget(journal: &mut SqliteJournal, model: &mut Model, job: u64, most: u64) {
    append(
        journal,
        Rows {
            jobs: job_rows(|this| (this == job).then_some(5)),
            ..Rows::default()
        },
    );
    let its = model.tasks.values().filter(|row| row.job == JobId(job));
    let its: Vec<TaskId> = its.map(|row| row.task).collect();
    let pruned = journal.prune(Time(6), most).unwrap();
    let gone: BTreeSet<TaskId> = its.iter().copied().take(pruned.tasks as usize).collect();
    assert_eq!(pruned.more, pruned.jobs == 0);
    assert_eq!(pruned.tasks, most.min(its.len() as u64));
    model.tasks.retain(|task, _| !gone.contains(task));
    model.outputs.retain(|task, _| !gone.contains(task));
    // It is there again, and not over.
    append(
        journal,
        Rows {
            jobs: job_rows(|_| None),
            ..Rows::default()
        },
    );
}

/// Every page of a list.
fn listed(history: &History, job: Option<u64>, filter: TaskFilter, limit: usize) -> Vec<TaskRow> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let query = TaskQuery {
            job: job.map(JobId),
            filter,
            after,
            limit,
        };
        let page = history.tasks(&query).unwrap();
        assert!(page.rows.len() <= limit);
        found.extend(page.rows);
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

type Wanted = (TaskFilter, fn(Ended) -> bool);

fn compare(history: &History, model: &Model, asked: &[u64]) {
    let expected = |is_wanted: fn(Ended) -> bool, job: Option<u64>| {
        let all = model.tasks.values();
        all.filter(|row| is_wanted(row.ended) && job.is_none_or(|job| row.job == JobId(job)))
            .cloned()
            .collect::<Vec<_>>()
    };
    let is_success = |ended| matches!(ended, Ended::Succeeded | Ended::FellBack);
    let filters: [Wanted; 5] = [
        (TaskFilter::Any, |_| true),
        (TaskFilter::Succeeded, is_success),
        (TaskFilter::Failed, |ended| {
            matches!(ended, Ended::Failed(_))
        }),
        (TaskFilter::Cancelled, |ended| ended == Ended::Cancelled),
        (TaskFilter::Unsuccessful, |ended| {
            !matches!(ended, Ended::Succeeded | Ended::FellBack)
        }),
    ];
    for (filter, is_wanted) in filters {
        for (job, limit) in [(None, 10_000), (Some(1), 97), (Some(2), 1_000)] {
            assert_eq!(
                listed(history, job, filter, limit),
                expected(is_wanted, job),
                "{filter:?} of {job:?}"
            );
        }
    }
    for task in asked.iter().copied().map(TaskId) {
        assert_eq!(history.task(task).unwrap().as_ref(), model.tasks.get(&task));
        let output = history.output(task).unwrap();
        assert_eq!(output.as_ref(), model.outputs.get(&task), "{task}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("LOXLEY_TEST_LONG").is_some() { 1_000 } else { 24 },
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_task_is_seen_as_it_ended_last(steps in prop::collection::vec(step(), 1..20)) {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = open(directory.path());
        let mut model = Model::default();
        let mut asked = vec![0, 4_095, 4_096, JOB_TASKS * JOBS];
        append(&mut journal, Rows { jobs: job_rows(|_| None), ..Rows::default() });
        for (now, step) in (0..).zip(&steps) {
            match step {
                Step::End(ends) => {
                    asked.extend(ends.iter().map(|end| end.task).take(5));
                    tasks_end(&mut journal, &mut model, ends, now);
                }
                Step::Forget { job, most } => forget(&mut journal, &mut model, *job, *most),
                Step::Reopen => {
                    drop(journal);
                    journal = open(directory.path());
                }
            }
        }
        compare(&History::open(directory.path()).unwrap(), &model, &asked);
        let checked = check(directory.path()).unwrap();
        prop_assert_eq!(checked.findings, []);
        prop_assert_eq!(checked.tasks, model.tasks.len() as u64);
    }
}

#[test]
fn of_two_ends_in_one_group_the_last_counts() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = open(directory.path());
    let failed = sample::task(7, 1, Ended::Failed(Failure::Error));
    let succeeded = sample::task(7, 1, Ended::Succeeded);
    let tasks = vec![failed, sample::task(5, 1, Ended::Succeeded), succeeded];
    append(
        &mut journal,
        Rows {
            tasks: tasks.clone(),
            ..Rows::default()
        },
    );
    let history = History::open(directory.path()).unwrap();
    assert_eq!(history.task(TaskId(7)).unwrap().unwrap(), tasks[2]);
    assert_eq!(check(directory.path()).unwrap().findings, []);
}

/// Rows that a tool took away are missed, though every row that is left is whole.
#[test]
fn lost_rows_are_told() {
    for loss in [
        "DELETE FROM runs WHERE run = (SELECT min(run) FROM runs)",
        "DELETE FROM outputs WHERE task = 0",
        "UPDATE runs SET run = run + 1 WHERE run = (SELECT max(run) FROM runs)",
        "UPDATE runs SET last = last - 1",
        "UPDATE runs SET unsuccessful = 0",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = open(directory.path());
        for number in 0..4 {
            append(&mut journal, sample::full(number).rows);
        }
        drop(journal);
        let tool = rusqlite::Connection::open(directory.path().join("journal.db")).unwrap();
        assert!(tool.execute(loss, ()).unwrap() > 0, "{loss}");
        drop(tool);
        let findings = check(directory.path()).unwrap().findings;
        assert!(!findings.is_empty(), "{loss}");
    }
}

#[test]
fn a_journal_of_another_version_is_refused_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let now = rusqlite::Connection::open(directory.path().join("journal.db")).unwrap();
    let number = |pragma| now.pragma_query_value(None, pragma, |row| row.get::<_, u32>(0));
    let present = number("user_version").unwrap();
    for (format, age) in [(1, "an older"), (present + 1, "a newer")] {
        let tool = rusqlite::Connection::open(directory.path().join("journal.db")).unwrap();
        tool.pragma_update(None, "user_version", format).unwrap();
        drop(tool);
        let error = SqliteJournal::open(directory.path(), &Options::default()).unwrap_err();
        assert!(matches!(error, OpenError::Format { found, .. } if found == format));
        let said = error.to_string();
        let expected = format!(
            "has format {format}, that of {age} version of Loxley; this program reads formats 3 to {present}: go on \
             with the version that wrote it, or move its files away and begin a new one"
        );
        assert!(said.ends_with(&expected), "{said}");
        assert!(History::open(directory.path()).is_err());
    }
}

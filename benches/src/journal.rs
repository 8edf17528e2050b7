//! What durability costs: groups of facts through the embedded journal, beside the bare system calls.
//!
//! The floor writes the same bytes to a plain file and syncs it after every group: no checksums, no
//! index, no atomic commit of several tables. It is what no journal on this disk can beat.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use loxley_journal::{
    Ended, Group, History, JobRow, JobState, Journal, Options as JournalOptions, Position, Rows,
    SqliteJournal, TaskRow, Usage,
};
use loxley_model::{AgentId, JobId, Span, TaskId, Time};

use crate::Options;
use crate::measure::{Contender, Role, interleaved};
use crate::report::{Goal, Report};

/// About what a packed fact takes.
const FACT_BYTES: usize = 24;

pub(crate) fn run(options: &Options, report: &mut Report) -> Result<()> {
    for (case, facts, tasks, factor) in [
        ("groups/32", 32, 0, 2.0),
        ("groups/1024", 1024, 0, 2.0),
        ("groups/1024 with 512 finished tasks", 1024, 512, 4.0),
    ] {
        if options.wants(case) {
            append(options, report, case, facts, tasks, factor)?;
        }
    }
    if options.wants("open") {
        open(options, report)?;
    }
    Ok(())
}

/// Nanoseconds a fact, each group durable before the next.
fn append(
    options: &Options,
    report: &mut Report,
    case: &str,
    facts: usize,
    tasks: usize,
    factor: f64,
) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let opened = SqliteJournal::open(
        &directory.path().join("journal"),
        &JournalOptions::default(),
    )?;
    let mut writer = Writer {
        journal: opened.journal,
        next_task: 0,
    };
    let mut plain = File::create(directory.path().join("plain"))?;
    let groups = if options.quick { 20 } else { 200 };
    let samples = interleaved(
        options.effort(),
        &mut [
            Contender::new("loxley", Role::Subject, || {
                writer.append(groups, facts, tasks)
            }),
            Contender::new("write + fdatasync", Role::Floor, || {
                write_and_sync(&mut plain, groups, facts)
            }),
        ],
    );
    report.case(
        case,
        "ns/fact",
        Some(Goal::Times(factor, "write + fdatasync")),
        &samples,
    );
    Ok(())
}

struct Writer {
    journal: SqliteJournal,
    next_task: u64,
}

impl Writer {
    fn append(&mut self, groups: usize, facts: usize, tasks: usize) -> f64 {
        let batch: Vec<Group> = (0..groups).map(|_| self.group(facts, tasks)).collect();
        let begin = Instant::now();
        for group in &batch {
            let at = self.journal.next_position();
            self.journal.append(at, group).expect("the disk has room");
        }
        begin.elapsed().as_nanos() as f64 / (groups * facts) as f64
    }

    fn group(&mut self, facts: usize, tasks: usize) -> Group {
        let first = self.next_task;
        self.next_task += tasks as u64;
        Group {
            facts: vec![0x5A; facts * FACT_BYTES],
            fact_count: facts as u32,
            rows: Rows {
                tasks: (first..self.next_task).map(finished).collect(),
                ..Rows::default()
            },
        }
    }
}

fn write_and_sync(file: &mut File, groups: usize, facts: usize) -> f64 {
    let bytes = vec![0x5A; facts * FACT_BYTES];
    let begin = Instant::now();
    for _ in 0..groups {
        file.write_all(&bytes)
            .and_then(|()| file.sync_data())
            .expect("the disk has room");
    }
    begin.elapsed().as_nanos() as f64 / (groups * facts) as f64
}

fn finished(task: u64) -> TaskRow {
    TaskRow {
        task: TaskId(task),
        job: JobId(1),
        entry: Some(task),
        ended: Ended::Succeeded,
        exit_code: Some(0),
        signal: None,
        agent: Some(AgentId(task % 16)),
        attempt: 1,
        created: Time(1_000_000_000),
        started: Some(Time(2_000_000_000 + task)),
        finished: Time(3_000_000_000 + task),
        usage: Some(Usage {
            duration: Span(1_000_000_000),
            ..Usage::default()
        }),
    }
}

/// Milliseconds to open a journal with a long history, to write and to read.
fn open(options: &Options, report: &mut Report) -> Result<()> {
    let tasks: u64 = if options.quick { 100_000 } else { 1_000_000 };
    let directory = tempfile::tempdir()?;
    fill(directory.path(), tasks)?;
    let write = || {
        let begin = Instant::now();
        let opened = SqliteJournal::open(directory.path(), &JournalOptions::default());
        let opened = opened.expect("a journal that was just closed");
        let took = begin.elapsed().as_secs_f64() * 1e3;
        assert!(opened.journal.next_position() > Position::START);
        took
    };
    let read = || {
        let begin = Instant::now();
        let history = History::open(directory.path()).expect("a journal that was just closed");
        let found = history.task(TaskId(tasks / 2)).expect("it is whole");
        assert!(found.is_some());
        begin.elapsed().as_secs_f64() * 1e3
    };
    let samples = interleaved(
        options.effort(),
        &mut [
            Contender::new("loxley", Role::Subject, write),
            Contender::new("to ask for one task", Role::Floor, read),
        ],
    );
    let case = format!("open with {tasks} tasks in history");
    report.case(&case, "ms", Some(Goal::AtMost(3_000.0)), &samples);
    Ok(())
}

fn fill(directory: &Path, tasks: u64) -> Result<()> {
    let mut journal = SqliteJournal::open(directory, &JournalOptions::default())?.journal;
    let job = JobRow {
        job: JobId(1),
        name: "million".to_owned(),
        user: "bench".to_owned(),
        first_task: TaskId(0),
        task_count: tasks,
        state: JobState::Open,
        created: Time(0),
        finished: None,
        succeeded: 0,
        failed: 0,
        cancelled: 0,
        detail: Vec::new(),
    };
    let step = 10_000;
    for first in (0..tasks).step_by(step) {
        let rows = Rows {
            tasks: (first..first + step as u64).map(finished).collect(),
            jobs: vec![job.clone()],
            ..Rows::default()
        };
        let group = Group {
            facts: vec![1; step * FACT_BYTES],
            fact_count: step as u32,
            rows,
        };
        let at = journal.next_position();
        journal.append(at, &group)?;
    }
    Ok(())
}

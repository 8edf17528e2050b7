//! Reads everything and says what is not as it was written.

use std::fmt;
use std::path::Path;

use super::damage::damaged;
use super::head::{Head, RowCounts};
use super::history::{History, JobQuery, Page, TaskQuery};
use super::open::{self, Fail, Notice};
use super::runs;
use super::wal::Log;
use crate::group::{Limit, Position};
use crate::{OpenError, ReadError};

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The first group that is kept.
    pub first: Position,
    /// Where the next group goes.
    pub next: Position,
    /// The facts in the groups, as their writer counted them.
    pub facts: u64,
    /// The bytes of those facts.
    pub bytes: u64,
    /// Where replay begins.
    pub snapshot: Option<Position>,
    /// Rows of finished tasks.
    pub tasks: u64,
    /// Rows of jobs.
    pub jobs: u64,
    /// Who has the journal open, if somebody has: then its files were not looked at, only its content.
    pub in_use_by: Option<String>,
    /// What opening it to write would say.
    pub notices: Vec<Notice>,
    /// What is damaged. Empty: nothing is.
    pub findings: Vec<Finding>,
}

/// One damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding(pub String);

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The most findings that are listed.
const FINDINGS_MAX: usize = 100;

/// Rows read at once.
const PAGE: usize = 1000;

/// Reads the whole journal in `directory` and changes nothing. An error means that it could not be
/// read at all; damage is in the findings.
pub fn check(directory: &Path) -> Result<Checked, OpenError> {
    if !open::exists(directory) {
        return Err(OpenError::Missing {
            directory: directory.to_owned(),
        });
    }
    let mut checked = Checked::default();
    let lock = match open::take_lock(directory, "loxley journal check") {
        Ok(lock) => Some(lock),
        Err(OpenError::InUse { holder, .. }) => {
            checked.in_use_by = Some(holder);
            None
        }
        Err(error) => return Err(error),
    };
    let opened = match &lock {
        Some(_) => open::inspect(directory),
        None => Ok(Log::Whole),
    };
    let outcome = opened.and_then(|log| look_inside(directory, log, lock.is_some(), &mut checked));
    match outcome {
        Ok(()) => Ok(checked),
        Err(OpenError::Damaged { damage, .. }) => {
            checked.find(damage);
            Ok(checked)
        }
        Err(error) => Err(error),
    }
}

fn look_inside(
    directory: &Path,
    log: Log,
    alone: bool,
    checked: &mut Checked,
) -> Result<(), OpenError> {
    let connection = open::connect_to_read(directory)?;
    let head = open::load(directory, &connection)?;
    let next = head.next;
    (checked.first, checked.next) = (head.base, next);
    if let Log::Torn { bytes } = log {
        checked.notices.push(Notice::TornTail { bytes, next });
    }
    if alone && !open::compare_mark(directory, &head)? {
        checked.notices.push(Notice::MarkRemade { next });
    }
    let history = History::over(connection);
    for stage in STAGES {
        match stage(&history, checked) {
            Ok(()) => {}
            Err(ReadError::Storage(source)) => return Err(Fail(directory).io(source)),
            Err(damage) => checked.find(damage),
        }
    }
    Ok(())
}

type Stage = fn(&History, &mut Checked) -> Result<(), ReadError>;

/// Each stops at its first damage, and the next one goes on.
const STAGES: [Stage; 7] = [
    groups,
    snapshot,
    tasks,
    outputs,
    jobs,
    agents_and_counts,
    structure,
];

impl Checked {
    fn find(&mut self, damage: ReadError) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding(damage.to_string()));
        }
    }
}

fn groups(history: &History, checked: &mut Checked) -> Result<(), ReadError> {
    let mut position = checked.first;
    loop {
        let groups = match history.groups(position, Limit::default()) {
            // The owner drops groups while we read.
            Err(ReadError::Dropped { first, .. }) => {
                position = first;
                continue;
            }
            groups => groups?,
        };
        let Some(last) = groups.last() else {
            return Ok(());
        };
        position = last.position.next();
        for group in &groups {
            checked.facts += u64::from(group.fact_count);
            checked.bytes += group.facts.len() as u64;
        }
    }
}

fn snapshot(history: &History, checked: &mut Checked) -> Result<(), ReadError> {
    checked.snapshot = history.snapshots()?.first().copied();
    Ok(())
}

/// Reads every page of a list: the reading itself holds each row against its CRC.
fn read_all<RowType, Cursor>(
    mut ask: impl FnMut(Option<Cursor>) -> Result<Page<RowType, Cursor>, ReadError>,
) -> Result<u64, ReadError> {
    let mut read = 0;
    let mut cursor = None;
    loop {
        let page = ask(cursor)?;
        read += page.rows.len() as u64;
        cursor = page.next;
        if cursor.is_none() {
            return Ok(read);
        }
    }
}

fn tasks(history: &History, checked: &mut Checked) -> Result<(), ReadError> {
    checked.tasks = read_all(|after| {
        history.tasks(&TaskQuery {
            after,
            limit: PAGE,
            ..TaskQuery::default()
        })
    })?;
    Ok(())
}

fn outputs(history: &History, _: &mut Checked) -> Result<(), ReadError> {
    // Each may be as large as a result may be.
    read_all(|after| history.outputs(after, 16)).map(|_| ())
}

fn jobs(history: &History, checked: &mut Checked) -> Result<(), ReadError> {
    checked.jobs = read_all(|before| {
        history.jobs(&JobQuery {
            before,
            limit: PAGE,
            ..JobQuery::default()
        })
    })?;
    Ok(())
}

/// The head knows how many rows there are: none may be missing.
fn agents_and_counts(history: &History, _: &mut Checked) -> Result<(), ReadError> {
    read_all(|after| history.agents(after, PAGE))?;
    let view = history.connection().unchecked_transaction()?;
    let expected = Head::load(&view)?.rows;
    let count = |table| {
        view.query_row(&format!("SELECT count(*) FROM {table}"), (), |row| {
            row.get::<_, i64>(0)
        })
    };
    let found = RowCounts {
        tasks: runs::count(&view)?,
        outputs: count("outputs")? as u64,
        jobs: count("jobs")? as u64,
        agents: count("agents")? as u64,
    };
    if found != expected {
        return Err(damaged(
            "its history",
            format!("expected {expected:?}, found {found:?}"),
        ));
    }
    Ok(())
}

/// The trees of SQLite: every page in its place, every index in step with its table.
fn structure(history: &History, checked: &mut Checked) -> Result<(), ReadError> {
    let mut statement = history
        .connection()
        .prepare("PRAGMA integrity_check(100)")?;
    let lines = statement.query_map((), |row| row.get::<_, String>(0))?;
    for line in lines {
        let line = line?;
        if line != "ok" {
            checked.find(damaged("its file", line));
        }
    }
    Ok(())
}

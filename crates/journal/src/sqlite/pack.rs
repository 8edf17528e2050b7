//! Rows of tasks, packed: those that ended together and stand together share one row of SQLite.
//!
//! Tasks of an array end about in the order of their ids, on a few agents, at nearly the same time. So
//! each entry says only how it differs from the one before it, in numbers of one byte while they are
//! small: a task that did nothing takes about seven bytes. An entry is
//!
//! ```text
//! marks      which of the fields below are there
//! task       how many ids after the one before
//! job, entry, ending (code, exit code, signal), agent, attempt, created
//!            each only if it is not as expected: as before, or, for the entry, further by as many ids
//! finished   after the one before
//! started    before it finished
//! usage      only if it is not as expected: the time between the two, and nothing else
//! ```
//!
//! Numbers are in the little-endian base 128 that many formats share; signed ones are folded first, so
//! that small negative numbers stay short; one that may be missing is stored plus one.
//!
//! What must stay true: whatever is packed is unpacked as it was, and bytes that nobody packed make
//! an answer or none, never a panic.

use loxley_model::{AgentId, JobId, Span, TaskId, Time};

use crate::rows::{Ended, TaskRow, Usage};

/// A row as it is packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) row: TaskRow,
    /// Whether the task left something behind when it ended.
    pub(super) left_output: bool,
}

const JOB: u64 = 1;
const ENTRY: u64 = 1 << 1;
const ENDING: u64 = 1 << 2;
const AGENT: u64 = 1 << 3;
const ATTEMPT: u64 = 1 << 4;
const CREATED: u64 = 1 << 5;
const USAGE: u64 = 1 << 6;
/// Last, because it needs a second byte, and so does what was left behind.
const LEFT_OUTPUT: u64 = 1 << 7;

/// What the next entry is expected to be like.
#[derive(Clone, Copy)]
struct Before {
    task: u64,
    job: u64,
    entry: Option<u64>,
    ended: Ended,
    exit_code: Option<i32>,
    signal: Option<i32>,
    agent: Option<u64>,
    attempt: u32,
    created: u64,
    finished: u64,
}

impl Before {
    fn first() -> Self {
        Self {
            task: 0,
            job: 0,
            entry: None,
            ended: Ended::Succeeded,
            exit_code: None,
            signal: None,
            agent: None,
            attempt: 1,
            created: 0,
            finished: 0,
        }
    }

    fn after(row: &TaskRow) -> Self {
        Self {
            task: row.task.0,
            job: row.job.0,
            entry: row.entry,
            ended: row.ended,
            exit_code: row.exit_code,
            signal: row.signal,
            agent: row.agent.map(|agent| agent.0),
            attempt: row.attempt,
            created: row.created.0,
            finished: row.finished.0,
        }
    }

    fn expected_entry(&self, task: u64) -> Option<u64> {
        let further = task.wrapping_sub(self.task);
        self.entry.map(|entry| entry.wrapping_add(further))
    }

    /// How `row` differs from what is expected after this one.
    fn marks(&self, row: &TaskRow) -> u64 {
        let mark = |differs: bool, mark: u64| if differs { mark } else { 0 };
        let ending = (self.ended, self.exit_code, self.signal);
        mark(row.job.0 != self.job, JOB)
            | mark(row.entry != self.expected_entry(row.task.0), ENTRY)
            | mark((row.ended, row.exit_code, row.signal) != ending, ENDING)
            | mark(row.agent.map(|agent| agent.0) != self.agent, AGENT)
            | mark(row.attempt != self.attempt, ATTEMPT)
            | mark(row.created.0 != self.created, CREATED)
            | mark(
                row.usage != expected_usage(row.started, row.finished),
                USAGE,
            )
    }
}

/// A task that began used the time until it ended; more has to be said.
fn expected_usage(started: Option<Time>, finished: Time) -> Option<Usage> {
    started.map(|started| Usage {
        duration: finished.since(started),
        ..Usage::default()
    })
}

/// Packs rows one after the other. Numbers must be within [`limits`](crate::limits).
pub(super) struct Packer {
    bytes: Vec<u8>,
    before: Before,
}

impl Packer {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            before: Before::first(),
        }
    }

    pub(super) fn push(&mut self, row: &TaskRow, left_output: bool) {
        let before = self.before;
        let marks = before.marks(row);
        let has = |mark: u64| marks & mark != 0;
        self.number(marks | if left_output { LEFT_OUTPUT } else { 0 });
        self.number(row.task.0.wrapping_sub(before.task));
        if has(JOB) {
            self.number(row.job.0);
        }
        if has(ENTRY) {
            self.maybe(row.entry);
        }
        if has(ENDING) {
            self.number(row.ended.code());
            self.maybe(row.exit_code.map(|code| folded(i64::from(code))));
            self.maybe(row.signal.map(|signal| folded(i64::from(signal))));
        }
        if has(AGENT) {
            self.maybe(row.agent.map(|agent| agent.0));
        }
        if has(ATTEMPT) {
            self.number(u64::from(row.attempt));
        }
        if has(CREATED) {
            self.number(difference(row.created.0, before.created));
        }
        self.number(difference(row.finished.0, before.finished));
        let started = row.started.map(|time| time.0);
        self.maybe(started.map(|started| difference(row.finished.0, started)));
        if has(USAGE) {
            self.usage(row);
        }
        self.before = Before::after(row);
    }

    fn usage(&mut self, row: &TaskRow) {
        let Some(usage) = row.usage else {
            self.number(0);
            return;
        };
        self.number(1);
        let expected = expected_usage(row.started, row.finished).unwrap_or_default();
        self.number(difference(usage.duration.0, expected.duration.0));
        self.number(usage.user.0);
        self.number(usage.system.0);
        self.number(usage.memory_bytes);
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    fn maybe(&mut self, number: Option<u64>) {
        self.number(number.map_or(0, |number| number + 1));
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Unpacks entries one after the other.
pub(super) struct Unpacker<'a> {
    bytes: &'a [u8],
    before: Before,
}

impl<'a> Unpacker<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            before: Before::first(),
        }
    }

    /// None: these bytes are no entry.
    fn entry(&mut self) -> Option<Entry> {
        let before = self.before;
        let marks = self.number()?;
        let has = |mark: u64| marks & mark != 0;
        let task = before.task.wrapping_add(self.number()?);
        let job = if has(JOB) { self.number()? } else { before.job };
        let entry = match has(ENTRY) {
            true => self.maybe()?,
            false => before.expected_entry(task),
        };
        let (ended, exit_code, signal) = match has(ENDING) {
            true => self.ending()?,
            false => (before.ended, before.exit_code, before.signal),
        };
        let agent = if has(AGENT) {
            self.maybe()?
        } else {
            before.agent
        };
        let attempt = match has(ATTEMPT) {
            true => u32::try_from(self.number()?).ok()?,
            false => before.attempt,
        };
        let created = match has(CREATED) {
            true => further(before.created, self.number()?),
            false => before.created,
        };
        let finished = Time(further(before.finished, self.number()?));
        // How long before the end: the other way round than `further` goes.
        let started = self.maybe()?;
        let started = started.map(|ago| Time(finished.0.wrapping_sub(unfolded(ago) as u64)));
        let usage = match has(USAGE) {
            true => self.usage(started, finished)?,
            false => expected_usage(started, finished),
        };
        let row = TaskRow {
            task: TaskId(task),
            job: JobId(job),
            entry,
            ended,
            exit_code,
            signal,
            agent: agent.map(AgentId),
            attempt,
            created: Time(created),
            started,
            finished,
            usage,
        };
        self.before = Before::after(&row);
        let left_output = has(LEFT_OUTPUT);
        Some(Entry { row, left_output })
    }

    fn ending(&mut self) -> Option<(Ended, Option<i32>, Option<i32>)> {
        let ended = Ended::from_code(self.number()?)?;
        Some((ended, self.maybe_small()?, self.maybe_small()?))
    }

    fn usage(&mut self, started: Option<Time>, finished: Time) -> Option<Option<Usage>> {
        if self.number()? == 0 {
            return Some(None);
        }
        let expected = expected_usage(started, finished).unwrap_or_default();
        Some(Some(Usage {
            duration: Span(further(expected.duration.0, self.number()?)),
            user: Span(self.number()?),
            system: Span(self.number()?),
            memory_bytes: self.number()?,
        }))
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            number |= u64::from(byte & 0x7F) << shift;
            if *byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn maybe(&mut self) -> Option<Option<u64>> {
        self.number().map(|number| number.checked_sub(1))
    }

    fn maybe_small(&mut self) -> Option<Option<i32>> {
        match self.maybe()? {
            None => Some(None),
            Some(number) => i32::try_from(unfolded(number)).ok().map(Some),
        }
    }
}

impl Iterator for Unpacker<'_> {
    /// None where the bytes are not what was packed; the end is near then.
    type Item = Option<Entry>;

    fn next(&mut self) -> Option<Option<Entry>> {
        (!self.bytes.is_empty()).then(|| {
            let entry = self.entry();
            if entry.is_none() {
                self.bytes = &[];
            }
            entry
        })
    }
}

/// `number - before`, folded.
fn difference(number: u64, before: u64) -> u64 {
    folded(number.wrapping_sub(before) as i64)
}

/// The other way round.
fn further(before: u64, difference: u64) -> u64 {
    before.wrapping_add(unfolded(difference) as u64)
}

/// 0, -1, 1, -2, ... as 0, 1, 2, 3, ...
fn folded(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unfolded(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rows::limits::NUMBER_MAX;

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![0..20_u64, 0..=NUMBER_MAX, Just(NUMBER_MAX)]
    }

    fn usage() -> impl Strategy<Value = Usage> {
        [number(), number(), number(), number()].prop_map(|[duration, user, system, memory]| {
            Usage {
                duration: Span(duration),
                user: Span(user),
                system: Span(system),
                memory_bytes: memory,
            }
        })
    }

    fn small() -> impl Strategy<Value = Option<i32>> {
        prop::option::of(prop_oneof![0..3, any::<i32>(), Just(i32::MIN)])
    }

    prop_compose! {
        fn entry()(
            [task, job, created, finished] in [number(), number(), number(), number()],
            [entry, agent, started] in [
                prop::option::of(number()),
                prop::option::of(number()),
                prop::option::of(number()),
            ],
            code in prop::sample::select(vec![0_u64, 1, 10, 12, 20, 21]),
            (exit_code, signal) in (small(), small()),
            attempt in prop_oneof![0..3_u32, any::<u32>()],
            usage in prop::option::of(usage()),
            left_output in any::<bool>(),
        ) -> Entry {
            let row = TaskRow {
                task: TaskId(task),
                job: JobId(job),
                entry,
                ended: Ended::from_code(code).expect("one of the codes"),
                exit_code,
                signal,
                agent: agent.map(AgentId),
                attempt,
                created: Time(created),
                started: started.map(Time),
                finished: Time(finished),
                usage,
            };
            Entry { row, left_output }
        }
    }

    fn pack(entries: &[Entry]) -> Vec<u8> {
        let mut packer = Packer::new(Vec::new());
        for entry in entries {
            packer.push(&entry.row, entry.left_output);
        }
        packer.finish()
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked_as_it_was(
            entries in prop::collection::vec(entry(), 0..20),
        ) {
            let bytes = pack(&entries);
            let unpacked: Option<Vec<Entry>> = Unpacker::new(&bytes).collect();
            prop_assert_eq!(unpacked, Some(entries));
        }

        #[test]
        fn bytes_that_nobody_packed_come_to_an_end(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            prop_assert!(Unpacker::new(&bytes).count() <= bytes.len());
        }
    }

    #[test]
    fn tasks_that_end_alike_take_a_few_bytes_each() {
        let began = 1_000_000_000;
        let entries: Vec<Entry> = (0..100)
            .map(|n| {
                let finished = Time(began + n * 3_000);
                let started = Time(finished.0 - 900);
                let row = TaskRow {
                    task: TaskId(5_000 + n),
                    job: JobId(7),
                    entry: Some(n),
                    ended: Ended::Succeeded,
                    exit_code: None,
                    signal: None,
                    agent: Some(AgentId(1)),
                    attempt: 1,
                    created: Time(began),
                    started: Some(started),
                    finished,
                    usage: expected_usage(Some(started), finished),
                };
                Entry {
                    row,
                    left_output: false,
                }
            })
            .collect();
        let bytes = pack(&entries);
        assert!(bytes.len() < 700, "{} bytes", bytes.len());
    }
}

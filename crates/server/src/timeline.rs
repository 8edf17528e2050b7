//! What ran where and when, added up so that a page of any length can be drawn.
//!
//! Finished tasks lie in the journal in blocks of neighbouring ids, not in the order of time. So for each block that was
//! ever read we remember when its first task began and its last one ended; a question about some time reads the blocks
//! that can have something to do with it, and those that have changed. What was read lately is kept, in the order of time:
//! whoever zooms into a million tasks has them read once.
//!
//! Attempts before the last one are in no block; they are found in the facts of the journal, which are read once, some at
//! a time, and followed from then on.
//!
//! What must stay true: what is asked for is answered whole, in parts if need be: nothing is left out without a word.

use std::collections::{BTreeMap, BTreeSet};

use loxley_api::{SpanKind, TaskState, Timeline, TimelineAgent, TimelineFilter, TimelineSpan};
use loxley_engine::history_view::ended_state;
use loxley_engine::{AttemptFate, AttemptFollower, EarlierAttempt, RunningTask};
use loxley_journal::{Limit, Position, ReadError, ReadHistory, TaskRow};
use loxley_model::{AgentId, JobId, TaskId, Time};

/// So many blocks of 4,096 tasks are read for one answer.
const BLOCKS_MAX: usize = 128;
/// So many finished tasks are kept in memory: some fifty megabytes.
const ROWS_MAX: usize = 1 << 20;
/// Up to so many tasks are told one by one.
const SPANS_MAX: u64 = 3000;
const COLUMNS: u32 = 500;
const COLUMNS_MAX: u32 = 2000;
/// So much of the facts is read for one answer: a fraction of a second.
const FACTS_AT_ONCE: Limit = Limit {
    groups: 20_000,
    bytes: 16 << 20,
};
/// So many earlier attempts are kept: some fifty megabytes. Of older ones the page says that they are not known.
const ATTEMPTS_MAX: usize = 1_000_000;

/// What is known of the blocks of the journal.
#[derive(Debug, Default)]
pub(crate) struct TimelineIndex {
    blocks: BTreeMap<TaskId, Block>,
    /// How many questions there were.
    questions: u64,
    attempts: AttemptIndex,
}

/// The attempts before the last ones, as far as the facts have been read.
#[derive(Debug, Default)]
struct AttemptIndex {
    follower: AttemptFollower,
    next: Position,
    /// In the order in which they were found: by when they ended, but for those whose fate showed later.
    found: Vec<EarlierAttempt>,
    /// From when on they are known.
    since: Option<Time>,
}

impl AttemptIndex {
    /// Reads on. True when there is more.
    fn catch_up(&mut self, history: &dyn ReadHistory) -> Result<bool, ReadError> {
        let groups = match history.groups(self.next, FACTS_AT_ONCE) {
            Err(ReadError::Dropped { first, .. }) => {
                // What was dropped tells of attempts that nobody knows any more, and of what ran on since.
                *self = Self {
                    next: first,
                    found: std::mem::take(&mut self.found),
                    ..Self::default()
                };
                history.groups(first, FACTS_AT_ONCE)?
            }
            read => read?,
        };
        let mut bytes = 0;
        for group in &groups {
            bytes += group.facts.len();
            let heard = self
                .follower
                .hear_group(group.position, &group.facts, &mut self.found);
            match heard {
                Ok(last) => self.since = self.since.or(last),
                // A newer program wrote it; the server would not have started with it.
                Err(error) => tracing::warn!(%error, "a group tells nothing of attempts"),
            }
            self.next = group.position.next();
        }
        if self.found.len() > ATTEMPTS_MAX {
            let many = self.found.len() - ATTEMPTS_MAX / 2;
            self.since = self.found.drain(..many).map(|one| one.end).max();
        }
        Ok(groups.len() >= FACTS_AT_ONCE.groups || bytes >= FACTS_AT_ONCE.bytes)
    }
}

#[derive(Debug)]
struct Block {
    stamp: u64,
    /// When its first task began and its last one ended, in nanoseconds of the journal.
    time: Option<(u64, u64)>,
    /// Its tasks in the order in which they began; none when they were not of interest for long.
    rows: Option<Box<[Ran]>>,
    /// How long the longest of them took.
    longest: u64,
    /// The last question for which they were of interest.
    asked: u64,
}

impl Block {
    fn new(stamp: u64, mut rows: Vec<Ran>, asked: u64) -> Self {
        rows.sort_unstable_by_key(|ran| ran.start);
        let first = rows.first().map(|ran| ran.start);
        let last = rows.iter().map(|ran| ran.end).max();
        let longest = rows.iter().map(|ran| ran.end.saturating_sub(ran.start));
        Self {
            stamp,
            time: first.zip(last),
            longest: longest.max().unwrap_or(0),
            rows: Some(rows.into()),
            asked,
        }
    }

    /// Those of its tasks that can have run in this time.
    fn around(&self, window: &Window) -> &[Ran] {
        let rows = self.rows.as_deref().unwrap_or_default();
        let earliest = window.from_ns - self.longest as f64;
        let begin = rows.partition_point(|ran| (ran.start as f64) < earliest);
        let end = rows.partition_point(|ran| (ran.start as f64) < window.to_ns);
        &rows[begin..end.max(begin)]
    }
}

impl TimelineIndex {
    /// Lets go of what was not asked for the longest.
    fn trim(&mut self) {
        let len = |block: &Block| block.rows.as_ref().map_or(0, |rows| rows.len());
        let mut kept: usize = self.blocks.values().map(len).sum();
        if kept <= ROWS_MAX {
            return;
        }
        let mut oldest: Vec<&mut Block> = self.blocks.values_mut().collect();
        oldest.sort_by_key(|block| block.asked);
        for block in oldest {
            if kept <= ROWS_MAX {
                return;
            }
            kept -= len(block);
            block.rows = None;
        }
    }
}

/// A time of the journal, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Window {
    from_ns: f64,
    to_ns: f64,
    column_ns: f64,
    columns: u32,
}

/// An answer while it is made.
#[derive(Debug)]
pub(crate) struct Builder {
    filter: TimelineFilter,
    epoch_unix_ns: u64,
    window: Window,
    agents: BTreeMap<AgentId, Row>,
    /// What runs now; when exactly a copy began shows in the facts.
    running: Vec<Ran>,
    tasks: u64,
    earlier: u64,
    next: Option<u64>,
    first_ns: Option<u64>,
    attempts_pending: bool,
    attempts_since: Option<Time>,
}

#[derive(Debug, Default)]
struct Row {
    tasks: u64,
    failed: u64,
    /// Nanoseconds by column and by how the task ended.
    columns: Vec<[f64; 4]>,
    spans: Vec<TimelineSpan>,
}

/// One task that ran, in nanoseconds of the journal.
#[derive(Clone, Copy, Debug)]
struct Ran {
    task: TaskId,
    job: JobId,
    agent: AgentId,
    start: u64,
    end: u64,
    state: TaskState,
    attempt: u32,
    kind: Option<SpanKind>,
}

impl Builder {
    pub(crate) fn new(filter: TimelineFilter, epoch_unix_ns: u64) -> Self {
        let columns = filter.columns.unwrap_or(COLUMNS).clamp(1, COLUMNS_MAX);
        let ns = |unix_ms: f64| unix_ms * 1e6 - epoch_unix_ns as f64;
        let (from_ns, to_ns) = (ns(filter.from_unix_ms), ns(filter.to_unix_ms));
        Self {
            filter,
            epoch_unix_ns,
            window: Window {
                from_ns,
                to_ns,
                column_ns: (to_ns - from_ns) / f64::from(columns),
                columns,
            },
            agents: BTreeMap::new(),
            running: Vec::new(),
            tasks: 0,
            earlier: 0,
            next: None,
            first_ns: None,
            attempts_pending: false,
            attempts_since: None,
        }
    }

    /// Adds what is running now.
    pub(crate) fn add_running(&mut self, running: &[RunningTask], now_ns: u64) {
        let runs = running.iter().map(|task| Ran {
            task: task.task,
            job: task.job,
            agent: task.agent,
            start: task.started.0,
            end: now_ns.max(task.started.0),
            state: TaskState::Running,
            attempt: task.attempt,
            kind: None,
        });
        self.running.extend(runs);
    }

    /// Adds attempts before the last ones, as far as the facts have been read.
    fn add_attempts(
        &mut self,
        history: &dyn ReadHistory,
        index: &mut AttemptIndex,
    ) -> Result<(), ReadError> {
        self.attempts_pending = index.catch_up(history)?;
        self.attempts_since = index.since;
        // With the first part alone, as what runs.
        if self.filter.cursor.is_some() {
            return Ok(());
        }
        let known: BTreeMap<(TaskId, AgentId), (Time, bool)> = index
            .follower
            .running()
            .map(|one| ((one.task, one.agent), (one.start, one.is_copy)))
            .collect();
        for ran in &mut self.running {
            if let Some((start, is_copy)) = known.get(&(ran.task, ran.agent)) {
                ran.start = start.0.min(ran.end);
                ran.kind = is_copy.then_some(SpanKind::Copy);
            }
        }
        let window = self.window;
        let in_sight = index.found.iter();
        let in_sight = in_sight.filter(|one| window.touches(Some((one.start.0, one.end.0))));
        for one in in_sight {
            // Whose it was is of interest where it is drawn by itself.
            let is_drawn = self.tasks + self.earlier < SPANS_MAX;
            let running = self.running.iter().find(|ran| ran.task == one.task);
            let job = match running {
                _ if !is_drawn => None,
                Some(ran) => Some(ran.job),
                None => history.task(one.task)?.map(|row| row.job),
            };
            self.add(&Ran {
                task: one.task,
                job: job.unwrap_or(JobId(0)),
                agent: one.agent,
                start: one.start.0,
                end: one.end.0,
                state: match one.fate {
                    AttemptFate::Failed | AttemptFate::Lost => TaskState::Failed,
                    AttemptFate::Outrun | AttemptFate::GivenBack => TaskState::Cancelled,
                },
                attempt: one.attempt,
                kind: Some(match one.fate {
                    AttemptFate::Failed => SpanKind::Retried,
                    AttemptFate::Outrun => SpanKind::Outrun,
                    AttemptFate::GivenBack => SpanKind::GivenBack,
                    AttemptFate::Lost => SpanKind::Lost,
                }),
            });
        }
        Ok(())
    }

    /// Adds what the journal has, from the cursor on.
    pub(crate) fn add_history(
        &mut self,
        history: &dyn ReadHistory,
        index: &mut TimelineIndex,
    ) -> Result<(), ReadError> {
        self.add_attempts(history, &mut index.attempts)?;
        index.questions += 1;
        let asked = index.questions;
        let mut from = TaskId(self.filter.cursor.unwrap_or(0));
        let mut read = 0;
        while let Some(found) = history.next_block(from)? {
            let known = index.blocks.get_mut(&found.first);
            let known = known.filter(|block| block.stamp == found.stamp);
            let is_of_interest = known
                .as_ref()
                .is_none_or(|block| self.window.touches(block.time));
            if is_of_interest {
                let block = match known {
                    Some(block) if block.rows.is_some() => block,
                    _ if read == BLOCKS_MAX => {
                        self.next = Some(found.first.0);
                        break;
                    }
                    _ => {
                        read += 1;
                        let rows = history.block(found.first)?;
                        let rows = rows.iter().filter_map(Ran::of).collect();
                        let block = Block::new(found.stamp, rows, asked);
                        index.blocks.insert(found.first, block);
                        let block = index.blocks.get_mut(&found.first);
                        block.expect("it was put there just now")
                    }
                };
                block.asked = asked;
                for ran in block.around(&self.window) {
                    self.add(ran);
                }
            }
            from = found.next;
        }
        index.trim();
        let starts = index.blocks.values().filter_map(|block| block.time);
        self.first_ns = starts.map(|(start, _)| start).min();
        Ok(())
    }

    fn add(&mut self, ran: &Ran) {
        let window = self.window;
        if !window.touches(Some((ran.start, ran.end))) {
            return;
        }
        let row = self.agents.entry(ran.agent).or_default();
        if ran.kind.is_some() {
            self.earlier += 1;
        } else {
            self.tasks += 1;
            row.tasks += 1;
            row.failed += u64::from(ran.state == TaskState::Failed);
        }
        let place = match ran.state {
            TaskState::Succeeded => 0,
            TaskState::Failed => 1,
            TaskState::Running => 3,
            _ => 2,
        };
        let start = (ran.start as f64).max(window.from_ns);
        let end = (ran.end as f64).min(window.to_ns);
        let column = |ns: f64| ((ns - window.from_ns) / window.column_ns) as u32;
        for number in column(start)..=column(end).min(window.columns - 1) {
            let left = window.from_ns + f64::from(number) * window.column_ns;
            let busy = (left + window.column_ns).min(end) - left.max(start);
            if busy > 0.0 {
                row.columns.resize(window.columns as usize, [0.0; 4]);
                row.columns[number as usize][place] += busy;
            }
        }
        // One more than can be told shows that there are too many.
        if self.tasks + self.earlier <= SPANS_MAX {
            let ms = |ns: u64| (ns as f64 - window.from_ns) / 1e6;
            row.spans.push(TimelineSpan {
                task: ran.task,
                job: ran.job,
                start_ms: ms(ran.start),
                end_ms: ms(ran.end),
                state: ran.state,
                attempt: ran.attempt,
                kind: ran.kind,
            });
        }
    }

    /// Which agents may be in it.
    pub(crate) fn agents(&self) -> Vec<AgentId> {
        let running = self.running.iter().map(|ran| ran.agent);
        let all: BTreeSet<AgentId> = self.agents.keys().copied().chain(running).collect();
        all.into_iter().collect()
    }

    /// The answer; `known` says what an agent is called and how many slots it has.
    pub(crate) fn finish(mut self, known: &BTreeMap<AgentId, (String, u32)>) -> Timeline {
        for ran in std::mem::take(&mut self.running) {
            self.add(&ran);
        }
        let all = self.tasks + self.earlier;
        let is_crowded = all > SPANS_MAX;
        let epoch = self.epoch_unix_ns as f64;
        let ms = |ns: f64| ns / 1e6;
        // To the microsecond: more digits are more to send, and nobody sees them.
        let busy_ms = |ns: f64| (ns / 1e3).round() / 1e3;
        let agents = self.agents.into_iter().map(|(id, row)| {
            let known = known.get(&id);
            let name = known.map_or_else(|| format!("agent {}", id.0), |known| known.0.clone());
            let columns = (0..).zip(row.columns).filter(|(_, busy)| *busy != [0.0; 4]);
            TimelineAgent {
                id,
                name,
                slots: known.map_or(1, |known| known.1.max(1)),
                tasks: row.tasks,
                failed: row.failed,
                columns: columns
                    .map(|(place, busy)| {
                        let [a, b, c, d] = busy.map(busy_ms);
                        (place, a, b, c, d)
                    })
                    .collect(),
                spans: if is_crowded { Vec::new() } else { row.spans },
            }
        });
        Timeline {
            from_unix_ms: self.filter.from_unix_ms,
            to_unix_ms: self.filter.to_unix_ms,
            column_ms: ms(self.window.column_ns),
            agents: agents.collect(),
            tasks: self.tasks,
            earlier_attempts: self.earlier,
            spans_omitted: if is_crowded { all } else { 0 },
            attempts_pending: self.attempts_pending,
            attempts_since_unix_ms: self.attempts_since.map(|since| ms(since.0 as f64 + epoch)),
            next: self.next,
            first_unix_ms: self.first_ns.map(|first| ms(first as f64 + epoch)),
        }
    }
}

impl Window {
    fn touches(&self, time: Option<(u64, u64)>) -> bool {
        time.is_some_and(|(start, end)| (start as f64) < self.to_ns && (end as f64) >= self.from_ns)
    }
}

impl Ran {
    /// A task that is over and ran; none when it never began.
    fn of(row: &TaskRow) -> Option<Self> {
        Some(Self {
            task: row.task,
            job: row.job,
            agent: row.agent?,
            start: row.started?.0,
            end: row.finished.0,
            state: ended_state(row.ended).0,
            attempt: row.attempt,
            kind: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loxley_model::Time;

    fn running(task: u64, agent: u64, started_ms: u64) -> RunningTask {
        RunningTask {
            task: TaskId(task),
            job: JobId(1),
            agent: AgentId(agent),
            started: Time(started_ms * 1_000_000),
            attempt: 1,
        }
    }

    fn builder(from: f64, to: f64, columns: u32) -> Builder {
        let filter = TimelineFilter {
            from_unix_ms: from,
            to_unix_ms: to,
            columns: Some(columns),
            cursor: None,
        };
        Builder::new(filter, 0)
    }

    #[test]
    fn a_span_fills_its_columns_and_no_others() {
        let mut builder = builder(100.0, 200.0, 10);
        builder.add_running(
            &[running(1, 1, 95), running(2, 1, 125), running(3, 2, 300)],
            145_000_000,
        );
        let timeline = builder.finish(&BTreeMap::new());
        assert_eq!((timeline.tasks, timeline.agents.len()), (2, 1));
        let row = &timeline.agents[0];
        let busy: Vec<(u32, f64)> = row
            .columns
            .iter()
            .map(|column| (column.0, column.4))
            .collect();
        assert_eq!(
            busy,
            [(0, 10.0), (1, 10.0), (2, 15.0), (3, 20.0), (4, 10.0)]
        );
        assert_eq!((row.spans[0].start_ms, row.spans[0].end_ms), (-5.0, 45.0));
    }

    #[test]
    fn too_many_to_draw_are_counted_and_said() {
        let mut builder = builder(0.0, 10.0, 5);
        let many: Vec<RunningTask> = (0..SPANS_MAX + 1).map(|task| running(task, 1, 1)).collect();
        builder.add_running(&many, 5_000_000);
        let timeline = builder.finish(&BTreeMap::new());
        assert_eq!(timeline.tasks, SPANS_MAX + 1);
        assert_eq!(timeline.spans_omitted, SPANS_MAX + 1);
        assert!(timeline.agents[0].spans.is_empty());
        let busy: f64 = timeline.agents[0]
            .columns
            .iter()
            .map(|column| column.4)
            .sum();
        assert_eq!(busy, 4.0 * (SPANS_MAX + 1) as f64);
    }

    #[test]
    fn what_was_read_is_found_by_time_and_let_go_of_when_there_is_too_much() {
        let ran = |task: u64, start: u64, end: u64| Ran {
            task: TaskId(task),
            job: JobId(1),
            agent: AgentId(1),
            start,
            end,
            state: TaskState::Succeeded,
            attempt: 1,
            kind: None,
        };
        // A long one that began early is in sight as long as it runs.
        let rows = vec![ran(3, 300, 310), ran(1, 0, 250), ran(2, 100, 110)];
        let block = Block::new(1, rows, 1);
        assert_eq!((block.time, block.longest), (Some((0, 310)), 250));
        let window = |from_ns: f64, to_ns: f64| Window {
            from_ns,
            to_ns,
            column_ns: 1.0,
            columns: 1,
        };
        let found = |from: f64, to: f64| -> Vec<u64> {
            let around = block.around(&window(from, to)).iter();
            let touching =
                around.filter(|ran| window(from, to).touches(Some((ran.start, ran.end))));
            touching.map(|ran| ran.task.0).collect()
        };
        assert_eq!(found(0.0, 400.0), [1, 2, 3]);
        assert_eq!(found(200.0, 240.0), [1]);
        assert_eq!(found(105.0, 301.0), [1, 2, 3]);
        assert_eq!(found(320.0, 400.0), [0_u64; 0]);
        let mut index = TimelineIndex::default();
        let many = |asked| Block::new(1, vec![ran(1, 0, 1); ROWS_MAX / 2], asked);
        for (first, asked) in [(0, 2), (4096, 1), (8192, 3)] {
            index.blocks.insert(TaskId(first), many(asked));
        }
        index.trim();
        let kept: Vec<bool> = index
            .blocks
            .values()
            .map(|block| block.rows.is_some())
            .collect();
        assert_eq!(
            kept,
            [true, false, true],
            "the one that nobody asked for lately"
        );
    }
}

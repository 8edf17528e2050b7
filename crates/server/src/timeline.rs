//! What ran where and when, added up so that a page of any length can be drawn.
//!
//! Finished tasks lie in the journal in blocks of neighbouring ids, not in the order of time. So for each block that was
//! ever read we remember when its first task began and its last one ended; a question about some time reads the blocks
//! that can have something to do with it, and those that have changed.
//!
//! What must stay true: what is asked for is answered whole, in parts if need be: nothing is left out without a word.

use std::collections::BTreeMap;

use loxley_api::{TaskState, Timeline, TimelineAgent, TimelineFilter, TimelineSpan};
use loxley_engine::RunningTask;
use loxley_engine::history_view::ended_state;
use loxley_journal::{ReadError, ReadHistory, TaskRow};
use loxley_model::{AgentId, JobId, TaskId};

/// So many blocks of 4,096 tasks are read for one answer.
const BLOCKS_MAX: usize = 128;
/// Up to so many tasks are told one by one.
const SPANS_MAX: u64 = 3000;
const COLUMNS: u32 = 500;
const COLUMNS_MAX: u32 = 2000;

/// What is known of the blocks of the journal.
#[derive(Debug, Default)]
pub(crate) struct TimelineIndex {
    blocks: BTreeMap<TaskId, Block>,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    stamp: u64,
    /// When its first task began and its last one ended, in nanoseconds of the journal.
    time: Option<(u64, u64)>,
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
    tasks: u64,
    next: Option<u64>,
    first_ns: Option<u64>,
}

#[derive(Debug, Default)]
struct Row {
    tasks: u64,
    failed: u64,
    /// Nanoseconds by column and by how the task ended.
    columns: BTreeMap<u32, [f64; 4]>,
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
            tasks: 0,
            next: None,
            first_ns: None,
        }
    }

    /// Adds what is running now.
    pub(crate) fn add_running(&mut self, running: &[RunningTask], now_ns: u64) {
        for task in running {
            self.add(&Ran {
                task: task.task,
                job: task.job,
                agent: task.agent,
                start: task.started.0,
                end: now_ns.max(task.started.0),
                state: TaskState::Running,
                attempt: task.attempt,
            });
        }
    }

    /// Adds what the journal has, from the cursor on.
    pub(crate) fn add_history(
        &mut self,
        history: &dyn ReadHistory,
        index: &mut TimelineIndex,
    ) -> Result<(), ReadError> {
        let mut from = TaskId(self.filter.cursor.unwrap_or(0));
        let mut read = 0;
        while let Some(found) = history.next_block(from)? {
            let known = index.blocks.get(&found.first).copied();
            let known = known.filter(|block| block.stamp == found.stamp);
            let is_of_interest = known.is_none_or(|block| self.window.touches(block.time));
            if is_of_interest && read == BLOCKS_MAX {
                self.next = Some(found.first.0);
                break;
            }
            if is_of_interest {
                read += 1;
                let mut time: Option<(u64, u64)> = None;
                for row in history.block(found.first)? {
                    let Some(ran) = Ran::of(&row) else { continue };
                    let (start, end) = time.unwrap_or((u64::MAX, 0));
                    time = Some((start.min(ran.start), end.max(ran.end)));
                    self.add(&ran);
                }
                let stamp = found.stamp;
                index.blocks.insert(found.first, Block { stamp, time });
            }
            from = found.next;
        }
        let starts = index.blocks.values().filter_map(|block| block.time);
        self.first_ns = starts.map(|(start, _)| start).min();
        Ok(())
    }

    fn add(&mut self, ran: &Ran) {
        let window = self.window;
        if !window.touches(Some((ran.start, ran.end))) {
            return;
        }
        self.tasks += 1;
        let row = self.agents.entry(ran.agent).or_default();
        row.tasks += 1;
        row.failed += u64::from(ran.state == TaskState::Failed);
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
                row.columns.entry(number).or_default()[place] += busy;
            }
        }
        // One more than can be told shows that there are too many.
        if self.tasks <= SPANS_MAX {
            let ms = |ns: u64| (ns as f64 - window.from_ns) / 1e6;
            row.spans.push(TimelineSpan {
                task: ran.task,
                job: ran.job,
                start_ms: ms(ran.start),
                end_ms: ms(ran.end),
                state: ran.state,
                attempt: ran.attempt,
            });
        }
    }

    /// Which agents are in it.
    pub(crate) fn agents(&self) -> Vec<AgentId> {
        self.agents.keys().copied().collect()
    }

    /// The answer; `known` says what an agent is called and how many slots it has.
    pub(crate) fn finish(self, known: &BTreeMap<AgentId, (String, u32)>) -> Timeline {
        let is_crowded = self.tasks > SPANS_MAX;
        let ms = |ns: f64| ns / 1e6;
        let agents = self.agents.into_iter().map(|(id, row)| {
            let known = known.get(&id);
            let name = known.map_or_else(|| format!("agent {}", id.0), |known| known.0.clone());
            let columns = row.columns.into_iter();
            TimelineAgent {
                id,
                name,
                slots: known.map_or(1, |known| known.1.max(1)),
                tasks: row.tasks,
                failed: row.failed,
                columns: columns
                    .map(|(place, [a, b, c, d])| (place, ms(a), ms(b), ms(c), ms(d)))
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
            spans_omitted: if is_crowded { self.tasks } else { 0 },
            next: self.next,
            first_unix_ms: self
                .first_ns
                .map(|first| ms(first as f64 + self.epoch_unix_ns as f64)),
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
}

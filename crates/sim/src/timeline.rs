//! What happened when, in a form that can be drawn: spans, steals, queue lengths, waits.
//!
//! A [`Timeline`] is a plain value. The simulator's [`Recorder`] makes one; a journal of a real run
//! can make one too, and the report draws either. Its size is bounded whatever the run: beyond
//! [`SPANS_MAX`] spans only the strips remain, where time is cut into [`BUCKETS`] columns that
//! double in width when the run outgrows them, and beyond [`LANES_MAX`] workers neighbours share a
//! lane.

use std::collections::{BTreeMap, HashMap, HashSet};

use loxley_balance::Sketch;
use serde::Serialize;

use crate::observer::{Happening, Observer};
use crate::time::{Nanos, seconds};

/// The most spans (and the most steals) that are kept one by one.
pub const SPANS_MAX: usize = 20_000;
/// Into how many columns time is cut.
pub const BUCKETS: usize = 512;
/// The most lanes that are drawn.
pub const LANES_MAX: usize = 128;

/// A drawable run. Times are seconds from its start.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// How long the run took.
    pub end: f64,
    /// One per worker, or per group of neighbours.
    pub lanes: Vec<Lane>,
    /// Every piece of work, unless there were too many.
    pub spans: Vec<Span>,
    /// Every task that changed hands, unless there were too many.
    pub steals: Vec<Steal>,
    /// Crashes, partitions, arrivals and departures of workers.
    pub incidents: Vec<Incident>,
    /// The width of one column of the strips.
    pub column: f64,
    /// Spans and steals that are not listed.
    pub left_out: u64,
    /// Waiting time at each percent of all tasks: entry 50 is the median.
    pub waits: Vec<f64>,
    /// What tasks are called, where they have names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<u64, String>,
}

/// One row of the drawing.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// How many tasks can run here at once.
    pub slots: u32,
    /// Share of the slots in use, per column.
    pub busy: Vec<f32>,
    /// Mean queue length, per column.
    pub queue: Vec<f32>,
}

/// One task on one worker.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Span {
    /// Which lane.
    pub lane: u32,
    /// Which of its slots.
    pub slot: u32,
    /// Start.
    pub start: f64,
    /// End.
    pub end: f64,
    /// The task.
    pub task: u64,
    /// What became of it.
    pub kind: SpanKind,
}

/// What became of a span's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SpanKind {
    /// It ran where it was put.
    Own,
    /// It was taken from another worker first.
    Stolen,
    /// It failed.
    Failed,
    /// It was stopped: cancelled, or lost with its agent.
    Stopped,
}

/// One task that changed hands.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Steal {
    /// When.
    pub at: f64,
    /// From which lane.
    pub from: u32,
    /// To which lane.
    pub to: u32,
    /// Which task.
    pub task: u64,
}

/// Something that befell a worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Incident {
    /// When.
    pub at: f64,
    /// Which lane.
    pub lane: u32,
    /// What.
    pub what: &'static str,
}

/// An observer that makes a [`Timeline`].
#[derive(Debug)]
pub struct Recorder {
    timeline: Timeline,
    workers: Vec<WorkerBooks>,
    lane_of: Vec<u32>,
    columns: Vec<Columns>,
    column: Nanos,
    stolen: HashSet<u64>,
    overflowed: bool,
}

#[derive(Debug, Default)]
struct WorkerBooks {
    /// The tasks in hand: slot, start.
    running: HashMap<u64, (u32, Nanos)>,
    slots_taken: Vec<bool>,
    queue: u32,
    noted: Nanos,
}

/// Sums of one lane, per column.
#[derive(Debug, Clone)]
struct Columns {
    busy: Vec<u64>,
    queue: Vec<u64>,
}

impl Recorder {
    /// A recorder for workers with these names and slots.
    #[must_use]
    pub fn new(workers: Vec<(String, u32)>) -> Self {
        let per_lane = workers.len().div_ceil(LANES_MAX).max(1);
        let lanes: Vec<Lane> = workers
            .chunks(per_lane)
            .map(|group| Lane {
                name: lane_name(group),
                slots: group.iter().map(|(_, slots)| slots).sum(),
                ..Lane::default()
            })
            .collect();
        let columns = Columns {
            busy: vec![0; BUCKETS],
            queue: vec![0; BUCKETS],
        };
        Self {
            columns: vec![columns; lanes.len()],
            lane_of: (0..workers.len())
                .map(|worker| (worker / per_lane) as u32)
                .collect(),
            workers: workers.iter().map(|_| WorkerBooks::default()).collect(),
            timeline: Timeline {
                lanes,
                ..Timeline::default()
            },
            column: 1_000,
            stolen: HashSet::new(),
            overflowed: per_lane > 1,
        }
    }

    /// The timeline of a run that ended at `end` with these waiting times.
    #[must_use]
    pub fn finish(mut self, end: Nanos, waits: &Sketch) -> Timeline {
        for worker in 0..self.workers.len() {
            self.note_until(worker as u32, end);
        }
        let width = self.column as f64;
        let used = (end.div_ceil(self.column) as usize).clamp(1, BUCKETS);
        let mut timeline = self.timeline;
        for (lane, columns) in timeline.lanes.iter_mut().zip(self.columns) {
            let room = width * f64::from(lane.slots.max(1));
            lane.busy = (columns.busy.iter().take(used))
                .map(|&sum| (sum as f64 / room) as f32)
                .collect();
            lane.queue = (columns.queue.iter().take(used))
                .map(|&sum| (sum as f64 / width) as f32)
                .collect();
        }
        timeline.end = seconds(end);
        timeline.column = seconds(self.column);
        timeline.waits = (0..=100)
            .map(|percent| {
                let rank = f64::from(percent) / 100.0;
                seconds(waits.quantile(rank).unwrap_or(0))
            })
            .collect();
        if self.overflowed {
            timeline.left_out += (timeline.spans.len() + timeline.steals.len()) as u64;
            timeline.spans.clear();
            timeline.steals.clear();
        }
        timeline
    }

    /// Adds what held since the last change at `worker` to its lane's columns.
    fn note_until(&mut self, worker: u32, now: Nanos) {
        while now >= self.column * BUCKETS as u64 {
            self.double_columns();
        }
        let books = &mut self.workers[worker as usize];
        let columns = &mut self.columns[self.lane_of[worker as usize] as usize];
        let (running, queue) = (books.running.len() as u64, u64::from(books.queue));
        let mut from = books.noted;
        while from < now {
            let index = (from / self.column) as usize;
            let to = now.min((index as u64 + 1) * self.column);
            columns.busy[index] += running * (to - from);
            columns.queue[index] += queue * (to - from);
            from = to;
        }
        books.noted = now;
    }

    fn double_columns(&mut self) {
        self.column *= 2;
        for columns in &mut self.columns {
            for sums in [&mut columns.busy, &mut columns.queue] {
                for index in 0..BUCKETS / 2 {
                    sums[index] = sums[2 * index] + sums[2 * index + 1];
                }
                sums[BUCKETS / 2..].fill(0);
            }
        }
    }

    fn queue_changes(&mut self, now: Nanos, worker: u32, by: i32) {
        self.note_until(worker, now);
        let queue = &mut self.workers[worker as usize].queue;
        *queue = queue.saturating_add_signed(by);
    }

    fn start(&mut self, now: Nanos, worker: u32, task: u64) {
        self.queue_changes(now, worker, -1);
        let books = &mut self.workers[worker as usize];
        let free = books.slots_taken.iter().position(|taken| !taken);
        let slot = free.unwrap_or_else(|| {
            books.slots_taken.push(false);
            books.slots_taken.len() - 1
        });
        books.slots_taken[slot] = true;
        books.running.insert(task, (slot as u32, now));
    }

    fn end(&mut self, now: Nanos, worker: u32, task: u64, kind: SpanKind) {
        self.note_until(worker, now);
        let books = &mut self.workers[worker as usize];
        let Some((slot, start)) = books.running.remove(&task) else {
            return;
        };
        books.slots_taken[slot as usize] = false;
        let stolen = self.stolen.remove(&task);
        let kind = match kind {
            SpanKind::Own if stolen => SpanKind::Stolen,
            other => other,
        };
        let span = Span {
            lane: self.lane_of[worker as usize],
            slot,
            start: seconds(start),
            end: seconds(now),
            task,
            kind,
        };
        self.overflowed |= self.timeline.spans.len() >= SPANS_MAX;
        if self.overflowed {
            self.timeline.left_out += 1;
        } else {
            self.timeline.spans.push(span);
        }
    }

    fn moved(&mut self, now: Nanos, from: u32, to: u32, task: u64) {
        self.queue_changes(now, from, -1);
        self.queue_changes(now, to, 1);
        self.overflowed |= self.timeline.steals.len() >= SPANS_MAX;
        if self.overflowed {
            self.timeline.left_out += 1;
            return;
        }
        self.stolen.insert(task);
        self.timeline.steals.push(Steal {
            at: seconds(now),
            from: self.lane_of[from as usize],
            to: self.lane_of[to as usize],
            task,
        });
    }

    fn incident(&mut self, now: Nanos, worker: u32, what: &'static str) {
        if self.timeline.incidents.len() < SPANS_MAX {
            self.timeline.incidents.push(Incident {
                at: seconds(now),
                lane: self.lane_of[worker as usize],
                what,
            });
        }
    }
}

impl Observer for Recorder {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        match *happening {
            Happening::Queued { worker, .. } | Happening::Spawned { worker, .. } => {
                self.queue_changes(now, worker, 1);
            }
            Happening::Started { worker, task } => self.start(now, worker, task),
            Happening::Finished { worker, task, ok } => {
                let kind = if ok { SpanKind::Own } else { SpanKind::Failed };
                self.end(now, worker, task, kind);
            }
            Happening::Stopped { worker, task } => self.end(now, worker, task, SpanKind::Stopped),
            Happening::Moved { from, to, task, .. } => self.moved(now, from, to, task),
            Happening::Withdrawn { worker, .. } => self.queue_changes(now, worker, -1),
            Happening::Crashed { worker } => self.incident(now, worker, "crashed"),
            Happening::Joined { worker } if now > 0 => self.incident(now, worker, "joined"),
            Happening::CutOff { worker } => self.incident(now, worker, "cut off"),
            Happening::Reconnected { worker } => self.incident(now, worker, "reconnected"),
            _ => {}
        }
    }
}

fn lane_name(group: &[(String, u32)]) -> String {
    match group {
        [(only, _)] => only.clone(),
        [(first, _), .., (last, _)] => {
            // "worker 4 to 7" rather than "worker 4 to worker 7", where names share a word.
            let shared = first.rsplit_once(' ').map(|(word, _)| word);
            let short = shared.and_then(|word| last.strip_prefix(word));
            format!("{first} to {}", short.unwrap_or(last).trim())
        }
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, Recorder, SPANS_MAX, SpanKind};
    use crate::time::SECOND;
    use crate::{Arrivals, DequeSetup, Distribution, Load, deque_world};

    fn record(workers: usize, count: u32, work: f64) -> super::Timeline {
        let setup = DequeSetup {
            placement: deque_world::Placement::On(0),
            ..DequeSetup::new(
                workers,
                Load::Stream {
                    count,
                    work: Distribution::Fixed(work),
                    arrivals: Arrivals::AtOnce,
                },
            )
        };
        let names = (0..workers).map(|worker| (format!("worker {worker}"), 1));
        let mut recorder = Recorder::new(names.collect());
        let statistics = deque_world::run(&setup, 1, &mut recorder);
        recorder.finish(statistics.makespan, &statistics.waits)
    }

    #[test]
    fn spans_steals_and_strips_agree_with_a_run_that_is_easy_to_predict() {
        let timeline = record(2, 4, 1.0);
        assert_eq!(timeline.spans.len(), 4);
        assert_eq!(timeline.steals.len(), 2);
        let stolen = timeline
            .spans
            .iter()
            .filter(|span| span.kind == SpanKind::Stolen);
        assert_eq!(stolen.count(), 2);
        assert!((timeline.end - 2.0).abs() < 1e-9);
        let busy: f32 = timeline.lanes.iter().flat_map(|lane| &lane.busy).sum();
        assert!((f64::from(busy) * timeline.column - 4.0).abs() < 1e-3);
        assert!(timeline.lanes[0].busy.len() <= BUCKETS);
        let queue: f32 = timeline.lanes[0].queue.iter().sum();
        assert!(
            (f64::from(queue) * timeline.column - 2.0).abs() < 1e-3,
            "two wait for a second"
        );
    }

    #[test]
    fn a_large_run_keeps_its_strips_and_drops_its_spans() {
        let timeline = record(300, 3 * SPANS_MAX as u32, 0.001);
        assert!(timeline.spans.is_empty() && timeline.left_out > SPANS_MAX as u64);
        assert_eq!(timeline.lanes.len(), 100);
        assert_eq!(timeline.lanes[0].name, "worker 0 to 2");
        let busy: f64 = (timeline.lanes.iter())
            .map(|lane| lane.busy.iter().map(|share| f64::from(*share)).sum::<f64>() * 3.0)
            .sum();
        let expected = 3.0 * SPANS_MAX as f64 * 0.001;
        assert!((busy * timeline.column / expected - 1.0).abs() < 1e-3);
        assert!(timeline.end < 1.0 && SECOND > 0);
    }
}

//! A record of what every thread did when, for Perfetto or `chrome://tracing`.
//!
//! Off, it costs one relaxed load per unit. On, each event is kept in memory, in a list of its
//! thread's seat, until the trace is written.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::pool::{Pool, Shared};
use crate::sync::{AtomicBool, Mutex, Ordering, lock};
use crate::worker::Worker;

/// What can be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A unit ran.
    Unit,
    /// A thread looked for work, or slept.
    Idle,
    /// A unit was stolen.
    Steal,
    /// A thread slept, for want of work or waiting for something.
    Asleep,
    /// A unit was made. A moment, not a span.
    Spawn,
}

impl Event {
    fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Idle => "idle",
            Self::Steal => "steal",
            Self::Asleep => "asleep",
            Self::Spawn => "spawn",
        }
    }
}

/// One event on one seat.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    seat: usize,
    event: Event,
    start: Instant,
    duration: Duration,
}

/// The trace of a pool.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    on: AtomicBool,
    began: Mutex<Option<Instant>>,
}

#[inline]
pub(crate) fn is_on(shared: &Shared) -> bool {
    shared.trace.on.load(Ordering::Relaxed)
}

/// Keeps a span, if a trace is taken.
pub(crate) fn record(worker: &Worker<'_>, event: Event, start: Instant, duration: Duration) {
    if !is_on(worker.shared) {
        return;
    }
    let record = Record {
        seat: worker.index,
        event,
        start,
        duration,
    };
    lock(&worker.seat.records).push(record);
}

/// Keeps a moment, if a trace is taken.
#[inline]
pub(crate) fn mark(worker: &Worker<'_>, event: Event) {
    if is_on(worker.shared) {
        record(worker, event, Instant::now(), Duration::ZERO);
    }
}

/// Calls `body` and keeps how long it took, if a trace is taken.
pub(crate) fn span(worker: &Worker<'_>, event: Event, body: impl FnOnce()) {
    let start = is_on(worker.shared).then(Instant::now);
    body();
    if let Some(start) = start {
        record(worker, event, start, start.elapsed());
    }
}

impl Pool {
    /// Begins to record everything that happens: units made and run, steals, searching and sleeping.
    pub fn start_trace(&self) {
        let trace = &self.shared.trace;
        for seat in &self.shared.seats {
            lock(&seat.records).clear();
        }
        *lock(&trace.began) = Some(Instant::now());
        trace.on.store(true, Ordering::Relaxed);
    }

    /// Ends the recording and writes it in the JSON format of Chrome's trace viewer, which
    /// Perfetto opens too. Times are in microseconds since [`start_trace`](Self::start_trace).
    pub fn write_trace(&self, mut out: impl Write) -> io::Result<()> {
        let trace = &self.shared.trace;
        trace.on.store(false, Ordering::Relaxed);
        let Some(began) = lock(&trace.began).take() else {
            return writeln!(out, "{{\"traceEvents\":[]}}");
        };
        write!(out, "{{\"traceEvents\":[")?;
        let mut separator = "";
        for (index, seat) in self.shared.used_seats().iter().enumerate() {
            let kind = if index < self.workers() {
                "worker"
            } else {
                "guest"
            };
            write!(
                out,
                "{separator}\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":{index},\
                 \"args\":{{\"name\":\"{kind} {index}\"}}}}"
            )?;
            separator = ",";
            for record in std::mem::take(&mut *lock(&seat.records)) {
                write_record(&mut out, began, record)?;
            }
        }
        writeln!(out, "\n]}}")
    }
}

fn write_record(out: &mut impl Write, began: Instant, record: Record) -> io::Result<()> {
    let micros = |duration: Duration| duration.as_nanos() as f64 / 1000.0;
    // Something that began before the trace is cut at its beginning.
    let start = record.start.saturating_duration_since(began);
    let early = began.saturating_duration_since(record.start);
    write!(
        out,
        ",\n{{\"name\":\"{}\",\"pid\":1,\"tid\":{},\"ts\":{:.3},",
        record.event.name(),
        record.seat,
        micros(start),
    )?;
    if record.event == Event::Spawn {
        return write!(out, "\"ph\":\"i\",\"s\":\"t\"}}");
    }
    let duration = micros(record.duration.saturating_sub(early));
    write!(out, "\"ph\":\"X\",\"dur\":{duration:.3}}}")
}

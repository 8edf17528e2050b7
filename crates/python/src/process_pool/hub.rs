//! The hub as Python sees it: calls go in, events come out.

use std::collections::HashMap;
use std::os::fd::{AsRawFd as _, IntoRawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use loxley_model::{AgentId, Priority, Span, TaskId, Time};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyList};

use super::figures::BalanceReport;
use super::hub_state::{Call, Event, HubState, Packed, Wishes};
use super::lines::{Line, Stream};
use super::segment::{Segment, Segments};
use super::wire::{self, Frames};

/// From so many bytes on, a frame is written without the interpreter's lock.
const LARGE: usize = 1 << 15;

/// The lines to worker processes, and the scheduler that decides who runs what.
#[pyclass(module = "loxley._core", frozen)]
pub(crate) struct Hub {
    desk: Arc<HubShared>,
    segments: Segments,
    /// Segments that are being filled, by their descriptors.
    open: Mutex<HashMap<i32, Segment>>,
}

/// What the threads of a hub share.
struct HubShared {
    state: Mutex<HubState>,
    /// Something happened that Python must know, or somebody waits to cancel.
    news: Condvar,
    /// The next timer may have changed.
    alarm: Condvar,
    begin: Instant,
}

impl HubShared {
    fn now(&self) -> Time {
        Time(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        self.state
            .lock()
            .expect("the scheduler found its own state to be wrong")
    }

    /// Writes what is in the outboxes of these lines.
    fn flush(&self, streams: Vec<(AgentId, Stream)>) {
        for (agent, stream) in streams {
            // In this order, so that what was put in first is written first.
            let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
            let outbox = self.lock().lines.take_outbox(agent);
            // Whoever reads from a process that is gone will find that out.
            let _ = outbox.write_to(&mut stream);
        }
    }

    /// Lets go of the state and wakes who must know. Returns what is to be written, and how much.
    fn put_down(&self, mut state: MutexGuard<'_, HubState>) -> (Vec<(AgentId, Stream)>, usize) {
        let streams = state.lines.take_dirty();
        let has_news = !state.events.is_empty();
        drop(state);
        if has_news {
            self.news.notify_all();
        }
        self.alarm.notify_one();
        streams
    }

    /// Lets go of the state and does what follows from what is in them.
    fn finish(&self, state: MutexGuard<'_, HubState>) {
        let (streams, _) = self.put_down(state);
        self.flush(streams);
    }
}

#[pymethods]
impl Hub {
    #[new]
    fn new() -> Self {
        let desk = Arc::new(HubShared {
            state: Mutex::new(HubState::new()),
            news: Condvar::new(),
            alarm: Condvar::new(),
            begin: Instant::now(),
        });
        let weak = Arc::downgrade(&desk);
        thread::Builder::new()
            .name("loxley-hub-timer".into())
            .spawn(move || keep_time(&weak))
            .expect("a thread can be started");
        Self {
            desk,
            segments: Segments::default(),
            open: Mutex::default(),
        }
    }

    /// Opens a line. Returns its number, the file descriptor of the other end, which the caller gives to
    /// a process and closes, and those of this end, which nobody else may have.
    fn open_line(&self, py: Python<'_>, setup: &[u8]) -> PyResult<(u64, i32, Vec<i32>)> {
        check_len(setup.len())?;
        let (ours, theirs) = UnixStream::pair()?;
        let (reader, to_hang_up) = (ours.try_clone()?, ours.try_clone()?);
        let here = [&ours, &reader, &to_hang_up].map(|stream| stream.as_raw_fd());
        let mut state = self.state(py);
        let agent = state.open_line(ours, to_hang_up, setup);
        drop(state);
        let weak = Arc::downgrade(&self.desk);
        thread::Builder::new()
            .name("loxley-hub-line".into())
            .spawn(move || listen(&weak, agent, reader))?;
        Ok((agent.0, theirs.into_raw_fd(), here.into()))
    }

    /// A segment for what is large: the descriptor to write to, until it is submitted or dropped.
    /// None when there is none to be had.
    fn open_segment(&self) -> Option<i32> {
        let segment = self.segments.open()?;
        let number = segment.number();
        self.open_segments().insert(number, segment);
        Some(number)
    }

    /// Nobody will submit this segment.
    fn drop_segment(&self, segment: i32) {
        self.open_segments().remove(&segment);
    }

    /// The process of a line is gone, whoever else may hold its other end.
    fn hang_up(&self, py: Python<'_>, line: u64) {
        self.state(py).hang_up(AgentId(line));
    }

    /// Keeps a pickled function for calls.
    fn define(&self, py: Python<'_>, function: &[u8]) -> PyResult<u64> {
        check_len(function.len())?;
        Ok(self.state(py).define(function.into()))
    }

    /// Lets a function go when the calls of it that were submitted are over.
    fn forget(&self, py: Python<'_>, function: u64) {
        self.state(py).forget(function);
    }

    /// Submits a call (or `items` calls in one) and returns its number.
    #[pyo3(signature = (function, shape, items, payload, segment, priority, time_limit, speculate, cost))]
    #[expect(clippy::too_many_arguments, reason = "one Python function calls it")]
    fn submit(
        &self,
        py: Python<'_>,
        function: u64,
        shape: u8,
        items: u32,
        payload: &[u8],
        segment: Option<i32>,
        priority: u8,
        time_limit: Option<f64>,
        speculate: bool,
        cost: Option<f64>,
    ) -> PyResult<u64> {
        check_len(payload.len())?;
        let wishes = Wishes {
            priority: Priority::new(priority)
                .map_err(|error| PyValueError::new_err(error.to_string()))?,
            time_limit: time_limit.map(span).transpose()?,
            speculate,
            cost: cost.map(span).transpose()?,
        };
        let call = Call {
            function,
            shape,
            items,
            payload: payload.into(),
            segment: segment.and_then(|number| self.open_segments().remove(&number)),
        };
        let mut state = self.state(py);
        if state.closed {
            return Err(PyRuntimeError::new_err("the hub is closed"));
        }
        let task = state.submit(self.desk.now(), call, &wishes);
        self.leave(py, state);
        task.map(|task| task.0)
            .ok_or_else(|| PyRuntimeError::new_err("the function was forgotten"))
    }

    /// Cancels a call that has not begun. Says whether it is cancelled: then it never runs.
    fn cancel(&self, py: Python<'_>, call: u64) -> bool {
        /// A process answers by a thread of its own, at once; if it does not, it is in trouble.
        const PATIENCE: Duration = Duration::from_secs(5);
        let task = TaskId(call);
        let mut state = self.state(py);
        let begun = state.cancel(self.desk.now(), task);
        self.leave(py, state);
        if let Some(known) = begun {
            return known;
        }
        py.detach(|| {
            let state = self.desk.lock();
            let waits = |state: &mut HubState| state.is_cancelling(task);
            let waited = self.desk.news.wait_timeout_while(state, PATIENCE, waits);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            !state.is_live(task)
        })
    }

    /// Ends a call that is not over; if it is running, its process ends with it.
    fn stop(&self, py: Python<'_>, call: u64) {
        let mut state = self.state(py);
        state.stop(self.desk.now(), TaskId(call));
        self.leave(py, state);
    }

    /// Whether a call has begun.
    fn is_running(&self, py: Python<'_>, call: u64) -> bool {
        self.state(py).is_running(TaskId(call))
    }

    /// Waits for something to happen, no longer than `timeout` seconds, and returns what did.
    fn wait<'py>(&self, py: Python<'py>, timeout: f64) -> PyResult<Bound<'py, PyList>> {
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::ZERO);
        let events = py.detach(|| {
            let state = self.desk.lock();
            let waits =
                |state: &mut HubState| state.events.is_empty() && !state.closed && !state.woken;
            let waited = self.desk.news.wait_timeout_while(state, timeout, waits);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.woken = false;
            std::mem::take(&mut state.events)
        });
        let list = PyList::empty(py);
        for event in events {
            list.append(show(py, event))?;
        }
        Ok(list)
    }

    /// Asks the processes to end when they have done what they have.
    fn stop_lines(&self, py: Python<'_>) {
        let mut state = self.state(py);
        state.lines.stop();
        self.leave(py, state);
    }

    /// Lets whoever waits look around.
    fn wake(&self, py: Python<'_>) {
        self.state(py).woken = true;
        self.desk.news.notify_all();
    }

    /// Nothing more will come; whoever waits is woken.
    fn close(&self, py: Python<'_>) {
        self.state(py).closed = true;
        self.desk.news.notify_all();
        self.desk.alarm.notify_all();
    }

    /// Was the run balanced?
    fn report(&self, py: Python<'_>) -> BalanceReport {
        let state = self.state(py);
        state.figures.report(&state.lines.busy_ns())
    }

    /// How many calls were submitted and stolen, and how many second copies were started.
    fn counts(&self, py: Python<'_>) -> (u64, u64, u64) {
        self.state(py).counts()
    }
}

impl Hub {
    fn state(&self, py: Python<'_>) -> MutexGuard<'_, HubState> {
        self.desk
            .state
            .lock_py_attached(py)
            .expect("the scheduler found its own state to be wrong")
    }

    fn open_segments(&self) -> MutexGuard<'_, HashMap<i32, Segment>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of the state and writes what is to be written.
    fn leave(&self, py: Python<'_>, state: MutexGuard<'_, HubState>) {
        let (streams, bytes) = self.desk.put_down(state);
        if bytes >= LARGE {
            py.detach(|| self.desk.flush(streams));
        } else {
            self.desk.flush(streams);
        }
    }
}

/// An event as a tuple: its kind, a number, bytes, another number, and the descriptor of a segment, which
/// the receiver closes.
type Shown = (&'static str, u64, Option<Py<PyBytes>>, f64, Option<i32>);

fn show(py: Python<'_>, event: Event) -> Shown {
    let plain = |kind, number, extra| (kind, number, None, extra, None);
    let packed = |kind, task: TaskId, packed: Packed, nanos: u64| {
        let payload = PyBytes::new(py, &packed.payload).unbind();
        let segment = packed.segment.map(IntoRawFd::into_raw_fd);
        (kind, task.0, Some(payload), nanos as f64 / 1e9, segment)
    };
    match event {
        Event::Value(task, answer, nanos) => packed("value", task, answer, nanos),
        Event::Raised(task, answer, nanos) => packed("raised", task, answer, nanos),
        Event::TimedOut(task) => plain("timed_out", task.0, 0.0),
        Event::Cancelled(task) => plain("cancelled", task.0, 0.0),
        Event::Lost(task, agent) => {
            let line = agent.map_or(0, |agent| agent.0);
            plain("lost", task.0, line as f64)
        }
        Event::Gone(agent, was_ready) => plain("gone", agent.0, f64::from(u8::from(was_ready))),
        Event::Ready(agent) => plain("ready", agent.0, 0.0),
        Event::Unfit(agent, payload) => {
            let payload = PyBytes::new(py, &payload).unbind();
            ("unfit", agent.0, Some(payload), 0.0, None)
        }
    }
}

/// Reads what a process says, until it is gone.
fn listen(desk: &Weak<HubShared>, agent: AgentId, reader: UnixStream) {
    let mut frames = Frames::new(reader);
    if let Some(desk) = desk.upgrade() {
        let stream = desk.lock().lines.get(agent).map(Line::stream);
        desk.flush(stream.map(|stream| (agent, stream)).into_iter().collect());
    }
    loop {
        let first = frames.next();
        let Some(desk) = desk.upgrade() else {
            return;
        };
        let mut state = desk.lock();
        let now = desk.now();
        let Ok(Some(frame)) = first else {
            state.close_line(now, agent);
            return desk.finish(state);
        };
        state.handle(now, agent, frame);
        // Whatever came with it is taken in one go.
        while frames.has_next() {
            match frames.next() {
                Ok(Some(frame)) => state.handle(now, agent, frame),
                _ => break,
            }
        }
        desk.finish(state);
    }
}

/// Tells the core when a timer is due.
fn keep_time(desk: &Weak<HubShared>) {
    /// How long the thread may go on after its hub was forgotten.
    const LONGEST: Duration = Duration::from_millis(500);
    while let Some(desk) = desk.upgrade() {
        let mut state = desk.lock();
        if state.closed {
            return;
        }
        let now = desk.now();
        let due = state.next_timer();
        if due.is_some_and(|due| due <= now) {
            state.tick(now);
            desk.finish(state);
            continue;
        }
        let span = due.map_or(LONGEST, |due| due.since(now).into());
        drop(desk.alarm.wait_timeout(state, span.min(LONGEST)));
    }
}

fn check_len(len: usize) -> PyResult<()> {
    wire::check_len(len)
        .map_err(|_| PyValueError::new_err(format!("{len} bytes are too much for one call")))
}

fn span(seconds: f64) -> PyResult<Span> {
    Span::try_from_secs_f64(seconds)
        .ok_or_else(|| PyValueError::new_err(format!("{seconds} seconds are no length of time")))
}

//! The hub as Python sees it: calls go in, events come out.

use std::io::Write as _;
use std::os::fd::IntoRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use loxley_model::{AgentId, Priority, Span, TaskId, Time};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyList};

use super::books::{Books, Call, Event, Wishes};
use super::figures::BalanceReport;
use super::lines::{Line, Stream};
use super::wire::{self, Frames};

/// From so many bytes on, a frame is written without the interpreter's lock.
const LARGE: usize = 1 << 15;

/// The lines to worker processes, and the scheduler that decides who runs what.
#[pyclass(module = "loxley._core", frozen)]
pub(crate) struct Hub {
    desk: Arc<Desk>,
}

/// What the threads of a hub share.
struct Desk {
    books: Mutex<Books>,
    /// Something happened that Python must know, or somebody waits to cancel.
    news: Condvar,
    /// The next timer may have changed.
    alarm: Condvar,
    begin: Instant,
}

impl Desk {
    fn now(&self) -> Time {
        Time(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books
            .lock()
            .expect("the scheduler found its own books to be wrong")
    }

    /// Writes what is in the outboxes of these lines.
    fn flush(&self, streams: Vec<(AgentId, Stream)>) {
        for (agent, stream) in streams {
            // In this order, so that what was put in first is written first.
            let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
            let bytes = self.lock().lines.take_outbox(agent);
            // Whoever reads from a process that is gone will find that out.
            let _ = stream.write_all(&bytes);
        }
    }

    /// Lets go of the books and wakes who must know. Returns what is to be written, and how much.
    fn put_down(&self, mut books: MutexGuard<'_, Books>) -> (Vec<(AgentId, Stream)>, usize) {
        let streams = books.lines.take_dirty();
        let has_news = !books.events.is_empty();
        drop(books);
        if has_news {
            self.news.notify_all();
        }
        self.alarm.notify_one();
        streams
    }

    /// Lets go of the books and does what follows from what is in them.
    fn finish(&self, books: MutexGuard<'_, Books>) {
        let (streams, _) = self.put_down(books);
        self.flush(streams);
    }
}

#[pymethods]
impl Hub {
    #[new]
    fn new() -> Self {
        let desk = Arc::new(Desk {
            books: Mutex::new(Books::new()),
            news: Condvar::new(),
            alarm: Condvar::new(),
            begin: Instant::now(),
        });
        let weak = Arc::downgrade(&desk);
        thread::Builder::new()
            .name("loxley-hub-timer".into())
            .spawn(move || keep_time(&weak))
            .expect("a thread can be started");
        Self { desk }
    }

    /// Opens a line. Returns its number and the file descriptor of the other end, which the caller
    /// gives to a process and closes.
    fn open_line(&self, py: Python<'_>, setup: &[u8]) -> PyResult<(u64, i32)> {
        check_len(setup.len())?;
        let (ours, theirs) = UnixStream::pair()?;
        let reader = ours.try_clone()?;
        let mut books = self.books(py);
        let agent = books.open_line(ours, setup);
        drop(books);
        let weak = Arc::downgrade(&self.desk);
        thread::Builder::new()
            .name("loxley-hub-line".into())
            .spawn(move || listen(&weak, agent, reader))?;
        Ok((agent.0, theirs.into_raw_fd()))
    }

    /// Keeps a pickled function for calls.
    fn define(&self, py: Python<'_>, function: &[u8]) -> PyResult<u64> {
        check_len(function.len())?;
        Ok(self.books(py).define(function.into()))
    }

    /// Lets a function go when the calls of it that were submitted are over.
    fn forget(&self, py: Python<'_>, function: u64) {
        self.books(py).forget(function);
    }

    /// Submits a call (or `items` calls in one) and returns its number.
    #[pyo3(signature = (function, shape, items, payload, priority, time_limit, speculate, cost))]
    #[expect(clippy::too_many_arguments, reason = "one Python function calls it")]
    fn submit(
        &self,
        py: Python<'_>,
        function: u64,
        shape: u8,
        items: u32,
        payload: &[u8],
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
        };
        let mut books = self.books(py);
        if books.closed {
            return Err(PyRuntimeError::new_err("the hub is closed"));
        }
        let task = books.submit(self.desk.now(), call, &wishes);
        self.leave(py, books);
        task.map(|task| task.0)
            .ok_or_else(|| PyRuntimeError::new_err("the function was forgotten"))
    }

    /// Cancels a call that has not begun. Says whether it is cancelled: then it never runs.
    fn cancel(&self, py: Python<'_>, call: u64) -> bool {
        /// A process answers by a thread of its own, at once; if it does not, it is in trouble.
        const PATIENCE: Duration = Duration::from_secs(5);
        let task = TaskId(call);
        let mut books = self.books(py);
        let begun = books.cancel(self.desk.now(), task);
        self.leave(py, books);
        if let Some(known) = begun {
            return known;
        }
        py.detach(|| {
            let books = self.desk.lock();
            let waits = |books: &mut Books| books.is_cancelling(task);
            let waited = self.desk.news.wait_timeout_while(books, PATIENCE, waits);
            let (books, _) = waited.unwrap_or_else(PoisonError::into_inner);
            !books.is_live(task)
        })
    }

    /// Ends a call that is not over; if it is running, its process ends with it.
    fn stop(&self, py: Python<'_>, call: u64) {
        let mut books = self.books(py);
        books.stop(self.desk.now(), TaskId(call));
        self.leave(py, books);
    }

    /// Whether a call has begun.
    fn is_running(&self, py: Python<'_>, call: u64) -> bool {
        self.books(py).is_running(TaskId(call))
    }

    /// Waits for something to happen, no longer than `timeout` seconds, and returns what did.
    fn wait<'py>(&self, py: Python<'py>, timeout: f64) -> PyResult<Bound<'py, PyList>> {
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::ZERO);
        let events = py.detach(|| {
            let books = self.desk.lock();
            let waits =
                |books: &mut Books| books.events.is_empty() && !books.closed && !books.woken;
            let waited = self.desk.news.wait_timeout_while(books, timeout, waits);
            let (mut books, _) = waited.unwrap_or_else(PoisonError::into_inner);
            books.woken = false;
            std::mem::take(&mut books.events)
        });
        let list = PyList::empty(py);
        for event in events {
            list.append(show(py, event))?;
        }
        Ok(list)
    }

    /// Asks the processes to end when they have done what they have.
    fn stop_lines(&self, py: Python<'_>) {
        let mut books = self.books(py);
        books.lines.stop();
        self.leave(py, books);
    }

    /// Lets whoever waits look around.
    fn wake(&self, py: Python<'_>) {
        self.books(py).woken = true;
        self.desk.news.notify_all();
    }

    /// Nothing more will come; whoever waits is woken.
    fn close(&self, py: Python<'_>) {
        self.books(py).closed = true;
        self.desk.news.notify_all();
        self.desk.alarm.notify_all();
    }

    /// Was the run balanced?
    fn report(&self, py: Python<'_>) -> BalanceReport {
        let books = self.books(py);
        books.figures.report(&books.lines.busy_ns())
    }

    /// How many calls were submitted and stolen, and how many second copies were started.
    fn counts(&self, py: Python<'_>) -> (u64, u64, u64) {
        self.books(py).counts()
    }
}

impl Hub {
    fn books(&self, py: Python<'_>) -> MutexGuard<'_, Books> {
        self.desk
            .books
            .lock_py_attached(py)
            .expect("the scheduler found its own books to be wrong")
    }

    /// Lets go of the books and writes what is to be written.
    fn leave(&self, py: Python<'_>, books: MutexGuard<'_, Books>) {
        let (streams, bytes) = self.desk.put_down(books);
        if bytes >= LARGE {
            py.detach(|| self.desk.flush(streams));
        } else {
            self.desk.flush(streams);
        }
    }
}

/// An event as a tuple: its kind, a number, and what else there is.
fn show(py: Python<'_>, event: Event) -> (&'static str, u64, Py<PyAny>, f64) {
    let bytes = |payload: Vec<u8>| PyBytes::new(py, &payload).into_any().unbind();
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    match event {
        Event::Value(task, payload, nanos) => ("value", task.0, bytes(payload), seconds(nanos)),
        Event::Raised(task, payload, nanos) => ("raised", task.0, bytes(payload), seconds(nanos)),
        Event::TimedOut(task) => ("timed_out", task.0, py.None(), 0.0),
        Event::Cancelled(task) => ("cancelled", task.0, py.None(), 0.0),
        Event::Lost(task, agent) => {
            let line = agent.map_or(0, |agent| agent.0);
            ("lost", task.0, py.None(), line as f64)
        }
        Event::Gone(agent, was_ready) => {
            ("gone", agent.0, py.None(), f64::from(u8::from(was_ready)))
        }
        Event::Ready(agent) => ("ready", agent.0, py.None(), 0.0),
        Event::Unfit(agent, payload) => ("unfit", agent.0, bytes(payload), 0.0),
    }
}

/// Reads what a process says, until it is gone.
fn listen(desk: &Weak<Desk>, agent: AgentId, reader: UnixStream) {
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
        let mut books = desk.lock();
        let now = desk.now();
        let Ok(Some(frame)) = first else {
            books.close_line(now, agent);
            return desk.finish(books);
        };
        books.handle(now, agent, frame);
        // Whatever came with it is taken in one go.
        while frames.has_next() {
            match frames.next() {
                Ok(Some(frame)) => books.handle(now, agent, frame),
                _ => break,
            }
        }
        desk.finish(books);
    }
}

/// Tells the core when a timer is due.
fn keep_time(desk: &Weak<Desk>) {
    /// How long the thread may go on after its hub was forgotten.
    const LONGEST: Duration = Duration::from_millis(500);
    while let Some(desk) = desk.upgrade() {
        let mut books = desk.lock();
        if books.closed {
            return;
        }
        let now = desk.now();
        let due = books.next_timer();
        if due.is_some_and(|due| due <= now) {
            books.tick(now);
            desk.finish(books);
            continue;
        }
        let span = due.map_or(LONGEST, |due| due.since(now).into());
        drop(desk.alarm.wait_timeout(books, span.min(LONGEST)));
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

//! The other end of a line, inside a worker process.
//!
//! One thread reads and never needs the interpreter's lock; the main thread runs calls. What the main
//! thread has not begun can be given back while it computes.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem;
use std::os::fd::{AsFd as _, IntoRawFd as _};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::segment::{Segment, Segments};
use super::wire::{self, Frame, Frames, Kind, Outbox};

/// The line to the process that started this one; it is standard input.
#[pyclass(module = "loxley._core", frozen)]
pub(crate) struct WorkerLine {
    shared: Arc<Shared>,
    segments: Segments,
    /// The segment that is being filled with a result.
    open: Mutex<Option<Segment>>,
}

struct Shared {
    tray: Mutex<Tray>,
    news: Condvar,
    writer: Mutex<UnixStream>,
}

/// What is waiting to be run.
#[derive(Default)]
struct Tray {
    setup: Option<Vec<u8>>,
    calls: VecDeque<Frame>,
    functions: HashMap<u64, Vec<u8>>,
    /// Functions that are gone, and may still be kept by whoever unpacked them.
    forgotten: Vec<u64>,
    current: Option<(u64, Instant)>,
    stopped: bool,
}

/// What [`WorkerLine::next`] returns: a lease, a function, a shape, a payload, the descriptor of a segment,
/// which the receiver closes, and the functions that will not be called again, if there are any.
type NextCall<'py> = (
    u64,
    u64,
    u8,
    Bound<'py, PyBytes>,
    Option<i32>,
    Option<Vec<u64>>,
);

#[pymethods]
impl WorkerLine {
    #[new]
    fn new() -> PyResult<Self> {
        let descriptor = io::stdin().as_fd().try_clone_to_owned()?;
        let stream = UnixStream::from(descriptor);
        let reader = stream.try_clone()?;
        let shared = Arc::new(Shared {
            tray: Mutex::default(),
            news: Condvar::new(),
            writer: Mutex::new(stream),
        });
        let listener = Arc::clone(&shared);
        thread::Builder::new()
            .name("loxley-line".into())
            .spawn(move || listen(&listener, reader))?;
        Ok(Self {
            shared,
            segments: Segments::default(),
            open: Mutex::default(),
        })
    }

    /// Waits for the first thing that is said: how to set up.
    fn setup<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let setup = py.detach(|| {
            let mut tray = self.shared.tray();
            loop {
                if let Some(setup) = tray.setup.take() {
                    return setup;
                }
                tray = self.shared.wait(tray);
            }
        });
        PyBytes::new(py, &setup)
    }

    /// The process is set up, or says why not.
    fn ready(&self, py: Python<'_>, problem: Option<&[u8]>) {
        match problem {
            None => self.write(py, Kind::Ready, 0, 0, &[]),
            Some(problem) => self.write(py, Kind::Unfit, 0, 0, problem),
        }
    }

    /// Waits for the next call; None when no more will come.
    fn next<'py>(&self, py: Python<'py>) -> Option<NextCall<'py>> {
        let here = self.shared.tray().take();
        let (frame, forgotten) = match here {
            Some(found) => Some(found),
            None => py.detach(|| self.wait_for_call()),
        }?;
        let payload = PyBytes::new(py, &frame.payload);
        let shape = (frame.extra & 0xff) as u8;
        let forgotten = Some(forgotten).filter(|forgotten| !forgotten.is_empty());
        let segment = frame.segment.map(|segment| segment.into_raw_fd());
        let function = frame.extra >> 8;
        Some((frame.number, function, shape, payload, segment, forgotten))
    }

    /// A function by its number.
    fn function<'py>(&self, py: Python<'py>, number: u64) -> PyResult<Bound<'py, PyBytes>> {
        let tray = self.shared.tray();
        let function = tray.functions.get(&number);
        let function = function.ok_or_else(|| PyKeyError::new_err(number))?;
        Ok(PyBytes::new(py, function))
    }

    /// A segment for what is large in the next answer: the descriptor to write to. None when there is
    /// none to be had.
    fn open_segment(&self) -> Option<i32> {
        let segment = self.segments.open();
        let number = segment.as_ref().map(Segment::number);
        *self.open_segment_slot() = segment;
        number
    }

    /// Nothing large is in the next answer after all.
    fn drop_segment(&self, _segment: i32) {
        self.open_segment_slot().take();
    }

    /// Answers a call: with a value, or with what was raised.
    fn done(
        &self,
        py: Python<'_>,
        lease: u64,
        is_value: bool,
        payload: &[u8],
        has_segment: bool,
    ) -> PyResult<()> {
        if wire::check_len(payload.len()).is_err() {
            let message = format!("a result of {} bytes is too large", payload.len());
            return Err(pyo3::exceptions::PyValueError::new_err(message));
        }
        let begun = self.shared.tray().current.take();
        let nanos = begun.map_or(0, |(_, begin)| begin.elapsed().as_nanos());
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        let kind = if is_value { Kind::Value } else { Kind::Raised };
        let segment = self.open_segment_slot().take().filter(|_| has_segment);
        let mut outbox = Outbox::default();
        outbox.put(kind, lease, nanos, payload, segment.as_ref());
        py.detach(|| self.shared.write(&outbox));
        Ok(())
    }

    /// Says that this process runs nothing more.
    fn retire(&self, py: Python<'_>) {
        self.write(py, Kind::Retired, 0, 0, &[]);
    }
}

impl WorkerLine {
    fn wait_for_call(&self) -> Option<(Frame, Vec<u64>)> {
        let mut tray = self.shared.tray();
        loop {
            if let Some(found) = tray.take() {
                return Some(found);
            }
            if tray.stopped {
                return None;
            }
            tray = self.shared.wait(tray);
        }
    }

    fn write(&self, py: Python<'_>, kind: Kind, number: u64, extra: u64, payload: &[u8]) {
        let mut outbox = Outbox::default();
        outbox.put(kind, number, extra, payload, None);
        py.detach(|| self.shared.write(&outbox));
    }

    fn open_segment_slot(&self) -> MutexGuard<'_, Option<Segment>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tray {
    /// Takes the next call, which then is the current one, and what was forgotten since the last.
    fn take(&mut self) -> Option<(Frame, Vec<u64>)> {
        let frame = self.calls.pop_front()?;
        self.current = Some((frame.number, Instant::now()));
        Some((frame, mem::take(&mut self.forgotten)))
    }
}

impl Shared {
    fn tray(&self) -> MutexGuard<'_, Tray> {
        self.tray.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, tray: MutexGuard<'a, Tray>) -> MutexGuard<'a, Tray> {
        self.news.wait(tray).unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, outbox: &Outbox) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if outbox.write_to(&mut writer).is_err() {
            // Nobody waits for it any more; or a call has closed what is not its own, and would never be
            // heard of again.
            end_this_process();
        }
    }

    /// Gives a call back if it has not begun.
    fn give_back(&self, lease: u64) {
        let mut tray = self.tray();
        let found = tray.calls.iter().position(|frame| frame.number == lease);
        let given = found.and_then(|at| tray.calls.remove(at)).is_some();
        drop(tray);
        let kind = if given { Kind::Yielded } else { Kind::Kept };
        let mut outbox = Outbox::default();
        outbox.put(kind, lease, 0, &[], None);
        self.write(&outbox);
    }
}

/// Reads what the hub says. When the hub is gone, nobody wants what this process does.
fn listen(shared: &Shared, reader: UnixStream) {
    let mut frames = Frames::new(reader);
    while let Ok(Some(frame)) = frames.next() {
        let mut tray = shared.tray();
        match frame.kind {
            Kind::Setup => tray.setup = Some(frame.payload),
            Kind::Function => {
                tray.functions.insert(frame.number, frame.payload);
            }
            Kind::Forget => {
                tray.functions.remove(&frame.number);
                tray.forgotten.push(frame.number);
            }
            Kind::Call => tray.calls.push_back(frame),
            Kind::Retract => {
                drop(tray);
                shared.give_back(frame.number);
                continue;
            }
            Kind::Interrupt => {
                let running = tray.current.map(|(lease, _)| lease);
                if running == Some(frame.number) {
                    end_this_process();
                }
                drop(tray);
                // It may have been waiting here still.
                shared.give_back(frame.number);
                continue;
            }
            Kind::Stop => tray.stopped = true,
            _ => unreachable!("a hub sent what only a process sends"),
        }
        drop(tray);
        shared.news.notify_one();
    }
    end_this_process();
}

/// Ends the process whatever its main thread does: no Python code may run any more.
fn end_this_process() {
    use rustix::process::{Signal, getpid, kill_process};
    let _ = kill_process(getpid(), Signal::KILL);
}

//! The threads that run tasks. Each slot has a desk: what was assigned to it and not started lies
//! there, and can be taken back. The slot tells what happens; it decides nothing.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use loxley_agent::{
    Command, Ended, Filling, Killer, Limits, Sink, Slot, Spool, StartError, Stream, Streams,
    Template, Urgency,
};
use loxley_model::{Lease, TaskId};

use super::engine::Event;
use super::gate::Gate;

/// A task that was given to a slot.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) task: TaskId,
    pub(super) lease: Lease,
    pub(super) attempt: u32,
    pub(super) items: Arc<[OsString]>,
}

/// A task that a slot is done with.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) slot: usize,
    pub(super) attempt: u32,
    /// When it started, by the clock on the wall.
    pub(super) started: SystemTime,
    pub(super) result: Result<Ended, StartError>,
    pub(super) output: Spool,
}

/// What all slots have in common.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) template: Template,
    pub(super) streams: Streams,
    pub(super) limits: Limits,
    pub(super) gate: Gate,
}

/// A slot as the one who assigns sees it.
#[derive(Debug)]
pub(super) struct SlotHandle {
    desk: Arc<Desk>,
    killer: Killer,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Desk {
    papers: Mutex<Papers>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Papers {
    waiting: VecDeque<Assignment>,
    /// What the slot took last; it may be over.
    current: Option<Lease>,
    closed: bool,
}

impl SlotHandle {
    /// Starts the thread of slot `index`.
    pub(super) fn start(
        index: usize,
        setup: Arc<Setup>,
        events: Sender<Event>,
    ) -> io::Result<Self> {
        let (slot, killer) = Slot::new()?;
        let desk = Arc::new(Desk::default());
        let worker = Worker {
            index,
            slot,
            desk: Arc::clone(&desk),
            setup,
            events,
        };
        let thread = thread::Builder::new()
            .name(format!("slot-{}", index + 1))
            .stack_size(256 << 10)
            .spawn(move || worker.work())?;
        Ok(Self {
            desk,
            killer,
            thread,
        })
    }

    /// Puts a task on the desk.
    pub(super) fn assign(&self, assignment: Assignment) {
        self.desk.papers().waiting.push_back(assignment);
        self.desk.bell.notify_one();
    }

    /// Takes a task back, unless it was started.
    pub(super) fn take_back(&self, lease: Lease) -> bool {
        let waiting = &mut self.desk.papers().waiting;
        let position = waiting.iter().position(|paper| paper.lease == lease);
        position.is_some_and(|position| waiting.remove(position).is_some())
    }

    /// Stops a task, started or not.
    pub(super) fn cancel(&self, lease: Lease, urgency: Urgency) {
        if !self.take_back(lease) {
            self.killer.kill(lease.0, urgency);
        }
    }

    /// Kills what the slot runs, or is about to run.
    pub(super) fn kill_current(&self, urgency: Urgency) {
        let current = self.desk.papers().current;
        if let Some(lease) = current {
            self.killer.kill(lease.0, urgency);
        }
    }

    /// How many tasks lie on the desk.
    pub(super) fn waiting(&self) -> usize {
        self.desk.papers().waiting.len()
    }

    /// Starts nothing more: the desk is cleared, what runs goes on.
    pub(super) fn close(&self) {
        let mut papers = self.desk.papers();
        papers.closed = true;
        papers.waiting.clear();
        drop(papers);
        self.desk.bell.notify_one();
    }

    /// Waits for the thread of a slot that was closed.
    pub(super) fn join(self) {
        // A panic has been shown by the thread itself.
        let _ = self.thread.join();
    }
}

impl Desk {
    fn papers(&self) -> MutexGuard<'_, Papers> {
        self.papers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next task; none once the desk is closed.
    fn next(&self) -> Option<Assignment> {
        let mut papers = self.papers();
        loop {
            if papers.closed {
                return None;
            }
            if let Some(next) = papers.waiting.pop_front() {
                papers.current = Some(next.lease);
                return Some(next);
            }
            papers = self
                .bell
                .wait(papers)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_closed(&self) -> bool {
        self.papers().closed
    }
}

/// A task that ends within this time is told of once, at its end: waking the engine twice for each
/// would cost as much as the scheduling itself.
const SHORT: Duration = Duration::from_millis(2);

/// Keeps what a task writes, and tells of a task that is not short that it started.
struct Listener<'a> {
    output: Spool,
    events: &'a Sender<Event>,
    started: Option<Event>,
}

impl Sink for Listener<'_> {
    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        self.output.take(stream, bytes)
    }

    fn runs_on(&mut self) {
        if let Some(started) = self.started.take() {
            // Nobody listens any more when this fails, and `Ended` will find out.
            let _ = self.events.send(started);
        }
    }
}

/// The thread of a slot.
struct Worker {
    index: usize,
    slot: Slot,
    desk: Arc<Desk>,
    setup: Arc<Setup>,
    events: Sender<Event>,
}

impl Worker {
    fn work(mut self) {
        while let Some(assignment) = self.desk.next() {
            if !self.setup.gate.pass(|| self.desk.is_closed()) || !self.run(assignment) {
                break;
            }
        }
        // Nobody listens any more when this fails.
        let _ = self.events.send(Event::SlotClosed);
    }

    /// Runs a task; false when nobody listens any more.
    fn run(&mut self, assignment: Assignment) -> bool {
        let Assignment {
            task,
            lease,
            attempt,
            items,
        } = assignment;
        let command = self.command(task, attempt, &items);
        let (started, begun) = (SystemTime::now(), Instant::now());
        let mut listener = Listener {
            output: Spool::default(),
            events: &self.events,
            started: Some(Event::Started {
                task,
                lease,
                slot: self.index,
                at: begun,
            }),
        };
        let result = self.slot.run(lease.0, &command, &mut listener);
        let output = listener.output;
        let done = Done {
            slot: self.index,
            attempt,
            started,
            result,
            output,
        };
        let ends = Event::Ended {
            task,
            lease,
            begun,
            at: Instant::now(),
            done,
        };
        self.events.send(ends).is_ok()
    }

    fn command(&self, task: TaskId, attempt: u32, items: &[OsString]) -> Command {
        let filling = Filling {
            items,
            sequence: task.0,
            slot: self.index + 1,
        };
        let mut command = self.setup.template.command(&filling);
        command.streams = self.setup.streams;
        command.limits = self.setup.limits;
        command.notice = Some(SHORT);
        for (name, number) in [
            ("LOXLEY_TASK_ID", task.0),
            ("LOXLEY_ATTEMPT", attempt.into()),
            ("LOXLEY_SLOT", self.index as u64 + 1),
        ] {
            command
                .environment
                .push((name.into(), number.to_string().into()));
        }
        command
    }
}

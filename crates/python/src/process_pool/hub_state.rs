//! What a hub knows: the deciding core with its leases, the calls, and the lines to the processes. It is
//! the carrier of a [`Driver`]: it hands calls to processes and tells what they say.
//!
//! What must stay true: a lease is on its line until the process has answered for it, one way or the
//! other, whether or not it is still in force.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use loxley_driver::Driver;
use loxley_model::{
    AgentId, AgentSpec, Dispatch, Failure, JobId, JobSpec, Lease, Outcome, Priority, SkillSet,
    Span, TaskId, TaskKind, TaskSpec, Time, WorkKey,
};
use loxley_policy::{Action, Config, Ending, Input, Leftovers, Place, Report, Selection};

use super::figures::Figures;
use super::functions::Functions;
use super::lines::Lines;
use super::segment::Segment;
use super::wire::{Frame, Kind};

pub(crate) struct HubState {
    driver: Driver,
    pub(crate) lines: Lines,
    calls: HashMap<TaskId, Call>,
    functions: Functions,
    kinds: HashMap<(Option<Span>, Option<u64>), Arc<TaskKind>>,
    pub(crate) events: Vec<Event>,
    /// Calls that somebody wants to cancel and that a process was asked to give back.
    cancelling: HashSet<TaskId>,
    pub(crate) figures: Figures,
    next_call: u64,
    pub(crate) closed: bool,
    /// Whoever waits for events should look around.
    pub(crate) woken: bool,
}

/// A call, and how many calls of the function it stands for.
pub(crate) struct Call {
    pub(crate) function: u64,
    /// How the arguments are packed; only processes look.
    pub(crate) shape: u8,
    pub(crate) items: u32,
    pub(crate) payload: Arc<[u8]>,
    /// What of the arguments is too large to be written to a line.
    pub(crate) segment: Option<Segment>,
}

/// How a call is to be treated.
pub(crate) struct Wishes {
    pub(crate) priority: Priority,
    pub(crate) time_limit: Option<Span>,
    pub(crate) speculate: bool,
    pub(crate) cost: Option<Span>,
}

/// What led to an input of the core, for whoever hears how a call ended.
enum Cause {
    /// A process said this of a call.
    Answered(Answer),
    /// A process is gone.
    Died(AgentId),
    /// Anything else.
    Other,
}

struct Answer {
    is_value: bool,
    packed: Packed,
    nanos: u64,
}

/// What a process sent: bytes, and what was too large to be written to its line.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) payload: Vec<u8>,
    pub(crate) segment: Option<OwnedFd>,
}

/// What the Python side must know.
pub(crate) enum Event {
    Value(TaskId, Packed, u64),
    Raised(TaskId, Packed, u64),
    TimedOut(TaskId),
    Cancelled(TaskId),
    /// The process that ran it is gone.
    Lost(TaskId, Option<AgentId>),
    /// A process is gone, and whether it had been ready.
    Gone(AgentId, bool),
    Ready(AgentId),
    Unfit(AgentId, Vec<u8>),
}

impl HubState {
    pub(crate) fn new() -> Self {
        let mut config = Config::default();
        // Processes are all alike: an urgent call that waits is best run by whoever is idle.
        config.priority.preserve_high_priority = false;
        config.performance.max_concurrent_steals = 64;
        // A call that moves costs a message on this machine: less than waiting behind a slow one.
        config.guards.max_moves = u32::MAX;
        config.metrics.track_utilization = false;
        Self {
            driver: Driver::new(config, Time::ZERO),
            lines: Lines::default(),
            calls: HashMap::new(),
            functions: Functions::default(),
            kinds: HashMap::new(),
            events: Vec::new(),
            cancelling: HashSet::new(),
            figures: Figures::default(),
            next_call: 0,
            closed: false,
            woken: false,
        }
    }

    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.driver.next_timer()
    }

    pub(crate) fn tick(&mut self, now: Time) {
        self.feed(now, Input::Tick);
    }

    // Processes.

    /// A line to a process that is about to start. It gets calls once it is ready.
    pub(crate) fn open_line(
        &mut self,
        stream: UnixStream,
        to_hang_up: UnixStream,
        setup: &[u8],
    ) -> AgentId {
        self.lines.open(stream, to_hang_up, setup)
    }

    /// The other end of a line is gone.
    pub(crate) fn close_line(&mut self, now: Time, agent: AgentId) {
        let Some(line) = self.lines.get(agent) else {
            return;
        };
        let (was_ready, running) = (line.is_ready, line.running());
        // Nothing new for it while its last call is taken care of.
        self.feed(now, Input::AgentDrained(agent));
        if let Some((lease, task)) = running.and_then(|lease| Some((lease, self.task_of(lease)?))) {
            let outcome = Outcome::Failed(Failure::Permanent);
            let input = Input::TaskFinished {
                task,
                lease,
                outcome,
            };
            self.feed_because(now, input, Cause::Died(agent));
        }
        let tasks = Leftovers::Requeue;
        let input = Input::AgentLeft { agent, tasks };
        self.feed_because(now, input, Cause::Died(agent));
        self.lines.close(agent);
        self.events.push(Event::Gone(agent, was_ready));
    }

    /// Nothing more will come over a line, whatever its other end says: its process is gone.
    pub(crate) fn hang_up(&self, agent: AgentId) {
        if let Some(line) = self.lines.get(agent) {
            line.hang_up();
        }
    }

    /// Takes in a frame from a process.
    pub(crate) fn handle(&mut self, now: Time, agent: AgentId, frame: Frame) {
        let lease = Lease(frame.number);
        match frame.kind {
            Kind::Value | Kind::Raised => {
                let answer = Answer {
                    is_value: frame.kind == Kind::Value,
                    packed: Packed {
                        payload: frame.payload,
                        segment: frame.segment,
                    },
                    nanos: frame.extra,
                };
                self.answered(now, agent, lease, answer);
            }
            Kind::Yielded => self.yielded(now, agent, lease),
            Kind::Kept => self.kept(now, lease),
            Kind::Ready => self.ready(now, agent),
            Kind::Unfit => self.events.push(Event::Unfit(agent, frame.payload)),
            Kind::Retired => {
                if let Some(line) = self.lines.get_mut(agent) {
                    line.is_retired = true;
                }
                self.feed(now, Input::AgentDrained(agent));
            }
            Kind::Setup
            | Kind::Function
            | Kind::Forget
            | Kind::Call
            | Kind::Retract
            | Kind::Interrupt
            | Kind::Stop => unreachable!("a process sent what only a hub sends"),
        }
    }

    fn ready(&mut self, now: Time, agent: AgentId) {
        if let Some(line) = self.lines.get_mut(agent) {
            line.is_ready = true;
            let spec = AgentSpec {
                dispatch: Dispatch::KeepFull,
                ..AgentSpec::new(agent, SkillSet::none())
            };
            self.feed(now, Input::AgentJoined(spec.into()));
            self.events.push(Event::Ready(agent));
        }
    }

    fn answered(&mut self, now: Time, agent: AgentId, lease: Lease, answer: Answer) {
        if let Some(line) = self.lines.get_mut(agent) {
            line.busy_ns += answer.nanos;
        }
        self.settle(now, agent, lease);
        // An answer to a lease that is no longer in force is old news.
        let Some(task) = self.task_of(lease) else {
            return;
        };
        if let Some(call) = self.calls.get(&task) {
            self.figures.ran(call.items, answer.nanos);
        }
        let outcome = Outcome::Succeeded;
        let input = Input::TaskFinished {
            task,
            lease,
            outcome,
        };
        self.feed_because(now, input, Cause::Answered(answer));
        let core = self.driver.scheduler();
        let queued = |agent| core.queue_len(agent).unwrap_or(0);
        let depths = self.lines.all();
        self.figures
            .sample(depths.map(|(agent, line)| queued(agent) + line.waiting()));
    }

    fn yielded(&mut self, now: Time, agent: AgentId, lease: Lease) {
        self.settle(now, agent, lease);
        let Some(task) = self.task_of(lease) else {
            return;
        };
        if self.cancelling.remove(&task) {
            return self.feed(now, Input::CancelRequested(Selection::Task(task)));
        }
        self.feed(now, said_of_retract(task, lease, true));
    }

    fn kept(&mut self, now: Time, lease: Lease) {
        if let Some(task) = self.task_of(lease) {
            self.cancelling.remove(&task);
            self.feed(now, said_of_retract(task, lease, false));
        }
    }

    /// A process has answered for a lease: if it was running, the next one is.
    fn settle(&mut self, now: Time, agent: AgentId, lease: Lease) {
        let line = self.lines.get_mut(agent);
        let next = line.and_then(|line| line.settle(lease));
        if let Some((lease, task)) = next.and_then(|lease| Some((lease, self.task_of(lease)?))) {
            self.feed(now, Input::TaskStarted { task, lease });
        }
    }

    /// The task of a lease that is in force.
    fn task_of(&self, lease: Lease) -> Option<TaskId> {
        self.driver.leases().get(lease).map(|held| held.task)
    }

    // Calls.

    pub(crate) fn define(&mut self, function: Arc<[u8]>) -> u64 {
        self.functions.define(function)
    }

    /// Nobody will submit a call of this function again.
    pub(crate) fn forget(&mut self, function: u64) {
        if self.functions.forget(function) {
            self.let_go(function);
        }
    }

    fn let_go(&mut self, function: u64) {
        self.lines.forget(function);
        self.kinds.retain(|(_, of), _| *of != Some(function));
    }

    /// Takes a call; none if its function was forgotten.
    pub(crate) fn submit(&mut self, now: Time, call: Call, wishes: &Wishes) -> Option<TaskId> {
        if !self.functions.contains(call.function) {
            return None;
        }
        self.next_call += 1;
        let id = TaskId(self.next_call);
        let kind = self.kind(wishes, call.function);
        self.figures.begin();
        self.functions.call_begins(call.function);
        self.calls.insert(id, call);
        let task = TaskSpec {
            priority: wishes.priority,
            cost: wishes.cost,
            ..TaskSpec::new(id, kind)
        };
        let job = JobSpec::new(JobId(id.0));
        let tasks = [task].into();
        self.feed(now, Input::TasksSubmitted { job, tasks });
        Some(id)
    }

    /// Calls of one function are of one kind where it matters how long such calls take.
    fn kind(&mut self, wishes: &Wishes, function: u64) -> Arc<TaskKind> {
        let key = (wishes.time_limit, wishes.speculate.then_some(function));
        let make = || {
            Arc::new(TaskKind {
                time_limit: wishes.time_limit,
                speculate: wishes.speculate,
                work: key.1.map(WorkKey),
                ..TaskKind::default()
            })
        };
        Arc::clone(self.kinds.entry(key).or_insert_with(make))
    }

    pub(crate) fn is_live(&self, task: TaskId) -> bool {
        self.calls.contains_key(&task)
    }

    pub(crate) fn is_running(&self, task: TaskId) -> bool {
        self.is_live(task) && matches!(self.place(task), Some(Place::Running { .. }))
    }

    fn place(&self, task: TaskId) -> Option<Place> {
        let status = self.driver.scheduler().task_status(task);
        status.map(|status| status.place)
    }

    /// Begins to cancel a call. True when it is cancelled, false when it cannot be; nothing when a
    /// process was asked to give it back: then it is over soon, or it is no longer
    /// [`is_cancelling`](Self::is_cancelling).
    pub(crate) fn cancel(&mut self, now: Time, task: TaskId) -> Option<bool> {
        if !self.is_live(task) {
            return Some(false);
        }
        match self.place(task) {
            None | Some(Place::Running { .. }) => Some(false),
            Some(Place::Leased { agent, lease, .. }) => {
                self.cancelling.insert(task);
                self.lines.say(agent, Kind::Retract, lease);
                None
            }
            Some(_) => {
                self.feed(now, Input::CancelRequested(Selection::Task(task)));
                Some(true)
            }
        }
    }

    /// Ends a call that is not over; if it is running, its process ends with it.
    pub(crate) fn stop(&mut self, now: Time, task: TaskId) {
        if self.is_live(task) {
            self.feed(now, Input::CancelRequested(Selection::Task(task)));
        }
    }

    pub(crate) fn is_cancelling(&self, task: TaskId) -> bool {
        self.cancelling.contains(&task)
    }

    /// How many calls were sent, stolen, and given a second copy.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let metrics = self.driver.scheduler().metrics();
        let stolen = metrics.successful_steals;
        (self.next_call, stolen, metrics.speculations)
    }

    // The core.

    fn feed(&mut self, now: Time, input: Input) {
        self.feed_because(now, input, Cause::Other);
    }

    fn feed_because(&mut self, now: Time, input: Input, mut cause: Cause) {
        self.driver.tell(now, input);
        while let Some(action) = self.driver.next_action() {
            self.carry_out(action, &mut cause);
        }
    }

    fn carry_out(&mut self, action: Action, cause: &mut Cause) {
        match action {
            Action::Assign {
                task, agent, lease, ..
            } => {
                self.send(task, agent, lease);
                let line = self.lines.get(agent);
                if line.and_then(|line| line.is_first(lease)) == Some(true) {
                    self.driver.later(Input::TaskStarted { task, lease });
                }
            }
            Action::Retract {
                task, agent, lease, ..
            } => {
                let line = self.lines.get(agent);
                match line.and_then(|line| line.is_first(lease)) {
                    Some(false) => self.lines.say(agent, Kind::Retract, lease),
                    _ => self.driver.later(said_of_retract(task, lease, false)),
                }
            }
            Action::Cancel { agent, lease, .. } => {
                let line = self.lines.get(agent);
                // The process knows best whether it has begun.
                match line.and_then(|line| line.is_first(lease)) {
                    Some(true) => self.lines.say(agent, Kind::Interrupt, lease),
                    Some(false) => self.lines.say(agent, Kind::Retract, lease),
                    None => {}
                }
            }
            Action::Report(Report::Finished { task, ending, .. }) => {
                self.finish(task, ending, cause);
            }
            Action::Report(_) | Action::SetTimer { .. } => {}
        }
    }

    fn send(&mut self, task: TaskId, agent: AgentId, lease: Lease) {
        let Call {
            function,
            shape,
            payload,
            segment,
            ..
        } = &self.calls[&task];
        let packed = || self.functions.packed(*function);
        self.lines.send(
            agent,
            lease,
            (*function, *shape),
            packed,
            (payload, segment.as_ref()),
        );
    }

    fn finish(&mut self, task: TaskId, ending: Ending, cause: &mut Cause) {
        if let Some(call) = self.calls.remove(&task)
            && self.functions.call_ends(call.function)
        {
            self.let_go(call.function);
        }
        self.cancelling.remove(&task);
        let event = match ending {
            Ending::Succeeded { .. } => cause.take_answer().told_of(task),
            Ending::Failed(Failure::TimeLimit) => Event::TimedOut(task),
            Ending::Failed(_) => Event::Lost(task, cause.dead()),
            Ending::Cancelled | Ending::FellBack { .. } | Ending::Returned => {
                Event::Cancelled(task)
            }
        };
        self.events.push(event);
    }
}

impl Cause {
    fn take_answer(&mut self) -> Answer {
        match mem::replace(self, Self::Other) {
            Self::Answered(answer) => answer,
            _ => unreachable!("a call succeeded without an answer"),
        }
    }

    fn dead(&self) -> Option<AgentId> {
        match self {
            Self::Died(agent) => Some(*agent),
            _ => None,
        }
    }
}

impl Answer {
    fn told_of(self, task: TaskId) -> Event {
        let make = if self.is_value {
            Event::Value
        } else {
            Event::Raised
        };
        make(task, self.packed, self.nanos)
    }
}

/// What a process said when it was asked to give a call back.
fn said_of_retract(task: TaskId, lease: Lease, yielded: bool) -> Input {
    Input::TaskYielded {
        task,
        lease,
        yielded,
    }
}

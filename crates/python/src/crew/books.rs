//! What a hub knows: the deciding core, the calls, and what was sent to whom.
//!
//! A process runs what it is sent one after the other. So the first call of a line is the one that is
//! running, and a call that was answered makes the next one the running one: nobody has to say so.
//!
//! What must stay true: a lease is in `leases` exactly while the core holds it in force, and on its
//! line's `sent` until the process has answered for it, one way or the other.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::mem;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use loxley_model::{
    AgentId, AgentSpec, Dispatch, Failure, GroupId, JobId, JobSpec, Lease, Outcome, Priority,
    SkillSet, Span, TaskId, TaskKind, TaskSpec, Time,
};
use loxley_policy::{
    Action, Config, Ending, Input, Leftovers, Place, Report, Scheduler as Core, Selection,
};

use super::figures::Figures;
use super::wire::{self, Frame, Kind};

pub(crate) struct Books {
    core: Core,
    lines: BTreeMap<AgentId, Line>,
    leases: HashMap<Lease, (TaskId, AgentId)>,
    calls: HashMap<TaskId, Call>,
    functions: HashMap<u64, Arc<[u8]>>,
    kinds: HashMap<(Option<Span>, Option<u64>), Arc<TaskKind>>,
    pub(crate) events: Vec<Event>,
    /// Calls that somebody wants to cancel and that a process was asked to give back.
    cancelling: HashSet<TaskId>,
    pub(crate) figures: Figures,
    /// Lines with something in their outbox.
    dirty: Vec<AgentId>,
    /// The answer that is being told to the core.
    answer: Option<Answer>,
    /// The process that is being taken off the books.
    dying: Option<AgentId>,
    next_call: u64,
    next_agent: u64,
    next_function: u64,
    actions: Vec<Action>,
    pub(crate) closed: bool,
    /// Whoever waits for events should look around.
    pub(crate) woken: bool,
}

/// The way to one process.
struct Line {
    stream: Arc<Mutex<UnixStream>>,
    outbox: Vec<u8>,
    /// The functions that the process has.
    known: HashSet<u64>,
    /// What it was sent and has not answered, in order; the first is running.
    sent: VecDeque<Lease>,
    is_ready: bool,
    /// It said that it goes, and runs nothing more.
    is_retired: bool,
    busy_ns: u64,
}

/// A call that is not over.
struct Call {
    function: u64,
    shape: u8,
    /// How many calls of the function it stands for.
    items: u32,
    payload: Arc<[u8]>,
}

/// What a process said of a call.
struct Answer {
    is_value: bool,
    payload: Vec<u8>,
    nanos: u64,
}

/// How a call is to be treated.
pub(crate) struct Wishes {
    pub(crate) priority: Priority,
    pub(crate) time_limit: Option<Span>,
    pub(crate) speculate: bool,
    pub(crate) cost: Option<Span>,
}

/// What the Python side must know.
pub(crate) enum Event {
    Value(TaskId, Vec<u8>, u64),
    Raised(TaskId, Vec<u8>, u64),
    TimedOut(TaskId),
    Cancelled(TaskId),
    /// The process that ran it is gone.
    Lost(TaskId, Option<AgentId>),
    /// A process is gone, and whether it had been ready.
    Gone(AgentId, bool),
    Ready(AgentId),
    Unfit(AgentId, Vec<u8>),
}

impl Books {
    pub(crate) fn new() -> Self {
        let mut config = Config::default();
        // Processes are all alike: an urgent call that waits is best run by whoever is idle.
        config.priority.preserve_high_priority = false;
        config.performance.max_concurrent_steals = 64;
        config.metrics.track_utilization = false;
        Self {
            core: Core::new(config, Time::ZERO),
            lines: BTreeMap::new(),
            leases: HashMap::new(),
            calls: HashMap::new(),
            functions: HashMap::new(),
            kinds: HashMap::new(),
            events: Vec::new(),
            cancelling: HashSet::new(),
            figures: Figures::default(),
            dirty: Vec::new(),
            answer: None,
            dying: None,
            next_call: 0,
            next_agent: 0,
            next_function: 0,
            actions: Vec::new(),
            closed: false,
            woken: false,
        }
    }

    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.core.next_timer()
    }

    pub(crate) fn tick(&mut self, now: Time) {
        self.feed(now, Input::Tick);
    }

    // Lines.

    /// A line to a process that is about to start. It gets calls once it is ready. Whoever listens to
    /// it writes the setup: that may have to wait until the process reads.
    pub(crate) fn open_line(&mut self, stream: UnixStream, setup: &[u8]) -> AgentId {
        self.next_agent += 1;
        let id = AgentId(self.next_agent);
        let mut outbox = Vec::new();
        wire::put(&mut outbox, Kind::Setup, 0, 0, setup);
        let line = Line {
            stream: Arc::new(Mutex::new(stream)),
            outbox,
            known: HashSet::new(),
            sent: VecDeque::new(),
            is_ready: false,
            is_retired: false,
            busy_ns: 0,
        };
        self.lines.insert(id, line);
        id
    }

    /// The other end of a line is gone.
    pub(crate) fn close_line(&mut self, now: Time, agent: AgentId) {
        let Some(line) = self.lines.get(&agent) else {
            return;
        };
        let (is_ready, is_retired) = (line.is_ready, line.is_retired);
        let running = line.sent.front().copied();
        let running = running.filter(|_| is_ready && !is_retired);
        self.dying = Some(agent);
        // Nothing new for it while its last call is taken care of.
        self.feed(now, Input::AgentDrained(agent));
        if let Some((task, lease)) = running.and_then(|lease| {
            let (task, _) = *self.leases.get(&lease)?;
            Some((task, lease))
        }) {
            self.leases.remove(&lease);
            let outcome = Outcome::Failed(Failure::Permanent);
            self.feed(
                now,
                Input::TaskFinished {
                    task,
                    lease,
                    outcome,
                },
            );
        }
        let tasks = Leftovers::Requeue;
        self.feed(now, Input::AgentLeft { agent, tasks });
        self.lines.remove(&agent);
        self.leases.retain(|_, (_, holder)| *holder != agent);
        self.dying = None;
        self.events.push(Event::Gone(agent, is_ready));
    }

    /// Asks every process to go once it has done what it has.
    pub(crate) fn stop_lines(&mut self) {
        for (agent, line) in &mut self.lines {
            wire::put(&mut line.outbox, Kind::Stop, 0, 0, &[]);
            self.dirty.push(*agent);
        }
    }

    /// What is to be written, and where. Whoever writes locks the stream first and then asks.
    pub(crate) fn dirty_streams(&mut self) -> Vec<(AgentId, Arc<Mutex<UnixStream>>)> {
        let mut dirty = mem::take(&mut self.dirty);
        dirty.sort_unstable();
        dirty.dedup();
        let streams = dirty.into_iter().filter_map(|agent| {
            let line = self.lines.get(&agent)?;
            (!line.outbox.is_empty()).then(|| (agent, Arc::clone(&line.stream)))
        });
        streams.collect()
    }

    /// How many bytes are to be written.
    pub(crate) fn outbox_len(&self) -> usize {
        let dirty = self.dirty.iter().filter_map(|agent| self.lines.get(agent));
        dirty.map(|line| line.outbox.len()).sum()
    }

    pub(crate) fn stream(&self, agent: AgentId) -> Option<Arc<Mutex<UnixStream>>> {
        Some(Arc::clone(&self.lines.get(&agent)?.stream))
    }

    pub(crate) fn take_outbox(&mut self, agent: AgentId) -> Vec<u8> {
        self.lines
            .get_mut(&agent)
            .map(|line| mem::take(&mut line.outbox))
            .unwrap_or_default()
    }

    /// Takes in a frame from a process.
    pub(crate) fn handle(&mut self, now: Time, agent: AgentId, frame: Frame) {
        let lease = Lease(frame.number);
        match frame.kind {
            Kind::Value | Kind::Raised => {
                let answer = Answer {
                    is_value: frame.kind == Kind::Value,
                    payload: frame.payload,
                    nanos: frame.extra,
                };
                self.answered(now, agent, lease, answer);
            }
            Kind::Yielded => self.yielded(now, agent, lease),
            Kind::Kept => self.kept(now, lease),
            Kind::Ready => self.ready(now, agent),
            Kind::Unfit => self.events.push(Event::Unfit(agent, frame.payload)),
            Kind::Retired => {
                if let Some(line) = self.lines.get_mut(&agent) {
                    line.is_retired = true;
                }
                self.feed(now, Input::AgentDrained(agent));
            }
            Kind::Setup
            | Kind::Function
            | Kind::Call
            | Kind::Retract
            | Kind::Interrupt
            | Kind::Stop => unreachable!("a process sent what only a hub sends"),
        }
    }

    fn ready(&mut self, now: Time, agent: AgentId) {
        if let Some(line) = self.lines.get_mut(&agent) {
            line.is_ready = true;
            let spec = AgentSpec {
                dispatch: Dispatch::KeepFull,
                ..AgentSpec::new(agent, SkillSet::none())
            };
            self.feed(now, Input::AgentJoined(spec));
            self.events.push(Event::Ready(agent));
        }
    }

    fn answered(&mut self, now: Time, agent: AgentId, lease: Lease, answer: Answer) {
        let Some(line) = self.lines.get_mut(&agent) else {
            return;
        };
        line.busy_ns += answer.nanos;
        self.settle(now, agent, lease);
        // An answer to a lease that is no longer in force is old news.
        let Some((task, _)) = self.leases.remove(&lease) else {
            return;
        };
        if let Some(call) = self.calls.get(&task) {
            self.figures.ran(call.items, answer.nanos);
        }
        self.answer = Some(answer);
        let outcome = Outcome::Succeeded;
        self.feed(
            now,
            Input::TaskFinished {
                task,
                lease,
                outcome,
            },
        );
        self.answer = None;
        let (core, lines) = (&self.core, &self.lines);
        let depths = lines
            .iter()
            .map(|(id, line)| core.queue_len(*id).unwrap_or(0) + line.sent.len().saturating_sub(1));
        self.figures.sample(depths);
    }

    fn yielded(&mut self, now: Time, agent: AgentId, lease: Lease) {
        self.settle(now, agent, lease);
        let Some((task, _)) = self.leases.remove(&lease) else {
            return;
        };
        if self.cancelling.remove(&task) {
            return self.feed(now, Input::CancelRequested(Selection::Task(task)));
        }
        let yielded = true;
        self.feed(
            now,
            Input::TaskYielded {
                task,
                lease,
                yielded,
            },
        );
    }

    fn kept(&mut self, now: Time, lease: Lease) {
        let Some((task, _)) = self.leases.get(&lease).copied() else {
            return;
        };
        self.cancelling.remove(&task);
        let yielded = false;
        self.feed(
            now,
            Input::TaskYielded {
                task,
                lease,
                yielded,
            },
        );
    }

    /// A process has answered for a lease: if it was running, the next one is.
    fn settle(&mut self, now: Time, agent: AgentId, lease: Lease) {
        let Some(line) = self.lines.get_mut(&agent) else {
            return;
        };
        let was_first = line.sent.front() == Some(&lease);
        line.sent.retain(|other| *other != lease);
        if was_first && let Some(next) = line.sent.front().copied() {
            self.started(now, next);
        }
    }

    fn started(&mut self, now: Time, lease: Lease) {
        if let Some((task, _)) = self.leases.get(&lease).copied() {
            self.feed(now, Input::TaskStarted { task, lease });
        }
    }

    // Calls.

    pub(crate) fn define(&mut self, function: Arc<[u8]>) -> u64 {
        self.next_function += 1;
        self.functions.insert(self.next_function, function);
        self.next_function
    }

    /// A function is not used any more.
    pub(crate) fn forget(&mut self, function: u64) {
        self.functions.remove(&function);
        for line in self.lines.values_mut() {
            line.known.remove(&function);
        }
    }

    pub(crate) fn submit(
        &mut self,
        now: Time,
        function: u64,
        shape: u8,
        items: u32,
        payload: Arc<[u8]>,
        wishes: &Wishes,
    ) -> TaskId {
        self.next_call += 1;
        let id = TaskId(self.next_call);
        let kind = self.kind(wishes, function);
        self.figures.begin();
        self.calls.insert(
            id,
            Call {
                function,
                shape,
                items,
                payload,
            },
        );
        let task = TaskSpec {
            priority: wishes.priority,
            cost: wishes.cost,
            ..TaskSpec::new(id, kind)
        };
        let job = JobSpec::new(JobId(id.0));
        let tasks = vec![task];
        self.feed(now, Input::TasksSubmitted { job, tasks });
        id
    }

    /// Calls of one function are of one kind where it matters how long such calls take.
    fn kind(&mut self, wishes: &Wishes, function: u64) -> Arc<TaskKind> {
        let key = (wishes.time_limit, wishes.speculate.then_some(function));
        let make = || {
            Arc::new(TaskKind {
                time_limit: wishes.time_limit,
                speculate: wishes.speculate,
                // A group without a limit only tells functions apart.
                group: key.1.map(|function| GroupId(function as u32)),
                ..TaskKind::default()
            })
        };
        Arc::clone(self.kinds.entry(key).or_insert_with(make))
    }

    pub(crate) fn is_running(&self, task: TaskId) -> bool {
        self.calls.contains_key(&task)
            && self
                .core
                .task_status(task)
                .is_some_and(|status| matches!(status.place, Place::Running { .. }))
    }

    /// Begins to cancel a call. True when it is cancelled, false when it cannot be; nothing when a
    /// process was asked to give it back: then it is over soon, or it is no longer
    /// [`is_cancelling`](Self::is_cancelling).
    pub(crate) fn cancel(&mut self, now: Time, task: TaskId) -> Option<bool> {
        if !self.calls.contains_key(&task) {
            return Some(false);
        }
        let status = self.core.task_status(task);
        match status.map(|status| status.place) {
            None | Some(Place::Running { .. }) => Some(false),
            Some(Place::Leased { agent, lease, .. }) => {
                let line = self.lines.get_mut(&agent)?;
                self.cancelling.insert(task);
                wire::put(&mut line.outbox, Kind::Retract, lease.0, 0, &[]);
                self.dirty.push(agent);
                None
            }
            Some(_) => {
                self.feed(now, Input::CancelRequested(Selection::Task(task)));
                Some(true)
            }
        }
    }

    pub(crate) fn is_cancelling(&self, task: TaskId) -> bool {
        self.cancelling.contains(&task)
    }

    pub(crate) fn is_live(&self, task: TaskId) -> bool {
        self.calls.contains_key(&task)
    }

    pub(crate) fn busy_ns(&self) -> Vec<u64> {
        self.lines.values().map(|line| line.busy_ns).collect()
    }

    pub(crate) fn steals(&self) -> (u64, u64) {
        let metrics = self.core.metrics();
        (metrics.successful_steals, metrics.speculations)
    }

    // The core.

    fn feed(&mut self, now: Time, input: Input) {
        let mut next = vec![input];
        while let Some(input) = next.pop() {
            let mut actions = mem::take(&mut self.actions);
            self.core.handle(now, input, &mut actions);
            for action in actions.drain(..) {
                self.carry_out(action, &mut next);
            }
            self.actions = actions;
        }
    }

    fn carry_out(&mut self, action: Action, next: &mut Vec<Input>) {
        match action {
            Action::Assign {
                task, agent, lease, ..
            } => self.send(task, agent, lease, next),
            Action::Retract {
                task, agent, lease, ..
            } => {
                let line = self.lines.get_mut(&agent);
                match line.filter(|line| line.sent.front() != Some(&lease)) {
                    Some(line) => {
                        wire::put(&mut line.outbox, Kind::Retract, lease.0, 0, &[]);
                        self.dirty.push(agent);
                    }
                    None => next.push(Input::TaskYielded {
                        task,
                        lease,
                        yielded: false,
                    }),
                }
            }
            Action::Cancel { agent, lease, .. } => {
                self.leases.remove(&lease);
                let Some(line) = self.lines.get_mut(&agent) else {
                    return;
                };
                if let Some(at) = line.sent.iter().position(|sent| *sent == lease) {
                    // The process knows best whether it has begun.
                    let kind = match at {
                        0 => Kind::Interrupt,
                        _ => Kind::Retract,
                    };
                    wire::put(&mut line.outbox, kind, lease.0, 0, &[]);
                    self.dirty.push(agent);
                }
            }
            Action::Report(Report::Finished { task, ending, .. }) => self.finish(task, ending),
            Action::Report(_) | Action::SetTimer { .. } => {}
        }
    }

    fn send(&mut self, task: TaskId, agent: AgentId, lease: Lease, next: &mut Vec<Input>) {
        let call = &self.calls[&task];
        let line = self
            .lines
            .get_mut(&agent)
            .expect("the core gave a call to a process that is not there");
        if line.known.insert(call.function) {
            let function = &self.functions[&call.function];
            wire::put(&mut line.outbox, Kind::Function, call.function, 0, function);
        }
        let extra = call.function << 8 | u64::from(call.shape);
        wire::put(&mut line.outbox, Kind::Call, lease.0, extra, &call.payload);
        line.sent.push_back(lease);
        self.leases.insert(lease, (task, agent));
        if line.sent.len() == 1 {
            next.push(Input::TaskStarted { task, lease });
        }
        self.dirty.push(agent);
    }

    fn finish(&mut self, task: TaskId, ending: Ending) {
        self.calls.remove(&task);
        self.cancelling.remove(&task);
        let event = match ending {
            Ending::Succeeded { .. } => {
                let answer = self.answer.take().expect("an answer led to this");
                if answer.is_value {
                    Event::Value(task, answer.payload, answer.nanos)
                } else {
                    Event::Raised(task, answer.payload, answer.nanos)
                }
            }
            Ending::Failed(Failure::TimeLimit) => Event::TimedOut(task),
            Ending::Failed(_) => Event::Lost(task, self.dying),
            Ending::Cancelled | Ending::FellBack { .. } | Ending::Returned => {
                Event::Cancelled(task)
            }
        };
        self.events.push(event);
    }
}

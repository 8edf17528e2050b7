//! The fleet world [X4]: simulated agents around the real scheduler.
//!
//! ```text
//!   submissions ──┐                        ┌── Assign, Retract, Cancel ──> network ──> agents
//!   network ──────┼─> Scheduler::handle ───┤
//!   timer ────────┘                        ├── SetTimer
//!                                          └── Report ──> books, observers
//! ```
//!
//! Nothing stands in for the scheduler: every decision is made by `loxley_policy::Scheduler`, fed
//! through `handle` as the server feeds it. What is simulated is the rest: agents with their speeds
//! and failures, and messages that are late, repeated, overtaken or held up by a partition.
//!
//! What must stay true: the world never asks the scheduler anything to decide what happens next,
//! and every source of chance has its own generator.

mod agent_model;
mod setup;

use std::collections::VecDeque;
use std::sync::Arc;

use loxley_balance::Rng;
use loxley_model::{AgentId, Dispatch, Failure, Lease, Outcome, Span, TaskId, TaskSpec, Time};
use loxley_policy::{
    Action, Ending, Input, InputError, Reason, Report, Scheduler, Selection, Vitals,
};

use self::agent_model::{AgentModel, GiveUp, Held, Running};
pub use self::setup::{AgentSetup, Fault, FleetLoad, FleetSetup, FleetTasks, Network, TaskGroup};
use crate::event_queue::EventQueue;
use crate::observer::{Happening, Observer};
use crate::statistics::{RunStatistics, WorkerTotals};
use crate::time::Nanos;

/// How a run ended.
#[derive(Debug)]
pub struct FleetOutcome {
    /// What it came to.
    pub statistics: RunStatistics,
    /// Tasks that were submitted and are not over, with the scheduler's own words about each; only
    /// when the run was cut off by its time limit.
    pub unfinished: Vec<(u64, String)>,
}

/// Runs `setup` with `seed` until all tasks are over (or its time limit passes).
pub fn run<O: Observer>(setup: &FleetSetup, seed: u64, observer: &mut O) -> FleetOutcome {
    let mut world = FleetWorld::new(setup, seed, observer);
    world.run_to_end();
    world.into_outcome()
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// The next submission is due.
    Submit,
    /// The scheduler's timer, set for this moment.
    Timer,
    /// A message arrives.
    Deliver(u32),
    /// An agent is done with a task.
    Finish(u32, Lease),
    /// An agent sends a heartbeat, in this session.
    Heartbeat(u32, u32),
    /// An agent with a free slot asks for work.
    Ask(u32),
    /// Something goes wrong or gets well.
    Fault(u32),
}

/// What travels between the scheduler and an agent.
#[derive(Debug, Clone, Copy)]
struct Message {
    agent: u32,
    session: u32,
    body: Body,
}

#[derive(Debug, Clone, Copy)]
enum Body {
    // To the agent.
    Assign(Held),
    Retract(Held, bool),
    Cancel(Held),
    Rejoin,
    // To the scheduler.
    /// Registers, and wants so many tasks at once.
    Join(u32),
    Heartbeat,
    Want(u32),
    Started(Held),
    Finished(Held, bool),
    Yielded(Held, bool),
}

impl Body {
    fn is_for_agent(&self) -> bool {
        matches!(
            self,
            Self::Assign(_) | Self::Retract(..) | Self::Cancel(_) | Self::Rejoin
        )
    }
}

/// The world's own books about a task.
#[derive(Debug, Clone, Copy)]
struct TaskBooks {
    ready: Nanos,
    missing: u32,
    runs: u32,
    /// On whose queue or in whose backlog it waits.
    at: u32,
    first_start: Nanos,
    /// Work that is done and saved in a checkpoint.
    saved: Nanos,
    over: bool,
}

const NOWHERE: u32 = u32::MAX;
const NEVER: Nanos = Nanos::MAX;

struct FleetWorld<'a, O> {
    setup: &'a FleetSetup,
    observer: &'a mut O,
    scheduler: Scheduler,
    actions: Vec<Action>,
    now: Nanos,
    events: EventQueue<Event>,
    tasks: Arc<FleetTasks>,
    books: Vec<TaskBooks>,
    successors: Vec<Vec<u32>>,
    next_submission: usize,
    agents: Vec<AgentModel>,
    totals: Vec<WorkerTotals>,
    /// Messages under way, and free places among them.
    messages: Vec<Message>,
    free: Vec<u32>,
    /// Messages that arrive at this very moment, in order.
    at_once: VecDeque<Message>,
    network: Network,
    timer: Nanos,
    unfinished: usize,
    statistics: RunStatistics,
    queue_lengths: Vec<u32>,
    sampled: (Nanos, u64),
    chance: Chance,
    capacity_left: f64,
}

/// One generator for each source of chance.
struct Chance {
    to_agent: Rng,
    to_scheduler: Rng,
    failures: Rng,
    stragglers: Rng,
    heartbeats: Rng,
    skew: Rng,
}

impl<'a, O: Observer> FleetWorld<'a, O> {
    fn new(setup: &'a FleetSetup, seed: u64, observer: &'a mut O) -> Self {
        let root = Rng::new(seed);
        let tasks = setup.tasks(&root);
        let careful = !setup.network.is_instant() || !setup.faults.is_empty();
        let mut world = Self {
            scheduler: Scheduler::new(setup.config.clone(), Time::ZERO),
            actions: Vec::new(),
            now: 0,
            events: EventQueue::new(),
            books: Vec::new(),
            successors: Vec::new(),
            next_submission: 0,
            agents: setup
                .agents
                .iter()
                .map(|agent| AgentModel::new(agent.true_speed, careful))
                .collect(),
            totals: setup.agents.iter().map(totals).collect(),
            messages: Vec::new(),
            free: Vec::new(),
            at_once: VecDeque::new(),
            network: setup.network,
            timer: NEVER,
            unfinished: tasks.specs.len(),
            statistics: RunStatistics::default(),
            queue_lengths: vec![0; setup.agents.len()],
            sampled: (0, 0),
            chance: Chance {
                to_agent: root.child("network to agents"),
                to_scheduler: root.child("network to scheduler"),
                failures: root.child("failures"),
                stragglers: root.child("stragglers"),
                heartbeats: root.child("heartbeats"),
                skew: root.child("clock"),
            },
            capacity_left: 0.0,
            tasks,
            setup,
            observer,
        };
        world.capacity_left = setup.top_speed();
        world.open_books();
        world.plan_beginning();
        world
    }

    /// Books of every task, and the bounds of the whole run.
    fn open_books(&mut self) {
        let tasks = Arc::clone(&self.tasks);
        let top_speed = self.capacity_left.max(f64::MIN_POSITIVE);
        let has_edges = tasks.specs.iter().any(|spec| !spec.dependencies.is_empty());
        if has_edges {
            self.successors = vec![Vec::new(); tasks.specs.len()];
        }
        for (id, spec) in tasks.specs.iter().enumerate() {
            self.books.push(TaskBooks {
                ready: NEVER,
                missing: spec.dependencies.len() as u32,
                runs: 0,
                at: NOWHERE,
                first_start: NEVER,
                saved: 0,
                over: false,
            });
            for before in &spec.dependencies {
                self.successors[before.0 as usize].push(id as u32);
            }
        }
        let mut ends = vec![0; if has_edges { tasks.specs.len() } else { 0 }];
        let mut longest = 0;
        let mut task = 0;
        for (release, _, end) in &tasks.submissions {
            while task < *end {
                let before = (tasks.specs[task].dependencies.iter())
                    .map(|before| ends[before.0 as usize])
                    .max()
                    .unwrap_or(0);
                let finish =
                    (*release).max(before) + (tasks.work[task] as f64 / top_speed) as Nanos;
                if has_edges {
                    ends[task] = finish;
                }
                longest = longest.max(finish);
                task += 1;
            }
        }
        self.statistics.critical_path = longest;
        self.statistics.total_work = tasks.work.iter().sum();
        self.statistics.submitted = tasks.specs.len() as u64;
    }

    fn plan_beginning(&mut self) {
        for (index, (at, _)) in self.setup.faults.iter().enumerate() {
            self.events.push(*at, Event::Fault(index as u32));
        }
        for agent in 0..self.agents.len() as u32 {
            let joins = self.setup.agents[agent as usize].joins;
            if joins == 0 {
                self.start_agent(agent);
            }
        }
        self.drain();
        for agent in 0..self.agents.len() as u32 {
            let joins = self.setup.agents[agent as usize].joins;
            if joins > 0 {
                let late = self.late_join(agent);
                self.events.push(joins, Event::Deliver(late));
            }
        }
        if let Some((release, ..)) = self.tasks.submissions.first() {
            self.events.push(*release, Event::Submit);
        }
    }

    /// A place in the list of messages that means "this agent starts".
    fn late_join(&mut self, agent: u32) -> u32 {
        self.store(Message {
            agent,
            session: 0,
            body: Body::Join(0),
        })
    }

    fn run_to_end(&mut self) {
        let until = self.setup.until.unwrap_or(NEVER);
        while self.unfinished > 0 {
            let Some((now, event)) = self.events.pop() else {
                return;
            };
            if now > until {
                return;
            }
            self.statistics.events += 1;
            if now > self.now {
                self.sample_queues(now);
                self.now = now;
            }
            self.happen(event);
            self.drain();
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Submit => self.submit(),
            Event::Timer => {
                if self.timer == self.now {
                    self.timer = NEVER;
                    self.tell(Input::Tick);
                }
            }
            Event::Deliver(place) => {
                let message = self.messages[place as usize];
                self.free.push(place);
                self.deliver(message);
            }
            Event::Finish(agent, lease) => self.finish(agent, lease),
            Event::Heartbeat(agent, session) => self.heartbeat(agent, session),
            Event::Ask(agent) => self.ask_for_work(agent),
            Event::Fault(index) => {
                let setup = self.setup;
                self.fault(&setup.faults[index as usize].1);
            }
        }
    }

    /// Delivers what arrives at once.
    fn drain(&mut self) {
        while let Some(message) = self.at_once.pop_front() {
            self.deliver(message);
        }
    }

    fn sample_queues(&mut self, now: Nanos) {
        let (last, events) = self.sampled;
        if self.statistics.events >= events + self.queue_lengths.len() as u64 {
            let lengths = self.queue_lengths.iter().map(|length| *length as usize);
            self.statistics.queue_depths.sample_for(now - last, lengths);
            self.sampled = (now, self.statistics.events);
        }
    }

    fn into_outcome(mut self) -> FleetOutcome {
        let (last, _) = self.sampled;
        if self.now > last {
            let lengths = self.queue_lengths.iter().map(|length| *length as usize);
            self.statistics
                .queue_depths
                .sample_for(self.now - last, lengths);
        }
        let unfinished = self.unfinished_tasks();
        self.statistics.makespan = self.now;
        self.statistics.workers = self.totals;
        FleetOutcome {
            statistics: self.statistics,
            unfinished,
        }
    }

    fn unfinished_tasks(&self) -> Vec<(u64, String)> {
        const SHOWN: usize = 5;
        let open = self
            .books
            .iter()
            .enumerate()
            .filter(|(_, books)| !books.over);
        open.take(SHOWN)
            .map(|(id, _)| {
                let words = self.scheduler.explain(TaskId(id as u64)).map_or_else(
                    || "the scheduler does not know it".to_owned(),
                    |explanation| format!("{explanation:?}"),
                );
                (id as u64, words)
            })
            .collect()
    }
}

/// The scheduler and what it answers.
impl<O: Observer> FleetWorld<'_, O> {
    fn tell(&mut self, input: Input) {
        // A timer that is due is due: only what comes from outside is stamped by a wrong clock.
        let skew = match self.setup.clock_skew {
            0 => 0,
            _ if input == Input::Tick => 0,
            skew => self.chance.skew.below(skew + 1),
        };
        let mut actions = std::mem::take(&mut self.actions);
        let time = Time(self.now.saturating_sub(skew));
        self.scheduler.handle(time, input, &mut actions);
        for action in actions.drain(..) {
            self.carry_out(action);
        }
        self.actions = actions;
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Assign {
                task,
                agent,
                lease,
                reason,
                ..
            } => {
                self.note_place(task, agent, reason);
                self.send(agent.0 as u32, Body::Assign(Held { task, lease }));
            }
            Action::Retract {
                task,
                agent,
                lease,
                running,
            } => self.send(agent.0 as u32, Body::Retract(Held { task, lease }, running)),
            Action::Cancel {
                task, agent, lease, ..
            } => {
                self.note_withdrawal(task, agent.0 as u32);
                self.send(agent.0 as u32, Body::Cancel(Held { task, lease }));
            }
            Action::SetTimer { at } => {
                self.timer = at.0.max(self.now + 1);
                self.events.push(self.timer, Event::Timer);
            }
            Action::Report(report) => self.note_report(report),
        }
    }

    fn note_report(&mut self, report: Report) {
        match report {
            Report::Queued {
                task,
                agent,
                reason,
            } => self.note_place(task, agent, reason),
            Report::Finished { task, ending, .. } => self.note_ending(task, ending),
            Report::DeadlineLost { .. } => self.statistics.deadline_misses += 1,
            Report::AgentLost(agent) => {
                self.observer.see(
                    self.now,
                    &Happening::Lost {
                        worker: agent.0 as u32,
                    },
                );
            }
            Report::Rejected(InputError::UnknownAgent(agent)) => {
                // It was given up while it was away; told so, it registers again.
                self.send(agent.0 as u32, Body::Rejoin);
            }
            Report::Refused { job, .. } => self.note_refusal(job.0 as usize),
            _ => {}
        }
    }

    /// A whole submission was refused (a dependency had failed before, say): its tasks are over.
    fn note_refusal(&mut self, submission: usize) {
        let end = self.tasks.submissions[submission].2;
        let start = match submission {
            0 => 0,
            later => self.tasks.submissions[later - 1].2,
        };
        for task in start..end {
            self.note_ending(TaskId(task as u64), Ending::Cancelled);
        }
    }

    /// A task waits at an agent now, on its queue or in its backlog.
    fn note_place(&mut self, task: TaskId, agent: AgentId, reason: Reason) {
        let to = agent.0 as u32;
        let books = &mut self.books[task.0 as usize];
        let from = std::mem::replace(&mut books.at, to);
        if from == to {
            return;
        }
        self.queue_lengths[to as usize] += 1;
        let totals = &mut self.totals[to as usize];
        totals.queue_max = totals
            .queue_max
            .max(self.queue_lengths[to as usize] as usize);
        let task = task.0;
        if from == NOWHERE {
            self.observer
                .see(self.now, &Happening::Queued { worker: to, task });
            return;
        }
        self.queue_lengths[from as usize] -= 1;
        let stolen = matches!(reason, Reason::Stolen(_) | Reason::Rebalanced(_));
        if stolen {
            self.totals[to as usize].stolen += 1;
            self.totals[to as usize].searches += 1;
            self.totals[from as usize].robbed += 1;
            self.statistics.successful_searches += 1;
        }
        self.observer.see(
            self.now,
            &Happening::Moved {
                from,
                to,
                task,
                stolen,
            },
        );
    }

    fn note_withdrawal(&mut self, task: TaskId, agent: u32) {
        let books = &mut self.books[task.0 as usize];
        if books.at == agent {
            books.at = NOWHERE;
            self.queue_lengths[agent as usize] -= 1;
            let task = task.0;
            self.observer.see(
                self.now,
                &Happening::Withdrawn {
                    worker: agent,
                    task,
                },
            );
        }
    }

    fn note_ending(&mut self, task: TaskId, ending: Ending) {
        let ok = matches!(ending, Ending::Succeeded { .. } | Ending::FellBack { .. });
        let by = match ending {
            Ending::Succeeded { agent, .. } => Some(agent.0 as u32),
            _ => None,
        };
        if let Some(agent) = by {
            self.totals[agent as usize].executed += 1;
        }
        let at = self.books[task.0 as usize].at;
        if at != NOWHERE {
            self.note_withdrawal(task, at);
        }
        let books = &mut self.books[task.0 as usize];
        if !books.over {
            books.over = true;
            self.unfinished -= 1;
        }
        self.statistics.failed += u64::from(!ok);
        self.statistics.repeated += u64::from(books.runs > 1);
        if ok && books.ready <= self.now {
            self.statistics.responses.record(self.now - books.ready);
        }
        let task_number = task.0;
        self.observer.see(
            self.now,
            &Happening::Ended {
                task: task_number,
                ok,
                by,
            },
        );
        if ok && !self.successors.is_empty() {
            for index in 0..self.successors[task.0 as usize].len() {
                let successor = self.successors[task.0 as usize][index];
                let books = &mut self.books[successor as usize];
                books.missing = books.missing.saturating_sub(1);
                if books.missing == 0 {
                    books.ready = self.now;
                }
            }
        }
    }

    fn submit(&mut self) {
        let tasks = Arc::clone(&self.tasks);
        let (_, job, end) = tasks.submissions[self.next_submission];
        let start = match self.next_submission {
            0 => 0,
            next => tasks.submissions[next - 1].2,
        };
        self.next_submission += 1;
        if let Some((next, ..)) = tasks.submissions.get(self.next_submission) {
            self.events.push(*next, Event::Submit);
        }
        for task in start..end {
            let books = &mut self.books[task];
            if books.missing == 0 {
                books.ready = self.now;
            }
            self.observer
                .see(self.now, &Happening::Submitted { task: task as u64 });
        }
        let specs: Vec<TaskSpec> = tasks.specs[start..end].to_vec();
        self.tell(Input::TasksSubmitted { job, tasks: specs });
    }
}

/// The network.
impl<O: Observer> FleetWorld<'_, O> {
    fn send(&mut self, agent: u32, body: Body) {
        let to_agent = body.is_for_agent();
        let model = &self.agents[agent as usize];
        // The scheduler addresses the session it knows; the agent speaks in the one it is in.
        let session = if to_agent {
            model.known_session
        } else {
            model.session
        };
        let message = Message {
            agent,
            session,
            body,
        };
        if !self.agents[agent as usize].connected {
            let place = self.store(message);
            self.agents[agent as usize].waiting.push(place);
            return;
        }
        if self.network.is_instant() {
            self.at_once.push_back(message);
            return;
        }
        self.transmit(message, to_agent);
        let rng = if to_agent {
            &mut self.chance.to_agent
        } else {
            &mut self.chance.to_scheduler
        };
        if rng.chance(self.network.duplicate) {
            self.transmit(message, to_agent);
        }
    }

    fn transmit(&mut self, message: Message, to_agent: bool) {
        let rng = if to_agent {
            &mut self.chance.to_agent
        } else {
            &mut self.chance.to_scheduler
        };
        let mut arrival = self.now + self.network.draw(rng);
        if !self.network.reorder {
            let last = &mut self.agents[message.agent as usize].arrivals[usize::from(to_agent)];
            arrival = arrival.max(*last);
            *last = arrival;
        }
        let place = self.store(message);
        self.events.push(arrival, Event::Deliver(place));
    }

    fn store(&mut self, message: Message) -> u32 {
        if let Some(place) = self.free.pop() {
            self.messages[place as usize] = message;
            return place;
        }
        self.messages.push(message);
        (self.messages.len() - 1) as u32
    }

    fn deliver(&mut self, message: Message) {
        let Message {
            agent,
            session,
            body,
        } = message;
        if session == 0 && matches!(body, Body::Join(_)) {
            return self.start_agent(agent);
        }
        if !self.agents[agent as usize].connected {
            let place = self.store(message);
            self.agents[agent as usize].waiting.push(place);
            return;
        }
        if body.is_for_agent() {
            self.deliver_to_agent(agent, session, body);
        } else {
            self.deliver_to_scheduler(agent, session, body);
        }
    }

    /// A server keeps one session per agent: what an older one says of the agent itself is not
    /// news. What it says of a task is passed on, for the lease decides.
    fn deliver_to_scheduler(&mut self, agent: u32, session: u32, body: Body) {
        let id = AgentId(u64::from(agent));
        let known = self.agents[agent as usize].known_session;
        let input = match body {
            Body::Join(want) if session > known => {
                self.agents[agent as usize].known_session = session;
                let spec = self.setup.agents[agent as usize].spec.clone();
                self.tell(Input::AgentJoined(spec));
                Input::WorkRequested { agent: id, want }
            }
            Body::Heartbeat if session == known => Input::AgentHeard {
                agent: id,
                vitals: Vitals {
                    throttle: 0.0,
                    round_trip: Span(crate::time::nanos(2.0 * self.network.delay.mean())),
                },
            },
            Body::Want(want) if session == known => Input::WorkRequested { agent: id, want },
            Body::Started(held) => Input::TaskStarted {
                task: held.task,
                lease: held.lease,
            },
            Body::Finished(held, ok) => Input::TaskFinished {
                task: held.task,
                lease: held.lease,
                outcome: if ok {
                    Outcome::Succeeded
                } else {
                    Outcome::Failed(Failure::Error)
                },
            },
            Body::Yielded(held, yielded) => Input::TaskYielded {
                task: held.task,
                lease: held.lease,
                yielded,
            },
            _ => return,
        };
        self.tell(input);
    }
}

/// The agents.
impl<O: Observer> FleetWorld<'_, O> {
    fn start_agent(&mut self, agent: u32) {
        let model = &mut self.agents[agent as usize];
        if model.up {
            return;
        }
        model.up = true;
        self.observer
            .see(self.now, &Happening::Joined { worker: agent });
        self.register(agent);
    }

    fn register(&mut self, agent: u32) {
        let model = &mut self.agents[agent as usize];
        model.begin_session();
        let session = model.session;
        let spec = &self.setup.agents[agent as usize].spec;
        let want = match spec.dispatch {
            Dispatch::OnRequest => spec.slots,
            Dispatch::KeepFull => 0,
        };
        self.send(agent, Body::Join(want));
        if let Some(interval) = self.setup.agents[agent as usize].heartbeat {
            let jitter = self.chance.heartbeats.below(interval.max(1));
            self.events
                .push(self.now + jitter, Event::Heartbeat(agent, session));
        }
    }

    fn heartbeat(&mut self, agent: u32, session: u32) {
        let model = &self.agents[agent as usize];
        if !model.up || model.session != session {
            return;
        }
        self.send(agent, Body::Heartbeat);
        if let Some(interval) = self.setup.agents[agent as usize].heartbeat {
            self.events
                .push(self.now + interval, Event::Heartbeat(agent, session));
        }
    }

    fn ask_for_work(&mut self, agent: u32) {
        let spec = &self.setup.agents[agent as usize].spec;
        if spec.dispatch == Dispatch::OnRequest && self.agents[agent as usize].up {
            let want = self.agents[agent as usize].free_slots(spec.slots);
            if want > 0 {
                self.send(agent, Body::Want(want));
            }
        }
    }

    fn deliver_to_agent(&mut self, agent: u32, session: u32, body: Body) {
        let model = &mut self.agents[agent as usize];
        if !model.up || model.session != session {
            return;
        }
        match body {
            Body::Assign(held) => {
                if model.take(held) {
                    self.run_next(agent);
                }
            }
            Body::Retract(held, running) => self.give_back(agent, held, running),
            Body::Cancel(held) => {
                if model.give_up(held.lease) == GiveUp::Running {
                    self.stop(agent, held.lease);
                    self.run_next(agent);
                }
                self.ask_for_work(agent);
            }
            Body::Rejoin => {
                self.stop_everything(agent);
                self.register(agent);
            }
            _ => unreachable!("{body:?} is not for an agent"),
        }
    }

    fn give_back(&mut self, agent: u32, held: Held, running: bool) {
        let yielded = match self.agents[agent as usize].give_up(held.lease) {
            GiveUp::Waiting | GiveUp::Unseen => true,
            GiveUp::Running if running => {
                self.save_checkpoint(agent, held.lease);
                self.stop(agent, held.lease);
                self.run_next(agent);
                true
            }
            GiveUp::Running | GiveUp::Gone => false,
        };
        self.send(agent, Body::Yielded(held, yielded));
        self.ask_for_work(agent);
    }

    /// Notes what a running task has done so far; whoever runs it next goes on from there.
    fn save_checkpoint(&mut self, agent: u32, lease: Lease) {
        let model = &self.agents[agent as usize];
        let Some(run) = model.running.iter().find(|run| run.held.lease == lease) else {
            return;
        };
        let task = run.held.task.0 as usize;
        if self.tasks.specs[task].kind.checkpoints {
            let done = self.tasks.work[task] - run.left_at(self.now);
            let saved = &mut self.books[task].saved;
            *saved = (*saved).max(done);
        }
    }

    fn run_next(&mut self, agent: u32) {
        let setup = &self.setup.agents[agent as usize];
        while let Some(held) = self.agents[agent as usize].next_to_run(setup.spec.slots) {
            let run = self.begin_run(agent, held);
            self.agents[agent as usize].running.push(run);
            self.note_start(agent, held.task);
            self.events.push(run.ends, Event::Finish(agent, held.lease));
            self.send(agent, Body::Started(held));
        }
    }

    fn begin_run(&mut self, agent: u32, held: Held) -> Running {
        let task = held.task.0 as usize;
        let left = self.tasks.work[task] - self.books[task].saved;
        let duration = self.duration(agent, left);
        Running::new(held, self.now, left, duration)
    }

    fn duration(&mut self, agent: u32, work: Nanos) -> Nanos {
        let (chance, factor) = self.setup.agents[agent as usize].straggler;
        let speed = self.agents[agent as usize].speed;
        let mut duration = work as f64 / speed;
        if chance > 0.0 && self.chance.stragglers.chance(chance) {
            duration *= factor;
        }
        libm::ceil(duration) as Nanos
    }

    fn note_start(&mut self, agent: u32, task: TaskId) {
        let books = &mut self.books[task.0 as usize];
        books.runs += 1;
        if books.at == agent {
            books.at = NOWHERE;
            self.queue_lengths[agent as usize] -= 1;
        }
        if books.first_start == NEVER && books.ready <= self.now {
            books.first_start = self.now;
            self.statistics.waits.record(self.now - books.ready);
        }
        self.observer.see(
            self.now,
            &Happening::Started {
                worker: agent,
                task: task.0,
            },
        );
    }

    fn finish(&mut self, agent: u32, lease: Lease) {
        let Some(run) = self.agents[agent as usize].finish(lease, self.now) else {
            return; // It was stopped before its end, or its end has moved.
        };
        let took = self.now - run.started;
        self.totals[agent as usize].busy += took;
        self.statistics.durations.record(took);
        let failure = self.setup.agents[agent as usize].failure;
        let ok = !(failure > 0.0 && self.chance.failures.chance(failure));
        self.observer.see(
            self.now,
            &Happening::Finished {
                worker: agent,
                task: run.held.task.0,
                ok,
            },
        );
        self.send(agent, Body::Finished(run.held, ok));
        self.run_next(agent);
        self.ask_after_the_news(agent);
    }

    /// Where nothing takes any time, all that ends at this moment is told before anybody asks.
    fn ask_after_the_news(&mut self, agent: u32) {
        let asks = self.setup.agents[agent as usize].spec.dispatch == Dispatch::OnRequest;
        if asks && self.network.is_instant() {
            self.events.push(self.now, Event::Ask(agent));
        } else {
            self.ask_for_work(agent);
        }
    }

    fn stop(&mut self, agent: u32, lease: Lease) {
        if let Some(run) = self.agents[agent as usize].end(lease) {
            self.totals[agent as usize].busy += self.now - run.started;
            self.observer.see(
                self.now,
                &Happening::Stopped {
                    worker: agent,
                    task: run.held.task.0,
                },
            );
        }
    }

    fn stop_everything(&mut self, agent: u32) {
        while let Some(run) = self.agents[agent as usize].running.last() {
            let lease = run.held.lease;
            self.stop(agent, lease);
        }
        self.agents[agent as usize].backlog.clear();
    }

    fn fault(&mut self, fault: &Fault) {
        match *fault {
            Fault::Crash(agent) => {
                if std::mem::take(&mut self.agents[agent as usize].up) {
                    self.stop_everything(agent);
                    self.observer
                        .see(self.now, &Happening::Crashed { worker: agent });
                }
            }
            Fault::Start(agent) => self.start_agent(agent),
            Fault::Leave(agent) => {
                if std::mem::take(&mut self.agents[agent as usize].up) {
                    self.stop_everything(agent);
                    self.tell(Input::AgentLeft {
                        agent: AgentId(u64::from(agent)),
                        tasks: loxley_policy::Leftovers::Requeue,
                    });
                }
            }
            Fault::Cut(agent) => {
                if std::mem::take(&mut self.agents[agent as usize].connected) {
                    self.observer
                        .see(self.now, &Happening::CutOff { worker: agent });
                }
            }
            Fault::Mend(agent) => self.mend(agent),
            Fault::Slow(agent, factor) => {
                let normal = self.setup.agents[agent as usize].true_speed;
                self.change_speed(agent, normal / factor);
            }
            Fault::Cancel(task) => {
                self.tell(Input::CancelRequested(Selection::Task(TaskId(task))));
            }
            Fault::Rebalance => self.tell(Input::RebalanceRequested),
            Fault::Limit(group, limit) => self.tell(Input::GroupLimitSet { group, limit }),
            Fault::Reconfigure(ref config) => {
                self.tell(Input::ConfigChanged(config.clone()));
            }
            Fault::CalmNetwork => {
                self.network = Network {
                    delay: self.setup.network.delay,
                    ..Network::default()
                };
            }
        }
    }

    fn change_speed(&mut self, agent: u32, speed: f64) {
        self.agents[agent as usize].change_speed(self.now, speed);
        for run in &self.agents[agent as usize].running {
            self.events
                .push(run.ends, Event::Finish(agent, run.held.lease));
        }
    }

    fn mend(&mut self, agent: u32) {
        let model = &mut self.agents[agent as usize];
        if model.connected {
            return;
        }
        model.connected = true;
        let waiting = std::mem::take(&mut model.waiting);
        self.observer
            .see(self.now, &Happening::Reconnected { worker: agent });
        for place in waiting {
            let message = self.messages[place as usize];
            self.free.push(place);
            if self.network.is_instant() {
                self.at_once.push_back(message);
            } else {
                self.transmit(message, message.body.is_for_agent());
            }
        }
    }
}

fn totals(agent: &AgentSetup) -> WorkerTotals {
    WorkerTotals {
        speed: agent.true_speed,
        slots: agent.spec.slots,
        ..WorkerTotals::default()
    }
}

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
mod agents;
mod dialogue;
mod faults;
mod network;
mod setup;
mod stream;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use loxley_balance::Rng;
use loxley_driver::self_tuning::{SelfTuner, Step};
use loxley_driver::{Directory, explain_text};
use loxley_model::{JobId, Lease, TaskId, Time};
use loxley_policy::{Action, Input, Scheduler};

use self::agent_model::AgentModel;
use self::network::{Body, Message};
pub use self::setup::{
    AgentSetup, Arrival, Attempt, Behaviour, Fault, FleetLoad, FleetSetup, FleetTasks, Network,
    TaskGroup,
};
pub(crate) use self::setup::{Drawn, name_agent};
use self::stream::TaskSource;
use crate::event_queue::EventQueue;
use crate::observer::Observer;
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
    /// What self-tuning tried, kept and took back, the oldest first.
    pub tuning: Vec<(Time, Step)>,
    /// How often a forecast kept room on an agent, and how many queued tasks moved for it.
    pub kept_room: (u64, u64),
    /// How fast each agent was known to be at the end, where it was known then.
    pub speeds: Vec<Option<f64>>,
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
    /// A job that others may wait for is over.
    JobOver,
    /// Self-tuning looks at what it measured.
    Tune,
}

/// The world's own books about a task. Small, since there is one for every task of a run and most are
/// found cold in memory.
#[derive(Debug, Clone, Copy)]
struct TaskBooks {
    ready: Nanos,
    missing: u32,
    /// On whose queue or in whose backlog it waits.
    at: u32,
    runs: u32,
    /// How many attempts have ended by themselves.
    ended: u16,
    /// Whether its waiting time was recorded.
    waited: bool,
    over: bool,
}

const _: () = assert!(size_of::<TaskBooks>() == 24);

impl TaskBooks {
    /// Of a task that nobody submitted yet.
    const BLANK: Self = Self {
        ready: NEVER,
        missing: 0,
        at: NOWHERE,
        runs: 0,
        ended: 0,
        waited: false,
        over: false,
    };
}

/// The jobs of a run in which some wait for others; empty where none do.
#[derive(Debug, Default)]
struct JobBooks {
    /// How many tasks of a job are not over, and whether one did not succeed.
    open: BTreeMap<JobId, (usize, bool)>,
    /// The job of each submission is found by its first task.
    of_task: Vec<JobId>,
    /// Submissions whose time has come and that wait for a job, by number.
    waiting: Vec<usize>,
    /// Jobs that nobody wants any more.
    cancelled: Vec<JobId>,
}

impl JobBooks {
    fn of(tasks: &FleetTasks) -> Self {
        let submissions = tasks.submissions();
        if submissions.iter().all(|one| one.after.is_empty()) {
            return Self::default();
        }
        let mut books = Self {
            of_task: vec![JobId(0); tasks.len()],
            ..Self::default()
        };
        for one in submissions {
            books.open.entry(one.job.id).or_default().0 += one.tasks.len();
            books.of_task[one.ids()].fill(one.job.id);
        }
        books
    }
}

const NOWHERE: u32 = u32::MAX;
const NEVER: Nanos = Nanos::MAX;

struct FleetWorld<'a, O> {
    setup: &'a FleetSetup,
    observer: &'a mut O,
    scheduler: Scheduler,
    tuner: SelfTuner,
    actions: Vec<Action>,
    now: Nanos,
    events: EventQueue<Event>,
    tasks: TaskSource<'a>,
    books: Vec<TaskBooks>,
    /// Work that is done and saved in a checkpoint, of tasks that have one.
    saved: BTreeMap<TaskId, Nanos>,
    successors: Vec<Vec<u32>>,
    next_submission: usize,
    /// The submission that the scheduler is told of: its job and its tasks.
    submitting: (JobId, Range<usize>),
    /// Jobs that others wait for, and submissions that wait for a job.
    jobs: JobBooks,
    agents: Vec<AgentModel>,
    totals: Vec<WorkerTotals>,
    /// Messages under way, and free places among them.
    messages: Vec<Message>,
    free: Vec<u32>,
    /// Messages that arrive at this very moment, in order.
    at_once: VecDeque<Message>,
    network: Network,
    /// Whether the network takes no time, at present.
    instant: bool,
    timer: Nanos,
    unfinished: usize,
    statistics: RunStatistics,
    queue_lengths: Vec<u32>,
    sampled: (Nanos, u64),
    chance: Chance,
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
        let tasks = TaskSource::new(setup, &root);
        let careful = !setup.network.is_instant() || !setup.faults.is_empty();
        let mut world = Self {
            scheduler: Scheduler::new(setup.config.clone(), Time::ZERO),
            tuner: SelfTuner::default(),
            actions: Vec::new(),
            now: 0,
            events: EventQueue::new(),
            books: Vec::new(),
            saved: BTreeMap::new(),
            successors: Vec::new(),
            next_submission: 0,
            submitting: (JobId(0), 0..0),
            jobs: tasks
                .held()
                .map_or_else(JobBooks::default, |tasks| JobBooks::of(tasks)),
            agents: setup
                .agents
                .iter()
                .map(|agent| AgentModel::new(agent, careful))
                .collect(),
            totals: setup.agents.iter().map(totals).collect(),
            messages: Vec::new(),
            free: Vec::new(),
            at_once: VecDeque::new(),
            network: setup.network,
            instant: setup.network.is_instant(),
            timer: NEVER,
            unfinished: tasks.len(),
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
            tasks,
            setup,
            observer,
        };
        world.open_books();
        world.plan_beginning();
        world
    }

    /// Books of every task.
    fn open_books(&mut self) {
        self.books = vec![TaskBooks::BLANK; self.tasks.len()];
        self.statistics.submitted = self.tasks.len() as u64;
        let Some(tasks) = self.tasks.held().filter(|tasks| tasks.has_edges()) else {
            return;
        };
        self.successors = vec![Vec::new(); tasks.len()];
        for (id, spec) in tasks.specs().enumerate() {
            self.books[id].missing = spec.dependencies.len() as u32;
            for before in &spec.dependencies {
                self.successors[before.0 as usize].push(id as u32);
            }
        }
    }

    fn plan_beginning(&mut self) {
        for &(group, limit) in &self.setup.limits {
            self.tell(Input::GroupLimitSet { group, limit });
        }
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
        if let Some(first) = self.tasks.first_at() {
            self.events.push(first, Event::Submit);
            // Nothing is measured before there is work.
            if self.setup.config.self_tuning.enabled {
                self.events.push(first, Event::Tune);
            }
        }
    }

    /// Lets the tuner look, as the server does, and does what it says.
    fn tune(&mut self) {
        let now = Time(self.now);
        if let Some(step) = self.tuner.look(now, &self.scheduler) {
            let config = self.tuner.apply(now, &step, self.scheduler.config());
            if let Some(config) = config {
                self.tell(Input::ConfigChanged(Box::new(config)));
            }
        }
        if let Some(at) = self.tuner.next_look(self.scheduler.config()) {
            self.events.push(at.0.max(self.now + 1), Event::Tune);
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
            Event::JobOver => self.look_at_waiting(),
            Event::Tune => self.tune(),
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
        let top_speed = self.setup.top_speed().max(f64::MIN_POSITIVE);
        (self.statistics.total_work, self.statistics.critical_path) = self.tasks.bounds(top_speed);
        self.statistics.makespan = self.now;
        self.statistics.workers = self.totals;
        let ids = self.setup.agents.iter().map(|agent| agent.spec.id);
        let statuses = ids.map(|id| self.scheduler.agent_status(id));
        FleetOutcome {
            speeds: statuses.map(|status| Some(status?.speed)).collect(),
            statistics: self.statistics,
            unfinished,
            tuning: self.tuner.story().copied().collect(),
            kept_room: self.scheduler.kept_room(),
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
                (
                    id as u64,
                    explain(
                        &self.scheduler,
                        TaskId(id as u64),
                        self.now,
                        &self.setup.names,
                    ),
                )
            })
            .collect()
    }
}

/// Says where a task is and why it does not run, in the words that every driver uses.
fn explain(scheduler: &Scheduler, task: TaskId, now: Nanos, names: &Directory) -> String {
    let Some(mut explanation) = scheduler.explain(task) else {
        return "the scheduler does not know it".to_owned();
    };
    let text = explain_text::explain(&mut explanation, Time(now), scheduler, names);
    let mut words = text.place;
    for obstacle in text.obstacles {
        words.push_str("; ");
        words.push_str(&obstacle);
    }
    words
}

fn totals(agent: &AgentSetup) -> WorkerTotals {
    WorkerTotals {
        speed: agent.true_speed,
        slots: agent.spec.slots,
        ..WorkerTotals::default()
    }
}

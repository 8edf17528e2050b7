//! A server and its agents in virtual time, with a real journal in memory: recordings without a clock.

use std::collections::{BTreeMap, VecDeque};

use loxley_api::{CommandRequest, Entries, JobRequest, TaskRequest, Work};
use loxley_engine::{AgentRecord, Engine, Fact, Finish, Submission};
use loxley_journal::{Journal, MemoryJournal};
use loxley_model::{AgentId, Failure, JobId, Lease, Outcome, Span, TaskId, Time};
use loxley_policy::{Config, Selection, Vitals};
use loxley_replay::Recording;

pub(crate) const MS: u64 = 1_000_000;

/// What is to happen, each at its time in milliseconds.
pub(crate) enum Step {
    Join(&'static str, u32, &'static [&'static str]),
    /// A process dies, and the server notices that its connection ended.
    Die(&'static str),
    Submit(JobRequest),
    CancelJob(u64),
}

/// How long an attempt of a task takes on an agent, and how it ends.
pub(crate) type Behaviour<'a> = &'a dyn Fn(u64, u32, &str) -> (u64, Outcome);

#[derive(Default)]
struct Process {
    name: String,
    slots: usize,
    up: bool,
    backlog: VecDeque<(TaskId, Lease, u32)>,
    /// End, start.
    running: BTreeMap<Lease, (TaskId, Time, Time, Outcome)>,
}

struct VirtualServer<'a> {
    engine: Engine,
    journal: MemoryJournal,
    processes: BTreeMap<AgentId, Process>,
    now: Time,
    heard: Time,
    behaviour: Behaviour<'a>,
}

/// A job that is one array.
pub(crate) fn array(command: &str, count: u64, change: impl Fn(&mut TaskRequest)) -> JobRequest {
    let run = Work::Command(CommandRequest {
        words: vec![command.to_owned()],
        ..CommandRequest::default()
    });
    let mut task = TaskRequest::new(run);
    task.entries = Some(Entries::Range {
        first: 1,
        last: count,
        step: 1,
    });
    change(&mut task);
    let text = serde_json::json!({ "tasks": [task] });
    serde_json::from_value(text).expect("a request")
}

/// Runs until nothing is left to happen, and gives back what was written.
pub(crate) fn recorded(
    config: &Config,
    steps: Vec<(u64, Step)>,
    behaviour: Behaviour<'_>,
) -> MemoryJournal {
    let mut journal = MemoryJournal::new();
    let engine = Engine::open(&mut journal, 0).expect("a new journal");
    let mut server = VirtualServer {
        engine,
        journal,
        processes: BTreeMap::new(),
        now: Time(1),
        heard: Time(1),
        behaviour,
    };
    server.engine.begin(Time(1), config);
    server.carry_out();
    let mut steps: VecDeque<_> = steps.into();
    let mut turns = 0;
    loop {
        let step = steps.front().map(|(at, _)| Time(at * MS + 1));
        let next = [step, server.next_end(), server.timer()];
        let Some(next) = next.into_iter().flatten().min() else {
            break;
        };
        if step.is_none() && server.next_end().is_none() && server.engine.open_jobs() == 0 {
            break;
        }
        server.now = server.now.max(next);
        if step == Some(next) {
            let (_, step) = steps.pop_front().expect("there is one");
            server.take(step);
        } else {
            server.end_one();
            server.sign_of_life();
            server.engine.tick_if_due(server.now);
            turns += 1;
            assert!(turns < 100_000, "it goes on and on");
        }
        server.carry_out();
    }
    server.journal
}

pub(crate) fn recording(
    config: &Config,
    steps: Vec<(u64, Step)>,
    behaviour: Behaviour<'_>,
) -> Recording {
    Recording::read(&mut recorded(config, steps, behaviour)).expect("a recording")
}

impl VirtualServer<'_> {
    fn take(&mut self, step: Step) {
        let now = self.now;
        let fact = match step {
            Step::Join(name, slots, skills) => Fact::AgentJoined(Box::new(AgentRecord {
                name: name.to_owned(),
                owner: String::new(),
                process: now.0,
                skills: skills.iter().map(|&skill| skill.to_owned()).collect(),
                slots,
                speed: 1.0,
                cpu_milli: 0,
                memory_bytes: 0,
                resources: Vec::new(),
                zone: None,
                holds: Vec::new(),
            })),
            Step::Die(name) => {
                let id = self.id(name);
                let process = self.processes.get_mut(&id).expect("it is there");
                process.up = false;
                process.backlog.clear();
                process.running.clear();
                Fact::AgentSilent(id)
            }
            Step::Submit(job) => Fact::JobSubmitted {
                request: Submission::new(job).expect("a good job"),
                user: "somebody".to_owned(),
            },
            Step::CancelJob(job) => Fact::Cancelled(Selection::Job(JobId(job))),
        };
        let joined = match &fact {
            Fact::AgentJoined(record) => Some((record.name.clone(), record.slots)),
            _ => None,
        };
        let done = self.engine.record_and_apply(now, fact, None);
        let done = done.expect("it makes sense");
        if let (Some((name, slots)), loxley_engine::Applied::Agent(id)) = (joined, done) {
            let process = Process {
                name,
                slots: slots as usize,
                up: true,
                ..Process::default()
            };
            self.processes.insert(id, process);
        }
    }

    fn id(&self, name: &str) -> AgentId {
        let found = self.processes.iter().find(|(_, one)| one.name == name);
        *found.expect("it is there").0
    }

    /// Every agent is heard, once in a while.
    fn sign_of_life(&mut self) {
        if self.now.since(self.heard) >= Span::from_secs(1) {
            self.heard = self.now;
            let up = self.processes.iter().filter(|(_, one)| one.up);
            let up: Vec<AgentId> = up.map(|(agent, _)| *agent).collect();
            for agent in up {
                self.engine.heard(self.now, agent, Vitals::default());
            }
        }
    }

    fn timer(&self) -> Option<Time> {
        self.engine.next_timer()
    }

    fn next_end(&self) -> Option<Time> {
        let running = self.processes.values().flat_map(|one| one.running.values());
        running.map(|(_, _, ends, _)| *ends).min()
    }

    fn end_one(&mut self) {
        let due = self.processes.iter().find_map(|(agent, process)| {
            let mut running = process.running.iter();
            let due = running.find(|(_, (_, _, ends, _))| *ends <= self.now)?;
            Some((*agent, *due.0))
        });
        let Some((agent, lease)) = due else { return };
        let process = self.processes.get_mut(&agent).expect("it is there");
        let (task, started, _, outcome) = process.running.remove(&lease).expect("it runs");
        let ran = self.now.since(started);
        self.start_next(agent);
        let finish = Finish::default();
        self.engine
            .finished(self.now, agent, task, lease, outcome, ran, finish);
    }

    fn start_next(&mut self, agent: AgentId) {
        let process = self.processes.get_mut(&agent).expect("it is there");
        let mut started = Vec::new();
        while process.up && process.running.len() < process.slots {
            let Some((task, lease, attempt)) = process.backlog.pop_front() else {
                break;
            };
            let (ms, outcome) = (self.behaviour)(task.0, attempt, &process.name);
            let ends = self.now + Span(ms * MS);
            process
                .running
                .insert(lease, (task, self.now, ends, outcome));
            started.push((task, lease));
        }
        for (task, lease) in started {
            self.engine.started(self.now, agent, task, lease);
        }
    }

    /// Carries out what the engine wants, and what follows from that.
    fn carry_out(&mut self) {
        loop {
            let flushed = self.engine.flush();
            if let Some(group) = &flushed.group {
                let at = self.journal.next_position();
                self.journal.append(at, group).expect("memory takes it");
            }
            let mut orders: Vec<_> = flushed.effects.orders.into_iter().collect();
            if orders.is_empty() && flushed.group.is_none() {
                return;
            }
            orders.sort_by_key(|(agent, _)| *agent);
            for (agent, orders) in orders {
                let process = self.processes.entry(agent).or_default();
                if !process.up {
                    continue;
                }
                for one in orders.assign {
                    let held = (one.task, one.lease, one.attempt);
                    process.backlog.push_back(held);
                }
                let mut answers = Vec::new();
                for one in orders.retract {
                    let at = process.backlog.iter().position(|held| held.1 == one.lease);
                    let yielded = at.is_some_and(|at| process.backlog.remove(at).is_some());
                    answers.push((one.task, one.lease, yielded));
                }
                let mut ended = Vec::new();
                for lease in orders.cancel {
                    process.backlog.retain(|held| held.1 != lease);
                    process.running.remove(&lease);
                }
                for (task, lease) in orders.stop {
                    process.backlog.retain(|held| held.1 != lease);
                    let ran = process.running.remove(&lease);
                    let ran = ran.map_or(Span::ZERO, |(_, from, ..)| self.now.since(from));
                    ended.push((task, lease, ran));
                }
                let now = self.now;
                for (task, lease, yielded) in answers {
                    self.engine.yielded(now, agent, task, lease, yielded);
                }
                for (task, lease, ran) in ended {
                    let outcome = Outcome::Failed(Failure::Error);
                    let finish = Finish::default();
                    self.engine
                        .finished(now, agent, task, lease, outcome, ran, finish);
                }
                self.start_next(agent);
            }
        }
    }
}

//! The deciding core alone: one thread, no I/O, fed through the driver as the server's engine feeds it.
//!
//! The fleet has many agents with four to eight of sixteen skills, and a million queued tasks of fifty
//! distinct skill sets and all priorities. The peer is the plain way to write such a scheduler: look at
//! every agent for every task.

mod plain;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use loxley_balance::Rng;
use loxley_driver::Driver;
use loxley_model::{
    AgentId, AgentSpec, Dispatch, JobId, JobSpec, Lease, Outcome, Priority, SkillId, SkillSet,
    Span, TaskId, TaskKind, TaskSpec, Time,
};
use loxley_policy::{Action, Config, Input};

use crate::Options;
use crate::measure::{Contender, Role, Samples, interleaved};
use crate::report::{Goal, Report};

pub(crate) fn run(options: &Options, report: &mut Report) -> Result<()> {
    let queued = size(options, 1_000_000, 100_000);
    // First, before other cases leave free memory behind that would be used again.
    memory(options, report, queued);
    lifecycle(options, report, queued);
    steal(options, report, queued);
    rebalance(options, report, queued);
    graph(options, report);
    Ok(())
}

/// A size that depends on `--quick`.
fn size(options: &Options, full: usize, quick: usize) -> usize {
    if options.quick { quick } else { full }
}

/// Fleets and how many nanoseconds a task may take: at most twice as many with the largest.
const FLEETS: [(&str, usize, f64); 4] = [
    ("lifecycle/10", 10, 1_000.0),
    ("lifecycle/100", 100, 1_000.0),
    ("lifecycle/1000", 1_000, 1_000.0),
    ("lifecycle/10000", 10_000, 2_000.0),
];

/// How many answers of agents a busy server has at hand at once.
const FRAME: usize = 64;

/// Submit, place, give, start, finish: nanoseconds a task, with a million others queued. Tasks and answers
/// come in batches, as they do on a busy server, except where the case says otherwise.
fn lifecycle(options: &Options, report: &mut Report, queued: usize) {
    let cycles = size(options, 300_000, 30_000);
    for (case, agents, goal) in FLEETS {
        if !options.wants(case) {
            continue;
        }
        let mut fleet = Fleet::filled(agents, queued);
        let mut plain = plain::Scheduler::filled(&fleet.skill_sets, agents, queued / 100);
        // The plain one takes as long as there are agents; a few tasks tell.
        let plain_cycles = (cycles / agents).max(100);
        let samples = interleaved(
            options.effort(),
            &mut [
                Contender::new("loxley", Role::Subject, || fleet.cycles(cycles, FRAME)),
                Contender::new("plain scan", Role::Peer, || plain.cycles(plain_cycles)),
            ],
        );
        report.case(case, "ns/task", Some(Goal::AtMost(goal)), &samples);
    }
    for (case, frame) in [("lifecycle/flat", FRAME), ("lifecycle/flat, one by one", 1)] {
        if !options.wants(case) {
            continue;
        }
        let (mut small, mut large) = (Fleet::filled(10, queued), Fleet::filled(10_000, queued));
        let samples = interleaved(
            options.effort(),
            &mut [
                Contender::new("10,000 agents", Role::Subject, || {
                    large.cycles(cycles, frame)
                }),
                Contender::new("10 agents", Role::Peer, || small.cycles(cycles, frame)),
            ],
        );
        let goal = Some(Goal::Times(2.0, "10 agents"));
        report.case(case, "ns/task", goal, &samples);
    }
}

/// An idle agent takes a task from another's queue: microseconds a steal.
fn steal(options: &Options, report: &mut Report, queued: usize) {
    if !options.wants("steal") {
        return;
    }
    let steals = size(options, 10_000, 1_000);
    let mut fleet = Fleet::filled(10_000, queued);
    let samples = interleaved(
        options.effort(),
        &mut [Contender::new("loxley", Role::Subject, || {
            fleet.steals(steals)
        })],
    );
    report.case("steal", "us", Some(Goal::AtMost(5.0)), &samples);
}

/// A push pass over a fleet that is out of balance: milliseconds a pass.
fn rebalance(options: &Options, report: &mut Report, queued: usize) {
    for (case, moves) in [("rebalance/3", 3), ("rebalance/10000", 10_000)] {
        if !options.wants(case) {
            continue;
        }
        let mut fleet = Fleet::filled(10_000, queued);
        let samples = interleaved(
            options.effort(),
            &mut [Contender::new("loxley", Role::Subject, || {
                fleet.rebalance(moves)
            })],
        );
        report.case(case, "ms", Some(Goal::AtMost(50.0)), &samples);
    }
}

/// Bytes a queued task.
fn memory(options: &Options, report: &mut Report, queued: usize) {
    if !options.wants("memory") {
        return;
    }
    let measure = || {
        let mut fleet = Fleet::new(1_000);
        let before = resident_bytes();
        fleet.submit(queued);
        (resident_bytes() - before) / queued as f64
    };
    let samples = [Samples::single("loxley", Role::Subject, measure())];
    report.case("memory", "B/task", Some(Goal::AtMost(200.0)), &samples);
}

/// What this process holds in memory, as the system counts it.
fn resident_bytes() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let resident = pages
        .as_deref()
        .and_then(|text| text.split(' ').nth(1)?.parse::<f64>().ok());
    resident.unwrap_or(f64::NAN) * rustix::param::page_size() as f64
}

/// A million tasks with five million edges, accepted as one submission: seconds.
fn graph(options: &Options, report: &mut Report) {
    if !options.wants("graph") {
        return;
    }
    let tasks = size(options, 1_000_000, 100_000);
    let samples = interleaved(
        options.effort(),
        &mut [Contender::new("loxley", Role::Subject, || {
            let mut fleet = Fleet::new(100);
            let specs = fleet.graph(tasks, 5);
            let start = Instant::now();
            fleet.handle(Input::TasksSubmitted {
                job: JobSpec::new(JobId(0)),
                tasks: specs.into(),
            });
            let took = start.elapsed().as_secs_f64();
            let counts = fleet.driver.scheduler().counts();
            assert_eq!(counts.submitted, tasks as u64);
            took
        })],
    );
    report.case(
        "graph/1M tasks, 5M edges",
        "s",
        Some(Goal::AtMost(2.0)),
        &samples,
    );
}

/// A scheduler with agents and a stock of task kinds.
struct Fleet {
    driver: Driver,
    agents: usize,
    skill_sets: Vec<SkillSet>,
    kinds: Vec<Arc<TaskKind>>,
    rng: Rng,
    now: Time,
    next_task: u64,
    /// What each agent holds, the oldest first.
    in_hand: Vec<VecDeque<(TaskId, Lease)>>,
    /// What was given last, until somebody looks.
    given: Option<(TaskId, Lease)>,
}

impl Fleet {
    fn new(agents: usize) -> Self {
        let mut rng = Rng::new(42);
        let skill_sets = skill_sets(&mut rng);
        let kinds = skill_sets.iter().map(|skills| {
            Arc::new(TaskKind {
                skills: skills.clone(),
                ..TaskKind::default()
            })
        });
        let mut fleet = Self {
            driver: Driver::new(Config::served(), Time::ZERO),
            agents,
            kinds: kinds.collect(),
            skill_sets,
            rng,
            now: Time::ZERO,
            next_task: 0,
            in_hand: vec![VecDeque::new(); agents],
            given: None,
        };
        for agent in 0..agents {
            // As agents join a server.
            let spec = AgentSpec {
                slots: 2,
                dispatch: Dispatch::KeepFull,
                ..AgentSpec::new(AgentId(agent as u64), agent_skills(agent))
            };
            fleet.handle(Input::AgentJoined(spec.into()));
        }
        fleet
    }

    fn filled(agents: usize, queued: usize) -> Self {
        let mut fleet = Self::new(agents);
        fleet.submit(queued);
        fleet
    }

    fn handle(&mut self, input: Input) {
        self.now = self.now + Span::from_micros(1);
        self.driver.tell(self.now, input);
        while let Some(action) = self.driver.next_action() {
            self.carry_out(&action);
        }
    }

    fn carry_out(&mut self, action: &Action) {
        match *action {
            Action::Assign {
                task, agent, lease, ..
            } => {
                self.given = Some((task, lease));
                if let Some(held) = self.in_hand.get_mut(agent.0 as usize) {
                    held.push_back((task, lease));
                }
            }
            Action::Retract {
                task, agent, lease, ..
            } => {
                self.in_hand[agent.0 as usize].retain(|(_, held)| *held != lease);
                self.driver.later(Input::TaskYielded {
                    task,
                    lease,
                    yielded: true,
                });
            }
            _ => {}
        }
    }

    fn task(&mut self) -> TaskSpec {
        self.next_task += 1;
        let kind = Arc::clone(&self.kinds[self.rng.index(self.kinds.len())]);
        let priority = Priority::new(1 + self.rng.below(5) as u8).expect("between 1 and 5");
        TaskSpec {
            priority,
            ..TaskSpec::new(TaskId(self.next_task), kind)
        }
    }

    fn submit(&mut self, count: usize) {
        for batch in (0..count)
            .step_by(1_000)
            .map(|from| (count - from).min(1_000))
        {
            let tasks = (0..batch).map(|_| self.task()).collect();
            let job = JobSpec::new(JobId(self.next_task));
            self.handle(Input::TasksSubmitted { job, tasks });
        }
        assert_eq!(
            self.driver.scheduler().counts().held,
            0,
            "every task has a capable agent"
        );
    }

    /// Tasks that depend on up to `degree` of the tasks shortly before them.
    fn graph(&mut self, tasks: usize, degree: u64) -> Vec<TaskSpec> {
        let mut specs = Vec::with_capacity(tasks);
        for at in 0..tasks as u64 {
            let mut spec = self.task();
            let dependencies =
                (0..degree.min(at)).map(|_| TaskId(spec.id.0 - 1 - self.rng.below(at.min(1_000))));
            spec.dependencies = dependencies.collect();
            spec.cost = Some(Span::from_micros(1 + self.rng.below(1_000)));
            specs.push(spec);
        }
        specs
    }

    /// One whole life for each of `count` tasks, `frame` of them side by side; nanoseconds a task.
    fn cycles(&mut self, count: usize, frame: usize) -> f64 {
        let mut specs: VecDeque<TaskSpec> = (0..count).map(|_| self.task()).collect();
        let start = Instant::now();
        while !specs.is_empty() {
            // A small fleet has fewer tasks in its hands than a frame of a large one holds.
            let here = frame.min(specs.len()).min(self.in_hands()).max(1);
            let tasks: Arc<[TaskSpec]> = specs.drain(..here).collect();
            let job = JobSpec::new(JobId(tasks[0].id.0));
            self.handle(Input::TasksSubmitted { job, tasks });
            let held: Vec<_> = (0..here).map(|_| self.next_in_hand()).collect();
            self.warm_caches(&held);
            for (task, lease) in held.iter().copied() {
                self.handle(Input::TaskStarted { task, lease });
            }
            self.warm_caches(&held);
            for (task, lease) in held {
                self.handle(Input::TaskFinished {
                    task,
                    lease,
                    outcome: Outcome::Succeeded,
                });
            }
        }
        start.elapsed().as_nanos() as f64 / count as f64
    }

    /// What the engine does with a batch of answers before it handles them.
    fn warm_caches(&self, held: &[(TaskId, Lease)]) {
        self.driver.warm_caches(held.iter().map(|(task, _)| *task));
    }

    /// How many tasks are in the hands of agents; not counted further than anybody asks.
    fn in_hands(&self) -> usize {
        let mut count = 0;
        for held in &self.in_hand {
            count += held.len();
            if count >= FRAME {
                break;
            }
        }
        count
    }

    /// The oldest task in the hands of an agent, which is some agent's next answer.
    fn next_in_hand(&mut self) -> (TaskId, Lease) {
        loop {
            let agent = self.rng.index(self.agents);
            if let Some(held) = self.in_hand[agent].pop_front() {
                return held;
            }
        }
    }

    /// Explicit steals by random agents with empty queues; microseconds a steal.
    fn steals(&mut self, count: usize) -> f64 {
        let thieves = 64;
        for thief in 0..thieves {
            let skills = agent_skills(thief as usize);
            let id = AgentId(1_000_000 + thief);
            let spec = AgentSpec {
                slots: u32::MAX,
                ..AgentSpec::new(id, skills)
            };
            self.handle(Input::AgentJoined(spec.into()));
        }
        let start = Instant::now();
        let mut held = Vec::with_capacity(count);
        for turn in 0..count as u64 {
            self.handle(Input::StealRequested {
                agent: AgentId(1_000_000 + turn % thieves),
                onto_queue: false,
            });
            held.push(self.given.take().expect("there is work for everybody"));
        }
        let micros = start.elapsed().as_secs_f64() * 1e6 / count as f64;
        for (task, lease) in held {
            self.handle(Input::TaskFinished {
                task,
                lease,
                outcome: Outcome::Succeeded,
            });
        }
        // There is as much to steal in the next round.
        self.submit(count);
        micros
    }

    /// A pass that moves up to `moves` tasks to a thousand new, empty agents; milliseconds.
    fn rebalance(&mut self, moves: u32) -> f64 {
        let mut config = self.driver.scheduler().config().clone();
        config.work_stealing.max_steal_per_cycle = moves;
        config.thresholds.idle_threshold = 20;
        self.handle(Input::ConfigChanged(Box::new(config)));
        for agent in 0..1_000 {
            let id = AgentId(2_000_000 + agent as u64);
            let spec = AgentSpec::new(id, agent_skills(agent));
            self.handle(Input::AgentJoined(spec.into()));
        }
        let start = Instant::now();
        self.handle(Input::RebalanceRequested);
        start.elapsed().as_secs_f64() * 1e3
    }
}

/// Fifty distinct sets of one to three of sixteen skills.
fn skill_sets(rng: &mut Rng) -> Vec<SkillSet> {
    let mut sets: Vec<SkillSet> = Vec::new();
    while sets.len() < 50 {
        // Skills that some agent has together: a window of the ring of skills.
        let first = rng.below(16) as u32;
        let skills = (0..1 + rng.below(3) as u32).map(|next| SkillId((first + next) % 16));
        let set: SkillSet = skills.collect();
        let stride: SkillSet = [SkillId(first), SkillId((first + 2) % 16)]
            .into_iter()
            .collect();
        for set in [set, stride] {
            if !sets.contains(&set) && sets.len() < 50 {
                sets.push(set);
            }
        }
        if sets.len() >= 48 {
            let single: SkillSet = [SkillId(first), SkillId((first + 3) % 16)]
                .into_iter()
                .collect();
            if !sets.contains(&single) {
                sets.push(single);
            }
        }
    }
    sets
}

/// Four to eight neighbouring skills of the ring of sixteen.
fn agent_skills(agent: usize) -> SkillSet {
    let first = (agent * 7) as u32;
    let count = 4 + (agent / 16 % 5) as u32;
    (0..count)
        .map(|next| SkillId((first + next) % 16))
        .collect()
}

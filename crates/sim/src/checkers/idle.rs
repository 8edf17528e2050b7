//! No agent stands idle while a task waits that it could start [S6].
//!
//! Only where every moment adds up and no switch allows it: messages arrive at once, nobody fails, agents are as fast
//! as they say, and neither reserved slots nor room kept for large tasks nor a strict rule of stealing keep a task back.
//! Users' shares do not either: nobody idles for them. Where placement knows speeds, a task may wait for a faster agent
//! that is busy.

use std::sync::Arc;

use loxley_model::{Fallback, TaskId};
use loxley_policy::{Matching, Strategy};

use crate::checkers::{Books, Violation};
use crate::fleet::{Fault, FleetSetup, FleetTasks};
use crate::observer::{Happening, Observer};
use crate::time::Nanos;

/// The books: who runs what, and which tasks could be started.
#[derive(Debug)]
pub struct Idle {
    books: Books,
    tasks: Arc<FleetTasks>,
    agents: Vec<Agent>,
    entries: Vec<Entry>,
    dependents: Vec<Vec<u64>>,
    /// Tasks that are submitted and neither run nor are over.
    waiting: Vec<u64>,
    /// Whether a task may wait for somebody faster.
    knows_speeds: bool,
    last: Nanos,
}

#[derive(Debug, Clone)]
struct Agent {
    up: bool,
    free_slots: u32,
    speed: f64,
    /// What is left of its memory; none if it is endless.
    memory: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct Entry {
    missing: u32,
    /// Whether it only stands by for another, or counts against a limit of others.
    kept_back: bool,
}

impl Idle {
    /// Books for this fleet, if the claim holds of it.
    #[must_use]
    pub fn new(setup: &FleetSetup, tasks: &Arc<FleetTasks>) -> Option<Self> {
        let holds = is_exact(setup) && nothing_keeps_back(setup, tasks);
        holds.then(|| {
            let mut entries = vec![Entry::default(); tasks.len()];
            let mut dependents = vec![Vec::new(); tasks.len()];
            for task in 0..tasks.len() {
                let spec = tasks.spec(task);
                entries[task].missing = spec.dependencies.len() as u32;
                entries[task].kept_back |= spec.kind.group.is_some();
                for before in &spec.dependencies {
                    dependents[before.0 as usize].push(task as u64);
                }
                if let Fallback::Task(TaskId(fallback)) = spec.fallback {
                    entries[fallback as usize].kept_back = true;
                }
            }
            Self {
                books: Books::new("nobody idles beside a task that it could start"),
                agents: setup.agents.iter().map(Agent::new).collect(),
                tasks: Arc::clone(tasks),
                entries,
                dependents,
                waiting: Vec::new(),
                knows_speeds: setup.config.capabilities.matching_strategy
                    == Matching::EarliestFinish,
                last: 0,
            }
        })
    }

    /// What was found.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.books.verdict()
    }

    /// Everything that belongs to the last moment has happened.
    fn check(&mut self) {
        for (number, agent) in self.agents.iter().enumerate() {
            if !agent.up || agent.free_slots == 0 || self.may_leave(agent) {
                continue;
            }
            let startable = self.waiting.iter().find(|&&task| {
                let entry = &self.entries[task as usize];
                let needs = self.tasks.spec(task as usize).kind.needs.memory_bytes;
                let fits = agent.memory.is_none_or(|left| needs <= left);
                entry.missing == 0 && !entry.kept_back && fits
            });
            self.books.require(startable.is_none(), self.last, || {
                let task = startable.copied().unwrap_or_default();
                format!("agent {number} has a free slot, and task {task} waits")
            });
        }
    }

    /// Whether some agent is busy that is noticeably faster, and that counts.
    fn may_leave(&self, idle: &Agent) -> bool {
        let is_faster = |other: &Agent| other.up && other.speed >= idle.speed * 1.3;
        let mut others = self.agents.iter();
        self.knows_speeds && others.any(|other| is_faster(other) && other.free_slots == 0)
    }

    fn hold(&mut self, worker: u32, task: u64, starts: bool) {
        let needs = self.tasks.spec(task as usize).kind.needs.memory_bytes;
        let agent = &mut self.agents[worker as usize];
        if starts {
            agent.free_slots -= 1;
            agent.memory = agent.memory.map(|left| left - needs);
        } else {
            agent.free_slots += 1;
            agent.memory = agent.memory.map(|left| left + needs);
        }
    }
}

impl Agent {
    fn new(setup: &crate::fleet::AgentSetup) -> Self {
        let memory = setup.spec.resources.memory_bytes;
        Self {
            up: false,
            free_slots: setup.spec.slots,
            speed: setup.true_speed,
            memory: (memory > 0).then_some(memory),
        }
    }
}

/// Whether every moment adds up.
pub(super) fn is_exact(setup: &FleetSetup) -> bool {
    let harmless = |fault: &Fault| matches!(fault, Fault::Cancel(_) | Fault::Rebalance);
    setup.network.is_instant() && setup.faults.iter().all(|(_, fault)| harmless(fault))
}

fn nothing_keeps_back(setup: &FleetSetup, tasks: &FleetTasks) -> bool {
    let config = &setup.config;
    let is_plain = |agent: &crate::fleet::AgentSetup| {
        agent.true_speed == agent.spec.speed && agent.failure == 0.0 && agent.straggler.0 == 0.0
    };
    let has_large = tasks.specs().any(|spec| !spec.kind.needs.is_empty());
    let has_skills = setup
        .agents
        .iter()
        .any(|agent| !agent.spec.skills.is_empty());
    config.strategy != Strategy::Push
        && config.work_stealing.steal_below_busy
        && config.work_stealing.min_tasks_to_steal == 1
        && (config.priority.rescue_high_priority || !config.priority.preserve_high_priority)
        && config.quotas.reserved_slots == 0
        && (config.quotas.backfill_limit == u32::MAX || !has_large)
        && !has_skills
        && setup.agents.iter().all(is_plain)
}

impl Observer for Idle {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        if now > self.last {
            self.check();
            self.last = now;
        }
        match *happening {
            Happening::Joined { worker } => self.agents[worker as usize].up = true,
            Happening::Submitted { task } => self.waiting.push(task),
            Happening::Started { worker, task } => {
                self.waiting.retain(|waiting| *waiting != task);
                self.hold(worker, task, true);
            }
            Happening::Finished { worker, task, .. } | Happening::Stopped { worker, task } => {
                self.hold(worker, task, false);
            }
            Happening::Ended { task, ok, .. } => {
                self.waiting.retain(|waiting| *waiting != task);
                if ok {
                    for dependent in std::mem::take(&mut self.dependents[task as usize]) {
                        self.entries[dependent as usize].missing -= 1;
                    }
                }
            }
            _ => {}
        }
    }
}

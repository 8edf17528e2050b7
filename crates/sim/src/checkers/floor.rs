//! What runs where, and which tasks wait and could be started: books that several checkers keep, each its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use loxley_model::{Fallback, TaskId};

use crate::fleet::{AgentSetup, FleetSetup, FleetTasks};
use crate::observer::Happening;
use crate::time::Nanos;

/// The books.
#[derive(Debug)]
pub(super) struct Floor {
    pub(super) tasks: Arc<FleetTasks>,
    pub(super) agents: Vec<Desk>,
    entries: Vec<Entry>,
    dependents: Vec<Vec<u64>>,
    /// Tasks that are submitted and neither run nor are over, and since when nothing they depend on keeps them back.
    waiting: BTreeMap<u64, Nanos>,
}

/// What an agent has left.
#[derive(Debug, Clone)]
pub(super) struct Desk {
    pub(super) up: bool,
    pub(super) slots: u32,
    pub(super) free_slots: u32,
    pub(super) speed: f64,
    /// What is left of its memory; none if it is endless.
    memory: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct Entry {
    missing: u32,
    /// Whether it only stands by for another, or counts against a limit of others.
    kept_back: bool,
}

impl Floor {
    pub(super) fn new(setup: &FleetSetup, tasks: &Arc<FleetTasks>) -> Self {
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
            agents: setup.agents.iter().map(Desk::new).collect(),
            tasks: Arc::clone(tasks),
            entries,
            dependents,
            waiting: BTreeMap::new(),
        }
    }

    /// Tasks that wait for nothing but an agent, and since when.
    pub(super) fn startable(&self) -> impl Iterator<Item = (u64, Nanos)> {
        let waiting = self.waiting.iter().map(|(task, since)| (*task, *since));
        waiting.filter(|(task, _)| {
            let entry = &self.entries[*task as usize];
            entry.missing == 0 && !entry.kept_back
        })
    }

    /// Whether a task has not run yet: what starts and has is a second copy, or tried again.
    pub(super) fn is_first_start(&self, task: u64) -> bool {
        self.waiting.contains_key(&task)
    }

    /// Whether an agent has the memory that a task needs.
    pub(super) fn fits(&self, agent: usize, task: u64) -> bool {
        let needs = self.tasks.spec(task as usize).kind.needs.memory_bytes;
        self.agents[agent].memory.is_none_or(|left| needs <= left)
    }

    pub(super) fn see(&mut self, now: Nanos, happening: &Happening) {
        match *happening {
            Happening::Joined { worker } => self.agents[worker as usize].up = true,
            Happening::Submitted { task } => {
                self.waiting.insert(task, now);
            }
            Happening::Started { worker, task } => {
                self.waiting.remove(&task);
                self.hold(worker, task, true);
            }
            Happening::Finished { worker, task, .. } | Happening::Stopped { worker, task } => {
                self.hold(worker, task, false);
            }
            Happening::Ended { task, ok, .. } => {
                self.waiting.remove(&task);
                if ok {
                    for dependent in std::mem::take(&mut self.dependents[task as usize]) {
                        self.entries[dependent as usize].missing -= 1;
                        if let Some(since) = self.waiting.get_mut(&dependent) {
                            *since = now;
                        }
                    }
                }
            }
            _ => {}
        }
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

impl Desk {
    fn new(setup: &AgentSetup) -> Self {
        let memory = setup.spec.resources.memory_bytes;
        Self {
            up: false,
            slots: setup.spec.slots,
            free_slots: setup.spec.slots,
            speed: setup.true_speed,
            memory: (memory > 0).then_some(memory),
        }
    }
}

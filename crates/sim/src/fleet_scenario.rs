//! The `fleet:` part of a scenario: what people write, and how it becomes a [`FleetSetup`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use loxley_driver::{Directory, milli};
use loxley_model::{
    AgentId, AgentSpec, Dispatch, NameError, NameId, Priority, Resources, RetryRule, SkillSet,
    Span, TaskKind,
};
use loxley_policy::Config;
use serde::Deserialize;

use crate::arrivals::Arrivals;
use crate::costs::Costs;
use crate::distribution::Distribution;
use crate::fleet::{AgentSetup, Fault, FleetLoad, FleetSetup, Network, TaskGroup, name_agent};
use crate::readers;
use crate::scenario::{JobSource, ScenarioError};
use crate::time::{Nanos, nanos};

/// What stands under `fleet:`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FleetSection {
    agents: Vec<AgentGroup>,
    #[serde(default)]
    tasks: Vec<TaskSection>,
    /// A workload file instead of `tasks`.
    #[serde(default)]
    file: Option<PathBuf>,
    /// What the scheduler is told of the costs that tasks declare.
    #[serde(default)]
    costs: Costs,
    #[serde(default)]
    network: Network,
    /// At most so many tasks of each group run at once.
    #[serde(default)]
    limits: BTreeMap<String, u32>,
    #[serde(default)]
    faults: Vec<FaultSection>,
    /// The scheduler's configuration, as under `load_balancing:` in its own file.
    #[serde(default)]
    load_balancing: Option<serde_json::Value>,
    #[serde(default)]
    until: Option<f64>,
}

fn yes() -> bool {
    true
}

fn one() -> u32 {
    1
}

fn normal_speed() -> f64 {
    1.0
}

fn normal_priority() -> Vec<u8> {
    vec![3]
}

/// Agents that are alike.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentGroup {
    #[serde(default = "one")]
    count: u32,
    /// What it is called, where it is one; else they are numbered.
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    skills: Vec<String>,
    /// Where it is: agents of one zone are near each other.
    #[serde(default)]
    zone: Option<String>,
    #[serde(default = "one")]
    slots: u32,
    /// The speed that it claims.
    #[serde(default = "normal_speed")]
    speed: f64,
    /// The speed that it has; the claimed one when left out.
    #[serde(default)]
    true_speed: Option<f64>,
    /// Processors; 0 is endless.
    #[serde(default)]
    cpus: f64,
    /// Memory in bytes; 0 is endless.
    #[serde(default)]
    memory: u64,
    /// What else it has, and how much of it.
    #[serde(default)]
    resources: BTreeMap<String, u64>,
    /// How often an attempt fails.
    #[serde(default)]
    failure: f64,
    /// How often a task takes longer, and how many times as long.
    #[serde(default)]
    straggler: Option<(f64, f64)>,
    /// When it registers, in seconds.
    #[serde(default)]
    joins: f64,
    /// Seconds between heartbeats; none when left out.
    #[serde(default)]
    heartbeat: Option<f64>,
    #[serde(default)]
    dispatch: DispatchSection,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DispatchSection {
    /// It asks for each task: the embedded scheduler's way.
    OnRequest,
    /// It is kept full, with a backlog: the way of servers and of `loxley run`.
    #[default]
    KeepFull,
}

/// Tasks that are alike.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskSection {
    count: u32,
    work: Distribution,
    #[serde(default)]
    arrivals: Arrivals,
    #[serde(default)]
    skills: Vec<String>,
    /// The group whose limit they count against.
    #[serde(default)]
    group: Option<String>,
    /// Given to the tasks in turn.
    #[serde(default = "normal_priority")]
    priorities: Vec<u8>,
    #[serde(default)]
    memory: u64,
    #[serde(default)]
    retries: u32,
    /// Seconds that one attempt may take.
    #[serde(default)]
    time_limit: Option<f64>,
    /// Seconds after submission by which it should be done.
    #[serde(default)]
    deadline: Option<f64>,
    /// Whether a second copy may run elsewhere.
    #[serde(default)]
    speculate: bool,
    /// Whether the expected cost is declared.
    #[serde(default = "yes")]
    declared: bool,
    /// The agent on whose queue they are put.
    #[serde(default)]
    onto: Option<u32>,
}

/// Something that goes wrong at a moment, for a while or for good.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultSection {
    at: f64,
    /// Until the agent is well again; for good when left out.
    #[serde(default)]
    lasting: Option<f64>,
    what: FaultKind,
    agents: Vec<u32>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FaultKind {
    /// The process dies.
    Crash,
    /// No message gets through.
    Cut,
    /// It is so many times slower.
    Slow(f64),
    /// It unregisters in good order.
    Leave,
}

impl FleetSection {
    /// The fleet, with the tasks of a job where there is one.
    pub(crate) fn build(&self, job: Option<&dyn JobSource>) -> Result<FleetSetup, ScenarioError> {
        let mut names = Directory::default();
        let mut agents = Vec::new();
        for group in &self.agents {
            group.build(&mut agents, &mut names)?;
        }
        if agents.is_empty() {
            return Err(ScenarioError::value(
                "agents",
                "there is at least one agent",
            ));
        }
        let mut limits = Vec::new();
        for (group, &limit) in &self.limits {
            limits.push((named(names.groups.intern(group), "limits")?, limit));
        }
        let load = match job {
            Some(job) => {
                let job = job.load(&mut names);
                let job = job.map_err(|problem| ScenarioError::value("tasks", problem))?;
                limits.extend(job.limits);
                FleetLoad::Given(Arc::new(job.tasks))
            }
            None => self.load(&mut names, agents.len())?,
        };
        let mut faults = Vec::new();
        for fault in &self.faults {
            fault.build(&mut faults, agents.len())?;
        }
        faults.sort_by_key(|(at, _)| *at);
        Ok(FleetSetup {
            config: self.config()?,
            agents,
            load,
            network: self.network()?,
            limits,
            faults,
            names,
            costs: self.costs,
            clock_skew: 0,
            until: self.until.map(nanos),
            verify: false,
        })
    }

    fn config(&self) -> Result<Config, ScenarioError> {
        let Some(section) = &self.load_balancing else {
            return Ok(Config::served());
        };
        // JSON is YAML too, so the one reader of configurations reads this one.
        let text = serde_json::json!({ "load_balancing": section }).to_string();
        loxley_config::parse_over(&text, Config::served()).map_err(|mistakes| {
            let first = mistakes.iter().next().map(ToString::to_string);
            ScenarioError::value("load_balancing", first.unwrap_or_default())
        })
    }

    fn network(&self) -> Result<Network, ScenarioError> {
        let network = self.network;
        if let Some(problem) = network.delay.problem() {
            return Err(ScenarioError::value("network.delay", problem));
        }
        let good = (0.0..1.0).contains(&network.loss)
            && (0.0..=1.0).contains(&network.duplicate)
            && network.retransmit > 0.0;
        if good {
            Ok(network)
        } else {
            let problem = "loss is below 1, duplicate a share, retransmit positive";
            Err(ScenarioError::value("network", problem))
        }
    }

    fn load(&self, names: &mut Directory, agents: usize) -> Result<FleetLoad, ScenarioError> {
        if let Some(path) = &self.file {
            let workload = readers::read(path)
                .map_err(|error| ScenarioError::value("file", error.to_string()))?
                .split_processors();
            for task in workload.tasks() {
                skill_set(&task.skills, names)?;
            }
            return Ok(FleetLoad::Graph(Arc::new(workload)));
        }
        if self.tasks.iter().all(|group| group.count == 0) {
            return Err(ScenarioError::value("tasks", "nothing to do"));
        }
        let groups = self
            .tasks
            .iter()
            .map(|group| group.build(names, agents))
            .collect::<Result<_, _>>()?;
        Ok(FleetLoad::Groups(groups))
    }
}

fn skill_set(skills: &[String], names: &mut Directory) -> Result<SkillSet, ScenarioError> {
    named(names.skill_set(skills), "skills")
}

fn named<T>(name: Result<T, NameError>, key: &str) -> Result<T, ScenarioError> {
    name.map_err(|error| ScenarioError::value(key, error.to_string()))
}

impl AgentGroup {
    fn build(
        &self,
        agents: &mut Vec<AgentSetup>,
        names: &mut Directory,
    ) -> Result<(), ScenarioError> {
        let skills = skill_set(&self.skills, names)?;
        let true_speed = self.true_speed.unwrap_or(self.speed);
        let positive = |value: f64| value > 0.0 && value.is_finite();
        if !positive(self.speed) || !positive(true_speed) || self.slots == 0 {
            let problem = "an agent has a positive speed and at least one slot";
            return Err(ScenarioError::value("agents", problem));
        }
        let cpus = milli(self.cpus)
            .ok_or_else(|| ScenarioError::value("agents.cpus", "processors are not negative"))?;
        let resources = self.resources.iter();
        let resources = resources.map(|(name, amount)| (name.as_str(), *amount));
        let resources = named(
            names.amounts(cpus, self.memory, resources),
            "agents.resources",
        )?;
        for _ in 0..self.count {
            let id = match &self.name {
                Some(name) => self.named(name, agents.len(), names)?,
                None => name_agent(names, agents.len()),
            };
            let mut spec = AgentSpec::new(id, skills.clone());
            spec.zone = named(names.zone(self.zone.as_deref()), "agents.zone")?;
            spec.slots = self.slots;
            spec.speed = self.speed;
            spec.resources = resources.clone();
            spec.heartbeats = self.heartbeat.is_some();
            spec.dispatch = match self.dispatch {
                DispatchSection::OnRequest => Dispatch::OnRequest,
                DispatchSection::KeepFull => Dispatch::KeepFull,
            };
            agents.push(AgentSetup {
                round_trip: None,
                spec,
                true_speed,
                failure: self.failure,
                straggler: self.straggler.unwrap_or((0.0, 1.0)),
                joins: nanos(self.joins),
                heartbeat: self.heartbeat.map(|interval| nanos(interval).max(1)),
            });
        }
        Ok(())
    }
}

impl AgentGroup {
    fn named(
        &self,
        name: &str,
        number: usize,
        names: &mut Directory,
    ) -> Result<AgentId, ScenarioError> {
        let id = named(names.agents.intern(name), "agents.name")?;
        if id == AgentId::from_number(number as u32) {
            return Ok(id);
        }
        let problem = format!("two agents are called `{name}`");
        Err(ScenarioError::value("agents.name", problem))
    }
}

impl TaskSection {
    fn build(&self, names: &mut Directory, agents: usize) -> Result<TaskGroup, ScenarioError> {
        if let Some(problem) = self.work.problem() {
            return Err(ScenarioError::value("tasks.work", problem));
        }
        if let Some(problem) = self.arrivals.problem() {
            return Err(ScenarioError::value("tasks.arrivals", problem));
        }
        if self.onto.is_some_and(|agent| agent as usize >= agents) {
            return Err(ScenarioError::value("tasks.onto", "there is no such agent"));
        }
        let priorities = self
            .priorities
            .iter()
            .map(|&level| Priority::new(level))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| ScenarioError::value("tasks.priorities", error.to_string()))?;
        if priorities.is_empty() {
            return Err(ScenarioError::value("tasks.priorities", "at least one"));
        }
        let task_skills = skill_set(&self.skills, names)?;
        let group = named(names.group(self.group.as_deref()), "tasks.group")?;
        Ok(TaskGroup {
            count: self.count,
            work: self.work,
            arrivals: self.arrivals,
            kind: names.kind(TaskKind {
                skills: task_skills,
                group,
                needs: Resources {
                    memory_bytes: self.memory,
                    ..Resources::default()
                },
                time_limit: self.time_limit.map(|limit| Span(nanos(limit))),
                retry: RetryRule {
                    retries: self.retries,
                    ..RetryRule::default()
                },
                speculate: self.speculate,
                ..TaskKind::default()
            }),
            priorities,
            declared: self.declared,
            deadline: self.deadline.map(nanos),
            onto: self.onto.map(AgentId::from_number),
        })
    }
}

impl FaultSection {
    fn build(&self, faults: &mut Vec<(Nanos, Fault)>, agents: usize) -> Result<(), ScenarioError> {
        for &agent in &self.agents {
            if agent as usize >= agents {
                return Err(ScenarioError::value(
                    "faults.agents",
                    "there is no such agent",
                ));
            }
            let (bad, good) = match self.what {
                FaultKind::Crash => (Fault::Crash(agent), Fault::Start(agent)),
                FaultKind::Cut => (Fault::Cut(agent), Fault::Mend(agent)),
                FaultKind::Slow(factor) if factor > 0.0 && factor.is_finite() => {
                    (Fault::Slow(agent, factor), Fault::Slow(agent, 1.0))
                }
                FaultKind::Slow(_) => {
                    return Err(ScenarioError::value("faults.slow", "a factor is positive"));
                }
                FaultKind::Leave => (Fault::Leave(agent), Fault::Start(agent)),
            };
            faults.push((nanos(self.at), bad));
            if let Some(lasting) = self.lasting {
                faults.push((nanos(self.at + lasting), good));
            }
        }
        Ok(())
    }
}

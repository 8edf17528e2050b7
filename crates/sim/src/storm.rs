//! Storms [X7]: short fleet runs in which one seed picks everything.
//!
//! The seed decides how large the fleet is, what the tasks need, how the scheduler is configured,
//! how bad the network is and who crashes when. Some kinds of trouble are switched off altogether,
//! so that the rest is seen more clearly, and in three of ten there is no trouble at all: there every moment must add
//! up. In half of these all tasks are long and every clock is right, so that nothing lies at an agent before it starts:
//! there whoever is urgent must come first, and nobody may have more than its share. Then the world heals: agents are up
//! and connected, but for a few that never come back; one that can do everything joins, and every task must end. A
//! scheduler that does nothing would pass every other check.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loxley_balance::Rng;
use loxley_driver::Directory;
use loxley_model::{
    AgentId, AgentSpec, DependencyFailure, Dispatch, Fallback, GroupId, JobId, JobSpec, NameId,
    Priority, Resources, RetryRule, SkillId, SkillSet, Span, TaskId, TaskKind, TaskSpec, Time,
    UserId, ZoneId,
};
use loxley_policy::{Config, ForecastRules, Matching, Strategy};

use crate::checkers::{FleetCheckers, Violation};
use crate::costs::Costs;
use crate::distribution::Distribution;
use crate::fleet::{self, AgentSetup, Drawn, Fault, FleetLoad, FleetSetup, FleetTasks, Network};
use crate::observer::{Happening, Observer};
use crate::statistics::RunStatistics;
use crate::time::{Nanos, SECOND, nanos};

/// The trouble lasts so long.
const STORM: Nanos = 60 * SECOND;
/// After the trouble, everything must be over within this time. In one world of a hundred thousand a group of which
/// one may run at once keeps a slow agent busy for more than two hours.
const PATIENCE: Nanos = 36_000 * SECOND;
/// No task that takes so long is given to an agent ahead of its time, however fast that is.
const LONG: Nanos = SECOND * 3 / 10;

/// A storm that a claim did not survive.
#[derive(Debug, Clone)]
pub struct StormFailure {
    /// Its seed.
    pub seed: u64,
    /// What was found.
    pub violation: Violation,
    /// Tasks that were left, in the scheduler's own words.
    pub unfinished: Vec<(u64, String)>,
}

impl fmt::Display for StormFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "loxley sim storm --seed {} # {}",
            self.seed, self.violation
        )?;
        for (task, words) in &self.unfinished {
            write!(f, "\n    task {task}: {words}")?;
        }
        Ok(())
    }
}

/// Runs the storm of this seed under all checkers; `observer` watches too. A scheduler that panics has
/// failed like one that loses a task.
pub fn run<O: Observer>(seed: u64, observer: &mut O) -> Result<RunStatistics, StormFailure> {
    let setup = setup(seed);
    let tasks = setup.tasks(&Rng::new(seed));
    let checkers = FleetCheckers::new(&setup, &tasks);
    let mut all = ((checkers, Clock::default()), observer);
    // Nothing of a run that panicked is used but what the clock shows.
    let run = AssertUnwindSafe(|| fleet::run(&setup, seed, &mut all));
    let outcome = catch_unwind(run).map_err(|panic| StormFailure {
        seed,
        violation: Violation {
            claim: "the scheduler does not stop",
            what: words_of(panic.as_ref()),
            at: all.0.1.now,
        },
        unfinished: Vec::new(),
    })?;
    all.0.0.learned(&outcome.speeds);
    match all.0.0.verdict(true) {
        Ok(()) => Ok(outcome.statistics),
        Err(violation) => Err(StormFailure {
            seed,
            violation,
            unfinished: outcome.unfinished,
        }),
    }
}

/// Shows when something last happened.
#[derive(Debug, Default)]
struct Clock {
    now: Nanos,
}

impl Observer for Clock {
    fn see(&mut self, now: Nanos, _: &Happening) {
        self.now = now;
    }
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it panicked".to_owned())
}

/// The fleet that this seed stands for.
#[must_use]
pub fn setup(seed: u64) -> FleetSetup {
    let root = Rng::new(seed).child("storm");
    let mut makers = Makers {
        size: root.child("size"),
        agents: root.child("agents"),
        tasks: root.child("tasks"),
        config: root.child("config"),
        network: root.child("network"),
        faults: root.child("faults"),
        deaths: root.child("deaths"),
        is_calm: root.child("calm").chance(0.3),
        is_long: root.child("long").chance(0.5),
        has_speeds: root.child("speeds").chance(0.5),
        declares_all: root.child("declares").chance(0.3),
        boasts: root.child("boasts").chance(0.3),
        forecast: root.child("forecast"),
        rhythm: 0,
    };
    let mut forecast = makers.forecast();
    makers.is_long &= makers.is_calm;
    if makers.is_long {
        (forecast.enabled, makers.rhythm) = (false, 0);
    }
    let skill_count = makers.size.below(4) as u32;
    let skill_count = if makers.is_calm { 0 } else { skill_count };
    let agent_count = 1 + makers.size.below(10) as u32;
    let mut agents: Vec<AgentSetup> = (0..agent_count)
        .map(|id| makers.agent(id, skill_count))
        .collect();
    agents.push(saviour(agent_count, skill_count));
    let task_count = 1 + makers.size.below(120);
    let tasks = makers.tasks(task_count, skill_count);
    let mut config = makers.config();
    config.forecast = forecast;
    FleetSetup {
        limits: Vec::new(),
        faults: makers.faults(&agents, task_count, &config),
        config,
        agents,
        load: FleetLoad::Given(Arc::new(tasks)),
        network: makers.network(),
        names: Directory::default(),
        costs: Costs::Exact,
        clock_skew: match makers.size.chance(0.3) && !makers.is_long {
            true => SECOND,
            false => 0,
        },
        until: Some(STORM + PATIENCE),
        verify: true,
    }
}

/// One generator for each part of a storm, so that one more draw here changes nothing there.
struct Makers {
    size: Rng,
    agents: Rng,
    tasks: Rng,
    config: Rng,
    network: Rng,
    faults: Rng,
    deaths: Rng,
    /// Whether nothing goes wrong.
    is_calm: bool,
    /// Whether all tasks are long, and every clock is right, where nothing goes wrong.
    is_long: bool,
    /// Whether agents are unequally fast, also where nothing goes wrong.
    has_speeds: bool,
    /// Whether the cost of every task is declared.
    declares_all: bool,
    /// Whether agents are faster or slower than they say, also where nothing goes wrong and every cost is declared.
    boasts: bool,
    forecast: Rng,
    /// Tasks come at multiples of this, where it is not 0.
    rhythm: Nanos,
}

/// An agent that can do everything, from the moment the storm is over.
fn saviour(id: u32, skill_count: u32) -> AgentSetup {
    let mut spec = AgentSpec::new(
        AgentId::from_number(id),
        (0..skill_count).map(SkillId).collect(),
    );
    spec.slots = 4;
    let mut agent = AgentSetup::new(spec);
    agent.joins = STORM + SECOND;
    agent
}

impl Makers {
    /// Forecasts are on in one of three, and in most of these there is something to forecast.
    fn forecast(&mut self) -> ForecastRules {
        let rng = &mut self.forecast;
        let enabled = rng.chance(0.33);
        let step = SECOND / 2 + rng.below(SECOND);
        if enabled && rng.chance(0.8) {
            self.rhythm = step * (4 + rng.below(4));
        }
        ForecastRules {
            enabled,
            step: Span(step),
            horizon: Span(step * (1 + rng.below(2))),
            season_max: Span(step * (12 + rng.below(20))),
            error_max: 1.0,
            share_max: rng.unit_f64(),
        }
    }

    fn agent(&mut self, id: u32, skill_count: u32) -> AgentSetup {
        let rng = &mut self.agents;
        let skills: SkillSet = (0..skill_count)
            .filter(|_| rng.chance(0.6))
            .map(SkillId)
            .collect();
        let mut spec = AgentSpec::new(AgentId::from_number(id), skills);
        spec.slots = 1 + rng.below(4) as u32;
        spec.speed = 0.25 * (1.0 + rng.below(12) as f64);
        spec.resources.memory_bytes = if rng.chance(0.5) { 1_000 } else { 0 };
        if rng.chance(0.5) {
            spec.dispatch = Dispatch::KeepFull;
        }
        spec.heartbeats = rng.chance(0.8);
        let mut zones = rng.numbered_child("zones", u64::from(id));
        spec.zone = zones.chance(0.5).then(|| ZoneId(zones.below(2) as u32));
        let mut agent = AgentSetup::new(spec);
        agent.heartbeat = agent.spec.heartbeats.then_some(SECOND);
        if rng.chance(0.2) {
            agent.true_speed = agent.spec.speed / 10.0;
        }
        if rng.chance(0.3) {
            agent.failure = 0.3 * rng.unit_f64();
        }
        if rng.chance(0.3) {
            agent.straggler = (0.1, 10.0);
        }
        if rng.chance(0.2) {
            agent.joins = rng.below(STORM / 2);
        }
        if self.is_calm {
            if !self.has_speeds {
                agent.spec.speed = 1.0;
            }
            agent.true_speed = agent.spec.speed;
            if self.declares_all && self.boasts {
                let mut truth = rng.numbered_child("truth", u64::from(id));
                agent.true_speed *= 0.25 * (1.0 + truth.below(12) as f64);
            }
            agent.failure = 0.0;
            agent.straggler = (0.0, 1.0);
        }
        agent
    }

    fn tasks(&mut self, count: u64, skill_count: u32) -> FleetTasks {
        let rng = &mut self.tasks;
        let all_at_once = rng.chance(0.3) && self.rhythm == 0;
        let with_edges = rng.chance(0.5);
        // So short that agents get a backlog, also where messages take no time.
        let is_short = rng.child("short").chance(0.25) && !self.is_long;
        let shorter = if is_short { 200 } else { 1 };
        let least = if self.is_long { LONG } else { 0 };
        let kinds: Vec<Arc<TaskKind>> = (0..1 + rng.below(6))
            .map(|_| task_kind(rng, skill_count))
            .map(|kind| {
                Arc::new(if self.is_calm {
                    without_limits(kind)
                } else {
                    kind
                })
            })
            .collect();
        let mut tasks = Drawn::default();
        let mut moment = 0;
        let mut batch_left = 0;
        for id in 0..count {
            if batch_left == 0 {
                batch_left = 1 + rng.below(20);
                if !all_at_once && id > 0 {
                    moment += rng.below(8 * SECOND);
                    if self.rhythm > 0 {
                        moment = tasks.submissions.len() as u64 * self.rhythm;
                    }
                }
                let mut job = JobSpec::new(JobId(tasks.submissions.len() as u64));
                job.user = UserId(rng.below(3) as u32);
                if self.rhythm > 0 {
                    (batch_left, job.user) = (8, UserId(0));
                }
                if rng.chance(0.3) {
                    job.dependency_failure = DependencyFailure::Skip;
                }
                tasks.submissions.push((moment, job, 0));
            }
            batch_left -= 1;
            let kind = Arc::clone(&kinds[rng.index(kinds.len())]);
            let mut spec = TaskSpec::new(TaskId(id), kind);
            spec.priority = Priority::new(1 + rng.below(5) as u8).unwrap_or_default();
            if self.rhythm > 0 && batch_left % 4 > 0 {
                // The same kind of work each time.
                spec.kind = Arc::clone(&kinds[0]);
                spec.priority = Priority::default();
            }
            let work = nanos(0.05 + 8.0 * rng.unit_f64() * rng.unit_f64()) / shorter + least;
            if rng.chance(0.6) || self.declares_all {
                spec.cost = Some(Span(work));
            }
            if rng.chance(0.1) {
                spec.deadline = Some(Time(moment + rng.below(60 * SECOND) + SECOND));
            }
            if rng.chance(0.05) {
                spec.fallback = Fallback::Value;
            }
            if with_edges && id > 0 && rng.chance(0.4) {
                spec.dependencies = (0..1 + rng.below(3))
                    .map(|_| TaskId(id - 1 - rng.below(id.min(15))))
                    .collect::<std::collections::BTreeSet<_>>()
                    .into_iter()
                    .collect();
            }
            tasks.specs.push(spec);
            tasks.work.push(work);
            tasks.submissions.last_mut().expect("pushed above").2 = id as usize + 1;
        }
        tasks.give_fallbacks(&mut rng.child("fallbacks"));
        FleetTasks::new(tasks)
    }

    fn config(&mut self) -> Config {
        let rng = &mut self.config;
        let mut config = Config {
            seed: rng.next_u64(),
            ..Config::default()
        };
        config.strategy = [Strategy::Pull, Strategy::Push, Strategy::Hybrid][rng.index(3)];
        config.capabilities.matching_strategy = [
            Matching::BestFit,
            Matching::Exact,
            Matching::Fallback,
            Matching::EarliestFinish,
        ][rng.index(4)];
        config.thresholds.busy_threshold = rng.below(6) as u32 + 1;
        config.thresholds.idle_threshold = rng.below(3) as u32 + 1;
        config.thresholds.rebalance_interval = Span(SECOND + rng.below(10 * SECOND));
        config.work_stealing.prefer_recent_tasks = rng.chance(0.5);
        config.work_stealing.steal_below_busy = rng.chance(0.7);
        config.work_stealing.allow_task_migration = rng.chance(0.3);
        config.work_stealing.min_tasks_to_steal = 1 + rng.below(3) as u32;
        config.priority.preserve_high_priority = rng.chance(0.7);
        config.performance.steal_batch_size = 1 + rng.below(4) as u32;
        config.performance.max_concurrent_steals = 1 + rng.below(6) as u32;
        config.heartbeats.suspect_after = Span(3 * SECOND);
        config.heartbeats.lost_after = Span(6 * SECOND);
        config.speculation.enabled = rng.chance(0.5);
        config.quotas.user_shares = rng.chance(0.5);
        config.learning.breaker_probe = Span(2 * SECOND);
        config.priority.rescue_high_priority = rng.chance(0.7);
        config.guards.max_moves = rng.below(4) as u32;
        config.quotas.reserved_slots = rng.below(2) as u32;
        let mut earning = rng.child("earning");
        config.added.earning.enabled = earning.chance(0.7);
        config.added.earning.successes = 1 + earning.below(4) as u32;
        if self.is_calm {
            if config.strategy == Strategy::Push {
                config.strategy = Strategy::Hybrid;
            }
            config.work_stealing.steal_below_busy = true;
            config.work_stealing.min_tasks_to_steal = 1;
            config.priority.rescue_high_priority = true;
            if rng.child("backfill").chance(0.5) {
                // Nobody keeps room for a large task that was passed often.
                config.quotas.backfill_limit = u32::MAX;
            }
            config.quotas.reserved_slots = 0;
        }
        config
    }

    fn network(&mut self) -> Network {
        let rng = &mut self.network;
        if self.is_calm || rng.chance(0.25) {
            return Network::default();
        }
        let slow = [0.001, 0.05, 0.5][rng.index(3)];
        let mut network = Network {
            delay: Distribution::Exponential(slow),
            retransmit: 1.0,
            ..Network::default()
        };
        if rng.chance(0.5) {
            network.loss = 0.3 * rng.unit_f64();
        }
        if rng.chance(0.5) {
            network.duplicate = 0.3 * rng.unit_f64();
        }
        network.reorder = rng.chance(0.5);
        network
    }

    fn faults(&mut self, all: &[AgentSetup], tasks: u64, config: &Config) -> Vec<(Nanos, Fault)> {
        // The last one comes when it is over.
        let agents = all.len() as u32 - 1;
        let rng = &mut self.faults;
        let mut kinds: Vec<u64> = (0..7).filter(|_| rng.chance(0.5)).collect();
        if self.is_calm {
            kinds.retain(|kind| *kind == 4);
        }
        let mut faults = Vec::new();
        let trouble = if kinds.is_empty() { 0 } else { rng.below(25) };
        for _ in 0..trouble {
            let at = rng.below(STORM);
            let agent = rng.below(u64::from(agents)) as u32;
            let later = (at + SECOND / 10 + rng.below(20 * SECOND)).min(STORM);
            match kinds[rng.index(kinds.len())] {
                0 => faults.extend([(at, Fault::Crash(agent)), (later, Fault::Start(agent))]),
                1 => faults.extend([(at, Fault::Cut(agent)), (later, Fault::Mend(agent))]),
                2 => faults.extend([
                    (at, Fault::Slow(agent, 20.0)),
                    (later, Fault::Slow(agent, 1.0)),
                ]),
                3 => faults.extend([(at, Fault::Leave(agent)), (later, Fault::Start(agent))]),
                4 => faults.push((at, Fault::Cancel(rng.below(tasks)))),
                5 => {
                    let mut other = config.clone();
                    other.strategy = Strategy::Hybrid;
                    other.thresholds.busy_threshold = 1 + rng.below(4) as u32;
                    other.capabilities.matching_strategy = Matching::BestFit;
                    faults.push((at, Fault::Reconfigure(Box::new(other))));
                }
                _ => {
                    let limit = 1 + rng.below(3) as u32;
                    faults.push((at, Fault::Limit(GroupId(0), limit)));
                    faults.push((at, Fault::Rebalance));
                    let user = UserId(rng.below(3) as u32);
                    faults.push((at, Fault::Weight(user, 1 + limit)));
                }
            }
        }
        if self.is_calm {
            let mut rng = rng.child("weights");
            for user in (0..3).map(UserId) {
                if rng.chance(0.3) {
                    let weight = 1 + rng.below(4) as u32;
                    faults.push((rng.below(STORM / 4), Fault::Weight(user, weight)));
                }
            }
            faults.sort_by_key(|(at, _)| *at);
            return faults;
        }
        for agent in 0..agents {
            faults.push((STORM, Fault::Mend(agent)));
            faults.push((STORM, Fault::Start(agent)));
            faults.push((STORM, Fault::Slow(agent, 1.0)));
        }
        faults.push((STORM, Fault::CalmNetwork));
        self.let_some_die(&all[..agents as usize], &mut faults);
        faults.sort_by_key(|(at, _)| *at);
        faults
    }

    /// Some of those who would be missed never come back.
    fn let_some_die(&mut self, agents: &[AgentSetup], faults: &mut Vec<(Nanos, Fault)>) {
        let rng = &mut self.deaths;
        if !rng.chance(0.3) {
            return;
        }
        for (number, agent) in (0..).zip(agents) {
            if agent.heartbeat.is_some() && rng.chance(0.3) {
                let death = agent.joins + rng.below(STORM);
                faults.retain(|(at, fault)| *fault != Fault::Start(number) || *at < death);
                faults.push((death, Fault::Crash(number)));
            }
        }
    }
}

impl Drawn {
    /// Some tasks with a time limit get another of their batch, which waits for nothing, as their fallback.
    fn give_fallbacks(&mut self, rng: &mut Rng) {
        let mut first = 0;
        for &(_, _, end) in &self.submissions {
            let mut free: Vec<usize> = (first..end)
                .filter(|task| self.specs[*task].dependencies.is_empty())
                .collect();
            for task in first..end {
                let is_limited = self.specs[task].kind.time_limit.is_some();
                if !is_limited || !rng.chance(0.3) {
                    continue;
                }
                let Some(fallback) = free.iter().rposition(|other| *other > task) else {
                    continue;
                };
                let fallback = TaskId(free.remove(fallback) as u64);
                self.specs[task].fallback = Fallback::Task(fallback);
            }
            first = end;
        }
    }
}

/// The same kind of task with nothing that takes it off an agent.
fn without_limits(kind: TaskKind) -> TaskKind {
    TaskKind {
        time_limit: None,
        hold_limit: None,
        ..kind
    }
}

fn task_kind(rng: &mut Rng, skill_count: u32) -> TaskKind {
    TaskKind {
        work: None,
        once: false,
        skills: (0..skill_count)
            .filter(|_| rng.chance(0.4))
            .map(SkillId)
            .collect(),
        needs: Resources {
            memory_bytes: if rng.chance(0.4) { rng.below(900) } else { 0 },
            ..Resources::default()
        },
        group: rng.chance(0.3).then_some(GroupId(0)),
        time_limit: rng
            .chance(0.2)
            .then(|| Span(SECOND + rng.below(60 * SECOND))),
        hold_limit: rng
            .chance(0.2)
            .then(|| Span(SECOND + rng.below(60 * SECOND))),
        retry: RetryRule {
            retries: rng.below(5) as u32,
            base: Span::from_millis(100),
            cap: Span::from_secs(5),
        },
        speculate: rng.chance(0.5),
        checkpoints: rng.chance(0.3),
    }
}

//! What happens: five scenes, each with a fleet of its own, what it is to show, and what it claims.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use loxley::{
    Agent, BalanceReport, Config, Context, Fleet, Handle, Job, Metrics, Problem, Span, Task, Why,
};
use loxley_balance::Rng;

use super::mill::Mill;
use super::stage::Stage;

/// What all scenes have in common.
pub(super) struct Setting {
    pub(super) agents: usize,
    pub(super) seed: u64,
    /// About how long a scene takes.
    pub(super) scene_secs: f64,
    pub(super) mill: Mill,
}

/// The usual length of a task; lengths vary by a third around it.
const TASK_MS: f64 = 24.0;

impl Setting {
    /// As many tasks as so many agents do in the time of a scene.
    fn tasks(&self, agents: usize) -> usize {
        (self.scene_secs * 1e3 / TASK_MS * agents as f64).ceil() as usize
    }

    fn rng(&self, scene: &str) -> Rng {
        Rng::new(self.seed).child(scene)
    }

    fn fleet(&self, agents: usize) -> Result<Fleet> {
        Ok(Fleet::builder()
            .agents(agents)
            .config(config(self.seed))
            .build()?)
    }
}

/// The published defaults, with shorter intervals: a demo does not last as long as a service.
fn config(seed: u64) -> Config {
    let mut config = Config {
        seed,
        ..Config::default()
    };
    config.thresholds.rebalance_interval = Span::from_millis(200);
    config.metrics.utilization_sample_interval = Span::from_millis(100);
    config
}

fn mean() -> Duration {
    Duration::from_secs_f64(TASK_MS / 1e3)
}

fn length(rng: &mut Rng) -> Duration {
    let share = 2.0 / 3.0 + rng.unit_f64() * 2.0 / 3.0;
    mean().mul_f64(share)
}

/// A scene of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scene {
    BasicStealing,
    HotSpot,
    CascadingFailure,
    ProtectedPriority,
    FullMetrics,
}

/// All scenes, in the order in which they are played.
pub(super) const SCENES: [Scene; 5] = [
    Scene::BasicStealing,
    Scene::HotSpot,
    Scene::CascadingFailure,
    Scene::ProtectedPriority,
    Scene::FullMetrics,
];

/// What came of a scene.
pub(super) struct SceneResult {
    pub(super) scene: Scene,
    pub(super) about: String,
    pub(super) agents: usize,
    pub(super) tasks: usize,
    pub(super) secs: f64,
    /// What was seen.
    pub(super) facts: Vec<String>,
    /// What was claimed, and whether it held.
    pub(super) claims: Vec<(String, bool)>,
    /// None where agents came and went: the figures compare agents that had the same time.
    pub(super) balance: Option<BalanceReport>,
    pub(super) metrics: Metrics,
    pub(super) problems: Vec<Problem>,
}

impl SceneResult {
    pub(super) fn claims_hold(&self) -> bool {
        self.claims.iter().all(|(_, held)| *held)
    }
}

impl Scene {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::BasicStealing => "basic stealing",
            Self::HotSpot => "hot spot",
            Self::CascadingFailure => "cascading failure",
            Self::ProtectedPriority => "protected high priority",
            Self::FullMetrics => "the full metrics",
        }
    }

    pub(super) fn play(self, setting: &Setting, stage: &Stage) -> Result<SceneResult> {
        match self {
            Self::BasicStealing => basic_stealing(setting, stage),
            Self::HotSpot => hot_spot(setting, stage),
            Self::CascadingFailure => cascading_failure(setting, stage),
            Self::ProtectedPriority => protected_priority(setting, stage),
            Self::FullMetrics => full_metrics(setting, stage),
        }
    }

    fn result(self, fleet: &Fleet, begin: Instant, about: String) -> SceneResult {
        let metrics = fleet.metrics();
        SceneResult {
            scene: self,
            about,
            agents: metrics.agent_count,
            tasks: usize::try_from(metrics.counts.submitted).unwrap_or(usize::MAX),
            secs: begin.elapsed().as_secs_f64(),
            facts: Vec::new(),
            claims: Vec::new(),
            balance: Some(fleet.report()),
            problems: fleet.scheduler().health(),
            metrics,
        }
    }
}

/// Every agent gets as many tasks as the others, but one of them gets the long ones.
fn basic_stealing(setting: &Setting, stage: &Stage) -> Result<SceneResult> {
    let scene = Scene::BasicStealing;
    let fleet = setting.fleet(setting.agents)?;
    let mut rng = setting.rng("basic");
    let begin = Instant::now();
    // Tasks are placed in turn, so every so many-th goes to the same agent.
    let handles = (0..setting.tasks(setting.agents))
        .map(|number| {
            let share = if number % setting.agents == 0 {
                1.2
            } else {
                0.8
            };
            let length = length(&mut rng).mul_f64(share * 0.5) + mean().mul_f64(share * 0.5);
            submit(&fleet, setting, Task::unnamed(), length)
        })
        .collect::<Result<Vec<_>>>()?;
    stage.watch(scene.title(), &fleet, handles.len(), |_| Ok(()))?;

    let about = "as many tasks for each agent, but one gets the long ones; who is done first helps";
    let mut result = scene.result(&fleet, begin, about.into());
    result.facts.push(tasks_moved(&result.metrics));
    result.claims.push(every_result_once(&handles));
    Ok(result)
}

/// All tasks are given to one agent.
fn hot_spot(setting: &Setting, stage: &Stage) -> Result<SceneResult> {
    let scene = Scene::HotSpot;
    let fleet = setting.fleet(setting.agents)?;
    let mut rng = setting.rng("hot spot");
    let begin = Instant::now();
    let count = setting.tasks(setting.agents);
    let mut batch = fleet.batch(Job::new().onto("agent-1"));
    let handles: Vec<Handle<u64>> = (1..=count)
        .map(|number| {
            let run = work(setting, length(&mut rng));
            batch.add_with(Task::new(format!("page-{number}")), run)
        })
        .collect();
    batch.submit()?;
    let last = format!("page-{}", count / 2);
    let explanation = fleet.scheduler().explain(last.as_str());
    stage.watch(scene.title(), &fleet, count, |_| Ok(()))?;

    let about = "every task is put on the queue of agent-1";
    let mut result = scene.result(&fleet, begin, about.into());
    if let Some(explanation) = explanation {
        let words = explanation.to_string();
        result
            .facts
            .push(format!("asked at the start: why does {last} not run?"));
        result
            .facts
            .extend(words.lines().map(|line| format!("  {line}")));
    }
    let busy = fleet.busy_times();
    let shares: Vec<String> = busy
        .iter()
        .map(|(agent, time)| format!("{agent} {:.2} s", time.as_secs_f64()))
        .collect();
    let moved = tasks_moved(&result.metrics);
    result
        .facts
        .push(format!("{moved}; busy: {}", shares.join(", ")));
    result.claims.push(every_result_once(&handles));
    if setting.agents > 1 {
        let all_helped = busy.iter().all(|(_, time)| !time.is_zero());
        result
            .claims
            .push(("every agent helped".into(), all_helped));
    }
    Ok(result)
}

/// Agents crash one after the other in the middle of their work, and one comes to help.
fn cascading_failure(setting: &Setting, stage: &Stage) -> Result<SceneResult> {
    let scene = Scene::CascadingFailure;
    // One more than usual, so that there is somebody left to fail.
    let agents = setting.agents.max(2) + 1;
    let fleet = setting.fleet(agents)?;
    let mut rng = setting.rng("cascade");
    let begin = Instant::now();
    let handles = (0..setting.tasks(setting.agents.max(2)))
        .map(|_| submit(&fleet, setting, Task::unnamed(), length(&mut rng)))
        .collect::<Result<Vec<_>>>()?;
    let total = handles.len();
    let mut facts = Vec::new();
    stage.watch(scene.title(), &fleet, total, |done| {
        let crashes = facts.len();
        if crashes < 2 && done * 4 >= total * (crashes + 1) && done < total {
            let victim = format!("agent-{}", crashes + 1);
            let status = fleet.scheduler().agent_status(&victim);
            let (queued, running) =
                status.map_or((0, 0), |status| (status.queue_length, status.running.len()));
            fleet.kill(&victim)?;
            facts.push(format!(
                "{victim} crashed with {queued} tasks queued and {running} running, {done} of {total} done"
            ));
            if crashes == 1 {
                fleet.join("replacement")?;
            }
        }
        Ok(())
    })?;

    let about = "two agents crash in the middle of their work; then one comes to help";
    let mut result = scene.result(&fleet, begin, about.into());
    let crashes = facts.len();
    result.facts = facts;
    let stale = result.metrics.stale_answers;
    result.facts.push(format!(
        "{stale} answers came from crashed agents and were dropped"
    ));
    result.claims.push(every_result_once(&handles));
    result.claims.push((
        "two agents crashed, and were replaced by one".into(),
        crashes == 2,
    ));
    result.agents = agents;
    result.balance = None;
    Ok(result)
}

/// Urgent tasks among others, all on one agent: others may help, but not with what is urgent.
fn protected_priority(setting: &Setting, stage: &Stage) -> Result<SceneResult> {
    let scene = Scene::ProtectedPriority;
    let mut config = config(setting.seed);
    // Otherwise whoever is idle starts them at once, while their own agent is busy.
    config.priority.rescue_high_priority = false;
    let fleet = Fleet::builder()
        .agents(setting.agents)
        .config(config)
        .build()?;
    let mut rng = setting.rng("priority");
    let log: Log = Arc::default();
    let begin = Instant::now();
    let count = setting.tasks(setting.agents);
    let mut batch = fleet.batch(Job::new().onto("agent-1"));
    let mut handles = Vec::new();
    for number in 0..count {
        let is_urgent = number % (6 * setting.agents) == 0;
        let run = work(setting, length(&mut rng));
        let log = Arc::clone(&log);
        let task = Task::unnamed().priority(if is_urgent { 5 } else { 2 });
        handles.push(batch.add_with(task, move |context| {
            log.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(Start {
                    is_urgent,
                    was_moved: !matches!(context.why, Why::Named),
                    after: begin.elapsed(),
                });
            run(context)
        }));
    }
    batch.submit()?;
    stage.watch(scene.title(), &fleet, count, |_| Ok(()))?;

    let log = log.lock().unwrap_or_else(PoisonError::into_inner);
    let (urgent, normal): (Vec<&Start>, Vec<&Start>) =
        log.iter().partition(|start| start.is_urgent);
    let wait = |starts: &[&Start]| {
        let sum: Duration = starts.iter().map(|start| start.after).sum();
        sum.as_secs_f64() / starts.len().max(1) as f64
    };
    let moved = |starts: &[&Start]| starts.iter().filter(|start| start.was_moved).count();
    let about = format!(
        "{} urgent tasks among {} others, all on the queue of agent-1",
        urgent.len(),
        normal.len()
    );
    let mut result = scene.result(&fleet, begin, about);
    result.facts.push(format!(
        "urgent tasks waited {:.2} s on average, the others {:.2} s",
        wait(&urgent),
        wait(&normal)
    ));
    let (urgent_moved, normal_moved) = (moved(&urgent), moved(&normal));
    result.facts.push(format!(
        "moved to other agents: {normal_moved} of the others, {urgent_moved} urgent ones"
    ));
    result.claims.push(every_result_once(&handles));
    result
        .claims
        .push(("no urgent task was stolen".into(), urgent_moved == 0));
    let sooner = wait(&urgent) < wait(&normal);
    result
        .claims
        .push(("urgent tasks started sooner".into(), sooner));
    Ok(result)
}

type Log = Arc<Mutex<Vec<Start>>>;

/// When and how a task started.
struct Start {
    is_urgent: bool,
    was_moved: bool,
    after: Duration,
}

/// Everything at once: skills, priorities, dependencies, deadlines, failures that are tried again.
fn full_metrics(setting: &Setting, stage: &Stage) -> Result<SceneResult> {
    let scene = Scene::FullMetrics;
    let mut builder = Fleet::builder().config(config(setting.seed));
    for number in 1..=setting.agents {
        // Everybody can count; drawing and writing are shared out, and the first can do both.
        let mut skills = vec!["count", if number % 2 == 0 { "draw" } else { "write" }];
        if number == 1 {
            skills.push("draw");
        }
        builder = builder.with_agent(Agent::new(format!("agent-{number}")).skills(skills));
    }
    let fleet = builder.build()?;
    let mut rng = setting.rng("full");
    let begin = Instant::now();
    let count = setting.tasks(setting.agents);
    let mut batch = fleet.batch(Job::new().user("demo"));
    let mut handles = Vec::new();
    let mut waits = BTreeMap::new();
    for number in 0..count {
        let mut task = Task::new(format!("step-{number}"))
            .skill(["count", "count", "draw", "write"][rng.index(4)])
            .priority([1, 2, 2, 3, 3, 3, 3, 4][rng.index(8)])
            .due_in(Duration::from_secs(120))
            .retries(2)
            .backoff(Duration::from_millis(5), Duration::from_millis(20));
        // The second half waits for the first.
        if number >= count / 2 {
            let earlier = rng.index(count / 2);
            task = task.after(format!("step-{earlier}"));
            waits.insert(number, earlier);
        }
        let run = work(setting, length(&mut rng));
        let stumbles = rng.chance(0.05);
        handles.push(batch.add_with(task, move |context| {
            let value = run(context)?;
            if stumbles && context.attempt == 1 {
                return Err("it stumbled, as every twentieth does");
            }
            Ok(value)
        }));
    }
    let expected = handles.len();
    batch.submit()?;
    stage.watch(scene.title(), &fleet, expected, |_| Ok(()))?;

    let about = "skills, priorities, dependencies, deadlines, and failures that are tried again";
    let mut result = scene.result(&fleet, begin, about.into());
    let metrics = &result.metrics;
    result.facts.push(format!(
        "{} tasks waited for others; {} attempts failed and were tried again",
        waits.len(),
        metrics.retries
    ));
    result.claims.push(every_result_once(&handles));
    result.claims.push((
        "no deadline was missed".into(),
        metrics.deadline_misses == 0,
    ));
    let balances = metrics.counts.balance() && metrics.counts.live() == 0;
    result
        .claims
        .push(("nothing is left, and the books balance".into(), balances));
    Ok(result)
}

fn tasks_moved(metrics: &Metrics) -> String {
    match metrics.tasks_migrated {
        1 => "1 task moved to an idle agent".into(),
        moved => format!("{moved} tasks moved to idle agents"),
    }
}

fn submit(fleet: &Fleet, setting: &Setting, task: Task, length: Duration) -> Result<Handle<u64>> {
    fleet
        .submit_with(task, work(setting, length))
        .context("the fleet refused a task")
}

/// Work of a certain length; an error when nobody wants it any more.
fn work(
    setting: &Setting,
    length: Duration,
) -> impl Fn(&Context) -> Result<u64, &'static str> + Send + Sync + 'static {
    let mill = setting.mill;
    move |context| mill.work(length, context).ok_or("nobody wants it any more")
}

fn every_result_once(handles: &[Handle<u64>]) -> (String, bool) {
    let results = handles
        .iter()
        .filter(|handle| handle.wait_within(Duration::ZERO).is_ok());
    let results = results.count();
    let words = format!("{results} results for {} tasks", handles.len());
    (words, results == handles.len())
}

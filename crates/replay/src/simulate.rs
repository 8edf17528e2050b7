//! Recorded work in virtual time, with the real scheduler.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use loxley_balance::{BalanceReport, Rng, Sketch};
use loxley_model::{AgentId, JobId, NameId, Names, Outcome, Span, TaskId, TaskKind, Unplaceable};
use loxley_sim::costs::Costs;
use loxley_sim::distribution::Distribution;
use loxley_sim::fleet::{
    self, AgentSetup, Arrival, Attempt, Fault, FleetLoad, FleetSetup, FleetTasks, Network,
};
use loxley_sim::time::{Nanos, SECOND};
use loxley_sim::{Happening, Observer, Recorder, Timeline};

use crate::figures::{Figures, Trace, TracedTask};
use crate::recording::{PastAttempt, RecordedTask, Recording};
use crate::what_if::{WhatIf, WhatIfError};

/// One simulated run.
#[derive(Debug, Clone)]
pub struct Simulated {
    /// Who ran what when.
    pub trace: Trace,
    /// What it comes to.
    pub figures: Figures,
    /// How balanced it was.
    pub balance: BalanceReport,
}

/// A fleet that does not come to the end of the work.
#[derive(Debug, thiserror::Error)]
pub enum Impossible {
    /// What was asked for makes no sense.
    #[error(transparent)]
    WhatIf(#[from] WhatIfError),
    /// Tasks are left over.
    #[error("{label}: {left} of {all} tasks never end; one of them: {words}")]
    LeftOver {
        /// Which variant.
        label: String,
        /// How many tasks.
        left: usize,
        /// Of how many.
        all: usize,
        /// What the scheduler says of one.
        words: String,
    },
}

/// Runs the work of a recording as it would have been. Seed 0 takes every duration as it was; every other seed
/// shares out the durations anew among tasks of one kind and makes each up to 2 % longer or shorter, so that
/// several seeds say what is chance.
///
/// # Errors
/// When what is asked for makes no sense, or tasks are left over.
pub fn simulate(
    recording: &Recording,
    what_if: &WhatIf,
    seed: u64,
) -> Result<Simulated, Impossible> {
    let plan = Plan::new(recording, what_if, seed)?;
    let mut watcher = Watcher::new(&plan);
    let outcome = fleet::run(&plan.setup, seed, &mut watcher);
    if let Some((_, words)) = outcome.unfinished.first() {
        let tasks = watcher.tasks.iter();
        return Err(Impossible::LeftOver {
            label: what_if.label.clone(),
            left: tasks.filter(|task| task.ended.is_none()).count(),
            all: watcher.tasks.len(),
            words: words.clone(),
        });
    }
    let trace = watcher.finish(&plan);
    let figures = Figures::of(&trace, recording);
    Ok(Simulated {
        trace,
        figures,
        balance: outcome.statistics.balance(),
    })
}

/// The fleet and the work of a recording, for whoever runs them in the simulator himself.
///
/// # Errors
/// When what is asked for makes no sense.
pub fn fleet_setup(recording: &Recording, what_if: &WhatIf) -> Result<FleetSetup, WhatIfError> {
    Ok(Plan::new(recording, what_if, 0)?.setup)
}

/// Where two traces of the same work part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parting {
    /// When.
    pub at: Nanos,
    /// The task of the recording that first starts elsewhere, or at another time.
    pub task: usize,
    /// Where it starts in the first: when, on which agent.
    pub first: Option<(Nanos, u32)>,
    /// Where it starts in the second.
    pub second: Option<(Nanos, u32)>,
}

/// Where two traces of the same work part by more than `slack`; none when they do not.
#[must_use]
pub fn parting(first: &Trace, second: &Trace, slack: Nanos) -> Option<Parting> {
    let pairs = first.tasks.iter().zip(&second.tasks);
    let differing = pairs.filter_map(|(one, other)| {
        let same = match (one.started, other.started) {
            (Some((a, on)), Some((b, there))) => on == there && a.abs_diff(b) <= slack,
            (None, None) => true,
            _ => false,
        };
        let starts = [one.started, other.started].into_iter().flatten();
        let at = starts.map(|(at, _)| at).min()?;
        (!same).then_some(Parting {
            at,
            task: one.origin,
            first: one.started,
            second: other.started,
        })
    });
    differing.min_by_key(|parting| (parting.at, parting.task))
}

/// What happened, what happens as recorded and what happens otherwise: lanes of the one above those of the other.
///
/// # Errors
/// As [`simulate`].
pub fn drawn_together(
    recording: &Recording,
    first: Option<&WhatIf>,
    second: &WhatIf,
) -> Result<Timeline, Impossible> {
    let upper = match first {
        Some(what_if) => Drawing::of_plan(
            &Plan::new(recording, what_if, 0)?,
            &format!(" ({})", what_if.label),
        ),
        None => Drawing::of_record(recording, " (real)"),
    };
    let lower = Drawing::of_plan(
        &Plan::new(recording, second, 0)?,
        &format!(" ({})", second.label),
    );
    let below = upper.lanes.len() as u32;
    let mut lanes = upper.lanes;
    lanes.extend(lower.lanes);
    let mut all = upper.events;
    all.extend(lower.events.into_iter().map(|(at, mut happening)| {
        shift(&mut happening, below, LOWER);
        (at, happening)
    }));
    all.sort_by_key(|(at, _)| *at);
    let end = all.last().map_or(0, |(at, _)| *at);
    let mut recorder = Recorder::new(lanes);
    for (at, happening) in &all {
        recorder.see(*at, happening);
    }
    Ok(recorder.finish(end, &Sketch::default()))
}

/// An agent, and how much of its slots was busy.
#[derive(Debug, Clone)]
pub struct Lane {
    /// What it is called.
    pub name: String,
    /// How many tasks it runs at once.
    pub slots: u32,
    /// For each column of time the share of its slots that ran something, 0 to 1.
    pub busy: Vec<f64>,
}

/// Who was busy when: what happened, or what happens under `what_if`, in so many columns from the first arrival on.
///
/// # Errors
/// As [`simulate`].
pub fn lanes(
    recording: &Recording,
    what_if: Option<&WhatIf>,
    column: Nanos,
    columns: usize,
) -> Result<Vec<Lane>, Impossible> {
    let drawing = match what_if {
        Some(what_if) => Drawing::of_plan(&Plan::new(recording, what_if, 0)?, ""),
        None => Drawing::of_record(recording, ""),
    };
    let mut lanes: Vec<Lane> = drawing
        .lanes
        .into_iter()
        .map(|(name, slots)| Lane {
            name,
            slots,
            busy: vec![0.0; columns],
        })
        .collect();
    let column = column.max(1);
    let mut fill = |worker: u32, from: Nanos, to: Nanos| {
        let lane = &mut lanes[worker as usize];
        let unit = f64::from(lane.slots.max(1)) * column as f64;
        let first = (from / column) as usize;
        for (number, share) in lane.busy.iter_mut().enumerate().skip(first) {
            let begin = number as Nanos * column;
            if begin >= to {
                break;
            }
            *share += ((begin + column).min(to) - begin.max(from)) as f64 / unit;
        }
    };
    let mut running = HashMap::new();
    for (at, happening) in drawing.events {
        match happening {
            Happening::Started { worker, task } => {
                running.insert((worker, task), at);
            }
            Happening::Finished { worker, task, .. } | Happening::Stopped { worker, task } => {
                if let Some(from) = running.remove(&(worker, task)) {
                    fill(worker, from, at);
                }
            }
            _ => {}
        }
    }
    Ok(lanes)
}

/// Tasks of the lower half have numbers from here on.
const LOWER: u64 = 1 << 40;

/// Lanes and what is drawn in them.
struct Drawing {
    lanes: Vec<(String, u32)>,
    events: Vec<(Nanos, Happening)>,
}

impl Drawing {
    fn of_plan(plan: &Plan, mark: &str) -> Self {
        let mut events = Vec::new();
        fleet::run(&plan.setup, 0, &mut Collector(&mut events));
        let lanes = plan.setup.agents.iter().map(|agent| {
            let name = plan.setup.names.agent_name(agent.spec.id);
            (format!("{name}{mark}"), agent.spec.slots)
        });
        Self {
            lanes: lanes.collect(),
            events,
        }
    }

    fn of_record(recording: &Recording, mark: &str) -> Self {
        let lanes = recording.agents.iter();
        let lanes = lanes.map(|agent| (format!("{}{mark}", agent.name), agent.spec.slots));
        let mut events = Vec::new();
        for (number, task) in recording.tasks.iter().enumerate() {
            for attempt in &task.attempts {
                let (worker, task) = (attempt.agent, number as u64);
                let ok = attempt.outcome == Outcome::Succeeded;
                let end = attempt.started + attempt.ran;
                events.push((attempt.started, Happening::Queued { worker, task }));
                events.push((attempt.started, Happening::Started { worker, task }));
                events.push((end, Happening::Finished { worker, task, ok }));
            }
        }
        Self {
            lanes: lanes.collect(),
            events,
        }
    }
}

struct Collector<'a>(&'a mut Vec<(Nanos, Happening)>);

impl Observer for Collector<'_> {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        let is_drawn = matches!(
            happening,
            Happening::Queued { .. }
                | Happening::Started { .. }
                | Happening::Finished { .. }
                | Happening::Stopped { .. }
                | Happening::Moved { .. }
                | Happening::Withdrawn { .. }
        );
        if is_drawn {
            self.0.push((now, *happening));
        }
    }
}

/// The same, of other workers and tasks.
fn shift(happening: &mut Happening, workers: u32, tasks: u64) {
    match happening {
        Happening::Queued { worker, task }
        | Happening::Started { worker, task }
        | Happening::Stopped { worker, task }
        | Happening::Withdrawn { worker, task }
        | Happening::Finished { worker, task, .. } => {
            *worker += workers;
            *task += tasks;
        }
        Happening::Moved { from, to, task, .. } => {
            *from += workers;
            *to += workers;
            *task += tasks;
        }
        _ => {}
    }
}

/// A fleet with its work, ready to run.
pub(crate) struct Plan {
    pub(crate) setup: FleetSetup,
    tasks: Arc<FleetTasks>,
    /// Which recorded task each is.
    origins: Vec<usize>,
    gap: Nanos,
}

impl Plan {
    pub(crate) fn new(
        recording: &Recording,
        what_if: &WhatIf,
        seed: u64,
    ) -> Result<Self, WhatIfError> {
        let rng = Rng::new(seed);
        let fleet = what_if.fleet(recording)?;
        let mut names = recording.names.clone();
        names.agents = Names::new();
        let mut agents = Vec::new();
        let mut new_number = BTreeMap::new();
        for (number, is_added) in fleet
            .kept
            .iter()
            .map(|number| (*number, false))
            .chain(fleet.added.iter().map(|number| (*number, true)))
        {
            let recorded = &recording.agents[number];
            let name = match is_added {
                false => recorded.name.to_string(),
                true => format!("{} (added {})", recorded.name, agents.len()),
            };
            let named = names.agents.intern(&name).ok();
            let id = named.unwrap_or_else(|| AgentId::from_number(agents.len() as u32));
            if !is_added {
                new_number.insert(number as u32, agents.len() as u32);
            }
            let mut spec = recorded.spec.clone();
            spec.id = id;
            spec.heartbeats &= !is_added;
            agents.push(AgentSetup {
                true_speed: recorded.speed,
                joins: if is_added { 0 } else { recorded.joins },
                heartbeat: (recorded.falls_silent && !is_added).then_some(SECOND),
                round_trip: recorded.round_trip,
                ..AgentSetup::new(spec)
            });
        }
        let config = what_if.config_over(&recording.config)?;
        let mut faults = Vec::new();
        if what_if.config.is_none() {
            for (at, config) in &recording.reconfigured {
                let config = what_if.config_over(config)?;
                faults.push((*at, Fault::Reconfigure(Box::new(config))));
            }
        }
        for (at, fault) in &recording.events {
            faults.extend(renumbered(fault, &new_number).map(|fault| (*at, fault)));
        }
        let work = Work::drawn(recording, what_if.load.unwrap_or(1.0), &rng);
        faults.extend(work.cancellations(recording));
        faults.sort_by_key(|(at, _)| *at);
        let total: Nanos = work.work.iter().sum();
        let slowest = agents.iter().map(|agent| agent.true_speed);
        let slowest = slowest.fold(f64::INFINITY, f64::min).max(1e-3);
        let last = work.arrivals.last().map_or(0, |arrival| arrival.at);
        let patience = (total as f64 / slowest) as Nanos + last;
        let (origins, tasks) = (work.origins, work.arrivals);
        let tasks = Arc::new(FleetTasks::recorded(tasks, work.work, work.attempts));
        let seconds = recording.delay as f64 / 1e9;
        let setup = FleetSetup {
            config,
            agents,
            load: FleetLoad::Given(Arc::clone(&tasks)),
            network: Network {
                delay: Distribution::Fixed(seconds),
                hold: recording.hold as f64 / 1e9,
                ..Network::default()
            },
            limits: recording.limits.clone(),
            faults,
            names,
            costs: Costs::Exact,
            clock_skew: 0,
            // Retries wait, and the lost are given up only after a while; what takes longer than this never ends.
            until: Some(2 * patience + 24 * 3600 * SECOND),
            verify: false,
        };
        Ok(Self {
            setup,
            tasks,
            origins,
            gap: recording.gap,
        })
    }
}

/// A fault of a fleet with other numbers; none when it is about somebody who is not there.
fn renumbered(fault: &Fault, numbers: &BTreeMap<u32, u32>) -> Option<Fault> {
    let new = |agent: &u32| numbers.get(agent).copied();
    Some(match fault {
        Fault::Crash(agent) => Fault::Crash(new(agent)?),
        Fault::Start(agent) => Fault::Start(new(agent)?),
        Fault::Cut(agent) => Fault::Cut(new(agent)?),
        Fault::Mend(agent) => Fault::Mend(new(agent)?),
        Fault::Leave(agent) => Fault::Leave(new(agent)?),
        Fault::Drain(agent) => Fault::Drain(new(agent)?),
        Fault::Silent(agent) => Fault::Silent(new(agent)?),
        Fault::Heard(agent) => Fault::Heard(new(agent)?),
        // Told by the work itself, whose numbers may be others.
        Fault::Cancel(_) | Fault::CancelJob(_) => return None,
        other => other.clone(),
    })
}

/// Work as it is run: recorded tasks, some of them several times, with durations.
struct Work {
    arrivals: Vec<Arrival>,
    work: Vec<Nanos>,
    attempts: HashMap<u32, Box<[Attempt]>>,
    origins: Vec<usize>,
    /// For each recorded task its numbers.
    numbers: HashMap<usize, Vec<u64>>,
    /// For each recorded job its numbers.
    jobs: BTreeMap<JobId, Vec<JobId>>,
}

/// Copies of a job have numbers this far apart.
const COPIES_APART: u64 = 1 << 40;

impl Work {
    fn drawn(recording: &Recording, load: f64, root: &Rng) -> Self {
        let mut durations = Durations::new(recording, root);
        let copies = copies_of(recording, load, root);
        let mut work = Self {
            arrivals: Vec::new(),
            work: Vec::new(),
            attempts: HashMap::new(),
            origins: Vec::new(),
            numbers: HashMap::new(),
            jobs: BTreeMap::new(),
        };
        for (job, count) in &copies {
            let numbers = (0..*count).map(|copy| copied(*job, copy));
            work.jobs.insert(*job, numbers.collect());
        }
        for arrival in &recording.arrivals {
            for copy in 0..copies[&arrival.job.id] {
                let first = work.work.len();
                let numbers: HashMap<u64, u64> = (arrival.tasks.clone().map(|old| old as u64))
                    .zip(first as u64..)
                    .collect();
                let mut tasks = Vec::with_capacity(arrival.tasks.len());
                for origin in arrival.tasks.clone() {
                    let recorded = &recording.tasks[origin];
                    let mut spec = recorded.spec.clone();
                    let earlier = |id: &TaskId| {
                        let here = numbers.get(&id.0).copied();
                        let before = work.numbers.get(&(id.0 as usize));
                        here.or_else(|| before?.get(copy as usize).copied())
                            .map(TaskId)
                    };
                    spec.dependencies = spec.dependencies.iter().filter_map(earlier).collect();
                    if let loxley_model::Fallback::Task(id) = spec.fallback {
                        spec.fallback = earlier(&id)
                            .map_or(loxley_model::Fallback::None, loxley_model::Fallback::Task);
                    }
                    spec.id = TaskId(first as u64 + tasks.len() as u64);
                    let number = spec.id.0;
                    let (takes, attempts) = durations.of(recorded, origin, recording);
                    work.work.push(takes);
                    if let Some(attempts) = attempts {
                        work.attempts.insert(number as u32, attempts);
                    }
                    work.origins.push(origin);
                    tasks.push(spec);
                }
                for (origin, number) in arrival.tasks.clone().zip(first as u64..) {
                    work.numbers.entry(origin).or_default().push(number);
                }
                let copied_job = |job: &JobId| copied(*job, copy);
                let mut job = arrival.job;
                job.id = copied(job.id, copy);
                // It was accepted then. A fleet that cannot do it is told of when all is over.
                job.unplaceable = Unplaceable::Hold;
                work.arrivals.push(Arrival {
                    at: arrival.at,
                    job,
                    after: arrival.after.iter().map(copied_job).collect(),
                    tasks,
                });
            }
        }
        work
    }

    /// What was cancelled, of every copy.
    fn cancellations(&self, recording: &Recording) -> Vec<(Nanos, Fault)> {
        let mut all = Vec::new();
        for (at, fault) in &recording.events {
            match fault {
                Fault::Cancel(task) => {
                    let numbers = self.numbers.get(&(*task as usize)).into_iter().flatten();
                    all.extend(numbers.map(|number| (*at, Fault::Cancel(*number))));
                }
                Fault::CancelJob(job) => {
                    let jobs = self.jobs.get(job).into_iter().flatten();
                    all.extend(jobs.map(|job| (*at, Fault::CancelJob(*job))));
                }
                _ => {}
            }
        }
        all
    }
}

fn copied(job: JobId, copy: u64) -> JobId {
    JobId(job.0 + copy * COPIES_APART)
}

/// How often each job comes: the whole part of the load, and once more by chance.
fn copies_of(recording: &Recording, load: f64, root: &Rng) -> BTreeMap<JobId, u64> {
    let mut rng = root.child("load");
    let mut copies = BTreeMap::new();
    for arrival in &recording.arrivals {
        copies.entry(arrival.job.id).or_insert_with(|| {
            let whole = load as u64;
            whole + u64::from(rng.chance(load - whole as f64))
        });
    }
    copies
}

/// How long tasks take: as they did, or shared out anew.
struct Durations {
    /// Known durations by kind and declared cost, at speed 1.
    known: HashMap<Kind, Vec<Nanos>>,
    all: Vec<Nanos>,
    /// What each recorded task takes in this run, where durations are shared out.
    shared: Option<Vec<Option<Nanos>>>,
    rng: Rng,
    is_first: bool,
}

type Kind = (Arc<TaskKind>, Option<Span>);

impl Durations {
    fn new(recording: &Recording, root: &Rng) -> Self {
        let is_first = root.to_words()[0] == 0;
        let mut known: HashMap<Kind, Vec<Nanos>> = HashMap::new();
        let mut members: HashMap<Kind, Vec<usize>> = HashMap::new();
        let mut order: Vec<Kind> = Vec::new();
        let mut all = Vec::new();
        for (number, task) in recording.tasks.iter().enumerate() {
            if let Some(takes) = plain(task, recording) {
                let kind = kind(task);
                let takers = known.entry(kind.clone()).or_insert_with(|| {
                    order.push(kind.clone());
                    Vec::new()
                });
                takers.push(takes);
                members.entry(kind).or_default().push(number);
                all.push(takes);
            }
        }
        let mut rng = root.child("durations");
        let shared = (!is_first).then(|| {
            let mut shared = vec![None; recording.tasks.len()];
            for kind in &order {
                let mut takes = known[kind].clone();
                rng.shuffle(&mut takes);
                for (number, takes) in members[kind].iter().zip(takes) {
                    shared[*number] = Some(takes);
                }
            }
            shared
        });
        for takes in known.values_mut() {
            takes.sort_unstable();
        }
        all.sort_unstable();
        Self {
            known,
            all,
            shared,
            rng,
            is_first,
        }
    }

    /// What a task takes, and how its attempts go where there is more to say.
    fn of(
        &mut self,
        task: &RecordedTask,
        number: usize,
        recording: &Recording,
    ) -> (Nanos, Option<Box<[Attempt]>>) {
        let gap = |takes: Nanos, speed: f64| takes + (recording.gap as f64 * speed) as Nanos;
        if let Some(takes) = plain(task, recording) {
            let shared = self.shared.as_ref().and_then(|shared| shared[number]);
            let takes = self.jittered(shared.unwrap_or(takes));
            return (gap(takes, 1.0), None);
        }
        let mut attempts: Vec<Attempt> = task
            .attempts
            .iter()
            .map(|attempt| Attempt {
                work: gap(at_speed_1(attempt, recording), 1.0),
                outcome: attempt.outcome,
            })
            .collect();
        let succeeded = |attempt: &Attempt| attempt.outcome == Outcome::Succeeded;
        if attempts.is_empty() || (task.at_least.is_some() && !attempts.iter().any(succeeded)) {
            let takes = self.like(task);
            attempts.push(Attempt {
                work: gap(takes, 1.0),
                outcome: Outcome::Succeeded,
            });
        }
        for attempt in &mut attempts {
            attempt.work = self.jittered(attempt.work);
        }
        let last = attempts.last().map_or(0, |attempt| attempt.work);
        (last, Some(attempts.into()))
    }

    /// The duration of a task that nobody saw to its end: that of one of its kind which ran for at least as long.
    fn like(&mut self, task: &RecordedTask) -> Nanos {
        let at_least = task.at_least.unwrap_or(0);
        let of_kind = self.known.get(&kind(task));
        let known = of_kind.unwrap_or(&self.all);
        let longer = &known[known.partition_point(|takes| *takes < at_least)..];
        let declared = task.spec.cost.map(|cost| cost.0);
        match longer.len() {
            0 => declared.unwrap_or(0).max(at_least),
            count if self.is_first => longer[count / 2],
            count => longer[self.rng.index(count)],
        }
    }

    fn jittered(&mut self, takes: Nanos) -> Nanos {
        const JITTER: f64 = 0.02;
        if self.is_first {
            return takes;
        }
        let factor = 1.0 + JITTER * (2.0 * self.rng.unit_f64() - 1.0);
        (takes as f64 * factor) as Nanos
    }
}

fn kind(task: &RecordedTask) -> Kind {
    (Arc::clone(&task.spec.kind), task.spec.cost)
}

/// The duration of a task whose first attempt succeeded, at speed 1.
fn plain(task: &RecordedTask, recording: &Recording) -> Option<Nanos> {
    match task.attempts[..] {
        [only] if only.outcome == Outcome::Succeeded => Some(at_speed_1(&only, recording)),
        _ => None,
    }
}

fn at_speed_1(attempt: &PastAttempt, recording: &Recording) -> Nanos {
    let agent = recording.agents.get(attempt.agent as usize);
    let speed = agent.map_or(1.0, |agent| agent.speed);
    (attempt.ran as f64 * speed) as Nanos
}

/// Makes a trace of what happens.
struct Watcher {
    tasks: Vec<TracedTask>,
    slots: Vec<u32>,
    here_since: Vec<Option<Nanos>>,
    room: Nanos,
    present: Nanos,
    busy: Nanos,
    running: HashMap<(u32, u64), Nanos>,
    attempts: u64,
    moved: u64,
    misses: u64,
    end: Nanos,
}

impl Watcher {
    fn new(plan: &Plan) -> Self {
        let origins = plan.origins.iter();
        Self {
            tasks: origins
                .map(|origin| TracedTask {
                    origin: *origin,
                    ..TracedTask::default()
                })
                .collect(),
            slots: plan.setup.agents.iter().map(|one| one.spec.slots).collect(),
            here_since: vec![None; plan.setup.agents.len()],
            room: 0,
            present: 0,
            busy: 0,
            running: HashMap::new(),
            attempts: 0,
            moved: 0,
            misses: 0,
            end: 0,
        }
    }

    fn gone(&mut self, now: Nanos, worker: u32) {
        if let Some(since) = self.here_since[worker as usize].take() {
            self.present += now - since;
            self.room += (now - since) * Nanos::from(self.slots[worker as usize]);
        }
    }

    fn finish(mut self, plan: &Plan) -> Trace {
        for worker in 0..self.slots.len() as u32 {
            self.gone(self.end, worker);
        }
        let ends: Vec<Option<Nanos>> = self.tasks.iter().map(|task| task.ended).collect();
        for (number, task) in self.tasks.iter_mut().enumerate() {
            let before = plan.tasks.spec(number).dependencies.iter();
            let before = before.filter_map(|id| ends[id.0 as usize]);
            task.ready = before.fold(task.arrived, Nanos::max);
        }
        Trace {
            tasks: self.tasks,
            // What lies between two tasks is no work.
            busy: self.busy.saturating_sub(self.attempts * plan.gap),
            room: self.room,
            present: self.present,
            moved: self.moved,
            misses: self.misses,
        }
    }
}

impl Observer for Watcher {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        match *happening {
            Happening::Submitted { task } => self.tasks[task as usize].arrived = now,
            Happening::Started { worker, task } => {
                self.running.insert((worker, task), now);
                self.tasks[task as usize]
                    .started
                    .get_or_insert((now, worker));
            }
            Happening::Finished { worker, task, .. } | Happening::Stopped { worker, task } => {
                if let Some(since) = self.running.remove(&(worker, task)) {
                    self.busy += now - since;
                    self.attempts += 1;
                }
            }
            Happening::Ended { task, ok, .. } => {
                let task = &mut self.tasks[task as usize];
                task.ended = Some(now);
                task.ok = ok;
                self.end = self.end.max(now);
            }
            Happening::Moved { stolen: true, .. } => self.moved += 1,
            Happening::DeadlineLost { .. } => self.misses += 1,
            Happening::Joined { worker } => {
                self.here_since[worker as usize] = Some(now);
            }
            Happening::Left { worker } | Happening::Crashed { worker } => self.gone(now, worker),
            _ => {}
        }
    }
}

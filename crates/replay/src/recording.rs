//! A journal as a workload.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use loxley_driver::Directory;
use loxley_engine::{Fact, PastWork, RecoverError, past_work};
use loxley_journal::Journal;
use loxley_model::{
    AgentId, AgentSpec, GroupId, JobId, JobSpec, Lease, NameId, Outcome, Span, TaskId, TaskSpec,
    Time,
};
use loxley_policy::{Action, Config, Ending, Reason, Report, Selection, SelfTuning};
use loxley_sim::fleet::Fault;
use loxley_sim::time::Nanos;

use crate::actual;
use crate::figures::Trace;

/// Why a journal is no workload.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read, or this version decides otherwise.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// Nothing happened in it.
    #[error(
        "no task has run to its end in this journal: there is nothing to replay; \
         `loxley run --journal DIR` and a server's directory make journals"
    )]
    Empty,
}

/// What a journal tells: the work, the fleet, and what became of both. Times count from the first arrival.
#[derive(Debug, Clone)]
pub struct Recording {
    /// What everything is called.
    pub(crate) names: Directory,
    /// The configuration at the first arrival.
    pub(crate) config: Config,
    /// Configurations that came later.
    pub(crate) reconfigured: Vec<(Nanos, Box<Config>)>,
    pub(crate) agents: Vec<RecordedAgent>,
    pub(crate) arrivals: Vec<RecordedArrival>,
    /// In the order of arrival; ids and edges are numbers in this list.
    pub(crate) tasks: Vec<RecordedTask>,
    /// Cancellations, comings and goings, in order.
    pub(crate) events: Vec<(Nanos, Fault)>,
    pub(crate) limits: Vec<(GroupId, u32)>,
    pub(crate) actual: Trace,
    /// What an agent needs between two tasks of a slot.
    pub(crate) gap: Nanos,
    /// From a decision to the agent, one way.
    pub(crate) delay: Nanos,
    /// So long news of an end is kept back.
    pub(crate) hold: Nanos,
    /// When the first task came, by the clock of the journal.
    begin: Time,
    notes: Vec<String>,
}

/// An agent that was there.
#[derive(Debug, Clone)]
pub(crate) struct RecordedAgent {
    pub(crate) name: Arc<str>,
    pub(crate) zone: Option<String>,
    pub(crate) spec: AgentSpec,
    /// How fast it was, by how long tasks of one kind took here and elsewhere.
    pub(crate) speed: f64,
    /// When it first came.
    pub(crate) joins: Nanos,
    /// Whether it was ever silent: then its silence must be noticed.
    pub(crate) falls_silent: bool,
    pub(crate) round_trip: Option<Nanos>,
    /// When it was there.
    pub(crate) present: Vec<(Nanos, Nanos)>,
}

/// Tasks that came together.
#[derive(Debug, Clone)]
pub(crate) struct RecordedArrival {
    pub(crate) at: Nanos,
    pub(crate) job: JobSpec,
    pub(crate) after: Vec<JobId>,
    /// Its tasks, as numbers in the list.
    pub(crate) tasks: std::ops::Range<usize>,
}

/// A task and what became of it.
#[derive(Debug, Clone)]
pub(crate) struct RecordedTask {
    /// With numbers of this list.
    pub(crate) spec: TaskSpec,
    pub(crate) arrival: usize,
    /// Attempts that ended by themselves.
    pub(crate) attempts: Vec<PastAttempt>,
    /// Of one that was stopped: it would have run at least so long.
    pub(crate) at_least: Option<Nanos>,
}

/// An attempt that ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PastAttempt {
    pub(crate) agent: u32,
    pub(crate) started: Nanos,
    pub(crate) ran: Nanos,
    pub(crate) outcome: Outcome,
}

impl Recording {
    /// Reads a journal as far back as it goes.
    ///
    /// # Errors
    /// When it cannot be read, when this version decides otherwise than the one that wrote it, or when no task
    /// ran to its end.
    pub fn read(journal: &mut dyn Journal) -> Result<Self, ReadError> {
        let mut reader = Reader::default();
        let names = past_work(journal, &mut |now, told| reader.hear(now, told))?;
        reader.finish(names)
    }

    /// What the journal does not say, and what was assumed instead; a sentence each.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// When the first task came, by the clock of the journal.
    #[must_use]
    pub fn begin(&self) -> Time {
        self.begin
    }

    /// How many tasks there are.
    #[must_use]
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// How many agents there were.
    #[must_use]
    pub fn agent_count(&self) -> usize {
        self.agents.len()
    }

    /// The configuration in force when the first task came.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What happened.
    #[must_use]
    pub fn actual(&self) -> &Trace {
        &self.actual
    }

    /// The part of the work that came in this share of the time, with the whole fleet. Times stay as they are.
    ///
    /// Edges to tasks outside are dropped.
    #[must_use]
    pub fn part(&self, from: f64, to: f64) -> Option<Self> {
        let count = self.tasks.len() as f64;
        let is_whole = self.arrivals.len() < 4;
        let first = (count * from) as usize;
        let last = (count * to).min(count) as usize;
        // Where everything came at once, a part is a part of the tasks; else of the arrivals.
        let wanted: Vec<bool> = match is_whole {
            true => (0..self.tasks.len())
                .map(|task| (first..last).contains(&task))
                .collect(),
            false => {
                let of_arrival = |task: &RecordedTask| &self.arrivals[task.arrival].tasks;
                let tasks = self.tasks.iter();
                tasks
                    .map(|task| (first..last).contains(&of_arrival(task).start))
                    .collect()
            }
        };
        self.only(&wanted)
    }

    fn only(&self, wanted: &[bool]) -> Option<Self> {
        let mut numbers = vec![None; self.tasks.len()];
        let mut part = self.clone();
        part.tasks.clear();
        part.arrivals.clear();
        for arrival in &self.arrivals {
            let begin = part.tasks.len();
            for number in arrival.tasks.clone().filter(|number| wanted[*number]) {
                let mut task = self.tasks[number].clone();
                numbers[number] = Some(part.tasks.len());
                task.arrival = part.arrivals.len();
                part.tasks.push(task);
            }
            if part.tasks.len() > begin {
                part.arrivals.push(RecordedArrival {
                    tasks: begin..part.tasks.len(),
                    ..arrival.clone()
                });
            }
        }
        let new = |id: &TaskId| numbers[id.0 as usize].map(|number: usize| TaskId(number as u64));
        for (number, task) in part.tasks.iter_mut().enumerate() {
            task.spec.id = TaskId(number as u64);
            task.spec.dependencies = task.spec.dependencies.iter().filter_map(new).collect();
            if let loxley_model::Fallback::Task(id) = task.spec.fallback {
                task.spec.fallback = new(&id).map_or(loxley_model::Fallback::None, |id| {
                    loxley_model::Fallback::Task(id)
                });
            }
        }
        let events = self.events.iter().filter_map(|(at, fault)| match fault {
            Fault::Cancel(task) => {
                let new = numbers[*task as usize]?;
                Some((*at, Fault::Cancel(new as u64)))
            }
            other => Some((*at, other.clone())),
        });
        part.events = events.collect();
        let begin = part.arrivals.first()?.at;
        part.shift_to(begin);
        let kept = numbers.iter().enumerate();
        let kept = kept.filter_map(|(old, new)| Some((old, (*new)?)));
        let old_tasks = std::mem::take(&mut part.actual.tasks);
        part.actual.tasks = kept
            .map(|(old, new)| {
                let mut traced = old_tasks[old];
                traced.origin = new;
                traced.arrived = traced.arrived.saturating_sub(begin);
                traced.ready = traced.ready.saturating_sub(begin);
                let started = traced.started;
                traced.started = started.map(|(at, agent)| (at.saturating_sub(begin), agent));
                traced.ended = traced.ended.map(|at| at.saturating_sub(begin));
                traced
            })
            .collect();
        Some(part)
    }

    /// Everything begins at this moment.
    fn shift_to(&mut self, begin: Nanos) {
        let earlier = |at: &mut Nanos| *at = at.saturating_sub(begin);
        self.begin = self.begin + Span(begin);
        let last = self.reconfigured.iter().rfind(|(at, _)| *at <= begin);
        if let Some((_, config)) = last {
            self.config = (**config).clone();
        }
        self.reconfigured.retain(|(at, _)| *at > begin);
        self.reconfigured.iter_mut().for_each(|(at, _)| earlier(at));
        self.events.iter_mut().for_each(|(at, _)| earlier(at));
        for agent in &mut self.agents {
            earlier(&mut agent.joins);
            for (from, to) in &mut agent.present {
                earlier(from);
                earlier(to);
            }
        }
        self.arrivals
            .iter_mut()
            .for_each(|one| earlier(&mut one.at));
        for attempt in self.tasks.iter_mut().flat_map(|task| &mut task.attempts) {
            earlier(&mut attempt.started);
        }
    }
}

/// A lease that is in force.
#[derive(Debug, Clone, Copy)]
struct Held {
    task: TaskId,
    agent: AgentId,
    assigned: Time,
    started: Option<Time>,
    /// Whether the agent had a slot free for it, and was awake.
    at_once: bool,
    /// Whether its end is only waited for.
    called_off: bool,
    /// Whether it was there when the journal begins.
    is_old: bool,
}

/// What is heard of a task, under the number that the journal has for it.
#[derive(Debug)]
struct Heard {
    spec: TaskSpec,
    attempts: Vec<PastAttempt>,
    at_least: Option<Nanos>,
    first_start: Option<(Time, u32)>,
    ended: Option<Time>,
    ok: bool,
}

#[derive(Debug)]
struct HeardArrival {
    at: Time,
    job: JobSpec,
    after: Vec<JobId>,
    tasks: Vec<TaskId>,
    is_open: bool,
}

#[derive(Debug)]
struct HeardAgent {
    name: Arc<str>,
    zone: Option<String>,
    spec: AgentSpec,
    present: Vec<(Time, Option<Time>)>,
    round_trip: Option<Span>,
    held: u32,
    /// Whether it ever got a task.
    was_given: bool,
    /// Since when it has had as much as it can run, or more.
    full_since: Option<Time>,
    full: Vec<(Time, Time)>,
    silent_since: Option<Time>,
    ever_silent: bool,
    /// Attempts that were stopped, or lost with it.
    stopped: Vec<(Nanos, Nanos)>,
    changed: bool,
}

/// Hears what a journal tells and makes a recording of it.
#[derive(Debug, Default)]
struct Reader {
    config: Config,
    reconfigured: Vec<(Time, Box<Config>)>,
    agents: BTreeMap<AgentId, HeardAgent>,
    arrivals: Vec<HeardArrival>,
    tasks: HashMap<TaskId, Heard>,
    events: Vec<(Time, Event)>,
    limits: Vec<(GroupId, u32)>,
    held: HashMap<Lease, Held>,
    latencies: actual::Latencies,
    moved: u64,
    misses: u64,
    restarts: u64,
    resubmitted: u64,
    is_run: bool,
    last: Time,
}

/// What is to happen again at its time.
#[derive(Debug)]
enum Event {
    Cancel(Selection),
    Fault(Fault),
}

impl Reader {
    fn hear(&mut self, now: Time, told: PastWork<'_>) {
        self.last = self.last.max(now);
        match told {
            PastWork::Configured(config) => {
                self.config = config.clone();
                // What it changed is replayed as it was: nobody tunes a second time.
                self.config.self_tuning = SelfTuning::default();
            }
            PastWork::Agent { name, spec, zone } => {
                self.agent_came(now, name, spec, zone.map(ToOwned::to_owned));
            }
            PastWork::Tasks {
                job,
                after,
                is_open,
                limits,
                tasks,
            } => self.tasks_came(now, job, after, is_open, limits, tasks),
            PastWork::Leased { task, agent, lease } => {
                self.assigned(now, task, agent, lease, None);
                if let Some(held) = self.held.get_mut(&lease) {
                    held.is_old = true;
                    held.at_once = false;
                }
            }
            PastWork::Weight { user, weight } => {
                let event = Event::Fault(Fault::Weight(user, weight));
                self.events.push((now, event));
            }
            PastWork::Fact(fact) => self.hear_fact(now, fact),
            PastWork::Decision(action) => self.hear_decision(now, action),
        }
    }

    fn agent_came(&mut self, now: Time, name: Arc<str>, spec: AgentSpec, zone: Option<String>) {
        self.is_run |= now == Time::ZERO;
        let id = spec.id;
        let number = id.number();
        if let Some(known) = self.agents.get_mut(&id) {
            if known.present.last().is_some_and(|(_, to)| to.is_none()) {
                // Another process of this name: the one before is gone.
                self.events.push((now, Event::Fault(Fault::Crash(number))));
                known.close(now);
            }
            known.changed |= spec != known.spec;
            known.spec = spec;
            known.silent_since = None;
            known.present.push((now, None));
            self.events.push((now, Event::Fault(Fault::Mend(number))));
            self.events.push((now, Event::Fault(Fault::Start(number))));
            return;
        }
        let heard = HeardAgent {
            name,
            zone,
            spec,
            present: vec![(now, None)],
            round_trip: None,
            held: 0,
            was_given: false,
            full_since: None,
            full: Vec::new(),
            silent_since: None,
            ever_silent: false,
            stopped: Vec::new(),
            changed: false,
        };
        self.agents.insert(id, heard);
    }

    fn tasks_came(
        &mut self,
        now: Time,
        job: JobSpec,
        after: &[JobId],
        is_open: bool,
        limits: Vec<(GroupId, u32)>,
        tasks: Vec<TaskSpec>,
    ) {
        self.limits.extend(limits);
        self.arrivals.push(HeardArrival {
            at: now,
            job,
            after: after.to_vec(),
            tasks: tasks.iter().map(|spec| spec.id).collect(),
            is_open,
        });
        for spec in tasks {
            let heard = Heard {
                attempts: Vec::new(),
                at_least: None,
                first_start: None,
                ended: None,
                ok: false,
                spec,
            };
            self.tasks.insert(heard.spec.id, heard);
        }
    }

    fn hear_fact(&mut self, now: Time, fact: &Fact) {
        let fault = |fault| (now, Event::Fault(fault));
        match fact {
            Fact::Started { lease, .. } => {
                if let Some(held) = self.held.get_mut(lease)
                    && held.started.is_none()
                {
                    held.started = Some(now);
                    if held.at_once {
                        self.latencies.starts.push(now.since(held.assigned).0);
                    }
                }
            }
            Fact::Finished {
                lease,
                outcome,
                ran,
                ..
            } => self.finished(now, *lease, *outcome, *ran),
            Fact::Yielded {
                lease,
                yielded: true,
                ..
            } => _ = self.let_go(now, *lease),
            Fact::AgentHeard { agent, vitals } => {
                if let Some(agent) = self.agents.get_mut(agent)
                    && vitals.round_trip > Span::ZERO
                {
                    agent.round_trip.get_or_insert(vitals.round_trip);
                }
            }
            Fact::AgentResumed { agent, .. } => {
                if let Some(this) = self.agents.get_mut(agent)
                    && this.silent_since.take().is_some()
                {
                    self.events.push(fault(Fault::Mend(agent.number())));
                    self.events.push(fault(Fault::Heard(agent.number())));
                }
            }
            Fact::AgentSilent(agent) => self.silent(now, *agent),
            Fact::Restarted => {
                self.restarts += u64::from(!self.agents.is_empty());
                let here: Vec<AgentId> = self.agents.keys().copied().collect();
                here.into_iter().for_each(|agent| self.silent(now, agent));
            }
            Fact::AgentDrained(agent) => self.events.push(fault(Fault::Drain(agent.number()))),
            Fact::AgentLeft(agent) => {
                self.events.push(fault(Fault::Leave(agent.number())));
                self.gone(now, *agent);
            }
            Fact::Cancelled(selection) => self.events.push((now, Event::Cancel(*selection))),
            Fact::Resubmitted(tasks) => self.resubmitted += tasks.len() as u64,
            Fact::ConfigChanged(config) | Fact::ConfigGiven(config) => {
                let mut config = config.clone();
                config.forecast = self.last_config().forecast;
                self.reconfigured.push((now, config));
            }
            Fact::ForecastSet(rules) => {
                let mut config = self.last_config().clone();
                config.forecast = **rules;
                self.reconfigured.push((now, Box::new(config)));
            }
            Fact::SettingTuned(step) => {
                let mut config = self.last_config().clone();
                step.put(&mut config);
                self.reconfigured.push((now, Box::new(config)));
            }
            Fact::RebalanceRequested => self.events.push(fault(Fault::Rebalance)),
            _ => {}
        }
    }

    /// The configuration that was in force last.
    fn last_config(&self) -> &Config {
        let last = self.reconfigured.last();
        last.map_or(&self.config, |(_, config)| config)
    }

    fn silent(&mut self, now: Time, agent: AgentId) {
        let Some(this) = self.agents.get_mut(&agent) else {
            return;
        };
        let is_here = this.present.last().is_some_and(|(_, to)| to.is_none());
        if is_here && this.silent_since.is_none() {
            this.silent_since = Some(now);
            this.stop_being_full(now);
            this.ever_silent = true;
            let number = agent.number();
            self.events.push((now, Event::Fault(Fault::Cut(number))));
            self.events.push((now, Event::Fault(Fault::Silent(number))));
        }
    }

    fn gone(&mut self, now: Time, agent: AgentId) {
        if let Some(agent) = self.agents.get_mut(&agent) {
            agent.close(now);
        }
    }

    fn hear_decision(&mut self, now: Time, action: &Action) {
        match action {
            Action::Assign {
                task,
                agent,
                lease,
                reason,
                ..
            } => self.assigned(now, *task, *agent, *lease, Some(*reason)),
            Action::Cancel {
                lease,
                awaited: true,
                ..
            } => {
                if let Some(held) = self.held.get_mut(lease) {
                    held.called_off = true;
                }
            }
            Action::Cancel { lease, .. } => {
                if let Some(held) = self.let_go(now, *lease) {
                    self.note_stopped(now, held);
                }
            }
            Action::Report(Report::Finished { task, ending, .. }) => {
                if let Some(task) = self.tasks.get_mut(task) {
                    task.ended = Some(now);
                    task.ok = matches!(ending, Ending::Succeeded { .. } | Ending::FellBack { .. });
                }
            }
            Action::Report(Report::DeadlineLost { .. }) => self.misses += 1,
            Action::Report(Report::AgentLost(agent)) => {
                // What was cut off and never came back was a crash.
                let cut = Fault::Cut(agent.number());
                let is_cut = |(_, event): &&mut (Time, Event)| matches!(event, Event::Fault(fault) if *fault == cut);
                if let Some((_, event)) = self.events.iter_mut().rev().find(is_cut) {
                    *event = Event::Fault(Fault::Crash(agent.number()));
                }
                self.gone(now, *agent);
            }
            _ => {}
        }
    }

    fn assigned(
        &mut self,
        now: Time,
        task: TaskId,
        agent: AgentId,
        lease: Lease,
        reason: Option<Reason>,
    ) {
        if let Some(
            Reason::Stolen(_)
            | Reason::Rebalanced(_)
            | Reason::BehindStraggler(_)
            | Reason::MadeRoom(_),
        ) = reason
        {
            self.moved += 1;
        }
        let Some(this) = self.agents.get_mut(&agent) else {
            return;
        };
        let at_once = this.held < this.spec.slots && this.was_given;
        this.was_given = true;
        this.hold(now, 1);
        let held = Held {
            task,
            agent,
            assigned: now,
            started: None,
            at_once,
            called_off: false,
            is_old: false,
        };
        self.held.insert(lease, held);
    }

    fn let_go(&mut self, now: Time, lease: Lease) -> Option<Held> {
        let held = self.held.remove(&lease)?;
        if let Some(agent) = self.agents.get_mut(&held.agent) {
            agent.hold(now, -1);
        }
        Some(held)
    }

    fn finished(&mut self, now: Time, lease: Lease, outcome: Outcome, ran: Span) {
        let Some(held) = self.let_go(now, lease) else {
            return;
        };
        if held.called_off {
            return self.note_stopped(now, held);
        }
        // Of what began before the journal does, the part within it counts.
        let ran = match held.is_old {
            true => ran.min(now.since(held.assigned)),
            false => ran,
        };
        if let Some(told) = held.started {
            let later = now.since(told).0.saturating_sub(ran.0);
            self.latencies.ends.push(later);
        }
        if held.at_once {
            let all = now.since(held.assigned).0;
            self.latencies.whole.push(all.saturating_sub(ran.0));
        }
        let Some(task) = self.tasks.get_mut(&held.task) else {
            return;
        };
        let by_end = (now - ran).max(held.assigned);
        let started = held.started.map_or(by_end, |told| told.min(by_end));
        task.first_start
            .get_or_insert((started, held.agent.number()));
        task.attempts.push(PastAttempt {
            agent: held.agent.number(),
            started: started.0,
            ran: ran.0,
            outcome,
        });
    }

    /// An attempt was stopped: it would have run for longer.
    fn note_stopped(&mut self, now: Time, held: Held) {
        let (Some(started), Some(task)) = (held.started, self.tasks.get_mut(&held.task)) else {
            return;
        };
        let agent = self.agents.get_mut(&held.agent);
        // Nobody knows what it did while it was not heard.
        let silent = agent.as_ref().and_then(|agent| agent.silent_since);
        let now = silent.unwrap_or(now).max(started);
        if let Some(agent) = agent {
            agent.stopped.push((started.0, now.0));
        }
        task.first_start
            .get_or_insert((started, held.agent.number()));
        let ran = now.since(started).0;
        task.at_least = task.at_least.max(Some(ran));
    }

    fn finish(mut self, names: Directory) -> Result<Recording, ReadError> {
        let left_out = self.leave_out_what_goes_on();
        let Some(begin) = self.arrivals.first().map(|arrival| arrival.at) else {
            return Err(ReadError::Empty);
        };
        let held_back = self.move_what_was_held_back();
        self.arrivals.sort_by_key(|arrival| arrival.at);
        let since = |at: Time| at.since(begin).0;
        let end = self.tasks.values().filter_map(|task| task.ended).max();
        let end = end.unwrap_or(begin);
        self.leave_out_partings();
        for agent in self.agents.values_mut() {
            let until = agent.present.last().and_then(|(_, to)| *to);
            agent.stop_being_full(until.unwrap_or(end));
        }
        let mut ran: HashMap<u32, Vec<(Nanos, Nanos)>> = HashMap::new();
        for attempt in self.tasks.values().flat_map(|task| &task.attempts) {
            let span = (attempt.started, attempt.started + attempt.ran);
            ran.entry(attempt.agent).or_default().push(span);
        }
        let gap = actual::gap(self.agents.iter().map(|(id, agent)| {
            let full = agent.full.iter().map(|(from, to)| (from.0, to.0));
            let mut ran = ran.remove(&id.number()).unwrap_or_default();
            ran.extend(&agent.stopped);
            (agent.spec.slots, full.collect(), ran)
        }));
        let said = self.agents.values().filter_map(|agent| agent.round_trip);
        self.latencies.round_trips = said.map(|span| span.0).collect();
        let (delay, hold) = self.latencies.delays(gap);

        // Numbers in the order of arrival.
        let mut numbers: HashMap<TaskId, usize> = HashMap::new();
        for id in self.arrivals.iter().flat_map(|arrival| &arrival.tasks) {
            let next = numbers.len();
            numbers.insert(*id, next);
        }
        let new = |id: &TaskId| numbers.get(id).map(|number| TaskId(*number as u64));
        let mut tasks = Vec::with_capacity(numbers.len());
        let mut arrivals = Vec::with_capacity(self.arrivals.len());
        let mut traced = Vec::with_capacity(numbers.len());
        let mut job_ends: HashMap<JobId, Time> = HashMap::new();
        for arrival in &self.arrivals {
            for id in &arrival.tasks {
                let ended = self.tasks[id].ended.unwrap_or(arrival.at);
                let last = job_ends.entry(arrival.job.id).or_insert(ended);
                *last = (*last).max(ended);
            }
        }
        for arrival in &self.arrivals {
            let first = tasks.len();
            let jobs = arrival.after.iter().filter_map(|job| job_ends.get(job));
            let opened = jobs.copied().fold(arrival.at, Time::max);
            for id in &arrival.tasks {
                let heard = &self.tasks[id];
                let mut spec = heard.spec.clone();
                let ends = spec.dependencies.iter();
                let ends = ends.filter_map(|id| self.tasks.get(id)?.ended);
                let ready = ends.fold(opened, Time::max);
                traced.push(crate::figures::TracedTask {
                    origin: tasks.len(),
                    arrived: since(arrival.at),
                    ready: since(ready),
                    started: heard.first_start.map(|(at, agent)| (since(at), agent)),
                    ended: heard.ended.map(since),
                    ok: heard.ok,
                });
                spec.id = TaskId(tasks.len() as u64);
                spec.dependencies = spec.dependencies.iter().filter_map(new).collect();
                spec.deadline = spec.deadline.map(|at| Time(since(at)));
                if let loxley_model::Fallback::Task(id) = spec.fallback {
                    spec.fallback =
                        new(&id).map_or(loxley_model::Fallback::None, loxley_model::Fallback::Task);
                }
                let attempts = heard.attempts.iter().map(|attempt| PastAttempt {
                    started: attempt.started.saturating_sub(begin.0),
                    ..*attempt
                });
                tasks.push(RecordedTask {
                    spec,
                    arrival: arrivals.len(),
                    attempts: attempts.collect(),
                    at_least: heard.at_least,
                });
            }
            arrivals.push(RecordedArrival {
                at: since(arrival.at),
                job: arrival.job,
                after: arrival.after.clone(),
                tasks: first..tasks.len(),
            });
        }
        let mut events = Vec::new();
        for (at, event) in &self.events {
            let when = since(*at);
            match event {
                Event::Fault(fault) => events.push((when, fault.clone())),
                Event::Cancel(Selection::Task(id)) => {
                    events.extend(new(id).map(|id| (when, Fault::Cancel(id.0))));
                }
                Event::Cancel(Selection::Job(job)) => events.push((when, Fault::CancelJob(*job))),
                Event::Cancel(Selection::All) => {
                    let mut jobs: Vec<JobId> = self
                        .arrivals
                        .iter()
                        .filter(|one| one.at <= *at)
                        .map(|one| one.job.id)
                        .collect();
                    jobs.dedup();
                    events.extend(jobs.into_iter().map(|job| (when, Fault::CancelJob(job))));
                }
            }
        }
        let speeds = actual::speeds(self.agents.len(), &tasks);
        let total = since(end);
        let agents: Vec<RecordedAgent> = self
            .agents
            .values()
            .zip(&speeds)
            .map(|(agent, speed)| RecordedAgent {
                name: Arc::clone(&agent.name),
                zone: agent.zone.clone(),
                spec: AgentSpec {
                    // Who never fell silent need not be watched, and simulated agents stop at once.
                    heartbeats: agent.ever_silent,
                    confirms_ends: false,
                    ..agent.spec.clone()
                },
                speed: *speed,
                joins: agent.present.first().map_or(0, |(from, _)| since(*from)),
                falls_silent: agent.ever_silent,
                round_trip: agent.round_trip.map(|span| span.0),
                present: agent
                    .present
                    .iter()
                    .map(|(from, to)| (since(*from), to.map_or(total, since)))
                    .collect(),
            })
            .collect();
        let busy = self.tasks.values().flat_map(|task| &task.attempts);
        let present = |agent: &RecordedAgent| {
            let spans = agent.present.iter();
            let spans = spans.map(|(from, to)| (*to).min(total).saturating_sub((*from).min(total)));
            spans.sum::<Nanos>()
        };
        let room = agents
            .iter()
            .map(|agent| present(agent) * Nanos::from(agent.spec.slots));
        let actual = Trace {
            tasks: traced,
            busy: busy.map(|attempt| attempt.ran).sum(),
            room: room.sum(),
            present: agents.iter().map(present).sum(),
            moved: self.moved,
            misses: self.misses,
        };
        let before = self.reconfigured.iter().rfind(|(at, _)| *at <= begin);
        let config = before.map_or(self.config.clone(), |(_, config)| (**config).clone());
        let later = self.reconfigured.iter().filter(|(at, _)| *at > begin);
        let notes = self.notes(&tasks, &actual, &speeds, left_out, held_back);
        Ok(Recording {
            names,
            config,
            reconfigured: later
                .map(|(at, config)| (since(*at), config.clone()))
                .collect(),
            agents,
            arrivals,
            tasks,
            events,
            limits: self.limits,
            actual,
            gap,
            delay,
            hold,
            begin,
            notes,
        })
    }

    /// What is not over when the journal ends is no part of the work: how long it takes is not known.
    fn leave_out_what_goes_on(&mut self) -> usize {
        let before = self.tasks.len();
        self.tasks.retain(|_, task| task.ended.is_some());
        for arrival in &mut self.arrivals {
            arrival.tasks.retain(|id| self.tasks.contains_key(id));
        }
        self.arrivals.retain(|arrival| !arrival.tasks.is_empty());
        before - self.tasks.len()
    }

    /// Agents that went after the last task had started went because nothing was left to do. Whoever needs longer for
    /// the same work needs them. The agents of a run never go for another reason.
    fn leave_out_partings(&mut self) {
        let attempts = self.tasks.values().flat_map(|task| &task.attempts);
        let starts = attempts.map(|attempt| Time(attempt.started));
        let stopped = self.tasks.values().filter_map(|task| task.first_start);
        let last = starts.chain(stopped.map(|(at, _)| at)).max();
        let Some(last) = last else { return };
        let is_run = self.is_run;
        self.events.retain(|(at, event)| {
            let is_parting = matches!(
                event,
                Event::Fault(
                    Fault::Leave(_)
                        | Fault::Crash(_)
                        | Fault::Cut(_)
                        | Fault::Silent(_)
                        | Fault::Drain(_)
                )
            );
            !(is_parting && (is_run || *at >= last))
        });
        for agent in self.agents.values_mut() {
            if let Some((_, to)) = agent.present.last_mut()
                && (is_run || to.is_some_and(|to| to >= last))
            {
                *to = None;
            }
        }
    }

    /// `loxley run` reads its items only a little ahead of the slots. What was added while earlier items still
    /// waited was there and held back: it counts as there since the last moment when nothing waited.
    fn move_what_was_held_back(&mut self) -> usize {
        if !self.is_run {
            return 0;
        }
        let mut moved = 0;
        let mut since: HashMap<JobId, Time> = HashMap::new();
        let mut waiting_until: HashMap<JobId, Time> = HashMap::new();
        for arrival in &mut self.arrivals {
            if !arrival.is_open {
                continue;
            }
            let job = arrival.job.id;
            let starts = arrival.tasks.iter();
            let starts = starts.filter_map(|id| self.tasks[id].first_start);
            let last_start = starts.map(|(at, _)| at).max().unwrap_or(arrival.at);
            let until = waiting_until.entry(job).or_insert(arrival.at);
            let begin = since.entry(job).or_insert(arrival.at);
            if arrival.at <= *until {
                moved += usize::from(arrival.at > *begin) * arrival.tasks.len();
                arrival.at = *begin;
            } else {
                *begin = arrival.at;
            }
            *until = (*until).max(last_start);
        }
        moved
    }

    fn notes(
        &self,
        tasks: &[RecordedTask],
        actual: &Trace,
        speeds: &[f64],
        left_out: usize,
        held_back: usize,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        let mut say = |count: usize, sentence: &str| {
            if count > 0 {
                let noun = if count == 1 { "task" } else { "tasks" };
                notes.push(format!("{count} {noun} {sentence}"));
            }
        };
        let unknown = tasks.iter().filter(|task| task.attempts.is_empty());
        let (stopped, never): (Vec<_>, Vec<_>) = unknown.partition(|task| task.at_least.is_some());
        say(
            stopped.len(),
            "stopped while running: how long they would have run is drawn from tasks of their kind that ran for longer",
        );
        let drawn = |task: &&&RecordedTask| {
            let traced = actual.tasks.get(task.spec.id.0 as usize);
            traced.is_some_and(|traced| traced.started.is_none())
        };
        say(
            never.iter().filter(drawn).count(),
            "ended without having run: where they would run, their duration is drawn from tasks of their kind",
        );
        say(
            left_out,
            "not over when the journal ends: left out, with the time they took",
        );
        say(
            held_back,
            "read ahead only a little by `loxley run`: counted as there from the start",
        );
        let learned = speeds.iter().filter(|speed| (**speed - 1.0).abs() > 1e-9);
        let learned = learned.count();
        if learned > 0 {
            notes.push(format!(
                "{learned} of {} agents ran tasks of the same kind measurably faster or slower than the others: \
                 their speeds are taken from that",
                speeds.len()
            ));
        }
        if self.restarts > 0 {
            notes.push(format!(
                "the server started again {} times: its agents are cut off until they came back",
                self.restarts
            ));
        }
        if self.resubmitted > 0 {
            notes.push(format!(
                "{} failed tasks were given another chance by hand: not replayed",
                self.resubmitted
            ));
        }
        let changed = self.agents.values().filter(|agent| agent.changed).count();
        if changed > 0 {
            notes.push(format!(
                "{changed} agents came back with other skills or slots: as they were last, they count"
            ));
        }
        notes
    }
}

impl HeardAgent {
    /// It has so many more tasks in hand.
    fn hold(&mut self, now: Time, by: i32) {
        self.held = self.held.saturating_add_signed(by);
        match (self.held >= self.spec.slots, self.full_since) {
            (true, None) if self.silent_since.is_some() => {}
            (true, None) => self.full_since = Some(now),
            (false, Some(_)) => self.stop_being_full(now),
            _ => {}
        }
    }

    fn stop_being_full(&mut self, now: Time) {
        if let Some(from) = self.full_since.take() {
            self.full.push((from, now));
        }
    }

    fn close(&mut self, now: Time) {
        self.stop_being_full(now);
        self.held = 0;
        self.silent_since = None;
        if let Some((_, to @ None)) = self.present.last_mut() {
            *to = Some(now);
        }
    }
}

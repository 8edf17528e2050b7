//! A run: the engine that a server serves, without a server, and local agents that carry out what it says. It
//! keeps no journal, unless it is asked to.
//!
//! One thread owns the engine. It waits for events, tells the engine what happened and does what it
//! answers. For a command with items, each slot is an agent of its own, so that work is
//! stolen between slots, a second copy of a straggler runs elsewhere, and a slot always finds its
//! next task on its desk already. A job file may describe other agents.
//!
//! A job file is submitted whole, for its tasks may depend on each other. Items become an open job that is
//! extended a few at a time: they start in their order, and a stream of items without end takes no memory. What
//! fills a command need not be text, so it stays here; the engine knows items by their numbers alone.

mod attempts;
mod clock;
mod observed;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use loxley_api::{Entries, JobRequest};
use loxley_engine::{AgentRecord, Applied, Effects, Engine, Fact, Orders, Submission};
use loxley_exec::{
    Assignment, Checkpoint, End, LocalAgent, Reports, SlotSettings, Stopping, TaskCommand, Urgency,
};
use loxley_journal::{Journal, SqliteJournal};
use loxley_model::{AgentId, JobId, Lease, Span, TaskId, Time};
use loxley_policy::{Action, Config, Report, Vitals};
use loxley_server::decider::{Observer, Question};

pub(in crate::run) use self::observed::Afterwards;
use self::observed::Observers;
use super::delivery::{Delivery, Done};
use super::halt::Halt;
use super::progress::Progress;
use super::run_trace::RunTrace;
use super::source::{Coming, Item, Source};
use super::summary::Summary;

/// Something that happened.
#[derive(Debug)]
pub(in crate::run) enum Event {
    /// There may be more items.
    ItemsReady,
    /// The agent with this number has something to tell.
    Reports(usize),
    /// Nobody takes what tasks print.
    OutputFailed(io::Error),
    /// Somebody wants us to stop.
    Interrupted,
    /// Somebody wants us to end now.
    Terminated,
    /// Somebody begins to look.
    Observed(Box<Observer>),
    /// Somebody who looks wants to know something, or to have it changed.
    Asked(Box<Question>),
}

/// What a run is built from.
pub(in crate::run) struct Parts {
    pub(in crate::run) config: Config,
    pub(in crate::run) settings: Arc<SlotSettings>,
    /// How late slots may tell of ends.
    pub(in crate::run) hold: Duration,
    /// Where tasks keep their state between attempts.
    pub(in crate::run) checkpoints: Option<PathBuf>,
    pub(in crate::run) agents: Vec<AgentRecord>,
    /// Where everything is written down.
    pub(in crate::run) journal: Option<SqliteJournal>,
    pub(in crate::run) source: Source,
    /// How many tasks are submitted ahead, for each slot.
    pub(in crate::run) ahead: u64,
    pub(in crate::run) delivery: Delivery,
    pub(in crate::run) progress: Progress,
    /// Keeps the story of a job.
    pub(in crate::run) trace: Option<RunTrace>,
    pub(in crate::run) halt: Option<Halt>,
    /// A task may run so many times the median.
    pub(in crate::run) median_limit: Option<f64>,
    pub(in crate::run) events: (Sender<Event>, Receiver<Event>),
}

/// How often it is shown what agents do.
const SHOW_EVERY: Duration = Duration::from_millis(100);

pub(in crate::run) struct Runner {
    engine: Engine,
    journal: Option<SqliteJournal>,
    origin: Instant,
    epoch_unix_ns: u64,
    observers: Observers,
    /// The engine numbers them from 1.
    agents: Vec<LocalAgent>,
    /// Whose each slot is.
    owners: Vec<usize>,
    settings: Arc<SlotSettings>,
    open_slots: usize,
    source: Source,
    ahead: u64,
    exhausted: bool,
    /// The job that takes the items, once it was submitted.
    job: Option<JobId>,
    /// How many tasks the engine was given.
    given: u64,
    tasks: HashMap<TaskId, Task>,
    /// The task of each lease that an agent has.
    leases: HashMap<Lease, TaskId>,
    running: HashMap<Lease, Running>,
    overdue: HashSet<Lease>,
    checkpoints: Option<PathBuf>,
    delivery: Delivery,
    progress: Progress,
    trace: Option<RunTrace>,
    halt: Option<Halt>,
    median_limit: Option<f64>,
    events: Receiver<Event>,
    stopping: Option<Urgency>,
    sampled: Instant,
    shown: Instant,
    summary: Summary,
}

/// A task that is not over.
#[derive(Debug)]
struct Task {
    /// What people call its number: that of the item, or of the task in its file.
    sequence: u64,
    command: Arc<TaskCommand>,
    /// Its last attempt.
    done: Option<Done>,
    /// Whether that succeeded.
    succeeded: bool,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    agent: usize,
    since: Instant,
}

impl Runner {
    pub(in crate::run) fn new(mut parts: Parts) -> Result<Self> {
        let (sender, events) = parts.events;
        let mut agents = Vec::with_capacity(parts.agents.len());
        let mut owners = Vec::new();
        for (index, record) in parts.agents.iter().enumerate() {
            let count = record.slots as usize;
            let events = sender.clone();
            let bell = move || {
                // Nobody listens any more when this fails.
                let _ = events.send(Event::Reports(index));
            };
            agents.push(LocalAgent::start(
                owners.len(),
                count,
                &parts.settings,
                bell,
            )?);
            owners.extend(std::iter::repeat_n(index, count));
        }
        // Threads of our own need no heartbeats.
        parts.config.heartbeats.suspect_after = Span::MAX;
        let mut engine = match &mut parts.journal {
            None => Engine::without_journal(),
            Some(journal) => Engine::open(journal, unix_ns()).context("cannot use the journal")?,
        };
        engine.begin(Time::ZERO, &parts.config);
        engine.want_decisions(true);
        // A slot that tells of ends late needs more on its desk.
        let vitals = Vitals {
            throttle: 0.0,
            round_trip: Span(nanoseconds(parts.hold)),
        };
        for record in parts.agents {
            let fact = Fact::AgentJoined(Box::new(record));
            if let Applied::Agent(agent) = apply(&mut engine, Time::ZERO, fact)? {
                engine.heard(Time::ZERO, agent, vitals);
            }
        }
        let (origin, epoch_unix_ns) = (Instant::now(), unix_ns());
        engine.set_epoch(epoch_unix_ns);
        Ok(Self {
            engine,
            journal: parts.journal,
            origin,
            epoch_unix_ns,
            observers: Observers::default(),
            open_slots: owners.len(),
            summary: Summary::new(owners.len(), agents.len()),
            agents,
            owners,
            settings: parts.settings,
            source: parts.source,
            ahead: parts.ahead,
            exhausted: false,
            job: None,
            given: 0,
            tasks: HashMap::new(),
            leases: HashMap::new(),
            running: HashMap::new(),
            overdue: HashSet::new(),
            checkpoints: parts.checkpoints,
            delivery: parts.delivery,
            progress: parts.progress,
            trace: parts.trace,
            halt: parts.halt,
            median_limit: parts.median_limit,
            events,
            stopping: None,
            sampled: origin,
            shown: origin,
        })
    }

    /// When the clock of the run began, in nanoseconds since 1970.
    pub(in crate::run) fn epoch_unix_ns(&self) -> u64 {
        self.epoch_unix_ns
    }

    /// Runs everything to its end. Whatever happens, no process is left behind.
    pub(in crate::run) fn run(
        mut self,
        out: &mut dyn Write,
    ) -> Result<(Summary, Option<RunTrace>, Afterwards)> {
        let result = self.until_over(out);
        if result.is_err() {
            self.stop(Urgency::AtOnce);
        }
        for agent in self.agents.drain(..) {
            agent.desk().close();
            agent.join();
        }
        if let Some(guardian) = &self.settings.guardian {
            guardian.dismiss();
        }
        self.progress.finish();
        result?;
        if self.journal.is_some() {
            self.leave()?;
        }
        self.delivery.finish(out)?;
        out.flush()?;
        let metrics = self.engine.scheduler().metrics();
        self.summary.wall = self.origin.elapsed();
        self.summary.left = self.tasks.len() as u64;
        self.summary.retries = metrics.retries;
        self.summary.stolen = metrics.tasks_migrated;
        self.summary.copies = metrics.speculations;
        self.summary.copies_won = metrics.speculations_won;
        self.summary.deadline_misses = metrics.deadline_misses;
        let afterwards = Afterwards {
            engine: self.engine,
            origin: self.origin,
            observers: self.observers,
            events: self.events,
        };
        Ok((self.summary, self.trace, afterwards))
    }

    /// The last words of a journal. Nobody is there any more to do what follows.
    fn leave(&mut self) -> Result<()> {
        for index in 0..self.summary.agents {
            let fact = Fact::AgentLeft(AgentId(index as u64 + 1));
            self.tell(Instant::now(), fact)?;
        }
        self.write_down()?;
        Ok(())
    }

    /// Closes the open group, and writes it where there is a journal: what follows may be done only then.
    fn write_down(&mut self) -> Result<Effects> {
        let flushed = self.engine.flush();
        if let (Some(journal), Some(group)) = (&mut self.journal, &flushed.group) {
            let at = journal.next_position();
            let written = journal.append(at, group);
            written.context("cannot write the journal")?;
        }
        Ok(flushed.effects)
    }

    fn until_over(&mut self, out: &mut dyn Write) -> Result<()> {
        loop {
            self.submit_more(out)?;
            self.carry_out(out)?;
            if self.is_over() {
                return Ok(());
            }
            let mut next = self.events.try_recv().ok();
            if next.is_none() {
                // Nothing is waiting: what was shown so far goes out.
                out.flush()?;
                next = self.wait();
            }
            while let Some(event) = next {
                self.take(event, out)?;
                next = self.events.try_recv().ok();
            }
            self.look_at_the_clock();
            self.carry_out(out)?;
            self.show_progress();
        }
    }

    fn show_progress(&mut self) {
        self.progress.show(&self.summary.tally, self.running.len());
        let now = Instant::now();
        if let Some(trace) = &self.trace
            && self.progress.is_visible()
            && now - self.shown >= SHOW_EVERY
        {
            self.shown = now;
            self.progress.show_agents(trace.doing());
        }
    }

    fn is_over(&self) -> bool {
        match self.stopping {
            Some(_) => self.open_slots == 0,
            None => self.exhausted && self.tasks.is_empty(),
        }
    }

    /// Waits for the next event, or until it is time to do something.
    fn wait(&self) -> Option<Event> {
        let now = Instant::now();
        let timer = self.engine.next_timer();
        let timer = timer.and_then(|at| self.origin.checked_add(Duration::from_nanos(at.0)));
        let alarm = [timer, self.next_overdue(), self.progress.next_show(now)]
            .into_iter()
            .flatten()
            .min();
        match alarm {
            None => self.events.recv().ok(),
            Some(alarm) => {
                let left = alarm.saturating_duration_since(now);
                self.events.recv_timeout(left).ok()
            }
        }
    }

    fn take(&mut self, event: Event, out: &mut dyn Write) -> Result<()> {
        match event {
            Event::ItemsReady => {}
            Event::OutputFailed(error) => return Err(error.into()),
            Event::Interrupted => self.interrupted()?,
            Event::Observed(observer) => self.observed(observer, out)?,
            Event::Asked(question) => self.asked(*question, out)?,
            Event::Terminated => {
                self.summary.interrupted = true;
                self.stop(self.stopping.unwrap_or(Urgency::Gentle));
            }
            Event::Reports(agent) => {
                let reports = self.agents[agent].desk().reports(true);
                self.take_reports(agent, reports, out)?;
            }
        }
        Ok(())
    }

    fn take_reports(&mut self, agent: usize, reports: Reports, out: &mut dyn Write) -> Result<()> {
        // Before ends: with the end of a task, what it printed so far is forgotten.
        self.observers.printed(&reports.shown);
        for end in reports.ended {
            self.take_end(end, out)?;
        }
        for started in reports.started {
            self.started(started.lease, started.slot, started.at, out)?;
        }
        for yielded in reports.yielded {
            self.yielded(yielded.lease, agent, out)?;
        }
        if reports.closed_slots > 0 && self.stopping.is_none() {
            bail!("a slot cannot go on: the files of a limit cannot be used");
        }
        self.open_slots -= reports.closed_slots;
        Ok(())
    }

    fn take_end(&mut self, end: End, out: &mut dyn Write) -> Result<()> {
        if !self.running.contains_key(&end.lease) {
            self.started(end.lease, end.slot, end.begun, out)?;
        }
        self.running.remove(&end.lease);
        self.ended(end, out)
    }

    /// Submits tasks while there are some and few wait.
    fn submit_more(&mut self, out: &mut dyn Write) -> Result<()> {
        let ahead_max = self.ahead * self.summary.busy_ns.len() as u64;
        let mut items = Vec::new();
        while !self.exhausted && self.stopping.is_none() {
            // What waits for its next attempt, or for another task, keeps no slot busy.
            let waiting = self.engine.scheduler().counts().waiting;
            let known = (self.tasks.len() + items.len()) as u64;
            if known.saturating_sub(waiting) >= ahead_max {
                break;
            }
            match self.source.next()? {
                Coming::Nothing => break,
                Coming::End => self.exhausted = true,
                Coming::Skipped(sequence) => self.delivery.skip(sequence, out)?,
                Coming::Item(item) => items.push(item),
                Coming::Job(request) => self.submit_job(*request)?,
            }
        }
        self.submit_items(items)?;
        if self.exhausted
            && let Some(job) = self.job.take()
        {
            self.tell(Instant::now(), Fact::JobClosed(job))?;
        }
        self.progress.expect(self.source.total());
        Ok(())
    }

    /// Submits the job of a file. Its tasks have the numbers that the file gives them.
    fn submit_job(&mut self, request: JobRequest) -> Result<()> {
        let tasks = self.source.tasks_of_job();
        if tasks.is_empty() {
            return Ok(());
        }
        if let Some(trace) = &mut self.trace {
            trace.submitted(tasks.iter().map(|(id, _)| *id));
        }
        for (id, command) in tasks {
            self.know(id, id.0, command);
        }
        let request = Submission::new(request)?;
        let user = String::from("run");
        self.tell(Instant::now(), Fact::JobSubmitted { request, user })?;
        Ok(())
    }

    /// Adds items to the job that takes them, which the first of them opens.
    fn submit_items(&mut self, items: Vec<Item>) -> Result<()> {
        let at = Instant::now();
        let mut items = items.into_iter().peekable();
        while let Some(first) = items.next() {
            let job = match self.job {
                Some(job) => job,
                None => self.open_job(at)?,
            };
            let (cost, number) = (first.cost, self.given + 1);
            self.know_item(first);
            while let Some(next) = items.next_if(|next| next.cost == cost) {
                self.know_item(next);
            }
            let entries = self.entries(number);
            let fact = Fact::JobExtended {
                job,
                task: 0,
                entries,
                cost,
            };
            self.tell(at, fact)?;
        }
        Ok(())
    }

    /// The entries from this task on: their texts where somebody will read them, else their numbers.
    fn entries(&self, first: u64) -> Entries {
        let last = self.given;
        if self.journal.is_none() {
            return Entries::Range {
                first,
                last,
                step: 1,
            };
        }
        let known = (first..=last).filter_map(|id| self.tasks.get(&TaskId(id)));
        let text = |task: &Task| {
            let items = task.command.items.join(OsStr::new(" "));
            items.to_string_lossy().into_owned()
        };
        Entries::Lines(known.map(text).collect())
    }

    fn open_job(&mut self, at: Instant) -> Result<JobId> {
        let request = Submission::new(self.source.open_job())?;
        let user = String::from("run");
        let Applied::Job(job) = self.tell(at, Fact::JobSubmitted { request, user })? else {
            bail!("the engine gave no number to the job");
        };
        self.job = Some(job);
        Ok(job)
    }

    fn know_item(&mut self, item: Item) {
        self.given += 1;
        self.know(TaskId(self.given), item.sequence, item.command);
    }

    fn know(&mut self, id: TaskId, sequence: u64, command: Arc<TaskCommand>) {
        let task = Task {
            sequence,
            command,
            done: None,
            succeeded: false,
        };
        self.tasks.insert(id, task);
    }

    /// Tells the engine what happened.
    fn tell(&mut self, at: Instant, fact: Fact) -> Result<Applied> {
        let now = self.time(at);
        apply(&mut self.engine, now, fact)
    }

    /// Does what follows from what the engine was told, and from doing that.
    fn carry_out(&mut self, out: &mut dyn Write) -> Result<()> {
        while self.engine.has_effects() || !self.engine.is_group_empty() {
            let Effects {
                decisions,
                orders,
                events,
                jobs_over,
                ..
            } = self.write_down()?;
            self.observers.happened(&self.engine, events, jobs_over);
            for (now, action) in decisions {
                if let Some(trace) = &mut self.trace {
                    trace.action(now, &action);
                }
                self.note(action, out)?;
            }
            for (agent, orders) in orders {
                self.obey(agent, orders);
            }
        }
        Ok(())
    }

    /// What people want to know of a decision.
    fn note(&mut self, action: Action, out: &mut dyn Write) -> Result<()> {
        match action {
            Action::Report(Report::Finished { task, ending, .. }) => self.over(task, ending, out),
            Action::Report(Report::DeadlineLost { task, .. }) => {
                if let Some(trace) = &self.trace {
                    let title = trace.title(task);
                    self.progress
                        .say(&format!("{title} cannot meet its deadline"))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Has an agent do what it is told.
    fn obey(&mut self, agent: AgentId, orders: Orders) {
        let desk = Arc::clone(self.agents[agent.0 as usize - 1].desk());
        for lease in orders.cancel {
            self.leases.remove(&lease);
            desk.cancel(lease);
        }
        for (task, lease) in orders.stop {
            if desk.stop(lease, Urgency::Gentle) == Stopping::Over {
                self.leases.remove(&lease);
                let now = self.time(Instant::now());
                self.engine.yielded(now, agent, task, lease, true);
            }
        }
        for retraction in orders.retract {
            let (task, lease) = (retraction.task, retraction.lease);
            // Nothing: it answers when it has stopped, or its end is on its way.
            if let Some(yielded) = desk.retract(lease, retraction.running) {
                if yielded {
                    self.leases.remove(&lease);
                }
                let now = self.time(Instant::now());
                self.engine.yielded(now, agent, task, lease, yielded);
            }
        }
        let assignments: Vec<_> = orders
            .assign
            .into_iter()
            .filter_map(|given| {
                let known = self.tasks.get(&given.task)?;
                self.leases.insert(given.lease, given.task);
                let checkpoint = self.checkpoint(known);
                Some(Assignment {
                    task: TaskId(known.sequence),
                    lease: given.lease,
                    attempt: given.attempt,
                    command: Arc::clone(&known.command),
                    checkpoint: checkpoint.map_or(Checkpoint::None, Checkpoint::InFile),
                })
            })
            .collect();
        desk.assign(assignments);
    }

    fn interrupted(&mut self) -> io::Result<()> {
        self.summary.interrupted = true;
        match self.stopping {
            None => {
                self.close();
                // Of what has only just begun nothing was told yet: the desks know.
                let running: usize = self.agents.iter().map(|agent| agent.desk().running()).sum();
                let message =
                    format!("finishing the {running} tasks that run; interrupt again to kill them");
                self.progress.say(&message)?;
            }
            Some(before) => self.stop(before),
        }
        Ok(())
    }

    /// Starts nothing more. The next interruption is gentle, the one after it is not.
    fn close(&mut self) {
        self.stopping = Some(Urgency::Gentle);
        for agent in &self.agents {
            agent.desk().close();
        }
    }

    /// Kills what runs.
    fn stop(&mut self, urgency: Urgency) {
        self.close();
        self.stopping = Some(Urgency::AtOnce);
        for agent in &self.agents {
            agent.desk().stop_all(urgency);
        }
    }

    /// The file in which a task keeps its state between attempts.
    fn checkpoint(&self, task: &Task) -> Option<PathBuf> {
        let directory = self.checkpoints.as_ref()?;
        let has_one = task.command.recipe.checkpoints;
        has_one.then(|| directory.join(task.sequence.to_string()))
    }

    fn time(&self, at: Instant) -> Time {
        Time(nanoseconds(at.saturating_duration_since(self.origin)))
    }
}

/// Tells the engine something that it may refuse.
fn apply(engine: &mut Engine, now: Time, fact: Fact) -> Result<Applied> {
    let applied = engine.record_and_apply(now, fact, None);
    applied.map_err(|error| match error.help {
        Some(help) => anyhow::anyhow!("{} ({help})", error.message),
        None => anyhow::anyhow!("{}", error.message),
    })
}

/// Nanoseconds since 1970.
fn unix_ns() -> u64 {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH);
    nanoseconds(since.unwrap_or_default())
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

//! The driver of a run: items go in, the scheduler decides, slots carry out.
//!
//! One thread owns the scheduler. It waits for events, tells the scheduler what happened and does
//! what it answers. Each slot is an agent of its own, so that work is stolen between slots, a second
//! copy of a straggler runs elsewhere, and a slot always finds its next task on its desk already.
//!
//! Tasks are submitted a few at a time: they start in the order of the items, and a stream of items
//! without end takes no memory.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::Result;
use loxley_agent::{Stopped, Urgency};
use loxley_balance::{QueueDepths, Sketch};
use loxley_model::{
    AgentId, AgentSpec, Dispatch, Failure, JobId, JobSpec, Lease, Outcome, SkillSet, TaskId,
    TaskKind, TaskSpec, Time,
};
use loxley_policy::{Action, Config, Ending, Input, Report, Scheduler};

use super::delivery::{Delivery, Parcel};
use super::feed::{Feed, Next};
use super::halt::{Halt, Tally};
use super::progress::Progress;
use super::slots::{Assignment, Done, Setup, SlotHandle};

/// Something that happened.
#[derive(Debug)]
pub(super) enum Event {
    /// There may be more items.
    ItemsReady,
    /// A slot began with a task, some time ago: short tasks are told of only at their end.
    Started {
        task: TaskId,
        lease: Lease,
        slot: usize,
        at: Instant,
    },
    /// A slot is done with a task.
    Ended {
        task: TaskId,
        lease: Lease,
        begun: Instant,
        at: Instant,
        done: Done,
    },
    /// A slot was closed and will say nothing more.
    SlotClosed,
    /// Somebody wants us to stop.
    Interrupted,
}

/// What the engine is built from.
pub(super) struct Parts {
    pub(super) config: Config,
    pub(super) setup: Arc<Setup>,
    pub(super) slots: u32,
    pub(super) kind: TaskKind,
    pub(super) feed: Feed,
    pub(super) delivery: Delivery,
    pub(super) progress: Progress,
    pub(super) halt: Option<Halt>,
    /// A task may run so many times the median.
    pub(super) median_limit: Option<f64>,
    pub(super) events: (Sender<Event>, Receiver<Event>),
}

/// How a run went.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) tally: Tally,
    /// Tasks that were neither finished nor failed when the run was stopped.
    pub(super) left: u64,
    pub(super) retries: u64,
    pub(super) stolen: u64,
    pub(super) copies: u64,
    pub(super) copies_won: u64,
    pub(super) interrupted: bool,
    pub(super) busy_ns: Vec<u64>,
    pub(super) wall: Duration,
    pub(super) durations: Sketch,
    pub(super) depths: QueueDepths,
}

/// How many tasks are submitted ahead, for each slot.
const AHEAD: u64 = 8;

/// How often queue lengths are looked at.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);

/// So many tasks must have ended before their median counts.
const MEDIAN_FROM: u64 = 3;

pub(super) struct Engine {
    scheduler: Scheduler,
    origin: Instant,
    actions: Vec<Action>,
    inputs: VecDeque<Input>,
    timer: Option<Time>,
    slots: Vec<SlotHandle>,
    open_slots: usize,
    setup: Arc<Setup>,
    kind: Arc<TaskKind>,
    jobs: u64,
    feed: Feed,
    exhausted: bool,
    tasks: HashMap<TaskId, Task>,
    running: HashMap<Lease, Running>,
    overdue: HashSet<Lease>,
    delivery: Delivery,
    progress: Progress,
    halt: Option<Halt>,
    median_limit: Option<f64>,
    events: Receiver<Event>,
    stopping: Option<Urgency>,
    sampled: Instant,
    summary: Summary,
}

/// A task that is not over.
#[derive(Debug)]
struct Task {
    items: Arc<[OsString]>,
    /// Its last attempt.
    done: Option<Done>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    slot: usize,
    since: Instant,
}

impl Engine {
    pub(super) fn new(parts: Parts) -> Result<Self> {
        let (sender, events) = parts.events;
        let slots = (0..parts.slots as usize)
            .map(|index| SlotHandle::start(index, Arc::clone(&parts.setup), sender.clone()))
            .collect::<io::Result<Vec<_>>>()?;
        let origin = Instant::now();
        let mut engine = Self {
            scheduler: Scheduler::new(parts.config, Time::ZERO),
            origin,
            actions: Vec::new(),
            inputs: VecDeque::new(),
            timer: None,
            open_slots: slots.len(),
            summary: Summary::new(slots.len()),
            slots,
            setup: parts.setup,
            kind: Arc::new(parts.kind),
            jobs: 0,
            feed: parts.feed,
            exhausted: false,
            tasks: HashMap::new(),
            running: HashMap::new(),
            overdue: HashSet::new(),
            delivery: parts.delivery,
            progress: parts.progress,
            halt: parts.halt,
            median_limit: parts.median_limit,
            events,
            stopping: None,
            sampled: origin,
        };
        engine.register_slots();
        Ok(engine)
    }

    fn register_slots(&mut self) {
        for index in 0..self.slots.len() {
            let spec = AgentSpec {
                dispatch: Dispatch::KeepFull,
                ..AgentSpec::new(AgentId(index as u64), SkillSet::none())
            };
            self.inputs.push_back(Input::AgentJoined(spec));
        }
    }

    /// Runs everything to its end. Whatever happens, no process is left behind.
    pub(super) fn run(mut self, out: &mut dyn Write) -> Result<Summary> {
        let result = self.until_over(out);
        if result.is_err() {
            self.stop(Urgency::AtOnce);
        }
        for slot in &self.slots {
            slot.close();
        }
        for slot in self.slots.drain(..) {
            slot.join();
        }
        self.progress.finish();
        result?;
        self.delivery.finish(out)?;
        out.flush()?;
        let metrics = self.scheduler.metrics();
        self.summary.wall = self.origin.elapsed();
        self.summary.left = self.tasks.len() as u64;
        self.summary.retries = metrics.retries;
        self.summary.stolen = metrics.tasks_migrated;
        self.summary.copies = metrics.speculations;
        self.summary.copies_won = metrics.speculations_won;
        Ok(self.summary)
    }

    fn until_over(&mut self, out: &mut dyn Write) -> Result<()> {
        loop {
            // Slots register before tasks are submitted.
            self.settle(out)?;
            self.submit_more(out)?;
            self.settle(out)?;
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
            self.settle(out)?;
            self.progress.show(&self.summary.tally, self.running.len());
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
        let timer = self
            .timer
            .map(|at| self.origin + Duration::from_nanos(at.0));
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
            Event::SlotClosed => self.open_slots -= 1,
            Event::Interrupted => self.interrupted()?,
            Event::Started {
                task,
                lease,
                slot,
                at,
            } => {
                self.running.insert(lease, Running { slot, since: at });
                self.tell(at, Input::TaskStarted { task, lease }, out)?;
            }
            Event::Ended {
                task,
                lease,
                begun,
                at,
                done,
            } => {
                if self.running.remove(&lease).is_none() {
                    self.tell(begun, Input::TaskStarted { task, lease }, out)?;
                }
                self.ended(task, lease, at, done, out)?;
            }
        }
        Ok(())
    }

    fn ended(
        &mut self,
        task: TaskId,
        lease: Lease,
        at: Instant,
        done: Done,
        out: &mut dyn Write,
    ) -> Result<()> {
        let outcome = outcome(&done, self.overdue.remove(&lease));
        if let Ok(ended) = &done.result {
            let nanos = u64::try_from(ended.duration.as_nanos()).unwrap_or(u64::MAX);
            self.summary.busy_ns[done.slot] += nanos;
            if outcome == Outcome::Succeeded {
                self.summary.durations.record(nanos);
            }
        }
        if let Some(known) = self.tasks.get_mut(&task) {
            known.done = Some(done);
        }
        if self.stopping.is_some() {
            // No second attempts any more.
            return self.over(task, outcome == Outcome::Succeeded, out);
        }
        let input = Input::TaskFinished {
            task,
            lease,
            outcome,
        };
        self.tell(at, input, out)
    }

    /// Submits tasks while there are items and few tasks wait.
    fn submit_more(&mut self, out: &mut dyn Write) -> Result<()> {
        while !self.exhausted && self.stopping.is_none() {
            let counts = self.scheduler.counts();
            let ahead = counts.queued + counts.running + counts.held;
            if ahead >= AHEAD * self.slots.len() as u64 {
                break;
            }
            match self.feed.next()? {
                Next::Nothing => break,
                Next::End => self.exhausted = true,
                Next::Skipped(sequence) => self.delivery.skip(sequence, out)?,
                Next::Item(item) => {
                    let id = TaskId(item.sequence);
                    let mut spec = TaskSpec::new(id, Arc::clone(&self.kind));
                    spec.cost = item.cost;
                    self.tasks.insert(
                        id,
                        Task {
                            items: item.items.into(),
                            done: None,
                        },
                    );
                    self.jobs += 1;
                    let job = JobSpec::new(JobId(self.jobs));
                    let tasks = vec![spec];
                    self.tell(Instant::now(), Input::TasksSubmitted { job, tasks }, out)?;
                }
            }
        }
        self.progress.expect(self.feed.total());
        Ok(())
    }

    /// Tells the scheduler a fact and does what it answers.
    fn tell(&mut self, at: Instant, input: Input, out: &mut dyn Write) -> Result<()> {
        let now = self.time(at);
        self.scheduler.handle(now, input, &mut self.actions);
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            self.carry_out(action, out)?;
        }
        self.actions = actions;
        Ok(())
    }

    /// Tells the scheduler what came up while its actions were carried out.
    fn settle(&mut self, out: &mut dyn Write) -> Result<()> {
        while let Some(input) = self.inputs.pop_front() {
            self.tell(Instant::now(), input, out)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, action: Action, out: &mut dyn Write) -> Result<()> {
        match action {
            Action::Assign {
                task,
                agent,
                lease,
                attempt,
                ..
            } => {
                let Some(known) = self.tasks.get(&task) else {
                    return Ok(());
                };
                self.slots[agent.0 as usize].assign(Assignment {
                    task,
                    lease,
                    attempt,
                    items: Arc::clone(&known.items),
                });
            }
            Action::Retract {
                task, agent, lease, ..
            } => {
                let yielded = self.slots[agent.0 as usize].take_back(lease);
                self.inputs.push_back(Input::TaskYielded {
                    task,
                    lease,
                    yielded,
                });
            }
            Action::Cancel { agent, lease, .. } => {
                self.slots[agent.0 as usize].cancel(lease, Urgency::Gentle);
            }
            Action::SetTimer { at } => self.timer = Some(at),
            Action::Report(Report::Finished { task, ending, .. }) => {
                self.over(task, matches!(ending, Ending::Succeeded { .. }), out)?;
            }
            Action::Report(_) => {}
        }
        Ok(())
    }

    /// A task is over: its last attempt is what counts.
    fn over(&mut self, task: TaskId, succeeded: bool, out: &mut dyn Write) -> Result<()> {
        let Some(Task { items, done }) = self.tasks.remove(&task) else {
            return Ok(());
        };
        if succeeded {
            self.summary.tally.succeeded += 1;
        } else {
            self.summary.tally.failed += 1;
        }
        if let Some(done) = done {
            let parcel = Parcel {
                sequence: task.0,
                items,
                done,
            };
            let (delivery, template) = (&mut self.delivery, &self.setup.template);
            self.progress.aside(|visible| -> Result<()> {
                delivery.deliver(parcel, template, out)?;
                // With a bar on the terminal, output goes out while the bar is out of the way.
                if visible {
                    out.flush()?;
                }
                Ok(())
            })?;
        }
        if let Some(halt) = self.halt
            && self.stopping.is_none()
            && halt.is_due(self.summary.tally, self.feed.total())
        {
            self.close();
            if halt.now {
                self.stop(Urgency::Gentle);
            }
        }
        Ok(())
    }

    fn interrupted(&mut self) -> io::Result<()> {
        self.summary.interrupted = true;
        match self.stopping {
            None => {
                self.close();
                let running = self.running.len();
                let message = format!(
                    "loxley: finishing the {running} tasks that run; interrupt again to kill them"
                );
                self.progress
                    .aside(|_| writeln!(io::stderr(), "{message}"))?;
            }
            Some(before) => self.stop(before),
        }
        Ok(())
    }

    /// Starts nothing more. The next interruption is gentle, the one after it is not.
    fn close(&mut self) {
        self.stopping = Some(Urgency::Gentle);
        for slot in &self.slots {
            slot.close();
        }
    }

    /// Kills what runs.
    fn stop(&mut self, urgency: Urgency) {
        self.close();
        self.stopping = Some(Urgency::AtOnce);
        for slot in &self.slots {
            slot.kill_current(urgency);
        }
    }

    fn look_at_the_clock(&mut self) {
        let now = Instant::now();
        if self.timer.is_some_and(|at| at <= self.time(now)) {
            self.timer = None;
            self.inputs.push_back(Input::Tick);
        }
        if self.next_overdue().is_some_and(|at| at <= now) {
            self.kill_overdue(now);
        }
        if now - self.sampled >= SAMPLE_EVERY {
            self.sampled = now;
            let scheduler = &self.scheduler;
            let depth = |(index, slot): (usize, &SlotHandle)| {
                let queued = scheduler.agent_status(AgentId(index as u64));
                slot.waiting() + queued.map_or(0, |status| status.queue_length)
            };
            self.summary
                .depths
                .sample(self.slots.iter().enumerate().map(depth));
        }
    }

    /// How long a task may run, where that depends on the others.
    fn limit(&self) -> Option<Duration> {
        let ratio = self.median_limit?;
        let durations = &self.summary.durations;
        let median = durations
            .median()
            .filter(|_| durations.count() >= MEDIAN_FROM)?;
        Some(Duration::from_nanos((median as f64 * ratio) as u64))
    }

    fn next_overdue(&self) -> Option<Instant> {
        let limit = self.limit()?;
        let first = self
            .running
            .iter()
            .filter(|(lease, _)| !self.overdue.contains(lease))
            .map(|(_, running)| running.since)
            .min()?;
        first.checked_add(limit)
    }

    fn kill_overdue(&mut self, now: Instant) {
        let Some(limit) = self.limit() else { return };
        for (lease, running) in &self.running {
            if now - running.since >= limit && self.overdue.insert(*lease) {
                self.slots[running.slot].cancel(*lease, Urgency::Gentle);
            }
        }
    }

    fn time(&self, at: Instant) -> Time {
        let nanos = at.saturating_duration_since(self.origin).as_nanos();
        Time(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Summary {
    fn new(slots: usize) -> Self {
        Self {
            tally: Tally::default(),
            left: 0,
            retries: 0,
            stolen: 0,
            copies: 0,
            copies_won: 0,
            interrupted: false,
            busy_ns: vec![0; slots],
            wall: Duration::ZERO,
            durations: Sketch::default(),
            depths: QueueDepths::default(),
        }
    }
}

fn outcome(done: &Done, overdue: bool) -> Outcome {
    match &done.result {
        Ok(ended) if ended.success() => Outcome::Succeeded,
        Ok(ended) if overdue || ended.stopped == Some(Stopped::TimeLimit) => {
            Outcome::Failed(Failure::TimeLimit)
        }
        Ok(_) => Outcome::Failed(Failure::Error),
        // What is not there will not be there the next time.
        Err(_) => Outcome::Failed(Failure::Permanent),
    }
}

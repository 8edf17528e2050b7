//! The driver of a run: tasks go in, the scheduler decides, agents carry out.
//!
//! One thread owns the scheduler. It waits for events, tells the scheduler what happened and does
//! what it answers. For a command with items, each slot is an agent of its own, so that work is
//! stolen between slots, a second copy of a straggler runs elsewhere, and a slot always finds its
//! next task on its desk already. A job file may describe other agents.
//!
//! Items are submitted a few at a time: they start in their order, and a stream of items without end
//! takes no memory. A job file is submitted whole, for its tasks may depend on each other.

mod attempts;
mod clock;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use loxley_agent::Urgency;
use loxley_model::{AgentSpec, GroupId, Lease, Span, TaskId, TaskSpec, Time};
use loxley_policy::{Action, Config, Ending, Input, Report, Scheduler, Vitals};

use super::chronicle::Chronicle;
use super::delivery::Delivery;
use super::halt::Halt;
use super::progress::Progress;
use super::slots::{AgentHandle, Assignment, Done, End, House, What};
use super::source::{Coming, Source};
use super::summary::Summary;

/// Something that happened.
#[derive(Debug)]
pub(in crate::run) enum Event {
    /// There may be more items.
    ItemsReady,
    /// A slot began with a task, some time ago: short tasks are told of only at their end.
    Started {
        task: TaskId,
        lease: Lease,
        slot: usize,
        at: Instant,
    },
    /// A slot is done with these tasks.
    Ended(Vec<End>),
    /// A slot was closed and will say nothing more.
    SlotClosed,
    /// Somebody wants us to stop.
    Interrupted,
}

/// What the engine is built from.
pub(in crate::run) struct Parts {
    pub(in crate::run) config: Config,
    pub(in crate::run) house: Arc<House>,
    /// Numbered from 0, one after the other.
    pub(in crate::run) agents: Vec<AgentSpec>,
    pub(in crate::run) limits: Vec<(GroupId, u32)>,
    pub(in crate::run) source: Source,
    pub(in crate::run) delivery: Delivery,
    pub(in crate::run) progress: Progress,
    /// Keeps the story of a job.
    pub(in crate::run) chronicle: Option<Chronicle>,
    pub(in crate::run) halt: Option<Halt>,
    /// A task may run so many times the median.
    pub(in crate::run) median_limit: Option<f64>,
    pub(in crate::run) events: (Sender<Event>, Receiver<Event>),
}

/// How many tasks are submitted ahead, for each slot: more than it finishes before it tells of them.
const AHEAD: u64 = 32;

/// How often it is shown what agents do.
const SHOW_EVERY: Duration = Duration::from_millis(100);

pub(in crate::run) struct Engine {
    scheduler: Scheduler,
    origin: Instant,
    actions: Vec<Action>,
    inputs: VecDeque<Input>,
    timer: Option<Time>,
    agents: Vec<AgentHandle>,
    /// Whose each slot is.
    owners: Vec<usize>,
    open_slots: usize,
    source: Source,
    exhausted: bool,
    tasks: HashMap<TaskId, Task>,
    running: HashMap<Lease, Running>,
    overdue: HashSet<Lease>,
    /// Running tasks that were asked back: they stop, and go on elsewhere.
    yielding: HashSet<Lease>,
    delivery: Delivery,
    progress: Progress,
    chronicle: Option<Chronicle>,
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
    what: Arc<What>,
    /// Its last attempt.
    done: Option<Done>,
    /// How it ended, while the process of its last attempt still does.
    ending: Option<Ending>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    task: TaskId,
    agent: usize,
    since: Instant,
}

impl Engine {
    pub(in crate::run) fn new(parts: Parts) -> Result<Self> {
        let (sender, events) = parts.events;
        let mut agents = Vec::with_capacity(parts.agents.len());
        let mut owners = Vec::new();
        for (index, spec) in parts.agents.iter().enumerate() {
            let count = spec.slots as usize;
            agents.push(AgentHandle::start(
                owners.len(),
                count,
                &parts.house,
                &sender,
            )?);
            owners.extend(std::iter::repeat_n(index, count));
        }
        let origin = Instant::now();
        // A slot that tells of ends late needs more on its desk.
        let vitals = Vitals {
            throttle: 0.0,
            round_trip: Span(nanoseconds(parts.house.hold)),
        };
        let join = parts.agents.into_iter().flat_map(|spec| {
            let agent = spec.id;
            [
                Input::AgentJoined(spec.into()),
                Input::AgentHeard { agent, vitals },
            ]
        });
        let limit = |(group, limit)| Input::GroupLimitSet { group, limit };
        Ok(Self {
            scheduler: Scheduler::new(parts.config, Time::ZERO),
            origin,
            actions: Vec::new(),
            inputs: join.chain(parts.limits.into_iter().map(limit)).collect(),
            timer: None,
            open_slots: owners.len(),
            summary: Summary::new(owners.len(), agents.len()),
            agents,
            owners,
            source: parts.source,
            exhausted: false,
            tasks: HashMap::new(),
            running: HashMap::new(),
            overdue: HashSet::new(),
            yielding: HashSet::new(),
            delivery: parts.delivery,
            progress: parts.progress,
            chronicle: parts.chronicle,
            halt: parts.halt,
            median_limit: parts.median_limit,
            events,
            stopping: None,
            sampled: origin,
            shown: origin,
        })
    }

    /// Runs everything to its end. Whatever happens, no process is left behind.
    pub(in crate::run) fn run(
        mut self,
        out: &mut dyn Write,
    ) -> Result<(Summary, Option<Chronicle>)> {
        let result = self.until_over(out);
        if result.is_err() {
            self.stop(Urgency::AtOnce);
        }
        for agent in &self.agents {
            agent.close();
        }
        for agent in self.agents.drain(..) {
            agent.join();
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
        self.summary.deadline_misses = metrics.deadline_misses;
        Ok((self.summary, self.chronicle))
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
            self.show_progress();
        }
    }

    fn show_progress(&mut self) {
        self.progress.show(&self.summary.tally, self.running.len());
        let now = Instant::now();
        if let Some(chronicle) = &self.chronicle
            && self.progress.is_visible()
            && now - self.shown >= SHOW_EVERY
        {
            self.shown = now;
            self.progress.show_agents(chronicle.doing());
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
            Event::SlotClosed if self.stopping.is_none() => {
                bail!("a slot cannot go on: the files of a limit cannot be used")
            }
            Event::SlotClosed => self.open_slots -= 1,
            Event::Interrupted => self.interrupted()?,
            Event::Started {
                task,
                lease,
                slot,
                at,
            } => {
                self.started(task, lease, slot, at, out)?;
            }
            Event::Ended(ends) => {
                for end in ends {
                    self.take_end(end, out)?;
                }
            }
        }
        Ok(())
    }

    fn take_end(&mut self, end: End, out: &mut dyn Write) -> Result<()> {
        let End {
            task, lease, done, ..
        } = end;
        if !self.running.contains_key(&lease) {
            self.started(task, lease, done.slot, end.begun, out)?;
        }
        self.running.remove(&lease);
        self.ended(task, lease, end.at, done, out)
    }

    /// Submits tasks while there are some and few wait.
    fn submit_more(&mut self, out: &mut dyn Write) -> Result<()> {
        while !self.exhausted && self.stopping.is_none() {
            let counts = self.scheduler.counts();
            let ahead = counts.queued + counts.running + counts.held;
            if ahead >= AHEAD * self.summary.busy_ns.len() as u64 {
                break;
            }
            let at = Instant::now();
            let now = self.time(at);
            match self.source.next(now)? {
                Coming::Nothing => break,
                Coming::End => self.exhausted = true,
                Coming::Skipped(sequence) => self.delivery.skip(sequence, out)?,
                Coming::Batch(batch) => {
                    let tasks: Arc<[TaskSpec]> = batch
                        .tasks
                        .into_iter()
                        .map(|(spec, what)| {
                            let task = Task {
                                what,
                                done: None,
                                ending: None,
                            };
                            self.tasks.insert(spec.id, task);
                            spec
                        })
                        .collect();
                    if let Some(chronicle) = &mut self.chronicle {
                        chronicle.submitted(&tasks);
                    }
                    let job = batch.job;
                    self.tell(at, Input::TasksSubmitted { job, tasks }, out)?;
                }
            }
        }
        self.progress.expect(self.source.total());
        Ok(())
    }

    /// Tells the scheduler a fact and does what it answers.
    fn tell(&mut self, at: Instant, input: Input, out: &mut dyn Write) -> Result<()> {
        let now = self.time(at);
        self.scheduler.handle(now, input, &mut self.actions);
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            if let Some(chronicle) = &mut self.chronicle {
                chronicle.action(now, &action);
            }
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
                self.agents[agent.0 as usize].assign(Assignment {
                    task,
                    lease,
                    attempt,
                    what: Arc::clone(&known.what),
                });
            }
            Action::Retract {
                task,
                agent,
                lease,
                running,
            } => {
                let holder = &self.agents[agent.0 as usize];
                let yielded = holder.take_back(lease);
                if !yielded && running && self.running.contains_key(&lease) {
                    // It answers when it has stopped.
                    self.yielding.insert(lease);
                    holder.cancel(lease, Urgency::Gentle);
                } else {
                    self.inputs.push_back(Input::TaskYielded {
                        task,
                        lease,
                        yielded,
                    });
                }
            }
            Action::Cancel { agent, lease, .. } => {
                self.agents[agent.0 as usize].cancel(lease, Urgency::Gentle);
            }
            Action::SetTimer { at } => self.timer = Some(at),
            Action::Report(Report::Finished { task, ending, .. }) => {
                self.over(task, ending, out)?;
            }
            Action::Report(Report::Refused { errors, .. }) => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                bail!("the scheduler refused the tasks: {}", errors.join("; "));
            }
            Action::Report(Report::DeadlineLost { task, .. }) => {
                if let Some(chronicle) = &self.chronicle {
                    let title = chronicle.title(task);
                    self.progress
                        .say(&format!("{title} cannot meet its deadline"))?;
                }
            }
            Action::Report(_) => {}
        }
        Ok(())
    }

    fn interrupted(&mut self) -> io::Result<()> {
        self.summary.interrupted = true;
        match self.stopping {
            None => {
                self.close();
                let running = self.running.len();
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
            agent.close();
        }
    }

    /// Kills what runs.
    fn stop(&mut self, urgency: Urgency) {
        self.close();
        self.stopping = Some(Urgency::AtOnce);
        for agent in &self.agents {
            agent.kill_current(urgency);
        }
    }

    fn time(&self, at: Instant) -> Time {
        Time(nanoseconds(at.saturating_duration_since(self.origin)))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

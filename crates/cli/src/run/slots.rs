//! The threads that run tasks. Each agent has a desk: what was assigned to it and not started lies
//! there, and can be taken back. Its slots take from the desk and tell what happens; they decide
//! nothing.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use loxley_agent::{
    Command, Ended, Filling, Killer, Limits, Sink, Slot, Spool, StartError, Stream, Streams,
    Template, Urgency,
};
use loxley_model::{Lease, TaskId};

use super::engine::Event;
use super::gate::Gate;

/// How a task is run; shared by all tasks that are alike.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) template: Template,
    pub(super) streams: Streams,
    pub(super) limits: Limits,
    /// Added to the environment, beside the variables of Loxley.
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) directory: Option<PathBuf>,
}

/// A task that was given to an agent.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) task: TaskId,
    pub(super) lease: Lease,
    pub(super) attempt: u32,
    pub(super) what: Arc<What>,
}

/// What a task is: its recipe and what fills it.
#[derive(Debug)]
pub(super) struct What {
    pub(super) recipe: Arc<Recipe>,
    pub(super) items: Box<[OsString]>,
    /// What `{#}` stands for.
    pub(super) sequence: u64,
    /// The file in which it keeps its state between attempts.
    pub(super) checkpoint: Option<PathBuf>,
}

impl What {
    /// What fills the template, on the slot with this number (from 0).
    pub(super) fn filling(&self, slot: usize) -> Filling<'_> {
        Filling {
            items: &self.items,
            sequence: self.sequence,
            slot: slot + 1,
        }
    }

    /// The command as people read it.
    pub(super) fn line(&self, slot: usize) -> OsString {
        self.recipe.template.line(&self.filling(slot))
    }
}

/// The end of one attempt at a task.
#[derive(Debug)]
pub(super) struct End {
    pub(super) task: TaskId,
    pub(super) lease: Lease,
    pub(super) begun: Instant,
    pub(super) at: Instant,
    pub(super) done: Done,
}

/// A task that a slot is done with.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) slot: usize,
    pub(super) attempt: u32,
    /// When it started, by the clock on the wall.
    pub(super) started: SystemTime,
    pub(super) result: Result<Ended, StartError>,
    pub(super) output: Spool,
}

/// What all slots have in common.
#[derive(Debug)]
pub(super) struct House {
    pub(super) gate: Gate,
    /// What `LOXLEY_JOB_ID` says.
    pub(super) job: u32,
    /// How late the ends of short tasks may be told of while there is enough to do; none where other tasks
    /// wait for them.
    pub(super) hold: Duration,
}

/// How late the ends of short tasks may be told of when nobody waits for them: to wake the engine for each
/// costs more than all it does for it.
pub(super) const HOLD: Duration = Duration::from_millis(4);

/// An agent as the one who assigns sees it: one desk, and a slot for each task it runs at once.
#[derive(Debug)]
pub(super) struct AgentHandle {
    desk: Arc<Desk>,
    killers: Vec<Killer>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Desk {
    papers: Mutex<Papers>,
    bell: Condvar,
}

#[derive(Debug)]
struct Papers {
    waiting: VecDeque<Assignment>,
    /// What each slot took last; it may be over.
    current: Vec<Option<Lease>>,
    closed: bool,
}

impl Papers {
    /// What lies on a closed desk came too late, and stays there.
    fn take(&mut self, position: usize) -> Option<Assignment> {
        if self.closed {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.current[position] = Some(next.lease);
        Some(next)
    }
}

impl AgentHandle {
    /// Starts the threads of an agent whose first slot has the number `first_slot`, from 0.
    pub(super) fn start(
        first_slot: usize,
        slots: usize,
        house: &Arc<House>,
        events: &Sender<Event>,
    ) -> io::Result<Self> {
        let desk = Arc::new(Desk {
            papers: Mutex::new(Papers {
                waiting: VecDeque::new(),
                current: vec![None; slots],
                closed: false,
            }),
            bell: Condvar::new(),
        });
        let mut agent = Self {
            desk,
            killers: Vec::with_capacity(slots),
            threads: Vec::with_capacity(slots),
        };
        for position in 0..slots {
            let (slot, killer) = Slot::new()?;
            let worker = Worker {
                index: first_slot + position,
                position,
                slot,
                desk: Arc::clone(&agent.desk),
                house: Arc::clone(house),
                news: News {
                    events: events.clone(),
                    ends: Vec::new(),
                    told_at: Instant::now(),
                },
            };
            let thread = thread::Builder::new()
                .name(format!("slot-{}", first_slot + position + 1))
                .stack_size(256 << 10)
                .spawn(move || worker.work())?;
            agent.killers.push(killer);
            agent.threads.push(thread);
        }
        Ok(agent)
    }

    /// Puts a task on the desk.
    pub(super) fn assign(&self, assignment: Assignment) {
        self.desk.papers().waiting.push_back(assignment);
        self.desk.bell.notify_one();
    }

    /// Takes a task back, unless it was started.
    pub(super) fn take_back(&self, lease: Lease) -> bool {
        let waiting = &mut self.desk.papers().waiting;
        let position = waiting.iter().position(|paper| paper.lease == lease);
        position.is_some_and(|position| waiting.remove(position).is_some())
    }

    /// Stops a task, started or not.
    pub(super) fn cancel(&self, lease: Lease, urgency: Urgency) {
        if self.take_back(lease) {
            return;
        }
        let papers = self.desk.papers();
        let slot = papers.current.iter().position(|held| *held == Some(lease));
        drop(papers);
        if let Some(slot) = slot {
            self.killers[slot].kill(lease.0, urgency);
        }
    }

    /// Kills what the agent runs, or is about to run.
    pub(super) fn kill_current(&self, urgency: Urgency) {
        let current = self.desk.papers().current.clone();
        for (killer, lease) in self.killers.iter().zip(current) {
            if let Some(lease) = lease {
                killer.kill(lease.0, urgency);
            }
        }
    }

    /// How many tasks lie on the desk.
    pub(super) fn waiting(&self) -> usize {
        self.desk.papers().waiting.len()
    }

    /// Starts nothing more: the desk is cleared, what runs goes on.
    pub(super) fn close(&self) {
        let mut papers = self.desk.papers();
        papers.closed = true;
        papers.waiting.clear();
        drop(papers);
        self.desk.bell.notify_all();
    }

    /// Waits for the threads of an agent that was closed.
    pub(super) fn join(self) {
        for thread in self.threads {
            // A panic has been shown by the thread itself.
            let _ = thread.join();
        }
    }
}

impl Desk {
    fn papers(&self) -> MutexGuard<'_, Papers> {
        self.papers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next task, for the slot at this position, if there is one now.
    fn next_at_once(&self, position: usize) -> Option<Assignment> {
        self.papers().take(position)
    }

    /// The next task, for the slot at this position; none once the desk is closed.
    fn next(&self, position: usize) -> Option<Assignment> {
        let mut papers = self.papers();
        loop {
            if papers.closed {
                return None;
            }
            if let Some(next) = papers.take(position) {
                return Some(next);
            }
            papers = self
                .bell
                .wait(papers)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_closed(&self) -> bool {
        self.papers().closed
    }
}

/// A task that ends within this time is told of once, at its end: waking the engine twice for each
/// would cost as much as the scheduling itself.
const SHORT: Duration = Duration::from_millis(2);

/// What a slot has to tell.
struct News {
    events: Sender<Event>,
    /// Ends that were not told of yet.
    ends: Vec<End>,
    told_at: Instant,
}

impl News {
    /// Tells of all ends so far; false when nobody listens any more.
    fn tell_ends(&mut self) -> bool {
        if self.ends.is_empty() {
            return true;
        }
        self.told_at = Instant::now();
        let ends = std::mem::take(&mut self.ends);
        self.events.send(Event::Ended(ends)).is_ok()
    }
}

/// Keeps what a task writes, and tells of a task that is not short that it started.
struct Listener<'a> {
    output: Spool,
    news: &'a mut News,
    started: Option<Event>,
}

impl Sink for Listener<'_> {
    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        self.output.take(stream, bytes)
    }

    fn runs_on(&mut self) {
        if let Some(started) = self.started.take() {
            // Nobody listens any more when one of these fails, and the end will find out.
            self.news.tell_ends();
            let _ = self.news.events.send(started);
        }
    }
}

/// The thread of a slot.
struct Worker {
    /// Its number among all slots, from 0.
    index: usize,
    /// Its number among the slots of its agent, from 0.
    position: usize,
    slot: Slot,
    desk: Arc<Desk>,
    house: Arc<House>,
    news: News,
}

impl Worker {
    fn work(mut self) {
        while let Some(assignment) = self.next() {
            let house = Arc::clone(&self.house);
            let Some(_pass) = house.gate.pass(|| self.desk.is_closed()) else {
                break;
            };
            if !self.run(assignment) {
                break;
            }
        }
        // Nobody listens any more when this fails.
        self.news.tell_ends();
        let _ = self.news.events.send(Event::SlotClosed);
    }

    /// The next task. Nothing is left untold where that, or a closed gate, may take a while.
    fn next(&mut self) -> Option<Assignment> {
        if self.house.gate.is_open()
            && let Some(next) = self.desk.next_at_once(self.position)
        {
            return Some(next);
        }
        self.news.tell_ends();
        self.desk.next(self.position)
    }

    /// Runs a task; false when nobody listens any more.
    fn run(&mut self, assignment: Assignment) -> bool {
        let Assignment {
            task,
            lease,
            attempt,
            ..
        } = assignment;
        let command = self.command(&assignment);
        let (started, begun) = (SystemTime::now(), Instant::now());
        let mut listener = Listener {
            output: Spool::default(),
            news: &mut self.news,
            started: Some(Event::Started {
                task,
                lease,
                slot: self.index,
                at: begun,
            }),
        };
        let result = self.slot.run(lease.0, &command, &mut listener);
        let output = listener.output;
        let is_short = listener.started.is_some();
        let done = Done {
            slot: self.index,
            attempt,
            started,
            result,
            output,
        };
        let may_wait = is_short && matches!(&done.result, Ok(ended) if ended.success());
        self.news.ends.push(End {
            task,
            lease,
            begun,
            at: Instant::now(),
            done,
        });
        if may_wait && self.has_time() {
            return true;
        }
        self.news.tell_ends()
    }

    /// Whether what has ended can be told of later: before the desk is empty, and not too late.
    fn has_time(&self) -> bool {
        self.news.told_at.elapsed() < self.house.hold
            && self.desk.papers().waiting.len() >= self.news.ends.len()
    }

    fn command(&self, assignment: &Assignment) -> Command {
        let what = &assignment.what;
        let recipe = &what.recipe;
        let mut command = recipe.template.command(&what.filling(self.index));
        command.streams = recipe.streams;
        command.limits = recipe.limits;
        command.directory.clone_from(&recipe.directory);
        command.notice = Some(SHORT);
        command.environment.clone_from(&recipe.environment);
        let mut set = |name: &str, value: OsString| {
            command.environment.push((name.into(), value));
        };
        for (name, number) in [
            ("LOXLEY_JOB_ID", u64::from(self.house.job)),
            ("LOXLEY_TASK_ID", assignment.task.0),
            ("LOXLEY_ATTEMPT", assignment.attempt.into()),
            ("LOXLEY_SLOT", self.index as u64 + 1),
        ] {
            set(name, number.to_string().into());
        }
        if !what.items.is_empty() {
            set("LOXLEY_ENTRY", what.items.join(OsStr::new(" ")));
        }
        if let Some(path) = &what.checkpoint {
            set("LOXLEY_CHECKPOINT", path.into());
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignment(number: u64) -> Assignment {
        let recipe = Recipe {
            template: Template::plain_words(&["true".into()]),
            streams: Streams::Captured,
            limits: Limits::default(),
            environment: Vec::new(),
            directory: None,
        };
        Assignment {
            task: TaskId(number),
            lease: Lease(number),
            attempt: 1,
            what: Arc::new(What {
                recipe: Arc::new(recipe),
                items: Box::default(),
                sequence: number,
                checkpoint: None,
            }),
        }
    }

    /// The scheduler fills a slot in the same breath in which it tells of the failure that ends the run.
    #[test]
    fn what_is_assigned_after_the_desk_was_closed_is_not_run() {
        let agent = AgentHandle {
            desk: Arc::new(Desk {
                papers: Mutex::new(Papers {
                    waiting: VecDeque::new(),
                    current: vec![None],
                    closed: false,
                }),
                bell: Condvar::new(),
            }),
            killers: Vec::new(),
            threads: Vec::new(),
        };
        agent.assign(assignment(1));
        assert!(agent.desk.next_at_once(0).is_some());
        agent.close();
        agent.assign(assignment(2));
        assert!(agent.desk.next_at_once(0).is_none());
        assert!(agent.desk.next(0).is_none());
    }
}

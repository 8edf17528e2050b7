//! The story of a job: what ran where and when, what changed hands and why.
//!
//! The engine tells the trace every action of the scheduler and everything that agents do. Out
//! of that come the lines that say how far a job is, the account of what was stolen, and the timeline
//! of the report, which the simulator draws: it is told the same happenings as in a simulated run.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use loxley_balance::Sketch;
use loxley_model::{AgentId, Failure, Lease, Outcome, TaskId, Time};
use loxley_policy::{Action, Ending, Reason, Report};
use loxley_sim::{Happening, Observer, Recorder, Timeline};

use super::delivery::Story;
use super::job::JobBook;

/// The story of a job so far.
#[derive(Debug)]
pub(super) struct RunTrace {
    book: Arc<JobBook>,
    recorder: Recorder,
    /// Where each waiting task waits, and how many wait at each agent.
    waiting_at: HashMap<TaskId, u32>,
    queues: Vec<u32>,
    running: BTreeMap<Lease, Run>,
    /// When each task could have started.
    ready: HashMap<TaskId, Time>,
    waits: Sketch,
    /// Waiting times of urgent tasks and of the others.
    waits_by_urgency: [Sketch; 2],
    moves: BTreeMap<Move, MoveCount>,
    copies: Vec<Copy>,
    /// What each task waits for, and how long its last attempt took.
    dependencies: HashMap<TaskId, Box<[TaskId]>>,
    took: HashMap<TaskId, u64>,
    definitions: Vec<Definition>,
    /// Whether to tell when all tasks of a definition are over.
    tells: bool,
}

/// A task that an agent runs.
#[derive(Clone, Copy, Debug)]
struct Run {
    task: TaskId,
    agent: u32,
    since: Time,
}

/// Who gave to whom, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Move {
    why: WhyMoved,
    from: u32,
    to: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WhyMoved {
    Stolen,
    Rebalanced,
    BehindStraggler,
}

#[derive(Clone, Copy, Debug, Default)]
struct MoveCount {
    count: u64,
    /// The longest queue it was taken from.
    waiting_max: u32,
}

/// A second copy of a task.
#[derive(Clone, Debug)]
struct Copy {
    task: TaskId,
    lease: Lease,
    slow: u32,
    agent: u32,
    /// How long the first had run.
    after: f64,
    won: bool,
}

/// How far the tasks of one definition are.
#[derive(Clone, Copy, Debug, Default)]
struct Definition {
    left: u64,
    succeeded: u64,
    fell_back: u64,
    failed: u64,
    skipped: u64,
    moved: u64,
}

impl RunTrace {
    /// An empty story of the job in this book; it `tells` how far it is, or keeps it to itself.
    pub(super) fn new(book: Arc<JobBook>, tells: bool) -> Self {
        let agents = book.agents.iter();
        let lanes = agents
            .map(|agent| (agent.name.clone(), agent.slots))
            .collect();
        Self {
            recorder: Recorder::new(lanes),
            waiting_at: HashMap::new(),
            queues: vec![0; book.agents.len()],
            running: BTreeMap::new(),
            ready: HashMap::new(),
            waits: Sketch::default(),
            waits_by_urgency: [Sketch::default(), Sketch::default()],
            moves: BTreeMap::new(),
            copies: Vec::new(),
            dependencies: HashMap::new(),
            took: HashMap::new(),
            definitions: vec![Definition::default(); book.file.request.tasks.len()],
            tells,
            book,
        }
    }

    /// What people call a task.
    pub(super) fn title(&self, task: TaskId) -> String {
        self.book.title(task)
    }

    /// The tasks of the job.
    pub(super) fn submitted(&mut self, tasks: impl Iterator<Item = TaskId>) {
        for task in tasks {
            if let Some(planned) = self.book.plan.find(task) {
                self.definitions[planned.definition].left += 1;
                let request = &self.book.file.request;
                let dependencies = self.book.plan.dependencies(request, planned);
                self.dependencies.insert(task, dependencies.into());
            }
        }
    }

    /// The scheduler wants something done.
    pub(super) fn action(&mut self, now: Time, action: &Action) {
        match *action {
            Action::Report(Report::Queued {
                task,
                agent,
                reason,
            }) => self.placed(now, task, lane(agent), reason),
            Action::Assign {
                task,
                agent,
                lease,
                reason: Reason::Speculation(slow),
                ..
            } => self.copied(now, task, lane(agent), lease, lane(slow)),
            Action::Assign {
                task,
                agent,
                reason,
                ..
            } => self.placed(now, task, lane(agent), reason),
            _ => {}
        }
    }

    /// A task waits at an agent now, on its queue or on its desk.
    fn placed(&mut self, now: Time, task: TaskId, to: u32, reason: Reason) {
        self.ready.entry(task).or_insert(now);
        let from = self.waiting_at.insert(task, to);
        if from == Some(to) {
            return;
        }
        self.queues[to as usize] += 1;
        let task_number = task.0;
        let Some(from) = from else {
            // A running task that was asked back is nobody's until it is placed again.
            if let Reason::Stolen(victim) = reason {
                self.moved(WhyMoved::Stolen, lane(victim), to, task, 0);
            }
            let happening = Happening::Queued {
                worker: to,
                task: task_number,
            };
            return self.recorder.see(now.0, &happening);
        };
        let waiting = self.queues[from as usize];
        self.queues[from as usize] -= 1;
        match reason {
            Reason::Stolen(_) => self.moved(WhyMoved::Stolen, from, to, task, waiting),
            Reason::Rebalanced(_) => self.moved(WhyMoved::Rebalanced, from, to, task, waiting),
            Reason::BehindStraggler(_) => {
                self.moved(WhyMoved::BehindStraggler, from, to, task, waiting);
            }
            _ => {}
        }
        let stolen = matches!(reason, Reason::Stolen(_) | Reason::Rebalanced(_));
        let happening = Happening::Moved {
            from,
            to,
            task: task_number,
            stolen,
            given: false,
        };
        self.recorder.see(now.0, &happening);
    }

    fn moved(&mut self, why: WhyMoved, from: u32, to: u32, task: TaskId, waiting: u32) {
        let count = self.moves.entry(Move { why, from, to }).or_default();
        count.count += 1;
        count.waiting_max = count.waiting_max.max(waiting);
        if let Some(planned) = self.book.plan.find(task) {
            self.definitions[planned.definition].moved += 1;
        }
    }

    fn copied(&mut self, now: Time, task: TaskId, agent: u32, lease: Lease, slow: u32) {
        let first = self.running.values().find(|run| run.task == task);
        self.copies.push(Copy {
            task,
            lease,
            slow,
            agent,
            after: first.map_or(0.0, |run| now.since(run.since).as_secs_f64()),
            won: false,
        });
        let happening = Happening::Queued {
            worker: agent,
            task: task.0,
        };
        self.recorder.see(now.0, &happening);
    }

    /// An agent began to run a task.
    pub(super) fn started(&mut self, now: Time, task: TaskId, lease: Lease, agent: usize) {
        let worker = agent as u32;
        let run = Run {
            task,
            agent: worker,
            since: now,
        };
        self.running.insert(lease, run);
        if self.waiting_at.get(&task) == Some(&worker) {
            self.waiting_at.remove(&task);
            self.queues[agent] -= 1;
        }
        if let Some(ready) = self.ready.remove(&task) {
            let wait = now.since(ready).0;
            self.waits.record(wait);
            let urgent = self.book.is_urgent(task);
            self.waits_by_urgency[usize::from(!urgent)].record(wait);
        }
        let task = task.0;
        self.recorder
            .see(now.0, &Happening::Started { worker, task });
    }

    /// The process of a task ended.
    pub(super) fn ended(&mut self, now: Time, lease: Lease, outcome: Outcome, killed: bool) {
        let Some(Run { task, agent, since }) = self.running.remove(&lease) else {
            return;
        };
        let (worker, number) = (agent, task.0);
        let happening = if killed {
            Happening::Stopped {
                worker,
                task: number,
            }
        } else {
            Happening::Finished {
                worker,
                task: number,
                ok: outcome == Outcome::Succeeded,
            }
        };
        self.recorder.see(now.0, &happening);
        if !killed {
            self.took.insert(task, now.since(since).0);
        }
    }

    /// A task is over: what to tell of it, and of its definition if it was the last.
    pub(super) fn over(
        &mut self,
        now: Time,
        task: TaskId,
        ending: Ending,
        agent: Option<usize>,
    ) -> (Option<Story>, Option<String>) {
        self.forget_place(now, task);
        if let Ending::Succeeded { lease, .. } = ending
            && let Some(copy) = self.copies.iter_mut().find(|copy| copy.lease == lease)
        {
            copy.won = true;
        }
        let Some(planned) = self.book.plan.find(task) else {
            return (None, None);
        };
        let definition = &mut self.definitions[planned.definition];
        definition.left -= 1;
        match ending {
            Ending::Succeeded { .. } => definition.succeeded += 1,
            Ending::FellBack { .. } => definition.fell_back += 1,
            Ending::Cancelled => definition.skipped += 1,
            _ => definition.failed += 1,
        }
        let finished = *definition;
        let milestone = (self.tells && finished.left == 0)
            .then(|| self.milestone(now, planned.definition, finished));
        let agent = agent.map(|agent| self.book.agents[agent].name.clone());
        (Some(self.story(task, ending, agent)), milestone)
    }

    /// A task that ends while it waits leaves its queue.
    fn forget_place(&mut self, now: Time, task: TaskId) {
        if let Some(worker) = self.waiting_at.remove(&task) {
            self.queues[worker as usize] -= 1;
            let task = task.0;
            self.recorder
                .see(now.0, &Happening::Withdrawn { worker, task });
        }
    }

    fn story(&self, task: TaskId, ending: Ending, agent: Option<String>) -> Story {
        let title = self.book.title(task);
        let (word, trouble) = match ending {
            Ending::Succeeded { .. } => ("succeeded", None),
            Ending::FellBack { .. } => ("fell_back", None),
            Ending::Failed(Failure::Dependency) => {
                let why = "a task before it did";
                ("failed", Some(format!("{title} failed, because {why}")))
            }
            Ending::Failed(Failure::TimeLimit) => {
                ("failed", Some(format!("{title} ran into its time limit")))
            }
            Ending::Failed(_) => ("failed", Some(format!("{title} failed"))),
            Ending::Cancelled | Ending::Returned => ("skipped", None),
        };
        let (name, value) = self.book.name_and_value(task);
        Story {
            title,
            name,
            agent,
            ending: word,
            value,
            is_replaced: matches!(ending, Ending::FellBack { .. }),
            trouble,
        }
    }

    fn milestone(&self, now: Time, definition: usize, counts: Definition) -> String {
        let name = self.book.definition(definition).name.as_deref();
        let name = name.unwrap_or_default();
        let width = self.book.name_width();
        let mut line = format!(
            "{:6.2} s  {name:width$}  {} done",
            now.as_secs_f64(),
            counts.succeeded + counts.fell_back
        );
        for (count, what) in [
            (counts.fell_back, "by fallback"),
            (counts.failed, "failed"),
            (counts.skipped, "skipped"),
            (counts.moved, "moved to another agent"),
        ] {
            if count > 0 {
                line += &format!(", {count} {what}");
            }
        }
        line
    }

    /// What each agent does now, for the progress.
    pub(super) fn doing(&self) -> impl Iterator<Item = String> {
        (0..).zip(&self.queues).map(|(agent, waiting)| {
            let titles: Vec<String> = self
                .running
                .values()
                .filter(|run| run.agent == agent)
                .map(|run| self.book.title(run.task))
                .collect();
            let doing = match titles.is_empty() {
                true => "idle".to_owned(),
                false => titles.join(", "),
            };
            match waiting {
                0 => doing,
                waiting => format!("{doing} · {waiting} waiting"),
            }
        })
    }

    /// What changed hands and why, a sentence for each pair of agents.
    pub(super) fn account(&self) -> Vec<String> {
        let name = |agent: u32| self.book.agents[agent as usize].name.as_str();
        let mut moves: Vec<(&Move, &MoveCount)> = self.moves.iter().collect();
        moves.sort_by_key(|(_, count)| std::cmp::Reverse(count.count));
        let mut account: Vec<String> = moves
            .into_iter()
            .map(|(Move { why, from, to }, count)| {
                let (from, to) = (name(*from), name(*to));
                let (number, most) = (count.count, count.waiting_max);
                match why {
                    WhyMoved::Stolen if most == 0 => {
                        format!("{to} took {number} from {from}, which was slow with it")
                    }
                    WhyMoved::Stolen => format!(
                        "{to} took {number} from {from}: it had nothing to do while up to {most} \
                         waited there"
                    ),
                    WhyMoved::Rebalanced => format!(
                        "{number} went from {from} to {to}: up to {most} waited there, queues had \
                         grown apart"
                    ),
                    WhyMoved::BehindStraggler => {
                        format!(
                            "{number} went from {from} to {to}: they were stuck behind a slow task"
                        )
                    }
                }
            })
            .collect();
        account.extend(self.copies.iter().map(|copy| {
            let result = match copy.won {
                true => "and was first",
                false => "and was not first",
            };
            format!(
                "{} was slow on {} ({:.1} s so far): a second copy ran on {} {result}",
                self.book.title(copy.task),
                name(copy.slow),
                copy.after,
                name(copy.agent)
            )
        }));
        if let [Some(urgent), Some(others)] =
            [&self.waits_by_urgency[0], &self.waits_by_urgency[1]].map(Sketch::median)
        {
            account.push(format!(
                "half of the urgent tasks waited less than {:.2} s, half of the others less than {:.2} s",
                urgent as f64 / 1e9,
                others as f64 / 1e9
            ));
        }
        account
    }

    /// How long the longest chain of tasks took, in nanoseconds: no run could be shorter.
    pub(super) fn critical_path(&self) -> u64 {
        let mut chain: HashMap<TaskId, u64> = HashMap::new();
        let mut longest = 0;
        for start in self.dependencies.keys() {
            let mut stack = vec![*start];
            while let Some(task) = stack.last().copied() {
                let before = self.dependencies.get(&task).map_or(&[][..], |all| all);
                let unknown = before.iter().find(|id| !chain.contains_key(id));
                if let (Some(unknown), false) = (unknown, chain.contains_key(&task)) {
                    stack.push(*unknown);
                    continue;
                }
                let before = before.iter().filter_map(|id| chain.get(id)).max();
                let own = self.took.get(&task).copied().unwrap_or(0);
                let whole = before.copied().unwrap_or(0) + own;
                chain.insert(task, whole);
                longest = longest.max(whole);
                stack.pop();
            }
        }
        longest
    }

    /// The time that all tasks took together, in nanoseconds; second copies and attempts that failed
    /// before the last do not count.
    pub(super) fn work(&self) -> u64 {
        self.took.values().sum()
    }

    /// The mean time between being ready and being started, in seconds.
    pub(super) fn mean_wait(&self) -> f64 {
        self.waits.mean().unwrap_or(0.0) / 1e9
    }

    /// The drawing of a run that ended at `end`.
    pub(super) fn into_timeline(self, end: Time) -> Timeline {
        let mut timeline = self.recorder.finish(end.0, &self.waits);
        for span in &timeline.spans {
            let title = || self.book.title(TaskId(span.task));
            timeline.names.entry(span.task).or_insert_with(title);
        }
        timeline
    }
}

/// The engine numbers agents from 1, in the order of the file.
fn lane(agent: AgentId) -> u32 {
    agent.0 as u32 - 1
}

//! Where the tasks of a run come from: held from the beginning, or drawn as their time comes.
//!
//! Groups of tasks need not be held: each has its own sources of chance, so the next submission can be drawn when it is
//! due, in the same order and with the same numbers as if all had been drawn beforehand. What stays of a task is how
//! long it takes and one byte, for agents that are asked about it again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use loxley_balance::Rng;
use loxley_model::{JobId, JobSpec, Priority, Span, TaskId, TaskSpec, Time};

use super::setup::{Attempt, Behaviour, FleetLoad, FleetSetup, FleetTasks, Submission, TaskGroup};
use crate::costs::Costs;
use crate::time::Nanos;

/// The tasks of one run, asked for by number.
pub(super) enum TaskSource<'a> {
    Held(Arc<FleetTasks>),
    Streamed(Box<Streamed<'a>>),
}

impl<'a> TaskSource<'a> {
    pub(super) fn new(setup: &'a FleetSetup, root: &Rng) -> Self {
        match &setup.load {
            FleetLoad::Groups(groups) => {
                Self::Streamed(Box::new(Streamed::new(groups, setup.costs, root)))
            }
            FleetLoad::Graph(_) | FleetLoad::Given(_) => Self::Held(setup.tasks(root)),
        }
    }

    /// The tasks, where all are known from the beginning.
    pub(super) fn held(&self) -> Option<&Arc<FleetTasks>> {
        match self {
            Self::Held(tasks) => Some(tasks),
            Self::Streamed(_) => None,
        }
    }

    /// How many there are in the whole run.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Held(tasks) => tasks.len(),
            Self::Streamed(streamed) => streamed.len,
        }
    }

    /// When the first submission is due.
    pub(super) fn first_at(&self) -> Option<Nanos> {
        match self {
            Self::Held(tasks) => tasks.submissions().first().map(|first| first.at),
            Self::Streamed(streamed) => streamed.stream.next_at(),
        }
    }

    pub(super) fn priority(&self, task: TaskId) -> Priority {
        match self {
            Self::Held(tasks) => tasks.spec(task.0 as usize).priority,
            Self::Streamed(streamed) => streamed.marks[task.0 as usize].priority(),
        }
    }

    /// Whether it goes on from a checkpoint.
    pub(super) fn checkpoints(&self, task: TaskId) -> bool {
        match self {
            Self::Held(tasks) => tasks.spec(task.0 as usize).kind.checkpoints,
            Self::Streamed(streamed) => streamed.marks[task.0 as usize].checkpoints(),
        }
    }

    /// How long it takes at speed 1.
    pub(super) fn work(&self, task: TaskId) -> Nanos {
        match self {
            Self::Held(tasks) => tasks.work()[task.0 as usize],
            Self::Streamed(streamed) => streamed.work[task.0 as usize],
        }
    }

    /// See [`FleetTasks::attempt`].
    pub(super) fn attempt(&self, task: TaskId, ended: u16) -> Option<Attempt> {
        self.held()?.attempt(task, ended)
    }

    pub(super) fn behaviour(&self, task: TaskId) -> Behaviour {
        let held = self.held();
        held.map_or_else(Behaviour::default, |tasks| tasks.behaviour(task))
    }

    /// All work together, and when the last task is over if each runs as soon as it may at this speed: also of those
    /// that a time limit kept from coming.
    pub(super) fn bounds(self, speed: f64) -> (Nanos, Nanos) {
        match self {
            Self::Held(tasks) => (tasks.work().iter().sum(), tasks.critical_path(speed)),
            Self::Streamed(mut streamed) => {
                while streamed.next().is_some() {}
                let run = |work: Nanos| (work as f64 / speed) as Nanos;
                let ends = streamed.longest.iter().map(|&(at, work)| at + run(work));
                (streamed.total_work, ends.max().unwrap_or(0))
            }
        }
    }
}

/// Groups as they are drawn, and what stays of each task.
pub(super) struct Streamed<'a> {
    stream: GroupStream<'a>,
    len: usize,
    work: Vec<Nanos>,
    marks: Vec<Mark>,
    total_work: Nanos,
    /// When a task came that may end later than all others, and its work: longer ones come later here.
    longest: Vec<(Nanos, Nanos)>,
}

impl<'a> Streamed<'a> {
    fn new(groups: &'a [TaskGroup], costs: Costs, root: &Rng) -> Self {
        let len = groups.iter().map(|group| group.count as usize).sum();
        Self {
            stream: GroupStream::new(groups, costs, root),
            len,
            work: Vec::with_capacity(len),
            marks: Vec::with_capacity(len),
            total_work: 0,
            longest: Vec::new(),
        }
    }

    /// The next submission.
    pub(super) fn next(&mut self) -> Option<Submission> {
        let (submission, work) = self.stream.next()?;
        self.total_work += work.iter().sum::<Nanos>();
        self.note_longest(submission.at, work.iter().copied().max().unwrap_or(0));
        self.work.extend(work);
        self.marks.extend(submission.tasks.iter().map(Mark::of));
        Some(submission)
    }

    /// When the submission after that is due.
    pub(super) fn next_at(&self) -> Option<Nanos> {
        self.stream.next_at()
    }

    /// Whoever came earlier and has no more to do cannot end later, at whatever speed.
    fn note_longest(&mut self, at: Nanos, work: Nanos) {
        while self.longest.last().is_some_and(|&(_, other)| other <= work) {
            self.longest.pop();
        }
        self.longest.push((at, work));
    }
}

/// What an agent may be asked of a task later: its priority, and whether it has checkpoints.
#[derive(Clone, Copy)]
struct Mark(u8);

impl Mark {
    const CHECKPOINTS: u8 = 0x80;

    fn of(spec: &TaskSpec) -> Self {
        let checkpoints = if spec.kind.checkpoints {
            Self::CHECKPOINTS
        } else {
            0
        };
        Self(spec.priority.level() | checkpoints)
    }

    fn priority(self) -> Priority {
        Priority::new(self.0 & !Self::CHECKPOINTS).expect("it was made of one")
    }

    fn checkpoints(self) -> bool {
        self.0 & Self::CHECKPOINTS != 0
    }
}

/// Submissions of several groups in the order of time, of equal moments in that of the groups.
pub(super) struct GroupStream<'a> {
    groups: &'a [TaskGroup],
    costs: Costs,
    draws: Vec<GroupDraw>,
    /// When each group that has more is due.
    due: BinaryHeap<Reverse<(Nanos, usize)>>,
    errors: Rng,
    jobs: u64,
    tasks: usize,
}

/// Where one group stands.
struct GroupDraw {
    moments: Rng,
    works: Rng,
    drawn: u32,
}

impl<'a> GroupStream<'a> {
    pub(super) fn new(groups: &'a [TaskGroup], costs: Costs, root: &Rng) -> Self {
        let mut stream = Self {
            groups,
            costs,
            draws: Vec::new(),
            due: BinaryHeap::new(),
            errors: root.child(Costs::LABEL),
            jobs: 0,
            tasks: 0,
        };
        for (index, group) in groups.iter().enumerate() {
            let mut moments = root.numbered_child("arrivals", index as u64);
            if group.count > 0 {
                let first = group.arrivals.next(0, &mut moments);
                stream.due.push(Reverse((first, index)));
            }
            stream.draws.push(GroupDraw {
                moments,
                works: root.numbered_child("work", index as u64),
                drawn: 0,
            });
        }
        stream
    }

    pub(super) fn next_at(&self) -> Option<Nanos> {
        self.due.peek().map(|Reverse((moment, _))| *moment)
    }

    /// Everything that one group submits at the next moment, with the work of each task.
    pub(super) fn next(&mut self) -> Option<(Submission, Vec<Nanos>)> {
        let Reverse((moment, index)) = self.due.pop()?;
        let group = &self.groups[index];
        let draw = &mut self.draws[index];
        let first = self.tasks;
        let (mut specs, mut works) = (Vec::new(), Vec::new());
        loop {
            let work = group.work.sample(&mut draw.works);
            let mut spec = TaskSpec::new(TaskId(self.tasks as u64), Arc::clone(&group.kind));
            spec.priority = group.priorities[draw.drawn as usize % group.priorities.len()];
            let told = self.costs.told(work, &mut self.errors);
            spec.cost = told.filter(|_| group.declared).map(Span);
            spec.deadline = group.deadline.map(|after| Time(moment + after));
            specs.push(spec);
            works.push(work);
            self.tasks += 1;
            draw.drawn += 1;
            if draw.drawn == group.count {
                break;
            }
            let next = group.arrivals.next(moment, &mut draw.moments);
            if next != moment {
                self.due.push(Reverse((next, index)));
                break;
            }
        }
        let mut job = JobSpec::new(JobId(self.jobs));
        job.onto = group.onto;
        self.jobs += 1;
        let submission = Submission {
            at: moment,
            job,
            after: Box::default(),
            first,
            tasks: specs.into(),
        };
        Some((submission, works))
    }
}

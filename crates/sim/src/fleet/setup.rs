//! What a fleet is made of: agents, tasks, a network, and what goes wrong.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use loxley_balance::Rng;
use loxley_driver::Directory;
use loxley_model::{
    AgentId, AgentSpec, Dispatch, Fallback, GroupId, JobId, JobSpec, NameId, Outcome, Priority,
    Resources, SkillSet, Span, TaskId, TaskKind, TaskSpec, UserId,
};
use loxley_policy::Config;
use serde::Deserialize;

use super::stream::GroupStream;
use crate::arrivals::Arrivals;
use crate::costs::Costs;
use crate::distribution::Distribution;
use crate::time::{Nanos, nanos};
use crate::workload::{TaskRecord, Workload};

/// Everything that describes a run but its seed.
#[derive(Debug, Clone)]
pub struct FleetSetup {
    /// The configuration of the scheduler.
    pub config: Config,
    /// The agents.
    pub agents: Vec<AgentSetup>,
    /// Where tasks come from.
    pub load: FleetLoad,
    /// What lies between the scheduler and the agents.
    pub network: Network,
    /// At most so many tasks of each of these groups run at once.
    pub limits: Vec<(GroupId, u32)>,
    /// What goes wrong, and when.
    pub faults: Vec<(Nanos, Fault)>,
    /// What agents and skills are called.
    pub names: Directory,
    /// What the scheduler is told of how long tasks take.
    pub costs: Costs,
    /// How far the scheduler's clock may be behind, drawn anew for each input.
    pub clock_skew: Nanos,
    /// Nothing happens after this moment.
    pub until: Option<Nanos>,
    /// Whether everything that the scheduler knows is counted anew after each input. Slow.
    pub verify: bool,
}

/// One agent.
#[derive(Debug, Clone)]
pub struct AgentSetup {
    /// What it says of itself.
    pub spec: AgentSpec,
    /// How fast it really is.
    pub true_speed: f64,
    /// How often an attempt fails, 0 to 1.
    pub failure: f64,
    /// How often a task takes longer, and by which factor.
    pub straggler: (f64, f64),
    /// When it registers.
    pub joins: Nanos,
    /// How often it sends a heartbeat.
    pub heartbeat: Option<Nanos>,
    /// What it says of how long an answer takes; else what the network takes.
    pub round_trip: Option<Nanos>,
}

/// Where tasks come from.
#[derive(Debug, Clone)]
pub enum FleetLoad {
    /// Groups of tasks, drawn with the seed.
    Groups(Vec<TaskGroup>),
    /// A workload with its own releases and edges.
    Graph(Arc<Workload>),
    /// Exactly these.
    Given(Arc<FleetTasks>),
}

/// Tasks that are alike.
#[derive(Debug, Clone)]
pub struct TaskGroup {
    /// How many.
    pub count: u32,
    /// Their true work.
    pub work: Distribution,
    /// When they are submitted.
    pub arrivals: Arrivals,
    /// What they have in common.
    pub kind: Arc<TaskKind>,
    /// Their priorities, in turn.
    pub priorities: Vec<Priority>,
    /// Whether their cost is declared.
    pub declared: bool,
    /// How long after submission they should be done.
    pub deadline: Option<Nanos>,
    /// Onto whose queue they are put.
    pub onto: Option<AgentId>,
}

/// All tasks of a run, each with its true work. Task `i` has the id `i`.
#[derive(Debug, Clone, Default)]
pub struct FleetTasks {
    /// In the order of time.
    submissions: Vec<Submission>,
    /// How long each task takes at speed 1.
    work: Vec<Nanos>,
    /// What happens when tasks run, where somebody said so; else empty.
    behaviours: Vec<Behaviour>,
    /// How each attempt of a task went, where not just the first one succeeded.
    attempts: HashMap<u32, Box<[Attempt]>>,
    has_edges: bool,
}

/// How an attempt of a task goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// How long it takes at speed 1.
    pub work: Nanos,
    /// How it ends.
    pub outcome: Outcome,
}

/// Tasks that come together, as they were recorded.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// When.
    pub at: Nanos,
    /// Their job; several arrivals may be of one.
    pub job: JobSpec,
    /// Jobs that must succeed first.
    pub after: Vec<JobId>,
    /// The tasks, numbered on from those of the arrival before.
    pub tasks: Vec<TaskSpec>,
}

/// What happens when a task runs, besides what chance does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// So many attempts fail, then the next one may succeed.
    pub failures: u32,
    /// The agent ends an attempt that runs for longer.
    pub time_limit: Option<Nanos>,
}

/// Tasks that are submitted together.
#[derive(Debug, Clone)]
pub(super) struct Submission {
    pub(super) at: Nanos,
    pub(super) job: JobSpec,
    /// Jobs that must succeed first.
    pub(super) after: Box<[JobId]>,
    /// The id of the first task.
    pub(super) first: usize,
    /// Shared with the scheduler, which is given them as they are.
    pub(super) tasks: Arc<[TaskSpec]>,
}

impl Submission {
    /// The ids of its tasks.
    pub(super) fn ids(&self) -> Range<usize> {
        self.first..self.first + self.tasks.len()
    }
}

/// What happens to messages. Whatever is lost is sent again, so a loss is a delay and a lost
/// acknowledgement is a duplicate; nothing is lost for good but with the process that waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// How long a message takes one way.
    #[serde(default = "no_delay")]
    pub delay: Distribution,
    /// How likely a transmission is lost, 0 to below 1.
    #[serde(default)]
    pub loss: f64,
    /// After how many seconds a lost one is sent again.
    #[serde(default = "one_second")]
    pub retransmit: f64,
    /// How likely a message arrives twice.
    #[serde(default)]
    pub duplicate: f64,
    /// Whether a message may overtake an earlier one.
    #[serde(default)]
    pub reorder: bool,
    /// How many seconds an agent keeps the news of an end back, to tell of several together.
    #[serde(default)]
    pub hold: f64,
}

fn no_delay() -> Distribution {
    Distribution::Fixed(0.0)
}

fn one_second() -> f64 {
    1.0
}

impl Default for Network {
    fn default() -> Self {
        Self {
            delay: no_delay(),
            loss: 0.0,
            retransmit: one_second(),
            duplicate: 0.0,
            reorder: false,
            hold: 0.0,
        }
    }
}

impl Network {
    /// Whether every message arrives at once and once.
    #[must_use]
    pub fn is_instant(&self) -> bool {
        self.delay == Distribution::Fixed(0.0)
            && self.loss == 0.0
            && self.duplicate == 0.0
            && self.hold == 0.0
    }

    /// How long one transmission takes, losses included.
    pub(super) fn draw(&self, rng: &mut Rng) -> Nanos {
        let mut delay = self.delay.sample(rng);
        while rng.chance(self.loss) {
            delay += nanos(self.retransmit);
        }
        delay
    }
}

/// Something that goes wrong, or gets well again.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// The agent's process dies, with everything it held.
    Crash(u32),
    /// The agent's process starts (again).
    Start(u32),
    /// Messages to and from the agent wait.
    Cut(u32),
    /// They flow again.
    Mend(u32),
    /// The agent is this much slower than normal from now on, also for what it runs already.
    Slow(u32, f64),
    /// The agent unregisters in good order; its tasks go elsewhere.
    Leave(u32),
    /// From now on the network is perfect.
    CalmNetwork,
    /// Somebody does not want this task any more.
    Cancel(u64),
    /// Somebody does not want this job any more.
    CancelJob(JobId),
    /// The agent is to get nothing new.
    Drain(u32),
    /// The scheduler hears that the connection to the agent has ended.
    Silent(u32),
    /// The scheduler hears from the agent.
    Heard(u32),
    /// Somebody asks for a rebalancing pass.
    Rebalance,
    /// At most so many tasks of a group may run at once.
    Limit(GroupId, u32),
    /// A user's share is proportional to this weight.
    Weight(UserId, u32),
    /// The configuration is changed while everything runs.
    Reconfigure(Box<Config>),
}

impl FleetTasks {
    pub(crate) fn new(drawn: Drawn) -> Self {
        let is_tied = |spec: &TaskSpec| !spec.dependencies.is_empty();
        let has_edges = drawn.specs.iter().any(is_tied);
        let mut specs = drawn.specs.into_iter();
        let mut first = 0;
        let submissions = drawn.submissions.into_iter().map(|(at, job, end)| {
            let tasks = specs.by_ref().take(end - first).collect();
            Submission {
                at,
                job,
                after: Box::default(),
                first: std::mem::replace(&mut first, end),
                tasks,
            }
        });
        Self {
            submissions: submissions.collect(),
            work: drawn.work,
            behaviours: Vec::new(),
            attempts: HashMap::new(),
            has_edges,
        }
    }

    /// Work as it was recorded: tasks are numbered from 0 in the order of `arrivals`, which is that of time; `work`
    /// says how long each takes, and `attempts` tells of those whose first attempt did not just succeed.
    ///
    /// # Panics
    /// If tasks are numbered otherwise, or there are not as many durations.
    #[must_use]
    pub fn recorded(
        arrivals: Vec<Arrival>,
        work: Vec<Nanos>,
        attempts: HashMap<u32, Box<[Attempt]>>,
    ) -> Self {
        let mut first = 0;
        let mut has_edges = false;
        let submissions = arrivals.into_iter().map(|arrival| {
            let here = first;
            for spec in &arrival.tasks {
                assert_eq!(spec.id.0, first as u64, "tasks are numbered in order");
                has_edges |= !spec.dependencies.is_empty();
                first += 1;
            }
            Submission {
                at: arrival.at,
                job: arrival.job,
                after: arrival.after.into(),
                first: here,
                tasks: arrival.tasks.into(),
            }
        });
        let submissions: Vec<Submission> = submissions.collect();
        assert_eq!(first, work.len(), "each task takes a time");
        Self {
            submissions,
            work,
            behaviours: Vec::new(),
            attempts,
            has_edges,
        }
    }

    /// How the attempt of a task goes before which so many have ended. What came after the last one that is known is
    /// taken to be as that one.
    pub(super) fn attempt(&self, task: TaskId, ended: u16) -> Option<Attempt> {
        if self.attempts.is_empty() {
            return None;
        }
        let known = self.attempts.get(&u32::try_from(task.0).ok()?)?;
        known.get(usize::from(ended)).or(known.last()).copied()
    }

    /// A job as the core is told of it, its tasks numbered one after the other, with what it takes to run each.
    ///
    /// # Panics
    /// If there are not as many of each.
    #[must_use]
    pub fn of_job(
        job: JobSpec,
        mut specs: Vec<TaskSpec>,
        work: Vec<Nanos>,
        behaviours: Vec<Behaviour>,
    ) -> Self {
        assert_eq!(specs.len(), work.len(), "each task takes a time");
        assert_eq!(specs.len(), behaviours.len(), "each task behaves");
        let first = specs.first().map_or(0, |spec| spec.id.0);
        let renumbered = |id: TaskId| TaskId(id.0 - first);
        for spec in &mut specs {
            spec.id = renumbered(spec.id);
            spec.dependencies = spec.dependencies.iter().copied().map(renumbered).collect();
            if let Fallback::Task(id) = spec.fallback {
                spec.fallback = Fallback::Task(renumbered(id));
            }
        }
        let end = specs.len();
        let job = JobSpec {
            id: JobId(0),
            ..job
        };
        let drawn = Drawn {
            specs,
            work,
            submissions: vec![(0, job, end)],
        };
        Self {
            behaviours,
            ..Self::new(drawn)
        }
    }

    /// The same tasks with other costs.
    fn with_costs(&self, costs: Costs, root: &Rng) -> Self {
        let mut tasks = self.clone();
        let mut errors = root.child(Costs::LABEL);
        for submission in &mut tasks.submissions {
            let specs = submission.tasks.iter().zip(&self.work[submission.ids()]);
            let distorted = specs.map(|(spec, work)| {
                let told = costs.told(*work, &mut errors);
                TaskSpec {
                    cost: spec.cost.and(told.map(Span)),
                    ..spec.clone()
                }
            });
            submission.tasks = distorted.collect();
        }
        tasks
    }

    /// What happens when a task runs.
    pub(super) fn behaviour(&self, task: TaskId) -> Behaviour {
        let said = self.behaviours.get(task.0 as usize);
        said.copied().unwrap_or_default()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.work.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// A task as it is submitted.
    #[must_use]
    pub fn spec(&self, task: usize) -> &TaskSpec {
        let next = self.submissions.partition_point(|one| one.first <= task);
        let submission = &self.submissions[next - 1];
        &submission.tasks[task - submission.first]
    }

    /// Whose task it is.
    pub(crate) fn user(&self, task: usize) -> UserId {
        let next = self.submissions.partition_point(|one| one.first <= task);
        self.submissions[next - 1].job.user
    }

    /// All tasks in the order of their ids.
    pub(crate) fn specs(&self) -> impl Iterator<Item = &TaskSpec> {
        self.submissions.iter().flat_map(|one| one.tasks.iter())
    }

    pub(super) fn submissions(&self) -> &[Submission] {
        &self.submissions
    }

    /// How long each task takes at speed 1.
    #[must_use]
    pub fn work(&self) -> &[Nanos] {
        &self.work
    }

    /// Whether some tasks wait for others.
    pub(super) fn has_edges(&self) -> bool {
        self.has_edges
    }

    /// When the last task is over if each runs as soon as it may, at this speed.
    pub(super) fn critical_path(&self, speed: f64) -> Nanos {
        let run = |work: Nanos| (work as f64 / speed) as Nanos;
        if !self.has_edges {
            let longest = |one: &Submission| self.work[one.ids()].iter().copied().max();
            let ends = self.submissions.iter();
            let ends = ends.map(|one| one.at + run(longest(one).unwrap_or(0)));
            return ends.max().unwrap_or(0);
        }
        let mut ends = vec![0; self.len()];
        for submission in &self.submissions {
            for (task, spec) in submission.ids().zip(submission.tasks.iter()) {
                let before = spec.dependencies.iter();
                let before = before.map(|before| ends[before.0 as usize]).max();
                ends[task] = submission.at.max(before.unwrap_or(0)) + run(self.work[task]);
            }
        }
        ends.into_iter().max().unwrap_or(0)
    }

    /// The tasks of a workload: one job for each release, edges as dependencies.
    fn of_workload(workload: &Workload, told: &[Option<Nanos>], names: &mut Directory) -> Self {
        let mut order: Vec<u32> = workload.topological_order().to_vec();
        order.sort_by_key(|&task| workload.tasks()[task as usize].release);
        let mut tasks = Drawn::default();
        // Ids follow the order of submission, so that a batch is a range.
        let mut ids = vec![0_u64; workload.len()];
        for (id, &task) in order.iter().enumerate() {
            ids[task as usize] = id as u64;
        }
        for (id, &task) in order.iter().enumerate() {
            let record = &workload.tasks()[task as usize];
            let mut spec = TaskSpec::new(TaskId(id as u64), record.kind(names));
            spec.priority = Priority::new(record.priority).unwrap_or_default();
            spec.cost = told[task as usize].map(Span);
            spec.dependencies = workload
                .predecessors(task)
                .iter()
                .map(|&before| TaskId(ids[before as usize]))
                .collect();
            tasks.specs.push(spec);
            tasks.work.push(record.work);
            let end = id + 1;
            match tasks.submissions.last_mut() {
                Some((release, _, last)) if *release == record.release => *last = end,
                _ => {
                    let job = JobSpec::new(JobId(tasks.submissions.len() as u64));
                    tasks.submissions.push((record.release, job, end));
                }
            }
        }
        // A dependency that is submitted later than its dependent joins the dependent's release.
        tasks.join_if_backwards();
        Self::new(tasks)
    }

    fn of_groups(groups: &[TaskGroup], costs: Costs, root: &Rng) -> Self {
        let mut stream = GroupStream::new(groups, costs, root);
        let mut tasks = Self::default();
        while let Some((submission, work)) = stream.next() {
            tasks.submissions.push(submission);
            tasks.work.extend(work);
        }
        tasks
    }
}

/// Tasks as they are drawn, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Drawn {
    /// The tasks as they are submitted.
    pub(crate) specs: Vec<TaskSpec>,
    /// How long each takes at speed 1.
    pub(crate) work: Vec<Nanos>,
    /// Submissions in the order of time: when, as which job, and up to which task.
    pub(crate) submissions: Vec<(Nanos, JobSpec, usize)>,
}

impl Drawn {
    /// Submissions that would name tasks not yet known become one.
    fn join_if_backwards(&mut self) {
        let backwards = self.specs.iter().enumerate().any(|(id, spec)| {
            let batch_end = self.batch_end(id);
            spec.dependencies
                .iter()
                .any(|before| before.0 as usize >= batch_end)
        });
        if backwards {
            let (_, job, end) = *self.submissions.last().expect("there are tasks");
            self.submissions = vec![(0, job, end)];
        }
    }

    fn batch_end(&self, task: usize) -> usize {
        let at = self.submissions.partition_point(|(_, _, end)| *end <= task);
        self.submissions[at].2
    }
}

impl FleetSetup {
    /// `agents` equal agents with one slot each, fed as the agents of a server and of `loxley run` are
    /// [X4]; an instant network and nothing that goes wrong.
    #[must_use]
    pub fn new(agents: usize, load: FleetLoad) -> Self {
        let mut names = Directory::default();
        let agents = (0..agents).map(|number| {
            let mut spec = AgentSpec::new(name_agent(&mut names, number), SkillSet::none());
            spec.dispatch = Dispatch::KeepFull;
            AgentSetup::new(spec)
        });
        Self {
            config: Config::served(),
            agents: agents.collect(),
            load,
            network: Network::default(),
            limits: Vec::new(),
            faults: Vec::new(),
            names,
            costs: Costs::Exact,
            clock_skew: 0,
            until: None,
            verify: false,
        }
    }

    /// The tasks of a run.
    #[must_use]
    pub fn tasks(&self, root: &Rng) -> Arc<FleetTasks> {
        Arc::new(match &self.load {
            FleetLoad::Groups(groups) => FleetTasks::of_groups(groups, self.costs, root),
            FleetLoad::Graph(workload) => {
                let mut errors = root.child(Costs::LABEL);
                let tasks = workload.tasks().iter();
                let told: Vec<_> = tasks
                    .map(|task| self.costs.told(task.work, &mut errors))
                    .collect();
                FleetTasks::of_workload(workload, &told, &mut self.names.clone())
            }
            FleetLoad::Given(tasks) if self.costs == Costs::Exact => return Arc::clone(tasks),
            FleetLoad::Given(tasks) => tasks.with_costs(self.costs, root),
        })
    }

    /// All speed together while everything is well.
    #[must_use]
    pub fn top_speed(&self) -> f64 {
        self.agents
            .iter()
            .map(|agent| agent.true_speed)
            .fold(0.0, f64::max)
    }
}

/// Names the next agent after its number.
pub(crate) fn name_agent(names: &mut Directory, number: usize) -> AgentId {
    let named = names.agents.intern(&format!("agent {number}"));
    let id = named.expect("a word and a number are a name");
    assert_eq!(
        id,
        AgentId::from_number(number as u32),
        "agents are numbered in turn"
    );
    id
}

impl TaskRecord {
    /// What the scheduler is told that it needs; tasks that are alike share one.
    fn kind(&self, names: &mut Directory) -> Arc<TaskKind> {
        let skills = names.skill_set(&self.skills);
        names.kind(TaskKind {
            skills: skills.expect("readers and scenarios refuse what cannot be a name"),
            needs: Resources {
                memory_bytes: self.memory,
                ..Resources::default()
            },
            ..TaskKind::default()
        })
    }
}

impl AgentSetup {
    /// An agent that is as fast as it says and never fails.
    #[must_use]
    pub fn new(spec: AgentSpec) -> Self {
        Self {
            true_speed: spec.speed,
            spec,
            failure: 0.0,
            straggler: (0.0, 1.0),
            joins: 0,
            heartbeat: None,
            round_trip: None,
        }
    }
}

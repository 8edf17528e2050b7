//! The deciding core behind one lock, and the Python tasks that are on its queues.
//!
//! A task is here only while it is on some agent's queue: that is all a pure-Python scheduler knows of
//! it too. Whoever takes a task off a queue has it, and the core lets it go. So an agent's queue can
//! be filled, read and emptied by hand at any time, and the core still sees every move.
//!
//! What must stay true: the lock is held for one `handle` and the memory operations around it. No
//! Python code runs under it; tasks that leave are handed to the caller, who drops them outside.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use loxley_model::{
    AgentId, AgentSpec, DataKey, JobId, JobSpec, Locality, NameError, Names, ResourceId, Resources,
    SkillId, SkillSet, Span, TaskId, TaskKind, TaskSpec, Time, Unplaceable,
};
use loxley_policy::{
    Action, Config, Ending, Input, Leftovers, Report, Scheduler as Core, SubmitError, Taking,
};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::metrics::HandTallies;
use crate::task::{Description, Task, wall_clock};

pub(crate) struct Engine {
    books: Mutex<Books>,
    /// Tells the thread that makes time pass that it should look again.
    alarm: Condvar,
    begin: Instant,
    /// The moment `begin`, in seconds since the epoch.
    pub(crate) began_at: f64,
}

/// Everything behind the lock.
pub(crate) struct Books {
    pub(crate) core: Core,
    pub(crate) tallies: HandTallies,
    skills: Names<SkillId>,
    resources: Names<ResourceId>,
    data: HashMap<String, DataKey>,
    kinds: HashSet<Arc<TaskKind>>,
    tasks: HashMap<TaskId, Entry>,
    next_task: u64,
    next_job: u64,
    next_agent: u64,
    /// Which thread makes time pass; it ends when this is no longer its number.
    ticker: Option<u64>,
    tickers: u64,
    actions: Vec<Action>,
}

/// A task on a queue.
struct Entry {
    task: Py<Task>,
    spec: TaskSpec,
}

/// What an agent says of itself.
pub(crate) struct Profile {
    pub(crate) skills: Vec<String>,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) cpu: f64,
    pub(crate) memory: u64,
    pub(crate) resources: Vec<(String, u64)>,
    pub(crate) holds: Vec<String>,
}

/// What the core said to one input.
#[derive(Default)]
struct Answer {
    refused: Option<Box<[SubmitError]>>,
    given: Option<TaskId>,
    left: Vec<TaskId>,
    moved: u32,
}

impl Engine {
    pub(crate) fn new(config: Config) -> Arc<Self> {
        Arc::new(Self {
            books: Mutex::new(Books {
                core: Core::new(config, Time::ZERO),
                tallies: HandTallies::default(),
                skills: Names::new(),
                resources: Names::new(),
                data: HashMap::new(),
                kinds: HashSet::new(),
                tasks: HashMap::new(),
                next_task: 0,
                next_job: 0,
                next_agent: 0,
                ticker: None,
                tickers: 0,
                actions: Vec::new(),
            }),
            alarm: Condvar::new(),
            begin: Instant::now(),
            began_at: wall_clock(),
        })
    }

    /// The books, waiting for them without the interpreter's lock.
    pub(crate) fn books(&self, py: Python<'_>) -> MutexGuard<'_, Books> {
        self.books
            .lock_py_attached(py)
            .expect("the scheduler found its own books to be wrong")
    }

    pub(crate) fn now(&self) -> Time {
        Time(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    // Tasks.

    /// Lets the core choose an agent; false when nobody can do the task.
    pub(crate) fn submit(
        &self,
        py: Python<'_>,
        task: Py<Task>,
        description: &Description,
    ) -> PyResult<bool> {
        let mut books = self.books(py);
        let now = self.now();
        let spec = books.spec(now, self.began_at, description)?;
        let job = JobSpec {
            unplaceable: Unplaceable::Refuse,
            ..books.job()
        };
        let id = spec.id;
        let tasks = [spec.clone()].into();
        books.tasks.insert(id, Entry { task, spec });
        let answer = books.feed(now, Input::TasksSubmitted { job, tasks });
        let turned_away = answer.refused.and_then(|_| books.tasks.remove(&id));
        drop(books);
        Ok(turned_away.is_none())
    }

    /// Puts a task on a queue.
    pub(crate) fn enqueue(
        &self,
        py: Python<'_>,
        agent: AgentId,
        task: Py<Task>,
        description: &Description,
    ) -> PyResult<()> {
        let mut books = self.books(py);
        let now = self.now();
        let spec = books.spec(now, self.began_at, description)?;
        books.tasks.insert(
            spec.id,
            Entry {
                task,
                spec: spec.clone(),
            },
        );
        books.put_on_queue(now, agent, spec);
        Ok(())
    }

    /// Takes a task off a queue.
    pub(crate) fn take(&self, py: Python<'_>, taking: Taking) -> Option<Py<Task>> {
        let mut books = self.books(py);
        let left = books.feed(self.now(), Input::TaskTaken(taking)).left;
        let entry = left.first().and_then(|task| books.tasks.remove(task));
        entry.map(|entry| entry.task)
    }

    /// Takes the task at this place of a queue.
    pub(crate) fn take_at(&self, py: Python<'_>, agent: AgentId, at: usize) -> Option<Py<Task>> {
        let books = self.books(py);
        let task = *books.core.queue_of(agent)?.get(at)?;
        drop(books);
        self.take(py, Taking::Task(task))
    }

    /// Lets an agent steal: what it got is its own.
    pub(crate) fn steal(&self, py: Python<'_>, agent: AgentId) -> Option<Py<Task>> {
        let mut books = self.books(py);
        let now = self.now();
        let given = books.feed(now, Input::StealRequested { agent }).given?;
        books.feed(now, Input::TaskTaken(Taking::Task(given)));
        books.tasks.remove(&given).map(|entry| entry.task)
    }

    pub(crate) fn queue_len(&self, py: Python<'_>, agent: AgentId) -> usize {
        self.books(py).core.queue_len(agent).unwrap_or(0)
    }

    /// The tasks of a queue, in order.
    pub(crate) fn queue(&self, py: Python<'_>, agent: AgentId) -> Vec<Py<Task>> {
        let books = self.books(py);
        let ids = books.core.queue_of(agent).unwrap_or_default();
        ids.iter()
            .map(|task| books.tasks[task].task.clone_ref(py))
            .collect()
    }

    /// The number under which a task is on a queue.
    pub(crate) fn number_of(&self, py: Python<'_>, task: &Bound<'_, Task>) -> Option<TaskId> {
        let books = self.books(py);
        let mut entries = books.tasks.iter();
        let found = entries.find(|(_, entry)| entry.task.bind(py).is(task));
        found.map(|(id, _)| *id)
    }

    // Agents.

    /// Registers an agent under a number of its own.
    pub(crate) fn join(&self, py: Python<'_>, profile: &Profile) -> PyResult<AgentId> {
        let mut books = self.books(py);
        books.next_agent += 1;
        let id = AgentId(books.next_agent);
        books.join(self.now(), id, profile)?;
        Ok(id)
    }

    /// An agent has other skills or other room than it had: its queue stays as it is.
    pub(crate) fn change(&self, py: Python<'_>, id: AgentId, profile: &Profile) -> PyResult<()> {
        let mut books = self.books(py);
        let now = self.now();
        // Checked before anything changes.
        books.agent_spec(id, profile)?;
        let queue = books.core.queue_of(id).unwrap_or_default();
        let specs: Vec<TaskSpec> = queue
            .iter()
            .map(|task| books.tasks[task].spec.clone())
            .collect();
        let tasks = Leftovers::Return;
        books.feed(now, Input::AgentLeft { agent: id, tasks });
        books.join(now, id, profile)?;
        for spec in specs {
            books.put_on_queue(now, id, spec);
        }
        Ok(())
    }

    pub(crate) fn recall(&self, py: Python<'_>, agent: AgentId, completed: u64, failed: u64) {
        let input = Input::AgentRecalled {
            agent,
            completed,
            failed,
        };
        self.books(py).feed(self.now(), input);
    }

    /// Unregisters an agent, and returns what was on its queue.
    pub(crate) fn leave(&self, py: Python<'_>, agent: AgentId) -> Vec<Py<Task>> {
        let mut books = self.books(py);
        let tasks = Leftovers::Return;
        let left = books
            .feed(self.now(), Input::AgentLeft { agent, tasks })
            .left;
        left.iter()
            .filter_map(|task| books.tasks.remove(task))
            .map(|entry| entry.task)
            .collect()
    }

    /// Unregisters an agent; what was on its queue goes to others.
    pub(crate) fn replace(&self, py: Python<'_>, agent: AgentId) {
        let tasks = Leftovers::Requeue;
        self.books(py)
            .feed(self.now(), Input::AgentLeft { agent, tasks });
    }

    // The whole.

    pub(crate) fn rebalance(&self, py: Python<'_>) -> u32 {
        self.books(py)
            .feed(self.now(), Input::RebalanceRequested)
            .moved
    }

    pub(crate) fn reload(&self, py: Python<'_>, config: Config) {
        self.books(py)
            .feed(self.now(), Input::ConfigChanged(Box::new(config)));
        self.alarm.notify_all();
    }

    /// Lets time pass: rebalancing and samples, at their intervals.
    pub(crate) fn start(self: &Arc<Self>, py: Python<'_>) {
        let mut books = self.books(py);
        if books.ticker.is_some() {
            return;
        }
        books.tickers += 1;
        let number = books.tickers;
        books.ticker = Some(number);
        drop(books);
        let engine = Arc::downgrade(self);
        thread::Builder::new()
            .name("loxley-ticker".into())
            .spawn(move || tick(&engine, number))
            .expect("a thread can be started");
    }

    pub(crate) fn stop(&self, py: Python<'_>) {
        self.books(py).ticker = None;
        self.alarm.notify_all();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.alarm.notify_all();
    }
}

/// The thread that makes time pass. It never touches a Python object.
fn tick(engine: &Weak<Engine>, number: u64) {
    /// How long a thread may go on after its scheduler was forgotten.
    const LONGEST: Duration = Duration::from_millis(200);
    while let Some(engine) = engine.upgrade() {
        let mut books = engine.books.lock().unwrap_or_else(PoisonError::into_inner);
        if books.ticker != Some(number) {
            return;
        }
        let now = engine.now();
        let due = books.core.next_timer();
        if due.is_some_and(|due| due <= now) {
            books.feed(now, Input::Tick);
            continue;
        }
        let span = due.map_or(LONGEST, |due| due.since(now).into());
        drop(engine.alarm.wait_timeout(books, span.min(LONGEST)));
    }
}

impl Books {
    /// Tells the core a fact, and notes what it says.
    fn feed(&mut self, now: Time, input: Input) -> Answer {
        let mut actions = mem::take(&mut self.actions);
        self.core.handle(now, input, &mut actions);
        let mut answer = Answer::default();
        for action in actions.drain(..) {
            match action {
                Action::Assign { task, .. } => answer.given = Some(task),
                Action::Report(Report::Refused { errors, .. }) => answer.refused = Some(errors),
                Action::Report(Report::Rebalanced { moved }) => answer.moved = moved,
                Action::Report(Report::Finished {
                    task,
                    ending: Ending::Returned,
                    ..
                }) => {
                    answer.left.push(task);
                }
                _ => {}
            }
        }
        self.actions = actions;
        answer
    }

    fn job(&mut self) -> JobSpec {
        self.next_job += 1;
        JobSpec::new(JobId(self.next_job))
    }

    fn spec(&mut self, now: Time, began_at: f64, task: &Description) -> PyResult<TaskSpec> {
        let kind = TaskKind {
            skills: self.skill_set(&task.skills)?,
            needs: self.amounts(task.cpu, task.memory, &task.resources)?,
            ..TaskKind::default()
        };
        let kind = self.kind(kind);
        self.next_task += 1;
        let deadline = task.deadline.map(|at| {
            let left = Span::try_from_secs_f64(at - began_at).unwrap_or(Span::ZERO);
            // A task may come late: it is simply the most urgent of its priority.
            (Time::ZERO + left).max(now + Span(1))
        });
        Ok(TaskSpec {
            priority: task.priority,
            cost: task.cost,
            deadline,
            locality: task.locality.as_ref().map(|name| Locality {
                key: self.data_key(name),
                transfer: Span::ZERO,
            }),
            ..TaskSpec::new(TaskId(self.next_task), kind)
        })
    }

    fn put_on_queue(&mut self, now: Time, agent: AgentId, mut task: TaskSpec) {
        task.deadline = task.deadline.map(|deadline| deadline.max(now + Span(1)));
        let (job, task) = (self.job(), Box::new(task));
        let refused = self
            .feed(now, Input::TaskQueued { agent, job, task })
            .refused;
        assert!(refused.is_none(), "a queue refused a task: {refused:?}");
    }

    fn kind(&mut self, kind: TaskKind) -> Arc<TaskKind> {
        if let Some(known) = self.kinds.get(&kind) {
            return Arc::clone(known);
        }
        let kind = Arc::new(kind);
        self.kinds.insert(Arc::clone(&kind));
        kind
    }

    fn join(&mut self, now: Time, id: AgentId, profile: &Profile) -> PyResult<()> {
        let spec = self.agent_spec(id, profile)?;
        self.feed(now, Input::AgentJoined(spec.into()));
        self.feed(
            now,
            Input::AgentRecalled {
                agent: id,
                completed: profile.completed,
                failed: profile.failed,
            },
        );
        Ok(())
    }

    fn agent_spec(&mut self, id: AgentId, profile: &Profile) -> PyResult<AgentSpec> {
        Ok(AgentSpec {
            resources: self.amounts(profile.cpu, profile.memory, &profile.resources)?,
            holds: profile
                .holds
                .iter()
                .map(|name| self.data_key(name))
                .collect(),
            ..AgentSpec::new(id, self.skill_set(&profile.skills)?)
        })
    }

    fn skill_set(&mut self, names: &[String]) -> PyResult<SkillSet> {
        let ids: Result<Vec<SkillId>, NameError> =
            names.iter().map(|name| self.skills.intern(name)).collect();
        Ok(ids.map_err(bad_name)?.into())
    }

    fn amounts(&mut self, cpu: f64, memory: u64, named: &[(String, u64)]) -> PyResult<Resources> {
        let named = named.iter().map(|(name, amount)| {
            let id = self.resources.intern(name).map_err(bad_name)?;
            Ok((id, *amount))
        });
        Ok(Resources {
            cpu_milli: (cpu * 1000.0) as u64,
            memory_bytes: memory,
            named: named.collect::<PyResult<_>>()?,
        })
    }

    fn data_key(&mut self, name: &str) -> DataKey {
        let next = DataKey(self.data.len() as u64);
        *self.data.entry(name.to_owned()).or_insert(next)
    }
}

fn bad_name(error: NameError) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(error.to_string())
}

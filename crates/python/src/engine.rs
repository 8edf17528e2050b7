//! The deciding core behind one lock, and the Python tasks that are on its queues.
//!
//! A task is here only while it is on some agent's queue: that is all a pure-Python scheduler knows of
//! it too. Whoever takes a task off a queue has it, and the core lets it go. So an agent's queue can
//! be filled, read and emptied by hand at any time, and the core still sees every move.
//!
//! What must stay true: the lock is held for one `handle` and the memory operations around it. No
//! Python code runs under it; tasks that leave are handed to the caller, who drops them outside.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use loxley_driver::{Directory, Driver, data_key};
use loxley_model::{
    AgentId, AgentSpec, JobId, JobSpec, Locality, NameError, Resources, SkillSet, Span, TaskId,
    TaskKind, TaskSpec, Time, Unplaceable,
};
use loxley_policy::{
    Action, Config, Ending, Input, Leftovers, Reason, Report, Scheduler, SubmitError, Taking,
};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::metrics::HandTallies;
use crate::samples::QueueSamples;
use crate::task::{Description, Task, wall_clock};

pub(crate) struct Engine {
    books: Mutex<EngineState>,
    /// Tells the thread that makes time pass that it should look again.
    alarm: Condvar,
    begin: Instant,
    /// The moment `begin`, in seconds since the epoch.
    pub(crate) began_at: f64,
}

/// Everything behind the lock.
pub(crate) struct EngineState {
    pub(crate) driver: Driver,
    pub(crate) directory: Directory,
    pub(crate) tallies: HandTallies,
    pub(crate) samples: QueueSamples,
    tasks: HashMap<TaskId, Entry>,
    next_task: u64,
    next_job: u64,
    next_agent: u64,
    /// Which thread makes time pass; it ends when this is no longer its number.
    ticker: Option<u64>,
    tickers: u64,
}

/// A task on a queue.
struct Entry {
    task: Py<Task>,
    spec: TaskSpec,
    /// On whose queue.
    agent: Option<AgentId>,
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
    queued: Vec<(TaskId, AgentId)>,
    stolen: Option<TaskId>,
    /// There was nothing to steal, and that was counted as a failure.
    found_nothing: bool,
    left: Vec<TaskId>,
    moved: u32,
}

impl Engine {
    pub(crate) fn new(config: Config) -> Arc<Self> {
        Arc::new(Self {
            books: Mutex::new(EngineState {
                driver: Driver::new(config, Time::ZERO),
                directory: Directory::default(),
                tallies: HandTallies::default(),
                samples: QueueSamples::default(),
                tasks: HashMap::new(),
                next_task: 0,
                next_job: 0,
                next_agent: 0,
                ticker: None,
                tickers: 0,
            }),
            alarm: Condvar::new(),
            begin: Instant::now(),
            began_at: wall_clock(),
        })
    }

    /// The books, waiting for them without the interpreter's lock.
    pub(crate) fn books(&self, py: Python<'_>) -> MutexGuard<'_, EngineState> {
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
        books.put_down(task, spec);
        let answer = books.feed(now, Input::TasksSubmitted { job, tasks });
        let turned_away = answer.refused.and_then(|_| books.tasks.remove(&id));
        if turned_away.is_none() {
            books.sample();
        }
        drop(books);
        Ok(turned_away.is_none())
    }

    /// The agent that would get a task now; none when nobody can do it.
    pub(crate) fn best_agent(
        &self,
        py: Python<'_>,
        task: &Description,
    ) -> PyResult<Option<AgentId>> {
        let mut books = self.books(py);
        let now = self.now();
        let spec = books.spec(now, self.began_at, task)?;
        let job = JobSpec {
            unplaceable: Unplaceable::Refuse,
            ..books.job()
        };
        let (id, tasks) = (spec.id, [spec].into());
        let answer = books.feed(now, Input::TasksSubmitted { job, tasks });
        if answer.refused.is_some() {
            return Ok(None);
        }
        books.feed(now, Input::TaskTaken(Taking::Task(id)));
        let found = answer.queued.iter().find(|(task, _)| *task == id);
        Ok(found.map(|(_, agent)| *agent))
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
        books.put_down(task, spec.clone());
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
        let task = *books.core().queue_of(agent)?.get(at)?;
        drop(books);
        self.take(py, Taking::Task(task))
    }

    /// Lets an agent steal: what it got is on its queue.
    pub(crate) fn steal(&self, py: Python<'_>, agent: AgentId) -> Option<Py<Task>> {
        let mut books = self.books(py);
        let input = Input::StealRequested {
            agent,
            onto_queue: true,
        };
        let answer = books.feed(self.now(), input);
        if answer.found_nothing && !books.is_anybody_busy() {
            books.tallies.take_back_attempt();
        }
        let stolen = answer.stolen?;
        Some(books.tasks[&stolen].task.clone_ref(py))
    }

    pub(crate) fn queue_len(&self, py: Python<'_>, agent: AgentId) -> usize {
        self.books(py).core().queue_len(agent).unwrap_or(0)
    }

    /// The tasks of a queue, in order.
    pub(crate) fn queue(&self, py: Python<'_>, agent: AgentId) -> Vec<Py<Task>> {
        let books = self.books(py);
        let ids = books.core().queue_of(agent).unwrap_or_default();
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
        let queue = books.core().queue_of(id).unwrap_or_default();
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
        books.samples.changed(agent);
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
        let mut books = self.books(py);
        books.samples.changed(agent);
        books.feed(self.now(), Input::AgentLeft { agent, tasks });
    }

    // The whole.

    pub(crate) fn rebalance(&self, py: Python<'_>) -> u32 {
        self.books(py)
            .feed(self.now(), Input::RebalanceRequested)
            .moved
    }

    pub(crate) fn is_started(&self, py: Python<'_>) -> bool {
        self.books(py).ticker.is_some()
    }

    pub(crate) fn reload(&self, py: Python<'_>, config: Config) {
        self.books(py)
            .feed(self.now(), Input::ConfigChanged(Box::new(config)));
        self.alarm.notify_all();
    }

    /// Lets time pass, once somebody runs it: rebalancing and samples, at their intervals. None when it
    /// passes already.
    pub(crate) fn start(self: &Arc<Self>, py: Python<'_>) -> Option<Ticker> {
        let mut books = self.books(py);
        if books.ticker.is_some() {
            return None;
        }
        books.tickers += 1;
        let number = books.tickers;
        books.ticker = Some(number);
        let engine = Arc::downgrade(self);
        Some(Ticker { engine, number })
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

/// Makes time pass for a scheduler, in a thread of its own.
#[pyclass(module = "loxley._core", frozen)]
pub(crate) struct Ticker {
    engine: Weak<Engine>,
    number: u64,
}

#[pymethods]
impl Ticker {
    /// Runs until the scheduler is stopped or forgotten, without the interpreter's lock.
    fn __call__(&self, py: Python<'_>) {
        py.detach(|| tick(&self.engine, self.number));
    }
}

fn tick(engine: &Weak<Engine>, number: u64) {
    /// How long a thread may go on after its scheduler was forgotten.
    const LONGEST: Duration = Duration::from_millis(200);
    while let Some(engine) = engine.upgrade() {
        let mut books = engine.books.lock().unwrap_or_else(PoisonError::into_inner);
        if books.ticker != Some(number) {
            return;
        }
        let now = engine.now();
        let due = books.core().next_timer();
        if due.is_some_and(|due| due <= now) {
            books.feed(now, Input::Tick);
            continue;
        }
        let span = due.map_or(LONGEST, |due| due.since(now).into());
        drop(engine.alarm.wait_timeout(books, span.min(LONGEST)));
    }
}

impl EngineState {
    /// What decides.
    pub(crate) fn core(&self) -> &Scheduler {
        self.driver.scheduler()
    }

    /// Tells the core a fact, and notes what it says.
    fn feed(&mut self, now: Time, input: Input) -> Answer {
        self.driver.tell(now, input);
        let mut answer = Answer::default();
        while let Some(action) = self.driver.next_action() {
            match action {
                Action::Report(Report::Queued {
                    task,
                    agent,
                    reason,
                }) => {
                    if let Some(entry) = self.tasks.get_mut(&task) {
                        let before = entry.agent.replace(agent);
                        before
                            .into_iter()
                            .for_each(|agent| self.samples.changed(agent));
                    }
                    self.samples.changed(agent);
                    answer.queued.push((task, agent));
                    // Of a batch the first is what was asked for.
                    let is_first = answer.stolen.is_none();
                    if is_first && matches!(reason, Reason::Stolen(_)) {
                        answer.stolen = Some(task);
                    }
                }
                Action::Report(Report::NothingToSteal(_)) => answer.found_nothing = true,
                Action::Report(Report::Refused { errors, .. }) => answer.refused = Some(errors),
                Action::Report(Report::Rebalanced { moved }) => {
                    answer.moved = moved;
                    if moved > 0 {
                        self.tallies.rebalanced();
                    }
                }
                Action::Report(Report::Finished {
                    task,
                    ending: Ending::Returned,
                    ..
                }) => {
                    let agent = self.tasks.get(&task).and_then(|entry| entry.agent);
                    agent
                        .into_iter()
                        .for_each(|agent| self.samples.changed(agent));
                    answer.left.push(task);
                }
                _ => {}
            }
        }
        answer
    }

    /// Notes a task that is about to be on a queue.
    fn put_down(&mut self, task: Py<Task>, spec: TaskSpec) {
        let agent = None;
        self.tasks.insert(spec.id, Entry { task, spec, agent });
    }

    /// Whether there is an agent to steal from.
    fn is_anybody_busy(&self) -> bool {
        let core = self.core();
        let threshold = u64::from(core.config().thresholds.busy_threshold);
        core.counts().queued > threshold && core.metrics().busy_agents > 0
    }

    /// How long the queues are at this moment.
    fn sample(&mut self) {
        if self.core().config().metrics.track_utilization {
            let core = self.driver.scheduler();
            let length = |agent| core.queue_len(agent).map(|len| len as u64);
            self.samples
                .take(wall_clock(), core.counts().queued, length);
        }
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
        let kind = self.directory.kind(kind);
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
                key: data_key(name),
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

    fn join(&mut self, now: Time, id: AgentId, profile: &Profile) -> PyResult<()> {
        let spec = self.agent_spec(id, profile)?;
        self.samples.changed(id);
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
            holds: profile.holds.iter().map(|name| data_key(name)).collect(),
            ..AgentSpec::new(id, self.skill_set(&profile.skills)?)
        })
    }

    fn skill_set(&mut self, names: &[String]) -> PyResult<SkillSet> {
        self.directory.skill_set(names).map_err(bad_name)
    }

    fn amounts(&mut self, cpu: f64, memory: u64, named: &[(String, u64)]) -> PyResult<Resources> {
        let named = named.iter().map(|(name, amount)| (name.as_str(), *amount));
        let amounts = self.directory.amounts((cpu * 1000.0) as u64, memory, named);
        amounts.map_err(bad_name)
    }
}

fn bad_name(error: NameError) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(error.to_string())
}

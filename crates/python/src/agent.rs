//! An agent as Python sees it. Before it is registered its queue is its own; after that it is a view
//! of the core's.

use std::sync::Arc;

use loxley_model::AgentId;
use loxley_policy::Taking;
use pyo3::PyTraverseError;
use pyo3::exceptions::PyTypeError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::engine::{Engine, Profile};
use crate::queue::TaskQueue;
use crate::task::{Task, amounts, names};

/// Whoever does tasks: a name, a set of skills, and a queue in priority order.
///
/// An agent may be filled by hand, before it is registered with a scheduler or after.
///
/// >>> agent = Agent("ann", {"python"})
/// >>> agent.enqueue_task(Task("low", {"python"}, priority=2))
/// >>> agent.enqueue_task(Task("high", {"python"}, priority=5))
/// >>> [task.task_id for task in agent.task_queue]
/// ['high', 'low']
/// >>> agent.dequeue_task().task_id, agent.queue_length
/// ('high', 1)
#[pyclass(module = "loxley", subclass, weakref)]
pub(crate) struct Agent {
    /// What it is called.
    #[pyo3(get)]
    agent_id: Py<PyAny>,
    capabilities: Py<PyAny>,
    /// What it does now. The program sets it.
    #[pyo3(get, set)]
    current_task: Option<Py<PyAny>>,
    /// Tasks it completed. The program counts them.
    #[pyo3(get)]
    total_completed: u64,
    /// Tasks it failed. The program counts them.
    #[pyo3(get)]
    total_failed: u64,
    /// Whatever a program notes of how well it does. Nobody else looks at it.
    #[pyo3(get, set)]
    performance_history: Py<PyAny>,
    cpu: f64,
    memory: u64,
    resources: Option<Py<PyDict>>,
    holds: Vec<String>,
    home: Home,
}

/// Where an agent's queue is.
enum Home {
    /// With the agent: nobody has registered it.
    Own(Vec<Py<Task>>),
    /// With a scheduler.
    At(Arc<Engine>, AgentId),
}

#[pymethods]
impl Agent {
    #[new]
    #[pyo3(signature = (agent_id, capabilities=None, *, current_task=None, total_completed=0,
        total_failed=0, performance_history=None, cpu=0.0, memory=0, resources=None,
        holds=Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        agent_id: Py<PyAny>,
        capabilities: Option<Bound<'_, PyAny>>,
        current_task: Option<Py<PyAny>>,
        total_completed: u64,
        total_failed: u64,
        performance_history: Option<Py<PyAny>>,
        cpu: f64,
        memory: u64,
        resources: Option<Py<PyDict>>,
        holds: Vec<String>,
    ) -> PyResult<Self> {
        let none = pyo3::types::PyTuple::empty(py).into_any();
        let skills = capabilities.unwrap_or(none);
        if skills.is_instance_of::<PyString>() {
            let message = "capabilities is a collection of names, not one name";
            return Err(PyTypeError::new_err(message));
        }
        Ok(Self {
            agent_id,
            // Their names alone; in Python they become what tells of changes.
            capabilities: PyList::new(py, names(&skills)?)?.into_any().unbind(),
            current_task,
            total_completed,
            total_failed,
            performance_history: performance_history
                .unwrap_or_else(|| PyDict::new(py).into_any().unbind()),
            cpu,
            memory,
            resources,
            holds,
            home: Home::Own(Vec::new()),
        })
    }

    /// What it can do: names. Changing them counts at once.
    #[getter]
    fn get_capabilities(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        Ok(slf.borrow().capabilities.clone_ref(slf.py()))
    }

    #[setter]
    fn set_capabilities(slf: &Bound<'_, Self>, capabilities: Bound<'_, PyAny>) -> PyResult<()> {
        slf.borrow_mut().capabilities = capabilities.unbind();
        Self::_skills_changed(slf)
    }

    /// Tells the scheduler that the set of skills has changed.
    fn _skills_changed(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let profile = Self::profile(slf)?;
        match slf.borrow().engine() {
            Some((engine, id)) => engine.change(py, id, &profile),
            None => Ok(()),
        }
    }

    /// What it has, for whoever serves a server with it.
    fn _profile<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let profile = PyDict::new(py);
        let resources = self.resources.as_ref().map(|resources| resources.bind(py));
        profile.set_item("cpu", self.cpu)?;
        profile.set_item("memory", self.memory)?;
        profile.set_item("resources", amounts(resources)?)?;
        profile.set_item("holds", &self.holds)?;
        Ok(profile)
    }

    /// Its tasks, in the order in which it would run them.
    #[getter]
    fn get_task_queue(slf: &Bound<'_, Self>) -> TaskQueue {
        TaskQueue::new(slf.clone().unbind())
    }

    #[setter]
    fn set_task_queue(slf: &Bound<'_, Self>, tasks: Bound<'_, PyAny>) -> PyResult<()> {
        let tasks: Vec<Bound<'_, Task>> = tasks
            .try_iter()?
            .map(|task| Ok(task?.cast_into::<Task>()?))
            .collect::<PyResult<_>>()?;
        Self::clear(slf);
        tasks.iter().try_for_each(|task| Self::push(slf, task))
    }

    /// How many tasks are on its queue.
    #[getter]
    pub(crate) fn queue_length(slf: &Bound<'_, Self>) -> usize {
        match &slf.borrow().home {
            Home::Own(queue) => queue.len(),
            Home::At(engine, id) => engine.queue_len(slf.py(), *id),
        }
    }

    /// Whether it has nothing at all to do.
    #[getter]
    fn is_idle(slf: &Bound<'_, Self>) -> bool {
        slf.borrow().current_task.is_none() && Self::queue_length(slf) == 0
    }

    #[setter]
    fn set_total_completed(&mut self, py: Python<'_>, count: u64) {
        self.total_completed = count;
        self.tell_history(py);
    }

    #[setter]
    fn set_total_failed(&mut self, py: Python<'_>, count: u64) {
        self.total_failed = count;
        self.tell_history(py);
    }

    /// Completed tasks over all tasks; 1.0 when there are none.
    #[getter]
    pub(crate) fn success_rate(&self) -> f64 {
        match self.total_completed + self.total_failed {
            0 => 1.0,
            all => self.total_completed as f64 / all as f64,
        }
    }

    /// Whether it may do a task: with one of the skills, or with every one when `strict`. A task
    /// that asks for no skill may be done by anyone.
    #[pyo3(signature = (task, strict=false))]
    fn can_execute(&self, py: Python<'_>, task: &Bound<'_, Task>, strict: bool) -> PyResult<bool> {
        let (has, required) = self.count_skills(py, task)?;
        Ok(has == required || (!strict && has > 0))
    }

    /// The share of a task's skills that it has; 1.0 for a task that asks for none.
    fn get_skill_score(&self, py: Python<'_>, task: &Bound<'_, Task>) -> PyResult<f64> {
        let (has, required) = self.count_skills(py, task)?;
        Ok(match required {
            0 => 1.0,
            required => has as f64 / required as f64,
        })
    }

    /// Puts a task on its queue, behind others of the same priority.
    fn enqueue_task(slf: &Bound<'_, Self>, task: &Bound<'_, Task>) -> PyResult<()> {
        Self::push(slf, task)
    }

    /// Takes the first task off its queue; None when it is empty.
    fn dequeue_task(slf: &Bound<'_, Self>) -> Option<Py<Task>> {
        let py = slf.py();
        let own = match &mut slf.borrow_mut().home {
            Home::Own(queue) if queue.is_empty() => Some(None),
            Home::Own(queue) => Some(Some(queue.remove(0))),
            Home::At(..) => None,
        };
        let task = own.unwrap_or_else(|| {
            let (engine, id) = slf.borrow().engine()?;
            engine.take(py, Taking::First(id))
        })?;
        task.bind(py).borrow_mut().taken_to_run();
        Some(task)
    }

    /// Takes a task that is not of high priority off its queue, of the lowest priority first: the
    /// newest, or the oldest. None when there is none.
    #[pyo3(signature = (prefer_recent=true))]
    fn steal_task(slf: &Bound<'_, Self>, prefer_recent: bool) -> Option<Py<Task>> {
        let py = slf.py();
        let engine = slf.borrow().engine();
        let Some((engine, agent)) = engine else {
            return slf.borrow_mut().loot(py, prefer_recent);
        };
        let newest_first = prefer_recent;
        engine.take(
            py,
            Taking::Loot {
                agent,
                newest_first,
            },
        )
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let this = slf.borrow();
        let id = this.agent_id.bind(slf.py()).repr()?;
        let skills = this.capabilities.bind(slf.py()).repr()?;
        let queued = Self::queue_length(slf);
        Ok(format!("Agent({id}, {skills}, queue_length={queued})"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.agent_id)?;
        visit.call(&self.capabilities)?;
        visit.call(&self.current_task)?;
        visit.call(&self.performance_history)?;
        visit.call(&self.resources)?;
        if let Home::Own(queue) = &self.home {
            queue.iter().try_for_each(|task| visit.call(task))?;
        }
        Ok(())
    }
}

impl Agent {
    pub(crate) fn id<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.agent_id.bind(py).clone()
    }

    /// The scheduler it is registered with, and its number there.
    pub(crate) fn engine(&self) -> Option<(Arc<Engine>, AgentId)> {
        match &self.home {
            Home::Own(_) => None,
            Home::At(engine, id) => Some((Arc::clone(engine), *id)),
        }
    }

    pub(crate) fn current<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.current_task
            .as_ref()
            .map(|task| task.bind(py).clone())
            .filter(|task| !task.is_none())
    }

    pub(crate) fn skills(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        names(self.capabilities.bind(py))
    }

    pub(crate) fn completed(&self) -> u64 {
        self.total_completed
    }

    pub(crate) fn profile(slf: &Bound<'_, Self>) -> PyResult<Profile> {
        let py = slf.py();
        let this = slf.borrow();
        Ok(Profile {
            skills: this.skills(py)?,
            completed: this.total_completed,
            failed: this.total_failed,
            cpu: this.cpu,
            memory: this.memory,
            resources: amounts(this.resources.as_ref().map(|resources| resources.bind(py)))?,
            holds: this.holds.clone(),
        })
    }

    /// Moves in with a scheduler, and brings its queue along.
    pub(crate) fn move_in(slf: &Bound<'_, Self>, engine: &Arc<Engine>) -> PyResult<()> {
        let py = slf.py();
        let profile = Self::profile(slf)?;
        let queue = Self::tasks(slf);
        let descriptions = queue
            .iter()
            .map(|task| task.bind(py).borrow().describe(py))
            .collect::<PyResult<Vec<_>>>()?;
        let id = engine.join(py, &profile)?;
        let before =
            std::mem::replace(&mut slf.borrow_mut().home, Home::At(Arc::clone(engine), id));
        for (task, description) in queue.into_iter().zip(&descriptions) {
            engine.enqueue(py, id, task, description)?;
        }
        drop(before);
        Ok(())
    }

    /// Leaves its scheduler. Its queue is empty afterwards.
    pub(crate) fn move_out(slf: &Bound<'_, Self>) {
        slf.borrow_mut().home = Home::Own(Vec::new());
    }

    /// The tasks on its queue, in order.
    pub(crate) fn tasks(slf: &Bound<'_, Self>) -> Vec<Py<Task>> {
        let py = slf.py();
        match &slf.borrow().home {
            Home::Own(queue) => queue.iter().map(|task| task.clone_ref(py)).collect(),
            Home::At(engine, id) => engine.queue(py, *id),
        }
    }

    /// Puts a task on its queue.
    pub(crate) fn push(slf: &Bound<'_, Self>, task: &Bound<'_, Task>) -> PyResult<()> {
        let py = slf.py();
        let description = task.borrow().describe(py)?;
        let engine = slf.borrow().engine();
        match engine {
            Some((engine, id)) => engine.enqueue(py, id, task.clone().unbind(), &description)?,
            None => slf.borrow_mut().insert(py, task),
        }
        task.borrow_mut().put_on_queue();
        Ok(())
    }

    fn insert(&mut self, py: Python<'_>, task: &Bound<'_, Task>) {
        let level = task.borrow().level();
        if let Home::Own(queue) = &mut self.home {
            let at = queue.partition_point(|other| other.bind(py).borrow().level() >= level);
            queue.insert(at, task.clone().unbind());
        }
    }

    /// Takes the task at a place of its queue.
    pub(crate) fn take_at(slf: &Bound<'_, Self>, at: usize) -> Option<Py<Task>> {
        let engine = slf.borrow().engine();
        match engine {
            Some((engine, id)) => engine.take_at(slf.py(), id, at),
            None => match &mut slf.borrow_mut().home {
                Home::Own(queue) if at < queue.len() => Some(queue.remove(at)),
                _ => None,
            },
        }
    }

    pub(crate) fn clear(slf: &Bound<'_, Self>) {
        while Self::take_at(slf, 0).is_some() {}
    }

    /// What a thief takes from a queue that is the agent's own.
    fn loot(&mut self, py: Python<'_>, prefer_recent: bool) -> Option<Py<Task>> {
        let Home::Own(queue) = &mut self.home else {
            return None;
        };
        let level = |task: &Py<Task>| task.bind(py).borrow().level();
        let lowest = queue.last().map(level)?;
        if lowest >= loxley_model::Priority::HIGH {
            return None;
        }
        let oldest = queue.partition_point(|task| level(task) > lowest);
        let at = if prefer_recent {
            queue.len() - 1
        } else {
            oldest
        };
        Some(queue.remove(at))
    }

    fn count_skills(&self, py: Python<'_>, task: &Bound<'_, Task>) -> PyResult<(usize, usize)> {
        let offered = self.capabilities.bind(py);
        let required = task.borrow().skills(py)?;
        let mut has = 0;
        for skill in &required {
            has += usize::from(offered.contains(skill)?);
        }
        Ok((has, required.len()))
    }

    fn tell_history(&self, py: Python<'_>) {
        if let Home::At(engine, id) = &self.home {
            engine.recall(py, *id, self.total_completed, self.total_failed);
        }
    }
}

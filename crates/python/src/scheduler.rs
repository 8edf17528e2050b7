//! The embedded scheduler as Python sees it.

use std::path::PathBuf;
use std::sync::Arc;

use loxley_model::AgentId;
use loxley_policy::{Config, Place, Reason, Severity};
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMappingProxy};

use crate::agent::Agent;
use crate::engine::{Engine, Ticker};
use crate::metrics::Metrics;
use crate::task::Task;

/// Decides which agent gets which task, and lets the idle take work from the busy.
///
/// All methods may be called from any thread.
///
/// >>> scheduler = WorkStealingScheduler()
/// >>> ann, bob = Agent("ann", {"python"}), Agent("bob", {"python"})
/// >>> scheduler.register_agent(ann)
/// >>> scheduler.register_agent(bob)
/// >>> for number in range(8):
/// ...     ann.enqueue_task(Task(f"t{number}", {"python"}))
/// >>> scheduler.request_work("bob").task_id
/// 't7'
/// >>> scheduler.get_metrics()["successful_steals"]
/// 1
#[pyclass(module = "loxley", subclass, weakref, frozen)]
pub(crate) struct WorkStealingScheduler {
    engine: Arc<Engine>,
    agents: Py<PyDict>,
    metrics: Py<Metrics>,
}

#[pymethods]
impl WorkStealingScheduler {
    #[new]
    #[pyo3(signature = (config_path=None))]
    fn new(py: Python<'_>, config_path: Option<PathBuf>) -> PyResult<Self> {
        let config = match config_path {
            Some(path) => read_config(&path)?,
            None => defaults(),
        };
        let engine = Engine::new(config);
        let agents = PyDict::new(py).unbind();
        let metrics = Metrics::new(Arc::clone(&engine), agents.clone_ref(py));
        Ok(Self {
            engine,
            agents,
            metrics: Py::new(py, metrics)?,
        })
    }

    /// What lets time pass once a thread runs it; None when time passes already.
    fn _begin(&self, py: Python<'_>) -> Option<Ticker> {
        self.engine.start(py)
    }

    /// Ends what was begun.
    fn _end(&self, py: Python<'_>) {
        self.engine.stop(py);
    }

    /// Whether time passes in the background.
    #[getter]
    fn running(&self, py: Python<'_>) -> bool {
        self.engine.is_started(py)
    }

    /// Registers an agent with whatever is on its queue. Another agent of the same id is replaced,
    /// and its tasks go to others. Instead of an agent, an id and its capabilities will do.
    #[pyo3(signature = (agent, capabilities=None))]
    fn register_agent(
        slf: &Bound<'_, Self>,
        agent: &Bound<'_, PyAny>,
        capabilities: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let agent = match agent.cast::<Agent>() {
            Ok(agent) => agent.clone(),
            Err(_) => {
                let class = py.import("loxley")?.getattr("Agent")?;
                class.call1((agent, capabilities))?.cast_into()?
            }
        };
        let this = slf.get();
        if let Some((engine, _)) = agent.borrow().engine() {
            if Arc::ptr_eq(&engine, &this.engine) {
                return Ok(());
            }
            let id = agent.borrow().id(py).repr()?.to_string();
            let message = format!("agent {id} is registered with another scheduler");
            return Err(PyValueError::new_err(message));
        }
        let id = agent.borrow().id(py);
        let earlier = this.agents.bind(py).get_item(&id)?;
        Agent::move_in(&agent, &this.engine)?;
        this.agents.bind(py).set_item(&id, &agent)?;
        if let Some(earlier) = earlier {
            let earlier = earlier.cast_into::<Agent>()?;
            let home = earlier.borrow().engine();
            if let Some((engine, number)) = home {
                engine.replace(py, number);
            }
            Agent::move_out(&earlier);
        }
        Ok(())
    }

    /// Unregisters an agent and returns the tasks it had, the current one first. They have left the
    /// scheduler. None for an id that nobody has.
    fn unregister_agent<'py>(
        slf: &Bound<'py, Self>,
        agent_id: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let py = slf.py();
        let remaining = PyList::empty(py);
        let this = slf.get();
        let Some(agent) = this.find(py, agent_id)? else {
            return Ok(None);
        };
        if let Some(current) = agent.borrow().current(py) {
            remaining.append(current)?;
        }
        let home = agent.borrow().engine();
        if let Some((engine, number)) = home {
            for task in engine.leave(py, number) {
                remaining.append(task)?;
            }
        }
        this.agents.bind(py).del_item(agent_id)?;
        Agent::move_out(&agent);
        Ok(Some(remaining))
    }

    /// The agent that would get a task now; None when nobody can do it.
    fn _find_best_agent<'py>(
        &self,
        task: &Bound<'py, Task>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = task.py();
        let description = task.borrow().describe(py)?;
        match self.engine.best_agent(py, &description)? {
            Some(number) => self.agent_of(py, number),
            None => Ok(None),
        }
    }

    /// Puts a task on the queue of the agent that suits it best. False when nobody can do it.
    fn submit_task(&self, task: &Bound<'_, Task>) -> PyResult<bool> {
        let py = task.py();
        let description = task.borrow().describe(py)?;
        let accepted = self
            .engine
            .submit(py, task.clone().unbind(), &description)?;
        if accepted {
            task.borrow_mut().put_on_queue();
        }
        Ok(accepted)
    }

    /// Lets an agent take a task from the busiest other one. It is returned, and on the agent's queue,
    /// where `dequeue_task` finds it. None when nobody is busy, or nobody has anything for it.
    fn request_work(&self, agent_id: &Bound<'_, PyAny>) -> PyResult<Option<Py<Task>>> {
        let py = agent_id.py();
        let Some(agent) = self.find(py, agent_id)? else {
            return Ok(None);
        };
        let home = agent.borrow().engine();
        let Some(task) = home.and_then(|(engine, number)| engine.steal(py, number)) else {
            return Ok(None);
        };
        let waited = {
            let mut this = task.bind(py).borrow_mut();
            this.put_on_queue();
            this.wait_time()
        };
        let mut books = self.engine.books(py);
        if books.core().config().metrics.track_wait_times {
            books.tallies.waited(waited);
        }
        drop(books);
        Ok(Some(task))
    }

    /// Moves tasks from busy agents to idle ones if the fleet is out of balance. Returns how many.
    fn rebalance(&self, py: Python<'_>) -> u32 {
        self.engine.rebalance(py)
    }

    /// The same, under the name by which existing programs call it.
    fn _rebalance_push(&self, py: Python<'_>) -> u32 {
        self.engine.rebalance(py)
    }

    /// All figures as a dictionary.
    fn get_metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let figures = self.metrics.get().get_stats(py)?;
        let core = self.engine.books(py).core().metrics();
        figures.set_item("agent_count", core.agent_count)?;
        figures.set_item("total_queued", core.total_queued)?;
        figures.set_item("busy_agents", core.busy_agents)?;
        figures.set_item("idle_agents", core.idle_agents)?;
        Ok(figures)
    }

    /// The state of every agent, by id.
    fn get_agent_status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let statuses = PyDict::new(py);
        for (id, agent) in self.agents.bind(py) {
            let agent = agent.cast_into::<Agent>()?;
            let queue_length = Agent::queue_length(&agent);
            let this = agent.borrow();
            let skills = this.skills(py)?;
            let status = PyDict::new(py);
            status.set_item("queue_length", queue_length)?;
            status.set_item("capabilities", skills)?;
            status.set_item("success_rate", this.success_rate())?;
            status.set_item("total_completed", this.completed())?;
            status.set_item("has_current_task", this.current(py).is_some())?;
            statuses.set_item(id, status)?;
        }
        Ok(statuses)
    }

    /// What is counted.
    #[getter(metrics)]
    fn counted(&self, py: Python<'_>) -> Py<Metrics> {
        self.metrics.clone_ref(py)
    }

    /// The registered agents by id: a mapping that follows every change.
    #[getter]
    fn agents<'py>(&self, py: Python<'py>) -> Bound<'py, PyMappingProxy> {
        PyMappingProxy::new(py, self.agents.bind(py).as_mapping())
    }

    /// Where a queued task is and why, in a sentence; None when it is on no queue.
    fn explain(&self, task: &Bound<'_, Task>) -> PyResult<Option<String>> {
        let py = task.py();
        let Some(id) = self.engine.number_of(py, task) else {
            return Ok(None);
        };
        let status = self.engine.books(py).core().task_status(id);
        let Some(Place::Queued {
            agent,
            ahead,
            reason,
        }) = status.map(|status| status.place)
        else {
            return Ok(None);
        };
        let owner = match self.agent_of(py, agent)? {
            Some(owner) => owner.cast::<Agent>()?.borrow().id(py).str()?.to_string(),
            None => agent.to_string(),
        };
        let name = task.borrow().id(py).str()?.to_string();
        let why = match reason {
            Reason::Score(score) => {
                format!("it had the highest score, {:.3}", score as f64 / 1e6)
            }
            Reason::Named => "it was put there by hand".to_owned(),
            Reason::Stolen(_) => "it was stolen for it".to_owned(),
            Reason::Rebalanced(_) => "a rebalancing pass moved it there".to_owned(),
            Reason::KeptFree => "it was kept for such work, which was forecast".to_owned(),
            Reason::MadeRoom(_) => "it made room for work that is forecast".to_owned(),
            other => format!("{other:?}"),
        };
        Ok(Some(format!(
            "`{name}` is on the queue of `{owner}`, behind {ahead} other tasks, because {why}"
        )))
    }

    /// What is wrong with the fleet, and what to do about it; empty when nothing is.
    fn health<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let problems = self.engine.books(py).core().health();
        let show = |problem: &loxley_policy::Problem| {
            let shown = PyDict::new(py);
            let severity = match problem.severity {
                Severity::Warning => "warning",
                Severity::Critical => "critical",
            };
            shown.set_item("severity", severity)?;
            shown.set_item("message", &problem.message)?;
            shown.set_item("remedies", &problem.remedies)?;
            Ok(shown)
        };
        problems.iter().map(show).collect()
    }

    /// The configuration in force, as YAML.
    fn _config_yaml(&self, py: Python<'_>) -> String {
        loxley_config::to_yaml(self.engine.books(py).core().config())
    }

    /// Applies a configuration given as YAML (or JSON), or none of it if there is a mistake in it.
    fn _reload(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        let config = loxley_config::parse_over(text, defaults())
            .map_err(|mistakes| PyValueError::new_err(mistakes.to_string()))?;
        self.engine.reload(py, config);
        Ok(())
    }

    /// Applies the configuration in a file, or none of it if there is a mistake in it.
    fn reload_file(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.engine.reload(py, read_config(&path)?);
        Ok(())
    }
}

impl WorkStealingScheduler {
    /// The agent of a number.
    fn agent_of<'py>(
        &self,
        py: Python<'py>,
        number: AgentId,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        for (_, agent) in self.agents.bind(py) {
            let home = agent.cast::<Agent>()?.borrow().engine();
            if home.is_some_and(|(_, of)| of == number) {
                return Ok(Some(agent));
            }
        }
        Ok(None)
    }

    fn find<'py>(
        &self,
        py: Python<'py>,
        agent_id: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, Agent>>> {
        let agent = self.agents.bind(py).get_item(agent_id)?;
        Ok(agent.map(Bound::cast_into).transpose()?)
    }
}

/// The published defaults of this interface: nobody is robbed who is not busy, unless a setting says so.
pub(crate) fn defaults() -> Config {
    let mut config = Config::default();
    config.work_stealing.steal_below_busy = false;
    config
}

fn read_config(path: &std::path::Path) -> PyResult<Config> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| {
        let message = format!("cannot read {name}: {error}");
        match error.kind() {
            std::io::ErrorKind::NotFound => PyFileNotFoundError::new_err(message),
            _ => PyOSError::new_err(message),
        }
    })?;
    loxley_config::parse_bytes_over(&bytes, defaults())
        .map_err(|mistakes| PyValueError::new_err(mistakes.in_file(&name).to_string()))
}

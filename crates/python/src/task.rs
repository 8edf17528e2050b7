//! A task as Python sees it: a plain object that keeps its identity through everything.

use std::time::{SystemTime, UNIX_EPOCH};

use loxley_model::{Priority, Span};
use pyo3::PyTraverseError;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet, PyString};

/// The first priority that counts as high, whatever a scheduler is configured to protect.
const HIGH: u8 = 4;

/// One piece of work: what it asks for, how urgent it is, and when what happened to it.
///
/// Times are seconds since the epoch, as `time.time()` gives them; a time that has not come is None.
///
/// >>> task = Task("t1", {"python"}, priority=5, data={"file": "a.txt"})
/// >>> task.is_high_priority, task.assigned_at
/// (True, None)
#[pyclass(module = "loxley", subclass, weakref)]
pub(crate) struct Task {
    /// What it is called.
    #[pyo3(get, set)]
    task_id: Py<PyAny>,
    /// The skills it asks for.
    #[pyo3(get, set)]
    skill_requirements: Py<PyAny>,
    priority: Priority,
    /// The ids of tasks that come before it. The embedded scheduler carries them and leaves the
    /// order to the program; the server enforces it.
    #[pyo3(get, set)]
    dependencies: Py<PyAny>,
    /// Whatever belongs to it.
    #[pyo3(get, set)]
    data: Py<PyAny>,
    /// When it was made.
    #[pyo3(get, set)]
    pub(crate) created_at: f64,
    /// When it was put on an agent's queue.
    #[pyo3(get, set)]
    pub(crate) assigned_at: Option<f64>,
    /// When an agent took it off a queue.
    #[pyo3(get, set)]
    pub(crate) started_at: Option<f64>,
    /// When it was done.
    #[pyo3(get, set)]
    completed_at: Option<f64>,
    /// When it should be done; the earliest comes first within a priority.
    #[pyo3(get, set)]
    deadline: Option<f64>,
    /// How long it is expected to run, in seconds.
    #[pyo3(get, set)]
    expected_cost: Option<f64>,
    /// How many processors it needs.
    #[pyo3(get, set)]
    cpu: f64,
    /// How much memory it needs, in bytes.
    #[pyo3(get, set)]
    memory: u64,
    /// Named resources it needs, with amounts.
    #[pyo3(get, set)]
    resources: Option<Py<PyDict>>,
    /// The data it should run near.
    #[pyo3(get, set)]
    locality: Option<String>,
}

/// What a scheduler wants to know of a task, in words.
pub(crate) struct Description {
    pub(crate) skills: Vec<String>,
    pub(crate) priority: Priority,
    /// Seconds since the epoch.
    pub(crate) deadline: Option<f64>,
    pub(crate) cost: Option<Span>,
    pub(crate) cpu: f64,
    pub(crate) memory: u64,
    pub(crate) resources: Vec<(String, u64)>,
    pub(crate) locality: Option<String>,
}

#[pymethods]
impl Task {
    #[new]
    #[pyo3(signature = (task_id, skill_requirements=None, priority=3, dependencies=None, data=None,
        created_at=None, assigned_at=None, started_at=None, completed_at=None, *, deadline=None,
        expected_cost=None, cpu=0.0, memory=0, resources=None, locality=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        task_id: Py<PyAny>,
        skill_requirements: Option<Bound<'_, PyAny>>,
        priority: i64,
        dependencies: Option<Py<PyAny>>,
        data: Option<Py<PyAny>>,
        created_at: Option<f64>,
        assigned_at: Option<f64>,
        started_at: Option<f64>,
        completed_at: Option<f64>,
        deadline: Option<f64>,
        expected_cost: Option<f64>,
        cpu: f64,
        memory: u64,
        resources: Option<Py<PyDict>>,
        locality: Option<String>,
    ) -> PyResult<Self> {
        let skill_requirements = match skill_requirements {
            Some(skills) if skills.is_instance_of::<PyString>() => {
                return Err(PyTypeError::new_err(
                    "skill_requirements is a collection of names, not one name",
                ));
            }
            Some(skills) => skills.unbind(),
            None => PySet::empty(py)?.into_any().unbind(),
        };
        Ok(Self {
            task_id,
            skill_requirements,
            priority: priority_from(priority)?,
            dependencies: dependencies.unwrap_or_else(|| PyList::empty(py).into_any().unbind()),
            data: data.unwrap_or_else(|| PyDict::new(py).into_any().unbind()),
            created_at: created_at.unwrap_or_else(wall_clock),
            assigned_at,
            started_at,
            completed_at,
            deadline,
            expected_cost,
            cpu,
            memory,
            resources,
            locality,
        })
    }

    /// How urgent it is: 1 to 5, 5 first.
    #[getter]
    fn get_priority(&self) -> u8 {
        self.priority.level()
    }

    #[setter]
    fn set_priority(&mut self, priority: i64) -> PyResult<()> {
        self.priority = priority_from(priority)?;
        Ok(())
    }

    /// Whether its priority is 4 or 5.
    #[getter]
    fn is_high_priority(&self) -> bool {
        self.priority.level() >= HIGH
    }

    /// Seconds from when it was made until it was started, or until now.
    #[getter]
    pub(crate) fn wait_time(&self) -> f64 {
        self.started_at.unwrap_or_else(wall_clock) - self.created_at
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let id = self.task_id.bind(py).repr()?;
        let skills = self.skill_requirements.bind(py).repr()?;
        Ok(format!("Task({id}, {skills}, priority={})", self.priority))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.task_id)?;
        visit.call(&self.skill_requirements)?;
        visit.call(&self.dependencies)?;
        visit.call(&self.data)?;
        visit.call(&self.resources)
    }
}

impl Task {
    pub(crate) fn level(&self) -> Priority {
        self.priority
    }

    pub(crate) fn id<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.task_id.bind(py).clone()
    }

    pub(crate) fn skills(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        names(self.skill_requirements.bind(py))
    }

    /// What a scheduler wants to know.
    pub(crate) fn describe(&self, py: Python<'_>) -> PyResult<Description> {
        let cost = match self.expected_cost {
            Some(secs) => Some(Span::try_from_secs_f64(secs).ok_or_else(|| {
                PyValueError::new_err(format!("an expected cost of {secs} seconds is no length"))
            })?),
            None => None,
        };
        if Span::try_from_secs_f64(self.cpu).is_none() {
            let message = format!("{} processors are no amount", self.cpu);
            return Err(PyValueError::new_err(message));
        }
        Ok(Description {
            skills: self.skills(py)?,
            priority: self.priority,
            deadline: self.deadline,
            cost,
            cpu: self.cpu,
            memory: self.memory,
            resources: amounts(self.resources.as_ref().map(|resources| resources.bind(py)))?,
            locality: self.locality.clone(),
        })
    }

    pub(crate) fn put_on_queue(&mut self) {
        self.assigned_at = Some(wall_clock());
        self.started_at = None;
    }

    pub(crate) fn taken_to_run(&mut self) {
        self.started_at = Some(wall_clock());
    }
}

fn priority_from(level: i64) -> PyResult<Priority> {
    let small = u8::try_from(level).ok();
    small
        .and_then(|level| Priority::new(level).ok())
        .ok_or_else(|| {
            PyValueError::new_err(format!(
                "priority {level} is not between 1 (lowest) and 5 (highest)"
            ))
        })
}

/// The names in a collection of texts.
pub(crate) fn names(collection: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    collection
        .try_iter()?
        .map(|name| name?.extract::<String>())
        .collect()
}

/// Named amounts.
pub(crate) fn amounts(amounts: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<(String, u64)>> {
    let Some(amounts) = amounts else {
        return Ok(Vec::new());
    };
    amounts
        .iter()
        .map(|(name, amount)| Ok((name.extract()?, amount.extract()?)))
        .collect()
}

/// Seconds since the epoch.
pub(crate) fn wall_clock() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

//! An agent's queue as Python sees it: a sequence of tasks in priority order.

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PySlice};

use crate::agent::Agent;
use crate::task::Task;

/// The tasks of one agent, in the order in which it would run them. Always what is there now.
#[pyclass(module = "loxley", frozen, sequence)]
pub(crate) struct TaskQueue {
    agent: Py<Agent>,
}

impl TaskQueue {
    pub(crate) fn new(agent: Py<Agent>) -> Self {
        Self { agent }
    }

    fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, Agent::tasks(self.agent.bind(py)))
    }

    fn position(&self, py: Python<'_>, task: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        for (at, other) in Agent::tasks(self.agent.bind(py)).iter().enumerate() {
            if other.bind(py).is(task) || other.bind(py).eq(task)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn place(&self, py: Python<'_>, index: isize) -> PyResult<usize> {
        let len = self.__len__(py);
        let at = if index < 0 {
            len.checked_sub(index.unsigned_abs())
        } else {
            usize::try_from(index).ok().filter(|at| *at < len)
        };
        at.ok_or_else(|| PyIndexError::new_err("task queue index out of range"))
    }
}

#[pymethods]
impl TaskQueue {
    fn __len__(&self, py: Python<'_>) -> usize {
        Agent::queue_length(self.agent.bind(py))
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        index: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if index.is_instance_of::<PySlice>() {
            return self.list(py)?.as_any().get_item(index);
        }
        let at = self.place(py, index.extract()?)?;
        self.list(py)?.get_item(at)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.list(py)?.try_iter()
    }

    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let list = self.list(py)?;
        list.reverse()?;
        list.try_iter()
    }

    fn __contains__(&self, py: Python<'_>, task: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.position(py, task)?.is_some())
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(other) = other.try_iter() else {
            return Ok(false);
        };
        let other: Vec<Bound<'_, PyAny>> = other.collect::<PyResult<_>>()?;
        self.list(py)?.eq(other)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("TaskQueue({})", self.list(py)?.repr()?))
    }

    /// Where a task is.
    fn index(&self, py: Python<'_>, task: &Bound<'_, PyAny>) -> PyResult<usize> {
        let found = self.position(py, task)?;
        found.ok_or_else(|| PyValueError::new_err("the task is not on this queue"))
    }

    /// How often a task is there.
    fn count(&self, py: Python<'_>, task: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut count = 0;
        for other in Agent::tasks(self.agent.bind(py)) {
            count += usize::from(other.bind(py).is(task));
        }
        Ok(count)
    }

    /// Puts a task where its priority belongs.
    fn append(&self, py: Python<'_>, task: &Bound<'_, Task>) -> PyResult<()> {
        Agent::push(self.agent.bind(py), task)
    }

    /// Puts tasks where their priorities belong.
    fn extend(&self, py: Python<'_>, tasks: &Bound<'_, PyAny>) -> PyResult<()> {
        for task in tasks.try_iter()? {
            Agent::push(self.agent.bind(py), &task?.cast_into::<Task>()?)?;
        }
        Ok(())
    }

    /// Takes a task off the queue.
    fn remove(&self, py: Python<'_>, task: &Bound<'_, PyAny>) -> PyResult<()> {
        let at = self.index(py, task)?;
        Agent::take_at(self.agent.bind(py), at);
        Ok(())
    }

    /// Takes off and returns the task at a place, the last if none is named.
    #[pyo3(signature = (index=-1))]
    fn pop(&self, py: Python<'_>, index: isize) -> PyResult<Py<Task>> {
        let at = self.place(py, index)?;
        Agent::take_at(self.agent.bind(py), at)
            .ok_or_else(|| PyIndexError::new_err("pop from an empty task queue"))
    }

    /// Takes off and returns the first task.
    fn popleft(&self, py: Python<'_>) -> PyResult<Py<Task>> {
        self.pop(py, 0)
    }

    /// Takes every task off the queue.
    fn clear(&self, py: Python<'_>) {
        Agent::clear(self.agent.bind(py));
    }
}

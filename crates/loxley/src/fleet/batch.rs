//! Tasks that are handed in together.

use std::fmt;
use std::sync::Arc;

use loxley_model::JobId;

use super::Fleet;
use super::handle::Handle;
use super::work::{Context, Work};
use crate::error::SubmitError;
use crate::task::{Job, StandIn, Task};

/// Tasks that will be submitted together. Made by [`Fleet::batch`].
#[must_use = "nothing is submitted before `submit`"]
pub struct Batch<'fleet> {
    fleet: &'fleet Fleet,
    job: Job,
    tasks: Vec<Task>,
    works: Vec<Arc<Work>>,
}

impl<'fleet> Batch<'fleet> {
    pub(super) fn new(fleet: &'fleet Fleet, job: Job) -> Self {
        Self {
            fleet,
            job,
            tasks: Vec::new(),
            works: Vec::new(),
        }
    }

    /// Adds a closure. The handle keeps its promise after [`submit`](Self::submit).
    pub fn add<R, F>(&mut self, task: impl Into<Task>, run: F) -> Handle<R>
    where
        R: Send + Sync + 'static,
        F: Fn() -> R + Send + Sync + 'static,
    {
        let (work, handle) = Work::new(move |_| Ok::<R, String>(run()));
        self.push(task.into(), work);
        handle
    }

    /// Adds a closure that may fail, and that is told about the attempt it is.
    pub fn add_with<R, E, F>(&mut self, task: impl Into<Task>, run: F) -> Handle<R>
    where
        R: Send + Sync + 'static,
        E: fmt::Display,
        F: Fn(&Context) -> Result<R, E> + Send + Sync + 'static,
    {
        let (work, handle) = Work::new(run);
        self.push(task.into(), work);
        handle
    }

    /// Submits all tasks, or none.
    pub fn submit(mut self) -> Result<JobId, SubmitError> {
        self.link_fallbacks();
        let job = self
            .fleet
            .hand_in_batch(&self.job, &self.tasks, &self.works)?;
        self.works.clear();
        Ok(job)
    }

    fn push(&mut self, task: Task, work: Work) {
        if let Some(name) = &task.name {
            work.call_it(name);
        }
        self.tasks.push(task);
        self.works.push(Arc::new(work));
    }

    /// A task whose fallback is another one gets that one's result.
    fn link_fallbacks(&self) {
        for (task, work) in self.tasks.iter().zip(&self.works) {
            let Some(StandIn::Task(name)) = &task.fallback else {
                continue;
            };
            let named = |other: &Task| other.name.as_deref().map(str::trim) == Some(name.trim());
            if let Some(position) = self.tasks.iter().position(named) {
                work.fall_back_to(&self.works[position]);
            }
        }
    }
}

impl Drop for Batch<'_> {
    /// Whoever waits for a task that was never submitted is told so.
    fn drop(&mut self) {
        self.works.iter().for_each(|work| work.abandon());
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("job", &self.job)
            .field("tasks", &self.tasks.len())
            .finish_non_exhaustive()
    }
}

//! What a job file says.

use loxley_api::{Entries, JobRequest, Needs};
use loxley_policy::Config;

/// A whole file: what to do, and by whom if it is done here.
#[derive(Clone, Debug)]
pub struct JobFile {
    /// The job, as a server takes it and as a local run does it. Its names resolve, its graph has no circle,
    /// its commands can be filled, and every array has entries.
    pub request: JobRequest,
    /// Who runs the tasks of a local run. Empty: whoever is there.
    pub agents: Vec<AgentDef>,
    /// How the scheduler of a local run decides, if the file says so.
    pub config: Option<Config>,
}

/// An agent of a local run.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentDef {
    /// What it is called.
    pub name: String,
    /// What it can do.
    pub skills: Vec<String>,
    /// How many tasks it runs at once.
    pub slots: u32,
    /// Its speed as it claims; 1 runs a task in its expected cost.
    pub speed: f64,
    /// What it has. See [`Resources`](loxley_model::Resources) for what zero means.
    pub has: Needs,
}

impl JobFile {
    /// How many tasks there are, every entry counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.request.count()
    }

    /// Takes out arrays without entries: nobody has to wait for them.
    pub(crate) fn drop_empty_arrays(&mut self) {
        let tasks = &mut self.request.tasks;
        let is_empty = |entries: &Option<Entries>| {
            let entries = entries.as_ref();
            entries.is_some_and(|entries| entries.count() == 0)
        };
        let (empty, left) = std::mem::take(tasks)
            .into_iter()
            .partition::<Vec<_>, _>(|task| is_empty(&task.entries));
        *tasks = left;
        let gone = |name: &String| empty.iter().any(|task| task.name.as_ref() == Some(name));
        for task in tasks {
            task.depends_on.retain(|name| !gone(name));
            task.depends_on_each.retain(|name| !gone(name));
        }
    }
}

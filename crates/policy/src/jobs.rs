//! The jobs that are not over.

use alloc::vec::Vec;

use loxley_model::{JobId, JobSpec, TaskId};

use crate::paged::Paged;
use crate::refs::JobRef;

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) spec: JobSpec,
    /// Tasks that are not over.
    pub(crate) live: u64,
    /// The ids of its tasks: the first run of ids that follow each other, as first id and length.
    first_run: (TaskId, u64),
    /// Further runs. Most jobs have none.
    more_runs: Vec<(TaskId, u64)>,
}

impl Job {
    pub(crate) fn add(&mut self, task: TaskId) {
        self.live += 1;
        if self.first_run.1 == 0 {
            self.first_run.0 = task;
        }
        let (first, len) = self.more_runs.last_mut().unwrap_or(&mut self.first_run);
        if first.0 + *len == task.0 {
            *len += 1;
        } else {
            self.more_runs.push((task, 1));
        }
    }

    /// The ids of all its tasks, those that are over included.
    pub(crate) fn task_ids(&self) -> Vec<TaskId> {
        let runs = core::iter::once(&self.first_run).chain(&self.more_runs);
        runs.flat_map(|(first, len)| (first.0..first.0 + len).map(TaskId))
            .collect()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Jobs {
    entries: Vec<Option<Job>>,
    vacant: Vec<JobRef>,
    by_id: Paged<JobRef>,
}

impl Jobs {
    pub(crate) fn find(&self, id: JobId) -> Option<JobRef> {
        self.by_id.get(id.0)
    }

    /// The job of this id; a new one if it is not there.
    pub(crate) fn find_or_insert(&mut self, spec: JobSpec) -> JobRef {
        if let Some(job) = self.find(spec.id) {
            return job;
        }
        let id = spec.id;
        let job = Some(Job {
            spec,
            live: 0,
            first_run: (TaskId(0), 0),
            more_runs: Vec::new(),
        });
        let place = match self.vacant.pop() {
            Some(place) => {
                self.entries[place.index()] = job;
                place
            }
            None => {
                self.entries.push(job);
                JobRef::new(self.entries.len() - 1)
            }
        };
        self.by_id.insert(id.0, place);
        place
    }

    pub(crate) fn remove(&mut self, job: JobRef) -> Job {
        let gone = self.entries[job.index()].take().expect("a job ends once");
        self.by_id.remove(gone.spec.id.0);
        self.vacant.push(job);
        gone
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = JobRef> {
        self.by_id.iter().map(|(_, job)| job)
    }
}

impl core::ops::Index<JobRef> for Jobs {
    type Output = Job;
    fn index(&self, job: JobRef) -> &Job {
        self.entries[job.index()]
            .as_ref()
            .expect("a reference outlived its job")
    }
}

impl core::ops::IndexMut<JobRef> for Jobs {
    fn index_mut(&mut self, job: JobRef) -> &mut Job {
        self.entries[job.index()]
            .as_mut()
            .expect("a reference outlived its job")
    }
}

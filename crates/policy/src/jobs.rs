//! The jobs that are not over.

use alloc::boxed::Box;
use alloc::vec::Vec;

use loxley_model::{JobSpec, TaskId};

use crate::refs::{JobRef, UserRef};

/// A job: one cache line, since a job may be a single task.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(align(64))]
pub(crate) struct Job {
    pub(crate) spec: JobSpec,
    pub(crate) user: UserRef,
    /// Tasks that are not over.
    pub(crate) live: u32,
    /// The ids of its tasks: the first run of ids that follow each other, as first id and length.
    pub(crate) first_run: (TaskId, u64),
    /// Further runs. Most jobs have none.
    #[expect(
        clippy::box_collection,
        reason = "empty for most jobs, which are kept small"
    )]
    pub(crate) more_runs: Option<Box<Vec<(TaskId, u64)>>>,
}

const _: () = assert!(size_of::<Option<Job>>() == 64);

impl Job {
    pub(crate) fn add(&mut self, task: TaskId) {
        self.live += 1;
        if self.first_run.1 == 0 {
            self.first_run.0 = task;
        }
        let more = self.more_runs.as_mut().and_then(|runs| runs.last_mut());
        let (first, len) = more.unwrap_or(&mut self.first_run);
        if first.0 + *len == task.0 {
            *len += 1;
        } else {
            self.more_runs.get_or_insert_default().push((task, 1));
        }
    }

    /// The ids of all its tasks, those that are over included.
    pub(crate) fn task_ids(&self) -> Vec<TaskId> {
        let more = self.more_runs.iter().flat_map(|runs| runs.iter());
        let runs = core::iter::once(&self.first_run).chain(more);
        runs.flat_map(|(first, len)| (first.0..first.0 + len).map(TaskId))
            .collect()
    }
}

/// The table of jobs. Which job has which id is in [`Derived`](crate::derived::Derived).
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Jobs {
    entries: Vec<Option<Job>>,
    vacant: Vec<JobRef>,
}

impl Jobs {
    /// Puts in a job without tasks.
    pub(crate) fn insert(&mut self, spec: JobSpec, user: UserRef) -> JobRef {
        let job = Some(Job {
            spec,
            user,
            live: 0,
            first_run: (TaskId(0), 0),
            more_runs: None,
        });
        match self.vacant.pop() {
            Some(place) => {
                self.entries[place.index()] = job;
                place
            }
            None => {
                self.entries.push(job);
                JobRef::new(self.entries.len() - 1)
            }
        }
    }

    pub(crate) fn remove(&mut self, job: JobRef) -> Job {
        let gone = self.entries[job.index()].take().expect("a job ends once");
        self.vacant.push(job);
        gone
    }

    pub(crate) fn get(&self, job: JobRef) -> Option<&Job> {
        self.entries.get(job.index())?.as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (JobRef, &Job)> {
        let present = self.entries.iter().enumerate();
        present.filter_map(|(at, job)| Some((JobRef::new(at), job.as_ref()?)))
    }

    /// Has a job fetched from memory while the caller goes on.
    pub(crate) fn touch(&self, job: JobRef) {
        core::hint::black_box(self[job].live);
    }

    /// Whether the places without a job are those that the list of them names.
    pub(crate) fn vacancies_agree(&self) -> bool {
        let vacant = self.entries.iter().filter(|job| job.is_none()).count();
        let named = |place: &JobRef| self.entries.get(place.index()) == Some(&None);
        vacant == self.vacant.len() && self.vacant.iter().all(named)
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

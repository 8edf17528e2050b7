//! Where the tasks of a run come from: items, one after the other, or a job file, all at once.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use loxley_model::{Fallback, JobId, JobSpec, TaskId, TaskKind, TaskSpec, Time, Unplaceable};

use super::feed::{Feed, Next};
use super::job::JobBook;
use super::joblog::Earlier;
use super::slots::{Recipe, What};

/// Where tasks come from.
pub(super) enum Source {
    Items(ItemSource),
    Job(JobSource),
}

/// A command and items for it.
pub(super) struct ItemSource {
    pub(super) feed: Feed,
    pub(super) recipe: Arc<Recipe>,
    pub(super) kind: Arc<TaskKind>,
    /// How many jobs were made: each task is one of its own.
    pub(super) jobs: u64,
}

/// The tasks of a job file.
pub(super) struct JobSource {
    pub(super) book: Arc<JobBook>,
    /// How to run each definition.
    pub(super) recipes: Vec<Arc<Recipe>>,
    /// Where tasks keep their state between attempts.
    pub(super) checkpoints: Option<PathBuf>,
    pub(super) earlier: Earlier,
    /// Whether to run again what failed in the earlier run.
    pub(super) again: bool,
    pub(super) given: bool,
    /// How many tasks there are, without those that an earlier run finished.
    pub(super) total: u64,
}

/// Tasks that are submitted together.
pub(super) struct Batch {
    pub(super) job: JobSpec,
    pub(super) tasks: Vec<(TaskSpec, Arc<What>)>,
}

/// What comes next.
pub(super) enum Coming {
    Batch(Batch),
    /// An earlier run finished this one.
    Skipped(u64),
    /// Nothing yet; an event tells when it is worth asking again.
    Nothing,
    /// Nothing any more.
    End,
}

impl Source {
    /// How many tasks there will be in all, as far as that is known.
    pub(super) fn total(&self) -> Option<u64> {
        match self {
            Self::Items(items) => items.feed.total(),
            Self::Job(job) => Some(job.total),
        }
    }

    /// What comes next, at `now`.
    pub(super) fn next(&mut self, now: Time) -> Result<Coming> {
        match self {
            Self::Items(items) => items.next(),
            Self::Job(job) if job.given => Ok(Coming::End),
            Self::Job(job) => Ok(job.everything(now)),
        }
    }
}

impl ItemSource {
    fn next(&mut self) -> Result<Coming> {
        Ok(match self.feed.next()? {
            Next::Nothing => Coming::Nothing,
            Next::End => Coming::End,
            Next::Skipped(sequence) => Coming::Skipped(sequence),
            Next::Item(item) => {
                let mut spec = TaskSpec::new(TaskId(item.sequence), Arc::clone(&self.kind));
                spec.cost = item.cost;
                let what = What {
                    recipe: Arc::clone(&self.recipe),
                    items: item.items.into(),
                    sequence: item.sequence,
                    checkpoint: None,
                };
                self.jobs += 1;
                Coming::Batch(Batch {
                    job: JobSpec::new(JobId(self.jobs)),
                    tasks: vec![(spec, Arc::new(what))],
                })
            }
        })
    }
}

impl JobSource {
    /// The tasks that an earlier run finished; with `again`, only those that it finished well.
    fn left_out(&self) -> impl Iterator<Item = TaskId> {
        let ended = self.earlier.iter();
        ended
            .filter(|(_, succeeded)| **succeeded || !self.again)
            .map(|(id, _)| TaskId(*id))
            .filter(|id| self.book.plan.find(*id).is_some())
    }

    fn everything(&mut self, now: Time) -> Coming {
        self.given = true;
        let left_out: HashSet<TaskId> = self.left_out().collect();
        let specs = self.book.specs(now);
        let tasks: Vec<_> = specs
            .into_iter()
            .filter(|spec| !left_out.contains(&spec.id))
            .map(|mut spec| {
                spec.dependencies = spec
                    .dependencies
                    .iter()
                    .copied()
                    .filter(|id| !left_out.contains(id))
                    .collect();
                if matches!(spec.fallback, Fallback::Task(id) if left_out.contains(&id)) {
                    spec.fallback = Fallback::None;
                }
                let what = Arc::new(self.what(spec.id));
                (spec, what)
            })
            .collect();
        self.total = tasks.len() as u64;
        Coming::Batch(Batch {
            job: JobSpec {
                dependency_failure: self.book.file.dependency_failure,
                unplaceable: Unplaceable::Refuse,
                ..JobSpec::new(JobId(1))
            },
            tasks,
        })
    }

    fn what(&self, id: TaskId) -> What {
        let planned = self.book.plan.find(id).expect("it was planned");
        let definition = &self.book.file.tasks[planned.definition];
        let entry = definition.entries.as_ref();
        let entry = entry.and_then(|entries| entries.get(planned.entry));
        let checkpoint = self
            .checkpoints
            .as_ref()
            .filter(|_| definition.traits.checkpoint);
        What {
            recipe: Arc::clone(&self.recipes[planned.definition]),
            items: entry.map(OsString::from).into_iter().collect(),
            sequence: planned.entry + 1,
            checkpoint: checkpoint.map(|directory| directory.join(id.0.to_string())),
        }
    }

    /// Every task in the order of the file: what a dry run prints.
    pub(super) fn each(&self) -> impl Iterator<Item = (String, What)> {
        let file = &self.book.file;
        let left_out: HashSet<TaskId> = self.left_out().collect();
        (1..=file.count())
            .map(TaskId)
            .filter(move |id| !left_out.contains(id))
            .map(|id| (self.book.title(id), self.what(id)))
    }
}

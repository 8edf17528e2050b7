//! Where the tasks of a run come from: items, one after the other, or a job file, all at once.

use std::collections::HashSet;
use std::ffi::OsString;
use std::sync::Arc;

use anyhow::{Result, bail};
use loxley_api::{JobRequest, Numbers, TaskRequest, Unplaceable};
use loxley_exec::{Recipe, TaskCommand};
use loxley_model::{Span, TaskId};

use super::feed::{Feed, Next, Numbered};
use super::job::JobBook;
use super::joblog::Earlier;

/// Where tasks come from.
pub(super) enum Source {
    Items(ItemSource),
    Job(JobSource),
}

/// A command and items for it.
pub(super) struct ItemSource {
    pub(super) feed: Feed,
    pub(super) recipe: Arc<Recipe>,
    /// What the scheduler is to know of each task.
    pub(super) request: Box<TaskRequest>,
}

/// The tasks of a job file.
pub(super) struct JobSource {
    pub(super) book: Arc<JobBook>,
    /// How to run each definition.
    pub(super) recipes: Vec<Arc<Recipe>>,
    pub(super) earlier: Earlier,
    /// Whether to run again what failed in the earlier run.
    pub(super) again: bool,
    pub(super) given: bool,
    /// How many tasks there are, without those that an earlier run finished.
    pub(super) total: u64,
}

/// An item on its way to the scheduler.
pub(super) struct Item {
    pub(super) sequence: u64,
    pub(super) command: Arc<TaskCommand>,
    pub(super) cost: Option<Span>,
}

/// What comes next.
pub(super) enum Coming {
    Item(Item),
    /// All of a job file.
    Job(Box<JobRequest>),
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

    /// What comes next.
    pub(super) fn next(&mut self) -> Result<Coming> {
        match self {
            Self::Items(items) => items.next(),
            Self::Job(job) if job.given => Ok(Coming::End),
            Self::Job(job) => Ok(Coming::Job(Box::new(job.everything()))),
        }
    }

    /// The job that takes items as they come.
    pub(super) fn open_job(&self) -> JobRequest {
        let tasks = match self {
            Self::Items(items) => vec![TaskRequest::clone(&items.request)],
            Self::Job(_) => Vec::new(),
        };
        JobRequest {
            open: true,
            tasks,
            ..JobRequest::default()
        }
    }

    /// Every task of a job file that is to run.
    pub(super) fn tasks_of_job(&self) -> Vec<(TaskId, Arc<TaskCommand>)> {
        match self {
            Self::Items(_) => Vec::new(),
            Self::Job(job) => {
                let tasks = job.each();
                tasks.map(|(id, command)| (id, Arc::new(command))).collect()
            }
        }
    }
}

impl ItemSource {
    fn next(&mut self) -> Result<Coming> {
        Ok(match self.feed.next()? {
            Next::Nothing => Coming::Nothing,
            Next::End => Coming::End,
            Next::Skipped(sequence) => Coming::Skipped(sequence),
            Next::Item(item) => Coming::Item(Item {
                sequence: item.sequence,
                cost: item.cost,
                command: Arc::new(self.command(item)),
            }),
        })
    }

    /// Refuses to leave out what was something else in the earlier run, before anything has run.
    pub(super) fn check_log(&mut self) -> Result<()> {
        let recipe = &self.recipe;
        self.feed.look_at_left_out(|item, logged| {
            let command = TaskCommand {
                recipe: Arc::clone(recipe),
                items: item.items.clone().into(),
                sequence: item.sequence,
                // The log knows the line, not what it reads.
                input: None,
            };
            logged.check(item.sequence, &command)
        })
    }

    fn command(&self, item: Numbered) -> TaskCommand {
        TaskCommand {
            recipe: Arc::clone(&self.recipe),
            items: item.items.into(),
            sequence: item.sequence,
            input: item.input,
        }
    }
}

impl JobSource {
    /// The tasks that an earlier run finished; with `again`, only those that it finished well.
    fn left_out(&self) -> impl Iterator<Item = TaskId> {
        let ended = self.earlier.iter();
        ended
            .filter(|(_, logged)| logged.succeeded || !self.again)
            .map(|(id, _)| TaskId(*id))
            .filter(|id| self.book.plan.find(*id).is_some())
    }

    /// Refuses to leave out what was something else in the earlier run.
    pub(super) fn check_log(&self) -> Result<()> {
        let gone = self.earlier.iter().filter(|(id, logged)| {
            (logged.succeeded || !self.again) && self.book.plan.find(TaskId(**id)).is_none()
        });
        if let Some(id) = gone.map(|(id, _)| *id).min() {
            bail!(
                "task {id} of the job log is not in the job file any more: resume with the same job file, or begin a \
                 new log"
            );
        }
        let mut left_out: Vec<TaskId> = self.left_out().collect();
        left_out.sort_unstable();
        left_out
            .into_iter()
            .try_for_each(|id| self.earlier[&id.0].check(id.0, &self.command(id)))
    }

    fn everything(&mut self) -> JobRequest {
        self.given = true;
        let number = |id: TaskId| Numbers {
            first: id.0,
            last: id.0,
        };
        let done: Vec<Numbers> = self.left_out().map(number).collect();
        self.total = self.book.file.count() - done.len() as u64;
        JobRequest {
            done,
            // Nobody comes later.
            when_unplaceable: Unplaceable::Refuse,
            ..self.book.file.request.clone()
        }
    }

    fn command(&self, id: TaskId) -> TaskCommand {
        let planned = self.book.plan.find(id).expect("it was planned");
        let definition = self.book.definition(planned.definition);
        let entry = definition.entries.as_ref();
        let entry = entry.and_then(|entries| entries.text(planned.entry));
        TaskCommand {
            recipe: Arc::clone(&self.recipes[planned.definition]),
            items: entry.map(OsString::from).into_iter().collect(),
            sequence: planned.entry + 1,
            input: None,
        }
    }

    /// Every task that is to run, in the order of the file.
    pub(super) fn each(&self) -> impl Iterator<Item = (TaskId, TaskCommand)> {
        let left_out: HashSet<TaskId> = self.left_out().collect();
        (1..=self.book.file.count())
            .map(TaskId)
            .filter(move |id| !left_out.contains(id))
            .map(|id| (id, self.command(id)))
    }
}

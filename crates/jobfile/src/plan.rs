//! Which task has which number.

use std::collections::HashMap;

use loxley_api::JobRequest;
use loxley_model::TaskId;

use crate::job::JobFile;

/// Every task of a job with its number: entry `e` of definition `d` is `first[d] + e`.
#[derive(Clone, Debug)]
pub struct Plan {
    first: Vec<u64>,
    by_name: HashMap<String, usize>,
    end: u64,
}

/// A task as its place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Which of [`JobRequest::tasks`].
    pub definition: usize,
    /// Which of its entries, counted from 0.
    pub entry: u64,
}

impl Plan {
    /// Numbers the tasks of a job, from `first` on.
    #[must_use]
    pub fn new(job: &JobRequest, first: TaskId) -> Self {
        let mut next = first.0;
        let by_name = job.tasks.iter().enumerate();
        let by_name = by_name
            .filter_map(|(at, task)| Some((task.name.clone()?, at)))
            .collect();
        let first = job
            .tasks
            .iter()
            .map(|task| {
                let this = next;
                next += task.count();
                this
            })
            .collect();
        Self {
            first,
            by_name,
            end: next,
        }
    }

    /// The number of an entry.
    #[must_use]
    pub fn id(&self, planned: Planned) -> TaskId {
        TaskId(self.first[planned.definition] + planned.entry)
    }

    /// Which task has this number.
    #[must_use]
    pub fn find(&self, id: TaskId) -> Option<Planned> {
        if id.0 >= self.end {
            return None;
        }
        let definition = self.first.partition_point(|first| *first <= id.0);
        let definition = definition.checked_sub(1)?;
        let entry = id.0 - self.first[definition];
        Some(Planned { definition, entry })
    }

    /// What a task waits for.
    #[must_use]
    pub fn dependencies(&self, job: &JobRequest, planned: Planned) -> Vec<TaskId> {
        let task = &job.tasks[planned.definition];
        let all = task.depends_on.iter();
        let all = all.flat_map(|other| self.ids(job, self.by_name[other]));
        let own = task.depends_on_each.iter().map(|other| {
            self.id(Planned {
                definition: self.by_name[other],
                entry: planned.entry,
            })
        });
        all.chain(own).collect()
    }

    fn ids(&self, job: &JobRequest, definition: usize) -> impl Iterator<Item = TaskId> + use<> {
        let first = self.first[definition];
        (first..first + job.tasks[definition].count()).map(TaskId)
    }
}

impl JobFile {
    /// What people call a task: its name, with its entry if it is one of an array.
    #[must_use]
    pub fn title(&self, planned: Planned) -> String {
        let task = &self.request.tasks[planned.definition];
        let name = task.name.as_deref().unwrap_or_default();
        let entries = task.entries.as_ref();
        match entries.and_then(|entries| entries.text(planned.entry)) {
            Some(entry) => format!("{name} {entry}"),
            None => name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_numbered_one_after_the_other_and_found_again() {
        let file = crate::parse(
            "tasks:\n  - {name: a, command: x}\n  - {name: b, array: 5-7, command: x}\n  \
             - {name: none, each: [], command: x}\n  - {name: c, command: x, after: [b, none]}\n  \
             - {name: d, array: 1-3, command: x, after: [a], after_each: [b]}\n",
        )
        .unwrap();
        let plan = Plan::new(&file.request, TaskId(10));
        for (id, title) in [(10, "a"), (12, "b 6"), (14, "c"), (17, "d 3")] {
            let planned = plan.find(TaskId(id)).unwrap();
            assert_eq!(file.title(planned), title);
            assert_eq!(plan.id(planned), TaskId(id));
        }
        assert_eq!((plan.find(TaskId(9)), plan.find(TaskId(18))), (None, None));
        let waits = |id: u64| {
            let planned = plan.find(TaskId(id)).unwrap();
            let ids = plan.dependencies(&file.request, planned);
            ids.iter().map(|id| id.0).collect::<Vec<_>>()
        };
        assert_eq!(waits(14), [11, 12, 13]);
        assert_eq!(waits(16), [10, 12]);
    }
}

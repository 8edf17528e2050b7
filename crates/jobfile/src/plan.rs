//! From a job file to tasks for the scheduler.

use std::sync::Arc;

use loxley_model::{AgentId, AgentSpec, Dispatch, Fallback, TaskId, TaskKind, TaskSpec, Time};

use crate::entries::Entries;
use crate::job::{FallbackDef, JobFile, TaskDef};
use crate::names::NameTable;

/// Every task of a file with its number: entry `e` of definition `d` is `first[d] + e`.
#[derive(Clone, Debug)]
pub struct Plan {
    first: Vec<u64>,
    end: u64,
}

/// A task as its place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Which of [`JobFile::tasks`].
    pub definition: usize,
    /// Which of its entries, counted from 0.
    pub entry: u64,
}

impl Plan {
    /// Numbers the tasks of a file, from `first` on.
    #[must_use]
    pub fn new(file: &JobFile, first: TaskId) -> Self {
        let mut next = first.0;
        let first = file
            .tasks
            .iter()
            .map(|task| {
                let this = next;
                next += task.count();
                this
            })
            .collect();
        Self { first, end: next }
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
        // Of several definitions that begin here, all but the last have no entries.
        let definition = self.first.partition_point(|first| *first <= id.0);
        let definition = definition.checked_sub(1)?;
        let entry = id.0 - self.first[definition];
        Some(Planned { definition, entry })
    }

    /// The specifications of all tasks, for one submission at `now`.
    pub fn specs(&self, file: &JobFile, now: Time, names: &mut NameTable) -> Vec<TaskSpec> {
        let mut specs = Vec::new();
        for (definition, task) in file.tasks.iter().enumerate() {
            let kind = Arc::new(kind(task, names));
            let common: Vec<TaskId> = task
                .after
                .iter()
                .flat_map(|other| self.ids(file, *other))
                .collect();
            for entry in 0..task.count() {
                specs.push(self.spec(task, Planned { definition, entry }, &kind, &common, now));
            }
        }
        specs
    }

    fn spec(
        &self,
        task: &TaskDef,
        planned: Planned,
        kind: &Arc<TaskKind>,
        common: &[TaskId],
        now: Time,
    ) -> TaskSpec {
        let entry = planned.entry;
        let same_entry = |other: &usize| {
            self.id(Planned {
                definition: *other,
                entry,
            })
        };
        TaskSpec {
            priority: task.traits.priority,
            cost: task.traits.cost,
            deadline: task.traits.deadline.map(|deadline| now + deadline),
            dependencies: common
                .iter()
                .copied()
                .chain(task.after_each.iter().map(same_entry))
                .collect(),
            fallback: match &task.fallback {
                None => Fallback::None,
                Some(FallbackDef::Value(_)) => Fallback::Value,
                Some(FallbackDef::Task(other)) => Fallback::Task(same_entry(other)),
            },
            ..TaskSpec::new(self.id(planned), Arc::clone(kind))
        }
    }

    fn ids(&self, file: &JobFile, definition: usize) -> impl Iterator<Item = TaskId> + use<> {
        let first = self.first[definition];
        (first..first + file.tasks[definition].count()).map(TaskId)
    }
}

fn kind(task: &TaskDef, names: &mut NameTable) -> TaskKind {
    let traits = &task.traits;
    TaskKind {
        skills: names.skill_set(&traits.skills),
        needs: names.amounts(&traits.needs),
        group: traits.group.as_deref().map(|group| names.group(group)),
        time_limit: traits.time_limit,
        hold_limit: traits.hold_limit,
        retry: traits.retry,
        speculate: traits.speculate,
        checkpoints: traits.checkpoint,
    }
}

impl JobFile {
    /// The agents of a local run as they register, numbered from 0 in the order of the file.
    pub fn agent_specs(&self, names: &mut NameTable) -> Vec<AgentSpec> {
        (0..)
            .zip(&self.agents)
            .map(|(number, agent)| AgentSpec {
                slots: agent.slots,
                speed: agent.speed,
                resources: names.amounts(&agent.has),
                dispatch: Dispatch::KeepFull,
                ..AgentSpec::new(AgentId(number), names.skill_set(&agent.skills))
            })
            .collect()
    }

    /// What people call a task: its name, with its entry if it is one of an array.
    #[must_use]
    pub fn title(&self, planned: Planned) -> String {
        let task = &self.tasks[planned.definition];
        match task
            .entries
            .as_ref()
            .and_then(|entries: &Entries| entries.get(planned.entry))
        {
            Some(entry) => format!("{} {entry}", task.name),
            None => task.name.clone(),
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
        let plan = Plan::new(&file, TaskId(10));
        for (id, title) in [(10, "a"), (12, "b 6"), (14, "c"), (17, "d 3")] {
            let planned = plan.find(TaskId(id)).unwrap();
            assert_eq!(file.title(planned), title);
            assert_eq!(plan.id(planned), TaskId(id));
        }
        assert_eq!((plan.find(TaskId(9)), plan.find(TaskId(18))), (None, None));
        let specs = plan.specs(&file, Time::ZERO, &mut NameTable::default());
        let ids: Vec<u64> = specs.iter().map(|spec| spec.id.0).collect();
        assert_eq!(ids, (10..18).collect::<Vec<_>>());
        let waits = |at: usize| {
            specs[at]
                .dependencies
                .iter()
                .map(|id| id.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(waits(4), [11, 12, 13]);
        assert_eq!(waits(6), [10, 12]);
    }
}

//! Tasks come in, are cancelled, and get another chance.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loxley_model::{JobId, TaskId, Time};
use loxley_policy::{Input, Selection, SubmitError as CoreSubmitError};

use super::Scheduler;
use crate::error::{LimitError, NotDeadLettered, SubmitError, SubmitProblem, UnknownTask};
use crate::state::{Entry, State};
use crate::task::{Job, Name, Task, TaskKey, TaskRef};

/// What was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The job, to cancel it whole.
    pub job: JobId,
    /// The tasks, in the order of the batch.
    pub tasks: Vec<TaskId>,
}

/// A task that left the scheduler with its agent, or that failed for good.
#[derive(Clone, Debug)]
pub struct Leftover<T> {
    /// Which task it was.
    pub task: TaskRef,
    /// Its description, without dependencies, locality and fallback. Submitting the description of
    /// a task that left with its agent brings that task back, under the name and number it had, and
    /// whatever depends on it goes on.
    pub description: Task,
    /// What was submitted with it.
    pub payload: Arc<T>,
    /// What its last failed attempt said.
    pub message: Option<Arc<str>>,
}

/// Submitting.
impl<T: Send + Sync + 'static> Scheduler<T> {
    /// Submits one task. A task that no registered agent can do is refused; use
    /// [`Job::hold`] with [`submit_batch`](Self::submit_batch) to let it wait.
    pub fn submit(&self, task: Task, payload: T) -> Result<TaskId, SubmitError> {
        let submitted = self.submit_batch(&Job::new(), [(task, payload)])?;
        Ok(submitted.tasks[0])
    }

    /// Submits one task to the queue of a certain agent. It may still be stolen from there.
    pub fn submit_to(&self, agent: &str, task: Task, payload: T) -> Result<TaskId, SubmitError> {
        let submitted = self.submit_batch(&Job::new().onto(agent), [(task, payload)])?;
        Ok(submitted.tasks[0])
    }

    /// Submits several tasks: all are accepted or none. They may depend on each other by name, in
    /// any order.
    pub fn submit_batch(
        &self,
        job: &Job,
        tasks: impl IntoIterator<Item = (Task, T)>,
    ) -> Result<Submitted, SubmitError> {
        let (tasks, payloads): (Vec<Task>, Vec<Arc<T>>) = tasks
            .into_iter()
            .map(|(task, payload)| (task, Arc::new(payload)))
            .unzip();
        self.submit_shared(job, &tasks, &payloads)
    }

    pub(crate) fn submit_shared(
        &self,
        job: &Job,
        tasks: &[Task],
        payloads: &[Arc<T>],
    ) -> Result<Submitted, SubmitError> {
        if tasks.is_empty() {
            return Err(SubmitError::of(SubmitProblem::Empty));
        }
        let refs = self.number(tasks);
        let mut problems = Vec::new();
        for (task, task_ref) in tasks.iter().zip(&refs) {
            task.check(task_ref, &mut problems);
        }
        if !problems.is_empty() {
            return Err(SubmitError { problems });
        }
        let job_id = JobId(self.shared.next_job.fetch_add(1, Ordering::Relaxed));
        self.shared
            .with(|state, now| accept(state, now, job_id, job, tasks, refs, payloads))
    }

    /// Numbers for new tasks. A number is used up even if the submission is refused.
    fn number(&self, tasks: &[Task]) -> Vec<TaskRef> {
        let count = tasks.len() as u64;
        let first = self.shared.next_task.fetch_add(count, Ordering::Relaxed);
        let name = |task: &Task| task.name.as_deref().map(|name| Name::from(name.trim()));
        tasks
            .iter()
            .zip(first..)
            .map(|(task, number)| TaskRef {
                id: TaskId(number),
                name: name(task),
            })
            .collect()
    }

    /// Cancels a task, running or not.
    pub fn cancel(&self, task: impl Into<TaskKey>) -> Result<(), UnknownTask> {
        let key = task.into();
        self.shared.with(|state, now| {
            let Some(id) = state.directory.task_id(&key) else {
                return Err(UnknownTask(key));
            };
            let answer = state.feed(now, Input::CancelRequested(Selection::Task(id)));
            match answer.rejected {
                None => Ok(()),
                Some(_) => Err(UnknownTask(key)),
            }
        })
    }

    /// Cancels what is left of a job. False when nothing was.
    pub fn cancel_job(&self, job: JobId) -> bool {
        let answer = self.feed(Input::CancelRequested(Selection::Job(job)));
        answer.rejected.is_none()
    }

    /// Cancels everything.
    pub fn cancel_all(&self) {
        self.feed(Input::CancelRequested(Selection::All));
    }

    /// At most this many tasks of the group run at once in the whole fleet.
    pub fn limit_group(&self, group: &str, limit: u32) -> Result<(), LimitError> {
        self.shared.with(|state, now| {
            let id = state.directory.group(group)?;
            let input = Input::GroupLimitSet { group: id, limit };
            match state.feed(now, input).rejected {
                None => Ok(()),
                Some(_) => Err(LimitError::Zero(group.into())),
            }
        })
    }

    /// A user's share of the fleet is proportional to this weight; 1 when never said.
    pub fn weigh_user(&self, user: &str, weight: u32) -> Result<(), LimitError> {
        self.shared.with(|state, now| {
            let id = state.directory.user(user)?;
            let input = Input::UserWeightSet { user: id, weight };
            match state.feed(now, input).rejected {
                None => Ok(()),
                Some(_) => Err(LimitError::Zero(user.into())),
            }
        })
    }

    /// Runs a rebalancing pass now and says how many tasks it moved.
    pub fn rebalance_now(&self) -> u32 {
        self.feed(Input::RebalanceRequested).moved
    }

    /// Tasks that failed and can be tried again.
    #[must_use]
    pub fn dead_letters(&self) -> Vec<Leftover<T>> {
        let state = self.shared.lock();
        state
            .dead
            .iter()
            .map(|(task, entry)| leftover(&state, *task, entry.copy()))
            .collect()
    }

    /// Gives a task on the dead-letter list another chance, with all its retries.
    pub fn resubmit(&self, task: impl Into<TaskKey>) -> Result<(), NotDeadLettered> {
        let key = task.into();
        self.shared.with(|state, now| {
            let known = state.directory.task_id(&key);
            let Some(id) = known.filter(|id| state.dead.contains_key(id)) else {
                return Err(NotDeadLettered(key));
            };
            revive(state, now, vec![id]);
            Ok(())
        })
    }

    /// Gives everything on the dead-letter list another chance, and says how many tasks those are.
    pub fn resubmit_all(&self) -> usize {
        self.shared.with(|state, now| {
            let dead: Vec<TaskId> = state.dead.keys().copied().collect();
            let count = dead.len();
            if count > 0 {
                revive(state, now, dead);
            }
            count
        })
    }
}

/// Hands a checked batch to the core, and keeps its names and payloads if it is accepted.
fn accept<T>(
    state: &mut State<T>,
    now: Time,
    job_id: JobId,
    job: &Job,
    tasks: &[Task],
    mut refs: Vec<TaskRef>,
    payloads: &[Arc<T>],
) -> Result<Submitted, SubmitError> {
    if state.stopped {
        return Err(SubmitError::of(SubmitProblem::Stopped));
    }
    for (task, task_ref) in tasks.iter().zip(&mut refs) {
        let again = task.again.filter(|id| state.returned.contains(id));
        task_ref.id = again.unwrap_or(task_ref.id);
    }
    let refs = refs;
    let job_spec = state
        .directory
        .job_spec(job_id, job)
        .map_err(SubmitError::of)?;
    let mut problems = Vec::new();
    let described: Vec<_> = refs.iter().cloned().zip(tasks).collect();
    let specs = state.directory.task_specs(now, &described, &mut problems);
    if !problems.is_empty() {
        return Err(SubmitError { problems });
    }
    // The core may start tasks while it takes them in, so everything is in place before.
    state.directory.keep_task_names(refs.iter().cloned());
    for (spec, payload) in specs.iter().zip(payloads) {
        let entry = Entry {
            payload: Arc::clone(payload),
            kept: spec.into(),
            message: None,
        };
        state.tasks.insert(spec.id, entry);
    }
    let input = Input::TasksSubmitted {
        job: job_spec,
        tasks: specs.into(),
    };
    let Some(errors) = state.feed(now, input).refused else {
        for task in &refs {
            state.returned.remove(&task.id);
        }
        return Ok(Submitted {
            job: job_id,
            tasks: refs.iter().map(|task| task.id).collect(),
        });
    };
    let problems = errors
        .iter()
        .map(|error| in_names(state, job, error))
        .collect();
    for task in &refs {
        state.tasks.remove(&task.id);
        if !state.returned.contains(&task.id) {
            state.directory.forget_task(task);
        }
    }
    Err(SubmitError { problems })
}

/// What the core says of a submission, with the user's names.
fn in_names<T>(state: &State<T>, job: &Job, error: &CoreSubmitError) -> SubmitProblem {
    let name = |task: &TaskId| state.task_ref(*task);
    match error {
        CoreSubmitError::DuplicateTask(task) => SubmitProblem::Duplicate(name(task)),
        CoreSubmitError::UnknownDependency { task, dependency } => {
            SubmitProblem::UnknownDependency {
                task: name(task),
                dependency: dependency.into(),
            }
        }
        CoreSubmitError::FailedDependency { task, dependency } => SubmitProblem::FailedDependency {
            task: name(task),
            dependency: name(dependency),
        },
        CoreSubmitError::Cycle(tasks) => SubmitProblem::Cycle(tasks.iter().map(name).collect()),
        CoreSubmitError::DeadlinePassed(task) => SubmitProblem::DeadlinePassed(name(task)),
        CoreSubmitError::BadFallback { task, fallback } => SubmitProblem::BadFallback {
            task: name(task),
            fallback: match state.task_ref(*fallback).name {
                Some(name) => (*name).into(),
                None => fallback.into(),
            },
        },
        CoreSubmitError::NoCapableAgent(task) => SubmitProblem::NoCapableAgent(name(task)),
        CoreSubmitError::NotCapable { task, agent } => SubmitProblem::NotCapable {
            task: name(task),
            agent: match &job.onto {
                Some(agent) => agent.as_str().into(),
                None => state.directory.agent_name(*agent),
            },
        },
        CoreSubmitError::ForeignJob { .. } => unreachable!("every submission is a job of its own"),
    }
}

pub(super) fn leftover<T>(state: &State<T>, task: TaskId, entry: Entry<T>) -> Leftover<T> {
    let task = state.task_ref(task);
    Leftover {
        description: state.directory.describe(&task, &entry.kept),
        task,
        payload: entry.payload,
        message: entry.message,
    }
}

/// Takes tasks off the dead-letter list.
fn revive<T>(state: &mut State<T>, now: Time, tasks: Vec<TaskId>) {
    for task in &tasks {
        let entry = state.dead.remove(task).expect("was looked up");
        state.tasks.insert(*task, entry);
    }
    let answer = state.feed(now, Input::DeadLettersResubmitted(tasks));
    assert!(
        answer.rejected.is_none(),
        "the core does not know its own dead letters: {:?}",
        answer.rejected
    );
}

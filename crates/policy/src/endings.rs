//! How tasks end: with success, by failing for good, by being cancelled. Also what comes before the
//! last of these: retries, fallbacks, deadlines.

use alloc::sync::Arc;
use alloc::vec::Vec;

use loxley_balance::Delay;
use loxley_model::{
    DependencyFailure, Failure, Fallback, JobSpec, Locality, Priority, Span, TaskId, TaskKind,
    TaskSpec, Time,
};

use crate::id_table::Known;
use crate::input::Selection;
use crate::leases::Held;
use crate::refs::{JobRef, TaskRef};
use crate::scheduler::{reject, report};
use crate::tasks::{Gone, NO_EDGE, State};
use crate::timers::Alarm;
use crate::{Action, CancelReason, Ending, InputError, Report, Scheduler};

/// A task that failed for good, kept so that it can be given another chance.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct DeadLetter {
    pub(crate) job: JobSpec,
    pub(crate) kind: Arc<TaskKind>,
    pub(crate) priority: Priority,
    pub(crate) cost: Option<Span>,
    pub(crate) locality: Option<Locality>,
}

/// How many dead letters are kept; then the oldest ids go.
const DEAD_LETTERS_MAX: usize = 100_000;

impl Scheduler {
    /// Ends a task, and then whatever ends because of it. What waited for them is ready now. A task that an
    /// agent still has to end is over when that has.
    pub(crate) fn end_task(&mut self, task: TaskRef, ending: Ending, actions: &mut Vec<Action>) {
        let (mut ended, mut ready) = (Vec::new(), Vec::new());
        let mut next = Some((task, ending));
        // A list, not recursion: a chain may be a million tasks long.
        while let Some((task, ending)) = next {
            if self.take_off(task, ending, actions) {
                self.end_one(task, ending, &mut ended, &mut ready, actions);
            }
            next = ended.pop();
        }
        if !ready.is_empty() {
            self.put_in_order(&mut ready);
            for task in ready {
                self.make_ready(task);
            }
        }
        if !self.derived.probes.is_empty() {
            self.marks.release_held();
        }
        // Large tasks may have all slots when there are no small ones.
        let counts = &self.derived.counts;
        if counts.small == 0 && counts.queued > 0 {
            self.marks.look_again();
        }
    }

    fn end_one(
        &mut self,
        place: TaskRef,
        ending: Ending,
        ended: &mut Vec<(TaskRef, Ending)>,
        ready: &mut Vec<TaskRef>,
        actions: &mut Vec<Action>,
    ) {
        self.note_deadline_at_end(place);
        let task = self.remove(place);
        let succeeded = matches!(ending, Ending::Succeeded { .. } | Ending::FellBack { .. });
        self.facts.totals.count(ending);
        if ending == Ending::Returned {
            // Whoever has it may submit it again; its dependents wait for that.
            self.facts.ids.set(task.id, Known::Unused);
            if task.dependents != NO_EDGE {
                self.facts.orphans.insert(task.id, task.dependents);
            }
        } else {
            self.facts.ids.set(task.id, Known::Over { succeeded });
            if task.dependents != NO_EDGE {
                self.tell_dependents(task.dependents, succeeded, ended, ready);
            }
        }
        if task.extra.is_some() {
            self.end_fallbacks(&task, ending, ended);
        }
        if let Ending::Failed(_) = ending {
            self.bury(&task);
        }
        let (place, task) = (task.job, task.id);
        let this = &mut self.facts.jobs[place];
        this.live -= 1;
        let (job, is_over) = (this.spec.id, this.live == 0);
        report(Report::Finished { task, job, ending }, actions);
        if is_over {
            self.facts.jobs.remove(place);
            self.derived.job_of.remove(job.0);
            report(Report::JobFinished { job }, actions);
        }
    }

    fn tell_dependents(
        &mut self,
        dependents: u32,
        succeeded: bool,
        ended: &mut Vec<(TaskRef, Ending)>,
        ready: &mut Vec<TaskRef>,
    ) {
        for dependent in self.facts.edges.take(dependents) {
            // A dependent that is over already left an edge behind; it does not count any more.
            let Some(this) = self.facts.tasks.get_mut(dependent.task) else {
                continue;
            };
            if this.arrival as u32 != dependent.arrival {
                continue;
            }
            this.dependencies_left -= 1;
            if succeeded {
                if this.dependencies_left == 0 && this.state == State::Waiting && !this.doomed {
                    ready.push(dependent.task);
                }
            } else {
                let ending = match self.facts.jobs[this.job].spec.dependency_failure {
                    DependencyFailure::Fail => Ending::Failed(Failure::Dependency),
                    DependencyFailure::Skip => Ending::Cancelled,
                };
                self.doom(dependent.task, ending, ended);
            }
        }
    }

    /// Notes that a task ends because of another one, unless that is noted.
    fn doom(&mut self, task: TaskRef, ending: Ending, ended: &mut Vec<(TaskRef, Ending)>) {
        if !core::mem::replace(&mut self.facts.tasks[task].doomed, true) {
            ended.push((task, ending));
        }
    }

    /// Ends a task for which this one stood in, and a fallback that is not needed any more.
    fn end_fallbacks(&mut self, task: &Gone, ending: Ending, ended: &mut Vec<(TaskRef, Ending)>) {
        let Some(extra) = &task.extra else { return };
        if let Some(primary) = extra.stands_in_for.and_then(|id| self.facts.ids.live(id))
            && self.facts.tasks[primary].state == State::Delegated
        {
            let ending = match ending {
                Ending::Succeeded { .. } | Ending::FellBack { .. } => {
                    Ending::FellBack { to: Some(task.id) }
                }
                Ending::Failed(_) => Ending::Failed(Failure::TimeLimit),
                Ending::Cancelled | Ending::Returned => Ending::Cancelled,
            };
            self.doom(primary, ending, ended);
        }
        if let Fallback::Task(fallback) = extra.fallback
            && let Some(fallback) = self.facts.ids.live(fallback)
        {
            // It stood by, or it stood in and nobody waits for its result any more.
            self.doom(fallback, Ending::Cancelled, ended);
        }
    }

    /// Takes a task off whatever it is on: an agent, a queue, the held list. False when an agent has yet to say
    /// that nothing is left of it; then the ending is kept until it does.
    fn take_off(&mut self, task: TaskRef, ending: Ending, actions: &mut Vec<Action>) -> bool {
        match self.facts.tasks[task].state {
            State::Queued => {
                self.forget_probe(task);
                self.unqueue(task);
            }
            State::Held => self.unhold(task),
            State::Leased | State::Running => {
                self.forget_probe(task);
                if self.facts.tasks[task].copy().is_some() {
                    self.call_off(task, Held::Copy, CancelReason::Requested, actions);
                }
                self.call_off(task, Held::First, CancelReason::Requested, actions);
                return self.is_free(task, ending);
            }
            // Whoever has it says when nothing is left of it.
            State::Away => {
                self.facts.tasks[task].extra_mut().ending = Some(ending);
                return false;
            }
            State::Waiting | State::Backoff | State::Standby | State::Delegated => {}
        }
        true
    }

    /// Whether a task has no lease. If it has one, it ends like this when it has none.
    fn is_free(&mut self, task: TaskRef, ending: Ending) -> bool {
        let this = &mut self.facts.tasks[task];
        if !this.has_lease() {
            return true;
        }
        let decided = &mut this.extra_mut().ending;
        // A result that is here stays, whoever changes their mind.
        if !matches!(decided, Some(Ending::Succeeded { .. })) {
            *decided = Some(ending);
        }
        false
    }

    /// Ends a task whose other copy, if it has one, was called off.
    pub(crate) fn end_when_free(
        &mut self,
        task: TaskRef,
        ending: Ending,
        actions: &mut Vec<Action>,
    ) {
        if self.is_free(task, ending) {
            self.end_task(task, ending, actions);
        }
    }

    /// An attempt failed: tries again, falls back, or gives up.
    pub(crate) fn attempt_failed(
        &mut self,
        task: TaskRef,
        failure: Failure,
        actions: &mut Vec<Action>,
    ) {
        let this = &mut self.facts.tasks[task];
        let failures = &mut this.extra_mut().failures;
        *failures = failures.saturating_add(1);
        let (failures, id) = (u32::from(*failures), this.id);
        let rule = self.facts.classes.kind_at(this.kind).spec.retry;
        if failure != Failure::Permanent && failures <= rule.retries {
            let cap = rule.cap.max(rule.base).0;
            let delay =
                Delay::new(rule.base.0, 2.0, cap, 0.5).expect("the cap is not below the base");
            let at = self.facts.now + Span(delay.ns(failures - 1, &mut self.facts.rng));
            self.facts.tallies.retries += 1;
            self.set_state(task, State::Backoff);
            self.facts.tasks[task].extra_mut().retry_at = at;
            self.facts.timers.set(at, Alarm::Retry(id));
            return report(
                Report::WillRetry {
                    task: id,
                    failure,
                    at,
                },
                actions,
            );
        }
        if failure == Failure::TimeLimit && self.fall_back(task, actions) {
            return;
        }
        self.end_task(task, Ending::Failed(failure), actions);
    }

    fn fall_back(&mut self, task: TaskRef, actions: &mut Vec<Action>) -> bool {
        match self.facts.tasks[task]
            .extra
            .as_ref()
            .map_or(Fallback::None, |extra| extra.fallback)
        {
            Fallback::None => false,
            Fallback::Value => {
                self.end_task(task, Ending::FellBack { to: None }, actions);
                true
            }
            Fallback::Task(fallback) => {
                let Some(fallback) = self.facts.ids.live(fallback) else {
                    return false;
                };
                if self.facts.tasks[fallback].state != State::Standby {
                    return false;
                }
                self.set_state(task, State::Delegated);
                self.set_state(fallback, State::Waiting);
                if self.facts.tasks[fallback].dependencies_left == 0 {
                    self.make_ready(fallback);
                }
                true
            }
        }
    }

    pub(crate) fn retry_due(&mut self, task: TaskId) {
        let Some(task) = self.facts.ids.live(task) else {
            return;
        };
        let due = self.facts.tasks[task]
            .extra
            .as_ref()
            .is_some_and(|extra| extra.retry_at <= self.facts.now);
        if self.facts.tasks[task].state == State::Backoff && due {
            self.set_state(task, State::Waiting);
            self.mark_ready(task, None);
        }
    }

    pub(crate) fn hold_limit_due(&mut self, task: TaskId, actions: &mut Vec<Action>) {
        let Some(task) = self.facts.ids.live(task) else {
            return;
        };
        if self.facts.tasks[task].state == State::Held {
            self.end_task(task, Ending::Failed(Failure::Unassignable), actions);
        }
    }

    /// The last moment at which a task can start and still make its deadline: at the fastest agent there is.
    fn latest_start(&self, task: TaskRef) -> Time {
        let this = &self.facts.tasks[task];
        let top = self.derived.fleet.top_speed().unwrap_or(1.0).max(1.0);
        let cost = this.known_cost().unwrap_or(Span::ZERO);
        this.deadline() - cost.mul_f64(1.0 / top)
    }

    /// Sets the alarm for the last moment at which a task can start and still make its deadline.
    pub(crate) fn watch_deadline(&mut self, task: TaskRef, actions: &mut Vec<Action>) {
        let latest = self.latest_start(task);
        let alarm = Alarm::Deadline(self.facts.tasks[task].id);
        self.facts.timers.set(latest.max(self.facts.now), alarm);
        if latest < self.facts.now {
            self.report_deadline_lost(task, actions);
        }
    }

    fn report_deadline_lost(&mut self, task: TaskRef, actions: &mut Vec<Action>) {
        let this = &self.facts.tasks[task];
        let extra = this.extra.as_ref();
        if extra.is_some_and(|extra| extra.deadline_reported) {
            return;
        }
        let (id, deadline) = (this.id, this.deadline());
        self.step_back(task);
        report(Report::DeadlineLost { task: id, deadline }, actions);
    }

    pub(crate) fn deadline_due(&mut self, id: TaskId, actions: &mut Vec<Action>) {
        let Some(task) = self.facts.ids.live(id) else {
            return;
        };
        let deadline = self.facts.tasks[task].deadline();
        let runs = self.facts.tasks[task].state == State::Running;
        let latest = self.latest_start(task);
        let may_start = !runs && self.facts.now < latest;
        if self.facts.now >= deadline || !(runs || may_start) {
            self.report_deadline_lost(task, actions);
        }
        if self.facts.now < deadline {
            // Whoever came since may be faster than all who were there.
            let next = if may_start { latest } else { deadline };
            self.facts.timers.set(next, Alarm::Deadline(id));
        }
    }

    fn note_deadline_at_end(&mut self, task: TaskRef) {
        if self.facts.now > self.facts.tasks[task].deadline() {
            self.facts.tallies.deadline_misses += 1;
        }
    }

    pub(crate) fn cancel(&mut self, selection: Selection, actions: &mut Vec<Action>) {
        match selection {
            Selection::Task(id) => match self.facts.ids.live(id) {
                Some(task) => self.end_task(task, Ending::Cancelled, actions),
                None => reject(InputError::UnknownTask(id), actions),
            },
            Selection::Job(id) => match self.find_job(id) {
                Some(job) => self.cancel_job(job, actions),
                None => reject(InputError::UnknownJob(id), actions),
            },
            Selection::All => {
                let jobs: Vec<JobRef> = self.derived.job_of.iter().map(|(_, job)| job).collect();
                for job in jobs {
                    self.cancel_job(job, actions);
                }
            }
        }
    }

    fn cancel_job(&mut self, job: JobRef, actions: &mut Vec<Action>) {
        let spec = self.facts.jobs[job].spec;
        let ids = self.facts.jobs[job].task_ids();
        // The dependents first: they are cancelled too, not failed for want of what is cancelled.
        for id in ids.into_iter().rev() {
            if self.find_job(spec.id) != Some(job) {
                return;
            }
            if let Some(task) = self.facts.ids.live(id)
                && self.facts.tasks[task].job == job
            {
                self.end_as_cancelled(task, actions);
            }
        }
    }

    /// Cancels a task, and its dependents as cancelled whatever their job says of failed ones.
    fn end_as_cancelled(&mut self, task: TaskRef, actions: &mut Vec<Action>) {
        let job = self.facts.tasks[task].job;
        let rule = core::mem::replace(
            &mut self.facts.jobs[job].spec.dependency_failure,
            DependencyFailure::Skip,
        );
        let id = self.facts.jobs[job].spec.id;
        self.end_task(task, Ending::Cancelled, actions);
        if self.find_job(id) == Some(job) {
            self.facts.jobs[job].spec.dependency_failure = rule;
        }
    }

    fn bury(&mut self, task: &Gone) {
        let locality = task.extra.as_ref().and_then(|extra| extra.locality);
        self.facts.dead.insert(
            task.id,
            DeadLetter {
                job: self.facts.jobs[task.job].spec,
                kind: Arc::clone(&self.facts.classes.kind_at(task.kind).spec),
                priority: task.priority,
                cost: task.cost,
                locality,
            },
        );
        if self.facts.dead.len() > DEAD_LETTERS_MAX {
            self.facts.dead.pop_first();
        }
    }

    /// Gives tasks on the dead-letter list another chance. What they depended on is over.
    pub(crate) fn resubmit(&mut self, tasks: &[TaskId], actions: &mut Vec<Action>) {
        let all: Vec<TaskId> = self.facts.dead.keys().copied().collect();
        for id in if tasks.is_empty() { &all } else { tasks } {
            self.resubmit_one(*id, &[], actions);
        }
    }

    /// Gives a task on the dead-letter list another chance, after these.
    pub(crate) fn resubmit_one(&mut self, id: TaskId, after: &[TaskId], actions: &mut Vec<Action>) {
        let Some(letter) = self.facts.dead.remove(&id) else {
            reject(InputError::NotDeadLettered(id), actions);
            return;
        };
        self.facts.ids.set(id, Known::Unused);
        self.facts.totals.failed -= 1;
        self.facts.totals.submitted -= 1;
        let spec = TaskSpec {
            priority: letter.priority,
            cost: letter.cost,
            locality: letter.locality,
            dependencies: after.into(),
            ..TaskSpec::new(id, letter.kind)
        };
        let job = JobSpec {
            unplaceable: loxley_model::Unplaceable::Hold,
            onto: None,
            ..letter.job
        };
        self.submit(job, &[spec], actions);
    }

    /// The tasks that failed for good and can be given another chance.
    pub fn dead_letters(&self) -> impl Iterator<Item = TaskId> {
        self.facts.dead.keys().copied()
    }
}

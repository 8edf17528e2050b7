//! The loop around the deciding core.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use loxley_model::{JobSpec, Lease, TaskId, TaskSpec, Time};
use loxley_policy::{Action, Config, Input, Report, Scheduler, SubmitError};

use crate::leases::{Held, Leases};

/// The core, what it decided and nobody has carried out yet, and who holds what.
///
/// Facts go in with [`tell`](Self::tell); [`next_action`](Self::next_action) gives out what follows from
/// them, one decision after the other, until nothing is left. Whoever asks is the carrier. A fact that
/// comes up while it carries out (an agent gave a task back at once, say) is told
/// [`later`](Self::later): after everything that was decided before.
#[derive(Debug)]
pub struct Driver {
    scheduler: Scheduler,
    leases: Leases,
    now: Time,
    /// What the core decided, in its order.
    decided: Vec<Action>,
    /// What is being given out, the next one last.
    ready: Vec<Action>,
    later: VecDeque<Input>,
}

impl Driver {
    /// A driver of a new core.
    #[must_use]
    pub fn new(config: Config, now: Time) -> Self {
        Self::with(Scheduler::new(config, now), Leases::default(), now)
    }

    /// A driver that goes on with a core that was here before, and with the leases it had given out.
    #[must_use]
    pub fn with(scheduler: Scheduler, leases: Leases, now: Time) -> Self {
        Self {
            scheduler,
            leases,
            now,
            decided: Vec::new(),
            ready: Vec::new(),
            later: VecDeque::new(),
        }
    }

    /// The core, to be asked.
    #[must_use]
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Who holds what.
    #[must_use]
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// When the core wants to be told that time has passed.
    #[must_use]
    pub fn next_timer(&self) -> Option<Time> {
        self.scheduler.next_timer()
    }

    /// Whether the core waits for the time to be told.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        self.next_timer().is_some_and(|at| at <= now)
    }

    /// The time of the last fact.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Whether everything that was decided has been given out.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.decided.is_empty() && self.ready.is_empty() && self.later.is_empty()
    }

    /// Has what is needed to hear that these tasks started or ended fetched from memory, for all at once. For
    /// whoever has many answers at hand before they are told one by one; it changes nothing.
    pub fn warm_caches(&self, tasks: impl Iterator<Item = TaskId>) {
        self.scheduler.warm_caches(tasks);
    }

    /// Tells the core a fact.
    pub fn tell(&mut self, now: Time, input: Input) {
        self.now = now;
        if self.is_settled() {
            self.leases.forget_ended();
        }
        self.hand_over(input);
    }

    /// As [`tell`](Self::tell), of tasks that were submitted: says whether the core took them. What else
    /// follows is given out with the rest, the refusal too.
    ///
    /// # Errors
    /// What is wrong with them; then nothing has changed.
    pub fn submit(
        &mut self,
        now: Time,
        job: JobSpec,
        tasks: Arc<[TaskSpec]>,
    ) -> Result<(), &[SubmitError]> {
        let before = self.decided.len();
        self.tell(now, Input::TasksSubmitted { job, tasks });
        let refused = self.decided[before..]
            .iter()
            .find_map(|action| match action {
                Action::Report(Report::Refused { errors, .. }) => Some(&**errors),
                _ => None,
            });
        refused.map_or(Ok(()), Err)
    }

    /// Tells the core a fact once everything that was decided so far is carried out.
    pub fn later(&mut self, input: Input) {
        self.later.push_back(input);
    }

    /// The next thing to be carried out. None when all is done.
    pub fn next_action(&mut self) -> Option<Action> {
        while self.ready.is_empty() {
            if self.decided.is_empty() {
                let input = self.later.pop_front()?;
                self.hand_over(input);
            }
            core::mem::swap(&mut self.decided, &mut self.ready);
            self.ready.reverse();
        }
        let action = self.ready.pop()?;
        self.note(&action);
        Some(action)
    }

    fn hand_over(&mut self, input: Input) {
        match &input {
            Input::TaskStarted { lease, .. } => self.leases.start(*lease, self.now),
            Input::TaskFinished { lease, .. }
            | Input::TaskYielded {
                lease,
                yielded: true,
                ..
            } => self.leases.end(*lease),
            _ => {}
        }
        self.scheduler.handle(self.now, input, &mut self.decided);
    }

    fn note(&mut self, action: &Action) {
        match *action {
            Action::Assign {
                task,
                agent,
                lease,
                attempt,
                ..
            } => self.insert(lease, task, agent, attempt),
            Action::Cancel {
                lease,
                awaited: false,
                ..
            } => self.leases.end(lease),
            _ => {}
        }
    }

    fn insert(&mut self, lease: Lease, task: TaskId, agent: loxley_model::AgentId, attempt: u32) {
        let held = Held {
            task,
            agent,
            attempt,
            started: None,
        };
        self.leases.insert(lease, held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loxley_model::{AgentId, AgentSpec, Dispatch, JobId, Outcome, SkillSet, TaskId, TaskKind};

    fn driver() -> Driver {
        let mut driver = Driver::new(Config::default(), Time::ZERO);
        let agent = AgentSpec {
            dispatch: Dispatch::KeepFull,
            ..AgentSpec::new(AgentId(1), SkillSet::none())
        };
        driver.tell(Time::ZERO, Input::AgentJoined(agent.into()));
        while driver.next_action().is_some() {}
        driver
    }

    fn task(id: u64) -> Arc<[TaskSpec]> {
        [TaskSpec::new(TaskId(id), Arc::new(TaskKind::default()))].into()
    }

    fn first_lease(driver: &mut Driver) -> Lease {
        let mut found = None;
        while let Some(action) = driver.next_action() {
            if let Action::Assign { lease, .. } = action {
                found.get_or_insert(lease);
            }
        }
        found.expect("an idle agent gets the task")
    }

    #[test]
    fn it_is_due_when_the_time_of_the_core_has_come() {
        let driver = driver();
        let at = driver.next_timer().expect("it looks around at intervals");
        assert!(driver.is_due(at));
        assert!(!driver.is_due(Time(at.0 - 1)));
    }

    #[test]
    fn it_is_settled_when_all_that_was_decided_is_given_out() {
        let mut driver = driver();
        assert!(driver.is_settled());
        let job = JobSpec::new(JobId(1));
        assert!(driver.submit(Time(1), job, task(1)).is_ok());
        assert!(!driver.is_settled());
        while driver.next_action().is_some() {}
        assert!(driver.is_settled());
        driver.later(Input::Tick);
        assert!(!driver.is_settled());
    }

    #[test]
    fn a_lease_is_held_from_its_assignment_to_its_end() {
        let mut driver = driver();
        let job = JobSpec::new(JobId(1));
        assert!(driver.submit(Time(1), job, task(1)).is_ok());
        assert!(driver.leases().is_empty(), "nobody carried it out yet");
        let lease = first_lease(&mut driver);
        let held = *driver.leases().held_by(AgentId(1), lease).expect("held");
        assert_eq!((held.task, held.started), (TaskId(1), None));
        assert!(driver.leases().held_by(AgentId(2), lease).is_none());
        let task = TaskId(1);
        driver.tell(Time(5), Input::TaskStarted { task, lease });
        while driver.next_action().is_some() {}
        let started = driver.leases().get(lease).and_then(|held| held.started);
        assert_eq!(started, Some(Time(5)));
        let outcome = Outcome::Succeeded;
        driver.tell(
            Time(9),
            Input::TaskFinished {
                task,
                lease,
                outcome,
            },
        );
        assert!(driver.leases().is_free(AgentId(1)));
        let ended = driver.leases().just_ended(task);
        assert_eq!(ended.map(|(_, held)| held.attempt), Some(1));
        while driver.next_action().is_some() {}
        driver.tell(Time(10), Input::Tick);
        assert!(driver.leases().just_ended(task).is_none(), "old news");
    }

    #[test]
    fn what_is_told_later_comes_after_all_that_was_decided() {
        let mut driver = driver();
        let job = JobSpec::new(JobId(1));
        assert!(driver.submit(Time(1), job, task(1)).is_ok());
        let job = JobSpec::new(JobId(2));
        driver.later(Input::TasksSubmitted {
            job,
            tasks: task(2),
        });
        let mut accepted = Vec::new();
        while let Some(action) = driver.next_action() {
            if let Action::Report(Report::Accepted { job, .. }) = action {
                accepted.push((job.0, driver.leases().len()));
            }
        }
        assert_eq!(accepted, [(1, 0), (2, 1)]);
        assert!(driver.is_settled());
    }

    #[test]
    fn a_refusal_is_told_at_once_and_given_out_too() {
        let mut driver = driver();
        let job = JobSpec::new(JobId(1));
        assert!(driver.submit(Time(1), job, task(1)).is_ok());
        let again = driver.submit(Time(1), job, task(1)).map_err(<[_]>::len);
        assert_eq!(again, Err(1));
        let mut refused = 0;
        while let Some(action) = driver.next_action() {
            refused += u32::from(matches!(action, Action::Report(Report::Refused { .. })));
        }
        assert_eq!(refused, 1);
    }
}

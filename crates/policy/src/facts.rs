//! What a scheduler has to remember: everything else follows from it.
//!
//! Decisions depend on these facts and on the inputs alone. So a snapshot is the facts as they are, and
//! going on from one is working the rest out anew ([`Derived::of`](crate::derived::Derived::of)), as a
//! new scheduler does from no facts at all.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};

use loxley_balance::Rng;
use loxley_model::{AgentId, DataKey, TaskId, Time};

use crate::agents::Agents;
use crate::dependencies::Edges;
use crate::endings::DeadLetter;
use crate::forecast::Forecasts;
use crate::id_table::IdTable;
use crate::jobs::Jobs;
use crate::limits::Limits;
use crate::metrics::{Tallies, Totals};
use crate::queue::Sort;
use crate::refs::AgentRef;
use crate::task_classes::{AdmissionClass, TaskClasses, class_bit};
use crate::tasks::{State, Task, Tasks};
use crate::timers::{Alarm, Timers};
use crate::{Config, ForecastState};

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Facts {
    pub(crate) config: Config,
    pub(crate) now: Time,
    pub(crate) announced: Option<Time>,
    #[cfg_attr(feature = "serde", serde(with = "chance"))]
    pub(crate) rng: Rng,
    /// How many leases were given.
    pub(crate) leases: u64,
    /// How many tasks came.
    pub(crate) arrivals: u64,
    pub(crate) tasks: Tasks,
    pub(crate) ids: IdTable,
    pub(crate) edges: Edges,
    /// Dependents of tasks that were returned: they wait for it to be submitted again.
    pub(crate) orphans: BTreeMap<TaskId, u32>,
    pub(crate) classes: TaskClasses,
    pub(crate) agents: Agents,
    pub(crate) jobs: Jobs,
    pub(crate) limits: Limits,
    pub(crate) timers: Timers,
    /// Where data was last used.
    pub(crate) locations: BTreeMap<DataKey, AgentId>,
    /// Agents that run a slow task for whose second copy nobody had room. Some may be done with it.
    pub(crate) overdue: BTreeSet<AgentRef>,
    pub(crate) dead: BTreeMap<TaskId, DeadLetter>,
    /// The mean of all costs that were declared, or else learned of the kind, later ones counting more, in nanoseconds.
    pub(crate) mean_cost: f64,
    pub(crate) totals: Totals,
    pub(crate) tallies: Tallies,
    /// Kept apart in what is stored: see [`Snapshot::forecasts`].
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) forecasts: Forecasts,
}

impl Facts {
    /// Nothing has happened yet.
    pub(crate) fn new(config: Config, now: Time) -> Self {
        let mut timers = Timers::default();
        timers.set(now + config.thresholds.rebalance_interval, Alarm::Rebalance);
        timers.set(
            now + config.metrics.utilization_sample_interval,
            Alarm::Sample,
        );
        let mut forecasts = Forecasts::default();
        if config.forecast.enabled {
            forecasts.begin(now, &config.forecast);
            timers.set(forecasts.next_step(&config.forecast), Alarm::Forecast);
        }
        Self {
            rng: Rng::new(config.seed),
            tallies: Tallies::new(&config.metrics),
            config,
            now,
            announced: None,
            leases: 0,
            arrivals: 0,
            tasks: Tasks::default(),
            ids: IdTable::default(),
            edges: Edges::default(),
            orphans: BTreeMap::new(),
            classes: TaskClasses::default(),
            agents: Agents::default(),
            jobs: Jobs::default(),
            limits: Limits::default(),
            timers,
            locations: BTreeMap::new(),
            overdue: BTreeSet::new(),
            dead: BTreeMap::new(),
            mean_cost: 0.0,
            totals: Totals::default(),
            forecasts,
        }
    }

    pub(crate) fn admission_class_of(&self, task: &Task) -> &AdmissionClass {
        self.classes.admission_class(task.admission_class)
    }

    /// Where on a queue a task belongs.
    pub(crate) fn sort_of(&self, task: &Task) -> Sort {
        sort_of(&self.classes, self.config.guards.max_moves, task)
    }

    /// Whether all that these facts speak of is there. What was not made here is refused, not stumbled
    /// over.
    fn check(&self) -> Result<(), SnapshotError> {
        let unknown = |what| Err(SnapshotError::Unknown(what));
        let classes = &self.classes;
        let is_class = |class: &AdmissionClass| {
            class.capability.index() < classes.class_count()
                && class.user.index() < self.limits.user_count()
        };
        if !classes.admission_classes().iter().all(is_class) {
            return unknown("a class of task or a user");
        }
        let kinds = (0..classes.kind_count()).map(crate::refs::KindRef::new);
        if !kinds
            .into_iter()
            .all(|kind| classes.kind_at(kind).durations.is_whole())
        {
            return unknown("a duration");
        }
        let is_job = |job: &crate::jobs::Job| job.user.index() < self.limits.user_count();
        if !self.jobs.vacancies_agree() || !self.jobs.iter().all(|(_, job)| is_job(job)) {
            return unknown("a user");
        }
        if !self.agents.places_agree() {
            return unknown("an agent");
        }
        let mut followed = self.forecasts.classes();
        if !followed.all(|class| class.index() < classes.admission_classes().len()) {
            return unknown("a kind of work");
        }
        if self.tallies.histogram.len() != self.tallies.bounds.len() + 1 {
            return unknown("a bucket");
        }
        if !self.tasks.vacancies_agree() {
            return unknown("a place of a task");
        }
        let agents = self.limits.agents().chain(self.overdue.iter().copied());
        if !agents
            .into_iter()
            .all(|agent| agent.index() < self.agents.places())
        {
            return unknown("an agent");
        }
        for (_, task) in self.tasks.iter() {
            self.check_task(task)?;
        }
        let is_live = |id, place| self.tasks.get(place).is_some_and(|task| task.id == id);
        if !self.ids.agrees(is_live, self.tasks.len()) {
            return unknown("a task");
        }
        if !self
            .orphans
            .values()
            .all(|first| self.edges.is_list(*first))
        {
            return unknown("a dependent");
        }
        let live: u64 = self.jobs.iter().map(|(_, job)| u64::from(job.live)).sum();
        let balanced = live == self.tasks.len() as u64 && live == self.totals.live();
        balanced.then_some(()).ok_or(SnapshotError::Unbalanced)
    }

    fn check_task(&self, task: &Task) -> Result<(), SnapshotError> {
        let unknown = |what| Err(SnapshotError::Unknown(what));
        if self.jobs.get(task.job).is_none() {
            return unknown("a job");
        }
        if task.kind.index() >= self.classes.kind_count() {
            return unknown("a kind of task");
        }
        if task.admission_class.index() >= self.classes.admission_classes().len() {
            return unknown("an admission class");
        }
        let placed = matches!(task.state, State::Queued | State::Leased | State::Running);
        let copy = task.copy().map(|copy| copy.agent);
        let mut holders = placed.then_some(task.agent).into_iter().chain(copy);
        if holders.any(|agent| self.agents.get(agent).is_none()) {
            return unknown("an agent");
        }
        let has_arrived = (1..=self.arrivals).contains(&task.arrival);
        if !has_arrived || task.arrival <= u64::from(task.position) {
            return unknown("an arrival");
        }
        if !self.edges.is_list(task.dependents) {
            return unknown("a dependent");
        }
        Ok(())
    }
}

/// Where on a queue a task belongs.
pub(crate) fn sort_of(classes: &TaskClasses, moves_max: u32, task: &Task) -> Sort {
    Sort {
        admission_class: task.admission_class,
        settled: u32::from(task.moves) >= moves_max,
        class_bit: class_bit(classes.admission_class(task.admission_class).capability),
    }
}

/// The state of a [`Scheduler`](crate::Scheduler) between two inputs. Made by
/// [`Scheduler::snapshot`](crate::Scheduler::snapshot); with the feature `serde` it can be stored.
///
/// Left out is the series of utilization samples: it may be large, decides nothing, and begins anew. What is known of
/// arrivals is stored apart ([`forecasts`](Self::forecasts)): earlier versions did not have it.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Snapshot(pub(crate) Box<Facts>);

impl Snapshot {
    /// The rules of forecasts and what is known of arrivals, to be stored beside the snapshot.
    #[must_use]
    pub fn forecasts(&self) -> ForecastState {
        ForecastState::new(self.0.config.forecast, self.0.forecasts.clone())
    }

    /// Puts back what was stored beside the snapshot. Without it, nothing is forecast.
    pub fn set_forecasts(&mut self, state: ForecastState) {
        (self.0.config.forecast, self.0.forecasts) = state.into_parts();
    }

    /// The facts, if they are whole.
    pub(crate) fn checked(self) -> Result<Facts, SnapshotError> {
        self.0.check()?;
        Ok(*self.0)
    }
}

/// Why a snapshot cannot be gone on from: it was not made by this version of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// One fact speaks of something that no other fact knows.
    #[error("the snapshot speaks of {0} that is not in it")]
    Unknown(&'static str),
    /// The numbers of tasks do not add up.
    #[error("the counts of the snapshot do not add up")]
    Unbalanced,
}

/// The generator of chance, as numbers.
#[cfg(feature = "serde")]
mod chance {
    use loxley_balance::Rng;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(rng: &Rng, serializer: S) -> Result<S::Ok, S::Error> {
        rng.to_words().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Rng, D::Error> {
        Ok(Rng::from_words(Deserialize::deserialize(from)?))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use loxley_model::{AgentSpec, JobId, JobSpec, SkillSet, TaskKind, TaskSpec};

    use super::*;
    use crate::{Input, Scheduler};

    fn snapshot() -> Snapshot {
        let mut scheduler = Scheduler::new(Config::default(), Time::ZERO);
        let mut actions = Vec::new();
        let agent = AgentSpec::new(AgentId(4), SkillSet::none());
        scheduler.handle(Time(1), Input::AgentJoined(agent.into()), &mut actions);
        let tasks = [7, 8].map(|id| TaskSpec::new(TaskId(id), TaskKind::default().into()));
        let job = JobSpec::new(JobId(1));
        let tasks = tasks.into();
        scheduler.handle(Time(2), Input::TasksSubmitted { job, tasks }, &mut actions);
        scheduler.snapshot()
    }

    fn refused(change: impl FnOnce(&mut Facts)) -> SnapshotError {
        let mut snapshot = snapshot();
        change(&mut snapshot.0);
        Scheduler::restore(snapshot).expect_err("it is not whole any more")
    }

    #[test]
    fn a_snapshot_is_restored_whole_or_not_at_all() {
        use crate::refs::{JobRef, TaskRef};
        let restored = Scheduler::restore(snapshot()).expect("it is whole");
        assert_eq!(
            restored.queue_of(AgentId(4)),
            Some([TaskId(7), TaskId(8)].into())
        );
        let unknown = SnapshotError::Unknown;
        let first = TaskRef::new(0);
        let refuse = |change: fn(&mut Task)| refused(|facts| change(&mut facts.tasks[first]));
        assert_eq!(refuse(|t| t.job = JobRef::new(9)), unknown("a job"));
        assert_eq!(refuse(|t| t.agent = AgentRef::new(1)), unknown("an agent"));
        assert_eq!(refuse(|t| t.dependents = 5), unknown("a dependent"));
        assert_eq!(refuse(|t| t.arrival = 3), unknown("an arrival"));
        assert_eq!(refuse(|t| t.id = TaskId(9)), unknown("a task"));
        let user = refused(|facts| facts.jobs[JobRef::new(0)].user = crate::refs::UserRef::new(1));
        assert_eq!(user, unknown("a user"));
        let no_classes = refused(|facts| facts.classes = TaskClasses::default());
        assert_eq!(no_classes, unknown("a kind of task"));
        let gone = refused(|facts| drop(facts.tasks.remove(first)));
        assert_eq!(gone, unknown("a task"));
        let more = refused(|facts| facts.totals.submitted += 1);
        assert_eq!(more, SnapshotError::Unbalanced);
    }
}

//! Tasks come in: all of a submission, or none.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use loxley_model::{
    AgentId, Fallback, JobId, JobSpec, Lease, Priority, Span, TaskId, TaskSpec, Time, Unplaceable,
};
use smallvec::SmallVec;

use crate::dependencies::{Dependent, Graph, name_circle};
use crate::id_table::Known;
use crate::refs::{AdmissionClassRef, AgentRef, ClassRef, JobRef, KindRef, TaskRef, UserRef};
use crate::scheduler::report;
use crate::task_classes::AdmissionTraits;
use crate::tasks::{Extra, NO_CHAIN, NO_EDGE, State, Task};
use crate::{Action, Reason, Report, Scheduler, SubmitError};

/// How many errors of one submission are reported.
const ERRORS_MAX: usize = 100;

/// What was found out while a submission was checked.
#[derive(Default)]
pub(crate) struct Checked {
    /// Dependencies within the submission, none if there are no edges.
    graph: Option<Graph>,
    /// The length of the longest chain from each task, its own cost included; empty without edges, if all cost
    /// the same as far as anybody knows.
    chains: Vec<u64>,
    /// Edges from earlier tasks: position of the task, and what it waits for.
    earlier: Vec<(u32, TaskRef)>,
    /// Fallback tasks: position of the fallback, and the id of the task it stands in for.
    standbys: Vec<(u32, TaskId)>,
    /// Whether nobody asked for anything but to have the tasks done.
    is_plain: bool,
}

impl Scheduler {
    pub(crate) fn submit(&mut self, job: JobSpec, tasks: &[TaskSpec], actions: &mut Vec<Action>) {
        let mut checked = Checked::default();
        if self.check_submission(&job, tasks, &mut checked, actions) {
            self.accept(job, tasks, &checked, actions);
        }
    }

    /// Whether all is well with a submission. Reports why it is not.
    pub(crate) fn check_submission(
        &mut self,
        job: &JobSpec,
        tasks: &[TaskSpec],
        checked: &mut Checked,
        actions: &mut Vec<Action>,
    ) -> bool {
        let mut errors = Vec::new();
        if let Some(known) = self.find_job(job.id) {
            let owner = self.facts.jobs[known].spec.user;
            if owner != job.user {
                errors.push(SubmitError::ForeignJob { job: job.id, owner });
            }
        }
        let glance = self.glance_at(tasks);
        checked.is_plain = is_free(job) && glance.are_plain;
        // Most tasks come under fresh ids and ask for nothing that could be wrong.
        if !(checked.is_plain && glance.are_new && glance.are_consecutive) {
            let positions = Positions::new(tasks, glance.are_consecutive);
            self.check_ids(tasks, &positions, &mut errors);
            if !checked.is_plain {
                self.check_wishes(job, tasks, &positions, checked, &mut errors);
            }
        }
        if errors.is_empty() {
            if glance.may_differ && checked.chains.is_empty() {
                checked.chains = self.costs_if_they_differ(tasks);
            }
            return true;
        }
        errors.truncate(ERRORS_MAX);
        let (job, errors) = (job.id, errors.into());
        report(Report::Refused { job, errors }, actions);
        false
    }

    /// Checks all that a submission says besides ids.
    #[inline(never)]
    fn check_wishes(
        &mut self,
        job: &JobSpec,
        tasks: &[TaskSpec],
        positions: &Positions,
        checked: &mut Checked,
        errors: &mut Vec<SubmitError>,
    ) {
        let pairs = self.check_dependencies(tasks, positions, checked, errors);
        self.check_each(job, tasks, positions, checked, errors);
        if !errors.is_empty() || pairs.is_empty() {
            return;
        }
        let graph = Graph::new(tasks.len(), &pairs);
        match graph.order() {
            Ok(order) => {
                let costs: Vec<u64> = tasks.iter().map(|task| self.likely_cost(task)).collect();
                checked.chains = graph.longest_chains(&order, |at| costs[at]);
                checked.graph = Some(graph);
            }
            Err(circle) => {
                errors.push(SubmitError::Cycle(name_circle(&circle, |at| tasks[at].id)));
            }
        }
    }

    /// What can be told of all tasks in one walk: a submission may be larger than any cache.
    fn glance_at(&self, tasks: &[TaskSpec]) -> Glance {
        let first = tasks.first().map_or(0, |task| task.id.0);
        let mut glance = Glance {
            are_consecutive: first.checked_add(tasks.len() as u64).is_some(),
            are_new: true,
            are_plain: true,
            may_differ: false,
        };
        let mut last = tasks.first();
        for (at, task) in (0..).zip(tasks) {
            glance.are_consecutive &= task.id.0 == first.wrapping_add(at);
            glance.are_new &= self.facts.ids.known(task.id) == Known::Unused;
            glance.are_plain &= is_plain(task);
            let like_last = |last: &TaskSpec| {
                last.cost == task.cost
                    && (last.cost.is_some() || Arc::ptr_eq(&last.kind, &task.kind))
            };
            glance.may_differ |= !last.replace(task).is_some_and(like_last);
        }
        glance
    }

    fn check_ids(&self, tasks: &[TaskSpec], positions: &Positions, errors: &mut Vec<SubmitError>) {
        errors.extend(positions.repeated().map(SubmitError::DuplicateTask));
        let known = tasks
            .iter()
            .filter(|task| self.facts.ids.known(task.id) != Known::Unused);
        errors.extend(
            known
                .map(|task| SubmitError::DuplicateTask(task.id))
                .take(ERRORS_MAX),
        );
    }

    /// Sorts dependencies into those within the submission, which are returned, and earlier ones.
    fn check_dependencies(
        &self,
        tasks: &[TaskSpec],
        positions: &Positions,
        checked: &mut Checked,
        errors: &mut Vec<SubmitError>,
    ) -> Vec<(u32, u32)> {
        let mut pairs = Vec::new();
        for (at, task) in (0_u32..).zip(tasks) {
            for dependency in &task.dependencies {
                if let Some(other) = positions.find(*dependency) {
                    pairs.push((at, other));
                    continue;
                }
                let (task, dependency) = (task.id, *dependency);
                match self.facts.ids.known(dependency) {
                    Known::Live(earlier) => checked.earlier.push((at, earlier)),
                    Known::Over { succeeded: true } => {}
                    Known::Over { succeeded: false } => {
                        errors.push(SubmitError::FailedDependency { task, dependency });
                    }
                    Known::Unused => {
                        errors.push(SubmitError::UnknownDependency { task, dependency });
                    }
                }
            }
            if errors.len() >= ERRORS_MAX {
                break;
            }
        }
        pairs
    }

    fn check_each(
        &mut self,
        job: &JobSpec,
        tasks: &[TaskSpec],
        positions: &Positions,
        checked: &mut Checked,
        errors: &mut Vec<SubmitError>,
    ) {
        for task in tasks {
            if task
                .deadline
                .is_some_and(|deadline| deadline <= self.facts.now)
            {
                errors.push(SubmitError::DeadlinePassed(task.id));
            }
            if let Fallback::Task(fallback) = task.fallback {
                match positions.find(fallback).filter(|_| fallback != task.id) {
                    Some(at) if checked.standbys.iter().all(|(other, _)| *other != at) => {
                        checked.standbys.push((at, task.id));
                    }
                    _ => errors.push(SubmitError::BadFallback {
                        task: task.id,
                        fallback,
                    }),
                }
            }
            if let Some(agent) = job.onto {
                if !self.agent_can(agent, task) {
                    errors.push(SubmitError::NotCapable {
                        task: task.id,
                        agent,
                    });
                }
            } else if job.unplaceable == Unplaceable::Refuse && !self.anyone_can(task) {
                errors.push(SubmitError::NoCapableAgent(task.id));
            }
            if errors.len() >= ERRORS_MAX {
                return;
            }
        }
    }

    fn agent_can(&mut self, agent: AgentId, task: &TaskSpec) -> bool {
        let class = self.class_of_spec(task);
        let Some(agent) = self.derived.fleet.find(agent) else {
            return false;
        };
        self.is_capable(class, self.facts.agents[agent].cohort)
    }

    fn anyone_can(&mut self, task: &TaskSpec) -> bool {
        let class = self.class_of_spec(task);
        !self.capable(class).is_empty()
    }

    fn class_of_spec(&mut self, task: &TaskSpec) -> ClassRef {
        let strict = self.is_urgent(task.priority);
        let index = &mut self.derived.index;
        index.class(&mut self.facts.classes, &task.kind, strict)
    }

    pub(crate) fn is_urgent(&self, priority: Priority) -> bool {
        priority >= self.facts.config.priority.high_priority_threshold
    }

    /// What a task is expected to cost: as declared, else as its kind did lately, else the mean.
    fn likely_cost(&mut self, spec: &TaskSpec) -> u64 {
        let known = spec.cost.or_else(|| {
            let kind = self.derived.index.kind(&mut self.facts.classes, &spec.kind);
            self.facts.classes.kind_at(kind).durations.median()
        });
        known.map_or(self.facts.mean_cost.max(1.0) as u64, |cost| cost.0)
    }

    /// What puts the tasks of a submission in order: what each is expected to cost; nothing if that is the same for all.
    /// The longest come first then: what is long and starts last, everybody waits for.
    #[inline(never)]
    fn costs_if_they_differ(&mut self, tasks: &[TaskSpec]) -> Vec<u64> {
        let mut costs: Vec<u64> = tasks.iter().map(|task| self.likely_cost(task)).collect();
        let differ = costs.windows(2).any(|pair| pair[0] != pair[1]);
        if !differ {
            return Vec::new();
        }
        let end = self.likely_end(&costs);
        let longest = costs.iter().copied().max().unwrap_or(0);
        for (cost, task) in costs.iter_mut().zip(tasks) {
            if task.deadline.is_some_and(|deadline| deadline < end) {
                // Not all of them will be in time. The longest first would make many short ones late; with the shortest
                // first, as many as possible are in time.
                *cost = longest - *cost;
            }
        }
        costs
    }

    /// When all that is queued or in hand and tasks of these costs would have ended, if every slot were busy until then.
    fn likely_end(&self, costs: &[u64]) -> Time {
        let counts = &self.derived.counts;
        let before = (counts.queued + counts.leased + counts.started) as f64;
        let all =
            before * self.facts.mean_cost + costs.iter().map(|cost| *cost as f64).sum::<f64>();
        let slots = self.derived.fleet.total_slots.max(1);
        self.facts.now + Span((all / slots as f64) as u64)
    }

    fn accept(
        &mut self,
        job: JobSpec,
        specs: &[TaskSpec],
        checked: &Checked,
        actions: &mut Vec<Action>,
    ) {
        if checked.is_plain {
            return self.accept_plain(job, specs, &checked.chains, actions);
        }
        let mut places = self.insert_all(job, specs, checked, actions);
        if checked.has_links() {
            places.retain(|task| {
                let this = &self.facts.tasks[*task];
                this.state == State::Waiting && this.dependencies_left == 0
            });
        }
        if !checked.chains.is_empty() {
            self.put_in_order(&mut places);
        }
        for task in places {
            self.make_ready(task);
        }
    }

    /// Takes in tasks that wait for nothing.
    fn accept_plain(
        &mut self,
        job: JobSpec,
        specs: &[TaskSpec],
        costs: &[u64],
        actions: &mut Vec<Action>,
    ) {
        let Some(owner) = self.begin_accepting(job, specs.len(), actions) else {
            return;
        };
        if costs.is_empty() {
            for (position, spec) in (0..).zip(specs) {
                let task = self.insert_task(owner, spec, position, 0);
                self.count_arrival(task);
                self.mark_ready(task, None);
            }
            return;
        }
        let specs = (0..).zip(specs).zip(costs);
        let mut places: Vec<TaskRef> = specs
            .map(|((position, spec), cost)| self.insert_task(owner, spec, position, *cost))
            .collect();
        self.put_in_order(&mut places);
        for task in places {
            self.count_arrival(task);
            self.mark_ready(task, None);
        }
    }

    /// A task may run for the first time: that counts for the forecast of its like.
    fn count_arrival(&mut self, task: TaskRef) {
        if self.facts.config.forecast.enabled {
            let class = self.facts.tasks[task].admission_class;
            self.facts.forecasts.arrived(class);
        }
    }

    /// Reports that so many tasks are accepted, and makes room for them. Returns their job and user, if
    /// there are tasks.
    fn begin_accepting(
        &mut self,
        job: JobSpec,
        count: usize,
        actions: &mut Vec<Action>,
    ) -> Option<(JobRef, UserRef)> {
        // Each task will be reported as queued or held.
        actions.reserve(count + 1);
        let (id, tasks) = (job.id, count);
        report(Report::Accepted { job: id, tasks }, actions);
        if count == 0 {
            return None;
        }
        self.facts.tasks.reserve(count);
        let limits = &mut self.facts.limits;
        let user = self.derived.loads.user(limits, job.user);
        let job = self.find_job(job.id).unwrap_or_else(|| {
            let place = self.facts.jobs.insert(job, user);
            self.derived.job_of.insert(job.id.0, place);
            place
        });
        Some((job, user))
    }

    /// Takes checked tasks in and links them. None of them has a place yet.
    pub(crate) fn insert_all(
        &mut self,
        job: JobSpec,
        specs: &[TaskSpec],
        checked: &Checked,
        actions: &mut Vec<Action>,
    ) -> SmallVec<[TaskRef; 4]> {
        let Some(owner) = self.begin_accepting(job, specs.len(), actions) else {
            return SmallVec::new();
        };
        let mut places = SmallVec::with_capacity(specs.len());
        for (position, spec) in (0..).zip(specs) {
            let chain = checked.chains.get(position as usize).copied();
            let place = self.insert_task(owner, spec, position, chain.unwrap_or(0));
            if spec.deadline.is_some() {
                self.watch_deadline(place, actions);
            }
            places.push(place);
        }
        if checked.has_links() {
            self.link(&places, checked);
        }
        places
    }

    fn insert_task(
        &mut self,
        (job, user): (JobRef, UserRef),
        spec: &TaskSpec,
        position: u32,
        chain: u64,
    ) -> TaskRef {
        let kind = self.derived.index.kind(&mut self.facts.classes, &spec.kind);
        let likely = spec
            .cost
            .or_else(|| self.facts.classes.kind_at(kind).durations.median());
        let admission_class = self.admission_class_for(kind, spec.priority, user, likely);
        self.facts.arrivals += 1;
        let dependents = if self.facts.orphans.is_empty() {
            NO_EDGE
        } else {
            self.facts.orphans.remove(&spec.id).unwrap_or(NO_EDGE)
        };
        let place = self.facts.tasks.insert(Task {
            id: spec.id,
            arrival: self.facts.arrivals,
            slack: NO_CHAIN - chain,
            cost: likely.unwrap_or(Span::MAX),
            created: self.facts.now,
            since: self.facts.now,
            assigned: self.facts.now,
            lease: Lease(0),
            reason: Reason::Named,
            extra: extra_of(spec),
            job,
            kind,
            admission_class,
            agent: AgentRef::new(0),
            stamp: 0,
            position,
            dependencies_left: 0,
            dependents,
            attempts: 0,
            moves: 0,
            priority: spec.priority,
            state: State::Waiting,
            doomed: false,
        });
        self.facts.ids.set(spec.id, Known::Live(place));
        self.facts.jobs[job].add(spec.id);
        self.facts.totals.submitted += 1;
        self.derived.counts.waiting += 1;
        self.derived.begin(&self.facts, &self.facts.tasks[place]);
        place
    }

    /// The admission class of a task, large if it is expected to cost many times the mean.
    fn admission_class_for(
        &mut self,
        kind: KindRef,
        priority: Priority,
        user: UserRef,
        cost: Option<Span>,
    ) -> AdmissionClassRef {
        let ratio = f64::from(self.facts.config.quotas.large_task_ratio);
        let cost = cost.map(|cost| cost.0 as f64);
        let large = cost
            .is_some_and(|cost| self.facts.mean_cost > 0.0 && cost > ratio * self.facts.mean_cost);
        if let Some(cost) = cost {
            let step = if self.facts.mean_cost > 0.0 {
                1.0 / 64.0
            } else {
                1.0
            };
            self.facts.mean_cost += (cost - self.facts.mean_cost) * step;
        }
        let traits = AdmissionTraits {
            strict: self.is_urgent(priority),
            large,
            user,
        };
        let index = &mut self.derived.index;
        index.admission_class(&mut self.facts.classes, kind, traits)
    }

    /// Ties the tasks of a submission to what they wait for.
    fn link(&mut self, places: &[TaskRef], checked: &Checked) {
        if let Some(graph) = &checked.graph {
            for (at, place) in places.iter().enumerate() {
                for dependent in graph.dependents(at) {
                    self.add_edge(*place, places[*dependent as usize]);
                }
            }
        }
        for (at, earlier) in &checked.earlier {
            self.add_edge(*earlier, places[*at as usize]);
        }
        for (at, primary) in &checked.standbys {
            let standby = places[*at as usize];
            self.set_state(standby, State::Standby);
            self.facts.tasks[standby].extra_mut().stands_in_for = Some(*primary);
        }
    }

    fn add_edge(&mut self, dependency: TaskRef, dependent: TaskRef) {
        let first = self.facts.tasks[dependency].dependents;
        let arrival = self.facts.tasks[dependent].arrival as u32;
        let edge = Dependent {
            task: dependent,
            arrival,
        };
        self.facts.tasks[dependency].dependents = self.facts.edges.add(first, edge);
        self.facts.tasks[dependent].dependencies_left += 1;
    }

    /// Nothing keeps this task from being placed any more.
    pub(crate) fn make_ready(&mut self, task: TaskRef) {
        self.facts.tasks[task].since = self.facts.now;
        self.count_arrival(task);
        self.mark_ready(task, None);
    }

    pub(crate) fn find_job(&self, id: JobId) -> Option<JobRef> {
        self.derived.job_of.get(id.0)
    }
}

impl Checked {
    /// Whether some of the tasks are tied to others.
    fn has_links(&self) -> bool {
        self.graph.is_some() || !self.earlier.is_empty() || !self.standbys.is_empty()
    }
}

/// Whether a job leaves it to the scheduler where its tasks go, and whether they wait.
fn is_free(job: &JobSpec) -> bool {
    job.onto.is_none() && job.unplaceable == Unplaceable::Hold
}

/// Whether a task waits for nothing and has no deadline and no fallback.
fn is_plain(task: &TaskSpec) -> bool {
    task.dependencies.is_empty() && task.deadline.is_none() && task.fallback == Fallback::None
}

/// What few tasks have, if this one does.
fn extra_of(spec: &TaskSpec) -> Option<Box<Extra>> {
    let has_extra =
        spec.deadline.is_some() || spec.locality.is_some() || spec.fallback != Fallback::None;
    has_extra.then(|| {
        Box::new(Extra {
            deadline: spec.deadline.unwrap_or(Time::MAX),
            locality: spec.locality,
            fallback: spec.fallback,
            ..Extra::default()
        })
    })
}

/// What can be told of a submission at a glance.
struct Glance {
    /// The ids follow each other, as drivers hand them out.
    are_consecutive: bool,
    /// No id was used before; one may be used twice within the submission.
    are_new: bool,
    /// All are plain.
    are_plain: bool,
    /// Some may cost more than others.
    may_differ: bool,
}

/// Where each id of a submission is.
enum Positions {
    /// The ids follow each other, as drivers hand them out.
    Consecutive { first: u64, len: u64 },
    /// Sorted by id.
    Sorted(Vec<(TaskId, u32)>),
}

impl Positions {
    fn new(tasks: &[TaskSpec], are_consecutive: bool) -> Self {
        if are_consecutive {
            let first = tasks.first().map_or(0, |task| task.id.0);
            let len = tasks.len() as u64;
            return Self::Consecutive { first, len };
        }
        let mut sorted: Vec<_> = tasks.iter().map(|task| task.id).zip(0..).collect();
        sorted.sort_unstable();
        Self::Sorted(sorted)
    }

    fn find(&self, id: TaskId) -> Option<u32> {
        match self {
            Self::Consecutive { first, len } => {
                let at = id.0.checked_sub(*first)?;
                (at < *len).then_some(at as u32)
            }
            Self::Sorted(sorted) => {
                let at = sorted.binary_search_by_key(&id, |(id, _)| *id).ok()?;
                Some(sorted[at].1)
            }
        }
    }

    /// Ids that occur more than once.
    fn repeated(&self) -> impl Iterator<Item = TaskId> {
        let sorted: &[(TaskId, u32)] = match self {
            Self::Consecutive { .. } => &[],
            Self::Sorted(sorted) => sorted,
        };
        sorted
            .windows(2)
            .filter(|pair| pair[0].0 == pair[1].0)
            .map(|pair| pair[0].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use loxley_model::TaskKind;

    #[test]
    fn ids_are_found_whether_or_not_they_follow_each_other() {
        let kind: Arc<TaskKind> = Arc::default();
        for (ids, are_consecutive) in [(vec![5, 6, 7], true), (vec![9, 2, 5], false)] {
            let specs: Vec<_> = ids
                .iter()
                .map(|id| TaskSpec::new(TaskId(*id), Arc::clone(&kind)))
                .collect();
            let positions = Positions::new(&specs, are_consecutive);
            for (at, id) in (0..).zip(&ids) {
                assert_eq!(positions.find(TaskId(*id)), Some(at));
            }
            assert_eq!(positions.find(TaskId(100)), None);
            assert_eq!(positions.find(TaskId(0)), None);
        }
    }
}

//! The jobs that are not over, and where their tasks are.
//!
//! A job has *parts*: what a client listed as one task, or as one array. Its tasks have consecutive ids
//! from the first entry of the first part to the last entry of the last, so no task has a record of its
//! own here: an id leads to the job, the part and the position by arithmetic. A large array is fed to the
//! policy in slices; what is not fed yet costs nothing.
//!
//! A job that was submitted as open takes more entries until it is closed: each addition is a part of its own,
//! with ids that are given out then, and is forgotten when all of it is over. So a stream without end costs no
//! more than what is under way of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use loxley_api::{ApiError, Entries, JobRequest, TaskRequest};
use loxley_cluster::shard::ShardId;
use loxley_driver::{Directory, IdMap, data_key};
use loxley_model::{
    Fallback, JobId, JobSpec, JobState, Locality, Priority, Span, TaskId, TaskKind, TaskSpec, Time,
    UserId,
};
use serde::{Deserialize, Serialize};

use crate::keys::Keys;
use crate::names;

/// How many jobs that failed stay in memory so that their tasks can be tried again.
const DORMANT_MAX: usize = 1000;
/// The most edges between the tasks of one job.
const EDGES_MAX: u64 = 1_000_000;
/// The most tasks of a job with edges: all of it is with the policy at once.
const GRAPH_MAX: u64 = 1_000_000;

/// A job.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: JobId,
    pub(crate) user: UserId,
    pub(crate) request: Arc<JobRequest>,
    pub(crate) first: TaskId,
    pub(crate) count: u64,
    pub(crate) parts: Vec<Part>,
    pub(crate) created: Time,
    pub(crate) tally: Tally,
    pub(crate) phase: Phase,
    /// Jobs that must succeed first and are not over.
    pub(crate) waits_for: Vec<JobId>,
    /// Leases of its tasks that are in force.
    pub(crate) leased: u64,
    /// Tasks that are over before they were fed: cancelled, or done before the job came.
    pub(crate) skipped: BTreeSet<TaskId>,
    /// Whether more entries may be added.
    pub(crate) open: bool,
    /// How many entries each of the request's tasks had so far.
    pub(crate) entries: Vec<u64>,
    /// The number after its last task so far.
    pub(crate) end: u64,
}

/// One task or one array of a job.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) first: TaskId,
    pub(crate) count: u64,
    /// How many of them the policy has seen.
    pub(crate) fed: u64,
    /// How many of them are over.
    pub(crate) over: u64,
    /// Whether one of them failed: it may be tried again.
    pub(crate) failed: bool,
    pub(crate) kind: Arc<TaskKind>,
    pub(crate) deadline: Option<Time>,
    /// Which of the tasks of the request it is.
    pub(crate) task: usize,
    /// For entries that were added later.
    pub(crate) added: Option<Arc<Added>>,
    /// For a task of another shard.
    pub(crate) guest: Option<Box<GuestTask>>,
}

impl Part {
    /// What was asked for.
    fn request<'a>(&'a self, job: &'a JobRequest) -> &'a TaskRequest {
        match &self.guest {
            Some(guest) => &guest.request,
            None => &job.tasks[self.task],
        }
    }
}

/// A task of another shard, which is not one of a request that is known here.
#[derive(Debug)]
pub(crate) struct GuestTask {
    pub(crate) request: Arc<TaskRequest>,
    pub(crate) entry: Option<String>,
    pub(crate) number: u64,
    pub(crate) cost: Option<Span>,
}

/// Entries that were added to an array later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Added {
    pub(crate) entries: Entries,
    /// How many entries of the array came before them.
    pub(crate) offset: u64,
    /// What each is expected to cost, if that was said.
    pub(crate) cost: Option<Span>,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// Another job must be over first.
    Waiting,
    /// Its tasks are with the policy, or on their way.
    Open,
    /// It is over, and kept because its failed tasks may be tried again.
    Dormant(JobState, Time),
}

/// How tasks ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
}

impl Tally {
    pub(crate) fn over(&self) -> u64 {
        self.succeeded + self.failed + self.cancelled
    }

    pub(crate) fn state(&self) -> JobState {
        match self {
            Self { failed: 1.., .. } => JobState::Failed,
            Self { cancelled: 1.., .. } => JobState::Cancelled,
            _ => JobState::Succeeded,
        }
    }
}

/// Where a task is within its job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot<'a> {
    pub(crate) job: &'a Job,
    pub(crate) part: &'a Part,
    pub(crate) request: &'a TaskRequest,
    /// From 0, within the part.
    pub(crate) position: u64,
}

impl Spot<'_> {
    /// The text of the task's entry, in an array.
    pub(crate) fn entry(&self) -> Option<String> {
        if let Some(guest) = &self.part.guest {
            return guest.entry.clone();
        }
        let entries = match &self.part.added {
            Some(added) => Some(&added.entries),
            None => self.request.entries.as_ref(),
        };
        entries?.text(self.position)
    }

    /// The place of the entry in its array, from 0, those counted that came before an addition.
    pub(crate) fn number(&self) -> u64 {
        if let Some(guest) = &self.part.guest {
            return guest.number;
        }
        let offset = self.part.added.as_ref().map_or(0, |added| added.offset);
        offset + self.position
    }
}

impl Job {
    /// Its tasks that are in memory, by number.
    pub(crate) fn ids(&self) -> impl Iterator<Item = TaskId> {
        let parts = self.parts.iter();
        parts.flat_map(|part| (part.first.0..part.first.0 + part.count).map(TaskId))
    }

    /// The last task that it has so far.
    pub(crate) fn last(&self) -> TaskId {
        TaskId((self.end - 1).max(self.first.0))
    }

    /// Tasks that the policy has not seen and that nobody cancelled, by number.
    pub(crate) fn unfed(&self) -> impl Iterator<Item = TaskId> {
        let parts = self.parts.iter();
        let unfed = parts.flat_map(|part| part.first.0 + part.fed..part.first.0 + part.count);
        unfed.map(TaskId).filter(|id| !self.skipped.contains(id))
    }

    /// Whether nothing is left to do, and nothing can come.
    pub(crate) fn is_over(&self) -> bool {
        !self.open && self.tally.over() == self.count
    }

    fn part_at(&self, first: TaskId) -> Option<usize> {
        // Of several that begin here, all but the last are empty.
        let at = self.parts.partition_point(|part| part.first <= first);
        let at = at.checked_sub(1)?;
        (self.parts[at].first == first).then_some(at)
    }

    pub(crate) fn state(&self) -> JobState {
        match self.phase {
            Phase::Waiting => JobState::Waiting,
            Phase::Open => JobState::Open,
            Phase::Dormant(state, _) => state,
        }
    }

    /// Tasks that the policy has not seen and that nobody cancelled.
    pub(crate) fn pending(&self) -> u64 {
        let unfed: u64 = self.parts.iter().map(|part| part.count - part.fed).sum();
        unfed - self.skipped.len() as u64
    }

    /// Nothing more of it will be fed. Returns how many tasks that leaves out.
    pub(crate) fn drop_pending(&mut self) -> u64 {
        let pending = self.pending();
        self.skipped.clear();
        for part in &mut self.parts {
            part.fed = part.count;
        }
        pending
    }

    /// A task that failed is tried again.
    pub(crate) fn note_again(&mut self, task: TaskId) {
        let at = self.parts.partition_point(|part| part.first <= task);
        let part = &mut self.parts[at - 1];
        let over = part.over.checked_sub(1);
        part.over = over.expect("what is tried again was over");
        let failed = self.tally.failed.checked_sub(1);
        self.tally.failed = failed.expect("what is tried again had failed");
    }

    /// Books the tasks that were done before the job came.
    fn skip_done(&mut self) {
        for range in &self.request.done {
            let (first, last) = (range.first.max(1), range.last.min(self.count));
            let ids = (first..=last).map(|number| TaskId(self.first.0 + number - 1));
            self.skipped.extend(ids);
        }
        self.tally.succeeded = self.skipped.len() as u64;
        for part in &mut self.parts {
            let ids = part.first..TaskId(part.first.0 + part.count);
            part.over = self.skipped.range(ids).count() as u64;
        }
    }

    pub(crate) fn spot(&self, task: TaskId) -> Option<Spot<'_>> {
        let at = self.parts.partition_point(|part| part.first <= task);
        let part = self.parts.get(at.checked_sub(1)?)?;
        let position = task.0 - part.first.0;
        (position < part.count).then(|| Spot {
            job: self,
            part,
            request: part.request(&self.request),
            position,
        })
    }

    /// What these tasks of it wait for, as the request says.
    pub(crate) fn dependencies(&self, tasks: &[TaskId]) -> Vec<(TaskId, Vec<TaskId>)> {
        let names = self.request.tasks.iter().enumerate();
        let by_name: BTreeMap<&str, &Part> = names
            .filter_map(|(at, task)| Some((task.name.as_deref()?, self.parts.get(at)?)))
            .collect();
        let all = |name: &String| {
            let part = by_name.get(name.as_str()).copied();
            part.map_or(0..0, |part| part.first.0..part.first.0 + part.count)
        };
        let of = |task: &TaskId| {
            let spot = self.spot(*task)?;
            let position = spot.position;
            let common = spot.request.depends_on.iter().flat_map(all).map(TaskId);
            let own = spot.request.depends_on_each.iter();
            let own = own.map(|name| TaskId(all(name).start + position));
            let others = spot.request.depends_on_tasks.iter().copied();
            Some((*task, common.chain(own).chain(others).collect()))
        };
        tasks.iter().filter_map(of).collect()
    }

    /// Whether its tasks refer to each other: then the policy gets all of them at once.
    pub(crate) fn is_graph(&self) -> bool {
        let tasks = &self.request.tasks;
        tasks.iter().any(|task| {
            !task.depends_on.is_empty()
                || !task.depends_on_each.is_empty()
                || !task.depends_on_tasks.is_empty()
                || matches!(task.fallback, Some(loxley_api::FallbackRequest::Task(_)))
        })
    }

    pub(crate) fn spec(&self) -> JobSpec {
        JobSpec {
            user: self.user,
            dependency_failure: self.request.on_dependency_failure,
            unplaceable: self.request.when_unplaceable,
            ..JobSpec::new(self.id)
        }
    }

    fn task_spec(&self, part: usize, position: u64, now: Time) -> TaskSpec {
        let part = &self.parts[part];
        let request = &self.request.tasks[part.task];
        let added = part.added.as_ref().and_then(|added| added.cost);
        let declared = request.cost_sec.and_then(Span::try_from_secs_f64);
        TaskSpec {
            priority: request.priority,
            cost: added.or(declared),
            // A deadline that passed while the array waited is a miss, not a reason to refuse.
            deadline: part.deadline.filter(|deadline| *deadline > now),
            locality: request.near.as_ref().map(|near| Locality {
                key: data_key(&near.data),
                transfer: names::span(near.transfer_sec),
            }),
            fallback: match &request.fallback {
                Some(loxley_api::FallbackRequest::Value(_)) => Fallback::Value,
                _ => Fallback::None,
            },
            ..TaskSpec::new(TaskId(part.first.0 + position), Arc::clone(&part.kind))
        }
    }

    /// Those of its tasks that are numbered in `ids`, as the core is or will be told of them.
    pub(crate) fn specs_of(&self, ids: std::ops::Range<u64>, now: Time) -> Vec<TaskSpec> {
        if self.is_graph() {
            let whole = self.whole(now).unwrap_or_default();
            let mut specs: Vec<TaskSpec> = whole
                .into_iter()
                .filter(|spec| ids.contains(&spec.id.0))
                .collect();
            leave_out(&mut specs, &self.skipped);
            return specs;
        }
        let mut specs = Vec::new();
        for (at, part) in self.parts.iter().enumerate() {
            for position in 0..part.count {
                let id = part.first.0 + position;
                if ids.contains(&id) && !self.skipped.contains(&TaskId(id)) {
                    specs.push(self.task_spec(at, position, now));
                }
            }
        }
        specs
    }

    /// All its tasks with their edges.
    fn whole(&self, now: Time) -> Result<Vec<TaskSpec>, ApiError> {
        let by_name: HashMap<&str, usize> = (0..)
            .zip(&self.request.tasks)
            .filter_map(|(at, task)| Some((task.name.as_deref()?, at)))
            .collect();
        let part_of = |name: &str| &self.parts[by_name[name]];
        let ids = |name: &str| {
            let part = part_of(name);
            (part.first.0..part.first.0 + part.count).map(TaskId)
        };
        // The request was checked: what goes entry by entry has as many entries.
        let same_entry = |name: &str, position: u64| TaskId(part_of(name).first.0 + position);
        let mut edges = 0_u64;
        let mut specs = Vec::with_capacity(self.count as usize);
        for (at, request) in self.request.tasks.iter().enumerate() {
            let common: Vec<TaskId> = request
                .depends_on
                .iter()
                .flat_map(|name| ids(name))
                .chain(request.depends_on_tasks.iter().copied())
                .collect();
            let each = (common.len() + request.depends_on_each.len()) as u64;
            edges += each * self.parts[at].count;
            if edges > EDGES_MAX {
                return Err(ApiError::invalid(format!(
                    "more than {EDGES_MAX} dependencies between the tasks of one job"
                ))
                .with_help("submit the later array as a job of its own, `after` this one"));
            }
            for position in 0..self.parts[at].count {
                let mut spec = self.task_spec(at, position, now);
                let own = request.depends_on_each.iter();
                let own = own.map(|name| same_entry(name, position));
                spec.dependencies = common.iter().copied().chain(own).collect();
                if let Some(loxley_api::FallbackRequest::Task(name)) = &request.fallback {
                    spec.fallback = Fallback::Task(same_entry(name, position));
                }
                specs.push(spec);
            }
        }
        Ok(specs)
    }
}

/// What waits to be fed at one priority.
#[derive(Debug, Default)]
pub(super) struct Level {
    /// Tasks of this priority that are with the policy.
    pub(super) in_policy: u64,
    /// Parts with tasks left, by their first task, first come first served for each user; users take turns.
    pub(super) users: VecDeque<(UserId, VecDeque<(JobId, TaskId)>)>,
}

impl Level {
    fn queue(&mut self, user: UserId, job: JobId, part: &Part) {
        if part.fed == part.count {
            return;
        }
        let place = (job, part.first);
        match self.users.iter_mut().find(|(known, _)| *known == user) {
            Some((_, parts)) => parts.push_back(place),
            None => self.users.push_back((user, [place].into())),
        }
    }
}

/// All jobs.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub(super) jobs: IdMap<JobId, Job>,
    pub(super) by_first_task: BTreeMap<TaskId, JobId>,
    /// The number before those of the first job and the first task.
    pub(super) base: u64,
    /// How jobs that are over ended, by number from `base` on.
    pub(super) ended: Vec<Option<JobState>>,
    pub(super) keys: Keys,
    pub(super) dormant: VecDeque<JobId>,
    /// Who waits for a job.
    pub(super) dependents: IdMap<JobId, Vec<JobId>>,
    pub(super) levels: [Level; Priority::LEVELS],
    /// The last task that has a number.
    pub(super) tasks_given_out: u64,
    /// Jobs of other shards of which tasks are here, each with a part for every such task.
    pub(super) guests: IdMap<JobId, Job>,
}

impl Jobs {
    /// Jobs and tasks whose first numbers come after this one.
    pub(crate) fn counted_from(base: u64) -> Self {
        Self {
            base,
            tasks_given_out: base,
            ..Self::default()
        }
    }

    /// Whether no job was ever accepted.
    pub(crate) fn is_unused(&self) -> bool {
        self.ended.is_empty() && self.tasks_given_out == self.base
    }

    /// The number before the first.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Where `ended` has a job.
    pub(super) fn place(&self, id: JobId) -> Option<usize> {
        usize::try_from(id.0.checked_sub(self.base)?).ok()
    }

    pub(crate) fn get(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.jobs.get_mut(&id)
    }

    /// The job with this number, of this shard or of another one of which tasks are here.
    fn any(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id).or_else(|| self.guests.get(&id))
    }

    /// Puts in a task of another shard.
    pub(crate) fn put_guest(
        &mut self,
        id: JobId,
        user: UserId,
        created: Time,
        request: impl FnOnce() -> JobRequest,
        part: Part,
    ) {
        let first = part.first;
        let job = self.guests.entry(id).or_insert_with(|| Job {
            id,
            user,
            request: Arc::new(request()),
            first,
            count: 0,
            parts: Vec::new(),
            created,
            tally: Tally::default(),
            phase: Phase::Open,
            waits_for: Vec::new(),
            leased: 0,
            skipped: BTreeSet::new(),
            open: false,
            entries: Vec::new(),
            end: first.0 + 1,
        });
        let at = job.parts.partition_point(|known| known.first < first);
        job.parts.insert(at, part);
        job.count += 1;
        self.by_first_task.insert(first, id);
    }

    /// Takes out a task of another shard. Returns its job, if that was the last of it.
    pub(crate) fn remove_guest(&mut self, task: TaskId) -> Option<JobId> {
        let id = self.by_first_task.remove(&task)?;
        let job = self.guests.get_mut(&id)?;
        job.parts.retain(|part| part.first != task);
        job.count = job.parts.len() as u64;
        if !job.parts.is_empty() {
            return None;
        }
        self.guests.remove(&id);
        Some(id)
    }

    /// All that are in memory.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    /// Whether a job is known and not over.
    pub(crate) fn is_open(&self, id: JobId) -> bool {
        let job = self.jobs.get(&id);
        job.is_some_and(|job| !matches!(job.phase, Phase::Dormant(..)))
    }

    /// Jobs that are not over.
    pub(crate) fn open_count(&self) -> u64 {
        (self.jobs.len() - self.dormant.len()) as u64
    }

    /// How a job ended; none when it is not over or was never there.
    pub(crate) fn ended(&self, id: JobId) -> Option<JobState> {
        *self.ended.get(self.place(id)?)?
    }

    pub(crate) fn was_given_out(&self, id: JobId) -> bool {
        let place = self.place(id);
        place.is_some_and(|place| place > 0 && place < self.ended.len().max(1))
    }

    /// The place of a task whose job is in memory.
    pub(crate) fn spot(&self, task: TaskId) -> Option<Spot<'_>> {
        let (_, job) = self.by_first_task.range(..=task).next_back()?;
        self.any(*job)?.spot(task)
    }

    /// Counts the leases of the job of a task.
    pub(crate) fn note_lease(&mut self, task: TaskId, change: i64) -> Option<JobId> {
        let (_, id) = self.by_first_task.range(..=task).next_back()?;
        let job = match self.jobs.get_mut(id) {
            Some(job) => job,
            None => self.guests.get_mut(id)?,
        };
        job.leased = job.leased.saturating_add_signed(change);
        Some(*id)
    }

    /// A job as it will be when it is accepted: its ids are not given out yet. `has_others`: these are the jobs of one
    /// shard, and there are more.
    pub(crate) fn draft(
        &self,
        request: Arc<JobRequest>,
        user: UserId,
        directory: &mut Directory,
        now: Time,
        has_others: bool,
    ) -> Result<Job, ApiError> {
        let mut next = self.tasks_given_out + 1;
        let first = TaskId(next);
        let mut parts = Vec::with_capacity(request.tasks.len());
        for task in &request.tasks {
            let count = task.count();
            let in_time = task.deadline_sec.and_then(Span::try_from_secs_f64);
            parts.push(Part {
                first: TaskId(next),
                count,
                fed: 0,
                over: 0,
                failed: false,
                kind: names::kind(directory, task)?,
                deadline: in_time.map(|span| now + span),
                task: parts.len(),
                added: None,
                guest: None,
            });
            next += count;
        }
        let mut waits_for = Vec::new();
        for job in &request.after {
            // Those of other shards say themselves whether they are there.
            let is_elsewhere = has_others && ShardId::try_of(job.0) != ShardId::try_of(self.base);
            if !is_elsewhere && !self.was_given_out(*job) {
                return Err(ApiError::not_found("job", job.0));
            }
            if self.ended(*job) != Some(JobState::Succeeded) && !waits_for.contains(job) {
                waits_for.push(*job);
            }
        }
        let open = request.open;
        let mut job = Job {
            id: JobId(self.base + self.ended.len().max(1) as u64),
            user,
            first,
            count: next - first.0,
            parts,
            created: now,
            tally: Tally::default(),
            phase: Phase::Waiting,
            waits_for,
            leased: 0,
            skipped: BTreeSet::new(),
            open,
            entries: request.tasks.iter().map(TaskRequest::count).collect(),
            end: next,
            request,
        };
        job.skip_done();
        if job.is_graph() && job.count > GRAPH_MAX {
            let message = format!("a job with dependencies has at most {GRAPH_MAX} tasks");
            return Err(ApiError::invalid(message));
        }
        Ok(job)
    }

    /// Adds entries to an array of an open job. Returns the new part, by its first task.
    pub(crate) fn extend(
        &mut self,
        id: JobId,
        task: usize,
        entries: Entries,
        cost: Option<Span>,
        directory: &mut Directory,
        now: Time,
    ) -> Result<(), ApiError> {
        let first = TaskId(self.tasks_given_out + 1);
        let job = self.jobs.get_mut(&id).expect("was found");
        let request = &job.request.tasks[task];
        let offset = job.entries[task];
        let count = entries.count();
        let in_time = request.deadline_sec.and_then(Span::try_from_secs_f64);
        let part = Part {
            first,
            count,
            fed: 0,
            over: 0,
            failed: false,
            kind: names::kind(directory, request)?,
            deadline: in_time.map(|span| now + span),
            task,
            added: Some(Arc::new(Added {
                entries,
                offset,
                cost,
            })),
            guest: None,
        };
        job.parts.push(part);
        job.entries[task] += count;
        job.end = first.0 + count;
        job.count += count;
        self.tasks_given_out += count;
        self.by_first_task.insert(first, id);
        Ok(())
    }

    /// Books the end of a task within its part. What was added to an open job is forgotten when all of it is over
    /// and nobody can try it again.
    pub(crate) fn note_over(&mut self, id: JobId, task: TaskId, failed: bool, may_retry: bool) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let at = job.parts.partition_point(|part| part.first <= task);
        let Some(part) = at.checked_sub(1).and_then(|at| job.parts.get_mut(at)) else {
            return;
        };
        assert!(
            part.over < part.count,
            "{task} ended, and all of its part are over"
        );
        part.over += 1;
        part.failed |= failed;
        let is_kept = part.added.is_none() || (part.failed && may_retry);
        if part.over >= part.count && !is_kept {
            let first = part.first;
            let end = TaskId(first.0 + part.count);
            job.parts.remove(at - 1);
            // Those that were cancelled before anybody saw them are not left out of anything any more.
            job.skipped.retain(|id| !(first..end).contains(id));
            self.by_first_task.remove(&first);
        }
    }

    /// Gives a draft its ids for good.
    pub(crate) fn insert(&mut self, job: Job) {
        let id = job.id;
        let place = self.place(id).expect("a job of this table");
        self.ended.resize(place + 1, None);
        self.tasks_given_out += job.count;
        self.by_first_task.insert(job.first, id);
        for earlier in &job.waits_for {
            self.dependents.entry(*earlier).or_default().push(id);
        }
        self.jobs.insert(id, job);
    }

    /// The tasks of a draft that go to the policy together with its acceptance: all of a graph and of
    /// a small job, the beginning of a large array.
    pub(crate) fn first_tasks(job: &mut Job, now: Time) -> Result<Vec<TaskSpec>, ApiError> {
        if job.is_graph() {
            let mut specs = job.whole(now)?;
            if !job.skipped.is_empty() {
                leave_out(&mut specs, &job.skipped);
            }
            job.skipped.clear();
            for part in &mut job.parts {
                part.fed = part.count;
            }
            return Ok(specs);
        }
        let mut specs = Vec::new();
        for at in 0..job.parts.len() {
            let room = SLICE.saturating_sub(specs.len() as u64);
            specs.extend(slice_of(job, at, room, now));
        }
        Ok(specs)
    }

    /// All tasks of a draft at once.
    pub(crate) fn all_tasks(job: &mut Job, now: Time) -> Result<Vec<TaskSpec>, ApiError> {
        if job.is_graph() {
            return Self::first_tasks(job, now);
        }
        let parts = 0..job.parts.len();
        Ok(parts
            .flat_map(|at| slice_of(job, at, u64::MAX, now))
            .collect())
    }

    /// Counts tasks that went to the policy.
    pub(crate) fn note_fed(&mut self, tasks: &[TaskSpec]) {
        for task in tasks {
            self.levels[task.priority.index()].in_policy += 1;
        }
    }

    /// The same, by their priorities.
    pub(crate) fn note_fed_levels(&mut self, priorities: &[Priority]) {
        for priority in priorities {
            self.levels[priority.index()].in_policy += 1;
        }
    }

    /// Lends out a job; it must be put back.
    pub(crate) fn take(&mut self, id: JobId) -> Job {
        self.jobs.remove(&id).expect("the job is here")
    }

    pub(crate) fn put_back(&mut self, job: Job) {
        self.jobs.insert(job.id, job);
    }

    /// Counts a task that the policy does not have any more.
    pub(crate) fn note_gone(&mut self, priority: Priority) {
        let count = &mut self.levels[priority.index()].in_policy;
        *count = count.saturating_sub(1);
    }

    /// Queues what is left of a job's arrays for feeding.
    pub(crate) fn queue_rest(&mut self, id: JobId) {
        let job = &self.jobs[&id];
        for part in &job.parts {
            let level = &mut self.levels[job.request.tasks[part.task].priority.index()];
            level.queue(job.user, id, part);
        }
    }

    /// Queues the part that was added last for feeding.
    pub(crate) fn queue_added(&mut self, id: JobId) {
        let job = &self.jobs[&id];
        if let Some(part) = job.parts.last() {
            let level = &mut self.levels[job.request.tasks[part.task].priority.index()];
            level.queue(job.user, id, part);
        }
    }

    /// The next slice that the policy should see, if it has room: the most urgent first, users in turn.
    pub(crate) fn next_slice(&mut self, slots: u64, now: Time) -> Option<(JobSpec, Vec<TaskSpec>)> {
        let window = window(slots);
        for level in self.levels.iter_mut().rev() {
            while level.in_policy + SLICE / 2 < window
                && let Some((user, mut parts)) = level.users.pop_front()
            {
                let mut found = None;
                while let Some((id, first)) = parts.front().copied() {
                    // A job may have been cancelled since it was queued.
                    let job = self.jobs.get_mut(&id);
                    let found_at = job.as_ref().and_then(|job| job.part_at(first));
                    if let (Some(job), Some(at)) = (job, found_at)
                        && job.parts[at].fed < job.parts[at].count
                    {
                        let room = window - level.in_policy;
                        let tasks = slice_of(job, at, room.min(SLICE), now);
                        let spec = JobSpec {
                            unplaceable: loxley_model::Unplaceable::Hold,
                            ..job.spec()
                        };
                        if job.parts[at].fed == job.parts[at].count {
                            parts.pop_front();
                        }
                        found = (!tasks.is_empty()).then_some((spec, tasks));
                        break;
                    }
                    parts.pop_front();
                }
                if !parts.is_empty() {
                    level.users.push_back((user, parts));
                }
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// Books the end of a job and returns who waited for it.
    pub(crate) fn end(&mut self, id: JobId, state: JobState, now: Time) -> Vec<JobId> {
        let place = self.place(id).expect("a job of this table");
        self.ended[place] = Some(state);
        let job = self.jobs.get_mut(&id).expect("a job ends while it is here");
        if job.tally.failed > 0 {
            job.phase = Phase::Dormant(state, now);
            self.dormant.push_back(id);
            if self.dormant.len() > DORMANT_MAX
                && let Some(oldest) = self.dormant.pop_front()
            {
                self.forget(oldest);
            }
        } else {
            self.forget(id);
        }
        self.dependents.remove(&id).unwrap_or_default()
    }

    /// A failed task of a job that was over is tried again: the job is open again.
    pub(crate) fn reopen(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("it is in memory");
        if matches!(job.phase, Phase::Dormant(..)) {
            job.phase = Phase::Open;
            self.dormant.retain(|dormant| *dormant != id);
            let place = self.place(id).expect("a job of this table");
            self.ended[place] = None;
        }
    }

    fn forget(&mut self, id: JobId) {
        if let Some(job) = self.jobs.remove(&id) {
            self.by_first_task.remove(&job.first);
            for part in &job.parts {
                self.by_first_task.remove(&part.first);
            }
        }
    }
}

/// How many tasks are fed at once.
const SLICE: u64 = 1024;
/// How many tasks the policy has of each priority, at least, while there are more.
const WINDOW_MIN: u64 = 4096;
/// The same for each slot of the fleet: as many as agents take of the shortest tasks, in a fleet of any ordinary
/// size, and fewer where that would be too many to have in memory.
const WINDOW_PER_SLOT: u64 = 256;
const WINDOW_PER_SLOT_LARGE: u64 = 64;
const WINDOW_LARGE: u64 = 1 << 18;

/// How many tasks of each priority the policy should have.
fn window(slots: u64) -> u64 {
    (slots * WINDOW_PER_SLOT)
        .min(WINDOW_LARGE)
        .max(slots * WINDOW_PER_SLOT_LARGE)
        .max(WINDOW_MIN)
}

/// Takes out tasks that are done, and whatever refers to them.
fn leave_out(specs: &mut Vec<TaskSpec>, done: &BTreeSet<TaskId>) {
    specs.retain(|spec| !done.contains(&spec.id));
    for spec in specs {
        if spec.dependencies.iter().any(|id| done.contains(id)) {
            let left = spec.dependencies.iter().filter(|id| !done.contains(id));
            spec.dependencies = left.copied().collect();
        }
        if matches!(spec.fallback, Fallback::Task(id) if done.contains(&id)) {
            spec.fallback = Fallback::None;
        }
    }
}

fn slice_of(job: &mut Job, at: usize, room: u64, now: Time) -> Vec<TaskSpec> {
    let from = job.parts[at].fed;
    let count = room.min(job.parts[at].count - from);
    job.parts[at].fed += count;
    let mut tasks = Vec::with_capacity(count as usize);
    for position in from..from + count {
        let id = TaskId(job.parts[at].first.0 + position);
        if !job.skipped.remove(&id) {
            tasks.push(job.task_spec(at, position, now));
        }
    }
    tasks
}

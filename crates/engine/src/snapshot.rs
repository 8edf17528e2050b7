//! The whole state of a server as bytes, to be kept and gone on from.
//!
//! ```text
//!   version   facts: the scheduler's own snapshot, names, agents and their leases, jobs and    additions: what later
//!   1 byte    their requests; postcard                                                         versions keep; postcard
//! ```
//!
//! Snapshots of earlier versions end before the additions, or in the midst of them: what is not there is as it was
//! before anybody knew of it.
//!
//! What is worked out from other facts (the way from a task to its job, from a name to its agent, what tasks
//! have in common) is left out and built anew. Requests are kept in the words of the client, as JSON. What agents said
//! of attempts beyond their outcome is not in the facts of a journal either, and is left out.
//!
//! Whoever starts from these bytes later decides as the server that took them and goes on: a scheduler's decisions
//! follow from its facts, and its snapshot is its facts.
//!
//! Both directions name every field, without `..`: whoever adds one to the state is asked by the compiler
//! whether it belongs here.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use loxley_api::{JobRequest, JobState};
use loxley_driver::self_tuning::SelfTuner;
use loxley_driver::{Directory, Driver, Held, IdMap, Leases};
use loxley_model::{Failure, JobId, Lease, NameId, Names, TaskId, Time, UserId};
use loxley_policy::{
    AddedRules, Config, ForecastRules, ForecastState, Scheduler, SelfTuning, Snapshot,
    SnapshotAdditions,
};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::fact::AgentRecord;
use crate::fleet::{Agent, Fleet};
use crate::jobs::{Added, Job, Jobs, Level, Part, Phase, Tally};
use crate::keys::Keyed;
use crate::ledger::Ledger;
use crate::moving::Moving;
use crate::state::{Attempt, State};
use loxley_cluster::budgets::Budgets;

const VERSION: u8 = 4;

/// Why a snapshot cannot be gone on from.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// It was written by a newer Loxley.
    #[error("the snapshot has version {0}; this program knows version {VERSION}")]
    Version(u8),
    /// It holds bytes that are no state.
    #[error("the snapshot does not hold the state of a server")]
    Malformed(#[source] postcard::Error),
    /// The scheduler's own part does not fit together.
    #[error("the snapshot is not that of this scheduler")]
    Scheduler(#[source] loxley_policy::SnapshotError),
    /// A job is not what its request says.
    #[error("job {0} of the snapshot is not what its request says")]
    Job(u64),
    /// A task of another shard is not what a shard sends.
    #[error("the snapshot holds a task of another shard that cannot be read")]
    Guest,
    /// A name that no table would take.
    #[error("the snapshot holds a name that is none")]
    Name(#[from] loxley_model::NameError),
}

type Result<T> = std::result::Result<T, SnapshotError>;

#[derive(Serialize, Deserialize)]
struct StateFacts<'a> {
    scheduler: Snapshot,
    names: NameFacts,
    agents: Vec<AgentFacts<'a>>,
    jobs: JobsFacts,
    digest: u64,
    now: Time,
    checkpoints: Vec<(TaskId, Bytes)>,
    attempts: Vec<(TaskId, Failure)>,
    unseen: Tally,
    given_config: Option<Box<Config>>,
}

/// What stands behind the facts, in the order in which versions came to know of it.
#[derive(Debug, Default, Serialize)]
struct Additions {
    /// The rules of self-tuning that are in force, and those that the last start was given.
    self_tuning: (SelfTuning, SelfTuning),
    tuner: SelfTuner,
    /// The number before the first that is given out.
    base: u64,
    /// What is known of arrivals, and the rules of forecasts that the last start was given.
    forecast: (ForecastState, ForecastRules),
    /// What of the scheduler is not in its own snapshot, and the added rules that the last start was given.
    scheduler: (SnapshotAdditions, AddedRules),
    /// Tasks on their way to and from other shards, and those of others that are here.
    moving: Option<(Moving, Guests)>,
    /// Places of groups that are lent between shards.
    budgets: Budgets,
}

/// Tasks of other shards, as they came.
pub(crate) type Guests = Vec<(TaskId, Vec<u8>)>;

impl Additions {
    fn read(bytes: &[u8]) -> Result<Self> {
        let mut left = bytes;
        Ok(Self {
            self_tuning: addition(&mut left)?,
            tuner: addition(&mut left)?,
            base: addition(&mut left)?,
            forecast: addition(&mut left)?,
            scheduler: addition(&mut left)?,
            moving: addition(&mut left)?,
            budgets: addition(&mut left)?,
        })
    }
}

/// The next addition, if the version that wrote the snapshot knew of it.
fn addition<T: Default + serde::de::DeserializeOwned>(left: &mut &[u8]) -> Result<T> {
    if left.is_empty() {
        return Ok(T::default());
    }
    let (read, rest) = postcard::take_from_bytes(left).map_err(SnapshotError::Malformed)?;
    *left = rest;
    Ok(read)
}

/// The tables of names, each in the order of its numbers.
#[derive(Debug, Serialize, Deserialize)]
struct NameFacts {
    skills: Vec<String>,
    resources: Vec<String>,
    groups: Vec<String>,
    users: Vec<String>,
    zones: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct AgentFacts<'a> {
    record: Cow<'a, AgentRecord>,
    registered: bool,
    draining: bool,
    heard: Time,
    throttle: f64,
    round_trip_ns: u64,
    /// In the order of the leases.
    in_hand: Vec<(Lease, InHand)>,
}

/// A task that an agent has under a lease.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct InHand {
    task: TaskId,
    attempt: u32,
    started: Option<Time>,
}

#[derive(Serialize, Deserialize)]
struct JobsFacts {
    /// In the order of their numbers.
    jobs: Vec<JobFacts>,
    /// Runs of jobs, by number, that ended alike.
    ended: Vec<(u64, Option<JobState>)>,
    /// Oldest first.
    keys: Vec<Keyed>,
    dormant: Vec<JobId>,
    dependents: Vec<(JobId, Vec<JobId>)>,
    levels: Vec<LevelFacts>,
    tasks_given_out: u64,
}

#[derive(Serialize, Deserialize)]
struct JobFacts {
    id: JobId,
    user: UserId,
    request: Bytes,
    first: TaskId,
    parts: Vec<PartFacts>,
    created: Time,
    tally: Tally,
    phase: Phase,
    waits_for: Vec<JobId>,
    leased: u64,
    skipped: Vec<TaskId>,
    open: bool,
    count: u64,
    entries: Vec<u64>,
    end: u64,
}

/// How far a part is, and what its request does not say of it.
#[derive(Serialize, Deserialize)]
struct PartFacts {
    first: TaskId,
    fed: u64,
    over: u64,
    failed: bool,
    deadline: Option<Time>,
    task: u64,
    added: Option<Added>,
}

#[derive(Debug, Serialize, Deserialize)]
struct LevelFacts {
    in_policy: u64,
    users: Vec<(UserId, Vec<(JobId, u64)>)>,
}

/// A copy of a state, made in the time of a few instructions for each task and job: what is large is shared. To pack
/// it takes ten times as long, and can be done by another thread.
#[derive(Debug)]
pub struct StateCopy {
    scheduler: Snapshot,
    names: NameFacts,
    agents: Vec<AgentCopy>,
    leases: Vec<(Lease, Held)>,
    jobs: JobsCopy,
    digest: u64,
    now: Time,
    checkpoints: Vec<(TaskId, Bytes)>,
    attempts: Vec<(TaskId, Failure)>,
    unseen: Tally,
    given_config: Option<Box<Config>>,
    additions: Additions,
}

#[derive(Debug)]
struct AgentCopy {
    record: Arc<AgentRecord>,
    registered: bool,
    draining: bool,
    heard: Time,
    throttle: f64,
    round_trip_ns: u64,
}

/// Jobs without their parts and numbers of entries: those of all jobs stand in two lists, so that a job costs no
/// allocation of its own.
#[derive(Debug)]
struct JobsCopy {
    jobs: Vec<JobCopy>,
    parts: Vec<PartCopy>,
    entries: Vec<u64>,
    base: u64,
    ended: Vec<Option<JobState>>,
    keys: Vec<Keyed>,
    dormant: Vec<JobId>,
    dependents: Vec<(JobId, Vec<JobId>)>,
    levels: Vec<LevelFacts>,
    tasks_given_out: u64,
}

#[derive(Debug)]
struct JobCopy {
    id: JobId,
    user: UserId,
    request: Arc<JobRequest>,
    first: TaskId,
    /// Where its parts are in the list of all.
    parts: Range<usize>,
    created: Time,
    tally: Tally,
    phase: Phase,
    waits_for: Vec<JobId>,
    leased: u64,
    skipped: BTreeSet<TaskId>,
    open: bool,
    count: u64,
    /// Where its numbers of entries are in the list of all.
    entries: Range<usize>,
    end: u64,
}

#[derive(Debug)]
struct PartCopy {
    first: TaskId,
    fed: u64,
    over: u64,
    failed: bool,
    deadline: Option<Time>,
    task: usize,
    added: Option<Arc<Added>>,
}

impl State {
    /// What a snapshot holds, to be packed elsewhere.
    pub(super) fn copy(&self) -> StateCopy {
        let Self {
            driver,
            names,
            fleet,
            jobs,
            digest,
            now,
            // Said anew by whoever opens the journal.
            epoch_unix_ns: _,
            checkpoints,
            attempts,
            unseen,
            // Counted for people, anew after a restart.
            ledger: _,
            given_config,
            tuner,
            // Set only while a fact is taken in.
            finishing: _,
            held_away: _,
            moving,
            budgets,
        } = self;
        assert!(driver.is_settled(), "a snapshot is taken between decisions");
        let scheduler = driver.scheduler().snapshot();
        let given = given_config.as_deref();
        StateCopy {
            names: name_facts(names),
            agents: fleet.iter().map(|(_, agent)| copy_agent(agent)).collect(),
            leases: driver
                .leases()
                .iter()
                .map(|(lease, held)| (lease, *held))
                .collect(),
            jobs: copy_jobs(jobs),
            digest: digest.0,
            now: *now,
            checkpoints: checkpoints
                .iter()
                .map(|(id, state)| (*id, state.clone()))
                .collect(),
            attempts: attempts
                .iter()
                .map(|(id, attempt)| (*id, attempt.failure))
                .collect(),
            unseen: *unseen,
            given_config: given_config.clone(),
            additions: Additions {
                self_tuning: (
                    driver.scheduler().config().self_tuning,
                    given.map_or_else(SelfTuning::default, |config| config.self_tuning),
                ),
                tuner: tuner.clone(),
                base: jobs.base,
                forecast: (
                    scheduler.forecasts(),
                    given.map_or_else(ForecastRules::default, |config| config.forecast),
                ),
                scheduler: (
                    scheduler.additions(),
                    given.map_or_else(AddedRules::default, |config| config.added),
                ),
                moving: moving
                    .as_deref()
                    .map(|moving| (moving.clone(), self.guest_facts())),
                budgets: budgets.clone(),
            },
            scheduler,
        }
    }

    /// The state that a snapshot holds.
    pub(super) fn unpack(bytes: &[u8]) -> Result<Self> {
        let facts = match bytes.split_first() {
            Some((&VERSION, facts)) => facts,
            Some((version, _)) => return Err(SnapshotError::Version(*version)),
            None => {
                let nothing = postcard::Error::DeserializeUnexpectedEnd;
                return Err(SnapshotError::Malformed(nothing));
            }
        };
        let (facts, additions) =
            postcard::take_from_bytes(facts).map_err(SnapshotError::Malformed)?;
        let StateFacts {
            mut scheduler,
            names,
            agents,
            jobs,
            digest,
            now,
            checkpoints,
            attempts,
            unseen,
            mut given_config,
        } = facts;
        let additions = Additions::read(additions)?;
        let base = additions.base;
        if let Some(given) = &mut given_config {
            given.self_tuning = additions.self_tuning.1;
            given.added = additions.scheduler.1;
            given.forecast = additions.forecast.1;
        }
        let mut names = directory(names)?;
        let attempts = attempts.into_iter().map(|(id, failure)| {
            let (finish, held) = (None, None);
            let attempt = Attempt {
                failure,
                finish,
                held,
            };
            (id, attempt)
        });
        scheduler.set_forecasts(additions.forecast.0);
        let mut scheduler = scheduler
            .with_additions(additions.scheduler.0)
            .and_then(Scheduler::restore)
            .map_err(SnapshotError::Scheduler)?;
        scheduler.set_self_tuning(additions.self_tuning.0);
        names.agents.count_from(base);
        for agent in &agents {
            names.agents.intern(&agent.record.name)?;
        }
        let fleet = Fleet::counted_from(base);
        let (moving, guests) = additions.moving.unzip();
        let mut state = Self {
            driver: Driver::with(scheduler, leases(&agents, &fleet), now),
            fleet: restore_fleet(agents, fleet),
            jobs: restore_jobs(jobs, base, &mut names)?,
            names,
            digest: Digest(digest),
            now,
            epoch_unix_ns: 0,
            checkpoints: checkpoints.into_iter().collect(),
            attempts: attempts.collect(),
            unseen,
            ledger: Ledger::new(now),
            given_config,
            tuner: additions.tuner,
            finishing: None,
            held_away: None,
            moving: moving.map(Box::new),
            budgets: additions.budgets,
        };
        state
            .restore_guests(guests.unwrap_or_default())
            .ok_or(SnapshotError::Guest)?;
        Ok(state)
    }
}

impl StateCopy {
    /// The state as bytes.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    pub fn pack(self) -> Vec<u8> {
        let mut in_hand = vec![Vec::new(); self.agents.len()];
        for (lease, held) in self.leases {
            in_hand[(held.agent.0 - self.jobs.base) as usize - 1].push((lease, held));
        }
        let agents = self.agents.iter().zip(in_hand);
        let facts = StateFacts {
            scheduler: self.scheduler,
            names: self.names,
            agents: agents
                .map(|(agent, held)| agent_facts(agent, held))
                .collect(),
            jobs: jobs_facts(self.jobs),
            digest: self.digest,
            now: self.now,
            checkpoints: sorted(self.checkpoints),
            attempts: sorted(self.attempts),
            unseen: self.unseen,
            given_config: self.given_config,
        };
        let bytes = postcard::to_extend(&facts, vec![VERSION]).expect("memory takes every state");
        postcard::to_extend(&self.additions, bytes).expect("memory takes every state")
    }
}

fn sorted<Id: Ord + Copy, Value>(mut entries: Vec<(Id, Value)>) -> Vec<(Id, Value)> {
    entries.sort_unstable_by_key(|(id, _)| *id);
    entries
}

fn name_facts(names: &Directory) -> NameFacts {
    fn all<Id: NameId>(names: &Names<Id>) -> Vec<String> {
        names.iter().map(|(_, name)| name.to_owned()).collect()
    }
    // Agents are known by their records, kinds by their content.
    NameFacts {
        skills: all(&names.skills),
        resources: all(&names.resources),
        groups: all(&names.groups),
        users: all(&names.users),
        zones: all(&names.zones),
    }
}

fn directory(facts: NameFacts) -> Result<Directory> {
    fn table<Id: NameId>(names: Vec<String>) -> Result<Names<Id>> {
        let mut table = Names::new();
        for name in names {
            table.intern(&name)?;
        }
        Ok(table)
    }
    let NameFacts {
        skills,
        resources,
        groups,
        users,
        zones,
    } = facts;
    let mut directory = Directory::default();
    directory.skills = table(skills)?;
    directory.resources = table(resources)?;
    directory.groups = table(groups)?;
    directory.users = table(users)?;
    directory.zones = table(zones)?;
    Ok(directory)
}

fn copy_agent(agent: &Agent) -> AgentCopy {
    let Agent {
        record,
        registered,
        draining,
        heard,
        throttle,
        round_trip_ns,
    } = agent;
    AgentCopy {
        record: Arc::clone(record),
        registered: *registered,
        draining: *draining,
        heard: *heard,
        throttle: *throttle,
        round_trip_ns: *round_trip_ns,
    }
}

fn agent_facts(agent: &AgentCopy, held: Vec<(Lease, Held)>) -> AgentFacts<'_> {
    let in_hand = held.into_iter().map(|(lease, held)| {
        let in_hand = InHand {
            task: held.task,
            attempt: held.attempt,
            started: held.started,
        };
        (lease, in_hand)
    });
    AgentFacts {
        record: Cow::Borrowed(&agent.record),
        registered: agent.registered,
        draining: agent.draining,
        heard: agent.heard,
        throttle: agent.throttle,
        round_trip_ns: agent.round_trip_ns,
        in_hand: sorted(in_hand.collect()),
    }
}

fn leases(facts: &[AgentFacts<'_>], fleet: &Fleet) -> Leases {
    let agents = fleet.ids().zip(facts);
    let held = agents.flat_map(|(agent, facts)| {
        facts.in_hand.iter().map(move |(lease, in_hand)| {
            let InHand {
                task,
                attempt,
                started,
            } = *in_hand;
            let held = Held {
                task,
                agent,
                attempt,
                started,
            };
            (*lease, held)
        })
    });
    held.collect()
}

fn restore_fleet(facts: Vec<AgentFacts<'_>>, mut fleet: Fleet) -> Fleet {
    for (id, facts) in fleet.ids().zip(facts) {
        let AgentFacts {
            record,
            registered,
            draining,
            heard,
            throttle,
            round_trip_ns,
            // With the driver.
            in_hand: _,
        } = facts;
        fleet.agents.push(Agent {
            record: Arc::new(record.into_owned()),
            registered: false,
            draining,
            heard,
            throttle,
            round_trip_ns,
        });
        fleet.set_registered(id, registered);
    }
    fleet
}

fn copy_jobs(jobs: &Jobs) -> JobsCopy {
    let Jobs {
        jobs,
        by_first_task: _,
        base,
        ended,
        keys,
        dormant,
        dependents,
        levels,
        tasks_given_out,
        // Behind everything else.
        guests: _,
    } = jobs;
    let mut copy = JobsCopy {
        base: *base,
        jobs: Vec::with_capacity(jobs.len()),
        parts: Vec::with_capacity(jobs.len()),
        entries: Vec::with_capacity(jobs.len()),
        ended: ended.clone(),
        keys: keys.iter().cloned().collect(),
        dormant: dormant.iter().copied().collect(),
        dependents: dependents
            .iter()
            .map(|(id, waiting)| (*id, waiting.clone()))
            .collect(),
        levels: levels.iter().map(level_facts).collect(),
        tasks_given_out: *tasks_given_out,
    };
    for job in jobs.values() {
        copy.add(job);
    }
    copy
}

impl JobsCopy {
    fn add(&mut self, job: &Job) {
        let Job {
            id,
            user,
            request,
            first,
            count,
            parts,
            created,
            tally,
            phase,
            waits_for,
            leased,
            skipped,
            open,
            entries,
            end,
        } = job;
        let (first_part, first_entries) = (self.parts.len(), self.entries.len());
        self.parts.extend(parts.iter().map(copy_part));
        self.entries.extend_from_slice(entries);
        self.jobs.push(JobCopy {
            id: *id,
            user: *user,
            request: Arc::clone(request),
            first: *first,
            parts: first_part..self.parts.len(),
            created: *created,
            tally: *tally,
            phase: *phase,
            waits_for: waits_for.clone(),
            leased: *leased,
            skipped: skipped.clone(),
            open: *open,
            count: *count,
            entries: first_entries..self.entries.len(),
            end: *end,
        });
    }
}

fn copy_part(part: &Part) -> PartCopy {
    let Part {
        first,
        // As the request says, or as many as were added.
        count: _,
        fed,
        over,
        failed,
        // Found again by content.
        kind: _,
        deadline,
        task,
        added,
        // Guests are kept apart.
        guest: _,
    } = part;
    PartCopy {
        first: *first,
        fed: *fed,
        over: *over,
        failed: *failed,
        deadline: *deadline,
        task: *task,
        added: added.clone(),
    }
}

fn jobs_facts(copy: JobsCopy) -> JobsFacts {
    let JobsCopy {
        mut jobs,
        parts,
        entries,
        // Written behind everything else.
        base: _,
        ended,
        keys,
        dormant,
        dependents,
        levels,
        tasks_given_out,
    } = copy;
    jobs.sort_unstable_by_key(|job| job.id);
    let runs = ended.chunk_by(|one, next| one == next);
    let facts = |job| job_facts(job, &parts, &entries);
    JobsFacts {
        jobs: jobs.into_iter().map(facts).collect(),
        ended: runs.map(|run| (run.len() as u64, run[0])).collect(),
        keys,
        dormant,
        dependents: sorted(dependents),
        levels,
        tasks_given_out,
    }
}

fn job_facts(job: JobCopy, parts: &[PartCopy], entries: &[u64]) -> JobFacts {
    let request = job.request.to_json();
    JobFacts {
        id: job.id,
        user: job.user,
        request: request.into(),
        first: job.first,
        parts: parts[job.parts].iter().map(part_facts).collect(),
        created: job.created,
        tally: job.tally,
        phase: job.phase,
        waits_for: job.waits_for,
        leased: job.leased,
        skipped: job.skipped.into_iter().collect(),
        open: job.open,
        count: job.count,
        entries: entries[job.entries].to_vec(),
        end: job.end,
    }
}

fn part_facts(part: &PartCopy) -> PartFacts {
    PartFacts {
        first: part.first,
        fed: part.fed,
        over: part.over,
        failed: part.failed,
        deadline: part.deadline,
        task: part.task as u64,
        added: part.added.as_deref().cloned(),
    }
}

fn level_facts(level: &Level) -> LevelFacts {
    let Level { in_policy, users } = level;
    let parts = |parts: &VecDeque<(JobId, TaskId)>| -> Vec<(JobId, u64)> {
        parts.iter().map(|(id, first)| (*id, first.0)).collect()
    };
    let users = users.iter().map(|(user, queue)| (*user, parts(queue)));
    LevelFacts {
        in_policy: *in_policy,
        users: users.collect(),
    }
}

fn restore_jobs(facts: JobsFacts, base: u64, names: &mut Directory) -> Result<Jobs> {
    let JobsFacts {
        jobs: all,
        ended,
        keys,
        dormant,
        dependents,
        levels,
        tasks_given_out,
    } = facts;
    let mut jobs = IdMap::default();
    let mut by_first_task = BTreeMap::new();
    for facts in all {
        let job = restore_job(facts, names)?;
        by_first_task.insert(job.first, job.id);
        for part in job.parts.iter().filter(|part| part.added.is_some()) {
            by_first_task.insert(part.first, job.id);
        }
        jobs.insert(job.id, job);
    }
    let ended: Vec<_> = ended
        .into_iter()
        .flat_map(|(run, state)| std::iter::repeat_n(state, run as usize))
        .collect();
    let mut restored = Jobs {
        jobs,
        by_first_task,
        base,
        ended,
        keys: keys.into_iter().collect(),
        dormant: dormant.into(),
        dependents: dependents.into_iter().collect(),
        levels: Default::default(),
        tasks_given_out,
        guests: IdMap::default(),
    };
    for (level, facts) in restored.levels.iter_mut().zip(levels) {
        let LevelFacts { in_policy, users } = facts;
        let parts = |parts: Vec<(JobId, u64)>| -> VecDeque<(JobId, TaskId)> {
            parts
                .into_iter()
                .map(|(id, first)| (id, TaskId(first)))
                .collect()
        };
        let users = users.into_iter().map(|(user, queue)| (user, parts(queue)));
        *level = Level {
            in_policy,
            users: users.collect(),
        };
    }
    restored.check()?;
    Ok(restored)
}

fn restore_job(facts: JobFacts, names: &mut Directory) -> Result<Job> {
    let JobFacts {
        id,
        user,
        request,
        first,
        parts: progress,
        created,
        tally,
        phase,
        waits_for,
        leased,
        skipped,
        open,
        count,
        entries,
        end,
    } = facts;
    let wrong = || SnapshotError::Job(id.0);
    let request = JobRequest::from_json(&request).map_err(|_| wrong())?;
    let same = entries.len() == request.tasks.len() && end >= first.0 && end > 0;
    if request.tasks.is_empty() || !same {
        return Err(wrong());
    }
    let mut parts = Vec::with_capacity(progress.len());
    for facts in progress {
        parts.push(restore_part(facts, &request, names).ok_or_else(wrong)?);
    }
    Ok(Job {
        id,
        user,
        request: Arc::new(request),
        first,
        count,
        parts,
        created,
        tally,
        phase,
        waits_for,
        leased,
        skipped: BTreeSet::from_iter(skipped),
        open,
        entries,
        end,
    })
}

fn restore_part(facts: PartFacts, request: &JobRequest, names: &mut Directory) -> Option<Part> {
    let PartFacts {
        first,
        fed,
        over,
        failed,
        deadline,
        task,
        added,
    } = facts;
    let task = usize::try_from(task).ok()?;
    let asked = request.tasks.get(task)?;
    let count = match &added {
        Some(added) => added.entries.count(),
        None => asked.count(),
    };
    Some(Part {
        first,
        count,
        fed: (fed <= count).then_some(fed)?,
        over: (over <= count).then_some(over)?,
        failed,
        kind: crate::names::kind(names, asked).ok()?,
        deadline,
        task,
        added: added.map(Arc::new),
        guest: None,
    })
}

impl Jobs {
    /// Whatever one fact says of a job, another one knows it.
    fn check(&self) -> Result<()> {
        let numbered = |id: &JobId| self.place(*id).is_some_and(|at| at < self.ended.len());
        match self
            .jobs
            .keys()
            .chain(&self.dormant)
            .find(|id| !numbered(id))
        {
            Some(id) => Err(SnapshotError::Job(id.0)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;

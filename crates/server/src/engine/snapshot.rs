//! The whole state of a server as bytes, to be kept and gone on from.
//!
//! ```text
//!   version   facts: the scheduler's own snapshot, names, agents and their leases, jobs and their requests
//!   1 byte    postcard
//! ```
//!
//! What is worked out from other facts (the way from a task to its job, from a name to its agent, what tasks
//! have in common) is left out and built anew. Requests are kept in the words of the client, as JSON. What agents said
//! of attempts beyond their outcome is not in the facts of a journal either, and is left out.
//!
//! The server goes on from its own snapshot ([`Fact::SnapshotTaken`](super::fact::Fact::SnapshotTaken)): it
//! and whoever starts from these bytes later hold the same scheduler, and decide the same whatever follows.
//!
//! Both directions name every field, without `..`: whoever adds one to the state is asked by the compiler
//! whether it belongs here.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use loxley_api::{JobRequest, JobState};
use loxley_model::{AgentId, Failure, JobId, Lease, NameId, Names, TaskId, Time, UserId};
use loxley_policy::{Scheduler, Snapshot};
use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::fact::AgentRecord;
use super::fleet::{Agent, Fleet, InHand};
use super::jobs::{Job, Jobs, Level, Part, Phase, Tally};
use super::names::Directory;
use super::state::{Attempt, State};

const VERSION: u8 = 1;

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
    /// A name that no table would take.
    #[error("the snapshot holds a name that is none")]
    Name(#[from] loxley_model::NameError),
}

type Result<T> = std::result::Result<T, SnapshotError>;

#[derive(Serialize, Deserialize)]
struct StateFacts<'a> {
    scheduler: Cow<'a, Snapshot>,
    names: NameFacts,
    agents: Vec<AgentFacts<'a>>,
    jobs: JobsFacts,
    digest: u64,
    now: Time,
    checkpoints: Vec<(TaskId, Bytes)>,
    attempts: Vec<(TaskId, Failure)>,
    unseen: Tally,
}

/// The tables of names, each in the order of its numbers.
#[derive(Serialize, Deserialize)]
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

#[derive(Serialize, Deserialize)]
struct JobsFacts {
    /// In the order of their numbers.
    jobs: Vec<JobFacts>,
    /// Runs of jobs, by number, that ended alike.
    ended: Vec<(u64, Option<JobState>)>,
    /// Oldest first.
    keys: Vec<(String, JobId)>,
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
    /// Of each part: how many tasks the policy has seen, and the deadline.
    parts: Vec<(u64, Option<Time>)>,
    created: Time,
    tally: Tally,
    phase: Phase,
    waits_for: Vec<JobId>,
    leased: u64,
    skipped: Vec<TaskId>,
}

#[derive(Serialize, Deserialize)]
struct LevelFacts {
    in_policy: u64,
    users: Vec<(UserId, Vec<(JobId, u64)>)>,
}

impl State {
    /// Goes on from a snapshot of the scheduler. Returns the snapshot of everything if somebody `wants` it.
    pub(super) fn renew(&mut self, wants: bool) -> Option<Vec<u8>> {
        let scheduler = self.scheduler.snapshot();
        let packed = wants.then(|| self.pack(&scheduler));
        self.scheduler =
            Scheduler::restore(scheduler).expect("a scheduler goes on from its own snapshot");
        packed
    }

    fn pack(&self, scheduler: &Snapshot) -> Vec<u8> {
        let Self {
            scheduler: _,
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
            // Of the fact that is being applied.
            revoked: _,
            actions,
        } = self;
        assert!(actions.is_empty(), "a snapshot is taken between decisions");
        let facts = StateFacts {
            scheduler: Cow::Borrowed(scheduler),
            names: name_facts(names),
            agents: fleet.iter().map(|(_, agent)| agent_facts(agent)).collect(),
            jobs: jobs_facts(jobs),
            digest: digest.0,
            now: *now,
            checkpoints: sorted(checkpoints.iter().map(|(id, state)| (*id, state.clone()))),
            attempts: sorted(attempts.iter().map(|(id, attempt)| (*id, attempt.failure))),
            unseen: *unseen,
        };
        postcard::to_extend(&facts, vec![VERSION]).expect("memory takes every state")
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
        let StateFacts {
            scheduler,
            names,
            agents,
            jobs,
            digest,
            now,
            checkpoints,
            attempts,
            unseen,
        } = postcard::from_bytes(facts).map_err(SnapshotError::Malformed)?;
        let scheduler = scheduler.into_owned();
        let mut names = directory(names)?;
        let attempts = attempts.into_iter().map(|(id, failure)| {
            let finish = None;
            (id, Attempt { failure, finish })
        });
        Ok(Self {
            scheduler: Scheduler::restore(scheduler).map_err(SnapshotError::Scheduler)?,
            fleet: fleet(agents),
            jobs: restore_jobs(jobs, &mut names)?,
            names,
            digest: Digest(digest),
            now,
            epoch_unix_ns: 0,
            checkpoints: checkpoints.into_iter().collect(),
            attempts: attempts.collect(),
            unseen,
            revoked: super::ids::IdMap::default(),
            actions: Vec::new(),
        })
    }
}

fn sorted<Id: Ord + Copy, Value>(entries: impl Iterator<Item = (Id, Value)>) -> Vec<(Id, Value)> {
    let mut entries: Vec<_> = entries.collect();
    entries.sort_unstable_by_key(|(id, _)| *id);
    entries
}

fn name_facts(names: &Directory) -> NameFacts {
    fn all<Id: NameId>(names: &Names<Id>) -> Vec<String> {
        names.iter().map(|(_, name)| name.to_owned()).collect()
    }
    let Directory {
        skills,
        resources,
        groups,
        users,
        zones,
        // Found again by content.
        kinds: _,
    } = names;
    NameFacts {
        skills: all(skills),
        resources: all(resources),
        groups: all(groups),
        users: all(users),
        zones: all(zones),
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
    Ok(Directory {
        skills: table(skills)?,
        resources: table(resources)?,
        groups: table(groups)?,
        users: table(users)?,
        zones: table(zones)?,
        kinds: HashMap::new(),
    })
}

fn agent_facts(agent: &Agent) -> AgentFacts<'_> {
    let Agent {
        record,
        registered,
        draining,
        heard,
        throttle,
        round_trip_ns,
        in_hand,
    } = agent;
    AgentFacts {
        record: Cow::Borrowed(record),
        registered: *registered,
        draining: *draining,
        heard: *heard,
        throttle: *throttle,
        round_trip_ns: *round_trip_ns,
        in_hand: sorted(in_hand.iter().map(|(lease, held)| (*lease, *held))),
    }
}

fn fleet(facts: Vec<AgentFacts<'_>>) -> Fleet {
    let mut fleet = Fleet::default();
    for (id, facts) in (1..).map(AgentId).zip(facts) {
        let AgentFacts {
            record,
            registered,
            draining,
            heard,
            throttle,
            round_trip_ns,
            in_hand,
        } = facts;
        let record = record.into_owned();
        fleet.by_name.insert(record.name.clone(), id);
        fleet.agents.push(Agent {
            record,
            registered: false,
            draining,
            heard,
            throttle,
            round_trip_ns,
            in_hand: in_hand.into_iter().collect(),
        });
        fleet.set_registered(id, registered);
    }
    fleet
}

fn jobs_facts(jobs: &Jobs) -> JobsFacts {
    let Jobs {
        jobs,
        by_first_task: _,
        ended,
        keys,
        key_order,
        dormant,
        dependents,
        levels,
        tasks_given_out,
    } = jobs;
    let mut all: Vec<&Job> = jobs.values().collect();
    all.sort_unstable_by_key(|job| job.id);
    let runs = ended.chunk_by(|one, next| one == next);
    let known = |key: &String| Some((key.clone(), *keys.get(key)?));
    JobsFacts {
        jobs: all.into_iter().map(job_facts).collect(),
        ended: runs.map(|run| (run.len() as u64, run[0])).collect(),
        keys: key_order.iter().filter_map(known).collect(),
        dormant: dormant.iter().copied().collect(),
        dependents: sorted(
            dependents
                .iter()
                .map(|(id, waiting)| (*id, waiting.clone())),
        ),
        levels: levels.iter().map(level_facts).collect(),
        tasks_given_out: *tasks_given_out,
    }
}

fn job_facts(job: &Job) -> JobFacts {
    let Job {
        id,
        user,
        request,
        first,
        count: _,
        parts,
        created,
        tally,
        phase,
        waits_for,
        leased,
        skipped,
    } = job;
    let request = serde_json::to_vec(&**request).expect("a request is JSON");
    JobFacts {
        id: *id,
        user: *user,
        request: request.into(),
        first: *first,
        parts: parts.iter().map(|part| (part.fed, part.deadline)).collect(),
        created: *created,
        tally: *tally,
        phase: *phase,
        waits_for: waits_for.clone(),
        leased: *leased,
        skipped: skipped.iter().copied().collect(),
    }
}

fn level_facts(level: &Level) -> LevelFacts {
    let Level { in_policy, users } = level;
    let parts = |parts: &VecDeque<(JobId, usize)>| -> Vec<(JobId, u64)> {
        parts.iter().map(|(id, at)| (*id, *at as u64)).collect()
    };
    let users = users.iter().map(|(user, queue)| (*user, parts(queue)));
    LevelFacts {
        in_policy: *in_policy,
        users: users.collect(),
    }
}

fn restore_jobs(facts: JobsFacts, names: &mut Directory) -> Result<Jobs> {
    let JobsFacts {
        jobs: all,
        ended,
        keys,
        dormant,
        dependents,
        levels,
        tasks_given_out,
    } = facts;
    let mut jobs = super::ids::IdMap::default();
    let mut by_first_task = BTreeMap::new();
    for facts in all {
        let job = restore_job(facts, names)?;
        by_first_task.insert(job.first, job.id);
        jobs.insert(job.id, job);
    }
    let ended: Vec<_> = ended
        .into_iter()
        .flat_map(|(run, state)| std::iter::repeat_n(state, run as usize))
        .collect();
    let mut restored = Jobs {
        jobs,
        by_first_task,
        ended,
        key_order: keys.iter().map(|(key, _)| key.clone()).collect(),
        keys: keys.into_iter().collect(),
        dormant: dormant.into(),
        dependents: dependents.into_iter().collect(),
        levels: Default::default(),
        tasks_given_out,
    };
    for (level, facts) in restored.levels.iter_mut().zip(levels) {
        let LevelFacts { in_policy, users } = facts;
        let parts = |parts: Vec<(JobId, u64)>| -> VecDeque<(JobId, usize)> {
            parts
                .into_iter()
                .map(|(id, at)| (id, at as usize))
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
    } = facts;
    let other = |()| SnapshotError::Job(id.0);
    let request: JobRequest = serde_json::from_slice(&request).map_err(|_| other(()))?;
    if progress.len() != request.tasks.len() || request.tasks.is_empty() {
        return Err(other(()));
    }
    let mut next = first.0;
    let mut parts = Vec::with_capacity(progress.len());
    for (task, (fed, deadline)) in request.tasks.iter().zip(progress) {
        let count = task.count();
        if fed > count {
            return Err(other(()));
        }
        parts.push(Part {
            first: TaskId(next),
            count,
            fed,
            kind: names.kind(task).map_err(|_| other(()))?,
            deadline,
        });
        next += count;
    }
    Ok(Job {
        id,
        user,
        request: Arc::new(request),
        first,
        count: next - first.0,
        parts: parts.into(),
        created,
        tally,
        phase,
        waits_for,
        leased,
        skipped: BTreeSet::from_iter(skipped),
    })
}

impl Jobs {
    /// Whatever one fact says of a job, another one knows it.
    fn check(&self) -> Result<()> {
        let queued = self.levels.iter().flat_map(|level| &level.users);
        let queued = queued.flat_map(|(_, parts)| parts);
        for (id, at) in queued {
            let parts = self.jobs.get(id).map(|job| job.parts.len());
            // A job that was cancelled may be queued still.
            if parts.is_some_and(|parts| *at >= parts) {
                return Err(SnapshotError::Job(id.0));
            }
        }
        let numbered = |id: &JobId| id.0 < self.ended.len() as u64;
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

//! The work that a journal tells of, for whoever wants to run it again in virtual time: what came when, who was
//! there, what was decided.

use std::ops::Range;
use std::sync::Arc;

use loxley_driver::Directory;
use loxley_journal::Journal;
use loxley_model::{
    AgentId, AgentSpec, GroupId, JobId, JobSpec, Lease, TaskId, TaskSpec, Time, UserId,
};
use loxley_policy::{Action, Config};

use crate::fact::Fact;
use crate::jobs::Job;
use crate::names;
use crate::recover::{RecoverError, walk};
use crate::state::State;

/// Something that a journal tells, at its time.
#[derive(Debug)]
pub enum PastWork<'a> {
    /// The configuration that everything begins with.
    Configured(&'a Config),
    /// An agent is here, as it introduced itself.
    Agent {
        /// Its name.
        name: Arc<str>,
        /// What it is to the core.
        spec: AgentSpec,
        /// Where it is.
        zone: Option<&'a str>,
    },
    /// Tasks came, or were under way when the journal begins.
    Tasks {
        /// Their job.
        job: JobSpec,
        /// Jobs that must succeed first.
        after: &'a [JobId],
        /// Whether the job takes more entries.
        is_open: bool,
        /// Limits of groups that came with them.
        limits: Vec<(GroupId, u32)>,
        /// The tasks.
        tasks: Vec<TaskSpec>,
    },
    /// An agent has a task in hand when the journal begins.
    Leased {
        /// The task.
        task: TaskId,
        /// The agent.
        agent: AgentId,
        /// Under this lease.
        lease: Lease,
    },
    /// A user has this weight.
    Weight {
        /// Who.
        user: UserId,
        /// How much.
        weight: u32,
    },
    /// A fact; one that was refused is not told.
    Fact(&'a Fact),
    /// A decision that followed from the last fact.
    Decision(&'a Action),
}

/// Tells the work of a journal in order, and returns what everything is called. Decisions that differ from those
/// that were made are an error.
///
/// # Errors
/// When the journal cannot be read, or a decision differs.
pub fn past_work(
    journal: &mut dyn Journal,
    listener: &mut dyn FnMut(Time, PastWork<'_>),
) -> Result<Directory, RecoverError> {
    let listener = std::cell::RefCell::new(listener);
    let mut seen = 0;
    let begin = std::cell::Cell::new(0);
    let state = walk(
        journal,
        true,
        &mut |state| {
            tell_beginning(state, &mut **listener.borrow_mut());
            begin.set(state.jobs.tasks_given_out);
        },
        &mut |step| {
            seen = seen.max(begin.get());
            let tell = &mut **listener.borrow_mut();
            if step.taken {
                tell(step.now, PastWork::Fact(step.fact));
                tell_new(step.now, step.fact, seen, step.state, tell);
            }
            seen = step.state.jobs.tasks_given_out;
            for (now, action) in step.decisions {
                tell(*now, PastWork::Decision(action));
            }
        },
    )?;
    Ok(state.names)
}

/// What was there before the first fact: nothing, unless the beginning of the journal was pruned.
fn tell_beginning(state: &mut State, tell: &mut dyn FnMut(Time, PastWork<'_>)) {
    let now = state.now;
    let config = state.driver.scheduler().config().clone();
    tell(now, PastWork::Configured(&config));
    for status in state.driver.scheduler().users() {
        let (user, weight) = (status.user, status.weight);
        if weight != 1 {
            tell(now, PastWork::Weight { user, weight });
        }
    }
    let here = state.fleet.iter().filter(|(_, agent)| agent.registered);
    let here: Vec<_> = here
        .map(|(id, agent)| (id, Arc::clone(&agent.record)))
        .collect();
    for (id, record) in here {
        tell_agent(now, id, &record, state, tell);
    }
    let mut jobs: Vec<JobId> = state.jobs.iter().map(|job| job.id).collect();
    jobs.sort_unstable();
    for id in jobs {
        let Some(job) = state.jobs.get(id).filter(|_| state.jobs.is_open(id)) else {
            continue;
        };
        let tasks = left_of(job, 0..u64::MAX, state);
        tell(
            now,
            PastWork::Tasks {
                job: job.spec(),
                after: &job.waits_for,
                is_open: job.open,
                limits: Vec::new(),
                tasks,
            },
        );
    }
    let held = state.driver.leases().iter();
    let mut held: Vec<_> = held
        .map(|(lease, held)| (lease, held.task, held.agent))
        .collect();
    held.sort_unstable();
    for (lease, task, agent) in held {
        tell(now, PastWork::Leased { task, agent, lease });
    }
}

/// The tasks of a job that are to be done, with edges among these.
fn left_of(job: &Job, ids: Range<u64>, state: &State) -> Vec<TaskSpec> {
    let scheduler = state.driver.scheduler();
    let is_left = |task: TaskId| {
        let spot = job.spot(task);
        let is_unfed = spot.is_some_and(|spot| spot.position >= spot.part.fed);
        is_unfed || scheduler.task_status(task).is_some()
    };
    let mut tasks = job.specs_of(ids, state.now);
    tasks.retain(|spec| is_left(spec.id));
    for spec in &mut tasks {
        let left = spec.dependencies.iter().copied();
        spec.dependencies = left.filter(|id| is_left(*id)).collect();
    }
    tasks
}

/// What a fact brought: an agent, tasks, or a weight.
fn tell_new(
    now: Time,
    fact: &Fact,
    seen: u64,
    state: &mut State,
    tell: &mut dyn FnMut(Time, PastWork<'_>),
) {
    match fact {
        Fact::AgentJoined(record) => {
            if let Some(id) = state.names.agents.id(&record.name) {
                tell_agent(now, id, record, state, tell);
            }
        }
        Fact::UserWeightSet { user, weight } => {
            if let Some(user) = state.names.users.id(user) {
                let weight = *weight;
                tell(now, PastWork::Weight { user, weight });
            }
        }
        Fact::JobSubmitted { .. } | Fact::JobExtended { .. } => {
            let limits = match fact {
                Fact::JobSubmitted { request, .. } => request.request().limits.clone(),
                _ => Default::default(),
            };
            let limits = limits
                .iter()
                .filter_map(|(name, limit)| Some((state.names.groups.id(name)?, *limit)));
            let limits: Vec<_> = limits.collect();
            let newest = state.jobs.spot(TaskId(seen + 1)).map(|spot| spot.job);
            if let Some(job) = newest.filter(|_| state.jobs.tasks_given_out > seen) {
                let tasks = left_of(job, seen + 1..state.jobs.tasks_given_out + 1, state);
                let after = match fact {
                    Fact::JobSubmitted { .. } => &job.waits_for[..],
                    _ => &[],
                };
                tell(
                    now,
                    PastWork::Tasks {
                        job: job.spec(),
                        after,
                        is_open: job.request.open,
                        limits,
                        tasks,
                    },
                );
            }
        }
        _ => {}
    }
}

fn tell_agent(
    now: Time,
    id: AgentId,
    record: &crate::fact::AgentRecord,
    state: &mut State,
    tell: &mut dyn FnMut(Time, PastWork<'_>),
) {
    let Ok(spec) = names::agent_spec(&mut state.names, id, record) else {
        return;
    };
    tell(
        now,
        PastWork::Agent {
            name: state.names.agent_name(id),
            spec,
            zone: record.zone.as_deref(),
        },
    );
}

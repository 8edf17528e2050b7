//! The whole state of a scheduler as a list of facts, to be kept and gone on from.
//!
//! A snapshot says what is so, not how it lies in memory: tasks in the order of their arrival, agents
//! by their place, queues as "which task is on whose queue". What is worked out from other facts (queues,
//! sets, tables from ids to places) is left out and built anew, so the layout of the hot data may
//! change without changing this. What can make a difference to a later decision is
//! in, also things that only look like leftovers, such as timers without a purpose (they are announced all
//! the same), the order in which classes of task were met (it breaks ties), and what the trees over agents
//! were last told (they may be behind).
//!
//! On small fleets a restored scheduler answers every further input as the other one would, to the bit. With
//! long queues it may come to split a queue by lot at another moment, which can change whom a thief takes
//! from. So whoever keeps a snapshot goes on from it too (`scheduler = restore(scheduler.snapshot())`), and
//! notes the place in its journal: then it and everybody who recovers later decide the same, always.
//!
//! Left out is the series of utilization samples: it may be large, decides nothing, and begins anew.
//!
//! [`take`] and [`restore`] name every field of what they read and write, without `..`: whoever adds a
//! field to the state is asked by the compiler whether it belongs here.

mod restore;
mod take;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use loxley_model::{
    AgentId, DataKey, Dispatch, Fallback, GroupId, JobSpec, Lease, Locality, Priority, Resources,
    SkillId, SkillSet, Span, TaskId, TaskKind, Time, UserId,
};

use crate::agents::Breaker;
use crate::config::MetricsRules;
use crate::queue::LevelShape;
use crate::tasks::State;
use crate::timers::Alarm;
use crate::tournament::Loot;
use crate::view::{Counts, Liveness};
use crate::{Config, Reason};

/// The state of a [`Scheduler`](crate::Scheduler) between two inputs. Made by
/// [`Scheduler::snapshot`](crate::Scheduler::snapshot); with the feature `serde` it can be stored.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Snapshot {
    config: Config,
    now: Time,
    announced: Option<Time>,
    rng: [u64; 5],
    leases: u64,
    arrivals: u64,
    retracts: u32,
    copies: u32,
    overdue: Vec<u32>,
    mean_cost: f64,
    small_live: u64,
    counts: Counts,
    tallies: TallyFacts,
    users: Vec<UserFacts>,
    groups: Vec<GroupFacts>,
    active_weight: u64,
    queued: u64,
    kinds: Vec<KindFacts>,
    classes: Vec<ClassFacts>,
    lots: Vec<LotFacts>,
    jobs: Vec<JobFacts>,
    /// By place; none where an agent left.
    agents: Vec<Option<Box<AgentFacts>>>,
    vacant_agents: Vec<u32>,
    incarnations: Vec<(AgentId, u32)>,
    cohorts: Vec<CohortFacts>,
    generation: u64,
    /// In the order of their arrival.
    tasks: Vec<TaskFacts>,
    /// Tasks that were returned, and the arrivals of those that wait for them.
    orphans: Vec<(TaskId, Vec<u64>)>,
    /// Runs of ids that are over: the first, how many, and whether they succeeded.
    over: Vec<(TaskId, u64, bool)>,
    alarms: Vec<(Time, u64, Alarm)>,
    alarms_set: u64,
    alarms_sweep_at: u64,
    locations: Vec<(DataKey, AgentId)>,
    /// Agents by place, with the number of tasks that they have not started.
    probes: Vec<(SkillId, u32)>,
    stale_ranks: Vec<u32>,
    stale_loot: Vec<u32>,
    dead: Vec<(TaskId, DeadFacts)>,
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

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct TallyFacts {
    successful_steals: u64,
    failed_steals: u64,
    tasks_migrated: u64,
    rebalance_cycles: u64,
    waits: u64,
    waited: Span,
    histogram: Vec<u64>,
    samples: u64,
    deadline_misses: u64,
    retries: u64,
    speculations: u64,
    speculations_won: u64,
    stale_answers: u64,
    rules: MetricsRules,
}

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct UserFacts {
    id: UserId,
    weight: u32,
    live: u64,
    queued: u64,
    running: u32,
}

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct GroupFacts {
    id: GroupId,
    limit: Option<u32>,
    running: u32,
    queued: u64,
    turned_away: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct KindFacts {
    spec: Arc<TaskKind>,
    recent_durations: Vec<Span>,
    duration_count: u64,
    median_duration: Option<Span>,
    lots: Vec<KindLot>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct KindLot {
    strict: bool,
    large: bool,
    user: u32,
    lot: u32,
}

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct ClassFacts {
    skills: SkillSet,
    needs: Resources,
    strict: bool,
    capable: Vec<(u32, i64)>,
    known_at: Time,
    known_for: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct LotFacts {
    class: u32,
    group: Option<GroupId>,
    user: u32,
    large: bool,
}

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct JobFacts {
    spec: JobSpec,
    user: u32,
    live: u32,
    first_run: (TaskId, u64),
    more_runs: Vec<(TaskId, u64)>,
}

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct AgentFacts {
    id: AgentId,
    incarnation: u32,
    skills: SkillSet,
    resources: Resources,
    slots: u32,
    dispatch: Dispatch,
    cohort: u32,
    position: u32,
    queue: Vec<LevelShape>,
    queued_cost: Span,
    /// Tasks by their arrival, in the order of the list.
    in_hand: Vec<(u64, Lease)>,
    unstarted: u32,
    large_in_hand: u32,
    used: Resources,
    want: u32,
    awaited: u32,
    bypassed: u32,
    liveness: Liveness,
    last_heard: Time,
    throttle: f64,
    round_trip: Span,
    robbed_at: Option<Time>,
    refusals: u32,
    no_asking_until: Time,
    check_at: Time,
    rank_is_stale: bool,
    loot_is_stale: bool,
    record: RecordFacts,
}

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct RecordFacts {
    completed: u64,
    failed: u64,
    successes: f64,
    failures: f64,
    decayed_at: Time,
    speed: f64,
    mean_duration: Option<Span>,
    is_troubled: bool,
    skills: Vec<SkillFacts>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct SkillFacts {
    skill: SkillId,
    failures_in_a_row: u32,
    speed: Option<f64>,
    breaker: Breaker,
    suspensions: u32,
}

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct CohortFacts {
    skills: SkillSet,
    resources: Resources,
    members: Vec<Option<u32>>,
    vacant: Vec<u32>,
    hungry: Vec<u32>,
    idle: Vec<u32>,
    /// What the trees know, which may be behind what is so.
    ranking: Vec<i64>,
    victims: Vec<Loot>,
}

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct TaskFacts {
    id: TaskId,
    arrival: u64,
    slack: u64,
    cost: Span,
    created: Time,
    since: Time,
    assigned: Time,
    lease: Lease,
    reason: Reason,
    /// By its place in the list of jobs.
    job: u32,
    kind: u32,
    lot: u32,
    agent: u32,
    position: u32,
    dependencies_left: u32,
    /// The arrivals of those that wait for it, in the order in which they came.
    dependents: Vec<u64>,
    attempts: u16,
    moves: u8,
    priority: Priority,
    state: State,
    settled: bool,
    doomed: bool,
    extra: Option<Box<ExtraFacts>>,
}

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct ExtraFacts {
    deadline: Time,
    deadline_reported: bool,
    failures: u16,
    losses: u8,
    locality: Option<Locality>,
    fallback: Fallback,
    stands_in_for: Option<TaskId>,
    copy: Option<CopyFacts>,
    copied: bool,
    retract_for: Option<AgentId>,
    retracting: bool,
    retry_at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct CopyFacts {
    agent: u32,
    lease: Lease,
    started: Time,
    running: bool,
}

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct DeadFacts {
    job: JobSpec,
    kind: Arc<TaskKind>,
    priority: Priority,
    cost: Option<Span>,
    locality: Option<Locality>,
}

#[cfg(test)]
mod tests {
    use loxley_model::{AgentSpec, JobId, TaskSpec};

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

    fn refused(change: impl FnOnce(&mut Snapshot)) -> SnapshotError {
        let mut snapshot = snapshot();
        change(&mut snapshot);
        Scheduler::restore(snapshot).expect_err("it is not whole any more")
    }

    #[test]
    fn a_snapshot_is_restored_whole_or_not_at_all() {
        let restored = Scheduler::restore(snapshot()).expect("it is whole");
        assert_eq!(
            restored.queue_of(AgentId(4)),
            Some([TaskId(7), TaskId(8)].into())
        );
        let unknown = SnapshotError::Unknown;
        assert_eq!(refused(|s| s.tasks[0].job = 9), unknown("a job"));
        assert_eq!(refused(|s| s.tasks[1].agent = 1), unknown("an agent"));
        assert_eq!(
            refused(|s| s.tasks[1].dependents.push(5)),
            unknown("a task")
        );
        assert_eq!(refused(|s| s.tasks.swap(0, 1)), unknown("an arrival"));
        assert_eq!(refused(|s| s.lots.clear()), unknown("a lot"));
        assert_eq!(refused(|s| s.counts.queued += 1), SnapshotError::Unbalanced);
        assert_eq!(refused(|s| drop(s.tasks.pop())), SnapshotError::Unbalanced);
    }
}

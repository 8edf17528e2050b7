//! What can be asked of a scheduler: plain values, without effect on what it decides.

use alloc::vec::Vec;

use loxley_model::{
    AgentId, GroupId, JobId, Lease, Priority, Resources, SkillId, SkillSet, Span, TaskId, Time,
    UserId, WorkKey,
};

use crate::Reason;

/// The figures of a scheduler. Names as published.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Attempts to steal: pulls, and moves of a rebalancing pass.
    pub total_steals: u64,
    /// Attempts that moved at least one task.
    pub successful_steals: u64,
    /// Attempts that found nothing, or came too late.
    pub failed_steals: u64,
    /// `successful_steals / total_steals`; 0 when there were none.
    pub success_rate: f64,
    /// Tasks that moved from one agent to another.
    pub tasks_migrated: u64,
    /// Rebalancing passes that found the fleet out of balance.
    pub rebalance_cycles: u64,
    /// From being queued for the first time to the start, in seconds, over all started tasks.
    pub avg_task_wait_time: f64,
    /// Registered agents.
    pub agent_count: usize,
    /// Tasks in the queues of all agents.
    pub total_queued: usize,
    /// Agents with more than `busy_threshold` queued tasks.
    pub busy_agents: usize,
    /// Agents with fewer than `idle_threshold` queued tasks.
    pub idle_agents: usize,
    /// Utilization samples taken so far.
    pub total_samples: u64,
    /// Waiting times: for each bound of `histogram_buckets`, how many tasks waited at most so long;
    /// the last entry counts all.
    pub wait_histogram: Vec<(f64, u64)>,
    /// Deadlines that were missed.
    pub deadline_misses: u64,
    /// Attempts that were tried again.
    pub retries: u64,
    /// Second copies that were started.
    pub speculations: u64,
    /// Second copies that were first.
    pub speculations_won: u64,
    /// Answers to leases no longer in force.
    pub stale_answers: u64,
    /// Where all tasks are.
    pub counts: Counts,
}

/// Where all tasks are. At every moment `submitted` is the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Counts {
    /// Accepted so far.
    pub submitted: u64,
    /// Waiting for a dependency, a delay, a group's limit or a user's share.
    pub waiting: u64,
    /// On an agent's queue.
    pub queued: u64,
    /// With an agent, started or about to be.
    pub running: u64,
    /// Waiting for an agent that can do it.
    pub held: u64,
    /// Succeeded, or a fallback stood in.
    pub finished: u64,
    /// Failed.
    pub failed: u64,
    /// Cancelled or skipped.
    pub cancelled: u64,
    /// Left with the agent that had it.
    pub returned: u64,
}

impl Counts {
    /// Tasks that are not over.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.waiting + self.queued + self.running + self.held
    }

    /// Whether nothing was lost and nothing counted twice.
    #[must_use]
    pub fn balance(&self) -> bool {
        let over = self.finished + self.failed + self.cancelled + self.returned;
        self.submitted == self.live() + over
    }
}

/// The state of one agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentStatus {
    /// Which one.
    pub agent: AgentId,
    /// How many times this id has registered.
    pub incarnation: u32,
    /// Tasks on its queue.
    pub queue_length: usize,
    /// Skills it has now; suspended ones are not among them.
    pub capabilities: SkillSet,
    /// Skills it registered with or earned that are suspended now.
    pub suspended: Vec<SkillId>,
    /// Skills that it did not register with and earned; suspended ones are among them.
    pub earned: Vec<SkillId>,
    /// Successes over outcomes, recent ones counting more; 1 when there are none.
    pub success_rate: f64,
    /// Tasks it completed.
    pub total_completed: u64,
    /// Tasks it failed.
    pub total_failed: u64,
    /// Whether it has a task in hand.
    pub has_current_task: bool,
    /// Tasks it has in hand, started or about to be.
    pub running: Vec<TaskId>,
    /// How many tasks it runs at once.
    pub slots: u32,
    /// Whether it is heard and gets new work.
    pub liveness: Liveness,
    /// Its speed as learned from all its tasks; 1 runs a task in its expected cost.
    pub speed: f64,
}

/// How an agent does at a kind of work, where that is known to differ from how it does at everything.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KindStatus {
    /// Which work it is; nothing where tasks have only their requirements in common.
    pub work: Option<WorkKey>,
    /// Successes over outcomes at this kind, recent ones counting more.
    pub success_rate: f64,
    /// Its speed at this kind, as learned.
    pub speed: f64,
}

/// Whether an agent is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Liveness {
    /// Heard, or not expected to send heartbeats.
    Alive,
    /// Silent for a while: gets nothing new.
    Suspected,
    /// Finishes what it has and gets nothing new.
    Draining,
}

/// The queue lengths of all agents at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct UtilizationSample {
    /// When.
    pub timestamp: Time,
    /// The queue length of each agent, in the order in which they registered.
    pub queue_lengths: Vec<(AgentId, u32)>,
}

/// The state of one task that is not over.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskStatus {
    /// Which one.
    pub task: TaskId,
    /// Its job.
    pub job: JobId,
    /// Its priority.
    pub priority: Priority,
    /// Where it is.
    pub place: Place,
    /// Attempts so far, the present one included.
    pub attempts: u32,
    /// How often it moved from one agent's queue to another.
    pub moves: u32,
    /// When it was submitted.
    pub created: Time,
    /// When it was last given to an agent.
    pub assigned: Option<Time>,
    /// When it was last started.
    pub started: Option<Time>,
    /// When it should be done.
    pub deadline: Option<Time>,
}

/// Where a task is.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// It waits for these tasks (the first few), and so many in all.
    Dependencies {
        /// The first few.
        first: Vec<TaskId>,
        /// How many in all.
        count: u32,
    },
    /// It waits for its next attempt.
    Backoff {
        /// When that is.
        until: Time,
    },
    /// It stands by as the fallback of another task.
    Standby {
        /// The task it would stand in for.
        for_task: TaskId,
    },
    /// Its time limit passed, and its fallback runs in its stead.
    Delegated {
        /// The fallback.
        to: TaskId,
    },
    /// Its group is at its limit.
    GroupLimit {
        /// How many of the group are running.
        running: u32,
        /// How many may.
        limit: u32,
    },
    /// Its user has its share while others wait.
    UserShare {
        /// How many of the user's tasks are running.
        running: u32,
        /// The user's share of the slots.
        share: u32,
    },
    /// No agent can do it.
    Held,
    /// Another scheduler has it.
    Away,
    /// On an agent's queue.
    Queued {
        /// Whose.
        agent: AgentId,
        /// How many tasks on that queue come before it.
        ahead: usize,
        /// Why it went there.
        reason: Reason,
    },
    /// With an agent that has not started it.
    Leased {
        /// The agent.
        agent: AgentId,
        /// The lease.
        lease: Lease,
        /// Why it went there.
        reason: Reason,
    },
    /// Running.
    Running {
        /// The agent.
        agent: AgentId,
        /// The lease.
        lease: Lease,
        /// For how long.
        running_for: Span,
        /// Where its second copy runs, if there is one.
        copy: Option<AgentId>,
        /// Why it went there.
        reason: Reason,
    },
}

/// Why a task is where it is, why it is not running, and what would make it run.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The task itself.
    pub status: TaskStatus,
    /// Why it cannot run now; empty when it does.
    pub obstacles: Vec<Obstacle>,
    /// What would make it run (sooner).
    pub remedies: Vec<Remedy>,
    /// Skills of the task that its agent did not register with and earned.
    pub earned: Vec<SkillId>,
}

/// Why a task does not run.
#[derive(Clone, Debug, PartialEq)]
pub enum Obstacle {
    /// These tasks have not succeeded yet (the first few), so many in all.
    WaitsFor(Vec<TaskId>, u32),
    /// It failed and is tried again at this time.
    WaitsUntil(Time),
    /// The group has so many running, and may have so many.
    GroupFull {
        /// How many are running.
        running: u32,
        /// How many may.
        limit: u32,
    },
    /// The user has its share of the slots.
    ShareUsedUp {
        /// How many are running.
        running: u32,
        /// The share.
        share: u32,
    },
    /// No agent is registered at all.
    NoAgents,
    /// No agent has every skill that counts; the nearest lacks these.
    SkillsMissing {
        /// The agent that comes nearest.
        nearest: Option<AgentId>,
        /// What it lacks.
        missing: Vec<SkillId>,
    },
    /// Agents have the skills, but none is large enough for what the task needs.
    TooLarge,
    /// Capable agents exist but are suspected or draining.
    AgentsUnavailable(u32),
    /// So many tasks on the same queue come first.
    BehindOthers {
        /// On whose queue.
        agent: AgentId,
        /// How many.
        ahead: usize,
    },
    /// Its agent has no free slot.
    AgentBusy(AgentId),
    /// Another agent is idle, but this one is so much faster that it will end the task sooner.
    FasterAgent(AgentId),
    /// Its agent has a free slot but not enough free resources.
    NoRoom(AgentId),
    /// It is protected: an urgent task is not stolen.
    Protected,
    /// It moved as often as a task may.
    MovedEnough(u32),
    /// This agent is idle, but its room is kept: a forecast says that work is due that only few can do.
    RoomKept {
        /// Who is idle.
        agent: AgentId,
        /// When the work is due.
        due: Time,
    },
    /// It stands by for another task.
    StandsBy(TaskId),
    /// Another task stands in for it.
    StoodInBy(TaskId),
}

/// What is known of the arrivals of one kind of work: tasks that are the same in everything that can keep them from being
/// started.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkForecast {
    /// The skills it takes.
    pub skills: SkillSet,
    /// What its tasks need.
    pub needs: Resources,
    /// Whether they are urgent.
    pub is_urgent: bool,
    /// Whether they count as large.
    pub is_large: bool,
    /// The group whose limit they count against.
    pub group: Option<GroupId>,
    /// Whose they are.
    pub user: UserId,
    /// How many came within the last horizon.
    pub last: u32,
    /// How many are expected within the next one.
    pub expected: u32,
    /// How long one takes, the later ones counting more.
    pub service: Option<Span>,
    /// After how long arrivals repeat, if that was found.
    pub season: Option<Span>,
    /// By how many tasks a forecast for the horizon is wrong, on average.
    pub error: Option<f64>,
    /// By how many *as now* is.
    pub error_as_now: Option<f64>,
    /// Whether the forecast is acted on.
    pub is_believed: bool,
    /// When more than usual is due, and how many tasks, while room is kept for them.
    pub due: Option<(Time, u32)>,
    /// The agents whose room is kept.
    pub kept_for_it: Vec<AgentId>,
}

/// What would make a task run (sooner).
#[derive(Clone, Debug, PartialEq)]
pub enum Remedy {
    /// Register an agent with these skills.
    AddAgentWith(Vec<SkillId>),
    /// Register an agent with these skills and this much room.
    AddLargerAgent(Vec<SkillId>, Resources),
    /// Register more agents.
    AddAgents,
    /// Raise the limit of its group, which is so much now.
    RaiseGroupLimit(GroupId, u32),
    /// Raise the weight of its user, which is so much now.
    RaiseUserWeight(UserId, u32),
    /// Let the tasks it waits for finish, or look into those that fail.
    FinishDependencies(Vec<TaskId>),
    /// Raise its priority.
    RaisePriority,
    /// Allow stealing: the strategy is `push`, or `steal_below_busy` is off.
    AllowStealing,
    /// Wait.
    Wait(Option<Time>),
}

/// Somebody who submits tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserStatus {
    /// Who.
    pub user: UserId,
    /// The user's share of the slots is proportional to this.
    pub weight: u32,
    /// How many tasks of the user are not over.
    pub live: u64,
    /// How many of them are on queues.
    pub queued: u64,
    /// How many leases its tasks have.
    pub running: u32,
    /// How many slots the user may have while others wait; none while it has no tasks.
    pub share: u32,
}

/// What one agent has to do at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentLoad {
    /// The agent.
    pub agent: AgentId,
    /// How many tasks it can run at once.
    pub slots: u32,
    /// How many of its slots are taken.
    pub running: u32,
    /// How many tasks wait for it: on its queue, and in its hands beyond its slots.
    pub waiting: u32,
}

/// Something that is wrong with the fleet, and what to do about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong.
    pub kind: ProblemKind,
    /// What is wrong, in words, with the figures.
    pub message: alloc::string::String,
    /// What to do about it, the likeliest first.
    pub remedies: Vec<&'static str>,
}

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It will get worse.
    Warning,
    /// Work stands still.
    Critical,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// Tasks and no agent.
    NoAgents,
    /// Every agent is busy.
    AllAgentsBusy,
    /// Few steals succeed.
    LowStealSuccess,
    /// Queues differ widely.
    HighQueueVariance,
    /// Tasks that no agent can do.
    UnassignableTasks,
    /// Agents that are silent.
    AgentsSuspected,
    /// Skills that were taken away after failures.
    SkillsSuspended,
    /// Tasks that failed for good.
    DeadLetters,
    /// Deadlines were missed.
    DeadlinesMissed,
    /// Many tasks wait behind the limit of their group.
    Convoy,
    /// Tasks take less time than it takes to hand them out.
    OverPartitioning,
    /// One piece of data, or one queue, draws most of the work.
    HotSpot,
}

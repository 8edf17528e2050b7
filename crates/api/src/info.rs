//! What the server says.

use std::collections::BTreeMap;

use loxley_model::{AgentId, JobId, JobState, Priority, TaskId};
use serde::{Deserialize, Serialize};

use crate::{Needs, Role};

/// Part of a list, and where it goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// This part.
    pub items: Vec<T>,
    /// What to give as `before` (jobs) or `from` (tasks) for the next part; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Its array has not come to it yet, or its job waits for another.
    Pending,
    /// It waits for other tasks, for a group's limit or for its user's share.
    Waiting,
    /// It failed and will be tried again.
    Backoff,
    /// No agent can do it now.
    Held,
    /// On an agent's queue.
    Queued,
    /// With an agent that has not started it.
    Assigned,
    /// Running.
    Running,
    /// The fallback of another task, which has not needed it so far.
    Standby,
    /// It took too long, and its fallback runs.
    Delegated,
    /// Over: it worked.
    Succeeded,
    /// Over: it did not.
    Failed,
    /// Over: somebody cancelled it, or it was skipped.
    Cancelled,
}

impl TaskState {
    /// Whether nothing will change any more, unless somebody retries it.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Waiting => "waiting",
            Self::Backoff => "backoff",
            Self::Held => "held",
            Self::Queued => "queued",
            Self::Assigned => "assigned",
            Self::Running => "running",
            Self::Standby => "standby",
            Self::Delegated => "delegated",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// How many tasks are in which state. `total` is the sum of the others but `started`, which is a part of `running`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskCounts {
    /// All.
    pub total: u64,
    /// Not looked at yet: pending.
    pub pending: u64,
    /// Waiting for something: waiting, backoff, standby, delegated.
    pub waiting: u64,
    /// Held: no agent can do them.
    pub held: u64,
    /// On queues.
    pub queued: u64,
    /// With agents: assigned or running.
    pub running: u64,
    /// How many of these agents have started; the others will be next.
    #[serde(default)]
    pub started: u64,
    /// Succeeded.
    pub succeeded: u64,
    /// Failed.
    pub failed: u64,
    /// Cancelled or skipped.
    pub cancelled: u64,
}

impl TaskCounts {
    /// How many are over.
    #[must_use]
    pub const fn over(&self) -> u64 {
        self.succeeded + self.failed + self.cancelled
    }

    /// How many wait for their turn: on queues, or with agents that have not started them.
    #[must_use]
    pub const fn not_started(&self) -> u64 {
        self.queued + self.running.saturating_sub(self.started)
    }
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobInfo {
    /// Its number.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub id: JobId,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For whom it counts.
    pub user: String,
    /// How far it is.
    pub state: JobState,
    /// Where its tasks are.
    pub tasks: TaskCounts,
    /// The id of its first task; the others follow without gaps, unless entries were added later.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub first_task: TaskId,
    /// The id of its last task so far.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub last_task: TaskId,
    /// Whether entries may be added to it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub open: bool,
    /// Jobs that must be over first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<u64>))]
    pub after: Vec<JobId>,
    /// When it was accepted.
    pub created_unix_ms: u64,
    /// When its last task was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_unix_ms: Option<u64>,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskInfo {
    /// Its number.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub id: TaskId,
    /// Its job.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub job: JobId,
    /// What its job calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its entry, in an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// What it does: the words of its command with the entry filled in, or the name of its function.
    pub does: Vec<String>,
    /// How far it is.
    pub state: TaskState,
    /// Its priority.
    #[cfg_attr(feature = "openapi", schema(value_type = u8, minimum = 1, maximum = 5))]
    pub priority: Priority,
    /// Who has it or had it last, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Attempts so far, the present one included.
    pub attempts: u32,
    /// How often it moved from one agent's queue to another's.
    pub moves: u32,
    /// When it was accepted.
    pub created_unix_ms: u64,
    /// When it last started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_unix_ms: Option<u64>,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_unix_ms: Option<u64>,
    /// When it should be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_unix_ms: Option<u64>,
    /// How its last attempt ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<AttemptInfo>,
}

/// How an attempt ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttemptInfo {
    /// Why it did not work: `error`, `permanent`, `time_limit`, `agent_lost`, `unassignable`,
    /// `dependency`. Absent when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// More about that, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The exit code of its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// What it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// What an attempt used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Usage {
    /// From start to end.
    pub duration_sec: f64,
    /// Processor time in its own code.
    pub user_sec: f64,
    /// Processor time in the system.
    pub system_sec: f64,
    /// The most memory it held.
    pub memory_max_bytes: u64,
}

/// What the server kept of a task's output: the end of each stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutputTail {
    /// The end of its standard output. Bytes that are no text were replaced.
    pub stdout: String,
    /// How many bytes came before that.
    pub stdout_dropped_bytes: u64,
    /// The end of its standard error.
    pub stderr: String,
    /// How many bytes came before that.
    pub stderr_dropped_bytes: u64,
    /// Where the agent wrote all of it, when it was asked to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

/// Why a task is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Explanation {
    /// Which one.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub task: TaskId,
    /// How far it is.
    pub state: TaskState,
    /// Where it is, and why there.
    pub place: String,
    /// Why it does not run; empty when it does or is over.
    pub obstacles: Vec<String>,
    /// What would make it run (sooner).
    pub remedies: Vec<String>,
}

/// Whether an agent is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    /// Heard, and gets work.
    Alive,
    /// Silent for a while: gets nothing new.
    Suspected,
    /// Finishes what it has and gets nothing new.
    Draining,
    /// Silent for so long that it was given up. What it had went to others.
    Lost,
    /// It ended as it was told to: stopped, or drained.
    Left,
}

impl AgentState {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Alive,
        Self::Suspected,
        Self::Draining,
        Self::Lost,
        Self::Left,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Suspected => "suspected",
            Self::Draining => "draining",
            Self::Lost => "lost",
            Self::Left => "left",
        }
    }

    /// Whether it is part of the fleet: not given up, and not ended.
    #[must_use]
    pub const fn is_here(self) -> bool {
        matches!(self, Self::Alive | Self::Suspected | Self::Draining)
    }
}

/// How an agent does at a kind of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentKind {
    /// The name of the work, the function or the command; where no job that is not over has such work, its number.
    pub kind: String,
    /// Successes over outcomes, recent ones counting more.
    pub success_rate: f64,
    /// Its speed, as learned; 1 runs a task in its expected cost.
    pub speed: f64,
}

/// An agent. Names of the figures as published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentInfo {
    /// Its number.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub id: AgentId,
    /// Its name; each name once.
    pub name: String,
    /// How often an agent of this name has registered.
    pub incarnation: u32,
    /// Whether it is there.
    pub state: AgentState,
    /// Skills it has now.
    pub capabilities: Vec<String>,
    /// Skills that it came with or earned, and lost after failures, for now.
    pub suspended: Vec<String>,
    /// Skills that it did not come with and earned, by succeeding at tasks that need them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earned: Vec<String>,
    /// How many tasks it runs at once.
    pub slots: u32,
    /// What it has.
    pub resources: Needs,
    /// Where it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Its speed, as learned; 1 runs a task in its expected cost.
    pub speed: f64,
    /// Kinds of work at which it is known to do better or worse, or to be faster or slower, than at everything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<AgentKind>,
    /// Tasks on its queue.
    pub queue_length: u64,
    /// Tasks it has in hand, started or about to be.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<u64>))]
    pub running: Vec<TaskId>,
    /// How many of them have started: each of these has a slot.
    #[serde(default)]
    pub started: u64,
    /// Whether it has a task in hand.
    pub has_current_task: bool,
    /// Tasks it completed.
    pub total_completed: u64,
    /// Tasks it failed.
    pub total_failed: u64,
    /// Successes over outcomes, recent ones counting more.
    pub success_rate: f64,
    /// How much it says it is slowed down: 0 not at all, 1 stands still.
    pub throttle: f64,
    /// The round trip to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_sec: Option<f64>,
    /// Its load average, memory in use and the like, as far as it reports them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vitals: BTreeMap<String, f64>,
    /// How it keeps limits, and what it cannot keep, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// When it was last heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_unix_ms: Option<u64>,
}

/// The server itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServerInfo {
    /// Of the program.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// Where it listens.
    pub url: String,
    /// Where it keeps its things.
    pub directory: String,
    /// When it started.
    pub started_unix_ms: u64,
    /// Whether it takes no more work.
    pub draining: bool,
    /// Jobs that are not over.
    pub jobs_open: u64,
    /// The last group of the journal.
    pub journal_position: u64,
    /// How large the journal is, in bytes.
    #[serde(default)]
    pub journal_bytes: u64,
    /// How much of that is not in use.
    #[serde(default)]
    pub journal_unused_bytes: u64,
    /// Whether its disk is full: no more jobs are taken until there is room.
    #[serde(default)]
    pub disk_full: bool,
    /// Figures of the fleet.
    pub fleet: FleetInfo,
}

/// The instances of a server, and who of them serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClusterInfo {
    /// Those that are or were there, the one that serves first.
    pub instances: Vec<InstanceInfo>,
    /// What they share.
    pub shards: Vec<ShardInfo>,
    /// How the database is kept from the loss of its machine; absent where the journal is in a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,
    /// The copies of the database that are connected to it, as far as the server may know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaInfo>,
}

/// One of several servers on one database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InstanceInfo {
    /// What it is called; each name once.
    pub name: String,
    /// Where it listens.
    pub url: String,
    /// Of its program.
    pub version: String,
    /// What it does.
    pub state: InstanceState,
    /// When it started.
    pub started_unix_ms: u64,
    /// How long ago it was heard of.
    pub silent_sec: f64,
    /// How far its clock is before that of the database.
    pub clock_ahead_sec: f64,
}

/// What one of several servers does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum InstanceState {
    /// It decides, and answers.
    Serving,
    /// It takes over when the one that serves is gone.
    Standby,
    /// Nobody has heard of it for a while.
    Silent,
}

impl InstanceState {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Standby => "standby",
            Self::Silent => "silent",
        }
    }
}

/// A journal, and who may write it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShardInfo {
    /// Its number.
    pub shard: u32,
    /// The how-manieth holder it has; 0 where there can be only one.
    pub epoch: u64,
    /// The name of the instance that holds it; absent when none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// How long its lease still is, unless it is renewed; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_left_sec: Option<f64>,
    /// Where its journal ends.
    pub journal_position: u64,
    /// How many groups came after the newest snapshot: whoever takes over reads them first. Absent where nobody can
    /// take over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_groups: Option<u64>,
    /// How long a write takes; absent where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_sec: Option<f64>,
    /// How many agents it has; absent where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<u64>,
    /// How many of its tasks are with other shards; absent where nobody knows, or there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away: Option<u64>,
    /// How many tasks of other shards it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guests: Option<u64>,
    /// Why nobody serves it: what its journal has lost, in words. Absent where nothing is known to be lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// How a database is kept from the loss of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Replication {
    /// There is no copy that we know of.
    None,
    /// There are copies that may lack the last commits.
    Asynchronous,
    /// Commits wait for a copy.
    Synchronous,
}

impl Replication {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Asynchronous => "asynchronous",
            Self::Synchronous => "synchronous",
        }
    }
}

/// A copy of the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReplicaInfo {
    /// What it calls itself.
    pub name: String,
    /// Whether commits wait for it, in the words of the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_state: Option<String>,
    /// How far it is behind, in bytes of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_bytes: Option<u64>,
}

/// What of the past is to be forgotten, at once, whatever the configuration keeps. With neither limit: what the
/// configuration does not keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PruneRequest {
    /// Forget jobs that ended longer ago, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than_sec: Option<f64>,
    /// Keep so many of the jobs that ended last; with `older_than_sec`, only what is beyond both is forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_jobs: Option<u64>,
}

/// What was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PruneReport {
    /// So many jobs.
    pub jobs: u64,
    /// So many tasks.
    pub tasks: u64,
    /// So many groups of facts from before the newest snapshot.
    pub groups: u64,
    /// So many bytes were given back to the system.
    pub bytes: u64,
    /// Whether there is more to forget: ask again.
    pub more: bool,
}

/// The figures of the scheduler, names as published.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FleetInfo {
    /// Attempts to steal.
    pub total_steals: u64,
    /// Those that moved at least one task.
    pub successful_steals: u64,
    /// Those that did not.
    pub failed_steals: u64,
    /// The share of the former.
    pub success_rate: f64,
    /// Tasks that moved from one agent to another.
    pub tasks_migrated: u64,
    /// Rebalancing passes that found the fleet out of balance.
    pub rebalance_cycles: u64,
    /// From being queued to being started, in seconds.
    pub avg_task_wait_time: f64,
    /// Registered agents.
    pub agent_count: u64,
    /// Tasks on queues.
    pub total_queued: u64,
    /// Agents with more than `busy_threshold` tasks queued.
    pub busy_agents: u64,
    /// Agents with fewer than `idle_threshold` tasks queued.
    pub idle_agents: u64,
    /// Utilization samples taken.
    pub total_samples: u64,
    /// For each bound in seconds, how many tasks waited at most so long. The count over all bounds is
    /// `waits_total`.
    pub wait_histogram: Vec<(f64, u64)>,
    /// How many tasks have started.
    pub waits_total: u64,
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
    pub tasks: TaskCounts,
}

/// What is wrong with the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Health {
    /// Whether nothing is critical.
    pub ok: bool,
    /// The worst first.
    pub problems: Vec<Problem>,
}

/// Something that is wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// For programs: `no_agents`, `all_agents_busy` ...
    pub kind: String,
    /// For people, with the figures.
    pub message: String,
    /// What to do, the likeliest first.
    pub remedies: Vec<String>,
}

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It will get worse.
    Warning,
    /// Work stands still.
    Critical,
}

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenInfo {
    /// What it is called.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// For whom its jobs count.
    pub user: String,
    /// When it was made.
    pub created_unix_ms: u64,
}

fn is_false(value: &bool) -> bool {
    !value
}

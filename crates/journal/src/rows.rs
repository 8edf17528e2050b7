//! The rows of history: what is over, and what people ask about it.

pub use loxley_model::JobState;
use loxley_model::{AgentId, Failure, JobId, Span, TaskId, Time};

/// How large things may be. More is refused as [`TooLarge`](crate::NotWritten::TooLarge).
pub mod limits {
    /// Bytes of facts in one group.
    pub const FACTS_BYTES_MAX: usize = 64 << 20;
    /// Rows of one kind in one group.
    pub const ROWS_MAX: usize = 1 << 20;
    /// Bytes of the kept end of a task's output.
    pub const OUTPUT_BYTES_MAX: usize = 1 << 20;
    /// Bytes of a task's result.
    pub const RESULT_BYTES_MAX: usize = 64 << 20;
    /// Bytes of a name.
    pub const NAME_BYTES_MAX: usize = 4 << 10;
    /// Bytes of a job's description.
    pub const DETAIL_BYTES_MAX: usize = 16 << 20;
    /// Bytes of a snapshot. The storage itself ends a little above.
    pub const SNAPSHOT_BYTES_MAX: usize = 900 << 20;
    /// Rows in one page of an answer.
    pub const PAGE_ROWS_MAX: usize = 10_000;
    /// The largest id or time: numbers are stored with a sign.
    pub const NUMBER_MAX: u64 = i64::MAX as u64;
    /// The largest id of a task: its row shares a number with the rows of its neighbours.
    pub const TASK_MAX: u64 = (1 << 51) - 1;
}

/// The rows that belong to one group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// Tasks that ended. A task that ended before (and was resubmitted since) gets its row replaced.
    pub tasks: Vec<TaskRow>,
    /// What these tasks leave behind, where there is anything. What one left behind when it ended before
    /// is forgotten.
    pub outputs: Vec<TaskOutput>,
    /// Jobs that began or changed: the row is replaced.
    pub jobs: Vec<JobRow>,
    /// Agents that got a number: the row is replaced.
    pub agents: Vec<AgentRow>,
    /// What this shard says to others. Only of a journal that is one of several.
    pub letters: Vec<LetterRow>,
    /// Of which other shard the letters were read up to which number.
    pub letters_read: Vec<(u16, u64)>,
    /// By which other shard our letters were read up to which number: they are forgotten.
    pub letters_arrived: Vec<(u16, u64)>,
}

/// What one shard says to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterRow {
    /// To which one.
    pub to: u16,
    /// From 1, without a gap, for each recipient.
    pub number: u64,
    /// What is said, packed by the driver.
    pub body: Vec<u8>,
}

/// A task that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow {
    /// The task.
    pub task: TaskId,
    /// Its job. The row of the job must say that the task is in its range.
    pub job: JobId,
    /// Which entry of an array it was.
    pub entry: Option<u64>,
    /// How it ended.
    pub ended: Ended,
    /// The exit code of its process.
    pub exit_code: Option<i32>,
    /// The signal that ended its process.
    pub signal: Option<i32>,
    /// Who ran the last attempt.
    pub agent: Option<AgentId>,
    /// How many attempts there were.
    pub attempt: u32,
    /// When it was submitted.
    pub created: Time,
    /// When the last attempt began.
    pub started: Option<Time>,
    /// When it ended.
    pub finished: Time,
    /// What the last attempt used, if somebody told.
    pub usage: Option<Usage>,
}

/// What an attempt used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Usage {
    /// From its start to its end.
    pub duration: Span,
    /// Processor time in its own code.
    pub user: Span,
    /// Processor time in the system.
    pub system: Span,
    /// The most memory it held.
    pub memory_bytes: u64,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// It worked.
    Succeeded,
    /// Something stands in for it.
    FellBack,
    /// It did not work.
    Failed(Failure),
    /// It was cancelled or skipped.
    Cancelled,
    /// It left with its agent.
    Returned,
}

/// What a task leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskOutput {
    /// The task.
    pub task: TaskId,
    /// The end of what it printed.
    pub output: Vec<u8>,
    /// What it returned.
    pub result: Vec<u8>,
}

/// A job, under way or over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// The job.
    pub job: JobId,
    /// What its owner calls it.
    pub name: String,
    /// Who submitted it.
    pub user: String,
    /// Its first task; the others follow without a gap.
    pub first_task: TaskId,
    /// How many tasks it has.
    pub task_count: u64,
    /// How it stands.
    pub state: JobState,
    /// When it was submitted.
    pub created: Time,
    /// When its last task ended.
    pub finished: Option<Time>,
    /// Tasks that succeeded or fell back.
    pub succeeded: u64,
    /// Tasks that failed.
    pub failed: u64,
    /// Tasks that were cancelled or returned.
    pub cancelled: u64,
    /// The description, packed by the driver. Empty in a later row of the same job: it stays what it was.
    pub detail: Vec<u8>,
}

/// The name behind an agent's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRow {
    /// The number.
    pub agent: AgentId,
    /// The name.
    pub name: String,
}

impl Ended {
    pub(crate) fn is_success(self) -> bool {
        matches!(self, Self::Succeeded | Self::FellBack)
    }

    pub(crate) fn code(self) -> u64 {
        match self {
            Self::Succeeded => 0,
            Self::FellBack => 1,
            Self::Failed(Failure::Error) => 10,
            Self::Failed(Failure::Permanent) => 11,
            Self::Failed(Failure::TimeLimit) => 12,
            Self::Failed(Failure::AgentLost) => 13,
            Self::Failed(Failure::Unassignable) => 14,
            Self::Failed(Failure::Dependency) => 15,
            Self::Cancelled => 20,
            Self::Returned => 21,
        }
    }

    pub(crate) fn from_code(code: u64) -> Option<Self> {
        Some(match code {
            0 => Self::Succeeded,
            1 => Self::FellBack,
            10 => Self::Failed(Failure::Error),
            11 => Self::Failed(Failure::Permanent),
            12 => Self::Failed(Failure::TimeLimit),
            13 => Self::Failed(Failure::AgentLost),
            14 => Self::Failed(Failure::Unassignable),
            15 => Self::Failed(Failure::Dependency),
            20 => Self::Cancelled,
            21 => Self::Returned,
            _ => return None,
        })
    }
}

/// The number under which a job's state is stored. A job that waits for another one is not over, and that is
/// all that the history knows of it.
pub(crate) fn state_code(state: JobState) -> i64 {
    match state {
        JobState::Waiting | JobState::Open => 0,
        JobState::Succeeded => 1,
        JobState::Failed => 2,
        JobState::Cancelled => 3,
    }
}

pub(crate) fn state_of(code: i64) -> Option<JobState> {
    Some(match code {
        0 => JobState::Open,
        1 => JobState::Succeeded,
        2 => JobState::Failed,
        3 => JobState::Cancelled,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_read_back_as_what_it_stands_for() {
        let mut known = 0;
        for code in 0..100 {
            if let Some(ended) = Ended::from_code(code) {
                assert_eq!(ended.code(), code);
                known += 1;
            }
        }
        assert_eq!(known, 10);
        for code in 0..4 {
            assert_eq!(state_of(code).map(state_code), Some(code));
        }
    }
}

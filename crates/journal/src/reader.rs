//! What every engine's history can be asked.

use loxley_model::{AgentId, JobId, TaskId};

use crate::ReadError;
use crate::group::{Limit, Position, StoredGroup};
use crate::rows::{AgentRow, JobRow, TaskOutput, TaskRow};
use crate::sqlite::{History, JobQuery, Page, TaskQuery};

/// Tasks are told in blocks of so many neighbouring ids.
pub const BLOCK_TASKS: u64 = 4096;

/// A block that holds finished tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockStamp {
    /// The first id that can be in it.
    pub first: TaskId,
    /// The first id of the next one.
    pub next: TaskId,
    /// Another one when another task of the block has ended.
    pub stamp: u64,
}

impl BlockStamp {
    /// The block of a task.
    #[must_use]
    pub fn of(task: TaskId, stamp: u64) -> Self {
        let first = task.0 - task.0 % BLOCK_TASKS;
        Self {
            first: TaskId(first),
            next: TaskId(first + BLOCK_TASKS),
            stamp,
        }
    }
}

/// Questions about what is over. Whoever asks sees what was committed by then; every answer is bounded and says
/// where to go on.
pub trait ReadHistory: Send {
    /// A finished task.
    fn task(&self, task: TaskId) -> Result<Option<TaskRow>, ReadError>;

    /// The end of what a finished task printed.
    fn output(&self, task: TaskId) -> Result<Option<Vec<u8>>, ReadError>;

    /// What a finished task returned.
    fn result(&self, task: TaskId) -> Result<Option<Vec<u8>>, ReadError>;

    /// Which tasks from `first` to `last` may have left something behind, in the order of their ids, and how many bytes.
    fn output_sizes(&self, first: TaskId, last: TaskId) -> Result<Vec<(TaskId, u64)>, ReadError>;

    /// What these tasks left behind when they ended last, where there is anything.
    fn outputs_of(&self, tasks: &[TaskId]) -> Result<Vec<TaskOutput>, ReadError>;

    /// Finished tasks, in the order of their ids.
    fn tasks(&self, query: &TaskQuery) -> Result<Page<TaskRow, TaskId>, ReadError>;

    /// The first block, from the one of `from` on, that holds anything.
    fn next_block(&self, from: TaskId) -> Result<Option<BlockStamp>, ReadError>;

    /// The finished tasks of the block of a task, in the order of their ids.
    fn block(&self, task: TaskId) -> Result<Vec<TaskRow>, ReadError> {
        let block = BlockStamp::of(task, 0);
        let mut rows = self.tasks(&TaskQuery {
            after: block.first.0.checked_sub(1).map(TaskId),
            limit: BLOCK_TASKS as usize,
            ..TaskQuery::default()
        })?;
        rows.rows.retain(|row| row.task < block.next);
        Ok(rows.rows)
    }

    /// A job.
    fn job(&self, job: JobId) -> Result<Option<JobRow>, ReadError>;

    /// Jobs, newest first.
    fn jobs(&self, query: &JobQuery) -> Result<Page<JobRow, JobId>, ReadError>;

    /// The agents that ever got a number, in the order of their numbers, after `after`.
    fn agents(
        &self,
        after: Option<AgentId>,
        limit: usize,
    ) -> Result<Page<AgentRow, AgentId>, ReadError>;

    /// Groups of facts from `from` on, as [`Journal::read`](crate::Journal::read).
    fn groups(&self, from: Position, limit: Limit) -> Result<Vec<StoredGroup>, ReadError>;

    /// When the journal was made, in nanoseconds since 1970. Times in its rows count from here.
    fn epoch_unix_nanos(&self) -> Result<u64, ReadError>;
}

impl ReadHistory for History {
    fn task(&self, task: TaskId) -> Result<Option<TaskRow>, ReadError> {
        Self::task(self, task)
    }

    fn output(&self, task: TaskId) -> Result<Option<Vec<u8>>, ReadError> {
        Self::output(self, task)
    }

    fn result(&self, task: TaskId) -> Result<Option<Vec<u8>>, ReadError> {
        Self::result(self, task)
    }

    fn output_sizes(&self, first: TaskId, last: TaskId) -> Result<Vec<(TaskId, u64)>, ReadError> {
        Self::output_sizes(self, first, last)
    }

    fn outputs_of(&self, tasks: &[TaskId]) -> Result<Vec<TaskOutput>, ReadError> {
        let outputs = tasks.iter().map(|task| self.left_behind(*task));
        outputs.filter_map(Result::transpose).collect()
    }

    fn tasks(&self, query: &TaskQuery) -> Result<Page<TaskRow, TaskId>, ReadError> {
        Self::tasks(self, query)
    }

    fn next_block(&self, from: TaskId) -> Result<Option<BlockStamp>, ReadError> {
        Self::next_block(self, from)
    }

    fn block(&self, task: TaskId) -> Result<Vec<TaskRow>, ReadError> {
        Self::block(self, task)
    }

    fn job(&self, job: JobId) -> Result<Option<JobRow>, ReadError> {
        Self::job(self, job)
    }

    fn jobs(&self, query: &JobQuery) -> Result<Page<JobRow, JobId>, ReadError> {
        Self::jobs(self, query)
    }

    fn agents(
        &self,
        after: Option<AgentId>,
        limit: usize,
    ) -> Result<Page<AgentRow, AgentId>, ReadError> {
        Self::agents(self, after, limit)
    }

    fn groups(&self, from: Position, limit: Limit) -> Result<Vec<StoredGroup>, ReadError> {
        Self::groups(self, from, limit)
    }

    fn epoch_unix_nanos(&self) -> Result<u64, ReadError> {
        Self::epoch_unix_nanos(self)
    }
}

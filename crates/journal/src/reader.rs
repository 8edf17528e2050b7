//! What every engine's history can be asked.

use loxley_model::{AgentId, JobId, TaskId};

use crate::ReadError;
use crate::rows::{AgentRow, JobRow, TaskRow};
use crate::sqlite::{History, JobQuery, Page, TaskQuery};

/// Questions about what is over. Whoever asks sees what was committed by then; every answer is bounded and says
/// where to go on.
pub trait ReadHistory: Send {
    /// A finished task.
    fn task(&self, task: TaskId) -> Result<Option<TaskRow>, ReadError>;

    /// The end of what a finished task printed.
    fn output(&self, task: TaskId) -> Result<Option<Vec<u8>>, ReadError>;

    /// What a finished task returned.
    fn result(&self, task: TaskId) -> Result<Option<Vec<u8>>, ReadError>;

    /// Finished tasks, in the order of their ids.
    fn tasks(&self, query: &TaskQuery) -> Result<Page<TaskRow, TaskId>, ReadError>;

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

    fn tasks(&self, query: &TaskQuery) -> Result<Page<TaskRow, TaskId>, ReadError> {
        Self::tasks(self, query)
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

    fn epoch_unix_nanos(&self) -> Result<u64, ReadError> {
        Self::epoch_unix_nanos(self)
    }
}

//! What a submitter holds of a task: the promise of its result.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use loxley_model::TaskId;

use crate::task::TaskKey;

/// A result, whatever its type.
pub(super) type Value = Arc<dyn Any + Send + Sync>;

/// Why a task has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// Its last attempt failed, and said this.
    #[error("the task failed: {0}")]
    Failed(Arc<str>),
    /// It ran longer than its time limit.
    #[error("the task ran longer than its time limit")]
    TimeLimit,
    /// The agent that ran it was lost, and it could not be run again.
    #[error("the agent that ran the task was lost")]
    AgentLost,
    /// No agent could do it in time.
    #[error("no agent could do the task in time")]
    Unassignable,
    /// A task that it depends on did not succeed.
    #[error("a task it depends on did not succeed")]
    Dependency,
    /// It was cancelled, or skipped.
    #[error("the task was cancelled")]
    Cancelled,
    /// Its batch was refused or never submitted.
    #[error("the task was never submitted")]
    NeverSubmitted,
    /// Another clone of the handle took the result.
    #[error("the result was already taken")]
    Taken,
    /// The result of the fallback task is of another type.
    #[error("the result of the fallback task is of another type")]
    OtherType,
    /// It did not end in the time it was waited for.
    #[error("the task is not over yet")]
    NotYet,
}

/// The promise of a task's result. Clones share it.
pub struct Handle<R> {
    promise: Arc<Promise>,
    result: PhantomData<fn() -> R>,
}

impl<R: Send + Sync + 'static> Handle<R> {
    pub(super) fn new(promise: Arc<Promise>) -> Self {
        Self {
            promise,
            result: PhantomData,
        }
    }

    /// Waits for the task to end, and copies its result.
    pub fn wait(&self) -> Result<R, TaskError>
    where
        R: Clone,
    {
        self.shared(None).map(|value| (*value).clone())
    }

    /// As [`wait`](Self::wait), no longer than `timeout`.
    pub fn wait_within(&self, timeout: Duration) -> Result<R, TaskError>
    where
        R: Clone,
    {
        self.shared(Some(timeout)).map(|value| (*value).clone())
    }

    /// Waits for the task to end, and shares its result.
    pub fn wait_shared(&self) -> Result<Arc<R>, TaskError> {
        self.shared(None)
    }

    /// Waits for the task to end, and takes its result out, without a copy. No other clone of the
    /// handle gets it.
    pub fn take(self) -> Result<R, TaskError> {
        let value = self.promise.take()?;
        let value = value.downcast::<R>().map_err(|_| TaskError::OtherType)?;
        Arc::try_unwrap(value).map_err(|_| TaskError::Taken)
    }

    fn shared(&self, timeout: Option<Duration>) -> Result<Arc<R>, TaskError> {
        let value = self.promise.value(timeout)?;
        value.downcast().map_err(|_| TaskError::OtherType)
    }
}

impl<R> Handle<R> {
    /// Whether the task is over, one way or another.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.promise.lock().is_some()
    }

    /// The number of the task; none before its batch is submitted.
    #[must_use]
    pub fn id(&self) -> Option<TaskId> {
        self.promise.id.get().copied()
    }
}

impl<R> Clone for Handle<R> {
    fn clone(&self) -> Self {
        Self {
            promise: Arc::clone(&self.promise),
            result: PhantomData,
        }
    }
}

impl<R> fmt::Debug for Handle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("id", &self.id())
            .field("is_done", &self.is_done())
            .finish()
    }
}

impl<R> From<&Handle<R>> for TaskKey {
    /// By number; a task of a batch that is not submitted yet is known by its name only.
    fn from(handle: &Handle<R>) -> Self {
        match handle.id() {
            Some(id) => Self::Id(id),
            None => Self::Name(handle.promise.name.get().cloned().unwrap_or_default()),
        }
    }
}

/// Where the result of a task will be.
#[derive(Default)]
pub(super) struct Promise {
    pub(super) id: OnceLock<TaskId>,
    pub(super) name: OnceLock<String>,
    outcome: Mutex<Option<Result<Value, TaskError>>>,
    bell: Condvar,
}

impl Promise {
    fn lock(&self) -> MutexGuard<'_, Option<Result<Value, TaskError>>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the promise. Says whether it was open: a failure may later become a success, when a
    /// dead letter is resubmitted, and nothing else changes.
    pub(super) fn keep(&self, outcome: Result<Value, TaskError>) -> bool {
        let mut kept = self.lock();
        let was_open = kept.is_none();
        if was_open || (matches!(*kept, Some(Err(_))) && outcome.is_ok()) {
            *kept = Some(outcome);
        }
        drop(kept);
        self.bell.notify_all();
        was_open
    }

    /// The result if there is one already.
    pub(super) fn peek(&self) -> Option<Value> {
        self.lock().as_ref()?.as_ref().ok().cloned()
    }

    fn value(&self, timeout: Option<Duration>) -> Result<Value, TaskError> {
        match &*self.wait(timeout) {
            Some(outcome) => outcome.clone(),
            None => Err(TaskError::NotYet),
        }
    }

    fn take(&self) -> Result<Value, TaskError> {
        let mut kept = self.wait(None);
        match kept.take() {
            Some(outcome) => {
                *kept = Some(Err(TaskError::Taken));
                outcome
            }
            None => Err(TaskError::NotYet),
        }
    }

    fn wait(&self, timeout: Option<Duration>) -> MutexGuard<'_, Option<Result<Value, TaskError>>> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut kept = self.lock();
        while kept.is_none() {
            kept = match end {
                None => self.bell.wait(kept).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let waited = self.bell.wait_timeout(kept, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        kept
    }
}

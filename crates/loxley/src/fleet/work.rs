//! What a task of a fleet carries: its closure, the results that came back, the promise to keep.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use loxley_model::{Failure, Lease, TaskId};

use super::handle::{Handle, Promise, TaskError, Value};
use crate::event::Ending;
use crate::scheduler::Assignment;
use crate::state::CancelSignal;
use crate::task::Name;

/// What a closure is told about the attempt it is.
#[derive(Debug)]
pub struct Context {
    /// Who runs it.
    pub agent: Name,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Why this agent got it.
    pub why: crate::Why,
    lease: Lease,
    signal: CancelSignal,
    is_final: AtomicBool,
}

impl Context {
    pub(super) fn new(assignment: &Assignment<Work>) -> Self {
        Self {
            agent: Arc::clone(&assignment.agent),
            attempt: assignment.attempt,
            why: assignment.why.clone(),
            lease: assignment.lease,
            signal: assignment.signal.clone(),
            is_final: AtomicBool::new(false),
        }
    }

    /// Whether nobody wants the result any more: it was cancelled, ran out of time, or another copy
    /// was first. A long closure asks now and then, and returns.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.signal.is_cancelled()
    }

    /// Why it should stop; none while it should go on.
    #[must_use]
    pub fn cancel_reason(&self) -> Option<loxley_policy::CancelReason> {
        self.signal.reason()
    }

    /// If this attempt fails, the task is not tried again.
    pub fn do_not_retry(&self) {
        self.is_final.store(true, Ordering::Relaxed);
    }
}

/// The payload of a fleet's task.
pub struct Work {
    run: Box<Run>,
    promise: Arc<Promise>,
    /// Results that wait for the scheduler's word on which lease counts.
    results: Mutex<Vec<(Lease, Value)>>,
    fallback: OnceLock<StandIn>,
}

type Run = dyn Fn(&Context) -> Result<Value, String> + Send + Sync;

/// What stands in when the time limit passes.
enum StandIn {
    Value(Value),
    Task(Arc<Work>),
}

/// A failed attempt.
pub(super) struct Fault {
    pub(super) message: String,
    pub(super) is_final: bool,
}

impl Work {
    pub(super) fn new<R, E, F>(run: F) -> (Self, Handle<R>)
    where
        R: Send + Sync + 'static,
        E: fmt::Display,
        F: Fn(&Context) -> Result<R, E> + Send + Sync + 'static,
    {
        Self::with_promise(move |context| match run(context) {
            Ok(value) => Ok(Arc::new(value) as Value),
            Err(error) => Err(error.to_string()),
        })
    }

    pub(super) fn once<R, F>(run: F) -> (Self, Handle<R>)
    where
        R: Send + Sync + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        let run = Mutex::new(Some(run));
        Self::with_promise(move |context| {
            let run = run.lock().unwrap_or_else(PoisonError::into_inner).take();
            match run {
                Some(run) => Ok(Arc::new(run()) as Value),
                None => {
                    context.do_not_retry();
                    Err("its agent was lost, and it can run only once".into())
                }
            }
        })
    }

    fn with_promise<R, F>(run: F) -> (Self, Handle<R>)
    where
        R: Send + Sync + 'static,
        F: Fn(&Context) -> Result<Value, String> + Send + Sync + 'static,
    {
        let promise = Arc::new(Promise::default());
        let handle = Handle::new(Arc::clone(&promise));
        let work = Self {
            run: Box::new(run),
            promise,
            results: Mutex::new(Vec::new()),
            fallback: OnceLock::new(),
        };
        (work, handle)
    }

    pub(super) fn fall_back_to_value<R: Send + Sync + 'static>(&mut self, value: R) {
        let _ = self.fallback.set(StandIn::Value(Arc::new(value)));
    }

    pub(super) fn fall_back_to(&self, work: &Arc<Self>) {
        let _ = self.fallback.set(StandIn::Task(Arc::clone(work)));
    }

    pub(super) fn call_it(&self, name: &str) {
        let _ = self.promise.name.set(name.into());
    }

    pub(super) fn number(&self, id: TaskId) {
        let _ = self.promise.id.set(id);
    }

    /// Runs the closure. A result is kept until the scheduler says whether its lease counts.
    pub(super) fn run(&self, context: &Context) -> Result<(), Fault> {
        let is_final = || context.is_final.load(Ordering::Relaxed);
        match catch_unwind(AssertUnwindSafe(|| (self.run)(context))) {
            Ok(Ok(value)) => {
                let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
                results.push((context.lease, value));
                Ok(())
            }
            Ok(Err(message)) => Err(Fault {
                message,
                is_final: is_final(),
            }),
            Err(panic) => Err(Fault {
                message: format!("it panicked: {}", panic_words(&*panic)),
                is_final: is_final(),
            }),
        }
    }

    /// The scheduler said how the task ended. Says whether that was news.
    pub(super) fn settle(&self, ending: &Ending) -> bool {
        let outcome = match ending {
            Ending::Succeeded { lease, .. } => Ok(self.result_under(*lease)),
            Ending::FellBack { .. } => self.fallback_value(),
            Ending::Failed { failure, message } => Err(match failure {
                Failure::Error | Failure::Permanent => {
                    TaskError::Failed(message.clone().unwrap_or_else(|| "no reason given".into()))
                }
                Failure::TimeLimit => TaskError::TimeLimit,
                Failure::AgentLost => TaskError::AgentLost,
                Failure::Unassignable => TaskError::Unassignable,
                Failure::Dependency => TaskError::Dependency,
            }),
            Ending::Cancelled | Ending::Returned => Err(TaskError::Cancelled),
        };
        self.promise.keep(outcome)
    }

    /// It was never handed in.
    pub(super) fn abandon(&self) {
        self.promise.keep(Err(TaskError::NeverSubmitted));
    }

    fn result_under(&self, lease: Lease) -> Value {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let position = results
            .iter()
            .position(|(other, _)| *other == lease)
            .expect("a result is kept before it is reported");
        let (_, value) = results.swap_remove(position);
        results.clear();
        value
    }

    fn fallback_value(&self) -> Result<Value, TaskError> {
        match self.fallback.get() {
            Some(StandIn::Value(value)) => Ok(Arc::clone(value)),
            Some(StandIn::Task(work)) => work.promise.peek().ok_or(TaskError::TimeLimit),
            None => Err(TaskError::TimeLimit),
        }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").finish_non_exhaustive()
    }
}

fn panic_words(panic: &(dyn Any + Send)) -> &str {
    if let Some(words) = panic.downcast_ref::<&str>() {
        words
    } else if let Some(words) = panic.downcast_ref::<String>() {
        words
    } else {
        "no message"
    }
}

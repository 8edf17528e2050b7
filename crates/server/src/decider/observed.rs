//! An engine that somebody else drives, served to people who want to look at it.
//!
//! `loxley run` owns an engine of its own. Whoever looks at the run asks as if it were a server; each question is brought
//! to the thread that owns the engine, which has the [`Observer`] answer it there.
//!
//! ```text
//!  HTTP ──Handle──▶ requests ──deliver──▶ whoever owns the engine ──Observer::answer──▶ the answer
//! ```
//!
//! What must stay true: looking changes nothing. What somebody wants to change is a [`Wish`], and it is the owner's to
//! grant.

use std::fmt;
use std::sync::Arc;

use loxley_api::{ApiError, ErrorCode, EventKind, JobInfo};
use loxley_driver::IdMap;
use loxley_engine::{Applied, Engine, Fact};
use loxley_model::{JobId, TaskId, Time};
use tokio::sync::{mpsc, oneshot};

use crate::outputs::Outputs;

use super::handle::{Handle, HistorySource};
use super::{Listeners, Progress, REQUESTS_MAX, Request, Told, View, number_events, told};

/// Something that somebody wants to know, for the owner of the engine.
pub struct Question(Request);

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Question")
    }
}

/// Something that somebody wants to change.
#[derive(Debug)]
pub struct Wish {
    /// What it would be.
    pub fact: Fact,
    answer: oneshot::Sender<Result<Told, ApiError>>,
}

impl Wish {
    /// Says what came of it. What follows from it must have been carried out by then.
    pub fn answer(self, engine: &Engine, applied: Result<Applied, ApiError>) {
        // Fails when nobody waits any more.
        let _ = self
            .answer
            .send(applied.map(|applied| told(engine, applied)));
    }
}

/// Answers in the name of an engine.
#[derive(Debug)]
pub struct Observer {
    listeners: Listeners,
    outputs: Arc<Outputs>,
    event_sequence: u64,
    waiters: IdMap<JobId, Vec<oneshot::Sender<Option<JobInfo>>>>,
}

/// The way to an engine that somebody else drives: `deliver` brings each question to them, and says whether they are
/// still there.
pub(crate) fn observe(
    history: HistorySource,
    mut deliver: impl FnMut(Question) -> bool + Send + 'static,
) -> (Handle, Observer) {
    let (requests, mut inbox) = mpsc::channel(REQUESTS_MAX);
    let listeners = Listeners::new();
    tokio::spawn(async move {
        while let Some(request) = inbox.recv().await {
            if !deliver(Question(request)) {
                return;
            }
        }
    });
    let handle = Handle::new(
        requests,
        listeners.clone(),
        history,
        Arc::new(Progress::default()),
    );
    let observer = Observer {
        listeners,
        outputs: handle.shared_outputs(),
        event_sequence: 0,
        waiters: IdMap::default(),
    };
    (handle, observer)
}

impl Observer {
    /// Answers a question about this engine. What somebody wants to change comes back.
    pub fn answer(&mut self, question: Question, engine: &Engine, now: Time) -> Option<Wish> {
        match question.0 {
            Request::Ask(question) => {
                let view = View {
                    engine,
                    now,
                    sessions: None,
                };
                question(&view)();
            }
            Request::Tell { fact, answer } => return Some(Wish { fact, answer }),
            Request::Wait { job, answer } if !engine.is_open(job) => _ = answer.send(None),
            Request::Wait { job, answer } => {
                let waiters = self.waiters.entry(job).or_default();
                waiters.retain(|waiter| !waiter.is_closed());
                waiters.push(answer);
            }
            Request::Connect { answer, .. } => _ = answer.send(Err(own_agents())),
            Request::Dismiss { answer, .. } => _ = answer.send(Err(own_agents())),
            #[cfg(feature = "postgres")]
            Request::SendAway { .. } | Request::Neighbours(_) => {}
            // Nobody waits for these, or whoever does hears that there is nobody who could.
            Request::Frame { .. }
            | Request::Disconnect { .. }
            | Request::Snapshot(_)
            | Request::Prune(_)
            | Request::Stop => {}
        }
        None
    }

    /// A task that still runs printed something.
    pub fn printed(&self, task: TaskId, stdout: &[u8], stderr: &[u8]) {
        self.outputs.take(task, stdout, stderr);
    }

    /// Tells everybody who listens what happened.
    pub fn happened(&mut self, engine: &Engine, events: Vec<EventKind>, jobs_over: Vec<JobInfo>) {
        for event in number_events(engine, &mut self.event_sequence, events) {
            if let EventKind::TaskEnded { task, .. } = event.kind {
                self.outputs.forget(task);
            }
            // Fails when nobody listens.
            let _ = self.listeners.events.send(event);
        }
        for job in jobs_over {
            for waiter in self.waiters.remove(&job.id).unwrap_or_default() {
                let _ = waiter.send(Some(job.clone()));
            }
        }
    }
}

fn own_agents() -> ApiError {
    let message = "this is a run: it has agents of its own, which come and go with it";
    ApiError::new(ErrorCode::Conflict, message)
        .with_help("start a server for agents that join it: `loxley server start`")
}

//! Whether whoever asks may do that.

use std::pin::Pin;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use loxley_api::{ApiError, ErrorCode, Permission};
use loxley_model::{JobId, TaskId};

use super::extract::Refusal;
use crate::{Caller, Context};

type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Lets only those through whose role has the permission.
pub(super) fn needs(
    permission: Permission,
) -> impl Fn(Request, Next) -> Answering + Clone + Send + Sync + 'static {
    needs_one_of([permission, permission])
}

/// Lets only those through whose role has one of the permissions.
pub(super) fn needs_one_of(
    permissions: [Permission; 2],
) -> impl Fn(Request, Next) -> Answering + Clone + Send + Sync + 'static {
    move |request, next| Box::pin(require(permissions, request, next))
}

async fn require([one, other]: [Permission; 2], request: Request, next: Next) -> Response {
    let allowed = match request.extensions().get::<Caller>() {
        Some(caller) => caller.need(one).or_else(|_| caller.need(other)),
        // The gate lets nobody in who is nobody; should it ever, the door is still shut.
        None => Err(ApiError::new(ErrorCode::Unauthorized, "no token")),
    };
    match allowed {
        Ok(()) => next.run(request).await,
        Err(error) => Refusal(error).into_response(),
    }
}

/// Keeps those who may look at their own jobs only away from the jobs and tasks of others, whatever they want to do
/// with them.
pub(super) async fn own(State(context): State<Context>, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>();
    let limited = caller
        .filter(|caller| context.sees_only_own(caller))
        .cloned();
    if let Some(caller) = limited
        && let Some(subject) = Subject::of(request.uri().path())
        && let Err(refusal) = subject.permit(&context, &caller).await
    {
        return Refusal(refusal).into_response();
    }
    next.run(request).await
}

/// What a path is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Job(JobId),
    Task(TaskId),
}

impl Subject {
    fn of(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix("/v1/")?.split('/');
        let (kind, number) = (parts.next()?, parts.next()?.parse().ok()?);
        match kind {
            "jobs" => Some(Self::Job(JobId(number))),
            "tasks" => Some(Self::Task(TaskId(number))),
            _ => None,
        }
    }

    /// Refuses whoever it does not belong to. What is not there belongs to nobody: whoever looks for it finds out.
    pub(super) async fn permit(self, context: &Context, caller: &Caller) -> Result<(), ApiError> {
        let job = match self {
            Self::Job(job) => job,
            Self::Task(task) => match context.handle.task(task).await {
                Ok(task) => task.job,
                Err(error) if error.code == ErrorCode::NotFound => return Ok(()),
                Err(error) => return Err(error),
            },
        };
        match context.handle.job(job).await {
            Ok(job) if *job.user == *caller.user => Ok(()),
            Ok(_) => {
                let message = "it belongs to another user";
                let help = "only its owner and admins may (role `read` may look), unless the server says \
                            `access: {jobs: shared}`";
                Err(ApiError::new(ErrorCode::Forbidden, message).with_help(help))
            }
            Err(error) if error.code == ErrorCode::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// One line for each request. Paths hold numbers only, and no secret.
pub(super) async fn log(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let status = response.status().as_u16();
    let micros = started.elapsed().as_micros() as u64;
    if status >= 500 {
        tracing::warn!(%method, path, status, micros, "http");
    } else {
        tracing::debug!(%method, path, status, micros, "http");
    }
    response
}

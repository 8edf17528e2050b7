//! Tasks: looked at, waited for, cancelled, tried again, explained.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
#[cfg(feature = "openapi")]
use loxley_api::ErrorBody;
use loxley_api::{ApiError, ErrorCode, EventKind, Explanation, OutputTail, TaskInfo, TaskState};
use loxley_model::TaskId;
use loxley_policy::Selection;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};

use super::extract::{Number, Params, Refusal, WaitParams};
use crate::Context;

/// A task.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/tasks/{id}", tag = "tasks",
    params(("id" = u64, Path, description = "Its number.")),
    responses(
        (status = 200, description = "As it is now.", body = TaskInfo),
        (status = 404, description = "There is none.", body = ErrorBody),
    )
))]
pub(super) async fn info(
    State(context): State<Context>,
    Number(id): Number,
) -> Result<Json<TaskInfo>, Refusal> {
    Ok(Json(context.handle.task(TaskId(id)).await?))
}

/// Wait for the end of a task.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/tasks/{id}/wait", tag = "tasks",
    params(("id" = u64, Path, description = "Its number."), WaitParams),
    responses(
        (status = 200, description = "As it is now: over, or not yet.", body = TaskInfo),
        (status = 404, description = "There is none.", body = ErrorBody),
    )
))]
pub(super) async fn wait(
    State(context): State<Context>,
    Number(id): Number,
    Params(params): Params<WaitParams>,
) -> Result<Json<TaskInfo>, Refusal> {
    Ok(Json(
        until_over(&context, TaskId(id), params.time()?).await?,
    ))
}

async fn until_over(context: &Context, id: TaskId, time: Duration) -> Result<TaskInfo, ApiError> {
    let limit = Instant::now() + time;
    // Listening begins before the look, so that no end falls in between.
    let mut events = context.handle.subscribe();
    loop {
        let task = context.handle.task(id).await?;
        if task.state.is_over() {
            return Ok(task);
        }
        loop {
            match timeout_at(limit, events.recv()).await {
                Err(_time_up) => return Ok(task),
                Ok(Ok(event)) => match event.kind {
                    EventKind::TaskEnded { task, .. } if task == id => break,
                    // The end of a job ends tasks that nobody ever started, without a word on each.
                    EventKind::JobEnded { job, .. } if job == task.job => break,
                    _ => {}
                },
                Ok(Err(RecvError::Lagged(_))) => break,
                Ok(Err(RecvError::Closed)) => return Ok(task),
            }
        }
    }
}

/// What the server keeps of a task's output.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/tasks/{id}/output", tag = "tasks",
    params(("id" = u64, Path, description = "Its number.")),
    responses(
        (status = 200, description = "The end of both streams.", body = OutputTail),
        (status = 404, description = "There is none.", body = ErrorBody),
    )
))]
pub(super) async fn output(
    State(context): State<Context>,
    Number(id): Number,
) -> Result<Json<OutputTail>, Refusal> {
    Ok(Json(context.handle.output(TaskId(id)).await?))
}

/// The result of a task: what its function returned, or the value of its fallback.
///
/// A result that is too large for the journal is a reference, `loxley-result:NAME:LENGTH`: its pieces are at
/// `/v1/tasks/{id}/results/NAME`. Clients bring it by themselves.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/tasks/{id}/result", tag = "tasks",
    params(("id" = u64, Path, description = "Its number.")),
    responses(
        (status = 200, description = "The bytes.", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 404, description = "There is none.", body = ErrorBody),
        (status = 409, description = "The task is not over.", body = ErrorBody),
    )
))]
pub(super) async fn result(
    State(context): State<Context>,
    Number(id): Number,
) -> Result<Response, Refusal> {
    let bytes = context.handle.result(TaskId(id)).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        // A browser must not make a page of what a task returned.
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((headers, bytes).into_response())
}

/// Why a task is where it is, why it does not run, and what would help.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/tasks/{id}/explain", tag = "tasks",
    params(("id" = u64, Path, description = "Its number.")),
    responses(
        (status = 200, description = "In words.", body = Explanation),
        (status = 404, description = "There is none.", body = ErrorBody),
    )
))]
pub(super) async fn explain(
    State(context): State<Context>,
    Number(id): Number,
) -> Result<Json<Explanation>, Refusal> {
    Ok(Json(context.handle.explain(TaskId(id)).await?))
}

/// Cancel a task.
#[cfg_attr(feature = "openapi", utoipa::path(
    delete, path = "/v1/tasks/{id}", tag = "tasks",
    params(("id" = u64, Path, description = "Its number.")),
    responses(
        (status = 200, description = "As it is now.", body = TaskInfo),
        (status = 404, description = "There is none.", body = ErrorBody),
    )
))]
pub(super) async fn cancel(
    State(context): State<Context>,
    Number(id): Number,
) -> Result<Json<TaskInfo>, Refusal> {
    let id = TaskId(id);
    let task = context.handle.task(id).await?;
    // Cancelling twice is cancelling once.
    if !task.state.is_over() {
        context.handle.cancel(Selection::Task(id)).await?;
    }
    Ok(Json(match context.handle.task(id).await {
        // Of a run that keeps nothing, what is over is forgotten; and a server that drains may end with this.
        Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::Unavailable) => {
            TaskInfo {
                state: TaskState::Cancelled,
                ..task
            }
        }
        found => found?,
    }))
}

/// Give a failed task another chance.
#[cfg_attr(feature = "openapi", utoipa::path(
    post, path = "/v1/tasks/{id}/retry", tag = "tasks",
    params(("id" = u64, Path, description = "Its number.")),
    responses(
        (status = 200, description = "As it is now.", body = TaskInfo),
        (status = 404, description = "There is none.", body = ErrorBody),
        (status = 409, description = "It did not fail.", body = ErrorBody),
    )
))]
pub(super) async fn retry(
    State(context): State<Context>,
    Number(id): Number,
) -> Result<Json<TaskInfo>, Refusal> {
    let id = TaskId(id);
    // So that a task that never was is said to be missing.
    context.handle.task(id).await?;
    context.handle.retry(vec![id]).await?;
    Ok(Json(context.handle.task(id).await?))
}

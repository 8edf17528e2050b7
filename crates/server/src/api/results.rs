//! How tasks ended, many at once, and results in pieces.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
#[cfg(feature = "openapi")]
use loxley_api::ErrorBody;
use loxley_api::{ApiError, EndsRequest, ErrorCode, PIECE_BYTES_MAX, ResultName, TaskEnd};
use loxley_model::TaskId;
use serde::Deserialize;

use super::extract::{Body, Params, Refusal, read_body};
use super::guard::Subject;
use crate::{Caller, Context};

/// The most tasks of one question.
const ENDS_MAX: usize = 1000;

/// How tasks ended, with what they returned.
///
/// Tasks that are not over are left out, and so are those for which the answer has no room: ask again.
#[cfg_attr(feature = "openapi", utoipa::path(
    post, path = "/v1/ends", tag = "tasks", request_body = EndsRequest,
    responses(
        (status = 200, description = "Those that are over.", body = Vec<TaskEnd>),
        (status = 400, description = "It makes no sense.", body = ErrorBody),
    )
))]
pub(super) async fn ends(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<EndsRequest>,
) -> Result<Json<Vec<TaskEnd>>, Refusal> {
    if request.tasks.len() > ENDS_MAX {
        let message = format!("the ends of at most {ENDS_MAX} tasks can be asked for at once");
        return Err(ApiError::invalid(message).into());
    }
    if context.sees_only_own(&caller) {
        permit_all(&context, &caller, &request.tasks).await?;
    }
    Ok(Json(context.handle.ends(request.tasks).await?))
}

/// Refuses who asks for the task of another. Tasks of one job mostly stand together: it is asked for once.
async fn permit_all(context: &Context, caller: &Caller, tasks: &[TaskId]) -> Result<(), ApiError> {
    let mut own = 0..0;
    for task in tasks {
        if own.contains(&task.0) {
            continue;
        }
        Subject::Task(*task).permit(context, caller).await?;
        let Ok(task) = context.handle.task(*task).await else {
            continue;
        };
        let job = context.handle.job(task.job).await?;
        let all = job.first_task.0..job.last_task.0 + 1;
        // Between entries that were added later lie tasks of other jobs.
        if all.end - all.start == job.tasks.total {
            own = all;
        }
    }
    Ok(())
}

/// Which piece of a result is meant.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct PieceParams {
    /// Where it begins.
    #[serde(default)]
    offset: u64,
    /// How long it is, at most; 8 MiB when absent.
    #[serde(default)]
    length: Option<u64>,
}

/// A piece of a result that is too large for one answer.
///
/// The header `Loxley-Total` says how long the whole is.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/tasks/{id}/results/{name}", tag = "tasks",
    params(
        ("id" = u64, Path, description = "The number of the task."),
        ("name" = String, Path, description = "Which result: 32 hexadecimal digits."),
        PieceParams,
    ),
    responses(
        (status = 200, description = "The bytes.", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 404, description = "There is none.", body = ErrorBody),
    )
))]
pub(super) async fn read(
    State(context): State<Context>,
    Path((id, name)): Path<(String, String)>,
    Params(params): Params<PieceParams>,
) -> Result<Response, Refusal> {
    let (task, name) = named(&id, &name)?;
    let length = params
        .length
        .unwrap_or(u64::MAX)
        .min(PIECE_BYTES_MAX as u64);
    let results = context.large_results().clone();
    let read = move || results.read(task, &name, params.offset, length);
    let piece = blocking(read).await?;
    let headers = [
        (
            header::CONTENT_TYPE.as_str(),
            "application/octet-stream".to_owned(),
        ),
        (
            header::X_CONTENT_TYPE_OPTIONS.as_str(),
            "nosniff".to_owned(),
        ),
        ("loxley-total", piece.total.to_string()),
    ];
    Ok((headers, piece.bytes).into_response())
}

/// What is written.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct WriteParams {
    /// Where the piece begins.
    #[serde(default)]
    offset: u64,
    /// Whether it is the last one.
    #[serde(default)]
    last: bool,
}

/// Keep a piece of the result of a task that runs.
///
/// When the answer to the last piece is there, the result is on disk.
#[cfg_attr(feature = "openapi", utoipa::path(
    put, path = "/v1/tasks/{id}/results/{name}", tag = "tasks",
    params(
        ("id" = u64, Path, description = "The number of the task."),
        ("name" = String, Path, description = "Which result: 32 hexadecimal digits, drawn at random."),
        WriteParams,
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 204, description = "Kept."),
        (status = 409, description = "The task is over.", body = ErrorBody),
        (status = 413, description = "Too large.", body = ErrorBody),
    )
))]
pub(super) async fn write(
    State(context): State<Context>,
    Path((id, name)): Path<(String, String)>,
    Params(params): Params<WriteParams>,
    request: Request,
) -> Result<StatusCode, Refusal> {
    let (task, name) = named(&id, &name)?;
    if context.handle.task(task).await?.state.is_over() {
        let message = format!("task {} is over: nobody waits for its result", task.0);
        return Err(ApiError::new(ErrorCode::Conflict, message).into());
    }
    if context.is_clustered() {
        let message = "this result is too large for the journal, and a server of which several instances run keeps \
                       nothing on the disk of one of them";
        let help = "have the task write it where both sides can read it, and return the place";
        return Err(ApiError::new(ErrorCode::TooLarge, message)
            .with_help(help)
            .into());
    }
    let bytes: Bytes = read_body(request, &()).await?;
    let results = context.large_results().clone();
    let write = move || results.write(task, &name, params.offset, &bytes, params.last);
    blocking(write).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn named(id: &str, name: &str) -> Result<(TaskId, ResultName), ApiError> {
    let task = id
        .parse()
        .map_err(|_| ApiError::invalid(format!("`{id}` is not a number")))?;
    Ok((TaskId(task), name.parse().map_err(ApiError::invalid)?))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = crate::answer::blocking(work).await;
    done.map_err(|_| ApiError::new(ErrorCode::Internal, "the disk could not be asked"))?
}

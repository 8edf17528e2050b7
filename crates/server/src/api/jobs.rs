//! Jobs: submitted, listed, waited for, cancelled, tried again.

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
#[cfg(feature = "openapi")]
use loxley_api::ErrorBody;
use loxley_api::{
    ApiError, ErrorCode, ExtendRequest, Figures, JobFilter, JobInfo, JobRequest, JobState, Page,
    TRACEPARENT_HEADER, TaskFilter, TaskInfo, TaskState, is_traceparent,
};
use loxley_model::JobId;
use loxley_policy::Selection;
use serde::Deserialize;

use super::extract::{Body, Number, Params, Refusal, WaitParams, wait_time};
use crate::{Caller, Context};

/// How a job is submitted.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct SubmitParams {
    /// Seconds to wait at most for the end of the job before the answer; 0 when absent, 60 at most.
    #[serde(default)]
    wait: Option<f64>,
}

/// Submit a job.
///
/// When the answer is there, the job is on disk.
#[cfg_attr(feature = "openapi", utoipa::path(
    post, path = "/v1/jobs", tag = "jobs", params(SubmitParams), request_body = JobRequest,
    responses(
        (status = 201, description = "Accepted.", body = JobInfo),
        (status = 400, description = "It makes no sense; the message names the place.", body = ErrorBody),
        (status = 403, description = "It names a user for whom the token does not count.", body = ErrorBody),
        (status = 409, description = "Its key was used for another content.", body = ErrorBody),
        (status = 413, description = "Too large.", body = ErrorBody),
        (status = 503, description = "The server drains or stops.", body = ErrorBody),
    )
))]
pub(super) async fn submit(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<SubmitParams>,
    headers: HeaderMap,
    Body(mut request): Body<JobRequest>,
) -> Result<(StatusCode, Json<JobInfo>), Refusal> {
    if request.traceparent.is_none() {
        // What cannot be understood is passed over, says W3C: tracing must not break what is traced.
        let parent = headers.get(TRACEPARENT_HEADER);
        let parent = parent.and_then(|parent| parent.to_str().ok());
        let parent = parent.filter(|parent| is_traceparent(parent));
        request.traceparent = parent.map(str::to_owned);
    }
    request.hand_down_trace();
    let wait = wait_time("wait", params.wait.unwrap_or(0.0))?;
    let user = caller.act_for(request.user.as_deref())?;
    let job = context.handle.submit(&request, user).await?;
    let job = match wait.is_zero() || job.state.is_over() {
        true => job,
        false => until_over(&context, job.id, wait).await?,
    };
    Ok((StatusCode::CREATED, Json(job)))
}

async fn until_over(
    context: &Context,
    job: JobId,
    time: std::time::Duration,
) -> Result<JobInfo, ApiError> {
    match tokio::time::timeout(time, context.handle.wait(job)).await {
        Ok(over) => over,
        Err(_) => context.handle.job(job).await,
    }
}

/// List jobs, the newest first.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/jobs", tag = "jobs", params(JobFilter),
    responses((status = 200, description = "Part of the list.", body = Page<JobInfo>))
))]
pub(super) async fn list(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    Params(mut filter): Params<JobFilter>,
) -> Result<Json<Page<JobInfo>>, Refusal> {
    if context.sees_only_own(&caller) {
        let user = caller.act_for(filter.user.as_deref())?;
        filter.user = Some(user.to_owned());
    }
    Ok(Json(context.handle.jobs(filter).await?))
}

/// A job.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/jobs/{id}", tag = "jobs", params(("id" = u64, Path, description = "Its number.")),
    responses(
        (status = 200, description = "As it is now.", body = JobInfo),
        (status = 404, description = "There is none.", body = ErrorBody),
    )
))]
pub(super) async fn info(
    State(context): State<Context>,
    Number(id): Number,
) -> Result<Json<JobInfo>, Refusal> {
    Ok(Json(context.handle.job(JobId(id)).await?))
}

/// How balanced a job was, of what is over of it.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/jobs/{id}/figures", tag = "jobs",
    params(("id" = u64, Path, description = "Its number.")),
    responses(
        (status = 200, description = "As far as it is over.", body = Figures),
        (status = 404, description = "There is none.", body = ErrorBody),
    )
))]
pub(super) async fn figures(
    State(context): State<Context>,
    Number(id): Number,
) -> Result<Json<Figures>, Refusal> {
    Ok(Json(context.handle.job_figures(JobId(id)).await?))
}

/// Wait for the end of a job.
///
/// The answer comes when the job is over or the time is up, whichever is first.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/jobs/{id}/wait", tag = "jobs",
    params(("id" = u64, Path, description = "Its number."), WaitParams),
    responses(
        (status = 200, description = "As it is now: over, or not yet.", body = JobInfo),
        (status = 404, description = "There is none.", body = ErrorBody),
    )
))]
pub(super) async fn wait(
    State(context): State<Context>,
    Number(id): Number,
    Params(params): Params<WaitParams>,
) -> Result<Json<JobInfo>, Refusal> {
    Ok(Json(until_over(&context, JobId(id), params.time()?).await?))
}

/// The tasks of a job, by their ids.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/jobs/{id}/tasks", tag = "jobs",
    params(("id" = u64, Path, description = "Its number."), TaskFilter),
    responses(
        (status = 200, description = "Part of the list.", body = Page<TaskInfo>),
        (status = 404, description = "There is none.", body = ErrorBody),
    )
))]
pub(super) async fn tasks(
    State(context): State<Context>,
    Number(id): Number,
    Params(filter): Params<TaskFilter>,
) -> Result<Json<Page<TaskInfo>>, Refusal> {
    Ok(Json(context.handle.tasks(JobId(id), filter).await?))
}

/// Cancel what is left of a job.
#[cfg_attr(feature = "openapi", utoipa::path(
    delete, path = "/v1/jobs/{id}", tag = "jobs",
    params(("id" = u64, Path, description = "Its number.")),
    responses(
        (status = 200, description = "As it is now; what was running is being killed.", body = JobInfo),
        (status = 404, description = "There is none.", body = ErrorBody),
    )
))]
pub(super) async fn cancel(
    State(context): State<Context>,
    Number(id): Number,
) -> Result<Json<JobInfo>, Refusal> {
    let id = JobId(id);
    let job = context.handle.job(id).await?;
    // Cancelling twice is cancelling once.
    if !job.state.is_over() {
        context.handle.cancel(Selection::Job(id)).await?;
    }
    Ok(Json(match context.handle.job(id).await {
        // Of a run that keeps nothing, what is over is forgotten; and a server that drains may end with this.
        Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::Unavailable) => {
            JobInfo {
                state: JobState::Cancelled,
                ..job
            }
        }
        found => found?,
    }))
}

/// Add entries to an array of a job that is open.
#[cfg_attr(feature = "openapi", utoipa::path(
    post, path = "/v1/jobs/{id}/entries", tag = "jobs",
    params(("id" = u64, Path, description = "Its number.")), request_body = ExtendRequest,
    responses(
        (status = 200, description = "As it is now.", body = JobInfo),
        (status = 400, description = "They make no sense, or there is no such array.", body = ErrorBody),
        (status = 404, description = "There is no such job that is not over.", body = ErrorBody),
        (status = 409, description = "The job is not open.", body = ErrorBody),
    )
))]
pub(super) async fn extend(
    State(context): State<Context>,
    Number(id): Number,
    Body(request): Body<ExtendRequest>,
) -> Result<Json<JobInfo>, Refusal> {
    Ok(Json(context.handle.extend(JobId(id), request).await?))
}

/// Add nothing more to an open job: it is over when its last task is.
#[cfg_attr(feature = "openapi", utoipa::path(
    post, path = "/v1/jobs/{id}/close", tag = "jobs",
    params(("id" = u64, Path, description = "Its number.")),
    responses(
        (status = 200, description = "As it is now.", body = JobInfo),
        (status = 404, description = "There is none.", body = ErrorBody),
        (status = 409, description = "The job is not open.", body = ErrorBody),
    )
))]
pub(super) async fn close(
    State(context): State<Context>,
    Number(id): Number,
) -> Result<Json<JobInfo>, Refusal> {
    Ok(Json(context.handle.close(JobId(id)).await?))
}

/// Give the failed tasks of a job another chance.
#[cfg_attr(feature = "openapi", utoipa::path(
    post, path = "/v1/jobs/{id}/retry", tag = "jobs",
    params(("id" = u64, Path, description = "Its number.")),
    responses(
        (status = 200, description = "As it is now.", body = JobInfo),
        (status = 404, description = "There is none.", body = ErrorBody),
        (status = 409, description = "None of its tasks can be tried again.", body = ErrorBody),
    )
))]
pub(super) async fn retry(
    State(context): State<Context>,
    Number(id): Number,
) -> Result<Json<JobInfo>, Refusal> {
    let id = JobId(id);
    let failed = failed_tasks(&context, id).await?;
    if failed.is_empty() {
        let message = format!("job {} has no task that failed", id.0);
        return Err(ApiError::new(ErrorCode::Conflict, message).into());
    }
    context.handle.retry(failed).await?;
    Ok(Json(context.handle.job(id).await?))
}

async fn failed_tasks(
    context: &Context,
    job: JobId,
) -> Result<Vec<loxley_model::TaskId>, ApiError> {
    let mut filter = TaskFilter {
        state: Some(TaskState::Failed),
        limit: Some(1000),
        from: None,
    };
    let mut failed = Vec::new();
    loop {
        let page = context.handle.tasks(job, filter.clone()).await?;
        failed.extend(page.items.iter().map(|task| task.id));
        filter.from = page.next;
        if page.next.is_none() {
            return Ok(failed);
        }
    }
}

//! The server itself: looked at, configured, drained, stopped.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
#[cfg(feature = "openapi")]
use loxley_api::ErrorBody;
use loxley_api::{
    ApiError, ClusterInfo, ConfigRequest, FigureHistory, Figures, ForecastInfo, Health, LogRequest,
    PruneReport, PruneRequest, ServerInfo, Timeline, TimelineFilter, TracesRequest, TuningInfo,
};
use loxley_journal::Retention;
use loxley_model::Time;
use serde::Deserialize;

use super::extract::{Body, Params, Refusal};
use crate::{Caller, Context};

/// The server.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/server", tag = "server",
    responses((status = 200, description = "As it is now.", body = ServerInfo))
))]
pub(super) async fn info(State(context): State<Context>) -> Result<Json<ServerInfo>, Refusal> {
    Ok(Json(context.info().await?))
}

/// What is wrong with the fleet, and what to do about it.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/health", tag = "server",
    responses((status = 200, description = "The worst first.", body = Health))
))]
pub(super) async fn health(State(context): State<Context>) -> Result<Json<Health>, Refusal> {
    Ok(Json(context.health().await?))
}

/// What the server expects to come, how far such forecasts were off, and for what it keeps room.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/forecast", tag = "server",
    responses((status = 200, description = "Each kind of work that is followed.", body = ForecastInfo))
))]
pub(super) async fn forecast(
    State(context): State<Context>,
) -> Result<Json<ForecastInfo>, Refusal> {
    Ok(Json(context.handle.forecast().await?))
}

/// Which settings the server changed by itself, what it measured, and what it took back.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/tuning", tag = "server",
    responses((status = 200, description = "As it stands, and its story.", body = TuningInfo))
))]
pub(super) async fn tuning(State(context): State<Context>) -> Result<Json<TuningInfo>, Refusal> {
    Ok(Json(context.handle.tuning().await?))
}

/// The instances of this server, who of them serves, under which lease, and what a standby would have to catch up with.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/cluster", tag = "server",
    responses((status = 200, description = "The one that serves first.", body = ClusterInfo))
))]
pub(super) async fn cluster(State(context): State<Context>) -> Result<Json<ClusterInfo>, Refusal> {
    Ok(Json(context.cluster().await?))
}

/// Give away what this instance holds, so that another one serves. This one stands by from then on.
#[cfg_attr(feature = "openapi", utoipa::path(
    post, path = "/v1/server/handover", tag = "server",
    responses(
        (status = 200, description = "As it was when it was told.", body = ClusterInfo),
        (status = 409, description = "There is nobody to take over.", body = ErrorBody),
    )
))]
pub(super) async fn hand_over(
    State(context): State<Context>,
) -> Result<Json<ClusterInfo>, Refusal> {
    Ok(Json(context.hand_over().await?))
}

/// How balanced the fleet was in the last five to ten minutes.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/figures", tag = "server",
    responses((status = 200, description = "Of all jobs together.", body = Figures))
))]
pub(super) async fn figures(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Figures>, Refusal> {
    let mut figures = context.handle.figures().await?;
    if context.sees_only_own(&caller) {
        figures.users.retain(|share| *share.user == *caller.user);
    }
    Ok(Json(figures))
}

/// How many points are wanted.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct PointParams {
    /// At most so many; 500 when absent, 10,000 at most.
    #[serde(default)]
    points: Option<u32>,
}

/// How the figures went since the server started, for half a day at most.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/figures/history", tag = "server", params(PointParams),
    responses((status = 200, description = "Oldest first.", body = FigureHistory))
))]
pub(super) async fn figure_history(
    State(context): State<Context>,
    Params(params): Params<PointParams>,
) -> Json<FigureHistory> {
    let points = params.points.unwrap_or(500).clamp(1, 10_000);
    Json(context.samples().list(points as usize))
}

/// What ran where and when, in any time since the journal began: added up, and one by one where few enough ran.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/timeline", tag = "server", params(TimelineFilter),
    responses(
        (status = 200, description = "All of it, or a part that says where the next one begins.", body = Timeline),
        (status = 400, description = "The end is not behind the beginning.", body = ErrorBody),
    )
))]
pub(super) async fn timeline(
    State(context): State<Context>,
    Params(filter): Params<TimelineFilter>,
) -> Result<Json<Timeline>, Refusal> {
    Ok(Json(context.handle.timeline(filter).await?))
}

/// Whether anybody is there: for load balancers, which have no token. Says nothing else.
pub(super) async fn healthz() -> (StatusCode, &'static str) {
    (StatusCode::OK, "ok\n")
}

/// The configuration in force.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/config", tag = "server",
    responses((status = 200, description = "As a file in which every key is explained.", body = ConfigRequest))
))]
pub(super) async fn config(State(context): State<Context>) -> Result<Json<ConfigRequest>, Refusal> {
    in_force(&context).await
}

/// Put another configuration in force. No task is lost or reordered.
#[cfg_attr(feature = "openapi", utoipa::path(
    put, path = "/v1/config", tag = "server", request_body = ConfigRequest,
    responses(
        (status = 200, description = "What is in force now.", body = ConfigRequest),
        (status = 400, description = "It has mistakes; all of them are in the message.", body = ErrorBody),
    )
))]
pub(super) async fn reload(
    State(context): State<Context>,
    Body(request): Body<ConfigRequest>,
) -> Result<Json<ConfigRequest>, Refusal> {
    let parsed = loxley_config::parse_server_bytes(request.yaml.as_bytes());
    let (config, settings) = parsed.map_err(|mistakes| ApiError::invalid(mistakes.to_string()))?;
    context.handle.reload(config).await?;
    context.set_settings(settings)?;
    in_force(&context).await
}

async fn in_force(context: &Context) -> Result<Json<ConfigRequest>, Refusal> {
    let config = context.handle.config().await?;
    let yaml = loxley_config::server_yaml(&config, &context.settings());
    Ok(Json(ConfigRequest { yaml }))
}

/// Log more, or less, from now on, until the next start.
#[cfg_attr(feature = "openapi", utoipa::path(
    put, path = "/v1/log", tag = "server", request_body = LogRequest,
    responses(
        (status = 200, description = "What is in force now.", body = LogRequest),
        (status = 400, description = "It makes no sense.", body = ErrorBody),
        (status = 409, description = "The log of this server cannot be changed.", body = ErrorBody),
    )
))]
pub(super) async fn set_log(
    State(context): State<Context>,
    Body(request): Body<LogRequest>,
) -> Result<Json<LogRequest>, Refusal> {
    context.set_log(&request.log)?;
    Ok(Json(request))
}

/// Where traces of tasks go.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/traces", tag = "server",
    responses((status = 200, description = "What is in force now.", body = TracesRequest))
))]
pub(super) async fn traces(State(context): State<Context>) -> Json<TracesRequest> {
    let collector = context.collector();
    Json(TracesRequest { collector })
}

/// Send traces of tasks to a collector from now on, or to nobody, until the next start.
#[cfg_attr(feature = "openapi", utoipa::path(
    put, path = "/v1/traces", tag = "server", request_body = TracesRequest,
    responses(
        (status = 200, description = "What is in force now.", body = TracesRequest),
        (status = 400, description = "It makes no sense.", body = ErrorBody),
        (status = 409, description = "This server cannot send traces.", body = ErrorBody),
    )
))]
pub(super) async fn set_traces(
    State(context): State<Context>,
    Body(request): Body<TracesRequest>,
) -> Result<Json<TracesRequest>, Refusal> {
    context.set_collector(request.collector.as_deref())?;
    Ok(traces(State(context)).await)
}

/// Take no more jobs, finish those that are there, then end.
#[cfg_attr(feature = "openapi", utoipa::path(
    post, path = "/v1/server/drain", tag = "server",
    responses((status = 200, description = "As it is now.", body = ServerInfo))
))]
pub(super) async fn drain(State(context): State<Context>) -> Result<Json<ServerInfo>, Refusal> {
    context.drain();
    Ok(Json(context.info().await?))
}

/// Forget jobs that are over, with their tasks, outputs and results, and give room back to the system. Takes some
/// seconds at most, and says whether there is more.
#[cfg_attr(feature = "openapi", utoipa::path(
    post, path = "/v1/server/prune", tag = "server", request_body = PruneRequest,
    responses(
        (status = 200, description = "What is gone now.", body = PruneReport),
        (status = 507, description = "There is too little room even to forget.", body = ErrorBody),
    )
))]
pub(super) async fn prune(
    State(context): State<Context>,
    Body(request): Body<PruneRequest>,
) -> Result<Json<PruneReport>, Refusal> {
    let retention = match (request.older_than_sec, request.keep_jobs) {
        (None, None) => context.retention(),
        (age, jobs_max) => Retention {
            older_than: age.map(|age| moment(&context, age)).transpose()?,
            jobs_max,
            both: true,
            ..Retention::default()
        },
    };
    let pruned = context.handle.prune(retention).await?;
    context.tidy_large_results().await;
    Ok(Json(PruneReport {
        jobs: pruned.jobs,
        tasks: pruned.tasks,
        groups: pruned.groups,
        bytes: pruned.bytes,
        more: pruned.more,
    }))
}

fn moment(context: &Context, seconds: f64) -> Result<Time, ApiError> {
    let age = Duration::try_from_secs_f64(seconds);
    let age = age.map_err(|error| ApiError::invalid(format!("older_than_sec: {error}")))?;
    Ok(context.handle.moment(age))
}

/// End now. Everything accepted goes on at the next start.
#[cfg_attr(feature = "openapi", utoipa::path(
    post, path = "/v1/server/stop", tag = "server",
    responses((status = 200, description = "As it was when it was told.", body = ServerInfo))
))]
pub(super) async fn stop(State(context): State<Context>) -> Result<Json<ServerInfo>, Refusal> {
    let info = context.info().await?;
    context.stop();
    Ok(Json(info))
}

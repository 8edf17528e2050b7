//! Agents: listed, looked at, sent away.

use axum::Json;
use axum::extract::State;
#[cfg(feature = "openapi")]
use loxley_api::ErrorBody;
use loxley_api::{AgentInfo, RevokeRequest};
use loxley_model::AgentId;

use super::extract::{Body, Number, Refusal};
use crate::Context;

/// All agents.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/agents", tag = "agents",
    responses((status = 200, description = "In the order of their numbers.", body = Vec<AgentInfo>))
))]
pub(super) async fn list(State(context): State<Context>) -> Result<Json<Vec<AgentInfo>>, Refusal> {
    Ok(Json(context.handle.agents().await?))
}

/// An agent.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/agents/{id}", tag = "agents",
    params(("id" = u64, Path, description = "Its number.")),
    responses(
        (status = 200, description = "As it is now.", body = AgentInfo),
        (status = 404, description = "There is none.", body = ErrorBody),
    )
))]
pub(super) async fn info(
    State(context): State<Context>,
    Number(id): Number,
) -> Result<Json<AgentInfo>, Refusal> {
    Ok(Json(context.handle.agent(AgentId(id)).await?))
}

/// Let an agent finish what it has and end.
#[cfg_attr(feature = "openapi", utoipa::path(
    post, path = "/v1/agents/{id}/drain", tag = "agents",
    params(("id" = u64, Path, description = "Its number.")),
    responses(
        (status = 200, description = "As it is now.", body = AgentInfo),
        (status = 404, description = "There is none.", body = ErrorBody),
    )
))]
pub(super) async fn drain(
    State(context): State<Context>,
    Number(id): Number,
) -> Result<Json<AgentInfo>, Refusal> {
    let id = AgentId(id);
    context.handle.drain_agent(id).await?;
    Ok(Json(context.handle.agent(id).await?))
}

/// Have the name of an agent that is not here be anybody's again.
///
/// A name belongs to the token with which an agent first came under it: no other gets in by that name.
#[cfg_attr(feature = "openapi", utoipa::path(
    post, path = "/v1/agents/{id}/forget", tag = "agents",
    params(("id" = u64, Path, description = "Its number.")),
    responses(
        (status = 200, description = "As it is now.", body = AgentInfo),
        (status = 404, description = "There is none.", body = ErrorBody),
        (status = 409, description = "It is here, or may come back.", body = ErrorBody),
    )
))]
pub(super) async fn forget(
    State(context): State<Context>,
    Number(id): Number,
) -> Result<Json<AgentInfo>, Refusal> {
    let id = AgentId(id);
    context.handle.forget_agent(id).await?;
    Ok(Json(context.handle.agent(id).await?))
}

/// Take a skill back that an agent earned. It does not earn it again before it registers anew.
#[cfg_attr(feature = "openapi", utoipa::path(
    post, path = "/v1/agents/{id}/revoke", tag = "agents", request_body = RevokeRequest,
    params(("id" = u64, Path, description = "Its number.")),
    responses(
        (status = 200, description = "As it is now.", body = AgentInfo),
        (status = 404, description = "There is none.", body = ErrorBody),
        (status = 409, description = "It has not earned that skill.", body = ErrorBody),
    )
))]
pub(super) async fn revoke(
    State(context): State<Context>,
    Number(id): Number,
    Body(request): Body<RevokeRequest>,
) -> Result<Json<AgentInfo>, Refusal> {
    let id = AgentId(id);
    context.handle.revoke_skill(id, request.skill).await?;
    Ok(Json(context.handle.agent(id).await?))
}

/// End an agent now. What it ran is killed and goes to others.
#[cfg_attr(feature = "openapi", utoipa::path(
    post, path = "/v1/agents/{id}/stop", tag = "agents",
    params(("id" = u64, Path, description = "Its number.")),
    responses(
        (status = 200, description = "As it is now.", body = AgentInfo),
        (status = 404, description = "There is none.", body = ErrorBody),
    )
))]
pub(super) async fn stop(
    State(context): State<Context>,
    Number(id): Number,
) -> Result<Json<AgentInfo>, Refusal> {
    let id = AgentId(id);
    context.handle.stop_agent(id).await?;
    Ok(Json(context.handle.agent(id).await?))
}

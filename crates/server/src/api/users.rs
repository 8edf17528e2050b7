//! Users: their weights, and what they have of the fleet.

use axum::Json;
use axum::extract::{Extension, State};
#[cfg(feature = "openapi")]
use loxley_api::ErrorBody;
use loxley_api::{UserInfo, UserWeightRequest};

use super::extract::{Body, Refusal};
use crate::{Caller, Context};

/// Everybody who submitted something or was given a weight, with what they have now.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/users", tag = "users",
    responses((status = 200, description = "By their names.", body = Vec<UserInfo>))
))]
pub(super) async fn list(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Vec<UserInfo>>, Refusal> {
    let mut users = context.handle.users().await?;
    if context.sees_only_own(&caller) {
        users.retain(|info| *info.user == *caller.user);
    }
    Ok(Json(users))
}

/// Give a user another weight: its share of the slots while others wait is proportional to it. Survives a restart.
#[cfg_attr(feature = "openapi", utoipa::path(
    put, path = "/v1/users/weight", tag = "users", request_body = UserWeightRequest,
    responses(
        (status = 200, description = "As the user is now.", body = UserInfo),
        (status = 400, description = "The weight is out of range.", body = ErrorBody),
    )
))]
pub(super) async fn set_weight(
    State(context): State<Context>,
    Body(request): Body<UserWeightRequest>,
) -> Result<Json<UserInfo>, Refusal> {
    Ok(Json(context.handle.set_user_weight(request).await?))
}

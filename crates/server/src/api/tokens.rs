//! Tokens: made, listed, revoked.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
#[cfg(feature = "openapi")]
use loxley_api::ErrorBody;
use loxley_api::{Access, ApiError, TokenInfo, TokenRequest};
use serde::Deserialize;

use super::extract::{Body, Params, Refusal};
use crate::Context;

/// All tokens, without their secrets.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/tokens", tag = "tokens",
    responses((status = 200, description = "By their names.", body = Vec<TokenInfo>))
))]
pub(super) async fn list(State(context): State<Context>) -> Json<Vec<TokenInfo>> {
    Json(context.gate.list())
}

/// Make a token.
///
/// The answer is an access file, and the only place where the secret ever is.
#[cfg_attr(feature = "openapi", utoipa::path(
    post, path = "/v1/tokens", tag = "tokens", request_body = TokenRequest,
    responses(
        (status = 201, description = "The access file.", body = Access),
        (status = 409, description = "There is one of this name.", body = ErrorBody),
    )
))]
pub(super) async fn create(
    State(context): State<Context>,
    Body(request): Body<TokenRequest>,
) -> Result<(StatusCode, Json<Access>), Refusal> {
    let made = context.change_tokens(|gate| gate.create(&request));
    let token = made.await?;
    let access = Access {
        url: context.url().to_owned(),
        others: context.other_urls(),
        certificate_sha256: context.gate.fingerprint(),
        token,
        role: request.role,
        name: request.name,
    };
    Ok((StatusCode::CREATED, Json(access)))
}

/// Which token.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct NameParams {
    /// What it is called.
    name: String,
}

/// Make a token worthless, at once.
#[cfg_attr(feature = "openapi", utoipa::path(
    delete, path = "/v1/tokens", tag = "tokens", params(NameParams),
    responses(
        (status = 200, description = "It was this one.", body = TokenInfo),
        (status = 404, description = "There is none.", body = ErrorBody),
    )
))]
pub(super) async fn revoke(
    State(context): State<Context>,
    Params(params): Params<NameParams>,
) -> Result<Json<TokenInfo>, Refusal> {
    let known = context.gate.list();
    let token = known.into_iter().find(|token| token.name == params.name);
    let token = token.ok_or_else(|| ApiError::not_found("token", &params.name))?;
    context
        .change_tokens(|gate| gate.revoke(&params.name))
        .await?;
    Ok(Json(token))
}

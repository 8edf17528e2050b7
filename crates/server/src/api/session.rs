//! Browsers: signed in by a link or a token, and out.

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
#[cfg(feature = "openapi")]
use loxley_api::ErrorBody;
use loxley_api::{Link, LinkRequest, Session, SessionInfo};

use super::extract::{Body, Refusal};
use crate::listen::bearer_of;
use crate::{Caller, Context};

/// Make a link that signs one browser in, once.
#[cfg_attr(feature = "openapi", utoipa::path(
    post, path = "/v1/session/link", tag = "session", request_body = LinkRequest,
    responses(
        (status = 201, description = "It works for a minute.", body = Link),
        (status = 403, description = "A browser that is signed in cannot sign others in.", body = ErrorBody),
    )
))]
pub(super) async fn link(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<LinkRequest>,
) -> Result<(StatusCode, Json<Link>), Refusal> {
    let link = context.gate.link(&caller, request.read_only)?;
    Ok((StatusCode::CREATED, Json(link)))
}

/// Sign a browser in.
///
/// The header bears a token, or what a link has behind `#ticket=`. The answer holds a secret that takes its place for
/// half a day, and does no more than it.
#[cfg_attr(feature = "openapi", utoipa::path(
    post, path = "/v1/session", tag = "session",
    responses(
        (status = 201, description = "Signed in.", body = Session),
        (status = 403, description = "It is signed in already.", body = ErrorBody),
    )
))]
pub(super) async fn sign_in(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
) -> Result<(StatusCode, Json<Session>), Refusal> {
    let session = context.gate.sign_in(&caller)?;
    Ok((StatusCode::CREATED, Json(session)))
}

/// Who asks, and what they may do.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/session", tag = "session",
    responses((status = 200, description = "Whose token it is.", body = SessionInfo))
))]
pub(super) async fn info(Extension(caller): Extension<Caller>) -> Json<SessionInfo> {
    Json(caller.info())
}

/// Sign a browser out. A token stays what it is.
#[cfg_attr(feature = "openapi", utoipa::path(
    delete, path = "/v1/session", tag = "session",
    responses((status = 204, description = "Signed out."))
))]
pub(super) async fn sign_out(
    State(context): State<Context>,
    headers: HeaderMap,
) -> Result<StatusCode, Refusal> {
    if let Some(secret) = bearer_of(&headers) {
        context.gate.sign_out(secret)?;
    }
    Ok(StatusCode::NO_CONTENT)
}

//! The journal itself: read from elsewhere, and run again.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
#[cfg(feature = "openapi")]
use loxley_api::ErrorBody;
use loxley_api::{JournalGroup, JournalInfo, WhatIfReport, WhatIfRequest};
use loxley_journal::Position;
use serde::Deserialize;

use super::extract::{Body, Number, Params, Refusal};
use crate::Context;

/// What the journal holds. Its facts are everything that was ever said to the server: for admins.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/journal", tag = "journal",
    responses((status = 200, description = "As it is now.", body = JournalInfo))
))]
pub(super) async fn info(State(context): State<Context>) -> Result<Json<JournalInfo>, Refusal> {
    Ok(Json(context.handle.journal_info().await?))
}

/// Where groups are wanted from.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct GroupParams {
    /// The position of the first.
    #[serde(default)]
    from: u64,
}

/// Groups of facts, some megabytes at once; nothing at the end.
///
/// Of each: its position (8 bytes), how many facts it has (4), how many bytes they are (4), the lowest byte first; then the
/// facts.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/journal/groups", tag = "journal", params(GroupParams),
    responses(
        (status = 200, description = "One behind the other.", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 410, description = "They were dropped.", body = ErrorBody),
    )
))]
pub(super) async fn groups(
    State(context): State<Context>,
    Params(params): Params<GroupParams>,
) -> Result<Response, Refusal> {
    let groups = context.handle.journal_groups(Position(params.from)).await?;
    Ok(octets(groups))
}

/// A snapshot.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/journal/snapshots/{id}", tag = "journal",
    params(("id" = u64, Path, description = "One of those that the journal has.")),
    responses(
        (status = 200, description = "Its bytes.", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 404, description = "There is none.", body = ErrorBody),
    )
))]
pub(super) async fn snapshot(
    State(context): State<Context>,
    Number(position): Number,
) -> Result<Response, Refusal> {
    let state = context.handle.journal_snapshot(Position(position)).await?;
    Ok(octets(state))
}

/// Run what the journal holds again in virtual time, with something else: what would have been different?
///
/// Changes nothing. One question at a time, on one processor, for some seconds.
#[cfg_attr(feature = "openapi", utoipa::path(
    post, path = "/v1/what-if", tag = "journal", request_body = WhatIfRequest,
    responses(
        (status = 200, description = "What was, and what would have been.", body = WhatIfReport),
        (status = 400, description = "A key, an agent or a value that does not exist; a fleet that cannot do the work.", body = ErrorBody),
        (status = 409, description = "There is no journal, or no task in it has ended.", body = ErrorBody),
        (status = 413, description = "Too much work for a server.", body = ErrorBody),
        (status = 429, description = "Somebody else asks.", body = ErrorBody),
    )
))]
pub(super) async fn what_if(
    State(context): State<Context>,
    Body(request): Body<WhatIfRequest>,
) -> Result<Json<WhatIfReport>, Refusal> {
    Ok(Json(context.handle.what_if(request).await?))
}

fn octets(bytes: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, JournalGroup::CONTENT_TYPE)], bytes).into_response()
}

//! HTTP for people and scripts: JSON in, JSON out, live events, figures.
//!
//! ```text
//! request ─▶ gate: who are you? ─▶ guard: may you? ─▶ handler ─▶ engine::Handle ─▶ answer, once it is
//!            401                   403                400, 404 ...                 on disk
//! ```
//!
//! The routers below are sorted by what a caller must be allowed to do; a handler that stands in the
//! wrong one would be open to the wrong people, so `tests/http.rs` tries every path with every role.
//! Their documentation is the OpenAPI document (`docs/openapi.json`), which a test keeps current.
//!
//! What must stay true: every refusal is an `ErrorBody`; no body is read beyond its limit or beyond its time.

mod agents;
mod events;
mod extract;
mod graph;
mod guard;
mod jobs;
mod metrics;
mod openapi;
mod results;
mod server;
mod session;
mod tasks;
mod tokens;
mod users;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use loxley_api::{ApiError, BODY_BYTES_MAX, ErrorCode, PIECE_BYTES_MAX, Permission};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::extract::Refusal;
use crate::Context;

/// The longest that a caller may have the server wait before it answers.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The largest body that is not a job.
const SMALL_BODY_BYTES_MAX: usize = 1 << 20;

/// Everything, ready to be served to callers that the gate let in.
pub fn router(context: Context) -> Router {
    let own = from_fn_with_state(context.clone(), guard::own);
    let (routes, document) = routes().with_state(context).split_for_parts();
    let document = Arc::new(openapi::print(&document));
    Router::new()
        .route(
            "/openapi.json",
            axum::routing::get(move || openapi::serve(Arc::clone(&document))),
        )
        .route("/healthz", axum::routing::get(server::healthz))
        .merge(routes.layer(own))
        .merge(crate::dashboard::router())
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn(guard::log))
}

/// The OpenAPI document.
#[must_use]
pub fn document() -> String {
    openapi::print(&routes().into_openapi())
}

/// All paths, by what they need.
fn routes() -> OpenApiRouter<Context> {
    let look = OpenApiRouter::with_openapi(openapi::Document::openapi())
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::info))
        .routes(routes!(jobs::figures))
        .routes(routes!(jobs::wait))
        .routes(routes!(jobs::tasks))
        .routes(routes!(graph::graph))
        .routes(routes!(tasks::info))
        .routes(routes!(tasks::wait))
        .routes(routes!(tasks::output))
        .routes(routes!(tasks::result))
        .routes(routes!(tasks::explain))
        .routes(routes!(agents::list))
        .routes(routes!(agents::info))
        .routes(routes!(server::info))
        .routes(routes!(server::health))
        .routes(routes!(server::tuning))
        .routes(routes!(server::forecast))
        .routes(routes!(server::cluster))
        .routes(routes!(server::traces))
        .routes(routes!(server::figures))
        .routes(routes!(server::figure_history))
        .routes(routes!(server::timeline))
        .routes(routes!(server::config))
        .routes(routes!(users::list))
        .routes(routes!(events::stream))
        .routes(routes!(events::marks))
        .routes(routes!(session::link))
        .routes(routes!(session::sign_in, session::info, session::sign_out))
        .routes(routes!(metrics::metrics))
        .route_layer(from_fn(guard::needs(Permission::Look)));
    let submit = OpenApiRouter::new()
        .routes(routes!(jobs::submit))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::retry))
        .routes(routes!(jobs::extend))
        .routes(routes!(jobs::close))
        .routes(routes!(tasks::cancel))
        .routes(routes!(tasks::retry))
        .route_layer(from_fn(guard::needs(Permission::Submit)))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    let administer = OpenApiRouter::new()
        .routes(routes!(agents::drain))
        .routes(routes!(agents::stop))
        .routes(routes!(agents::forget))
        .routes(routes!(agents::revoke))
        .routes(routes!(server::drain))
        .routes(routes!(server::stop))
        .routes(routes!(server::hand_over))
        .routes(routes!(server::prune))
        .routes(routes!(server::reload))
        .routes(routes!(server::set_log))
        .routes(routes!(server::set_traces))
        .routes(routes!(users::set_weight))
        .routes(routes!(tokens::list))
        .routes(routes!(tokens::create))
        .routes(routes!(tokens::revoke))
        .route_layer(from_fn(guard::needs(Permission::Administer)))
        .layer(DefaultBodyLimit::max(SMALL_BODY_BYTES_MAX));
    // An agent reads what its tasks depend on, and writes what they return.
    let read_results = OpenApiRouter::new()
        .routes(routes!(results::ends))
        .routes(routes!(results::read))
        .route_layer(from_fn(guard::needs_one_of([
            Permission::Look,
            Permission::RunTasks,
        ])))
        .layer(DefaultBodyLimit::max(SMALL_BODY_BYTES_MAX));
    let write_results = OpenApiRouter::new()
        .routes(routes!(results::write))
        .route_layer(from_fn(guard::needs(Permission::RunTasks)))
        .layer(DefaultBodyLimit::max(PIECE_BYTES_MAX));
    look.merge(submit)
        .merge(administer)
        .merge(read_results)
        .merge(write_results)
}

async fn not_found(uri: Uri) -> Refusal {
    let message = format!("there is nothing at {}", uri.path());
    let help = "see /openapi.json for what there is";
    Refusal(ApiError::new(ErrorCode::NotFound, message).with_help(help))
}

async fn method_not_allowed(method: Method, uri: Uri) -> Refusal {
    let message = format!("{method} is not possible at {}", uri.path());
    Refusal(ApiError::new(ErrorCode::MethodNotAllowed, message))
}

//! HTTP for people and scripts: JSON in, JSON out, live events, figures.
//!
//! ```text
//! request ─▶ gate: who are you? ─▶ guard: may you? ─▶ handler ─▶ engine::Handle ─▶ answer, once it is
//!            401                   403                400, 404 ...                 on disk
//! ```
//!
//! The routers below are sorted by what a caller must be allowed to do; a handler that stands in the
//! wrong one would be open to the wrong people, so `tests/http.rs` tries every path with every role.
//! Their documentation is the OpenAPI document (`openapi.json` of this crate), which a test keeps current.
//!
//! What must stay true: every refusal is an `ErrorBody`; no body is read beyond its limit or beyond its time.

mod agents;
mod events;
mod extract;
mod graph;
mod guard;
mod jobs;
mod journal;
mod metrics;
mod openapi;
mod results;
mod server;
mod session;
mod tasks;
mod tokens;
mod users;

use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing;
use loxley_api::{ApiError, BODY_BYTES_MAX, ErrorCode, PIECE_BYTES_MAX, Permission};

use self::extract::Refusal;
#[cfg(feature = "openapi")]
use self::openapi::Bearer;
use crate::Context;

/// The longest that a caller may have the server wait before it answers.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The largest body that is not a job.
const SMALL_BODY_BYTES_MAX: usize = 1 << 20;

/// Everything, ready to be served to callers that the gate let in.
pub fn router(context: Context) -> Router {
    let own = from_fn_with_state(context.clone(), guard::own);
    let routes = routes().with_state(context);
    Router::new()
        .route("/openapi.json", routing::get(openapi::serve))
        .route("/healthz", routing::get(server::healthz))
        .merge(routes.layer(own))
        .merge(crate::dashboard::router())
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn(guard::log))
}

/// The OpenAPI document, collected from the handlers.
#[cfg(feature = "openapi")]
#[must_use]
pub fn document() -> String {
    openapi::print(&<Document as utoipa::OpenApi>::openapi())
}

/// All paths, by what they need.
fn routes() -> Router<Context> {
    let look = look().route_layer(from_fn(guard::needs(Permission::Look)));
    let submit = submit()
        .route_layer(from_fn(guard::needs(Permission::Submit)))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    let administer = administer()
        .route_layer(from_fn(guard::needs(Permission::Administer)))
        .layer(DefaultBodyLimit::max(SMALL_BODY_BYTES_MAX));
    // An agent reads what its tasks depend on, and writes what they return.
    let read_results = read_results()
        .route_layer(from_fn(guard::needs_one_of([
            Permission::Look,
            Permission::RunTasks,
        ])))
        .layer(DefaultBodyLimit::max(SMALL_BODY_BYTES_MAX));
    let write_results = write_results()
        .route_layer(from_fn(guard::needs(Permission::RunTasks)))
        .layer(DefaultBodyLimit::max(PIECE_BYTES_MAX));
    look.merge(submit)
        .merge(administer)
        .merge(read_results)
        .merge(write_results)
}

/// A router for each group, and the list of all handlers for the document.
macro_rules! paths {
    ($($group:ident { $($method:ident $path:literal => $module:ident::$handler:ident,)+ })+) => {
        $(
            fn $group() -> Router<Context> {
                Router::new()$(.route($path, routing::$method($module::$handler)))+
            }
        )+

        /// What the handlers do not say themselves.
        #[cfg(feature = "openapi")]
        #[derive(Debug, utoipa::OpenApi)]
        #[openapi(
            info(
                title = "Loxley",
                description = "Submit work to a fleet of agents, wait for it, look at it. Every request bears a token. \
                               Durations are seconds, moments are milliseconds since 1970, sizes are bytes. \
                               Every refusal has the same shape: {error: {code, message, help}}."
            ),
            modifiers(&Bearer),
            paths($($($module::$handler),+),+),
            security(("token" = []))
        )]
        struct Document;
    };
}

paths! {
    look {
        get "/v1/jobs" => jobs::list,
        get "/v1/jobs/{id}" => jobs::info,
        get "/v1/jobs/{id}/figures" => jobs::figures,
        get "/v1/jobs/{id}/wait" => jobs::wait,
        get "/v1/jobs/{id}/tasks" => jobs::tasks,
        get "/v1/jobs/{id}/graph" => graph::graph,
        get "/v1/tasks/{id}" => tasks::info,
        get "/v1/tasks/{id}/wait" => tasks::wait,
        get "/v1/tasks/{id}/output" => tasks::output,
        get "/v1/tasks/{id}/result" => tasks::result,
        get "/v1/tasks/{id}/explain" => tasks::explain,
        get "/v1/agents" => agents::list,
        get "/v1/agents/{id}" => agents::info,
        get "/v1/server" => server::info,
        get "/v1/health" => server::health,
        get "/v1/tuning" => server::tuning,
        get "/v1/forecast" => server::forecast,
        get "/v1/cluster" => server::cluster,
        get "/v1/traces" => server::traces,
        get "/v1/figures" => server::figures,
        get "/v1/figures/history" => server::figure_history,
        get "/v1/timeline" => server::timeline,
        get "/v1/config" => server::config,
        get "/v1/users" => users::list,
        get "/v1/events" => events::stream,
        get "/v1/marks" => events::marks,
        post "/v1/session/link" => session::link,
        post "/v1/session" => session::sign_in,
        get "/v1/session" => session::info,
        delete "/v1/session" => session::sign_out,
        get "/metrics" => metrics::metrics,
    }
    submit {
        post "/v1/jobs" => jobs::submit,
        delete "/v1/jobs/{id}" => jobs::cancel,
        post "/v1/jobs/{id}/retry" => jobs::retry,
        post "/v1/jobs/{id}/entries" => jobs::extend,
        post "/v1/jobs/{id}/close" => jobs::close,
        delete "/v1/tasks/{id}" => tasks::cancel,
        post "/v1/tasks/{id}/retry" => tasks::retry,
        post "/v1/what-if" => journal::what_if,
    }
    administer {
        post "/v1/agents/{id}/drain" => agents::drain,
        post "/v1/agents/{id}/stop" => agents::stop,
        post "/v1/agents/{id}/forget" => agents::forget,
        post "/v1/agents/{id}/revoke" => agents::revoke,
        post "/v1/server/drain" => server::drain,
        post "/v1/server/stop" => server::stop,
        post "/v1/server/handover" => server::hand_over,
        post "/v1/server/prune" => server::prune,
        put "/v1/config" => server::reload,
        put "/v1/log" => server::set_log,
        put "/v1/traces" => server::set_traces,
        put "/v1/users/weight" => users::set_weight,
        get "/v1/journal" => journal::info,
        get "/v1/journal/groups" => journal::groups,
        get "/v1/journal/snapshots/{id}" => journal::snapshot,
        get "/v1/tokens" => tokens::list,
        post "/v1/tokens" => tokens::create,
        delete "/v1/tokens" => tokens::revoke,
    }
    read_results {
        post "/v1/ends" => results::ends,
        get "/v1/tasks/{id}/results/{name}" => results::read,
    }
    write_results {
        put "/v1/tasks/{id}/results/{name}" => results::write,
    }
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

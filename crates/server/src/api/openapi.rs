//! The OpenAPI document: collected from the handlers, committed as `docs/openapi.json`.

use std::sync::Arc;

use axum::http::header;
use axum::response::IntoResponse;
use utoipa::openapi::OpenApi as Tree;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

/// What the handlers do not say themselves.
#[derive(Debug, OpenApi)]
#[openapi(
    info(
        title = "Loxley",
        description = "Submit work to a fleet of agents, wait for it, look at it. Every request bears a token. \
                       Durations are seconds, moments are milliseconds since 1970, sizes are bytes. \
                       Every refusal has the same shape: {error: {code, message, help}}."
    ),
    modifiers(&Bearer),
    security(("token" = []))
)]
pub(super) struct Document;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut Tree) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        let components = document.components.get_or_insert_with(Default::default);
        components.add_security_scheme("token", scheme);
    }
}

/// As text, with line breaks, so that changes can be read.
pub(super) fn print(document: &Tree) -> String {
    let mut text = document
        .to_pretty_json()
        .expect("the document can be written as JSON");
    text.push('\n');
    text
}

pub(super) async fn serve(document: Arc<String>) -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, document.as_str().to_owned())
}

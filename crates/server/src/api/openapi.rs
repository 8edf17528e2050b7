//! The OpenAPI document: collected from the handlers, and committed, so that a plain build needs none of what
//! collects it.

use axum::http::header;
use axum::response::IntoResponse;

pub(super) async fn serve() -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, include_str!("../../openapi.json"))
}

#[cfg(feature = "openapi")]
pub(super) use self::collected::{Bearer, print};

#[cfg(feature = "openapi")]
mod collected {
    use utoipa::Modify;
    use utoipa::openapi::OpenApi as Tree;
    use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};

    pub(in crate::api) struct Bearer;

    impl Modify for Bearer {
        fn modify(&self, document: &mut Tree) {
            let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
            let components = document.components.get_or_insert_with(Default::default);
            components.add_security_scheme("token", scheme);
        }
    }

    /// As text, with line breaks, so that changes can be read.
    pub(in crate::api) fn print(document: &Tree) -> String {
        let mut text = document
            .to_pretty_json()
            .expect("the document can be written as JSON");
        text.push('\n');
        text
    }
}

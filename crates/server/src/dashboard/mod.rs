//! The pages for browsers: three files, built from `web/` and held in the program.
//!
//! They are the same for everybody and hold no secret, so that nobody needs a token to load them; whatever they show
//! they ask of the API, with the secret of a [signed-in browser](crate::browser_sessions).
//!
//! What must stay true: nothing but these files is ever loaded or run by the page, which the browser is told to see to;
//! the files equal a build of `web/` (`cargo xtask test web`).

use axum::Router;
use axum::http::header::{self, HeaderMap, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// A file of the page.
struct File {
    path: &'static str,
    kind: &'static str,
    content: &'static str,
}

const FILES: [File; 3] = [
    File {
        path: "/",
        kind: "text/html; charset=utf-8",
        content: include_str!("index.html"),
    },
    File {
        path: "/dashboard.js",
        kind: "text/javascript; charset=utf-8",
        content: include_str!("dashboard.js"),
    },
    File {
        path: "/dashboard.css",
        kind: "text/css; charset=utf-8",
        content: include_str!("dashboard.css"),
    },
];

/// Our own files and our own API, and nothing else: no inline script or style, no frame, no form that goes elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'";

const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-cache"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Whether this is one of the pages.
pub(crate) fn is_page(path: &str) -> bool {
    FILES.iter().any(|file| file.path == path)
}

/// The pages.
pub(crate) fn router() -> Router {
    let add = |router: Router, file: &'static File| {
        router.route(
            file.path,
            get(async move |headers: HeaderMap| serve(file, &headers)),
        )
    };
    FILES.iter().fold(Router::new(), add)
}

fn serve(file: &File, asked: &HeaderMap) -> Response {
    // A new program has new files; until then a browser may keep what it has.
    let tag = format!("\"{:016x}\"", fnv(file.content.as_bytes()));
    let known = asked.get(header::IF_NONE_MATCH);
    let mut response = match known.is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(header::CONTENT_TYPE, file.kind)], file.content).into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

/// FNV-1a: tells files apart, and no more.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

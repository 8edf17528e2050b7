//! Whether whoever asks may do that.

use std::pin::Pin;
use std::time::Instant;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use loxley_api::{ApiError, ErrorCode, Permission};

use super::extract::Refusal;
use crate::Caller;

type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Lets only those through whose role has the permission.
pub(super) fn needs(
    permission: Permission,
) -> impl Fn(Request, Next) -> Answering + Clone + Send + Sync + 'static {
    move |request, next| Box::pin(require(permission, request, next))
}

async fn require(permission: Permission, request: Request, next: Next) -> Response {
    let allowed = match request.extensions().get::<Caller>() {
        Some(caller) => caller.need(permission),
        // The gate lets nobody in who is nobody; should it ever, the door is still shut.
        None => Err(ApiError::new(ErrorCode::Unauthorized, "no token")),
    };
    match allowed {
        Ok(()) => next.run(request).await,
        Err(error) => Refusal(error).into_response(),
    }
}

/// One line for each request. Paths hold numbers only, and no secret.
pub(super) async fn log(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let status = response.status().as_u16();
    let micros = started.elapsed().as_micros() as u64;
    if status >= 500 {
        tracing::warn!(%method, path, status, micros, "http");
    } else {
        tracing::debug!(%method, path, status, micros, "http");
    }
    response
}

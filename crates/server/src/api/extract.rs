//! From requests to values, and from errors to answers.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use loxley_api::{ApiError, ErrorBody, ErrorCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::WAIT_MAX;

/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(60);
/// A larger body is read on a thread that may take its time.
const LARGE_BODY_BYTES: usize = 256 << 10;

/// An error as an answer.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) ApiError);

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(ErrorBody::from(self.0))).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let scheme = header::HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// A body of JSON.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned + Send + 'static, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let bytes = read_json(request, state).await?;
        let is_large = bytes.len() > LARGE_BODY_BYTES;
        let parse = move || serde_json::from_slice(&bytes);
        let parsed = if is_large {
            crate::answer::blocking(parse)
                .await
                .map_err(|_| ApiError::new(ErrorCode::Internal, "the body could not be read"))?
        } else {
            parse()
        };
        let value = parsed.map_err(|wrong| ApiError::invalid(format!("the body: {wrong}")))?;
        Ok(Self(value))
    }
}

/// The bytes of a body that says it is JSON.
async fn read_json<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, ApiError> {
    if !is_json(&request) {
        let code = ErrorCode::UnsupportedMediaType;
        let error = ApiError::new(code, "the body is not declared to be JSON");
        return Err(error.with_help("send the header Content-Type: application/json"));
    }
    read_body(request, state).await
}

/// The bytes of a body, within its limit and its time.
pub(super) async fn read_body<S: Send + Sync>(
    request: Request,
    state: &S,
) -> Result<Bytes, ApiError> {
    let reading = Bytes::from_request(request, state);
    tokio::time::timeout(BODY_TIME, reading)
        .await
        .map_err(|_| ApiError::new(ErrorCode::Timeout, "the body took too long to arrive"))?
        .map_err(|rejection| unread(&rejection))
}

fn is_json(request: &Request) -> bool {
    let value = request.headers().get(header::CONTENT_TYPE);
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or("");
    let kind = text.split(';').next().unwrap_or("").trim();
    kind.eq_ignore_ascii_case("application/json")
}

fn unread(rejection: &BytesRejection) -> ApiError {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::new(
            ErrorCode::TooLarge,
            "the body is larger than the server takes",
        ),
        _ => ApiError::invalid("the body could not be read"),
    }
}

/// The parameters after the question mark.
#[derive(Debug)]
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        let Query(value) = query
            .map_err(|wrong| ApiError::invalid(format!("the query: {}", wrong.body_text())))?;
        Ok(Self(value))
    }
}

/// The number in a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number(pub(super) u64);

impl<S: Send + Sync> FromRequestParts<S> for Number {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let path = Path::<u64>::from_request_parts(parts, state).await;
        let Path(number) = path.map_err(|_| ApiError::invalid("the path: not a number"))?;
        Ok(Self(number))
    }
}

/// How long a caller wants to wait.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct WaitParams {
    /// Seconds to wait at most for the end, before the present state is the answer; 60 at most.
    #[serde(default)]
    timeout: Option<f64>,
}

impl WaitParams {
    pub(super) fn time(self) -> Result<Duration, ApiError> {
        wait_time("timeout", self.timeout.unwrap_or(WAIT_MAX.as_secs_f64()))
    }
}

pub(super) fn wait_time(name: &str, seconds: f64) -> Result<Duration, ApiError> {
    let time = Duration::try_from_secs_f64(seconds);
    let time = time.map_err(|_| ApiError::invalid(format!("{name}: not a number of seconds")))?;
    Ok(time.min(WAIT_MAX))
}

//! One shape for every refusal.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ApiError,
}

/// What went wrong, for programs (`code`) and for people (`message`, `help`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApiError {
    /// For programs.
    pub code: ErrorCode,
    /// What went wrong, for people.
    pub message: String,
    /// What to do about it, if there is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// The kinds of refusal, each with its HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// 400: the request is not what it should be. Sending it again changes nothing.
    Invalid,
    /// 401: no token, or none that the server knows.
    Unauthorized,
    /// 403: the token's role does not allow it.
    Forbidden,
    /// 404: no such thing.
    NotFound,
    /// 405: not with this method.
    MethodNotAllowed,
    /// 409: it contradicts the present state, such as retrying a task that runs.
    Conflict,
    /// 408: the request took too long to arrive or to answer.
    Timeout,
    /// 410: it was there and is gone: output that was not kept, a pruned task.
    Gone,
    /// 413: larger than the server takes.
    TooLarge,
    /// 415: not JSON.
    UnsupportedMediaType,
    /// 429: too much at once. Try again later.
    Busy,
    /// 500: a mistake of the server.
    Internal,
    /// 503: the server drains or stops. Try again later.
    Unavailable,
    /// 507: the disk of the server is full.
    DiskFull,
    /// Something a newer server says.
    #[serde(other)]
    Unknown,
}

impl ErrorCode {
    /// The HTTP status.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::Timeout => 408,
            Self::Conflict => 409,
            Self::Gone => 410,
            Self::TooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::Busy => 429,
            Self::Internal | Self::Unknown => 500,
            Self::Unavailable => 503,
            Self::DiskFull => 507,
        }
    }

    /// Whether the same request may succeed a little later.
    #[must_use]
    pub const fn is_passing(self) -> bool {
        matches!(self, Self::Busy | Self::Unavailable | Self::Timeout)
    }
}

impl ApiError {
    /// A refusal without advice.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            help: None,
        }
    }

    /// Adds advice.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// A request that is wrong in itself.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Invalid, message)
    }

    /// Something that is not there: `ApiError::not_found("job", 7)`.
    #[must_use]
    pub fn not_found(noun: &str, id: impl fmt::Display) -> Self {
        Self::new(ErrorCode::NotFound, format!("there is no {noun} {id}"))
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ApiError {}

impl From<ApiError> for ErrorBody {
    fn from(error: ApiError) -> Self {
        Self { error }
    }
}

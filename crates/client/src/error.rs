//! What can go wrong between us and the server.

use loxley_api::{ApiError, ErrorCode};

/// Why a request has no answer, or not the one that was hoped for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The access file names no usable address.
    #[error("`{0}` is not an address like https://host:7420")]
    Address(String),
    /// Nobody answers there.
    #[error("cannot reach the server at {url}")]
    Unreachable {
        /// Where.
        url: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The connection broke before the answer was there; the request may have been carried out.
    #[error("the connection to {url} broke")]
    Broken {
        /// Where.
        url: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No answer in time.
    #[error("the server at {url} did not answer within {seconds} s")]
    Timeout {
        /// Where.
        url: String,
        /// How long we waited.
        seconds: u64,
    },
    /// A job was sent, and nobody answered whether it is accepted, for as long as there was patience.
    #[error(
        "the job may have been accepted: submitting the same with the key `{key}` tells, and never makes two"
    )]
    Uncertain {
        /// The key that it was sent with.
        key: String,
        /// What went wrong last.
        source: Box<Self>,
    },
    /// The server said no.
    #[error("{0}")]
    Refused(ApiError),
    /// The server said something we do not understand: another version, or not a Loxley server.
    #[error("did not understand the server at {url} (status {status})")]
    Unintelligible {
        /// Where.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What is wrong with it.
        source: Option<serde_json::Error>,
    },
}

impl ClientError {
    /// Whether the same request may work a little later: the server is away or has too much to do.
    ///
    /// A server with another certificate than the access file names will not become the right one,
    /// so that does not count.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { source, .. } => !is_wrong_certificate(source.as_ref()),
            Self::Broken { .. } | Self::Timeout { .. } => true,
            Self::Refused(error) => error.code.is_passing(),
            Self::Address(_) | Self::Unintelligible { .. } | Self::Uncertain { .. } => false,
        }
    }

    /// Whether the server may have done what it was asked for, though it did not say so.
    #[must_use]
    pub fn may_be_carried_out(&self) -> bool {
        matches!(
            self,
            Self::Broken { .. } | Self::Timeout { .. } | Self::Uncertain { .. }
        )
    }

    /// What the server said, if it said no.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused(error) => Some(error.code),
            _ => None,
        }
    }
}

/// TLS failed for a reason that time does not heal.
fn is_wrong_certificate(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        // The I/O error that carries the TLS error shows the same text, and hides it as a source.
        if error.to_string().contains("invalid peer certificate") {
            return true;
        }
        cause = error.source();
    }
    false
}

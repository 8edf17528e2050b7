//! Browsers: who is signed in, and the link that signs somebody in.

use serde::{Deserialize, Serialize};

use crate::{Role, Token};

/// A one-time link to the dashboard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LinkRequest {
    /// Whoever follows it may look, and nothing else.
    #[serde(default)]
    pub read_only: bool,
}

/// What signs one browser in, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Link {
    /// What comes behind the address of the server. What stands behind `#` is never sent to anybody by a browser.
    pub path: String,
    /// For how long it works, if nobody follows it before.
    pub lifetime_sec: u64,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionInfo {
    /// What the token is called that stands behind it.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// For whom its jobs count.
    pub user: String,
    /// When a browser has to sign in again; absent for a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_ms: Option<u64>,
}

/// A browser that is signed in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Session {
    /// What it sends as `Authorization: Bearer` from now on. Told this once.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub secret: Token,
    /// Who it is.
    #[serde(flatten)]
    pub info: SessionInfo,
}

//! Requests as JSON.
//!
//! Whoever calls `serde_json` for a type has its reader and its writer compiled into the own crate, once more for each
//! crate that does; these are compiled here.

use crate::{JobRequest, TaskRequest};

impl JobRequest {
    /// # Errors
    /// When it is not JSON, or not of this form.
    pub fn from_json(text: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(text)
    }

    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a request is JSON")
    }
}

impl TaskRequest {
    /// # Errors
    /// When it is not JSON, or not of this form.
    pub fn from_json(text: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(text)
    }

    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a request is JSON")
    }
}

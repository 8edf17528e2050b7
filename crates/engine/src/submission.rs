//! A job as a client asked for it: parsed once, at the edge, and kept as JSON beside it for the journal.

use std::fmt;
use std::sync::Arc;

use loxley_api::{ApiError, JobRequest};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::keys::ContentDigest;

/// A request that makes sense by itself, and the same as JSON.
#[derive(Clone, PartialEq)]
pub struct Submission {
    request: Arc<JobRequest>,
    text: Vec<u8>,
    /// Of a request with a key.
    digest: Option<ContentDigest>,
}

impl Submission {
    /// Checks a request and writes it down.
    ///
    /// # Errors
    /// When it makes no sense.
    pub fn new(request: JobRequest) -> Result<Self, ApiError> {
        request.check()?;
        Ok(Self::unchecked(request))
    }

    /// A request that was checked, or is to be refused by whoever takes it in.
    pub(crate) fn unchecked(request: JobRequest) -> Self {
        let text = request.to_json();
        Self::with(Arc::new(request), text)
    }

    fn with(request: Arc<JobRequest>, text: Vec<u8>) -> Self {
        Self {
            digest: request.key.is_some().then(|| ContentDigest::of(&text)),
            request,
            text,
        }
    }

    /// The key that the client chose, and what it stands for.
    pub(crate) fn key(&self) -> Option<(&str, ContentDigest)> {
        self.request.key.as_deref().zip(self.digest)
    }

    /// The request.
    #[must_use]
    pub fn request(&self) -> &Arc<JobRequest> {
        &self.request
    }

    /// The request as JSON.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Submission").field(&self.request).finish()
    }
}

impl Serialize for Submission {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.text)
    }
}

impl<'de> Deserialize<'de> for Submission {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Submission;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a request as JSON")
            }

            fn visit_bytes<E: Error>(self, text: &[u8]) -> Result<Submission, E> {
                let request = JobRequest::from_json(text).map_err(E::custom)?;
                Ok(Submission::with(Arc::new(request), text.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Text)
    }
}

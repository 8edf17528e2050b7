//! How tasks ended, and results that are too large for the journal.

use std::fmt;
use std::str::FromStr;

use loxley_model::TaskId;
use serde::{Deserialize, Serialize};

use crate::{AttemptInfo, Blob, TaskState, Token};

/// A result of more bytes is kept in a file of its own, and written and read in pieces.
pub const RESULT_INLINE_MAX: usize = 4 << 20;
/// No result has more.
pub const RESULT_BYTES_MAX: u64 = 64 << 30;
/// No piece has more.
pub const PIECE_BYTES_MAX: usize = 8 << 20;

/// Of which tasks the ends are wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EndsRequest {
    /// At most 1,000.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<u64>))]
    pub tasks: Vec<TaskId>,
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskEnd {
    /// Which one.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub id: TaskId,
    /// Succeeded, failed or cancelled.
    pub state: TaskState,
    /// What its function returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Blob>,
    /// How its last attempt ended, if it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<AttemptInfo>,
}

/// The name of a result that has a file of its own: random, so that every attempt has another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResultName(String);

impl ResultName {
    /// One that nobody has.
    #[must_use]
    pub fn random() -> Self {
        let secret = Token::random();
        let hex = secret.reveal().bytes().map(|byte| format!("{byte:02x}"));
        let mut text: String = hex.collect();
        text.truncate(32);
        Self(text)
    }
}

impl fmt::Display for ResultName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ResultName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let found = is_name.then(|| Self(text.to_ascii_lowercase()));
        found.ok_or_else(|| format!("`{text}` is not 32 hexadecimal digits"))
    }
}

/// What a task returns in place of a result that has a file of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultReference {
    /// Its name.
    pub name: ResultName,
    /// How long it is.
    pub len: usize,
}

impl ResultReference {
    const BEGIN: &str = "loxley-result:";

    /// As the result of a task.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        format!("{}{}:{}", Self::BEGIN, self.name, self.len).into_bytes()
    }

    /// What the result of a task refers to; none if it is a result itself.
    #[must_use]
    pub fn from_bytes(result: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(result.strip_prefix(Self::BEGIN.as_bytes())?).ok()?;
        let (name, len) = text.split_once(':')?;
        Some(Self {
            name: name.parse().ok()?,
            len: len.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_read_as_it_was_written_and_nothing_else_is_one() {
        let reference = ResultReference {
            name: ResultName::random(),
            len: 100_000_000,
        };
        let bytes = reference.to_bytes();
        assert_eq!(ResultReference::from_bytes(&bytes), Some(reference));
        for other in [
            &b""[..],
            b"\x80\x05",
            b"loxley-result:",
            b"loxley-result:../x:5",
        ] {
            assert_eq!(ResultReference::from_bytes(other), None);
        }
    }

    #[test]
    fn a_name_is_no_path() {
        for bad in ["", "../../x", "0123", "g123456789abcdef0123456789abcdef"] {
            assert!(bad.parse::<ResultName>().is_err(), "{bad}");
        }
        let name = ResultName::random();
        assert_eq!(name.to_string().parse(), Ok(name.clone()));
        assert_ne!(ResultName::random(), name);
    }
}

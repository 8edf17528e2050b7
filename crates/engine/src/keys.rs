//! Keys of clients: a request that comes a second time is answered with the job of the first.
//!
//! A key belongs to the user who chose it, so two users never meet in one. It stands for one content: the same key
//! with another one is a mistake of the client, and is told.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use loxley_api::{ApiError, ErrorCode};
use loxley_model::{JobId, UserId};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// How many keys are remembered, of all users.
const KEYS_MAX: usize = 100_000;

/// What a request asked for, in 128 bits: two that differ do not have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContentDigest([u8; 16]);

impl ContentDigest {
    pub(crate) fn of(request: &[u8]) -> Self {
        let hash = digest(&SHA256, request);
        let (first, _) = hash.as_ref().split_at(16);
        Self(first.try_into().expect("half of 32 bytes"))
    }
}

impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A key, and what was submitted with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keyed {
    pub(crate) user: UserId,
    pub(crate) key: Arc<str>,
    pub(crate) job: JobId,
    pub(crate) content: ContentDigest,
}

/// The keys that are remembered: the newest ones.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// Oldest first; the first one has the number `forgotten`.
    kept: VecDeque<Keyed>,
    forgotten: u64,
    /// The number of each.
    numbers: HashMap<(UserId, Arc<str>), u64>,
}

impl Keys {
    /// The job that a user submitted with this key, if any.
    ///
    /// # Errors
    /// When it was another content.
    pub(crate) fn find(
        &self,
        user: UserId,
        key: &str,
        content: ContentDigest,
    ) -> Result<Option<JobId>, ApiError> {
        let number = self.numbers.get(&(user, Arc::from(key)));
        let Some(number) = number else {
            return Ok(None);
        };
        let keyed = &self.kept[(number - self.forgotten) as usize];
        if keyed.content == content {
            return Ok(Some(keyed.job));
        }
        let message = format!(
            "the key `{key}` was used for job {}, whose content is another: {} then, {content} now",
            keyed.job.0, keyed.content
        );
        let help = "choose another key, or submit what was submitted then";
        Err(ApiError::new(ErrorCode::Conflict, message).with_help(help))
    }

    /// Remembers a key, and forgets the oldest when there are too many.
    pub(crate) fn insert(&mut self, keyed: Keyed) {
        let number = self.forgotten + self.kept.len() as u64;
        self.numbers
            .insert((keyed.user, Arc::clone(&keyed.key)), number);
        self.kept.push_back(keyed);
        if self.kept.len() > KEYS_MAX
            && let Some(oldest) = self.kept.pop_front()
        {
            self.numbers.remove(&(oldest.user, oldest.key));
            self.forgotten += 1;
        }
    }

    /// All of them, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Keyed> {
        self.kept.iter()
    }
}

impl FromIterator<Keyed> for Keys {
    fn from_iter<I: IntoIterator<Item = Keyed>>(all: I) -> Self {
        let mut keys = Self::default();
        all.into_iter().for_each(|keyed| keys.insert(keyed));
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyed(user: u32, key: &str, job: u64, content: &str) -> Keyed {
        Keyed {
            user: UserId(user),
            key: key.into(),
            job: JobId(job),
            content: ContentDigest::of(content.as_bytes()),
        }
    }

    #[test]
    fn a_key_is_of_one_user_and_one_content() {
        let keys: Keys = [keyed(1, "k", 7, "a"), keyed(2, "k", 8, "b")]
            .into_iter()
            .collect();
        let find = |user, content: &str| {
            keys.find(UserId(user), "k", ContentDigest::of(content.as_bytes()))
        };
        assert_eq!(find(1, "a"), Ok(Some(JobId(7))));
        assert_eq!(find(2, "b"), Ok(Some(JobId(8))));
        assert_eq!(find(3, "a"), Ok(None));
        let refused = find(1, "b").unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict);
        for content in ["a", "b"] {
            let digest = ContentDigest::of(content.as_bytes()).to_string();
            assert!(refused.message.contains(&digest), "{}", refused.message);
        }
    }

    #[test]
    fn the_oldest_key_is_forgotten_when_there_are_too_many() {
        let mut keys = Keys::default();
        for number in 0..=KEYS_MAX as u64 {
            keys.insert(keyed(1, &number.to_string(), number, "a"));
        }
        let find = |key: &str| keys.find(UserId(1), key, ContentDigest::of(b"a"));
        assert_eq!(find("0"), Ok(None));
        assert_eq!(find("1"), Ok(Some(JobId(1))));
        assert_eq!(keys.iter().count(), KEYS_MAX);
    }
}

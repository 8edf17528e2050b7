//! Tokens, and the fingerprint of a certificate.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

/// A secret of 256 random bits. Whoever holds it has its role.
///
/// It is never shown by `{:?}`, so that no log can hold one.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// A new one.
    ///
    /// # Panics
    /// When the system has no random bytes to give.
    #[must_use]
    pub fn random() -> Self {
        let mut bytes = [0; 32];
        loop {
            SystemRandom::new()
                .fill(&mut bytes)
                .expect("the system gives random bytes");
            let token = Self(URL_SAFE_NO_PAD.encode(bytes));
            if token.is_plain_argument() {
                return token;
            }
        }
    }

    /// Whether a person can paste it behind an option: with a dash in front it would be taken for options itself.
    fn is_plain_argument(&self) -> bool {
        !self.0.starts_with('-')
    }

    /// A token as somebody gave it; whether it is known is for the server to say.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The secret itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What the server keeps of it.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash(Digest::of(self.0.as_bytes()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The SHA-256 of a token: what the server keeps. Looking one up by its hash takes a time that says
/// nothing of the token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenHash(Digest);

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenHash({})", self.0)
    }
}

/// The SHA-256 of a certificate (its DER bytes): the one certificate that a client accepts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(Digest);

impl Fingerprint {
    /// The fingerprint of a certificate.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Self {
        Self(Digest::of(certificate))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({})", self.0)
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Digest::try_from(text.to_owned()).map(Self)
    }
}

/// 32 bytes that travel as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Digest([u8; 32]);

impl Digest {
    fn of(bytes: &[u8]) -> Self {
        let digest = digest(&SHA256, bytes);
        Self(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not 64 hexadecimal digits");
        // Whole bytes only, so that no `+` and no half of a wide letter gets as far as the parser.
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_taken_for_an_option() {
        assert!(!Token::from_text("-wIbSsmj").is_plain_argument());
        assert!((0..1_000).all(|_| Token::random().is_plain_argument()));
    }

    #[test]
    fn tokens_differ_and_do_not_show_themselves() {
        let (one, other) = (Token::random(), Token::random());
        assert_ne!(one, other);
        assert_ne!(one.hash(), other.hash());
        assert_eq!(one.reveal().len(), 43);
        assert!(!format!("{one:?}").contains(one.reveal()));
    }

    #[test]
    fn a_fingerprint_is_64_digits() {
        let fingerprint = Fingerprint::of(b"abc");
        let text = fingerprint.to_string();
        assert!(text.starts_with("ba7816bf8f01cfea"));
        assert_eq!(text.parse(), Ok(fingerprint));
        for wrong in [
            "",
            "ba78",
            &"x".repeat(64),
            &"é".repeat(32),
            &"+1".repeat(32),
        ] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}

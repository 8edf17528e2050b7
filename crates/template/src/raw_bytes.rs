//! Bytes that are no text, in a text.
//!
//! Requests are JSON, and JSON is text; arguments, lines and paths are bytes. A byte that is not part of UTF-8 text is
//! written as the character U+10FF00 plus its value (U+10FF80 to U+10FFFF, the end of a plane for private use, which no
//! text has). A text that does have such a character has each of its bytes written so: every sequence of bytes has one
//! form, and comes back as it was.

use std::borrow::Cow;

const FIRST: u32 = 0x10_FF80;
const BASE: u32 = 0x10_FF00;

/// The text for these bytes: the same, where they are text.
#[must_use]
pub fn to_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match u32::from(character) {
                FIRST.. => {
                    let mut room = [0; 4];
                    let bytes = character.encode_utf8(&mut room).bytes();
                    text.extend(bytes.map(raw));
                }
                _ => text.push(character),
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| raw(*byte)));
    }
    text
}

/// The bytes for which a text stands.
#[must_use]
pub fn from_text(text: &[u8]) -> Cow<'_, [u8]> {
    // The first byte of all of these characters, and of few others.
    if !text.contains(&0xF4) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            match u32::from(character) {
                raw @ FIRST.. => bytes.push((raw - BASE) as u8),
                _ => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        bytes.extend_from_slice(chunk.invalid());
    }
    Cow::Owned(bytes)
}

fn raw(byte: u8) -> char {
    char::from_u32(BASE + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_of_bytes_comes_back() {
        let texts: [&[u8]; 6] = [
            b"",
            b"plain",
            "größer \u{1F600} \u{10FF7F}".as_bytes(),
            b"\xff\xfe \x80caf\xe9",
            "a text with \u{10FF80} and \u{10FFFF}".as_bytes(),
            b"cut short \xf4\x8f\xbe",
        ];
        for bytes in texts {
            let text = to_text(bytes);
            assert_eq!(&*from_text(text.as_bytes()), bytes, "{text:?}");
        }
        assert_eq!(to_text(b"plain"), "plain");
        assert_eq!(to_text(b"\xe9"), "\u{10FFE9}");
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(&*from_text(to_text(&all).as_bytes()), &all[..]);
    }
}

//! What can be told of a pickle without unpickling it.

use pyo3::prelude::*;

/// Whether a pickle holds nothing but numbers, short texts and short bytes, in lists and tuples: things
/// to which nobody can hold a weak reference, and which hardly take memory. So nobody can tell whether
/// they are let go one by one or together.
#[pyfunction]
pub(crate) fn is_plain(pickle: &[u8]) -> bool {
    let mut rest = pickle;
    while let Some((opcode, after)) = rest.split_first() {
        let Some(length) = argument_len(*opcode, after) else {
            return false;
        };
        let Some(after) = after.get(length..) else {
            return false;
        };
        rest = after;
    }
    true
}

/// How many bytes follow an opcode of a plain pickle; none if it is not one of those.
fn argument_len(opcode: u8, after: &[u8]) -> Option<usize> {
    let counted = || after.first().map(|length| 1 + usize::from(*length));
    match opcode {
        // None, False, True; marks, lists, tuples; remembering; the end.
        b'N' | 0x88 | 0x89 | b'(' | b']' | b'a' | b'e' | b')' | 0x85..=0x87 | 0x94 | b'.' => {
            Some(0)
        }
        // An integer of one byte, something remembered, the protocol.
        b'K' | b'h' | 0x80 => Some(1),
        b'M' => Some(2),
        b'J' | b'j' => Some(4),
        // A float, a frame.
        b'G' | 0x95 => Some(8),
        // Longer integers, short bytes, short texts: their length comes first.
        0x8a | b'C' | 0x8c => counted(),
        _ => None,
    }
}

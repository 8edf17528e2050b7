//! What goes over a line: frames of a kind, two numbers and some bytes.
//!
//! ```text
//! 0        4      5          13         21
//! ├ length ┼ kind ┼ number ──┼ extra ───┼ payload …
//! ```
//!
//! `length` counts what follows it. Both ends are the same build on the same machine.

use std::io::{self, ErrorKind, Read};

/// What a frame means. `number` is a lease unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// To a worker, first of all: how to set itself up.
    Setup = 1,
    /// To a worker: the function of this number.
    Function,
    /// To a worker: the function of this number is not called again.
    Forget,
    /// To a worker: call the function `extra >> 8`; the low byte says how the arguments are packed.
    Call,
    /// To a worker: give this call back unless it has begun.
    Retract,
    /// To a worker: if this call is running, end the process.
    Interrupt,
    /// To a worker: no more calls will come.
    Stop,
    /// From a worker: it is set up.
    Ready,
    /// From a worker: it could not set itself up, and why.
    Unfit,
    /// From a worker: a value; `extra` is how long it took in nanoseconds.
    Value,
    /// From a worker: an exception; `extra` as above.
    Raised,
    /// From a worker: the call was given back.
    Yielded,
    /// From a worker: the call had begun, or is unknown.
    Kept,
    /// From a worker: it has run as many calls as it may.
    Retired,
}

const KINDS: [Kind; 14] = [
    Kind::Setup,
    Kind::Function,
    Kind::Forget,
    Kind::Call,
    Kind::Retract,
    Kind::Interrupt,
    Kind::Stop,
    Kind::Ready,
    Kind::Unfit,
    Kind::Value,
    Kind::Raised,
    Kind::Yielded,
    Kind::Kept,
    Kind::Retired,
];

const HEAD: usize = 4 + 1 + 8 + 8;

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) number: u64,
    pub(crate) extra: u64,
    pub(crate) payload: Vec<u8>,
}

/// The payload is longer than a frame can be.
#[derive(Debug)]
pub(crate) struct TooLong;

/// Whether a payload of this length fits into a frame.
pub(crate) fn check_len(len: usize) -> Result<(), TooLong> {
    u32::try_from(len + HEAD).map(drop).map_err(|_| TooLong)
}

/// Adds a frame to what is to be written. The payload must fit ([`check_len`]).
pub(crate) fn put(out: &mut Vec<u8>, kind: Kind, number: u64, extra: u64, payload: &[u8]) {
    let length = u32::try_from(HEAD - 4 + payload.len()).expect("was checked before");
    out.reserve(HEAD + payload.len());
    out.extend_from_slice(&length.to_le_bytes());
    out.push(kind as u8);
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&extra.to_le_bytes());
    out.extend_from_slice(payload);
}

/// Reads frames, many with one system call where they are small.
#[derive(Debug)]
pub(crate) struct Frames<R> {
    source: R,
    buffer: Vec<u8>,
    /// What is in the buffer and not taken yet.
    from: usize,
    to: usize,
}

impl<R: Read> Frames<R> {
    pub(crate) fn new(source: R) -> Self {
        Self {
            source,
            buffer: vec![0; 1 << 16],
            from: 0,
            to: 0,
        }
    }

    /// The next frame; none when the other end is gone.
    pub(crate) fn next(&mut self) -> io::Result<Option<Frame>> {
        let mut head = [0; HEAD];
        if !self.fill(&mut head)? {
            return Ok(None);
        }
        let number_at = |at: usize| {
            let bytes: [u8; 8] = head[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        let length: [u8; 4] = head[..4].try_into().expect("four bytes");
        let length = u32::from_le_bytes(length) as usize;
        let kind = KINDS.iter().find(|kind| **kind as u8 == head[4]);
        let (Some(kind), Some(length)) = (kind, length.checked_sub(HEAD - 4)) else {
            return Err(ErrorKind::InvalidData.into());
        };
        let mut payload = vec![0; length];
        if !self.fill(&mut payload)? {
            return Ok(None);
        }
        Ok(Some(Frame {
            kind: *kind,
            number: number_at(5),
            extra: number_at(13),
            payload,
        }))
    }

    /// Whether a whole frame is here already, so that taking it does not wait.
    pub(crate) fn has_next(&self) -> bool {
        let here = &self.buffer[self.from..self.to];
        let Some(length) = here.first_chunk::<4>() else {
            return false;
        };
        here.len() >= 4 + u32::from_le_bytes(*length) as usize
    }

    /// Fills `target`; false when the other end is gone.
    fn fill(&mut self, mut target: &mut [u8]) -> io::Result<bool> {
        while !target.is_empty() {
            if self.from == self.to {
                if target.len() >= self.buffer.len() {
                    // Too large for the buffer: straight to where it belongs.
                    let Some(count) = read(&mut self.source, target)? else {
                        return Ok(false);
                    };
                    target = &mut target[count..];
                    continue;
                }
                let Some(count) = read(&mut self.source, &mut self.buffer)? else {
                    return Ok(false);
                };
                (self.from, self.to) = (0, count);
            }
            let count = target.len().min(self.to - self.from);
            let (now, later) = target.split_at_mut(count);
            now.copy_from_slice(&self.buffer[self.from..self.from + count]);
            self.from += count;
            target = later;
        }
        Ok(true)
    }
}

/// How much was read; none at the end.
fn read(source: &mut impl Read, target: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match source.read(target) {
            Ok(0) => return Ok(None),
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The other end died with something unread.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

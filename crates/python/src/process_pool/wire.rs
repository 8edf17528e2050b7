//! What goes over a line: frames of a kind, two numbers and some bytes, and maybe a segment.
//!
//! ```text
//! 0        4      5          13         21
//! ├ length ┼ kind ┼ number ──┼ extra ───┼ payload …
//! ```
//!
//! `length` counts what follows it. The highest bit of `kind` says that the descriptor of a segment
//! travels beside the first byte of the frame. Both ends are the same build on the same machine.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::segment::Segment;

/// In the byte for the kind: a segment comes along.
const WITH_SEGMENT: u8 = 0x80;

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
    pub(crate) segment: Option<OwnedFd>,
}

/// The payload is longer than a frame can be.
#[derive(Debug)]
pub(crate) struct TooLong;

/// Whether a payload of this length fits into a frame.
pub(crate) fn check_len(len: usize) -> Result<(), TooLong> {
    u32::try_from(len + HEAD).map(drop).map_err(|_| TooLong)
}

/// What is to be written: frames one after the other, and where segments go with them.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    chunks: Vec<Chunk>,
}

/// Bytes, and the segment that travels beside the first of them.
#[derive(Debug, Default)]
struct Chunk {
    segment: Option<Segment>,
    bytes: Vec<u8>,
}

impl Outbox {
    /// Adds a frame. The payload must fit ([`check_len`]).
    pub(crate) fn put(
        &mut self,
        kind: Kind,
        number: u64,
        extra: u64,
        payload: &[u8],
        segment: Option<&Segment>,
    ) {
        let length = u32::try_from(HEAD - 4 + payload.len()).expect("was checked before");
        if segment.is_some() || self.chunks.is_empty() {
            let segment = segment.cloned();
            self.chunks.push(Chunk {
                segment,
                ..Chunk::default()
            });
        }
        let mark = if segment.is_some() { WITH_SEGMENT } else { 0 };
        let out = &mut self.chunks.last_mut().expect("there is one").bytes;
        out.reserve(HEAD + payload.len());
        out.extend_from_slice(&length.to_le_bytes());
        out.push(kind as u8 | mark);
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&extra.to_le_bytes());
        out.extend_from_slice(payload);
    }

    pub(crate) fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.bytes.len()).sum()
    }

    /// Writes everything, waiting where it must.
    pub(crate) fn write_to(&self, stream: &mut UnixStream) -> io::Result<()> {
        self.chunks
            .iter()
            .try_for_each(|chunk| chunk.write_to(stream))
    }
}

impl Chunk {
    fn write_to(&self, stream: &mut UnixStream) -> io::Result<()> {
        let Some(segment) = &self.segment else {
            return stream.write_all(&self.bytes);
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let descriptors = [segment.as_fd()];
        let written = loop {
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
            let bytes = [IoSlice::new(&self.bytes)];
            match sendmsg(&*stream, &bytes, &mut control, SendFlags::empty()) {
                Ok(written) => break written,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        stream.write_all(&self.bytes[written..])
    }
}

/// Reads frames, many with one system call where they are small.
#[derive(Debug)]
pub(crate) struct Frames {
    source: UnixStream,
    buffer: Vec<u8>,
    /// What is in the buffer and not taken yet.
    from: usize,
    to: usize,
    /// Segments whose frames have not been taken yet, in the order of those.
    segments: VecDeque<OwnedFd>,
}

impl Frames {
    pub(crate) fn new(source: UnixStream) -> Self {
        Self {
            source,
            buffer: vec![0; 1 << 16],
            from: 0,
            to: 0,
            segments: VecDeque::new(),
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
        let byte = head[4] & !WITH_SEGMENT;
        let kind = KINDS.iter().find(|kind| **kind as u8 == byte);
        let (Some(kind), Some(length)) = (kind, length.checked_sub(HEAD - 4)) else {
            return Err(ErrorKind::InvalidData.into());
        };
        let mut payload = vec![0; length];
        if !self.fill(&mut payload)? {
            return Ok(None);
        }
        let has_segment = head[4] & WITH_SEGMENT != 0;
        let segment = self.segments.pop_front_if(|_| has_segment);
        if has_segment && segment.is_none() {
            return Err(ErrorKind::InvalidData.into());
        }
        Ok(Some(Frame {
            kind: *kind,
            number: number_at(5),
            extra: number_at(13),
            payload,
            segment,
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
                    let Some(count) = receive(&self.source, target, &mut self.segments)? else {
                        return Ok(false);
                    };
                    target = &mut target[count..];
                    continue;
                }
                let Some(count) = receive(&self.source, &mut self.buffer, &mut self.segments)?
                else {
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

/// How much was read; none at the end. Segments that came along are added to the others.
fn receive(
    source: &UnixStream,
    target: &mut [u8],
    segments: &mut VecDeque<OwnedFd>,
) -> io::Result<Option<usize>> {
    #[cfg(target_os = "linux")]
    const FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    const FLAGS: RecvFlags = RecvFlags::empty();
    loop {
        // More than one never comes with what one call reads.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [IoSliceMut::new(target)];
        let received = match recvmsg(source, &mut bytes, &mut control, FLAGS) {
            Ok(received) => received,
            Err(rustix::io::Errno::INTR) => continue,
            // The other end died with something unread.
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                segments.extend(descriptors);
            }
        }
        return Ok(Some(received.bytes).filter(|count| *count > 0));
    }
}

//! Reads the log of SQLite before SQLite does.
//!
//! On opening, SQLite takes the frames of its log up to the first one whose checksum does not fit, and
//! forgets the rest without a word. After a crash that is right: the last commit was torn. After damage
//! it is not: commits that were durable, and acknowledged, vanish. This module tells the two apart.
//!
//! A frame is a page with a header; a commit is some frames, the last of which says how many pages the
//! file has. Checksums run on from frame to frame, so a frame can be checked against the *stored*
//! checksum of the frame before it even when that one is broken. SQLite syncs the log at every commit,
//! so only the frames of the very last commit can be torn: if a whole commit follows after the one with
//! the bad frame, the log was damaged, not torn. When only the last commit is concerned, nobody can tell
//! from the log alone; the [mark](super::mark) can.
//!
//! The layout is that of the SQLite file format, section "The Write-Ahead Log".

use std::io;
use std::path::Path;

pub(super) const HEADER: usize = 32;
pub(super) const FRAME_HEADER: usize = 24;

/// What the log looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Log {
    /// No log, or one that ends with a commit.
    Whole,
    /// The last commit is not whole: so many bytes will be dropped.
    Torn { bytes: u64 },
    /// A commit was damaged that later ones were built upon.
    Damaged { frame: usize },
}

pub(super) fn scan(path: &Path, page_size: usize) -> io::Result<Log> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(scan_bytes(&bytes, page_size)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Log::Whole),
        Err(error) => Err(error),
    }
}

type Sums = (u32, u32);

/// What a log's header fixes for all of its frames.
#[derive(Clone, Copy)]
struct Rules {
    salts: Sums,
    big_endian: bool,
}

/// A frame as it is stored.
struct Frame<'a> {
    bytes: &'a [u8],
    salts: Sums,
    sums: Sums,
    is_commit: bool,
    has_page: bool,
}

impl<'a> Frame<'a> {
    fn parse(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            salts: (word(bytes, 8), word(bytes, 12)),
            sums: (word(bytes, 16), word(bytes, 20)),
            is_commit: word(bytes, 4) != 0,
            has_page: word(bytes, 0) != 0,
        }
    }

    /// Whether this frame fits the log after a frame with these sums.
    fn follows(&self, before: Sums, rules: Rules) -> bool {
        let sums = self.sums_after(before, rules);
        self.has_page && self.salts == rules.salts && self.sums == sums
    }

    /// The sums that this frame should have.
    fn sums_after(&self, before: Sums, rules: Rules) -> Sums {
        let sums = checksum(before, &self.bytes[..8], rules.big_endian);
        checksum(sums, &self.bytes[FRAME_HEADER..], rules.big_endian)
    }
}

/// The log without the room [ahead](super::log) of it: zeros from the end of a frame on.
fn without_room(log: &[u8], page_size: usize) -> &[u8] {
    let zeros = log.iter().rev().take_while(|byte| **byte == 0).count();
    let size = FRAME_HEADER + page_size;
    let used = log.len() - zeros;
    // A page may end with zeros, and its frame counts whole.
    let whole = match used {
        0 => 0,
        used => HEADER + used.saturating_sub(HEADER).div_ceil(size) * size,
    };
    &log[..whole.min(log.len())]
}

fn scan_bytes(log: &[u8], page_size: usize) -> Log {
    let log = without_room(log, page_size);
    let torn_from = |offset: usize| match log.len() - offset {
        0 => Log::Whole,
        bytes => Log::Torn {
            bytes: bytes as u64,
        },
    };
    let Some((header, body)) = log.split_at_checked(HEADER) else {
        return torn_from(0);
    };
    let size = FRAME_HEADER + page_size;
    let frames: Vec<Frame<'_>> = body.chunks_exact(size).map(Frame::parse).collect();
    let big_endian = word(header, 0) & 1 == 1;
    let Some((salts, sums)) = parse_header(header, page_size, big_endian) else {
        return match vouched_commits(&frames, big_endian) {
            0 | 1 => torn_from(0),
            _ => Log::Damaged { frame: 0 },
        };
    };
    let rules = Rules { salts, big_endian };
    let mut before = sums;
    let mut committed = 0;
    for (index, frame) in frames.iter().enumerate() {
        if !frame.follows(before, rules) {
            return match judge(&frames[index..], before, rules) {
                Verdict::End if index == committed => Log::Whole,
                Verdict::End | Verdict::Torn => torn_from(HEADER + committed * size),
                Verdict::Damaged => Log::Damaged { frame: index },
            };
        }
        before = frame.sums;
        if frame.is_commit {
            committed = index + 1;
        }
    }
    torn_from(HEADER + committed * size)
}

enum Verdict {
    /// What follows is left over from before the log was begun anew; SQLite does not clear it.
    End,
    Torn,
    Damaged,
}

/// The first of these frames does not follow. Is it the end, a torn commit, or damage?
fn judge(frames: &[Frame<'_>], before: Sums, rules: Rules) -> Verdict {
    let (bad, rest) = frames.split_first().expect("begins with the bad frame");
    // Either the content of the bad frame is broken and its sums stand, or the other way round.
    let possible = [bad.sums, bad.sums_after(before, rules)];
    let next = rest.first().filter(|next| {
        let vouched = possible.iter().any(|sums| next.follows(*sums, rules));
        vouched && next.is_commit
    });
    let later = rest.windows(2).filter(|pair| {
        let [before, frame] = pair else { return false };
        frame.is_commit && frame.follows(before.sums, rules)
    });
    let commits = later.count() + usize::from(next.is_some());
    let is_ours = bad.salts.0 == rules.salts.0 || bad.salts.1 == rules.salts.1;
    match commits {
        0 if !is_ours => Verdict::End,
        0 => Verdict::Torn,
        // The commit of the bad frame may be the last one, unless the bad frame ended it.
        1 if !(is_ours && bad.is_commit) => Verdict::Torn,
        _ => Verdict::Damaged,
    }
}

/// Without a header nothing is left of the log; but frames vouch for each other.
fn vouched_commits(frames: &[Frame<'_>], big_endian: bool) -> usize {
    let vouched = frames.windows(2).filter(|pair| {
        let [before, frame] = pair else { return false };
        let rules = Rules {
            salts: before.salts,
            big_endian,
        };
        frame.is_commit && frame.follows(before.sums, rules)
    });
    vouched.count()
}

fn parse_header(header: &[u8], page_size: usize, big_endian: bool) -> Option<(Sums, Sums)> {
    let sums = (word(header, 24), word(header, 28));
    let fits = word(header, 0) & !1 == 0x377f_0682
        && word(header, 4) == 3_007_000
        && word(header, 8) as usize == page_size
        && checksum((0, 0), &header[..24], big_endian) == sums;
    fits.then_some(((word(header, 16), word(header, 20)), sums))
}

/// The running checksum of SQLite: two sums over pairs of 32-bit words.
fn checksum(before: Sums, bytes: &[u8], big_endian: bool) -> Sums {
    let word = |bytes: &[u8]| {
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        }
    };
    let mut sums = before;
    for pair in bytes.chunks_exact(8) {
        sums.0 = sums.0.wrapping_add(word(&pair[..4])).wrapping_add(sums.1);
        sums.1 = sums.1.wrapping_add(word(&pair[4..])).wrapping_add(sums.0);
    }
    sums
}

/// Everything but the summed data is stored with the high byte first.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

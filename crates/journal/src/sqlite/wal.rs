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

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

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

    /// Whether this frame fits a log with these salts after a frame with these sums.
    fn follows(&self, salts: Sums, before: Sums, big_endian: bool) -> bool {
        let sums = checksum(before, &self.bytes[..8], big_endian);
        let sums = checksum(sums, &self.bytes[FRAME_HEADER..], big_endian);
        self.has_page && self.salts == salts && self.sums == sums
    }
}

fn scan_bytes(log: &[u8], page_size: usize) -> Log {
    if log.is_empty() {
        return Log::Whole;
    }
    let torn_from = |offset: usize| Log::Torn {
        bytes: (log.len() - offset) as u64,
    };
    let Some((header, body)) = log.split_at_checked(HEADER) else {
        return torn_from(0);
    };
    let size = FRAME_HEADER + page_size;
    let frames: Vec<Frame<'_>> = body.chunks_exact(size).map(Frame::parse).collect();
    let big_endian = word(header, 0) & 1 == 1;
    let Some((salts, sums)) = parse_header(header, page_size, big_endian) else {
        // Without a header nothing is left of the log; frames can still vouch for each other.
        let commits = later_commits(&frames, 0, None, big_endian);
        return match commits {
            0 | 1 => torn_from(0),
            _ => Log::Damaged { frame: 0 },
        };
    };
    let mut before = sums;
    let mut committed = 0;
    for (index, frame) in frames.iter().enumerate() {
        if !frame.follows(salts, before, big_endian) {
            return judge(
                &frames, index, committed, salts, big_endian, torn_from, size,
            );
        }
        before = frame.sums;
        if frame.is_commit {
            committed = index + 1;
        }
    }
    let end = HEADER + committed * size;
    if end == log.len() {
        Log::Whole
    } else {
        torn_from(end)
    }
}

/// The frame `bad` does not follow. Is it the end, a torn commit, or damage?
fn judge(
    frames: &[Frame<'_>],
    bad: usize,
    committed: usize,
    salts: Sums,
    big_endian: bool,
    torn_from: impl Fn(usize) -> Log,
    size: usize,
) -> Log {
    let later = later_commits(frames, bad + 1, Some(salts), big_endian);
    let frame = &frames[bad];
    let is_ours = frame.salts.0 == salts.0 || frame.salts.1 == salts.1;
    match later {
        // Left over from before the log was begun anew; SQLite does not clear it.
        0 if !is_ours && bad == committed => Log::Whole,
        0 => torn_from(HEADER + committed * size),
        // The commit of the bad frame may be the last one, unless the bad frame ended it.
        1 if !(is_ours && frame.is_commit) => torn_from(HEADER + committed * size),
        _ => Log::Damaged { frame: bad },
    }
}

/// Commits from the frame `from` on that fit the frame stored before them.
fn later_commits(
    frames: &[Frame<'_>],
    from: usize,
    salts: Option<Sums>,
    big_endian: bool,
) -> usize {
    let pairs = frames.windows(2).skip(from.saturating_sub(1));
    pairs
        .filter(|pair| {
            let salts = salts.unwrap_or(pair[0].salts);
            pair[1].is_commit && pair[1].follows(salts, pair[0].sums, big_endian)
        })
        .count()
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

//! The log of SQLite while it is written: how full it is, when it is moved into the file, and the room ahead of it.
//!
//! A commit that makes a file longer has to wait for the file system as well: its own record of the length
//! must be durable. One that overwrites what is there has to wait for the disk alone, and that is a third
//! less. SQLite begins its log anew when all of it was moved into the file, and overwrites it from then on;
//! until then, zeros are written ahead of it here, some at once. To SQLite, and to whoever
//! [reads the log](super::wal) after a crash, zeros are no frames: the log ends before them.
//!
//! What must stay true: nothing is ever written before the end of the file, so never over a frame.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::Connection;

use super::wal;

/// Fewer bytes than this ahead of the last frame call for more: most commits are smaller.
const ROOM_LEAST: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct Log {
    /// None: there is no such file, and no room is made.
    file: Option<File>,
    /// Set by SQLite at every commit: the frames of the log.
    frames: Arc<AtomicU32>,
    frame_bytes: u64,
    /// The log was moved into the file when it was so long.
    moved_at: u64,
    checkpoint_bytes: u64,
    /// So much room is made at once.
    room_bytes: u64,
    keeps_room: bool,
    /// At least so long is the file.
    length: u64,
}

impl Log {
    /// Keeps an eye on the log of this connection, which is in use already.
    pub(super) fn watch(
        connection: &mut Connection,
        path: &Path,
        checkpoint_bytes: u64,
        room_bytes: u64,
    ) -> rusqlite::Result<Self> {
        let page: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let frames = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&frames);
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, count| {
            seen.store(u32::try_from(count).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self {
            file: OpenOptions::new().write(true).open(path).ok(),
            frames,
            frame_bytes: wal::FRAME_HEADER as u64 + u64::from(page),
            moved_at: 0,
            checkpoint_bytes,
            room_bytes,
            keeps_room: true,
            length: 0,
        })
    }

    fn filled(&self) -> u64 {
        wal::HEADER as u64 + u64::from(self.frames.load(Ordering::Relaxed)) * self.frame_bytes
    }

    /// Whether the log has grown so much since it was moved that it should be moved again.
    pub(super) fn is_large(&self) -> bool {
        let filled = self.filled();
        // Shorter than then: it was begun anew.
        let moved = if filled < self.moved_at {
            0
        } else {
            self.moved_at
        };
        filled - moved >= self.checkpoint_bytes
    }

    pub(super) fn note_moved(&mut self) {
        self.moved_at = self.filled();
    }

    /// Looks after the room for the next commits. Without it they take longer, and that is all: so a full
    /// disk is not told of here.
    pub(super) fn make_room(&mut self) {
        let wanted = self.filled() + ROOM_LEAST;
        if self.room_bytes == 0 || !self.keeps_room || wanted <= self.length {
            return;
        }
        let Some(file) = &self.file else { return };
        // SQLite may have made it longer, or cut it.
        let lengthened = file.metadata().and_then(|found| match found.len() {
            enough if enough >= wanted => Ok(enough),
            end => write_zeros(file, end, self.room_bytes).map(|()| end + self.room_bytes),
        });
        // After a failure, not again for every commit.
        self.length = lengthened.unwrap_or(wanted + self.room_bytes);
    }

    /// Whether room is made ahead of the log: not on a disk that is full.
    pub(super) fn keep_room(&mut self, keep: bool) {
        self.keeps_room = keep;
    }

    /// The log was cut to nothing.
    pub(super) fn note_cut(&mut self) {
        self.frames.store(0, Ordering::Relaxed);
        self.moved_at = 0;
        self.length = 0;
    }
}

fn write_zeros(file: &File, from: u64, count: u64) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let end = from + count;
    let mut at = from;
    while at < end {
        let length = (end - at).min(ZEROS.len() as u64);
        file.write_all_at(&ZEROS[..length as usize], at)?;
        at += length;
    }
    Ok(())
}

//! Room for the day when the disk is full.
//!
//! A journal on a full disk cannot even forget: that, too, is written down first. So a file of zeros lies beside it, and
//! goes when there is no other room. Until it is there again, its owner takes nothing new.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::open::Notice;

/// A disk with less room than this is full: SQLite needs so much to open a journal and to begin its log.
const FULL: u64 = 256 << 10;
/// At most this part of what is free: on a small disk the work comes first.
const SHARE: u64 = 4;
/// Less than this is of no use.
const LEAST: u64 = 256 << 10;

#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    /// So much is wanted.
    wanted: u64,
    /// So much there is.
    held: u64,
}

impl Reserve {
    /// What is there.
    pub(super) fn find(path: PathBuf) -> Self {
        let held = fs::metadata(&path).map_or(0, |file| file.len());
        Self {
            path,
            wanted: held,
            held,
        }
    }

    /// Gives it up when there is too little room to open a journal.
    pub(super) fn give_up_if_full(&mut self) -> Option<Notice> {
        if self.held == 0 || free(&self.path).is_none_or(|free| free >= FULL) {
            return None;
        }
        self.give_up().map(|bytes| Notice::ReserveGivenUp { bytes })
    }

    /// Keeps so much from now on, or as much as the disk can spare; nothing, when there was more and it was just given
    /// up.
    pub(super) fn want(&mut self, bytes: u64) {
        let given_up = self.held < self.wanted;
        if bytes == 0 {
            self.give_up();
            self.wanted = 0;
        } else if given_up {
            self.wanted = self.wanted.min(bytes);
        } else if self.held != bytes {
            self.give_up();
            let spare = free(&self.path).unwrap_or(0) / SHARE;
            self.wanted = bytes.min(spare);
            // Without it a full disk is harder to leave, and that is all.
            if self.wanted < LEAST || self.make(self.wanted).is_err() {
                self.wanted = 0;
            }
        }
    }

    /// How long the log may become, if at most so much is wished: on a full disk there must be room to move it into the
    /// file.
    pub(super) fn log_bytes_max(&self, wished: u64) -> u64 {
        match self.held {
            0 => wished,
            held => wished.min(held / 2),
        }
    }

    pub(super) fn is_held(&self) -> bool {
        self.held > 0
    }

    pub(super) fn give_up(&mut self) -> Option<u64> {
        if self.held == 0 || fs::remove_file(&self.path).is_err() {
            return None;
        }
        Some(std::mem::take(&mut self.held))
    }

    /// Keeps as much room again, if half of that is left beside it. Less would not do: the log is as long as it may be
    /// because of this.
    pub(super) fn renew(&mut self) -> bool {
        if self.held > 0 || self.wanted == 0 {
            return true;
        }
        let free = free(&self.path).unwrap_or(0);
        free >= self.wanted + self.wanted / 2 && self.make(self.wanted).is_ok()
    }

    fn make(&mut self, bytes: u64) -> io::Result<()> {
        let made = write(&self.path, bytes);
        match made {
            Ok(()) => self.held = bytes,
            Err(_) => {
                let _ = fs::remove_file(&self.path);
            }
        }
        made
    }
}

fn write(path: &Path, bytes: u64) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file: File = options.open(path)?;
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        // The file system cannot: so byte by byte.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            io::copy(&mut io::Read::take(io::repeat(0), bytes), &mut file).map(|_| ())
        }
        Err(error) => Err(error.into()),
    }
}

/// Bytes that we may still use on the disk of this file.
fn free(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path.parent()?).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

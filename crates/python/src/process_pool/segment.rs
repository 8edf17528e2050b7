//! Memory that two processes share: what is large goes there once, and only its descriptor travels.
//!
//! A segment is an anonymous file. Python code writes into it by its number; it is ours, and closed when
//! nobody here needs it. Whoever receives one maps it as its own (changes stay private) and closes it.
//! Nothing has a name, so nothing is left behind by a process that dies.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many may be open at once: each takes a descriptor, of which a process has about a thousand.
const OPEN_MAX: usize = 200;

/// An open segment.
#[derive(Clone, Debug)]
pub(crate) struct Segment(Arc<Open>);

#[derive(Debug)]
struct Open {
    descriptor: OwnedFd,
    count: Arc<AtomicUsize>,
}

/// Where segments come from.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    count: Arc<AtomicUsize>,
}

impl Segments {
    /// A new one, empty. None where the system has no such thing, or when too many are open.
    pub(crate) fn open(&self) -> Option<Segment> {
        if self.count.load(Ordering::Relaxed) >= OPEN_MAX {
            return None;
        }
        let descriptor = anonymous_file()?;
        self.count.fetch_add(1, Ordering::Relaxed);
        let count = Arc::clone(&self.count);
        Some(Segment(Arc::new(Open { descriptor, count })))
    }
}

impl Segment {
    /// Its number in this process, for as long as somebody has it.
    pub(crate) fn number(&self) -> i32 {
        self.0.descriptor.as_raw_fd()
    }
}

impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.descriptor.as_fd()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(target_os = "linux")]
fn anonymous_file() -> Option<OwnedFd> {
    use rustix::fs::{MemfdFlags, memfd_create};
    memfd_create("loxley", MemfdFlags::CLOEXEC).ok()
}

#[cfg(not(target_os = "linux"))]
fn anonymous_file() -> Option<OwnedFd> {
    None
}

//! Places where a test may end the process, as a crash would.
//!
//! `LOXLEY_FAILPOINT=journal.after_commit` ends it with SIGKILL when the place of that name is passed
//! for the first time; `journal.after_commit@3` the third time. Without the variable a place costs
//! one load. There is no place between the write and the fsync of a commit: both happen inside the
//! storage, and to a process that is killed they look the same, because what was written stays in the
//! cache of the system. What a power cut does there is tried by cutting the file instead.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The variable that names the place.
pub const VARIABLE: &str = "LOXLEY_FAILPOINT";

/// Before the first byte of a group is handed to the storage.
pub const BEFORE_WRITE: &str = "journal.before_write";
/// All rows are handed over; the commit (write and fsync) has not begun.
pub const BEFORE_COMMIT: &str = "journal.before_commit";
/// The group is durable; nobody has heard of it.
pub const AFTER_COMMIT: &str = "journal.after_commit";
/// A piece of a snapshot is handed over; its commit has not begun.
pub const IN_SNAPSHOT: &str = "journal.in_snapshot";
/// All pieces of a snapshot are durable; that it counts is not.
pub const BEFORE_SNAPSHOT_COUNTS: &str = "journal.before_snapshot_counts";
/// A snapshot is durable, and counts; what it replaced is still there.
pub const AFTER_SNAPSHOT: &str = "journal.after_snapshot";

#[derive(Debug)]
struct Armed {
    place: String,
    passes_left: AtomicU32,
}

impl Armed {
    fn parse(text: &str) -> Self {
        let (place, pass) = text.split_once('@').unwrap_or((text, "1"));
        Self {
            place: place.to_owned(),
            passes_left: AtomicU32::new(pass.parse().unwrap_or(1)),
        }
    }

    fn is_due(&self, place: &str) -> bool {
        self.place == place && self.passes_left.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

/// Passes the place `place`: returns, unless the environment says that the process ends here.
pub fn pass(place: &str) {
    let armed = ARMED.get_or_init(|| std::env::var(VARIABLE).ok().map(|text| Armed::parse(&text)));
    if armed.as_ref().is_some_and(|armed| armed.is_due(place)) {
        end_process();
    }
}

/// Whether the environment names this place: then whatever is done in one go stops there on its way.
#[cfg(feature = "postgres")]
pub(crate) fn is_armed(place: &str) -> bool {
    let armed = ARMED.get_or_init(|| std::env::var(VARIABLE).ok().map(|text| Armed::parse(&text)));
    armed.as_ref().is_some_and(|armed| armed.place == place)
}

fn end_process() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    // A signal to oneself is delivered before the call returns; should it be held up, wait for it.
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_due_at_its_pass_and_no_other() {
        let armed = Armed::parse("journal.after_commit@3");
        let due: Vec<bool> = (0..5).map(|_| armed.is_due(AFTER_COMMIT)).collect();
        assert_eq!(due, [false, false, true, false, false]);
        assert!(!Armed::parse(BEFORE_WRITE).is_due(AFTER_COMMIT));
        assert!(Armed::parse(BEFORE_WRITE).is_due(BEFORE_WRITE));
    }
}

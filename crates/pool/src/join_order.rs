//! Which half of an unordered join its owner begins with: the one that has been the larger.
//!
//! ```text
//!   join(small, LARGE), begun with the small half      join(small, LARGE), begun with the large one
//!
//!   owner  small...|  waits  |                         owner  divides |divides |divides ...
//!   thief  divides LARGE ....|small..                  thief  small........|small......|small ...
//! ```
//!
//! Whatever is shown is not touched before somebody has nothing else to do. If that is the larger
//! half, the next pieces come into being late: both threads finish what is small, one takes the large
//! half and divides it, and the other can only watch. Begun with, the larger half is divided early, and
//! the small ones that fall off keep the others busy.
//!
//! Nobody knows in advance which half is larger, but an owner that comes for a stolen half sees it: if
//! that is done, what the owner began with was larger; if it takes so long that the owner divides it
//! further, or sleeps, it was the stolen one. What was learned last is kept in the owner's seat, so the
//! next guest need not begin anew. Being wrong costs time and nothing else.

use crate::sync::{AtomicBool, Ordering};

/// One of the two closures of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    First,
    Second,
}

impl Half {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// The half that has been the larger one, for all that the owner of a seat knows. Only the owner
/// uses it.
#[derive(Debug)]
pub(crate) struct JoinOrder {
    is_second: AtomicBool,
}

impl JoinOrder {
    /// Nothing is known, so joins begin as they are written.
    pub(crate) fn new() -> Self {
        Self {
            is_second: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn larger(&self) -> Half {
        if self.is_second.load(Ordering::Relaxed) {
            Half::Second
        } else {
            Half::First
        }
    }

    /// This half was the larger one.
    pub(crate) fn learn(&self, half: Half) {
        self.is_second
            .store(half == Half::Second, Ordering::Relaxed);
    }
}

//! One append to a journal that somebody else may take over at any moment, until it is known to be written or known not
//! to be.
//!
//! ```text
//!            committed ────────────────────────────────▶ Written
//!   Send ──▶ fenced ───────────────────────────────────▶ Fenced (once there was doubt: Look)
//!    ▲  ▲    refused ──────────────────────────────────▶ Refused
//!    │  └─── not now, nobody reached                            ▲
//!    │       unknown ──▶ Look ──▶ written / somebody else ──▶ Written / Fenced
//!    └─────────────────── not written │
//!                          no answer ─┘ Look again
//! ```
//!
//! What must stay true: after a sending that ended in doubt, nothing is sent before a look has said that it was not
//! written; and nothing is sent or looked at once the lease is over. A look does not end the doubt: what was sent before
//! the line broke may reach the database after the look, and then the next sending is fenced by our own group.

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send the group, with everything that the write is conditional on.
    Send,
    /// Find out whether it was written: read the row of the shard, under lock.
    Look,
    /// The lease is over: give up. Whether it was written is not known.
    GiveUp,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The commit was acknowledged.
    Committed,
    /// The condition did not hold: somebody else has the shard.
    Fenced,
    /// It was refused before the commit, for good.
    Refused,
    /// It was refused before the commit, for now; or nobody was reached, and nothing was sent.
    NotNow,
    /// It was sent, and nobody knows what came of it.
    Unknown,
    /// A look: the row is ours, and the group is in it.
    Found,
    /// A look: the row is ours, and the group is not in it.
    Absent,
    /// A look that was not answered.
    Unanswered,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is written.
    Written,
    /// Somebody else has the shard. Drop the state.
    Fenced,
    /// It is not written.
    Refused,
}

/// One append under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Append {
    in_doubt: bool,
    /// Whether a sending ever ended in doubt: it may still be on its way.
    may_arrive: bool,
}

impl Append {
    /// Whether a sending ended in doubt, and nobody has found out since.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// What is to be done next.
    #[must_use]
    pub fn next(&self, lease_holds: bool) -> Step {
        match (lease_holds, self.in_doubt) {
            (false, _) => Step::GiveUp,
            (true, true) => Step::Look,
            (true, false) => Step::Send,
        }
    }

    /// Takes in what came of the last step; how it ended, if it did.
    pub fn hear(&mut self, heard: Heard) -> Option<Outcome> {
        match heard {
            Heard::Committed | Heard::Found => Some(Outcome::Written),
            Heard::Fenced if self.may_arrive && !self.in_doubt => {
                // By somebody else, or by what we sent ourselves before: a look tells.
                self.in_doubt = true;
                None
            }
            Heard::Fenced => Some(Outcome::Fenced),
            Heard::Refused => Some(Outcome::Refused),
            Heard::NotNow | Heard::Unanswered => None,
            Heard::Unknown => {
                (self.in_doubt, self.may_arrive) = (true, true);
                None
            }
            Heard::Absent => {
                self.in_doubt = false;
                None
            }
        }
    }
}

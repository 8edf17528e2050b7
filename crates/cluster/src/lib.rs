//! Who of several servers is the holder of a shard; and how tasks go from one shard to another ([`moves`], and whom to ask
//! for them: [`rebalancer`]); how limits hold in all shards together ([`budgets`]); and whether a journal has lost what others saw of it ([`witness`]).
//!
//! ```text
//!            its lease is over                taken
//!   Standby ──────────────────▶ Taking ──────────────────▶ Serving ──┐ renew, every two seconds
//!      ▲  ▲        somebody else was quicker │                │   ▲  │
//!      │  └─────────────────────────────────┘                │   └──┘
//!      │         the state is dropped                         ▼ too late, fenced, or asked to hand over
//!      └──────────────────────────────────────────────── Stopping
//! ```
//!
//! A [`Member`] is a plain value: `handle(now, input, &mut actions)`. It has no clock and no connection; whoever drives it
//! asks the database what an [`Action`] says, and tells it the answer. `now` is the clock of the member's own machine, one
//! that goes on while the machine sleeps.
//!
//! What must stay true: **a member serves only until its last successful renewal was *sent* plus the lease less a margin.**
//! The database counts the lease from when it *got* the renewal, which is later; so a member has stopped before anybody else
//! can have taken over, as long as clocks run at about the same speed, whatever they show. When they do not, or a process
//! is stopped between looking at its clock and acting, two may believe that they serve: then the epoch in every write
//! tells them apart (`loxley-journal`), and nothing is written twice.
#![no_std]

#[cfg(test)]
extern crate std;

extern crate alloc;

mod append;
pub mod budgets;
pub mod moves;
mod rate;
pub mod rebalancer;
pub mod shard;
pub mod witness;

use alloc::vec::Vec;

pub use append::{Append, Heard, Outcome, Step};
pub use rate::Rate;

use loxley_model::{Span, Time};

/// How long things take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How long a lease is.
    pub lease: Span,
    /// How long it may become when the database is slow.
    pub lease_max: Span,
    /// How often it is renewed.
    pub renew_every: Span,
    /// How often a standby looks.
    pub look_every: Span,
    /// How long a server that gave its shard away leaves it to others, unless one of them has taken it and lost it
    /// again.
    pub rest: Span,
}

impl Default for Pace {
    fn default() -> Self {
        let seconds = |seconds: u64| Span(seconds * 1_000_000_000);
        Self {
            lease: seconds(6),
            lease_max: seconds(60),
            renew_every: seconds(2),
            look_every: seconds(1),
            rest: seconds(30),
        }
    }
}

/// Numbers what the database is asked. An answer to an older question is dropped: it must not be taken for one to a newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question(pub u64);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// The database said what there is to say of the shard.
    Looked {
        /// Which question this answers.
        question: Question,
        /// The epoch of its last holder.
        epoch: u64,
        /// How long the lease of that still is; zero when it is over.
        left: Span,
    },
    /// The shard is ours, under this epoch.
    Taken {
        /// Which question this answers.
        question: Question,
        /// The epoch.
        epoch: u64,
    },
    /// Somebody else was quicker.
    NotTaken(Question),
    /// The lease was renewed.
    Renewed(Question),
    /// Somebody else has the shard.
    Fenced(Question),
    /// The database did not answer.
    Unanswered(Question),
    /// A write took so long.
    Committed(Span),
    /// What served has ended, and its state is dropped.
    Ended,
    /// Give the shard to somebody else.
    HandOver,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask the database about the shard.
    Look(Question),
    /// Take it, if its epoch is still this one and its lease is over.
    Take {
        /// To be named by the answer.
        question: Question,
        /// The epoch that was seen.
        seen: u64,
        /// For how long.
        lease: Span,
    },
    /// Renew the lease.
    Renew {
        /// To be named by the answer.
        question: Question,
        /// The epoch under which the shard is ours.
        epoch: u64,
        /// For how long.
        lease: Span,
    },
    /// Read the journal, and serve.
    Serve {
        /// Under this epoch.
        epoch: u64,
        /// Until then, unless it is [extended](Action::Extend).
        until: Time,
    },
    /// Serve until then.
    Extend {
        /// Until when.
        until: Time,
    },
    /// Stop serving at once, drop the state, and say so: [`Input::Ended`].
    Stop(Reason),
    /// Let the shard go, so that another one can take it at once. Nobody waits for an answer.
    Release {
        /// The epoch under which it was ours.
        epoch: u64,
    },
}

/// Why a member stops serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Somebody else has the shard.
    Fenced,
    /// The lease could not be renewed in time.
    LeaseOver,
    /// It was asked to.
    HandOver,
}

/// Where a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Standby {
        look_at: Time,
    },
    Taking,
    Serving {
        epoch: u64,
        until: Time,
        renew_at: Time,
    },
    Stopping {
        hands_over: Option<u64>,
    },
}

/// A question that the database has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    question: Question,
    sent: Time,
    lease: Span,
}

/// One server, as far as one shard is concerned.
#[derive(Clone, Debug)]
pub struct Member {
    pace: Pace,
    state: State,
    asked: Option<Asked>,
    last_question: Question,
    /// How long writes took lately, the slow ones remembered for longer.
    commit: Span,
    /// The epoch that was given away, and until when it is left to others.
    given_away: Option<(u64, Time)>,
}

impl Member {
    /// A server that has just started.
    #[must_use]
    pub fn new(now: Time, pace: Pace) -> Self {
        Self {
            pace,
            state: State::Standby { look_at: now },
            asked: None,
            last_question: Question::default(),
            commit: Span(0),
            given_away: None,
        }
    }

    /// Whether it serves, and under which epoch.
    #[must_use]
    pub fn serves(&self, now: Time) -> Option<u64> {
        match self.state {
            State::Serving { epoch, until, .. } if now < until => Some(epoch),
            _ => None,
        }
    }

    /// How long a lease is at present: four times what a write takes, if that is more than usual.
    #[must_use]
    pub fn lease(&self) -> Span {
        let slow = Span(self.commit.0.saturating_mul(4));
        slow.max(self.pace.lease).min(self.pace.lease_max)
    }

    /// When it wants to hear that time has passed.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        match self.state {
            State::Standby { look_at } if self.asked.is_none() => Some(look_at),
            State::Serving {
                until, renew_at, ..
            } => Some(match self.asked {
                None => renew_at.min(until),
                Some(_) => until,
            }),
            _ => None,
        }
    }

    /// Takes in what happened, and says what is to be done.
    pub fn handle(&mut self, now: Time, input: Input, actions: &mut Vec<Action>) {
        match input {
            Input::Tick => {}
            Input::Looked {
                question,
                epoch,
                left,
            } => {
                if self.answered(question).is_some() {
                    self.looked(now, epoch, left, actions);
                }
            }
            Input::Taken { question, epoch } => {
                if let Some(asked) = self.answered(question) {
                    self.taken(now, asked, epoch, actions);
                }
            }
            Input::NotTaken(question) | Input::Unanswered(question) => {
                if self.answered(question).is_some() {
                    self.not_answered(now);
                }
            }
            Input::Renewed(question) => {
                if let Some(asked) = self.answered(question) {
                    self.renewed(now, asked, actions);
                }
            }
            Input::Fenced(question) => {
                if self.answered(question).is_some() {
                    self.stop(Reason::Fenced, actions);
                }
            }
            Input::Committed(took) => self.commit = Span((self.commit.0 / 8 * 7).max(took.0)),
            Input::Ended => self.ended(now, actions),
            Input::HandOver => self.stop(Reason::HandOver, actions),
        }
        self.look_at_the_clock(now, actions);
    }

    /// What is due. A lease that is over comes first: whoever wakes up late must not renew and go on.
    fn look_at_the_clock(&mut self, now: Time, actions: &mut Vec<Action>) {
        match self.state {
            State::Serving { until, .. } if now >= until => self.stop(Reason::LeaseOver, actions),
            State::Serving {
                epoch, renew_at, ..
            } if now >= renew_at && self.asked.is_none() => {
                let lease = self.lease();
                let question = self.ask(now, lease);
                actions.push(Action::Renew {
                    question,
                    epoch,
                    lease,
                });
            }
            State::Standby { look_at } if now >= look_at && self.asked.is_none() => {
                let question = self.ask(now, Span(0));
                actions.push(Action::Look(question));
            }
            _ => {}
        }
    }

    fn ask(&mut self, now: Time, lease: Span) -> Question {
        let question = Question(self.last_question.0 + 1);
        self.last_question = question;
        self.asked = Some(Asked {
            question,
            sent: now,
            lease,
        });
        question
    }

    /// The question that is open, if this answers it.
    fn answered(&mut self, question: Question) -> Option<Asked> {
        self.asked.take_if(|asked| asked.question == question)
    }

    fn looked(&mut self, now: Time, epoch: u64, left: Span, actions: &mut Vec<Action>) {
        if !matches!(self.state, State::Standby { .. }) {
            return;
        }
        self.given_away = self
            .given_away
            .filter(|(given, until)| *given == epoch && now < *until);
        if left > Span(0) || self.given_away.is_some() {
            // Soon after it is over, but not later than usual: it may be given away before.
            let left = Span(left.0.saturating_add(1));
            let wait = match self.given_away {
                None => self.pace.look_every.min(left),
                Some(_) => self.pace.look_every,
            };
            let look_at = now + wait;
            self.state = State::Standby { look_at };
            return;
        }
        let lease = self.lease();
        let question = self.ask(now, lease);
        self.state = State::Taking;
        actions.push(Action::Take {
            question,
            seen: epoch,
            lease,
        });
    }

    fn taken(&mut self, now: Time, asked: Asked, epoch: u64, actions: &mut Vec<Action>) {
        if self.state != State::Taking {
            return;
        }
        let until = last_moment(asked);
        if now >= until {
            // The answer took as long as the lease: somebody else may have it by now.
            self.state = State::Standby {
                look_at: now + self.pace.look_every,
            };
            return;
        }
        self.state = State::Serving {
            epoch,
            until,
            renew_at: asked.sent + self.pace.renew_every,
        };
        actions.push(Action::Serve { epoch, until });
    }

    fn renewed(&mut self, now: Time, asked: Asked, actions: &mut Vec<Action>) {
        let State::Serving { epoch, until, .. } = self.state else {
            return;
        };
        // An answer that comes after the end does not bring it back: the clock is looked at next.
        if now >= until {
            return;
        }
        let until = until.max(last_moment(asked));
        let renew_at = (asked.sent + self.pace.renew_every).max(now);
        self.state = State::Serving {
            epoch,
            until,
            renew_at,
        };
        actions.push(Action::Extend { until });
    }

    fn not_answered(&mut self, now: Time) {
        /// A database that is away is asked a few times a second.
        const AGAIN: Span = Span(250_000_000);
        self.state = match self.state {
            State::Standby { .. } | State::Taking => State::Standby {
                look_at: now + self.pace.look_every,
            },
            State::Serving { epoch, until, .. } => State::Serving {
                epoch,
                until,
                renew_at: now + AGAIN,
            },
            stopping @ State::Stopping { .. } => stopping,
        };
    }

    fn stop(&mut self, reason: Reason, actions: &mut Vec<Action>) {
        if let State::Serving { epoch, .. } = self.state {
            let hands_over = (reason == Reason::HandOver).then_some(epoch);
            self.state = State::Stopping { hands_over };
            actions.push(Action::Stop(reason));
        }
    }

    fn ended(&mut self, now: Time, actions: &mut Vec<Action>) {
        match self.state {
            State::Stopping {
                hands_over: Some(epoch),
            } => {
                actions.push(Action::Release { epoch });
                self.given_away = Some((epoch, now + self.pace.rest));
            }
            State::Stopping { .. } | State::Serving { .. } => {}
            State::Standby { .. } | State::Taking => return,
        }
        self.asked = None;
        self.state = State::Standby {
            look_at: now + self.pace.look_every,
        };
    }
}

/// Until when a lease that was asked for holds by our own clock: counted from when it was asked for, and less a margin of
/// a sixth, for clocks that run at different speeds and for what is under way.
fn last_moment(asked: Asked) -> Time {
    asked.sent + Span(asked.lease.0 / 6 * 5)
}

#[cfg(test)]
mod claim_row;
#[cfg(test)]
mod moves_storm;
#[cfg(test)]
mod scale;
#[cfg(test)]
mod shard_model;
#[cfg(test)]
mod storm;
#[cfg(test)]
mod tests;

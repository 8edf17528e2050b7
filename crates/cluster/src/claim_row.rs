//! The row that says who holds a shard, as the database of the storms keeps it: by its own clock, the true one.

use loxley_model::Span;

use crate::{Action, Input, Question};

#[derive(Clone, Copy, Default)]
pub(crate) struct ClaimRow {
    pub(crate) epoch: u64,
    pub(crate) holder: usize,
    pub(crate) expires: u64,
}

impl ClaimRow {
    /// Whether this one holds the shard in this epoch.
    pub(crate) fn is_of(&self, epoch: u64, who: usize) -> bool {
        (self.epoch, self.holder) == (epoch, who)
    }

    /// What the database does and answers.
    pub(crate) fn answer(
        &mut self,
        who: usize,
        now: u64,
        action: Action,
    ) -> Option<(Question, Input)> {
        match action {
            Action::Look(question) => {
                let left = Span(self.expires.saturating_sub(now));
                let epoch = self.epoch;
                let looked = Input::Looked {
                    question,
                    epoch,
                    left,
                };
                Some((question, looked))
            }
            Action::Take {
                question,
                seen,
                lease,
            } => {
                if self.epoch != seen || self.expires > now {
                    return Some((question, Input::NotTaken(question)));
                }
                let epoch = seen + 1;
                (self.epoch, self.holder, self.expires) = (epoch, who, now + lease.0);
                Some((question, Input::Taken { question, epoch }))
            }
            Action::Renew {
                question,
                epoch,
                lease,
            } => {
                if !self.is_of(epoch, who) {
                    return Some((question, Input::Fenced(question)));
                }
                self.expires = now + lease.0;
                Some((question, Input::Renewed(question)))
            }
            Action::Release { epoch } => {
                if self.is_of(epoch, who) {
                    self.expires = now;
                }
                None
            }
            other => unreachable!("{other:?} is no question"),
        }
    }
}

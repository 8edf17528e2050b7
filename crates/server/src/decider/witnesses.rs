//! What agents and other shards saw of the journal, held against what it has.
//!
//! A database that fails over to a copy which lags behind loses what it had acknowledged, without a word. Whoever was told of it
//! knows. Somebody who saw more than there is may also come from a later holder, of which this one has not heard yet; a write
//! that was begun afterwards and succeeds says that there is none.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use loxley_api::{ApiError, ErrorCode};
use loxley_cluster::witness::{Seen, Verdict, Written};
use loxley_engine::Fact;
use loxley_protocol as wire;

use super::{Decider, Loss};

/// No database loses more takeovers than that: whoever says so has no server behind it.
const EPOCHS_LOST_MAX: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Witnesses {
    /// Where the journal ended when this server began.
    begun_at: u64,
    /// Where it would end with all that was under way when somebody first told of more.
    suspected_at: Option<u64>,
    is_certain: bool,
}

impl Witnesses {
    pub(super) fn new(begun_at: u64) -> Self {
        Self {
            begun_at,
            suspected_at: None,
            is_certain: false,
        }
    }

    /// Whether this server must not go on.
    pub(super) fn is_loss_certain(&self) -> bool {
        self.is_certain
    }
}

impl Decider {
    /// How far the journal is.
    pub(super) fn written(&self) -> Written {
        Written {
            epoch: self.instances.epoch.load(Ordering::Relaxed),
            holder: self.instances.holder.load(Ordering::Relaxed),
            begun_at: self.witnesses.begun_at,
            position: self.progress.position.load(Ordering::Acquire),
            lost_until: self.instances.lost_until.load(Ordering::Relaxed),
        }
    }

    /// Whether what an agent has can be gone on with, as far as it saw the journal of this shard.
    ///
    /// # Errors
    /// When it saw more than there is: then nothing of what it has, nor of what is decided here, can be relied on.
    pub(super) fn knows_what_it_saw(&mut self, hello: &wire::Hello) -> Result<bool, ApiError> {
        let shard = self.instances.shard;
        let Some(seen) = hello.seen.iter().find(|seen| seen.shard == shard) else {
            return Ok(true);
        };
        let seen = Seen {
            epoch: seen.epoch,
            holder: seen.holder,
            position: seen.position,
        };
        let written = self.written();
        if seen.epoch > written.epoch.saturating_add(EPOCHS_LOST_MAX) {
            return Err(ApiError::invalid("`seen`: no holder had such an epoch"));
        }
        match written.compare(&seen) {
            Verdict::Has => Ok(true),
            Verdict::Void => Ok(false),
            // The only server there is: its owners have put an older journal in its place.
            Verdict::Beyond if written.epoch == 0 => {
                tracing::warn!(
                    agent = hello.name,
                    saw = seen.position,
                    has = written.position,
                    "the journal is older than what this agent saw of it: a copy was put in its place; the agent begins anew"
                );
                Ok(false)
            }
            Verdict::Beyond => {
                let message = format!(
                    "the agent `{}` saw the journal of shard {shard} at position {} under epoch {}, and it is at {} under \
                     epoch {} without that",
                    hello.name, seen.position, seen.epoch, written.position, written.epoch
                );
                let epoch = seen.epoch;
                let loss = Loss { message, epoch };
                let message = loss.message.clone();
                self.suspect(loss);
                Err(ApiError::new(ErrorCode::Unavailable, message))
            }
        }
    }

    /// Somebody saw what the journal does not have. False when it is certain that nobody will ever have it.
    pub(super) fn suspect(&mut self, loss: Loss) -> bool {
        let written = self.progress.position.load(Ordering::Acquire);
        let sent = self.outbox.position().0;
        let suspected_at = *self.witnesses.suspected_at.get_or_insert(sent);
        if written <= suspected_at {
            tracing::warn!(
                "{}: another server has taken over, or the database has lost something; a write will tell",
                loss.message
            );
            // Something to write.
            let _ = self.record_and_apply(Fact::Tick);
            return true;
        }
        tracing::error!(
            "{}: the database has lost what it had acknowledged; this server stops serving the shard",
            loss.message
        );
        self.witnesses.is_certain = true;
        let known = self.instances.loss.lock();
        *known.unwrap_or_else(PoisonError::into_inner) = Some(loss);
        false
    }
}

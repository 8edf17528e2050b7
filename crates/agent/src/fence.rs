//! Until when an agent may run what it runs.
//!
//! The server gives the tasks of an agent to others when it has not heard it for a while (`lost_after`). An agent
//! that is cut off cannot ask, but it knows when it was last heard for certain: when it sent the last heartbeat
//! that the server echoed. Before that while has passed since then, it ends what it runs, by a clock that goes on
//! while the machine sleeps. The guardian knows the moment too, for the case that this process stands still.
//!
//! What must stay true: the server counts from when it heard a heartbeat, we count from when we sent it. So we are
//! done before anybody else begins.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use loxley_exec::{End, Guardian, Urgency, boot_time};
use tokio::sync::Notify;

use crate::ledger::Ledger;

/// How long processes have to end by themselves, at most, before the lease is over.
const GRACE: Duration = Duration::from_secs(2);
/// A machine that slept is noticed so soon after it woke.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The lease of an agent on everything it runs.
#[derive(Debug)]
pub(crate) struct Fence {
    state: Mutex<FenceState>,
    changed: Notify,
    guardian: Option<Arc<Guardian>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct FenceState {
    /// How long the server waits for word of us; nothing: for ever.
    length: Duration,
    /// When we sent what it last heard, by the time since the machine was started.
    heard: Duration,
    /// From when to when it had last run out.
    gap: Option<(Duration, Duration)>,
}

impl FenceState {
    fn end(&self) -> Option<Duration> {
        (!self.length.is_zero()).then(|| self.heard + self.length)
    }

    /// When what runs is told to end.
    fn warning(&self) -> Option<Duration> {
        let end = self.end()?;
        Some(end - GRACE.min(self.length / 4))
    }
}

impl Fence {
    pub(crate) fn new(guardian: Option<Arc<Guardian>>) -> Self {
        Self {
            state: Mutex::default(),
            changed: Notify::new(),
            guardian,
        }
    }

    fn lock(&self) -> MutexGuard<'_, FenceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server waits so long for word of us.
    pub(crate) fn set_length(&self, length: Duration) {
        self.change(|state| state.length = length);
    }

    /// The server heard what we sent at this time.
    pub(crate) fn heard(&self, sent: Duration) {
        self.change(|state| state.heard = state.heard.max(sent));
    }

    fn change(&self, change: impl FnOnce(&mut FenceState)) {
        let mut state = self.lock();
        let (before, now) = (state.end(), boot_time());
        change(&mut state);
        let end = state.end();
        if let Some(before) = before.filter(|before| *before <= now) {
            state.gap = Some((before, now));
        }
        drop(state);
        if let (Some(guardian), Some(end)) = (&self.guardian, end) {
            guardian.allow_until(end);
        }
        if before != end {
            self.changed.notify_one();
        }
    }

    /// Whether a task was killed because the lease had run out, by a guardian that did not wait for us. What failed in
    /// such a time for a reason of its own cannot be told apart, and is given up too: it runs again.
    pub(crate) fn has_killed(&self, end: &End) -> bool {
        if !end.failed_unasked() {
            return false;
        }
        let state = *self.lock();
        let now = boot_time();
        let ago = |moment: Instant| now.saturating_sub(moment.elapsed());
        let running = state.end().filter(|end| *end <= now).map(|end| (end, now));
        let gaps = [state.gap, running].into_iter().flatten();
        gaps.into_iter()
            .any(|(from, to)| ago(end.begun) < to && ago(end.at) >= from)
    }

    /// Ends what runs whenever the lease is about to run out.
    pub(crate) async fn keep(&self, ledger: &Ledger) {
        loop {
            let state = *self.lock();
            let (Some(warning), Some(end)) = (state.warning(), state.end()) else {
                self.changed.notified().await;
                continue;
            };
            let now = boot_time();
            if now < warning {
                self.pause(warning - now).await;
            } else if now < end {
                give_up(ledger, Urgency::Gentle);
                self.pause(end - now).await;
            } else {
                give_up(ledger, Urgency::AtOnce);
                self.changed.notified().await;
            }
        }
    }

    async fn pause(&self, span: Duration) {
        let pause = tokio::time::sleep(span.min(LOOK_EVERY));
        tokio::select! {
            () = pause => {}
            () = self.changed.notified() => {}
        }
    }
}

fn give_up(ledger: &Ledger, urgency: Urgency) {
    if !ledger.desk().is_empty() {
        tracing::warn!("the server has not heard of this agent for too long: ending what it runs");
    }
    ledger.give_up(urgency);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_from_what_was_heard_and_leaves_time_to_end() {
        let second = Duration::from_secs(1);
        let fence = Fence::new(None);
        assert_eq!(fence.lock().end(), None, "nobody said how long");
        fence.heard(100 * second);
        fence.set_length(60 * second);
        assert_eq!(fence.lock().warning(), Some(158 * second));
        fence.heard(110 * second);
        fence.heard(105 * second);
        assert_eq!(fence.lock().end(), Some(170 * second));
        fence.set_length(4 * second);
        assert_eq!(fence.lock().warning(), Some(113 * second));
    }
}

//! Hearing of what happens.

use loxley_policy::{Counts, Input};

use super::Scheduler;
use crate::event::{Event, Subscription};
use crate::state::{Answer, Notice};

/// Listening.
impl<T: Send + Sync + 'static> Scheduler<T> {
    /// Calls back for every event, in order, after the fact. It runs on whichever thread caused the
    /// event (or is just handing over others); it may call the scheduler. A listener that panics is
    /// dropped.
    pub fn on_event(&self, mut callback: impl FnMut(&Event) + Send + 'static) {
        self.listen(move |notice| {
            callback(&notice.event);
            true
        });
    }

    /// Calls back whenever tasks were accepted or one is over, with where all tasks are then.
    pub fn on_progress(&self, mut callback: impl FnMut(&Counts) + Send + 'static) {
        self.listen(move |notice| {
            if let Event::Submitted { .. } | Event::Finished { .. } = notice.event {
                callback(&notice.counts);
            }
            true
        });
    }

    /// Events from now on, to be read at leisure. At most `capacity` are kept for a reader that
    /// falls behind.
    #[must_use]
    pub fn subscribe(&self, capacity: usize) -> Subscription {
        let (subscription, mut feeder) = Subscription::new(capacity);
        self.listen(move |notice| feeder(&notice.event));
        subscription
    }

    pub(crate) fn listen(&self, listener: impl FnMut(&Notice<T>) -> bool + Send + 'static) {
        self.shared.with(|state, _| {
            state.listening = true;
            state.new_listeners.push(Box::new(listener));
        });
    }

    pub(super) fn feed(&self, input: Input) -> Answer<T> {
        self.shared.with(|state, now| state.feed(now, input))
    }
}

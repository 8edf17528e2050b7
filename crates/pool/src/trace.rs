//! A record of every event, for Perfetto or chrome://tracing.
use crate::pool::Shared;
use crate::worker::Worker;
use std::time::{Duration, Instant};
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    Unit,
    Idle,
    Steal,
}
#[inline]
pub(crate) fn is_on(_shared: &Shared) -> bool {
    false
}
pub(crate) fn record(_worker: &Worker<'_>, _event: Event, _start: Instant, _duration: Duration) {}

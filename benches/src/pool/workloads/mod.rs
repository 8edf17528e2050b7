//! The workloads, one file each, written once against the traits of [`contract`](super::contract).

mod branching;
mod countdown;
mod empty;
mod fibonacci;
mod guests;
mod heavy_tail;
mod latency;
mod processor_time;
mod quicksort;
mod scopes;
mod sleeper;
pub(crate) mod tfidf;
mod tree;

use std::time::{Duration, Instant};

pub(crate) use branching::{Matrices, MergeSort, Queens, Skynet, Unbalanced};
pub(crate) use countdown::Countdown;
pub(crate) use empty::{Empty, From, count, counted, wait_for};
pub(crate) use fibonacci::Fibonacci;
pub(crate) use guests::Guests;
pub(crate) use heavy_tail::{HeavyTail, spin};
pub(crate) use latency::{IdleSubmit, Urgent};
pub(crate) use processor_time::{DutyCycle, Idle};
pub(crate) use quicksort::Quicksort;
pub(crate) use scopes::{Foreign, ScopeTree};
pub(crate) use tree::{BoxTree, Order, Subtrees, Tree};

/// Keeps a processor busy for that long by the clock.
fn spin_for(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}

//! What happens when time passes.
//!
//! A timer that has lost its purpose is not searched for and removed: it is recognised when it fires.
//! When such leftovers could outnumber the rest, they are swept out, so that the memory stays in
//! proportion to what is alive.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use loxley_model::{AgentId, SkillId, TaskId, Time};

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) enum Alarm {
    /// Check the balance of the fleet.
    Rebalance,
    /// Sample the queue lengths.
    Sample,
    /// See whether an agent was heard.
    Liveness(AgentId, u32),
    /// See how long an agent's tasks have been running.
    TasksInHand(AgentId, u32),
    /// An agent may try to steal again.
    StealAgain(AgentId, u32),
    /// A suspended skill may be tried.
    Probe(AgentId, u32, SkillId),
    /// Try a task again.
    Retry(TaskId),
    /// A task can no longer make its deadline if it has not started, or has just missed it.
    Deadline(TaskId),
    /// A task has been held too long.
    HoldLimit(TaskId),
    /// An agent that left tasks to faster ones looks whether that still holds.
    LookAgain(AgentId, u32),
    /// A step of the forecasts is over.
    Forecast,
}

#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Time, u64, Alarm)>>,
    set_so_far: u64,
    /// The heap is swept when it is longer than this.
    sweep_at: usize,
}

/// The same alarms are the same timers, however the heap lies in memory.
impl PartialEq for Timers {
    fn eq(&self, other: &Self) -> bool {
        let in_order = |timers: &Self| timers.heap.clone().into_sorted_vec();
        (self.set_so_far, self.sweep_at) == (other.set_so_far, other.sweep_at)
            && in_order(self) == in_order(other)
    }
}

impl Timers {
    pub(crate) fn set(&mut self, at: Time, alarm: Alarm) {
        self.set_so_far += 1;
        self.heap.push(Reverse((at, self.set_so_far, alarm)));
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next alarm that is due, with the time it was set for. The end of time never comes: whatever is
    /// set again then would be due again at once.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<(Time, Alarm)> {
        let next = self.next()?;
        if next > now || next == Time::MAX {
            return None;
        }
        self.heap.pop().map(|Reverse((at, _, alarm))| (at, alarm))
    }

    /// The agents, with their incarnations, that are to look again.
    pub(crate) fn who_looks_again(&self) -> impl Iterator<Item = (AgentId, u32)> {
        self.heap
            .iter()
            .filter_map(|Reverse((_, _, alarm))| match alarm {
                Alarm::LookAgain(id, incarnation) => Some((*id, *incarnation)),
                _ => None,
            })
    }

    /// Whether it is time to sweep.
    pub(crate) fn is_crowded(&self) -> bool {
        self.heap.len() > self.sweep_at.max(1024)
    }

    pub(crate) fn sweep(&mut self, mut has_purpose: impl FnMut(Time, Alarm) -> bool) {
        self.heap
            .retain(|Reverse((at, _, alarm))| has_purpose(*at, *alarm));
        self.sweep_at = 2 * self.heap.len();
    }
}

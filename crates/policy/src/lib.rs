//! The deciding core of Loxley.
//!
//! A [`Scheduler`] is a plain value with one entrance, [`Scheduler::handle`]: facts go in
//! ([`Input`]), commands come out ([`Action`]). It never blocks and does no I/O; it has no clock, no
//! thread and no random source of its own. The same inputs give the same actions on every machine,
//! so the list of inputs is the journal, and a recorded journal is a test.
#![no_std]

extern crate alloc;

mod action;
mod agents;
mod by_hand;
mod chains;
mod config;
mod dependencies;
mod dispatch;
mod endings;
mod explain;
mod foresight;
mod health;
mod id_table;
mod input;
mod jobs;
mod learning;
mod leases;
mod limits;
mod lots;
mod membership;
mod metrics;
mod paged;
mod placement;
mod queue;
mod rebalance;
mod refs;
mod reload;
mod scheduler;
mod snapshot;
mod stealing;
mod stragglers;
mod submission;
mod tasks;
mod timers;
mod tournament;
mod view;

pub use action::{Action, CancelReason, Ending, InputError, Reason, Report, SubmitError};
pub use config::{
    Capabilities, Config, Guards, Heartbeats, Learning, Matching, MetricsRules, Performance,
    Prefetch, PriorityRules, Quotas, Speculation, Strategy, Thresholds, WorkStealing,
};
pub use input::{Input, Leftovers, Selection, Taking, Vitals};
pub use scheduler::Scheduler;
pub use snapshot::{Snapshot, SnapshotError};
pub use view::{
    AgentStatus, Counts, Explanation, Liveness, Metrics, Obstacle, Place, Problem, ProblemKind,
    Remedy, Severity, TaskStatus, UtilizationSample,
};

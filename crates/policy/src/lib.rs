//! The deciding core of Loxley.
//!
//! A [`Scheduler`] is a plain value with one entrance, [`Scheduler::handle`]: facts go in
//! ([`Input`]), commands come out ([`Action`]). It never blocks and does no I/O; it has no clock, no
//! thread and no random source of its own. The same inputs give the same actions on every machine,
//! so the list of inputs is the journal, and a recorded journal is a test.
#![no_std]

extern crate alloc;

mod action;
mod added;
mod admission;
mod agents;
mod away;
mod by_hand;
mod cache_warm;
mod capability;
mod config;
mod dependencies;
mod derived;
mod dispatch;
mod earning;
mod endings;
mod explain;
mod facts;
mod faster;
mod fleet;
mod fleet_order;
mod forecast;
mod health;
mod id_table;
mod input;
mod jobs;
mod kept_room;
mod kind_outcomes;
mod learning;
mod leases;
mod limits;
mod marks;
mod membership;
mod metrics;
mod paged;
mod placement;
mod positions;
mod promising;
mod queue;
mod rebalance;
mod refs;
mod reload;
mod scheduler;
mod self_tuning;
mod settle;
mod stealing;
mod stragglers;
mod strand;
mod submission;
mod task_classes;
mod tasks;
mod timers;
mod tournament;
mod transitions;
mod view;

pub use action::{Action, CancelReason, Ending, InputError, Reason, Report, SubmitError};
pub use added::{AddedRules, Earning, SnapshotAdditions};
pub use away::WaitingClass;
pub use config::{
    Capabilities, Config, Guards, HealthRules, Heartbeats, Learning, Matching, MetricsRules,
    Performance, Prefetch, PriorityRules, Quotas, Speculation, Strategy, Thresholds, WorkStealing,
};
pub use facts::{Snapshot, SnapshotError};
pub use forecast::ForecastRules;
pub use input::{Input, Leftovers, Selection, Taking, Vitals};
pub use kept_room::ForecastState;
pub use scheduler::Scheduler;
pub use self_tuning::{Bounds, SelfTuning};
pub use view::{
    AgentLoad, AgentStatus, Counts, Explanation, KindStatus, Liveness, Metrics, Obstacle, Place,
    Problem, ProblemKind, Remedy, Severity, TaskStatus, UserStatus, UtilizationSample,
    WorkForecast,
};

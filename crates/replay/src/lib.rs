//! Recorded runs as workloads: what happened, what another configuration or fleet would have done, and which
//! configuration would be better.
//!
//! ```text
//!   journal ──▶ Recording ──┬─▶ Trace: what happened ──────────────┐
//!                           │                                      ├──▶ Figures, side by side
//!                           └─▶ WhatIf + seed ──▶ fleet world ─────┘
//!                                                 (the real scheduler)
//! ```
//!
//! - [`Recording::read`] makes a workload out of a journal: arrivals, needs, edges, true durations, failures,
//!   cancellations, the fleet with its comings and goings, and what a hand-over cost.
//! - [`WhatIf`] is what is to be different: a configuration, single keys, agents, load.
//! - [`Trace`] is who ran what when; [`Figures`] are made of a trace by one function, whether it is real or
//!   simulated, so the two can be compared.
//! - [`tune`] searches configurations; [`advise`] says which way of dividing the work would have fitted.
//!
//! What must stay true: nothing is taken from anywhere but the journal, and what it does not say is said to be
//! unknown ([`Recording::notes`]).

mod actual;
mod advice;
mod compare;
mod figures;
mod recording;
mod simulate;
pub mod tune;
mod what_if;

pub use advice::{JournalAdvice, Known, advise};
pub use compare::{Comparison, Difference, compare};
pub use figures::{Figure, Figures, Trace, TracedTask, WaitsOf};
pub use recording::{ReadError, Recording};
pub use simulate::{
    Impossible, Lane, Parting, Simulated, drawn_together, fleet_setup, lanes, parting, simulate,
};
pub use what_if::{WhatIf, WhatIfError};

//! Loxley for Python: what is in `loxley._core`.
//!
//! ```text
//! loxley/*.py          what a Python person expects: futures, pickling, mappings, context managers
//!      │
//! loxley._core         this crate: the deciding core behind one lock, the lines to worker processes,
//!      │               partitioning, advice, the simulator
//! loxley-policy …      decides; knows nothing of Python
//! ```
//!
//! Classes that a program may add attributes to get their dictionary from a subclass in Python: with one
//! of their own, CPython 3.11 and 3.12 may collect garbage while the rest of the object is still zeroes.
//!
//! What must stay true: no lock of this crate is held while code of a user runs, the dropping of a
//! Python object included; and whoever waits, waits without the interpreter's lock.

mod agent;
mod engine;
mod metrics;
mod partition;
mod pickles;
mod process_pool;
mod queue;
mod remote;
mod samples;
mod scheduler;
mod simulate;
mod task;

use pyo3::prelude::*;

// Nobody has tested it without the interpreter's lock: an interpreter that can do without takes it.
/// The part of Loxley that is written in Rust. Use the package `loxley`.
#[pymodule(gil_used = true)]
mod _core {
    #[pymodule_export]
    use crate::agent::Agent;
    #[pymodule_export]
    use crate::metrics::Metrics;
    #[pymodule_export]
    use crate::partition::{
        Advice, Router, advise_costs, batch_items, equal_chunks, fit_memory, fitting_grain,
        largest_to_least, near, weighted_ranges,
    };
    #[pymodule_export]
    use crate::pickles::is_plain;
    #[pymodule_export]
    use crate::process_pool::{BalanceReport, Hub, WorkerLine};
    #[pymodule_export]
    use crate::queue::TaskQueue;
    #[pymodule_export]
    use crate::remote::{ServerClient, ServingAgent};
    #[pymodule_export]
    use crate::scheduler::WorkStealingScheduler;
    #[pymodule_export]
    use crate::simulate::{compare_policies, ready_scenarios, run_scenario};
    #[pymodule_export]
    use crate::task::Task;

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}

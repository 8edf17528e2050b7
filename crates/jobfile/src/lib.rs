//! Job files: what to run, in which order, by whom, in YAML.
//!
//! ```
//! let file = loxley_jobfile::parse(
//!     "name: nightly
//! agents:
//!   - {name: ada, skills: [text], slots: 2}
//! tasks:
//!   - {name: split, command: split -n 4 big.txt part-}
//!   - {name: count, each: [aa, ab, ac, ad], command: 'wc -w part-{}', skills: [text], after: [split]}
//! ").unwrap();
//! assert_eq!(file.count(), 5);
//!
//! let mistakes = loxley_jobfile::parse("tasks:\n  - {name: a, after: [b], commnd: x}").unwrap_err();
//! assert_eq!(mistakes.iter().count(), 3, "all mistakes at once");
//! ```
//!
//! What to do becomes a [`JobRequest`](loxley_api::JobRequest), the one type that says it: `loxley run
//! FILE.yaml` does it on this machine, with the agents that the file describes; `loxley submit FILE.yaml` sends
//! it to a server, which has agents of its own.
//!
//! Reading goes in three steps: text becomes nodes that know where they stand (`loxley-config`),
//! `read` takes values out of them, `check` looks at what only the whole file shows: names that
//! nobody defined, tasks that wait for each other in a circle, skills that no agent has. Every step
//! goes on after a mistake, so that all are told together, each with its line.
//!
//! What must stay true: no input panics, and none takes more memory than its limits allow; a
//! [`JobFile`] that was given out is valid: its names resolve, its graph has no circle, its commands
//! can be filled.

pub mod amount;
mod check;
mod job;
mod plan;
mod ranges;
mod read;
mod read_task;

pub use job::{AgentDef, JobFile};
pub use plan::{Plan, Planned};
pub use ranges::Ranges;
pub use read::{Lines, parse, parse_bytes, parse_with, read};

/// The most tasks of one file, every entry of every array counted.
pub const TASKS_MAX: u64 = 1_000_000;
/// The most dependencies of one file, entry by entry.
pub const EDGES_MAX: u64 = 5_000_000;

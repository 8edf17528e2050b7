//! The simulator of Loxley: work stealing and the real scheduler in virtual time.
//!
//! ```text
//!   scenario (YAML) ─┐                         ┌─> checkers (books of their own)
//!   workload files ──┼─> world ── happenings ──┼─> timeline ──> HTML report
//!   seed ────────────┘     │                   └─> event log
//!                          └─> statistics ──> text, comparison
//! ```
//!
//! There are two worlds on one engine. The [deque world](deque_world) models the workers of a
//! thread pool with the victim orders and the backoff that the pool itself uses. The [fleet](fleet)
//! puts simulated agents and a simulated network around the real scheduler. One seed decides
//! everything: the same seed gives the same bytes in the event log.

pub mod arrivals;
pub mod checkers;
pub mod costs;
mod deque_scenario;
pub mod deque_world;
pub mod distribution;
pub mod estimate;
pub mod event_queue;
pub mod experiment;
pub mod fleet;
mod fleet_scenario;
pub mod generate;
pub mod json;
pub mod library;
pub mod observer;
pub mod quality;
pub mod readers;
pub mod reference;
pub mod report;
pub mod scenario;
pub mod statistics;
pub mod storm;
pub mod text;
pub mod time;
pub mod timeline;
pub mod workload;
mod yaml;

pub use arrivals::Arrivals;
pub use costs::Costs;
pub use deque_world::{DequeSetup, Load};
pub use distribution::Distribution;
pub use event_queue::EventQueue;
pub use observer::{EventLog, Happening, Observer};
pub use scenario::{Change, Scenario, World};
pub use statistics::RunStatistics;
pub use timeline::{Recorder, Timeline};
pub use workload::Workload;

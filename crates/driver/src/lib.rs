//! What every driver of the deciding core has in common.
//!
//! The core ([`Scheduler`](loxley_policy::Scheduler)) knows numbers and decides; people speak names, and
//! something has to carry out what was decided. This crate is what lies between, and it is as pure as the
//! core: no clock, no thread, no I/O.
//!
//! ```text
//!   names ──▶ Directory ──▶ numbers          Directory ──▶ names ──▶ explain_text
//!                              │                  ▲
//!                              ▼                  │
//!   now, fact ──▶ Driver::tell ──▶ core ──▶ Driver::next_action ──▶ the carrier: threads, processes,
//!                     ▲                           │                  sessions, simulated agents
//!                     └──────── Driver::later ◀───┘
//! ```
//!
//! A carrier is a loop:
//!
//! ```
//! use loxley_driver::Driver;
//! use loxley_model::{AgentId, AgentSpec, SkillSet, Time};
//! use loxley_policy::{Action, Config, Input};
//!
//! let mut driver = Driver::new(Config::default(), Time::ZERO);
//! let agent = AgentSpec::new(AgentId(1), SkillSet::none());
//! driver.tell(Time::ZERO, Input::AgentJoined(agent.into()));
//! while let Some(action) = driver.next_action() {
//!     match action {
//!         Action::Assign { .. } => {}  // hand it over
//!         Action::Retract { task, lease, .. } => {
//!             // Asked back: the core hears the answer once all of this is carried out.
//!             driver.later(Input::TaskYielded { task, lease, yielded: false });
//!         }
//!         _ => {}
//!     }
//! }
//! ```
#![no_std]

extern crate alloc;

mod directory;
mod driver;
pub mod explain_text;
mod ids;
mod leases;
pub mod self_tuning;

pub use directory::{Directory, KINDS_MAX, data_key, milli, work_key};
pub use driver::Driver;
pub use explain_text::{AtServer, Vocabulary, Why};
pub use ids::{IdHasher, IdMap, IdSet};
pub use leases::{Held, Leases};

//! The server of Loxley: decides for a fleet of agents, and loses nothing.
//!
//! ```text
//!   agents ──gRPC──▶ session ─┐                     ┌─▶ deciding thread ─▶ commit thread ──▶ journal
//!                             ├─ TLS, tokens, ──────┤      (decides)         (writes, then releases)
//!   people ──HTTP──▶ routes ──┘    one port         └─▶ history (what is over)
//! ```
//!
//! - [`decider`]: the one thread that owns the engine, its journal, and the [`Handle`](decider::Handle) through
//!   which everybody else asks and tells.
//! - [`api`]: HTTP for people and programs, described by `openapi.json`.
//! - [`Server`]: a directory, a port, and everything in between.
//! - `dashboard`: the pages for browsers, built from `web/` and held in the program.
//! - `cluster` (feature `postgres`): one of several instances on one database; stands by, takes over, hands over.
//! - [`Gate`]: the certificate, the tokens, and who may do what.

mod answer;
pub mod api;
mod auth;
mod browser_sessions;
#[cfg(feature = "postgres")]
pub mod cluster;
mod cluster_health;
mod dashboard;
pub mod decider;
mod large_results;
mod listen;
mod marks;
mod outputs;
mod samples;
mod server;
mod session;
mod settings;
mod slow_peer;
mod timeline;
mod trace_export;
mod what_if;

pub use auth::{Caller, Gate, GateError};
pub use listen::ConnectionLimits;
pub use server::{Context, LogSwitch, Server, ServerError, ServerOptions};
#[doc(hidden)]
pub use session::hear_frames;
pub use trace_export::TraceExport;

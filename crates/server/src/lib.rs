//! The server of Loxley: decides for a fleet of agents, and loses nothing.
//!
//! ```text
//!   agents ──gRPC──▶ session ─┐                     ┌─▶ engine thread ──▶ commit thread ──▶ journal
//!                             ├─ TLS, tokens, ──────┤      (decides)         (writes, then releases)
//!   people ──HTTP──▶ routes ──┘    one port         └─▶ history (what is over)
//! ```
//!
//! - [`engine`]: the one thread that decides, its journal, and the [`Handle`](engine::Handle) through
//!   which everybody else asks and tells.
//! - [`api`]: HTTP for people and programs, described by `docs/openapi.json`.
//! - [`Server`]: a directory, a port, and everything in between.
//! - [`Gate`]: the certificate, the tokens, and who may do what.

pub mod api;
pub mod engine;
mod gate;
mod listen;
mod outputs;
mod server;
mod session;
mod stall;

pub use gate::{Caller, Gate, GateError};
pub use listen::ConnectionLimits;
pub use server::{Context, Server, ServerError, ServerOptions};
#[doc(hidden)]
pub use session::hear_frames;

//! Processes of one machine that run Python calls: the lines to them, and who gets what.
//!
//! ```text
//! a Python thread ── submit ─▶ Hub ─ lock ─▶ core.handle ─▶ frames into outboxes ─ unlock ─▶ write
//!                               ▲                                                             │
//! a thread for each line ── reads frames ────────── socket pair ───────────────────▶ WorkerLine
//!                               │                                                   (a thread reads,
//!                               └─▶ events ─▶ one Python thread that settles futures  the main one runs)
//! ```
//!
//! Neither end needs the interpreter's lock to read or to answer, so a process that computes can still
//! give back a call that it has not begun.

mod figures;
mod functions;
mod hub;
mod hub_state;
mod lines;
mod segment;
mod wire;
mod worker;

pub(crate) use figures::BalanceReport;
pub(crate) use hub::Hub;
pub(crate) use worker::WorkerLine;

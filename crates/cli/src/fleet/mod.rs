//! The commands that talk to a server, and the server and the agents themselves.
//!
//! ```text
//! submit ─┐                                       ┌─ table   rows for people
//! job     ├─▶ connect (access file, client) ──▶ ──┤
//! task    │      select (last, all, 1,3,5-8)      └─ --json  one object a line for programs
//! agent   ┘      wait   (progress, Ctrl-C)
//! ```
//!
//! What must stay true: standard output has what was asked for and nothing else; Ctrl-C ends the
//! command, never the work, and says so; text that came from somebody else is shown without its
//! control characters.

pub(crate) mod agent;
mod connect;
pub(crate) mod dashboard;
pub(crate) mod figures;
pub(crate) mod job;
mod logs;
mod opened_journal;
mod output;
mod print;
pub(crate) mod reload;
mod select;
pub(crate) mod server;
mod show;
pub(crate) mod submit;
pub(crate) mod table;
pub(crate) mod task;
pub(crate) mod top;
pub(crate) mod user;
mod wait;
mod watch;

pub(crate) use connect::exit_of;

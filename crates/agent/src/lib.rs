//! Runs tasks in child processes. An agent carries out; it never decides.
//!
//! A [`Slot`] runs one [`Command`] at a time, in a process group of its own, and hands its output to
//! a [`Sink`]. Slots do not share anything: a machine that should run eight tasks at once has eight
//! slots on eight threads. A [`Killer`] reaches into a slot from another thread. A [`Template`] is a
//! command with placeholders, of which each item makes a command.
//!
//! ```
//! use loxley_agent::{Command, Slot, Tail};
//!
//! let (mut slot, _killer) = Slot::new()?;
//! let mut output = Tail::default();
//! let ended = slot.run(1, &Command::new("printf").arg("hello"), &mut output)?;
//! assert!(ended.success());
//! assert_eq!(output.stdout(), b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod command;
mod control_group;
mod ended;
mod launch;
mod output;
mod program;
mod quote;
mod remote;
mod slot;
mod template;

pub use command::{Command, Limits, Streams};
pub use ended::{Ended, Status, Stopped};
pub use output::{Files, Sink, Spool, Stream, Tail};
pub use program::ProgramCache;
pub use remote::{Agent, AgentError, AgentOptions, Call, FunctionError, Functions, Stopper};
pub use slot::{Killer, Slot, StartError, Urgency};
pub use template::{Filling, Template, TemplateError};

//! A command, from its template to the end of its last process. No network, no decisions.
//!
//! ```text
//!   whoever decides ──assign, retract, cancel──▶ Desk ──▶ slots (a thread each: processes or functions)
//!                   ◀──────── reports ───────────┘ ◀─────┘
//! ```
//!
//! A [`Slot`] runs one [`Command`] at a time, in a process group of its own, and hands its output to a
//! [`Sink`]. A [`LocalAgent`] is some slots on threads of their own, fed through one [`Desk`]: what was
//! assigned and has not begun lies there and can be taken back; what happened lies there until somebody
//! takes the [`Reports`]. `loxley run` runs on such agents; the agent of a server is one, and a
//! conversation. So a task finds the same surroundings and the same limits wherever it runs.
//!
//! ```
//! use loxley_exec::{Command, Slot, Tail};
//!
//! let (mut slot, _killer) = Slot::new()?;
//! let mut output = Tail::default();
//! let ended = slot.run(1, &Command::new("printf").arg("hello"), &mut output)?;
//! assert!(ended.success());
//! assert_eq!(output.stdout(), b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod belongings;
mod checkpoint;
mod command;
mod control_group;
mod desk;
mod ended;
mod functions;
mod guardian;
mod launch;
mod local_agent;
pub mod machine;
mod output;
mod program;
mod report;
mod shared_limit;
mod slot;
mod slot_thread;
mod start_gate;
mod task_command;

pub use belongings::{MARK, token};
pub use checkpoint::{CHECKPOINT_MAX, Checkpoint};
pub use command::{Command, Input, Limits, Streams};
pub use control_group::{Membership, MemoryGroups, count, memory_groups};
pub use desk::{Desk, GivenUp, START_NOTICE, Stopping};
pub use ended::{Ended, Status, Stopped};
pub use functions::{Call, FunctionError, Functions};
pub use guardian::{Guardian, GuardianProgram, boot_time, stand_guard};
pub use launch::is_ignored;
pub use local_agent::{LocalAgent, SlotSettings};
pub use loxley_template::{
    Filling, Replacement, Template, TemplateError, Vocabulary, quoted, raw_bytes, split_words,
};
pub use output::{Captured, Files, LineWriter, Sink, Spool, Stream, Tail};
pub use program::ProgramCache;
pub use report::{End, Ran, Reports, SavedState, ShownOutput, Started, Yielded};
pub use shared_limit::{Seat, SharedLimit};
pub use slot::{Killer, Slot, StartError, Urgency};
pub use start_gate::StartGate;
pub use task_command::{Assignment, Keep, OutputRule, Recipe, TaskCommand, Work};

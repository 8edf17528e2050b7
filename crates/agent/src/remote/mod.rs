//! An agent of a server: dials it, runs what it is given, and says how it ended.
//!
//! ```text
//!   server ◀──frames──▶ conversation ◀──board──▶ slots (one thread each: processes or functions)
//! ```
//!
//! The conversation comes and goes with the connection; the slots go on with what they have. An agent
//! never decides: which task is next, what moves elsewhere and what is tried again is the server's to say.

mod board;
mod conversation;
mod functions;
mod vitals;
mod worker;

use std::io;
use std::sync::{Arc, OnceLock};

use loxley_api::Access;

use crate::control_group::MemoryGroups;
use crate::{Slot, Urgency};
use board::Board;
use conversation::Conversation;
use worker::Worker;

pub use conversation::Stopper;
pub use functions::{Call, FunctionError, Functions};

/// What an agent says of itself.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Where the server is, and our token.
    pub access: Access,
    /// Unique in the fleet.
    pub name: String,
    /// What it can do.
    pub skills: Vec<String>,
    /// How many tasks it runs at once.
    pub slots: u32,
    /// Its speed; 1 runs a task in its expected cost. Learned speed replaces it.
    pub speed: f64,
    /// Processors, in thousandths; 0 says nothing of them.
    pub cpu_milli: u64,
    /// Memory for its tasks; 0 says nothing of it.
    pub memory_bytes: u64,
    /// Everything else it has, by name.
    pub resources: Vec<(String, u64)>,
    /// Where it stands.
    pub zone: Option<String>,
    /// The data it holds.
    pub holds: Vec<String>,
    /// Functions it offers.
    pub functions: Functions,
}

impl AgentOptions {
    /// An agent with one slot and nothing special.
    #[must_use]
    pub fn new(access: Access, name: &str) -> Self {
        Self {
            access,
            name: name.to_owned(),
            skills: Vec::new(),
            slots: 1,
            speed: 1.0,
            cpu_milli: 0,
            memory_bytes: 0,
            resources: Vec::new(),
            zone: None,
            holds: Vec::new(),
            functions: Functions::default(),
        }
    }
}

/// Why an agent ended.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The server does not want it, and will not change its mind.
    #[error("the server refuses this agent: {0}")]
    Refused(String),
    /// The system refused a thread, a directory or an event.
    #[error("the system refuses what an agent needs")]
    System(#[from] io::Error),
}

/// An agent that is about to run.
#[derive(Debug)]
pub struct Agent {
    options: AgentOptions,
    stopper: Stopper,
}

impl Agent {
    /// An agent. It does nothing until it [runs](Self::run).
    #[must_use]
    pub fn new(options: AgentOptions) -> Self {
        Self {
            options,
            stopper: Stopper::default(),
        }
    }

    /// What ends it.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Connects, and runs tasks until it is stopped, by its [`Stopper`] or by the server.
    ///
    /// # Errors
    /// When the server refuses it, or the system does.
    pub async fn run(self) -> Result<(), AgentError> {
        let (groups, note) = memory_groups();
        tracing::info!("{note}");
        let slots = (0..self.options.slots).map(|_| {
            let (slot, killer) = Slot::new()?;
            let slot = match &groups {
                Some(groups) => slot.with_memory_groups(Arc::clone(groups)),
                None => slot,
            };
            io::Result::Ok((slot, killer))
        });
        let (slots, killers): (Vec<_>, Vec<_>) =
            slots.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let board = Arc::new(Board::new(killers));
        let scratch = tempfile::Builder::new().prefix("loxley-agent-").tempdir()?;
        let functions = Arc::new(self.options.functions.clone());
        let mut threads = Vec::new();
        for (number, slot) in slots.into_iter().enumerate() {
            let worker = Worker {
                number,
                slot,
                board: Arc::clone(&board),
                functions: Arc::clone(&functions),
                scratch: scratch.path().to_owned(),
            };
            let thread = std::thread::Builder::new().name(format!("slot-{number}"));
            threads.push(thread.spawn(move || worker.run())?);
        }
        let conversation = Conversation {
            process: process_number(),
            options: Arc::new(self.options),
            board: Arc::clone(&board),
            stopper: self.stopper,
            notes: vec![note],
        };
        let ended = conversation.hold().await;
        board.close(Urgency::Gentle);
        // A function cannot be killed: whoever called an endless one waits for it here.
        let joined = tokio::task::spawn_blocking(move || {
            for thread in threads {
                let _ = thread.join();
            }
        });
        let _ = joined.await;
        ended
    }

    /// As [`run`](Self::run), for programs without an async runtime.
    ///
    /// # Errors
    /// When the server refuses it, or the system does.
    pub fn run_blocking(self) -> Result<(), AgentError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(self.run())
    }
}

/// What limits the memory of tasks, and how that is told to people. Found once for the whole process: to
/// find it moves the process, and agents of one process share its place.
fn memory_groups() -> (Option<Arc<MemoryGroups>>, String) {
    static FOUND: OnceLock<(Option<Arc<MemoryGroups>>, String)> = OnceLock::new();
    let found = FOUND.get_or_init(|| match MemoryGroups::find() {
        Ok(groups) => {
            let note =
                "memory limits are limits of all processes of a task together (control groups)";
            (Some(Arc::new(groups)), note.to_owned())
        }
        Err(why) => {
            let note = "memory limits are limits of address space, of each process (ulimit -v)";
            (None, format!("{note}: {why}"))
        }
    });
    found.clone()
}

/// Tells this process from every other that had or will have the same name.
fn process_number() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one((std::process::id(), std::time::SystemTime::now()))
}

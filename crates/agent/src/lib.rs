//! An agent of a server: dials it, runs what it is given, and says how it ended.
//!
//! ```text
//!   server ◀──frames──▶ conversation ◀──ledger──▶ desk ◀──▶ slots (one thread each: processes or functions)
//! ```
//!
//! What runs tasks is `loxley-exec`, the same as for `loxley run`; here is the conversation with the server. It
//! comes and goes with the connection; the slots go on with what they have. An agent never decides: which task
//! is next, what moves elsewhere and what is tried again is the server's to say.

mod conversation;
mod counters;
mod fence;
mod hardware;
mod ledger;
mod name_claim;
mod vitals;

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use loxley_api::Access;
use loxley_exec::{Guardian, LocalAgent, SlotSettings};
use tokio::sync::Notify;

use conversation::{Conversation, Servers};
use counters::Counters;
use fence::Fence;
use ledger::Ledger;

pub use conversation::Stopper;
pub use loxley_exec::{Call, FunctionError, Functions, GuardianProgram};

/// What an agent says of itself.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Where the server is, and our token.
    pub access: Access,
    /// The file that says so: looked into again when no server is found, since one that came back elsewhere writes that there.
    pub access_file: Option<PathBuf>,
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
    /// What ends its tasks if it is killed; none: they go on.
    pub guardian: Option<GuardianProgram>,
}

impl AgentOptions {
    /// An agent with one slot and nothing special.
    #[must_use]
    pub fn new(access: Access, name: &str) -> Self {
        Self {
            access,
            access_file: None,
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
            guardian: None,
        }
    }
}

/// Why an agent ended.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The server does not want it, and will not change its mind.
    #[error("the server refuses this agent: {0}")]
    Refused(String),
    /// Nobody knows where the server is.
    #[error(
        "no machine is known as `{host}`, where the access file says that the server is: {source}"
    )]
    Unknown {
        /// What it is called there.
        host: String,
        /// What the system says.
        source: io::Error,
    },
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
    pub fn run(self) -> Pin<Box<dyn Future<Output = Result<(), AgentError>> + Send>> {
        // In a box, it is compiled here and not by everybody who awaits it.
        Box::pin(self.work())
    }

    async fn work(self) -> Result<(), AgentError> {
        // Before anything is started that is to be counted.
        let counters = Counters::open();
        let (memory_groups, note) = loxley_exec::memory_groups();
        tracing::info!("{note}");
        let scratch = tempfile::Builder::new().prefix("loxley-agent-").tempdir()?;
        let guardian = self.guardian().await;
        let escapes = match (&guardian, &memory_groups) {
            (None, _) => "if this agent is killed, its tasks go on to their end",
            (Some(_), None) => {
                "a process that clears its environment and leaves its group escapes the end of its task"
            }
            (Some(_), Some(_)) => "tasks and all that they start end with this agent",
        };
        let settings = SlotSettings {
            gives_back: true,
            guardian: guardian.clone(),
            memory_groups,
            functions: self.options.functions.clone(),
            scratch: scratch.path().to_owned(),
            // The conversation looks now and then: a frame for each start would cost more than it tells.
            tells_starts: false,
            ..SlotSettings::default()
        };
        let bell = Arc::new(Notify::new());
        let rung = Arc::clone(&bell);
        let slots = self.options.slots as usize;
        let local = LocalAgent::start(0, slots, &Arc::new(settings), move || rung.notify_one())?;
        let desk = Arc::clone(local.desk());
        let fence = Arc::new(Fence::new(guardian.clone()));
        let servers = Servers::new(&self.options.access);
        let conversation = Conversation {
            servers: Mutex::new(servers),
            process: process_number(),
            options: Arc::new(self.options),
            ledger: Arc::new(Ledger::new(Arc::clone(&desk), bell, Arc::clone(&fence))),
            fence,
            stopper: self.stopper,
            notes: vec![note, escapes.to_owned()],
            counters: Mutex::new(counters),
            was_welcome: std::sync::atomic::AtomicBool::new(false),
        };
        let ended = tokio::select! {
            ended = conversation.hold() => ended,
            () = conversation.fence.keep(&conversation.ledger) => unreachable!("it goes on for ever"),
        };
        desk.close();
        desk.clear();
        let joined = tokio::task::spawn_blocking(move || local.join());
        let _ = joined.await;
        if let Some(guardian) = guardian {
            guardian.dismiss();
        }
        ended
    }

    /// Starts the guardian, once nothing is left of an earlier process of this name.
    async fn guardian(&self) -> Option<Arc<Guardian>> {
        let options = &self.options;
        let program = options.guardian.clone()?;
        let name = name_claim::claim(&options.access, &options.name).await;
        let guardian = match name {
            Some(name) => Guardian::new(program).keeping(name),
            None => Guardian::new(program),
        };
        guardian.start().then(|| Arc::new(guardian))
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

/// Tells this process from every other that had or will have the same name.
fn process_number() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one((std::process::id(), std::time::SystemTime::now()))
}

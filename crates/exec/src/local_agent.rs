//! An agent in this process: slots on threads of their own, fed through one desk.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};

use crate::control_group::MemoryGroups;
use crate::desk::Desk;
use crate::functions::Functions;
use crate::guardian::Guardian;
use crate::slot::Slot;
use crate::slot_thread::SlotThread;
use crate::start_gate::StartGate;

/// What all slots have in common.
#[derive(Debug, Default)]
pub struct SlotSettings {
    /// What must be true before a task starts.
    pub gate: StartGate,
    /// What limits the memory of a task with all its processes; none: each process has a limit of its own.
    pub memory_groups: Option<Arc<MemoryGroups>>,
    /// Functions by name.
    pub functions: Functions,
    /// Where checkpoints are that are carried from one agent to the next.
    pub scratch: PathBuf,
    /// Whether the bell is rung when a task turns out not to be short. Otherwise somebody has to look.
    pub tells_starts: bool,
    /// Whether a task whose process the system refuses us is given back, so that others can try; else it is tried
    /// here again for a while.
    pub gives_back: bool,
    /// What ends the tasks when this process is killed. It is started when a task turns out not to be short.
    pub guardian: Option<Arc<Guardian>>,
    /// Whether somebody looks, and wants to see what tasks print while they run. Those that start while it is set show it,
    /// whatever their own rule says.
    pub watched: AtomicBool,
}

/// Some slots and their desk.
#[derive(Debug)]
pub struct LocalAgent {
    desk: Arc<Desk>,
    threads: Vec<JoinHandle<()>>,
}

impl LocalAgent {
    /// Starts the threads of an agent whose first slot has the number `first_slot`, from 0. The bell is rung,
    /// by one of them, when there is something to tell.
    ///
    /// # Errors
    /// When the system refuses a thread or an event.
    pub fn start(
        first_slot: usize,
        slots: usize,
        settings: &Arc<SlotSettings>,
        bell: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let made = (0..slots).map(|_| Slot::new());
        let (made, killers): (Vec<_>, Vec<_>) =
            made.collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
        let desk = Arc::new(Desk::new(first_slot, killers, bell));
        let mut threads = Vec::with_capacity(slots);
        for (position, slot) in made.into_iter().enumerate() {
            let number = first_slot + position;
            let slot = match &settings.memory_groups {
                Some(groups) => slot.with_memory_groups(Arc::clone(groups)),
                None => slot,
            };
            let thread = SlotThread {
                number,
                position,
                slot,
                desk: Arc::clone(&desk),
                settings: Arc::clone(settings),
            };
            let builder = thread::Builder::new().name(format!("slot-{}", number + 1));
            // A function may need more than what is enough to watch a process.
            let builder = match settings.functions.is_empty() {
                true => builder.stack_size(256 << 10),
                false => builder,
            };
            threads.push(builder.spawn(move || thread.work())?);
        }
        Ok(Self { desk, threads })
    }

    /// Where tasks are put and reports are taken.
    #[must_use]
    pub fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }

    /// Waits for the threads of an agent whose desk was closed. A function cannot be killed: whoever called an
    /// endless one waits for it here.
    pub fn join(self) {
        for thread in self.threads {
            // A panic has been shown by the thread itself.
            let _ = thread.join();
        }
    }
}

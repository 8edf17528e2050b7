//! The scheduler as a library: one lock around the deciding core, and a thread for its timers.
//!
//! ```text
//! your threads ── submit, next_task, complete ──▶ lock ─▶ core.handle ─▶ actions into memory ─▶ unlock
//!                                                             ▲                                  │
//! the ticker thread ── sleeps until the next timer ───────────┘        wake agents, tell listeners
//! ```
//!
//! What must stay true: the lock is held for one `handle` and the memory operations around it, never
//! while waiting, never while code of a user runs; notices leave in the order in which they arose.

mod agents;
mod listening;
mod questions;
mod shared;
mod submission;
mod work;

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use loxley_driver::Driver;
use loxley_model::Time;
use loxley_policy::{Config, Input};

use self::shared::Shared;
pub use self::submission::{Leftover, Submitted};
pub use self::work::{Assignment, Ticket};
use crate::clock::{Clock, SystemClock};
use crate::error::ConfigError;

/// A thread-safe scheduler for agents that live in this process (or that this process speaks for).
///
/// `T` is the payload that tasks carry; the scheduler never looks at it. Clones are cheap and mean
/// the same scheduler.
///
/// An agent's life is a loop: [`next_task`](Self::next_task), do it, [`complete`](Self::complete)
/// or [`fail`](Self::fail). Where the next task comes from (its own queue, or stolen from a busy
/// agent) is the scheduler's business.
///
/// ```
/// use std::time::Duration;
/// use loxley::{Agent, Scheduler, Task};
///
/// let scheduler = Scheduler::builder().build();
/// scheduler.start();
/// scheduler.register_agent(Agent::new("ann").skill("python"))?;
/// scheduler.submit(Task::new("tidy").skill("python").priority(4), "tidy.py")?;
///
/// let assignment = scheduler
///     .next_task("ann", Duration::from_secs(1))?
///     .expect("there is one task, and ann can do it");
/// assert_eq!(*assignment.payload, "tidy.py");
/// println!("ann does {} because {}", assignment.task, assignment.why);
/// scheduler.complete(&assignment)?;
/// assert_eq!(scheduler.counts().finished, 1);
/// scheduler.stop();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Scheduler<T = ()> {
    shared: Arc<Shared<T>>,
}

/// Makes a [`Scheduler`].
pub struct SchedulerBuilder {
    config: Config,
    clock: Arc<dyn Clock>,
}

impl Default for SchedulerBuilder {
    fn default() -> Self {
        Self {
            config: Config::default(),
            clock: Arc::new(SystemClock::new()),
        }
    }
}

impl SchedulerBuilder {
    /// Uses this configuration instead of the published defaults.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Uses the configuration in a YAML file. Every mistake in it is reported, with its line.
    pub fn config_file(self, path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Ok(self.config(read_config(path.as_ref())?))
    }

    /// Uses this clock instead of the machine's.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The scheduler. Call [`Scheduler::start`] to let time pass for it.
    #[must_use]
    pub fn build<T: Send + Sync + 'static>(self) -> Scheduler<T> {
        let driver = Driver::new(self.config, self.clock.now());
        Scheduler {
            shared: Arc::new(Shared::new(driver, self.clock)),
        }
    }
}

impl fmt::Debug for SchedulerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulerBuilder")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Begins to make a scheduler.
    #[must_use]
    pub fn builder() -> SchedulerBuilder {
        SchedulerBuilder::default()
    }
}

/// Life.
impl<T: Send + Sync + 'static> Scheduler<T> {
    /// Starts the background thread that makes time pass: retries, time limits, heartbeats,
    /// rebalancing, speculation. Everything else works without it. Does nothing when it runs.
    pub fn start(&self) {
        self.shared.start();
    }

    /// Stops the background thread and turns away agents and submissions. Nothing is forgotten:
    /// [`start`](Self::start) goes on where this stopped.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Lets the core see what time it is. Only needed without the background thread.
    pub fn tick(&self) {
        self.feed(Input::Tick);
    }

    /// The scheduler's time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// Applies another configuration. No task is lost or reordered.
    pub fn reload(&self, config: Config) {
        self.feed(Input::ConfigChanged(Box::new(config)));
    }

    /// Applies the configuration in a YAML file, or none of it if there is a mistake in it.
    pub fn reload_file(&self, path: impl AsRef<Path>) -> Result<(), ConfigError> {
        self.reload(read_config(path.as_ref())?);
        Ok(())
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> Config {
        self.shared.lock().driver.scheduler().config().clone()
    }
}

impl<T> Clone for Scheduler<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T> fmt::Debug for Scheduler<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("counts", &self.shared.lock().driver.scheduler().counts())
            .finish_non_exhaustive()
    }
}

pub(crate) fn read_config(path: &Path) -> Result<Config, ConfigError> {
    let name = path.display().to_string();
    match fs::read(path) {
        Ok(bytes) => loxley_config::parse_bytes(&bytes)
            .map_err(|mistakes| ConfigError::Mistakes(mistakes.in_file(&name))),
        Err(source) => Err(ConfigError::Read { name, source }),
    }
}

//! A fleet: agents that are threads, and tasks that are closures.
//!
//! Each slot of an agent is a thread that asks the [`Scheduler`] for its next task, runs its
//! closure, and answers. The scheduler decides everything else: who gets what, who steals from
//! whom, what is tried again and where. A result counts only if the scheduler still honours the
//! lease it was made under; so of two copies of a task one counts, and the closure that a killed
//! agent was busy with is run again elsewhere and its first result dropped.

mod batch;
mod figures;
mod handle;
mod work;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use loxley_balance::BalanceReport;
use loxley_policy::{Config, Metrics};

use crate::error::{AgentError, ConfigError, SubmitError, UnknownTask};
use crate::event::Event;
use crate::scheduler::{Assignment, Scheduler, read_config};
use crate::task::{Agent, Job, Task, TaskKey};

pub use batch::Batch;
pub use handle::{Handle, TaskError};
pub use work::{Context, Work};

use figures::{RunFigures, SlotFigures};

/// How long a slot waits for work before it asks again.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Agents on threads of this process, under a [`Scheduler`].
///
/// ```
/// use loxley::{Fleet, Task};
///
/// let fleet = Fleet::builder()
///     .agent("ann", ["python"])
///     .agent("bob", ["python", "gpu"])
///     .build()?;
/// let sum = fleet.submit(Task::new("sum").skill("python"), || (1..=100).sum::<u32>())?;
/// let frame = fleet.submit(Task::new("frame").skill("gpu").priority(5), || "drawn")?;
/// assert_eq!(sum.wait()?, 5050);
/// assert_eq!(frame.wait()?, "drawn");
/// println!("{}", fleet.shutdown());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A closure may be run more than once (after a failure, a lost agent, or as a second copy of a
/// straggler), so it is an `Fn`. [`Fleet::submit_once`] takes an `FnOnce` and gives these up.
pub struct Fleet {
    scheduler: Scheduler<Work>,
    figures: Arc<RunFigures>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Makes a [`Fleet`].
#[derive(Debug, Default)]
pub struct FleetBuilder {
    config: Config,
    agents: Vec<Agent>,
}

impl FleetBuilder {
    /// Adds an agent with skills.
    #[must_use]
    pub fn agent<S: Into<String>>(
        self,
        name: impl Into<String>,
        skills: impl IntoIterator<Item = S>,
    ) -> Self {
        self.with_agent(Agent::new(name).skills(skills))
    }

    /// Adds an agent.
    #[must_use]
    pub fn with_agent(mut self, agent: Agent) -> Self {
        self.agents.push(agent);
        self
    }

    /// Adds so many agents without skills, named `agent-1` and so on.
    #[must_use]
    pub fn agents(mut self, count: usize) -> Self {
        let named = (1..=count).map(|number| Agent::new(format!("agent-{number}")));
        self.agents.extend(named);
        self
    }

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

    /// Starts the agents.
    pub fn build(self) -> Result<Fleet, AgentError> {
        let scheduler = Scheduler::builder().config(self.config).build();
        scheduler.start();
        let fleet = Fleet {
            scheduler,
            figures: Arc::new(RunFigures::new()),
            threads: Mutex::new(Vec::new()),
        };
        let figures = Arc::clone(&fleet.figures);
        fleet.scheduler.listen(move |notice| {
            if let (Event::Finished { ending, .. }, Some(work)) = (&notice.event, &notice.payload)
                && work.settle(ending)
            {
                figures.settled();
            }
            true
        });
        for agent in self.agents {
            fleet.join(agent)?;
        }
        Ok(fleet)
    }
}

impl Fleet {
    /// Begins to make a fleet.
    #[must_use]
    pub fn builder() -> FleetBuilder {
        FleetBuilder::default()
    }

    /// The scheduler of this fleet: everything that can be asked, and limits, weights, reloads.
    ///
    /// ```
    /// # use loxley::{Fleet, Task};
    /// let fleet = Fleet::builder().agents(2).build()?;
    /// let done = fleet.submit("hello", || 1)?;
    /// if let Some(why) = fleet.scheduler().explain("hello") {
    ///     println!("{why}"); // none when it is over already
    /// }
    /// assert_eq!(done.wait()?, 1);
    /// assert_eq!(fleet.scheduler().counts().finished, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn scheduler(&self) -> &Scheduler<Work> {
        &self.scheduler
    }

    // Tasks.

    /// Submits a closure. A panic counts as a failure.
    pub fn submit<R, F>(&self, task: impl Into<Task>, run: F) -> Result<Handle<R>, SubmitError>
    where
        R: Send + Sync + 'static,
        F: Fn() -> R + Send + Sync + 'static,
    {
        let (work, handle) = Work::new(move |_| Ok::<R, String>(run()));
        self.hand_in(task.into(), work, handle)
    }

    /// Submits a closure that may fail, and that is told who runs it, which attempt this is, and
    /// when it should stop.
    pub fn submit_with<R, E, F>(
        &self,
        task: impl Into<Task>,
        run: F,
    ) -> Result<Handle<R>, SubmitError>
    where
        R: Send + Sync + 'static,
        E: fmt::Display,
        F: Fn(&Context) -> Result<R, E> + Send + Sync + 'static,
    {
        let (work, handle) = Work::new(run);
        self.hand_in(task.into(), work, handle)
    }

    /// Submits a closure that can run only once: it has no retries and no second copy, and is lost
    /// with its agent.
    pub fn submit_once<R, F>(&self, task: impl Into<Task>, run: F) -> Result<Handle<R>, SubmitError>
    where
        R: Send + Sync + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        let (work, handle) = Work::once(run);
        let mut task: Task = task.into();
        task.retries = 0;
        task.speculate = false;
        self.hand_in(task, work, handle)
    }

    /// Submits a closure with a value that stands in when its time limit passes.
    pub fn submit_or<R, F>(
        &self,
        task: impl Into<Task>,
        fallback: R,
        run: F,
    ) -> Result<Handle<R>, SubmitError>
    where
        R: Send + Sync + 'static,
        F: Fn(&Context) -> R + Send + Sync + 'static,
    {
        let (mut work, handle) = Work::new(move |context| Ok::<R, String>(run(context)));
        work.fall_back_to_value(fallback);
        self.hand_in(task.into().fallback_value(), work, handle)
    }

    /// Begins a batch: tasks that are accepted together or not at all, and that may depend on each
    /// other by name in any order.
    ///
    /// ```
    /// # use loxley::{Fleet, Job, Task};
    /// let fleet = Fleet::builder().agents(2).build()?;
    /// let mut batch = fleet.batch(Job::new());
    /// let left = batch.add(Task::new("left"), || 20);
    /// let right = batch.add(Task::new("right"), || 22);
    /// let both = {
    ///     let (left, right) = (left.clone(), right.clone());
    ///     batch.add(Task::new("both").after("left").after("right"), move || {
    ///         left.wait().unwrap() + right.wait().unwrap() // done already: it waits for nothing
    ///     })
    /// };
    /// batch.submit()?;
    /// assert_eq!(both.wait()?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn batch(&self, job: Job) -> Batch<'_> {
        Batch::new(self, job)
    }

    /// Cancels a task. A closure that runs already is told through its [`Context`]; whatever it
    /// still returns does not count.
    pub fn cancel(&self, task: impl Into<TaskKey>) -> Result<(), UnknownTask> {
        self.scheduler.cancel(task)
    }

    /// Waits until every task that was submitted is over.
    pub fn wait_all(&self) {
        self.figures.wait_settled(None);
    }

    /// Waits until every task that was submitted is over, no longer than `timeout`. Says whether
    /// they are.
    #[must_use]
    pub fn wait_all_within(&self, timeout: Duration) -> bool {
        self.figures.wait_settled(Some(timeout))
    }

    fn hand_in<R>(
        &self,
        task: Task,
        work: Work,
        handle: Handle<R>,
    ) -> Result<Handle<R>, SubmitError> {
        self.hand_in_batch(&Job::new(), &[task], &[Arc::new(work)])?;
        Ok(handle)
    }

    fn hand_in_batch(
        &self,
        job: &Job,
        tasks: &[Task],
        works: &[Arc<Work>],
    ) -> Result<loxley_model::JobId, SubmitError> {
        self.figures.expect(works.len());
        match self.scheduler.submit_shared(job, tasks, works) {
            Ok(submitted) => {
                for (work, id) in works.iter().zip(&submitted.tasks) {
                    work.number(*id);
                }
                Ok(submitted.job)
            }
            Err(error) => {
                self.figures.expect_no_more(works.len());
                Err(error)
            }
        }
    }

    // Agents.

    /// Adds an agent to the running fleet. The name of one that was killed may be used again.
    pub fn join(&self, agent: impl Into<Agent>) -> Result<(), AgentError> {
        let agent = agent.into();
        let name: Arc<str> = agent.name.trim().into();
        if self.scheduler.agent_status(&name).is_some() {
            return Err(AgentError::AlreadyThere(name));
        }
        let slots = agent.slots;
        self.scheduler.register_agent(agent)?;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in 0..slots {
            let runner = Runner {
                scheduler: self.scheduler.clone(),
                agent: Arc::clone(&name),
                figures: Arc::clone(&self.figures),
                slot: self.figures.open_slot(&name),
            };
            let thread = thread::Builder::new()
                .name(format!("{name}/{slot}"))
                .spawn(move || runner.run())
                .expect("a thread can be started");
            threads.push(thread);
        }
        Ok(())
    }

    /// Kills an agent, as if its process had crashed: what it had queued and running goes to other
    /// agents, and what it still answers is dropped.
    pub fn kill(&self, agent: &str) -> Result<(), AgentError> {
        self.figures.close_slots(agent.trim());
        self.scheduler.remove_agent(agent)
    }

    // Figures.

    /// The four balance figures since the fleet was made or [`restart_figures`] was called: from
    /// the first submission to the last completion, over the agents that are still there.
    ///
    /// [`restart_figures`]: Self::restart_figures
    #[must_use]
    pub fn report(&self) -> BalanceReport {
        self.figures.report()
    }

    /// Begins to count afresh for [`report`](Self::report). Best called while nothing runs.
    pub fn restart_figures(&self) {
        self.figures.restart();
    }

    /// How long each agent that is still there was busy, summed over its slots.
    #[must_use]
    pub fn busy_times(&self) -> Vec<(crate::Name, Duration)> {
        self.figures.busy_times()
    }

    /// The scheduler's figures.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.scheduler.metrics()
    }

    /// Waits for every task, ends the agents, and reports how well the work was balanced.
    #[must_use = "the balance report says how well it went"]
    pub fn shutdown(self) -> BalanceReport {
        self.wait_all();
        let report = self.report();
        self.scheduler.stop();
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A slot catches the panics of closures; it has none of its own to report.
            let _ = thread.join();
        }
        report
    }
}

impl Drop for Fleet {
    /// Cancels what is left. Closures that run are told to stop, and nobody waits for them.
    fn drop(&mut self) {
        self.scheduler.cancel_all();
        self.scheduler.stop();
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("scheduler", &self.scheduler)
            .finish_non_exhaustive()
    }
}

/// One slot of an agent: a thread that asks, runs and answers.
struct Runner {
    scheduler: Scheduler<Work>,
    agent: Arc<str>,
    figures: Arc<RunFigures>,
    slot: Arc<SlotFigures>,
}

impl Runner {
    fn run(&self) {
        while self.slot.is_open() {
            match self.scheduler.next_task(&self.agent, PATIENCE) {
                Ok(Some(assignment)) => self.carry_out(&assignment),
                Ok(None) => {}
                // Killed, lost or stopped.
                Err(_) => return,
            }
        }
    }

    fn carry_out(&self, assignment: &Assignment<Work>) {
        let work = &assignment.payload;
        let begin = Instant::now();
        let outcome = work.run(&Context::new(assignment));
        self.figures.ran(&self.slot, begin, Instant::now());
        // A stale lease means that the result does not count; the scheduler keeps account of it.
        let _ = match outcome {
            Ok(()) => self.scheduler.complete(assignment),
            Err(fault) if fault.is_final => self.scheduler.fail_for_good(assignment, fault.message),
            Err(fault) => self.scheduler.fail(assignment, fault.message),
        };
        self.figures.sample(|| self.scheduler.queue_lengths());
    }
}

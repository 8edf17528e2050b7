//! Loxley takes work from the busy and gives it to the idle: the scheduler as a library.
//!
//! You have work that is uneven, and workers that are not alike: some can do things that others
//! cannot, some are slow, some crash. Loxley decides who gets what, lets the idle steal from the
//! busy, moves work away from the lost, and can say why it did any of it.
//!
//! # A fleet of threads
//!
//! [`Fleet`] runs closures on agents that are threads of this process:
//!
//! ```
//! use loxley::{Fleet, Task};
//!
//! let fleet = Fleet::builder()
//!     .agent("ann", ["python"])
//!     .agent("bob", ["python", "gpu"])
//!     .build()?;
//! let sum = fleet.submit(Task::new("sum").skill("python"), || (1..=10).sum::<u32>())?;
//! let twice = {
//!     let sum = sum.clone();
//!     fleet.submit(Task::new("twice").skill("gpu").after("sum"), move || sum.wait().map(|n| 2 * n))?
//! };
//! assert_eq!(twice.wait()??, 110);
//! println!("{}", fleet.shutdown()); // the four balance figures, and whether each met its target
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A scheduler for agents of your own
//!
//! [`Scheduler`] decides and leaves the doing to you. An agent is whatever calls
//! [`next_task`](Scheduler::next_task) under its name and answers with
//! [`complete`](Scheduler::complete) or [`fail`](Scheduler::fail): a thread, a connection, a child
//! process. Tasks carry a payload of any type.
//!
//! ```
//! use loxley::{Agent, Scheduler, Task};
//!
//! let scheduler = Scheduler::builder().build();
//! scheduler.register_agent(Agent::new("ann"))?;
//! scheduler.register_agent(Agent::new("bob"))?;
//! for number in 0..6 {
//!     scheduler.submit_to("ann", Task::new(format!("page-{number}")), number)?;
//! }
//! // Bob has nothing to do, and takes the newest task from ann's queue.
//! let stolen = scheduler.try_next_task("bob")?.expect("ann has plenty");
//! assert_eq!(*stolen.payload, 5);
//! assert_eq!(stolen.why.to_string(), "it was idle and took it from `ann`");
//! scheduler.complete(&stolen)?;
//!
//! let why = scheduler.explain("page-3").expect("it waits");
//! assert!(why.to_string().starts_with("`page-3` is on the queue of `ann`, behind 3 other tasks"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What there is
//!
//! | you want | look at |
//! |---|---|
//! | urgent work first, protected from being stolen | [`Task::priority`] |
//! | one task after another | [`Task::after`], [`Scheduler::submit_batch`], [`Fleet::batch`] |
//! | deadlines, time limits, retries, fallbacks | [`Task::due_in`], [`Task::time_limit`], [`Task::retries`], [`Task::fallback`] |
//! | a second copy of what is slow | [`Task::speculate`] |
//! | at most so many at once | [`Task::group`] and [`Scheduler::limit_group`] |
//! | fair shares between users | [`Job::user`] and [`Scheduler::weigh_user`] |
//! | to know why | [`Scheduler::explain`], [`Assignment::why`], [`Event`] |
//! | to know what is wrong | [`Scheduler::health`] |
//! | to follow along | [`Scheduler::on_progress`], [`Scheduler::on_event`], [`Scheduler::subscribe`] |
//! | to take over an orchestrator's lists | [`Plan`], [`Scheduler::import`] |
//! | to split one computation over the cores of this machine | [`pool`] |
//! | to try a configuration in virtual time first | the feature `sim`, which adds `loxley::sim` |
//! | other thresholds | [`Config`], [`SchedulerBuilder::config_file`], [`Scheduler::reload`] |
//!
//! # What you can rely on
//!
//! - Nothing is lost: at every moment [`Counts::balance`] holds.
//! - Nothing counts twice: each assignment is a numbered [`Lease`], and an answer to a lease that is
//!   no longer in force is an error ([`StaleLease`]), whatever happened in between.
//! - A call that is refused changes nothing, and says everything that is wrong at once.
//! - No call waits for another one's work: the lock is held for one decision, and listeners are
//!   called after it was let go. Only [`Scheduler::next_task`], [`Scheduler::wait_idle`] and the
//!   waiting methods of [`Fleet`] and [`Handle`] block, and [`Scheduler::stop`] waits for its own
//!   background thread.
#![warn(missing_docs)]

mod clock;
mod directory;
mod error;
mod event;
mod fleet;
mod plan;
mod scheduler;
mod state;
mod task;
mod ticker;
mod view;

pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{
    AgentError, AskError, ConfigError, LimitError, NotDeadLettered, StaleLease, SubmitError,
    SubmitProblem, UnknownTask,
};
pub use event::{Ending, Event, Subscription};
pub use fleet::{Batch, Context, Fleet, FleetBuilder, Handle, TaskError, Work};
pub use loxley_balance::{BalanceReport, Targets};
pub use loxley_driver::Why;
pub use loxley_model::{Failure, JobId, Lease, NameError, Span, TaskId, Time};
pub use loxley_policy::{
    CancelReason, Capabilities, Config, Counts, Explanation as CoreExplanation, Guards, Heartbeats,
    Learning, Liveness, Matching, Metrics, MetricsRules, Performance, Prefetch, PriorityRules,
    ProblemKind, Quotas, Severity, Speculation, Strategy, TaskStatus, Thresholds, WorkStealing,
};
pub use loxley_pool as pool;
#[cfg(feature = "sim")]
pub use loxley_sim as sim;
pub use plan::{ImportError, Plan, PlanError, PlannedAgent, PlannedTask};
pub use scheduler::{Assignment, Leftover, Scheduler, SchedulerBuilder, Submitted, Ticket};
pub use state::CancelSignal;
pub use task::{Agent, Job, Name, Task, TaskKey, TaskRef};
pub use view::{AgentStatus, Explanation, Problem, UtilizationSample};

//! What can be asked of a scheduler, with the users' names. The values are typed, for programs; their
//! `Display` is for people.

use std::fmt;

use loxley_driver::explain_text;
use loxley_model::{Span, Time};
use loxley_policy::{
    AgentStatus as CoreAgentStatus, Explanation as CoreExplanation, Liveness,
    Problem as CoreProblem, ProblemKind, Scheduler as CoreScheduler, Severity,
    UtilizationSample as CoreSample,
};

use crate::directory::Directory;
use crate::task::{Name, TaskRef};

/// Why a task is where it is, why it does not run, and what would make it run.
///
/// Its `Display` is the answer for people; [`Explanation::core`] holds the typed one.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The task.
    pub task: TaskRef,
    /// Where it is and why, in one sentence.
    pub place: String,
    /// Why it does not run now; empty when it does.
    pub obstacles: Vec<String>,
    /// What would make it run, or run sooner.
    pub remedies: Vec<String>,
    /// The same as the core said it, with numbers for names.
    pub core: CoreExplanation,
}

impl Explanation {
    pub(crate) fn new(
        mut core: CoreExplanation,
        now: Time,
        scheduler: &CoreScheduler,
        directory: &Directory,
    ) -> Self {
        let text = explain_text::explain(&mut core, now, scheduler, directory);
        Self {
            task: directory.task_ref(core.status.task),
            place: text.place,
            obstacles: text.obstacles,
            remedies: text.remedies,
            core,
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.task, self.place)?;
        for obstacle in &self.obstacles {
            write!(f, "\n  because {obstacle}")?;
        }
        for remedy in &self.remedies {
            write!(f, "\n  remedy: {remedy}")?;
        }
        Ok(())
    }
}

/// Something that is wrong with the fleet, and what to do about it [M5].
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong.
    pub kind: ProblemKind,
    /// What is wrong, in words, with the figures.
    pub message: String,
    /// What to do about it, the likeliest first.
    pub remedies: Vec<&'static str>,
}

impl Problem {
    pub(crate) fn new(core: CoreProblem, directory: &Directory) -> Self {
        Self {
            message: explain_text::problem_message(&core, directory),
            severity: core.severity,
            kind: core.kind,
            remedies: core.remedies,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = explain_text::severity_word(self.severity);
        write!(f, "{severity}: {}", self.message)?;
        for remedy in &self.remedies {
            write!(f, "\n  remedy: {remedy}")?;
        }
        Ok(())
    }
}

/// The state of one agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentStatus {
    /// Which one.
    pub agent: Name,
    /// How many times this name has registered.
    pub incarnation: u32,
    /// Tasks on its queue.
    pub queue_length: usize,
    /// Skills it has now; suspended ones are not among them.
    pub capabilities: Vec<Name>,
    /// Skills it registered with that are suspended now.
    pub suspended: Vec<Name>,
    /// Skills it did not register with and earned.
    pub earned: Vec<Name>,
    /// Successes over outcomes, recent ones counting more; 1 when there are none.
    pub success_rate: f64,
    /// Tasks it completed.
    pub total_completed: u64,
    /// Tasks it failed.
    pub total_failed: u64,
    /// Whether it has a task in hand.
    pub has_current_task: bool,
    /// Tasks it has in hand.
    pub running: Vec<TaskRef>,
    /// How many tasks it runs at once.
    pub slots: u32,
    /// Whether it is heard and gets new work.
    pub liveness: Liveness,
    /// Its speed as learned from all its tasks; 1 runs a task in its expected cost.
    pub speed: f64,
}

impl AgentStatus {
    pub(crate) fn new(core: CoreAgentStatus, directory: &Directory) -> Self {
        Self {
            agent: directory.agent_name(core.agent),
            incarnation: core.incarnation,
            queue_length: core.queue_length,
            capabilities: directory.skill_names(core.capabilities.iter()),
            suspended: directory.skill_names(core.suspended),
            earned: directory.skill_names(core.earned),
            success_rate: core.success_rate,
            total_completed: core.total_completed,
            total_failed: core.total_failed,
            has_current_task: core.has_current_task,
            running: core
                .running
                .iter()
                .map(|id| directory.task_ref(*id))
                .collect(),
            slots: core.slots,
            liveness: core.liveness,
            speed: core.speed,
        }
    }
}

impl fmt::Display for AgentStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.liveness {
            Liveness::Suspected => "silent",
            Liveness::Draining => "draining",
            Liveness::Alive if self.has_current_task => "working",
            Liveness::Alive => "free",
        };
        write!(
            f,
            "`{}` is {state}: {} queued, {} running, {} completed, {} failed, success rate {:.0} %",
            self.agent,
            self.queue_length,
            self.running.len(),
            self.total_completed,
            self.total_failed,
            self.success_rate * 100.0
        )
    }
}

/// The queue lengths of all agents at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct UtilizationSample {
    /// When, by the scheduler's clock.
    pub timestamp: Time,
    /// The queue length of each agent, in the order in which they registered.
    pub queue_lengths: Vec<(Name, u32)>,
}

impl UtilizationSample {
    pub(crate) fn new(core: &CoreSample, directory: &Directory) -> Self {
        Self {
            timestamp: core.timestamp,
            queue_lengths: core
                .queue_lengths
                .iter()
                .map(|(agent, length)| (directory.agent_name(*agent), *length))
                .collect(),
        }
    }
}

/// A moment of the scheduler's clock.
pub(crate) fn moment(time: Time) -> String {
    if time == Time::MAX {
        return "no time at all".into();
    }
    format!("{:.3} s", Span(time.0).as_secs_f64())
}

//! The scheduler's reasons in plain words, with the users' names.
//!
//! Whatever the scheduler does, it can say why; here is where the saying happens. The values are
//! typed, for programs; their `Display` is for people.

use std::fmt;

use loxley_model::{AgentId, Failure, SkillId, Span, TaskId, Time};
use loxley_policy::{
    AgentStatus as CoreAgentStatus, Explanation as CoreExplanation, Liveness, Obstacle, Place,
    Problem as CoreProblem, ProblemKind, Reason, Remedy, Scheduler as CoreScheduler, Severity,
    UtilizationSample as CoreSample,
};

use crate::directory::Directory;
use crate::task::{Name, TaskRef};

/// Why a task went to an agent.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Why {
    /// It had the highest score.
    Score(f64),
    /// It was expected to finish the task first, at this time.
    EarliestFinish(Time),
    /// It was named by whoever submitted the task.
    Named,
    /// It was idle and took the task from this agent.
    Stolen {
        /// Who had it.
        from: Name,
    },
    /// A rebalancing pass moved the task from this agent.
    Rebalanced {
        /// Who had it.
        from: Name,
    },
    /// The task was stuck behind a slow one on this agent.
    BehindStraggler {
        /// Who had it.
        from: Name,
    },
    /// A second copy, because this agent is slow with the first.
    Speculation {
        /// Who is slow.
        slow: Name,
    },
    /// One task, to see whether the agent can do this skill again.
    Probe {
        /// The skill.
        skill: Name,
    },
    /// It was idle, and the task waited only for its user's share.
    SpareCapacity,
}

impl Why {
    pub(crate) fn new(reason: Reason, directory: &Directory) -> Self {
        let agent = |id: AgentId| directory.agent_name(id);
        match reason {
            Reason::Score(millionths) => Self::Score(millionths as f64 / 1e6),
            Reason::EarliestFinish(time) => Self::EarliestFinish(time),
            Reason::Named => Self::Named,
            Reason::Stolen(from) => Self::Stolen { from: agent(from) },
            Reason::Rebalanced(from) => Self::Rebalanced { from: agent(from) },
            Reason::BehindStraggler(from) => Self::BehindStraggler { from: agent(from) },
            Reason::Speculation(slow) => Self::Speculation { slow: agent(slow) },
            Reason::Probe(skill) => Self::Probe {
                skill: directory.skill_name(skill),
            },
            Reason::SpareCapacity => Self::SpareCapacity,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Score(score) => write!(f, "it had the highest score, {score:.3}"),
            Self::EarliestFinish(time) => {
                write!(f, "it was expected to finish first, at {}", moment(*time))
            }
            Self::Named => f.write_str("whoever submitted it named this agent"),
            Self::Stolen { from } => write!(f, "it was idle and took it from `{from}`"),
            Self::Rebalanced { from } => {
                write!(f, "a rebalancing pass moved it away from `{from}`")
            }
            Self::BehindStraggler { from } => {
                write!(f, "it was stuck behind a slow task on `{from}`")
            }
            Self::Speculation { slow } => {
                write!(f, "`{slow}` is slow with it, so a second copy runs here")
            }
            Self::Probe { skill } => {
                write!(f, "to see whether this agent can do `{skill}` again")
            }
            Self::SpareCapacity => {
                f.write_str("the agent was idle and nobody else's task could use it")
            }
        }
    }
}

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
        // The core knows the time of its last input; by now it may be later.
        if let (Place::Running { running_for, .. }, Some(started)) =
            (&mut core.status.place, core.status.started)
        {
            *running_for = now.since(started);
        }
        let speaker = Speaker {
            scheduler,
            directory,
        };
        Self {
            task: directory.task_ref(core.status.task),
            place: speaker.place(&core.status.place),
            obstacles: core
                .obstacles
                .iter()
                .map(|obstacle| speaker.obstacle(obstacle))
                .collect(),
            remedies: core
                .remedies
                .iter()
                .map(|remedy| speaker.remedy(remedy))
                .collect(),
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

/// Puts the core's values into words.
struct Speaker<'a> {
    scheduler: &'a CoreScheduler,
    directory: &'a Directory,
}

impl Speaker<'_> {
    fn agent(&self, id: AgentId) -> String {
        format!("`{}`", self.directory.agent_name(id))
    }

    fn has_free_slot(&self, id: AgentId) -> bool {
        let status = self.scheduler.agent_status(id);
        status.is_some_and(|status| status.running.len() < status.slots as usize)
    }

    fn task(&self, id: TaskId) -> String {
        self.directory.task_ref(id).to_string()
    }

    fn tasks(&self, first: &[TaskId], count: usize) -> String {
        let mut words: Vec<String> = first.iter().map(|id| self.task(*id)).collect();
        if count > first.len() {
            words.push(format!("{} more", count - first.len()));
        }
        enumerate(&words)
    }

    fn skills(&self, skills: &[SkillId]) -> String {
        let words: Vec<String> = skills
            .iter()
            .map(|id| format!("`{}`", self.directory.skill_name(*id)))
            .collect();
        enumerate(&words)
    }

    fn why(&self, reason: Reason) -> Why {
        Why::new(reason, self.directory)
    }

    fn place(&self, place: &Place) -> String {
        match place {
            Place::Dependencies { first, count } => {
                format!("waits for {}", self.tasks(first, *count as usize))
            }
            Place::Backoff { until } => format!("is tried again at {}", moment(*until)),
            Place::Standby { for_task } => {
                format!(
                    "stands by, in case {} runs out of time",
                    self.task(*for_task)
                )
            }
            Place::Delegated { to } => format!(
                "ran out of time; its fallback {} runs in its stead",
                self.task(*to)
            ),
            Place::GroupLimit { running, limit } => {
                format!("waits for its group: {running} of at most {limit} are running")
            }
            Place::UserShare { running, share } => format!(
                "waits for its user's share: {running} of {share} slots are in use while others wait"
            ),
            Place::Held => "is held: no agent can do it".into(),
            Place::Queued {
                agent,
                ahead,
                reason,
            } => format!(
                "is on the queue of {}, {} (there because {})",
                self.agent(*agent),
                position(*ahead),
                self.why(*reason)
            ),
            Place::Leased { agent, reason, .. } => format!(
                "was given to {}, which has not started it (there because {})",
                self.agent(*agent),
                self.why(*reason)
            ),
            Place::Running {
                agent,
                running_for,
                copy,
                reason,
                ..
            } => {
                let copy = copy.map_or_else(String::new, |copy| {
                    format!(", with a second copy on {}", self.agent(copy))
                });
                format!(
                    "has been running on {} for {running_for}{copy} (there because {})",
                    self.agent(*agent),
                    self.why(*reason)
                )
            }
        }
    }

    fn obstacle(&self, obstacle: &Obstacle) -> String {
        match obstacle {
            Obstacle::WaitsFor(first, count) => format!(
                "it may start only when {} succeeded",
                self.tasks(first, *count as usize)
            ),
            Obstacle::WaitsUntil(time) => {
                format!("it failed and is not tried again before {}", moment(*time))
            }
            Obstacle::GroupFull { running, limit } => {
                format!("its group has {running} running and may have {limit}")
            }
            Obstacle::ShareUsedUp { running, share } => format!(
                "its user has {running} running, which is its share of {share} while others wait"
            ),
            Obstacle::NoAgents => "no agent is registered".into(),
            Obstacle::SkillsMissing { nearest, missing } => match nearest {
                Some(agent) => format!(
                    "no agent has the skills; the nearest, {}, lacks {}",
                    self.agent(*agent),
                    self.skills(missing)
                ),
                None => format!("no agent has {}", self.skills(missing)),
            },
            Obstacle::TooLarge => {
                "agents have the skills, but none is large enough for what it needs".into()
            }
            Obstacle::AgentsUnavailable(count) => {
                format!("{count} capable agents are silent, draining or suspended")
            }
            Obstacle::BehindOthers { agent, ahead: 1 } => {
                format!(
                    "1 task comes before it on the queue of {}",
                    self.agent(*agent)
                )
            }
            Obstacle::BehindOthers { agent, ahead } => format!(
                "{ahead} tasks come before it on the queue of {}",
                self.agent(*agent)
            ),
            Obstacle::AgentBusy(agent) if self.has_free_slot(*agent) => {
                format!("{} has not asked for its next task", self.agent(*agent))
            }
            Obstacle::AgentBusy(agent) => format!("{} has no free slot", self.agent(*agent)),
            Obstacle::NoRoom(agent) => format!(
                "{} has a free slot but not enough free resources",
                self.agent(*agent)
            ),
            Obstacle::Protected => {
                "it is urgent, and urgent tasks are not stolen (preserve_high_priority)".into()
            }
            Obstacle::MovedEnough(moves) => {
                format!("it moved {moves} times already and stays where it is")
            }
            Obstacle::StandsBy(task) => {
                format!("it runs only if {} runs out of time", self.task(*task))
            }
            Obstacle::StoodInBy(task) => format!("{} stands in for it", self.task(*task)),
        }
    }

    fn remedy(&self, remedy: &Remedy) -> String {
        match remedy {
            Remedy::AddAgentWith(skills) if skills.is_empty() => "register an agent".into(),
            Remedy::AddAgentWith(skills) => {
                format!("register an agent with {}", self.skills(skills))
            }
            Remedy::AddLargerAgent => "register an agent with more room".into(),
            Remedy::AddAgents => "register more agents".into(),
            Remedy::RaiseGroupLimit => "raise the limit of its group".into(),
            Remedy::RaiseUserWeight => "raise the weight of its user".into(),
            Remedy::FinishDependencies(tasks) => format!(
                "let {} finish, or look into those that fail",
                self.tasks(tasks, tasks.len())
            ),
            Remedy::RaisePriority => "raise its priority".into(),
            Remedy::AllowStealing => {
                "allow stealing: strategy `pull` or `hybrid`, `steal_below_busy: true`".into()
            }
            Remedy::Wait(Some(time)) => format!("wait until {}", moment(*time)),
            Remedy::Wait(None) => "wait".into(),
        }
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
            severity: core.severity,
            kind: core.kind,
            message: directory.with_names(&core.message),
            remedies: core.remedies,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        };
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

/// Why a task ended without success, in words.
pub(crate) fn failure_words(failure: Failure) -> &'static str {
    match failure {
        Failure::Error => "it failed",
        Failure::Permanent => "it failed for good",
        Failure::TimeLimit => "it ran longer than its time limit",
        Failure::AgentLost => "its agent was lost",
        Failure::Unassignable => "no agent could do it in time",
        Failure::Dependency => "a task it depends on did not succeed",
    }
}

/// A moment of the scheduler's clock.
pub(crate) fn moment(time: Time) -> String {
    if time == Time::MAX {
        return "no time at all".into();
    }
    format!("{:.3} s", Span(time.0).as_secs_f64())
}

fn position(ahead: usize) -> String {
    match ahead {
        0 => "first in line".into(),
        1 => "behind 1 other task".into(),
        many => format!("behind {many} other tasks"),
    }
}

fn enumerate(words: &[String]) -> String {
    match words {
        [] => "nothing".into(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

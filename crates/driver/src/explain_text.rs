//! The core's reasons in plain words, with people's names: said here, once, for every driver.
//!
//! Whatever the core does, it can say why. Its values are typed, for programs; the texts are for people.
//! Times are spans from now: nobody knows the clock of a scheduler.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use loxley_model::{AgentId, Failure, Resources, SkillId, TaskId, Time};
use loxley_policy::{
    Explanation, Obstacle, Place, Problem, ProblemKind, Reason, Remedy, Scheduler, Severity,
};

use crate::Directory;

/// Who knows what things are called.
pub trait Vocabulary {
    /// The names of agents, skills, groups and users.
    fn directory(&self) -> &Directory;
    /// The name of a task, if it has one of its own.
    fn task_name(&self, task: TaskId) -> Option<Arc<str>>;
    /// Whether those who read this are at a server: then a remedy names the command that does it.
    fn has_commands(&self) -> bool {
        false
    }
}

/// The names of a directory, for people with the `loxley` command.
#[derive(Clone, Copy, Debug)]
pub struct AtServer<'a>(pub &'a Directory);

impl Vocabulary for AtServer<'_> {
    fn directory(&self) -> &Directory {
        self.0
    }

    fn task_name(&self, _: TaskId) -> Option<Arc<str>> {
        None
    }

    fn has_commands(&self) -> bool {
        true
    }
}

impl Vocabulary for Directory {
    fn directory(&self) -> &Directory {
        self
    }

    fn task_name(&self, _: TaskId) -> Option<Arc<str>> {
        None
    }
}

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
        from: Arc<str>,
    },
    /// A rebalancing pass moved the task from this agent.
    Rebalanced {
        /// Who had it.
        from: Arc<str>,
    },
    /// The task was stuck behind a slow one on this agent.
    BehindStraggler {
        /// Who had it.
        from: Arc<str>,
    },
    /// A second copy, because this agent is slow with the first.
    Speculation {
        /// Who is slow.
        slow: Arc<str>,
    },
    /// One task, to see whether the agent can do this skill again.
    Probe {
        /// The skill.
        skill: Arc<str>,
    },
    /// It was idle, and the task waited only for its user's share.
    SpareCapacity,
    /// Work like this was forecast, and its room was kept.
    KeptFree,
    /// The room of this agent is kept for work that is due.
    MadeRoom {
        /// Who had it.
        from: Arc<str>,
    },
}

impl Why {
    /// A reason of the core, with names.
    #[must_use]
    pub fn new(reason: Reason, directory: &Directory) -> Self {
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
            Reason::KeptFree => Self::KeptFree,
            Reason::MadeRoom(from) => Self::MadeRoom { from: agent(from) },
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Score(score) => write!(f, "it had the highest score, {score:.3}"),
            Self::EarliestFinish(_) => f.write_str("it was expected to finish first there"),
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
            Self::KeptFree => f.write_str(
                "a forecast said that such work was due, and this agent was kept for it",
            ),
            Self::MadeRoom { from } => write!(
                f,
                "a forecast says that work is due which `{from}` is kept for, so it moved away from there"
            ),
        }
    }
}

/// An explanation of the core in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplanationText {
    /// Where the task is and why, in one sentence without its subject.
    pub place: String,
    /// Why it does not run now; empty when it does.
    pub obstacles: Vec<String>,
    /// What would make it run, or run sooner.
    pub remedies: Vec<String>,
}

/// Says why a task is where it is, why it does not run, and what would make it run.
pub fn explain(
    explanation: &mut Explanation,
    now: Time,
    scheduler: &Scheduler,
    words: &impl Vocabulary,
) -> ExplanationText {
    // The core knows the time of its last fact; by now it may be later.
    if let (Place::Running { running_for, .. }, Some(started)) =
        (&mut explanation.status.place, explanation.status.started)
    {
        *running_for = now.since(started);
    }
    let speaker = Speaker {
        scheduler,
        words,
        now,
    };
    ExplanationText {
        place: match &explanation.earned[..] {
            [] => speaker.place(&explanation.status.place),
            earned => format!(
                "{}; that agent did not declare {}, but earned it",
                speaker.place(&explanation.status.place),
                speaker.skills(earned)
            ),
        },
        obstacles: explanation
            .obstacles
            .iter()
            .map(|obstacle| speaker.obstacle(obstacle))
            .collect(),
        remedies: explanation
            .remedies
            .iter()
            .map(|remedy| speaker.remedy(remedy, explanation.status.task))
            .collect(),
    }
}

/// What is wrong with the fleet, in words, with the figures.
pub fn problem_message(problem: &Problem, words: &impl Vocabulary) -> String {
    let task_name = |task| words.task_name(task);
    words.directory().with_names(&problem.message, task_name)
}

/// What to do about it; for people at a server each with the command that does it.
pub fn problem_remedies(problem: &Problem, words: &impl Vocabulary) -> Vec<String> {
    let commands: &[&str] = match problem.kind {
        _ if !words.has_commands() => &[],
        ProblemKind::NoAgents => &["`loxley agent start`"],
        ProblemKind::AllAgentsBusy => &["`loxley agent start`", "`loxley agent start --slots N`"],
        ProblemKind::LowStealSuccess => &[
            "`loxley agent start --skills NAMES`",
            "`preserve_high_priority: false` in the configuration, then `loxley config reload FILE`",
            "then `loxley config reload FILE`",
        ],
        ProblemKind::HighQueueVariance => &[
            "in the configuration, then `loxley config reload FILE`",
            "in the configuration, then `loxley config reload FILE`",
            "`loxley agent start --skills NAMES`",
        ],
        ProblemKind::UnassignableTasks => &[
            "`loxley task explain all`, then `loxley agent start --skills NAMES`",
            "`loxley job cancel N`, then submit it with less",
        ],
        ProblemKind::AgentsSuspected => &["`loxley agent list`"],
        ProblemKind::SkillsSuspended => &["`loxley agent list`, `loxley agent info N`"],
        ProblemKind::DeadLetters => &["`loxley job list --state failed`, `loxley job retry N`"],
        ProblemKind::DeadlinesMissed => &[
            "`loxley agent start`",
            "`loxley submit --priority high`",
            "`loxley submit --deadline TIME`",
        ],
        ProblemKind::Convoy => &[
            "`loxley submit --limit GROUP=N -- true`",
            "`loxley submit --group NAME`",
        ],
        ProblemKind::OverPartitioning => {
            &["`loxley submit --array 1-1000:100`, with a command that does a hundred"]
        }
        ProblemKind::HotSpot => &["`loxley agent start --holds NAME`"],
    };
    let remedies = problem.remedies.iter().enumerate();
    remedies
        .map(|(index, remedy)| match commands.get(index) {
            Some(command) => format!("{remedy}: {command}"),
            None => (*remedy).to_string(),
        })
        .collect()
}

/// How bad a problem is, as a word.
#[must_use]
pub fn severity_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

/// What is wrong, as a word for programs.
#[must_use]
pub fn problem_word(kind: ProblemKind) -> &'static str {
    match kind {
        ProblemKind::NoAgents => "no_agents",
        ProblemKind::AllAgentsBusy => "all_agents_busy",
        ProblemKind::LowStealSuccess => "low_steal_success",
        ProblemKind::HighQueueVariance => "high_queue_variance",
        ProblemKind::UnassignableTasks => "unassignable_tasks",
        ProblemKind::AgentsSuspected => "agents_suspected",
        ProblemKind::SkillsSuspended => "skills_suspended",
        ProblemKind::DeadLetters => "dead_letters",
        ProblemKind::DeadlinesMissed => "deadlines_missed",
        ProblemKind::Convoy => "convoy",
        ProblemKind::OverPartitioning => "over_partitioning",
        ProblemKind::HotSpot => "hot_spot",
    }
}

/// Why a task ended without success, as a word for programs.
#[must_use]
pub fn failure_word(failure: Failure) -> &'static str {
    match failure {
        Failure::Error => "error",
        Failure::Permanent => "permanent",
        Failure::TimeLimit => "time_limit",
        Failure::AgentLost => "agent_lost",
        Failure::Unassignable => "unassignable",
        Failure::Dependency => "dependency",
    }
}

/// Why a task ended without success, for people.
#[must_use]
pub fn failure_text(failure: Failure) -> &'static str {
    match failure {
        Failure::Error => "it failed",
        Failure::Permanent => "it failed for good",
        Failure::TimeLimit => "it ran longer than its time limit",
        Failure::AgentLost => "its agent was lost",
        Failure::Unassignable => "no agent could do it in time",
        Failure::Dependency => "a task it depends on did not succeed",
    }
}

/// How far away a moment is.
fn until(time: Time, now: Time) -> String {
    if time == Time::MAX {
        return "never".into();
    }
    format!("in {}", time.since(now))
}

/// Puts the core's values into words.
struct Speaker<'a, W> {
    scheduler: &'a Scheduler,
    words: &'a W,
    now: Time,
}

impl<W: Vocabulary> Speaker<'_, W> {
    fn agent(&self, id: AgentId) -> String {
        format!("`{}`", self.words.directory().agent_name(id))
    }

    fn has_free_slot(&self, id: AgentId) -> bool {
        let status = self.scheduler.agent_status(id);
        status.is_some_and(|status| status.running.len() < status.slots as usize)
    }

    fn task(&self, id: TaskId) -> String {
        match self.words.task_name(id) {
            Some(name) => format!("`{name}`"),
            None => format!("task {}", id.0),
        }
    }

    fn tasks(&self, first: &[TaskId], count: usize) -> String {
        let mut words: Vec<String> = first.iter().map(|id| self.task(*id)).collect();
        if count > first.len() {
            words.push(format!("{} more", count - first.len()));
        }
        enumerate(&words)
    }

    fn skills(&self, skills: &[SkillId]) -> String {
        let directory = self.words.directory();
        let words: Vec<String> = skills
            .iter()
            .map(|id| format!("`{}`", directory.skill_name(*id)))
            .collect();
        enumerate(&words)
    }

    fn why(&self, reason: Reason) -> Why {
        Why::new(reason, self.words.directory())
    }

    fn place(&self, place: &Place) -> String {
        match place {
            Place::Dependencies { first, count } => {
                format!("waits for {}", self.tasks(first, *count as usize))
            }
            Place::Backoff { until: at } => format!("is tried again {}", until(*at, self.now)),
            Place::Standby { for_task } => {
                let task = self.task(*for_task);
                format!("stands by, in case {task} runs out of time")
            }
            Place::Delegated { to } => {
                let task = self.task(*to);
                format!("ran out of time; its fallback {task} runs in its stead")
            }
            Place::GroupLimit { running, limit } => {
                format!("waits for its group: {running} of at most {limit} are running")
            }
            Place::UserShare { running, share } => format!(
                "waits for its user's share: {running} of {share} slots are in use while others wait"
            ),
            Place::Held => "is held: no agent can do it".into(),
            Place::Away => "is with another shard, which has an agent for it".into(),
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
                format!("it failed and is tried again {}", until(*time, self.now))
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
            Obstacle::BehindOthers { agent, ahead } => {
                let tasks = match ahead {
                    1 => "1 task comes".to_string(),
                    many => format!("{many} tasks come"),
                };
                let agent = self.agent(*agent);
                format!("{tasks} before it on the queue of {agent}")
            }
            Obstacle::AgentBusy(agent) if self.has_free_slot(*agent) => {
                format!("{} has not asked for its next task", self.agent(*agent))
            }
            Obstacle::FasterAgent(agent) => format!(
                "{} is so much faster than those that are idle that it will end the task sooner",
                self.agent(*agent)
            ),
            Obstacle::RoomKept { agent, due } => format!(
                "{} is idle, but a forecast says that work is due {} which its room is kept for",
                self.agent(*agent),
                match *due > self.now {
                    true => until(*due, self.now),
                    false => "now".into(),
                }
            ),
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

    /// What would help, and at a server the command that does it.
    fn remedy(&self, remedy: &Remedy, task: TaskId) -> String {
        let words = self.remedy_words(remedy);
        match self
            .words
            .has_commands()
            .then(|| self.command(remedy, task))
        {
            Some(command) => format!("{words}: {command}"),
            None => words,
        }
    }

    fn remedy_words(&self, remedy: &Remedy) -> String {
        match remedy {
            Remedy::AddAgentWith(skills) if skills.is_empty() => "register an agent".into(),
            Remedy::AddAgentWith(skills) => {
                format!("register an agent with {}", self.skills(skills))
            }
            Remedy::AddLargerAgent(..) => "register an agent with more room".into(),
            Remedy::AddAgents => "register more agents".into(),
            Remedy::RaiseGroupLimit(..) => "raise the limit of its group".into(),
            Remedy::RaiseUserWeight(..) => "raise the weight of its user".into(),
            Remedy::FinishDependencies(tasks) => format!(
                "let {} finish, or look into those that fail",
                self.tasks(tasks, tasks.len())
            ),
            Remedy::RaisePriority => "raise its priority".into(),
            Remedy::AllowStealing => {
                "allow stealing: strategy `pull` or `hybrid`, `steal_below_busy: true`".into()
            }
            Remedy::Wait(Some(time)) => format!("wait: it goes on {}", until(*time, self.now)),
            Remedy::Wait(None) => "wait".into(),
        }
    }

    /// The command that does it.
    fn command(&self, remedy: &Remedy, task: TaskId) -> String {
        let task = task.0;
        match remedy {
            Remedy::AddAgentWith(skills) => {
                format!("`loxley agent start{}`", self.skills_option(skills))
            }
            Remedy::AddLargerAgent(skills, needs) => format!(
                "`loxley agent start{}{}`",
                self.skills_option(skills),
                self.room_options(needs)
            ),
            Remedy::AddAgents => "`loxley agent start`".into(),
            Remedy::RaiseGroupLimit(group, limit) => {
                let group = self.words.directory().group_name(*group);
                format!("`loxley submit --limit {group}={} -- true`", limit + 1)
            }
            Remedy::RaiseUserWeight(user, weight) => {
                let user = self.words.directory().user_name(*user);
                let more = weight.saturating_mul(2);
                format!("`loxley user weight {user} {more}` (an admin may)")
            }
            Remedy::FinishDependencies(tasks) => {
                let ids: Vec<String> = tasks.iter().map(|task| task.0.to_string()).collect();
                format!("`loxley task explain {}`", ids.join(","))
            }
            Remedy::RaisePriority => {
                format!("`loxley task cancel {task}`, then submit it again with `--priority high`")
            }
            Remedy::AllowStealing => {
                "write both into the configuration, then `loxley config reload FILE`".into()
            }
            Remedy::Wait(_) => format!("`loxley task wait {task}`"),
        }
    }

    /// ` --skills a,b`.
    fn skills_option(&self, skills: &[SkillId]) -> String {
        let directory = self.words.directory();
        let names: Vec<Arc<str>> = skills.iter().map(|id| directory.skill_name(*id)).collect();
        match names.is_empty() {
            true => String::new(),
            false => format!(" --skills {}", names.join(",")),
        }
    }

    /// ` --cpus 4 --memory 512M`.
    fn room_options(&self, needs: &Resources) -> String {
        let mut options = String::new();
        if needs.cpu_milli > 0 {
            options += &format!(" --cpus {}", needs.cpu_milli as f64 / 1000.0);
        }
        if needs.memory_bytes > 0 {
            options += &format!(" --memory {}M", needs.memory_bytes.div_ceil(1 << 20));
        }
        for (id, amount) in &needs.named {
            let name = self.words.directory().resource_name(*id);
            options += &format!(" --resource {name}={amount}");
        }
        options
    }
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

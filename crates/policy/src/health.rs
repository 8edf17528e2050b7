//! What is wrong with the fleet, and what to do about it.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use loxley_model::{DataKey, TaskId};

use crate::Scheduler;
use crate::agents::Breaker;
use crate::refs::KindRef;
use crate::tasks::State;
use crate::view::{Liveness, Metrics, Problem, ProblemKind, Severity};

/// So many attempts must have been made before their success is judged.
const STEALS_TO_JUDGE: u64 = 20;
/// So many tasks must wait before it is said what draws them, or what they wait behind.
const QUEUED_TO_JUDGE: u64 = 20;
/// So many tasks of a kind must have ended before they are called short.
const ENDED_TO_JUDGE: u64 = 100;

impl Scheduler {
    /// Everything that is wrong, the worst first.
    #[must_use]
    pub fn health(&self) -> Vec<Problem> {
        let metrics = self.metrics();
        let found = [
            self.no_agents(&metrics),
            self.unassignable(),
            self.all_busy(&metrics),
            self.low_steal_success(&metrics),
            self.high_queue_variance(),
            self.convoy(),
            self.over_partitioning(),
            self.hot_spot(),
            self.suspected(),
            self.suspended_skills(),
            self.dead_lettered(),
            missed_deadlines(&metrics),
        ];
        let mut problems: Vec<Problem> = found.into_iter().flatten().collect();
        problems.sort_by_key(|problem| core::cmp::Reverse(problem.severity));
        problems
    }

    /// One of each class of tasks that no agent can do, the most urgent of its class.
    #[must_use]
    pub fn held_tasks(&self) -> Vec<TaskId> {
        let capabilities = &self.derived.capabilities;
        let classes = capabilities.held_classes().into_iter();
        let first = classes.filter_map(|class| capabilities.held(class).next());
        first.map(|task| self.facts.tasks[task].id).collect()
    }

    fn no_agents(&self, metrics: &Metrics) -> Option<Problem> {
        let waiting = self.counts().live();
        (metrics.agent_count == 0 && waiting > 0).then(|| Problem {
            severity: Severity::Critical,
            kind: ProblemKind::NoAgents,
            message: format!("{waiting} tasks and no agent"),
            remedies: ["register an agent"].into(),
        })
    }

    fn all_busy(&self, metrics: &Metrics) -> Option<Problem> {
        let all = metrics.agent_count;
        let many = metrics.total_queued as u64 > u64::from(self.facts.config.health.queued_max);
        (all > 0 && metrics.idle_agents == 0 && many).then(|| Problem {
            severity: Severity::Critical,
            kind: ProblemKind::AllAgentsBusy,
            message: format!(
                "none of {all} agents is idle, and {} tasks are queued",
                metrics.total_queued
            ),
            remedies: ["add agents", "give agents more slots"].into(),
        })
    }

    fn low_steal_success(&self, metrics: &Metrics) -> Option<Problem> {
        let (tried, rate) = (metrics.total_steals, metrics.success_rate);
        (tried >= STEALS_TO_JUDGE && rate < self.facts.config.health.steal_success_min).then(|| Problem {
            severity: Severity::Warning,
            kind: ProblemKind::LowStealSuccess,
            message: format!("only {:.0} % of {tried} steals succeeded", 100.0 * rate),
            remedies: [
                "capability mismatch: give idle agents the skills that queued tasks need",
                "too many high-priority tasks: they are not stolen while preserve_high_priority is on",
                "busy_threshold too low: raise it so that only longer queues are robbed",
            ]
            .into(),
        })
    }

    fn high_queue_variance(&self) -> Option<Problem> {
        let lengths: Vec<f64> = self.queue_lengths().map(|(_, len)| len.into()).collect();
        let count = lengths.len() as f64;
        let mean = lengths.iter().sum::<f64>() / count.max(1.0);
        let variance = lengths
            .iter()
            .map(|len| (len - mean) * (len - mean))
            .sum::<f64>()
            / count.max(1.0);
        let limit = self.facts.config.health.queue_variance_max;
        (lengths.len() > 1 && variance > limit).then(|| Problem {
            severity: Severity::Warning,
            kind: ProblemKind::HighQueueVariance,
            message: format!("queue lengths vary widely: mean {mean:.1}, variance {variance:.1}"),
            remedies: [
                "shorten rebalance_interval_sec",
                "raise max_steal_per_cycle",
                "broaden the capabilities of idle agents",
            ]
            .into(),
        })
    }

    /// A group that is at its limit, with a queue behind it: the longest of these.
    fn convoy(&self) -> Option<Problem> {
        let full = |group, running| {
            let limit = self.facts.limits.limit(group)?;
            (running >= limit).then_some(limit)
        };
        let groups = self.derived.loads.groups();
        let convoys = groups.filter_map(|(group, running, queued)| {
            let limit = full(group, running)?;
            (queued >= QUEUED_TO_JUDGE.max(u64::from(limit))).then_some((queued, group, limit))
        });
        let (queued, group, limit) = convoys.max_by_key(|(queued, ..)| *queued)?;
        Some(Problem {
            severity: Severity::Warning,
            kind: ProblemKind::Convoy,
            message: format!("{queued} tasks wait behind {group}, which is at its limit of {limit}"),
            remedies: [
                "raise the limit of the group, if what it stands for bears more",
                "split the group: tasks that do not share what it stands for need not share its limit",
            ]
            .into(),
        })
    }

    /// A kind of work of which many wait, each shorter than it takes to hand it out.
    fn over_partitioning(&self) -> Option<Problem> {
        let mut waiting: BTreeMap<KindRef, u64> = BTreeMap::new();
        for (_, task) in self.facts.tasks.iter() {
            if task.state == State::Queued {
                *waiting.entry(task.kind).or_default() += 1;
            }
        }
        let short = self.facts.config.health.short_task;
        let found = waiting.into_iter().filter_map(|(kind, waiting)| {
            let durations = &self.facts.classes.kind_at(kind).durations;
            let median = durations.median().filter(|median| *median < short)?;
            let judged = durations.count() >= ENDED_TO_JUDGE && waiting >= QUEUED_TO_JUDGE;
            judged.then_some((waiting, median))
        });
        let (waiting, median) = found.max()?;
        Some(Problem {
            severity: Severity::Warning,
            kind: ProblemKind::OverPartitioning,
            message: format!(
                "{waiting} tasks wait of a kind that takes {median}: handing one out costs as much"
            ),
            remedies: ["put many of them into one task"].into(),
        })
    }

    /// A piece of data that most tasks want to be near, or one queue that has most of them.
    fn hot_spot(&self) -> Option<Problem> {
        let queued = u64::from(self.derived.counts.queued as u32);
        let agents = self.derived.fleet.len();
        if queued < QUEUED_TO_JUDGE || agents < 2 {
            return None;
        }
        let many = self.facts.config.health.hot_spot_share * queued as f64;
        let mut of_data: BTreeMap<DataKey, u64> = BTreeMap::new();
        for (_, task) in self.facts.tasks.iter() {
            let near = task.extra.as_ref().and_then(|extra| extra.locality);
            if let Some(near) = near.filter(|_| task.state == State::Queued) {
                *of_data.entry(near.key).or_default() += 1;
            }
        }
        let data = of_data.into_iter().max_by_key(|(_, count)| *count);
        let data = data.filter(|(_, count)| *count as f64 > many);
        // Of two queues one always has half.
        let longest = self.queue_lengths().max_by_key(|(_, length)| *length);
        let longest = longest.filter(|(_, length)| agents > 2 && f64::from(*length) > many);
        let (message, remedies): (_, Vec<&'static str>) = match (data, longest) {
            (Some((_, count)), _) => (
                format!("{count} of {queued} queued tasks want to be near the same data"),
                [
                    "let more agents hold that data",
                    "split the data into several pieces",
                ]
                .into(),
            ),
            (None, Some((agent, count))) => (
                format!("{count} of {queued} queued tasks are on the queue of {agent}"),
                ["give its skills to other agents, so that they can take from it"].into(),
            ),
            (None, None) => return None,
        };
        Some(Problem {
            severity: Severity::Warning,
            kind: ProblemKind::HotSpot,
            message,
            remedies,
        })
    }

    fn unassignable(&self) -> Option<Problem> {
        let held = self.derived.counts.held;
        (held > 0 && self.derived.fleet.len() > 0).then(|| Problem {
            severity: Severity::Critical,
            kind: ProblemKind::UnassignableTasks,
            message: match held {
                1 => "1 task waits for an agent that can do it".into(),
                _ => format!("{held} tasks wait for an agent that can do them"),
            },
            remedies: [
                "register an agent with the skills and resources they need (explain names them)",
                "relax what the tasks require",
            ]
            .into(),
        })
    }

    fn suspected(&self) -> Option<Problem> {
        let silent = self
            .facts
            .agents
            .iter()
            .filter(|(_, a)| a.liveness == Liveness::Suspected)
            .count();
        (silent > 0).then(|| Problem {
            severity: Severity::Warning,
            kind: ProblemKind::AgentsSuspected,
            message: match silent {
                1 => "1 agent is silent".into(),
                _ => format!("{silent} agents are silent"),
            },
            remedies: ["look at the agents and the network to them"].into(),
        })
    }

    fn suspended_skills(&self) -> Option<Problem> {
        let records = self
            .facts
            .agents
            .iter()
            .flat_map(|(_, agent)| &agent.record.skills);
        let suspended = records
            .filter(|record| record.breaker != Breaker::Closed)
            .count();
        (suspended > 0).then(|| Problem {
            severity: Severity::Warning,
            kind: ProblemKind::SkillsSuspended,
            message: format!(
                "{suspended} skills are suspended because their agents kept failing them"
            ),
            remedies: ["look at what fails on those agents; they are tried again by themselves"]
                .into(),
        })
    }

    fn dead_lettered(&self) -> Option<Problem> {
        let dead = self.facts.dead.len();
        (dead > 0).then(|| Problem {
            severity: Severity::Warning,
            kind: ProblemKind::DeadLetters,
            message: match dead {
                1 => "1 task failed for good".into(),
                _ => format!("{dead} tasks failed for good"),
            },
            remedies: ["mend the cause, then resubmit the dead letters"].into(),
        })
    }
}

fn missed_deadlines(metrics: &Metrics) -> Option<Problem> {
    let missed = metrics.deadline_misses;
    (missed > 0).then(|| Problem {
        severity: Severity::Warning,
        kind: ProblemKind::DeadlinesMissed,
        message: format!("{missed} deadlines were missed"),
        remedies: [
            "add agents",
            "raise the priority of tasks with deadlines",
            "submit them earlier",
        ]
        .into(),
    })
}

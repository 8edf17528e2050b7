//! What is wrong with the fleet, and what to do about it.

use alloc::format;
use alloc::vec::Vec;

use crate::Scheduler;
use crate::agents::Breaker;
use crate::view::{Liveness, Metrics, Problem, ProblemKind, Severity};

/// Below this share of successful steals, something keeps thieves away.
const LOW_STEAL_SUCCESS: f64 = 0.5;
/// So many attempts must have been made before their success is judged.
const STEALS_TO_JUDGE: u64 = 20;

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
            self.suspected(),
            self.suspended_skills(),
            self.dead_lettered(),
            missed_deadlines(&metrics),
        ];
        let mut problems: Vec<Problem> = found.into_iter().flatten().collect();
        problems.sort_by_key(|problem| core::cmp::Reverse(problem.severity));
        problems
    }

    fn no_agents(&self, metrics: &Metrics) -> Option<Problem> {
        let waiting = self.counts.live();
        (metrics.agent_count == 0 && waiting > 0).then(|| Problem {
            severity: Severity::Critical,
            kind: ProblemKind::NoAgents,
            message: format!("{waiting} tasks and no agent"),
            remedies: ["register an agent"].into(),
        })
    }

    fn all_busy(&self, metrics: &Metrics) -> Option<Problem> {
        let all = metrics.agent_count;
        (all > 0 && metrics.busy_agents == all).then(|| Problem {
            severity: Severity::Critical,
            kind: ProblemKind::AllAgentsBusy,
            message: format!(
                "all {all} agents are busy: {} tasks are queued",
                metrics.total_queued
            ),
            remedies: ["add agents", "give agents more slots"].into(),
        })
    }

    fn low_steal_success(&self, metrics: &Metrics) -> Option<Problem> {
        let (tried, rate) = (metrics.total_steals, metrics.success_rate);
        (tried >= STEALS_TO_JUDGE && rate < LOW_STEAL_SUCCESS).then(|| Problem {
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
        let lengths: Vec<f64> = self
            .agents
            .iter()
            .map(|(_, a)| f64::from(a.queue.len()))
            .collect();
        let count = lengths.len() as f64;
        let mean = lengths.iter().sum::<f64>() / count.max(1.0);
        let variance = lengths
            .iter()
            .map(|len| (len - mean) * (len - mean))
            .sum::<f64>()
            / count.max(1.0);
        // A standard deviation above the mean, and above what counts as busy.
        let busy = f64::from(self.config.thresholds.busy_threshold);
        (lengths.len() > 1 && variance > mean * mean && variance > busy * busy).then(|| Problem {
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

    fn unassignable(&self) -> Option<Problem> {
        let held = self.counts.held;
        (held > 0 && self.agents.len() > 0).then(|| Problem {
            severity: Severity::Critical,
            kind: ProblemKind::UnassignableTasks,
            message: format!("{held} tasks wait for an agent that can do them"),
            remedies: [
                "register an agent with the skills and resources they need (explain names them)",
                "relax what the tasks require",
            ]
            .into(),
        })
    }

    fn suspected(&self) -> Option<Problem> {
        let silent = self
            .agents
            .iter()
            .filter(|(_, a)| a.liveness == Liveness::Suspected)
            .count();
        (silent > 0).then(|| Problem {
            severity: Severity::Warning,
            kind: ProblemKind::AgentsSuspected,
            message: format!("{silent} agents are silent"),
            remedies: ["look at the agents and the network to them"].into(),
        })
    }

    fn suspended_skills(&self) -> Option<Problem> {
        let records = self
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
        let dead = self.dead.len();
        (dead > 0).then(|| Problem {
            severity: Severity::Warning,
            kind: ProblemKind::DeadLetters,
            message: format!("{dead} tasks failed for good"),
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

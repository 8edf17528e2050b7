//! What the clock brings: ticks of the scheduler, samples, tasks that run far longer than others.

use std::time::{Duration, Instant};

use super::Runner;
use loxley_exec::{LocalAgent, Urgency};
use loxley_model::AgentId;

/// How often queue lengths are looked at.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);

/// So many tasks must have ended before their median counts.
const MEDIAN_FROM: u64 = 3;

impl Runner {
    /// Does what is due.
    pub(super) fn look_at_the_clock(&mut self) {
        let now = Instant::now();
        self.engine.tick_if_due(self.time(now));
        if self.next_overdue().is_some_and(|at| at <= now) {
            self.kill_overdue(now);
        }
        if now - self.sampled >= SAMPLE_EVERY {
            self.sampled = now;
            let scheduler = self.engine.scheduler();
            let depth = |(index, agent): (usize, &LocalAgent)| {
                let queued = scheduler.agent_status(AgentId(index as u64 + 1));
                agent.desk().waiting() + queued.map_or(0, |status| status.queue_length)
            };
            self.summary
                .depths
                .sample(self.agents.iter().enumerate().map(depth));
        }
    }

    /// How long a task may run, where that depends on the others.
    fn limit(&self) -> Option<Duration> {
        let ratio = self.median_limit?;
        let durations = &self.summary.durations;
        let median = durations
            .median()
            .filter(|_| durations.count() >= MEDIAN_FROM)?;
        Some(Duration::from_nanos((median as f64 * ratio) as u64))
    }

    /// When a task will have run too long, where that depends on the others.
    pub(super) fn next_overdue(&self) -> Option<Instant> {
        let limit = self.limit()?;
        let first = self
            .running
            .iter()
            .filter(|(lease, _)| !self.overdue.contains(lease))
            .map(|(_, running)| running.since)
            .min()?;
        first.checked_add(limit)
    }

    fn kill_overdue(&mut self, now: Instant) {
        let Some(limit) = self.limit() else { return };
        for (lease, running) in &self.running {
            if now - running.since >= limit && self.overdue.insert(*lease) {
                let desk = self.agents[running.agent].desk();
                desk.stop(*lease, Urgency::Gentle);
            }
        }
    }
}

//! Counting what happens. Nothing here decides anything.

use alloc::vec::Vec;

use loxley_model::{AgentId, Span};

use crate::Scheduler;
use crate::config::MetricsRules;
use crate::view::{AgentStatus, Counts, Metrics, UtilizationSample};

#[derive(Debug)]
pub(crate) struct Tallies {
    pub(crate) successful_steals: u64,
    pub(crate) failed_steals: u64,
    pub(crate) tasks_migrated: u64,
    pub(crate) rebalance_cycles: u64,
    pub(crate) waits: u64,
    pub(crate) waited: Span,
    /// One for each bucket, and one for what is longer than all of them.
    pub(crate) histogram: Vec<u64>,
    /// The bounds of the buckets, each as the longest wait that is within it.
    pub(crate) bounds: Vec<Span>,
    pub(crate) samples: u64,
    pub(crate) deadline_misses: u64,
    pub(crate) retries: u64,
    pub(crate) speculations: u64,
    pub(crate) speculations_won: u64,
    pub(crate) stale_answers: u64,
    pub(crate) rules: MetricsRules,
}

impl Tallies {
    pub(crate) fn new(rules: &MetricsRules) -> Self {
        let bounds = bounds_of(rules);
        Self {
            successful_steals: 0,
            failed_steals: 0,
            tasks_migrated: 0,
            rebalance_cycles: 0,
            waits: 0,
            waited: Span::ZERO,
            histogram: alloc::vec![0; bounds.len() + 1],
            bounds,
            samples: 0,
            deadline_misses: 0,
            retries: 0,
            speculations: 0,
            speculations_won: 0,
            stale_answers: 0,
            rules: rules.clone(),
        }
    }

    /// New rules. The histogram starts anew when its buckets changed.
    pub(crate) fn change_rules(&mut self, rules: &MetricsRules) {
        if self.rules.histogram_buckets != rules.histogram_buckets {
            self.bounds = bounds_of(rules);
            self.histogram = alloc::vec![0; self.bounds.len() + 1];
        }
        self.rules = rules.clone();
    }

    pub(crate) fn steal_succeeded(&mut self) {
        self.successful_steals += 1;
    }

    pub(crate) fn steal_failed(&mut self) {
        self.failed_steals += 1;
    }

    pub(crate) fn task_moved(&mut self) {
        self.tasks_migrated += u64::from(self.rules.track_migrations);
    }

    pub(crate) fn task_waited(&mut self, wait: Span) {
        if !self.rules.track_wait_times {
            return;
        }
        self.waits += 1;
        self.waited += wait;
        let within = self.bounds.iter().position(|bound| wait <= *bound);
        self.histogram[within.unwrap_or(self.bounds.len())] += 1;
    }

    fn wait_histogram(&self) -> Vec<(f64, u64)> {
        let bounds = self
            .rules
            .histogram_buckets
            .iter()
            .copied()
            .chain([f64::INFINITY]);
        let mut total = 0;
        let counts = self.histogram.iter().map(|count| {
            total += count;
            total
        });
        bounds.zip(counts).collect()
    }
}

/// The longest wait within each bucket: then counting one compares whole numbers.
pub(crate) fn bounds_of(rules: &MetricsRules) -> Vec<Span> {
    let longest = |secs: &f64| {
        // Rounding may have gone either way.
        let near = Span((secs * 1e9) as u64);
        let candidates = [near + Span(1), near];
        let within = candidates
            .into_iter()
            .find(|span| span.as_secs_f64() <= *secs);
        within.unwrap_or(near.saturating_sub(Span(1)))
    };
    rules.histogram_buckets.iter().map(longest).collect()
}

impl Scheduler {
    /// All figures.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let t = &self.tallies;
        let total_steals = t.successful_steals + t.failed_steals;
        let thresholds = &self.config.thresholds;
        let lengths = || self.agents.iter().map(|(_, agent)| agent.queue.len());
        let ratio = |part: f64, whole: u64| if whole == 0 { 0.0 } else { part / whole as f64 };
        Metrics {
            total_steals,
            successful_steals: t.successful_steals,
            failed_steals: t.failed_steals,
            success_rate: ratio(t.successful_steals as f64, total_steals),
            tasks_migrated: t.tasks_migrated,
            rebalance_cycles: t.rebalance_cycles,
            avg_task_wait_time: ratio(t.waited.as_secs_f64(), t.waits),
            agent_count: self.agents.len(),
            total_queued: self.counts.queued as usize,
            busy_agents: lengths()
                .filter(|len| *len > thresholds.busy_threshold)
                .count(),
            idle_agents: lengths()
                .filter(|len| *len < thresholds.idle_threshold)
                .count(),
            total_samples: t.samples,
            wait_histogram: t.wait_histogram(),
            deadline_misses: t.deadline_misses,
            retries: t.retries,
            speculations: t.speculations,
            speculations_won: t.speculations_won,
            stale_answers: t.stale_answers,
            counts: self.counts,
        }
    }

    /// Where all tasks are.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The state of one agent.
    #[must_use]
    pub fn agent_status(&self, id: AgentId) -> Option<AgentStatus> {
        let agent = &self.agents[self.agents.find(id)?];
        let skills = agent.skills.iter();
        Some(AgentStatus {
            agent: id,
            incarnation: agent.incarnation,
            queue_length: agent.queue.len() as usize,
            capabilities: agent.effective_skills(),
            suspended: skills
                .filter(|skill| agent.record.is_suspended(*skill))
                .collect(),
            success_rate: agent.record.success_rate(),
            total_completed: agent.record.completed,
            total_failed: agent.record.failed,
            has_current_task: !agent.in_hand.is_empty(),
            running: agent
                .in_hand
                .iter()
                .map(|held| self.tasks[held.task].id)
                .collect(),
            slots: agent.slots,
            liveness: agent.liveness,
            speed: agent.record.speed,
        })
    }

    /// The state of every agent, in the order of their ids.
    pub fn agent_statuses(&self) -> impl Iterator<Item = AgentStatus> {
        self.agents.ids().filter_map(|id| self.agent_status(id))
    }

    /// How many tasks are on an agent's queue.
    #[must_use]
    pub fn queue_len(&self, id: AgentId) -> Option<usize> {
        Some(self.agents[self.agents.find(id)?].queue.len() as usize)
    }

    /// The tasks on an agent's queue, in the order in which it would run them.
    #[must_use]
    pub fn queue_of(&self, id: AgentId) -> Option<Vec<loxley_model::TaskId>> {
        let agent = &self.agents[self.agents.find(id)?];
        Some(
            agent
                .queue
                .in_order(&self.tasks)
                .into_iter()
                .map(|task| self.tasks[task].id)
                .collect(),
        )
    }

    /// Queue lengths over time, the oldest first. Bounded: old samples make room for new ones.
    pub fn utilization_samples(&self) -> impl ExactSizeIterator<Item = &UtilizationSample> {
        self.samples.iter()
    }

    pub(crate) fn sample_utilization(&mut self) {
        /// So many queue lengths are kept in all.
        const LENGTHS_MAX: usize = 1 << 20;
        if !self.config.metrics.track_utilization {
            return;
        }
        let lengths = self
            .agents
            .iter()
            .map(|(_, agent)| (agent.id, agent.queue.len()));
        let sample = UtilizationSample {
            timestamp: self.now,
            queue_lengths: lengths.collect(),
        };
        self.tallies.samples += 1;
        let samples_max = (LENGTHS_MAX / sample.queue_lengths.len().max(1)).clamp(2, 10_000);
        self.samples.push_back(sample);
        while self.samples.len() > samples_max {
            self.samples.pop_front();
        }
    }
}

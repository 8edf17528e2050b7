//! Counting what happens. Nothing here decides anything.

use alloc::vec::Vec;

use loxley_model::{AgentId, GroupId, Span, TaskId, Time};

use crate::config::MetricsRules;
use crate::refs::KindRef;
use crate::tasks::State;
use crate::view::{
    AgentLoad, AgentStatus, Counts, KindStatus, Metrics, UserStatus, UtilizationSample,
};
use crate::{Ending, Scheduler};

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

/// How many tasks came, and how those that are over ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Totals {
    pub(crate) submitted: u64,
    pub(crate) finished: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) returned: u64,
}

impl Totals {
    pub(crate) fn count(&mut self, ending: Ending) {
        match ending {
            Ending::Succeeded { .. } | Ending::FellBack { .. } => self.finished += 1,
            Ending::Failed(_) => self.failed += 1,
            Ending::Cancelled => self.cancelled += 1,
            Ending::Returned => self.returned += 1,
        }
    }

    /// How many are not over.
    pub(crate) fn live(&self) -> u64 {
        let over = self.finished + self.failed + self.cancelled + self.returned;
        self.submitted.saturating_sub(over)
    }
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
        let t = &self.facts.tallies;
        let total_steals = t.successful_steals + t.failed_steals;
        let thresholds = &self.facts.config.thresholds;
        let lengths = || self.queue_lengths().map(|(_, len)| len);
        let ratio = |part: f64, whole: u64| if whole == 0 { 0.0 } else { part / whole as f64 };
        Metrics {
            total_steals,
            successful_steals: t.successful_steals,
            failed_steals: t.failed_steals,
            success_rate: ratio(t.successful_steals as f64, total_steals),
            tasks_migrated: t.tasks_migrated,
            rebalance_cycles: t.rebalance_cycles,
            avg_task_wait_time: ratio(t.waited.as_secs_f64(), t.waits),
            agent_count: self.derived.fleet.len(),
            total_queued: self.derived.counts.queued as usize,
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
            counts: self.counts(),
        }
    }

    /// Where all tasks are.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let (totals, live) = (&self.facts.totals, &self.derived.counts);
        Counts {
            submitted: totals.submitted,
            waiting: live.waiting,
            queued: live.queued,
            running: live.running(),
            held: live.held,
            finished: totals.finished,
            failed: totals.failed,
            cancelled: totals.cancelled,
            returned: totals.returned,
        }
    }

    /// The queue length of every agent.
    pub(crate) fn queue_lengths(&self) -> impl Iterator<Item = (AgentId, u32)> {
        let agents = self.facts.agents.iter();
        agents.map(|(agent, this)| (this.id, self.derived.fleet.hand(agent).queue.len()))
    }

    /// How many agents are registered.
    #[must_use]
    pub fn agent_count(&self) -> usize {
        self.derived.fleet.len()
    }

    /// What every agent has to do.
    pub fn agent_loads(&self) -> impl Iterator<Item = AgentLoad> {
        self.facts.agents.iter().map(|(agent, this)| {
            let hand = self.derived.fleet.hand(agent);
            let in_hand = hand.in_hand().len() as u32;
            let running = in_hand.min(this.slots);
            AgentLoad {
                agent: this.id,
                slots: this.slots,
                running,
                waiting: hand.queue.len() + in_hand - running,
            }
        })
    }

    /// Everybody who ever submitted something or was given a weight.
    pub fn users(&self) -> impl Iterator<Item = UserStatus> {
        let slots = self.derived.fleet.total_slots;
        self.derived.loads.users(&self.facts.limits, slots)
    }

    /// The groups that have tasks: how many are under lease, and how many wait on queues.
    pub fn group_loads(&self) -> impl Iterator<Item = (GroupId, u32, u64)> {
        self.derived.loads.groups()
    }

    /// How many of a group may run at once, if that was ever set.
    #[must_use]
    pub fn group_limit(&self, group: GroupId) -> Option<u32> {
        self.facts.limits.limit(group)
    }

    /// Since when a task that an agent has not started could have been.
    #[must_use]
    pub fn ready_since(&self, id: TaskId) -> Option<Time> {
        let this = &self.facts.tasks[self.facts.ids.live(id)?];
        matches!(this.state, State::Queued | State::Leased).then_some(this.since)
    }

    /// The state of one agent.
    #[must_use]
    pub fn agent_status(&self, id: AgentId) -> Option<AgentStatus> {
        let place = self.derived.fleet.find(id)?;
        let (agent, hand) = (&self.facts.agents[place], self.derived.fleet.hand(place));
        let skills = agent.all_skills();
        Some(AgentStatus {
            agent: id,
            incarnation: agent.incarnation,
            queue_length: hand.queue.len() as usize,
            capabilities: agent.effective_skills(),
            suspended: skills
                .filter(|skill| agent.record.is_suspended(*skill))
                .collect(),
            earned: agent.added.earned.iter().collect(),
            success_rate: agent.record.success_rate(),
            total_completed: agent.record.completed,
            total_failed: agent.record.failed,
            has_current_task: !hand.in_hand().is_empty(),
            running: hand
                .in_hand()
                .iter()
                .map(|held| self.facts.tasks[held.task].id)
                .collect(),
            slots: agent.slots,
            liveness: agent.liveness,
            speed: agent.record.speed,
        })
    }

    /// The kinds of work at which an agent is known to do otherwise than at everything. Looks at all kinds.
    #[must_use]
    pub fn kinds_of(&self, agent: AgentId) -> Vec<KindStatus> {
        let Some(agent) = self.derived.fleet.find(agent) else {
            return Vec::new();
        };
        let record = &self.facts.agents[agent].record;
        let kinds = (0..self.facts.classes.kind_count()).map(KindRef::new);
        let kinds = kinds.filter_map(|kind| {
            let success = self.facts.success_at(kind, agent, record.success_rate())?;
            Some(KindStatus {
                work: self.facts.classes.kind_at(kind).spec.work,
                success_rate: success,
                speed: self.facts.speed_at(kind, agent).unwrap_or(record.speed),
            })
        });
        kinds.collect()
    }

    /// The state of every agent, in the order of their ids.
    pub fn agent_statuses(&self) -> impl Iterator<Item = AgentStatus> {
        self.derived
            .fleet
            .ids()
            .filter_map(|id| self.agent_status(id))
    }

    /// How many tasks are on an agent's queue.
    #[must_use]
    pub fn queue_len(&self, id: AgentId) -> Option<usize> {
        let agent = self.derived.fleet.find(id)?;
        Some(self.derived.fleet.hand(agent).queue.len() as usize)
    }

    /// The tasks on an agent's queue, in the order in which it would run them.
    #[must_use]
    pub fn queue_of(&self, id: AgentId) -> Option<Vec<TaskId>> {
        let hand = self.derived.fleet.hand(self.derived.fleet.find(id)?);
        let tasks = hand.queue.in_order(&self.facts.tasks).into_iter();
        Some(tasks.map(|task| self.facts.tasks[task].id).collect())
    }

    /// Queue lengths over time, the oldest first. Bounded: old samples make room for new ones.
    pub fn utilization_samples(&self) -> impl ExactSizeIterator<Item = &UtilizationSample> {
        self.samples.iter()
    }

    pub(crate) fn sample_utilization(&mut self) {
        /// So many queue lengths are kept in all.
        const LENGTHS_MAX: usize = 1 << 20;
        if !self.facts.config.metrics.track_utilization {
            return;
        }
        let sample = UtilizationSample {
            timestamp: self.facts.now,
            queue_lengths: self.queue_lengths().collect(),
        };
        self.facts.tallies.samples += 1;
        let samples_max = (LENGTHS_MAX / sample.queue_lengths.len().max(1)).clamp(2, 10_000);
        self.samples.push_back(sample);
        while self.samples.len() > samples_max {
            self.samples.pop_front();
        }
    }
}

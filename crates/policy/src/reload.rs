//! A new configuration takes effect on a running scheduler.

use alloc::vec::Vec;

use crate::refs::AgentRef;
use crate::timers::Alarm;
use crate::{Action, Config, Scheduler};

impl Scheduler {
    /// Puts a new configuration in force. No task is lost and none changes its place in the order.
    pub(crate) fn change_config(&mut self, config: Config, actions: &mut Vec<Action>) {
        let old = core::mem::replace(&mut self.config, config);
        let new = &self.config;
        self.tallies.change_rules(&new.metrics);
        if new.seed != old.seed {
            self.rng = loxley_balance::Rng::new(new.seed);
        }
        let rebalance = new.thresholds.rebalance_interval;
        if rebalance != old.thresholds.rebalance_interval {
            self.restart(Alarm::Rebalance, rebalance);
        }
        let sample = self.config.metrics.utilization_sample_interval;
        if sample != old.metrics.utilization_sample_interval {
            self.restart(Alarm::Sample, sample);
        }
        let lots_differ = self.config.priority.high_priority_threshold
            != old.priority.high_priority_threshold
            || self.config.guards.max_moves != old.guards.max_moves;
        if lots_differ {
            self.sort_into_lots_again();
        }
        // Who is capable may have changed with the matching strategy.
        self.agents.generation += 1;
        let agents: Vec<AgentRef> = self.agents.iter().map(|(agent, _)| agent).collect();
        for agent in &agents {
            self.refresh(*agent);
        }
        for agent in agents {
            self.requeue_what_it_cannot_do(agent, actions);
        }
        self.release_held(actions);
        self.feed_all(actions);
    }

    /// Replaces a periodic alarm by one with another period.
    fn restart(&mut self, alarm: Alarm, period: loxley_model::Span) {
        self.timers.sweep(|_, other| other != alarm);
        self.timers.set(self.now + period, alarm);
    }

    /// Every agent looks for work: there may be more that it may do.
    fn feed_all(&mut self, actions: &mut Vec<Action>) {
        let agents: Vec<AgentRef> = self.agents.iter().map(|(agent, _)| agent).collect();
        for agent in agents {
            self.feed(agent, actions);
        }
    }
}

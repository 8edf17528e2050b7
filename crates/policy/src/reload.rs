//! A new configuration takes effect on a running scheduler.

use alloc::vec::Vec;

use loxley_balance::Rng;
use loxley_model::Span;

use crate::derived::Derived;
use crate::refs::TaskRef;
use crate::task_classes::AdmissionTraits;
use crate::timers::Alarm;
use crate::{Config, Scheduler, SelfTuning};

impl Scheduler {
    /// Puts a new configuration in force. No task is lost and none changes its place in the order.
    pub(crate) fn change_config(&mut self, config: Config) {
        let old = core::mem::replace(&mut self.facts.config, config);
        let new = &self.facts.config;
        self.facts.tallies.change_rules(&new.metrics);
        if new.seed != old.seed {
            self.facts.rng = Rng::new(new.seed);
        }
        let classes_differ =
            new.priority.high_priority_threshold != old.priority.high_priority_threshold;
        let queues_differ = classes_differ || new.guards.max_moves != old.guards.max_moves;
        let heartbeats_differ = new.heartbeats != old.heartbeats;
        let forecasts_differ = new.forecast != old.forecast;
        let rebalance = new.thresholds.rebalance_interval;
        let sample = new.metrics.utilization_sample_interval;
        if rebalance != old.thresholds.rebalance_interval {
            self.restart(Alarm::Rebalance, rebalance);
        }
        if sample != old.metrics.utilization_sample_interval {
            self.restart(Alarm::Sample, sample);
        }
        if heartbeats_differ {
            self.change_heartbeats(old.heartbeats);
        }
        if classes_differ {
            self.classify_tasks_again();
        }
        if queues_differ {
            self.derived = Derived::of(&self.facts);
        } else {
            self.derived.fleet.note_new_rules(&self.facts);
        }
        if forecasts_differ {
            self.restart_forecasts();
        }
        for agent in self.facts.agents.refs() {
            self.requeue_what_it_cannot_do(agent);
            self.mark_agent(agent);
        }
        self.marks.release_held();
    }

    /// What self-tuning may do, as it was when a snapshot was stored without it. No decision depends on it.
    pub fn set_self_tuning(&mut self, rules: SelfTuning) {
        self.facts.config.self_tuning = rules;
    }

    /// Replaces a periodic alarm by one with another period.
    fn restart(&mut self, alarm: Alarm, period: Span) {
        self.facts.timers.sweep(|_, other| other != alarm);
        self.facts.timers.set(self.facts.now + period, alarm);
    }

    /// Gives every task its admission class anew, after what counts as urgent has changed. What follows from
    /// them is worked out by the caller.
    fn classify_tasks_again(&mut self) {
        let mut all: Vec<TaskRef> = self.facts.tasks.iter().map(|(task, _)| task).collect();
        // The order decides which class gets which number.
        all.sort_by_key(|task| self.facts.tasks[*task].arrival);
        for task in all {
            let this = &self.facts.tasks[task];
            let (kind, old) = (this.kind, *self.facts.admission_class_of(this));
            let traits = AdmissionTraits {
                strict: self.is_urgent(this.priority),
                large: old.large,
                user: old.user,
            };
            let class = self
                .derived
                .index
                .admission_class(&mut self.facts.classes, kind, traits);
            self.facts.tasks[task].admission_class = class;
        }
    }
}

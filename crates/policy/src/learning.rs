//! What outcomes teach: success and speed of each agent, each of its skills and each kind of work
//! ([`kind_outcomes`](crate::kind_outcomes)).
//!
//! A skill that an agent keeps failing is taken from it. After a while one task may try it again: a
//! *probe*. If that works, the agent has its skill back; if not, it waits twice as long.

use alloc::vec::Vec;

use loxley_model::{Outcome, SkillId, Span, Time};

use crate::agents::{Agents, Breaker, Record};
use crate::facts::Facts;
use crate::kind_outcomes::Seen;
use crate::refs::{AgentRef, ClassRef, TaskRef};
use crate::scheduler::report;
use crate::timers::Alarm;
use crate::view::Liveness;
use crate::{Action, Matching, Report, Scheduler};

/// How much the latest task counts in a learned speed or mean.
const STEP: f64 = 0.2;

impl Scheduler {
    /// Learns from one outcome, and from how long it took if that was the whole task.
    pub(crate) fn learn(
        &mut self,
        task: TaskRef,
        agent: AgentRef,
        outcome: Outcome,
        took: Span,
        is_whole: bool,
        actions: &mut Vec<Action>,
    ) {
        let this = &self.facts.tasks[task];
        let (id, declared) = (this.id, this.known_cost());
        let half_life = self.facts.config.learning.half_life;
        let succeeded = outcome == Outcome::Succeeded;
        let record = &mut self.facts.agents[agent].record;
        decay(record, self.facts.now, half_life);
        if succeeded {
            record.completed += 1;
            record.successes += 1.0;
            // What the agent is busy with counts here, whole or not.
            let mean = record.mean_duration.unwrap_or(took);
            record.mean_duration = Some(Span(approach(mean.0 as f64, took.0 as f64) as u64));
        } else {
            record.failed += 1;
            record.failures += 1.0;
        }
        let speed = declared.filter(|_| succeeded && is_whole && took > Span::ZERO);
        let speed = speed.map(|cost| (cost.0 as f64 / took.0 as f64).clamp(1e-3, 1e3));
        if let Some(speed) = speed {
            record.speed = learned_speed(record.speed, speed);
        }
        // Only the earliest finish asks how fast an agent is at a single skill or kind of work. Without it, there is
        // mostly nothing to be learned of these.
        let matching = self.facts.config.capabilities.matching_strategy;
        let speed = speed.filter(|_| matching == Matching::EarliestFinish);
        self.note_outcome_of_kind(task, agent, succeeded, speed);
        let record = &mut self.facts.agents[agent].record;
        let teaches_nothing = succeeded && speed.is_none() && !record.is_troubled;
        record.is_troubled |= !succeeded;
        let class = self.facts.tasks[task].admission_class;
        let skills = &self.facts.classes.class_of_admission(class).skills;
        let is_trial = !skills.is_empty() && self.is_trial(agent, skills);
        if teaches_nothing && !is_trial {
            return self.agent_learned(agent);
        }
        let skills = skills.clone();
        for skill in skills.iter() {
            let record = self.facts.agents[agent].record.skill_mut(skill);
            if let Some(speed) = speed {
                let known = record.speed.unwrap_or(speed);
                record.speed = Some(learned_speed(known, speed));
            }
            record.failures_in_a_row = if succeeded {
                0
            } else {
                record.failures_in_a_row + 1
            };
            let on_probe = record.breaker == Breaker::OnProbe(id);
            let tripped = record.breaker == Breaker::Closed
                && self.facts.config.learning.breaker_failures > 0
                && record.failures_in_a_row >= self.facts.config.learning.breaker_failures
                && self.facts.agents[agent].has_skill(skill);
            if on_probe && succeeded {
                self.restore_skill(agent, skill, actions);
            } else if (on_probe && !succeeded) || tripped {
                self.suspend(agent, skill, actions);
            }
        }
        if is_trial {
            self.note_trial(agent, &skills, succeeded, actions);
        }
        self.agent_learned(agent);
    }

    /// Notes how an agent did at a kind of work, where that says more than how it does at everything.
    fn note_outcome_of_kind(
        &mut self,
        task: TaskRef,
        agent: AgentRef,
        succeeded: bool,
        speed: Option<f64>,
    ) {
        let kind = self.facts.tasks[task].kind;
        let half_life = self.facts.config.learning.half_life;
        let Facts {
            classes,
            agents,
            now,
            ..
        } = &mut self.facts;
        let record = &agents[agent].record;
        let seen = Seen {
            succeeded,
            speed,
            whole_speed: record.speed,
            whole_success: record.success_rate(),
        };
        let outcomes = &mut classes.kind_at_mut(kind).outcomes;
        outcomes.add(agents, agent, seen, (*now, half_life));
    }

    fn suspend(&mut self, agent: AgentRef, skill: SkillId, actions: &mut Vec<Action>) {
        let base = self.facts.config.learning.breaker_probe;
        let record = self.facts.agents[agent].record.skill_mut(skill);
        let pause = Span(base.0.saturating_mul(1 << record.suspensions.min(5)));
        record.suspensions += 1;
        let until = self.facts.now + pause;
        record.breaker = Breaker::Open(until);
        let (id, incarnation) = (
            self.facts.agents[agent].id,
            self.facts.agents[agent].incarnation,
        );
        self.facts
            .timers
            .set(until, Alarm::Probe(id, incarnation, skill));
        report(
            Report::SkillSuspended {
                agent: id,
                skill,
                until,
            },
            actions,
        );
        self.change_cohort(agent);
        self.requeue_what_it_cannot_do(agent);
    }

    fn restore_skill(&mut self, agent: AgentRef, skill: SkillId, actions: &mut Vec<Action>) {
        let record = self.facts.agents[agent].record.skill_mut(skill);
        record.breaker = Breaker::Closed;
        record.suspensions = 0;
        let id = self.facts.agents[agent].id;
        report(Report::SkillRestored { agent: id, skill }, actions);
        self.change_cohort(agent);
        self.marks.release_held();
    }

    pub(crate) fn change_cohort(&mut self, agent: AgentRef) {
        self.leave_cohort(agent);
        self.join_cohort(agent);
        self.mark_agent(agent);
    }

    /// Finds other agents for queued tasks that need a skill their agent lost.
    pub(crate) fn requeue_what_it_cannot_do(&mut self, agent: AgentRef) {
        for task in self
            .derived
            .fleet
            .hand(agent)
            .queue
            .in_order(&self.facts.tasks)
        {
            let class = self
                .facts
                .admission_class_of(&self.facts.tasks[task])
                .capability;
            if !self.is_capable(class, self.facts.agents[agent].cohort) && !self.is_probe(task) {
                self.unqueue(task);
                self.mark_ready(task, None);
            }
        }
    }

    /// A suspended skill may be tried: the next suitable task goes there.
    pub(crate) fn begin_probing(&mut self, agent: AgentRef, skill: SkillId) {
        let record = self.facts.agents[agent].record.skill_mut(skill);
        if !matches!(record.breaker, Breaker::Open(until) if until <= self.facts.now) {
            return;
        }
        record.breaker = Breaker::Probing;
        self.derived.probes.insert((skill, agent));
        // If nobody else has the skill, tasks are held for it: one of them is the probe.
        self.marks.release_held();
    }

    /// An agent that should try some of the skills of a class, and has all the others.
    pub(crate) fn find_probe(&self, class: ClassRef) -> Option<(SkillId, AgentRef)> {
        if self.derived.probes.is_empty() {
            return None;
        }
        let class = self.facts.classes.class_at(class);
        self.derived.probes.iter().copied().find(|(skill, agent)| {
            let this = &self.facts.agents[*agent];
            let may_try = |skill: SkillId| {
                has_now(&self.facts.agents, *agent, skill)
                    || self.derived.probes.contains(&(skill, *agent))
            };
            class.skills.contains(*skill)
                && this.liveness == Liveness::Alive
                && this.resources.have_room(&Default::default(), &class.needs)
                && class.skills.iter().all(may_try)
        })
    }

    /// Makes a task the probe of an agent, if there is one that should try its skills.
    pub(crate) fn take_probe(
        &mut self,
        task: TaskRef,
        class: ClassRef,
    ) -> Option<(AgentRef, SkillId)> {
        let (first, agent) = self.find_probe(class)?;
        let id = self.facts.tasks[task].id;
        for skill in self.facts.classes.class_at(class).skills.clone().iter() {
            if self.derived.probes.remove(&(skill, agent)) {
                self.facts.agents[agent].record.skill_mut(skill).breaker = Breaker::OnProbe(id);
            }
        }
        Some((agent, first))
    }

    /// Whether a queued task is its agent's probe.
    fn is_probe(&self, task: TaskRef) -> bool {
        let this = &self.facts.tasks[task];
        let skills = &self.facts.agents[this.agent].record.skills;
        skills
            .iter()
            .any(|record| record.breaker == Breaker::OnProbe(this.id))
    }

    /// A task leaves its agent without an outcome: if it was a probe, another one may be.
    pub(crate) fn forget_probe(&mut self, task: TaskRef) {
        let (id, agent) = (self.facts.tasks[task].id, self.facts.tasks[task].agent);
        for record in &mut self.facts.agents[agent].record.skills {
            if record.breaker == Breaker::OnProbe(id) {
                record.breaker = Breaker::Probing;
                self.derived.probes.insert((record.skill, agent));
            }
        }
    }
}

fn has_now(agents: &Agents, agent: AgentRef, skill: SkillId) -> bool {
    agents[agent].has_skill(skill) && !agents[agent].record.is_suspended(skill)
}

/// What is known of a speed after one more task: at most a seventh more or less. One cost that was declared ten times too
/// high must not make an agent look three times as fast. Up and down count alike, as factors: else an agent whose tasks
/// take longer and shorter than expected in turns would seem to get faster all the time.
pub(crate) fn learned_speed(known: f64, seen: f64) -> f64 {
    const FACTOR_MAX: f64 = 1.75;
    let factor = |times: f64| 1.0 + (times.min(FACTOR_MAX) - 1.0) * STEP;
    if seen >= known {
        known * factor(seen / known)
    } else {
        known / factor(known / seen)
    }
}

fn approach(old: f64, new: f64) -> f64 {
    old + (new - old) * STEP
}

/// Lets what was learned count half after each half-life, linearly in between. Moments that change
/// less than a thousandth are left for later.
fn decay(record: &mut Record, now: Time, half_life: Span) {
    let elapsed = now.since(record.decayed_at);
    if half_life == Span::ZERO || elapsed.0 <= half_life.0 >> 10 {
        return;
    }
    let factor = decay_factor(elapsed, half_life);
    record.successes *= factor;
    record.failures *= factor;
    record.decayed_at = now;
}

/// How much what was learned so long ago still counts: half after each half-life, linearly in between.
pub(crate) fn decay_factor(elapsed: Span, half_life: Span) -> f64 {
    if half_life == Span::ZERO {
        return 1.0;
    }
    let halvings = i32::try_from(elapsed.0 / half_life.0).unwrap_or(64).min(64);
    let rest = (elapsed.0 % half_life.0) as f64 / half_life.0 as f64;
    let whole = 1.0 / (1_u128 << halvings) as f64;
    whole * (1.0 - rest / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_learned_speed_moves_toward_the_truth_from_both_sides_and_stays_there() {
        for truth in [0.1, 0.5, 1.0, 3.0, 40.0] {
            let mut known = 1.0;
            for _ in 0..100 {
                let before: f64 = known;
                known = learned_speed(known, truth);
                assert!((known - truth).abs() <= (before - truth).abs());
                assert!((0.86..=1.16).contains(&(known / before)), "{known}");
            }
            assert!((known / truth - 1.0).abs() < 0.001, "{known} of {truth}");
        }
    }

    #[test]
    fn what_was_learned_counts_half_after_each_half_life() {
        let after = |secs| decay_factor(Span::from_secs(secs), Span::from_secs(10));
        let factors = [0, 5, 10, 15, 20].map(after);
        assert_eq!(factors, [1.0, 0.75, 0.5, 0.375, 0.25]);
        assert_eq!(decay_factor(Span::from_secs(5), Span::ZERO), 1.0);
    }

    #[test]
    fn tasks_that_take_longer_and_shorter_in_turns_make_nobody_faster() {
        let mut known = 1.0;
        for _ in 0..1_000 {
            known = learned_speed(known, 5.0);
            known = learned_speed(known, 0.2);
        }
        assert!((0.8..=1.2).contains(&known), "{known}");
    }
}

//! Which agent gets a task.

use alloc::vec::Vec;

use loxley_model::{AgentId, DataKey, Span};

use crate::agents::Agent;
use crate::config::Capabilities;
use crate::derived::Derived;
use crate::faster::expected_wait;
use crate::fleet::{Change, Hand};
use crate::refs::{AgentRef, ClassRef, TaskRef};
use crate::scheduler::report;
use crate::timers::Alarm;
use crate::tournament::ABSENT;
use crate::{Action, Matching, Reason, Report, Scheduler};

/// Scores are counted in millionths, as whole numbers: the same on every machine.
pub(crate) const MILLION: i64 = 1_000_000;

/// What a queued task takes off the score of its agent.
const QUEUED_WEIGHT: i64 = MILLION / 10;

/// What standing still takes off, so that a throttled agent gets less.
const THROTTLE_WEIGHT: i64 = MILLION / 2;

/// What having all slots taken takes off: just enough to decide between equals.
const BUSY_WEIGHT: i64 = MILLION / 1_000;

/// How many agents of a cohort that are about equally fast are compared when the expected finish decides.
const CANDIDATES: usize = 4;

impl Scheduler {
    /// Finds a place for a task that may run: an agent's queue, or the list of held tasks.
    pub(crate) fn place(
        &mut self,
        task: TaskRef,
        avoid: Option<AgentRef>,
        actions: &mut Vec<Action>,
    ) {
        let Some((agent, reason)) = self.choose(task, avoid) else {
            return self.hold_visibly(task, actions);
        };
        let crowds = matches!(reason, Reason::Score(_) | Reason::EarliestFinish(_))
            && self.will_be_crowded(agent);
        self.enqueue(task, agent, reason, actions);
        if crowds {
            self.make_room_for(task, actions);
        }
    }

    /// Who should get the task, and why.
    fn choose(&mut self, task: TaskRef, avoid: Option<AgentRef>) -> Option<(AgentRef, Reason)> {
        let this = &self.facts.tasks[task];
        let class = self.facts.admission_class_of(this).capability;
        if let Some(name) = self.facts.jobs[this.job].spec.onto
            && let Some(agent) = self.named_agent(name, class)
            && avoid != Some(agent)
        {
            return Some((agent, Reason::Named));
        }
        if !self.derived.probes.is_empty()
            && let Some((agent, skill)) = self.take_probe(task, class)
        {
            return Some((agent, Reason::Probe(skill)));
        }
        self.choose_freely(task, avoid)
    }

    /// Who of all capable agents should get the task, and why; not the one to avoid, if there is
    /// another.
    pub(crate) fn choose_freely(
        &mut self,
        task: TaskRef,
        avoid: Option<AgentRef>,
    ) -> Option<(AgentRef, Reason)> {
        let hidden = avoid.filter(|agent| self.facts.agents.get(*agent).is_some());
        if let Some(hidden) = hidden {
            self.derived.fleet.hide(&self.facts, hidden);
            let another = self.choose_ranked(task, avoid);
            self.derived.fleet.note_change(hidden, Change::Everything);
            if another.is_some() {
                return another;
            }
        }
        self.choose_ranked(task, avoid)
    }

    /// Who of the agents that take part in the rankings should get the task, and why.
    fn choose_ranked(
        &mut self,
        task: TaskRef,
        avoid: Option<AgentRef>,
    ) -> Option<(AgentRef, Reason)> {
        let class = self
            .facts
            .admission_class_of(&self.facts.tasks[task])
            .capability;
        match self.facts.config.capabilities.matching_strategy {
            Matching::EarliestFinish => self.earliest_finish(task, class),
            Matching::BestFit | Matching::Exact | Matching::Fallback => {
                self.best_score(task, class, avoid)
            }
        }
    }

    /// The agent that the job names, if it still can.
    fn named_agent(&self, id: AgentId, class: ClassRef) -> Option<AgentRef> {
        let agent = self.derived.fleet.find(id)?;
        let this = &self.facts.agents[agent];
        (this.is_alive() && self.is_capable(class, this.cohort)).then_some(agent)
    }

    fn best_score(
        &mut self,
        task: TaskRef,
        class: ClassRef,
        avoid: Option<AgentRef>,
    ) -> Option<(AgentRef, Reason)> {
        let Derived {
            capabilities,
            fleet,
            ..
        } = &mut self.derived;
        let capable = capabilities.capable(&self.facts, fleet, class);
        let best = fleet.best_keys(&self.facts);
        let ceiling = best.best_key();
        if ceiling == ABSENT {
            return None;
        }
        // No score is as low as this, but the sum of a share and `ABSENT` is lower.
        let (mut score, mut cohort) = (ABSENT / 2, None);
        let keys = best.keys();
        for (candidate, skill_match) in capable {
            if score >= skill_match + ceiling {
                // The greatest shares of skills come first: nobody further on is better.
                break;
            }
            let other = skill_match + keys[candidate.index()];
            if other > score {
                (score, cohort) = (other, Some(*candidate));
            }
        }
        let agent = fleet.best_of(&self.facts, cohort?)?;
        if let Some(locality) = self.facts.tasks[task].locality()
            && let Some((holder, held)) = self.holder_score(locality.key, class)
            && held > score
            && avoid != Some(holder)
        {
            return Some((holder, Reason::Score(held)));
        }
        Some((agent, Reason::Score(score)))
    }

    /// The agent that holds this data, with its score for a task that wants it.
    fn holder_score(&self, data: DataKey, class: ClassRef) -> Option<(AgentRef, i64)> {
        let fleet = &self.derived.fleet;
        let holder = fleet.find(*self.facts.locations.get(&data)?)?;
        let cohort = self.facts.agents[holder].cohort;
        let known = &self.derived.capabilities;
        let skill_match = known.share(&self.facts, fleet, class, cohort)?;
        let key = fleet.ranking_key(&self.facts, holder);
        let bonus = (self.facts.config.capabilities.locality_bonus * MILLION as f64) as i64;
        (key != ABSENT).then(|| (holder, skill_match + key + bonus))
    }

    fn earliest_finish(&mut self, task: TaskRef, class: ClassRef) -> Option<(AgentRef, Reason)> {
        let facts = &self.facts;
        let Derived {
            capabilities,
            fleet,
            ..
        } = &mut self.derived;
        fleet.best_keys(facts);
        let fleet = &*fleet;
        let this = &facts.tasks[task];
        let (cost, skills) = (this.queue_cost(), &facts.classes.class_at(class).skills);
        let data = this.locality().map(|locality| {
            let holder = facts.locations.get(&locality.key);
            (holder.and_then(|id| fleet.find(*id)), locality.transfer)
        });
        let mut best: Option<(u64, AgentRef)> = None;
        let mut compare = |agent: AgentRef, skill_match: i64| {
            let this = &facts.agents[agent];
            let transfer = match data {
                Some((holder, transfer)) if holder != Some(agent) => transfer,
                _ => Span::ZERO,
            };
            let share = skill_match as f64 / MILLION as f64;
            let speed = this.record.speed_for(skills) * share * (1.0 - this.throttle);
            let run = cost.mul_f64(1.0 / speed.max(1e-6));
            let wait = expected_wait(facts, fleet.hand(agent), this, task);
            let finish = wait.saturating_add(run.0).saturating_add(transfer.0);
            if best.is_none_or(|(other, _)| finish < other) {
                best = Some((finish, agent));
            }
            wait
        };
        for (cohort, skill_match) in capabilities.capable(facts, fleet, class) {
            let members = &facts.agents.cohort(*cohort).members;
            // Whoever has the data is compared, however long its queue is.
            let holder = data.and_then(|(holder, _)| holder);
            if let Some(holder) = holder.filter(|holder| fleet.takes_part(facts, *holder, *cohort))
            {
                compare(holder, *skill_match);
            }
            for group in fleet.groups(*cohort) {
                let ranking = fleet.ranking(group);
                let Some(first) = ranking.best() else {
                    continue;
                };
                let first = members[first].expect("only members are ranked");
                let hand = fleet.hand(first);
                // Who can begin at once is as good as any other, and long queues tell themselves whose is shortest.
                if compare(first, *skill_match) == 0 || hand.has_long_queue() {
                    continue;
                }
                let mut seen = 0;
                ranking.visit_best_first(&mut |position, _| {
                    if seen == CANDIDATES {
                        return false;
                    }
                    seen += 1;
                    let agent = members[position].expect("only members are ranked");
                    compare(agent, *skill_match) > 0
                });
            }
        }
        best.map(|(finish, agent)| (agent, Reason::EarliestFinish(facts.now + Span(finish))))
    }

    fn hold_visibly(&mut self, task: TaskRef, actions: &mut Vec<Action>) {
        self.hold(task);
        let this = &self.facts.tasks[task];
        report(Report::Held { task: this.id }, actions);
        if let Some(limit) = self.facts.classes.kind_at(this.kind).spec.hold_limit {
            let at = self.facts.now + limit;
            self.facts.timers.set(at, Alarm::HoldLimit(this.id));
        }
    }

    /// Agents can do more than before: places what was held for want of them.
    pub(crate) fn release_held(&mut self, actions: &mut Vec<Action>) {
        if self.derived.counts.held == 0 {
            return;
        }
        for class in self.derived.capabilities.held_classes() {
            let Derived {
                capabilities,
                fleet,
                ..
            } = &mut self.derived;
            fleet.best_keys(&self.facts);
            let capable = capabilities.capable(&self.facts, fleet, class);
            let best = fleet.best_keys(&self.facts);
            let anybody = capable
                .iter()
                .any(|(cohort, _)| best.key(cohort.index()) != ABSENT);
            let held: Vec<TaskRef> = self.derived.capabilities.held(class).collect();
            for task in held {
                if !anybody && self.find_probe(class).is_none() {
                    break;
                }
                self.unhold(task);
                self.place(task, None, actions);
            }
        }
    }

    /// Where a piece of data is, as far as anybody knows. The table is bounded.
    pub(crate) fn note_location(&mut self, data: DataKey, agent: AgentId) {
        const LOCATIONS_MAX: usize = 1 << 16;
        let locations = &mut self.facts.locations;
        locations.insert(data, agent);
        if locations.len() > LOCATIONS_MAX {
            locations.pop_first();
        }
    }
}

impl Capabilities {
    /// Whether an agent with this key, or a lower one, surely has at least `len` queued tasks. Where the
    /// key alone cannot tell, the answer is no.
    pub(crate) fn has_surely_queued(&self, key: i64, len: u32) -> bool {
        self.matching_strategy != Matching::EarliestFinish
            && self.history_weight >= 0.0
            && key != ABSENT
            && key <= -i64::from(len) * QUEUED_WEIGHT - THROTTLE_WEIGHT - BUSY_WEIGHT
    }
}

/// How an agent compares with others of its cohort, whatever the task.
pub(crate) fn ranking_key(agent: &Agent, hand: &Hand, capabilities: &Capabilities) -> i64 {
    if !agent.is_alive() {
        return ABSENT;
    }
    if capabilities.matching_strategy == Matching::EarliestFinish {
        // What it has in hand is half done, as far as one can tell without a clock.
        let ahead = hand.queued_cost.saturating_add(hand.held_cost / 2);
        let ahead = u64::try_from(ahead).unwrap_or(u64::MAX);
        let speed = agent.record.speed * f64::from(agent.slots) * (1.0 - agent.throttle);
        let wait = Span(ahead).mul_f64(1.0 / speed.max(1e-6));
        return -i64::try_from(wait.0).unwrap_or(i64::MAX);
    }
    let history = if capabilities.consider_history {
        (agent.record.success_rate() * capabilities.history_weight * MILLION as f64) as i64
    } else {
        0
    };
    let throttle = (agent.throttle * THROTTLE_WEIGHT as f64) as i64;
    let in_hand = i64::from(hand.len());
    let slots = i64::from(agent.slots);
    let busy = match in_hand {
        0 => 0,
        _ if in_hand >= slots => BUSY_WEIGHT,
        _ => BUSY_WEIGHT * in_hand / slots,
    };
    history - i64::from(hand.queue.len()) * QUEUED_WEIGHT - throttle - busy
}

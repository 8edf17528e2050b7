//! Which agent gets a task.

use alloc::vec::Vec;

use loxley_model::{AgentId, DataKey, Span, Time};

use crate::agents::{Agent, Agents, Cohort, Stale};
use crate::config::Capabilities;
use crate::lots::{Class, Lot, Lots, class_bit};
use crate::refs::{AgentRef, ClassRef, CohortRef, TaskRef};
use crate::scheduler::report;
use crate::tasks::State;
use crate::timers::Alarm;
use crate::tournament::{ABSENT, Loot};
use crate::view::Liveness;
use crate::{Action, Config, Matching, Reason, Report, Scheduler};

/// Scores are counted in millionths, as whole numbers: the same on every machine.
pub(crate) const MILLION: i64 = 1_000_000;

/// What a queued task takes off the score of its agent.
const QUEUED_WEIGHT: i64 = MILLION / 10;

/// What standing still takes off, so that a throttled agent gets less.
const THROTTLE_WEIGHT: i64 = MILLION / 2;

/// What having all slots taken takes off: just enough to decide between equals.
const BUSY_WEIGHT: i64 = MILLION / 1_000;

/// How many agents of a cohort are compared when the expected finish decides.
const CANDIDATES: usize = 8;

/// The cost of a task of which nothing is known.
const UNKNOWN_COST: Span = Span::from_millis(100);

impl Scheduler {
    /// Finds a place for a task that may run: an agent's queue, or the list of held tasks.
    pub(crate) fn place(
        &mut self,
        task: TaskRef,
        avoid: Option<AgentRef>,
        actions: &mut Vec<Action>,
    ) {
        if let Some((agent, reason)) = self.choose(task, avoid) {
            self.enqueue(task, agent, reason, actions);
            self.after_enqueue(task, agent, actions);
            if matches!(reason, Reason::Score(_) | Reason::EarliestFinish(_)) {
                self.make_room_for(task, actions);
            }
        } else {
            self.hold_visibly(task, actions);
        }
    }

    /// Who should get the task, and why.
    fn choose(&mut self, task: TaskRef, avoid: Option<AgentRef>) -> Option<(AgentRef, Reason)> {
        let this = &self.tasks[task];
        let class = self.lots.at(this.lot).class;
        if let Some(name) = self.jobs[this.job].spec.onto
            && let Some(agent) = self.named_agent(name, class)
            && avoid != Some(agent)
        {
            return Some((agent, Reason::Named));
        }
        if !self.probes.is_empty()
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
        let class = self.lots.at(self.tasks[task].lot).class;
        self.refresh_class(class);
        self.update_rankings();
        match avoid.filter(|agent| self.agents.get(*agent).is_some()) {
            None => self.choose_ranked(task, class, avoid),
            Some(hidden) => {
                let key = self.ranking_key(hidden);
                self.set_ranking(hidden, ABSENT);
                let another = self.choose_ranked(task, class, avoid);
                self.set_ranking(hidden, key);
                another.or_else(|| self.choose_ranked(task, class, avoid))
            }
        }
    }

    /// Who of the agents that take part in the rankings should get the task, and why.
    fn choose_ranked(
        &self,
        task: TaskRef,
        class: ClassRef,
        avoid: Option<AgentRef>,
    ) -> Option<(AgentRef, Reason)> {
        match self.config.capabilities.matching_strategy {
            Matching::EarliestFinish => self.earliest_finish(task, class),
            Matching::BestFit | Matching::Exact | Matching::Fallback => {
                self.best_score(task, class, avoid)
            }
        }
    }

    /// The agent that the job names, if it still can.
    fn named_agent(&self, id: AgentId, class: ClassRef) -> Option<AgentRef> {
        let agent = self.agents.find(id)?;
        let alive = self.agents[agent].liveness == Liveness::Alive;
        (alive && self.is_capable(class, self.agents[agent].cohort)).then_some(agent)
    }

    fn best_score(
        &self,
        task: TaskRef,
        class: ClassRef,
        avoid: Option<AgentRef>,
    ) -> Option<(AgentRef, Reason)> {
        let ceiling = self.agents.best.best_key();
        if ceiling == ABSENT {
            return None;
        }
        // No score is as low as this, but the sum of a share and `ABSENT` is lower.
        let (mut score, mut cohort) = (ABSENT / 2, None);
        let keys = self.agents.best.keys();
        for (candidate, skill_match) in &self.lots.class_at(class).capable {
            if score >= skill_match + ceiling {
                // The greatest shares of skills come first: nobody further on is better.
                break;
            }
            let other = skill_match + keys[candidate.index()];
            if other > score {
                (score, cohort) = (other, Some(*candidate));
            }
        }
        let cohort = self.agents.cohort(cohort?);
        let agent = cohort.members[cohort.ranking.best()?].expect("only members are ranked");
        if let Some(locality) = self.tasks[task].locality()
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
        let holder = self.agents.find(*self.locations.get(&data)?)?;
        let this = &self.agents[holder];
        let capable = self.lots.class_at(class).capable.iter();
        let (_, skill_match) = capable
            .into_iter()
            .find(|(cohort, _)| *cohort == this.cohort)?;
        let key = self.ranking_key(holder);
        let bonus = (self.config.capabilities.locality_bonus * MILLION as f64) as i64;
        (key != ABSENT).then(|| (holder, skill_match + key + bonus))
    }

    fn earliest_finish(&self, task: TaskRef, class: ClassRef) -> Option<(AgentRef, Reason)> {
        let Class {
            capable, skills, ..
        } = self.lots.class_at(class);
        let this = &self.tasks[task];
        let cost = this.known_cost().unwrap_or(UNKNOWN_COST);
        let holder = this
            .locality()
            .map(|l| (self.locations.get(&l.key), l.transfer));
        let mut best: Option<(u64, AgentRef)> = None;
        for (cohort, skill_match) in capable {
            let members = &self.agents.cohort(*cohort).members;
            let mut seen = 0;
            self.agents
                .cohort(*cohort)
                .ranking
                .visit_best_first(&mut |position, key| {
                    let backlog = key.unsigned_abs();
                    if seen == CANDIDATES || best.is_some_and(|(finish, _)| backlog >= finish) {
                        return false;
                    }
                    seen += 1;
                    let agent = members[position].expect("only members are ranked");
                    let transfer = holder.map_or(Span::ZERO, |(holder, transfer)| {
                        if holder == Some(&self.agents[agent].id) {
                            Span::ZERO
                        } else {
                            transfer
                        }
                    });
                    let learned = self.agents[agent].record.speed_for(skills);
                    let share = *skill_match as f64 / MILLION as f64;
                    let speed = learned * share * (1.0 - self.agents[agent].throttle);
                    let run = cost.mul_f64(1.0 / speed.max(1e-6));
                    let finish = backlog.saturating_add(run.0).saturating_add(transfer.0);
                    if best.is_none_or(|(other, _)| finish < other) {
                        best = Some((finish, agent));
                    }
                    true
                });
        }
        best.map(|(finish, agent)| (agent, Reason::EarliestFinish(self.now + Span(finish))))
    }

    /// Puts a task on an agent's queue.
    pub(crate) fn enqueue(
        &mut self,
        task: TaskRef,
        agent: AgentRef,
        reason: Reason,
        actions: &mut Vec<Action>,
    ) {
        self.agents.touch(agent);
        self.set_state(task, State::Queued);
        let this = &mut self.tasks[task];
        this.agent = agent;
        this.assigned = self.now;
        this.reason = reason;
        let settled = u32::from(this.moves) >= self.config.guards.max_moves;
        let (id, cost) = (this.id, this.known_cost().unwrap_or(UNKNOWN_COST));
        let Lot {
            class, user, group, ..
        } = *self.lots.at(this.lot);
        let target = &mut self.agents[agent];
        target
            .queue
            .push(&mut self.tasks, task, settled, class_bit(class));
        target.queued_cost += cost;
        let agent_id = target.id;
        self.limits.task_queued(user, group);
        self.note_chain(task, true);
        self.refresh(agent);
        report(
            Report::Queued {
                task: id,
                agent: agent_id,
                reason,
            },
            actions,
        );
    }

    /// Takes a task off its agent's queue. The caller says what becomes of it.
    pub(crate) fn unqueue(&mut self, task: TaskRef) {
        let agent = self.tasks[task].agent;
        let cost = self.tasks[task].known_cost().unwrap_or(UNKNOWN_COST);
        let Lot { user, group, .. } = *self.lots.at(self.tasks[task].lot);
        let holder = &mut self.agents[agent];
        holder.queue.remove(&self.tasks, task);
        holder.queued_cost = holder.queued_cost.saturating_sub(cost);
        self.tasks[task].stamp = self.tasks[task].stamp.wrapping_add(1);
        self.limits.task_unqueued(user, group);
        self.note_chain(task, false);
        self.refresh(agent);
    }

    /// Whether a task waits on the queue of this agent.
    pub(crate) fn is_queued_at(&self, task: TaskRef, agent: AgentRef) -> bool {
        let this = self.tasks.get(task);
        this.is_some_and(|this| this.state == State::Queued && this.agent == agent)
    }

    /// A task is on a queue: whoever can start it now does.
    pub(crate) fn after_enqueue(
        &mut self,
        task: TaskRef,
        agent: AgentRef,
        actions: &mut Vec<Action>,
    ) {
        if self.agents[agent].room(self.config.prefetch.max_depth) > 0 {
            self.feed(agent, actions);
        }
        if self.tasks[task].state == State::Queued {
            self.offer(task, actions);
        }
    }

    fn hold_visibly(&mut self, task: TaskRef, actions: &mut Vec<Action>) {
        self.hold(task);
        let this = &self.tasks[task];
        report(Report::Held { task: this.id }, actions);
        if let Some(limit) = self.lots.kind_at(this.kind).spec.hold_limit {
            self.timers.set(self.now + limit, Alarm::HoldLimit(this.id));
        }
    }

    pub(crate) fn hold(&mut self, task: TaskRef) {
        self.set_state(task, State::Held);
        let this = &self.tasks[task];
        let entry = (core::cmp::Reverse(this.priority), this.key(), task);
        let class = self.lots.at(this.lot).class;
        self.lots.class_at_mut(class).held.insert(entry);
    }

    pub(crate) fn unhold(&mut self, task: TaskRef) {
        let this = &self.tasks[task];
        let entry = (core::cmp::Reverse(this.priority), this.key(), task);
        let class = self.lots.at(this.lot).class;
        self.lots.class_at_mut(class).held.remove(&entry);
    }

    /// Agents can do more than before: places what was held for want of them.
    pub(crate) fn release_held(&mut self, actions: &mut Vec<Action>) {
        if self.counts.held == 0 {
            return;
        }
        let classes: Vec<ClassRef> = self
            .lots
            .classes()
            .filter(|(_, class)| !class.held.is_empty())
            .map(|(c, _)| c)
            .collect();
        for class in classes {
            self.refresh_class(class);
            self.update_rankings();
            let mut capable = self.lots.class_at(class).capable.iter();
            if capable.any(|(cohort, _)| self.agents.best.key(cohort.index()) != ABSENT) {
                for (_, _, task) in core::mem::take(&mut self.lots.class_at_mut(class).held) {
                    self.place(task, None, actions);
                }
            }
            while self.find_probe(class).is_some()
                && let Some((_, _, task)) = self.lots.class_at_mut(class).held.pop_first()
            {
                self.place(task, None, actions);
            }
        }
    }

    /// Works out who can do a class of task, unless that is known.
    pub(crate) fn refresh_class(&mut self, class: ClassRef) {
        let Self {
            lots,
            agents,
            config,
            now,
            ..
        } = self;
        let known = lots.class_at(class);
        if is_fresh(known, agents, config, *now) {
            return;
        }
        let mut capable: Vec<(CohortRef, i64)> = (0..agents.cohorts.len())
            .map(CohortRef::new)
            .filter_map(|cohort| {
                Some((
                    cohort,
                    capability(known, agents.cohort(cohort), agents, config)?,
                ))
            })
            .collect();
        capable.sort_by_key(|(cohort, skill_match)| (-skill_match, *cohort));
        let generation = agents.generation;
        let known = lots.class_at_mut(class);
        known.capable = capable;
        known.known_at = *now;
        known.known_for = generation;
    }

    /// Whether the agents of a cohort can do tasks of a class.
    pub(crate) fn is_capable(&self, class: ClassRef, cohort: CohortRef) -> bool {
        is_capable(
            &self.lots,
            &self.agents,
            &self.config,
            self.now,
            class,
            cohort,
        )
    }

    /// Notes that the trees of an agent's cohort are behind it.
    pub(crate) fn refresh(&mut self, agent: AgentRef) {
        let this = &mut self.agents[agent];
        if this.stale.add(Stale::RANK) {
            self.stale_ranks.push(agent);
        }
        if this.stale.add(Stale::LOOT) {
            self.stale_loot.push(agent);
        }
    }

    /// Brings the rankings up to date. Whoever asks them something calls this first; an agent that
    /// changed several times in between is looked at once.
    pub(crate) fn update_rankings(&mut self) {
        while let Some(agent) = self.stale_ranks.pop() {
            let Some(this) = self.agents.get_mut(agent) else {
                continue;
            };
            if !this.stale.remove(Stale::RANK) {
                continue;
            }
            let key = ranking_key(this, &self.config.capabilities);
            let (cohort, position) = (this.cohort, this.position as usize);
            self.agents.set_ranking(cohort, position, key);
        }
    }

    /// Brings the trees of victims up to date, likewise.
    pub(crate) fn update_victims(&mut self) {
        let protected_from = self.protected_from();
        while let Some(agent) = self.stale_loot.pop() {
            let Some(this) = self.agents.get_mut(agent) else {
                continue;
            };
            if !this.stale.remove(Stale::LOOT) {
                continue;
            }
            let loot = Loot {
                queue_len: this.queue.len(),
                classes: this.queue.loot_classes(protected_from),
            };
            let (cohort, position) = (this.cohort, this.position as usize);
            let victims = &mut self.agents.cohorts[cohort.index()].victims;
            victims.set(position, loot);
        }
    }

    fn set_ranking(&mut self, agent: AgentRef, key: i64) {
        let Agent {
            cohort, position, ..
        } = self.agents[agent];
        self.agents.set_ranking(cohort, position as usize, key);
    }

    fn ranking_key(&self, agent: AgentRef) -> i64 {
        ranking_key(&self.agents[agent], &self.config.capabilities)
    }

    /// Whether the agent with the best score surely has at least `len` queued tasks. A glance at its
    /// key: where this cannot tell, it says no.
    pub(crate) fn best_has_surely(&self, len: u32) -> bool {
        let capabilities = &self.config.capabilities;
        let best = self.agents.best.best_key();
        // The last agent to get a task may still be ranked too high, which does no harm here.
        if self.stale_ranks.len() > 1
            || capabilities.matching_strategy == Matching::EarliestFinish
            || capabilities.history_weight < 0.0
            || best == ABSENT
        {
            return false;
        }
        best <= -i64::from(len) * QUEUED_WEIGHT - THROTTLE_WEIGHT - BUSY_WEIGHT
    }

    /// Where a piece of data is, as far as anybody knows. The table is bounded.
    pub(crate) fn note_location(&mut self, data: DataKey, agent: AgentId) {
        const LOCATIONS_MAX: usize = 1 << 16;
        self.locations.insert(data, agent);
        if self.locations.len() > LOCATIONS_MAX {
            self.locations.pop_first();
        }
    }
}

/// How an agent compares with others of its cohort, whatever the task.
fn ranking_key(agent: &Agent, capabilities: &Capabilities) -> i64 {
    if agent.liveness != Liveness::Alive {
        return ABSENT;
    }
    if capabilities.matching_strategy == Matching::EarliestFinish {
        let in_hand = agent.record.mean_duration.unwrap_or(UNKNOWN_COST).0 / 2;
        let backlog = agent
            .queued_cost
            .0
            .saturating_add(in_hand.saturating_mul(agent.in_hand.len() as u64));
        let speed = agent.record.speed * f64::from(agent.slots) * (1.0 - agent.throttle);
        let wait = Span(backlog).mul_f64(1.0 / speed.max(1e-6));
        return -i64::try_from(wait.0).unwrap_or(i64::MAX);
    }
    let history = if capabilities.consider_history {
        (agent.record.success_rate() * capabilities.history_weight * MILLION as f64) as i64
    } else {
        0
    };
    let throttle = (agent.throttle * THROTTLE_WEIGHT as f64) as i64;
    let in_hand = agent.in_hand.len() as i64;
    let slots = i64::from(agent.slots);
    let busy = match in_hand {
        0 => 0,
        _ if in_hand >= slots => BUSY_WEIGHT,
        _ => BUSY_WEIGHT * in_hand / slots,
    };
    history - i64::from(agent.queue.len()) * QUEUED_WEIGHT - throttle - busy
}

fn is_fresh(class: &Class, agents: &Agents, config: &Config, now: Time) -> bool {
    config.performance.cache_capability_matches
        && class.known_for == agents.generation
        && now.since(class.known_at) <= config.performance.cache_ttl
}

/// Whether the agents of a cohort can do tasks of a class.
pub(crate) fn is_capable(
    lots: &Lots,
    agents: &Agents,
    config: &Config,
    now: Time,
    class: ClassRef,
    cohort: CohortRef,
) -> bool {
    let class = lots.class_at(class);
    if is_fresh(class, agents, config, now) {
        return class.capable.iter().any(|(capable, _)| *capable == cohort);
    }
    capability(class, agents.cohort(cohort), agents, config).is_some()
}

/// The share of the required skills that the agents of a cohort have, if they may do the task at all.
fn capability(class: &Class, cohort: &Cohort, agents: &Agents, config: &Config) -> Option<i64> {
    if cohort.count == 0 || !fits(class, cohort) {
        return None;
    }
    let required = class.skills.len();
    let has = class.skills.count_in(&cohort.skills);
    let every = has == required;
    let enough = every
        || match config.capabilities.matching_strategy {
            Matching::Exact => false,
            Matching::BestFit | Matching::EarliestFinish => !class.strict && has > 0,
            Matching::Fallback => {
                !class.strict
                    && has > 0
                    && config.capabilities.fallback_enabled
                    && !agents.cohorts.iter().any(|c| is_exact(class, c))
            }
        };
    enough.then(|| {
        if required == 0 {
            MILLION
        } else {
            MILLION * has as i64 / required as i64
        }
    })
}

fn is_exact(class: &Class, cohort: &Cohort) -> bool {
    cohort.count > 0 && fits(class, cohort) && class.skills.is_subset(&cohort.skills)
}

fn fits(class: &Class, cohort: &Cohort) -> bool {
    class.needs.is_empty()
        || cohort
            .resources
            .have_room(&Default::default(), &class.needs)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use loxley_model::{AgentSpec, JobId, JobSpec, SkillSet, TaskId, TaskKind, TaskSpec};

    use super::*;
    use crate::Input;

    #[test]
    fn who_can_do_a_class_is_remembered_as_long_as_the_rules_say() {
        for (cache, ttl, remembered) in [(true, 10, true), (true, 1, false), (false, 10, false)] {
            let mut config = Config::default();
            config.performance.cache_capability_matches = cache;
            config.performance.cache_ttl = Span(ttl);
            let mut scheduler = Scheduler::new(config, Time::ZERO);
            let agent = AgentSpec::new(AgentId(1), SkillSet::none());
            scheduler.handle(Time(1), Input::AgentJoined(agent.into()), &mut Vec::new());
            for now in [2, 5] {
                let job = JobSpec::new(JobId(now));
                let tasks = [TaskSpec::new(TaskId(now), TaskKind::default().into())].into();
                let input = Input::TasksSubmitted { job, tasks };
                scheduler.handle(Time(now), input, &mut Vec::new());
            }
            let known_at = scheduler.lots.class_at(ClassRef::new(0)).known_at;
            assert_eq!(known_at == Time(2), remembered);
        }
    }
}

//! Which agent gets a task.

use alloc::vec::Vec;

use loxley_model::{AgentId, DataKey, SkillSet, Span, Time};

use crate::agents::Agent;
use crate::cache_warm::FEW_AGENTS;
use crate::config::Capabilities;
use crate::derived::Derived;
use crate::facts::Facts;
use crate::faster::expected_wait;
use crate::fleet::{Change, GroupRef, Hand, Ranked};
use crate::promising::{Promising, PromisingGroup};
use crate::refs::{AgentRef, ClassRef, CohortRef, KindRef, TaskRef};
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

/// How many agents of a cohort that are about equally fast are looked into when the expected finish decides.
const CANDIDATES: u32 = 4;

/// How many agents are looked into for one task: each takes a look at what it has in hand and on a short queue.
const LOOKS_MAX: u32 = 12;

/// The same in a large fleet, where many are about as good, and what they have is not in any cache: of each group only
/// the one that its index names.
const LOOKS_MAX_OF_MANY: u32 = 2;

impl Scheduler {
    /// Finds a place for a task that may run: an agent's queue, or the list of held tasks.
    pub(crate) fn place(
        &mut self,
        task: TaskRef,
        avoid: Option<AgentRef>,
        actions: &mut Vec<Action>,
    ) {
        let mut chosen = self.choose(task, avoid);
        if chosen.is_none() && !self.facts.forecasts.room.is_empty() && self.release_capable(task) {
            chosen = self.choose(task, avoid);
        }
        let Some((agent, reason)) = chosen else {
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
        let free = self.choose_freely(task, avoid);
        if !self.facts.forecasts.room.is_empty()
            && let Some(agent) = self.kept_for(task, free.map(|(agent, _)| agent), avoid)
        {
            return Some((agent, Reason::KeptFree));
        }
        free
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
                let (agent, reason) = self.best_score(task, class, avoid)?;
                let in_time = self.in_time_elsewhere(task, class, agent);
                Some(in_time.unwrap_or((agent, reason)))
            }
        }
    }

    /// A score does not know deadlines: where the agent that it names would be late, another of the best placed ones
    /// that would not be.
    fn in_time_elsewhere(
        &mut self,
        task: TaskRef,
        class: ClassRef,
        chosen: AgentRef,
    ) -> Option<(AgentRef, Reason)> {
        let deadline = self.facts.tasks[task].deadline();
        if deadline == Time::MAX {
            return None;
        }
        let Derived {
            capabilities,
            fleet,
            ..
        } = &mut self.derived;
        let capable = capabilities.capable(&self.facts, fleet, class);
        let fleet = fleet.ranked(&self.facts);
        let mut errand = Errand::new(&self.facts, fleet, task, class);
        // Where a score decides, agents of all speeds are in one group.
        (errand.looks, errand.of_each, errand.alike) = (LOOKS_MAX, CANDIDATES, false);
        let cohort = self.facts.agents[chosen].cohort;
        let share = capable.iter().find(|(capable, _)| *capable == cohort);
        errand.ask(chosen, share?.1);
        let is_in_time = |finish: Span| self.facts.now + finish <= deadline;
        if errand.best.is_some_and(|(finish, _)| is_in_time(finish)) {
            return None;
        }
        for (cohort, skill_match) in capable {
            for group in fleet.groups(*cohort) {
                if errand.looks > 0 {
                    errand.ask_best_of(group, *skill_match);
                }
            }
        }
        let (finish, agent) = errand.best.filter(|(finish, _)| is_in_time(*finish))?;
        Some((agent, Reason::EarliestFinish(self.facts.now + finish)))
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
        let best = fleet.ranked(&self.facts).best_keys();
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
        let (agent, score) = match self.best_at_kind(task, class) {
            Some(best) => best,
            None => (
                self.derived.fleet.best_of(&self.facts, cohort?)?.agent,
                score,
            ),
        };
        let mut best = (score, agent);
        if let Some(locality) = self.facts.tasks[task].locality() {
            let holder = self.holder_score(locality.key, task, class);
            let near = self.near_score(locality.key, task, class);
            for (agent, score) in holder.into_iter().chain(near) {
                if score > best.0 && avoid != Some(agent) {
                    best = (score, agent);
                }
            }
        }
        let (score, agent) = best;
        Some((agent, Reason::Score(score)))
    }

    /// The agent near the one that holds this data that has the highest score for a task that wants it.
    fn near_score(
        &mut self,
        data: DataKey,
        task: TaskRef,
        class: ClassRef,
    ) -> Option<(AgentRef, i64)> {
        let holder = self.derived.fleet.find(*self.facts.locations.get(&data)?)?;
        let zone = self.facts.agents[holder].added.zone?;
        let rules = &self.facts.config;
        let bonus = rules.capabilities.locality_bonus * rules.added.near_share;
        let bonus = (bonus * MILLION as f64) as i64;
        let kind = self.facts.tasks[task].kind;
        let capable = self.capable(class).to_vec();
        let fleet = self.derived.fleet.ranked(&self.facts);
        let mut best: Option<(AgentRef, i64)> = None;
        for (cohort, skill_match) in capable {
            let members = &self.facts.agents.cohort(cohort).members;
            for group in fleet
                .groups(cohort)
                .filter(|group| fleet.zone(*group) == Some(zone))
            {
                let ranking = fleet.ranking(group);
                let Some(position) = ranking.best() else {
                    continue;
                };
                let agent = members[position].expect("only members are ranked");
                let history = self.facts.history_at_kind(kind, agent);
                let score = skill_match + ranking.best_key() + history + bonus;
                if best.is_none_or(|(_, other)| score > other) {
                    best = Some((agent, score));
                }
            }
        }
        best
    }

    /// The agent that holds this data, with its score for a task that wants it.
    fn holder_score(
        &self,
        data: DataKey,
        task: TaskRef,
        class: ClassRef,
    ) -> Option<(AgentRef, i64)> {
        let fleet = &self.derived.fleet;
        let holder = fleet.find(*self.facts.locations.get(&data)?)?;
        let cohort = self.facts.agents[holder].cohort;
        let known = &self.derived.capabilities;
        let skill_match = known.share(&self.facts, fleet, class, cohort)?;
        let key = fleet.ranking_key(&self.facts, holder);
        let bonus = (self.facts.config.capabilities.locality_bonus * MILLION as f64) as i64;
        let kind = self.facts.tasks[task].kind;
        let history = self.facts.history_at_kind(kind, holder);
        (key != ABSENT).then(|| (holder, skill_match + key + history + bonus))
    }

    /// Who has the highest score, where some agents are known to do better or worse at this kind of work than at
    /// everything; nothing where none is. These are looked at one by one, and of the others the best of each cohort.
    fn best_at_kind(&mut self, task: TaskRef, class: ClassRef) -> Option<(AgentRef, i64)> {
        let kind = self.facts.tasks[task].kind;
        let outcomes = &self.facts.classes.kind_at(kind).outcomes;
        if outcomes.is_empty() || !self.facts.config.capabilities.consider_history {
            return None;
        }
        let listed: Vec<AgentRef> = outcomes.agents(&self.facts.agents).collect();
        let capable = self.capable(class).to_vec();
        let facts = &self.facts;
        let fleet = self.derived.fleet.ranked(facts);
        let mut best: Option<(i64, AgentRef)> = None;
        let mut compare = |score: i64, agent: AgentRef| {
            if best.is_none_or(|(other, _)| score > other) {
                best = Some((score, agent));
            }
        };
        for (cohort, skill_match) in &capable {
            let members = &facts.agents.cohort(*cohort).members;
            for group in fleet.groups(*cohort) {
                fleet.ranking(group).visit_best_first(&mut |position, key| {
                    let agent = members[position].expect("only members are ranked");
                    let is_listed = listed.contains(&agent);
                    if !is_listed {
                        compare(skill_match + key, agent);
                    }
                    is_listed
                });
            }
        }
        for agent in listed {
            let cohort = facts.agents[agent].cohort;
            let found = capable.iter().find(|(capable, _)| *capable == cohort);
            if let Some((_, skill_match)) = found
                && fleet.takes_part(facts, agent, cohort)
            {
                let key = fleet.ranking_key(facts, agent) + facts.history_at_kind(kind, agent);
                compare(skill_match + key, agent);
            }
        }
        best.map(|(score, agent)| (agent, score))
    }

    /// The agent that is expected to finish a task first. Of each group of agents that are about equally fast one
    /// stands for all: these are compared by what the indexes tell, and only the most promising are looked into.
    fn earliest_finish(&mut self, task: TaskRef, class: ClassRef) -> Option<(AgentRef, Reason)> {
        let Derived {
            capabilities,
            fleet,
            ..
        } = &mut self.derived;
        let capable = capabilities.capable(&self.facts, fleet, class);
        let fleet = fleet.ranked(&self.facts);
        let mut errand = Errand::new(&self.facts, fleet, task, class);
        errand.ask_holder(capable);
        errand.ask_listed(capable);
        let promising = fleet.promising(errand.cost, capable, errand.looks as usize);
        match promising.groups().first() {
            Some(first) if errand.trusts(&promising) => errand.take_best_of(first),
            _ => errand.ask_promising(&promising),
        }
        let (finish, agent) = errand.best?;
        Some((agent, Reason::EarliestFinish(self.facts.now + finish)))
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
            let capable = capabilities.capable(&self.facts, fleet, class);
            let best = fleet.ranked(&self.facts).best_keys();
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

impl Facts {
    /// What it adds to the score of an agent that it does better at a kind of work than at everything; less than nothing
    /// if it does worse.
    fn history_at_kind(&self, kind: KindRef, agent: AgentRef) -> i64 {
        let rules = &self.config.capabilities;
        let as_a_whole = self.agents[agent].record.success_rate();
        let success = self.success_at(kind, agent, as_a_whole);
        let success = success.filter(|_| rules.consider_history);
        let score = |rate: f64| (rate * rules.history_weight * MILLION as f64) as i64;
        success.map_or(0, |success| score(success) - score(as_a_whole))
    }
}

/// How long the queues of a group are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queues {
    Short,
    /// The shortest is many times what its agent has in hand. Such queues tell themselves whose is shortest: what the
    /// indexes told is all there is to know.
    Long,
}

/// A task that goes to whoever is expected to finish it first.
struct Errand<'a> {
    facts: &'a Facts,
    fleet: Ranked<'a>,
    task: TaskRef,
    cost: Span,
    skills: &'a SkillSet,
    /// Who has its data, as far as anybody knows, and how long it takes to bring it to another.
    data: Option<(Option<AgentRef>, Span)>,
    /// How many more agents may be looked into.
    looks: u32,
    /// And how many of one group.
    of_each: u32,
    /// Whether there are many agents.
    of_many: bool,
    /// Whether those of a group are about equally fast.
    alike: bool,
    /// Whether some agents are known to do better or worse at this kind of work than at everything, or faster or slower.
    knows_kind: bool,
    /// The earliest finish so far.
    best: Option<(Span, AgentRef)>,
}

impl<'a> Errand<'a> {
    fn new(facts: &'a Facts, fleet: Ranked<'a>, task: TaskRef, class: ClassRef) -> Self {
        let (this, many) = (&facts.tasks[task], fleet.len() > FEW_AGENTS);
        let data = this.locality().map(|locality| {
            let holder = facts.locations.get(&locality.key);
            (holder.and_then(|id| fleet.find(*id)), locality.transfer)
        });
        let outcomes = &facts.classes.kind_at(this.kind).outcomes;
        let knows_kind = !outcomes.is_empty();
        Self {
            facts,
            fleet,
            task,
            cost: this.queue_cost(),
            skills: &facts.classes.class_at(class).skills,
            data,
            looks: if many { LOOKS_MAX_OF_MANY } else { LOOKS_MAX },
            of_each: if many && !knows_kind { 1 } else { CANDIDATES },
            of_many: many,
            alike: true,
            knows_kind,
            best: None,
        }
    }

    /// Whoever has the data is asked, however long its queue is.
    fn ask_holder(&mut self, capable: &[(CohortRef, i64)]) {
        if let Some((Some(holder), _)) = self.data {
            self.ask_one(holder, capable);
        }
    }

    /// So is whoever is known to do this kind of work otherwise than the others of its group: few, of each kind.
    fn ask_listed(&mut self, capable: &[(CohortRef, i64)]) {
        let kind = self.facts.tasks[self.task].kind;
        let outcomes = &self.facts.classes.kind_at(kind).outcomes;
        let looks = self.looks;
        for agent in outcomes.agents(&self.facts.agents) {
            self.ask_one(agent, capable);
        }
        self.looks = looks;
    }

    fn ask_one(&mut self, agent: AgentRef, capable: &[(CohortRef, i64)]) {
        let cohort = self.facts.agents[agent].cohort;
        let share = capable.iter().find(|(capable, _)| *capable == cohort);
        if let Some((_, skill_match)) = share
            && self.fleet.takes_part(self.facts, agent, cohort)
        {
            self.ask(agent, *skill_match);
        }
    }

    /// Whether what the indexes tell is enough: in a large fleet many are about as good, and what each has in hand is in
    /// no cache. Where agents are known to differ for this task, they are asked.
    fn trusts(&self, promising: &Promising) -> bool {
        self.of_many
            && self.data.is_none()
            && !self.knows_kind
            && promising.groups().iter().all(|group| !group.is_uneven)
    }

    /// Takes the best placed of a group, by what its index tells.
    fn take_best_of(&mut self, group: &PromisingGroup) {
        let members = &self.facts.agents.cohort(group.at.cohort).members;
        let best = self.fleet.ranking(group.at).best();
        let agent = best.and_then(|position| members[position]);
        self.best = agent.map(|agent| (group.estimate, agent));
    }

    /// Asks the best placed of each group, the most promising first.
    fn ask_promising(&mut self, promising: &Promising) {
        let promising = promising.groups();
        let are_known = promising.iter().all(|group| !group.is_uneven);
        for group in promising {
            let is_late = self.best.is_some_and(|(finish, _)| group.run >= finish);
            if self.looks == 0 || (is_late && !group.is_uneven) {
                continue; // Nobody there would be done earlier, even if it could begin at once.
            }
            let queues = self.ask_best_of(group.at, group.skill_match);
            let is_plain = self.data.is_none() && !self.knows_kind;
            if queues == Queues::Long && are_known && is_plain {
                return;
            }
        }
    }

    /// Asks the best placed of a group. If they are alike, until one can begin at once: that is as good as any other.
    fn ask_best_of(&mut self, group: GroupRef, skill_match: i64) -> Queues {
        let members = &self.facts.agents.cohort(group.cohort).members;
        let ranking = self.fleet.ranking(group);
        let member = |position: usize| members[position].expect("only members are ranked");
        let Some(first) = ranking.best().map(member) else {
            return Queues::Short;
        };
        let is_good = self.ask(first, skill_match);
        if self.alike && self.fleet.hand(first).has_long_queue() {
            return Queues::Long;
        }
        if !(is_good && self.alike) && self.of_each > 1 {
            let mut seen = 0;
            ranking.visit_best_first(&mut |position, _| {
                seen += 1;
                let is_good = match seen {
                    1 => is_good,
                    _ => self.ask(member(position), skill_match),
                };
                seen < self.of_each && self.looks > 0 && !(is_good && self.alike)
            });
        }
        Queues::Short
    }

    /// What is known of an agent's success and speed at this kind of work, where that counts.
    fn known_at_kind(&self, agent: AgentRef) -> (Option<f64>, Option<f64>) {
        if !self.knows_kind {
            return (None, None);
        }
        let kind = self.facts.tasks[self.task].kind;
        let success = self.facts.success_at(kind, agent, 1.0);
        let counts = self.facts.config.capabilities.consider_history;
        let speed = self.facts.speed_at(kind, agent);
        (success.filter(|_| counts), speed)
    }

    /// Reckons when an agent would have finished the task. Returns whether it could begin at once and nothing is known
    /// against it, which is as good as any other.
    fn ask(&mut self, agent: AgentRef, skill_match: i64) -> bool {
        self.looks = self.looks.saturating_sub(1);
        let this = &self.facts.agents[agent];
        let transfer = match self.data {
            Some((Some(holder), _)) if holder == agent => Span::ZERO,
            Some((Some(holder), transfer)) if self.fleet.are_near(holder, agent) => {
                transfer.mul_f64(1.0 - self.facts.config.added.near_share)
            }
            Some((_, transfer)) => transfer,
            None => Span::ZERO,
        };
        let share = skill_match as f64 / MILLION as f64;
        // Who fails at this kind of work has to try more often.
        let (success, speed) = self.known_at_kind(agent);
        let speed = speed.unwrap_or_else(|| this.record.speed_for(self.skills));
        let speed = speed * share * (1.0 - this.throttle) * success.unwrap_or(1.0);
        let run = self.cost.mul_f64(1.0 / speed.max(1e-6));
        let wait = expected_wait(self.facts, self.fleet.hand(agent), this, self.task);
        let finish = Span(wait).saturating_add(run).saturating_add(transfer);
        if self.best.is_none_or(|(other, _)| finish < other) {
            self.best = Some((finish, agent));
        }
        wait == 0 && !self.knows_kind
    }
}

impl Capabilities {
    /// Whether an agent with this key, or a lower one, surely has at least `len` queued tasks. Where the
    /// key alone cannot tell, the answer is no.
    pub(crate) fn has_surely_queued(&self, key: i64, len: u32) -> bool {
        self.history_weight >= 0.0
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
        let in_hand = u64::from(hand.len());
        if hand.queue.is_empty() && in_hand < u64::from(agent.slots) {
            // It can begin at once; among those that can, whoever has more slots free.
            return -(((in_hand << 10) / u64::from(agent.slots)) as i64);
        }
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

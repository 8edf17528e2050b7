//! Room for work that is due: agents that can do it start nothing that would still run when it comes [S19].
//!
//! Idle agents take what waits within a moment, so moving queued tasks ahead of time gains nothing by itself. What a
//! burst does wait for is an agent that can do it and has just begun something long that others could have done. So when
//! a believed forecast says that work is due, as many slots as it will use (and the configuration allows) are kept for it:
//!
//! - their agents are passed over when other tasks are placed, and what waits on their queues moves to others;
//! - they still start whatever ends before the burst comes, and whatever is urgent;
//! - of the rest they refuse what the burst would wait for longer than those who are kept back: `x` is how long a task
//!   would run into the burst, `y` how long the slot would stand idle; it is refused if the tasks of the burst, each of
//!   which waits `x` over the slots that can do them (half of that on average), lose more than those that wait now, each
//!   of which waits `y` over all slots, and the refused one itself. With many tasks waiting nothing is refused.
//!
//! What must stay true: a refusal depends on what was known at the last look, and with time only becomes more likely. So
//! an agent that was refused something has to be looked at again only when a look changes the plans.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use loxley_model::{AgentId, Span, Time};

use crate::facts::Facts;
use crate::forecast::{Burst, Forecasts};
use crate::refs::{AdmissionClassRef, AgentRef, TaskRef};
use crate::timers::Alarm;
use crate::view::WorkForecast;
use crate::{Action, ForecastRules, Reason, Scheduler};

/// So many agents are kept for one kind of work at most.
const AGENTS_MAX: usize = 256;
/// So many of them are compared for a task they are kept for.
const CANDIDATES: usize = 4;
/// So many queued tasks make room at one look.
const MOVES_MAX: usize = 1_024;

/// Which agents are kept for what.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct KeptRoom {
    plans: BTreeMap<AdmissionClassRef, Plan>,
    kept: BTreeMap<AgentId, AdmissionClassRef>,
    /// How often an agent was kept, and how many tasks made room.
    pub(crate) times: u64,
    pub(crate) moves: u64,
}

/// What is kept for one kind of work.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Plan {
    begins: Time,
    /// It is given up then.
    until: Time,
    /// How many tasks are due.
    tasks: u32,
    /// How many slots can do them, and how many there are.
    slots: u64,
    all_slots: u64,
    /// How many tasks waited when it was made.
    waiting: u64,
    agents: Vec<AgentId>,
    /// How many tasks were given to them.
    given: u32,
}

impl Plan {
    /// Whether what takes so long should not be started now.
    fn refuses(&self, now: Time, takes: Span) -> bool {
        let runs_into = (now + takes).since(self.begins.max(now)).0;
        let stands_idle = self.begins.since(now).0;
        if now + takes <= self.begins {
            return false;
        }
        let product = |factors: [u64; 3]| -> u128 {
            factors.into_iter().fold(1_u128, |product, factor| {
                product.saturating_mul(u128::from(factor))
            })
        };
        let burst_waits = product([self.tasks.into(), self.all_slots, runs_into]);
        let others_wait = product([2 * self.slots, self.all_slots + self.waiting, stands_idle]);
        burst_waits > others_wait
    }
}

impl KeptRoom {
    /// Whether nobody is kept for anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether an agent is kept for some kind of work.
    pub(crate) fn keeps(&self, agent: AgentId) -> bool {
        !self.kept.is_empty() && self.kept.contains_key(&agent)
    }

    fn plan_of(&self, agent: AgentId) -> Option<(AdmissionClassRef, &Plan)> {
        let class = *self.kept.get(&agent)?;
        Some((class, self.plans.get(&class)?))
    }

    pub(crate) fn classes(&self) -> impl Iterator<Item = AdmissionClassRef> {
        let kept = self.kept.values().copied();
        kept.chain(self.plans.keys().copied())
    }

    /// When the next plan is given up.
    fn next_end(&self) -> Option<Time> {
        self.plans.values().map(|plan| plan.until).min()
    }
}

/// Forecasts as they are stored beside a [`Snapshot`](crate::Snapshot).
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ForecastState {
    rules: ForecastRules,
    forecasts: Forecasts,
}

impl ForecastState {
    pub(crate) fn new(rules: ForecastRules, forecasts: Forecasts) -> Self {
        Self { rules, forecasts }
    }

    pub(crate) fn into_parts(self) -> (ForecastRules, Forecasts) {
        (self.rules, self.forecasts)
    }
}

impl Facts {
    /// Whether an agent does not start tasks of a class, because its room is kept for others.
    pub(crate) fn keeps_from(&self, agent: AgentId, class: AdmissionClassRef) -> bool {
        let room = &self.forecasts.room;
        if room.is_empty() {
            return false;
        }
        let Some((due, plan)) = room.plan_of(agent) else {
            return false;
        };
        due != class
            && !self.classes.class_of_admission(class).strict
            && self
                .forecasts
                .service(class)
                .is_some_and(|takes| plan.refuses(self.now, takes))
    }
}

impl Scheduler {
    /// The configuration says otherwise than before, or for the first time.
    pub(crate) fn restart_forecasts(&mut self) {
        self.facts.timers.sweep(|_, alarm| alarm != Alarm::Forecast);
        self.release_room(|_| true);
        let rules = self.facts.config.forecast;
        self.facts.forecasts.begin(self.facts.now, &rules);
        if rules.enabled {
            self.set_forecast_alarm();
        }
    }

    fn set_forecast_alarm(&mut self) {
        let forecasts = &self.facts.forecasts;
        let next = forecasts.next_step(&self.facts.config.forecast);
        let end = forecasts.room.next_end().unwrap_or(Time::MAX);
        let at = next.min(end).max(self.facts.now + Span(1));
        self.facts.timers.set(at, Alarm::Forecast);
    }

    /// A step is over, or a plan.
    pub(crate) fn look_ahead(&mut self, actions: &mut Vec<Action>) {
        let rules = self.facts.config.forecast;
        let now = self.facts.now;
        if !rules.enabled {
            return;
        }
        self.facts.forecasts.advance(now, &rules);
        let bursts = self.facts.forecasts.bursts(&rules);
        let plans = self.facts.forecasts.room.plans.iter();
        let over = plans.filter(|(_, plan)| plan.until <= now);
        let over: Vec<AdmissionClassRef> = over.map(|(class, _)| *class).collect();
        self.release_room(|class| over.contains(&class));
        for (class, burst) in bursts {
            self.keep_room(class, burst, actions);
        }
        // What they refused a step ago they may start by what is known now.
        for agent in self.kept_agents() {
            self.mark_agent(agent);
        }
        self.set_forecast_alarm();
    }

    fn kept_agents(&self) -> Vec<AgentRef> {
        let kept = self.facts.forecasts.room.kept.keys();
        kept.filter_map(|id| self.derived.fleet.find(*id)).collect()
    }

    /// Keeps as many agents for a burst as it will use.
    fn keep_room(&mut self, class: AdmissionClassRef, burst: Burst, actions: &mut Vec<Action>) {
        let (mut free, slots) = self.agents_for(class);
        let service = self.facts.forecasts.service(class).unwrap_or(Span::ZERO);
        let work = u128::from(burst.tasks) * u128::from(service.0) / u128::from(slots.max(1));
        let horizon = self.facts.config.forecast.horizon;
        let lasts = Span(u64::try_from(work).unwrap_or(u64::MAX)).min(horizon);
        let share = (slots as f64 * self.facts.config.forecast.share_max) as u64;
        let wanted = u64::from(burst.tasks).min(share);
        let plan = Plan {
            begins: burst.begins,
            until: burst.ends + lasts,
            tasks: burst.tasks,
            slots,
            all_slots: self.derived.fleet.total_slots,
            waiting: self.derived.counts.queued,
            agents: Vec::new(),
            given: 0,
        };
        if !self.is_worth_it(class, &plan) {
            return;
        }
        let room = &mut self.facts.forecasts.room;
        let plan = match room.plans.get(&class) {
            // Another one: this one first.
            Some(old) if plan.begins > old.until => return,
            Some(old) => Plan {
                until: plan.until.max(old.until),
                begins: plan.begins.min(old.begins),
                agents: old.agents.clone(),
                given: old.given,
                ..plan
            },
            None => plan,
        };
        let mut has: u64 = 0;
        for agent in &plan.agents {
            let agent = self.derived.fleet.find(*agent);
            has += agent.map_or(0, |agent| u64::from(self.facts.agents[agent].slots));
        }
        room.plans.insert(class, plan);
        // Who has least in hand is free soonest.
        free.sort_by_key(|(rank, agent)| (*rank, self.derived.fleet.hand(*agent).len(), *agent));
        for (_, agent) in free {
            let kept = self.facts.forecasts.room.plans[&class].agents.len();
            if has >= wanted || kept >= AGENTS_MAX {
                break;
            }
            has += u64::from(self.facts.agents[agent].slots);
            self.keep(agent, class, actions);
        }
    }

    /// The agents that could be kept for a class, with the rank of their cohorts, and how many slots can do it.
    fn agents_for(&mut self, class: AdmissionClassRef) -> (Vec<(usize, AgentRef)>, u64) {
        let capability = self.facts.classes.admission_class(class).capability;
        let capable = self.capable(capability).to_vec();
        let (mut free, mut slots) = (Vec::new(), 0);
        for (rank, (cohort, _)) in capable.into_iter().enumerate() {
            for agent in self.facts.agents.cohort(cohort).members.iter().flatten() {
                let this = &self.facts.agents[*agent];
                if this.is_alive() {
                    slots += u64::from(this.slots);
                    if !self.facts.forecasts.room.keeps(this.id) {
                        free.push((rank, *agent));
                    }
                }
            }
        }
        (free, slots)
    }

    /// Whether there is something that would be refused.
    fn is_worth_it(&self, class: AdmissionClassRef, plan: &Plan) -> bool {
        let mut others = self.facts.forecasts.all();
        others.any(|(other, _)| {
            let takes = self.facts.forecasts.service(other);
            other != class && takes.is_some_and(|takes| plan.refuses(self.facts.now, takes))
        })
    }

    fn keep(&mut self, agent: AgentRef, class: AdmissionClassRef, actions: &mut Vec<Action>) {
        let id = self.facts.agents[agent].id;
        let room = &mut self.facts.forecasts.room;
        room.kept.insert(id, class);
        room.times += 1;
        if let Some(plan) = room.plans.get_mut(&class) {
            plan.agents.push(id);
        }
        self.derived.fleet.agent_changed(&self.facts, agent);
        let queue = &self.derived.fleet.hand(agent).queue;
        let queued = queue.in_order(&self.facts.tasks);
        for task in queued.into_iter().take(MOVES_MAX) {
            let of = self.facts.tasks[task].admission_class;
            if !self.facts.keeps_from(id, of) {
                continue;
            }
            if let Some((target, _)) = self
                .choose_freely(task, Some(agent))
                .filter(|(target, _)| *target != agent)
            {
                self.facts.forecasts.room.moves += 1;
                self.move_off_queue(task);
                self.enqueue(task, target, Reason::MadeRoom(id), actions);
            }
        }
    }

    /// Gives up the plans for some classes.
    fn release_room(&mut self, is_over: impl Fn(AdmissionClassRef) -> bool) {
        let room = &mut self.facts.forecasts.room;
        room.plans.retain(|class, _| !is_over(*class));
        let mut released = Vec::new();
        room.kept.retain(|agent, class| {
            let stays = !is_over(*class);
            if !stays {
                released.push(*agent);
            }
            stays
        });
        for agent in released {
            self.note_released(agent);
        }
    }

    fn note_released(&mut self, agent: AgentId) {
        if let Some(agent) = self.derived.fleet.find(agent) {
            self.derived.fleet.agent_changed(&self.facts, agent);
            self.mark_agent(agent);
            self.marks.release_held();
        }
    }

    /// An agent is kept no more: it goes, or is another than it was.
    pub(crate) fn release_agent(&mut self, agent: AgentRef) {
        if self.facts.forecasts.room.is_empty() {
            return;
        }
        let id = self.facts.agents[agent].id;
        let room = &mut self.facts.forecasts.room;
        if let Some(class) = room.kept.remove(&id) {
            if let Some(plan) = room.plans.get_mut(&class) {
                plan.agents.retain(|other| *other != id);
            }
            self.note_released(id);
        }
    }

    /// Where a task goes that room is kept for, unless it would start sooner where it goes otherwise.
    pub(crate) fn kept_for(
        &mut self,
        task: TaskRef,
        otherwise: Option<AgentRef>,
        avoid: Option<AgentRef>,
    ) -> Option<AgentRef> {
        let class = self.facts.tasks[task].admission_class;
        let plan = self.facts.forecasts.room.plans.get_mut(&class)?;
        let (count, first) = (plan.agents.len(), plan.given as usize);
        plan.given = plan.given.wrapping_add(1);
        let looked_at = (first..first + CANDIDATES.min(count)).map(|at| plan.agents[at % count]);
        let looked_at: Vec<AgentId> = looked_at.collect();
        let load = |agent: AgentRef| {
            let queued = self.derived.fleet.hand(agent).queue.len();
            (queued, !self.is_idle(agent))
        };
        let found = looked_at
            .into_iter()
            .filter_map(|id| self.derived.fleet.find(id));
        let capability = self.facts.classes.admission_class(class).capability;
        let best = found
            .filter(|agent| {
                let this = &self.facts.agents[*agent];
                avoid != Some(*agent) && this.is_alive() && self.is_capable(capability, this.cohort)
            })
            .min_by_key(|agent| load(*agent))?;
        otherwise
            .is_none_or(|other| load(best) <= load(other))
            .then_some(best)
    }

    /// Nobody else can do a task: the agents that can are kept no more. Says whether there were any.
    pub(crate) fn release_capable(&mut self, task: TaskRef) -> bool {
        let this = &self.facts.tasks[task];
        let class = self.facts.admission_class_of(this).capability;
        let mut any = false;
        for agent in self.kept_agents() {
            if self.is_capable(class, self.facts.agents[agent].cohort) {
                self.release_agent(agent);
                any = true;
            }
        }
        any
    }

    /// An idle agent whose room is kept from a task, and when what it is kept for is due.
    pub(crate) fn kept_from(&self, task: TaskRef) -> Option<(AgentId, Time)> {
        let this = &self.facts.tasks[task];
        let class = self.facts.admission_class_of(this).capability;
        let mut kept = self.kept_agents().into_iter();
        kept.find_map(|agent| {
            let other = &self.facts.agents[agent];
            let is_kept = self.is_idle(agent)
                && self.is_capable(class, other.cohort)
                && self.facts.keeps_from(other.id, this.admission_class);
            let (_, plan) = self.facts.forecasts.room.plan_of(other.id)?;
            is_kept.then_some((other.id, plan.begins))
        })
    }

    /// What is known of the arrivals of each kind of work, and what is done about it.
    #[must_use]
    pub fn forecasts(&self) -> Vec<WorkForecast> {
        let rules = &self.facts.config.forecast;
        let forecasts = &self.facts.forecasts;
        let all = forecasts.all().map(|(class, series)| {
            let standing = series.standing(rules);
            let admission = self.facts.classes.admission_class(class);
            let capability = self.facts.classes.class_at(admission.capability);
            let plan = forecasts.room.plans.get(&class);
            WorkForecast {
                skills: capability.skills.clone(),
                needs: capability.needs.clone(),
                is_urgent: capability.strict,
                is_large: admission.large,
                group: admission.group,
                user: self.facts.limits.user_id(admission.user),
                last: standing.last,
                expected: standing.expected,
                service: standing.service,
                season: standing.season,
                error: standing.error,
                error_as_now: standing.error_as_now,
                is_believed: standing.is_believed,
                due: plan.map(|plan| (plan.begins, plan.tasks)),
                kept_for_it: plan.map_or_else(Vec::new, |plan| plan.agents.clone()),
            }
        });
        all.collect()
    }

    /// How often room was kept on an agent, and how many queued tasks moved for it.
    #[must_use]
    pub fn kept_room(&self) -> (u64, u64) {
        let room = &self.facts.forecasts.room;
        (room.times, room.moves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten tasks are due in ten seconds, for two of four slots.
    fn plan(waiting: u64) -> Plan {
        Plan {
            begins: Time::ZERO + Span::from_secs(10),
            until: Time::ZERO + Span::from_secs(20),
            tasks: 10,
            slots: 2,
            all_slots: 4,
            waiting,
            agents: Vec::new(),
            given: 0,
        }
    }

    #[test]
    fn what_ends_before_the_burst_is_never_refused() {
        let ends_at = |secs| plan(0).refuses(Time::ZERO, Span::from_secs(secs));
        assert_eq!([1, 10, 1_000].map(ends_at), [false, false, true]);
    }

    #[test]
    fn it_is_refused_if_the_burst_would_wait_longer_than_the_others_do() {
        // The burst waits 10 * 4 * x, the others 2 * 2 * (4 + waiting) * 10 seconds.
        for (waiting, longest) in [(0, 14), (6, 20), (96, 110)] {
            let refuses = |secs| plan(waiting).refuses(Time::ZERO, Span::from_secs(secs));
            assert!(!refuses(longest), "{waiting}");
            assert!(refuses(longest + 1), "{waiting}");
        }
    }

    #[test]
    fn once_the_burst_has_come_whatever_takes_time_is_refused() {
        let now = Time::ZERO + Span::from_secs(12);
        assert!(plan(1_000).refuses(now, Span::from_secs(1)));
    }
}

//! The registered agents, and the cohorts they form: the facts.
//!
//! Agents with the same skills and the same resources are a *cohort*: whatever one of them is capable
//! of, all are. So the question "who is best for this task" looks at one candidate for each cohort,
//! never at all agents. What follows from these facts and those about tasks is in
//! [`Fleet`](crate::fleet::Fleet).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use loxley_model::{
    AgentId, AgentSpec, Dispatch, Resources, SkillId, SkillSet, Span, TaskId, Time,
};

use crate::added::AgentAdditions;
use crate::refs::{AgentRef, CohortRef};
use crate::view::Liveness;

/// An agent. With ten thousand of these, most are found cold in memory: what is needed for every task
/// comes first and close together, what is needed seldom comes last.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(C, align(64))]
pub(crate) struct Agent {
    pub(crate) id: AgentId,
    /// How many tasks it runs at once.
    pub(crate) slots: u32,
    pub(crate) cohort: CohortRef,
    /// Its position within the cohort.
    pub(crate) position: u32,
    /// Its open request for work.
    pub(crate) want: u32,
    /// How many tasks went past one that waits for room.
    pub(crate) bypassed: u32,
    /// Tells a late timer of an earlier agent at this place from one of this agent.
    pub(crate) incarnation: u32,
    pub(crate) dispatch: Dispatch,
    pub(crate) liveness: Liveness,
    pub(crate) confirms_ends: bool,
    /// When the tasks in hand are next checked for time limits and stragglers.
    pub(crate) check_at: Time,
    pub(crate) throttle: f64,
    pub(crate) round_trip: Span,
    pub(crate) record: Record,
    pub(crate) last_heard: Time,
    /// It is not given up before this, unless it was heard meanwhile: the rules of silence have changed, and it
    /// may not know.
    pub(crate) patience_until: Time,
    pub(crate) robbed_at: Option<Time>,
    pub(crate) refusals: u32,
    /// It was too late when it asked for something back: until then it does not ask again.
    pub(crate) backs_off_until: Option<Time>,
    pub(crate) skills: SkillSet,
    pub(crate) resources: Resources,
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) added: Box<AgentAdditions>,
}

/// What was learned of an agent.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(C)]
pub(crate) struct Record {
    /// Successes and failures, the older the less they count.
    pub(crate) successes: f64,
    pub(crate) failures: f64,
    pub(crate) decayed_at: Time,
    /// 1 runs a task in its expected cost.
    pub(crate) speed: f64,
    /// The mean length of its tasks, the later ones counting more.
    pub(crate) mean_duration: Option<Span>,
    pub(crate) completed: u64,
    /// Whether any skill failed lately or is suspended.
    pub(crate) is_troubled: bool,
    pub(crate) failed: u64,
    pub(crate) skills: Vec<SkillRecord>,
}

/// What was learned of one skill of an agent.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct SkillRecord {
    pub(crate) skill: SkillId,
    pub(crate) failures_in_a_row: u32,
    pub(crate) speed: Option<f64>,
    pub(crate) breaker: Breaker,
    /// How often it was suspended without a success in between.
    pub(crate) suspensions: u32,
}

/// Whether an agent has a skill at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) enum Breaker {
    /// It has.
    Closed,
    /// It kept failing: not before this time.
    Open(Time),
    /// One task may try.
    Probing,
    /// One task tries.
    OnProbe(TaskId),
}

impl Record {
    pub(crate) fn new(speed: f64, now: Time) -> Self {
        Self {
            completed: 0,
            failed: 0,
            successes: 0.0,
            failures: 0.0,
            decayed_at: now,
            speed,
            mean_duration: None,
            skills: Vec::new(),
            is_troubled: false,
        }
    }

    /// Successes over outcomes; 1 when there are none.
    pub(crate) fn success_rate(&self) -> f64 {
        let all = self.successes + self.failures;
        if all <= 0.0 || self.failures == 0.0 {
            1.0
        } else {
            self.successes / all
        }
    }

    pub(crate) fn skill_mut(&mut self, skill: SkillId) -> &mut SkillRecord {
        let at = match self.skills.iter().position(|record| record.skill == skill) {
            Some(at) => at,
            None => {
                self.skills.push(SkillRecord {
                    skill,
                    failures_in_a_row: 0,
                    speed: None,
                    breaker: Breaker::Closed,
                    suspensions: 0,
                });
                self.skills.len() - 1
            }
        };
        &mut self.skills[at]
    }

    /// The learned speed for a task with these skills: that of its slowest skill.
    pub(crate) fn speed_for(&self, skills: &SkillSet) -> f64 {
        let learned = self
            .skills
            .iter()
            .filter(|record| skills.contains(record.skill));
        learned
            .filter_map(|record| record.speed)
            .reduce(f64::min)
            .unwrap_or(self.speed)
    }

    /// Whether a skill is taken away at present.
    pub(crate) fn is_suspended(&self, skill: SkillId) -> bool {
        self.skills
            .iter()
            .any(|r| r.skill == skill && r.breaker != Breaker::Closed)
    }
}

impl Agent {
    /// How many tasks it should have in hand beyond those it runs, so that it never waits for a round
    /// trip: as many as it finishes in one.
    pub(crate) fn backlog_depth(&self, depth_max: u32) -> u32 {
        let Some(mean) = self.record.mean_duration else {
            return depth_max.min(1);
        };
        let round_trip = self.likely_round_trip();
        let finished = (2 * round_trip.0).saturating_mul(self.slots.into()) / mean.0.max(1);
        let wanted = u32::try_from(finished)
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        let unthrottled = f64::from(wanted.min(depth_max)) * (1.0 - self.throttle);
        unthrottled as u32
    }

    /// How long it takes to hear of an end and have the next task there.
    pub(crate) fn likely_round_trip(&self) -> Span {
        const ASSUMED: Span = Span::from_micros(200);
        self.round_trip.max(ASSUMED)
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.liveness == Liveness::Alive
    }

    /// The skills it has at present.
    pub(crate) fn effective_skills(&self) -> SkillSet {
        self.all_skills()
            .filter(|skill| !self.record.is_suspended(*skill))
            .collect()
    }

    /// The skills that it declared or earned, also those that it has lost for now.
    pub(crate) fn all_skills(&self) -> impl Iterator<Item = SkillId> {
        self.skills.iter().chain(self.added.earned.iter())
    }

    /// Whether it declared or earned a skill, also one that it has lost for now.
    pub(crate) fn has_skill(&self, skill: SkillId) -> bool {
        self.skills.contains(skill) || self.added.earned.contains(skill)
    }
}

/// Agents with the same skills and resources.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Cohort {
    pub(crate) skills: SkillSet,
    pub(crate) resources: Resources,
    /// The agents by position; `None` where one left. Of agents that are equally good the one at the
    /// lowest position is taken.
    pub(crate) members: Vec<Option<AgentRef>>,
    vacant: Vec<u32>,
}

/// The table of agents. Gives no place away twice at a time.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Agents {
    entries: Vec<Option<Agent>>,
    vacant: Vec<AgentRef>,
    /// How many times each id has registered.
    incarnations: BTreeMap<AgentId, u32>,
    cohorts: Vec<Cohort>,
}

impl Agents {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (AgentRef, &Agent)> {
        let present = self.entries.iter().enumerate();
        present.filter_map(|(i, agent)| agent.as_ref().map(|agent| (AgentRef::new(i), agent)))
    }

    pub(crate) fn refs(&self) -> Vec<AgentRef> {
        self.iter().map(|(agent, _)| agent).collect()
    }

    pub(crate) fn get(&self, agent: AgentRef) -> Option<&Agent> {
        self.entries.get(agent.index())?.as_ref()
    }

    /// Has an agent fetched from memory while the caller goes on.
    pub(crate) fn touch(&self, agent: AgentRef) {
        if let Some(this) = self.get(agent) {
            core::hint::black_box((this.slots, this.record.completed));
        }
    }

    pub(crate) fn cohorts(&self) -> &[Cohort] {
        &self.cohorts
    }

    pub(crate) fn cohort(&self, cohort: CohortRef) -> &Cohort {
        &self.cohorts[cohort.index()]
    }

    /// How many places there are, those of agents that left included.
    pub(crate) fn places(&self) -> usize {
        self.entries.len()
    }

    /// Puts in an agent that belongs to no cohort yet.
    pub(crate) fn insert(&mut self, spec: AgentSpec, now: Time) -> AgentRef {
        let incarnation = self.incarnations.entry(spec.id).or_default();
        *incarnation += 1;
        let agent = Agent {
            id: spec.id,
            slots: spec.slots,
            cohort: CohortRef::new(0),
            position: 0,
            want: 0,
            bypassed: 0,
            incarnation: *incarnation,
            dispatch: spec.dispatch,
            liveness: Liveness::Alive,
            confirms_ends: spec.confirms_ends,
            check_at: Time::MAX,
            throttle: 0.0,
            round_trip: Span::ZERO,
            record: Record::new(spec.speed, now),
            last_heard: now,
            patience_until: Time::ZERO,
            robbed_at: None,
            refusals: 0,
            backs_off_until: None,
            skills: spec.skills,
            resources: spec.resources,
            added: Box::new(AgentAdditions {
                zone: spec.zone,
                ..AgentAdditions::default()
            }),
        };
        match self.vacant.pop() {
            Some(place) => {
                self.entries[place.index()] = Some(agent);
                place
            }
            None => {
                self.entries.push(Some(agent));
                AgentRef::new(self.entries.len() - 1)
            }
        }
    }

    pub(crate) fn remove(&mut self, agent: AgentRef) -> Agent {
        let gone = self.entries[agent.index()]
            .take()
            .expect("an agent leaves once");
        self.vacant.push(agent);
        gone
    }

    /// A cohort without agents.
    pub(crate) fn add_cohort(&mut self, skills: SkillSet, resources: Resources) {
        self.cohorts.push(Cohort {
            skills,
            resources,
            members: Vec::new(),
            vacant: Vec::new(),
        });
    }

    /// Gives an agent a position in a cohort.
    pub(crate) fn take_position(&mut self, agent: AgentRef, cohort: CohortRef) {
        let this = &mut self.cohorts[cohort.index()];
        let position = match this.vacant.pop() {
            Some(position) => position,
            None => {
                this.members.push(None);
                this.members.len() as u32 - 1
            }
        };
        this.members[position as usize] = Some(agent);
        self[agent].cohort = cohort;
        self[agent].position = position;
    }

    /// Takes an agent out of its cohort.
    pub(crate) fn leave_position(&mut self, agent: AgentRef) {
        let Agent {
            cohort, position, ..
        } = self[agent];
        let this = &mut self.cohorts[cohort.index()];
        this.members[position as usize] = None;
        this.vacant.push(position);
    }

    /// Whether everybody is where the cohorts say, and the places without an agent are those that the
    /// lists of them name.
    pub(crate) fn places_agree(&self) -> bool {
        let seated = |agent: AgentRef, this: &Agent| {
            let cohort = self.cohorts.get(this.cohort.index());
            let member = cohort.and_then(|cohort| cohort.members.get(this.position as usize));
            member == Some(&Some(agent))
        };
        let members = self.cohorts.iter().map(|cohort| {
            let vacant = cohort.members.iter().filter(|member| member.is_none());
            let named = |at: &u32| cohort.members.get(*at as usize) == Some(&None);
            let agree = vacant.count() == cohort.vacant.len() && cohort.vacant.iter().all(named);
            agree.then(|| cohort.members.len() - cohort.vacant.len())
        });
        let members: Option<Vec<usize>> = members.collect();
        let named = |place: &AgentRef| self.entries.get(place.index()) == Some(&None);
        self.iter().all(|(agent, this)| seated(agent, this))
            && members.is_some_and(|counts| counts.iter().sum::<usize>() == self.iter().count())
            && self.vacant.len() == self.entries.iter().filter(|agent| agent.is_none()).count()
            && self.vacant.iter().all(named)
    }
}

impl core::ops::Index<AgentRef> for Agents {
    type Output = Agent;
    fn index(&self, agent: AgentRef) -> &Agent {
        self.entries[agent.index()]
            .as_ref()
            .expect("a reference outlived its agent")
    }
}

impl core::ops::IndexMut<AgentRef> for Agents {
    fn index_mut(&mut self, agent: AgentRef) -> &mut Agent {
        self.entries[agent.index()]
            .as_mut()
            .expect("a reference outlived its agent")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_without_an_agent_is_on_the_list_of_such_places() {
        let mut agents = Agents::default();
        let agent = agents.insert(AgentSpec::new(AgentId(1), SkillSet::none()), Time::ZERO);
        agents.remove(agent);
        assert!(agents.places_agree());
        agents.vacant.clear();
        assert!(!agents.places_agree());
    }
}

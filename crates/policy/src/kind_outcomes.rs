//! How agents do at one kind of work.
//!
//! Most agents succeed at most kinds, and of those nothing is kept: an agent is listed at a kind once it failed at it, or
//! succeeded at it while it fails at others. Whoever is not listed is as good at the kind as at everything.

use alloc::vec::Vec;

use loxley_model::{Span, Time};

use crate::agents::Agents;
use crate::facts::Facts;
use crate::learning::decay_factor;
use crate::refs::{AgentRef, KindRef};

/// So many agents are listed at a kind: if more fail at it, the kind is to blame.
const AGENTS_KEPT: usize = 16;

/// What is known of an agent as a whole counts like so many outcomes at this kind.
const PRIOR: f64 = 3.0;

/// An agent whose outcomes count for less than this is listed no more.
const WEIGHT_MIN: f64 = 0.1;

/// From this success rate on, nothing of an agent's successes is kept by kind.
pub(crate) const UNTROUBLED: f64 = 0.99;

/// The agents that are listed at a kind of work.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct KindOutcomes {
    listed: Vec<Listed>,
}

/// Successes and failures of an agent at a kind of work, the older the less they count.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Listed {
    agent: AgentRef,
    /// Tells it from a later agent at the same place.
    incarnation: (u64, u32),
    successes: f64,
    failures: f64,
    decayed_at: Time,
}

impl Listed {
    fn decay(&mut self, now: Time, half_life: Span) {
        let factor = decay_factor(now.since(self.decayed_at), half_life);
        self.successes *= factor;
        self.failures *= factor;
        self.decayed_at = now;
    }

    fn weight(&self) -> f64 {
        self.successes + self.failures
    }

    fn is_here(&self, agents: &Agents) -> bool {
        agents
            .get(self.agent)
            .is_some_and(|agent| self.incarnation == (agent.id.0, agent.incarnation))
    }
}

impl KindOutcomes {
    pub(crate) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Notes an outcome. `lists` says whether an agent that is not listed shall be.
    pub(crate) fn add(
        &mut self,
        agents: &Agents,
        agent: AgentRef,
        succeeded: bool,
        lists: bool,
        (now, half_life): (Time, Span),
    ) {
        for listed in &mut self.listed {
            listed.decay(now, half_life);
        }
        self.listed.retain(|listed| {
            listed.is_here(agents) && (listed.agent == agent || listed.weight() >= WEIGHT_MIN)
        });
        let known = self.listed.iter().position(|listed| listed.agent == agent);
        let Some(at) = known.or_else(|| lists.then(|| self.list(agents, agent, now))) else {
            return;
        };
        let listed = &mut self.listed[at];
        if succeeded {
            listed.successes += 1.0;
        } else {
            listed.failures += 1.0;
        }
    }

    /// Lists an agent, in the place of the one of which the least is known if there are many. Returns where it is.
    fn list(&mut self, agents: &Agents, agent: AgentRef, now: Time) -> usize {
        let this = &agents[agent];
        if self.listed.len() >= AGENTS_KEPT {
            let weights = self.listed.iter().map(Listed::weight).enumerate();
            let least = weights.min_by(|(_, one), (_, other)| one.total_cmp(other));
            self.listed.remove(least.expect("there are many of them").0);
        }
        self.listed.push(Listed {
            agent,
            incarnation: (this.id.0, this.incarnation),
            successes: 0.0,
            failures: 0.0,
            decayed_at: now,
        });
        self.listed.len() - 1
    }

    /// The agents that are listed, of those that are here.
    pub(crate) fn agents<'a>(&'a self, agents: &'a Agents) -> impl Iterator<Item = AgentRef> + 'a {
        let here = self.listed.iter().filter(|listed| listed.is_here(agents));
        here.map(|listed| listed.agent)
    }
}

impl Facts {
    /// How often an agent succeeds at a kind of work, if it is listed there; `as_a_whole` is what is known of it otherwise.
    pub(crate) fn success_at(
        &self,
        kind: KindRef,
        agent: AgentRef,
        as_a_whole: f64,
    ) -> Option<f64> {
        let mut listed = self.classes.kind_at(kind).outcomes.listed.iter();
        let listed = listed.find(|listed| listed.agent == agent)?;
        if !listed.is_here(&self.agents) {
            return None;
        }
        let mut listed = *listed;
        listed.decay(self.now, self.config.learning.half_life);
        Some((listed.successes + PRIOR * as_a_whole) / (listed.weight() + PRIOR))
    }
}

#[cfg(test)]
mod tests {
    use loxley_model::{AgentId, AgentSpec, SkillSet};

    use super::*;

    fn agents(count: u64) -> (Agents, Vec<AgentRef>) {
        let mut agents = Agents::default();
        let specs = (1..=count).map(|id| AgentSpec::new(AgentId(id), SkillSet::none()));
        let refs = specs.map(|spec| agents.insert(spec, Time::ZERO)).collect();
        (agents, refs)
    }

    fn at(seconds: u64) -> (Time, Span) {
        (Time::ZERO + Span::from_secs(seconds), Span::from_secs(10))
    }

    #[test]
    fn outcomes_count_half_after_each_half_life_and_are_forgotten() {
        let (agents, refs) = agents(2);
        let mut outcomes = KindOutcomes::default();
        outcomes.add(&agents, refs[0], true, false, at(0));
        assert!(outcomes.is_empty(), "a success of an untroubled agent");
        outcomes.add(&agents, refs[0], false, true, at(0));
        outcomes.add(&agents, refs[0], true, false, at(10));
        let listed = outcomes.listed[0];
        assert_eq!((listed.successes, listed.failures), (1.0, 0.5));
        // The other's outcome is the last; the first counts for nothing by then.
        outcomes.add(&agents, refs[1], false, true, at(60));
        assert_eq!(outcomes.agents(&agents).collect::<Vec<_>>(), [refs[1]]);
    }

    #[test]
    fn the_list_is_bounded_and_knows_no_agent_that_left() {
        let (mut agents, refs) = agents(20);
        let mut outcomes = KindOutcomes::default();
        for agent in &refs {
            outcomes.add(&agents, *agent, false, true, at(0));
        }
        assert_eq!(outcomes.agents(&agents).count(), AGENTS_KEPT);
        let last = refs[19];
        assert!(outcomes.agents(&agents).any(|agent| agent == last));
        agents.remove(last);
        assert!(outcomes.agents(&agents).all(|agent| agent != last));
        let again = agents.insert(AgentSpec::new(AgentId(20), SkillSet::none()), Time::ZERO);
        assert_eq!(again, last, "the same place");
        assert!(outcomes.agents(&agents).all(|agent| agent != last));
    }
}

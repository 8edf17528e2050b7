//! How agents do at one kind of work.
//!
//! Most agents succeed at most kinds and are as fast at one as at another, and of those nothing is kept: an agent is listed
//! at a kind once it failed at it, succeeded at it while it fails at others, or took much more or less time than it does
//! otherwise. Whoever is not listed is as good and as fast at the kind as at everything.

use alloc::vec::Vec;

use loxley_model::{Span, Time};

use crate::agents::Agents;
use crate::facts::Facts;
use crate::learning::{decay_factor, learned_speed};
use crate::refs::{AgentRef, KindRef};

/// So many agents are listed at a kind: if more fail at it, the kind is to blame.
const AGENTS_KEPT: usize = 16;

/// What is known of an agent as a whole counts like so many outcomes at this kind.
const PRIOR: f64 = 3.0;

/// An agent whose outcomes count for less than this is listed no more.
const WEIGHT_MIN: f64 = 0.1;

/// From this success rate on, nothing of an agent's successes is kept by kind.
const UNTROUBLED: f64 = 0.99;

/// An agent that is so many times faster or slower at a kind of work than at everything is listed there.
const SPEED_DIFFERS: f64 = 2.0;

/// One that is no more than so many times faster or slower, and does not fail, is listed no more.
const SPEED_IS_ALIKE: f64 = 1.2;

/// What an agent did at a kind of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) succeeded: bool,
    /// How fast it was, where that is known and counts.
    pub(crate) speed: Option<f64>,
    /// How fast and how successful it is as a whole.
    pub(crate) whole_speed: f64,
    pub(crate) whole_success: f64,
}

impl Seen {
    /// Whether it says something that is not known of the agent as a whole.
    fn is_news(self) -> bool {
        let differs = |speed: f64| times_apart(speed, self.whole_speed) >= SPEED_DIFFERS;
        !self.succeeded || self.whole_success < UNTROUBLED || self.speed.is_some_and(differs)
    }
}

/// How many times one speed is the other, whichever is greater.
fn times_apart(one: f64, other: f64) -> f64 {
    (one / other).max(other / one)
}

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
    /// How fast it is at this kind of work, once that was seen to differ.
    speed: Option<f64>,
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

    /// Notes what an agent did, if that says something that is not known of it as a whole.
    pub(crate) fn add(
        &mut self,
        agents: &Agents,
        agent: AgentRef,
        seen: Seen,
        (now, half_life): (Time, Span),
    ) {
        let is_news = seen.is_news();
        if !is_news && self.listed.is_empty() {
            return;
        }
        for listed in &mut self.listed {
            listed.decay(now, half_life);
        }
        self.listed.retain(|listed| {
            listed.is_here(agents) && (listed.agent == agent || listed.weight() >= WEIGHT_MIN)
        });
        let known = self.listed.iter().position(|listed| listed.agent == agent);
        let Some(at) = known.or_else(|| is_news.then(|| self.list(agents, agent, now))) else {
            return;
        };
        let listed = &mut self.listed[at];
        if seen.succeeded {
            listed.successes += 1.0;
        } else {
            listed.failures += 1.0;
        }
        if let Some(speed) = seen.speed {
            let known = listed.speed.unwrap_or(seen.whole_speed);
            listed.speed = Some(learned_speed(known, speed));
            if listed.failures < WEIGHT_MIN
                && !is_news
                && times_apart(speed, seen.whole_speed) <= SPEED_IS_ALIKE
                && times_apart(listed.speed.unwrap_or(speed), seen.whole_speed) <= SPEED_IS_ALIKE
            {
                self.listed.swap_remove(at);
            }
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
            speed: None,
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
        let mut listed = *self.listed_at(kind, agent)?;
        listed.decay(self.now, self.config.learning.half_life);
        Some((listed.successes + PRIOR * as_a_whole) / (listed.weight() + PRIOR))
    }

    /// How fast an agent is at a kind of work, where that is known to differ from how fast it is at everything.
    pub(crate) fn speed_at(&self, kind: KindRef, agent: AgentRef) -> Option<f64> {
        self.listed_at(kind, agent)?.speed
    }

    fn listed_at(&self, kind: KindRef, agent: AgentRef) -> Option<&Listed> {
        let mut listed = self.classes.kind_at(kind).outcomes.listed.iter();
        let listed = listed.find(|listed| listed.agent == agent)?;
        listed.is_here(&self.agents).then_some(listed)
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

    fn did(succeeded: bool) -> Seen {
        Seen {
            succeeded,
            speed: None,
            whole_speed: 1.0,
            whole_success: 1.0,
        }
    }

    fn at(seconds: u64) -> (Time, Span) {
        (Time::ZERO + Span::from_secs(seconds), Span::from_secs(10))
    }

    #[test]
    fn outcomes_count_half_after_each_half_life_and_are_forgotten() {
        let (agents, refs) = agents(2);
        let mut outcomes = KindOutcomes::default();
        outcomes.add(&agents, refs[0], did(true), at(0));
        assert!(outcomes.is_empty(), "a success of an untroubled agent");
        outcomes.add(&agents, refs[0], did(false), at(0));
        outcomes.add(&agents, refs[0], did(true), at(10));
        let listed = outcomes.listed[0];
        assert_eq!((listed.successes, listed.failures), (1.0, 0.5));
        // The other's outcome is the last; the first counts for nothing by then.
        outcomes.add(&agents, refs[1], did(false), at(60));
        assert_eq!(outcomes.agents(&agents).collect::<Vec<_>>(), [refs[1]]);
    }

    #[test]
    fn the_list_is_bounded_and_knows_no_agent_that_left() {
        let (mut agents, refs) = agents(20);
        let mut outcomes = KindOutcomes::default();
        for agent in &refs {
            outcomes.add(&agents, *agent, did(false), at(0));
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
    #[test]
    fn a_speed_that_differs_is_kept_until_it_does_no_more() {
        let (agents, refs) = agents(1);
        let mut outcomes = KindOutcomes::default();
        let ran = |speed: f64| Seen {
            speed: Some(speed),
            ..did(true)
        };
        outcomes.add(&agents, refs[0], ran(1.9), at(0));
        assert!(
            outcomes.is_empty(),
            "not fast enough to be no matter of chance"
        );
        for _ in 0..40 {
            outcomes.add(&agents, refs[0], ran(3.0), at(0));
        }
        let speed = outcomes.listed[0].speed.expect("it differs");
        assert!((2.9..=3.0).contains(&speed), "{speed}");
        for _ in 0..40 {
            outcomes.add(&agents, refs[0], ran(1.0), at(0));
        }
        assert!(outcomes.is_empty());
        outcomes.add(&agents, refs[0], did(false), at(0));
        outcomes.add(&agents, refs[0], ran(1.0), at(0));
        assert!(!outcomes.is_empty(), "it failed");
    }

    #[test]
    fn a_speed_is_not_forgotten_between_two_tasks_of_the_same_agent() {
        let (agents, refs) = agents(1);
        let mut outcomes = KindOutcomes::default();
        let fast = Seen {
            speed: Some(3.0),
            ..did(true)
        };
        for _ in 0..40 {
            outcomes.add(&agents, refs[0], fast, at(0));
        }
        outcomes.add(&agents, refs[0], fast, at(1_000));
        let speed = outcomes.listed[0].speed.expect("it differs");
        assert!((2.9..=3.0).contains(&speed), "{speed}");
    }
}

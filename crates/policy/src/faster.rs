//! What a slow agent leaves to a faster one.
//!
//! The one exception to *nobody idles*: where costs and speeds are known, an agent does not take from the queue of a
//! faster one what that would end sooner. Taking a task helps only if it ends before everything on that queue would
//! have ended anyway; otherwise whoever waits for it waits longer, and the fast agent runs dry.
//!
//! That holds only as long as the fast agent keeps up. Whatever comes to its queue is offered to the idle again, and so
//! is all when an agent turns out to be faster or slower than was known. When a task would have ended at the slow
//! agent, that looks again, and all who are like it: by then the fast one is done, or it is late, and the later it is
//! the longer it is expected to take. So no task waits for ever for an agent that only seems to be fast.
//!
//! How fast agents are counts in steps ([`Pace`]): those of one step all leave the same, so whoever offers a task to
//! the idle asks one of each step. It counts only with [`Matching::EarliestFinish`]; the other ways of placement know
//! no speeds, and their agents idle beside nothing.

use loxley_model::Span;

use crate::agents::Agent;
use crate::facts::Facts;
use crate::fleet::{Hand, InHand};
use crate::refs::{AgentRef, TaskRef};
use crate::tasks::State;
use crate::timers::Alarm;
use crate::tournament::ClassBits;
use crate::{Config, Matching, Scheduler};

/// An agent looks again after this time at the latest.
const PATIENCE_MAX: Span = Span::from_secs(10);

/// So many tasks in hand are looked at; with more slots, these stand for all.
const LOOKS_MAX: usize = 16;

/// So many faster agents are asked whether they will end their tasks sooner, before their like are left alone.
pub(crate) const ASKED_MAX: u32 = 4;

/// How fast an agent is known to be (as it said, and as was learned since), in steps of about a third. All are the
/// same where it does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pace(u8);

impl Pace {
    const SLOWEST: f64 = 1.0 / 65_536.0;
    const FASTEST: f64 = 65_536.0;
    /// Puts common speeds (1, 2, a half) into the middle of their steps, away from the edges.
    const MIDDLE: f64 = 1.25;
    /// What is cut off a number: all but its exponent and the first digit of its fraction.
    const CUT: u32 = 51;
    /// The step of the slowest.
    const FIRST: u64 = (Self::SLOWEST * Self::MIDDLE).to_bits() >> Self::CUT;

    /// So many steps there are.
    const STEPS: usize =
        ((Self::FASTEST * Self::MIDDLE).to_bits() >> Self::CUT) as usize - Self::FIRST as usize + 1;

    /// How fast an agent is where that counts; all are the same where it does not.
    pub(crate) fn of(agent: &Agent, config: &Config) -> Self {
        match config.capabilities.matching_strategy {
            Matching::EarliestFinish => Self::known(agent),
            _ => Self::default(),
        }
    }

    /// How fast an agent is.
    pub(crate) fn known(agent: &Agent) -> Self {
        let speed = known_speed(agent).clamp(Self::SLOWEST, Self::FASTEST);
        let step = ((speed * Self::MIDDLE).to_bits() >> Self::CUT) - Self::FIRST;
        Self(step as u8)
    }

    /// The speed that stands for a step.
    pub(crate) fn speed(self) -> f64 {
        let lowest = (u64::from(self.0) + Self::FIRST) << Self::CUT;
        f64::from_bits(lowest | 1 << (Self::CUT - 1)) / Self::MIDDLE
    }

    /// Whether this is so much faster that it is no matter of chance.
    pub(crate) fn is_faster_than(self, other: Self) -> bool {
        self.0 >= other.0 + 2
    }
}

/// How many agents of each step there are.
#[derive(Debug, PartialEq)]
pub(crate) struct PaceCounts([u32; Pace::STEPS]);

impl Default for PaceCounts {
    fn default() -> Self {
        Self([0; Pace::STEPS])
    }
}

impl PaceCounts {
    pub(crate) fn add(&mut self, pace: Pace) {
        self.0[usize::from(pace.0)] += 1;
    }

    pub(crate) fn take_off(&mut self, pace: Pace) {
        self.0[usize::from(pace.0)] -= 1;
    }

    /// Nobody is faster than this.
    pub(crate) fn top_speed(&self) -> Option<f64> {
        let top = self.0.iter().rposition(|count| *count > 0)?;
        // The next step begins where this one ends.
        let end = (top as u64 + 1 + Pace::FIRST) << Pace::CUT;
        Some(f64::from_bits(end) / Pace::MIDDLE)
    }
}

/// How fast an agent is, less what it says of being slowed down.
fn known_speed(agent: &Agent) -> f64 {
    (agent.record.speed * (1.0 - agent.throttle)).max(1e-6)
}

impl Scheduler {
    /// Whether an agent is known to be much faster than another, and that counts.
    pub(crate) fn is_faster(&self, fast: AgentRef, slow: AgentRef) -> bool {
        let fleet = &self.derived.fleet;
        fleet.hand(fast).pace.is_faster_than(fleet.hand(slow).pace)
    }

    /// Whether `slow` leaves a task on the queue of `fast`, because everything on that queue will have ended before
    /// `slow` could end this one. Returns how long it would take `slow`.
    pub(crate) fn leaves_queued(
        &self,
        task: TaskRef,
        slow: AgentRef,
        fast: AgentRef,
    ) -> Option<Span> {
        let hand = self.derived.fleet.hand(fast);
        if hand.unknown_costs > 0 {
            return None;
        }
        self.leaves(task, slow, fast, nanos(hand.queued_cost))
    }

    /// The same for a task in the hands of `fast` that it has not started.
    pub(crate) fn leaves_in_hand(
        &self,
        task: TaskRef,
        slow: AgentRef,
        fast: AgentRef,
    ) -> Option<Span> {
        self.leaves(task, slow, fast, 0.0)
    }

    /// Whether the first task of all, on the queue of `fast`, stays there although `slow` could start it now: unless it
    /// is known to end sooner at `slow`. Where that is not known, `slow` begins with what comes last.
    pub(crate) fn keeps_first(&self, task: TaskRef, slow: AgentRef, fast: AgentRef) -> bool {
        let is_there = self.facts.agents[fast].is_alive();
        is_there
            && self.is_faster(fast, slow)
            && self
                .ends_there_and_here(task, slow, fast, 0.0)
                .is_none_or(|(there, here)| there < here)
    }

    fn leaves(
        &self,
        task: TaskRef,
        slow: AgentRef,
        fast: AgentRef,
        queued_cost: f64,
    ) -> Option<Span> {
        if !self.is_faster(fast, slow) || !self.facts.agents[fast].is_alive() {
            return None;
        }
        let (there, here) = self.ends_there_and_here(task, slow, fast, queued_cost)?;
        (there < here).then_some(Span(here as u64))
    }

    /// When `fast` and `slow` would have ended a task, in nanoseconds from now, if anybody knows.
    fn ends_there_and_here(
        &self,
        task: TaskRef,
        slow: AgentRef,
        fast: AgentRef,
        queued_cost: f64,
    ) -> Option<(f64, f64)> {
        let other = &self.facts.agents[fast];
        let cost = self.facts.tasks[task].known_cost()?.0 as f64;
        let hand = self.derived.fleet.hand(fast);
        let (speed, slots) = (known_speed(other), f64::from(other.slots));
        let in_hand = left_in_hand(&self.facts, hand, speed)?;
        let before = (queued_cost - cost).max(0.0) / speed;
        let there = (in_hand + before) / slots + cost / speed;
        let here = cost / self.derived.fleet.hand(slow).pace.speed();
        Some((there, here))
    }

    /// An idle agent left a task to a faster one: it looks again when it would have ended it.
    pub(crate) fn look_again_after(&mut self, agent: AgentRef, span: Span) {
        let hand = self.derived.fleet.look(agent);
        if core::mem::replace(&mut hand.leaves_work, true) {
            return;
        }
        let this = &self.facts.agents[agent];
        let alarm = Alarm::LookAgain(this.id, this.incarnation);
        let span = span.clamp(Span::from_millis(1), PATIENCE_MAX);
        self.facts.timers.set(self.facts.now + span, alarm);
    }

    /// Whether an idle agent leaves what another has, for now: that is faster, and somebody who is like this one
    /// will look again. Looks at all agents: this is for tests.
    pub(crate) fn leaves_work_to(&self, idle: AgentRef, other: AgentRef) -> bool {
        let fleet = &self.derived.fleet;
        let kind = |agent: AgentRef| (self.facts.agents[agent].cohort, fleet.hand(agent).pace);
        let mut agents = self.facts.agents.iter().map(|(agent, _)| agent);
        self.is_faster(other, idle)
            && agents.any(|agent| kind(agent) == kind(idle) && fleet.hand(agent).leaves_work)
    }

    /// The time has come for an agent that left tasks to faster ones, and for all who are like it.
    pub(crate) fn look_again(&mut self, agent: AgentRef) {
        self.derived.fleet.look(agent).leaves_work = false;
        self.mark_agent(agent);
        self.marks.offer(ClassBits::MAX);
    }

    /// What is known of an agent's speed may have changed. If it is slower than was known, others that left tasks to
    /// it are asked again.
    pub(crate) fn agent_learned(&mut self, agent: AgentRef) {
        let before = self.derived.fleet.hand(agent).pace;
        self.derived.fleet.agent_changed(&self.facts, agent);
        let hand = self.derived.fleet.hand(agent);
        if hand.pace < before {
            let queued = hand.queue.any_classes();
            self.marks.offer(queued);
            self.marks.ask_back();
        }
    }
}

/// How long an agent of this speed needs for what it has in hand, one after the other, in nanoseconds; nothing if
/// nobody knows. One that has run for too long is expected to go on for as long as it is late.
pub(crate) fn left_in_hand(facts: &Facts, hand: &Hand, speed: f64) -> Option<f64> {
    let all = hand.in_hand();
    let looked_at = &all[..all.len().min(LOOKS_MAX)];
    let mut left = 0.0;
    for held in looked_at {
        let expected = facts.tasks[held.task].known_cost()?.0 as f64 / speed;
        let ran = ran_for(facts, *held);
        left += (expected - ran).max(ran - expected);
    }
    match looked_at.len() {
        0 => Some(0.0),
        some => Some(left * all.len() as f64 / some as f64),
    }
}

/// How long a task in hand has run, in nanoseconds.
fn ran_for(facts: &Facts, held: InHand) -> f64 {
    let task = &facts.tasks[held.task];
    let since = match task.copy().filter(|copy| copy.lease == held.lease) {
        Some(copy) => copy.running.then_some(copy.started),
        None => (task.state == State::Running).then_some(task.since),
    };
    since.map_or(0.0, |since| facts.now.since(since).0 as f64)
}

/// How long a task that comes to an agent now would wait there, in nanoseconds.
pub(crate) fn expected_wait(facts: &Facts, hand: &Hand, agent: &Agent, task: TaskRef) -> u64 {
    if hand.queue.is_empty() && hand.len() < agent.slots {
        return 0;
    }
    let speed = known_speed(agent);
    let in_hand = match hand.has_long_queue() {
        // How far each task in hand is does not matter then.
        true => None,
        false => left_in_hand(facts, hand, speed),
    };
    let in_hand = in_hand.unwrap_or_else(|| nanos(hand.held_cost / 2) / speed);
    let this = &facts.tasks[task];
    let ahead = hand.queue.cost_ahead(&facts.tasks, this);
    let ahead = nanos(ahead.unwrap_or(hand.queued_cost));
    ((in_hand + ahead / speed) / f64::from(agent.slots)) as u64
}

/// As a number to reckon with: sums are seldom so large that they need all their bits.
fn nanos(sum: u128) -> f64 {
    u64::try_from(sum).unwrap_or(u64::MAX) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use loxley_model::{AgentId, AgentSpec, SkillSet, Time};

    fn pace(speed: f64) -> Pace {
        let mut agents = crate::agents::Agents::default();
        let mut spec = AgentSpec::new(AgentId(1), SkillSet::none());
        spec.speed = speed;
        let agent = agents.insert(spec, Time::ZERO);
        let mut config = Config::default();
        assert_eq!(Pace::of(&agents[agent], &config), Pace::default());
        config.capabilities.matching_strategy = Matching::EarliestFinish;
        Pace::of(&agents[agent], &config)
    }

    #[test]
    fn steps_follow_speeds_and_neighbours_count_as_equally_fast() {
        for speed in [0.001, 0.25, 0.5, 1.0, 2.0, 64.0, 1000.0] {
            let step = pace(speed);
            assert!((0.75..=1.35).contains(&(step.speed() / speed)), "{speed}");
            assert!(pace(speed * 2.0).is_faster_than(step), "{speed}");
            for near in [0.95, 1.0, 1.05, 1.2] {
                assert!(!pace(speed * near).is_faster_than(step), "{speed}");
            }
            assert!(!step.is_faster_than(pace(speed * 2.0)));
        }
        assert_eq!(pace(1.0).speed(), 1.0);
        let mut counts = PaceCounts::default();
        assert_eq!(counts.top_speed(), None);
        for speed in [1e-9, 0.25, 1.0, 3.0, 1e9] {
            counts.add(pace(speed));
            let top = counts.top_speed().expect("there is one");
            assert!(
                (1.0..1.6).contains(&(top / speed.clamp(Pace::SLOWEST, Pace::FASTEST))),
                "{speed}"
            );
        }
        counts.take_off(pace(1e9));
        assert!(counts.top_speed().is_some_and(|top| top < 5.0));
        assert!(pace(f64::MAX) >= pace(1e9));
        assert!(pace(1e-300) <= pace(1e-9));
    }
}

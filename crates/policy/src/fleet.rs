//! What follows from the facts about agents and their tasks: queues, what each has in hand, who is
//! best, who can be robbed, who has room.
//!
//! Four indexes over the agents of each cohort are brought up to date only when somebody asks them
//! something; an agent that changed several times in between is looked at once. Every question does
//! that by itself, so no answer depends on when the last one was.
//!
//! Where it counts how fast agents are, those of a cohort that are about equally fast have indexes of their own: what
//! one of them would leave to a faster agent, all of them would (see [`faster`](crate::faster)). So have those of each zone:
//! whoever looks for a near one asks the indexes of its zone.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Deref;

use loxley_model::{AgentId, Dispatch, Lease, Resources, SkillSet, ZoneId};
use smallvec::SmallVec;

use crate::agents::Agent;
use crate::facts::Facts;
use crate::faster::{Pace, PaceCounts};
use crate::paged::Paged;
use crate::placement::ranking_key;
use crate::positions::Positions;
use crate::queue::Queue;
use crate::refs::{AgentRef, CohortRef, TaskRef};
use crate::tasks::State;
use crate::tournament::{ABSENT, Loot, Ranking, Victims};

/// What an agent has. What is needed for every task comes first.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Hand {
    pub(crate) queue: Queue,
    /// The expected cost of all queued tasks, in nanoseconds.
    pub(crate) queued_cost: u128,
    /// How many tasks in hand it has not started.
    pub(crate) unstarted: u32,
    /// How many tasks in hand are large.
    pub(crate) large: u32,
    /// Tasks on their way to it that others were asked to give back.
    pub(crate) awaited: u32,
    /// How many leases one that is kept full may hold: its slots and its backlog. Nothing, if it is not
    /// alive.
    capacity: u32,
    /// Which indexes are behind it: one bit each.
    behind: u8,
    /// How fast it is known to be.
    pub(crate) pace: Pace,
    /// The same where it does not count for placement.
    known_pace: Pace,
    /// Whether it is known to be faster or slower with some skills than with others.
    is_uneven: bool,
    /// Where it is.
    pub(crate) zone: Option<ZoneId>,
    /// Whether it is about to be looked at.
    pub(crate) is_marked: bool,
    /// Which group of its cohort it probably is in: others may have come before it.
    group: u16,
    /// How many of the first ones in hand are gone.
    gone: u32,
    /// Everything it holds a lease for, in the order of the leases.
    in_hand: SmallVec<[InHand; 2]>,
    /// What these need.
    pub(crate) used: Resources,
    /// The expected cost of all tasks in hand, in nanoseconds.
    pub(crate) held_cost: u128,
    /// Of how many queued tasks nobody knows what they cost.
    pub(crate) unknown_costs: u32,
    /// It leaves tasks to faster agents, and an alarm is set for it to look again.
    pub(crate) leaves_work: bool,
}

/// A task in hand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct InHand {
    pub(crate) lease: Lease,
    pub(crate) task: TaskRef,
}

impl Hand {
    pub(crate) fn in_hand(&self) -> &[InHand] {
        &self.in_hand[self.gone as usize..]
    }

    pub(crate) fn len(&self) -> u32 {
        self.in_hand.len() as u32 - self.gone
    }

    /// Whether its queue holds many times what it has in hand.
    pub(crate) fn has_long_queue(&self) -> bool {
        self.queued_cost >> 4 > self.held_cost
    }

    /// Whether it holds nothing at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0 && self.queue.is_empty()
    }

    /// Takes in a lease. Lease numbers grow, so it is the last one; while a state is built, they come
    /// in any order.
    pub(crate) fn hold(&mut self, held: InHand) {
        let is_last = self
            .in_hand
            .last()
            .is_none_or(|last| last.lease < held.lease);
        if is_last {
            return self.in_hand.push(held);
        }
        let at = self
            .in_hand()
            .partition_point(|other| other.lease < held.lease);
        self.in_hand.insert(self.gone as usize + at, held);
    }

    /// Gives up a lease: mostly the first one, as tasks end in the order in which they were given.
    pub(crate) fn drop_lease(&mut self, lease: Lease) {
        let held = self.in_hand();
        if held.first().is_some_and(|first| first.lease == lease) {
            self.gone += 1;
            if 2 * self.gone as usize >= self.in_hand.len() {
                self.in_hand.drain(..self.gone as usize);
                self.gone = 0;
            }
            return;
        }
        let at = held.binary_search_by_key(&lease, |held| held.lease);
        let at = at.expect("the agent holds the lease");
        self.in_hand.remove(self.gone as usize + at);
    }

    /// A task in hand was started, or is in hand no more.
    pub(crate) fn start(&mut self) {
        let left = self.unstarted.checked_sub(1);
        self.unstarted = left.expect("counted what was started twice");
    }

    /// How many tasks it may be given now.
    pub(crate) fn room(&self, agent: &Agent) -> u32 {
        match agent.dispatch {
            Dispatch::OnRequest if agent.is_alive() => agent.want,
            Dispatch::OnRequest => 0,
            Dispatch::KeepFull => self.capacity.saturating_sub(self.len()),
        }
    }

    /// Whether a task given to it now would start at once.
    pub(crate) fn has_free_slot(&self, agent: &Agent) -> bool {
        self.len() < agent.slots || (agent.dispatch == Dispatch::OnRequest && agent.want > 0)
    }

    /// How many tasks wait in its hands for a slot.
    pub(crate) fn backlog(&self, agent: &Agent) -> u32 {
        let waits = agent.dispatch == Dispatch::KeepFull && self.len() > agent.slots;
        if waits { self.unstarted } else { 0 }
    }
}

/// An index over agents.
#[derive(Clone, Copy, Debug)]
enum Index {
    Ranking,
    Victims,
    Backlogs,
    Room,
}

impl Index {
    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What of an agent has changed: only the indexes that depend on it are behind then.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// What is on its queue.
    Queue,
    /// Which leases it holds.
    Leases,
    /// Which of its leases have started, or are asked back.
    Backlog,
    /// What it asked for.
    Request,
    /// The facts about itself.
    Everything,
}

impl Change {
    const fn indexes(self) -> u8 {
        let (ranking, victims) = (Index::Ranking.bit(), Index::Victims.bit());
        let (backlogs, room) = (Index::Backlogs.bit(), Index::Room.bit());
        match self {
            Self::Queue => ranking | victims,
            Self::Leases => ranking | backlogs | room,
            Self::Backlog => backlogs,
            Self::Request => room,
            Self::Everything => ranking | victims | backlogs | room,
        }
    }
}

/// The indexes over the agents of a cohort.
#[derive(Debug, Default)]
pub(crate) struct CohortIndex {
    pub(crate) count: usize,
    /// The fastest first; of some, all agents may have left.
    groups: Vec<AgentGroup>,
    /// What placement asks of them, close together.
    heads: Vec<GroupHead>,
}

/// Those agents of a cohort that are in one zone and about equally fast: all of them, where nobody says a zone and speeds do
/// not count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupRef {
    pub(crate) cohort: CohortRef,
    at: usize,
}

impl GroupRef {
    pub(crate) fn first_of(cohort: CohortRef) -> Self {
        Self { cohort, at: 0 }
    }
}

/// The indexes over these. Positions are those of the cohort.
#[derive(Debug, Default)]
struct AgentGroup {
    pace: Pace,
    zone: Option<ZoneId>,
    /// Who is best placed for another task.
    ranking: Ranking,
    /// Whose queue is longest.
    victims: Victims,
    /// Who has most tasks in hand that wait for a slot.
    backlogs: Victims,
    /// Who has room.
    roomy: Positions,
    /// Who of these has a free slot.
    idle: Positions,
}

/// What placement asks of a group for every task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupHead {
    /// The greatest key of its agents.
    pub(crate) key: i64,
    /// How long they take for what takes an agent of speed 1 one second.
    pub(crate) slowness: f64,
    /// How many of them are faster or slower with some skills than with others.
    uneven: u32,
}

impl GroupHead {
    /// Whether some of them are faster or slower with some skills than with others.
    pub(crate) fn is_uneven(&self) -> bool {
        self.uneven > 0
    }
}

/// The agent of a cohort that is best placed for another task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BestPlaced {
    pub(crate) agent: AgentRef,
    pub(crate) queue_len: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Fleet {
    by_id: Paged<AgentRef>,
    /// By the places of the agents.
    hands: Vec<Hand>,
    cohort_of: BTreeMap<(SkillSet, Resources), CohortRef>,
    cohorts: Vec<CohortIndex>,
    /// The best keys of the cohorts, close together: these are asked for every task.
    best: Ranking,
    /// By cohort, who has the best key; nothing until somebody asks.
    best_placed: Vec<Option<BestPlaced>>,
    /// No group is faster than this; perhaps one was, of which all agents have left.
    fastest: Pace,
    paces: PaceCounts,
    /// Changes whenever a cohort becomes empty or stops being so: what classes remember is outdated.
    pub(crate) generation: u64,
    pub(crate) total_slots: u64,
    /// How many agents have a free slot and found nothing to do.
    idle_count: usize,
    /// The agents that each index is behind.
    behind: [Vec<AgentRef>; 4],
}

impl Fleet {
    /// The agents of these facts, with nothing in hand.
    pub(crate) fn of(facts: &Facts) -> Self {
        let mut fleet = Self::default();
        fleet
            .hands
            .resize_with(facts.agents.places(), Hand::default);
        for (at, cohort) in facts.agents.cohorts().iter().enumerate() {
            let key = (cohort.skills.clone(), cohort.resources.clone());
            fleet.add_cohort(key, CohortRef::new(at));
        }
        for (agent, this) in facts.agents.iter() {
            fleet.by_id.insert(this.id.0, agent);
            fleet.total_slots += u64::from(this.slots);
            fleet.note_speed(facts, agent);
            fleet.enter_cohort(agent, this.cohort);
            fleet.set_capacity(facts, agent);
        }
        fleet
    }

    pub(crate) fn find(&self, id: AgentId) -> Option<AgentRef> {
        self.by_id.get(id.0)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// All ids, in order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = AgentId> {
        self.by_id.iter().map(|(id, _)| AgentId(id))
    }

    pub(crate) fn hand(&self, agent: AgentRef) -> &Hand {
        &self.hands[agent.index()]
    }

    /// What is on an agent's queue, if there is such an agent.
    pub(crate) fn queue(&self, agent: AgentRef) -> Option<&Queue> {
        self.hands.get(agent.index()).map(|hand| &hand.queue)
    }

    /// What an agent has, to be changed: the indexes that depend on it are behind from now on.
    pub(crate) fn change(&mut self, agent: AgentRef, change: Change) -> &mut Hand {
        self.note_change(agent, change);
        &mut self.hands[agent.index()]
    }

    /// What an agent has, to be looked through; that may rearrange its queue, and changes nothing that an
    /// index tells.
    pub(crate) fn look(&mut self, agent: AgentRef) -> &mut Hand {
        &mut self.hands[agent.index()]
    }

    /// The queue of a victim, and what matters of the thief; never the same agent.
    pub(crate) fn robbing(&mut self, victim: AgentRef, thief: AgentRef) -> (&mut Queue, &Hand) {
        let both = self.hands.get_disjoint_mut([victim.index(), thief.index()]);
        let [victim, thief] = both.expect("nobody robs itself");
        (&mut victim.queue, thief)
    }

    /// The rules have changed: whatever was worked out by them is outdated.
    pub(crate) fn note_new_rules(&mut self, facts: &Facts) {
        self.generation += 1;
        for agent in facts.agents.refs() {
            self.agent_changed(facts, agent);
        }
    }

    /// The facts about an agent have changed: what it is, what was learned of it, whether it is alive.
    pub(crate) fn agent_changed(&mut self, facts: &Facts, agent: AgentRef) {
        self.set_capacity(facts, agent);
        self.set_pace(facts, agent);
        self.note_change(agent, Change::Everything);
    }

    /// Puts an agent of a cohort among those that are as fast as it is.
    fn set_pace(&mut self, facts: &Facts, agent: AgentRef) {
        let this = &facts.agents[agent];
        let known = Pace::known(this);
        let hand = &mut self.hands[agent.index()];
        if hand.known_pace != known {
            self.paces.take_off(hand.known_pace);
            self.paces.add(known);
            hand.known_pace = known;
        }
        let now = (Pace::of(this, &facts.config), is_uneven(this));
        let hand = &self.hands[agent.index()];
        if (hand.pace, hand.is_uneven) != now {
            self.leave_group(this.cohort, this.position as usize, agent);
            let hand = &mut self.hands[agent.index()];
            (hand.pace, hand.is_uneven) = now;
            self.enter_group(this.cohort, agent);
        }
    }

    /// Notes how fast an agent is that is new here.
    fn note_speed(&mut self, facts: &Facts, agent: AgentRef) {
        let this = &facts.agents[agent];
        let hand = &mut self.hands[agent.index()];
        hand.pace = Pace::of(this, &facts.config);
        hand.zone = this.added.zone;
        hand.known_pace = Pace::known(this);
        hand.is_uneven = is_uneven(this);
        self.paces.add(hand.known_pace);
    }

    /// How fast the fastest agent is, at most.
    pub(crate) fn top_speed(&self) -> Option<f64> {
        self.paces.top_speed()
    }

    /// Puts an agent among those of its cohort that are as fast; the indexes of that group are behind.
    fn enter_group(&mut self, cohort: CohortRef, agent: AgentRef) {
        let is_uneven = self.hands[agent.index()].is_uneven;
        let group = self.group_of(agent, cohort);
        self.cohorts[cohort.index()].heads[group.at].uneven += u32::from(is_uneven);
        self.note_change(agent, Change::Everything);
    }

    fn set_capacity(&mut self, facts: &Facts, agent: AgentRef) {
        let this = &facts.agents[agent];
        self.hands[agent.index()].capacity = match this.dispatch {
            Dispatch::KeepFull if this.is_alive() => {
                let backlog = this.backlog_depth(facts.config.prefetch.max_depth);
                this.slots.saturating_add(backlog)
            }
            _ => 0,
        };
    }

    /// Notes that indexes are behind an agent.
    pub(crate) fn note_change(&mut self, agent: AgentRef, change: Change) {
        let this = &mut self.hands[agent.index()];
        let mut news = change.indexes() & !this.behind;
        this.behind |= news;
        while news != 0 {
            let index = news.trailing_zeros() as usize;
            self.behind[index].push(agent);
            news &= news - 1;
        }
    }

    /// Has what an agent has fetched from memory while the caller goes on.
    pub(crate) fn touch(&self, agent: AgentRef) {
        if let Some(this) = self.hands.get(agent.index()) {
            core::hint::black_box((this.unstarted, this.used.cpu_milli));
        }
    }

    // Who is there.

    pub(crate) fn join(&mut self, facts: &Facts, agent: AgentRef) {
        let this = &facts.agents[agent];
        self.by_id.insert(this.id.0, agent);
        self.total_slots += u64::from(this.slots);
        if agent.index() >= self.hands.len() {
            self.hands.resize_with(agent.index() + 1, Hand::default);
        }
        self.note_speed(facts, agent);
        self.set_capacity(facts, agent);
    }

    pub(crate) fn leave(&mut self, agent: AgentRef, this: &Agent) {
        self.by_id.remove(this.id.0);
        self.total_slots -= u64::from(this.slots);
        let hand = core::mem::take(&mut self.hands[agent.index()]);
        self.paces.take_off(hand.known_pace);
        assert!(hand.is_empty(), "an agent leaves with empty hands");
    }

    /// The cohort with these skills and resources, which may be new.
    pub(crate) fn cohort_with(&mut self, key: (SkillSet, Resources)) -> (CohortRef, bool) {
        let next = CohortRef::new(self.cohorts.len());
        match self.cohort_of.get(&key) {
            Some(cohort) => (*cohort, false),
            None => {
                self.add_cohort(key, next);
                (next, true)
            }
        }
    }

    fn add_cohort(&mut self, key: (SkillSet, Resources), cohort: CohortRef) {
        self.cohort_of.insert(key, cohort);
        self.cohorts.push(CohortIndex::default());
        self.best.set(cohort.index(), ABSENT);
        self.best_placed.push(None);
    }

    pub(crate) fn enter_cohort(&mut self, agent: AgentRef, cohort: CohortRef) {
        let index = &mut self.cohorts[cohort.index()];
        index.count += 1;
        self.generation += u64::from(index.count == 1);
        self.enter_group(cohort, agent);
    }

    pub(crate) fn leave_cohort(&mut self, cohort: CohortRef, position: usize, agent: AgentRef) {
        self.leave_group(cohort, position, agent);
        let index = &mut self.cohorts[cohort.index()];
        index.count -= 1;
        self.generation += u64::from(index.count == 0);
    }

    /// Takes an agent out of all indexes.
    fn leave_group(&mut self, cohort: CohortRef, position: usize, agent: AgentRef) {
        let group = self.group_of(agent, cohort);
        self.set_key(group, position, ABSENT);
        let is_uneven = self.hands[agent.index()].is_uneven;
        self.cohorts[cohort.index()].heads[group.at].uneven -= u32::from(is_uneven);
        let index = self.group_mut(group);
        index.victims.set(position, Loot::default());
        index.backlogs.set(position, Loot::default());
        index.roomy.set(position, false);
        let was_idle = index.idle.contains(position);
        index.idle.set(position, false);
        self.idle_count -= usize::from(was_idle);
    }

    /// The agents of a cohort that are as fast as this one and in its zone, of which there may be none yet.
    fn group_of(&mut self, agent: AgentRef, cohort: CohortRef) -> GroupRef {
        let Hand {
            pace, zone, group, ..
        } = self.hands[agent.index()];
        let groups = &self.cohorts[cohort.index()].groups;
        let is_known = groups
            .get(usize::from(group))
            .is_some_and(|group| (group.pace, group.zone) == (pace, zone));
        let at = match is_known {
            true => usize::from(group),
            false => self.find_group(agent, cohort, (Reverse(pace), zone)),
        };
        GroupRef { cohort, at }
    }

    fn find_group(
        &mut self,
        agent: AgentRef,
        cohort: CohortRef,
        (pace, zone): (Reverse<Pace>, Option<ZoneId>),
    ) -> usize {
        let CohortIndex { groups, heads, .. } = &mut self.cohorts[cohort.index()];
        let key = |group: &AgentGroup| (Reverse(group.pace), group.zone);
        let found = groups.binary_search_by_key(&(pace, zone), key);
        let at = found.unwrap_or_else(|at| {
            let Reverse(pace) = pace;
            let group = AgentGroup {
                pace,
                zone,
                ..AgentGroup::default()
            };
            let head = GroupHead {
                key: ABSENT,
                slowness: 1.0 / pace.speed(),
                uneven: 0,
            };
            heads.insert(at, head);
            groups.insert(at, group);
            self.fastest = self.fastest.max(pace);
            at
        });
        self.hands[agent.index()].group = u16::try_from(at).unwrap_or(u16::MAX);
        at
    }

    fn group_mut(&mut self, group: GroupRef) -> &mut AgentGroup {
        &mut self.cohorts[group.cohort.index()].groups[group.at]
    }

    /// The agents of a cohort in groups that are about equally fast, the fastest first.
    pub(crate) fn groups(&self, cohort: CohortRef) -> impl Iterator<Item = GroupRef> + use<> {
        let count = self.cohorts[cohort.index()].groups.len();
        (0..count).map(move |at| GroupRef { cohort, at })
    }

    /// Whether two agents said that they are in the same zone.
    pub(crate) fn are_near(&self, one: AgentRef, other: AgentRef) -> bool {
        let zone = self.hand(one).zone;
        zone.is_some() && zone == self.hand(other).zone
    }

    /// Where the agents of a group are.
    pub(crate) fn zone(&self, group: GroupRef) -> Option<ZoneId> {
        self.cohorts[group.cohort.index()].groups[group.at].zone
    }

    /// All of them, cohort by cohort.
    pub(crate) fn all_groups(&self) -> Vec<GroupRef> {
        let cohorts = (0..self.cohorts.len()).map(CohortRef::new);
        cohorts.flat_map(|cohort| self.groups(cohort)).collect()
    }

    /// How long the fastest agents take for what takes one of speed 1 one second; no agent takes less.
    pub(crate) fn least_slowness(&self) -> f64 {
        1.0 / self.fastest.speed()
    }

    pub(crate) fn cohorts(&self) -> &[CohortIndex] {
        &self.cohorts
    }

    pub(crate) fn cohort(&self, cohort: CohortRef) -> &CohortIndex {
        &self.cohorts[cohort.index()]
    }

    // The indexes.

    /// The next agent that an index is behind.
    fn next_behind(&mut self, index: Index) -> Option<AgentRef> {
        while let Some(agent) = self.behind[index as usize].pop() {
            let hand = &mut self.hands[agent.index()];
            if hand.behind & index.bit() != 0 {
                hand.behind &= !index.bit();
                return Some(agent);
            }
        }
        None
    }

    /// Who is best placed.
    #[inline]
    pub(crate) fn ranked(&mut self, facts: &Facts) -> Ranked<'_> {
        if !self.behind[Index::Ranking as usize].is_empty() {
            self.update_rankings(facts);
        }
        Ranked(self)
    }

    fn update_rankings(&mut self, facts: &Facts) {
        while let Some(agent) = self.next_behind(Index::Ranking) {
            let this = &facts.agents[agent];
            let key = self.ranking_key(facts, agent);
            let group = self.group_of(agent, this.cohort);
            self.set_key(group, this.position as usize, key);
        }
    }

    /// The agent of a cohort that is best placed.
    #[inline]
    pub(crate) fn best_of(&mut self, facts: &Facts, cohort: CohortRef) -> Option<BestPlaced> {
        self.ranked(facts);
        let known = self.best_placed[cohort.index()];
        known.or_else(|| self.find_best_of(facts, cohort))
    }

    fn find_best_of(&mut self, facts: &Facts, cohort: CohortRef) -> Option<BestPlaced> {
        let best = self.best.key(cohort.index());
        let mut groups = self.cohorts[cohort.index()].groups.iter();
        let group = groups.find(|group| group.ranking.best_key() == best)?;
        let agent = facts.agents.cohort(cohort).members[group.ranking.best()?]?;
        let queue_len = self.hand(agent).queue.len();
        self.best_placed[cohort.index()] = Some(BestPlaced { agent, queue_len });
        self.best_placed[cohort.index()]
    }

    /// How well an agent is placed for another task.
    pub(crate) fn ranking_key(&self, facts: &Facts, agent: AgentRef) -> i64 {
        let capabilities = &facts.config.capabilities;
        if facts.forecasts.room.keeps(facts.agents[agent].id) {
            return ABSENT; // Whatever it is kept for is placed there all the same.
        }
        ranking_key(&facts.agents[agent], self.hand(agent), capabilities)
    }

    /// Lets an agent take no part in the rankings until it is next looked at.
    pub(crate) fn hide(&mut self, facts: &Facts, agent: AgentRef) {
        self.ranked(facts);
        let this = &facts.agents[agent];
        let group = self.group_of(agent, this.cohort);
        self.set_key(group, this.position as usize, ABSENT);
    }

    fn set_key(&mut self, group: GroupRef, position: usize, key: i64) {
        let cohort = group.cohort.index();
        self.best_placed[cohort] = None;
        let CohortIndex { groups, heads, .. } = &mut self.cohorts[cohort];
        let ranking = &mut groups[group.at].ranking;
        ranking.set(position, key);
        heads[group.at].key = ranking.best_key();
        let best = heads.iter().map(|head| head.key).max();
        let best = best.unwrap_or(ABSENT);
        if self.best.key(cohort) != best {
            self.best.set(cohort, best);
        }
    }

    /// The queues of a group, to be searched for the longest.
    #[inline]
    pub(crate) fn victims(&mut self, facts: &Facts, group: GroupRef) -> &mut Victims {
        if !self.behind[Index::Victims as usize].is_empty() {
            self.update_victims(facts);
        }
        &mut self.group_mut(group).victims
    }

    fn update_victims(&mut self, facts: &Facts) {
        let protected_from = facts.config.protected_from();
        while let Some(agent) = self.next_behind(Index::Victims) {
            let queue = &self.hands[agent.index()].queue;
            let loot = Loot {
                queue_len: queue.len(),
                free: queue.free_classes(protected_from),
                any: queue.any_classes(),
            };
            let this = &facts.agents[agent];
            let group = self.group_of(agent, this.cohort);
            let victims = &mut self.group_mut(group).victims;
            victims.set(this.position as usize, loot);
        }
    }

    /// The tasks of a group's agents that wait in their hands for a slot.
    pub(crate) fn backlogs(&mut self, facts: &Facts, group: GroupRef) -> &mut Victims {
        while let Some(agent) = self.next_behind(Index::Backlogs) {
            let this = &facts.agents[agent];
            let loot = backlog_loot(facts, this, self.hand(agent));
            let group = self.group_of(agent, this.cohort);
            let backlogs = &mut self.group_mut(group).backlogs;
            backlogs.set(this.position as usize, loot);
        }
        &mut self.group_mut(group).backlogs
    }

    #[inline]
    fn update_room(&mut self, facts: &Facts) {
        if !self.behind[Index::Room as usize].is_empty() {
            self.look_for_room(facts);
        }
    }

    fn look_for_room(&mut self, facts: &Facts) {
        while let Some(agent) = self.next_behind(Index::Room) {
            let this = &facts.agents[agent];
            let hand = &self.hands[agent.index()];
            let has_room = hand.room(this) > 0;
            let is_idle = has_room && hand.has_free_slot(this);
            let position = this.position as usize;
            let group = self.group_of(agent, this.cohort);
            let index = self.group_mut(group);
            if index.roomy.contains(position) != has_room {
                index.roomy.set(position, has_room);
            }
            // Mostly it is given the next task before anybody asks.
            if index.idle.contains(position) != is_idle {
                index.idle.set(position, is_idle);
                self.idle_count -= usize::from(!is_idle);
                self.idle_count += usize::from(is_idle);
            }
        }
    }

    /// How many agents have a free slot.
    pub(crate) fn idle_count(&mut self, facts: &Facts) -> usize {
        self.update_room(facts);
        self.idle_count
    }

    /// The next agent of a group with a free slot, at or behind a position.
    pub(crate) fn next_idle(
        &mut self,
        facts: &Facts,
        group: GroupRef,
        from: usize,
    ) -> Option<(usize, AgentRef)> {
        self.update_room(facts);
        let position = self.group_mut(group).idle.next(from)?;
        let agent = facts.agents.cohort(group.cohort).members[position];
        Some((position, agent.expect("only members have room")))
    }

    /// Every agent with room.
    pub(crate) fn roomy(&mut self, facts: &Facts) -> Vec<AgentRef> {
        self.update_room(facts);
        let cohorts = self.cohorts.iter().zip(facts.agents.cohorts());
        let roomy = cohorts.flat_map(|(index, cohort)| {
            let positions = index.groups.iter().flat_map(|group| group.roomy.iter());
            let members = positions.map(|position| cohort.members[position]);
            members.map(|agent| agent.expect("only members have room"))
        });
        roomy.collect()
    }

    /// Whether this is what follows from the facts: what `fresh`, which was just worked out, says.
    pub(crate) fn agrees(&mut self, facts: &Facts, fresh: &mut Self) -> Result<(), &'static str> {
        for fleet in [&mut *self, &mut *fresh] {
            fleet.ranked(facts);
            fleet.update_room(facts);
            for group in fleet.all_groups() {
                fleet.victims(facts, group);
                fleet.backlogs(facts, group);
            }
        }
        if self.paces != fresh.paces {
            return Err("how fast agents are");
        }
        if self.total_slots != fresh.total_slots || self.idle_count != fresh.idle_count {
            return Err("slots");
        }
        if !self.by_id.iter().eq(fresh.by_id.iter()) || self.cohort_of != fresh.cohort_of {
            return Err("tables of agents");
        }
        for cohort in (0..self.cohorts.len()).map(CohortRef::new) {
            if self.best_of(facts, cohort) != fresh.best_of(facts, cohort) {
                return Err("who is best placed");
            }
        }
        for (agent, this) in facts.agents.iter() {
            let (hand, other) = (self.hand(agent), fresh.hand(agent));
            if !hand.queue.agrees(&facts.tasks, &other.queue) {
                return Err("a queue");
            }
            let counts = |hand: &Hand| {
                let Hand {
                    unstarted,
                    large,
                    awaited,
                    capacity,
                    ..
                } = *hand;
                let costs = (hand.queued_cost, hand.held_cost, hand.unknown_costs);
                let speed = (hand.pace, hand.is_uneven, hand.leaves_work);
                (costs, speed, unstarted, large, awaited, capacity)
            };
            if counts(hand) != counts(other)
                || hand.in_hand() != other.in_hand()
                || !same_amounts(&hand.used, &other.used)
            {
                return Err("what an agent has in hand");
            }
            let position = this.position as usize;
            if self.cohort(this.cohort).count != fresh.cohort(this.cohort).count {
                return Err("an index over agents");
            }
            let own = self.group_of(agent, this.cohort);
            let theirs = fresh.group_of(agent, this.cohort);
            let uneven = |fleet: &Self, at: GroupRef| fleet.cohort(at.cohort).heads[at.at].uneven;
            if uneven(self, own) != uneven(fresh, theirs) {
                return Err("how even agents are");
            }
            let (index, other) = (&*self.group_mut(own), &*fresh.group_mut(theirs));
            let same = index.ranking.key(position) == other.ranking.key(position)
                && index.roomy == other.roomy
                && index.idle == other.idle
                && index.backlogs.at(position) == other.backlogs.at(position)
                && index
                    .victims
                    .at(position)
                    .covers(other.victims.at(position));
            if !same {
                return Err("an index over agents");
            }
        }
        Ok(())
    }
}

/// A fleet whose rankings are up to date: only this tells them, so nobody can forget to ask for that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranked<'a>(&'a Fleet);

impl Deref for Ranked<'_> {
    type Target = Fleet;

    fn deref(&self) -> &Fleet {
        self.0
    }
}

impl<'a> Ranked<'a> {
    /// The best key of each cohort, and of all.
    pub(crate) fn best_keys(self) -> &'a Ranking {
        &self.0.best
    }

    /// The agents of a group by how well they are placed.
    pub(crate) fn ranking(self, group: GroupRef) -> &'a Ranking {
        &self.0.cohorts[group.cohort.index()].groups[group.at].ranking
    }

    /// What placement asks of the groups of a cohort, the fastest first.
    pub(crate) fn heads(
        self,
        cohort: CohortRef,
    ) -> impl Iterator<Item = (GroupRef, &'a GroupHead)> {
        let heads = self.0.cohorts[cohort.index()].heads.iter().enumerate();
        heads.map(move |(at, head)| (GroupRef { cohort, at }, head))
    }

    /// Whether an agent is of this cohort and takes part in the rankings.
    pub(crate) fn takes_part(self, facts: &Facts, agent: AgentRef, cohort: CohortRef) -> bool {
        let this = &facts.agents[agent];
        let Hand { pace, zone, .. } = *self.hand(agent);
        let mut groups = self.0.cohorts[cohort.index()].groups.iter();
        this.cohort == cohort
            && groups.any(|group| {
                (group.pace, group.zone) == (pace, zone)
                    && group.ranking.key(this.position as usize) != ABSENT
            })
    }
}

/// Whether an agent is known to be faster or slower with some skills than with others.
fn is_uneven(agent: &Agent) -> bool {
    let skills = agent.record.skills.iter();
    let mut speeds = skills.filter_map(|record| record.speed);
    speeds.any(|speed| !(0.8..=1.25).contains(&(speed / agent.record.speed)))
}

/// Amounts of nothing count as not there.
fn same_amounts(one: &Resources, other: &Resources) -> bool {
    let named = |amounts: &Resources| -> Vec<_> {
        let present = amounts.named.iter().filter(|(_, amount)| **amount > 0);
        present.map(|(name, amount)| (*name, *amount)).collect()
    };
    (one.cpu_milli, one.memory_bytes) == (other.cpu_milli, other.memory_bytes)
        && named(one) == named(other)
}

/// What of an agent's hands could be asked back.
fn backlog_loot(facts: &Facts, agent: &Agent, hand: &Hand) -> Loot {
    let queue_len = hand.backlog(agent);
    let mut classes = 0;
    if queue_len > 0 && agent.is_alive() {
        let tasks = hand
            .in_hand()
            .iter()
            .map(|held| (held, &facts.tasks[held.task]));
        let unstarted = tasks.filter(|(held, task)| {
            task.state == State::Leased && task.lease == held.lease && !task.is_on_its_way()
        });
        for (_, task) in unstarted {
            let class = facts
                .classes
                .admission_class(task.admission_class)
                .capability;
            classes |= 1 << crate::task_classes::class_bit(class);
        }
    }
    Loot {
        queue_len: if classes == 0 { 0 } else { queue_len },
        free: classes,
        any: classes,
    }
}

//! The registered agents, and the cohorts they form.
//!
//! Agents with the same skills and the same resources are a *cohort*: whatever one of them is capable
//! of, all are. So the question "who is best for this task" looks at one candidate for each cohort,
//! never at all agents.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use loxley_model::{
    AgentId, AgentSpec, Dispatch, Lease, Resources, SkillId, SkillSet, Span, TaskId, Time,
};
use smallvec::SmallVec;

use crate::paged::Paged;
use crate::queue::Queue;
use crate::refs::{AgentRef, CohortRef, Seat, TaskRef};
use crate::tournament::{ABSENT, ClassBits, Loot, Ranking, Victims};
use crate::view::Liveness;

/// An agent. With ten thousand of these, most are found cold in memory: what is needed for every task
/// comes first and close together, what is needed seldom comes last.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Agent {
    pub(crate) id: AgentId,
    pub(crate) queue: Queue,
    /// The expected cost of all queued tasks.
    pub(crate) queued_cost: Span,
    /// How many tasks it runs at once.
    pub(crate) slots: u32,
    pub(crate) cohort: CohortRef,
    /// Its position within the cohort.
    pub(crate) position: u32,
    /// Its open request for work.
    pub(crate) want: u32,
    /// How many tasks in hand it has not started.
    pub(crate) unstarted: u32,
    /// How many tasks in hand are large.
    pub(crate) large_in_hand: u32,
    pub(crate) dispatch: Dispatch,
    pub(crate) liveness: Liveness,
    /// What is behind it.
    pub(crate) stale: Stale,
    /// How many tasks went past one that waits for room.
    pub(crate) bypassed: u32,
    /// Its place among the hungry of its cohort.
    pub(crate) hungry_at: Option<Seat>,
    /// Its place among the idle of its cohort.
    pub(crate) idle_at: Option<Seat>,
    /// Everything it holds a lease for.
    pub(crate) in_hand: SmallVec<[InHand; 2]>,
    /// When the tasks in hand are next checked for time limits and stragglers.
    pub(crate) check_at: Time,
    pub(crate) throttle: f64,
    pub(crate) record: Record,
    pub(crate) used: Resources,
    /// Tells a late timer of an earlier agent at this place from one of this agent.
    pub(crate) incarnation: u32,
    /// Tasks on their way to it that others were asked to give back.
    pub(crate) awaited: u32,
    /// With how many tasks it is among the backlogged; 0 when it is not.
    pub(crate) listed_backlog: u32,
    pub(crate) last_heard: Time,
    pub(crate) round_trip: Span,
    pub(crate) robbed_at: Option<Time>,
    pub(crate) refusals: u32,
    pub(crate) no_asking_until: Time,
    pub(crate) skills: SkillSet,
    pub(crate) resources: Resources,
}

/// What has not been told of the latest changes of an agent, and is before it is asked: one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stale(u8);

impl Stale {
    /// The ranking of its cohort.
    pub(crate) const RANK: Self = Self(1);
    /// The tree of victims of its cohort.
    pub(crate) const LOOT: Self = Self(2);
    /// The set of backlogged agents.
    pub(crate) const BACKLOG: Self = Self(4);

    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Adds what is behind now; true if it was not before.
    pub(crate) fn add(&mut self, other: Self) -> bool {
        let is_new = !self.has(other);
        self.0 |= other.0;
        is_new
    }

    /// Takes out what is brought up to date; true if it was behind.
    pub(crate) fn remove(&mut self, other: Self) -> bool {
        let was_behind = self.has(other);
        self.0 &= !other.0;
        was_behind
    }
}

/// A task in hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InHand {
    pub(crate) task: TaskRef,
    pub(crate) lease: Lease,
}

/// What was learned of an agent.
#[derive(Debug)]
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
#[derive(Clone, Copy, Debug)]
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
    /// How many tasks it may be given now.
    pub(crate) fn room(&self, depth_max: u32) -> u32 {
        if self.liveness != Liveness::Alive {
            return 0;
        }
        match self.dispatch {
            Dispatch::OnRequest => self.want,
            Dispatch::KeepFull => {
                let full = self.slots + self.backlog_depth(depth_max);
                full.saturating_sub(self.in_hand.len() as u32)
            }
        }
    }

    /// How many tasks it should have in hand beyond those it runs, so that it never waits for a round
    /// trip: as many as it finishes in one.
    fn backlog_depth(&self, depth_max: u32) -> u32 {
        const ASSUMED_ROUND_TRIP: Span = Span::from_micros(200);
        let Some(mean) = self.record.mean_duration else {
            return depth_max.min(1);
        };
        let round_trip = self.round_trip.max(ASSUMED_ROUND_TRIP);
        let finished = (2 * round_trip.0).saturating_mul(self.slots.into()) / mean.0.max(1);
        let wanted = u32::try_from(finished)
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        let unthrottled = f64::from(wanted.min(depth_max)) * (1.0 - self.throttle);
        unthrottled as u32
    }

    /// Whether a task given to it now would start at once.
    pub(crate) fn has_free_slot(&self) -> bool {
        (self.in_hand.len() as u32) < self.slots
            || (self.dispatch == Dispatch::OnRequest && self.want > 0)
    }

    /// The skills it has at present.
    pub(crate) fn effective_skills(&self) -> SkillSet {
        self.skills
            .iter()
            .filter(|skill| !self.record.is_suspended(*skill))
            .collect()
    }
}

/// Agents with the same skills and resources.
#[derive(Debug)]
pub(crate) struct Cohort {
    pub(crate) skills: SkillSet,
    pub(crate) resources: Resources,
    /// The agents by position; `None` where one left.
    pub(crate) members: Vec<Option<AgentRef>>,
    pub(crate) vacant: Vec<usize>,
    pub(crate) count: usize,
    pub(crate) ranking: Ranking,
    pub(crate) victims: Victims,
    /// Agents with room that found nothing to do, the latest last.
    pub(crate) hungry: Vec<AgentRef>,
    /// Those of them with a free slot: these may steal. The others only want a backlog.
    pub(crate) idle: Vec<AgentRef>,
    pub(crate) appetite: Appetite,
}

/// Which classes of task the agents of a cohort can do.
#[derive(Debug, Default)]
pub(crate) struct Appetite {
    /// The generation of cohorts and the number of classes it was worked out for.
    pub(crate) known_for: (u64, usize),
    /// For each class, whether they can.
    pub(crate) capable: Vec<bool>,
    /// The same as bits, shared when there are many classes.
    pub(crate) bits: ClassBits,
}

#[derive(Debug, Default)]
pub(crate) struct Agents {
    pub(crate) entries: Vec<Option<Agent>>,
    pub(crate) vacant: Vec<AgentRef>,
    pub(crate) by_id: Paged<AgentRef>,
    /// How many times each id has registered.
    pub(crate) incarnations: BTreeMap<AgentId, u32>,
    pub(crate) cohorts: Vec<Cohort>,
    /// The best keys of the cohorts, close together: these are asked for every task.
    pub(crate) best: Ranking,
    pub(crate) cohort_of: BTreeMap<(SkillSet, Resources), CohortRef>,
    /// Changes whenever a cohort becomes empty or stops being so: what classes remember is outdated.
    pub(crate) generation: u64,
    pub(crate) total_slots: u64,
    /// How many agents have a free slot and found nothing to do.
    pub(crate) idle_count: usize,
}

impl Agents {
    pub(crate) fn find(&self, id: AgentId) -> Option<AgentRef> {
        self.by_id.get(id.0)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (AgentRef, &Agent)> {
        let present = self.entries.iter().enumerate();
        present.filter_map(|(i, agent)| agent.as_ref().map(|agent| (AgentRef::new(i), agent)))
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = AgentId> {
        self.by_id.iter().map(|(id, _)| AgentId(id))
    }

    pub(crate) fn get(&self, agent: AgentRef) -> Option<&Agent> {
        self.entries[agent.index()].as_ref()
    }

    pub(crate) fn get_mut(&mut self, agent: AgentRef) -> Option<&mut Agent> {
        self.entries[agent.index()].as_mut()
    }

    /// Has all that is needed of an agent fetched from memory at once, while the caller goes on.
    pub(crate) fn touch(&self, agent: AgentRef) {
        let this = &self[agent];
        core::hint::black_box((this.want, this.check_at, this.record.completed));
    }

    pub(crate) fn insert(&mut self, spec: AgentSpec, now: Time) -> AgentRef {
        let id = spec.id;
        let incarnation = self.incarnations.entry(id).or_default();
        *incarnation += 1;
        self.total_slots += u64::from(spec.slots);
        let agent = Agent {
            id,
            slots: spec.slots,
            dispatch: spec.dispatch,
            incarnation: *incarnation,
            cohort: CohortRef::new(0),
            position: 0,
            queue: Queue::default(),
            queued_cost: Span::ZERO,
            in_hand: SmallVec::new(),
            unstarted: 0,
            large_in_hand: 0,
            used: Resources::default(),
            want: 0,
            awaited: 0,
            listed_backlog: 0,
            hungry_at: None,
            idle_at: None,
            bypassed: 0,
            liveness: Liveness::Alive,
            last_heard: now,
            throttle: 0.0,
            round_trip: Span::ZERO,
            robbed_at: None,
            refusals: 0,
            no_asking_until: Time::ZERO,
            check_at: Time::MAX,
            record: Record::new(spec.speed, now),
            stale: Stale::default(),
            skills: spec.skills,
            resources: spec.resources,
        };
        let place = match self.vacant.pop() {
            Some(place) => {
                self.entries[place.index()] = Some(agent);
                place
            }
            None => {
                self.entries.push(Some(agent));
                AgentRef::new(self.entries.len() - 1)
            }
        };
        self.by_id.insert(id.0, place);
        self.join_cohort(place);
        place
    }

    pub(crate) fn remove(&mut self, agent: AgentRef) -> Agent {
        self.leave_cohort(agent);
        let gone = self.entries[agent.index()]
            .take()
            .expect("an agent leaves once");
        self.total_slots -= u64::from(gone.slots);
        self.by_id.remove(gone.id.0);
        self.vacant.push(agent);
        gone
    }

    /// Puts an agent among those with the same skills and resources.
    pub(crate) fn join_cohort(&mut self, agent: AgentRef) {
        let key = (
            self[agent].effective_skills(),
            self[agent].resources.clone(),
        );
        let next = CohortRef::new(self.cohorts.len());
        let place = *self.cohort_of.entry(key.clone()).or_insert(next);
        if place == next {
            let (skills, resources) = key;
            self.best.set(place.index(), ABSENT);
            self.cohorts.push(Cohort {
                skills,
                resources,
                members: Vec::new(),
                vacant: Vec::new(),
                count: 0,
                ranking: Ranking::default(),
                victims: Victims::default(),
                hungry: Vec::new(),
                idle: Vec::new(),
                appetite: Appetite::default(),
            });
        }
        let cohort = &mut self.cohorts[place.index()];
        let position = cohort.vacant.pop().unwrap_or_else(|| {
            cohort.members.push(None);
            cohort.members.len() - 1
        });
        cohort.members[position] = Some(agent);
        cohort.count += 1;
        if cohort.count == 1 {
            self.generation += 1;
        }
        let this = &mut self[agent];
        this.cohort = place;
        this.position = position as u32;
    }

    pub(crate) fn leave_cohort(&mut self, agent: AgentRef) {
        self.set_hungry(agent, false);
        let Agent {
            cohort, position, ..
        } = self[agent];
        let position = position as usize;
        self.set_ranking(cohort, position, ABSENT);
        let cohort = &mut self.cohorts[cohort.index()];
        cohort.members[position] = None;
        cohort.vacant.push(position);
        cohort.victims.set(position, Loot::default());
        cohort.count -= 1;
        if cohort.count == 0 {
            self.generation += 1;
        }
    }

    /// Notes that an agent has room and found nothing to do, or that this is over.
    #[inline]
    pub(crate) fn set_hungry(&mut self, agent: AgentRef, hungry: bool) {
        let this = &self[agent];
        let idle = hungry && this.has_free_slot();
        if this.hungry_at.is_some() != hungry || this.idle_at.is_some() != idle {
            self.change_seats(agent, hungry, idle);
        }
    }

    #[inline(never)]
    fn change_seats(&mut self, agent: AgentRef, hungry: bool, idle: bool) {
        let Agent {
            cohort,
            hungry_at,
            idle_at,
            ..
        } = self[agent];
        let cohort = &mut self.cohorts[cohort.index()];
        let (seat, moved) = change_seat(&mut cohort.hungry, agent, hungry_at, hungry);
        let (idle_seat, moved_idle) = change_seat(&mut cohort.idle, agent, idle_at, idle);
        if let Some(moved) = moved {
            self[moved].hungry_at = hungry_at;
        }
        if let Some(moved) = moved_idle {
            self[moved].idle_at = idle_at;
        }
        self[agent].hungry_at = seat;
        self[agent].idle_at = idle_seat;
        self.idle_count = self.idle_count + usize::from(idle) - usize::from(idle_at.is_some());
    }

    /// The agent with the greatest key of all.
    pub(crate) fn best_placed(&self) -> Option<AgentRef> {
        let cohort = &self.cohorts[self.best.best()?];
        cohort.members[cohort.ranking.best()?]
    }

    pub(crate) fn set_ranking(&mut self, cohort: CohortRef, position: usize, key: i64) {
        let ranking = &mut self.cohorts[cohort.index()].ranking;
        ranking.set(position, key);
        let best = ranking.best_key();
        if self.best.key(cohort.index()) != best {
            self.best.set(cohort.index(), best);
        }
    }

    pub(crate) fn cohort(&self, cohort: CohortRef) -> &Cohort {
        &self.cohorts[cohort.index()]
    }
}

/// Puts an agent on a list or takes it off. Returns its seat, and who has its former one.
fn change_seat(
    list: &mut Vec<AgentRef>,
    agent: AgentRef,
    seat: Option<Seat>,
    seated: bool,
) -> (Option<Seat>, Option<AgentRef>) {
    match (seat, seated) {
        (None, true) => {
            list.push(agent);
            (Some(Seat::new(list.len() - 1)), None)
        }
        (Some(seat), false) => {
            list.swap_remove(seat.index());
            (None, list.get(seat.index()).copied())
        }
        _ => (seat, None),
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

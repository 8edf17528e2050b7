//! What an agent may start of its own queue.

use alloc::vec::Vec;

use loxley_model::{AgentId, GroupId};

use crate::admission::{Admission, Bar, Shares};
use crate::derived::Derived;
use crate::facts::sort_of;
use crate::fleet::{Change, Hand};
use crate::fleet_order::is_ordered;
use crate::refs::{AgentRef, TaskRef};
use crate::scheduler::reject;
use crate::tasks::NO_EDGE;
use crate::{Action, InputError, Scheduler};

/// What is short enough to lie at an agent until a slot is free: so many round trips. Waiting for one round trip
/// between two such tasks would be noticed; with longer ones it is not.
const SHORT_ROUND_TRIPS: u64 = 100;

/// The same for tasks that others wait for, or that have a place in the order of the fleet.
const SHORT_ROUND_TRIPS_ORDERED: u64 = 25;

/// So many of the tasks that an agent runs are looked at for one that ends soon.
const SOON_MAX: usize = 4;

/// What for an agent is given a task of its own queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    /// It starts it now.
    ToStart,
    /// It has it at hand when a slot is free.
    AheadOfTime,
}

/// What an agent would start next, and what it would pass over.
struct Choice {
    task: Option<TaskRef>,
    /// How many tasks have gone past one that waits for room.
    bypassed: u32,
    /// Groups at their limit that a task before it belongs to.
    full_groups: Vec<GroupId>,
}

impl Scheduler {
    pub(crate) fn work_requested(&mut self, agent: AgentId, want: u32, actions: &mut Vec<Action>) {
        let Some(agent) = self.find_agent(agent, actions) else {
            return;
        };
        self.facts.agents[agent].want = want;
        self.derived.fleet.note_change(agent, Change::Request);
        self.mark_agent(agent);
    }

    pub(crate) fn set_group_limit(
        &mut self,
        group: GroupId,
        limit: u32,
        actions: &mut Vec<Action>,
    ) {
        if limit == 0 {
            return reject(InputError::BadLimit(group), actions);
        }
        self.facts.limits.set_limit(group, limit);
        self.marks.open_group(group);
    }

    /// The next task of an agent's own queue that may start. Notes what it goes past.
    pub(crate) fn next_own(
        &mut self,
        agent: AgentRef,
        shares: Shares,
        binding: Binding,
    ) -> Option<TaskRef> {
        let choice = self.choose_own(agent, shares)?;
        if binding == Binding::AheadOfTime && !self.may_be_bound(choice.task?, agent) {
            return None;
        }
        self.facts.agents[agent].bypassed = choice.bypassed;
        for group in choice.full_groups {
            self.facts.limits.turn_away(group, agent);
        }
        choice.task
    }

    /// The same, only to look.
    pub(crate) fn peek_own(&mut self, agent: AgentRef, shares: Shares) -> Option<TaskRef> {
        self.choose_own(agent, shares)?.task
    }

    /// Whether a task may lie at an agent whose slots are taken: one that is known to be short, where a slot
    /// comes free soon. It must not take a place of a limited group meanwhile.
    fn may_be_bound(&self, task: TaskRef, agent: AgentRef) -> bool {
        let class = self.facts.admission_class_of(&self.facts.tasks[task]);
        let group = class.group;
        if group.is_some_and(|group| self.facts.limits.limit(group).is_some()) {
            return false;
        }
        let hand = self.derived.fleet.hand(agent);
        let slots = (self.facts.agents[agent].slots as usize).min(SOON_MAX);
        let soon = hand.in_hand().iter().take(slots);
        self.is_short(task, agent)
            && soon
                .map(|held| held.task)
                .any(|task| self.is_short(task, agent))
    }

    /// Whether a task is known to take an agent only so many round trips.
    fn is_short(&self, task: TaskRef, agent: AgentRef) -> bool {
        let (this, agent) = (&self.facts.tasks[task], &self.facts.agents[agent]);
        let learned = || self.facts.classes.kind_at(this.kind).durations.median();
        let Some(cost) = this.known_cost().or_else(learned) else {
            return false;
        };
        let trips = if this.dependents != NO_EDGE || is_ordered(&self.facts, task) {
            SHORT_ROUND_TRIPS_ORDERED
        } else {
            SHORT_ROUND_TRIPS
        };
        let longest = agent.likely_round_trip().0.saturating_mul(trips);
        cost.0 as f64 <= longest as f64 * agent.record.speed
    }

    fn choose_own(&mut self, agent: AgentRef, shares: Shares) -> Option<Choice> {
        let Derived {
            fleet,
            loads,
            counts,
            ..
        } = &mut self.derived;
        let facts = &self.facts;
        let admission = Admission::new(facts, loads, fleet.total_slots, counts.small, shares);
        let Hand {
            queue, used, large, ..
        } = fleet.look(agent);
        if queue.is_empty() {
            return None;
        }
        let this = &facts.agents[agent];
        let sort_of = |task: &_| sort_of(&facts.classes, facts.config.guards.max_moves, task);
        let mut lacks_room = false;
        let mut full_groups = Vec::new();
        let mut admits = |class| match admission.bar(this, used, *large, class) {
            None => true,
            Some(bar) => {
                lacks_room |= bar == Bar::Room;
                if let Bar::Group(group) = bar {
                    full_groups.push(group);
                }
                false
            }
        };
        let mut task = queue.first(&facts.tasks, &sort_of, &mut admits);
        let mut bypassed = 0;
        if lacks_room {
            let first = queue.first(&facts.tasks, &sort_of, &mut |class| {
                matches!(
                    admission.bar(this, used, *large, class),
                    None | Some(Bar::Room)
                )
            });
            if first != task {
                bypassed = (this.bypassed + u32::from(task.is_some())).max(1);
                // Enough small tasks went past: room is kept until the large one fits.
                task = task.filter(|_| bypassed <= facts.config.quotas.backfill_limit);
            }
        }
        Some(Choice {
            task,
            bypassed,
            full_groups,
        })
    }
}

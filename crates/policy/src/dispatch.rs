//! What an agent may start of its own queue.

use alloc::vec::Vec;

use loxley_model::{AgentId, GroupId};

use crate::admission::{Admission, Bar, Shares};
use crate::derived::Derived;
use crate::facts::sort_of;
use crate::fleet::{Change, Hand};
use crate::refs::{AgentRef, TaskRef};
use crate::scheduler::reject;
use crate::{Action, InputError, Scheduler};

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
    pub(crate) fn next_own(&mut self, agent: AgentRef, shares: Shares) -> Option<TaskRef> {
        let choice = self.choose_own(agent, shares)?;
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

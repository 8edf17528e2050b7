//! Tasks that another scheduler runs.
//!
//! A task that waits here may be *sent away*: somebody else has an agent for it. It stays a task of this scheduler, and whoever
//! waits for it waits on; it is on no queue and has no lease. Then it *comes back*, as it went, and waits here again; or
//! word comes of how it *ended* there, and it ends here in the same way. One that is cancelled meanwhile is over when word comes.
//!
//! Only what never began goes away: attempts are counted where they are made.

use alloc::vec::Vec;

use loxley_model::{AgentId, Fallback, Span, TaskId};

use crate::id_table::Known;
use crate::refs::{AgentRef, ClassRef, TaskRef};
use crate::scheduler::reject;
use crate::tasks::{State, Task};
use crate::{Action, Ending, InputError, Scheduler};

/// How long a task may take of which nothing is known, when it is asked whether it is worth sending away.
const UNKNOWN: Span = Span::from_secs(1);

/// What waits here, of one class of task: tasks that the same agents can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingClass {
    /// One of them that may be sent away.
    pub example: TaskId,
    /// How many may be sent away.
    pub count: u32,
    /// How long they are expected to take, one after the other.
    pub cost: Span,
    /// How long all that waits for the same agents is expected to take, one after the other.
    pub work: Span,
    /// How many slots those agents have.
    pub slots: u32,
}

impl Scheduler {
    /// Another scheduler has a task now.
    pub(crate) fn task_sent_away(&mut self, id: TaskId, actions: &mut Vec<Action>) {
        let Some(task) = self.facts.ids.live(id).filter(|task| self.may_leave(*task)) else {
            return reject(InputError::UnknownTask(id), actions);
        };
        match self.facts.tasks[task].state {
            State::Queued => {
                self.forget_probe(task);
                self.unqueue(task);
            }
            _ => self.unhold(task),
        }
        self.set_state(task, State::Away);
    }

    /// A task that was away is back, and nothing was done to it.
    pub(crate) fn task_came_back(&mut self, id: TaskId, actions: &mut Vec<Action>) {
        let Some(task) = self.task_away(id) else {
            return reject(InputError::UnknownTask(id), actions);
        };
        self.set_state(task, State::Waiting);
        match self.ending_of_away(task) {
            Some(ending) => self.end_task(task, ending, actions),
            None => self.mark_ready(task, None),
        }
    }

    /// A task ended where it was.
    pub(crate) fn task_ended_away(
        &mut self,
        id: TaskId,
        ending: Ending,
        actions: &mut Vec<Action>,
    ) {
        let Some(task) = self.task_away(id) else {
            return reject(InputError::UnknownTask(id), actions);
        };
        self.facts.jobs.touch(self.facts.tasks[task].job);
        self.set_state(task, State::Waiting);
        let ending = self.ending_of_away(task).unwrap_or(ending);
        self.end_task(task, ending, actions);
    }

    /// Nothing more is known of a task that is over: its number may come again.
    pub(crate) fn task_forgotten(&mut self, id: TaskId, actions: &mut Vec<Action>) {
        if self.facts.ids.live(id).is_some() {
            return reject(InputError::UnknownTask(id), actions);
        }
        self.facts.dead.remove(&id);
        self.facts.ids.set(id, Known::Unused);
        self.facts.ids.drop_if_unused(id);
    }

    fn task_away(&self, id: TaskId) -> Option<TaskRef> {
        let task = self.facts.ids.live(id)?;
        (self.facts.tasks[task].state == State::Away).then_some(task)
    }

    /// What was decided of a task while it was away.
    fn ending_of_away(&mut self, task: TaskRef) -> Option<Ending> {
        self.facts.tasks[task].extra_mut_if_any()?.ending.take()
    }

    /// Whether a task waits, has never begun, and has nothing that ties it to this place.
    fn may_leave(&self, task: TaskRef) -> bool {
        let this = &self.facts.tasks[task];
        let is_tied = |this: &Task| {
            this.extra.as_ref().is_some_and(|extra| {
                let near = extra.locality.is_some() && this.state != State::Held;
                near || extra.failures > 0
                    || extra.losses > 0
                    || extra.fallback != Fallback::None
                    || extra.stands_in_for.is_some()
            })
        };
        matches!(this.state, State::Queued | State::Held)
            && this.attempts == 0
            && !is_tied(this)
            && self.facts.admission_class_of(this).group.is_none()
    }

    /// What waits here and may be sent away, of each class of task; of those tasks that `is_own` says.
    #[must_use]
    pub fn waiting_classes(&self, is_own: impl Fn(TaskId) -> bool) -> Vec<WaitingClass> {
        let mut classes: Vec<Option<WaitingClass>> = Vec::new();
        classes.resize(self.facts.classes.class_count(), None);
        if self.derived.counts.queued + self.derived.counts.held == 0 {
            return Vec::new();
        }
        for (task, this) in self.facts.tasks.iter() {
            if !self.may_leave(task) || !is_own(this.id) {
                continue;
            }
            let class = self.facts.admission_class_of(this).capability;
            let known = classes[class.index()].get_or_insert(WaitingClass {
                example: this.id,
                count: 0,
                cost: Span::ZERO,
                work: Span::ZERO,
                slots: 0,
            });
            known.count += 1;
            known.cost = Span(known.cost.0.saturating_add(self.cost_if_moved(this).0));
        }
        let mut found = Vec::new();
        for (index, known) in classes.into_iter().enumerate() {
            let Some(mut known) = known else { continue };
            let class = ClassRef::new(index);
            let (slots, work) = self.capable_slots(class);
            known.slots = slots;
            // Held ones wait for no agent that is here.
            known.work = match slots {
                0 => known.cost,
                _ => work.max(known.cost),
            };
            found.push(known);
        }
        found
    }

    /// Tasks of the class of `example` that may be sent away, those that would start last first, with what each is expected
    /// to cost.
    #[must_use]
    pub fn waiting_like(
        &self,
        example: TaskId,
        is_own: impl Fn(TaskId) -> bool,
    ) -> Vec<(TaskId, Span)> {
        let Some(example) = self.facts.ids.live(example) else {
            return Vec::new();
        };
        let class_of = |this: &Task| self.facts.admission_class_of(this).capability;
        let class = class_of(&self.facts.tasks[example]);
        let all = self.facts.tasks.iter();
        let like = all.filter(|(task, this)| {
            class_of(this) == class && self.may_leave(*task) && is_own(this.id)
        });
        let mut like: Vec<&Task> = like.map(|(_, this)| this).collect();
        like.sort_unstable_by_key(|this| core::cmp::Reverse(this.fleet_order()));
        let costs = like
            .into_iter()
            .map(|this| (this.id, self.cost_if_moved(this)));
        costs.collect()
    }

    /// How long what is on the queue of an agent is expected to take.
    #[must_use]
    pub fn queued_work(&self, agent: AgentId) -> Span {
        let Some(agent) = self.derived.fleet.find(agent) else {
            return Span::ZERO;
        };
        self.work_on_queue(agent)
    }

    fn work_on_queue(&self, agent: AgentRef) -> Span {
        let hand = self.derived.fleet.hand(agent);
        // Those of which nobody knew what they cost count for little on a queue.
        let unknown = u128::from(hand.unknown_costs) * u128::from(UNKNOWN.0);
        Span(u64::try_from(hand.queued_cost + unknown).unwrap_or(u64::MAX))
    }

    /// The slots of agents that can do a class of task, and what waits for them.
    fn capable_slots(&self, class: ClassRef) -> (u32, Span) {
        let (mut slots, mut work) = (0_u32, 0_u64);
        for (agent, this) in self.facts.agents.iter() {
            if this.is_alive() && self.is_capable(class, this.cohort) {
                slots = slots.saturating_add(this.slots);
                work = work.saturating_add(self.work_on_queue(agent).0);
            }
        }
        (slots, Span(work))
    }

    fn cost_if_moved(&self, task: &Task) -> Span {
        let learned = || self.facts.classes.kind_at(task.kind).durations.median();
        task.known_cost().or_else(learned).unwrap_or(UNKNOWN)
    }
}

//! What agents say of the tasks they were given.
//!
//! Every assignment has a number, its lease. An answer counts only while its lease is in force; the
//! one place that decides this is [`Scheduler::lease_in_force`].
//!
//! A task that is no longer wanted is *called off*: its agent is told to end it, and the lease stays in force,
//! with everything that it takes, until the agent says that nothing is left of the task. So no limit, no
//! resource, no next attempt and nobody who waits sees the end of an attempt before it is one.

use alloc::vec::Vec;

use loxley_model::{Failure, Lease, Outcome, Span, TaskId};

use crate::fleet::Change;
use crate::marks::Handover;
use crate::refs::{AgentRef, TaskRef};
use crate::scheduler::report;
use crate::tasks::State;
use crate::{Action, CancelReason, Ending, Report, Scheduler};

/// Which copy of a task a lease is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    First,
    Copy,
}

impl Scheduler {
    /// The task and copy that `lease` is for, if it is in force; otherwise the answer is dropped.
    fn lease_in_force(
        &mut self,
        task: TaskId,
        lease: Lease,
        actions: &mut Vec<Action>,
    ) -> Option<(TaskRef, Held)> {
        if let Some(place) = self.facts.ids.live(task) {
            let this = &self.facts.tasks[place];
            if this.lease == lease && this.has_lease() {
                return Some((place, Held::First));
            }
            if this.copy().is_some_and(|copy| copy.lease == lease) {
                return Some((place, Held::Copy));
            }
        }
        self.note_stale(task, lease, actions);
        None
    }

    #[cold]
    fn note_stale(&mut self, task: TaskId, lease: Lease, actions: &mut Vec<Action>) {
        self.facts.tallies.stale_answers += 1;
        report(Report::StaleAnswer { task, lease }, actions);
    }

    /// A task was started so long ago.
    pub(crate) fn task_ran(
        &mut self,
        task: TaskId,
        lease: Lease,
        ran: Span,
        actions: &mut Vec<Action>,
    ) {
        if let Some((task, held)) = self.lease_in_force(task, lease, actions) {
            self.note_start(task, held, ran);
        }
    }

    pub(crate) fn task_finished(
        &mut self,
        task: TaskId,
        lease: Lease,
        outcome: Outcome,
        actions: &mut Vec<Action>,
    ) {
        let Some((task, held)) = self.lease_in_force(task, lease, actions) else {
            return;
        };
        if self.is_called_off(task, held) {
            return self.end_called_off(task, held, actions);
        }
        self.facts.jobs.touch(self.facts.tasks[task].job);
        // An agent need not say that it started a short task.
        self.note_start(task, held, Span::ZERO);
        let agent = self.agent_holding(task, held);
        let (took, kind) = (self.ran_for(task, held), self.facts.tasks[task].kind);
        let is_whole = self.ran_from_its_beginning(task);
        if outcome != Outcome::Failed(Failure::AgentLost) {
            self.learn(task, agent, outcome, took, is_whole, actions);
        }
        if outcome == Outcome::Succeeded && is_whole {
            self.facts.classes.kind_at_mut(kind).durations.add(took);
            if self.facts.config.forecast.enabled {
                let class = self.facts.tasks[task].admission_class;
                self.facts.forecasts.served(class, took);
            }
        }
        self.drop_lease(task, held);
        // With the first copy gone, a second one has taken its place.
        let other_goes_on = self.facts.tasks[task].has_lease();
        match outcome {
            Outcome::Succeeded => {
                self.facts.tallies.speculations_won += u64::from(held == Held::Copy);
                if other_goes_on {
                    self.call_off(task, Held::First, CancelReason::OtherCopyWon, actions);
                }
                let agent = self.facts.agents[agent].id;
                self.end_when_free(task, Ending::Succeeded { agent, lease }, actions);
            }
            // The agent gave itself up: it ended what it ran, because nobody heard of it any more.
            Outcome::Failed(Failure::AgentLost) if !other_goes_on => {
                self.lost_in_hand(task, actions);
            }
            Outcome::Failed(failure) if !other_goes_on => {
                self.attempt_failed(task, failure, actions);
            }
            Outcome::Failed(_) => {}
        }
    }

    pub(crate) fn agent_holding(&self, task: TaskRef, held: Held) -> AgentRef {
        let this = &self.facts.tasks[task];
        match held {
            Held::First => this.agent,
            Held::Copy => this.copy().expect("there is a copy").agent,
        }
    }

    /// Whether how long a task ran says how long it takes: what goes on from a checkpoint takes less.
    fn ran_from_its_beginning(&self, task: TaskRef) -> bool {
        let this = &self.facts.tasks[task];
        let copied = this.extra.as_ref().is_some_and(|extra| extra.copied);
        let keeps_checkpoints = self.facts.classes.kind_at(this.kind).spec.checkpoints;
        !keeps_checkpoints || (this.attempts == 1 && !copied)
    }

    fn ran_for(&self, task: TaskRef, held: Held) -> Span {
        let this = &self.facts.tasks[task];
        let started = match held {
            Held::First => this.since,
            Held::Copy => this.copy().expect("there is a copy").started,
        };
        self.facts.now.since(started)
    }

    /// Ends a lease from this side and tells the agent.
    pub(crate) fn revoke(
        &mut self,
        task: TaskRef,
        held: Held,
        reason: CancelReason,
        actions: &mut Vec<Action>,
    ) {
        let agent = self.agent_holding(task, held);
        let this = &self.facts.tasks[task];
        let lease = match held {
            Held::First => this.lease,
            Held::Copy => this.copy().expect("there is a copy").lease,
        };
        actions.push(Action::Cancel {
            task: this.id,
            agent: self.facts.agents[agent].id,
            lease,
            reason,
            awaited: false,
        });
        self.drop_lease(task, held);
    }

    /// Has the agent of one lease end the task. One that confirms ends keeps the lease until it says that
    /// nothing is left of the task; with any other the lease ends here.
    pub(crate) fn call_off(
        &mut self,
        task: TaskRef,
        held: Held,
        reason: CancelReason,
        actions: &mut Vec<Action>,
    ) {
        let agent = self.agent_holding(task, held);
        if !self.facts.agents[agent].confirms_ends {
            return self.revoke(task, held, reason, actions);
        }
        if self.is_called_off(task, held) {
            return;
        }
        if held == Held::First {
            self.end_retract(task);
        }
        let this = &mut self.facts.tasks[task];
        let (id, first) = (this.id, this.lease);
        let extra = this.extra_mut();
        let lease = match held {
            Held::First => {
                extra.called_off = true;
                first
            }
            Held::Copy => {
                let copy = extra.copy.as_mut().expect("there is a copy");
                copy.called_off = true;
                copy.lease
            }
        };
        actions.push(Action::Cancel {
            task: id,
            agent: self.facts.agents[agent].id,
            lease,
            reason,
            awaited: true,
        });
        self.derived.fleet.note_change(agent, Change::Backlog);
    }

    pub(crate) fn is_called_off(&self, task: TaskRef, held: Held) -> bool {
        let this = &self.facts.tasks[task];
        match held {
            Held::First => this.is_called_off(),
            Held::Copy => this.copy().is_some_and(|copy| copy.called_off),
        }
    }

    /// Whether an agent was told to end what it has under a lease, and has not said that nothing is left of it.
    /// Whoever may not have heard it is told again.
    #[must_use]
    pub fn is_ending(&self, task: TaskId, lease: Lease) -> bool {
        let Some(place) = self.facts.ids.live(task) else {
            return false;
        };
        let this = &self.facts.tasks[place];
        match this.copy() {
            Some(copy) if copy.lease == lease => copy.called_off,
            _ => this.has_lease() && this.lease == lease && this.is_called_off(),
        }
    }

    /// How a task will end that only waits for its agents to be done with it.
    #[must_use]
    pub fn decided(&self, task: TaskId) -> Option<Ending> {
        let task = self.facts.ids.live(task)?;
        self.facts.tasks[task].extra.as_ref()?.ending
    }

    /// An agent has ended what it was told to end.
    fn end_called_off(&mut self, task: TaskRef, held: Held, actions: &mut Vec<Action>) {
        self.drop_lease(task, held);
        if !self.facts.tasks[task].has_lease() {
            self.conclude(task, actions);
        }
    }

    /// A task that was called off has no lease any more: what was decided about it comes true.
    pub(crate) fn conclude(&mut self, task: TaskRef, actions: &mut Vec<Action>) {
        let extra = self.facts.tasks[task].extra_mut();
        match extra.ending.take() {
            Some(ending) => self.end_task(task, ending, actions),
            None => self.attempt_failed(task, Failure::TimeLimit, actions),
        }
    }

    pub(crate) fn task_yielded(
        &mut self,
        task: TaskId,
        lease: Lease,
        yielded: bool,
        actions: &mut Vec<Action>,
    ) {
        let Some((task, held)) = self.lease_in_force(task, lease, actions) else {
            return;
        };
        if self.is_called_off(task, held) {
            if yielded {
                self.end_called_off(task, held, actions);
            }
            return;
        }
        let was_asked = held == Held::First && self.facts.tasks[task].is_retracting();
        let thief = was_asked.then(|| self.end_retract(task)).flatten();
        if !yielded {
            if was_asked {
                self.facts.tallies.steal_failed();
            }
            if let Some(thief) = thief {
                self.back_off(thief);
            }
            return;
        }
        if was_asked {
            self.facts.tallies.steal_succeeded();
        }
        let from = self.agent_holding(task, held);
        let was_run = self.facts.tasks[task].state == State::Running;
        self.drop_lease(task, held);
        if self.facts.tasks[task].has_lease() {
            return; // The other copy goes on.
        }
        // What was not run does not count as an attempt. What an agent gives up of its own accord goes elsewhere too.
        if !was_run {
            let attempts = &mut self.facts.tasks[task].attempts;
            *attempts = attempts.saturating_sub(1);
        }
        self.marks.hand_over(Handover { task, from, thief });
    }

    pub(crate) fn checkpoint_saved(
        &mut self,
        task: TaskId,
        lease: Lease,
        actions: &mut Vec<Action>,
    ) {
        // The driver keeps the checkpoint; here it only matters that a stale one is not kept.
        self.lease_in_force(task, lease, actions);
    }
}

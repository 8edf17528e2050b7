//! What agents say of the tasks they were given.
//!
//! Every assignment has a number, its lease. An answer counts only while its lease is in force; the
//! one place that decides this is [`Scheduler::lease_in_force`].

use alloc::vec::Vec;

use loxley_model::{AgentId, Lease, Outcome, Span, TaskId};

use crate::refs::{AgentRef, TaskRef};
use crate::scheduler::report;
use crate::tasks::State;
use crate::{Action, CancelReason, Ending, Reason, Report, Scheduler};

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
        if let Some(place) = self.ids.live(task) {
            let this = &self.tasks[place];
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
        self.tallies.stale_answers += 1;
        report(Report::StaleAnswer { task, lease }, actions);
    }

    pub(crate) fn task_started(&mut self, task: TaskId, lease: Lease, actions: &mut Vec<Action>) {
        let Some((task, held)) = self.lease_in_force(task, lease, actions) else {
            return;
        };
        self.note_start(task, held, Span::ZERO);
    }

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

    /// Books the start of a task so long ago, unless it is booked.
    fn note_start(&mut self, task: TaskRef, held: Held, ago: Span) {
        let began = self.now - ago;
        let agent = match held {
            Held::First => {
                let this = &mut self.tasks[task];
                if this.state == State::Running {
                    return;
                }
                // Not before it was assigned, whatever an agent says.
                let began = began.max(this.since);
                let (waited, agent) = (began.since(this.since), this.agent);
                this.since = began;
                self.tallies.task_waited(waited);
                self.set_state(task, State::Running);
                agent
            }
            Held::Copy => {
                let copy = self.tasks[task]
                    .extra_mut()
                    .copy
                    .as_mut()
                    .expect("the lease is for the copy");
                if copy.running {
                    return;
                }
                copy.running = true;
                copy.started = began.max(copy.started);
                copy.agent
            }
        };
        self.one_less_unstarted(agent);
        self.watch_task_in_hand(task, agent);
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
        self.jobs.touch(self.tasks[task].job);
        // An agent need not say that it started a short task.
        self.note_start(task, held, Span::ZERO);
        let agent = self.agent_holding(task, held);
        let (took, kind) = (self.ran_for(task, held), self.tasks[task].kind);
        self.learn(task, agent, outcome, took, actions);
        if outcome == Outcome::Succeeded {
            self.lots.kind_at_mut(kind).durations.add(took);
        }
        let agent_id = self.agents[agent].id;
        self.drop_lease(task, held, actions);
        match outcome {
            Outcome::Succeeded => {
                self.cancel_other_copy(task, held, actions);
                self.end_task(
                    task,
                    Ending::Succeeded {
                        agent: agent_id,
                        lease,
                    },
                    actions,
                );
            }
            Outcome::Failed(failure) => {
                if !self.other_copy_goes_on(task, held) {
                    self.attempt_failed(task, failure, actions);
                }
            }
        }
        self.feed_if_here(agent, agent_id, actions);
    }

    /// Feeds an agent, unless it left meanwhile.
    pub(crate) fn feed_if_here(&mut self, agent: AgentRef, id: AgentId, actions: &mut Vec<Action>) {
        let here = self.agents.get(agent).filter(|this| this.id == id);
        if here.is_some_and(|this| this.room(self.config.prefetch.max_depth) > 0) {
            self.feed(agent, actions);
        }
    }

    pub(crate) fn agent_holding(&self, task: TaskRef, held: Held) -> AgentRef {
        match held {
            Held::First => self.tasks[task].agent,
            Held::Copy => self.tasks[task].copy().expect("there is a copy").agent,
        }
    }

    fn ran_for(&self, task: TaskRef, held: Held) -> Span {
        let started = match held {
            Held::First => self.tasks[task].since,
            Held::Copy => self.tasks[task].copy().expect("there is a copy").started,
        };
        self.now.since(started)
    }

    /// Takes one lease of a task off the books and lets whoever waited for its place have it. With the
    /// first copy gone the task is on no agent, unless the other copy takes its place.
    pub(crate) fn drop_lease(&mut self, task: TaskRef, held: Held, actions: &mut Vec<Action>) {
        let group = self.lots.at(self.tasks[task].lot).group;
        match held {
            Held::First => {
                self.end_retract(task);
                let this = &self.tasks[task];
                let (agent, lease, started) =
                    (this.agent, this.lease, this.state == State::Running);
                self.end_lease(task, agent, lease, started);
                match self.tasks[task]
                    .extra_mut_if_any()
                    .and_then(|extra| extra.copy.take())
                {
                    Some(copy) => self.promote(task, copy),
                    None => {
                        if started {
                            self.tasks[task].since = self.now;
                        }
                        self.set_state(task, State::Waiting);
                    }
                }
            }
            Held::Copy => {
                let copy = self.tasks[task]
                    .extra_mut()
                    .copy
                    .take()
                    .expect("there is a copy");
                self.copies -= 1;
                self.end_lease(task, copy.agent, copy.lease, copy.running);
            }
        }
        if let Some(group) = group {
            self.group_has_room(group, actions);
        }
    }

    /// The second copy is the only one now.
    fn promote(&mut self, task: TaskRef, copy: crate::tasks::Copy) {
        self.copies -= 1;
        let state = if copy.running {
            State::Running
        } else {
            State::Leased
        };
        let this = &mut self.tasks[task];
        this.agent = copy.agent;
        this.lease = copy.lease;
        this.since = copy.started;
        self.set_state(task, state);
    }

    /// After `held` failed and was dropped: whether another copy is still under way.
    fn other_copy_goes_on(&self, task: TaskRef, held: Held) -> bool {
        match held {
            // The first copy was dropped: a second one has taken its place.
            Held::First => self.tasks[task].has_lease(),
            Held::Copy => true,
        }
    }

    /// After `held` succeeded and was dropped: stops the other copy.
    fn cancel_other_copy(&mut self, task: TaskRef, held: Held, actions: &mut Vec<Action>) {
        if held == Held::Copy {
            self.tallies.speculations_won += 1;
        }
        if self.tasks[task].has_lease() {
            self.revoke(task, Held::First, CancelReason::OtherCopyWon, actions);
        }
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
        let id = self.agents[agent].id;
        let lease = match held {
            Held::First => self.tasks[task].lease,
            Held::Copy => self.tasks[task].copy().expect("there is a copy").lease,
        };
        actions.push(Action::Cancel {
            task: self.tasks[task].id,
            agent: id,
            lease,
            reason,
        });
        self.drop_lease(task, held, actions);
        self.feed_if_here(agent, id, actions);
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
        if held == Held::Copy || !self.tasks[task].is_retracting() {
            // Nobody asked: a task given up of the agent's own accord goes elsewhere.
            if yielded {
                let agent = self.agent_holding(task, held);
                let id = self.agents[agent].id;
                self.drop_lease(task, held, actions);
                if !self.tasks[task].has_lease() {
                    self.put_back(task, Some(agent), actions);
                }
                self.feed_if_here(agent, id, actions);
            }
            return;
        }
        let from = self.agents[self.tasks[task].agent].id;
        let thief = self.end_retract(task);
        if !yielded {
            self.tallies.steal_failed();
            if let Some(thief) = thief {
                self.back_off(thief);
            }
            return;
        }
        self.tallies.steal_succeeded();
        let holder = self.tasks[task].agent;
        self.drop_lease(task, held, actions);
        if self.tasks[task].has_lease() {
            return self.feed_if_here(holder, from, actions);
        }
        self.tasks[task].attempts = self.tasks[task].attempts.saturating_sub(1);
        // It may have come under protection since it was asked for.
        let is_free = !self.is_protected(self.tasks[task].priority);
        match thief.filter(|thief| is_free && self.can_start_now(*thief, task)) {
            Some(thief) => {
                self.agents[thief].refusals = 0;
                self.tasks[task].moves = self.tasks[task].moves.saturating_add(1);
                self.tallies.task_moved();
                self.assign(task, thief, Reason::Stolen(from), actions);
            }
            None => self.place(task, Some(holder), actions),
        }
        self.feed_if_here(holder, from, actions);
    }

    fn can_start_now(&self, agent: AgentRef, task: TaskRef) -> bool {
        let lot = self.tasks[task].lot;
        let this = &self.agents[agent];
        this.room(self.config.prefetch.max_depth) > 0
            && self.is_capable(self.lots.at(lot).class, this.cohort)
            && self.admission(false).bar(this, lot).is_none()
    }

    /// A task that was not run goes back to a queue; this does not count as an attempt.
    pub(crate) fn put_back(
        &mut self,
        task: TaskRef,
        avoid: Option<AgentRef>,
        actions: &mut Vec<Action>,
    ) {
        self.tasks[task].attempts = self.tasks[task].attempts.saturating_sub(1);
        self.place(task, avoid, actions);
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

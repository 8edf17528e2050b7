//! How a task gets from one state to another: each step changes the task and every book on the way.
//!
//! ```text
//!              submitted            placed                 given               started
//!   (nothing) ----------> Waiting ----------> Queued -----------> Leased -----------------> Running
//!                          ^ | ^   no agent                          |                         |
//!                          | | +------------> Held                   | lease ends              |
//!                          | | <------------                         v                         |
//!                          | +--- Backoff, Standby,               Waiting <--------------------+
//!                          |      Delegated, Away                    |
//!                          +------------------------------------------'
//! ```
//!
//! A task that is in no other state waits. Everything passes through there, so a step knows one of its
//! two ends; what is wrong about that is asserted. A task ends from `Waiting`.

use alloc::vec::Vec;

use loxley_model::{AgentId, Span};

use crate::fleet::{Change, InHand};
use crate::leases::Held;
use crate::refs::{AgentRef, TaskRef};
use crate::scheduler::report;
use crate::task_classes::class_bit;
use crate::tasks::{Gone, SecondCopy, State};
use crate::{Action, Reason, Report, Scheduler};

impl Scheduler {
    /// Moves a task to another state, and its count with it. Only for states that no other book keeps.
    pub(crate) fn set_state(&mut self, task: TaskRef, state: State) {
        let old = core::mem::replace(&mut self.facts.tasks[task].state, state);
        *self.derived.counts.of(old) -= 1;
        *self.derived.counts.of(state) += 1;
    }

    /// Puts a waiting task on an agent's queue.
    pub(crate) fn enqueue(
        &mut self,
        task: TaskRef,
        agent: AgentRef,
        reason: Reason,
        actions: &mut Vec<Action>,
    ) {
        self.assert_waits(task);
        self.derived.fleet.touch(agent);
        self.set_state(task, State::Queued);
        let this = &mut self.facts.tasks[task];
        this.agent = agent;
        this.assigned = self.facts.now;
        this.reason = reason;
        let id = this.id;
        self.derived.queue(&self.facts, task);
        self.mark_queued(task);
        let agent = self.facts.agents[agent].id;
        report(
            Report::Queued {
                task: id,
                agent,
                reason,
            },
            actions,
        );
    }

    /// Takes a task off its agent's queue.
    pub(crate) fn unqueue(&mut self, task: TaskRef) {
        assert!(self.facts.tasks[task].is_queued(), "it is on a queue");
        self.derived.unqueue(&self.facts, task);
        let this = &mut self.facts.tasks[task];
        this.stamp = this.stamp.wrapping_add(1);
        self.set_state(task, State::Waiting);
    }

    /// A task can no longer make its deadline: wherever it waits, it comes behind those that still can.
    pub(crate) fn step_back(&mut self, task: TaskRef) {
        let this = &self.facts.tasks[task];
        let class = self.facts.admission_class_of(this).capability;
        match this.state {
            State::Queued => {
                self.derived.unqueue(&self.facts, task);
                let this = &mut self.facts.tasks[task];
                this.stamp = this.stamp.wrapping_add(1);
                this.extra_mut().deadline_reported = true;
                self.derived.queue(&self.facts, task);
                // Somebody idle left it to a faster agent, perhaps: what comes first there now is another.
                self.marks.offer(1 << class_bit(class));
            }
            State::Held => {
                self.derived.capabilities.unhold(class, this, task);
                let this = &mut self.facts.tasks[task];
                this.extra_mut().deadline_reported = true;
                let this = &self.facts.tasks[task];
                self.derived.capabilities.hold(class, this, task);
            }
            _ => self.facts.tasks[task].extra_mut().deadline_reported = true,
        }
    }

    /// Takes a task off its queue because it moves to another agent.
    pub(crate) fn move_off_queue(&mut self, task: TaskRef) {
        self.unqueue(task);
        self.note_move(task);
    }

    /// A task moves from one agent to another.
    pub(crate) fn note_move(&mut self, task: TaskRef) {
        let moves = &mut self.facts.tasks[task].moves;
        *moves = moves.saturating_add(1);
        self.facts.tallies.task_moved();
    }

    /// Lets a waiting task be held until somebody can do it.
    pub(crate) fn hold(&mut self, task: TaskRef) {
        self.assert_waits(task);
        self.set_state(task, State::Held);
        let this = &self.facts.tasks[task];
        let class = self.facts.admission_class_of(this).capability;
        self.derived.capabilities.hold(class, this, task);
    }

    pub(crate) fn unhold(&mut self, task: TaskRef) {
        let this = &self.facts.tasks[task];
        let class = self.facts.admission_class_of(this).capability;
        self.derived.capabilities.unhold(class, this, task);
        self.set_state(task, State::Waiting);
    }

    /// Books a lease on a waiting task. Returns the id of the agent.
    pub(crate) fn lease_first(
        &mut self,
        task: TaskRef,
        agent: AgentRef,
        reason: Reason,
    ) -> AgentId {
        self.assert_waits(task);
        self.facts.leases += 1;
        self.set_state(task, State::Leased);
        let this = &mut self.facts.tasks[task];
        this.agent = agent;
        this.lease = loxley_model::Lease(self.facts.leases);
        this.reason = reason;
        this.assigned = self.facts.now;
        this.attempts = this.attempts.saturating_add(1);
        if let Some(extra) = &mut this.extra {
            extra.copied = false;
            extra.called_off = false;
        }
        let lease = this.lease;
        self.begin_lease(InHand { lease, task }, agent)
    }

    /// Books the lease on a second copy of a running task. Returns the id of the agent.
    pub(crate) fn lease_copy(&mut self, task: TaskRef, agent: AgentRef) -> AgentId {
        self.facts.leases += 1;
        let lease = loxley_model::Lease(self.facts.leases);
        let extra = self.facts.tasks[task].extra_mut();
        assert!(extra.copy.is_none(), "a task has one second copy");
        extra.copy = Some(SecondCopy {
            agent,
            lease,
            started: self.facts.now,
            running: false,
            called_off: false,
        });
        extra.copied = true;
        self.derived.counts.copies += 1;
        self.begin_lease(InHand { lease, task }, agent)
    }

    fn begin_lease(&mut self, held: InHand, agent: AgentRef) -> AgentId {
        self.derived.lease(&self.facts, held, agent, false);
        let this = &mut self.facts.agents[agent];
        if this.dispatch == loxley_model::Dispatch::OnRequest {
            this.want = this.want.saturating_sub(1);
        }
        let id = this.id;
        if let Some(locality) = self.facts.tasks[held.task].locality() {
            self.note_location(locality.key, id);
        }
        id
    }

    /// Books the start of a task so long ago, unless it is booked.
    pub(crate) fn note_start(&mut self, task: TaskRef, held: Held, ago: Span) {
        let began = self.facts.now - ago;
        let this = &mut self.facts.tasks[task];
        let agent = match held {
            Held::First => {
                if this.state == State::Running {
                    return;
                }
                // Not before it could have started, whatever an agent says.
                let began = began.max(this.since);
                let (waited, agent) = (began.since(this.since), this.agent);
                this.since = began;
                self.facts.tallies.task_waited(waited);
                self.set_state(task, State::Running);
                agent
            }
            Held::Copy => {
                let copy = this.extra_mut().copy.as_mut();
                let copy = copy.expect("the lease is for the copy");
                if copy.running {
                    return;
                }
                copy.running = true;
                copy.started = began.max(copy.started);
                copy.agent
            }
        };
        self.derived.fleet.change(agent, Change::Backlog).start();
        self.watch_task_in_hand(task, agent);
    }

    /// Takes one lease of a task off the books. With the first copy gone the task waits, unless the
    /// other copy takes its place. Whoever waited for a place in the group, or has room now, is looked
    /// at.
    pub(crate) fn drop_lease(&mut self, task: TaskRef, held: Held) {
        let this = &self.facts.tasks[task];
        let group = self.facts.admission_class_of(this).group;
        match held {
            Held::First => {
                self.end_retract(task);
                self.drop_first(task);
            }
            Held::Copy => {
                let copy = self.take_copy(task).expect("there is a copy");
                self.end_lease(task, copy);
            }
        }
        if let Some(group) = group {
            self.marks.open_group(group);
        }
    }

    fn drop_first(&mut self, task: TaskRef) {
        let this = &self.facts.tasks[task];
        let first = SecondCopy {
            agent: this.agent,
            lease: this.lease,
            started: this.since,
            running: this.state == State::Running,
            called_off: this.is_called_off(),
        };
        self.end_lease(task, first);
        if first.called_off {
            self.facts.tasks[task].extra_mut().called_off = false;
        }
        let Some(copy) = self.take_copy(task) else {
            if first.running {
                self.facts.tasks[task].since = self.facts.now;
            }
            return self.set_state(task, State::Waiting);
        };
        // The second copy is the only one now.
        let this = &mut self.facts.tasks[task];
        this.agent = copy.agent;
        this.lease = copy.lease;
        this.since = copy.started;
        this.extra_mut().called_off = copy.called_off;
        self.derived.fleet.note_change(copy.agent, Change::Backlog);
        self.set_state(
            task,
            if copy.running {
                State::Running
            } else {
                State::Leased
            },
        );
    }

    fn take_copy(&mut self, task: TaskRef) -> Option<SecondCopy> {
        let extra = self.facts.tasks[task].extra_mut_if_any()?;
        let copy = extra.copy.take()?;
        self.derived.counts.copies -= 1;
        Some(copy)
    }

    fn end_lease(&mut self, task: TaskRef, copy: SecondCopy) {
        let held = InHand {
            lease: copy.lease,
            task,
        };
        let derived = &mut self.derived;
        derived.unlease(&self.facts, held, copy.agent, copy.running);
        self.mark_agent(copy.agent);
    }

    /// Notes that an agent was asked for a task back, for `thief` or for anybody.
    pub(crate) fn begin_retract(&mut self, task: TaskRef, thief: Option<AgentRef>) {
        let thief_id = thief.map(|thief| {
            let thief = &self.facts.agents[thief];
            (thief.id, thief.incarnation)
        });
        let this = &mut self.facts.tasks[task];
        let extra = this.extra_mut();
        assert!(!extra.retracting, "it is asked back once at a time");
        extra.retract_for = thief_id;
        extra.retracting = true;
        self.derived.counts.retracts += 1;
        let holder = this.agent;
        self.derived.fleet.note_change(holder, Change::Backlog);
        if let Some(thief) = thief {
            self.derived.fleet.look(thief).awaited += 1;
        }
    }

    /// A retraction is over, one way or the other. Returns for whom it was.
    pub(crate) fn end_retract(&mut self, task: TaskRef) -> Option<AgentRef> {
        let this = &mut self.facts.tasks[task];
        if !this.is_retracting() {
            return None;
        }
        let extra = this.extra_mut();
        extra.retracting = false;
        let thief = extra.retract_for.take();
        self.derived.fleet.note_change(this.agent, Change::Backlog);
        self.derived.counts.retracts -= 1;
        self.marks.ask_back();
        let (id, incarnation) = thief?;
        let thief = self.agent_of(id, incarnation)?;
        self.derived.fleet.look(thief).awaited -= 1;
        self.mark_agent(thief);
        Some(thief)
    }

    /// A waiting task is over.
    pub(crate) fn remove(&mut self, task: TaskRef) -> Gone {
        self.assert_is_nowhere(task);
        let this = &self.facts.tasks[task];
        self.derived.end(&self.facts, this);
        *self.derived.counts.of(this.state) -= 1;
        self.facts.tasks.remove(task)
    }

    fn assert_waits(&self, task: TaskRef) {
        let state = self.facts.tasks[task].state;
        assert_eq!(state, State::Waiting, "a task is in one place");
    }

    /// It is on no queue and no list, and has no lease.
    fn assert_is_nowhere(&self, task: TaskRef) {
        let state = self.facts.tasks[task].state;
        assert!(
            matches!(
                state,
                State::Waiting | State::Backoff | State::Standby | State::Delegated
            ),
            "a task is in one place"
        );
    }
}

//! Tasks that run too long: time limits, second copies, and what waits behind a slow task.
//!
//! Each agent has one alarm for all tasks in its hands, set for the first moment at which one of them
//! could be overdue. So starting and finishing a task normally touches no timer at all.

use alloc::vec::Vec;

use loxley_model::{AgentId, Failure, Lease, Priority, Span, Time};

use crate::agents::InHand;
use crate::leases::Held;
use crate::queue::StealOrder;
use crate::refs::{AgentRef, TaskRef};
use crate::tasks::{Copy, State};
use crate::timers::Alarm;
use crate::{Action, CancelReason, Reason, Scheduler};

/// Nothing is done about a task that has run for less: it would be over before help comes.
const SHORTEST: Span = Span::from_millis(10);

/// How soon to look again at a task of which nobody can say whether it is slow.
const FIRST_LOOK: Span = Span::from_millis(100);

/// So many agents with slow tasks are looked at for one that is idle.
const LOOKS_MAX: usize = 32;

/// When something is to be done about a running task.
#[derive(Clone, Copy, Debug)]
struct Due {
    time_limit: Time,
    straggler: Time,
}

/// The next moment at which tasks are looked at that become slow after `span`: later by no more than an
/// eighth of it. All agents share these moments, so one tick serves many of them.
fn in_step(at: Time, span: Span) -> Time {
    let step = 1 << (span.0 / 8).max(1).ilog2();
    at.0.checked_next_multiple_of(step).map_or(Time::MAX, Time)
}

impl Scheduler {
    /// Makes sure that a task which was just started is looked at in time.
    pub(crate) fn watch_task_in_hand(&mut self, task: TaskRef, agent: AgentRef) {
        let due = self.due(task, self.now);
        let next = due.time_limit.min(due.straggler);
        self.set_check(agent, next.min(self.next_look(task, self.now)));
    }

    /// When to look again at a task that may be copied or moved, but of whose like too few have finished to
    /// say what is slow: they may have by then. It began first, so nothing else would remind us.
    fn next_look(&self, task: TaskRef, started: Time) -> Time {
        let kind = self.lots.kind_at(self.tasks[task].kind);
        let rules = &self.config.speculation;
        let unknown = kind.durations.count() < u64::from(rules.min_samples);
        let may_be_copied = rules.enabled && kind.spec.speculate;
        let may_move = kind.spec.checkpoints && self.config.work_stealing.allow_task_migration;
        if unknown && (may_be_copied || may_move) {
            self.now + Span(self.now.since(started).0 / 2).max(FIRST_LOOK)
        } else {
            Time::MAX
        }
    }

    fn set_check(&mut self, agent: AgentRef, at: Time) {
        let this = &mut self.agents[agent];
        if at < this.check_at {
            this.check_at = at;
            self.timers
                .set(at, Alarm::TasksInHand(this.id, this.incarnation));
        }
    }

    fn due(&self, task: TaskRef, started: Time) -> Due {
        let kind = self.lots.kind_at(self.tasks[task].kind);
        let rules = &self.config.speculation;
        let median = kind.durations.median();
        let known = kind.durations.count() >= u64::from(rules.min_samples);
        let slow = median
            .filter(|_| known)
            .map(|median| median.mul_f64(rules.straggler_ratio));
        let limit = kind.spec.time_limit;
        let slow = slow.map(|slow| slow.max(SHORTEST));
        Due {
            time_limit: limit.map_or(Time::MAX, |limit| started + limit),
            straggler: slow.map_or(Time::MAX, |slow| in_step(started + slow, slow)),
        }
    }

    /// Looks at every task that an agent runs.
    pub(crate) fn check_tasks_in_hand(
        &mut self,
        id: AgentId,
        incarnation: u32,
        at: Time,
        actions: &mut Vec<Action>,
    ) {
        let Some(agent) = self.agent_of(id, incarnation) else {
            return;
        };
        if self.agents[agent].check_at != at {
            return;
        }
        self.agents[agent].check_at = Time::MAX;
        let (next, is_overdue) = self.look_at_tasks_of(agent);
        if !is_overdue {
            return self.set_check(agent, next);
        }
        let mut stragglers = 0;
        for InHand { task, lease } in self.agents[agent].in_hand.clone() {
            let Some((held, started)) = self.running_under(task, lease) else {
                continue;
            };
            let due = self.due(task, started);
            if due.time_limit <= self.now {
                self.time_limit_passed(task, held, actions);
                continue;
            }
            if due.straggler <= self.now {
                stragglers += 1;
                self.help_straggler(task, held, actions);
            }
        }
        if let Some(agent) = self.agent_of(id, incarnation) {
            if stragglers >= self.agents[agent].slots {
                self.move_away_from(agent, actions);
            }
            let (next, _) = self.look_at_tasks_of(agent);
            self.set_check(agent, next);
        }
    }

    fn running_under(&self, task: TaskRef, lease: Lease) -> Option<(Held, Time)> {
        let this = self.tasks.get(task)?;
        if this.state == State::Running && this.lease == lease {
            return Some((Held::First, this.since));
        }
        let copy = this
            .copy()
            .filter(|copy| copy.lease == lease && copy.running)?;
        Some((Held::Copy, copy.started))
    }

    /// When the next task of an agent can be overdue, and whether one is. One that already is, is
    /// looked at again when it has run half as long again.
    fn look_at_tasks_of(&self, agent: AgentRef) -> (Time, bool) {
        let (mut next, mut is_overdue) = (Time::MAX, false);
        for InHand { task, lease } in &self.agents[agent].in_hand {
            let Some((_, started)) = self.running_under(*task, *lease) else {
                continue;
            };
            let due = self.due(*task, started);
            let again = self.now + Span(self.now.since(started).0 / 2).max(Span::from_millis(1));
            let straggler = if due.straggler <= self.now {
                again
            } else {
                due.straggler
            };
            is_overdue |= due.straggler.min(due.time_limit) <= self.now;
            next = next.min(due.time_limit).min(straggler);
            next = next.min(self.next_look(*task, started));
        }
        (next, is_overdue)
    }

    fn time_limit_passed(&mut self, task: TaskRef, held: Held, actions: &mut Vec<Action>) {
        let agent = self.agent_holding(task, held);
        let took = self
            .lots
            .kind_at(self.tasks[task].kind)
            .spec
            .time_limit
            .unwrap_or(Span::ZERO);
        let outcome = loxley_model::Outcome::Failed(Failure::TimeLimit);
        self.learn(task, agent, outcome, took, actions);
        self.revoke(task, held, CancelReason::TimeLimit, actions);
        let goes_on = held == Held::Copy || self.tasks[task].has_lease();
        if !goes_on {
            self.attempt_failed(task, Failure::TimeLimit, actions);
        }
    }

    /// Starts a second copy of a slow task, or moves it if that is allowed.
    fn help_straggler(&mut self, task: TaskRef, held: Held, actions: &mut Vec<Action>) {
        let copied = self.tasks[task]
            .extra
            .as_ref()
            .is_some_and(|extra| extra.copied);
        if held == Held::Copy || copied {
            return;
        }
        let checkpoints = self.lots.kind_at(self.tasks[task].kind).spec.checkpoints;
        if self.may_be_copied(task) && self.is_within_budget() {
            match self.idle_agent_for(task) {
                Some(agent) => self.start_copy(task, agent, actions),
                // The first agent that has nothing better to do takes it.
                None => {
                    self.overdue.insert(self.tasks[task].agent);
                }
            }
        } else if checkpoints && self.config.work_stealing.allow_task_migration {
            self.migrate(task, actions);
        }
    }

    fn is_within_budget(&self) -> bool {
        let budget = self.config.speculation.budget * self.counts.running as f64;
        f64::from(self.copies) < budget.max(1.0)
    }

    /// Lets an agent with a free slot run the second copy of a slow task, if one waits for such an
    /// agent: one that is more urgent than `than`, where something else could run instead.
    pub(crate) fn run_second_copy(
        &mut self,
        idle: AgentRef,
        than: Option<Priority>,
        actions: &mut Vec<Action>,
    ) -> bool {
        if self.overdue.is_empty() || !self.agents[idle].has_free_slot() || !self.is_within_budget()
        {
            return false;
        }
        let holders: Vec<AgentRef> = self.overdue.iter().copied().take(LOOKS_MAX).collect();
        for holder in holders.into_iter().filter(|holder| *holder != idle) {
            let slow = self.slow_in_hand(holder);
            if slow.is_empty() {
                self.overdue.remove(&holder);
            }
            let admission = self.admission(false);
            let fits = slow.into_iter().find(|task| {
                let this = &self.tasks[*task];
                let class = self.lots.at(this.lot).class;
                than.is_none_or(|than| this.priority > than)
                    && self.is_capable(class, self.agents[idle].cohort)
                    && admission.bar(&self.agents[idle], this.lot).is_none()
            });
            if let Some(task) = fits {
                self.start_copy(task, idle, actions);
                return true;
            }
        }
        false
    }

    /// The same, where it is more urgent than all that waits in the agent's own queue.
    pub(crate) fn run_urgent_copy(&mut self, agent: AgentRef, actions: &mut Vec<Action>) -> bool {
        let waiting = self.agents[agent].queue.highest_priority();
        waiting.is_some() && self.run_second_copy(agent, waiting, actions)
    }

    /// What an agent runs that is slow and may have a second copy, but has none.
    fn slow_in_hand(&self, holder: AgentRef) -> Vec<TaskRef> {
        let Some(holder) = self.agents.get(holder) else {
            return Vec::new();
        };
        let slow = |held: &&InHand| match self.running_under(held.task, held.lease) {
            Some((Held::First, started)) => {
                self.may_be_copied(held.task) && self.due(held.task, started).straggler <= self.now
            }
            _ => false,
        };
        holder
            .in_hand
            .iter()
            .filter(slow)
            .map(|held| held.task)
            .collect()
    }

    fn may_be_copied(&self, task: TaskRef) -> bool {
        let this = &self.tasks[task];
        let copied = this.extra.as_ref().is_some_and(|extra| extra.copied);
        let speculate = self.lots.kind_at(this.kind).spec.speculate;
        speculate && !copied && self.config.speculation.enabled
    }

    fn start_copy(&mut self, task: TaskRef, agent: AgentRef, actions: &mut Vec<Action>) {
        let lease = self.next_lease();
        let first = self.agents[self.tasks[task].agent].id;
        let copy = Copy {
            agent,
            lease,
            started: self.now,
            running: false,
        };
        let extra = self.tasks[task].extra_mut();
        extra.copy = Some(copy);
        extra.copied = true;
        self.copies += 1;
        self.tallies.speculations += 1;
        let agent = self.begin_lease(task, agent, lease);
        let (id, attempt) = (self.tasks[task].id, u32::from(self.tasks[task].attempts));
        let reason = Reason::Speculation(first);
        actions.push(Action::Assign {
            task: id,
            agent,
            lease,
            attempt,
            reason,
        });
    }

    fn migrate(&mut self, task: TaskRef, actions: &mut Vec<Action>) {
        let this = &self.tasks[task];
        // A task that is slow everywhere must not be sent around for ever.
        if this.is_retracting() || u32::from(this.moves) >= self.config.guards.max_moves {
            return;
        }
        if let Some(agent) = self.idle_agent_for(task) {
            self.retract(task, Some(agent), true, actions);
        }
    }

    /// An agent, not the one that has it, that could start this task at once.
    fn idle_agent_for(&mut self, task: TaskRef) -> Option<AgentRef> {
        let (lot, holder) = (self.tasks[task].lot, self.tasks[task].agent);
        let class = self.lots.at(lot).class;
        self.refresh_class(class);
        let admission = self.admission(false);
        let cohorts = self
            .lots
            .class_at(class)
            .capable
            .iter()
            .map(|(cohort, _)| *cohort);
        let mut idle =
            cohorts.flat_map(|cohort| self.agents.cohort(cohort).idle.iter().rev().copied());
        idle.find(|agent| *agent != holder && admission.bar(&self.agents[*agent], lot).is_none())
    }

    /// Every slot of an agent is taken by a slow task: what waits behind them moves to agents that
    /// are idle, the oldest first.
    fn move_away_from(&mut self, agent: AgentRef, actions: &mut Vec<Action>) {
        /// So many at once; the next check moves more.
        const MOVES_MAX: usize = 64;
        let from = self.agents[agent].id;
        let order = StealOrder {
            newest_first: false,
            lowest_priority_first: false,
            protected_from: None,
        };
        for _ in 0..MOVES_MAX {
            let queue = &mut self.agents[agent].queue;
            let Some(task) = queue.loot(&self.tasks, order, &mut |_| true) else {
                return;
            };
            let other = self.choose_freely(task, Some(agent));
            let other = other
                .map(|(other, _)| other)
                .filter(|other| *other != agent);
            let idle = self.config.thresholds.idle_threshold;
            let Some(other) = other.filter(|other| self.agents[*other].queue.len() < idle) else {
                return;
            };
            self.move_off_queue(task);
            self.enqueue(task, other, Reason::BehindStraggler(from), actions);
            self.after_enqueue(task, other, actions);
        }
    }
}

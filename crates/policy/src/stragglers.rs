//! Tasks that run too long: time limits, second copies, and what waits behind a slow task.
//!
//! Each agent has one alarm for all tasks in its hands, set for the first moment at which one of them
//! could be overdue. So starting and finishing a task normally touches no timer at all.

use alloc::vec::Vec;

use loxley_model::{AgentId, Failure, Lease, Priority, Span, Time};

use crate::admission::Shares;
use crate::fleet::{GroupRef, InHand};
use crate::leases::Held;
use crate::queue::StealOrder;
use crate::refs::{AgentRef, CohortRef, TaskRef};
use crate::tasks::State;
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
        let due = self.due(task, self.facts.now);
        let next = due.time_limit.min(due.straggler);
        self.set_check(agent, next.min(self.next_look(task, self.facts.now)));
    }

    /// When to look again at a task that may be copied or moved, but of whose like too few have finished to
    /// say what is slow: they may have by then. It began first, so nothing else would remind us.
    fn next_look(&self, task: TaskRef, started: Time) -> Time {
        let kind = self.facts.classes.kind_at(self.facts.tasks[task].kind);
        let rules = &self.facts.config.speculation;
        let unknown = kind.durations.count() < u64::from(rules.min_samples);
        let may_be_copied = rules.enabled && kind.spec.speculate && !kind.spec.once;
        let may_move = kind.spec.checkpoints
            && !kind.spec.once
            && self.facts.config.work_stealing.allow_task_migration;
        if unknown && (may_be_copied || may_move) {
            self.facts.now + Span(self.facts.now.since(started).0 / 2).max(FIRST_LOOK)
        } else {
            Time::MAX
        }
    }

    fn set_check(&mut self, agent: AgentRef, at: Time) {
        let this = &mut self.facts.agents[agent];
        if at < this.check_at {
            this.check_at = at;
            self.facts
                .timers
                .set(at, Alarm::TasksInHand(this.id, this.incarnation));
        }
    }

    fn due(&self, task: TaskRef, started: Time) -> Due {
        let kind = self.facts.classes.kind_at(self.facts.tasks[task].kind);
        let rules = &self.facts.config.speculation;
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
        if self.facts.agents[agent].check_at != at {
            return;
        }
        self.facts.agents[agent].check_at = Time::MAX;
        let (next, is_overdue) = self.look_at_tasks_of(agent);
        if !is_overdue {
            return self.set_check(agent, next);
        }
        let mut stragglers = 0;
        for InHand { task, lease } in self.derived.fleet.hand(agent).in_hand().to_vec() {
            let Some((held, started)) = self.running_under(task, lease) else {
                continue;
            };
            let due = self.due(task, started);
            if due.time_limit <= self.facts.now {
                self.time_limit_passed(task, held, actions);
                continue;
            }
            if due.straggler <= self.facts.now {
                stragglers += 1;
                self.help_straggler(task, held, actions);
            }
        }
        if let Some(agent) = self.agent_of(id, incarnation) {
            if stragglers >= self.facts.agents[agent].slots {
                self.move_away_from(agent, actions);
            }
            let (next, _) = self.look_at_tasks_of(agent);
            self.set_check(agent, next);
        }
    }

    /// Which copy of a task runs under a lease and since when. One that was called off only has to end.
    fn running_under(&self, task: TaskRef, lease: Lease) -> Option<(Held, Time)> {
        let this = self.facts.tasks.get(task)?;
        if this.state == State::Running && this.lease == lease {
            return (!this.is_called_off()).then_some((Held::First, this.since));
        }
        let copy = this
            .copy()
            .filter(|copy| copy.lease == lease && copy.running && !copy.called_off)?;
        Some((Held::Copy, copy.started))
    }

    /// When the next task of an agent can be overdue, and whether one is. One that already is, is
    /// looked at again when it has run half as long again.
    fn look_at_tasks_of(&self, agent: AgentRef) -> (Time, bool) {
        let (mut next, mut is_overdue) = (Time::MAX, false);
        for InHand { task, lease } in self.derived.fleet.hand(agent).in_hand() {
            let Some((_, started)) = self.running_under(*task, *lease) else {
                continue;
            };
            let due = self.due(*task, started);
            let again = self.facts.now
                + Span(self.facts.now.since(started).0 / 2).max(Span::from_millis(1));
            let straggler = if due.straggler <= self.facts.now {
                again
            } else {
                due.straggler
            };
            is_overdue |= due.straggler.min(due.time_limit) <= self.facts.now;
            next = next.min(due.time_limit).min(straggler);
            next = next.min(self.next_look(*task, started));
        }
        (next, is_overdue)
    }

    fn time_limit_passed(&mut self, task: TaskRef, held: Held, actions: &mut Vec<Action>) {
        let agent = self.agent_holding(task, held);
        let took = self
            .facts
            .classes
            .kind_at(self.facts.tasks[task].kind)
            .spec
            .time_limit
            .unwrap_or(Span::ZERO);
        let outcome = loxley_model::Outcome::Failed(Failure::TimeLimit);
        self.learn(task, agent, outcome, took, false, actions);
        self.call_off(task, held, CancelReason::TimeLimit, actions);
        if !self.facts.tasks[task].has_lease() {
            self.attempt_failed(task, Failure::TimeLimit, actions);
        }
    }

    /// Sees to it that a slow task gets a second copy, or moves it if that is allowed.
    fn help_straggler(&mut self, task: TaskRef, held: Held, actions: &mut Vec<Action>) {
        let this = &self.facts.tasks[task];
        let copied = this.extra.as_ref().is_some_and(|extra| extra.copied);
        if held == Held::Copy || copied {
            return;
        }
        let kind = &self.facts.classes.kind_at(this.kind).spec;
        let checkpoints = kind.checkpoints && !kind.once;
        if self.may_be_copied(task) && self.is_within_budget() {
            // Whoever is idle takes it, else the first agent that has nothing better to do.
            self.facts.overdue.insert(this.agent);
            if let Some(idle) = self.idle_agent_for(task) {
                self.mark_agent(idle);
            }
        } else if checkpoints && self.facts.config.work_stealing.allow_task_migration {
            self.migrate(task, actions);
        }
    }

    fn is_within_budget(&self) -> bool {
        let counts = &self.derived.counts;
        // What merely lies at an agent does not run.
        let budget = self.facts.config.speculation.budget * counts.started as f64;
        f64::from(counts.copies) < budget.max(1.0)
    }

    /// A slow task that waits for an agent with a free slot to run a second copy of it: one that is more
    /// urgent than `than`, where something else could run instead.
    pub(crate) fn slow_task_for(
        &mut self,
        idle: AgentRef,
        than: Option<Priority>,
    ) -> Option<TaskRef> {
        let this = &self.facts.agents[idle];
        if !self.derived.fleet.hand(idle).has_free_slot(this) || !self.is_within_budget() {
            return None;
        }
        let holders: Vec<AgentRef> = self.facts.overdue.iter().copied().take(LOOKS_MAX).collect();
        for holder in holders.into_iter().filter(|holder| *holder != idle) {
            let slow = self.slow_in_hand(holder);
            if slow.is_empty() {
                self.facts.overdue.remove(&holder);
            }
            let fits = slow.into_iter().find(|task| {
                let this = &self.facts.tasks[*task];
                let class = self.facts.admission_class_of(this).capability;
                than.is_none_or(|than| this.priority > than)
                    && self.is_capable(class, self.facts.agents[idle].cohort)
                    && self
                        .bar(idle, this.admission_class, Shares::Ignored)
                        .is_none()
            });
            if fits.is_some() {
                return fits;
            }
        }
        None
    }

    /// What an agent runs that is slow and may have a second copy, but has none.
    fn slow_in_hand(&self, holder: AgentRef) -> Vec<TaskRef> {
        let slow = |held: &&InHand| match self.running_under(held.task, held.lease) {
            Some((Held::First, started)) => {
                self.may_be_copied(held.task)
                    && self.due(held.task, started).straggler <= self.facts.now
            }
            _ => false,
        };
        let in_hand = self.derived.fleet.hand(holder).in_hand().iter();
        in_hand.filter(slow).map(|held| held.task).collect()
    }

    fn may_be_copied(&self, task: TaskRef) -> bool {
        let this = &self.facts.tasks[task];
        let copied = this.extra.as_ref().is_some_and(|extra| extra.copied);
        let kind = &self.facts.classes.kind_at(this.kind).spec;
        kind.speculate && !kind.once && !copied && self.facts.config.speculation.enabled
    }

    fn migrate(&mut self, task: TaskRef, actions: &mut Vec<Action>) {
        let this = &self.facts.tasks[task];
        // A task that is slow everywhere must not be sent around for ever.
        if this.is_on_its_way() || u32::from(this.moves) >= self.facts.config.guards.max_moves {
            return;
        }
        if let Some(agent) = self.idle_agent_for(task) {
            self.retract(task, Some(agent), true, actions);
        }
    }

    /// An agent, not the one that has it, that could start this task at once.
    fn idle_agent_for(&mut self, task: TaskRef) -> Option<AgentRef> {
        let (admission_class, holder) = (
            self.facts.tasks[task].admission_class,
            self.facts.tasks[task].agent,
        );
        let class = self
            .facts
            .classes
            .admission_class(admission_class)
            .capability;
        let cohorts: Vec<CohortRef> = self.capable(class).iter().map(|(c, _)| *c).collect();
        let fleet = &self.derived.fleet;
        let groups: Vec<GroupRef> = cohorts.into_iter().flat_map(|c| fleet.groups(c)).collect();
        for group in groups {
            let mut from = 0;
            while let Some((position, agent)) =
                self.derived.fleet.next_idle(&self.facts, group, from)
            {
                from = position + 1;
                if agent != holder && self.bar(agent, admission_class, Shares::Ignored).is_none() {
                    return Some(agent);
                }
            }
        }
        None
    }

    /// Every slot of an agent is taken by a slow task: what waits behind them moves to agents that
    /// are idle, the oldest first.
    fn move_away_from(&mut self, agent: AgentRef, actions: &mut Vec<Action>) {
        /// So many at once; the next check moves more.
        const MOVES_MAX: usize = 64;
        let from = self.facts.agents[agent].id;
        let idle = self.facts.config.thresholds.idle_threshold;
        let order = StealOrder {
            newest_first: false,
            lowest_priority_first: false,
            protected_from: None,
            moves_max: self.facts.config.guards.max_moves,
        };
        for _ in 0..MOVES_MAX {
            let facts = &self.facts;
            let queue = &mut self.derived.fleet.look(agent).queue;
            let sort_of = |task: &_| facts.sort_of(task);
            let Some(task) = queue.loot(&facts.tasks, order, &sort_of, &mut |_| true) else {
                return;
            };
            let other = self.choose_freely(task, Some(agent));
            let other = other.map(|(other, _)| other).filter(|other| {
                *other != agent && self.derived.fleet.hand(*other).queue.len() < idle
            });
            let Some(other) = other else { return };
            self.move_off_queue(task);
            self.enqueue(task, other, Reason::BehindStraggler(from), actions);
        }
    }
}

//! The scheduler itself: its state, and its one entrance.
//!
//! An input is handled in two steps. *Apply* changes the facts, and the books that follow from them, and
//! marks what must be looked at. *Settle* ([`settle`](crate::settle)) then matches marked agents with
//! what they may start, until nothing is marked. Only settling gives tasks to agents.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use loxley_model::{AgentId, Priority, Span, Time};

use crate::derived::Derived;
use crate::facts::{Facts, Snapshot, SnapshotError};
use crate::marks::Marks;
use crate::queue::StealOrder;
use crate::refs::AgentRef;
use crate::timers::Alarm;
use crate::{Action, Config, Input, InputError, Report, UtilizationSample};

/// The deciding core: tell it what happened with [`handle`](Self::handle), carry out what it answers.
///
/// Inputs may arrive in any order and any number of times; whatever does not fit the present state is
/// answered with a [`Report`] and changes nothing. `now` must not run backwards; if it does, the
/// latest time counts.
///
/// ```
/// use loxley_model::{AgentId, AgentSpec, JobId, JobSpec, SkillSet, TaskId, TaskKind, TaskSpec, Time};
/// use loxley_policy::{Action, Config, Input, Scheduler};
///
/// let mut scheduler = Scheduler::new(Config::default(), Time::ZERO);
/// let mut actions = Vec::new();
/// let agent = AgentSpec::new(AgentId(1), SkillSet::none());
/// scheduler.handle(Time(1), Input::AgentJoined(agent.into()), &mut actions);
/// let tasks = [TaskSpec::new(TaskId(7), TaskKind::default().into())].into();
/// let job = JobSpec::new(JobId(1));
/// scheduler.handle(Time(2), Input::TasksSubmitted { job, tasks }, &mut actions);
///
/// actions.clear();
/// let asks = Input::WorkRequested { agent: AgentId(1), want: 1 };
/// scheduler.handle(Time(3), asks, &mut actions);
/// assert!(matches!(actions[0], Action::Assign { task: TaskId(7), agent: AgentId(1), .. }));
/// ```
#[derive(Debug)]
pub struct Scheduler {
    /// What it must remember. A snapshot is this.
    pub(crate) facts: Facts,
    /// What follows from the facts.
    pub(crate) derived: Derived,
    /// What has to be looked at; nothing between inputs.
    pub(crate) marks: Marks,
    /// Queue lengths over time, for people: nothing is decided by them.
    pub(crate) samples: VecDeque<UtilizationSample>,
}

impl Scheduler {
    /// A scheduler without agents and tasks.
    #[must_use]
    pub fn new(config: Config, now: Time) -> Self {
        Self::from(Facts::new(config, now))
    }

    /// The state between two inputs, to be kept: whoever goes on from it decides as this one does.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        assert!(self.marks.are_settled(), "between two inputs");
        Snapshot(self.facts.clone().into())
    }

    /// A scheduler that goes on where the one of the snapshot was: it answers every further input with
    /// the same actions.
    pub fn restore(snapshot: Snapshot) -> Result<Self, SnapshotError> {
        snapshot.checked().map(Self::from)
    }

    /// Counts everything anew and compares: names a book that is wrong, or an agent that idles beside
    /// work. Walks through the whole state, so this is for tests.
    pub fn verify(&mut self) -> Result<(), &'static str> {
        if !self.marks.are_settled() {
            return Err("marks");
        }
        self.derived.verify(&self.facts)?;
        self.nobody_idles()
    }

    /// Takes in a fact and adds what is to be done about it to `actions`.
    pub fn handle(&mut self, now: Time, input: Input, actions: &mut Vec<Action>) {
        self.facts.now = self.facts.now.max(now);
        match input {
            Input::TasksSubmitted { job, tasks } => self.submit(job, &tasks, actions),
            // These hold nothing that has to be dropped; to forget them saves finding that out.
            Input::WorkRequested { agent, want } => {
                core::mem::forget(input);
                self.work_requested(agent, want, actions);
            }
            Input::TaskStarted { task, lease } => {
                core::mem::forget(input);
                self.task_ran(task, lease, Span::ZERO, actions);
            }
            Input::TaskFinished {
                task,
                lease,
                outcome,
            } => {
                core::mem::forget(input);
                self.task_finished(task, lease, outcome, actions);
            }
            other => self.apply_other(other, actions),
        }
        if !self.marks.are_settled() {
            self.settle(actions);
        }
        self.announce_timer(actions);
    }

    /// Takes in what does not happen with every task. Apart, so that what does finds its code close
    /// together.
    #[inline(never)]
    fn apply_other(&mut self, input: Input, actions: &mut Vec<Action>) {
        match input {
            Input::TasksSubmitted { .. }
            | Input::WorkRequested { .. }
            | Input::TaskStarted { .. }
            | Input::TaskFinished { .. } => unreachable!("handled with every task"),
            Input::AgentJoined(spec) => self.agent_joined(*spec, actions),
            Input::AgentLeft { agent, tasks } => self.agent_left(agent, tasks, actions),
            Input::AgentDrained(agent) => self.agent_drained(agent, actions),
            Input::AgentHeard { agent, vitals } => self.agent_heard(agent, vitals, actions),
            Input::StealRequested { agent, onto_queue } => {
                self.steal_requested(agent, onto_queue, actions);
            }
            Input::TaskYielded {
                task,
                lease,
                yielded,
            } => {
                self.task_yielded(task, lease, yielded, actions);
            }
            Input::TaskRan { task, lease, ran } => self.task_ran(task, lease, ran, actions),
            Input::CheckpointSaved { task, lease } => self.checkpoint_saved(task, lease, actions),
            Input::StoodStill(gap) => self.excuse_silence(gap),
            Input::CancelRequested(selection) => self.cancel(selection, actions),
            Input::DeadLettersResubmitted(tasks) => self.resubmit(&tasks, actions),
            Input::DeadLetterResubmitted { task, after } => {
                self.resubmit_one(task, &after, actions);
            }
            Input::GroupLimitSet { group, limit } => self.set_group_limit(group, limit, actions),
            Input::GroupClosed(group) => self.facts.limits.set_limit(group, 0),
            Input::UserWeightSet { user, weight } => match weight {
                0 => reject(InputError::BadWeight(user), actions),
                _ => {
                    let limits = &mut self.facts.limits;
                    self.derived.loads.set_weight(limits, user, weight);
                }
            },
            Input::TaskQueued { agent, job, task } => {
                self.queue_by_hand(agent, job, *task, actions);
            }
            Input::TaskTaken(taking) => self.take_by_hand(taking, actions),
            Input::AgentRecalled {
                agent,
                completed,
                failed,
            } => self.recall(agent, completed, failed, actions),
            Input::SkillRevoked { agent, skill } => self.revoke_skill(agent, skill, actions),
            Input::RebalanceRequested => self.rebalance(actions),
            Input::Tick => self.tick(actions),
            Input::ConfigChanged(config) => self.change_config(*config),
            Input::AgentSilent(agent) => self.agent_silent(agent, actions),
            Input::TaskSentAway(task) => self.task_sent_away(task, actions),
            Input::TaskCameBack(task) => self.task_came_back(task, actions),
            Input::TaskEndedAway { task, ending } => self.task_ended_away(task, ending, actions),
            Input::TaskForgotten(task) => self.task_forgotten(task, actions),
        }
    }

    /// When the next `Tick` is due.
    #[must_use]
    pub fn next_timer(&self) -> Option<Time> {
        self.facts.timers.next()
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.facts.config
    }

    fn announce_timer(&mut self, actions: &mut Vec<Action>) {
        let next = self.facts.timers.next();
        if next != self.facts.announced {
            self.facts.announced = next;
            actions.extend(next.map(|at| Action::SetTimer { at }));
        }
    }

    /// Whatever is due happens, one thing after the other.
    fn tick(&mut self, actions: &mut Vec<Action>) {
        while let Some((at, alarm)) = self.facts.timers.pop_due(self.facts.now) {
            self.ring(at, alarm, actions);
            self.settle(actions);
        }
        if self.facts.timers.is_crowded() {
            self.sweep_timers();
        }
    }

    fn ring(&mut self, at: Time, alarm: Alarm, actions: &mut Vec<Action>) {
        match alarm {
            Alarm::Rebalance => {
                let interval = self.facts.config.thresholds.rebalance_interval;
                self.set_again(interval, Alarm::Rebalance);
                if self.facts.config.strategy.pushes() {
                    self.rebalance(actions);
                }
            }
            Alarm::Sample => {
                let interval = self.facts.config.metrics.utilization_sample_interval;
                self.set_again(interval, Alarm::Sample);
                self.sample_utilization();
            }
            Alarm::Liveness(agent, incarnation) => {
                self.check_liveness(agent, incarnation, actions);
            }
            Alarm::TasksInHand(agent, incarnation) => {
                self.check_tasks_in_hand(agent, incarnation, at, actions);
            }
            Alarm::StealAgain(agent, incarnation) => {
                if let Some(agent) = self.agent_of(agent, incarnation) {
                    self.steal_again(agent);
                }
            }
            Alarm::LookAgain(agent, incarnation) => {
                if let Some(agent) = self.agent_of(agent, incarnation) {
                    self.look_again(agent);
                }
            }
            Alarm::Probe(agent, incarnation, skill) => {
                if let Some(agent) = self.agent_of(agent, incarnation) {
                    self.begin_probing(agent, skill);
                }
            }
            Alarm::Forecast => self.look_ahead(actions),
            Alarm::Retry(task) => self.retry_due(task),
            Alarm::Deadline(task) => self.deadline_due(task, actions),
            Alarm::HoldLimit(task) => self.hold_limit_due(task, actions),
        }
    }

    /// Sets a periodic alarm again: later, even where somebody configured no pause at all.
    fn set_again(&mut self, pause: Span, alarm: Alarm) {
        let at = self.facts.now + pause.max(Span(1));
        self.facts.timers.set(at, alarm);
    }

    /// The agent with this id, if it is still the same incarnation.
    pub(crate) fn agent_of(&self, id: AgentId, incarnation: u32) -> Option<AgentRef> {
        let agent = self.derived.fleet.find(id)?;
        (self.facts.agents[agent].incarnation == incarnation).then_some(agent)
    }

    /// The agent with this id, or a report that there is none.
    pub(crate) fn find_agent(&self, id: AgentId, actions: &mut Vec<Action>) -> Option<AgentRef> {
        let agent = self.derived.fleet.find(id);
        if agent.is_none() {
            reject(InputError::UnknownAgent(id), actions);
        }
        agent
    }

    fn sweep_timers(&mut self) {
        let Facts {
            timers,
            ids,
            agents,
            ..
        } = &mut self.facts;
        let fleet = &self.derived.fleet;
        let is_there = |id: AgentId, incarnation: u32| {
            let agent = fleet.find(id).map(|agent| &agents[agent]);
            agent.filter(|agent| agent.incarnation == incarnation)
        };
        timers.sweep(|at, alarm| match alarm {
            Alarm::Rebalance | Alarm::Sample | Alarm::Forecast => true,
            Alarm::Liveness(id, incarnation)
            | Alarm::StealAgain(id, incarnation)
            | Alarm::LookAgain(id, incarnation)
            | Alarm::Probe(id, incarnation, _) => is_there(id, incarnation).is_some(),
            Alarm::TasksInHand(id, incarnation) => {
                is_there(id, incarnation).is_some_and(|agent| agent.check_at == at)
            }
            Alarm::Retry(task) | Alarm::Deadline(task) | Alarm::HoldLimit(task) => {
                ids.live(task).is_some()
            }
        });
    }

    /// What a thief prefers, as long as it may choose.
    pub(crate) fn steal_order(&self) -> StealOrder {
        let config = &self.facts.config;
        StealOrder {
            newest_first: config.work_stealing.prefer_recent_tasks,
            lowest_priority_first: config.priority.priority_stealing_order,
            protected_from: config.protected_from(),
            moves_max: config.guards.max_moves,
        }
    }

    pub(crate) fn is_protected(&self, priority: Priority) -> bool {
        let from = self.facts.config.protected_from();
        from.is_some_and(|from| priority >= from)
    }
}

impl From<Facts> for Scheduler {
    fn from(facts: Facts) -> Self {
        Self {
            derived: Derived::of(&facts),
            facts,
            marks: Marks::default(),
            samples: VecDeque::new(),
        }
    }
}

pub(crate) fn report(report: Report, actions: &mut Vec<Action>) {
    actions.push(Action::Report(report));
}

pub(crate) fn reject(error: InputError, actions: &mut Vec<Action>) {
    report(Report::Rejected(error), actions);
}

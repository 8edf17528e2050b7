//! The scheduler itself: its state, and its one entrance.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use loxley_balance::Rng;
use loxley_model::{AgentId, DataKey, Lease, Priority, Span, TaskId, Time};

use crate::agents::Agents;
use crate::dependencies::Edges;
use crate::endings::DeadLetter;
use crate::id_table::IdTable;
use crate::jobs::Jobs;
use crate::limits::Limits;
use crate::lots::Lots;
use crate::metrics::Tallies;
use crate::queue::StealOrder;
use crate::refs::{AgentRef, TaskRef};
use crate::tasks::{OrderKey, Tasks};
use crate::timers::{Alarm, Timers};
use crate::{Action, Config, Counts, Input, InputError, Report, UtilizationSample};

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
    pub(crate) config: Config,
    pub(crate) now: Time,
    pub(crate) tasks: Tasks,
    pub(crate) ids: IdTable,
    pub(crate) edges: Edges,
    /// Dependents of tasks that were returned: they wait for it to be submitted again.
    pub(crate) orphans: BTreeMap<TaskId, u32>,
    pub(crate) lots: Lots,
    pub(crate) agents: Agents,
    pub(crate) jobs: Jobs,
    pub(crate) limits: Limits,
    pub(crate) timers: Timers,
    pub(crate) announced: Option<Time>,
    pub(crate) rng: Rng,
    pub(crate) leases: u64,
    pub(crate) arrivals: u64,
    /// Where data was last used.
    pub(crate) locations: BTreeMap<DataKey, AgentId>,
    /// How many tasks agents were asked to give back and have not answered.
    pub(crate) retracts: u32,
    /// How many second copies are under way.
    pub(crate) copies: u32,
    /// Agents that run a slow task for whose second copy nobody had room. Some may be done with it.
    pub(crate) overdue: BTreeSet<AgentRef>,
    /// Agents that are kept full and hold tasks which wait for a slot, by how many are not started.
    pub(crate) backlogged: BTreeSet<(u32, AgentRef)>,
    /// Queued tasks with others behind them, in the order in which the whole fleet should start them.
    pub(crate) chained: BTreeSet<(Reverse<Priority>, OrderKey, TaskRef)>,
    /// Skills that may be tried again, and where.
    pub(crate) probes: BTreeSet<(loxley_model::SkillId, AgentRef)>,
    pub(crate) dead: BTreeMap<TaskId, DeadLetter>,
    /// The mean of all declared costs, later ones counting more, in nanoseconds.
    pub(crate) mean_cost: f64,
    /// Tasks that are not large and not over.
    pub(crate) small_live: u64,
    pub(crate) counts: Counts,
    pub(crate) tallies: Tallies,
    pub(crate) samples: VecDeque<UtilizationSample>,
    /// Agents that their cohort's ranking is behind.
    pub(crate) stale_ranks: Vec<AgentRef>,
    /// Agents that their cohort's tree of victims is behind.
    pub(crate) stale_loot: Vec<AgentRef>,
    /// Agents that the set of backlogged ones is behind.
    pub(crate) stale_backlog: Vec<AgentRef>,
}

impl Scheduler {
    /// A scheduler without agents and tasks.
    #[must_use]
    pub fn new(config: Config, now: Time) -> Self {
        let mut timers = Timers::default();
        timers.set(now + config.thresholds.rebalance_interval, Alarm::Rebalance);
        timers.set(
            now + config.metrics.utilization_sample_interval,
            Alarm::Sample,
        );
        Self {
            rng: Rng::new(config.seed),
            tallies: Tallies::new(&config.metrics),
            config,
            now,
            tasks: Tasks::default(),
            ids: IdTable::default(),
            edges: Edges::default(),
            orphans: BTreeMap::new(),
            lots: Lots::default(),
            agents: Agents::default(),
            jobs: Jobs::default(),
            limits: Limits::default(),
            timers,
            announced: None,
            leases: 0,
            arrivals: 0,
            locations: BTreeMap::new(),
            retracts: 0,
            copies: 0,
            overdue: BTreeSet::new(),
            backlogged: BTreeSet::new(),
            chained: BTreeSet::new(),
            probes: BTreeSet::new(),
            dead: BTreeMap::new(),
            mean_cost: 0.0,
            small_live: 0,
            counts: Counts::default(),
            samples: VecDeque::new(),
            stale_ranks: Vec::new(),
            stale_loot: Vec::new(),
            stale_backlog: Vec::new(),
        }
    }

    /// Takes in a fact and adds what is to be done about it to `actions`.
    pub fn handle(&mut self, now: Time, input: Input, actions: &mut Vec<Action>) {
        self.now = self.now.max(now);
        match input {
            Input::TasksSubmitted { job, tasks } => self.submit(job, &tasks, actions),
            // These hold nothing that has to be dropped; to forget them saves finding that out.
            Input::WorkRequested { agent, want } => {
                core::mem::forget(input);
                self.work_requested(agent, want, actions);
            }
            Input::TaskStarted { task, lease } => {
                core::mem::forget(input);
                self.task_started(task, lease, actions);
            }
            Input::TaskFinished {
                task,
                lease,
                outcome,
            } => {
                core::mem::forget(input);
                self.task_finished(task, lease, outcome, actions);
            }
            other => self.handle_other(other, actions),
        }
        self.announce_timer(actions);
    }

    /// Takes in what does not happen with every task. Apart, so that what does finds its code close
    /// together.
    #[inline(never)]
    fn handle_other(&mut self, input: Input, actions: &mut Vec<Action>) {
        match input {
            Input::TasksSubmitted { .. }
            | Input::WorkRequested { .. }
            | Input::TaskStarted { .. }
            | Input::TaskFinished { .. } => unreachable!("handled with every task"),
            Input::AgentJoined(spec) => self.agent_joined(*spec, actions),
            Input::AgentLeft { agent, tasks } => self.agent_left(agent, tasks, actions),
            Input::AgentDrained(agent) => self.agent_drained(agent, actions),
            Input::AgentHeard { agent, vitals } => self.agent_heard(agent, vitals, actions),
            Input::StealRequested { agent } => self.steal_requested(agent, actions),
            Input::TaskYielded {
                task,
                lease,
                yielded,
            } => {
                self.task_yielded(task, lease, yielded, actions);
            }
            Input::TaskRan { task, lease, ran } => self.task_ran(task, lease, ran, actions),
            Input::CheckpointSaved { task, lease } => self.checkpoint_saved(task, lease, actions),
            Input::CancelRequested(selection) => self.cancel(selection, actions),
            Input::DeadLettersResubmitted(tasks) => self.resubmit(&tasks, actions),
            Input::GroupLimitSet { group, limit } => self.set_group_limit(group, limit, actions),
            Input::UserWeightSet { user, weight } => match weight {
                0 => reject(InputError::BadWeight(user), actions),
                _ => self.limits.set_weight(user, weight),
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
            Input::RebalanceRequested => self.rebalance(actions),
            Input::Tick => self.tick(actions),
            Input::ConfigChanged(config) => self.change_config(*config, actions),
            Input::AgentSilent(agent) => self.agent_silent(agent, actions),
        }
    }

    /// When the next `Tick` is due.
    #[must_use]
    pub fn next_timer(&self) -> Option<Time> {
        self.timers.next()
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    fn announce_timer(&mut self, actions: &mut Vec<Action>) {
        let next = self.timers.next();
        if next != self.announced {
            self.announced = next;
            actions.extend(next.map(|at| Action::SetTimer { at }));
        }
    }

    fn tick(&mut self, actions: &mut Vec<Action>) {
        while let Some((at, alarm)) = self.timers.pop_due(self.now) {
            match alarm {
                Alarm::Rebalance => {
                    let interval = self.config.thresholds.rebalance_interval;
                    self.set_again(interval, Alarm::Rebalance);
                    if self.config.strategy.pushes() {
                        self.rebalance(actions);
                    }
                }
                Alarm::Sample => {
                    let interval = self.config.metrics.utilization_sample_interval;
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
                        self.feed(agent, actions);
                    }
                }
                Alarm::Probe(agent, incarnation, skill) => {
                    if let Some(agent) = self.agent_of(agent, incarnation) {
                        self.begin_probing(agent, skill, actions);
                    }
                }
                Alarm::Retry(task) => self.retry_due(task, actions),
                Alarm::Deadline(task) => self.deadline_due(task, actions),
                Alarm::HoldLimit(task) => self.hold_limit_due(task, actions),
            }
        }
        if self.timers.is_crowded() {
            self.sweep_timers();
        }
    }

    /// Sets a periodic alarm again: later, even where somebody configured no pause at all.
    fn set_again(&mut self, pause: Span, alarm: Alarm) {
        self.timers.set(self.now + pause.max(Span(1)), alarm);
    }

    /// The agent with this id, if it is still the same incarnation.
    pub(crate) fn agent_of(&self, id: AgentId, incarnation: u32) -> Option<AgentRef> {
        let agent = self.agents.find(id)?;
        (self.agents[agent].incarnation == incarnation).then_some(agent)
    }

    fn sweep_timers(&mut self) {
        let Self {
            timers,
            ids,
            agents,
            ..
        } = self;
        let is_there = |id: AgentId, incarnation: u32| {
            agents
                .find(id)
                .filter(|agent| agents[*agent].incarnation == incarnation)
        };
        timers.sweep(|at, alarm| match alarm {
            Alarm::Rebalance | Alarm::Sample => true,
            Alarm::Liveness(id, incarnation)
            | Alarm::StealAgain(id, incarnation)
            | Alarm::Probe(id, incarnation, _) => is_there(id, incarnation).is_some(),
            Alarm::TasksInHand(id, incarnation) => {
                is_there(id, incarnation).is_some_and(|agent| agents[agent].check_at == at)
            }
            Alarm::Retry(task) | Alarm::Deadline(task) | Alarm::HoldLimit(task) => {
                ids.live(task).is_some()
            }
        });
    }

    pub(crate) fn next_lease(&mut self) -> Lease {
        self.leases += 1;
        Lease(self.leases)
    }

    pub(crate) fn steal_order(&self) -> StealOrder {
        StealOrder {
            newest_first: self.config.work_stealing.prefer_recent_tasks,
            lowest_priority_first: self.config.priority.priority_stealing_order,
            protected_from: self.protected_from(),
        }
    }

    /// Tasks of this priority and above are not stolen.
    pub(crate) fn protected_from(&self) -> Option<Priority> {
        let rules = &self.config.priority;
        rules
            .preserve_high_priority
            .then_some(rules.high_priority_threshold)
    }
}

pub(crate) fn report(report: Report, actions: &mut Vec<Action>) {
    actions.push(Action::Report(report));
}

pub(crate) fn reject(error: InputError, actions: &mut Vec<Action>) {
    report(Report::Rejected(error), actions);
}

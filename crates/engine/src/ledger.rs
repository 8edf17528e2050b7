//! What is counted of the fleet while it works: the figures of M1 and M2 that rows of history cannot tell.
//!
//! Nothing here decides anything, and nothing of it is in a snapshot: after a restart the counting begins with the
//! facts that are applied again. Agents are looked at when a fact comes, at most every few milliseconds, so that a
//! task costs next to nothing.

use std::collections::VecDeque;

use loxley_balance::{BalanceReport, Observations, QueueDepths, Sketch};
use loxley_driver::IdMap;
use loxley_model::{AgentId, JobId, Priority, Span, TaskId, Time, UserId, WorkKey};
use loxley_policy::Scheduler;

/// The figures of the fleet are of the present period and the one before: of the last five to ten minutes.
const PERIOD: Span = Span::from_secs(300);
/// Agents are looked at no more often than this, for each hundred of them.
const LOOK_EVERY: Span = Span::from_millis(5);
/// So many kinds of work are told apart in a period.
const KINDS_MAX: usize = 256;
/// So many users are told apart in a period.
const USERS_MAX: usize = 1000;
/// The counts of so many jobs that are over are kept.
const ENDED_MAX: usize = 1000;

/// What is counted of the whole fleet.
#[derive(Debug)]
pub(crate) struct Ledger {
    looked_at: Time,
    present: Period,
    before: Option<Period>,
    /// Queue lengths since counting began: a job takes what is added while it is there.
    depths: QueueDepths,
    /// When a task was asked back from the agent that has it.
    asked_back: IdMap<TaskId, Time>,
    open: IdMap<JobId, JobCounts>,
    ended: VecDeque<(JobId, JobCounts)>,
}

/// What is counted of a job besides what the history says of its tasks.
#[derive(Clone, Debug, Default)]
pub struct JobCounts {
    /// Queue lengths when it came; once it is over, those while it was there.
    depths: QueueDepths,
    /// From being ready to being given to an agent.
    pub assigned: Sketch,
    /// Tasks that an idle agent took from another.
    pub stolen: u64,
    /// From asking for a task to having it.
    pub steal_latency: Sketch,
}

/// What happened in some minutes.
#[derive(Clone, Debug, Default)]
struct Period {
    since: Time,
    /// Time that slots were there, and that they were there while something ran or waited: a fleet without work is
    /// not out of balance.
    slot_ns: u128,
    needed_ns: u128,
    /// How long the slots of each agent were in use, and how many it has.
    busy_ns: IdMap<AgentId, (u64, u32)>,
    depths: QueueDepths,
    durations: IdMap<WorkKey, Sketch>,
    all: Sketch,
    assigned: Sketch,
    stolen: u64,
    steal_latency: Sketch,
    /// From being ready to being given to an agent, by priority, the lowest first.
    waits: [Sketch; Priority::LEVELS],
    users: IdMap<UserId, UserCounts>,
    deadlines: Deadlines,
}

/// What a user had of the fleet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UserCounts {
    /// Tasks that were given to agents.
    pub(crate) tasks: u64,
    /// How long they waited for that, all together.
    pub(crate) waited_ns: u128,
    /// How long slots were busy with attempts that ended.
    pub(crate) busy_ns: u128,
}

/// Tasks with deadlines that are over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deadlines {
    pub(crate) met: u64,
    pub(crate) missed: u64,
}

/// The figures of the fleet in the last minutes.
#[derive(Clone, Debug)]
pub(crate) struct FleetFigures {
    /// The four figures.
    pub(crate) balance: BalanceReport,
    /// Of how long they are.
    pub(crate) window: Span,
    /// How many slots there are.
    pub(crate) slots: u64,
    /// For how long slots stood idle, all together.
    pub(crate) idle: Span,
    /// How long tasks ran.
    pub(crate) durations: Sketch,
    /// From being ready to being given to an agent.
    pub(crate) assigned: Sketch,
    /// Tasks that an idle agent took.
    pub(crate) stolen: u64,
    /// From asking for a task to having it.
    pub(crate) steal_latency: Sketch,
    /// From being ready to being given to an agent, by priority, the lowest first.
    pub(crate) waits: [Sketch; Priority::LEVELS],
    /// What each user had.
    pub(crate) users: IdMap<UserId, UserCounts>,
    /// Tasks with deadlines.
    pub(crate) deadlines: Deadlines,
}

impl Ledger {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            looked_at: now,
            present: Period::starting(now),
            before: None,
            depths: QueueDepths::default(),
            asked_back: IdMap::default(),
            open: IdMap::default(),
            ended: VecDeque::new(),
        }
    }

    /// Looks at all agents as they have been since the last look, unless that was a moment ago.
    pub(crate) fn look(&mut self, now: Time, scheduler: &Scheduler) {
        let agents = scheduler.agent_count() as u64;
        let passed = now.since(self.looked_at);
        if agents == 0 {
            self.looked_at = now;
            return;
        }
        if passed < Span(LOOK_EVERY.0 * (1 + agents / 100)) {
            return;
        }
        self.looked_at = now;
        let waiting = || scheduler.agent_loads().map(|load| load.waiting as usize);
        self.depths.sample_for(passed.0, waiting());
        let period = &mut self.present;
        let has_work = scheduler
            .agent_loads()
            .any(|load| load.running + load.waiting > 0);
        if has_work {
            period.depths.sample_for(passed.0, waiting());
        }
        for load in scheduler.agent_loads() {
            let busy = period.busy_ns.entry(load.agent).or_default();
            busy.0 += passed.0 * u64::from(load.running);
            busy.1 = load.slots;
            let there = u128::from(passed.0) * u128::from(load.slots);
            period.slot_ns += there;
            period.needed_ns += if has_work { there } else { 0 };
        }
        if now.since(period.since) >= PERIOD {
            let ended = std::mem::replace(period, Period::starting(now));
            self.before = Some(ended);
        }
    }

    /// A job is over: its counts are kept for a while.
    pub(crate) fn job_ended(&mut self, job: JobId) {
        let mut counts = std::mem::take(self.of_open(job));
        self.open.remove(&job);
        counts.depths = self.depths.since(&counts.depths);
        self.ended.push_back((job, counts));
        if self.ended.len() > ENDED_MAX {
            self.ended.pop_front();
        }
    }

    /// What is counted of a job that is not over, from now on where nothing was yet.
    pub(crate) fn of_open(&mut self, job: JobId) -> &mut JobCounts {
        let depths = self.depths;
        self.open.entry(job).or_insert_with(|| JobCounts {
            depths,
            ..JobCounts::default()
        })
    }

    /// The counts of a job, and the queue lengths while it was there.
    pub(crate) fn of_job(&self, job: JobId) -> Option<(JobCounts, QueueDepths)> {
        if let Some(counts) = self.open.get(&job) {
            return Some((counts.clone(), self.depths.since(&counts.depths)));
        }
        let (_, counts) = self.ended.iter().rev().find(|(id, _)| *id == job)?;
        Some((counts.clone(), counts.depths))
    }

    /// Queue lengths since counting began.
    pub(crate) fn depths(&self) -> QueueDepths {
        self.depths
    }

    pub(crate) fn asked_back(&mut self, task: TaskId, now: Time) {
        self.asked_back.insert(task, now);
    }

    /// A task was given to an agent, so long after it was ready.
    pub(crate) fn assigned(&mut self, job: JobId, whose: Option<(UserId, Priority)>, waited: Span) {
        self.present.assigned.record(waited.0);
        self.of_open(job).assigned.record(waited.0);
        let Some((user, priority)) = whose else {
            return;
        };
        self.present.waits[priority.index()].record(waited.0);
        if let Some(counts) = self.present.of_user(user) {
            counts.tasks += 1;
            counts.waited_ns += u128::from(waited.0);
        }
    }

    /// A task with a deadline is over.
    pub(crate) fn deadline(&mut self, is_met: bool) {
        let deadlines = &mut self.present.deadlines;
        match is_met {
            true => deadlines.met += 1,
            false => deadlines.missed += 1,
        }
    }

    /// A task went to an idle agent.
    pub(crate) fn stolen(&mut self, job: JobId, task: TaskId, now: Time) {
        let asked = self.asked_back.remove(&task);
        let took = asked.map_or(Span::ZERO, |asked| now.since(asked));
        self.present.stolen += 1;
        self.present.steal_latency.record(took.0);
        let counts = self.of_open(job);
        counts.stolen += 1;
        counts.steal_latency.record(took.0);
    }

    /// A task left the core: whether it was asked back matters no more.
    pub(crate) fn forget(&mut self, task: TaskId) {
        if !self.asked_back.is_empty() {
            self.asked_back.remove(&task);
        }
    }

    /// An attempt ended that ran so long.
    pub(crate) fn ran(&mut self, work: Option<WorkKey>, user: Option<UserId>, took: Span) {
        let period = &mut self.present;
        period.all.record(took.0);
        if let Some(counts) = user.and_then(|user| period.of_user(user)) {
            counts.busy_ns += u128::from(took.0);
        }
        let work = work.unwrap_or(WorkKey(0));
        if let Some(durations) = period.durations.get_mut(&work) {
            durations.record(took.0);
        } else if period.durations.len() < KINDS_MAX {
            period.durations.entry(work).or_default().record(took.0);
        }
    }

    /// The figures of the last minutes.
    pub(crate) fn fleet_figures(&self, slots: u64) -> FleetFigures {
        let mut sum = self.before.clone().unwrap_or_else(|| self.present.empty());
        sum.add(&self.present);
        let window = self.looked_at.since(sum.since);
        let busy: Vec<u64> = sum.busy_ns.values().copied().flat_map(per_slot).collect();
        let busy_all: u128 = busy.iter().map(|busy| u128::from(*busy)).sum();
        let balance = BalanceReport::new(&Observations {
            busy_ns: &busy,
            // As long as slots were there on average, so that those that came late do not count as idle.
            wall_ns: (sum.needed_ns / (busy.len() as u128).max(1)) as u64,
            durations: &sum.all,
            queue_depths: &sum.depths,
        });
        FleetFigures {
            balance: balance.with_kinds(sum.durations.values()),
            window,
            slots,
            idle: Span(u64::try_from(sum.slot_ns.saturating_sub(busy_all)).unwrap_or(u64::MAX)),
            durations: sum.all,
            assigned: sum.assigned,
            stolen: sum.stolen,
            steal_latency: sum.steal_latency,
            waits: sum.waits,
            users: sum.users,
            deadlines: sum.deadlines,
        }
    }
}

/// Each slot of an agent counts as a worker, busy as long as its agent's were on average.
pub(crate) fn per_slot((busy, slots): (u64, u32)) -> impl Iterator<Item = u64> {
    std::iter::repeat_n(busy / u64::from(slots.max(1)), slots as usize)
}

impl Period {
    fn starting(since: Time) -> Self {
        Self {
            since,
            ..Self::default()
        }
    }

    /// The counts of a user; none when there are too many users.
    fn of_user(&mut self, user: UserId) -> Option<&mut UserCounts> {
        if self.users.len() >= USERS_MAX && !self.users.contains_key(&user) {
            return None;
        }
        Some(self.users.entry(user).or_default())
    }

    fn empty(&self) -> Self {
        Self::starting(self.since)
    }

    fn add(&mut self, later: &Self) {
        self.slot_ns += later.slot_ns;
        self.needed_ns += later.needed_ns;
        for (agent, (busy, slots)) in &later.busy_ns {
            let sum = self.busy_ns.entry(*agent).or_default();
            *sum = (sum.0 + busy, *slots);
        }
        self.depths.merge(&later.depths);
        for (work, durations) in &later.durations {
            self.durations.entry(*work).or_default().merge(durations);
        }
        self.all.merge(&later.all);
        self.assigned.merge(&later.assigned);
        self.stolen += later.stolen;
        self.steal_latency.merge(&later.steal_latency);
        for (waits, later) in self.waits.iter_mut().zip(&later.waits) {
            waits.merge(later);
        }
        for (user, later) in &later.users {
            let counts = self.users.entry(*user).or_default();
            counts.tasks += later.tasks;
            counts.waited_ns += later.waited_ns;
            counts.busy_ns += later.busy_ns;
        }
        self.deadlines.met += later.deadlines.met;
        self.deadlines.missed += later.deadlines.missed;
    }
}

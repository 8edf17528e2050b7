//! How balanced work was that is over, from the rows of the history.

use std::collections::BTreeMap;

use loxley_api::{BalanceFigure, Figures, JobRequest, PriorityWait, UserShare};
use loxley_balance::figures::Target;
use loxley_balance::{BalanceReport, Observations, QueueDepths, Sketch};
use loxley_journal::{JobRow, ReadError, ReadHistory, TaskQuery, TaskRow};
use loxley_model::{AgentId, JobId, Priority, Span, TaskId, Time, UserId, WorkKey};

use crate::ledger::{FleetFigures, JobCounts, per_slot};
use crate::names;

/// What was counted while a job ran, and what is known of agents.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// The counts of the job, where they are known.
    pub job: Option<JobCounts>,
    /// Queue lengths while it ran.
    pub depths: QueueDepths,
    /// How many slots each agent has.
    pub slots: BTreeMap<AgentId, u32>,
}

/// So many tasks of a job are looked at; of more, the first count.
const TASKS_MAX: u64 = 200_000;

/// The figures of a job, of what is over of it; none when there is no such job.
///
/// # Errors
/// When the history cannot be read.
pub fn of_job(
    history: &dyn ReadHistory,
    job: JobId,
    counted: &Counted,
) -> Result<Option<Figures>, ReadError> {
    let Some(row) = history.job(job)? else {
        return Ok(None);
    };
    let mut ran = RanTasks::default();
    let kinds = Kinds::of(&row);
    let mut after = None;
    loop {
        let page = history.tasks(&TaskQuery {
            job: Some(job),
            after,
            limit: 10_000,
            ..TaskQuery::default()
        })?;
        for row in &page.rows {
            ran.add(row, kinds.of_task(row.task));
        }
        after = page.next;
        if after.is_none() || ran.durations.count() >= TASKS_MAX {
            break;
        }
    }
    Ok(Some(ran.figures(counted)))
}

/// Which kind of work each task of a job is.
#[derive(Debug)]
pub struct Kinds {
    first: TaskId,
    /// How many tasks each part has, and of which kind.
    parts: Vec<(u64, WorkKey)>,
}

impl Kinds {
    /// As the request of the job says.
    #[must_use]
    pub fn of(row: &JobRow) -> Self {
        let request = JobRequest::from_json(&row.detail).ok();
        let tasks = request.into_iter().flat_map(|request| request.tasks);
        Self {
            first: row.first_task,
            parts: tasks
                .map(|task| (task.count(), names::work(&task)))
                .collect(),
        }
    }

    /// The kind of a task. What was added to an open job counts as its last part.
    #[must_use]
    pub fn of_task(&self, task: TaskId) -> Option<WorkKey> {
        let mut place = task.0.saturating_sub(self.first.0);
        for (count, work) in &self.parts {
            if place < *count {
                return Some(*work);
            }
            place -= count;
        }
        self.parts.last().map(|(_, work)| *work)
    }
}

/// Tasks that ran and ended, summed up.
#[derive(Debug, Default)]
pub struct RanTasks {
    /// How long all of them took.
    pub durations: Sketch,
    /// From submission to start.
    pub waits: Sketch,
    of_kind: BTreeMap<Option<WorkKey>, Sketch>,
    busy_ns: BTreeMap<AgentId, u64>,
    begin: Option<Time>,
    end: Option<Time>,
}

impl RanTasks {
    /// Adds a task, if an agent ran it. Its last attempt counts.
    pub fn add(&mut self, row: &TaskRow, work: Option<WorkKey>) {
        let (Some(agent), Some(started)) = (row.agent, row.started) else {
            return;
        };
        let took = row.finished.since(started);
        self.durations.record(took.0);
        self.waits.record(started.since(row.created).0);
        self.of_kind.entry(work).or_default().record(took.0);
        *self.busy_ns.entry(agent).or_default() += took.0;
        let begin = row.created.min(started);
        self.begin = Some(self.begin.map_or(begin, |known| known.min(begin)));
        self.end = self.end.max(Some(row.finished));
    }

    /// From the first submission to the last end.
    #[must_use]
    pub fn wall(&self) -> Span {
        match (self.begin, self.end) {
            (Some(begin), Some(end)) => end.since(begin),
            _ => Span::ZERO,
        }
    }

    /// How long each slot of those agents was busy that ran one of them.
    fn busy_slots(&self, counted: &Counted) -> Vec<u64> {
        let agents = self.busy_ns.iter().map(|(agent, busy)| {
            let slots = counted.slots.get(agent).copied().unwrap_or(1);
            (*busy, slots.max(1))
        });
        agents.flat_map(per_slot).collect()
    }

    /// The four figures.
    #[must_use]
    pub fn balance(&self, counted: &Counted) -> BalanceReport {
        let report = BalanceReport::new(&Observations {
            busy_ns: &self.busy_slots(counted),
            wall_ns: self.wall().0,
            durations: &self.durations,
            queue_depths: &counted.depths,
        });
        report.with_kinds(self.of_kind.values())
    }

    /// All figures.
    #[must_use]
    pub fn figures(&self, counted: &Counted) -> Figures {
        let slots = self.busy_slots(counted).len() as u64;
        let there = u128::from(slots) * u128::from(self.wall().0);
        let idle = there.saturating_sub(self.durations.sum());
        let known = counted.job.as_ref();
        let none = Sketch::default();
        summary(&Summary {
            balance: self.balance(counted),
            window: self.wall(),
            slots,
            idle: Span(u64::try_from(idle).unwrap_or(u64::MAX)),
            durations: &self.durations,
            assigned: known.map_or(&none, |job| &job.assigned),
            stolen: known.map(|job| job.stolen),
            steal_latency: known.map_or(&none, |job| &job.steal_latency),
        })
    }
}

/// The figures of the fleet, for everybody.
pub(crate) fn of_fleet(figures: &FleetFigures, name: impl Fn(UserId) -> String) -> Figures {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let waits = Priority::all().rev().zip(figures.waits.iter().rev());
    let waits = waits.filter(|(_, waits)| waits.count() > 0);
    let busy: u128 = figures.users.values().map(|counts| counts.busy_ns).sum();
    let users = figures.users.iter().map(|(user, counts)| UserShare {
        user: name(*user),
        tasks: counts.tasks,
        wait_mean_sec: (counts.tasks > 0)
            .then(|| counts.waited_ns as f64 / 1e9 / counts.tasks as f64),
        busy_sec: counts.busy_ns as f64 / 1e9,
        share: (busy > 0).then(|| counts.busy_ns as f64 / busy as f64),
    });
    let mut users: Vec<UserShare> = users.collect();
    users.sort_by(|one, other| {
        let by_time = other.busy_sec.total_cmp(&one.busy_sec);
        by_time.then_with(|| one.user.cmp(&other.user))
    });
    Figures {
        waits: waits
            .map(|(priority, waits)| PriorityWait {
                priority: priority.level(),
                tasks: waits.count(),
                p50_sec: waits.quantile(0.5).map(seconds),
                p99_sec: waits.quantile(0.99).map(seconds),
            })
            .collect(),
        users,
        deadlines_met: figures.deadlines.met,
        deadlines_missed: figures.deadlines.missed,
        ..fleet_summary(figures)
    }
}

fn fleet_summary(figures: &FleetFigures) -> Figures {
    summary(&Summary {
        balance: figures.balance,
        window: figures.window,
        slots: figures.slots,
        idle: figures.idle,
        durations: &figures.durations,
        assigned: &figures.assigned,
        stolen: Some(figures.stolen),
        steal_latency: &figures.steal_latency,
    })
}

struct Summary<'a> {
    balance: BalanceReport,
    window: Span,
    slots: u64,
    idle: Span,
    durations: &'a Sketch,
    assigned: &'a Sketch,
    stolen: Option<u64>,
    steal_latency: &'a Sketch,
}

fn summary(of: &Summary<'_>) -> Figures {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let ended = of.durations.count();
    let window = of.window.as_secs_f64();
    Figures {
        balance: of.balance.figures().map(balance_figure).into(),
        window_sec: window,
        slots: of.slots,
        idle_sec: of.idle.as_secs_f64(),
        tasks_ended: ended,
        tasks_per_sec: (window > 0.0).then(|| ended as f64 / window),
        task_mean_sec: of.durations.mean().map(|ns| ns / 1e9),
        assign_p50_sec: of.assigned.quantile(0.5).map(seconds),
        assign_p99_sec: of.assigned.quantile(0.99).map(seconds),
        tasks_stolen: of.stolen,
        steal_rate: of
            .stolen
            .filter(|_| ended > 0)
            .map(|stolen| stolen as f64 / ended as f64),
        steal_mean_sec: of.steal_latency.mean().map(|ns| ns / 1e9),
        ..Figures::default()
    }
}

fn balance_figure(figure: &loxley_balance::figures::Figure) -> BalanceFigure {
    let (target, is_above) = match figure.target {
        Target::Below(limit) => (limit, false),
        Target::Above(limit) => (limit, true),
    };
    BalanceFigure {
        name: figure.name.to_owned(),
        value: figure.value,
        target,
        is_above,
        is_share: figure.is_share,
        verdict: figure.verdict().word().to_owned(),
    }
}

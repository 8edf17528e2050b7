//! Who ran what when, and the figures of it: one definition for what happened and for what is simulated.

use std::collections::BTreeMap;

use loxley_balance::Sketch;
use loxley_model::UserId;
use loxley_sim::time::{Nanos, human, nanos};

use crate::recording::Recording;

/// Who ran what when. Tasks are numbered as in the [`Recording`], times count from its first arrival.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// Each task.
    pub tasks: Vec<TracedTask>,
    /// Time that slots were busy.
    pub busy: Nanos,
    /// Time that slots were there.
    pub room: Nanos,
    /// Time that agents were there.
    pub present: Nanos,
    /// Tasks that went from one agent to another before they ran.
    pub moved: u64,
    /// Deadlines that were missed.
    pub misses: u64,
}

/// What became of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TracedTask {
    /// Which task of the recording it is.
    pub origin: usize,
    /// When it came.
    pub arrived: Nanos,
    /// When everything that it waits for was over.
    pub ready: Nanos,
    /// When it first ran, and where.
    pub started: Option<(Nanos, u32)>,
    /// When it was over.
    pub ended: Option<Nanos>,
    /// Whether it succeeded.
    pub ok: bool,
}

/// A figure of a whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// From the first arrival to the last end, in seconds.
    Makespan,
    /// The mean time from ready to started, in seconds.
    MeanWait,
    /// The time from ready to started that one in a hundred waits longer, in seconds.
    P99Wait,
    /// The share of the time of all slots in which they were busy.
    Utilization,
    /// Deadlines that were missed.
    Misses,
    /// Tasks that changed hands before they ran.
    Moved,
    /// Hours of agents until the last end.
    AgentHours,
}

impl Figure {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Makespan,
        Self::MeanWait,
        Self::P99Wait,
        Self::Utilization,
        Self::Misses,
        Self::Moved,
        Self::AgentHours,
    ];

    /// Those by which a simulated run is held against what happened.
    pub const COMPARED: [Self; 4] = [
        Self::Makespan,
        Self::MeanWait,
        Self::P99Wait,
        Self::Utilization,
    ];

    /// A value of it as people read it.
    #[must_use]
    pub fn shown(self, value: f64) -> String {
        match self {
            Self::Makespan | Self::MeanWait | Self::P99Wait => {
                let sign = if value < 0.0 { "-" } else { "" };
                format!("{sign}{}", human(nanos(value.abs())))
            }
            Self::Utilization => format!("{:.1} %", value * 100.0),
            Self::Misses | Self::Moved => format!("{value:.1}"),
            Self::AgentHours => format!("{value:.3}"),
        }
    }

    /// By how much of what happened a simulated value is off; of a share, in points.
    #[must_use]
    pub fn error(self, happened: f64, simulated: f64) -> Option<f64> {
        match self {
            Self::Utilization => Some(simulated - happened),
            _ if happened.abs() < 1e-9 => None,
            _ => Some(simulated / happened - 1.0),
        }
    }

    /// Its name on a command line and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Makespan => "makespan",
            Self::MeanWait => "mean_wait",
            Self::P99Wait => "p99_wait",
            Self::Utilization => "utilization",
            Self::Misses => "misses",
            Self::Moved => "moved",
            Self::AgentHours => "cost",
        }
    }

    /// Its name for people.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Makespan => "makespan",
            Self::MeanWait => "mean wait",
            Self::P99Wait => "p99 wait",
            Self::Utilization => "utilization",
            Self::Misses => "missed deadlines",
            Self::Moved => "changed hands",
            Self::AgentHours => "agent hours",
        }
    }
}

/// The figures of a run.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    values: [f64; Figure::ALL.len()],
    /// Waits by priority, user and job.
    pub waits: WaitsOf,
}

/// Mean waits in seconds, of parts of the work.
#[derive(Debug, Clone, Default)]
pub struct WaitsOf {
    /// By priority, 1 to 5.
    pub priority: BTreeMap<u8, f64>,
    /// By the name of the user.
    pub user: BTreeMap<String, f64>,
    /// By the number of the job.
    pub job: BTreeMap<u64, f64>,
}

impl Figures {
    /// One of them.
    #[must_use]
    pub fn get(&self, figure: Figure) -> f64 {
        self.values[figure as usize]
    }

    /// The figures of a trace of the work of a recording.
    #[must_use]
    pub fn of(trace: &Trace, recording: &Recording) -> Self {
        let begin = trace.tasks.iter().map(|task| task.arrived).min();
        let end = trace.tasks.iter().filter_map(|task| task.ended).max();
        let makespan = end.unwrap_or(0).saturating_sub(begin.unwrap_or(0));
        let mut all = Sketch::default();
        let mut parts = Parts::default();
        for task in &trace.tasks {
            let Some((started, _)) = task.started else {
                continue;
            };
            let wait = started.saturating_sub(task.ready);
            all.record(wait);
            let recorded = &recording.tasks[task.origin];
            let job = &recording.arrivals[recorded.arrival].job;
            let priority = recorded.spec.priority.level();
            parts.priority.entry(priority).or_default().add(wait);
            parts.user.entry(job.user).or_default().add(wait);
            parts.job.entry(job.id.0).or_default().add(wait);
        }
        let utilization = match trace.room {
            0 => 0.0,
            room => trace.busy as f64 / room as f64,
        };
        let mut figures = Self::default();
        let mut set = |figure: Figure, value: f64| figures.values[figure as usize] = value;
        set(Figure::Makespan, makespan as f64 / 1e9);
        set(Figure::MeanWait, all.mean().unwrap_or(0.0) / 1e9);
        set(
            Figure::P99Wait,
            all.quantile(0.99).unwrap_or(0) as f64 / 1e9,
        );
        set(Figure::Utilization, utilization);
        set(Figure::Misses, trace.misses as f64);
        set(Figure::Moved, trace.moved as f64);
        set(Figure::AgentHours, trace.present as f64 / 1e9 / 3600.0);
        figures.waits = WaitsOf {
            priority: means(parts.priority),
            user: means(parts.user)
                .into_iter()
                .map(|(user, mean)| (recording.names.user_name(user).to_string(), mean))
                .collect(),
            job: means(parts.job),
        };
        figures
    }
}

#[derive(Default)]
struct Parts {
    priority: BTreeMap<u8, Mean>,
    user: BTreeMap<UserId, Mean>,
    job: BTreeMap<u64, Mean>,
}

#[derive(Default)]
struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    fn add(&mut self, wait: Nanos) {
        self.sum += wait as f64 / 1e9;
        self.count += 1;
    }
}

fn means<K: Ord>(parts: BTreeMap<K, Mean>) -> BTreeMap<K, f64> {
    let parts = parts.into_iter();
    parts
        .map(|(key, mean)| (key, mean.sum / mean.count as f64))
        .collect()
}

impl Recording {
    /// The figures of what happened.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures::of(&self.actual, self)
    }
}

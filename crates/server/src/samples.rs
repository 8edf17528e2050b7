//! How the figures went since the server started: looked at every few seconds, and kept for half a day.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use loxley_api::{FigureHistory, Figures, FleetInfo};

use crate::decider::Handle;

/// How often the figures are looked at.
const EVERY: Duration = Duration::from_secs(5);
/// So many points are kept: half a day.
const KEPT_MAX: usize = 8640;

/// The figures that are kept, by name, with how to come by them.
type Column = (&'static str, fn(&Look<'_>) -> Option<f64>);

struct Look<'a> {
    fleet: &'a FleetInfo,
    figures: &'a Figures,
    commit_sec: f64,
}

const COLUMNS: [Column; 18] = [
    ("load_imbalance", |look| look.balance("load imbalance")),
    ("straggler_ratio", |look| look.balance("straggler ratio")),
    ("worker_utilization", |look| {
        look.balance("worker utilization")
    }),
    ("queue_depth_variance", |look| {
        look.balance("queue-depth variance")
    }),
    ("running", |look| Some(look.fleet.tasks.running as f64)),
    ("queued", |look| Some(look.fleet.tasks.queued as f64)),
    ("waiting", |look| {
        let tasks = &look.fleet.tasks;
        Some((tasks.waiting + tasks.pending) as f64)
    }),
    ("held", |look| Some(look.fleet.tasks.held as f64)),
    ("agents", |look| Some(look.fleet.agent_count as f64)),
    ("tasks_per_sec", |look| look.figures.tasks_per_sec),
    ("task_mean_sec", |look| look.figures.task_mean_sec),
    ("assign_p50_sec", |look| look.figures.assign_p50_sec),
    ("assign_p99_sec", |look| look.figures.assign_p99_sec),
    ("steal_rate", |look| look.figures.steal_rate),
    ("steal_success_rate", |look| {
        let tried = look.fleet.total_steals > 0;
        tried.then_some(look.fleet.success_rate)
    }),
    ("deadline_misses", |look| {
        Some(look.fleet.deadline_misses as f64)
    }),
    ("retries", |look| Some(look.fleet.retries as f64)),
    ("commit_sec", |look| {
        (look.commit_sec > 0.0).then_some(look.commit_sec)
    }),
];

impl Look<'_> {
    fn balance(&self, name: &str) -> Option<f64> {
        let mut figures = self.figures.balance.iter();
        figures.find(|figure| figure.name == name)?.value
    }
}

#[derive(Clone, Copy, Debug)]
struct Point {
    unix_ms: u64,
    values: [Option<f32>; COLUMNS.len()],
}

/// The points so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct FigureSamples {
    points: Arc<Mutex<Points>>,
}

#[derive(Debug, Default)]
struct Points {
    kept: VecDeque<Point>,
    /// How many there were before those, so that thinned-out points stay the same ones.
    dropped: usize,
}

impl FigureSamples {
    /// Looks at the figures from now on, until the server stops.
    pub(crate) fn follow(handle: Handle) -> Self {
        let this = Self::default();
        let samples = this.clone();
        tokio::spawn(async move {
            while let (Ok(fleet), Ok(figures)) = (handle.fleet().await, handle.figures().await) {
                samples.add(&Look {
                    fleet: &fleet,
                    figures: &figures,
                    commit_sec: handle.commit_ns() as f64 / 1e9,
                });
                tokio::time::sleep(EVERY).await;
            }
        });
        this
    }

    fn add(&self, look: &Look<'_>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let point = Point {
            unix_ms: now.map_or(0, |now| now.as_millis() as u64),
            values: COLUMNS.map(|(_, value)| value(look).map(|value| value as f32)),
        };
        let mut points = self.lock();
        if points.kept.len() >= KEPT_MAX {
            points.kept.pop_front();
            points.dropped += 1;
        }
        points.kept.push_back(point);
    }

    /// At most so many points, evenly chosen, the newest always among them.
    pub(crate) fn list(&self, points_max: usize) -> FigureHistory {
        let points = self.lock();
        let step = points.kept.len().div_ceil(points_max.max(1)).max(1);
        let last = points.kept.len().saturating_sub(1);
        let chosen: Vec<&Point> = points
            .kept
            .iter()
            .enumerate()
            .filter(|(place, _)| (place + points.dropped).is_multiple_of(step) || *place == last)
            .map(|(_, point)| point)
            .collect();
        let series = COLUMNS.iter().enumerate().map(|(place, (name, _))| {
            let values = chosen
                .iter()
                .map(|point| point.values[place].map(f64::from));
            ((*name).to_owned(), values.collect())
        });
        FigureHistory {
            every_sec: EVERY.as_secs_f64() * step as f64,
            since_unix_ms: points.kept.front().map_or(0, |point| point.unix_ms),
            unix_ms: chosen.iter().map(|point| point.unix_ms).collect(),
            series: series.collect::<BTreeMap<_, _>>(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Points> {
        self.points.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_thinned_out_and_the_newest_stays() {
        let samples = FigureSamples::default();
        for queued in 0..10 {
            let mut fleet = FleetInfo::default();
            fleet.tasks.queued = queued;
            samples.add(&Look {
                fleet: &fleet,
                figures: &Figures::default(),
                commit_sec: 0.0,
            });
        }
        let history = samples.list(4);
        let queued = [0.0, 3.0, 6.0, 9.0].map(Some).to_vec();
        assert_eq!(history.series["queued"], queued);
        assert_eq!(history.every_sec, 15.0);
        // Nothing was stolen, so there is no share of successes.
        assert_eq!(history.series["steal_success_rate"], [None; 4]);
        assert_eq!(samples.list(100).unix_ms.len(), 10);
    }
}

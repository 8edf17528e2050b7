//! The `deque:` part of a scenario: what people write, and how it becomes a
//! [`DequeSetup`].

use std::path::PathBuf;
use std::sync::Arc;

use loxley_balance::{Delay, Patience, StealAmount, Topology, VictimOrder};
use serde::Deserialize;

use crate::arrivals::Arrivals;
use crate::deque_world::{DequeSetup, Idle, Load, OwnerEnd, Placement, Spawning, Stealing};
use crate::distribution::Distribution;
use crate::readers;
use crate::scenario::ScenarioError;
use crate::time::nanos;

/// The most workers a scenario may ask for.
const WORKERS_MAX: u32 = 10_000_000;

/// What stands under `deque:`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DequeSection {
    /// How many workers.
    workers: u32,
    /// Speeds of the workers, repeated in turn; all 1 when left out.
    #[serde(default)]
    speeds: Vec<f64>,
    /// How the workers are spread over machines.
    #[serde(default)]
    topology: TopologySection,
    load: LoadSection,
    #[serde(default)]
    spawning: Option<Spawning>,
    #[serde(default)]
    placement: Placement,
    #[serde(default)]
    owner_end: OwnerEnd,
    #[serde(default)]
    stealing: StealingSection,
    /// What every task costs on top of its work, in seconds.
    #[serde(default)]
    overhead: f64,
    /// Seconds after which nothing happens any more.
    #[serde(default)]
    until: Option<f64>,
    /// Waiting times of tasks that became ready before are not counted.
    #[serde(default)]
    warm_up: f64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologySection {
    #[serde(default = "one")]
    machines: u32,
    #[serde(default = "one")]
    sockets: u32,
    #[serde(default = "one")]
    groups: u32,
}

impl Default for TopologySection {
    fn default() -> Self {
        Self {
            machines: 1,
            sockets: 1,
            groups: 1,
        }
    }
}

fn one() -> u32 {
    1
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum LoadSection {
    /// Tasks with work drawn from a distribution.
    Tasks {
        count: u32,
        work: Distribution,
        #[serde(default)]
        arrivals: Arrivals,
    },
    /// A total, in seconds, cut in pieces.
    Pieces { total: f64, piece: f64 },
    /// A tree of tasks that make tasks.
    Tree {
        depth: u8,
        fan_out: u32,
        work: Distribution,
    },
    /// A workload file.
    File(PathBuf),
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct StealingSection {
    #[serde(default)]
    victim: Victim,
    #[serde(default)]
    amount: Amount,
    /// How many victims are tried in one round; all when left out.
    #[serde(default)]
    probes: Option<u32>,
    #[serde(default)]
    idle: IdleSection,
    /// What it costs to look at another worker, in seconds.
    #[serde(default)]
    probe_cost: f64,
    /// The same by distance: same core, group, socket, machine, elsewhere.
    #[serde(default)]
    distance_costs: Option<[f64; 5]>,
    #[serde(default)]
    wake_latency: f64,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Victim {
    None,
    #[default]
    Random,
    MostLoaded,
    Nearest,
    Hierarchical,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Amount {
    #[default]
    One,
    Half,
    Batch(u32),
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum IdleSection {
    /// Try again every so many seconds.
    Poll(f64),
    /// Search, pause longer and longer (1 µs to 1 ms), then sleep until woken.
    #[default]
    Backoff,
    /// The same with other pauses.
    BackoffWith {
        searches: u32,
        pauses: u32,
        first: f64,
        factor: f64,
        longest: f64,
        jitter: f64,
    },
    /// Try once, then wait for an own task.
    Once,
}

impl DequeSection {
    pub(crate) fn build(&self) -> Result<DequeSetup, ScenarioError> {
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            let problem = format!("there is at least one worker and at most {WORKERS_MAX}");
            return Err(ScenarioError::value("workers", problem));
        }
        let load = self.load.build()?;
        self.check(&load)?;
        Ok(DequeSetup {
            speeds: self.speeds()?,
            topology: self.topology()?,
            load,
            spawning: self.spawning,
            placement: self.placement.clone(),
            owner_end: self.owner_end,
            stealing: self.stealing.build()?,
            overhead: nanos(self.overhead),
            warm_up: nanos(self.warm_up),
            until: self.until.map(nanos),
        })
    }

    fn check(&self, load: &Load) -> Result<(), ScenarioError> {
        match &self.placement {
            Placement::On(worker) if *worker >= self.workers => {
                return Err(ScenarioError::value("placement", "there is no such worker"));
            }
            Placement::Counts(counts) if counts.len() > self.workers as usize => {
                return Err(ScenarioError::value(
                    "placement",
                    "more counts than workers",
                ));
            }
            _ => {}
        }
        let Some(spawning) = &self.spawning else {
            return Ok(());
        };
        if !matches!(load, Load::Stream { .. } | Load::Pieces { .. }) {
            let problem = "only tasks and pieces have children; a tree and a file bring their own";
            return Err(ScenarioError::value("spawning", problem));
        }
        if let Some(problem) = spawning.work.and_then(|work| work.problem()) {
            return Err(ScenarioError::value("spawning.work", problem));
        }
        let (least, most) = spawning.children;
        let good = (0.0..=1.0).contains(&spawning.chance)
            && (0.0..=1.0).contains(&spawning.at)
            && least <= most;
        if !good || spawning.mean_children() >= 1.0 {
            let problem = "chance and at are shares, children goes from less to more, and a task \
                           has less than one child on average, or the run would never end";
            return Err(ScenarioError::value("spawning", problem));
        }
        Ok(())
    }

    fn speeds(&self) -> Result<Vec<f64>, ScenarioError> {
        let speeds: &[f64] = if self.speeds.is_empty() {
            &[1.0]
        } else {
            &self.speeds
        };
        if !speeds.iter().all(|speed| *speed > 0.0 && speed.is_finite()) {
            return Err(ScenarioError::value(
                "speeds",
                "a speed is a positive number",
            ));
        }
        Ok(speeds
            .iter()
            .copied()
            .cycle()
            .take(self.workers as usize)
            .collect())
    }

    fn topology(&self) -> Result<Topology, ScenarioError> {
        let TopologySection {
            machines,
            sockets,
            groups,
        } = self.topology;
        let units = u64::from(machines) * u64::from(sockets) * u64::from(groups);
        if units == 0 || u64::from(self.workers) % units != 0 {
            let problem = format!(
                "{} workers cannot be spread evenly over {units} groups",
                self.workers
            );
            return Err(ScenarioError::value("topology", problem));
        }
        let cores = u64::from(self.workers) / units;
        Ok(Topology::cluster(
            machines as usize,
            sockets as usize,
            groups as usize,
            cores as usize,
        ))
    }
}

impl LoadSection {
    fn build(&self) -> Result<Load, ScenarioError> {
        match self {
            Self::Tasks {
                count,
                work,
                arrivals,
            } => {
                check_work("load.tasks.work", work)?;
                if let Some(problem) = arrivals.problem() {
                    return Err(ScenarioError::value("load.tasks.arrivals", problem));
                }
                if *count == 0 {
                    return Err(ScenarioError::value("load.tasks.count", "nothing to do"));
                }
                Ok(Load::Stream {
                    count: *count,
                    work: *work,
                    arrivals: *arrivals,
                })
            }
            Self::Pieces { total, piece } => {
                let good = *piece > 0.0 && *total > 0.0 && total / piece < 1e9;
                if !good {
                    let problem = "total and piece are positive, and fewer than 10^9 pieces";
                    return Err(ScenarioError::value("load.pieces", problem));
                }
                Ok(Load::Pieces {
                    total: nanos(*total),
                    piece: nanos(*piece).max(1),
                })
            }
            Self::Tree {
                depth,
                fan_out,
                work,
            } => {
                check_work("load.tree.work", work)?;
                if libm::pow(f64::from(*fan_out), f64::from(*depth)) > 1e8 {
                    return Err(ScenarioError::value("load.tree", "more than 10^8 tasks"));
                }
                Ok(Load::Tree {
                    depth: *depth,
                    fan_out: *fan_out,
                    work: *work,
                })
            }
            Self::File(path) => {
                let workload = readers::read(path)
                    .map_err(|error| ScenarioError::value("load.file", error.to_string()))?;
                Ok(Load::Graph(Arc::new(workload.split_processors())))
            }
        }
    }
}

fn check_work(key: &str, work: &Distribution) -> Result<(), ScenarioError> {
    work.problem()
        .map_or(Ok(()), |problem| Err(ScenarioError::value(key, problem)))
}

impl StealingSection {
    fn build(&self) -> Result<Option<Stealing>, ScenarioError> {
        let order = match self.victim {
            Victim::None => return Ok(None),
            Victim::Random => VictimOrder::Random,
            Victim::MostLoaded => VictimOrder::MostLoaded,
            Victim::Nearest => VictimOrder::Nearest,
            Victim::Hierarchical => VictimOrder::Hierarchical,
        };
        let amount = match self.amount {
            Amount::One => StealAmount::One,
            Amount::Half => StealAmount::Half,
            Amount::Batch(0) => {
                return Err(ScenarioError::value(
                    "stealing.amount",
                    "a batch is at least one",
                ));
            }
            Amount::Batch(cap) => StealAmount::batch(cap as usize),
        };
        Ok(Some(Stealing {
            order,
            amount,
            probes: self
                .probes
                .map_or(usize::MAX, |probes| probes.max(1) as usize),
            idle: self.idle.build()?,
            probe_costs: self
                .distance_costs
                .unwrap_or([self.probe_cost; 5])
                .map(nanos),
            wake_latency: nanos(self.wake_latency),
        }))
    }
}

impl IdleSection {
    fn build(self) -> Result<Idle, ScenarioError> {
        match self {
            Self::Poll(interval) if interval > 0.0 => Ok(Idle::Poll(nanos(interval).max(1))),
            Self::Poll(_) => Err(ScenarioError::value(
                "stealing.idle",
                "an interval is positive",
            )),
            Self::Backoff => Ok(Idle::Backoff(Patience::default())),
            Self::BackoffWith {
                searches,
                pauses,
                first,
                factor,
                longest,
                jitter,
            } => {
                let delay = Delay::new(nanos(first), factor, nanos(longest), jitter)
                    .map_err(|error| ScenarioError::value("stealing.idle", error.to_string()))?;
                Ok(Idle::Backoff(Patience {
                    searches,
                    pauses,
                    delay,
                }))
            }
            Self::Once => Ok(Idle::Once),
        }
    }
}

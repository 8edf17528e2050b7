//! What a deque world is made of: workers, where tasks come from, how idle workers behave.

use std::sync::Arc;

use loxley_balance::{Patience, StealAmount, Topology, VictimOrder};
use serde::Deserialize;

use crate::arrivals::Arrivals;
use crate::distribution::Distribution;
use crate::time::Nanos;
use crate::workload::Workload;

/// Everything that describes a run but its seed.
#[derive(Debug, Clone)]
pub struct DequeSetup {
    /// The speed of each worker; 1 runs a task in its nominal time.
    pub speeds: Vec<f64>,
    /// Who is near whom. As many places as there are speeds.
    pub topology: Topology,
    /// Where the tasks come from.
    pub load: Load,
    /// Children that tasks make while they run.
    pub spawning: Option<Spawning>,
    /// Which worker gets a task that comes from outside.
    pub placement: Placement,
    /// From which end of its deque the owner works.
    pub owner_end: OwnerEnd,
    /// How an idle worker gets work; nothing means that nobody steals.
    pub stealing: Option<Stealing>,
    /// What every task costs on top of its work.
    pub overhead: Nanos,
    /// Waiting times of tasks that became ready before this moment are not recorded.
    pub warm_up: Nanos,
    /// Nothing happens after this moment.
    pub until: Option<Nanos>,
}

/// Where tasks come from.
#[derive(Debug, Clone)]
pub enum Load {
    /// So many tasks, their work drawn from a distribution.
    Stream {
        /// How many.
        count: u32,
        /// Their work.
        work: Distribution,
        /// When they come.
        arrivals: Arrivals,
    },
    /// A given total cut in pieces; the last piece is what is left.
    Pieces {
        /// All work together.
        total: Nanos,
        /// The work of one piece.
        piece: Nanos,
    },
    /// A workload with its own releases and edges.
    Graph(Arc<Workload>),
    /// One task that makes `fan_out` children, each of which does the same, `depth` times.
    Tree {
        /// Generations below the first task.
        depth: u8,
        /// Children of each task.
        fan_out: u32,
        /// The work of each task.
        work: Distribution,
    },
}

/// Children that appear while a task runs.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spawning {
    /// How likely a task makes any.
    pub chance: f64,
    /// At least and at most so many.
    pub children: (u32, u32),
    /// At which share of the parent's run they appear.
    #[serde(default = "half")]
    pub at: f64,
    /// Their work; drawn as their parent's was when left out.
    #[serde(default)]
    pub work: Option<Distribution>,
}

fn half() -> f64 {
    0.5
}

impl Spawning {
    /// Mean number of children of a task; from 1 on the family may never die out.
    #[must_use]
    pub fn mean_children(&self) -> f64 {
        let (least, most) = self.children;
        self.chance * (f64::from(least) + f64::from(most)) / 2.0
    }
}

/// Which worker gets a task that comes from outside.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Placement {
    /// One after the other.
    #[default]
    RoundRobin,
    /// Equal contiguous shares (of a number of tasks known beforehand).
    Blocks,
    /// Any, with equal chances.
    Random,
    /// All on this one.
    On(u32),
    /// The first so many on worker 0, the next so many on worker 1, and so on; the rest in turn.
    Counts(Vec<u32>),
    /// In one queue that all workers share.
    Shared,
    /// On the least loaded of so many that are asked at random.
    LeastOf(u32),
}

/// From which end of its own deque a worker takes the next task. Thieves use the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerEnd {
    /// Depth first: what was pushed last, still warm in the cache.
    #[default]
    Newest,
    /// First in, first out.
    Oldest,
}

/// How an idle worker gets work from others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stealing {
    /// Whom it tries first.
    pub order: VictimOrder,
    /// How much it takes.
    pub amount: StealAmount,
    /// How many victims it tries in one round.
    pub probes: usize,
    /// What it does after a round without success.
    pub idle: Idle,
    /// What it costs to look at (or to take from) a worker at each
    /// [`Distance`](loxley_balance::Distance), nearest first.
    pub probe_costs: [Nanos; 5],
    /// How long a sleeping worker takes to wake.
    pub wake_latency: Nanos,
}

/// What a worker does after a round of fruitless probes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Idle {
    /// Tries again after a fixed time, for ever.
    Poll(Nanos),
    /// Searches, pauses longer and longer, then sleeps until new work wakes it.
    Backoff(Patience),
    /// Waits until something is put into its own deque: the model of the theory of stealing.
    Once,
}

impl Stealing {
    /// What a probe costs, if that does not depend on the distance.
    pub(super) fn even_cost(&self) -> Option<Nanos> {
        let first = self.probe_costs[0];
        self.probe_costs
            .iter()
            .all(|&cost| cost == first)
            .then_some(first)
    }
}

impl Default for Stealing {
    fn default() -> Self {
        Self {
            order: VictimOrder::Random,
            amount: StealAmount::One,
            probes: usize::MAX,
            idle: Idle::Backoff(Patience::default()),
            probe_costs: [0; 5],
            wake_latency: 0,
        }
    }
}

impl DequeSetup {
    /// `workers` equal workers that steal at random and cost-free from each other.
    #[must_use]
    pub fn new(workers: usize, load: Load) -> Self {
        Self {
            speeds: vec![1.0; workers],
            topology: Topology::flat(workers),
            load,
            spawning: None,
            placement: Placement::default(),
            owner_end: OwnerEnd::default(),
            stealing: Some(Stealing::default()),
            overhead: 0,
            warm_up: 0,
            until: None,
        }
    }

    /// The fastest worker's speed.
    #[must_use]
    pub fn top_speed(&self) -> f64 {
        self.speeds.iter().copied().fold(0.0, f64::max)
    }
}

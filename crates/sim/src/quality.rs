//! How good are schedules: the real scheduler, dispatched as the product dispatches, beside the references and
//! the bounds.

use std::sync::Arc;

use loxley_balance::Rng;
use loxley_model::Dispatch;
use loxley_policy::{Config, Matching};

use crate::costs::Costs;
use crate::deque_world;
use crate::fleet::{self, FleetLoad, FleetSetup};
use crate::reference::list::{self, Order};
use crate::reference::{b_level, heft};
use crate::time::Nanos;
use crate::workload::Workload;
use crate::{DequeSetup, Load};

/// One workload on one fleet.
#[derive(Debug, Clone)]
pub struct Question {
    /// What is to be done.
    pub workload: Arc<Workload>,
    /// The speed of each processor.
    pub speeds: Vec<f64>,
    /// What everybody is told of the costs.
    pub costs: Costs,
    /// How the real scheduler places tasks: as the product does, unless somebody wants to compare.
    pub matching: Matching,
    /// For wrong costs, and for those who leave something to chance.
    pub seed: u64,
}

/// The makespans that one question comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Makespans {
    /// No schedule is shorter: all work spread evenly, or the longest chain.
    pub lower_bound: Nanos,
    /// List scheduling by bottom level.
    pub b_level: Nanos,
    /// HEFT: planned with the costs that were told, carried out with the true ones.
    pub heft: Nanos,
    /// List scheduling, the longest task first.
    pub lpt: Nanos,
    /// List scheduling in the order in which tasks become ready.
    pub fifo: Nanos,
    /// Plain random stealing, which knows no costs.
    pub stealing: Nanos,
    /// The real scheduler, told the costs, dispatched as the product dispatches.
    pub ours: Nanos,
    /// The same with agents that ask for each task, as those of the embedded scheduler do.
    pub ours_on_request: Nanos,
    /// The real scheduler, told nothing.
    pub ours_blind: Nanos,
}

impl Question {
    /// A workload on so many equal processors, with true costs.
    #[must_use]
    pub fn new(workload: &Arc<Workload>, processors: usize, seed: u64) -> Self {
        Self {
            workload: Arc::clone(workload),
            speeds: vec![1.0; processors],
            costs: Costs::Exact,
            matching: Config::served().capabilities.matching_strategy,
            seed,
        }
    }

    /// The same with every second processor this much slower.
    #[must_use]
    pub fn with_slow_half(mut self, factor: f64) -> Self {
        for speed in self.speeds.iter_mut().skip(1).step_by(2) {
            *speed = 1.0 / factor;
        }
        self
    }

    /// The same with costs that are wrong.
    #[must_use]
    pub fn with_costs(mut self, costs: Costs) -> Self {
        self.costs = costs;
        self
    }

    /// No schedule is shorter.
    #[must_use]
    pub fn lower_bound(&self) -> Nanos {
        let all: f64 = self.speeds.iter().sum();
        let top = self.speeds.iter().copied().fold(1.0, f64::max);
        let spread = self.workload.total_work() as f64 / all;
        let chain = self.workload.critical_path() as f64 / top;
        spread.max(chain) as Nanos
    }

    /// Runs everybody.
    #[must_use]
    pub fn makespans(&self) -> Makespans {
        let (workload, speeds) = (&*self.workload, &*self.speeds);
        let mut errors = Rng::new(self.seed).child(Costs::LABEL);
        let told = workload.tasks().iter();
        let told: Vec<Nanos> = told
            .map(|task| self.costs.told(task.work, &mut errors).unwrap_or(1))
            .collect();
        let listed = |order| list::schedule(workload, speeds, order).makespan();
        let planned = heft::schedule(workload, speeds, &told);
        Makespans {
            lower_bound: self.lower_bound(),
            b_level: b_level::schedule(workload, speeds, &told).makespan(),
            heft: planned.executed(workload, speeds).makespan(),
            lpt: listed(Order::Largest(&told)),
            fifo: listed(Order::FirstReady),
            stealing: self.stealing(),
            ours: self.ours(self.costs, Dispatch::KeepFull),
            ours_on_request: self.ours(self.costs, Dispatch::OnRequest),
            ours_blind: self.ours(Costs::None, Dispatch::KeepFull),
        }
    }

    fn ours(&self, costs: Costs, dispatch: Dispatch) -> Nanos {
        let mut setup = self.fleet(costs);
        for agent in &mut setup.agents {
            agent.spec.dispatch = dispatch;
        }
        fleet::run(&setup, self.seed, &mut ()).statistics.makespan
    }

    /// The fleet that the real scheduler is given.
    #[must_use]
    pub fn fleet(&self, costs: Costs) -> FleetSetup {
        let load = FleetLoad::Graph(Arc::clone(&self.workload));
        let mut setup = FleetSetup::new(self.speeds.len(), load);
        setup.costs = costs;
        setup.config.capabilities.matching_strategy = self.matching;
        // One copy of each task: what is compared is the order.
        setup.config.speculation.enabled = false;
        for (agent, &speed) in setup.agents.iter_mut().zip(&self.speeds) {
            agent.spec.speed = speed;
            agent.true_speed = speed;
        }
        setup
    }

    fn stealing(&self) -> Nanos {
        let load = Load::Graph(Arc::clone(&self.workload));
        let mut setup = DequeSetup::new(self.speeds.len(), load);
        setup.speeds.clone_from(&self.speeds);
        deque_world::run(&setup, self.seed, &mut ()).makespan
    }
}

/// The geometric mean of ratios.
#[must_use]
pub fn geometric_mean(ratios: &[f64]) -> f64 {
    let logarithms: f64 = ratios.iter().map(|ratio| libm::log(*ratio)).sum();
    libm::exp(logarithms / ratios.len().max(1) as f64)
}

//! How good are schedules of task graphs: our scheduler beside the references and the bounds.

use std::sync::Arc;

use crate::deque_world;
use crate::fleet::{self, FleetLoad, FleetSetup};
use crate::reference::{b_level, heft};
use crate::time::Nanos;
use crate::workload::Workload;
use crate::{DequeSetup, Load};

/// The makespans of one graph on so many processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Makespans {
    /// No schedule is shorter: all work spread evenly, or the longest chain.
    pub lower_bound: Nanos,
    /// List scheduling by bottom level.
    pub b_level: Nanos,
    /// HEFT.
    pub heft: Nanos,
    /// The real scheduler, told the costs.
    pub ours: Nanos,
    /// The real scheduler, told nothing.
    pub ours_blind: Nanos,
    /// Plain random stealing, which knows no costs either.
    pub stealing: Nanos,
}

/// Runs every scheduler on `workload`.
#[must_use]
pub fn makespans(workload: &Arc<Workload>, processors: u32, seed: u64) -> Makespans {
    let spread = workload.total_work().div_ceil(u64::from(processors));
    let setup = DequeSetup::new(processors as usize, Load::Graph(Arc::clone(workload)));
    let scheduled = |declared| {
        let load = FleetLoad::Graph(Arc::clone(workload), declared);
        let mut setup = FleetSetup::new(processors as usize, load);
        // One copy of each task: what is compared is the order.
        setup.config.speculation.enabled = false;
        fleet::run(&setup, seed, &mut ()).statistics.makespan
    };
    Makespans {
        lower_bound: spread.max(workload.critical_path()),
        b_level: b_level::schedule(workload, processors).makespan(),
        heft: heft::schedule(workload, &vec![1.0; processors as usize]).makespan(),
        ours: scheduled(true),
        ours_blind: scheduled(false),
        stealing: deque_world::run(&setup, seed, &mut ()).makespan,
    }
}

/// The geometric mean of ratios.
#[must_use]
pub fn geometric_mean(ratios: &[f64]) -> f64 {
    let logarithms: f64 = ratios.iter().map(|ratio| libm::log(*ratio)).sum();
    libm::exp(logarithms / ratios.len().max(1) as f64)
}

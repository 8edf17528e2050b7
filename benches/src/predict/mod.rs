//! Real runs of the pool, and of job files, predicted by the simulator [X4, X9].
//!
//! ```text
//!   this machine ──> calibration ──┐
//!                                  ├──> deque world ──> predicted makespan ─┐
//!   workloads ─────────────────────┤                                        ├──> error, ranking
//!                                  └──> real pool ────> measured makespan ──┘
//! ```
//!
//! Two settings. *Computing* units keep a processor busy, with as many workers as there are
//! processors. *Waiting* units sleep, as units do that wait for a disk or a server: eight workers run
//! at once on any machine, so that it matters whom a thief robs and how much it takes.
//!
//! What is predicted is the time until everything is done. Nothing is fitted to the workloads: the
//! calibration measures single costs of the pool with programs of its own.

mod calibration;
mod jobs;
mod real;
mod workloads;

use std::path::PathBuf;

use anyhow::Result;
use loxley_balance::{StealAmount, Topology, VictimOrder};
use loxley_sim::deque_world::{Placement, Stealing};
use loxley_sim::estimate::Estimate;
use loxley_sim::{DequeSetup, Load, deque_world};
use serde::Serialize;

use self::calibration::Calibration;
use self::workloads::{Start, Units};
use crate::Options;
use crate::measure::quantile;

/// A policy of thieves, with the name it has in `loxley sim`.
#[derive(Clone, Copy)]
struct Policy {
    name: &'static str,
    order: VictimOrder,
    amount: StealAmount,
}

const POLICIES: [Policy; 6] = [
    Policy::new("random+one", VictimOrder::Random, StealAmount::One),
    Policy::new("random+half", VictimOrder::Random, StealAmount::Half),
    Policy::new("random+batch4", VictimOrder::Random, StealAmount::batch(4)),
    Policy::new("most_loaded+one", VictimOrder::MostLoaded, StealAmount::One),
    Policy::new("nearest+half", VictimOrder::Nearest, StealAmount::Half),
    Policy::new(
        "hierarchical+one",
        VictimOrder::Hierarchical,
        StealAmount::One,
    ),
];

impl Policy {
    const fn new(name: &'static str, order: VictimOrder, amount: StealAmount) -> Self {
        Self {
            name,
            order,
            amount,
        }
    }
}

/// What a unit does while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Keeps a processor busy.
    Computing,
    /// Sleeps.
    Waiting,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Computing => "computing",
            Self::Waiting => "waiting",
        }
    }

    fn topology(self) -> Topology {
        match self {
            Self::Computing => Topology::flat(processors()),
            Self::Waiting => Topology::regular(2, 2, 2),
        }
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// One workload under one policy.
#[derive(Serialize)]
struct Prediction {
    setting: Kind,
    workload: &'static str,
    policy: &'static str,
    measured_ms: f64,
    predicted_ms: f64,
    /// Predicted over measured, less one.
    error: f64,
    #[serde(skip)]
    runs: Vec<f64>,
}

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The `loxley` to measure [default: the one beside this program].
    #[arg(long, value_name = "PATH")]
    loxley: Option<PathBuf>,
}

pub(crate) fn run(options: &Options, arguments: &Arguments) -> Result<()> {
    predict_pool(options)?;
    if options.wants(jobs::SETTING) {
        let loxley = match &arguments.loxley {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("loxley"),
        };
        jobs::run(options, &loxley)?;
    }
    Ok(())
}

fn predict_pool(options: &Options) -> Result<()> {
    let rounds = options
        .rounds
        .unwrap_or(if options.quick { 3 } else { 9 })
        .max(2);
    let mut all = Vec::new();
    for kind in [Kind::Computing, Kind::Waiting] {
        if !options.wants(kind.name()) {
            continue;
        }
        let calibration = calibration::measure(kind)?;
        tell(options, &calibration);
        for workload in workloads::all(kind) {
            let predictions = predict_all(kind, &calibration, &workload, rounds)?;
            for prediction in &predictions {
                prediction.print(options);
            }
            all.push(predictions);
        }
    }
    if !all.is_empty() {
        Summary::new(&all).print(options);
    }
    Ok(())
}

fn tell(options: &Options, calibration: &Calibration) {
    if options.json {
        let text = serde_json::to_string(calibration).expect("numbers are always JSON");
        println!("{text}");
    } else {
        println!("{calibration}");
    }
}

/// Runs every policy in turns, so that a disturbance falls on all alike, and predicts each.
fn predict_all(
    kind: Kind,
    calibration: &Calibration,
    workload: &Units,
    rounds: usize,
) -> Result<Vec<Prediction>> {
    let pools = POLICIES
        .iter()
        .map(|policy| real::pool(kind, policy))
        .collect::<Result<Vec<_>>>()?;
    let mut runs = vec![Vec::new(); POLICIES.len()];
    for round in 0..=rounds {
        for turn in 0..POLICIES.len() {
            let index = (round + turn) % POLICIES.len();
            let seconds = real::run(kind, calibration, workload, &pools[index]);
            // The first round warms up.
            if round > 0 {
                runs[index].push(seconds * 1e3);
            }
        }
    }
    Ok(POLICIES
        .iter()
        .zip(runs)
        .map(|(policy, runs)| {
            let measured_ms = quantile(&runs, 0.5);
            let predicted_ms = predict(kind, calibration, workload, policy);
            Prediction {
                setting: kind,
                workload: workload.name,
                policy: policy.name,
                measured_ms,
                predicted_ms,
                error: predicted_ms / measured_ms - 1.0,
                runs,
            }
        })
        .collect())
}

/// The median of simulated runs, in milliseconds.
fn predict(kind: Kind, calibration: &Calibration, workload: &Units, policy: &Policy) -> f64 {
    const SEEDS: u64 = 21;
    let topology = kind.topology();
    let mut setup = DequeSetup::new(
        topology.len(),
        Load::Graph(std::sync::Arc::clone(&workload.graph)),
    );
    setup.speeds = vec![calibration.speed; topology.len()];
    setup.topology = topology;
    setup.overhead = calibration.unit_ns;
    setup.placement = match workload.start {
        Start::Outside => Placement::Shared,
        Start::OnOne => Placement::On(0),
    };
    setup.stealing = Some(Stealing {
        order: policy.order,
        amount: policy.amount,
        probe_costs: [calibration.steal_ns; 5],
        wake_latency: calibration.wake_ns,
        ..Stealing::default()
    });
    let makespans: Vec<f64> = (1..=SEEDS)
        .map(|seed| deque_world::run(&setup, seed, &mut ()).makespan as f64)
        .collect();
    // The pool sleeps when a run begins.
    (quantile(&makespans, 0.5) + calibration.wake_ns as f64) / 1e6
}

impl Prediction {
    fn print(&self, options: &Options) {
        if options.json {
            let text = serde_json::to_string(self).expect("numbers and names are always JSON");
            return println!("{text}");
        }
        println!(
            "{:<10} {:<12} {:<18} measured {:8.2} ms   predicted {:8.2} ms   {:+6.1} %",
            self.setting.name(),
            self.workload,
            self.policy,
            self.measured_ms,
            self.predicted_ms,
            100.0 * self.error
        );
    }
}

/// How good the predictions are together.
#[derive(Serialize)]
struct Summary {
    predictions: usize,
    median_error: f64,
    worst_error: f64,
    /// Pairs of policies whose real runs of one workload differ by more than noise and by more than
    /// [`NOTABLE`], and of how many of them the prediction has the same order.
    pairs_that_differ: usize,
    pairs_in_order: usize,
    pairs: usize,
}

/// A difference that is worth ranking.
const NOTABLE: f64 = 0.01;

impl Summary {
    fn new(workloads: &[Vec<Prediction>]) -> Self {
        let errors: Vec<f64> = workloads.iter().flatten().map(|p| p.error.abs()).collect();
        let mut summary = Self {
            predictions: errors.len(),
            median_error: quantile(&errors, 0.5),
            worst_error: quantile(&errors, 1.0),
            pairs_that_differ: 0,
            pairs_in_order: 0,
            pairs: 0,
        };
        for predictions in workloads {
            for (index, one) in predictions.iter().enumerate() {
                for other in &predictions[index + 1..] {
                    summary.compare(one, other);
                }
            }
        }
        summary
    }

    fn compare(&mut self, one: &Prediction, other: &Prediction) {
        self.pairs += 1;
        let difference = Estimate::of_differences(&one.runs, &other.runs);
        let notable = difference.mean.abs() > NOTABLE * one.measured_ms;
        if notable && difference.excludes_zero() {
            self.pairs_that_differ += 1;
            let predicted = other.predicted_ms - one.predicted_ms;
            self.pairs_in_order += usize::from(predicted * difference.mean > 0.0);
        }
    }

    fn print(&self, options: &Options) {
        if options.json {
            let text = serde_json::to_string(self).expect("numbers are always JSON");
            return println!("{text}");
        }
        println!(
            "{} predictions: error median {:.1} %, worst {:.1} %",
            self.predictions,
            100.0 * self.median_error,
            100.0 * self.worst_error
        );
        println!(
            "{} of {} pairs of policies differ by more than noise and {:.0} %; {} of these are predicted \
             in the right order",
            self.pairs_that_differ,
            self.pairs,
            100.0 * NOTABLE,
            self.pairs_in_order
        );
    }
}

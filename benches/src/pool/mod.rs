//! `loxley-bench pool`: the work-stealing pool beside its peers, on the workloads of the design.
//!
//! Peers are compiled only with the feature `peers`; without it, the floors remain.

mod contract;
mod lineup;
#[cfg(feature = "peers")]
mod peers;
mod workloads;

use std::num::NonZero;

use anyhow::Result;
use clap::Args;

use crate::Options;
use crate::measure::{Contender, Role, interleaved};
use crate::report::{Goal, Report};
use workloads::{HeavyTail, Tree};

/// How the pools are built.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Workers of every pool [default: as many as the machine has].
    #[arg(long, value_name = "N")]
    workers: Option<NonZero<usize>>,
}

pub(crate) fn run(options: &Options, arguments: &Arguments, report: &mut Report) -> Result<()> {
    let workers = arguments
        .workers
        .map_or_else(std::thread::available_parallelism, Ok)?
        .get();
    let bench = Bench { options, workers };
    bench.trees(report);
    bench.heavy_tail(report);
    Ok(())
}

/// What every case needs to know.
struct Bench<'a> {
    options: &'a Options,
    workers: usize,
}

impl Bench<'_> {
    fn trees(&self, report: &mut Report) {
        for (case, levels, repeats, goal) in
            [("tree-2^20", 20, 1, 0.95), ("tree-2^10", 10, 1000, 0.9)]
        {
            if self.options.wants(case) {
                let tree = Tree::full(levels, repeats);
                let contenders = lineup::fork_join(&tree, self.workers);
                self.measure(
                    report,
                    case,
                    "ns/node",
                    Goal::Times(goal, "chili"),
                    contenders,
                );
            }
        }
    }

    fn heavy_tail(&self, report: &mut Report) {
        let case = "heavy-tail-loop";
        if self.options.wants(case) {
            let steps = self.options.size(50_000_000, 5_000_000);
            let items = HeavyTail::ascending(10_000, steps);
            let mut contenders = lineup::fork_join(&items, self.workers);
            contenders.push(Contender::new("ideal", Role::Floor, || {
                items.ideal(self.workers)
            }));
            self.measure(report, case, "ms", Goal::Times(1.04, "ideal"), contenders);
        }
    }

    fn measure(
        &self,
        report: &mut Report,
        case: &str,
        unit: &str,
        goal: Goal,
        mut contenders: Vec<Contender<'_>>,
    ) {
        let samples = interleaved(self.options.rounds(), &mut contenders);
        report.case(case, unit, Some(goal), &samples);
    }
}

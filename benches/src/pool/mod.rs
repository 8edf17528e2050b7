//! `loxley-bench pool`: the work-stealing pool beside its peers, on the workloads of the design.
//!
//! Peers are compiled only with the feature `peers`; without it, the floors remain.

mod contract;
mod lineup;
mod loxley;
mod memory;
#[cfg(feature = "peers")]
mod peers;
mod sorts;
mod workloads;

use std::num::NonZero;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::Options;
use crate::measure::{Contender, Role, Samples, interleaved};
use crate::report::{Goal, Report};
use contract::{ForkJoinWorkload, SpawnWorkload};
use sorts::{Input, Kind};
use workloads::{
    DutyCycle, Fibonacci, FromInside, FromOutside, HeavyTail, Idle, IdleSubmit, Quicksort,
    Subtrees, Tree, Urgent, tfidf,
};

/// How the pools are built.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Workers of every pool [default: as many as the machine has].
    #[arg(long, value_name = "N")]
    workers: Option<NonZero<usize>>,
    /// Print the memory per worker of one pool; how the memory case measures.
    #[arg(long, value_name = "POOL", hide = true)]
    probe_memory: Option<String>,
}

pub(crate) fn run(options: &Options, arguments: &Arguments, report: &mut Report) -> Result<()> {
    if let Some(name) = &arguments.probe_memory {
        return memory::probe(name);
    }
    let workers = arguments
        .workers
        .map_or_else(std::thread::available_parallelism, Ok)?
        .get();
    let bench = Bench { options, workers };
    for case in CASES.iter().filter(|case| options.wants(case.name)) {
        let samples = (case.run)(&bench);
        report.case(case.name, case.unit, case.goal, &samples);
    }
    Ok(())
}

/// One row of the table in the design.
struct Case {
    name: &'static str,
    unit: &'static str,
    goal: Option<Goal>,
    run: fn(&Bench<'_>) -> Vec<Samples>,
}

/// What every case needs to know.
struct Bench<'a> {
    options: &'a Options,
    workers: usize,
}

/// Where the design names a figure and that of a peer, the goal is their ratio: it holds on every
/// machine.
const CASES: &[Case] = &[
    Case {
        name: "tree-2^20",
        unit: "ns/node",
        goal: Some(Goal::Times(0.95, "chili")),
        run: |bench| bench.fork_join(&Tree::full(20, 1)),
    },
    Case {
        name: "tree-2^10",
        unit: "ns/node",
        goal: Some(Goal::Times(0.9, "chili")),
        run: |bench| bench.fork_join(&Tree::full(10, 1_000)),
    },
    Case {
        name: "fib-32",
        unit: "ms",
        goal: Some(Goal::Times(0.95, "chili")),
        run: |bench| bench.fork_join(&Fibonacci),
    },
    Case {
        name: "one-worker-subtrees",
        unit: "ns/node",
        goal: Some(Goal::Times(1.1, "sequential")),
        run: |bench| bench.turns(lineup::fork_join(&Subtrees::full(20, 10), 1)),
    },
    Case {
        name: "one-worker-tree",
        unit: "ns/node",
        goal: None,
        run: |bench| bench.turns(lineup::fork_join(&Tree::full(20, 1), 1)),
    },
    Case {
        name: "heavy-tail-loop",
        unit: "ms",
        goal: Some(Goal::Times(1.04, "ideal")),
        run: heavy_tail,
    },
    Case {
        name: "quicksort-skewed",
        unit: "ms",
        goal: Some(Goal::Times(0.97, "forte")),
        run: |bench| {
            let workload = Quicksort::random(bench.size(10_000_000, 1_000_000));
            let bound = || workload.bound(bench.workers);
            let mut contenders = lineup::fork_join(&workload, bench.workers);
            contenders.push(Contender::new("bound", Role::Floor, bound));
            bench.turns(contenders)
        },
    },
    Case {
        name: "sort-random",
        unit: "ns/item",
        goal: Some(Goal::Times(1.0, "rayon")),
        run: |bench| bench.sort(Input::Random, Kind::Stable),
    },
    Case {
        name: "sort-sorted",
        unit: "ns/item",
        goal: Some(Goal::Times(1.0, "rayon")),
        run: |bench| bench.sort(Input::Sorted, Kind::Stable),
    },
    Case {
        name: "sort-few-distinct",
        unit: "ns/item",
        goal: Some(Goal::Times(1.0, "rayon")),
        run: |bench| bench.sort(Input::FewDistinct, Kind::Stable),
    },
    Case {
        name: "sort-heavy",
        unit: "ns/item",
        goal: Some(Goal::Times(1.0, "rayon")),
        run: |bench| bench.sort(Input::Heavy, Kind::Stable),
    },
    Case {
        name: "sort-unstable-random",
        unit: "ns/item",
        goal: Some(Goal::Times(1.0, "rayon")),
        run: |bench| bench.sort(Input::Random, Kind::Unstable),
    },
    Case {
        name: "sort-unstable-sorted",
        unit: "ns/item",
        goal: Some(Goal::Times(1.0, "rayon")),
        run: |bench| bench.sort(Input::Sorted, Kind::Unstable),
    },
    Case {
        name: "sort-unstable-few-distinct",
        unit: "ns/item",
        goal: Some(Goal::Times(1.0, "rayon")),
        run: |bench| bench.sort(Input::FewDistinct, Kind::Unstable),
    },
    Case {
        name: "sort-unstable-heavy",
        unit: "ns/item",
        goal: Some(Goal::Times(1.0, "rayon")),
        run: |bench| bench.sort(Input::Heavy, Kind::Unstable),
    },
    Case {
        name: "tfidf-build",
        unit: "ms",
        goal: None,
        run: |bench| bench.fork_join(&tfidf::Build::new(bench.size(20_000, 2_000))),
    },
    Case {
        name: "tfidf-search",
        unit: "ms",
        goal: None,
        run: |bench| bench.fork_join(&tfidf::Search::new(bench.size(20_000, 2_000))),
    },
    Case {
        name: "spawn-outside",
        unit: "ns/unit",
        goal: Some(Goal::Times(0.855, "crossbeam")),
        run: |bench| {
            let workload = FromOutside::new(bench.size(1_000_000, 100_000));
            let floor = Contender::new("boxed call", Role::Floor, || workload.floor());
            bench.spawners(&workload, Some(floor))
        },
    },
    Case {
        name: "spawn-inside",
        unit: "ns/unit",
        goal: Some(Goal::Times(0.75, "crossbeam")),
        run: |bench| bench.spawners(&FromInside::new(bench.size(1_000_000, 100_000)), None),
    },
    Case {
        name: "submit-idle-p50",
        unit: "us",
        goal: Some(Goal::Times(1.3, "park")),
        run: |bench| submit_idle(bench, 0.5),
    },
    Case {
        name: "submit-idle-p99",
        unit: "us",
        goal: Some(Goal::Times(1.05, "park")),
        run: |bench| submit_idle(bench, 0.99),
    },
    Case {
        name: "urgent-behind-2000",
        unit: "ms",
        goal: Some(Goal::AtMost(0.2)),
        run: |bench| bench.spawners(&Urgent, None),
    },
    Case {
        name: "idle-cpu",
        unit: "ms/3s",
        goal: Some(Goal::AtMost(1.0)),
        run: |bench| {
            let window = Duration::from_millis(bench.size(1000, 200) as u64);
            bench.fork_join(&Idle { window })
        },
    },
    Case {
        name: "duty-cycle",
        unit: "cpu/useful",
        goal: Some(Goal::Times(0.806, "tokio")),
        run: |bench| {
            let count = bench.size(300, 50);
            let workload = DutyCycle { count };
            let floor = Contender::new("park", Role::Floor, || workload.floor());
            bench.spawners(&workload, Some(floor))
        },
    },
    Case {
        name: "build-and-drop",
        unit: "us",
        goal: None,
        run: |bench| bench.turns(lineup::builders(bench.workers)),
    },
    Case {
        name: "memory-per-worker",
        unit: "KiB",
        goal: None,
        run: |bench| bench.turns(memory::probes()),
    },
];

impl Bench<'_> {
    /// A size that depends on `--quick`.
    fn size(&self, full: usize, quick: usize) -> usize {
        if self.options.quick { quick } else { full }
    }

    fn turns(&self, mut contenders: Vec<Contender<'_>>) -> Vec<Samples> {
        contenders.retain(|contender| self.options.admits(contender.name()));
        interleaved(self.options.effort(), &mut contenders)
    }

    fn fork_join(&self, workload: &impl ForkJoinWorkload) -> Vec<Samples> {
        self.turns(lineup::fork_join(workload, self.workers))
    }

    fn sort(&self, input: Input, kind: Kind) -> Vec<Samples> {
        let len = self.size(4_000_000, 100_000);
        self.turns(sorts::contenders(input, kind, len, self.workers))
    }

    fn spawners<'a>(
        &self,
        workload: &'a impl SpawnWorkload,
        floor: Option<Contender<'a>>,
    ) -> Vec<Samples> {
        let mut contenders = lineup::spawners(workload, self.workers);
        contenders.extend(floor);
        self.turns(contenders)
    }
}

fn heavy_tail(bench: &Bench<'_>) -> Vec<Samples> {
    let items = HeavyTail::ascending(10_000, bench.size(80_000_000, 8_000_000));
    let mut contenders = lineup::fork_join(&items, bench.workers);
    let ideal = || items.ideal(bench.workers);
    contenders.push(Contender::new("ideal", Role::Floor, ideal));
    // These have no loops: a closure per item.
    let mut spawners = lineup::spawners(&items, bench.workers);
    spawners.retain(|contender| matches!(contender.name(), "tokio" | "crossbeam"));
    contenders.append(&mut spawners);
    bench.turns(contenders)
}

fn submit_idle(bench: &Bench<'_>, share: f64) -> Vec<Samples> {
    let workload = IdleSubmit {
        count: bench.size(200, 100),
        share,
    };
    let floor = Contender::new("park", Role::Floor, || workload.floor());
    bench.spawners(&workload, Some(floor))
}

//! `loxley-bench pool`: the work-stealing pool beside its peers, on the workloads of the design.
//!
//! Peers are compiled only with the feature `peers`; without it, the floors remain.

mod contract;
mod handles;
mod lineup;
mod loops;
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
    BoxTree, DutyCycle, Empty, Fibonacci, Foreign, From, Guests, HeavyTail, Idle, IdleSubmit,
    Matrices, MergeSort, Order, Queens, Quicksort, ScopeTree, Skynet, Subtrees, Tree, Unbalanced,
    Urgent, spin, tfidf,
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

/// One row of the report.
struct Case {
    name: &'static str,
    unit: &'static str,
    goal: Option<Goal>,
    run: fn(&Bench<'_>) -> Vec<Samples>,
}

const fn case(
    name: &'static str,
    unit: &'static str,
    goal: Option<Goal>,
    run: fn(&Bench<'_>) -> Vec<Samples>,
) -> Case {
    Case {
        name,
        unit,
        goal,
        run,
    }
}

/// At most so many times the figure of the named contender.
const fn times(factor: f64, of: &'static str) -> Option<Goal> {
    Some(Goal::Times(factor, of))
}

/// What every case needs to know.
struct Bench<'a> {
    options: &'a Options,
    workers: usize,
}

/// Where the design names a figure and that of a peer, the goal is their ratio: it holds on every
/// machine.
const CASES: &[Case] = &[
    // Forks.
    case("tree-2^20", "ns/node", times(0.95, "chili"), |bench| {
        bench.fork_join(&Tree::full(20, 1, Order::Left))
    }),
    case(
        "tree-2^20-right",
        "ns/node",
        times(0.95, "chili"),
        |bench| bench.fork_join(&Tree::full(20, 1, Order::Right)),
    ),
    case("tree-2^10", "ns/node", times(0.9, "chili"), |bench| {
        bench.fork_join(&Tree::full(10, 1_000, Order::Left))
    }),
    case("tree-2^10-right", "ns/node", times(0.9, "chili"), |bench| {
        bench.fork_join(&Tree::full(10, 1_000, Order::Right))
    }),
    case("boxes-2^20", "ns/node", times(0.75, "chili"), |bench| {
        bench.fork_join(&BoxTree::full(20, 1, Order::Left))
    }),
    case(
        "boxes-2^20-right",
        "ns/node",
        times(0.75, "chili"),
        |bench| bench.fork_join(&BoxTree::full(20, 1, Order::Right)),
    ),
    case("boxes-2^10", "ns/node", times(0.9, "chili"), |bench| {
        bench.fork_join(&BoxTree::full(10, 1_000, Order::Left))
    }),
    case("fib-32", "ms", times(0.95, "chili"), |bench| {
        bench.fork_join(&Fibonacci)
    }),
    case(
        "one-worker-subtrees",
        "ns/node",
        times(1.1, "sequential"),
        |bench| bench.turns(lineup::fork_join(&Subtrees::full(20, 10), 1)),
    ),
    case("one-worker-tree", "ns/node", None, |bench| {
        bench.turns(lineup::fork_join(&Tree::full(20, 1, Order::Left), 1))
    }),
    case("quicksort-skewed", "ms", times(0.97, "forte"), |bench| {
        let workload = Quicksort::random(bench.size(10_000_000, 1_000_000));
        let bound = || workload.bound(bench.workers);
        let mut contenders = lineup::fork_join(&workload, bench.workers);
        contenders.push(Contender::new("bound", Role::Floor, bound));
        bench.turns(contenders)
    }),
    case("queens-11", "ms", times(1.0, "chili"), |bench| {
        bench.fork_join(&Queens(11))
    }),
    case("skynet", "ms", times(1.0, "chili"), |bench| {
        bench.fork_join(&Skynet(6))
    }),
    case("unbalanced-tree", "ns/node", times(1.0, "chili"), |bench| {
        bench.fork_join(&Unbalanced { depth: 24 })
    }),
    case("matrix-product", "ms", times(1.0, "rayon"), |bench| {
        bench.fork_join(&Matrices::new(bench.size(512, 256)))
    }),
    case("merge-sort", "ms", times(1.0, "rayon"), |bench| {
        bench.fork_join(&MergeSort::new(bench.size(2_000_000, 200_000)))
    }),
    case("tfidf-build", "ms", None, |bench| {
        bench.fork_join(&tfidf::Build::new(bench.size(20_000, 2_000)))
    }),
    case("tfidf-search", "ms", None, |bench| {
        bench.fork_join(&tfidf::Search::new(bench.size(20_000, 2_000)))
    }),
    case("four-threads-fib", "ms", times(1.0, "chili"), |bench| {
        let repeats = bench.size(20, 5);
        bench.fork_join(&Guests {
            threads: 4,
            repeats,
        })
    }),
    case("fib-8-workers", "ms", times(1.0, "chili"), |bench| {
        bench.turns(lineup::fork_join(&Fibonacci, 8))
    }),
    // Loops.
    case("heavy-tail-loop", "ms", times(1.04, "ideal"), |bench| {
        heavy_tail(bench, bench.workers)
    }),
    case("heavy-tail-8-workers", "ms", times(1.0, "rayon"), |bench| {
        heavy_tail(bench, 8)
    }),
    case("map-collect", "ns/item", times(1.0, "rayon"), |bench| {
        let count = bench.size(1_000_000, 100_000);
        bench.turns(loops::map_collect(count, bench.workers))
    }),
    case("filter-sum", "ns/item", times(1.0, "rayon"), |bench| {
        let count = bench.size(1_000_000, 100_000);
        bench.turns(loops::filter_sum(count, bench.workers))
    }),
    case(
        "filter-sum-8-workers",
        "ns/item",
        times(1.0, "rayon"),
        |bench| bench.turns(loops::filter_sum(bench.size(1_000_000, 100_000), 8)),
    ),
    case(
        "tiny-loop-inside",
        "ns/loop",
        times(1.0, "rayon"),
        |bench| {
            bench.turns(loops::tiny(
                bench.size(100_000, 10_000),
                bench.workers,
                true,
            ))
        },
    ),
    case(
        "tiny-loop-outside",
        "ns/loop",
        times(1.0, "rayon"),
        |bench| bench.turns(loops::tiny(bench.size(10_000, 1_000), bench.workers, false)),
    ),
    // Sorts.
    case("sort-random", "ns/item", times(1.0, "rayon"), |bench| {
        bench.sort(Input::Random, Kind::Stable)
    }),
    case("sort-sorted", "ns/item", times(1.0, "rayon"), |bench| {
        bench.sort(Input::Sorted, Kind::Stable)
    }),
    case(
        "sort-few-distinct",
        "ns/item",
        times(1.0, "rayon"),
        |bench| bench.sort(Input::FewDistinct, Kind::Stable),
    ),
    case("sort-heavy", "ns/item", times(1.0, "rayon"), |bench| {
        bench.sort(Input::Heavy, Kind::Stable)
    }),
    case(
        "sort-unstable-random",
        "ns/item",
        times(1.0, "rayon"),
        |bench| bench.sort(Input::Random, Kind::Unstable),
    ),
    case(
        "sort-unstable-sorted",
        "ns/item",
        times(1.0, "rayon"),
        |bench| bench.sort(Input::Sorted, Kind::Unstable),
    ),
    case(
        "sort-unstable-few-distinct",
        "ns/item",
        times(1.0, "rayon"),
        |bench| bench.sort(Input::FewDistinct, Kind::Unstable),
    ),
    case(
        "sort-unstable-heavy",
        "ns/item",
        times(1.0, "rayon"),
        |bench| bench.sort(Input::Heavy, Kind::Unstable),
    ),
    // Spawns; the number is how many bytes a closure captures.
    case(
        "spawn-outside-0",
        "ns/unit",
        times(0.9, "crossbeam"),
        |bench| bench.empty::<0>(From::Outside),
    ),
    case(
        "spawn-outside-8",
        "ns/unit",
        times(0.855, "crossbeam"),
        |bench| bench.empty::<1>(From::Outside),
    ),
    case(
        "spawn-outside-64",
        "ns/unit",
        times(0.855, "crossbeam"),
        |bench| bench.empty::<8>(From::Outside),
    ),
    case(
        "spawn-four-threads-8",
        "ns/unit",
        times(1.0, "crossbeam"),
        |bench| bench.empty::<1>(From::Threads(4)),
    ),
    case(
        "spawn-inside-0",
        "ns/unit",
        times(0.9, "crossbeam"),
        |bench| bench.empty::<0>(From::Inside),
    ),
    case(
        "spawn-inside-8",
        "ns/unit",
        times(0.75, "crossbeam"),
        |bench| bench.empty::<1>(From::Inside),
    ),
    case(
        "spawn-inside-64",
        "ns/unit",
        times(0.75, "crossbeam"),
        |bench| bench.empty::<8>(From::Inside),
    ),
    case(
        "scope-inside-0",
        "ns/unit",
        times(0.9, "crossbeam"),
        |bench| bench.empty_scope::<0>(),
    ),
    case(
        "scope-inside-8",
        "ns/unit",
        times(0.9, "crossbeam"),
        |bench| bench.empty_scope::<1>(),
    ),
    case(
        "scope-inside-64",
        "ns/unit",
        times(0.9, "crossbeam"),
        |bench| bench.empty_scope::<8>(),
    ),
    case("scope-tree", "ns/node", times(0.9, "rayon"), |bench| {
        let depth = bench.size(24, 20) as u32;
        bench.turns(lineup::scoping(&ScopeTree { depth }, bench.workers))
    }),
    case("scope-foreign", "ms", times(1.05, "rayon"), |bench| {
        let repeats = bench.size(20, 5) as u32;
        bench.turns(lineup::scoping(&Foreign { repeats }, bench.workers))
    }),
    // Handles.
    case(
        "handles-dropped",
        "ns/unit",
        Some(Goal::AtMost(120.0)),
        |bench| {
            bench.turns(handles::dropped(
                bench.size(1_000_000, 100_000),
                bench.workers,
            ))
        },
    ),
    case(
        "handles-waited",
        "ns/unit",
        Some(Goal::AtMost(120.0)),
        |bench| {
            bench.turns(handles::waited(
                bench.size(1_000_000, 100_000),
                bench.workers,
            ))
        },
    ),
    case("handles-waited-outside", "ns/unit", None, |bench| {
        bench.turns(handles::waited_outside(
            bench.size(200_000, 20_000),
            bench.workers,
        ))
    }),
    case("handle-chains", "ns/link", times(1.0, "tokio"), |bench| {
        bench.turns(handles::chained(bench.size(200_000, 20_000), bench.workers))
    }),
    // Time until something runs, and what it burns.
    case("submit-idle-p50", "us", times(1.15, "park"), |bench| {
        submit_idle(bench, 0.5)
    }),
    case("submit-idle-p99", "us", times(1.05, "park"), |bench| {
        submit_idle(bench, 0.99)
    }),
    case(
        "urgent-behind-2000",
        "ms",
        Some(Goal::AtMost(0.2)),
        |bench| bench.spawners(&Urgent, None),
    ),
    case("idle-cpu", "ms/3s", Some(Goal::AtMost(1.0)), |bench| {
        let window = Duration::from_millis(bench.size(1000, 200) as u64);
        bench.fork_join(&Idle { window })
    }),
    case("duty-cycle", "cpu/useful", times(0.806, "tokio"), |bench| {
        let count = bench.size(300, 50);
        let workload = DutyCycle { count };
        let floor = Contender::new("park", Role::Floor, || workload.floor());
        bench.spawners(&workload, Some(floor))
    }),
    case("build-and-drop", "us", None, |bench| {
        bench.turns(lineup::builders(bench.workers))
    }),
    case("memory-per-worker", "KiB", None, |bench| {
        bench.turns(memory::probes())
    }),
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

    /// A million closures that capture so many words.
    fn empty<const WORDS: usize>(&self, from: From) -> Vec<Samples> {
        let count = self.size(1_000_000, 100_000);
        let workload = Empty::<WORDS> { count, from };
        let floor = Contender::new("boxed call", Role::Floor, || workload.floor());
        self.spawners(&workload, Some(floor))
    }

    /// The same in a scope, beside crossbeam's deques, which have none.
    fn empty_scope<const WORDS: usize>(&self) -> Vec<Samples> {
        let count = self.size(1_000_000, 100_000);
        let from = From::Inside;
        let workload = Empty::<WORDS> { count, from };
        let mut contenders = lineup::scoping(&workload, self.workers);
        let mut plain = lineup::spawners(&workload, self.workers);
        plain.retain(|contender| contender.name() == "crossbeam");
        contenders.append(&mut plain);
        self.turns(contenders)
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

fn heavy_tail(bench: &Bench<'_>, workers: usize) -> Vec<Samples> {
    let items = HeavyTail::ascending(10_000, bench.size(80_000_000, 8_000_000));
    let mut contenders = lineup::fork_join(&items, workers);
    let ideal = || items.ideal(bench.workers);
    contenders.push(Contender::new("ideal", Role::Floor, ideal));
    contenders.extend(loops::heavy_tail(items.costs(), workers, spin));
    // These have no loops: a closure per item.
    let mut spawners = lineup::spawners(&items, workers);
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

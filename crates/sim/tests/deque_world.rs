//! The deque world under checkers, against bounds, and against itself.

use std::sync::Arc;

use loxley_balance::{Patience, StealAmount, Topology, VictimOrder};
use loxley_sim::checkers::DequeCheckers;
use loxley_sim::deque_world::{self, DequeWorld, Idle, OwnerEnd, Placement, Spawning, Stealing};
use loxley_sim::workload::{TaskRecord, WorkloadBuilder};
use loxley_sim::{Arrivals, DequeSetup, Distribution, EventLog, Load, Workload};
use proptest::prelude::*;

fn order() -> impl Strategy<Value = VictimOrder> {
    prop_oneof![
        Just(VictimOrder::Random),
        Just(VictimOrder::Nearest),
        Just(VictimOrder::MostLoaded),
        Just(VictimOrder::Hierarchical),
    ]
}

fn stealing() -> impl Strategy<Value = Option<Stealing>> {
    let amount = prop_oneof![
        Just(StealAmount::One),
        Just(StealAmount::Half),
        (1_usize..5).prop_map(StealAmount::batch),
    ];
    let idle = prop_oneof![
        Just(Idle::Once),
        (1_u64..2_000_000_000).prop_map(Idle::Poll),
        Just(Idle::Backoff(Patience::default())),
    ];
    let probes = prop_oneof![Just(1), Just(3), Just(usize::MAX)];
    let costs = prop_oneof![Just([0; 5]), Just([1_000, 2_000, 5_000, 9_000, 100_000])];
    let some = (order(), amount, idle, probes, costs, 0_u64..1_000_000).prop_map(
        |(order, amount, idle, probes, probe_costs, wake_latency)| {
            Some(Stealing {
                order,
                amount,
                probes,
                idle,
                probe_costs,
                wake_latency,
            })
        },
    );
    prop_oneof![9 => some, 1 => Just(None)]
}

fn placement(workers: u32) -> impl Strategy<Value = Placement> {
    prop_oneof![
        Just(Placement::RoundRobin),
        Just(Placement::Blocks),
        Just(Placement::Random),
        (0..workers).prop_map(Placement::On),
        Just(Placement::Counts(vec![3])),
        Just(Placement::Shared),
        Just(Placement::LeastOf(2)),
    ]
}

fn graph(latest_release: u64) -> impl Strategy<Value = Load> {
    let tasks = prop::collection::vec((0_u64..5_000, 0..=latest_release), 1..60);
    let edges = prop::collection::vec((0_u32..60, 0_u32..60), 0..120);
    (tasks, edges).prop_map(|(tasks, edges)| {
        let mut builder = WorkloadBuilder::default();
        for (index, (work, release)) in tasks.into_iter().enumerate() {
            let mut record = TaskRecord::new(format!("t{index}"), work * 1_000_000);
            record.release = if release < 2_000 {
                0
            } else {
                release * 1_000_000
            };
            builder.add(record);
        }
        for (one, other) in edges {
            let (before, after) = (one.min(other), one.max(other));
            if before != after && after < builder.len() {
                builder.edge(before, after);
            }
        }
        Load::Graph(Arc::new(builder.build().expect("edges go forward")))
    })
}

fn load() -> impl Strategy<Value = Load> {
    let work = Distribution::Uniform(0.1, 2.0);
    prop_oneof![
        (1_u32..80).prop_map(move |count| Load::Stream {
            count,
            work,
            arrivals: Arrivals::AtOnce
        }),
        (1_u32..80).prop_map(move |count| Load::Stream {
            count,
            work,
            arrivals: Arrivals::Poisson(3.0)
        }),
        (1_u64..30).prop_map(|pieces| Load::Pieces {
            total: 10_000_000_001,
            piece: 10_000_000_000 / pieces
        }),
        (0_u8..6).prop_map(move |depth| Load::Tree {
            depth,
            fan_out: 2,
            work
        }),
        graph(3_000),
    ]
}

fn setup() -> impl Strategy<Value = DequeSetup> {
    (1_u32..9).prop_flat_map(|workers| {
        (
            prop::collection::vec(
                prop_oneof![3 => Just(1.0), 1 => 0.1_f64..4.0],
                workers as usize,
            ),
            load(),
            prop::option::of(Just(Spawning {
                chance: 0.3,
                children: (1, 3),
                work: None,
                at: 0.5,
            })),
            placement(workers),
            prop::bool::ANY,
            stealing(),
            prop_oneof![Just(0_u64), Just(1_000_000)],
        )
            .prop_map(
                |(speeds, load, spawning, placement, oldest, stealing, overhead)| DequeSetup {
                    topology: Topology::cluster(1, 1, speeds.len(), 1),
                    spawning: spawning.filter(|_| matches!(load, Load::Stream { .. })),
                    owner_end: if oldest {
                        OwnerEnd::Oldest
                    } else {
                        OwnerEnd::Newest
                    },
                    speeds,
                    load,
                    placement,
                    stealing,
                    overhead,
                    warm_up: 0,
                    until: None,
                },
            )
    })
}

fn graph_of(setup: &DequeSetup) -> Option<Arc<Workload>> {
    match &setup.load {
        Load::Graph(workload) => Some(Arc::clone(workload)),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_run_keeps_every_claim(setup in setup(), seed in 0_u64..1_000_000) {
        let mut checkers = DequeCheckers::new(setup.speeds.len(), graph_of(&setup));
        let statistics = deque_world::run(&setup, seed, &mut checkers);
        prop_assert_eq!(checkers.verdict(statistics.submitted), Ok(()));
        prop_assert!(statistics.makespan >= statistics.lower_bound());
        prop_assert_eq!(statistics.executed(), statistics.submitted);
        let robbed: u64 = statistics.workers.iter().map(|worker| worker.robbed).sum();
        prop_assert_eq!(statistics.stolen(), robbed);
    }

    #[test]
    fn a_greedy_run_keeps_the_bound_of_graham(
        load in graph(0), workers in 1_usize..9, order in order(), seed in 0_u64..1_000_000,
    ) {
        // Free probes of everyone, and waking without delay: nobody idles while something waits.
        let mut setup = DequeSetup::new(workers, load);
        setup.stealing = Some(Stealing { order, ..Stealing::default() });
        let statistics = deque_world::run(&setup, seed, &mut ());
        let processors = workers as f64;
        let bound = statistics.total_work as f64 / processors
            + (1.0 - 1.0 / processors) * statistics.critical_path as f64;
        prop_assert!(statistics.makespan as f64 <= bound + 1.0, "{} > {bound}", statistics.makespan);
    }
}

#[test]
fn the_same_seed_writes_the_same_bytes_and_another_does_not() {
    let mut setup = DequeSetup::new(
        5,
        Load::Stream {
            count: 200,
            work: Distribution::LogNormal {
                median: 1.0,
                sigma: 1.0,
            },
            arrivals: Arrivals::Poisson(4.0),
        },
    );
    setup.spawning = Some(Spawning {
        chance: 0.3,
        children: (1, 3),
        work: None,
        at: 0.5,
    });
    let log = |seed| {
        let mut log = EventLog::new(Vec::new());
        deque_world::run(&setup, seed, &mut log);
        log.finish().unwrap()
    };
    assert_eq!(log(1), log(1));
    assert_ne!(log(1), log(2));
    let text = String::from_utf8(log(1)).unwrap();
    assert!(text.starts_with("{\"ns\":"), "{}", &text[..80]);
}

#[test]
fn every_policy_faces_the_same_tree() {
    let mut totals = Vec::new();
    for order in [VictimOrder::Random, VictimOrder::MostLoaded] {
        for workers in [1, 7] {
            let mut setup = DequeSetup::new(
                workers,
                Load::Stream {
                    count: 30,
                    work: Distribution::Exponential(1.0),
                    arrivals: Arrivals::AtOnce,
                },
            );
            setup.spawning = Some(Spawning {
                chance: 0.3,
                children: (1, 3),
                work: None,
                at: 0.5,
            });
            setup.stealing = Some(Stealing {
                order,
                ..Stealing::default()
            });
            let statistics = deque_world::run(&setup, 11, &mut ());
            totals.push((
                statistics.submitted,
                statistics.total_work,
                statistics.critical_path,
            ));
        }
    }
    assert!(totals.iter().all(|total| *total == totals[0]), "{totals:?}");
}

#[test]
fn a_queued_task_takes_no_more_than_32_bytes() {
    let setup = DequeSetup::new(
        64,
        Load::Stream {
            count: 100_032,
            work: Distribution::Exponential(0.001),
            arrivals: Arrivals::AtOnce,
        },
    );
    let mut nobody = ();
    let world = DequeWorld::new(&setup, 1, &mut nobody);
    let bytes = world.bytes_per_task();
    assert!(bytes <= 32.05, "{bytes}");
    assert_eq!(world.run().executed(), 100_032);
}

#[test]
fn a_time_limit_stops_the_run() {
    let mut setup = DequeSetup::new(
        1,
        Load::Pieces {
            total: 10_000,
            piece: 1_000,
        },
    );
    setup.until = Some(3_500);
    let statistics = deque_world::run(&setup, 1, &mut ());
    assert_eq!(statistics.executed(), 3);
}

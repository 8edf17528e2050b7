//! Claims about victims, summaries, figures and advice that must hold for any input.

use loxley_balance::advice::{Hints, Strategy as Advised, advise};
use loxley_balance::{
    BalanceReport, Observations, Place, QueueDepths, QueueIndex, Rng, Sketch, Topology,
    VictimOrder, Victims,
};
use proptest::prelude::*;

fn place() -> impl Strategy<Value = Place> {
    (0_u32..3, 0_u32..3, 0_u32..3, 0_u32..3).prop_map(|(machine, socket, group, core)| Place {
        machine,
        socket,
        group,
        core,
    })
}

fn sketch_of(values: &[u64]) -> Sketch {
    let mut sketch = Sketch::default();
    values.iter().for_each(|&value| sketch.record(value));
    sketch
}

fn cost() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(f64::MIN_POSITIVE),
        0.0..1.0,
        1.0..1e6,
        1e290..1e300
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_round_names_the_right_workers_once_in_the_right_order(
        places in prop::collection::vec(place(), 1..40),
        thief in any::<prop::sample::Index>(),
        seed in any::<u64>(),
        failures in 0_usize..6,
    ) {
        let thief = thief.index(places.len());
        let topology = Topology::new(places);
        let mut rng = Rng::new(seed);
        let distance = |&victim: &usize| topology.distance(thief, victim);
        for order in [VictimOrder::Random, VictimOrder::Nearest, VictimOrder::Hierarchical] {
            let mut victims = Victims::new(order, &topology, thief);
            for _ in 0..failures {
                victims.round(&topology, &mut rng, |_| 0);
            }
            let reach = victims.reach();
            let named: Vec<usize> = victims.round(&topology, &mut rng, |_| 0).collect();
            if order != VictimOrder::Random {
                prop_assert!(named.is_sorted_by_key(&distance));
            }
            let mut sorted = named;
            sorted.sort_unstable();
            let expected: Vec<usize> = (0..topology.len())
                .filter(|other| *other != thief && distance(other) <= reach)
                .collect();
            prop_assert_eq!(&sorted, &expected);
            if order != VictimOrder::Hierarchical || failures >= 4 {
                prop_assert_eq!(sorted.len(), topology.len() - 1, "nobody is left out for ever");
            }
        }
    }

    #[test]
    fn a_decided_round_is_the_walked_one(
        places in prop::collection::vec(place(), 1..300),
        seed in any::<u64>(),
        share in prop_oneof![Just(0.0), Just(0.01), 0.0..0.1, 0.0..1.0],
        probes_max in prop_oneof![Just(1_usize), 1_usize..40, Just(usize::MAX)],
    ) {
        let topology = Topology::new(places);
        let mut rng = Rng::new(seed);
        let thief = rng.index(topology.len());
        for order in [VictimOrder::Random, VictimOrder::Nearest, VictimOrder::MostLoaded, VictimOrder::Hierarchical] {
            let mut queues = QueueIndex::new(order, &topology);
            let lengths: Vec<usize> = (0..topology.len())
                .map(|worker| if worker != thief && rng.chance(share) { 1 + rng.index(3) } else { 0 })
                .collect();
            for (worker, &length) in lengths.iter().enumerate() {
                queues.set(worker, 7); // whatever was there before must not matter
                queues.set(worker, length);
            }
            let mut walker = Victims::new(order, &topology, thief);
            let mut decider = walker.clone();
            let (mut chance, mut same_chance) = (rng.numbered_child("round", 1), rng.numbered_child("round", 1));
            // Several rounds, so that a hierarchical search widens.
            for _ in 0..6 {
                let mut by_distance = [0_u32; 5];
                let mut victim = None;
                for worker in walker.round(&topology, &mut chance, |worker| lengths[worker]).take(probes_max) {
                    by_distance[topology.distance(thief, worker) as usize] += 1;
                    if lengths[worker] > 0 {
                        victim = Some(worker);
                        break;
                    }
                }
                let outcome = decider.decide_round(&topology, &mut same_chance, &queues, probes_max);
                prop_assert_eq!(outcome.victim, victim, "{:?}", order);
                prop_assert_eq!(outcome.probes_by_distance(), by_distance, "{:?}", order);
                prop_assert_eq!(outcome.probes, by_distance.iter().sum::<u32>(), "{:?}", order);
                prop_assert_eq!(&walker, &decider);
                prop_assert_eq!(&chance, &same_chance);
            }
        }
    }

    #[test]
    fn the_most_loaded_come_first_and_the_empty_never(
        loads in prop::collection::vec(0_usize..5, 1..30),
        seed in any::<u64>(),
    ) {
        let topology = Topology::flat(loads.len());
        let mut victims = Victims::new(VictimOrder::MostLoaded, &topology, 0);
        let named: Vec<usize> =
            victims.round(&topology, &mut Rng::new(seed), |worker| loads[worker]).collect();
        prop_assert!(named.is_sorted_by(|one, other| loads[*one] >= loads[*other]));
        let mut sorted = named;
        sorted.sort_unstable();
        let expected: Vec<usize> = (1..loads.len()).filter(|&worker| loads[worker] > 0).collect();
        prop_assert_eq!(sorted, expected);
    }

    #[test]
    fn quantiles_are_within_their_error(
        mut values in prop::collection::vec((any::<u64>(), 0_u32..64).prop_map(|(v, s)| v >> s), 1..300),
        rank in 0.0_f64..=1.0,
    ) {
        let near = sketch_of(&values).quantile(rank).unwrap();
        values.sort_unstable();
        let at = (rank * values.len() as f64).ceil() as usize;
        let exact = values[at.max(1) - 1];
        prop_assert!(near.abs_diff(exact) as f64 <= exact as f64 / 128.0, "{near} {exact}");
    }

    #[test]
    fn figures_stay_within_what_they_mean(
        busy_ns in prop::collection::vec(0_u64..1_000, 1..20),
        durations in prop::collection::vec(1_u64..1_000_000, 1..50),
        depths in prop::collection::vec(prop::collection::vec(0_usize..50, 4), 1..10),
    ) {
        let mut queue_depths = QueueDepths::default();
        depths.iter().for_each(|sample| queue_depths.sample(sample.iter().copied()));
        let report = BalanceReport::new(&Observations {
            busy_ns: &busy_ns,
            wall_ns: busy_ns.iter().copied().max().unwrap_or(0),
            durations: &sketch_of(&durations),
            queue_depths: &queue_depths,
        });
        if let Some(imbalance) = report.load_imbalance.value {
            prop_assert!((1.0..=busy_ns.len() as f64).contains(&imbalance));
            // With the busiest worker setting the wall time, one is the inverse of the other.
            let utilization = report.utilization.value.unwrap();
            prop_assert!((imbalance * utilization - 1.0).abs() < 1e-9);
        }
        prop_assert!(report.straggler_ratio.value.unwrap() >= 1.0);
        prop_assert!(report.queue_depth_variance.value.unwrap() >= 0.0);
        prop_assert_eq!(report.to_string().lines().count(), 4);
    }

    #[test]
    fn advice_on_anything_is_complete_and_honest(
        costs in prop::collection::vec(cost(), 1..80),
        parts in 1_usize..12,
        streaming in any::<bool>(),
        order_matters in any::<bool>(),
        predictable in any::<Option<bool>>(),
    ) {
        let hints = Hints { streaming, order_matters, predictable, overhead: 0.0 };
        let advice = advise(&costs, parts, &hints).unwrap();
        prop_assert_eq!(advice.trials.len(), Advised::ALL.len());
        let floor = advice.evidence.floor();
        for trial in &advice.trials {
            prop_assert!(trial.imbalance >= floor * (1.0 - 1e-9), "{trial:?} {floor}");
            prop_assert!(trial.imbalance <= parts as f64 * (1.0 + 1e-9), "{trial:?}");
        }
        if streaming {
            let plans_ahead = advice.strategy.needs_costs() || advice.strategy == Advised::EqualChunks;
            prop_assert!(!plans_ahead, "a stream has no end to plan for");
        }
        if predictable == Some(false) {
            prop_assert!(!advice.strategy.needs_costs(), "nobody knows the costs");
        }
        if order_matters && !streaming {
            let scatters = [Advised::LargestFirst, Advised::RoundRobin, Advised::SelfScheduling];
            prop_assert!(!scatters.contains(&advice.strategy), "neighbours stay together");
        }
        prop_assert!(advice.to_string().lines().all(|line| !line.contains("NaN")));
        prop_assert_eq!(advise(&costs, parts, &hints).unwrap(), advice);
    }
}

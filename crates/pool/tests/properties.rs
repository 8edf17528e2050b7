//! Whatever the shape of the pool and the data: the parallel result is the sequential one.

use loxley_pool::{Partition, Pool, StealAmount, Topology, VictimOrder};
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

fn pools() -> impl Strategy<Value = Pool> {
    let order = prop_oneof![
        Just(VictimOrder::Random),
        Just(VictimOrder::Nearest),
        Just(VictimOrder::MostLoaded),
        Just(VictimOrder::Hierarchical),
    ];
    let amount = prop_oneof![
        Just(StealAmount::One),
        Just(StealAmount::Half),
        (1_usize..9).prop_map(StealAmount::batch),
    ];
    let shape = (1_usize..3, 1_usize..3, 1_usize..3);
    let shape =
        shape.prop_map(|(sockets, groups, cores)| Topology::regular(sockets, groups, cores));
    let settings = (1_usize..6, order, amount, shape, any::<u64>());
    settings.prop_map(|(workers, order, amount, topology, seed)| {
        Pool::builder()
            .workers(workers)
            .topology(topology)
            .victim_order(order)
            .steal_amount(amount)
            .seed(seed)
            .build()
            .expect("threads")
    })
}

/// A tree of work: each node spawns its children, in one of three ways.
#[derive(Debug, Clone)]
struct Node {
    way: u8,
    children: Vec<Self>,
}

fn trees() -> impl Strategy<Value = Node> {
    let leaf = any::<u8>().prop_map(|way| Node {
        way,
        children: Vec::new(),
    });
    leaf.prop_recursive(5, 60, 4, |inner| {
        (any::<u8>(), prop::collection::vec(inner, 0..4))
            .prop_map(|(way, children)| Node { way, children })
    })
}

fn count(node: &Node) -> u64 {
    1 + node.children.iter().map(count).sum::<u64>()
}

fn visit(node: &Node, seen: &AtomicU64) {
    seen.fetch_add(1, Ordering::Relaxed);
    match node.way % 3 {
        0 => loxley_pool::scope(|scope| {
            for child in &node.children {
                scope.spawn(move |_| visit(child, seen));
            }
        }),
        1 => visit_halves(&node.children, seen),
        _ => node.children.iter().for_each(|child| visit(child, seen)),
    }
}

fn visit_halves(nodes: &[Node], seen: &AtomicU64) {
    match nodes {
        [] => {}
        [node] => visit(node, seen),
        _ => {
            let (left, right) = nodes.split_at(nodes.len() / 2);
            loxley_pool::join(|| visit_halves(left, seen), || visit_halves(right, seen));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_node_of_a_tree_is_visited_once(pool in pools(), tree in trees()) {
        let seen = AtomicU64::new(0);
        pool.install(|| visit(&tree, &seen));
        prop_assert_eq!(seen.into_inner(), count(&tree));
        let metrics = pool.metrics();
        prop_assert_eq!(metrics.submitted, 0);
    }

    #[test]
    fn maps_and_folds_equal_the_sequential_ones(
        pool in pools(),
        items in prop::collection::vec(any::<i64>(), 0..2000),
    ) {
        let mapped = pool.par_map(&items[..], |&x| x.wrapping_mul(3).to_string());
        let expected: Vec<String> = items.iter().map(|x| x.wrapping_mul(3).to_string()).collect();
        prop_assert_eq!(&mapped, &expected);
        // Not commutative: the order must be kept.
        let joined = pool.map_reduce(&mapped[..], String::new, |s| s.clone(), |a, b| a + &b);
        prop_assert_eq!(joined, expected.concat());
    }

    #[test]
    fn sorts_equal_the_sequential_ones(
        pool in pools(),
        items in prop::collection::vec((0_u8..20, any::<u16>()), 0..9000),
    ) {
        let (mut stable, mut unstable, mut expected) = (items.clone(), items.clone(), items);
        pool.sort_by_key(&mut stable, |item| item.0);
        expected.sort_by_key(|item| item.0);
        prop_assert_eq!(&stable, &expected);
        pool.sort_unstable(&mut unstable);
        expected.sort_unstable();
        prop_assert_eq!(unstable, expected);
    }

    #[test]
    fn chunks_and_partitions_cover_everything(
        pool in pools(),
        mut items in prop::collection::vec(0_u64..1000, 0..500),
        size in 1_usize..50,
    ) {
        let total: u64 = items.iter().sum();
        let sum = AtomicU64::new(0);
        pool.par_chunks(&items, size, |_, chunk| {
            sum.fetch_add(chunk.iter().sum(), Ordering::Relaxed);
        });
        prop_assert_eq!(sum.swap(0, Ordering::Relaxed), total);
        let costs: Vec<f64> = items.iter().map(|&x| x as f64).collect();
        for partition in [
            Partition::Equal,
            Partition::RoundRobin,
            Partition::Weighted(&costs),
            Partition::Hash(&items.clone()),
            Partition::Ranges(&costs),
        ] {
            pool.par_for_partitioned(&items, &partition, |&x| {
                sum.fetch_add(x, Ordering::Relaxed);
            }).expect("costs are not negative");
            prop_assert_eq!(sum.swap(0, Ordering::Relaxed), total);
        }
        let len = items.len() as u64;
        pool.par_chunks_mut(&mut items, size, |_, chunk| chunk.iter_mut().for_each(|x| *x += 1));
        prop_assert_eq!(items.iter().sum::<u64>(), total + len);
    }

    #[test]
    fn metrics_count_every_unit_once(
        pool in pools(),
        counts in (0_u64..40, 0_u64..40, 0_u64..40, 0_u64..40),
    ) {
        let (detached, handles, cancelled, scoped) = counts;
        for _ in 0..detached {
            // One from outside that makes one inside.
            pool.spawn_detached(|| drop(loxley_pool::spawn(|| ())));
        }
        for _ in 0..handles {
            pool.spawn(|| ()).wait();
        }
        for _ in 0..cancelled {
            let _ = pool.spawn(|| ()).cancel();
        }
        pool.scope(|scope| (0..scoped).for_each(|_| scope.spawn(|_| ())));
        pool.wait_idle();
        let made = 2 * detached + handles + cancelled + scoped;
        // The last units of a handle or scope are counted just after their end is known, and what
        // was cancelled is thrown away by whoever comes by.
        let start = std::time::Instant::now();
        while pool.metrics().run() < made && start.elapsed().as_secs() < 20 {
            std::thread::yield_now();
        }
        let metrics = pool.metrics();
        prop_assert_eq!((metrics.run(), metrics.spawned()), (made, made));
        prop_assert_eq!(metrics.submitted, detached + handles + cancelled);
    }
}
